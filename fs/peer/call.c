/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Calls and tells of ours. A call waits in the list of its node until its reply comes, its time is over, or the node's
 * daemon is known to be gone; it is sent when the node can be reached, and again whenever the node arrives anew. A tell
 * waits until the node says that it has seen its number. Numbers rise, so the receiver knows what it has had before.
 *
 * What the head of every frame says beside: the highest number that we have had of the receiver's (it may forget tells), and which
 * of our requests are answered (it may forget the replies). When there is nothing to send for long, an ACK says so.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/peer/private.h"

/* ---- sending */

struct node *call_node(struct peers *p, const struct call *c)
{
	return c->entry.node == SELF ? &p->me : &p->nodes[c->entry.node];
}

static uint64_t below(const struct node *n)
{
	const struct call *c;

	TAILQ_FOREACH(c, &n->calls, in_node)
	if (!c->tell)
		return c->entry.number;
	return n->last_number + 1;
}

void node_send(struct peers *p, uint32_t node, struct frame *f, const struct wire_msg *msg)
{
	struct node *n = &p->nodes[node];

	f->incarnation = p->opt.incarnation;
	f->to = n->incarnation;
	f->time_ns = peers_time_ns(p);
	f->seen = n->seen;
	f->below = below(n);
	f->num_acks = n->num_acks;
	f->type = msg ? msg->type : 0;
	buf_reset(&p->head);
	frame_put_head(&p->head, f, n->acks);
	if (!buf_ok(&p->head))
		return; /* as if the agents had lost it; the next one says it again */
	if (p->opt.ops->send(p->opt.transport, node, &p->head, msg ? msg->body.data : NULL, msg ? msg->body.len : 0))
		return;
	n->num_acks = 0;
	n->untold = 0;
	n->untold_bytes = 0;
}

void call_transmit(struct peers *p, uint32_t node, struct call *c)
{
	const struct call *before = TAILQ_PREV(c, call_list, in_node);
	struct frame f = {
		.kind = c->tell ? FRAME_TELL : FRAME_REQUEST,
		.number = c->entry.number,
		.previous = before ? before->entry.number : 0,
	};

	c->sent = true; /* it may have arrived from now on */
	node_send(p, node, &f, &c->msg);
}

void call_resend_all(struct peers *p, uint32_t node)
{
	struct call *c;

	TAILQ_FOREACH(c, &p->nodes[node].calls, in_node)
	call_transmit(p, node, c);
}

/* ---- ending */

/* Those of a list are in it in order, since they have the same time. */
static struct call_list *time_list(struct peers *p, const struct call *c)
{
	return c->entry.node == SELF ? &p->waiting_self : c->brief ? &p->waiting_brief : &p->waiting;
}

uint64_t peers_brief_usec(const struct peers *p)
{
	return p->opt.timeout_usec / 2;
}

uint64_t peers_missing_usec(const struct peers *p)
{
	return p->opt.node_timeout_usec;
}

int64_t call_due(const struct peers *p, const struct call *c)
{
	bool brief = c->brief && c->entry.node != SELF;

	return c->started_usec + (int64_t)(brief ? peers_brief_usec(p) : p->opt.timeout_usec);
}

void call_take(struct peers *p, struct call *c, int status, struct call_list *out)
{
	struct node *n = call_node(p, c);

	TAILQ_REMOVE(&n->calls, c, in_node);
	if (!c->tell)
		TAILQ_REMOVE(time_list(p, c), c, in_time);
	entry_remove(p->calls, &c->entry);
	n->num_calls--;
	n->bytes -= c->msg.body.len;
	if (p->waiters)
		pthread_cond_broadcast(&p->changed);
	c->status = status;
	TAILQ_INSERT_TAIL(out, c, in_node);
}

void calls_take_node(struct peers *p, struct node *n, bool sent_only, int status, struct call_list *out)
{
	struct call *c, *next;

	for (c = TAILQ_FIRST(&n->calls); c; c = next) {
		next = TAILQ_NEXT(c, in_node);
		if (c->sent || !sent_only)
			call_take(p, c, status, out);
	}
}

static void call_free(struct call *c)
{
	wire_msg_free(&c->msg);
	free(c);
}

void call_finish(struct call *c, int status, const struct wire_msg *reply)
{
	if (c->done)
		c->done(status, reply, c->arg);
	call_free(c);
}

void finish_calls(struct call_list *list)
{
	struct call *c;

	while ((c = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, c, in_node);
		call_finish(c, c->status, NULL);
	}
}

int message_status(const struct wire_msg *reply)
{
	int64_t status;

	if (!wire_get_i64(reply, WIRE_STATUS, &status) || status > 0 || status < -4095)
		return -EBADMSG;
	return (int)status;
}

void calls_seen(struct peers *p, uint32_t node, uint64_t seen)
{
	struct call_list out = TAILQ_HEAD_INITIALIZER(out);
	struct call *c, *next;

	for (c = TAILQ_FIRST(&p->nodes[node].calls); c && c->entry.number <= seen; c = next) {
		next = TAILQ_NEXT(c, in_node);
		if (c->tell)
			call_take(p, c, 0, &out);
	}
	finish_calls(&out); /* tells have no done() */
}

/* We have the reply to number; its keeper is told with the next frame, or soon. */
static void acknowledge(struct peers *p, uint32_t from, uint64_t number, size_t bytes)
{
	struct node *n = &p->nodes[from];

	if (n->num_acks < FRAME_ACKS_MAX)
		n->acks[n->num_acks++] = number;
	n->untold_bytes += bytes;
	if ((n->num_acks == FRAME_ACKS_MAX || n->untold_bytes >= UNTOLD_BYTES) && n->present)
		node_send(p, from, &(struct frame){ .kind = FRAME_ACK }, NULL);
}

void call_answered(struct peers *p, uint32_t from, const struct frame *f)
{
	struct wire_msg reply = { .type = f->type,
		.body = { .data = (uint8_t *)f->body, .len = f->body_len, .cap = f->body_len } };
	struct call_list out = TAILQ_HEAD_INITIALIZER(out);
	struct entry *e;

	pthread_mutex_lock(&p->lock);
	e = p->ended ? NULL : entry_find(p->calls, from, f->number);
	if (e && !((struct call *)e)->tell)
		call_take(p, (struct call *)e, message_status(&reply), &out);
	acknowledge(p, from, f->number, f->body_len);
	upcall_begin(p);
	pthread_mutex_unlock(&p->lock);
	if (!TAILQ_EMPTY(&out))
		call_finish(TAILQ_FIRST(&out), TAILQ_FIRST(&out)->status, &reply);
	upcall_end(p);
}

/* ---- beginning */

/* 0 when there is room for the call. Under the lock. */
static int admit(struct peers *p, const struct node *n, const struct call *c)
{
	if (p->ended)
		return -ESHUTDOWN;
	if (n->gone)
		return -EHOSTDOWN;
	if (n->num_calls >= CALLS_MAX + (c->brief ? BRIEF_MAX : 0))
		return -EAGAIN;
	return n->bytes && n->bytes + c->msg.body.len > CALLS_BYTES ? -EAGAIN : 0;
}

static void enlist(struct peers *p, struct node *n, uint32_t node, struct call *c)
{
	c->started_usec = peers_now();
	TAILQ_INSERT_TAIL(&n->calls, c, in_node);
	entry_add(p->calls, &c->entry, node, ++n->last_number);
	n->num_calls++;
	n->bytes += c->msg.body.len;
	if (c->tell)
		return;
	TAILQ_INSERT_TAIL(time_list(p, c), c, in_time);
	timer_poke(p, c->started_usec + (int64_t)p->opt.patience_usec);
	timer_poke(p, call_due(p, c));
}

/* To oneself: rq, made beforehand, is given to the handler here and now. */
static void enlist_self(struct peers *p, struct call *c, struct peers_request *rq)
{
	rq->from = p->self;
	if (!rq->tell) {
		enlist(p, &p->me, SELF, c);
		rq->entry.number = c->entry.number;
	}
	TAILQ_INSERT_TAIL(&p->loose, rq, in_list);
	upcall_begin(p);
}

/* wait: until there is room, for as long as a call may last. */
static int enter(struct peers *p, uint32_t node, struct call *c, struct peers_request **self_rq, bool wait)
{
	int64_t deadline = peers_now() + (int64_t)p->opt.timeout_usec;
	struct node *n;
	int r;

	if (node >= p->count)
		return -EINVAL;
	n = node == p->self ? &p->me : &p->nodes[node];
	while ((r = admit(p, n, c)) == -EAGAIN && wait && (r = peers_wait(p, deadline)) == 0)
		continue;
	if (r)
		return r;
	if (n == &p->me && !*self_rq)
		return -EINVAL; /* asked before there was such a node */
	if (n == &p->me) {
		enlist_self(p, c, *self_rq);
		return 0;
	}
	enlist(p, n, node, c);
	if (n->present)
		call_transmit(p, node, c);
	return 0;
}

/* A request to oneself takes the message over. */
static struct peers_request *request_of(struct peers *p, struct call *c)
{
	struct peers_request *rq = calloc(1, sizeof(*rq));

	if (!rq)
		return NULL;
	rq->p = p;
	rq->self = true;
	rq->tell = c->tell;
	rq->msg = c->msg;
	c->msg = (struct wire_msg){ 0 };
	return rq;
}

enum manner {
	MANNER_TELL = 1,
	MANNER_BRIEF = 2,
	MANNER_WAIT = 4, /* for room */
};

static int start(
	struct peers *p, uint32_t node, const struct wire_msg *msg, unsigned int manner, peers_done done, void *arg)
{
	bool tell = manner & MANNER_TELL;
	struct peers_request *rq = NULL;
	bool self = node == peers_self(p);
	struct call *c;
	int r;

	if (!buf_ok(&msg->body) || msg->body.len > MESSAGE_BYTES)
		return buf_ok(&msg->body) ? -E2BIG : -ENOMEM;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->tell = tell;
	c->brief = manner & MANNER_BRIEF;
	c->done = done;
	c->arg = arg;
	r = message_copy(&c->msg, msg);
	if (!r && self)
		r = (rq = request_of(p, c)) ? 0 : -ENOMEM;
	if (!r) {
		pthread_mutex_lock(&p->lock);
		/* Numbered just now: what was meant for the only node there was, ourselves, still is. */
		r = enter(p, self ? p->self : node, c, &rq, manner & MANNER_WAIT);
		pthread_mutex_unlock(&p->lock);
	}
	if (r && rq) {
		wire_msg_free(&rq->msg);
		free(rq);
	}
	if (r || (self && tell))
		call_free(c);
	if (!r && self) {
		request_to_self(p, rq);
		upcall_end(p);
	}
	return r;
}

int peers_call_async(struct peers *p, uint32_t node, const struct wire_msg *request, peers_done done, void *arg)
{
	return start(p, node, request, 0, done, arg);
}

int peers_call_async_wait(struct peers *p, uint32_t node, const struct wire_msg *request, peers_done done, void *arg)
{
	return start(p, node, request, MANNER_WAIT, done, arg);
}

int peers_call_brief(struct peers *p, uint32_t node, const struct wire_msg *request, peers_done done, void *arg)
{
	return start(p, node, request, MANNER_BRIEF, done, arg);
}

int peers_tell(struct peers *p, uint32_t node, const struct wire_msg *msg)
{
	return start(p, node, msg, MANNER_TELL, NULL, NULL);
}

int peers_call(struct peers *p, uint32_t node, const struct wire_msg *request, struct wire_msg *reply)
{
	struct waiter w;
	int r;

	waiter_init(&w, reply);
	r = waiter_end(&w, start(p, node, request, MANNER_WAIT, waiter_done, &w));
	if (r == -EHOSTDOWN)
		peers_note_failed(p, node);
	return r;
}
