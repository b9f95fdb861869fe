/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Local heaps, which hold names, and the global heap, which holds lists of varying length (specification III.D, III.E). */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define NO_GAP 1u

/* Gaps between names are a list: where the next one is, or 1; how long this one is. */
static int check_gaps(struct hdf5_walk *w, const struct hdf5_block *names, uint64_t first)
{
	uint64_t most = names->len / (2 * w->len_bytes);

	for (uint64_t at = first; at != NO_GAP; most--) {
		struct cursor c;
		uint64_t len;

		if (most == 0 || at > names->len || names->len - at < 2 * w->len_bytes)
			return hdf5_fail(w, -EBADMSG, names->off, "an impossible list of gaps between names");
		c = cursor_make(names->data + at, names->len - (size_t)at);
		first = hdf5_get_len(w, &c);
		len = hdf5_get_len(w, &c);
		if (len > names->len - at)
			return hdf5_fail(w, -EBADMSG, names->off + at, "a gap between names of %" PRIu64 " bytes", len);
		at = first;
	}
	return 0;
}

int hdf5_local_heap(struct hdf5_walk *w, uint64_t addr, struct hdf5_block *ret)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	unsigned int version;
	uint64_t len, gaps, at, none;
	struct cursor c;
	int r = hdf5_read_once(w, addr, 8 + 2 * (size_t)w->len_bytes + w->addr_bytes, "a local heap", &b);

	if (r < 0)
		return r;
	c = cursor_make(b.data, b.len);
	r = hdf5_signature(w, &b, &c, "HEAP");
	if (r < 0)
		return r;
	version = cursor_u8(&c);
	(void)cursor_bytes(&c, 3);
	len = hdf5_get_len(w, &c);
	gaps = hdf5_get_len(w, &c);
	at = hdf5_get_addr(w, &c);
	if (version != 0)
		return hdf5_fail(w, -ENOTSUP, b.off, "a local heap of version %u", version);
	if (len > HDF5_BLOCK_MAX)
		return hdf5_fail(w, -EBADMSG, b.off, "a local heap of %" PRIu64 " bytes", len);
	r = hdf5_read_once(w, at, (size_t)len, "the names of a local heap", ret);
	none = w->len_bytes < 8 ? (UINT64_C(1) << 8 * w->len_bytes) - 1
				: UINT64_MAX; /* of a heap that is full, in old files */
	return r < 0 || gaps == none ? r : check_gaps(w, ret, gaps);
}

/* ---- the global heap */

struct hdf5_collection {
	uint64_t addr;
	struct hdf5_block b;
};

void hdf5_collection_free(struct hdf5_collection *c)
{
	if (c)
		hdf5_block_free(&c->b);
	free(c);
}

static int collection_bytes(struct hdf5_walk *w, uint64_t addr, size_t *ret_len)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	unsigned int version;
	struct cursor c;
	uint64_t len;
	int r = hdf5_read(w, addr, 8 + (size_t)w->len_bytes, "a collection of the global heap", &b);

	if (r < 0)
		return r;
	w->file->num_metadata--;
	c = cursor_make(b.data, b.len);
	r = hdf5_signature(w, &b, &c, "GCOL");
	if (r < 0)
		return r;
	version = cursor_u8(&c);
	(void)cursor_bytes(&c, 3);
	len = hdf5_get_len(w, &c);
	if (version != 1 || len > HDF5_BLOCK_MAX || len < b.len)
		return hdf5_fail(w, -EBADMSG, b.off, "an impossible collection of the global heap");
	*ret_len = (size_t)len;
	return 0;
}

static int collection_load(struct hdf5_walk *w, uint64_t addr)
{
	struct hdf5_collection *c;
	size_t len = 0;
	int r;

	if (w->collection && w->collection->addr == addr)
		return 0;
	hdf5_collection_free(w->collection);
	w->collection = NULL;
	r = collection_bytes(w, addr, &len);
	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->addr = addr;
	r = hdf5_read(w, addr, len, "a collection of the global heap", &c->b);
	if (r < 0)
		hdf5_collection_free(c);
	else
		w->collection = c;
	return r;
}

int hdf5_global_get(struct hdf5_walk *w, uint64_t addr, uint32_t index, const uint8_t **ret, size_t *ret_len)
{
	int r = collection_load(w, addr);
	struct cursor c;

	if (r < 0)
		return r;
	c = cursor_make(w->collection->b.data, w->collection->b.len);
	(void)cursor_bytes(&c, 8 + (size_t)w->len_bytes);
	while (cursor_left(&c) >= 8 + (size_t)w->len_bytes) {
		unsigned int is = cursor_u16(&c);
		uint64_t len;

		(void)cursor_bytes(&c, 6); /* references, padding */
		len = hdf5_get_len(w, &c);
		if (is == 0 || len > cursor_left(&c)) /* what is free comes last */
			break;
		*ret = cursor_bytes(&c, (size_t)len);
		*ret_len = (size_t)len;
		if (is == index)
			return 0;
		(void)cursor_bytes(&c, (8 - len % 8) % 8);
	}
	return hdf5_fail(w, -EBADMSG, w->collection->b.off, "no object %" PRIu32 " in this collection", index);
}
