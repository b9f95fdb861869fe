/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Elements that are not all of a dataset's data: lists of varying length, strings among them, and references to regions are in the
 * global heap, and the element has a number and an identifier. So these datasets' elements are read, decoded where they are
 * compressed, and each identifier is followed: what it leads to has to be there, and belongs to the dataset.
 *
 * What is read is limited: a file may say that a thousand datasets have the same bytes, or be made to swell.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

#define BLOCK      (1u << 20)
#define LOOK_TIMES 16u                 /* so often the file's size may be decoded, */
#define LOOK_BYTES (UINT64_C(1) << 32) /* and so much on top of that */

struct following {
	struct hdf5_walk *w;
	struct hdf5_object *o; /* NULL: an attribute */
	const struct hdf5_places *places;
	uint64_t index; /* that the pieces get */
};

static int follow(struct following *f, const uint8_t *element, size_t len, uint32_t list);

int hdf5_charge(struct hdf5_walk *w, uint64_t bytes)
{
	w->looked_bytes += bytes;
	if (w->looked_bytes - LOOK_BYTES > LOOK_TIMES * w->size && w->looked_bytes > LOOK_BYTES)
		return hdf5_fail(w, -ENOTSUP, HDF5_NOWHERE, "the elements of its lists are more than is looked at");
	return 0;
}

/* The object is part of the dataset, with its head and its padding. Neighbours become one piece. */
static int take(struct following *f, struct hdf5_global *g)
{
	uint64_t head = 8 + (uint64_t)f->w->len_bytes, len = head + (g->len + 7) / 8 * 8;
	struct layout_piece *last;
	struct hdf5_object *o = f->o;

	if (!o || g->is_datasets)
		return 0;
	g->is_datasets = true;
	last = o->num_heap > 0 ? &o->heap[o->num_heap - 1] : NULL;
	if (last && last->index == f->index && last->off + last->len == g->off - head) {
		last->len += len;
		return 0;
	}
	if (array_room(&o->heap, &o->cap_heap, o->num_heap, sizeof(*o->heap)) < 0)
		return -ENOMEM;
	o->heap[o->num_heap++] = (struct layout_piece){ .off = g->off - head, .len = len, .index = f->index };
	return 0;
}

static int follow_list(
	struct following *f, const struct hdf5_place *p, uint32_t number, uint64_t num, struct hdf5_global *g)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	uint64_t len = num * p->unit; /* both of 32 bits */
	int r;

	if (len > g->len)
		return hdf5_fail(f->w, -EBADMSG, g->off,
			"a list of %" PRIu64 " elements of %u bytes, and %" PRIu64 " bytes in the global heap", num,
			p->unit, g->len);
	if (!p->has_inner)
		return 0;
	r = len > HDF5_BLOCK_MAX ? hdf5_fail(f->w, -ENOTSUP, g->off, "a list of lists of %" PRIu64 " bytes", len)
				 : hdf5_charge(f->w, len);
	if (r == 0)
		r = hdf5_read_data(f->w, g->off, (size_t)len, "a list of lists", &b);
	for (uint64_t i = 0; r == 0 && i < num; i++)
		r = follow(f, b.data + i * p->unit, p->unit, number);
	return r;
}

static int follow_place(struct following *f, const uint8_t *element, size_t len, uint32_t number)
{
	const struct hdf5_place *p = &f->places->list[number];
	struct hdf5_global *g = NULL;
	struct cursor c;
	uint64_t addr;
	uint32_t num = 1, index;
	int r;

	if (p->off >= len)
		return hdf5_fail(f->w, -EBADMSG, HDF5_NOWHERE, "an identifier behind the end of its element");
	c = cursor_make(element + p->off, len - (size_t)p->off);
	if (p->is_list)
		num = cursor_u32(&c);
	addr = hdf5_get_addr(f->w, &c);
	index = cursor_u32(&c);
	if (!cursor_ok(&c))
		return hdf5_fail(f->w, -EBADMSG, HDF5_NOWHERE, "an identifier behind the end of its element");
	if (num == 0 || (index == 0 && (addr == 0 || addr == HDF5_NOWHERE)))
		return num == 0 || !p->is_list ? 0
					       : hdf5_fail(f->w, -EBADMSG, HDF5_NOWHERE,
							 "a list of %" PRIu32 " elements that is nowhere", num);
	r = hdf5_global_find(f->w, addr, index, &g);
	if (r == 0)
		r = take(f, g);
	return r == 0 && p->is_list ? follow_list(f, p, number, num, g) : r;
}

/* Of an element, or of one of a list's. */
static int follow(struct following *f, const uint8_t *element, size_t len, uint32_t list)
{
	int r = hdf5_charge(f->w, HDF5_PLACE_BYTES * (uint64_t)f->places->num);

	for (size_t i = 0; r == 0 && i < f->places->num; i++)
		if (f->places->list[i].in_list == list)
			r = follow_place(f, element, len, (uint32_t)i);
	return r;
}

/* ---- elements in a row */

static int read_row(struct following *f)
{
	struct hdf5_object *o = f->o;
	uint32_t size = o->type.size;
	size_t at_once = size < BLOCK ? BLOCK / size * size : size;
	int r = 0;

	for (uint64_t at = 0; r == 0 && at < o->data_bytes; at += at_once) {
		struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
		uint64_t left = o->data_bytes - at;
		size_t len = left < at_once ? (size_t)left : at_once;

		r = hdf5_charge(f->w, len);
		if (r == 0)
			r = hdf5_read_data(f->w, o->data_off + at, len, "elements", &b);
		for (size_t i = 0; r == 0 && i + size <= len; i += size) {
			f->index = at + i;
			r = follow(f, b.data + i, size, HDF5_NO_LIST);
		}
	}
	return r;
}

/* ---- elements in chunks */

/* The grid's place of a chunk, as its first element. */
static void first_of(const struct hdf5_object *o, uint64_t index, uint64_t *ret_first)
{
	for (uint32_t i = o->rank; i-- > 0;) {
		uint64_t num = o->dims[i] / o->chunk[i] + (o->dims[i] % o->chunk[i] > 0);

		ret_first[i] = index % num * o->chunk[i];
		index /= num;
	}
}

/* Elements of a chunk outside of the dataset's lengths mean nothing. */
static int follow_chunk(struct following *f, const struct hdf5_block *b)
{
	const struct hdf5_object *o = f->o;
	uint64_t first[HDF5_RANK_MAX], at[HDF5_RANK_MAX] = { 0 };
	int r = 0;

	first_of(o, f->index, first);
	for (size_t i = 0; r == 0 && i + o->type.size <= b->len; i += o->type.size) {
		bool inside = true;

		for (uint32_t k = 0; k < o->rank; k++)
			inside = inside && first[k] + at[k] < o->dims[k];
		if (inside)
			r = follow(f, b->data + i, o->type.size, HDF5_NO_LIST);
		for (uint32_t k = o->rank; k-- > 0 && ++at[k] == o->chunk[k];)
			at[k] = 0;
	}
	return r;
}

static bool reaches_outside(const struct hdf5_object *o, uint64_t index)
{
	uint64_t first[HDF5_RANK_MAX];

	first_of(o, index, first);
	for (uint32_t k = 0; k < o->rank; k++)
		if (o->chunk[k] > o->dims[k] - first[k])
			return true;
	return false;
}

static int read_chunk(struct following *f, const struct layout_piece *p, const struct hdf5_pipeline *filters)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	struct hdf5_object *o = f->o;
	uint64_t mask = 0;
	int r;

	if (o->chunk_bytes > HDF5_BLOCK_MAX || p->len > HDF5_BLOCK_MAX)
		return hdf5_fail(f->w, -ENOTSUP, p->off, "lists in chunks of %" PRIu64 " bytes", o->chunk_bytes);
	(void)hdf5_map_get(&f->w->masks, p->off, &mask);
	if (o->plain_edges && reaches_outside(o, p->index))
		mask = UINT32_MAX;
	r = hdf5_charge(f->w, o->chunk_bytes);
	if (r == 0)
		r = hdf5_read_data(f->w, p->off, (size_t)p->len, "a chunk", &b);
	if (r == 0)
		r = hdf5_unfilter(f->w, filters, (uint32_t)mask, (size_t)o->chunk_bytes, &b);
	f->index = p->index;
	return r < 0 ? r : follow_chunk(f, &b);
}

static int read_chunks(struct following *f)
{
	struct hdf5_object *o = f->o;
	struct hdf5_pipeline filters = { .num = o->num_filters, .element_bytes = o->type.size };
	int r = 0;

	memcpy(filters.ids, o->filters, sizeof(filters.ids));
	for (size_t i = 0; r == 0 && i < o->num_pieces; i++)
		r = read_chunk(f, &o->pieces[i], &filters);
	return r;
}

/* ---- all */

static int by_off(const void *a, const void *b)
{
	const struct layout_piece *x = a, *y = b;

	return (x->off > y->off) - (x->off < y->off);
}

int hdf5_varying_read(struct hdf5_walk *w, struct hdf5_object *o, const struct hdf5_places *places)
{
	struct following f = { .w = w, .o = o, .places = places };
	int r = 0;

	if (places->num == 0 || o->data_bytes == 0)
		return 0;
	if (o->type.size > HDF5_BLOCK_MAX)
		return hdf5_fail(w, -ENOTSUP, o->addr, "lists in elements of %u bytes", o->type.size);
	if (o->storage == HDF5_CHUNKED)
		r = read_chunks(&f);
	else if ((o->storage == HDF5_CONTIGUOUS || o->storage == HDF5_COMPACT) && o->data_off != HDF5_NOWHERE)
		r = read_row(&f);
	if (o->num_heap > 1)
		qsort(o->heap, o->num_heap, sizeof(*o->heap), by_off);
	return r;
}

int hdf5_varying_attribute(struct hdf5_walk *w, const struct hdf5_attribute *a)
{
	struct following f = { .w = w, .places = &a->places };
	uint64_t num = a->space.is_null ? 0 : 1;
	int r = 0;

	for (uint32_t i = 0; i < a->space.rank; i++)
		if (__builtin_mul_overflow(num, a->space.dims[i], &num))
			num = UINT64_MAX;
	if (a->places.num == 0 || num == 0)
		return 0;
	if (num > a->len / a->type.size)
		return hdf5_fail(w, -EBADMSG, a->off, "the values of attribute %.60s are cut short", a->name);
	for (uint64_t i = 0; r == 0 && i < num; i++)
		r = follow(&f, a->data + i * a->type.size, a->type.size, HDF5_NO_LIST);
	return r;
}
