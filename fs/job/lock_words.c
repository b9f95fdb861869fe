/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One-way words of locks. None may be lost while both daemons live: who waits for a lock would wait for ever, or somebody keep one
 * for ever that nobody has, or two have the same one. So what a node has no room for waits here, and is said again each second and
 * before anything else leaves for that node; a call that finds a word still waiting fails. So each node hears what happened in its order.
 *
 * What is kept is bounded by what it is about. GRANTED: a request that waited, of which its node hears no more until then. LOST: a lock
 * that the node has told of. RECLAIM and HELD: one for a node. FIX: a request that was sent, or one for each owner and file.
 *
 * FIX and HELD say what our copy has when they are said: what has come to it since is true as well, and nothing has left it of which the
 * home was told before. Only replies go past what waits: who is to hear that he has lost a lock gets no new one before.
 */
#include <errno.h>
#include <stdlib.h>

#include "fs/job/lock.h"

#define AGAIN_USEC 1000000

/* ---- saying one */

static int by_start(const void *a, const void *b)
{
	const struct lock *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* The range, and what its owner has there. */
static int say_range(struct locks *l, const struct lock_out *o, const struct lock *locks, size_t num)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_LOCK_FIX);
	message_put(&m, MESSAGE_LOCK_ID, o->id);
	lock_put(&m, locks, num);
	int rc = peers_tell(l->j->peers, o->node, &m);
	wire_msg_free(&m);
	return rc;
}

/* Piece by piece, if there is much: what has been said is not a part of the word any more. */
static int say_fix(struct locks *l, struct lock_out *o)
{
	struct lock *locks;
	size_t num, done = 0;
	bool last = false;
	int rc = mine_in(l, &o->lock, &locks, &num);

	if (rc < 0)
		return rc;
	qsort(locks + 1, num - 1, sizeof(*locks), by_start);
	while (rc == 0 && !last) {
		last = num - 1 - done <= LOCK_TOLD_MAX;
		size_t some = last ? num - 1 - done : LOCK_TOLD_MAX;

		locks[done] = o->lock;
		if (!last)
			locks[done].end = locks[done + some].end;
		rc = say_range(l, o, locks + done, some + 1);
		done += some;
		if (rc == 0 && !last) {
			o->lock.start = locks[done].end + 1;
			o->id = 0;
		}
	}
	free(locks);
	return rc;
}

static int say_some(struct locks *l, uint32_t home, const struct lock *locks, size_t num, bool last)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_LOCK_HELD);
	lock_put(&m, locks, num);
	message_put(&m, MESSAGE_LOCK_LAST, last);
	int rc = peers_tell(l->j->peers, home, &m);
	wire_msg_free(&m);
	return rc;
}

/* All or, another time, all of it anew: the last message says that there is no more. */
static int say_held(struct locks *l, uint32_t home)
{
	struct lock *locks;
	size_t num, done = 0;
	int rc = mine_at(l, home, &locks, &num);

	if (rc < 0)
		return rc;
	do {
		size_t some = num - done < LOCK_TOLD_MAX ? num - done : LOCK_TOLD_MAX;

		rc = say_some(l, home, locks + done, some, done + some == num);
		done += some;
	} while (rc == 0 && done < num);
	free(locks);
	return rc;
}

static int say_kind(struct locks *l, struct lock_out *o)
{
	if (o->is_void)
		return 0;
	switch (o->msg.type) {
	case MESSAGE_LOCK_FIX: return say_fix(l, o);
	case MESSAGE_LOCK_HELD: return say_held(l, o->node);
	default: return peers_tell(l->j->peers, o->node, &o->msg);
	}
}

/* -EAGAIN: the node has no room. */
static int say(struct locks *l, struct lock_out *o)
{
	int rc = say_kind(l, o);

	if (rc == -ENOMEM)
		return -EAGAIN;
	if (rc < 0 && rc != -EAGAIN && o->msg.type == MESSAGE_LOCK_RECLAIM)
		home_told(l, o->node); /* who was given up has nothing */
	return rc;
}

static void word_free(struct locks *l, struct lock_out *o)
{
	l->num_losing -= o->msg.type == MESSAGE_LOCK_LOST;
	wire_msg_free(&o->msg);
	free(o);
}

/* ---- those that wait */

static void keep(struct locks *l, struct lock_out *o)
{
	TAILQ_INSERT_TAIL(&l->unsaid[o->node], o, in_list);
	if (l->num_unsaid++ == 0)
		l->again_usec = lock_now_usec() + AGAIN_USEC;
	home_set_timer(l);
}

static void unkeep(struct locks *l, struct lock_out *o)
{
	TAILQ_REMOVE(&l->unsaid[o->node], o, in_list);
	l->num_unsaid--;
	word_free(l, o);
}

int words_flush(struct locks *l, uint32_t node)
{
	struct lock_out *o;

	while (l->unsaid && (o = TAILQ_FIRST(&l->unsaid[node]))) {
		if (say(l, o) == -EAGAIN)
			return -EAGAIN;
		unkeep(l, o);
	}
	return 0;
}

void word_say(struct locks *l, struct lock_out *o)
{
	pthread_mutex_lock(&l->lock);
	l->now = NULL;
	int rc = words_flush(l, o->node);
	rc = rc ? rc : say(l, o);
	if (rc == -EAGAIN && l->unsaid)
		keep(l, o);
	else
		word_free(l, o);
	pthread_mutex_unlock(&l->lock);
}

void words_again(struct locks *l, int64_t now_usec)
{
	if (l->num_unsaid == 0 || l->again_usec > now_usec)
		return;
	for (uint32_t i = 0; i < peers_count(l->j->peers); i++)
		(void)words_flush(l, i);
	l->again_usec = now_usec + AGAIN_USEC;
}

void words_void(struct locks *l, uint32_t node)
{
	struct lock_out *o;

	while (l->unsaid && (o = TAILQ_FIRST(&l->unsaid[node])))
		unkeep(l, o);
}

/* ---- of each kind */

static bool is_of(const struct lock_out *o, enum message_type type, const struct lock *lock)
{
	return o->msg.type == type && o->lock.ino == lock->ino && o->lock.owner == lock->owner &&
	       o->lock.flock == lock->flock && !o->is_void;
}

static struct lock_out *find(
	const struct lock_out_list *list, uint32_t node, enum message_type type, const struct lock *lock)
{
	struct lock_out *o = list ? TAILQ_FIRST(list) : NULL;

	while (o && !(o->node == node && is_of(o, type, lock)))
		o = TAILQ_NEXT(o, in_list);
	return o;
}

static struct lock_out *tell(
	struct locks *l, uint32_t node, enum message_type type, uint64_t id, const struct lock *lock)
{
	struct wire_msg m = { 0 };

	message_init(&m, type);
	if (type == MESSAGE_LOCK_LOST)
		lock_put(&m, lock, 1);
	struct lock_out *o = out_tell(l, node, &m);
	if (o && lock)
		o->lock = *lock;
	if (o)
		o->id = id;
	return o;
}

static void widen(struct lock *to, const struct lock *by)
{
	to->start = by->start < to->start ? by->start : to->start;
	to->end = by->end > to->end ? by->end : to->end;
}

struct lock word_fix(struct locks *l, uint32_t home, uint64_t id, const struct lock *range)
{
	struct lock_out *o = id || !l->unsaid ? NULL : find(&l->unsaid[home], home, MESSAGE_LOCK_FIX, range);

	if (!o) {
		(void)tell(l, home, MESSAGE_LOCK_FIX, id, range);
		return *range;
	}
	widen(&o->lock, range);
	return o->lock;
}

void word_held(struct locks *l, uint32_t home)
{
	(void)tell(l, home, MESSAGE_LOCK_HELD, 0, NULL);
}

void word_lost(struct locks *l, uint32_t node, const struct lock *lock)
{
	l->num_losing += tell(l, node, MESSAGE_LOCK_LOST, 0, lock) != NULL;
}

/* In the line, on its way from there, or waiting. */
static struct lock_out *find_lost(const struct locks *l, const struct lock *lock)
{
	if (l->num_losing == 0)
		return NULL;
	struct lock_out *o = find(&l->out, lock->node, MESSAGE_LOCK_LOST, lock);
	if (!o && l->now && l->now->node == lock->node && is_of(l->now, MESSAGE_LOCK_LOST, lock))
		o = l->now;
	return o || !l->unsaid ? o : find(&l->unsaid[lock->node], lock->node, MESSAGE_LOCK_LOST, lock);
}

bool word_lost_waits(const struct locks *l, const struct lock *lock)
{
	return find_lost(l, lock);
}

void word_lost_forget(struct locks *l, const struct lock *lock)
{
	struct lock_out *o;

	while ((o = find_lost(l, lock)))
		o->is_void = true;
}
