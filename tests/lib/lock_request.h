/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_LOCK_REQUEST_H
#define TESTS_LIB_LOCK_REQUEST_H

/* Locks of files, asked for at the nodes of a job in one process. */

#include <pthread.h>

#include "tests/lib/job_world.h"

struct lock_request {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	int status;
	uint64_t id;
};

/* Asks, and does not wait for the answer, which lock_end() does. */
void lock_begin(struct lock_request *r, struct job_world *w, uint32_t node, uint64_t ino, const struct job_lock *lock,
	bool wait);
bool lock_is_done(struct lock_request *r);
int lock_end(struct lock_request *r); /* its status; 1: it still waits, after all patience */

struct job_lock lock_posix(uint64_t owner, short type, uint64_t start, uint64_t end_byte);
struct job_lock lock_whole(uint64_t owner, short type); /* an flock lock */
int lock_set(struct job_world *w, uint32_t node, uint64_t ino, struct job_lock lock, bool wait);
/* What another owner on node would find in its way: F_UNLCK: nothing. Or -errno. */
int lock_probe(struct job_world *w, uint32_t node, uint64_t ino, uint64_t at);
uint64_t lock_file_of(uint32_t home); /* number of a file at home at that node */

#endif
