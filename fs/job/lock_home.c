/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Locks at the home of their file. They are kept in memory alone, so a daemon that has just begun does not know what the
 * others hold: before it answers the first question it asks all nodes, and answers when every one has told, or was
 * given up. A node whose daemon is gone has nothing any more. When a node was given up here and comes back as it was, it tells what
 * it holds once more; what others have got meanwhile it has lost, and is told so.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/job/lock.h"

/* ---- answers */

static void answer(struct locks *l, const struct lock_question *q, int status, const struct lock *found)
{
	struct wire_msg m = { 0 };

	if (q->rq) {
		out_reply(l, q->rq, status, false, found);
	} else if (q->want.node == peers_self(l->j->peers)) {
		op_answered(l, q->id, status, found);
	} else if (q->id) {
		message_init(&m, MESSAGE_LOCK_GRANTED);
		message_put(&m, MESSAGE_LOCK_ID, q->id);
		message_put(&m, MESSAGE_LOCK_ERRNO, (uint64_t)-status);
		(void)out_tell(l, q->want.node, &m);
	}
}

void home_granted(const struct lock *want, uint64_t id, int status, void *arg)
{
	answer(arg, &(struct lock_question){ .want = *want, .id = id }, status, NULL);
}

static void say_waits(struct locks *l, struct lock_question *q)
{
	if (q->rq)
		out_reply(l, q->rq, 0, true, NULL);
	else if (q->want.node == peers_self(l->j->peers))
		op_waits(l, q->id);
	q->rq = NULL;
}

static void answer_set(struct locks *l, struct lock_question *q)
{
	bool loses = q->want.type != LOCK_TYPE_NONE && word_lost_waits(l, &q->want);
	int rc = loses ? -ENOLCK : lock_table_set(l->table, &q->want, q->wait, q->id, lock_now_usec());

	if (rc == LOCK_WAITS)
		say_waits(l, q);
	else
		answer(l, q, rc, NULL);
}

static void answer_get(struct locks *l, struct lock_question *q)
{
	struct lock found = q->want;

	found.type = LOCK_TYPE_NONE;
	(void)lock_table_test(l->table, &q->want, &found);
	answer(l, q, 0, &found);
}

static void answer_drop(struct locks *l, struct lock_question *q)
{
	const struct lock *w = &q->want;

	word_lost_forget(l, w);
	lock_table_drop_owner(l->table, w->ino, w->flock, w->node, w->owner, lock_now_usec());
	answer(l, q, 0, NULL);
}

static void lost(const struct lock *lock, void *arg)
{
	word_lost(arg, lock->node, lock);
}

static void question_free(struct lock_question *q)
{
	free(q->list);
	free(q);
}

static void answer_now(struct locks *l, struct lock_question *q)
{
	switch (q->what) {
	case LOCK_ASK_SET: answer_set(l, q); break;
	case LOCK_ASK_GET: answer_get(l, q); break;
	case LOCK_ASK_DROP: answer_drop(l, q); break;
	case LOCK_ASK_FIX: lock_table_fix(l->table, &q->want, q->list, q->num, lock_now_usec(), lost, l); break;
	}
	question_free(q);
}

/* ---- what the nodes hold */

void home_ask_node(struct locks *l, uint32_t node)
{
	struct wire_msg m = { 0 };

	l->asked[node] = true;
	l->told[node] = false;
	message_init(&m, MESSAGE_LOCK_RECLAIM);
	(void)out_tell(l, node, &m);
}

static void ask_nodes(struct locks *l)
{
	uint32_t num = peers_count(l->j->peers), self = peers_self(l->j->peers);

	for (uint32_t i = 0; i < num; i++)
		if (i != self && !l->asked[i])
			home_ask_node(l, i);
	home_told(l, self);
}

void home_told(struct locks *l, uint32_t node)
{
	uint32_t num = peers_count(l->j->peers), i = 0;
	struct lock_question *q;

	l->asked[node] = l->told[node] = true;
	while (i < num && l->told[i])
		i++;
	if (i < num || l->ready)
		return;
	l->ready = true;
	while ((q = TAILQ_FIRST(&l->kept))) {
		TAILQ_REMOVE(&l->kept, q, in_list);
		answer_now(l, q);
	}
}

void home_ask(struct locks *l, struct lock_question *q)
{
	if (!l->ready) {
		if (q->wait)
			say_waits(l, q);
		q->until_usec = lock_now_usec() + (int64_t)config_number(l->j->opt.cfg, CONFIG_AGENT_TIMEOUT);
		TAILQ_INSERT_TAIL(&l->kept, q, in_list);
		ask_nodes(l);
	} else {
		answer_now(l, q);
	}
	home_set_timer(l);
}

bool home_cancel(struct locks *l, uint32_t node, uint64_t id)
{
	struct lock_question *q;

	TAILQ_FOREACH(q, &l->kept, in_list)
	if (q->want.node == node && q->id == id && q->wait) {
		TAILQ_REMOVE(&l->kept, q, in_list);
		question_free(q);
		return true;
	}
	return lock_table_cancel(l->table, node, id, lock_now_usec());
}

void home_forget(struct locks *l, uint32_t node)
{
	struct lock_question *q, *next;

	for (q = TAILQ_FIRST(&l->kept); q; q = next) {
		next = TAILQ_NEXT(q, in_list);
		if (q->want.node != node)
			continue;
		TAILQ_REMOVE(&l->kept, q, in_list);
		if (q->rq)
			out_reply(l, q->rq, -EHOSTDOWN, false, NULL);
		question_free(q);
	}
	lock_table_drop_node(l->table, node, lock_now_usec());
	home_set_timer(l);
}

/* ---- requests of other nodes; in the order in which they were sent */

void lock_serve_ask(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	struct locks *l = j->locks;
	struct lock_question *q = calloc(1, sizeof(*q));
	int rc = q ? lock_get_one(m, peers_from(rq), &q->want) : -ENOMEM;

	pthread_mutex_lock(&l->lock);
	rc = rc ? rc : locks_know_nodes(l);
	if (rc < 0) {
		out_reply(l, rq, rc, false, NULL);
		free(q);
	} else {
		q->what = (enum lock_what)message_get(m, MESSAGE_LOCK_WHAT);
		q->id = message_get(m, MESSAGE_LOCK_ID);
		q->wait = message_get(m, MESSAGE_LOCK_WAITS);
		q->rq = rq;
		home_ask(l, q);
	}
	locks_leave(l);
}

void lock_serve_cancel(struct job *j, struct peers_request *rq)
{
	struct locks *l = j->locks;

	pthread_mutex_lock(&l->lock);
	bool waited = home_cancel(l, peers_from(rq), message_get(peers_msg(rq), MESSAGE_LOCK_ID));
	home_set_timer(l);
	out_reply(l, rq, 0, waited, NULL);
	locks_leave(l);
}

/* Something went wrong there: this range, the first of the list, is to be the owner's as the rest of the list says. */
static int take_fix(struct lock_question *q, const struct wire_msg *m, uint32_t node)
{
	int rc = lock_get_all(m, node, &q->list, &q->num);

	if (rc < 0 || q->num == 0)
		return rc < 0 ? rc : -EBADMSG;
	q->what = LOCK_ASK_FIX;
	q->want = q->list[0];
	memmove(q->list, q->list + 1, --q->num * sizeof(*q->list));
	return 0;
}

void lock_serve_fix(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	struct lock_question *q = calloc(1, sizeof(*q));
	uint32_t node = peers_from(rq);
	struct locks *l = j->locks;

	pthread_mutex_lock(&l->lock);
	(void)home_cancel(l, node, message_get(m, MESSAGE_LOCK_ID));
	if (q && locks_know_nodes(l) == 0 && take_fix(q, m, node) == 0)
		home_ask(l, q);
	else if (q)
		question_free(q);
	out_reply(l, rq, 0, false, NULL);
	locks_leave(l);
}

void lock_serve_forget(struct job *j, struct peers_request *rq)
{
	struct locks *l = j->locks;

	pthread_mutex_lock(&l->lock);
	home_forget(l, peers_from(rq));
	out_reply(l, rq, 0, false, NULL);
	locks_leave(l);
}

static void take_held(const struct lock *lock, void *arg)
{
	struct locks *l = arg;
	struct lock other;

	if (lock_table_test(l->table, lock, &other) || lock_table_force(l->table, lock) < 0)
		lost(lock, l);
}

void lock_serve_held(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	struct locks *l = j->locks;

	pthread_mutex_lock(&l->lock);
	if (locks_know_nodes(l) == 0) {
		(void)lock_get(m, peers_from(rq), take_held, l);
		if (message_get(m, MESSAGE_LOCK_LAST))
			home_told(l, peers_from(rq));
		home_set_timer(l);
	}
	out_reply(l, rq, 0, false, NULL);
	locks_leave(l);
}

/* ---- the clock: waiters have patience with those before them, and with nodes that do not tell, but not for ever; words are said again */

/* Calls of other nodes have their own time; of ours, those that wait for a lock are interrupted by who does not want to wait. */
static bool may_expire(const struct locks *l, const struct lock_question *q)
{
	return !q->wait && q->want.node == peers_self(l->j->peers);
}

static int64_t due(const struct locks *l)
{
	int64_t at = lock_table_due(l->table);
	const struct lock_question *q;

	if (l->num_unsaid > 0 && l->again_usec < at)
		at = l->again_usec;
	TAILQ_FOREACH(q, &l->kept, in_list)
	if (may_expire(l, q))
		return at < q->until_usec ? at : q->until_usec;
	return at;
}

static void expire(struct locks *l, int64_t now_usec)
{
	struct lock_question *q, *next;

	for (q = TAILQ_FIRST(&l->kept); q; q = next) {
		next = TAILQ_NEXT(q, in_list);
		if (!may_expire(l, q) || q->until_usec > now_usec)
			continue;
		TAILQ_REMOVE(&l->kept, q, in_list);
		op_answered(l, q->id, -ETIMEDOUT, NULL);
		free(q);
	}
}

void home_set_timer(struct locks *l)
{
	if (due(l) < l->timer_usec)
		pthread_cond_signal(&l->tick);
}

void *home_timer(void *arg)
{
	struct locks *l = arg;

	pthread_mutex_lock(&l->lock);
	while (!l->ending) {
		int64_t at = l->timer_usec = due(l);
		struct timespec until = { .tv_sec = at / 1000000, .tv_nsec = at % 1000000 * 1000 };

		if (at == INT64_MAX)
			pthread_cond_wait(&l->tick, &l->lock);
		else
			pthread_cond_timedwait(&l->tick, &l->lock, &until);
		lock_table_tick(l->table, lock_now_usec());
		expire(l, lock_now_usec());
		words_again(l, lock_now_usec());
		locks_leave(l);
		pthread_mutex_lock(&l->lock);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}
