/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The carrier. What lies in the log as in the file is carried in small windows that stay in the processor's cache, read,
 * checked and written on the spot: the kernel reads ahead and writes out beside us. Scattered payloads are carried in large
 * windows, so that as many as possible can be put in order, and by two threads with a buffer each: while the session's
 * thread plans, reads and checks one window, the writer thread writes the other: past the page cache, since that thread has nothing to do but
 * to wait for the device, and the copy would cost both of them processor and memory.
 *
 * A payload is checked before any byte of its window is written.
 */
#include "mpi-agent/replay/copy_private.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "format/base/crc32c.h"
#include "format/base/descriptors.h"

#define BUFFER_MAX     (64u << 20)
#define FDS_MAX        128u /* segments that are kept open */
#define HEAD_BYTES     4096u
#define WAIT_NSEC      100000000
#define SMALL_WINDOW   (1u << 20)
#define SOME_WINDOW    (8u << 20) /* of scattered payloads, while applications write, or when these are in memory */
#define SMALL_RUN      65536u     /* reads that are shorter on average are scattered */
#define WRITE_OUT_FROM (8u << 20)
#define WAY_OUT_FROM   (4u << 20) /* as WRITE_OUT_FROM, while applications write: so much may be in the device's queue */
#define RATE_PARTS     4u         /* a window holds at most so much of what a second's rate allows */

/* ---- writing */

/* How a window goes to the file. */
enum way {
	WAY_BEHIND, /* the device begins while we go on; the rest is left to the sync */
	WAY_WAIT, /* applications write: nothing is left in the device's queue, where their requests would stand behind it */
	WAY_PAST, /* past the page cache: by a thread that may wait for the device, and spares the copy */
};

/* Writes what of the window lies in [lo, hi) of the file. */
static int write_part(struct copy_job *job, const struct copy_buffer *b, uint64_t lo, uint64_t hi, enum way way)
{
	struct sink_file *to = job->to;
	int (*put)(struct sink_file *, const void *, size_t, uint64_t) =
		way == WAY_PAST ? to->ops->pwrite_past : to->ops->pwrite;
	uint64_t bytes;
	uint32_t n;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < b->w.num; i += n) {
		const struct piece *p = &b->w.pieces[i];
		uint64_t off = p->off, end;

		n = window_write_run(&b->w, i, &bytes);
		end = off + bytes < hi ? off + bytes : hi;
		if (off < lo)
			off = lo;
		if (off >= end)
			continue;
		if (p->source == PIECE_LOST)
			continue;
		if (p->source != PIECE_HOLE)
			r = put(to, b->data + p->at + (off - p->off), (size_t)(end - off), off);
		else if (job->in_place)
			r = to->ops->zero(to, off, end - off);
	}
	return r;
}

/* The device begins as soon as there is enough to do. */
static int start_write_out(struct copy_job *job, uint64_t off, uint64_t end, enum way way)
{
	int r = 0;

	if (way == WAY_PAST)
		return 0;
	if (job->out_end == 0)
		job->out_from = off;
	job->out_end = end;
	if (end - job->out_from < (way == WAY_WAIT ? WAY_OUT_FROM : WRITE_OUT_FROM))
		return 0;
	if (way == WAY_WAIT)
		r = job->to->ops->write_wait(job->to, job->from, end - job->from); /* also what was begun before */
	else
		job->to->ops->write_out(job->to, job->out_from, end - job->out_from);
	job->out_from = end;
	return r;
}

static int write_window(struct copy_job *job, const struct copy_buffer *b, enum way way)
{
	const struct piece *first = &b->w.pieces[0], *last = &b->w.pieces[b->w.num - 1];
	int r;

	if (job->head_last) {
		r = write_part(job, b, HEAD_BYTES, UINT64_MAX, way);
		if (r == 0)
			r = write_part(job, b, 0, HEAD_BYTES, way);
	} else {
		r = write_part(job, b, 0, UINT64_MAX, way);
	}
	return r < 0 ? r : start_write_out(job, first->off, last->off + last->len, way);
}

static void *writer_main(void *arg)
{
	struct copier *c = arg;

	pthread_mutex_lock(&c->lock);
	while (!c->stop) {
		struct copy_buffer *b = c->next;
		int r;

		if (!b) {
			pthread_cond_wait(&c->wake_writer, &c->lock);
			continue;
		}
		r = c->write_error;
		pthread_mutex_unlock(&c->lock);
		if (r == 0)
			r = write_window(c->job, b, WAY_PAST);
		pthread_mutex_lock(&c->lock);
		if (r < 0 && c->write_error == 0)
			c->write_error = r;
		c->next = NULL;
		pthread_cond_signal(&c->wake_reader);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

static int start_writer(struct copier *c)
{
	int r;

	if (c->has_writer)
		return 0;
	r = pthread_create(&c->writer, NULL, writer_main, c);
	c->has_writer = r == 0;
	return -r;
}

/* Waits until the writer has nothing; ticks meanwhile, but waits on even when the session is ending: it uses the file. */
static int wait_writer(struct copier *c)
{
	struct timespec until;
	int r;

	pthread_mutex_lock(&c->lock);
	while (c->next) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += WAIT_NSEC;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&c->wake_reader, &c->lock, &until);
		if (!c->next)
			break;
		pthread_mutex_unlock(&c->lock);
		session_tick(c->s, false);
		pthread_mutex_lock(&c->lock);
	}
	r = c->write_error;
	pthread_mutex_unlock(&c->lock);
	return r;
}

static int hand_to_writer(struct copier *c, struct copy_job *job, struct copy_buffer *b)
{
	int r = start_writer(c);

	if (r == 0)
		r = wait_writer(c);
	if (r < 0)
		return r;
	pthread_mutex_lock(&c->lock);
	c->job = job;
	c->next = b;
	pthread_cond_signal(&c->wake_writer);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

/* ---- a file */

/* The session's thread alone may ask. */
static bool makes_way(const struct copier *c)
{
	return c->s->control.share_percent < 100;
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Nearly all of the last window that lies here was in memory. */
static bool is_cached(const struct copier *c)
{
	return c->num_local > 0 && c->num_waited <= c->num_local / 8;
}

/* What has to be waited for comes sooner in a good order. What is in memory needs none, and the first touch of a large buffer costs more. */
static size_t scattered_window(const struct copier *c)
{
	return makes_way(c) || is_cached(c) ? smaller(SOME_WINDOW, c->buffer_bytes) : c->buffer_bytes;
}

static size_t window_bytes(const struct copier *c, bool scattered)
{
	size_t most = scattered ? scattered_window(c) : SMALL_WINDOW;
	uint64_t part = c->s->control.rate / RATE_PARTS / EXTENT_PAGE_SPAN * EXTENT_PAGE_SPAN;

	if (c->s->control.rate == 0 || part >= most)
		return most;
	return part < EXTENT_PAGE_SPAN ? EXTENT_PAGE_SPAN : (size_t)part;
}

int copy_prepare_buffer(struct copier *c, struct copy_buffer *b)
{
	void *p;

	if (b->data)
		return 0;
	p = mmap(NULL, c->buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	b->data = p;
	return 0;
}

static int write_here(struct copier *c, struct copy_job *job, struct copy_buffer *b)
{
	int r = wait_writer(c);

	return r < 0 ? r : write_window(job, b, makes_way(c) ? WAY_WAIT : WAY_BEHIND);
}

static int copy_windows(struct copier *c, struct copy_job *job, struct copy_source *src)
{
	bool last = false, scattered = false;
	unsigned int turn = 0;
	int r = 0;

	while (r == 0 && !last) {
		struct copy_buffer *b = &c->buffers[turn++ % c->num_buffers];

		if (c->num_buffers == 1)
			r = wait_writer(c);
		if (r == 0)
			r = copy_prepare_buffer(c, b);
		if (r == 0)
			r = copy_source_next(src, window_bytes(c, scattered), &b->w, &last);
		if (r < 0 || b->w.num == 0)
			break;
		r = copy_read_window(c, job, b);
		if (r == 0)
			r = session_throttle(c->s, b->w.bytes);
		if (r < 0)
			break;
		r = scattered && !last && !makes_way(c) ? hand_to_writer(c, job, b) : write_here(c, job, b);
		scattered = c->num_runs > 1 && b->w.bytes / c->num_runs < SMALL_RUN;
		job->written += b->w.bytes;
		session_done(c->s, b->w.bytes);
	}
	return r;
}

/* Behind the copy: what was read may be what the device had before, or nothing, where it did not take what the kernel wrote. */
static int check_private(struct copier *c, struct copy_job *job)
{
	uint32_t segment = job->in->private_segment;
	int r = job->in->flags & INODE_PRIVATE ? segment_check_private(c->s->segments, segment) : 0;

	if (r < 0)
		snprintf(job->error_text, sizeof(job->error_text),
			"the node's device has lost bytes of it (%s): write it anew, under another name; what is left is drained when "
			"the xattr " SEGMENT_FAILED " of segment/%08" PRIu32 ".prv in its store is removed",
			strerror(-r), segment);
	return r;
}

int copy_run(struct copier *c, struct copy_job *job)
{
	struct copy_source src;
	int r, w;

	if (job->from >= job->end)
		return 0;
	c->write_error = 0;
	r = copy_source_open(c, job, &src);
	if (r < 0) {
		if (job->in->flags & INODE_PRIVATE)
			snprintf(job->error_text, sizeof(job->error_text),
				"its segment %" PRIu32 " cannot be opened (%s): run cistern fsck on the store",
				job->in->private_segment, strerror(-r));
		return r;
	}
	r = copy_windows(c, job, &src);
	w = wait_writer(c);
	window_plan_destroy(src.plan);
	if (r == 0)
		r = w;
	if (r == 0)
		r = check_private(c, job);
	if (job->shared && job->in_place)
		copy_end_run(job);
	if (r == 0 && !job->in_place) {
		job->crc = crc32c_zeros(job->crc, job->end - job->from - job->crc_bytes);
		job->crc_bytes = job->end - job->from;
	}
	return r;
}

/* ---- the copier */

static void init_locks(struct copier *c)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->wake_writer, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->wake_reader, &attr);
	pthread_condattr_destroy(&attr);
}

int copier_create(struct session *s, struct copier **ret)
{
	struct copier *c = calloc(1, sizeof(*c));
	uint64_t each;

	if (!c)
		return -ENOMEM;
	c->s = s;
	c->node = s->opt->node;
	c->max_fds = descriptors_share(FDS_MAX, 8);
	c->num_buffers = s->opt->buffer_bytes >= 2u * EXTENT_PAGE_SPAN ? 2 : 1;
	each = s->opt->buffer_bytes / c->num_buffers / EXTENT_PAGE_SPAN * EXTENT_PAGE_SPAN;
	c->buffer_bytes = each > BUFFER_MAX ? BUFFER_MAX : each < EXTENT_PAGE_SPAN ? EXTENT_PAGE_SPAN : (size_t)each;
	c->order = malloc((WINDOW_PIECES_MAX + 1) * sizeof(*c->order));
	c->later = malloc((WINDOW_PIECES_MAX + 1) * sizeof(*c->later));
	c->remote = malloc((WINDOW_PIECES_MAX + 1) * sizeof(*c->remote));
	c->fetches = fetches_create(&s->opt->watcher);
	init_locks(c);
	*ret = c;
	if (!c->order || !c->later || !c->remote || !c->fetches || together_create(&c->together) < 0) {
		copier_destroy(c);
		*ret = NULL;
		return -ENOMEM;
	}
	return 0;
}

void copier_destroy(struct copier *c)
{
	if (!c)
		return;
	if (c->has_writer) {
		pthread_mutex_lock(&c->lock);
		c->stop = true;
		pthread_cond_signal(&c->wake_writer);
		pthread_mutex_unlock(&c->lock);
		pthread_join(c->writer, NULL);
	}
	for (unsigned int i = 0; i < 2; i++) {
		if (c->buffers[i].data)
			munmap(c->buffers[i].data, c->buffer_bytes);
		window_free(&c->buffers[i].w);
	}
	fetches_destroy(c->fetches);
	together_destroy(c->together);
	free(c->remote);
	copy_close_fds(c);
	pthread_cond_destroy(&c->wake_reader);
	pthread_cond_destroy(&c->wake_writer);
	pthread_mutex_destroy(&c->lock);
	free(c->order);
	free(c->later);
	free(c);
}
