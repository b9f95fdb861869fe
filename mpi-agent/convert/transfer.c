/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One range of the canonical file. First it is found which pieces of which blobs meet it; sorted by their places they make a
 * few large reads, or writes, of the subfiles. Where blobs overlap, the one further behind in the set of subfiles wins: pieces
 * are applied in the order of subfiles, and in them of places.
 *
 * An element may lie across the range's border. The buffer has room for the rest of it on both sides.
 */
#include "mpi-agent/convert/transfer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/fdio.h"
#include "mpi-agent/convert/spool.h"

#define MARGIN    CLASSIC_TYPE_BYTES
#define IO_BYTES  (1u << 20) /* one read or write of a subfile, as a rule: what is read stays in the processor's cache */
#define GAP_BYTES (32u << 10) /* so much is read for nothing rather than beginning anew */

_Static_assert(MARGIN <= SPOOL_MARGIN, "room for an element");

/* Consecutive bytes of a subfile, and where their elements belong. */
struct piece {
	uint32_t file;
	uint32_t var; /* canonical */
	uint64_t off, len;
	uint64_t base;                  /* where in the canonical file element 0 of this record of the variable lies */
	const struct runs_index *index; /* NULL: one run of the elements span.from on */
	struct runs_span span;
};

struct transfer {
	const struct blob_set *set;
	int fd;
	bool fill, to_blobs;
	struct spool *spool; /* owned */
	struct spool_range *range;
	uint64_t from, to; /* that of the range */
	struct piece *pieces;
	size_t num_pieces, cap_pieces;
	uint8_t *io; /* owned */
	uint64_t io_cap;
	struct cistern_error *err;
};

int transfer_create(const struct blob_set *set, int canonical_fd, const char *name, uint64_t bytes, bool fill,
	struct transfer **ret)
{
	struct transfer *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	*t = (struct transfer){ .set = set, .fd = canonical_fd, .fill = fill, .io_cap = IO_BYTES };
	t->io = malloc(IO_BYTES);
	if (!t->io || spool_create(canonical_fd, name, bytes, &t->spool) < 0) {
		transfer_destroy(t);
		return -ENOMEM;
	}
	*ret = t;
	return 0;
}

void transfer_destroy(struct transfer *t)
{
	if (!t)
		return;
	spool_destroy(t->spool);
	free(t->pieces);
	free(t->io);
	free(t);
}

/* ---- memory of the range */

/* Bytes at an offset of the file into the range, as far as they meet it. */
static void put_bytes(struct transfer *t, uint64_t off, const uint8_t *bytes, uint64_t len)
{
	uint64_t first = off > t->from ? off : t->from, end = off + len < t->to ? off + len : t->to;

	if (first >= end)
		return;
	spool_touch(t->range, first, end - first);
	memcpy(spool_at(t->range, first), bytes + (first - off), (size_t)(end - first));
}

/* ---- elements */

static inline void copy_elements(uint8_t *to, const uint8_t *from, uint64_t num, uint32_t size, bool swap)
{
	if (swap)
		blob_turn_values(to, from, num, size);
	else
		memcpy(to, from, (size_t)(num * size));
}

struct mover {
	struct transfer *t;
	const struct piece *p;
	uint8_t *bytes; /* of the blob: those of the piece */
	uint32_t size;
	bool swap;
};

static void move(const struct mover *m, uint64_t element, uint64_t place, uint64_t num)
{
	uint64_t off = m->p->base + element * m->size;
	uint8_t *blob = m->bytes + (place - m->p->span.from) * m->size;

	if (m->t->to_blobs) {
		copy_elements(blob, spool_at(m->t->range, off), num, m->size, m->swap);
		return;
	}
	spool_touch(m->t->range, off, num * m->size);
	copy_elements(spool_at(m->t->range, off), blob, num, m->size, m->swap);
}

/* The elements of a variable that the range meets, also in part. */
static bool elements_met(
	const struct transfer *t, uint64_t base, uint64_t bytes, uint32_t size, uint64_t *ret_from, uint64_t *ret_to)
{
	uint64_t first = t->from > base ? t->from : base, end = t->to < base + bytes ? t->to : base + bytes;

	if (first >= end)
		return false;
	*ret_from = (first - base) / size;
	*ret_to = (end - base + size - 1) / size;
	return true;
}

static void move_piece(struct transfer *t, const struct piece *p, uint8_t *bytes)
{
	const struct classic_var *v = &t->set->canonical.vars[p->var];
	struct mover m = { t, p, bytes, classic_type_bytes(v->type), t->set->files[p->file].little_endian };
	uint64_t from, to, at = p->span.at;

	if (!p->index) {
		move(&m, p->span.from, p->span.from, p->span.to - p->span.from);
		return;
	}
	if (!elements_met(t, p->base, v->bytes, m.size, &from, &to))
		return;
	for (uint64_t i = p->span.first; i < p->span.last; i++) {
		uint64_t off, len, low, high;

		runs_get(&p->index->runs, i, &off, &len);
		low = off > from ? off : from;
		high = off + len < to ? off + len : to;
		if (low < high)
			move(&m, low, at + low - off, high - low);
		at += len;
	}
}

/* ---- which pieces */

static int add_piece(struct transfer *t, const struct piece *p)
{
	if (t->num_pieces == t->cap_pieces) {
		size_t cap = t->cap_pieces ? 2 * t->cap_pieces : 1024;
		struct piece *grown = reallocarray(t->pieces, cap, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		t->pieces = grown;
		t->cap_pieces = cap;
	}
	t->pieces[t->num_pieces++] = *p;
	return 0;
}

struct finder {
	struct transfer *t;
	struct piece p; /* what all pieces have in common */
	uint64_t blob_off;
	uint32_t size;
};

static int on_span(const struct runs_span *span, void *arg)
{
	struct finder *f = arg;

	f->p.span = *span;
	f->p.off = f->blob_off + span->from * f->size;
	f->p.len = (span->to - span->from) * f->size;
	return add_piece(f->t, &f->p);
}

/* Pieces of all blobs of one subfile. */
static int find_in_blobs(struct finder *f, uint32_t map, uint32_t var, uint64_t record, uint64_t from, uint64_t to)
{
	const struct subfile *s = &f->t->set->files[f->p.file];
	int r = 0;

	for (uint32_t b = 0; r == 0 && b < s->head.nblobs; b++) {
		const struct runs_index *x = subfile_runs(s, map, b);

		if (x->count == 0 || x->high <= from || x->low >= to)
			continue;
		f->blob_off = subfile_off(s, var, record, b);
		if (f->blob_off == SUBFILE_NOWHERE)
			return cistern_error_set(f->t->err, -EBADMSG,
				"%s: record %" PRIu64 " of blob %" PRIu32 " is not there", s->path, record, b);
		if (!s->process_centric)
			f->blob_off += subfile_share(s, map, b)->start * f->size;
		f->p.index = x;
		r = runs_spans(x, from, to, IO_BYTES / f->size, on_span, f);
	}
	return r;
}

/* A variable without a map: from the first subfile, or into all of them. */
static int find_whole(struct finder *f, uint32_t var, uint64_t record, uint64_t from, uint64_t to)
{
	uint64_t most = IO_BYTES / f->size;
	int r = 0;

	f->p.index = NULL;
	f->blob_off = subfile_off(&f->t->set->files[f->p.file], var, record, 0);
	for (; r == 0 && f->blob_off != SUBFILE_NOWHERE && from < to; from += most)
		r = on_span(&(struct runs_span){ .from = from, .to = to - from < most ? to : from + most }, f);
	return r;
}

static void fill_range(struct transfer *t, const struct classic_var *v, uint64_t base, uint64_t from, uint64_t to)
{
	uint8_t value[CLASSIC_TYPE_BYTES];
	uint32_t size = classic_var_fill(v, value);

	spool_touch(t->range, base + from * size, (to - from) * size);
	for (uint64_t i = from; i < to; i++)
		memcpy(spool_at(t->range, base + i * size), value, size);
}

static int find_record(struct transfer *t, uint32_t var, uint64_t record)
{
	const struct classic_var *v = &t->set->canonical.vars[var];
	struct finder f = { .t = t, .size = classic_type_bytes(v->type) };
	uint64_t from, to;
	int r = 0;

	f.p.var = var;
	f.p.base = classic_offset(&t->set->canonical, v, record, 0);
	if (!elements_met(t, f.p.base, v->bytes, f.size, &from, &to))
		return 0;
	if (t->fill)
		fill_range(t, v, f.p.base, from, to);
	for (uint32_t i = 0; r == 0 && i < t->set->num; i++) {
		const struct blob_var *bv = &t->set->files[i].head.vars[var];

		f.p.file = i;
		if (bv->map != BLOB_NO_MAP)
			r = find_in_blobs(&f, bv->map, bv->var, record, from, to);
		else if (i == 0 || t->to_blobs)
			r = find_whole(&f, bv->var, record, from, to);
	}
	return r;
}

static int find_records(struct transfer *t, uint32_t var)
{
	const struct classic *c = &t->set->canonical;
	const struct classic_var *v = &c->vars[var];
	uint64_t first = 0, end = 1;
	int r = 0;

	if (v->is_record) {
		end = c->num_records;
		if (c->record_bytes == 0 || t->to <= v->begin)
			return 0;
		if (t->from > v->begin + v->bytes)
			first = (t->from - v->begin - v->bytes) / c->record_bytes;
		if (end > (t->to - v->begin) / c->record_bytes + 1)
			end = (t->to - v->begin) / c->record_bytes + 1;
	}
	for (uint64_t i = first; r == 0 && i < end; i++)
		r = find_record(t, var, i);
	return r;
}

static int by_place(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

static int find_pieces(struct transfer *t)
{
	int r = 0;

	t->num_pieces = 0;
	for (uint32_t i = 0; r == 0 && i < t->set->canonical.num_vars; i++)
		r = find_records(t, i);
	if (r == 0 && t->num_pieces > 1)
		qsort(t->pieces, t->num_pieces, sizeof(*t->pieces), by_place);
	return r;
}

/* ---- files */

static int read_exact(struct transfer *t, int fd, const char *path, void *buf, uint64_t len, uint64_t off)
{
	ssize_t n = fdio_read(fd, buf, (size_t)len, off);

	if (n < 0)
		return cistern_error_set(
			t->err, (int)n, "%s: reading at %" PRIu64 ": %s", path, off, strerror((int)-n));
	if ((uint64_t)n < len)
		return cistern_error_set(
			t->err, -EIO, "%s ends at %" PRIu64 "; it was longer before", path, off + (uint64_t)n);
	return 0;
}

static int write_exact(struct transfer *t, int fd, const char *path, const void *buf, uint64_t len, uint64_t off)
{
	int r = fdio_write(fd, buf, (size_t)len, off);

	return r < 0 ? cistern_error_set(t->err, r, "%s: writing at %" PRIu64 ": %s", path, off, strerror(-r)) : 0;
}

static int make_room(struct transfer *t, uint64_t len)
{
	uint8_t *grown;

	if (len <= t->io_cap)
		return 0;
	grown = realloc(t->io, (size_t)len);
	if (!grown)
		return -ENOMEM;
	t->io = grown;
	t->io_cap = len;
	return 0;
}

/* How many pieces from first on go together, and where they end. */
static size_t group(const struct transfer *t, size_t first, uint64_t max_gap, uint64_t *ret_end)
{
	const struct piece *p = &t->pieces[first];
	uint64_t end = p->off + p->len;
	size_t i = first + 1;

	for (; i < t->num_pieces; i++) {
		const struct piece *q = &t->pieces[i];
		uint64_t q_end = q->off + q->len;

		if (q->file != p->file || q->off > end + max_gap || (q_end > end ? q_end : end) - p->off > IO_BYTES)
			break;
		if (t->to_blobs && q->off != end) /* two that overlap are not written as one */
			break;
		end = q_end > end ? q_end : end;
	}
	*ret_end = end;
	return i - first;
}

static int carry_pieces(struct transfer *t)
{
	int r = 0;

	for (size_t i = 0, num; r == 0 && i < t->num_pieces; i += num) {
		const struct piece *p = &t->pieces[i];
		const struct subfile *f = &t->set->files[p->file];
		uint64_t end;

		num = group(t, i, t->to_blobs ? 0 : GAP_BYTES, &end);
		r = make_room(t, end - p->off);
		if (r == 0 && !t->to_blobs)
			r = read_exact(t, f->fd, f->path, t->io, end - p->off, p->off);
		for (size_t k = 0; r == 0 && k < num; k++)
			move_piece(t, &p[k], t->io + (p[k].off - p->off));
		if (r == 0 && t->to_blobs)
			r = write_exact(t, f->fd, f->path, t->io, end - p->off, p->off);
	}
	return r;
}

/* ---- the range of the canonical file */

static void put_residue(struct transfer *t)
{
	const struct blob_head *h = &t->set->files[0].head;
	struct cursor c = cursor_make(h->exact.residue, (size_t)h->exact.residue_bytes);
	struct blob_residue r;

	if (!h->is_exact)
		return;
	while (blob_next_residue(&c, &r) > 0) {
		uint64_t i = 0;

		if (r.off >= t->to)
			continue;
		if (r.count > 1 && t->from > r.off + r.len)
			i = (t->from - r.off - r.len) / r.stride;
		for (; i < r.count && r.off + i * r.stride < t->to; i++)
			put_bytes(t, r.off + i * r.stride, r.bytes, r.len);
	}
}

static void begin(struct transfer *t, uint64_t from, uint64_t to, bool to_blobs, struct cistern_error *err)
{
	t->from = from;
	t->to = to;
	t->to_blobs = to_blobs;
	t->err = err;
	t->range = spool_begin(t->spool, from, to);
}

static int out_of_memory(struct transfer *t, int r)
{
	return r == -ENOMEM ? cistern_error_set(t->err, r, "out of memory") : r;
}

int transfer_to_canonical(struct transfer *t, uint64_t from, uint64_t to, struct cistern_error *err)
{
	int r;

	begin(t, from, to, false, err);
	r = find_pieces(t);
	if (r == 0)
		r = carry_pieces(t);
	put_bytes(t, 0, t->set->header, t->set->header_bytes);
	put_residue(t);
	return r < 0 ? out_of_memory(t, r) : spool_write(t->spool, t->range, err);
}

/* The range and its margins; zeros where the file ends before. */
static int read_range(struct transfer *t)
{
	uint64_t off = t->from > MARGIN ? t->from - MARGIN : 0, end = t->to + MARGIN;
	uint8_t *bytes = spool_at(t->range, off);
	ssize_t n = fdio_read(t->fd, bytes, (size_t)(end - off), off);

	if (n < 0)
		return cistern_error_set(t->err, (int)n, "reading at %" PRIu64 ": %s", off, strerror((int)-n));
	memset(bytes + n, 0, (size_t)(end - off) - (size_t)n);
	return 0;
}

int transfer_to_blobs(struct transfer *t, uint64_t from, uint64_t to, struct cistern_error *err)
{
	int r;

	begin(t, from, to, true, err);
	r = read_range(t);
	if (r == 0)
		r = find_pieces(t);
	if (r == 0)
		r = carry_pieces(t);
	return r < 0 ? out_of_memory(t, r) : 0;
}

int transfer_finish(struct transfer *t, struct cistern_error *err)
{
	return spool_finish(t->spool, err);
}
