/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The kernel hands requests to waiting threads in the order in which they came to wait, so that with several of them a
 * single writer's requests go round all threads, each cold and often on another processor: half the speed of one
 * thread (4 KiB writes, two processors). So no more threads wait for requests than are needed: one, as long as it
 * keeps up. A second one is called when requests were found waiting twice in a row, or when an answer takes long; a
 * thread that has had to wait for several requests in a row while another one waits too goes to rest here.
 *
 * Answers can take long without anybody having known. So one of those who rest keeps watch while there is traffic: when
 * GUARD_NSEC have passed in which nobody read, it does. On a quiet mount it sleeps, and a request wakes it.
 */
#include "fs/session/turn.h"

#include <time.h>

#define GUARD_NSEC   2000000
#define QUIET_ROUNDS 50   /* of the guard, without a request */
#define AT_ONCE_NSEC 3000 /* a read that took less found a request waiting */
#define WAITED_MAX   4
#define PENDING_MAX  2

static int64_t now_nsec(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void turn_init(struct turn *t)
{
	pthread_condattr_t attr;

	*t = (struct turn){ 0 };
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->wake, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->wake_guard, &attr);
	pthread_condattr_destroy(&attr);
}

void turn_destroy(struct turn *t)
{
	pthread_cond_destroy(&t->wake_guard);
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
}

/* ---- those who read */

/* One of the parked shall read. */
static void call_one(struct turn *t)
{
	if (atomic_load(&t->parked) == 0)
		return;
	pthread_mutex_lock(&t->lock);
	if (t->wanted < atomic_load(&t->parked)) {
		t->wanted++;
		pthread_cond_signal(&t->wake);
		pthread_cond_signal(&t->wake_guard);
	}
	pthread_mutex_unlock(&t->lock);
}

static void wake_guard(struct turn *t)
{
	pthread_mutex_lock(&t->lock);
	atomic_store(&t->guard_asleep, false);
	pthread_cond_signal(&t->wake_guard);
	pthread_mutex_unlock(&t->lock);
}

void turn_before(struct turn *t, struct turn_mark *m)
{
	m->before_nsec = now_nsec();
	atomic_fetch_add(&t->readers, 1);
}

void turn_after(struct turn *t, struct turn_mark *m, bool got, bool slow)
{
	bool alone = atomic_fetch_sub(&t->readers, 1) == 1;

	if (!got)
		return;
	atomic_fetch_add(&t->taken, 1);
	if (now_nsec() - m->before_nsec < AT_ONCE_NSEC) {
		m->pending++;
		m->waited = 0;
	} else {
		m->pending = 0;
		m->waited++;
	}
	if (alone && (slow || m->pending >= PENDING_MAX)) {
		m->pending = 0;
		call_one(t);
	}
	if (atomic_load(&t->guard_asleep))
		wake_guard(t);
}

void turn_will_block(struct turn *t)
{
	if (atomic_load(&t->readers) == 0)
		call_one(t);
}

/* ---- those who rest */

static void wait_guard(struct turn *t, bool asleep)
{
	struct timespec at;

	if (asleep) {
		pthread_cond_wait(&t->wake_guard, &t->lock);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_nsec += GUARD_NSEC;
	if (at.tv_nsec >= 1000000000) {
		at.tv_nsec -= 1000000000;
		at.tv_sec++;
	}
	pthread_cond_timedwait(&t->wake_guard, &t->lock, &at);
}

/* Lock held. Returns when this thread is wanted, all has ended, or nobody has read for a while. */
static void keep_watch(struct turn *t)
{
	uint64_t seen = atomic_load(&t->taken);
	int quiet = 0;

	while (t->wanted == 0 && !t->ended) {
		bool asleep = quiet >= QUIET_ROUNDS;

		/* Whoever takes a request from here on sees the flag; one taken just before is seen here. */
		atomic_store(&t->guard_asleep, asleep);
		if (!asleep || atomic_load(&t->taken) == seen)
			wait_guard(t, asleep);
		atomic_store(&t->guard_asleep, false);
		if (atomic_load(&t->taken) != seen)
			quiet = 0;
		else if (atomic_load(&t->readers) == 0)
			break;
		else
			quiet++;
		seen = atomic_load(&t->taken);
	}
}

void turn_rest(struct turn *t, struct turn_mark *m)
{
	if (m->waited < WAITED_MAX || atomic_load(&t->readers) == 0)
		return;
	m->waited = 0;
	pthread_mutex_lock(&t->lock);
	atomic_fetch_add(&t->parked, 1);
	while (t->wanted == 0 && !t->ended && t->guard)
		pthread_cond_wait(&t->wake, &t->lock);
	if (t->wanted == 0 && !t->ended) {
		t->guard = true;
		keep_watch(t);
		t->guard = false;
		pthread_cond_signal(&t->wake); /* another one keeps watch */
	}
	if (t->wanted > 0)
		t->wanted--;
	atomic_fetch_sub(&t->parked, 1);
	pthread_mutex_unlock(&t->lock);
}

void turn_end(struct turn *t)
{
	pthread_mutex_lock(&t->lock);
	t->ended = true;
	pthread_cond_broadcast(&t->wake);
	pthread_cond_broadcast(&t->wake_guard);
	pthread_mutex_unlock(&t->lock);
}
