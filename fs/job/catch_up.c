/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What is to be done with files without anybody waiting for it: what was written some time ago is told, and after a restart, ours
 * or another's, we register and tell again. File by file, by one thread; but each step may wait for other nodes, for as
 * long as agent_timeout. So when a file takes long another thread goes on with the rest, and files that need a node which
 * is known not to answer just now do not all wait for it: one does, and shows when it answers again.
 *
 * A file is in the queue or in somebody's hands, not twice, and stays in use meanwhile.
 */
#include <errno.h>
#include <stdlib.h>

#include "format/base/clock.h"
#include "fs/job/share.h"

#define THREADS_MAX 32u
#define SLOW_MAX    16u      /* nodes that are looked after */
#define LONG_USEC   1000000u /* so long takes nothing that all answer for */
#define TARDY_MAX   4u       /* of files that took longer the last time, at once */

struct hand { /* a thread */
	struct catch_up *c;
	pthread_t thread;
	struct shared *s;    /* what it is at, counted reference; NULL: nothing */
	uint64_t since_usec; /* when it took that */
};

struct catch_up {
	struct job *j;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	TAILQ_HEAD(, shared) queue; /* counted references */
	struct hand hands[THREADS_MAX];
	unsigned int num_hands;
	uint32_t slow[SLOW_MAX];
	size_t num_slow;
	bool ending;
};

/* ---- what a file needs */

static bool needs_retell(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool needs = s->resend && !s->parked;
	pthread_mutex_unlock(&s->mutex);
	return needs;
}

static bool needs_commit(struct shared *s, uint64_t tell_usec)
{
	pthread_mutex_lock(&s->mutex);
	bool needs = s->dirty_usec && clock_usec() - s->dirty_usec >= tell_usec;
	pthread_mutex_unlock(&s->mutex);
	return needs;
}

static void do_file(struct job *j, struct shared *s)
{
	if (j->share->ending)
		return;
	if (shared_is_unregistered(s))
		(void)shared_register(j, s); /* in the next round again */
	if (needs_commit(s, j->share->tell_usec))
		(void)share_commit(j, s, false);
	else if (needs_retell(s))
		(void)share_retell(j, s);
}

/* Whether it may have to ask that node. */
static bool needs_node(struct job *j, struct shared *s, uint32_t node)
{
	uint32_t count = peers_count(j->peers);
	uint32_t first = place_domain(s->ino, 0, PLACE_DOMAIN_SIZE, count);
	uint64_t nth = (node + count - first) % count;

	pthread_mutex_lock(&s->mutex);
	uint64_t end = s->size > s->own_end ? s->size : s->own_end;
	pthread_mutex_unlock(&s->mutex);
	return s->home == node || nth * PLACE_DOMAIN_SIZE < end;
}

/* ---- who does what; the lock is held */

static bool is_waited_for(struct catch_up *c, uint32_t node)
{
	for (unsigned int i = 0; i < c->num_hands; i++)
		if (c->hands[i].s && needs_node(c->j, c->hands[i].s, node))
			return true;
	return false;
}

static unsigned int num_tardy(const struct catch_up *c)
{
	unsigned int num = 0;

	for (unsigned int i = 0; i < c->num_hands; i++)
		num += c->hands[i].s && c->hands[i].s->tardy;
	return num;
}

static bool is_to_wait(struct catch_up *c, struct shared *s)
{
	bool waits = s->tardy && num_tardy(c) >= TARDY_MAX;

	for (size_t i = 0; !waits && i < c->num_slow; i++)
		waits = needs_node(c->j, s, c->slow[i]) && is_waited_for(c, c->slow[i]);
	return waits;
}

/* NULL: it is over. */
static struct shared *take(struct catch_up *c)
{
	struct shared *s = TAILQ_FIRST(&c->queue);

	while (!c->ending && (!s || is_to_wait(c, s)))
		if (s) {
			s = TAILQ_NEXT(s, in_queue);
		} else {
			pthread_cond_wait(&c->cond, &c->lock);
			s = TAILQ_FIRST(&c->queue);
		}
	if (c->ending)
		return NULL;
	TAILQ_REMOVE(&c->queue, s, in_queue);
	return s;
}

static void *hand_main(void *arg)
{
	struct hand *h = arg;
	struct catch_up *c = h->c;
	struct shared *s;

	pthread_mutex_lock(&c->lock);
	while ((s = take(c))) {
		h->s = s;
		h->since_usec = clock_usec();
		pthread_mutex_unlock(&c->lock);
		do_file(c->j, s);
		pthread_mutex_lock(&c->lock);
		h->s = NULL;
		s->catching = false;
		s->tardy = clock_usec() - h->since_usec >= LONG_USEC;
		pthread_cond_broadcast(&c->cond);
		pthread_mutex_unlock(&c->lock);
		shared_put(c->j, s);
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* Nobody is free, nor will be soon. */
static bool needs_hand(const struct catch_up *c)
{
	uint64_t now = clock_usec();

	for (unsigned int i = 0; i < c->num_hands; i++)
		if (!c->hands[i].s || now - c->hands[i].since_usec < LONG_USEC)
			return false;
	return c->num_hands < THREADS_MAX;
}

static int add_hand(struct catch_up *c)
{
	struct hand *h = &c->hands[c->num_hands];

	h->c = c;
	int rc = -pthread_create(&h->thread, NULL, hand_main, h);
	c->num_hands += rc == 0;
	return rc;
}

/* ---- rounds */

static void enqueue(struct job *j, struct shared *s, void *arg)
{
	struct catch_up *c = arg;

	if (shared_is_home(j, s))
		registry_tell_again(j, s);
	if (!shared_is_unregistered(s) && !needs_retell(s) && !needs_commit(s, j->share->tell_usec))
		return;
	struct shared *ref = shared_find(j, s->ino);
	pthread_mutex_lock(&c->lock);
	bool takes = ref && !c->ending && !s->catching;
	if (takes) {
		s->catching = true;
		TAILQ_INSERT_TAIL(&c->queue, ref, in_queue);
	}
	pthread_mutex_unlock(&c->lock);
	if (!takes)
		shared_put(j, ref);
}

void catch_up_round(struct catch_up *c)
{
	uint32_t slow[SLOW_MAX];
	size_t num = peers_slow(c->j->peers, LONG_USEC, slow, SLOW_MAX);

	pthread_mutex_lock(&c->lock);
	c->num_slow = num;
	for (size_t i = 0; i < num; i++)
		c->slow[i] = slow[i];
	pthread_mutex_unlock(&c->lock);
	shared_each(c->j, enqueue, c);
	pthread_mutex_lock(&c->lock);
	if (!TAILQ_EMPTY(&c->queue))
		pthread_cond_broadcast(&c->cond);
	if (!TAILQ_EMPTY(&c->queue) && needs_hand(c))
		(void)add_hand(c); /* else those that there are do it, some time */
	pthread_mutex_unlock(&c->lock);
}

/* ---- life */

int catch_up_create(struct job *j, struct catch_up **ret)
{
	struct catch_up *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->j = j;
	TAILQ_INIT(&c->queue);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->cond, NULL);
	int rc = add_hand(c);
	if (rc < 0)
		catch_up_destroy(c);
	else
		*ret = c;
	return rc;
}

void catch_up_destroy(struct catch_up *c)
{
	struct shared *s;

	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->ending = true;
	pthread_cond_broadcast(&c->cond);
	pthread_mutex_unlock(&c->lock);
	for (unsigned int i = 0; i < c->num_hands; i++)
		pthread_join(c->hands[i].thread, NULL);
	while ((s = TAILQ_FIRST(&c->queue))) {
		TAILQ_REMOVE(&c->queue, s, in_queue);
		shared_put(c->j, s);
	}
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->cond);
	free(c);
}
