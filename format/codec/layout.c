/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Lists that grow, and words for people; what an object means is said in the header. */
#include "format/codec/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

struct layout_object *layout_add(struct layout *l, const char *name, enum layout_kind kind)
{
	struct layout_object *o;
	char *copy = strdup(name);

	if (!copy || array_room(&l->objects, &l->cap_objects, l->num_objects, sizeof(*o)) < 0) {
		free(copy);
		return NULL;
	}
	o = &l->objects[l->num_objects++];
	*o = (struct layout_object){ .name = copy, .type = "", .kind = kind };
	return o;
}

int layout_set_dims(struct layout_object *o, uint32_t num_dims, const uint64_t *dims)
{
	uint64_t *copy = NULL;

	if (num_dims > 0) {
		copy = reallocarray(NULL, num_dims, sizeof(*copy));
		if (!copy)
			return -ENOMEM;
		memcpy(copy, dims, num_dims * sizeof(*copy));
	}
	free(o->dims);
	o->dims = copy;
	o->num_dims = num_dims;
	return 0;
}

int layout_set_fill(struct layout_object *o, const void *fill)
{
	uint8_t *copy = malloc(o->element_bytes > 0 ? o->element_bytes : 1);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, fill, o->element_bytes);
	free(o->fill);
	o->fill = copy;
	o->has_fill = o->element_bytes > 0;
	return 0;
}

int layout_add_piece(struct layout_object *o, uint64_t off, uint64_t len, uint64_t index)
{
	if (array_room(&o->pieces, &o->cap_pieces, o->num_pieces, sizeof(*o->pieces)) < 0)
		return -ENOMEM;
	o->pieces[o->num_pieces++] = (struct layout_piece){ off, len, index };
	return 0;
}

int layout_add_source(struct layout_object *o, const char *file, const char *object, uint64_t off, uint64_t bytes)
{
	struct layout_source s = { .off = off, .bytes = bytes };

	if (array_room(&o->sources, &o->cap_sources, o->num_sources, sizeof(*o->sources)) < 0)
		return -ENOMEM;
	s.file = strdup(file);
	s.object = object ? strdup(object) : NULL;
	o->sources[o->num_sources++] = s;
	return s.file && (!object || s.object) ? 0 : -ENOMEM;
}

static int by_off(const void *a, const void *b)
{
	const struct layout_piece *x = a, *y = b;

	return (x->off > y->off) - (x->off < y->off);
}

void layout_sort_pieces(struct layout_object *o)
{
	if (o->num_pieces > 1)
		qsort(o->pieces, o->num_pieces, sizeof(*o->pieces), by_off);
}

const char *layout_type(const struct layout_object *o)
{
	return o->type_text ? o->type_text : o->type;
}

const char *layout_kind_name(enum layout_kind kind)
{
	static const char *const names[] = { [LAYOUT_HEADER] = "header",
		[LAYOUT_METADATA] = "metadata",
		[LAYOUT_VARIABLE] = "variable",
		[LAYOUT_RECORDS] = "record variable",
		[LAYOUT_CHUNKS] = "chunked variable",
		[LAYOUT_FREE] = "free" };

	return names[kind];
}

/* The grid of chunks; without chunks 1 if there is an element at all. */
static uint64_t count_grid(const struct layout_object *o)
{
	uint64_t num = 1;

	for (uint32_t i = 0; i < o->num_dims; i++) {
		uint64_t chunk = o->chunk && o->chunk[i] > 0 ? o->chunk[i] : UINT64_MAX;
		uint64_t cuts = o->dims[i] / chunk + (o->dims[i] % chunk > 0);

		if (__builtin_mul_overflow(num, cuts, &num) || num > INT64_MAX)
			return INT64_MAX;
	}
	return num;
}

uint64_t layout_parts(const struct layout_object *o)
{
	switch (o->kind) {
	case LAYOUT_HEADER: return 1;
	case LAYOUT_RECORDS: return o->count;
	case LAYOUT_VARIABLE:
	case LAYOUT_CHUNKS: return o->is_null ? 0 : count_grid(o);
	default: return o->num_pieces;
	}
}

static uint64_t sum_of(const struct layout_piece *pieces, size_t num)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < num; i++)
		sum += pieces[i].len;
	return sum;
}

uint64_t layout_heap_bytes(const struct layout_object *o)
{
	return sum_of(o->heap, o->num_heap);
}

uint64_t layout_object_bytes(const struct layout_object *o)
{
	if (o->kind == LAYOUT_HEADER || o->kind == LAYOUT_VARIABLE || o->kind == LAYOUT_RECORDS)
		return o->len * o->count + layout_heap_bytes(o);
	return sum_of(o->pieces, o->num_pieces) + layout_heap_bytes(o);
}

int layout_set_heap(struct layout_object *o, size_t num, const struct layout_piece *pieces)
{
	struct layout_piece *copy = num > 0 ? reallocarray(NULL, num, sizeof(*copy)) : NULL;

	if (num > 0 && !copy)
		return -ENOMEM;
	if (num > 0)
		memcpy(copy, pieces, num * sizeof(*copy));
	free(o->heap);
	o->heap = copy;
	o->num_heap = num;
	return 0;
}

static bool has_piece(const struct layout_piece *pieces, size_t num, uint64_t off)
{
	size_t low = 0, high = num;

	while (low < high) { /* the first one that begins behind */
		size_t middle = low + (high - low) / 2;

		if (pieces[middle].off <= off)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 && off - pieces[low - 1].off < pieces[low - 1].len;
}

static bool has_byte(const struct layout_object *o, uint64_t off)
{
	if (has_piece(o->heap, o->num_heap, off))
		return true;
	if (o->kind == LAYOUT_METADATA || o->kind == LAYOUT_CHUNKS || o->kind == LAYOUT_FREE)
		return has_piece(o->pieces, o->num_pieces, off);
	if (o->count == 0 || off < o->begin)
		return false;
	off -= o->begin;
	if (o->kind == LAYOUT_RECORDS && o->stride > 0)
		return off / o->stride < o->count && off % o->stride < o->len;
	return off < o->len;
}

const struct layout_object *layout_owner(const struct layout *l, uint64_t off)
{
	const struct layout_object *found = NULL;

	for (size_t i = 0; i < l->num_objects; i++) {
		const struct layout_object *o = &l->objects[i];

		if ((!found || found->kind == LAYOUT_METADATA) && has_byte(o, off))
			found = o;
	}
	return found;
}

void layout_destroy(struct layout *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->num_objects; i++) {
		struct layout_object *o = &l->objects[i];

		free(o->name);
		free(o->type_text);
		free(o->dims);
		free(o->fill);
		free(o->chunk);
		free(o->pieces);
		free(o->heap);
		for (size_t k = 0; k < o->num_sources; k++) {
			free(o->sources[k].file);
			free(o->sources[k].object);
		}
		free(o->sources);
	}
	free(l->objects);
	*l = (struct layout){ 0 };
}
