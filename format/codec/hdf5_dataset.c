/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A dataset: shape, type, fill value, filters, and where its elements are (specification IV.A.2.i, the layout message). */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum layout_class { CLASS_COMPACT, CLASS_CONTIGUOUS, CLASS_CHUNKED, CLASS_VIRTUAL };

#define PLAIN_EDGES  1u /* flags of layout version 4 */
#define ONE_FILTERED 2u
#define VERSION_MAX  4u

/* ---- shape and type */

static int set_shape(struct hdf5_object *o, const struct hdf5_space *s)
{
	uint64_t *all = calloc(s->rank > 0 ? 3 * (size_t)s->rank : 1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	o->rank = s->rank;
	o->is_null = s->is_null;
	o->dims = all;
	o->max_dims = all + s->rank;
	o->chunk = all + 2 * (size_t)s->rank;
	memcpy(o->dims, s->dims, s->rank * sizeof(*all));
	memcpy(o->max_dims, s->max_dims, s->rank * sizeof(*all));
	return 0;
}

static int set_bytes(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_object *o, bool is_null)
{
	uint64_t bytes = is_null ? 0 : o->type.size;

	for (uint32_t i = 0; i < o->rank; i++)
		if (o->dims[i] == 0)
			bytes = 0;
	for (uint32_t i = 0; bytes > 0 && i < o->rank; i++)
		if (__builtin_mul_overflow(bytes, o->dims[i], &bytes))
			return hdf5_fail(w, -EBADMSG, m->off, "more elements than there are numbers for");
	o->data_bytes = bytes;
	return 0;
}

static int read_space(struct hdf5_walk *w, const struct hdf5_header *h, struct hdf5_object *o)
{
	struct hdf5_unshared u HDF5_UNSHARED_CLEANUP = { 0 };
	const struct hdf5_message *m = hdf5_header_find(h, HDF5_MSG_DATASPACE);
	struct hdf5_space s;
	int r;

	if (!m)
		return hdf5_fail(w, -EBADMSG, o->addr, "a dataset without a shape");
	r = hdf5_unshare(w, m, &u);
	if (r == 0)
		r = hdf5_space_decode(w, &u.m, &s);
	if (r == 0)
		r = set_shape(o, &s);
	return r < 0 ? r : set_bytes(w, &u.m, o, s.is_null);
}

static int read_type(
	struct hdf5_walk *w, const struct hdf5_header *h, struct hdf5_object *o, struct hdf5_places *places)
{
	struct hdf5_unshared u HDF5_UNSHARED_CLEANUP = { 0 };
	const struct hdf5_message *m = hdf5_header_find(h, HDF5_MSG_DATATYPE);
	int r;

	if (!m)
		return hdf5_fail(w, -EBADMSG, o->addr, "a dataset without a type");
	r = hdf5_unshare(w, m, &u);
	return r < 0 ? r : hdf5_type_decode(w, &u.m, &o->type, places);
}

static int read_filters(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_object *o)
{
	struct hdf5_pipeline p;
	int r = hdf5_filters_decode(w, m, &p);

	if (r < 0)
		return r;
	o->num_filters = p.num;
	memcpy(o->filters, p.ids, sizeof(p.ids));
	return 0;
}

/* What there need not be one of. */
static int read_optional(struct hdf5_walk *w, const struct hdf5_header *h, struct hdf5_object *o)
{
	const struct hdf5_message *fill = hdf5_header_find(h, HDF5_MSG_FILL);
	const struct hdf5_message *filters = hdf5_header_find(h, HDF5_MSG_FILTERS);
	struct hdf5_unshared u HDF5_UNSHARED_CLEANUP = { 0 };
	struct hdf5_unshared v HDF5_UNSHARED_CLEANUP = { 0 };
	int r = 0;

	if (!fill)
		fill = hdf5_header_find(h, HDF5_MSG_FILL_OLD);
	if (fill)
		r = hdf5_unshare(w, fill, &u);
	if (r == 0 && fill)
		r = hdf5_fill_decode(w, &u.m, o);
	if (r == 0 && filters)
		r = hdf5_unshare(w, filters, &v);
	return r == 0 && filters ? read_filters(w, &v.m, o) : r;
}

/* ---- layout */

static int cut_short(struct hdf5_walk *w, const struct hdf5_message *m)
{
	return hdf5_fail(w, -EBADMSG, m->off, "a layout is cut short");
}

static int compact(
	struct hdf5_walk *w, const struct hdf5_message *m, struct cursor *c, struct hdf5_object *o, uint64_t len)
{
	if (!cursor_ok(c) || len > cursor_left(c))
		return cut_short(w, m);
	o->storage = HDF5_COMPACT;
	o->data_off = m->off + (uint64_t)(c->at - m->data);
	if (len < o->data_bytes)
		return hdf5_fail(w, -EBADMSG, m->off, "%" PRIu64 " bytes for elements of %" PRIu64, len, o->data_bytes);
	return 0;
}

static int contiguous(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_object *o, uint64_t addr)
{
	o->storage = HDF5_CONTIGUOUS;
	o->data_off = HDF5_NOWHERE;
	if (addr == HDF5_NOWHERE || o->data_bytes == 0)
		return 0; /* no room is given before the first write */
	o->data_off = hdf5_off(w, addr, o->data_bytes);
	if (o->data_off == HDF5_NOWHERE)
		return hdf5_fail(w, -ENODATA, m->off,
			"its %" PRIu64 " bytes from address %" PRIu64 " on are behind the end of the file",
			o->data_bytes, addr);
	return 0;
}

/* rank lengths, and as the last one the size of an element. */
static int chunk_shape(struct hdf5_walk *w, const struct hdf5_message *m, struct cursor *c, struct hdf5_object *o,
	unsigned int rank, unsigned int bytes, uint64_t *ret_element)
{
	uint64_t element = 0;

	if (o->rank == 0 || rank != o->rank + 1 || bytes == 0 || bytes > 8)
		return hdf5_fail(w, -EBADMSG, m->off, "chunks of %u dimensions in a dataset of %u", rank - 1, o->rank);
	o->chunk_bytes = o->type.size;
	for (uint32_t i = 0; i < rank; i++) {
		uint64_t len = hdf5_uint(c, bytes);

		if (i < o->rank)
			o->chunk[i] = len;
		else
			element = len;
		if (cursor_ok(c) &&
			(len == 0 || (i < o->rank && __builtin_mul_overflow(o->chunk_bytes, len, &o->chunk_bytes))))
			return hdf5_fail(w, -EBADMSG, m->off, "an impossible chunk");
	}
	if (!cursor_ok(c))
		return cut_short(w, m);
	o->storage = HDF5_CHUNKED;
	*ret_element = element;
	return 0;
}

/* Up to version 3 a chunk has as many bytes as its lengths and this one say. */
static int chunk_shape3(
	struct hdf5_walk *w, const struct hdf5_message *m, struct cursor *c, struct hdf5_object *o, unsigned int rank)
{
	uint64_t element = 0;
	int r = chunk_shape(w, m, c, o, rank, 4, &element);

	if (r == 0 && element != o->type.size)
		r = hdf5_fail(w, -EBADMSG, m->off, "chunks of elements of %" PRIu64 " bytes and not %u", element,
			o->type.size);
	return r;
}

static int layout12(struct hdf5_walk *w, const struct hdf5_message *m, struct cursor *c, struct hdf5_object *o)
{
	unsigned int rank = cursor_u8(c), class = cursor_u8(c);
	struct hdf5_chunking chunking = { .addr = HDF5_NOWHERE };
	int r;

	(void)cursor_bytes(c, 5);
	if (rank == 0 || rank > HDF5_RANK_MAX + 1)
		return hdf5_fail(w, -EBADMSG, m->off, "a layout of %u dimensions", rank);
	if (class != CLASS_COMPACT)
		chunking.addr = hdf5_get_addr(w, c);
	if (!cursor_ok(c))
		return cut_short(w, m);
	if (class == CLASS_CHUNKED) {
		r = chunk_shape3(w, m, c, o, rank);
		o->index = HDF5_INDEX_TREE1;
		return r < 0 ? r : hdf5_chunks_read(w, o, &chunking);
	}
	(void)cursor_bytes(c, 4 * (size_t)rank);
	if (class == CLASS_COMPACT) {
		uint32_t len = cursor_u32(c);

		return compact(w, m, c, o, len);
	}
	return class == CLASS_CONTIGUOUS ? contiguous(w, m, o, chunking.addr)
					 : hdf5_fail(w, -ENOTSUP, m->off, "a layout of class %u", class);
}

static int chunked3(struct hdf5_walk *w, const struct hdf5_message *m, struct cursor *c, struct hdf5_object *o)
{
	unsigned int rank = cursor_u8(c);
	struct hdf5_chunking chunking = { .addr = hdf5_get_addr(w, c) };
	int r = chunk_shape3(w, m, c, o, rank);

	o->index = HDF5_INDEX_TREE1;
	return r < 0 ? r : hdf5_chunks_read(w, o, &chunking);
}

/* What the index was made with, which is in its own head, too. */
static int index_parameters(struct hdf5_walk *w, const struct hdf5_message *m, struct cursor *c, struct hdf5_object *o,
	unsigned int flags, struct hdf5_chunking *chunking)
{
	static const uint8_t bytes[] = {
		[HDF5_INDEX_IMPLICIT] = 0, [HDF5_INDEX_FIXED] = 1, [HDF5_INDEX_EXTENSIBLE] = 5, [HDF5_INDEX_TREE2] = 6
	};
	unsigned int kind = cursor_u8(c);

	if (kind < HDF5_INDEX_SINGLE || kind > HDF5_INDEX_TREE2)
		return hdf5_fail(w, -ENOTSUP, m->off, "index kind %u", kind);
	o->index = (enum hdf5_index)kind;
	if (kind == HDF5_INDEX_SINGLE && (flags & ONE_FILTERED)) {
		chunking->one_filtered = true;
		chunking->one_bytes = hdf5_get_len(w, c);
		chunking->one_mask = cursor_u32(c);
	} else if (kind != HDF5_INDEX_SINGLE) {
		(void)cursor_bytes(c, bytes[kind]);
	}
	chunking->addr = hdf5_get_addr(w, c);
	return cursor_ok(c) ? 0 : cut_short(w, m);
}

static int chunked4(struct hdf5_walk *w, const struct hdf5_message *m, struct cursor *c, struct hdf5_object *o)
{
	unsigned int flags = cursor_u8(c), rank = cursor_u8(c), bytes = cursor_u8(c);
	struct hdf5_chunking chunking = { 0 };
	uint64_t element = 0;
	int r = chunk_shape(w, m, c, o, rank, bytes, &element);

	o->plain_edges = flags & PLAIN_EDGES;
	if (r == 0)
		r = index_parameters(w, m, c, o, flags, &chunking);
	if (r == 0)
		r = hdf5_chunks_read(w, o, &chunking);
	if (r == 0 && element != o->type.size)
		r = hdf5_fail(w, -ENOTSUP, m->off,
			"chunks of elements of %" PRIu64
			" bytes, and a type of %u: HDF5 1.x takes the type's, HDF5 2 refuses the dataset",
			element, o->type.size);
	return r;
}

static int layout34(struct hdf5_walk *w, const struct hdf5_message *m, struct cursor *c, struct hdf5_object *o,
	unsigned int version)
{
	unsigned int class = cursor_u8(c), len;
	uint64_t addr;

	switch (class) {
	case CLASS_COMPACT: len = cursor_u16(c); return compact(w, m, c, o, len);
	case CLASS_CONTIGUOUS:
		addr = hdf5_get_addr(w, c);
		(void)hdf5_get_len(w, c);
		return cursor_ok(c) ? contiguous(w, m, o, addr) : cut_short(w, m);
	case CLASS_CHUNKED: return version == 3 ? chunked3(w, m, c, o) : chunked4(w, m, c, o);
	case CLASS_VIRTUAL: return hdf5_virtual_read(w, m, c, o);
	default: return hdf5_fail(w, -ENOTSUP, m->off, "a layout of class %u", class);
	}
}

static int read_layout(struct hdf5_walk *w, const struct hdf5_header *h, struct hdf5_object *o)
{
	const struct hdf5_message *m = hdf5_header_find(h, HDF5_MSG_LAYOUT);
	unsigned int version;
	struct cursor c;

	if (!m)
		return hdf5_fail(w, -EBADMSG, o->addr, "a dataset without a layout");
	c = cursor_make(m->data, m->len);
	version = cursor_u8(&c);
	if (version < 1 || version > VERSION_MAX)
		return hdf5_fail(w, -ENOTSUP, m->off,
			"a data layout message of version %u; known are 1 to %u, which HDF5 1.x writes", version,
			VERSION_MAX);
	if (hdf5_header_find(h, HDF5_MSG_EXTERNAL))
		return hdf5_external_read(w, hdf5_header_find(h, HDF5_MSG_EXTERNAL), o);
	return version < 3 ? layout12(w, m, &c, o) : layout34(w, m, &c, o, version);
}

int hdf5_dataset_read(struct hdf5_walk *w, struct hdf5_object *o, const struct hdf5_header *h)
{
	struct hdf5_places places HDF5_PLACES_CLEANUP = { 0 };
	int r = read_type(w, h, o, &places);

	hdf5_map_free(&w->masks);
	if (r == 0)
		r = read_space(w, h, o);
	if (r == 0)
		r = read_optional(w, h, o);
	if (r == 0)
		r = read_layout(w, h, o);
	return r < 0 ? r : hdf5_varying_read(w, o, &places);
}
