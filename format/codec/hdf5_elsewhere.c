/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Datasets whose elements are not in this file: in pieces of other files, one behind the other (specification IV.A.2.h), or in
 * datasets of this and other files, of which selections are mapped onto selections of this one (VII.A). Which they are is all that
 * is asked; selections are only passed over.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

/* A new one at the end; -ENOMEM. file and set are copied. */
static int add_source(struct hdf5_object *o, const char *file, const char *set, uint64_t off, uint64_t bytes)
{
	struct hdf5_source s = { .off = off, .bytes = bytes };

	if (array_room(&o->sources, &o->cap_sources, o->num_sources, sizeof(*o->sources)) < 0)
		return -ENOMEM;
	s.file = strdup(file);
	s.set = set ? strdup(set) : NULL;
	o->sources[o->num_sources++] = s;
	return s.file && (!set || s.set) ? 0 : -ENOMEM;
}

/* ---- external files */

/* A place in the list: where in the local heap the file's name is, from where on and how many bytes it has. */
static int slot(struct hdf5_walk *w, const struct hdf5_message *m, struct cursor *c, const struct hdf5_block *names,
	uint64_t *left, struct hdf5_object *o)
{
	uint64_t name = hdf5_get_len(w, c), off = hdf5_get_len(w, c), bytes = hdf5_get_len(w, c);

	if (!cursor_ok(c))
		return hdf5_fail(w, -EBADMSG, m->off, "a list of external files is cut short");
	if (name >= names->len || !memchr(names->data + name, '\0', names->len - (size_t)name))
		return hdf5_fail(w, -EBADMSG, m->off, "an external file without a name");
	if (bytes > *left)
		bytes = *left; /* it may have room for more, or without limit */
	if (off > INT64_MAX || bytes > INT64_MAX - off)
		return hdf5_fail(w, -EBADMSG, m->off, "a place in an external file behind the end of all files");
	*left -= bytes;
	return add_source(o, (const char *)names->data + name, NULL, off, bytes);
}

int hdf5_external_read(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_object *o)
{
	struct hdf5_block names HDF5_BLOCK_CLEANUP = { 0 };
	struct cursor c = cursor_make(m->data, m->len);
	unsigned int version = cursor_u8(&c), used;
	uint64_t heap, left = o->data_bytes;
	int r;

	o->storage = HDF5_EXTERNAL;
	(void)cursor_bytes(&c, 5); /* reserved, and how many there is room for */
	used = cursor_u16(&c);
	heap = hdf5_get_addr(w, &c);
	if (version != 1)
		return hdf5_fail(w, -ENOTSUP, m->off, "a list of external files of version %u", version);
	if (!cursor_ok(&c) || used == 0)
		return hdf5_fail(w, -EBADMSG, m->off, "an empty list of external files");
	r = hdf5_local_heap(w, heap, &names);
	for (unsigned int i = 0; r == 0 && i < used; i++)
		r = slot(w, m, &c, &names, &left, o);
	if (r < 0)
		return r;
	if (left > 0)
		return hdf5_fail(
			w, -EBADMSG, m->off, "the last %" PRIu64 " bytes of its elements have no external file", left);
	return hdf5_fail(w, -EXDEV, m->off, "its %" PRIu64 " bytes are in %u other file%s, the first is %.100s",
		o->data_bytes, used, used == 1 ? "" : "s", o->sources[0].file);
}

/* ---- virtual datasets */

enum { SELECT_NONE, SELECT_POINTS, SELECT_SLABS, SELECT_ALL };

#define SLAB_REGULAR 1u /* flag of a selection of version 3 */

/* num things of bytes each. */
static void skip(struct cursor *c, uint64_t num, uint64_t bytes)
{
	if (__builtin_mul_overflow(num, bytes, &num) || num > cursor_left(c))
		cursor_fail(c);
	else
		(void)cursor_bytes(c, (size_t)num);
}

static void skip_slabs(struct cursor *c, unsigned int version)
{
	unsigned int flags, width, rank;

	if (version == 1) {
		(void)cursor_u32(c);
		skip(c, cursor_u32(c), 1);
		return;
	}
	if (version ==
		2) { /* HDF5 does not write how long it is into the length: it has a rank, and four numbers for each dimension */
		(void)cursor_bytes(c, 5);
		skip(c, cursor_u32(c), 32);
		return;
	}
	flags = cursor_u8(c);
	width = cursor_u8(c);
	rank = cursor_u32(c);
	if (rank > HDF5_RANK_MAX || width > 8)
		cursor_fail(c);
	skip(c, flags & SLAB_REGULAR ? 2 : hdf5_uint(c, width <= 8 ? width : 0), 2 * (uint64_t)rank * width);
}

static int skip_selection(struct hdf5_walk *w, struct cursor *c, uint64_t off)
{
	uint32_t type = cursor_u32(c), version = cursor_u32(c);

	if (!cursor_ok(c))
		return hdf5_fail(w, -EBADMSG, off, "a list of virtual mappings is cut short");
	if (type > SELECT_ALL)
		return hdf5_fail(w, -EBADMSG, off, "a selection of kind %" PRIu32, type);
	if (type == SELECT_POINTS || version < 1 ||
		version > (type == SELECT_SLABS ? 3 : 1)) /* no release maps points */
		return hdf5_fail(w, -ENOTSUP, off, "a selection of kind %" PRIu32 ", version %" PRIu32, type, version);
	if (type == SELECT_SLABS)
		skip_slabs(c, version);
	else
		(void)cursor_bytes(c, 8);
	return cursor_ok(c) ? 0 : hdf5_fail(w, -EBADMSG, off, "a selection is cut short");
}

static const char *text(struct cursor *c)
{
	const uint8_t *end = memchr(c->at, '\0', cursor_left(c));

	if (!end) {
		cursor_fail(c);
		return "";
	}
	return (const char *)cursor_bytes(c, (size_t)(end - c->at) + 1);
}

static int mapping(struct hdf5_walk *w, struct cursor *c, uint64_t off, struct hdf5_object *o)
{
	const char *file = text(c), *set = text(c);
	int r;

	if (!cursor_ok(c))
		return hdf5_fail(w, -EBADMSG, off, "a list of virtual mappings is cut short");
	r = add_source(o, file, set, 0, 0);
	if (r == 0)
		r = skip_selection(w, c, off);
	return r == 0 ? skip_selection(w, c, off) : r;
}

static int mappings(struct hdf5_walk *w, const uint8_t *data, size_t len, uint64_t off, struct hdf5_object *o)
{
	struct cursor c = cursor_make(data, len), sum;
	unsigned int version = cursor_u8(&c);
	uint64_t num;
	int r = 0;

	if (version != 0)
		return hdf5_fail(w, -ENOTSUP, off, "a list of virtual mappings of version %u", version);
	if (len < 5 + (size_t)w->len_bytes)
		return hdf5_fail(w, -EBADMSG, off, "a list of virtual mappings is cut short");
	sum = cursor_make(data + len - 4, 4);
	if (!hdf5_checksum_is(data, len - 4, cursor_u32(&sum)))
		return hdf5_fail(w, -EBADMSG, off, "the checksum of %zu bytes of virtual mappings is wrong", len);
	c = cursor_make(data + 1, len - 5);
	num = hdf5_get_len(w, &c);
	for (uint64_t i = 0; r == 0 && i < num; i++)
		r = mapping(w, &c, off, o);
	return r;
}

int hdf5_virtual_read(struct hdf5_walk *w, const struct hdf5_message *m, struct cursor *c, struct hdf5_object *o)
{
	uint64_t heap = hdf5_get_addr(w, c);
	uint32_t index = cursor_u32(c);
	const uint8_t *data;
	size_t len;
	int r;

	o->storage = HDF5_VIRTUAL;
	if (!cursor_ok(c))
		return hdf5_fail(w, -EBADMSG, m->off, "a layout is cut short");
	if (heap == HDF5_NOWHERE)
		return 0; /* nothing is mapped */
	r = hdf5_global_get(w, heap, index, &data, &len);
	if (r == 0)
		r = mappings(w, data, len, hdf5_off(w, heap, 0), o);
	if (r < 0 || o->num_sources == 0)
		return r;
	return hdf5_fail(w, -EXDEV, m->off,
		"its elements are those of %zu mapped selection%s, the first of %.80s in %.80s", o->num_sources,
		o->num_sources == 1 ? "" : "s", o->sources[0].set, o->sources[0].file);
}
