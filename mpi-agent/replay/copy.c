/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The carrier. What lies in the log as in the file is carried in small windows that stay in the processor's cache, read,
 * checked and written on the spot: the kernel reads ahead and writes out beside us. Scattered payloads are carried in large
 * windows, so that as many as possible can be put in order, and by two threads with a buffer each: while the session's
 * thread plans, reads and checks one window, the writer thread writes the other.
 *
 * Reads of a window go by (segment, offset), neighbours in one call, whatever the order in the file. What is in the page
 * cache is read at once (RWF_NOWAIT); what is not is asked for first, all of it, and then waited for, so that the device
 * sees many requests at a time without a thread for each.
 *
 * A payload is checked before any byte of its window is written.
 */
#include "mpi-agent/replay/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "format/base/crc32c.h"
#include "format/base/fdio.h"
#include "mpi-agent/plan/window.h"
#include "mpi-agent/replay/fetch.h"

#define BUFFER_MAX     (64u << 20)
#define IOVECS         512u
#define FDS_CACHED     128u
#define HEAD_BYTES     4096u
#define COMBINE_FROM   65536u /* from here on combining two CRCs is cheaper than computing one anew */
#define WAIT_NSEC      100000000
#define SMALL_WINDOW   (1u << 20)
#define WAY_WINDOW     (8u << 20) /* of scattered payloads, while applications write */
#define SMALL_RUN      65536u     /* reads that are shorter on average are scattered */
#define WRITE_OUT_FROM (8u << 20)
#define WAY_OUT_FROM   (4u << 20) /* as WRITE_OUT_FROM, while applications write: so much may be in the device's queue */
#define RATE_PARTS     4u         /* a window holds at most so much of what a second's rate allows */

struct copy_buffer {
	uint8_t *data; /* owned; NULL until first used */
	struct window w;
};

struct later {        /* a read that has to be waited for */
	uint32_t at;  /* in the order */
	uint32_t got; /* bytes of it that are there */
};

struct copier {
	struct session *s;       /* borrowed */
	uint32_t node;           /* whose store it is */
	struct fetches *fetches; /* owned */
	uint32_t *remote;        /* owned, WINDOW_PIECES_MAX entries: pieces that are fetched */
	uint32_t num_remote;
	size_t buffer_bytes;
	unsigned int num_buffers;
	struct copy_buffer buffers[2];
	uint32_t *order;     /* owned: WINDOW_PIECES_MAX entries, as has later */
	struct later *later; /* owned */
	struct idmap fds;    /* segment + 1 -> fd + 1 */
	pthread_t writer;
	bool has_writer;
	pthread_mutex_t lock;
	pthread_cond_t wake_writer, wake_reader;
	/* under lock */
	struct copy_job *job;
	struct copy_buffer *next;
	bool stop;
	int write_error;
	/* of the session's thread again */
	uint32_t num_runs; /* reads that the last window took */
};

/* The windows of a file: by its extents, or by the data that its private segment holds. */
struct source {
	struct window_plan *plan; /* owned; NULL: private */
	int fd;
	uint32_t segment, node;
	uint64_t pos, end;
};

static void close_fds(struct copier *c)
{
	for (size_t i = 0; i < c->fds.cap; i++)
		if (c->fds.slots[i].key)
			close((int)c->fds.slots[i].value - 1);
	idmap_free(&c->fds);
}

static int segment_fd(struct copier *c, uint32_t segment)
{
	uint64_t have = idmap_get(&c->fds, (uint64_t)segment + 1);
	int fd;

	if (have)
		return (int)have - 1;
	if (c->fds.num >= FDS_CACHED)
		close_fds(c);
	fd = segment_open_fd(c->s->segments, segment, false);
	if (fd >= 0 && idmap_set(&c->fds, (uint64_t)segment + 1, (uint64_t)fd + 1) < 0) {
		close(fd);
		return -ENOMEM;
	}
	return fd;
}

/* ---- sources */

static int source_open(struct copier *c, const struct copy_job *job, struct source *ret)
{
	struct window_plan_options opt = { .st = c->s->st,
		.ino = job->in->ino,
		.from = job->from,
		.to = job->end,
		.shared = job->shared,
		.node = c->node,
		.num_nodes = c->s->opt->num_nodes,
		.domain_size = c->s->opt->domain_size,
		.holes = job->in_place,
		.base = job->want_base,
		.backing_limit = job->in->backing_limit };

	*ret = (struct source){ .fd = -1, .node = c->node, .pos = job->from, .end = job->end };
	if (!(job->in->flags & INODE_PRIVATE))
		return window_plan_create(&opt, &ret->plan);
	ret->segment = job->in->private_segment;
	ret->fd = segment_fd(c, ret->segment);
	return ret->fd < 0 ? ret->fd : 0;
}

/* The next range of data from pos on; false: only a hole is left. */
static bool private_data(const struct source *src, uint64_t *ret_off, uint64_t *ret_end)
{
	off_t data, hole;

	if (src->pos >= src->end)
		return false;
	data = lseek(src->fd, (off_t)src->pos, SEEK_DATA);
	if (data < 0 && errno == ENXIO)
		return false;
	if (data < 0) { /* no such calls here: all is data */
		data = (off_t)src->pos;
		hole = (off_t)src->end;
	} else {
		hole = lseek(src->fd, data, SEEK_HOLE);
		if (hole < 0)
			hole = (off_t)src->end;
	}
	*ret_off = (uint64_t)data;
	*ret_end = (uint64_t)hole < src->end ? (uint64_t)hole : src->end;
	return *ret_off < src->end;
}

static int private_next(struct source *src, size_t cap, struct window *w, bool *ret_last)
{
	uint64_t off, end;
	int r = 0;

	window_reset(w);
	while (r == 0 && w->bytes < cap && w->num < WINDOW_PIECES_MAX && private_data(src, &off, &end)) {
		uint64_t room = cap - w->bytes;

		if (end - off > room) {
			uint64_t cut = (off + room) / EXTENT_PAGE_SPAN * EXTENT_PAGE_SPAN;

			if (cut <= off && w->num > 0)
				break;
			end = cut > off ? cut : off + room;
		}
		r = window_add(w, &(struct piece){ .source = PIECE_LOG,
					  .off = off,
					  .len = (uint32_t)(end - off),
					  .segment = src->segment,
					  .node = src->node,
					  .segment_off = off });
		src->pos = end;
	}
	*ret_last = r == 0 && !private_data(src, &off, &end);
	return r;
}

static int source_next(struct source *src, size_t cap, struct window *w, bool *ret_last)
{
	return src->plan ? window_plan_next(src->plan, cap, w, ret_last) : private_next(src, cap, w, ret_last);
}

/* ---- reading */

static unsigned int fill_iov(
	struct copy_buffer *b, const uint32_t *order, uint32_t n, struct iovec *iov, size_t *ret_len)
{
	unsigned int num = 0;

	*ret_len = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct piece *p = &b->w.pieces[order[i]];
		uint8_t *at = b->data + p->at;

		if (num > 0 && (uint8_t *)iov[num - 1].iov_base + iov[num - 1].iov_len == at)
			iov[num - 1].iov_len += p->len;
		else
			iov[num++] = (struct iovec){ at, p->len };
		*ret_len += p->len;
	}
	return num;
}

/* All of a run but its first skip bytes, by whatever many calls; behind the end of a private segment there are zeros. */
static int read_run(
	struct copier *c, struct copy_job *job, struct copy_buffer *b, const uint32_t *order, uint32_t n, size_t skip)
{
	const struct piece *first = &b->w.pieces[order[0]];
	int fd = segment_fd(c, first->segment);

	if (fd < 0)
		return fd;
	for (uint32_t i = 0; i < n; i++) {
		const struct piece *p = &b->w.pieces[order[i]];
		size_t done = p->len < skip ? p->len : skip, left = p->len - done;
		uint8_t *to = b->data + p->at + done;
		ssize_t got = fdio_read(fd, to, left, p->segment_off + done);

		skip -= done;
		if (got < 0)
			return (int)got;
		if ((size_t)got == left)
			continue;
		if (!(job->in->flags & INODE_PRIVATE))
			return -ENODATA;
		memset(to + got, 0, left - (size_t)got);
		job->short_private = true;
	}
	return 0;
}

/* What is cached, at once; the others are put in motion. Returns how many bytes of *ret_len are there. */
static size_t read_run_now(struct copier *c, struct copy_buffer *b, const uint32_t *order, uint32_t n, size_t *ret_len)
{
	const struct piece *first = &b->w.pieces[order[0]];
	int fd = segment_fd(c, first->segment);
	struct iovec iov[IOVECS];
	unsigned int num;
	ssize_t got;

	num = fill_iov(b, order, n, iov, ret_len);
	if (fd < 0)
		return 0;
	got = preadv2(fd, iov, (int)num, (off_t)first->segment_off, RWF_NOWAIT);
	if (got < 0)
		got = 0;
	if ((size_t)got < *ret_len)
		posix_fadvise(
			fd, (off_t)first->segment_off + got, (off_t)(*ret_len - (size_t)got), POSIX_FADV_WILLNEED);
	return (size_t)got;
}

static int say_damage(struct copy_job *job, const struct piece *p, int r)
{
	if (r == -ENODATA || r == -ENOENT)
		r = -EBADMSG;
	if (r == -EBADMSG)
		snprintf(job->error_text, sizeof(job->error_text),
			"damaged payload at segment %" PRIu32 " offset %" PRIu64 ", file offset %" PRIu64
			": run cistern fsck on the store",
			p->segment, p->segment_off, p->off);
	return r;
}

static bool is_lost(const struct copier *c, uint32_t node)
{
	return node < c->s->opt->num_lost && c->s->opt->lost[node];
}

/* Whose pieces of a window are fetched, in the order in which they lie in the stores. */
static void list_remote(struct copier *c, const struct copy_buffer *b, uint32_t num)
{
	c->num_remote = 0;
	for (uint32_t i = 0; i < num; i++) {
		uint32_t node = b->w.pieces[c->order[i]].node;

		if (node != c->node && !is_lost(c, node))
			c->remote[c->num_remote++] = c->order[i];
	}
}

static int say_unfetched(struct copy_job *job, const struct piece *p, int r)
{
	snprintf(job->error_text, sizeof(job->error_text),
		"its bytes in the store of node %" PRIu32 " (segment %" PRIu32 ") cannot be had: %s", p->node,
		p->segment, strerror(-r));
	return r;
}

/* Reads what is here, beginning with what need not be waited for, and takes in between what comes from other nodes. */
static int read_local(struct copier *c, struct copy_job *job, struct copy_buffer *b, uint32_t num)
{
	uint32_t num_later = 0, n;
	size_t got, len, since = 0;
	int r = 0;

	for (uint32_t at = 0; r == 0 && at < num; at += n) {
		n = window_read_run(&b->w, c->order, num, at, IOVECS);
		c->num_runs++;
		if (b->w.pieces[c->order[at]].node != c->node)
			continue;
		got = read_run_now(c, b, c->order + at, n, &len);
		if (got < len)
			c->later[num_later++] = (struct later){ at, (uint32_t)got };
		since += len;
		if (since >= WIRE_FETCH_BYTES) {
			since = 0;
			r = fetches_take(c->fetches);
		}
	}
	for (uint32_t i = 0; r == 0 && i < num_later; i++) {
		const uint32_t *order = c->order + c->later[i].at;

		n = window_read_run(&b->w, c->order, num, c->later[i].at, IOVECS);
		r = read_run(c, job, b, order, n, c->later[i].got);
		if (r < 0)
			return say_damage(job, &b->w.pieces[order[0]], r);
	}
	return r;
}

static int read_log(struct copier *c, struct copy_job *job, struct copy_buffer *b)
{
	const struct piece *failed = NULL;
	uint32_t num;
	int r, e;

	window_read_order(&b->w, c->order, &num);
	c->num_runs = 0;
	list_remote(c, b, job->shared ? num : 0);
	r = fetches_begin(c->fetches, b->w.pieces, b->data, c->remote, c->num_remote);
	if (r == 0)
		r = read_local(c, job, b, num);
	e = fetches_end(c->fetches, r == 0, &failed);
	if (failed)
		return say_unfetched(job, failed, e);
	return r < 0 ? r : e;
}

static int note_missing(struct copy_job *job, uint64_t off, uint64_t len)
{
	struct manifest_range *last = job->num_missing ? &job->missing[job->num_missing - 1] : NULL;
	struct manifest_range *grown;

	if (last && last->off + last->len == off) {
		last->len += len;
		return 0;
	}
	grown = reallocarray(job->missing, job->num_missing + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	job->missing = grown;
	job->missing[job->num_missing++] = (struct manifest_range){ off, len };
	return 0;
}

static bool is_zero(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

/* Backing bytes; zeros among them become holes again. */
static int read_base(struct copy_job *job, struct copy_buffer *b, struct piece *p)
{
	uint8_t *at = b->data + p->at;
	ssize_t got = job->base ? job->base->ops->pread(job->base, at, p->len, p->off) : 0;

	if (got < 0)
		return (int)got;
	memset(at + got, 0, p->len - (size_t)got);
	if ((size_t)got < p->len) {
		int r = note_missing(job, p->off + (uint64_t)got, p->len - (uint64_t)got);

		if (r < 0)
			return r;
	}
	if (is_zero(at, p->len))
		p->source = PIECE_HOLE;
	return 0;
}

/* Ranges that touch are one part of the checksum: a part costs a few microseconds, whatever its length. */
static void end_run(struct copy_job *job)
{
	uint64_t len = job->run_end - job->run_off;

	if (len > 0)
		job->crc_sum ^=
			crc32c_part(crc32c_combine(job->run_crc, job->crc, len), len, job->in->size - job->run_end);
	job->run_off = job->run_end;
}

static void add_to_run(struct copy_job *job, const struct piece *p)
{
	if (p->off != job->run_end) {
		end_run(job);
		job->run_off = p->off;
	}
	if (job->run_off == p->off)
		job->run_crc = job->crc;
	job->run_end = p->off + p->len;
}

/* Checks a piece and adds it to the checksum. */
static int account_piece(struct copy_job *job, const struct copy_buffer *b, const struct piece *p)
{
	const uint8_t *at = b->data + p->at;
	uint32_t crc = 0;
	bool checked = p->whole && p->source == PIECE_LOG;

	if (p->source == PIECE_HOLE || p->source == PIECE_LOST)
		return 0;
	if (checked) {
		crc = crc32c(0, at, p->len);
		if (crc != p->crc)
			return say_damage(job, p, -EBADMSG);
	}
	if (job->shared && job->in_place)
		add_to_run(job, p);
	if (!job->in_place) {
		job->crc = crc32c_zeros(job->crc, p->off - job->from - job->crc_bytes);
		job->crc_bytes = p->off - job->from;
	}
	job->crc = checked && p->len >= COMBINE_FROM ? crc32c_combine(job->crc, crc, p->len)
						     : crc32c(job->crc, at, p->len);
	job->crc_bytes += p->len;
	job->extents++;
	return 0;
}

/* Only a lost store had it. */
static bool is_lost_piece(const struct copier *c, const struct copy_job *job, const struct piece *p)
{
	return job->shared && p->source == PIECE_LOG && is_lost(c, p->node);
}

/* What only a lost store had is listed. */
static int mark_lost(struct copier *c, struct copy_job *job, struct copy_buffer *b)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < b->w.num; i++) {
		struct piece *p = &b->w.pieces[i];

		if (!is_lost_piece(c, job, p))
			continue;
		p->source = PIECE_LOST;
		r = note_missing(job, p->off, p->len);
	}
	return r;
}

static int read_window(struct copier *c, struct copy_job *job, struct copy_buffer *b)
{
	int r = read_log(c, job, b);

	if (r == 0)
		r = mark_lost(c, job, b);

	for (uint32_t i = 0; r == 0 && i < b->w.num; i++)
		if (b->w.pieces[i].source == PIECE_BASE)
			r = read_base(job, b, &b->w.pieces[i]);
	for (uint32_t i = 0; r == 0 && i < b->w.num; i++)
		r = account_piece(job, b, &b->w.pieces[i]);
	return r;
}

/* ---- writing */

/* Writes what of the window lies in [lo, hi) of the file. */
static int write_part(struct copy_job *job, const struct copy_buffer *b, uint64_t lo, uint64_t hi)
{
	struct sink_file *to = job->to;
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
			r = to->ops->pwrite(to, b->data + p->at + (off - p->off), (size_t)(end - off), off);
		else if (job->in_place)
			r = to->ops->zero(to, off, end - off);
	}
	return r;
}

/*
 * The device begins as soon as there is enough to do; the rest is left to the sync. Who makes way leaves nothing in the
 * device's queue, where an application's requests would have to stand behind it.
 */
static int start_write_out(struct copy_job *job, uint64_t off, uint64_t end, bool make_way)
{
	int r = 0;

	if (job->out_end == 0)
		job->out_from = off;
	job->out_end = end;
	if (end - job->out_from < (make_way ? WAY_OUT_FROM : WRITE_OUT_FROM))
		return 0;
	if (make_way)
		r = job->to->ops->write_wait(job->to, job->from, end - job->from); /* also what was begun before */
	else
		job->to->ops->write_out(job->to, job->out_from, end - job->out_from);
	job->out_from = end;
	return r;
}

static int write_window(struct copy_job *job, const struct copy_buffer *b, bool make_way)
{
	const struct piece *first = &b->w.pieces[0], *last = &b->w.pieces[b->w.num - 1];
	int r;

	if (job->head_last) {
		r = write_part(job, b, HEAD_BYTES, UINT64_MAX);
		if (r == 0)
			r = write_part(job, b, 0, HEAD_BYTES);
	} else {
		r = write_part(job, b, 0, UINT64_MAX);
	}
	return r < 0 ? r : start_write_out(job, first->off, last->off + last->len, make_way);
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
			r = write_window(c->job, b, false);
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

static size_t window_bytes(const struct copier *c, bool scattered)
{
	size_t most = !scattered ? SMALL_WINDOW : makes_way(c) ? smaller(WAY_WINDOW, c->buffer_bytes) : c->buffer_bytes;
	uint64_t part = c->s->control.rate / RATE_PARTS / EXTENT_PAGE_SPAN * EXTENT_PAGE_SPAN;

	if (c->s->control.rate == 0 || part >= most)
		return most;
	return part < EXTENT_PAGE_SPAN ? EXTENT_PAGE_SPAN : (size_t)part;
}

static int prepare_buffer(struct copier *c, struct copy_buffer *b)
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

	return r < 0 ? r : write_window(job, b, makes_way(c));
}

static int copy_windows(struct copier *c, struct copy_job *job, struct source *src)
{
	bool last = false, scattered = false;
	unsigned int turn = 0;
	int r = 0;

	while (r == 0 && !last) {
		struct copy_buffer *b = &c->buffers[turn++ % c->num_buffers];

		if (c->num_buffers == 1)
			r = wait_writer(c);
		if (r == 0)
			r = prepare_buffer(c, b);
		if (r == 0)
			r = source_next(src, window_bytes(c, scattered), &b->w, &last);
		if (r < 0 || b->w.num == 0)
			break;
		r = read_window(c, job, b);
		if (r == 0)
			r = session_throttle(c->s, b->w.bytes);
		if (r < 0)
			break;
		r = scattered && !last && !makes_way(c) ? hand_to_writer(c, job, b) : write_here(c, job, b);
		scattered = c->num_runs > 1 && b->w.bytes / c->num_runs < SMALL_RUN;
		job->written += b->w.bytes;
		c->s->progress.done_bytes += b->w.bytes;
	}
	return r;
}

int copy_run(struct copier *c, struct copy_job *job)
{
	struct source src;
	int r, w;

	if (job->from >= job->end)
		return 0;
	c->write_error = 0;
	r = source_open(c, job, &src);
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
	if (job->shared && job->in_place)
		end_run(job);
	if (r == 0 && !job->in_place) {
		job->crc = crc32c_zeros(job->crc, job->end - job->from - job->crc_bytes);
		job->crc_bytes = job->end - job->from;
	}
	return r;
}

static int read_back_range(struct copier *c, struct sink_file *f, uint64_t off, uint64_t len, uint32_t *crc)
{
	uint8_t *data = c->buffers[0].data;

	while (len > 0) {
		size_t n = len < EXTENT_PAGE_SPAN ? (size_t)len : EXTENT_PAGE_SPAN;
		ssize_t got = f->ops->pread(f, data, n, off);
		int r = got < 0 ? (int)got : session_make_way(c->s);

		if (r < 0)
			return r;
		if ((size_t)got < n)
			return -ENODATA;
		*crc = crc32c(*crc, data, n);
		off += n;
		len -= n;
	}
	return 0;
}

int copy_read_back(struct copier *c, const struct copy_job *job, uint32_t *ret_crc, uint64_t *ret_bytes)
{
	struct copy_buffer *b = &c->buffers[0];
	uint32_t crc = 0;
	uint64_t bytes = 0;
	struct source src;
	bool last = false;
	int r = prepare_buffer(c, b);

	if (r == 0 && !job->in_place) {
		r = read_back_range(c, job->to, job->from, job->end - job->from, &crc);
		bytes = job->end - job->from;
	} else if (r == 0 && job->from < job->end) {
		r = source_open(c, job, &src);
		while (r == 0 && !last) {
			r = source_next(&src, c->buffer_bytes, &b->w, &last);
			for (uint32_t i = 0; r == 0 && i < b->w.num; i++) {
				const struct piece *p = &b->w.pieces[i];

				if (p->source == PIECE_HOLE || is_lost_piece(c, job, p)) /* nothing was written */
					continue;
				r = read_back_range(c, job->to, p->off, p->len, &crc);
				bytes += p->len;
			}
		}
		window_plan_destroy(src.plan);
	}
	if (r < 0)
		return r;
	*ret_crc = crc;
	*ret_bytes = bytes;
	return 0;
}

/* ---- comparing */

struct comparing {
	struct sink_file *to;
	uint8_t *back; /* owned: EXTENT_PAGE_SPAN bytes of the destination */
	int (*each)(uint64_t off, void *arg);
	void *arg;
};

/* expected NULL: zeros. What the destination does not have differs. */
static int compare_range(struct comparing *k, uint64_t off, const uint8_t *expected, uint64_t len)
{
	int r = 0;

	while (r == 0 && len > 0) {
		size_t n = len < EXTENT_PAGE_SPAN ? (size_t)len : EXTENT_PAGE_SPAN, at = 0;
		ssize_t got = k->to->ops->pread(k->to, k->back, n, off);

		if (got < 0)
			return (int)got;
		while (at < (size_t)got && k->back[at] == (expected ? expected[at] : 0))
			at++;
		if (at < n)
			r = k->each(off + at, k->arg);
		off += n;
		len -= n;
		expected = expected ? expected + n : NULL;
	}
	return r;
}

static int compare_window(struct comparing *k, struct copy_job *job, const struct copy_buffer *b, uint64_t *pos)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < b->w.num; i++) {
		const struct piece *p = &b->w.pieces[i];

		if (p->source == PIECE_HOLE || p->source == PIECE_LOST)
			continue;
		if (!job->in_place && p->off > *pos)
			r = compare_range(k, *pos, NULL, p->off - *pos);
		if (r == 0)
			r = compare_range(k, p->off, b->data + p->at, p->len);
		*pos = p->off + p->len;
	}
	return r;
}

static int compare_windows(struct copier *c, struct copy_job *job, struct comparing *k)
{
	struct copy_buffer *b = &c->buffers[0];
	uint64_t pos = job->from;
	struct source src;
	bool last = false;
	int r = source_open(c, job, &src);

	if (r < 0)
		return r;
	while (r == 0 && !last) {
		r = source_next(&src, c->buffer_bytes, &b->w, &last);
		if (r == 0 && b->w.num > 0)
			r = read_window(c, job, b);
		if (r == 0)
			r = compare_window(k, job, b, &pos);
		if (r == 0)
			r = session_tick(c->s, false);
	}
	window_plan_destroy(src.plan);
	return r == 0 && !job->in_place && pos < job->end ? compare_range(k, pos, NULL, job->end - pos) : r;
}

int copy_compare(struct copier *c, const struct copy_job *job, int (*each)(uint64_t off, void *arg), void *arg)
{
	struct comparing k = { .to = job->to, .back = malloc(EXTENT_PAGE_SPAN), .each = each, .arg = arg };
	struct copy_job again = *job; /* what reading it adds up is not wanted */
	int r = k.back ? prepare_buffer(c, &c->buffers[0]) : -ENOMEM;

	again.crc = 0;
	again.crc_bytes = 0;
	again.missing = NULL;
	again.num_missing = 0;
	if (r == 0 && again.from < again.end)
		r = compare_windows(c, &again, &k);
	free(again.missing);
	free(k.back);
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
	c->num_buffers = s->opt->buffer_bytes >= 2u * EXTENT_PAGE_SPAN ? 2 : 1;
	each = s->opt->buffer_bytes / c->num_buffers / EXTENT_PAGE_SPAN * EXTENT_PAGE_SPAN;
	c->buffer_bytes = each > BUFFER_MAX ? BUFFER_MAX : each < EXTENT_PAGE_SPAN ? EXTENT_PAGE_SPAN : (size_t)each;
	c->order = malloc((WINDOW_PIECES_MAX + 1) * sizeof(*c->order));
	c->later = malloc((WINDOW_PIECES_MAX + 1) * sizeof(*c->later));
	c->remote = malloc((WINDOW_PIECES_MAX + 1) * sizeof(*c->remote));
	c->fetches = fetches_create(&s->opt->watcher);
	init_locks(c);
	*ret = c;
	if (!c->order || !c->later || !c->remote || !c->fetches) {
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
	free(c->remote);
	close_fds(c);
	pthread_cond_destroy(&c->wake_reader);
	pthread_cond_destroy(&c->wake_writer);
	pthread_mutex_destroy(&c->lock);
	free(c->order);
	free(c->later);
	free(c);
}
