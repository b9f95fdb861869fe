/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Fills windows. Reads go by (segment, offset), neighbours as one, whatever the order in the file. What is in the page
 * cache is read at once, many runs by one call; what is not is asked for first, all of it, and then waited for, so that the device
 * sees many requests at a time without a thread for each.
 *
 * Each payload is checked, and added to the checksum of the file in the order of the file.
 */
#include "mpi-agent/replay/copy_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/crc32c.h"
#include "format/base/fdio.h"
#include "format/base/read_batch.h"
#include "format/store/hosts.h"

#define RUNS         256u /* that are read together */
#define IOVECS       512u
#define COMBINE_FROM 65536u /* from here on combining two CRCs is cheaper than computing one anew */

struct together {                 /* runs that are to be read by one call */
	struct read_batch *batch; /* owned */
	uint32_t num, num_iov;
	size_t bytes;
	uint32_t at[RUNS]; /* in the order */
	size_t len[RUNS];
	struct cached_read reads[RUNS];
	struct iovec iov[IOVECS];
};

int together_create(struct together **ret)
{
	struct together *t = calloc(1, sizeof(*t));
	int r = t ? read_batch_create(&t->batch) : -ENOMEM;

	if (r < 0)
		free(t);
	else
		*ret = t;
	return r;
}

void together_destroy(struct together *t)
{
	if (t)
		read_batch_destroy(t->batch);
	free(t);
}

void copy_close_fds(struct copier *c)
{
	for (size_t i = 0; i < c->fds.cap; i++)
		if (c->fds.slots[i].key)
			close((int)c->fds.slots[i].value - 1);
	idmap_free(&c->fds);
}

/* Would segment_fd() close the others? */
static bool closes_fds(const struct copier *c, uint32_t segment)
{
	return c->fds.num >= c->max_fds && !idmap_get(&c->fds, (uint64_t)segment + 1);
}

static int segment_fd(struct copier *c, uint32_t segment)
{
	uint64_t have = idmap_get(&c->fds, (uint64_t)segment + 1);
	int fd;

	if (have)
		return (int)have - 1;
	if (c->fds.num >= c->max_fds)
		copy_close_fds(c);
	fd = segment_open_fd(c->s->segments, segment, false);
	if (fd >= 0 && idmap_set(&c->fds, (uint64_t)segment + 1, (uint64_t)fd + 1) < 0) {
		close(fd);
		return -ENOMEM;
	}
	return fd;
}

/* ---- sources */

int copy_source_open(struct copier *c, const struct copy_job *job, struct copy_source *ret)
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

	*ret = (struct copy_source){ .fd = -1, .node = c->node, .pos = job->from, .end = job->end };
	if (!(job->in->flags & INODE_PRIVATE))
		return window_plan_create(&opt, &ret->plan);
	ret->segment = job->in->private_segment;
	ret->fd = segment_fd(c, ret->segment);
	return ret->fd < 0 ? ret->fd : 0;
}

/* The next range of data from pos on; false: only a hole is left. */
static bool private_data(const struct copy_source *src, uint64_t *ret_off, uint64_t *ret_end)
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

static int private_next(struct copy_source *src, size_t cap, struct window *w, bool *ret_last)
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

int copy_source_next(struct copy_source *src, size_t cap, struct window *w, bool *ret_last)
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

/* A run whose segment cannot be opened is read later, which fails. */
static void add_run(struct copier *c, struct copy_buffer *b, uint32_t at, uint32_t n)
{
	const struct piece *first = &b->w.pieces[c->order[at]];
	struct together *t = c->together;
	struct iovec *iov = &t->iov[t->num_iov];
	uint32_t i = t->num++;
	unsigned int num_iov = fill_iov(b, c->order + at, n, iov, &t->len[i]);

	t->at[i] = at;
	t->reads[i] = (struct cached_read){
		.fd = segment_fd(c, first->segment), .num_iov = num_iov, .iov = iov, .off = first->segment_off
	};
	t->num_iov += num_iov;
	t->bytes += t->len[i];
}

/* What is cached; the others are put in motion, and noted at c->later[*num_later] and behind. */
static void read_together(struct copier *c, uint32_t *num_later)
{
	struct together *t = c->together;

	read_batch_run(t->batch, t->reads, t->num);
	for (uint32_t i = 0; i < t->num; i++) {
		const struct cached_read *read = &t->reads[i];
		size_t got = read->got > 0 ? (size_t)read->got : 0;

		if (got == t->len[i])
			continue;
		posix_fadvise(read->fd, (off_t)(read->off + got), (off_t)(t->len[i] - got), POSIX_FADV_WILLNEED);
		c->later[(*num_later)++] = (struct later){ t->at[i], (uint32_t)got };
	}
	t->num = t->num_iov = 0;
	t->bytes = 0;
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

/* The node's name when its store is lost; else NULL. */
static const char *lost_node(const struct copier *c, uint32_t node)
{
	return node < c->s->opt->num_lost ? c->s->opt->lost[node] : NULL;
}

/* Whose pieces of a window are fetched, in the order in which they lie in the stores. */
static void list_remote(struct copier *c, const struct copy_buffer *b, uint32_t num)
{
	c->num_remote = 0;
	for (uint32_t i = 0; i < num; i++) {
		uint32_t node = b->w.pieces[c->order[i]].node;

		if (node != c->node && !lost_node(c, node))
			c->remote[c->num_remote++] = c->order[i];
	}
}

static int say_unfetched(const struct copier *c, struct copy_job *job, const struct piece *p, int r)
{
	char node[HOSTS_NODE_BYTES];

	snprintf(job->error_text, sizeof(job->error_text),
		"its bytes in the store of %s (segment %" PRIu32 ") cannot be had: %s",
		hosts_node_text(c->s->opt->store, p->node, node), p->segment, strerror(-r));
	return r;
}

static bool are_enough(const struct copier *c, uint32_t n, uint32_t segment)
{
	const struct together *t = c->together;

	return t->num == RUNS || t->num_iov + n > IOVECS || t->bytes >= WIRE_FETCH_BYTES || closes_fds(c, segment);
}

/* What need not be waited for; what comes from other nodes is taken in between. */
static int read_cached(struct copier *c, struct copy_buffer *b, uint32_t num, uint32_t *num_later)
{
	uint32_t n;
	int r = 0;

	for (uint32_t at = 0; r == 0 && at < num; at += n) {
		const struct piece *first = &b->w.pieces[c->order[at]];

		n = window_read_run(&b->w, c->order, num, at, IOVECS);
		c->num_runs++;
		if (first->node != c->node)
			continue;
		c->num_local++;
		if (are_enough(c, n, first->segment)) {
			read_together(c, num_later);
			r = fetches_take(c->fetches);
		}
		add_run(c, b, at, n);
	}
	read_together(c, num_later);
	return r;
}

static int read_local(struct copier *c, struct copy_job *job, struct copy_buffer *b, uint32_t num)
{
	uint32_t num_later = 0, n;
	int r = read_cached(c, b, num, &num_later);

	c->num_waited = num_later;
	for (uint32_t i = 0; r == 0 && i < num_later; i++) {
		const uint32_t *order = c->order + c->later[i].at;

		n = window_read_run(&b->w, c->order, num, c->later[i].at, IOVECS);
		r = read_run(c, job, b, order, n, c->later[i].got);
		if (r < 0)
			return say_damage(job, &b->w.pieces[order[0]], r);
	}
	return r;
}

int copy_read_log(struct copier *c, struct copy_job *job, struct copy_buffer *b)
{
	const struct piece *failed = NULL;
	uint32_t num;
	int r, e;

	window_read_order(&b->w, c->order, &num);
	c->num_runs = c->num_local = 0;
	list_remote(c, b, job->shared ? num : 0);
	r = fetches_begin(c->fetches, b->w.pieces, b->data, c->remote, c->num_remote);
	if (r == 0)
		r = read_local(c, job, b, num);
	e = fetches_end(c->fetches, r == 0, &failed);
	if (failed)
		return say_unfetched(c, job, failed, e);
	return r < 0 ? r : e;
}

static int note_missing(struct copy_job *job, uint64_t off, uint64_t len, const char *node)
{
	struct manifest_range *last = job->num_missing ? &job->missing[job->num_missing - 1] : NULL;
	struct manifest_range *grown;

	if (last && last->off + last->len == off && last->node == node) {
		last->len += len;
		return 0;
	}
	grown = reallocarray(job->missing, job->num_missing + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	job->missing = grown;
	job->missing[job->num_missing++] = (struct manifest_range){ off, len, node };
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
		int r = note_missing(job, p->off + (uint64_t)got, p->len - (uint64_t)got, NULL);

		if (r < 0)
			return r;
	}
	if (is_zero(at, p->len))
		p->source = PIECE_HOLE;
	return 0;
}

/* Ranges that touch are one part of the checksum: a part costs a few microseconds, whatever its length. */
void copy_end_run(struct copy_job *job)
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
		copy_end_run(job);
		job->run_off = p->off;
	}
	if (job->run_off == p->off)
		job->run_crc = job->crc;
	job->run_end = p->off + p->len;
}

int copy_check_piece(struct copy_job *job, const struct copy_buffer *b, const struct piece *p, uint32_t *ret_crc)
{
	*ret_crc = 0;
	if (!p->whole || p->source != PIECE_LOG)
		return 0;
	*ret_crc = crc32c(0, b->data + p->at, p->len);
	return *ret_crc == p->crc ? 0 : say_damage(job, p, -EBADMSG);
}

/* Checks a piece and adds it to the checksum. */
static int account_piece(struct copy_job *job, const struct copy_buffer *b, const struct piece *p)
{
	const uint8_t *at = b->data + p->at;
	bool checked = p->whole && p->source == PIECE_LOG;
	uint32_t crc;
	int r;

	if (p->source == PIECE_HOLE || p->source == PIECE_LOST)
		return 0;
	r = copy_check_piece(job, b, p, &crc);
	if (r < 0)
		return r;
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
bool copy_is_lost_piece(const struct copier *c, const struct copy_job *job, const struct piece *p)
{
	return job->shared && p->source == PIECE_LOG && lost_node(c, p->node);
}

/* What only a lost store had is listed. */
static int mark_lost(struct copier *c, struct copy_job *job, struct copy_buffer *b)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < b->w.num; i++) {
		struct piece *p = &b->w.pieces[i];

		if (!copy_is_lost_piece(c, job, p))
			continue;
		p->source = PIECE_LOST;
		r = note_missing(job, p->off, p->len, lost_node(c, p->node));
	}
	return r;
}

int copy_read_window(struct copier *c, struct copy_job *job, struct copy_buffer *b)
{
	int r = copy_freshen(c, job, b, copy_read_log(c, job, b));

	if (r == 0)
		r = mark_lost(c, job, b);

	for (uint32_t i = 0; r == 0 && i < b->w.num; i++)
		if (b->w.pieces[i].source == PIECE_BASE)
			r = read_base(job, b, &b->w.pieces[i]);
	for (uint32_t i = 0; r == 0 && i < b->w.num; i++)
		r = account_piece(job, b, &b->w.pieces[i]);
	return r;
}
