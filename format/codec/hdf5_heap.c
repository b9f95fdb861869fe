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
	uint64_t stored;        /* bytes in the file; without filters: bytes */
	uint32_t skipped;       /* filters that were left out */
	struct hdf5_block data; /* empty until it is needed */
};

/* Too large for the heap's blocks: somewhere in the file. */
struct huge {
	uint64_t addr, stored;
	uint64_t bytes; /* before filters */
	uint32_t skipped;
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
	struct hdf5_pipeline filters;
	uint64_t huge_tree;      /* address of the B-tree of huge objects */
	bool huge_known;         /* it has been read */
	struct hdf5_map huge_of; /* identifier -> number of the huge object */
	struct huge *huge;       /* owned */
	size_t num_huge, cap_huge;
	struct hdf5_block huge_data; /* of the one that was last asked for */
};

void hdf5_heap_close(struct hdf5_heap *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < h->num; i++)
		hdf5_block_free(&h->blocks[i].data);
	free(h->blocks);
	hdf5_map_free(&h->huge_of);
	free(h->huge);
	hdf5_block_free(&h->huge_data);
	free(h);
}

unsigned int hdf5_heap_id_bytes(const struct hdf5_heap *h)
{
	return h->id_bytes;
}

static int add_block(struct hdf5_walk *w, struct hdf5_heap *h, const struct heap_block *block)
{
	if (array_room(&h->blocks, &h->cap, h->num, sizeof(*h->blocks)) < 0)
		return -ENOMEM;
	if (h->num == BLOCKS_MAX)
		return hdf5_fail(w, -EBADMSG, hdf5_off(w, block->addr, 0), "a heap of more than %u blocks", BLOCKS_MAX);
	h->blocks[h->num++] = *block;
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

/* With filters, direct blocks have the bytes that are stored, and which filters were left out, behind their address. */
static void get_child(const struct hdf5_walk *w, const struct hdf5_heap *h, struct cursor *c, unsigned int row,
	struct heap_block *ret)
{
	ret->addr = hdf5_get_addr(w, c);
	if (h->filters.num == 0 || row >= direct_rows(h))
		return;
	ret->stored = hdf5_get_len(w, c);
	ret->skipped = cursor_u32(c);
}

static size_t children_bytes(const struct hdf5_walk *w, const struct hdf5_heap *h, unsigned int rows)
{
	unsigned int direct = rows < direct_rows(h) ? rows : direct_rows(h);
	size_t more = h->filters.num > 0 ? w->len_bytes + 4u : 0;

	return ((size_t)rows * w->addr_bytes + direct * more) * h->width;
}

static int children(struct hdf5_walk *w, struct hdf5_heap *h, const struct hdf5_block *b, struct cursor *c, uint64_t at,
	unsigned int rows)
{
	int r = 0;

	for (unsigned int row = 0; row < rows; row++) {
		uint64_t bytes = row_bytes(h, row);

		for (uint32_t i = 0; r == 0 && i < h->width; i++, at += bytes) {
			struct heap_block child = { .at = at, .bytes = bytes, .stored = bytes };

			get_child(w, h, c, row, &child);
			if (!cursor_ok(c))
				return hdf5_fail(w, -EBADMSG, b->off, "a heap's block is cut short");
			if (child.addr == HDF5_NOWHERE)
				continue;
			if (row < direct_rows(h))
				r = add_block(w, h, &child);
			else
				r = indirect(w, h, child.addr, at,
					hdf5_log2(bytes) - hdf5_log2(h->start_bytes * h->width) + 1);
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
	r = hdf5_read_once(w, addr, begin + children_bytes(w, h, rows) + 4, "a heap's block", &b);
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

/* What is behind all else when there are filters: the root block's stored bytes, when it is a direct one, and the filters. */
static int head_filters(struct hdf5_walk *w, struct hdf5_heap *h, const struct hdf5_block *b, struct cursor *c,
	size_t len, struct heap_block *root)
{
	struct hdf5_message m = { .type = HDF5_MSG_FILTERS, .len = len };

	if (len == 0)
		return 0;
	root->stored = hdf5_get_len(w, c);
	root->skipped = cursor_u32(c);
	m.off = b->off + (uint64_t)(c->at - b->data);
	m.data = cursor_bytes(c, len);
	return m.data ? hdf5_filters_decode(w, &m, &h->filters)
		      : hdf5_fail(w, -EBADMSG, b->off, "the head of a heap is cut short");
}

static int head_sizes(struct hdf5_walk *w, struct hdf5_heap *h, const struct hdf5_block *b, struct cursor *c,
	uint64_t *ret_root, unsigned int *ret_rows)
{
	h->width = cursor_u16(c);
	h->start_bytes = hdf5_get_len(w, c);
	h->direct_bytes = hdf5_get_len(w, c);
	h->heap_bits = cursor_u16(c);
	(void)cursor_u16(c); /* rows to begin with */
	*ret_root = hdf5_get_addr(w, c);
	*ret_rows = cursor_u16(c);
	return check_head(w, h, b, *ret_rows);
}

static int head(struct hdf5_walk *w, struct hdf5_heap *h, const struct hdf5_block *b, struct cursor *c)
{
	unsigned int version = cursor_u8(c), filters, rows, least;
	struct heap_block root = { 0 };
	uint64_t object_bytes;
	int r;

	h->id_bytes = cursor_u16(c);
	filters = cursor_u16(c);
	h->flags = cursor_u8(c);
	object_bytes = cursor_u32(c);
	(void)hdf5_get_len(w, c); /* the next huge object */
	h->huge_tree = hdf5_get_addr(w, c);
	(void)cursor_bytes(c, 9 * (size_t)w->len_bytes + w->addr_bytes); /* free space, statistics */
	if (version != 0)
		return hdf5_fail(w, -ENOTSUP, b->off, "a heap of version %u", version);
	r = head_sizes(w, h, b, c, &root.addr, &rows);
	root.bytes = root.stored = h->start_bytes;
	if (r == 0)
		r = head_filters(w, h, b, c, filters, &root);
	if (r < 0)
		return r;
	h->offset_bytes = (h->heap_bits + 7) / 8;
	least = (hdf5_log2(h->direct_bytes) + 7) / 8;
	h->length_bytes = hdf5_width(object_bytes);
	if (h->length_bytes > least)
		h->length_bytes = least;
	if (root.addr == HDF5_NOWHERE)
		return 0;
	return rows == 0 ? add_block(w, h, &root) : indirect(w, h, root.addr, 0, rows);
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
	if (block->stored > HDF5_BLOCK_MAX)
		return hdf5_fail(
			w, -EBADMSG, hdf5_off(w, block->addr, 0), "a heap's block of %" PRIu64 " bytes", block->stored);
	r = hdf5_read(w, block->addr, (size_t)block->stored, "a heap's block", &b);
	if (r == 0)
		r = hdf5_unfilter(w, &h->filters, block->skipped, (size_t)block->bytes, &b);
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
	*ret_off = b->data.off + (h->filters.num > 0 ? 0 : at - b->at);
	return 0;
}

/* ---- huge objects */

/* Where it is, how long, and with filters which were left out and how long it is without them; then, in a tree, its identifier. */
static void get_huge(const struct hdf5_walk *w, const struct hdf5_heap *h, struct cursor *c, struct huge *ret)
{
	*ret = (struct huge){ .addr = hdf5_get_addr(w, c), .stored = hdf5_get_len(w, c) };
	ret->bytes = ret->stored;
	if (h->filters.num == 0)
		return;
	ret->skipped = cursor_u32(c);
	ret->bytes = hdf5_get_len(w, c);
}

static int huge_record(struct hdf5_walk *w, const uint8_t *record, size_t len, uint64_t off, void *arg)
{
	struct hdf5_heap *h = arg;
	struct cursor c = cursor_make(record, len);
	struct huge one;
	int r;

	get_huge(w, h, &c, &one);
	if (array_room(&h->huge, &h->cap_huge, h->num_huge, sizeof(*h->huge)) < 0)
		return -ENOMEM;
	r = hdf5_map_set(&h->huge_of, hdf5_get_len(w, &c), h->num_huge);
	if (r == -ENOMEM)
		return r;
	if (r < 0 || !cursor_ok(&c) || cursor_left(&c) > 0)
		return hdf5_fail(w, -EBADMSG, off, "an impossible record of a heap's huge object");
	h->huge[h->num_huge++] = one;
	return 0;
}

/* The identifier has the place itself where that fits in, else a number that the tree knows. */
static int find_huge(struct hdf5_walk *w, struct hdf5_heap *h, struct cursor *c, struct huge *ret)
{
	size_t place = w->addr_bytes + w->len_bytes + (h->filters.num > 0 ? 4u + w->len_bytes : 0);
	uint64_t id, number;
	int r = 0;

	if (cursor_left(c) >= place) {
		get_huge(w, h, c, ret);
		return 0;
	}
	if (!h->huge_known)
		r = hdf5_tree2(w, h->huge_tree, h->filters.num > 0 ? 2 : 1, huge_record, h);
	if (r < 0)
		return r;
	h->huge_known = true;
	id = hdf5_uint(c, cursor_left(c) < 8 ? (unsigned int)cursor_left(c) : 8);
	if (id == UINT64_MAX || !hdf5_map_get(&h->huge_of, id, &number))
		return hdf5_fail(w, -EBADMSG, hdf5_off(w, h->addr, 0), "this heap has no huge object %" PRIu64, id);
	*ret = h->huge[number];
	return 0;
}

/* Without filters its beginning is enough; all of it is the format's own. */
static int read_huge(struct hdf5_walk *w, struct hdf5_heap *h, const struct huge *o)
{
	uint64_t len = o->stored, off = hdf5_off(w, o->addr, o->stored);
	int r;

	hdf5_block_free(&h->huge_data);
	if (off == HDF5_NOWHERE || o->addr == HDF5_NOWHERE)
		return hdf5_fail(w, -ENODATA, hdf5_off(w, h->addr, 0),
			"a huge object of %" PRIu64 " bytes at address %" PRIu64
			" would lie behind the end of the file",
			len, o->addr);
	if (h->filters.num == 0 && len > HDF5_HUGE_READ)
		len = HDF5_HUGE_READ;
	if (len > HDF5_BLOCK_MAX || o->bytes > HDF5_BLOCK_MAX)
		return hdf5_fail(w, h->filters.num == 0 ? -EBADMSG : -ENOTSUP, off,
			"a filtered object of %" PRIu64 " bytes", o->bytes);
	r = hdf5_read(w, o->addr, (size_t)len, "a huge object", &h->huge_data);
	if (r == 0 && len < o->stored)
		r = hdf5_note_metadata(w, off, o->stored);
	return r < 0 || h->filters.num == 0
		       ? r
		       : hdf5_unfilter(w, &h->filters, o->skipped, (size_t)o->bytes, &h->huge_data);
}

static int huge(struct hdf5_walk *w, struct hdf5_heap *h, struct cursor *c, const uint8_t **ret, size_t *ret_len,
	uint64_t *ret_off)
{
	struct huge o;
	int r = find_huge(w, h, c, &o);

	if (r == 0)
		r = read_huge(w, h, &o);
	if (r < 0)
		return r;
	*ret = h->huge_data.data;
	*ret_len = h->huge_data.len;
	*ret_off = h->huge_data.off;
	return 0;
}

/* ---- objects of all kinds */

/* In the identifier itself; long identifiers have a longer length. */
static int tiny(struct hdf5_walk *w, const struct hdf5_heap *h, unsigned int first, struct cursor *c,
	const uint8_t **ret, size_t *ret_len, uint64_t *ret_off)
{
	size_t len = first & 15;

	if (h->id_bytes > 17)
		len = len << 8 | cursor_u8(c);
	*ret_len = len + 1;
	*ret = cursor_bytes(c, *ret_len);
	*ret_off = hdf5_off(w, h->addr, 0);
	return *ret ? 0 : hdf5_fail(w, -EBADMSG, *ret_off, "an impossible object of a heap");
}

int hdf5_heap_get(struct hdf5_walk *w, struct hdf5_heap *h, const uint8_t *id, const uint8_t **ret, size_t *ret_len,
	uint64_t *ret_off)
{
	struct cursor c = cursor_make(id, h->id_bytes);
	unsigned int first = cursor_u8(&c);

	if (ID_VERSION(first) == 0 && ID_KIND(first) == 0)
		return managed(w, h, &c, ret, ret_len, ret_off);
	if (ID_VERSION(first) == 0 && ID_KIND(first) == 1)
		return huge(w, h, &c, ret, ret_len, ret_off);
	if (ID_VERSION(first) == 0 && ID_KIND(first) == 2)
		return tiny(w, h, first, &c, ret, ret_len, ret_off);
	return hdf5_fail(w, -EBADMSG, hdf5_off(w, h->addr, 0), "an object of a heap of no known kind");
}
