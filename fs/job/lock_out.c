/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What leaves the part that keeps locks: in order, without its lock. And how locks are written into messages. */
#include <errno.h>
#include <stdlib.h>

#include "format/base/array.h"
#include "fs/job/lock.h"

/* ---- the line */

/* Without memory what was to be said is not: the others wait until their time is over. */
static struct lock_out *add(struct locks *l, struct wire_msg *m)
{
	struct lock_out *o = calloc(1, sizeof(*o));

	if (o && m) {
		o->msg = *m;
		*m = (struct wire_msg){ 0 };
	}
	if (o)
		TAILQ_INSERT_TAIL(&l->out, o, in_list);
	else if (m)
		wire_msg_free(m);
	return o;
}

struct lock_out *out_tell(struct locks *l, uint32_t node, struct wire_msg *m)
{
	struct lock_out *o = add(l, m);

	if (o)
		o->node = node;
	return o;
}

void out_call(struct locks *l, uint32_t node, struct wire_msg *m, struct lock_op *op, peers_done done)
{
	struct lock_out *o = add(l, m);

	if (!o) {
		op_end(l, op, -ENOLCK);
		return;
	}
	o->node = node;
	o->op = op;
	o->call = done;
	op->refs++;
}

void out_reply(struct locks *l, struct peers_request *rq, int status, bool waits, const struct lock *found)
{
	struct wire_msg m = { 0 };
	struct lock_out *o;

	wire_msg_init(&m, WIRE_REPLY);
	wire_put_i64(&m, WIRE_STATUS, status);
	message_put(&m, MESSAGE_LOCK_WAITS, waits);
	if (found)
		lock_put(&m, found, 1);
	o = add(l, &m);
	if (o)
		o->rq = rq;
}

void out_done(struct locks *l, struct lock_op *op)
{
	struct lock_out *o = &op->out;

	o->op = op;
	TAILQ_INSERT_TAIL(&l->out, o, in_list);
}

static void set_sent(struct locks *l, struct lock_op *op, bool sent)
{
	pthread_mutex_lock(&l->lock);
	op->sent = sent;
	pthread_mutex_unlock(&l->lock);
}

/* Nothing overtakes a word that waits. */
static void call(struct locks *l, struct lock_out *o)
{
	struct lock_op *op = o->op;

	pthread_mutex_lock(&l->lock);
	int rc = words_flush(l, o->node);
	bool before = op->sent;
	op->sent = true;
	pthread_mutex_unlock(&l->lock);
	rc = rc ? rc : peers_call_async(l->j->peers, o->node, &o->msg, o->call, op);
	if (rc == 0)
		return;
	set_sent(l, op, before);
	o->call(rc, NULL, op);
}

static bool is_word(const struct lock_out *o)
{
	return !o->op && !o->rq;
}

static void leave(struct locks *l, struct lock_out *o)
{
	if (o->op && !o->call) { /* o is the operation's */
		o->op->done(o->op);
		op_put(o->op);
		return;
	}
	if (is_word(o)) {
		word_say(l, o);
		return;
	}
	if (o->rq)
		peers_reply(o->rq, &o->msg);
	else
		call(l, o);
	wire_msg_free(&o->msg);
	free(o);
}

void locks_leave(struct locks *l)
{
	struct lock_out *o;

	while (!l->leaving && (o = TAILQ_FIRST(&l->out))) {
		TAILQ_REMOVE(&l->out, o, in_list);
		l->leaving = true;
		l->now = is_word(o) ? o : NULL;
		pthread_mutex_unlock(&l->lock);
		leave(l, o);
		pthread_mutex_lock(&l->lock);
		l->leaving = false;
	}
	pthread_cond_broadcast(&l->idle);
	pthread_mutex_unlock(&l->lock);
}

/* ---- locks in messages */

void lock_put(struct wire_msg *m, const struct lock *locks, size_t num)
{
	struct buf b = { 0 };

	for (size_t i = 0; i < num; i++) {
		buf_u64(&b, locks[i].ino);
		buf_u64(&b, locks[i].owner);
		buf_u64(&b, locks[i].start);
		buf_u64(&b, locks[i].end);
		buf_u32(&b, locks[i].node);
		buf_u32(&b, locks[i].pid);
		buf_u8(&b, locks[i].type);
		buf_u8(&b, locks[i].flock);
	}
	if (!buf_ok(&b))
		m->body.bad = true;
	message_put_bytes(m, MESSAGE_LOCK_LIST, b.data, b.len);
	buf_free(&b);
}

static void get_lock(struct cursor *c, struct lock *ret)
{
	ret->ino = cursor_u64(c);
	ret->owner = cursor_u64(c);
	ret->start = cursor_u64(c);
	ret->end = cursor_u64(c);
	ret->node = cursor_u32(c);
	ret->pid = cursor_u32(c);
	ret->type = cursor_u8(c);
	ret->flock = cursor_u8(c);
	if (ret->type > LOCK_TYPE_WRITE || ret->start > ret->end)
		cursor_fail(c);
}

int lock_get(const struct wire_msg *m, uint32_t node, void (*each)(const struct lock *lock, void *arg), void *arg)
{
	const uint8_t *bytes;
	size_t len;

	if (!message_get_bytes(m, MESSAGE_LOCK_LIST, 0, &bytes, &len))
		return 0;
	struct cursor c = cursor_make(bytes, len);
	while (cursor_left(&c) > 0) {
		struct lock lock;

		get_lock(&c, &lock);
		if (!cursor_ok(&c))
			return -EBADMSG;
		if (node != LOCK_ANY_NODE)
			lock.node = node;
		each(&lock, arg);
	}
	return 0;
}

struct taken {
	struct lock *at; /* owned */
	size_t num, cap;
	bool bad; /* no memory */
};

static void take_another(const struct lock *lock, void *arg)
{
	struct taken *t = arg;

	if (array_room(&t->at, &t->cap, t->num, sizeof(*t->at)) < 0)
		t->bad = true;
	else
		t->at[t->num++] = *lock;
}

int lock_get_all(const struct wire_msg *m, uint32_t node, struct lock **ret, size_t *ret_num)
{
	struct taken t = { 0 };
	int rc = lock_get(m, node, take_another, &t);

	if (rc < 0 || t.bad) {
		free(t.at);
		return rc < 0 ? rc : -ENOMEM;
	}
	*ret = t.at;
	*ret_num = t.num;
	return 0;
}

static void take_one(const struct lock *lock, void *arg)
{
	*(struct lock *)arg = *lock;
}

int lock_get_one(const struct wire_msg *m, uint32_t node, struct lock *ret)
{
	ret->ino = 0;
	int rc = lock_get(m, node, take_one, ret);
	return rc == 0 && ret->ino == 0 ? -EBADMSG : rc;
}
