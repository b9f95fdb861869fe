/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the destination has, after it was written: for verify=read its checksum; where that is wrong, byte by byte against the
 * payloads, which are read once more.
 */
#include "mpi-agent/replay/copy_private.h"

#include <errno.h>
#include <stdlib.h>

#include "format/base/crc32c.h"

static int read_back_data(struct copier *c, struct sink_file *f, uint64_t off, size_t len, uint32_t *crc)
{
	uint8_t *data = c->buffers[0].data;
	ssize_t got = f->ops->pread(f, data, len, off);
	int r = got < 0 ? (int)got : session_make_way(c->s);

	if (r < 0)
		return r;
	if ((size_t)got < len)
		return -ENODATA;
	*crc = crc32c(*crc, data, len);
	return 0;
}

/* Holes are zeros without being read: a sparse file may be larger than its file system. */
static int read_back_range(struct copier *c, struct sink_file *f, uint64_t off, uint64_t len, uint32_t *crc)
{
	uint64_t next, n;

	for (; len > 0; off += n, len -= n) {
		int r = f->ops->next_data(f, off, &next);

		n = next > off ? next - off : EXTENT_PAGE_SPAN;
		n = n < len ? n : len;
		if (r == 0 && next > off)
			*crc = crc32c_zeros(*crc, n);
		else if (r == 0)
			r = read_back_data(c, f, off, (size_t)n, crc);
		if (r < 0)
			return r;
		session_verified(c->s, n);
	}
	return 0;
}

int copy_read_back(struct copier *c, const struct copy_job *job, uint32_t *ret_crc, uint64_t *ret_bytes)
{
	struct copy_buffer *b = &c->buffers[0];
	uint32_t crc = 0;
	uint64_t bytes = 0;
	struct copy_source src;
	bool last = false;
	int r = copy_prepare_buffer(c, b);

	if (r == 0 && !job->in_place) {
		r = read_back_range(c, job->to, job->from, job->end - job->from, &crc);
		bytes = job->end - job->from;
	} else if (r == 0 && job->from < job->end) {
		r = copy_source_open(c, job, &src);
		while (r == 0 && !last) {
			r = copy_source_next(&src, c->buffer_bytes, &b->w, &last);
			for (uint32_t i = 0; r == 0 && i < b->w.num; i++) {
				const struct piece *p = &b->w.pieces[i];

				if (p->source == PIECE_HOLE || copy_is_lost_piece(c, job, p)) /* nothing was written */
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

static int skip_hole(struct sink_file *f, uint64_t *off, uint64_t *len)
{
	uint64_t next, n;
	int r = *len > 0 ? f->ops->next_data(f, *off, &next) : 0;

	if (r < 0 || *len == 0)
		return r;
	n = next <= *off ? 0 : next - *off < *len ? next - *off : *len;
	*off += n;
	*len -= n;
	return 0;
}

/* expected NULL: zeros. What the destination does not have differs. */
static int compare_range(struct comparing *k, uint64_t off, const uint8_t *expected, uint64_t len)
{
	int r = expected ? 0 : skip_hole(k->to, &off, &len);

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
		if (r == 0 && !expected)
			r = skip_hole(k->to, &off, &len);
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
	struct copy_source src;
	bool last = false;
	int r = copy_source_open(c, job, &src);

	if (r < 0)
		return r;
	while (r == 0 && !last) {
		r = copy_source_next(&src, c->buffer_bytes, &b->w, &last);
		if (r == 0 && b->w.num > 0)
			r = copy_read_window(c, job, b);
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
	int r = k.back ? copy_prepare_buffer(c, &c->buffers[0]) : -ENOMEM;

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
