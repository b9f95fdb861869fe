/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Fractal heaps (specification III.G): where groups of many members, objects of many attributes and shared messages keep
 * their bytes. The doubling table is walked when the heap is opened and gives a list of blocks by their place in the heap's
 * own numbering; blocks are read when an object in them is asked for, and kept.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

#define BLOCKS_MAX    (1u << 20)
#define KEPT_BYTES    (64u << 20) /* of blocks; then all are dropped */
#define CHECKSUMMED   2u          /* flag: direct blocks have checksums */
#define ID_KIND(b)    ((b) >> 4 & 3)
#define ID_VERSION(b) ((b) >> 6)

struct heap_block {
	uint64_t at, bytes, addr;
	struct hdf5_block data; /* empty until it is needed */
};

struct hdf5_heap {
	uint64_t addr;
	unsigned int id_bytes, flags, offset_bytes, length_bytes;
	uint64_t start_bytes, direct_bytes; /* of the smallest and the largest direct block */
	uint32_t width;
	unsigned int heap_bits;
	struct heap_block *blocks; /* owned; sorted by at */
	size_t num, cap;
	size_t kept_bytes;
};

void hdf5_heap_close(struct hdf5_heap *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < h->num; i++)
		hdf5_block_free(&h->blocks[i].data);
	free(h->blocks);
	free(h);
}

unsigned int hdf5_heap_id_bytes(const struct hdf5_heap *h)
{
	return h->id_bytes;
}

static int add_block(struct hdf5_walk *w, struct hdf5_heap *h, uint64_t at, uint64_t bytes, uint64_t addr)
{
	if (array_room(&h->blocks, &h->cap, h->num, sizeof(*h->blocks)) < 0)
		return -ENOMEM;
	if (h->num == BLOCKS_MAX)
		return hdf5_fail(w, -EBADMSG, hdf5_off(w, addr, 0), "a heap of more than %u blocks", BLOCKS_MAX);
	h->blocks[h->num++] = (struct heap_block){ .at = at, .bytes = bytes, .addr = addr };
	return 0;
}

/* ---- the doubling table */

static uint64_t row_bytes(const struct hdf5_heap *h, unsigned int row) /* of one block in it */
{
	return row == 0 ? h->start_bytes : h->start_bytes << (row - 1);
}

static unsigned int direct_rows(const struct hdf5_heap *h)
{
	return hdf5_log2(h->direct_bytes) - hdf5_log2(h->start_bytes) + 2;
}

static int indirect(struct hdf5_walk *w, struct hdf5_heap *h, uint64_t addr, uint64_t at, unsigned int rows);

static int children(struct hdf5_walk *w, struct hdf5_heap *h, const struct hdf5_block *b, struct cursor *c, uint64_t at,
	unsigned int rows)
{
	int r = 0;

	for (unsigned int row = 0; row < rows; row++) {
		uint64_t bytes = row_bytes(h, row);

		for (uint32_t i = 0; r == 0 && i < h->width; i++, at += bytes) {
			uint64_t child = hdf5_get_addr(w, c);

			if (!cursor_ok(c))
				return hdf5_fail(w, -EBADMSG, b->off, "a heap's block is cut short");
			if (child == HDF5_NOWHERE)
				continue;
			if (row < direct_rows(h))
				r = add_block(w, h, at, bytes, child);
			else
				r = indirect(
					w, h, child, at, hdf5_log2(bytes) - hdf5_log2(h->start_bytes * h->width) + 1);
		}
		if (r < 0)
			break;
	}
	return r;
}

static int indirect(struct hdf5_walk *w, struct hdf5_heap *h, uint64_t addr, uint64_t at, unsigned int rows)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	size_t begin = 5 + (size_t)w->addr_bytes + h->offset_bytes;
	uint64_t owner, place;
	struct cursor c;
	int r;

	if (rows > h->heap_bits)
		return hdf5_fail(w, -EBADMSG, hdf5_off(w, addr, 0), "a heap's block of %u rows", rows);
	r = hdf5_read_once(w, addr, begin + (size_t)rows * h->width * w->addr_bytes + 4, "a heap's block", &b);
	if (r < 0)
		return r;
	c = cursor_make(b.data, b.len);
	r = hdf5_signature(w, &b, &c, "FHIB");
	if (r == 0)
		r = hdf5_check(w, &b);
	if (r < 0)
		return r;
	(void)cursor_u8(&c);
	owner = hdf5_get_addr(w, &c);
	place = hdf5_uint(&c, h->offset_bytes);
	if (owner != h->addr || place != at)
		return hdf5_fail(w, -EBADMSG, b.off, "a block of another heap, or of another place in it");
	return children(w, h, &b, &c, at, rows);
}

/* ---- opening */

static bool is_power(uint64_t v)
{
	return v > 0 && (v & (v - 1)) == 0;
}

static int check_head(struct hdf5_walk *w, const struct hdf5_heap *h, const struct hdf5_block *b, unsigned int rows)
{
	if (h->width == 0 || !is_power(h->width) || !is_power(h->start_bytes) || !is_power(h->direct_bytes) ||
		h->direct_bytes < h->start_bytes || h->direct_bytes > HDF5_BLOCK_MAX || h->heap_bits > 64 ||
		h->heap_bits == 0 || rows > h->heap_bits || h->id_bytes < 2 || h->id_bytes > 4096 ||
		hdf5_log2(h->start_bytes) + hdf5_log2(h->width) > h->heap_bits || hdf5_log2(h->start_bytes) + rows > 63)
		return hdf5_fail(w, -EBADMSG, b->off, "an impossible heap");
	return 0;
}

static int head(struct hdf5_walk *w, struct hdf5_heap *h, const struct hdf5_block *b, struct cursor *c)
{
	unsigned int version = cursor_u8(c), filters, rows, least;
	uint64_t object_bytes, root;
	int r;

	h->id_bytes = cursor_u16(c);
	filters = cursor_u16(c);
	h->flags = cursor_u8(c);
	object_bytes = cursor_u32(c);
	(void)cursor_bytes(
		c, 10 * (size_t)w->len_bytes + 2 * (size_t)w->addr_bytes); /* huge and tiny objects, free space */
	h->width = cursor_u16(c);
	h->start_bytes = hdf5_get_len(w, c);
	h->direct_bytes = hdf5_get_len(w, c);
	h->heap_bits = cursor_u16(c);
	(void)cursor_u16(c); /* rows to begin with */
	root = hdf5_get_addr(w, c);
	rows = cursor_u16(c);
	if (version != 0 || filters != 0)
		return hdf5_fail(w, -ENOTSUP, b->off, "a heap %s", filters ? "with filters" : "of another version");
	r = check_head(w, h, b, rows);
	if (r < 0)
		return r;
	h->offset_bytes = (h->heap_bits + 7) / 8;
	least = (hdf5_log2(h->direct_bytes) + 7) / 8;
	h->length_bytes = hdf5_width(object_bytes);
	if (h->length_bytes > least)
		h->length_bytes = least;
	if (root == HDF5_NOWHERE)
		return 0;
	return rows == 0 ? add_block(w, h, 0, h->start_bytes, root) : indirect(w, h, root, 0, rows);
}

/* How long the head is: with filters it tells of them, too. */
static int head_bytes(struct hdf5_walk *w, uint64_t addr, size_t *ret_len)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	unsigned int filters;
	struct cursor c;
	int r = hdf5_read(w, addr, 10, "the head of a heap", &b);

	if (r < 0)
		return r;
	w->file->num_metadata--;
	c = cursor_make(b.data, b.len);
	r = hdf5_signature(w, &b, &c, "FRHP");
	(void)cursor_bytes(&c, 3);
	filters = cursor_u16(&c);
	*ret_len = 26 + 12 * (size_t)w->len_bytes + 3 * (size_t)w->addr_bytes;
	*ret_len += filters > 0 ? w->len_bytes + 4 + filters : 0;
	return r;
}

int hdf5_heap_open(struct hdf5_walk *w, uint64_t addr, struct hdf5_heap **ret)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	struct hdf5_heap *h;
	struct cursor c;
	size_t len;
	int r = head_bytes(w, addr, &len);

	if (r == 0)
		r = hdf5_read_once(w, addr, len, "the head of a heap", &b);
	if (r == 0)
		r = hdf5_check(w, &b);
	if (r < 0)
		return r;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->addr = addr;
	c = cursor_make(b.data + 4, b.len - 4);
	r = head(w, h, &b, &c);
	if (r < 0)
		hdf5_heap_close(h);
	else
		*ret = h;
	return r;
}

/* ---- objects */

/* The checksum of a direct block is computed with its own four bytes as zeros. */
static int check_direct(struct hdf5_walk *w, const struct hdf5_heap *h, struct hdf5_block *b, size_t at)
{
	struct cursor c = cursor_make(b->data + at, 4);
	uint32_t said = cursor_u32(&c);

	if (!(h->flags & CHECKSUMMED))
		return 0;
	memset(b->data + at, 0, 4);
	return hdf5_checksum_is(b->data, b->len, said)
		       ? 0
		       : hdf5_fail(w, -EBADMSG, b->off, "the checksum of a heap's block is wrong");
}

static void drop(struct hdf5_heap *h)
{
	for (size_t i = 0; i < h->num; i++)
		hdf5_block_free(&h->blocks[i].data);
	h->kept_bytes = 0;
}

static int load(struct hdf5_walk *w, struct hdf5_heap *h, struct heap_block *block)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	size_t begin = 5 + (size_t)w->addr_bytes + h->offset_bytes;
	uint64_t owner, place;
	struct cursor c;
	int r;

	if (block->data.data)
		return 0;
	if (h->kept_bytes + block->bytes > KEPT_BYTES)
		drop(h);
	r = hdf5_read(w, block->addr, (size_t)block->bytes, "a heap's block", &b);
	if (r < 0)
		return r;
	c = cursor_make(b.data, b.len);
	r = hdf5_signature(w, &b, &c, "FHDB");
	if (r < 0)
		return r;
	(void)cursor_u8(&c);
	owner = hdf5_get_addr(w, &c);
	place = hdf5_uint(&c, h->offset_bytes);
	if (!cursor_ok(&c) || cursor_left(&c) < 4 || owner != h->addr || place != block->at)
		return hdf5_fail(w, -EBADMSG, b.off, "a block of another heap, or of another place in it");
	r = check_direct(w, h, &b, begin);
	if (r < 0)
		return r;
	h->kept_bytes += b.len;
	block->data = b;
	b = (struct hdf5_block){ 0 };
	return 0;
}

static struct heap_block *block_of(struct hdf5_heap *h, uint64_t at)
{
	size_t low = 0, high = h->num;

	while (low < high) { /* the last one that begins at or before */
		size_t middle = low + (high - low) / 2;

		if (h->blocks[middle].at <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 && at - h->blocks[low - 1].at < h->blocks[low - 1].bytes ? &h->blocks[low - 1] : NULL;
}

static int managed(struct hdf5_walk *w, struct hdf5_heap *h, struct cursor *c, const uint8_t **ret, size_t *ret_len,
	uint64_t *ret_off)
{
	uint64_t at = hdf5_uint(c, h->offset_bytes), len = hdf5_uint(c, h->length_bytes);
	struct heap_block *b = cursor_ok(c) ? block_of(h, at) : NULL;
	int r;

	if (!b || len > b->bytes - (at - b->at))
		return hdf5_fail(w, -EBADMSG, hdf5_off(w, h->addr, 0),
			"no block of this heap has its object at %" PRIu64 " of %" PRIu64 " bytes", at, len);
	r = load(w, h, b);
	if (r < 0)
		return r;
	*ret = b->data.data + (at - b->at);
	*ret_len = (size_t)len;
	*ret_off = b->data.off + (at - b->at);
	return 0;
}

int hdf5_heap_get(struct hdf5_walk *w, struct hdf5_heap *h, const uint8_t *id, const uint8_t **ret, size_t *ret_len,
	uint64_t *ret_off)
{
	struct cursor c = cursor_make(id, h->id_bytes);
	unsigned int first = cursor_u8(&c);

	if (ID_VERSION(first) == 0 && ID_KIND(first) == 0)
		return managed(w, h, &c, ret, ret_len, ret_off);
	if (ID_VERSION(first) == 0 && ID_KIND(first) == 2 && h->id_bytes <= 17) { /* in the identifier itself */
		*ret_len = (first & 15) + 1u;
		*ret = cursor_bytes(&c, *ret_len);
		*ret_off = hdf5_off(w, h->addr, 0);
		if (*ret)
			return 0;
		return hdf5_fail(w, -EBADMSG, *ret_off, "an impossible object of a heap");
	}
	return hdf5_fail(w, -ENOTSUP, hdf5_off(w, h->addr, 0), "an object of a heap that is stored outside of it");
}
