/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One-way messages without which another node would keep something for good. So many calls may wait for a node that does not answer
 * that it takes no more; then they are kept here, in their order, and said once a second until it takes them.
 *
 * What is said late may have been overtaken: each kind says whether it still holds. Nothing is kept for a node that has ended or was given up.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "fs/job/private.h"

#define BYTES_MAX (64u << 20) /* for one node; more is not said, as if its daemon had died */

struct kept {
	TAILQ_ENTRY(kept) in_list;
	const struct tell_kind *kind;
	struct wire_msg m; /* owned */
	bool is_void;      /* to a daemon that is no more */
};
TAILQ_HEAD(kept_list, kept);

struct listener { /* a node that we keep something for, or did */
	struct listener *next;
	uint32_t node;
	size_t bytes;
	struct kept_list list;
};

struct untold {
	pthread_mutex_t lock;
	struct listener *listeners; /* owned */
};

/* The lock is held. NULL: there is none, or no memory to make one. */
static struct listener *find(struct untold *u, uint32_t node, bool make)
{
	struct listener *l = u->listeners;

	while (l && l->node != node)
		l = l->next;
	if (l || !make || !(l = calloc(1, sizeof(*l))))
		return l;
	l->node = node;
	TAILQ_INIT(&l->list);
	l->next = u->listeners;
	u->listeners = l;
	return l;
}

static void kept_free(struct kept *k)
{
	wire_msg_free(&k->m);
	free(k);
}

/* The lock is held. */
static void keep(struct untold *u, uint32_t node, const struct wire_msg *m, const struct tell_kind *kind)
{
	struct listener *l = find(u, node, true);
	struct kept *k = l && l->bytes + m->body.len <= BYTES_MAX ? calloc(1, sizeof(*k)) : NULL;

	if (!k)
		return;
	k->kind = kind;
	k->m.type = m->type;
	buf_bytes(&k->m.body, m->body.data, m->body.len);
	if (!buf_ok(&k->m.body)) {
		kept_free(k);
		return;
	}
	l->bytes += m->body.len;
	TAILQ_INSERT_TAIL(&l->list, k, in_list);
}

void job_tell(struct job *j, uint32_t node, const struct wire_msg *m, const struct tell_kind *kind)
{
	struct untold *u = j->untold;

	pthread_mutex_lock(&u->lock);
	struct listener *l = find(u, node, false);
	bool behind = l && !TAILQ_EMPTY(&l->list);
	if (behind)
		keep(u, node, m, kind);
	pthread_mutex_unlock(&u->lock);
	int rc = behind ? 0 : peers_tell(j->peers, node, m);
	if (rc != -EAGAIN && rc != -ENOMEM)
		return;
	pthread_mutex_lock(&u->lock);
	keep(u, node, m, kind);
	pthread_mutex_unlock(&u->lock);
}

/* Only one thread takes anything away. The lock is not held while it is said: who keeps something meanwhile keeps it behind. */
static int say(struct job *j, struct listener *l, struct kept *k)
{
	struct untold *u = j->untold;

	pthread_mutex_lock(&u->lock);
	bool is_void = k->is_void;
	pthread_mutex_unlock(&u->lock);
	size_t bytes = k->m.body.len;
	is_void = is_void || (k->kind->still_holds && !k->kind->still_holds(j, &k->m));
	int rc = is_void ? 0 : peers_tell(j->peers, l->node, &k->m);
	if (rc == -EAGAIN || rc == -ENOMEM)
		return rc;
	pthread_mutex_lock(&u->lock);
	TAILQ_REMOVE(&l->list, k, in_list);
	l->bytes -= bytes;
	pthread_mutex_unlock(&u->lock);
	kept_free(k);
	return 0;
}

static struct kept *first_of(struct untold *u, struct listener *l)
{
	pthread_mutex_lock(&u->lock);
	struct kept *k = TAILQ_FIRST(&l->list);
	pthread_mutex_unlock(&u->lock);
	return k;
}

void untold_round(struct job *j)
{
	struct untold *u = j->untold;
	struct kept *k;

	pthread_mutex_lock(&u->lock);
	struct listener *l = u->listeners; /* others are put before it, and none goes */
	pthread_mutex_unlock(&u->lock);
	for (; l; l = l->next)
		while ((k = first_of(u, l)) && say(j, l, k) == 0)
			;
}

static void untold_event(struct job *j, enum peers_event event, uint32_t node)
{
	struct untold *u = j->untold;
	struct kept *k;

	if (event != PEERS_RESTARTED && event != PEERS_GONE)
		return;
	pthread_mutex_lock(&u->lock);
	struct listener *l = find(u, node, false);
	if (l)
		TAILQ_FOREACH(k, &l->list, in_list)
	k->is_void |= event == PEERS_GONE || !k->kind->outlives;
	pthread_mutex_unlock(&u->lock);
}

static int untold_create(struct job *j, struct cistern_error *err)
{
	j->untold = calloc(1, sizeof(*j->untold));
	if (!j->untold)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&j->untold->lock, NULL);
	return 0;
}

static void untold_destroy(struct job *j)
{
	if (!j->untold)
		return;
	for (struct listener *l = j->untold->listeners, *next; l; l = next) {
		struct kept *k;

		next = l->next;
		while ((k = TAILQ_FIRST(&l->list))) {
			TAILQ_REMOVE(&l->list, k, in_list);
			kept_free(k);
		}
		free(l);
	}
	pthread_mutex_destroy(&j->untold->lock);
	free(j->untold);
	j->untold = NULL;
}

const struct part untold_part = { .create = untold_create, .destroy = untold_destroy, .event = untold_event };
