/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Read, change, write back: ROMIO's data sieving writes a span with holes by reading all of it, laying the new pieces into
 * the buffer and writing the buffer. Logged as it comes, the holes would hide what other nodes write there at
 * the same time. So each file open for both remembers for a moment what it has read last: a write of exactly that span is taken
 * for the changed bytes alone. A span that goes beyond the end of the file is read as far as there is something: behind that, all is
 * written.
 *
 * What a process of this node has done since through the same open file, or to the shape of the file, it knows of: if it writes the span
 * all the same, all of it counts. So writes end the memory of what they overlap, cuts and holes that of everything. Writes through
 * other open files do not: they may be another rank's, in the holes.
 */
#include "fs/job/share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/base/clock.h"

#define READS     8
#define BYTES_MAX (4u << 20)
#define AGE_USEC  10000000u

struct read_before {
	uint64_t off, usec, shapes;
	size_t len;
	uint8_t *bytes; /* owned; NULL: none */
	bool to_end;    /* the file ended there */
};

struct sieve {
	pthread_mutex_t lock;
	struct read_before reads[READS];
	unsigned int next;
	size_t bytes;
	uint64_t writes; /* through the open file that have ended */
};

struct sieve *sieve_create(void)
{
	struct sieve *sv = calloc(1, sizeof(*sv));

	if (sv)
		pthread_mutex_init(&sv->lock, NULL);
	return sv;
}

/* lock is held. */
static void drop(struct sieve *sv, struct read_before *r)
{
	if (r->bytes)
		sv->bytes -= r->len;
	free(r->bytes);
	*r = (struct read_before){ 0 };
}

static void remember(
	struct sieve *sv, const struct sieve_moment *begun, const void *buf, size_t len, uint64_t off, bool to_end)
{
	struct read_before *r = &sv->reads[sv->next++ % READS];

	drop(sv, r);
	for (unsigned int i = 0; i < READS && sv->bytes + len > BYTES_MAX; i++)
		drop(sv, &sv->reads[(sv->next + i) % READS]);
	r->bytes = malloc(len);
	if (!r->bytes)
		return; /* then the write counts as it comes */
	memcpy(r->bytes, buf, len);
	r->len = len;
	r->off = off;
	r->to_end = to_end;
	r->shapes = begun->shapes;
	r->usec = clock_usec();
	sv->bytes += len;
}

struct sieve_moment sieve_begin_read(struct job_file *file)
{
	struct sieve *sv = file->sieve;
	struct sieve_moment now = { .shapes = file->shared->shapes };

	if (!sv)
		return now;
	pthread_mutex_lock(&sv->lock);
	now.writes = sv->writes;
	pthread_mutex_unlock(&sv->lock);
	return now;
}

void sieve_note_read(
	struct job_file *file, const struct sieve_moment *begun, const void *buf, size_t len, uint64_t off, bool to_end)
{
	struct sieve *sv = file->sieve;

	if (!sv || len > BYTES_MAX)
		return;
	pthread_mutex_lock(&sv->lock);
	if (begun->writes == sv->writes) /* else it may have been read before what has been written meanwhile */
		remember(sv, begun, buf, len, off, to_end);
	pthread_mutex_unlock(&sv->lock);
}

static int add_run(struct sieve_run **runs, size_t *num, size_t *cap, size_t off, size_t len)
{
	if (array_room(runs, cap, *num, sizeof(**runs)) < 0)
		return -ENOMEM;
	(*runs)[(*num)++] = (struct sieve_run){ off, len };
	return 0;
}

/* Of was there are was_len bytes. */
static int compare(
	const uint8_t *was, size_t was_len, const uint8_t *buf, size_t len, struct sieve_run **ret, size_t *ret_num)
{
	size_t cap = 0;
	int rc = 0;

	*ret = NULL;
	*ret_num = 0;
	for (size_t at = 0, end; rc == 0 && at < len; at = end) {
		while (at < was_len && was[at] == buf[at])
			at++;
		end = at;
		while (end < was_len && was[end] != buf[end])
			end++;
		end = end == was_len ? len : end;
		if (end > at)
			rc = add_run(ret, ret_num, &cap, at, end - at);
	}
	if (rc < 0) {
		free(*ret);
		*ret = NULL;
	}
	return rc;
}

int sieve_compare(const uint8_t *was, const uint8_t *buf, size_t len, struct sieve_run **ret, size_t *ret_num)
{
	return compare(was, len, buf, len, ret, ret_num);
}

static struct read_before *find(struct sieve *sv, uint64_t shapes, size_t len, uint64_t off)
{
	uint64_t now = clock_usec();

	for (unsigned int i = 0; i < READS; i++) {
		struct read_before *r = &sv->reads[(sv->next + READS - 1 - i) % READS]; /* the youngest first */

		if (r->bytes && r->shapes == shapes && r->off == off &&
			(r->len == len || (r->to_end && r->len < len)) && now - r->usec < AGE_USEC)
			return r;
	}
	return NULL;
}

int sieve_runs(
	struct job_file *file, const void *buf, size_t len, uint64_t off, struct sieve_run **ret, size_t *ret_num)
{
	struct sieve *sv = file->sieve;
	int rc = 0;

	*ret = NULL;
	*ret_num = 0;
	if (!sv)
		return 0;
	pthread_mutex_lock(&sv->lock);
	struct read_before *r = find(sv, file->shared->shapes, len, off);
	if (r) {
		rc = compare(r->bytes, r->len, buf, len, ret, ret_num);
		drop(sv, r);
	}
	pthread_mutex_unlock(&sv->lock);
	bool part = r && rc == 0 && !(*ret_num == 1 && (*ret)[0].len == len);
	if (!part) {
		free(*ret);
		*ret = NULL;
	}
	return rc < 0 ? rc : part;
}

static bool overlaps(const struct read_before *r, size_t len, uint64_t off)
{
	return r->off < off ? off - r->off < r->len : r->off - off < len;
}

void sieve_written(struct job_file *file, size_t len, uint64_t off)
{
	struct sieve *sv = file->sieve;

	if (!sv)
		return;
	pthread_mutex_lock(&sv->lock);
	sv->writes++;
	for (unsigned int i = 0; i < READS; i++)
		if (overlaps(&sv->reads[i], len, off))
			drop(sv, &sv->reads[i]);
	pthread_mutex_unlock(&sv->lock);
}

void sieve_forget(struct job_file *file)
{
	sieve_written(file, SIZE_MAX, 0);
}

void sieve_destroy(struct sieve *sv)
{
	if (!sv)
		return;
	for (unsigned int i = 0; i < READS; i++)
		free(sv->reads[i].bytes);
	pthread_mutex_destroy(&sv->lock);
	free(sv);
}
