/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What makes an HDF5 file a netCDF-4 one: attributes of dimension scales. A dataset with CLASS = DIMENSION_SCALE is a
 * dimension, and unless its NAME says otherwise a variable as well; DIMENSION_LIST of another one refers, axis by axis, to
 * such datasets; _Netcdf4Dimid is the dimension's number, _Netcdf4Coordinates those of a variable's axes.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

#define ONLY_A_DIMENSION "This is a netCDF dimension but not a netCDF variable"
#define TYPE_ATTRIBUTES  8u /* of version 2 B-trees: attributes by name */

struct scale {
	bool is_scale, only_dim;
	int64_t id;
	uint64_t refs[HDF5_RANK_MAX]; /* offsets of headers of what the axes refer to */
	int32_t ids[HDF5_RANK_MAX];
	uint32_t num_refs, num_ids;
};

struct hdf5_scales {
	struct hdf5_map of;   /* object -> number in scales */
	struct scale *scales; /* owned */
	size_t num, cap;
	bool is_netcdf;
};

int hdf5_scales_create(struct hdf5_scales **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

void hdf5_scales_destroy(struct hdf5_scales *s)
{
	if (!s)
		return;
	hdf5_map_free(&s->of);
	free(s->scales);
	free(s);
}

static struct scale *scale_of(struct hdf5_scales *s, uint32_t object)
{
	uint64_t number;

	return hdf5_map_get(&s->of, object, &number) ? &s->scales[number] : NULL;
}

static struct scale *scale_make(struct hdf5_scales *s, uint32_t object)
{
	struct scale *have = scale_of(s, object);

	if (have)
		return have;
	if (array_room(&s->scales, &s->cap, s->num, sizeof(*s->scales)) < 0)
		return NULL;
	if (hdf5_map_set(&s->of, object, s->num) < 0)
		return NULL;
	s->scales[s->num] = (struct scale){ .id = -1 };
	return &s->scales[s->num++];
}

/* ---- attributes */

static bool text_is(const struct hdf5_attribute *a, const char *text)
{
	size_t len = strlen(text);

	return a->type.class == HDF5_STRING && a->len >= len && memcmp(a->data, text, len) == 0;
}

static int64_t integer(const struct hdf5_type *t, struct cursor *c)
{
	const uint8_t *p = cursor_bytes(c, t->size);
	uint64_t v = 0;

	for (unsigned int i = 0; p && i < t->size; i++)
		v = v << 8 | p[t->big_endian ? i : t->size - 1 - i];
	return (int64_t)v;
}

static int64_t one_integer(const struct hdf5_attribute *a)
{
	struct cursor c = cursor_make(a->data, a->len);
	int64_t v;

	if (a->type.class != HDF5_INTEGER || a->type.size > 8)
		return -1;
	v = integer(&a->type, &c);
	return cursor_ok(&c) ? v : -1;
}

static int take_ids(struct scale *s, const struct hdf5_attribute *a)
{
	struct cursor c = cursor_make(a->data, a->len);

	if (a->type.class != HDF5_INTEGER || a->type.size > 4 || a->space.rank != 1 || a->space.dims[0] > HDF5_RANK_MAX)
		return 0;
	for (uint64_t i = 0; i < a->space.dims[0]; i++)
		s->ids[i] = (int32_t)integer(&a->type, &c);
	s->num_ids = cursor_ok(&c) ? (uint32_t)a->space.dims[0] : 0;
	return 0;
}

/* A list of references for each axis, in the global heap; the first of each is the dimension. */
static int take_refs(struct hdf5_walk *w, struct scale *s, const struct hdf5_attribute *a)
{
	struct cursor c = cursor_make(a->data, a->len);
	int r = 0;

	if (a->type.class != HDF5_VARYING || a->space.rank != 1 || a->space.dims[0] > HDF5_RANK_MAX)
		return 0;
	for (uint64_t i = 0; r == 0 && i < a->space.dims[0]; i++) {
		uint32_t num = cursor_u32(&c), index;
		uint64_t heap = hdf5_get_addr(w, &c);
		const uint8_t *list;
		size_t len;

		index = cursor_u32(&c);
		s->refs[i] = HDF5_NOWHERE;
		if (!cursor_ok(&c))
			return hdf5_fail(w, -EBADMSG, a->off, "a list of dimensions is cut short");
		if (num == 0)
			continue;
		r = hdf5_global_get(w, heap, index, &list, &len);
		if (r == 0 && len >= w->addr_bytes) {
			struct cursor ref = cursor_make(list, len);

			s->refs[i] = hdf5_off(w, hdf5_get_addr(w, &ref), 1);
		}
	}
	s->num_refs = (uint32_t)a->space.dims[0];
	return r;
}

struct reading {
	struct hdf5_scales *scales;
	uint32_t object;
	struct hdf5_heap *heap;
	struct hdf5_attribute a;
};

static bool is_wanted(const char *name)
{
	static const char *const names[] = { "CLASS", "NAME", "_Netcdf4Dimid", "_Netcdf4Coordinates", "DIMENSION_LIST",
		"_NCProperties" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

static int take(struct hdf5_walk *w, struct reading *rd)
{
	const struct hdf5_attribute *a = &rd->a;
	struct scale *s;

	if (!is_wanted(a->name))
		return 0;
	if (strcmp(a->name, "_NCProperties") == 0 || strcmp(a->name, "_Netcdf4Dimid") == 0)
		rd->scales->is_netcdf = true;
	s = scale_make(rd->scales, rd->object);
	if (!s)
		return -ENOMEM;
	if (strcmp(a->name, "CLASS") == 0)
		s->is_scale = text_is(a, "DIMENSION_SCALE");
	else if (strcmp(a->name, "NAME") == 0)
		s->only_dim = text_is(a, ONLY_A_DIMENSION);
	else if (strcmp(a->name, "_Netcdf4Dimid") == 0)
		s->id = one_integer(a);
	else if (strcmp(a->name, "_Netcdf4Coordinates") == 0)
		return take_ids(s, a);
	else if (strcmp(a->name, "DIMENSION_LIST") == 0)
		return take_refs(w, s, a);
	return 0;
}

static int attribute(struct hdf5_walk *w, const struct hdf5_message *m, struct reading *rd)
{
	struct hdf5_unshared u HDF5_UNSHARED_CLEANUP = { 0 };
	int r = hdf5_unshare(w, m, &u);

	hdf5_places_free(&rd->a.places);
	if (r == 0)
		r = hdf5_attribute_decode(w, &u.m, &rd->a);
	if (r == 0)
		r = hdf5_varying_attribute(w, &rd->a);
	return r < 0 ? r : take(w, rd);
}

/* A record of the B-tree of an object's attributes: heap identifier, flags, order of creation, hash of the name. */
static int dense_attribute(struct hdf5_walk *w, const uint8_t *record, size_t len, uint64_t off, void *arg)
{
	struct reading *rd = arg;
	struct hdf5_message m = { .type = HDF5_MSG_ATTRIBUTE };
	int r;

	if (len != 17 || hdf5_heap_id_bytes(rd->heap) != 8)
		return hdf5_fail(w, -EBADMSG, off, "an attribute's record of %zu bytes", len);
	if (record[8] & HDF5_FLAG_SHARED) { /* the identifier is one of the heap of shared attributes */
		uint8_t shared[10] = { 3, 1 };

		memcpy(shared + 2, record, 8);
		m.data = shared;
		m.len = sizeof(shared);
		m.flags = HDF5_FLAG_SHARED;
		m.off = off;
		return attribute(w, &m, rd);
	}
	r = hdf5_heap_get(w, rd->heap, record, &m.data, &m.len, &m.off);
	return r < 0 ? r : attribute(w, &m, rd);
}

static int dense_attributes(struct hdf5_walk *w, const struct hdf5_message *m, struct reading *rd)
{
	struct cursor c = cursor_make(m->data, m->len);
	unsigned int version = cursor_u8(&c), flags = cursor_u8(&c);
	uint64_t heap, names;
	int r;

	(void)cursor_bytes(&c, flags & 1 ? 2 : 0);
	heap = hdf5_get_addr(w, &c);
	names = hdf5_get_addr(w, &c);
	if (!cursor_ok(&c) || version != 0)
		return hdf5_fail(w, -ENOTSUP, m->off, "attribute information of version %u", version);
	if (heap == HDF5_NOWHERE)
		return 0;
	r = hdf5_heap_open(w, heap, &rd->heap);
	if (r == 0)
		r = hdf5_tree2(w, names, TYPE_ATTRIBUTES, dense_attribute, rd);
	hdf5_heap_close(rd->heap);
	rd->heap = NULL;
	return r;
}

int hdf5_scales_read(struct hdf5_walk *w, struct hdf5_scales *s, uint32_t object, const struct hdf5_header *h)
{
	struct reading reading = { .scales = s, .object = object }, *rd = &reading;
	int r = 0;

	for (size_t i = 0; r == 0 && i < h->num; i++) {
		const struct hdf5_message *m = &h->messages[i];

		if (m->type == HDF5_MSG_ATTRIBUTE)
			r = attribute(w, m, rd);
		else if (m->type == HDF5_MSG_ATTRIBUTE_INFO)
			r = dense_attributes(w, m, rd);
	}
	hdf5_places_free(&rd->a.places);
	return r;
}

/* ---- dimensions */

static int add_dim(struct hdf5 *h, uint32_t object, const struct scale *s)
{
	struct hdf5_object *o = &h->objects[object];

	if (array_room(&h->dims, &h->cap_dims, h->num_dims, sizeof(*h->dims)) < 0)
		return -ENOMEM;
	o->dim = (uint32_t)h->num_dims;
	h->dims[h->num_dims++] = (struct hdf5_dim){ .object = object,
		.id = s->id,
		.len = o->dims[0],
		.unlimited = o->max_dims[0] == HDF5_NOWHERE,
		.only_dim = s->only_dim };
	return 0;
}

static uint32_t dim_at(const struct hdf5_walk *w, uint64_t off)
{
	uint64_t number;

	return off != HDF5_NOWHERE && hdf5_map_get(&w->by_addr, off, &number) ? w->file->objects[number].dim
									      : HDF5_NO_DIM;
}

static uint32_t dim_of_id(const struct hdf5_map *ids, int64_t id)
{
	uint64_t number;

	return id >= 0 && hdf5_map_get(ids, (uint64_t)id, &number) ? (uint32_t)number : HDF5_NO_DIM;
}

static int set_axes(struct hdf5_walk *w, struct hdf5_object *o, const struct scale *s, const struct hdf5_map *ids)
{
	o->axes = malloc(o->rank * sizeof(*o->axes));
	if (!o->axes)
		return -ENOMEM;
	for (uint32_t i = 0; i < o->rank; i++)
		if (i < s->num_refs)
			o->axes[i] = dim_at(w, s->refs[i]);
		else if (i < s->num_ids)
			o->axes[i] = dim_of_id(ids, s->ids[i]);
		else
			o->axes[i] = i == 0 ? o->dim : HDF5_NO_DIM;
	return 0;
}

/* What can grow is as long as its longest variable: a dimension without a variable of its own has a dataset of length 0. */
static void stretch_dims(struct hdf5 *h, const struct hdf5_object *o)
{
	for (uint32_t i = 0; i < o->rank; i++) {
		struct hdf5_dim *d = o->axes[i] != HDF5_NO_DIM ? &h->dims[o->axes[i]] : NULL;

		if (d && d->unlimited && d->len < o->dims[i])
			d->len = o->dims[i];
	}
}

static int resolve_all(struct hdf5_walk *w, struct hdf5_scales *s, struct hdf5_map *ids)
{
	struct hdf5 *h = w->file;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < h->num_objects; i++) {
		struct scale *one = scale_of(s, i);

		if (one && one->is_scale && h->objects[i].rank > 0)
			r = add_dim(h, i, one);
		if (r == 0 && one && one->id >= 0 && h->objects[i].dim != HDF5_NO_DIM)
			r = hdf5_map_set(ids, (uint64_t)one->id, h->objects[i].dim);
		if (r == -EEXIST)
			r = 0; /* two of one number: the first one counts */
	}
	for (uint32_t i = 0; r == 0 && i < h->num_objects; i++) {
		struct scale *one = scale_of(s, i);

		if (one && h->objects[i].rank > 0)
			r = set_axes(w, &h->objects[i], one, ids);
		if (r == 0 && h->objects[i].axes)
			stretch_dims(h, &h->objects[i]);
	}
	return r;
}

int hdf5_scales_resolve(struct hdf5_walk *w, struct hdf5_scales *s)
{
	struct hdf5_map ids = { 0 };
	int r = resolve_all(w, s, &ids);

	w->file->is_netcdf = s->is_netcdf;
	hdf5_map_free(&ids);
	return r;
}
