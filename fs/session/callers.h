/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_SESSION_CALLERS_H
#define FS_SESSION_CALLERS_H

/*
 * Requests that take long: callers that were killed do not wait for their answers, workers that
 * wait are replaced, and what would wait as well is put aside (docs/design/waiting.md).
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct session;
struct worker;
struct fuse_in_header;

/* A request that no worker has begun, since too many wait already. */
struct aside {
	TAILQ_ENTRY(aside) in_list;
	int fd; /* where its answer goes; borrowed from the worker that has received it */
	size_t len;
	uint8_t request[];
};
TAILQ_HEAD(aside_list, aside);

struct callers {
	pthread_t thread;
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t wake;     /* CLOCK_MONOTONIC */
	atomic_bool asleep;      /* nothing is under way: the next request wakes the thread */
	atomic_uint stuck;       /* workers that have been busy with one request for long */
	atomic_uint num_aside;   /* in the list */
	bool woken, interrupted; /* lock: a request has come; somebody does not want to wait */
	bool ended;              /* lock */
	struct aside_list aside; /* lock; the oldest first */
	size_t aside_bytes;      /* lock */
};

/*
 * The thread's process was killed and waits for nothing but us; or it ends already. False also when
 * it cannot be seen.
 */
bool caller_is_dying(pid_t tid);

void callers_init(struct callers *c);
void callers_destroy(struct callers *c); /* it has ended or was not started */
int callers_start(struct session *s);    /* 0 or -errno */
void callers_end(struct session *s);     /* what is aside gets no answer: the connection is gone */
/* By workers, around a request. */
void callers_begin(struct worker *w, const struct fuse_in_header *in);
void callers_finish(struct worker *w);
/* Puts a request aside that this worker has received; false: it is the worker's to answer. */
bool callers_put_aside(struct worker *w, size_t len);
size_t callers_take_aside(
	struct worker *w); /* into the worker's memory: its length; 0: there is none, or too many wait */
void callers_interrupted(struct session *s); /* somebody was: look now */

#endif
