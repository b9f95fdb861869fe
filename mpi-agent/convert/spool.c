/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Two ranges in turn. The thread that writes is started with the first range that is handed over; it tells the device of what it has
 * written, so that most of it is there when the file is synced. After a failure nothing more is written.
 */
#include "mpi-agent/convert/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/fdio.h"

#define BLOCK_SHIFT 12
#define RANGES      2u

_Static_assert(SPOOL_BLOCK == 1u << BLOCK_SHIFT, "a block");

struct spool {
	int fd;
	const char *name;
	struct spool_range ranges[RANGES];
	unsigned int next; /* the range that spool_begin() gives */
	bool has_thread;
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	/* under mutex */
	struct spool_range *full; /* NULL: nothing to write */
	bool ends;
	int failed;
	struct cistern_error err;
};

int spool_create(int fd, const char *name, uint64_t bytes, struct spool **ret)
{
	struct spool *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->fd = fd;
	s->name = name;
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->changed, NULL);
	for (unsigned int i = 0; i < RANGES; i++) {
		s->ranges[i].memory = malloc((size_t)bytes + 2 * SPOOL_MARGIN);
		s->ranges[i].touched = malloc((size_t)(bytes >> BLOCK_SHIFT) + 2);
		if (!s->ranges[i].memory || !s->ranges[i].touched) {
			spool_destroy(s);
			return -ENOMEM;
		}
	}
	*ret = s;
	return 0;
}

/* ---- touched blocks */

static uint8_t *touched(const struct spool_range *r, uint64_t block)
{
	return &r->touched[block - (r->from >> BLOCK_SHIFT)];
}

/* What of a block is in the range, but for [first, end), becomes zeros. */
static void clear_around(struct spool_range *r, uint64_t block, uint64_t first, uint64_t end)
{
	uint64_t low = block << BLOCK_SHIFT, high = (block + 1) << BLOCK_SHIFT;

	low = low > r->from ? low : r->from;
	high = high < r->to ? high : r->to;
	if (first > low)
		memset(spool_at(r, low), 0, (size_t)(first - low));
	if (end < high)
		memset(spool_at(r, end), 0, (size_t)(high - end));
}

void spool_touch(struct spool_range *r, uint64_t off, uint64_t len)
{
	uint64_t first = off > r->from ? off : r->from, end = off + len < r->to ? off + len : r->to;

	for (uint64_t b = first >> BLOCK_SHIFT; first < end && b <= (end - 1) >> BLOCK_SHIFT; b++) {
		if (*touched(r, b))
			continue;
		*touched(r, b) = 1;
		clear_around(r, b, first, end);
	}
}

/* ---- writing */

static int write_bytes(
	struct spool *s, const struct spool_range *r, uint64_t off, uint64_t end, struct cistern_error *err)
{
	int rc = fdio_write(s->fd, spool_at(r, off), (size_t)(end - off), off);

	return rc < 0 ? cistern_error_set(err, rc, "%s: writing at %" PRIu64 ": %s", s->name, off, strerror(-rc)) : 0;
}

static int write_range(struct spool *s, const struct spool_range *r, struct cistern_error *err)
{
	uint64_t off = r->from;
	int ret = 0;

	while (ret == 0 && off < r->to) {
		uint64_t b = off >> BLOCK_SHIFT, end = (b + 1) << BLOCK_SHIFT;

		while (end < r->to && *touched(r, end >> BLOCK_SHIFT) == *touched(r, b))
			end += SPOOL_BLOCK;
		end = end < r->to ? end : r->to;
		if (*touched(r, b))
			ret = write_bytes(s, r, off, end, err);
		off = end;
	}
	if (ret == 0) /* a hint */
		(void)sync_file_range(s->fd, (off_t)r->from, (off_t)(r->to - r->from), SYNC_FILE_RANGE_WRITE);
	return ret;
}

static void *run(void *arg)
{
	struct spool *s = arg;

	pthread_mutex_lock(&s->mutex);
	for (;;) {
		struct cistern_error err = { 0 };
		int r = 0;

		while (!s->full && !s->ends)
			pthread_cond_wait(&s->changed, &s->mutex);
		if (!s->full)
			break;
		if (s->failed == 0) {
			pthread_mutex_unlock(&s->mutex);
			r = write_range(s, s->full, &err);
			pthread_mutex_lock(&s->mutex);
		}
		if (r < 0) {
			s->failed = r;
			s->err = err;
		}
		s->full = NULL;
		pthread_cond_broadcast(&s->changed);
	}
	pthread_mutex_unlock(&s->mutex);
	return NULL;
}

int spool_finish(struct spool *s, struct cistern_error *err)
{
	int r;

	pthread_mutex_lock(&s->mutex);
	while (s->full)
		pthread_cond_wait(&s->changed, &s->mutex);
	r = s->failed;
	if (r < 0 && err)
		*err = s->err;
	pthread_mutex_unlock(&s->mutex);
	return r;
}

struct spool_range *spool_begin(struct spool *s, uint64_t from, uint64_t to)
{
	struct spool_range *r = &s->ranges[s->next];

	/* It was handed over before the other one, which spool_write() has not taken before this one was written. */
	s->next = (s->next + 1) % RANGES;
	r->from = from;
	r->to = to;
	memset(r->touched, 0, (size_t)(((to - 1) >> BLOCK_SHIFT) - (from >> BLOCK_SHIFT)) + 1);
	return r;
}

int spool_write(struct spool *s, struct spool_range *r, struct cistern_error *err)
{
	int ret = spool_finish(s, err);

	if (ret < 0)
		return ret;
	if (!s->has_thread) {
		ret = -pthread_create(&s->thread, NULL, run, s);
		if (ret < 0)
			return cistern_error_set(err, ret, "a thread cannot be started: %s", strerror(-ret));
		s->has_thread = true;
	}
	pthread_mutex_lock(&s->mutex);
	s->full = r;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mutex);
	return 0;
}

void spool_destroy(struct spool *s)
{
	if (!s)
		return;
	if (s->has_thread) {
		pthread_mutex_lock(&s->mutex);
		s->ends = true;
		pthread_cond_broadcast(&s->changed);
		pthread_mutex_unlock(&s->mutex);
		pthread_join(s->thread, NULL);
	}
	for (unsigned int i = 0; i < RANGES; i++) {
		free(s->ranges[i].memory);
		free(s->ranges[i].touched);
	}
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->mutex);
	free(s);
}
