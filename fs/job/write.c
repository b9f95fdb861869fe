/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Writing a file that other nodes have: into our own layer, and no message for it. It counts for others with the next
 * commit; with visible=write that follows at once. Exactly the bytes that were written are logged, since what is logged hides what
 * others have written there.
 */
#include "fs/job/carry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "format/base/clock.h"
#include "fs/job/lease.h"

static struct core_file *layer_of(struct job *j, struct job_file *file)
{
	return shared_is_home(j, file->shared) ? file->local : file->shared->layer;
}

/* cuts: before that was written. As far as no cut has taken it off: that lowers the state's size first, and is noted then. */
static void note_end(struct job *j, struct shared *s, uint64_t end, uint64_t cuts)
{
	for (bool same = false; !same;) {
		pthread_mutex_lock(&s->mutex);
		same = s->cuts == cuts;
		if (same && s->own_end < end)
			s->own_end = end;
		cuts = s->cuts;
		pthread_mutex_unlock(&s->mutex);
		uint64_t left = same ? end : shared_size_here(j, s);
		end = left < end ? left : end;
	}
}

/* Marked before and after: a commit in between would take the mark and miss the bytes. */
static ssize_t write_layer(
	struct job *j, uint32_t writer, struct job_file *file, const void *buf, size_t len, uint64_t off)
{
	struct shared *s = file->shared;
	uint64_t since = clock_usec();

	if (off > INT64_MAX - len)
		return -EFBIG;
	shared_look(j, s);
	shared_mark_dirty(j, s, since, 0);
	uint64_t cuts = shared_cuts(s);
	ssize_t done = core_write_as(j->core, writer, layer_of(j, file), buf, len, off);
	if (done > 0)
		note_end(j, s, off + (size_t)done, cuts);
	shared_mark_dirty(j, s, since, 0);
	return done;
}

/* To the layer, if there is one. */
static ssize_t write_some(
	struct job *j, uint32_t writer, struct job_file *file, const void *buf, size_t len, uint64_t off)
{
	struct shared *s = file->shared;
	ssize_t done = -ESTALE;

	for (int tries = 0; carry_again(j, s, tries, &done); tries++)
		done = carry_write(j, s, buf, len, off);
	return done == -ESTALE ? write_layer(j, writer, file, buf, len, off) : done;
}

static ssize_t write_runs(struct job *j, uint32_t writer, struct job_file *file, const uint8_t *buf, uint64_t off,
	const struct sieve_run *runs, size_t num)
{
	for (size_t i = 0; i < num; i++)
		for (size_t done = 0; done < runs[i].len;) {
			ssize_t put = write_some(j, writer, file, buf + runs[i].off + done, runs[i].len - done,
				off + runs[i].off + done);
			if (put < 0)
				return put;
			done += (size_t)put;
		}
	return 0;
}

static ssize_t write_all(
	struct job *j, uint32_t writer, struct job_file *file, const void *buf, size_t len, uint64_t off)
{
	if (!carry_is_needed(file->shared))
		return write_some(j, writer, file, buf, len, off);
	ssize_t rc = write_runs(j, writer, file, buf, off, &(struct sieve_run){ .len = len }, 1);
	return rc < 0 ? rc : (ssize_t)len;
}

/* -ECANCELED: not there, since it has been cut off. */
static ssize_t write_place(struct job *j, struct job_file *file, const void *buf, const struct append *a)
{
	struct shared *s = file->shared;
	struct core_guard guard = { .at = &s->cuts_known, .is = a->cuts };
	uint64_t since = clock_usec();

	if (a->off > INT64_MAX - a->len || a->off + a->len > core_max_bytes(j->core))
		return -EFBIG;
	shared_look(j, s);
	shared_mark_dirty(j, s, since, 0);
	ssize_t done = core_write_while(j->core, file->writer, layer_of(j, file), buf, a->len, a->off, &guard);
	if (done > 0)
		append_written(s, a);
	shared_mark_dirty(j, s, since, 0);
	return done;
}

/* What a cut takes off of it has been appended before the cut. */
static ssize_t append_layer(struct job *j, struct job_file *file, const void *buf, size_t len)
{
	struct shared *s = file->shared;
	struct append a = { 0 };
	ssize_t done = -ECANCELED;
	int rc = 0;

	while (rc == 0 && done == -ECANCELED) {
		rc = append_trim(s, &a) ? 0 : append_place(j, s, len, &a);
		done = rc < 0 ? rc : write_place(j, file, buf, &a);
	}
	return done < 0 ? done : (ssize_t)len;
}

static ssize_t append_shared(struct job *j, struct job_file *file, const void *buf, size_t len)
{
	struct shared *s = file->shared;
	ssize_t done = -ESTALE;

	for (int tries = 0; carry_again(j, s, tries, &done); tries++)
		done = carry_append(j, s, buf, len);
	return done == -ESTALE ? append_layer(j, file, buf, len) : done;
}

static ssize_t write_shared(struct job *j, struct job_file *file, const void *buf, size_t len, uint64_t off)
{
	struct shared *s = file->shared;
	struct sieve_run *runs;
	size_t num;

	if (file->flags & O_APPEND)
		return append_shared(j, file, buf, len);
	uint64_t shapes = s->shapes;
	int sieved = sieve_runs(file, buf, len, off, &runs, &num);
	if (sieved < 0)
		return sieved;
	if (!sieved)
		return write_all(j, file->writer, file, buf, len, off);
	if (num == 0)
		shared_mark_dirty(j, s, clock_usec(), 0); /* the file's time changes */
	ssize_t done = write_runs(j, file->writer, file, buf, off, runs, num);
	free(runs);
	if (done == 0 && shapes != s->shapes) /* what is between the runs may be there no more */
		return write_all(j, file->writer, file, buf, len, off);
	return done < 0 ? done : (ssize_t)len;
}

static ssize_t write_synced(struct job *j, struct job_file *file, const void *buf, size_t len, uint64_t off)
{
	uint64_t losses = file->shared->losses;
	ssize_t done = len ? write_shared(j, file, buf, len, off) : 0;

	if (done <= 0 || !(file->flags & (O_SYNC | O_DSYNC)))
		return done;
	int rc = share_sync(j, file->shared, losses);
	return rc < 0 ? rc : done;
}

/* At home as long as nobody else writes, or what others write is carried here: core's. True: *ret is what it said. */
static bool write_alone(
	struct job *j, struct job_file *file, bool page, const void *buf, size_t len, uint64_t off, ssize_t *ret)
{
	uint32_t writer = page ? 0 : file->writer;

	if (!shared_alone_begin(j, file->shared))
		return false;
	if (file->shared->kept == KEPT_THROUGH)
		*ret = carry_write_through(j, file, writer, !page && file->flags & O_APPEND, buf, len, off);
	else
		*ret = core_write_as(j->core, writer, file->local, buf, len, off);
	shared_alone_end(file->shared);
	return true;
}

static ssize_t show(struct job *j, struct job_file *file, ssize_t done)
{
	int rc = done > 0 && config_number(j->opt.cfg, CONFIG_VISIBLE) == VISIBLE_WRITE ? share_show(j, file->shared)
											: 0;

	return rc < 0 ? rc : done;
}

ssize_t share_write(struct job *j, struct job_file *file, const void *buf, size_t len, uint64_t off)
{
	ssize_t done;

	if (!write_alone(j, file, false, buf, len, off, &done)) {
		lease_begin_write(j, file->shared);
		done = write_synced(j, file, buf, len, off);
		lease_end_write(file->shared);
	}
	if (file->flags & O_APPEND)
		sieve_forget(file);
	else
		sieve_written(file, len, off);
	return show(j, file, done);
}

/* What the page had before it was changed; as far as that is not kept, as we see it. Returns how much of it there is. */
static ssize_t page_before(struct job *j, struct shared *s, uint8_t *was, size_t len, uint64_t off)
{
	if (pages_were(j, s, len, off, was))
		return (ssize_t)len;
	ssize_t seen = share_read_at(j, s, was, len, off);
	if (seen > 0)
		(void)pages_were(j, s, (size_t)seen, off, was);
	return seen;
}

/*
 * A page that was changed through a mapping comes whole, and most of it may be what others have written. Only what differs from
 * what it had before is ours.
 */
static ssize_t write_page(struct job *j, struct job_file *file, const void *buf, size_t len, uint64_t off)
{
	struct sieve_run *runs = NULL;
	size_t num = 0;
	ssize_t done;

	if (write_alone(j, file, true, buf, len, off, &done)) {
		if (done > 0)
			pages_given(j, file->shared, true, buf, (size_t)done, (size_t)done, off);
		return done;
	}
	uint8_t *was = calloc(1, len ? len : 1);
	if (!was)
		return -ENOMEM;
	done = page_before(j, file->shared, was, len, off);
	size_t seen = done < 0 ? 0 : (size_t)done;
	int rc = done < 0 ? (int)done : sieve_compare(was, buf, seen, &runs, &num);
	done = rc < 0 ? rc : write_runs(j, 0, file, buf, off, runs, num);
	if (done == 0 && seen < len)
		done = write_all(j, 0, file, (const uint8_t *)buf + seen, len - seen, off + seen);
	if (done >= 0)
		pages_given(j, file->shared, true, buf, len, len, off);
	free(runs);
	free(was);
	return done < 0 ? done : (ssize_t)len;
}

ssize_t share_write_page(struct job *j, struct job_file *file, const void *buf, size_t len, uint64_t off)
{
	ssize_t done = write_page(j, file, buf, len, off);

	sieve_written(file, len, off);
	return show(j, file, done);
}
