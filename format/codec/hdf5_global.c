/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The global heap (specification III.E): collections of objects, to which elements of varying length, references to regions and
 * mappings of virtual datasets refer. A collection is read once; what is kept of it is where its objects are, so that any order
 * of asking costs the same. Bytes of an object are read when somebody asks for them.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "format/base/array.h"

#define WINDOW (1u << 20)

struct collection {
	uint64_t off, len;           /* in the file */
	struct hdf5_global *objects; /* owned; sorted by index */
	size_t num, cap;
};

struct hdf5_globals {
	struct hdf5_map by_addr; /* -> number in list */
	struct collection *list; /* owned */
	size_t num, cap;
	uint64_t all_bytes;      /* of all collections, which do not overlap: no more than the file has */
	struct hdf5_block bytes; /* of the object that was asked for last */
};

void hdf5_globals_free(struct hdf5_globals *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->num; i++)
		free(g->list[i].objects);
	free(g->list);
	hdf5_map_free(&g->by_addr);
	hdf5_block_free(&g->bytes);
	free(g);
}

static size_t head_bytes(const struct hdf5_walk *w)
{
	return 8 + (size_t)w->len_bytes;
}

static int by_index(const void *a, const void *b)
{
	const struct hdf5_global *x = a, *y = b;

	return (x->index > y->index) - (x->index < y->index);
}

static int collection_head(struct hdf5_walk *w, uint64_t addr, struct collection *c)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	unsigned int version;
	struct cursor in;
	int r = hdf5_read(w, addr, head_bytes(w), "a collection of the global heap", &b);

	if (r < 0)
		return r;
	w->file->num_metadata--; /* hdf5_globals_note() says what of it is */
	in = cursor_make(b.data, b.len);
	r = hdf5_signature(w, &b, &in, "GCOL");
	if (r < 0)
		return r;
	version = cursor_u8(&in);
	(void)cursor_bytes(&in, 3);
	c->off = b.off;
	c->len = hdf5_get_len(w, &in);
	if (version != 1 || c->len < b.len)
		return hdf5_fail(w, -EBADMSG, b.off, "an impossible collection of the global heap");
	if (hdf5_off(w, addr, c->len) == HDF5_NOWHERE)
		return hdf5_fail(w, -ENODATA, b.off,
			"a collection of the global heap of %" PRIu64 " bytes would lie behind the end of the file",
			c->len);
	r = hdf5_map_set(&w->seen, b.off, 0);
	if (r < 0)
		return r == -EEXIST ? hdf5_fail(w, -EBADMSG, b.off, "a collection of the global heap is used twice")
				    : r;
	if (c->len > w->size - w->globals->all_bytes)
		return hdf5_fail(w, -EBADMSG, b.off, "collections of the global heap overlap");
	w->globals->all_bytes += c->len;
	return 0;
}

static int add_object(struct collection *c, const struct hdf5_global *o)
{
	if (array_room(&c->objects, &c->cap, c->num, sizeof(*c->objects)) < 0)
		return -ENOMEM;
	c->objects[c->num++] = *o;
	return 0;
}

/* Up to the object of index 0, which is the room that is left. Collections may be long: a window moves over them. */
static int list_objects(struct hdf5_walk *w, struct collection *c)
{
	struct hdf5_block window HDF5_BLOCK_CLEANUP = { 0 };
	uint64_t at = c->off + head_bytes(w), end = c->off + c->len;
	int r = 0;

	while (r == 0 && end - at >= head_bytes(w)) {
		struct hdf5_global o;
		struct cursor in;

		if (!window.data || at + head_bytes(w) > window.off + window.len) {
			hdf5_block_free(&window);
			r = hdf5_read_data(w, at, end - at < WINDOW ? (size_t)(end - at) : WINDOW,
				"a collection of the global heap", &window);
			if (r < 0)
				break;
		}
		in = cursor_make(window.data + (at - window.off), window.len - (size_t)(at - window.off));
		o = (struct hdf5_global){ .index = cursor_u16(&in), .off = at + head_bytes(w) };
		(void)cursor_bytes(&in, 6); /* references, padding */
		o.len = hdf5_get_len(w, &in);
		if (o.index == 0 || o.len > end - o.off)
			break;
		r = add_object(c, &o);
		at = end - o.off < (o.len + 7) / 8 * 8 ? end : o.off + (o.len + 7) / 8 * 8;
	}
	if (c->num > 1)
		qsort(c->objects, c->num, sizeof(*c->objects), by_index);
	return r;
}

static int collection_load(struct hdf5_walk *w, uint64_t addr, struct collection *ret)
{
	struct collection made = { 0 };
	int r = collection_head(w, addr, &made);

	if (r == 0)
		r = list_objects(w, &made);
	if (r < 0)
		free(made.objects);
	else
		*ret = made;
	return r;
}

static int collection_of(struct hdf5_walk *w, uint64_t addr, struct collection **ret)
{
	struct hdf5_globals *g = w->globals;
	uint64_t number;
	int r;

	if (!g)
		g = w->globals = calloc(1, sizeof(*g));
	if (!g || array_room(&g->list, &g->cap, g->num, sizeof(*g->list)) < 0)
		return -ENOMEM;
	if (addr == HDF5_NOWHERE) /* which is no key of a map, either */
		return hdf5_fail(w, -EBADMSG, HDF5_NOWHERE, "a collection of the global heap without an address");
	if (!hdf5_map_get(&g->by_addr, addr, &number)) {
		r = collection_load(w, addr, &g->list[g->num]);
		if (r == 0)
			r = hdf5_map_set(&g->by_addr, addr, g->num);
		if (r < 0)
			return r;
		number = g->num++;
	}
	*ret = &g->list[number];
	return 0;
}

int hdf5_global_find(struct hdf5_walk *w, uint64_t addr, uint32_t index, struct hdf5_global **ret)
{
	struct hdf5_global key = { .index = (uint16_t)index };
	struct collection *c = NULL;
	int r = collection_of(w, addr, &c);

	if (r < 0)
		return r;
	*ret = index <= UINT16_MAX && c->num > 0 ? bsearch(&key, c->objects, c->num, sizeof(*c->objects), by_index)
						 : NULL;
	return *ret ? 0
		    : hdf5_fail(w, -EBADMSG, c->off, "no object %" PRIu32 " in this collection of the global heap",
			      index);
}

int hdf5_global_get(struct hdf5_walk *w, uint64_t addr, uint32_t index, const uint8_t **ret, size_t *ret_len)
{
	struct hdf5_global *o = NULL;
	int r = hdf5_global_find(w, addr, index, &o);

	if (r < 0)
		return r;
	hdf5_block_free(&w->globals->bytes);
	if (o->len > HDF5_BLOCK_MAX)
		return hdf5_fail(w, -ENOTSUP, o->off, "an object of the global heap of %" PRIu64 " bytes", o->len);
	r = hdf5_read_data(w, o->off, (size_t)o->len, "an object of the global heap", &w->globals->bytes);
	if (r < 0)
		return r;
	*ret = w->globals->bytes.data;
	*ret_len = w->globals->bytes.len;
	return 0;
}

static int by_off(const void *a, const void *b)
{
	const struct hdf5_global *x = a, *y = b;

	return (x->off > y->off) - (x->off < y->off);
}

int hdf5_globals_note(struct hdf5_walk *w)
{
	struct hdf5_globals *g = w->globals;
	int r = 0;

	for (size_t i = 0; g && r == 0 && i < g->num; i++) {
		struct collection *c = &g->list[i];
		uint64_t at = c->off;

		if (c->num > 1)
			qsort(c->objects, c->num, sizeof(*c->objects), by_off);
		for (size_t k = 0; r == 0 && k < c->num; k++) {
			uint64_t begin = c->objects[k].off - head_bytes(w);

			if (!c->objects[k].is_datasets)
				continue;
			if (begin > at)
				r = hdf5_note_metadata(w, at, begin - at);
			at = c->objects[k].off + (c->objects[k].len + 7) / 8 * 8;
		}
		if (r == 0 && at < c->off + c->len)
			r = hdf5_note_metadata(w, at, c->off + c->len - at);
	}
	return r;
}
