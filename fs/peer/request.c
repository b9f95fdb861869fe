/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Requests that arrive. Each is given to the handler once and in order: one whose predecessor has not been seen is dropped,
 * since it is sent again behind that; what is not above the highest number seen has been there before.
 * Then, when it is answered, the reply goes out again; when somebody still works on it, the reply will come; when it is not
 * known any more, its sender has the reply (messages arrive in order, so what it sent before it said so is not newer).
 *
 * A request lives until both the handler has replied and the sender has no use for the reply. It is in the hash and its
 * node's list until the second, then, if need be, among the loose ones until the first.
 */
#include <errno.h>
#include <stdlib.h>

#include "fs/peer/private.h"

uint32_t peers_from(const struct peers_request *rq)
{
	return rq->from;
}

const struct wire_msg *peers_msg(const struct peers_request *rq)
{
	return &rq->msg;
}

bool peers_is_wanted(const struct peers_request *rq)
{
	struct peers *p = rq->p;

	pthread_mutex_lock(&p->lock);
	bool wanted = rq->self ? rq->tell || entry_find(p->calls, SELF, rq->entry.number)
			       : !rq->forgotten && !p->nodes[rq->from].gone;
	pthread_mutex_unlock(&p->lock);
	return wanted;
}

static void request_free(struct peers_request *rq)
{
	wire_msg_free(&rq->msg);
	free(rq);
}

void requests_free(struct request_list *list)
{
	struct peers_request *rq;

	while ((rq = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, rq, in_list);
		request_free(rq);
	}
}

/* ---- forgetting. Under the lock */

static void request_forget(struct peers *p, struct node *n, struct peers_request *rq)
{
	TAILQ_REMOVE(&n->requests, rq, in_list);
	entry_remove(p->requests, &rq->entry);
	n->num_requests--;
	rq->forgotten = true;
	if (rq->answered)
		request_free(rq);
	else
		TAILQ_INSERT_TAIL(&p->loose, rq, in_list);
}

void requests_forget_all(struct peers *p, struct node *n)
{
	while (!TAILQ_EMPTY(&n->requests))
		request_forget(p, n, TAILQ_FIRST(&n->requests));
}

void requests_acked(struct peers *p, uint32_t from, const struct frame *f)
{
	struct node *n = &p->nodes[from];
	struct peers_request *rq;

	while ((rq = TAILQ_FIRST(&n->requests)) && rq->entry.number < f->below)
		request_forget(p, n, rq);
	for (uint32_t i = 0; i < f->num_acks; i++) {
		rq = (struct peers_request *)entry_find(p->requests, from, frame_ack(f, i));
		if (rq)
			request_forget(p, n, rq);
	}
}

/* ---- arriving */

static void send_reply(struct peers *p, struct peers_request *rq)
{
	if (p->nodes[rq->from].present)
		node_send(p, rq->from, &(struct frame){ .kind = FRAME_REPLY, .number = rq->entry.number }, &rq->msg);
}

static struct peers_request *request_make(struct peers *p, uint32_t from, const struct frame *f)
{
	struct peers_request *rq = calloc(1, sizeof(*rq));

	if (!rq)
		return NULL;
	rq->p = p;
	rq->from = from;
	rq->tell = f->kind == FRAME_TELL;
	if (message_copy(&rq->msg, &(struct wire_msg){ .type = f->type,
					   .body = { .data = (uint8_t *)f->body, .len = f->body_len } }) == 0)
		return rq;
	request_free(rq);
	return NULL;
}

static void enlist(struct peers *p, struct node *n, struct peers_request *rq, const struct frame *f)
{
	n->seen = f->number;
	if (rq->tell) {
		n->untold++;
		n->untold_bytes += f->body_len;
		TAILQ_INSERT_TAIL(&p->loose, rq, in_list);
		if ((n->untold >= FRAME_ACKS_MAX || n->untold_bytes >= UNTOLD_BYTES) && n->present)
			node_send(p, rq->from, &(struct frame){ .kind = FRAME_ACK }, NULL);
		return;
	}
	TAILQ_INSERT_TAIL(&n->requests, rq, in_list);
	entry_add(p->requests, &rq->entry, rq->from, f->number);
	n->num_requests++;
}

static void handle(struct peers_request *rq, const struct peers_hooks *hooks)
{
	if (hooks->handle)
		hooks->handle(rq, hooks->arg);
	else
		peers_reply_status(rq, -ENOSYS);
}

/* One that was there before. Under the lock. */
static void repeated(struct peers *p, uint32_t from, const struct frame *f)
{
	struct peers_request *rq = (struct peers_request *)entry_find(p->requests, from, f->number);

	if (rq && rq->answered)
		send_reply(p, rq);
}

/*
 * Without memory, or from a node that does not keep to the limits: as if it had not arrived. Later ones of that node are refused too,
 * as it is until the agents assemble again; its calls time out.
 */
void request_arrived(struct peers *p, uint32_t from, const struct frame *f)
{
	struct peers_request *rq = request_make(p, from, f);
	struct peers_hooks hooks = { 0 };
	struct node *n = &p->nodes[from];
	bool new = false;

	pthread_mutex_lock(&p->lock);
	if (p->ended) {
		;
	} else if (f->number <= n->seen) {
		repeated(p, from, f);
	} else if (f->previous > n->seen) {
		; /* the one before it was lost; both will come again */
	} else if (rq && n->num_requests < REQUESTS_MAX) {
		enlist(p, n, rq, f);
		hooks = p->hooks;
		new = true;
		upcall_begin(p);
	}
	pthread_mutex_unlock(&p->lock);
	if (!new &&rq)
		request_free(rq);
	if (!new)
		return;
	handle(rq, &hooks);
	upcall_end(p);
}

void request_to_self(struct peers *p, struct peers_request *rq)
{
	struct peers_hooks hooks;

	pthread_mutex_lock(&p->lock);
	hooks = p->hooks;
	pthread_mutex_unlock(&p->lock);
	handle(rq, &hooks);
}

/* ---- replying */

/* The request's memory becomes the reply's. */
static void put_reply(struct peers_request *rq, const struct wire_msg *reply)
{
	struct wire_msg copy = { 0 };

	if (!buf_ok(&reply->body) || reply->body.len > MESSAGE_BYTES || message_copy(&copy, reply)) {
		wire_msg_init(&copy, WIRE_REPLY);
		wire_put_i64(&copy, WIRE_STATUS, reply->body.len > MESSAGE_BYTES ? -E2BIG : -ENOMEM);
	}
	wire_msg_free(&rq->msg);
	rq->msg = copy;
}

static void reply_to_self(struct peers *p, struct peers_request *rq)
{
	struct call_list out = TAILQ_HEAD_INITIALIZER(out);
	struct call *c;

	pthread_mutex_lock(&p->lock);
	TAILQ_REMOVE(&p->loose, rq, in_list);
	c = rq->tell ? NULL : (struct call *)entry_find(p->calls, SELF, rq->entry.number);
	if (c)
		call_take(p, c, message_status(&rq->msg), &out);
	upcall_begin(p);
	pthread_mutex_unlock(&p->lock);
	if (c)
		call_finish(c, c->status, &rq->msg);
	request_free(rq);
	upcall_end(p);
}

void peers_reply(struct peers_request *rq, const struct wire_msg *reply)
{
	struct peers *p = rq->p;

	if (rq->self) {
		put_reply(rq, reply);
		reply_to_self(p, rq);
		return;
	}
	pthread_mutex_lock(&p->lock);
	if (rq->forgotten || rq->tell) {
		TAILQ_REMOVE(&p->loose, rq, in_list);
		request_free(rq);
	} else {
		put_reply(rq, reply);
		rq->answered = true;
		send_reply(p, rq);
	}
	pthread_mutex_unlock(&p->lock);
}

void peers_reply_status(struct peers_request *rq, int64_t status)
{
	struct wire_msg reply = { 0 };

	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, status);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}
