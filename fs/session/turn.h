/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_SESSION_TURN_H
#define FS_SESSION_TURN_H

/* Whose turn it is to wait for the kernel's next request. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct turn {
	atomic_int readers;         /* workers that wait for a request, or are about to */
	atomic_uint_fast64_t taken; /* requests so far */
	atomic_int parked;          /* workers that wait here */
	atomic_bool guard_asleep;
	pthread_mutex_t lock;
	pthread_cond_t wake;       /* of the parked */
	pthread_cond_t wake_guard; /* CLOCK_MONOTONIC */
	/* under lock */
	int wanted; /* parked ones that shall leave */
	bool guard; /* one of the parked keeps watch */
	bool ended;
};

struct turn_mark { /* one worker's; zero-initialise */
	int64_t before_nsec;
	unsigned int waited, pending; /* requests in a row that it had to wait for, or that were there already */
};

void turn_init(struct turn *t);
void turn_destroy(struct turn *t);
void turn_before(struct turn *t, struct turn_mark *m); /* the worker is going to read */
/* It has a request (got) or was told the end. slow: answering it may take long. */
void turn_after(struct turn *t, struct turn_mark *m, bool got, bool slow);
void turn_rest(struct turn *t, struct turn_mark *m); /* the request is answered: waits here while others suffice */
void turn_will_block(struct turn *t); /* the request that is being answered takes long. Cheap, any lock may be held. */
void turn_end(struct turn *t);        /* nobody waits here any more */

#endif
