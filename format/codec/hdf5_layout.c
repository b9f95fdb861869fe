/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The walk's findings in the words that all formats share. */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_A_COORDINATE "_nc4_non_coord_"

void hdf5_name(const struct hdf5_object *o, char ret[HDF5_PATH_MAX])
{
	const char *slash = strrchr(o->path, '/'), *last = slash ? slash + 1 : o->path;
	size_t mark = strlen(NOT_A_COORDINATE);

	if (strncmp(last, NOT_A_COORDINATE, mark) != 0)
		mark = 0;
	snprintf(ret, HDF5_PATH_MAX, "%.*s%s", (int)(last - o->path), o->path, last + mark);
}

const char *hdf5_type_name(const struct hdf5_type *t)
{
	static const char *const integers[2][9] = { { "", "ubyte", "ushort", "", "uint", "", "", "", "uint64" },
		{ "", "byte", "short", "", "int", "", "", "", "int64" } };
	static const char *const classes[] = { [HDF5_INTEGER] = "integer",
		[HDF5_FLOAT] = "floating point",
		[HDF5_TIME] = "time",
		[HDF5_STRING] = "char",
		[HDF5_BITS] = "bits",
		[HDF5_OPAQUE] = "opaque",
		[HDF5_COMPOUND] = "compound",
		[HDF5_REFERENCE] = "reference",
		[HDF5_ENUM] = "enum",
		[HDF5_VARYING] = "vlen",
		[HDF5_ARRAY] = "array" };

	if (t->class == HDF5_INTEGER && t->size <= 8 && integers[t->is_signed][t->size][0])
		return integers[t->is_signed][t->size];
	if (t->class == HDF5_FLOAT && (t->size == 4 || t->size == 8))
		return t->size == 4 ? "float" : "double";
	if (t->class == HDF5_VARYING && t->is_strings)
		return "string";
	return t->class <= HDF5_ARRAY ? classes[t->class] : "";
}

const char *hdf5_index_name(enum hdf5_index index)
{
	static const char *const names[] = { [HDF5_INDEX_TREE1] = "version 1 B-tree",
		[HDF5_INDEX_SINGLE] = "single chunk",
		[HDF5_INDEX_IMPLICIT] = "implicit",
		[HDF5_INDEX_FIXED] = "fixed array",
		[HDF5_INDEX_EXTENSIBLE] = "extensible array",
		[HDF5_INDEX_TREE2] = "version 2 B-tree" };

	return names[index];
}

static int set_chunks(struct layout_object *to, const struct hdf5_object *o)
{
	to->kind = LAYOUT_CHUNKS;
	to->len = o->chunk_bytes;
	to->filtered = o->num_filters > 0;
	to->chunk = malloc((o->rank > 0 ? o->rank : 1) * sizeof(*to->chunk));
	to->pieces = malloc((o->num_pieces > 0 ? o->num_pieces : 1) * sizeof(*to->pieces));
	if (!to->chunk || !to->pieces)
		return -ENOMEM;
	memcpy(to->chunk, o->chunk, o->rank * sizeof(*to->chunk));
	if (o->num_pieces > 0)
		memcpy(to->pieces, o->pieces, o->num_pieces * sizeof(*to->pieces));
	to->num_pieces = to->cap_pieces = o->num_pieces;
	return 0;
}

static int set_sources(struct layout_object *to, const struct hdf5_object *o)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < o->num_sources; i++) {
		const struct hdf5_source *s = &o->sources[i];

		r = layout_add_source(to, s->file, s->set, s->off, s->bytes);
	}
	return r;
}

static int set_data(struct layout_object *to, const struct hdf5_object *o)
{
	if (o->storage == HDF5_CHUNKED)
		return set_chunks(to, o);
	to->len = o->data_bytes;
	if ((o->storage == HDF5_COMPACT || o->storage == HDF5_CONTIGUOUS) && o->data_off != HDF5_NOWHERE) {
		to->begin = o->data_off;
		to->count = 1;
	}
	return set_sources(to, o);
}

static int add_dataset(struct layout *l, const struct hdf5_object *o)
{
	char name[HDF5_PATH_MAX];
	struct layout_object *to;
	int r;

	hdf5_name(o, name);
	to = layout_add(l, name, LAYOUT_VARIABLE);
	if (!to)
		return -ENOMEM;
	to->type = hdf5_type_name(&o->type);
	to->element_bytes = o->type.size;
	to->is_null = o->is_null;
	r = layout_set_dims(to, o->rank, o->dims);
	if (r == 0 && o->has_fill)
		r = layout_set_fill(to, o->fill);
	if (r == 0)
		r = layout_set_heap(to, o->num_heap, o->heap);
	return r < 0 ? r : set_data(to, o);
}

static int by_off(const void *a, const void *b)
{
	const struct layout_piece *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

/* Compact datasets have their elements inside of their headers. 0, -ENOMEM; *ret is the caller's. */
static int find_compact(const struct hdf5 *h, struct layout_piece **ret, size_t *ret_num)
{
	struct layout_piece *found = malloc((h->num_objects > 0 ? h->num_objects : 1) * sizeof(*found));
	size_t num = 0;

	if (!found)
		return -ENOMEM;
	for (size_t i = 0; i < h->num_objects; i++) {
		const struct hdf5_object *o = &h->objects[i];

		if (o->kind == HDF5_DATASET && o->storage == HDF5_COMPACT && o->data_bytes > 0)
			found[num++] = (struct layout_piece){ .off = o->data_off, .len = o->data_bytes };
	}
	qsort(found, num, sizeof(*found), by_off);
	*ret = found;
	*ret_num = num;
	return 0;
}

/* What is not a dataset's of a range of metadata. *next: the first of the num datasets that may reach into it. */
static int add_between(struct layout_object *o, const struct layout_piece *range, const struct layout_piece *compact,
	size_t num, size_t *next)
{
	uint64_t at = range->off, end = range->off + range->len;
	int r = 0;

	for (; r == 0 && *next < num && compact[*next].off < end; ++*next) {
		const struct layout_piece *p = &compact[*next];

		if (p->off > at)
			r = layout_add_piece(o, at, p->off - at, 0);
		if (p->off + p->len > at)
			at = p->off + p->len;
	}
	return r == 0 && at < end ? layout_add_piece(o, at, end - at, 0) : r;
}

static int add_metadata(struct layout *l, const struct hdf5 *h)
{
	struct layout_object *o = layout_add(l, "metadata", LAYOUT_METADATA);
	struct layout_piece *compact = NULL;
	size_t num = 0, next = 0;
	int r = o ? find_compact(h, &compact, &num) : -ENOMEM;

	for (size_t i = 0; r == 0 && i < h->num_metadata; i++)
		r = add_between(o, &h->metadata[i], compact, num, &next);
	free(compact);
	return r;
}

/* The length of the one dimension that can grow; of several, none is that of the records. */
static void count_records(struct layout *l, const struct hdf5 *h)
{
	const struct hdf5_dim *record = NULL;

	for (size_t i = 0; i < h->num_dims; i++) {
		if (h->dims[i].unlimited && record)
			return;
		if (h->dims[i].unlimited)
			record = &h->dims[i];
	}
	l->has_records = record != NULL;
	l->num_records = record ? record->len : 0;
}

static void say_doubt(struct layout *l, const struct hdf5 *h)
{
	static const char *const words[] = { [HDF5_ELSEWHERE] = "elsewhere",
		[HDF5_NOT_UNDERSTOOD] = "not understood",
		[HDF5_NOT_WRITTEN] = "raw, not yet mapped",
		[HDF5_DAMAGED] = "damaged" };
	const struct hdf5_problem *p = hdf5_worst(h, HDF5_DAMAGED);
	struct buf text BUF_CLEANUP = { 0 };
	char more[64] = "";
	const char *word;

	if (!p)
		p = hdf5_worst(h, HDF5_NOT_WRITTEN);
	if (!p)
		p = hdf5_worst(h, HDF5_NOT_UNDERSTOOD);
	if (!p)
		p = hdf5_worst(h, HDF5_ELSEWHERE);
	if (!p)
		return;
	if (h->num_problems > 1)
		snprintf(more, sizeof(more), "%zu such places, the first: ", h->num_problems);
	word = h->open_swmr && p->trouble == HDF5_NOT_WRITTEN ? "still open" : words[p->trouble];
	buf_bytes(&text, word, strlen(word));
	buf_bytes(&text, ": ", 2);
	buf_bytes(&text, more, strlen(more));
	buf_bytes(&text, p->object, strlen(p->object));
	buf_bytes(&text, ": ", p->object[0] ? 2 : 0);
	buf_bytes(&text, p->text, strlen(p->text) + 1);
	if (buf_ok(&text)) {
		memcpy(l->note, text.data, text.len < sizeof(l->note) ? text.len : sizeof(l->note) - 1);
		l->note[sizeof(l->note) - 1] = '\0';
	}
}

int hdf5_to_layout(const struct hdf5 *h, struct layout *ret)
{
	struct layout l = { .size = h->size, .file_bytes = h->end };
	int r = add_metadata(&l, h);

	snprintf(l.format, sizeof(l.format), "%s (superblock %" PRIu32 ")", h->is_netcdf ? "netCDF-4" : "HDF5",
		h->superblock);
	for (size_t i = 0; r == 0 && i < h->num_objects; i++) {
		const struct hdf5_object *o = &h->objects[i];
		bool only_dim = o->dim != HDF5_NO_DIM && h->dims[o->dim].only_dim;

		if (o->kind == HDF5_DATASET && !only_dim)
			r = add_dataset(&l, o);
	}
	count_records(&l, h);
	say_doubt(&l, h);
	if (r < 0)
		layout_destroy(&l);
	else
		*ret = l;
	return r;
}

int hdf5_layout(hdf5_read_fn read_bytes, void *arg, uint64_t size, struct layout *ret, struct cistern_error *err)
{
	struct hdf5 h HDF5_CLEANUP = { 0 };
	int r = hdf5_walk(read_bytes, arg, size, &h, err);

	return r < 0 ? r : hdf5_to_layout(&h, ret);
}
