/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Where the chunks of a dataset are, by the kinds of index that need no structure of their own (one chunk, or all in a
 * row) and those that are B-trees. Each index is read once from end to end, so the cost is that of its bytes.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

static uint64_t chunks_in(uint64_t len, uint64_t chunk)
{
	return len / chunk + (len % chunk > 0);
}

/* Sets *ret_index to its number in row-major order; false: it lies outside. */
static bool number_of(const struct hdf5_object *o, const uint64_t *at, uint64_t *ret_index)
{
	uint64_t index = 0;

	for (uint32_t i = 0; i < o->rank; i++) {
		uint64_t num = chunks_in(o->dims[i], o->chunk[i]);

		if (at[i] >= num)
			return false;
		index = index * num + at[i]; /* fits: elements do (set_bytes()), and chunks are no more */
	}
	*ret_index = index;
	return true;
}

static int keep(struct hdf5_object *o, const struct layout_piece *p)
{
	if (array_room(&o->pieces, &o->cap_pieces, o->num_pieces, sizeof(*o->pieces)) < 0)
		return -ENOMEM;
	o->pieces[o->num_pieces++] = *p;
	return 0;
}

int hdf5_chunk_add(struct hdf5_walk *w, struct hdf5_object *o, const uint64_t *at, const struct hdf5_stored *s)
{
	struct layout_piece p = { .off = hdf5_off(w, s->addr, s->len), .len = s->len };

	if (p.off == HDF5_NOWHERE || s->addr == HDF5_NOWHERE)
		return hdf5_fail(w, -ENODATA, HDF5_NOWHERE,
			"a chunk of %" PRIu64 " bytes at address %" PRIu64 " lies behind the end of the file", s->len,
			s->addr);
	if (w->num_chunks == HDF5_CHUNKS_MAX)
		return hdf5_fail(w, -ENOTSUP, HDF5_NOWHERE, "more than %u chunks in the file", HDF5_CHUNKS_MAX);
	w->num_chunks++;
	if (!number_of(o, at, &p.index)) {
		o->outside++;
		return 0;
	}
	if (s->mask != 0 && hdf5_map_set(&w->masks, p.off, s->mask) == -ENOMEM)
		return -ENOMEM;
	return keep(o, &p);
}

/* ---- version 1 B-tree, without checksums: chunks rise, the slowest dimension first, or those that look for one pass it by */

struct in_order {
	struct hdf5_object *o;
	uint64_t last[HDF5_RANK_MAX]; /* when there was one */
	bool any;
};

static int add_in_order(struct hdf5_walk *w, struct in_order *in, const uint64_t *at, const struct hdf5_stored *s)
{
	uint32_t i = 0;

	while (in->any && i < in->o->rank && at[i] == in->last[i])
		i++;
	if (in->any && (i == in->o->rank || at[i] < in->last[i]))
		return hdf5_fail(w, -EBADMSG, HDF5_NOWHERE, "a chunk that does not sort behind the one before");
	memcpy(in->last, at, in->o->rank * sizeof(*at));
	in->any = true;
	return hdf5_chunk_add(w, in->o, at, s);
}

static int tree1_chunk(struct hdf5_walk *w, struct cursor *key, uint64_t addr, void *arg)
{
	struct in_order *in = arg;
	const struct hdf5_object *o = in->o;
	struct hdf5_stored s = { .addr = addr, .len = cursor_u32(key) };
	uint64_t at[HDF5_RANK_MAX];

	s.mask = cursor_u32(key);
	for (uint32_t i = 0; i < o->rank; i++) {
		uint64_t first = cursor_u64(key);

		at[i] = first / o->chunk[i];
		if (first % o->chunk[i] != 0)
			return hdf5_fail(w, -EBADMSG, HDF5_NOWHERE,
				"a chunk begins at %" PRIu64 ", which is no multiple of %" PRIu64, first, o->chunk[i]);
	}
	return add_in_order(w, in, at, &s);
}

/* ---- version 2 B-tree */

static int tree2_chunk(struct hdf5_walk *w, const uint8_t *record, size_t bytes, uint64_t off, void *arg)
{
	struct hdf5_object *o = arg;
	struct cursor c = cursor_make(record, bytes);
	size_t plain = w->addr_bytes + 8 * (size_t)o->rank;
	struct hdf5_stored s = { .addr = hdf5_get_addr(w, &c), .len = o->chunk_bytes };
	uint64_t at[HDF5_RANK_MAX];

	if (o->num_filters > 0 ? bytes < plain + 5 || bytes > plain + 12 : bytes != plain)
		return hdf5_fail(w, -EBADMSG, off, "a chunk's record of %zu bytes", bytes);
	if (o->num_filters > 0) {
		s.len = hdf5_uint(&c, (unsigned int)(bytes - plain - 4));
		s.mask = cursor_u32(&c);
	}
	for (uint32_t i = 0; i < o->rank; i++)
		at[i] = cursor_u64(&c);
	return hdf5_chunk_add(w, o, at, &s);
}

/* ---- without structure */

static int single_chunk(struct hdf5_walk *w, struct hdf5_object *o, const struct hdf5_chunking *c)
{
	static const uint64_t first[HDF5_RANK_MAX];
	struct hdf5_stored s = { c->addr, c->one_filtered ? c->one_bytes : o->chunk_bytes, c->one_mask };

	return hdf5_chunk_add(w, o, first, &s);
}

/* The next place of a grid that has room for all that the dataset may become; false: that was the last one. */
static bool next_place(const struct hdf5_object *o, uint64_t *at)
{
	for (uint32_t i = o->rank; i-- > 0;) {
		if (++at[i] < chunks_in(o->max_dims[i], o->chunk[i]))
			return true;
		at[i] = 0;
	}
	return false;
}

static int all_in_a_row(struct hdf5_walk *w, struct hdf5_object *o, uint64_t addr)
{
	uint64_t at[HDF5_RANK_MAX] = { 0 };
	int r = 0;

	for (uint32_t i = 0; i < o->rank; i++)
		if (o->max_dims[i] == HDF5_NOWHERE || o->max_dims[i] == 0)
			return hdf5_fail(w, -EBADMSG, o->addr, "chunks in a row, and no limit to their number");
	do {
		r = hdf5_chunk_add(w, o, at, &(struct hdf5_stored){ .addr = addr, .len = o->chunk_bytes });
		addr += o->chunk_bytes; /* hdf5_chunk_add() has seen that so many bytes are in the file */
	} while (r == 0 && next_place(o, at));
	return r;
}

/* ---- all */

static int by_off(const void *a, const void *b)
{
	const struct layout_piece *x = a, *y = b;

	return (x->off > y->off) - (x->off < y->off);
}

/* No two chunks share a byte, or stand for the same place. */
static int check_chunks(struct hdf5_walk *w, const struct hdf5_object *o)
{
	for (size_t i = 1; i < o->num_pieces; i++)
		if (o->pieces[i].off - o->pieces[i - 1].off < o->pieces[i - 1].len)
			return hdf5_fail(w, -EBADMSG, o->pieces[i].off, "two chunks overlap");
	return 0;
}

static int read_index(struct hdf5_walk *w, struct hdf5_object *o, const struct hdf5_chunking *c)
{
	struct in_order in = { .o = o };

	switch (o->index) {
	case HDF5_INDEX_TREE1: return hdf5_tree1(w, c->addr, 1, 8 + 8 * (o->rank + 1), NULL, tree1_chunk, &in);
	case HDF5_INDEX_SINGLE: return single_chunk(w, o, c);
	case HDF5_INDEX_IMPLICIT: return all_in_a_row(w, o, c->addr);
	case HDF5_INDEX_FIXED:
	case HDF5_INDEX_EXTENSIBLE: return hdf5_array_read(w, o, c->addr);
	case HDF5_INDEX_TREE2: return hdf5_tree2(w, c->addr, o->num_filters > 0 ? 11 : 10, tree2_chunk, o);
	}
	return -ENOTSUP;
}

int hdf5_chunks_read(struct hdf5_walk *w, struct hdf5_object *o, const struct hdf5_chunking *c)
{
	int r;

	if (c->addr == HDF5_NOWHERE)
		return 0; /* no chunk has been written */
	r = read_index(w, o, c);
	if (o->num_pieces > 1)
		qsort(o->pieces, o->num_pieces, sizeof(*o->pieces), by_off);
	return r < 0 ? r : check_chunks(w, o);
}
