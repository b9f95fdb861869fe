/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/lib/lock_request.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include "format/place/place.h"

#define PATIENT_SEC 100 /* a test that hangs ends; nothing is measured by it */

static int on_begun(uint64_t id, void *arg)
{
	struct lock_request *r = arg;

	r->id = id;
	return 0;
}

static void on_done(int status, void *arg)
{
	struct lock_request *r = arg;

	pthread_mutex_lock(&r->lock);
	r->done = true;
	r->status = status;
	pthread_cond_signal(&r->cond);
	pthread_mutex_unlock(&r->lock);
}

void lock_begin(struct lock_request *r, struct job_world *w, uint32_t node, uint64_t ino, const struct job_lock *lock,
	bool wait)
{
	*r = (struct lock_request){ .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
	job_setlk(job_world_job(w, node), ino, lock, wait, on_begun, on_done, r);
}

bool lock_is_done(struct lock_request *r)
{
	pthread_mutex_lock(&r->lock);
	bool done = r->done;
	pthread_mutex_unlock(&r->lock);
	return done;
}

/* 1: it still waits, after all patience. */
int lock_end(struct lock_request *r)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENT_SEC;
	pthread_mutex_lock(&r->lock);
	while (!r->done && rc == 0)
		rc = pthread_cond_timedwait(&r->cond, &r->lock, &until);
	rc = r->done ? r->status : 1;
	pthread_mutex_unlock(&r->lock);
	return rc;
}

struct job_lock lock_posix(uint64_t owner, short type, uint64_t start, uint64_t end_byte)
{
	return (struct job_lock){ .owner = owner, .start = start, .end = end_byte, .pid = 42, .type = type };
}

struct job_lock lock_whole(uint64_t owner, short type)
{
	return (struct job_lock){ .owner = owner, .end = UINT64_MAX, .type = type, .flock = true };
}

int lock_set(struct job_world *w, uint32_t node, uint64_t ino, struct job_lock lock, bool wait)
{
	struct lock_request r;

	lock_begin(&r, w, node, ino, &lock, wait);
	return lock_end(&r);
}

/* What another owner on node would find in its way: F_UNLCK: nothing. */
int lock_probe(struct job_world *w, uint32_t node, uint64_t ino, uint64_t at)
{
	struct job_lock lock = lock_posix(9999, F_WRLCK, at, at);
	int rc = job_getlk(job_world_job(w, node), ino, &lock);

	return rc ? rc : lock.type;
}

/* A file at home at that node. */
uint64_t lock_file_of(uint32_t home)
{
	return place_first_ino(home) + 5;
}
