/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A metadata cache image: at closing HDF5 may put the metadata blocks that it had in memory into one block of the file, beside
 * each its address, and leave their places in the file as they are. The next opening takes them from there. Here the image is
 * laid over the file's bytes: whoever reads an address that a block of the image has, gets the image's bytes.
 *
 * The block: "MDCI", version (0), flags, length of all, number of blocks; each block: 16 bytes of what the cache needs, its
 * address, its length, addresses of blocks that are to be written after it, its bytes; a checksum of all.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

#define CACHE_BYTES 6u /* type, flags, ring, age, children */

struct image_entry {
	uint64_t off, len;   /* in the file, as its address says */
	const uint8_t *data; /* in the image */
};

struct hdf5_image {
	struct hdf5_block block;     /* the whole image */
	struct image_entry *entries; /* owned; sorted by off, without overlaps */
	size_t num, cap;
};

void hdf5_image_free(struct hdf5_image *i)
{
	if (!i)
		return;
	hdf5_block_free(&i->block);
	free(i->entries);
	free(i);
}

static int by_off(const void *a, const void *b)
{
	const struct image_entry *x = a, *y = b;

	return (x->off > y->off) - (x->off < y->off);
}

static int add_entry(struct hdf5_walk *w, struct hdf5_image *i, struct cursor *c)
{
	struct image_entry e;
	uint64_t addr, parents;

	(void)cursor_bytes(c, CACHE_BYTES + 2);
	parents = cursor_u16(c);
	(void)cursor_u32(c); /* its place in the cache's list */
	addr = hdf5_get_addr(w, c);
	e.len = hdf5_get_len(w, c);
	(void)cursor_bytes(c, (size_t)parents * w->addr_bytes);
	e.data = e.len <= cursor_left(c) ? cursor_bytes(c, (size_t)e.len) : NULL;
	e.off = w->base + addr;
	if (!e.data || addr == HDF5_NOWHERE || e.off < addr || e.len > UINT64_MAX - e.off)
		return hdf5_fail(w, -EBADMSG, i->block.off, "a metadata cache image with an impossible block");
	if (array_room(&i->entries, &i->cap, i->num, sizeof(*i->entries)) < 0)
		return -ENOMEM;
	i->entries[i->num++] = e;
	return 0;
}

static int check_overlaps(struct hdf5_walk *w, struct hdf5_image *i)
{
	if (i->num > 1)
		qsort(i->entries, i->num, sizeof(*i->entries), by_off);
	for (size_t k = 1; k < i->num; k++)
		if (i->entries[k].off - i->entries[k - 1].off < i->entries[k - 1].len)
			return hdf5_fail(w, -EBADMSG, i->block.off,
				"a metadata cache image has two blocks for the bytes at offset %" PRIu64,
				i->entries[k].off);
	return 0;
}

static int decode(struct hdf5_walk *w, struct hdf5_image *i)
{
	struct cursor c = cursor_make(i->block.data, i->block.len);
	unsigned int version;
	uint32_t num;
	int r = hdf5_signature(w, &i->block, &c, "MDCI");

	version = cursor_u8(&c);
	if (r == 0 && version != 0)
		r = hdf5_fail(w, -ENOTSUP, i->block.off, "a metadata cache image of version %u", version);
	if (r == 0)
		r = hdf5_check(w, &i->block);
	(void)cursor_u8(&c);
	(void)hdf5_get_len(w, &c);
	num = cursor_u32(&c);
	for (uint32_t k = 0; r == 0 && k < num; k++)
		r = add_entry(w, i, &c);
	return r == 0 ? check_overlaps(w, i) : r;
}

int hdf5_image_load(struct hdf5_walk *w, const struct hdf5_message *m)
{
	struct cursor c = cursor_make(m->data, m->len);
	unsigned int version = cursor_u8(&c);
	uint64_t addr = hdf5_get_addr(w, &c), len = hdf5_get_len(w, &c);
	struct hdf5_image *i;
	int r;

	if (!cursor_ok(&c) || version != 0)
		return hdf5_fail(w, -ENOTSUP, m->off, "a metadata cache image message of version %u", version);
	if (addr == HDF5_NOWHERE || len == 0)
		return 0; /* it was taken in, and the message left */
	i = calloc(1, sizeof(*i));
	if (!i)
		return -ENOMEM;
	r = len > HDF5_BLOCK_MAX ? hdf5_fail(w, -ENOTSUP, m->off, "a metadata cache image of %" PRIu64 " bytes", len)
				 : hdf5_read_once(w, addr, (size_t)len, "a metadata cache image", &i->block);
	if (r == 0)
		r = decode(w, i);
	if (r < 0)
		hdf5_image_free(i);
	else
		w->image = i;
	return r;
}

void hdf5_image_lay_over(const struct hdf5_image *i, uint64_t off, uint8_t *data, size_t len)
{
	size_t low = 0, high = i->num;

	while (low < high) { /* the first one that ends behind off */
		size_t middle = low + (high - low) / 2;

		if (i->entries[middle].off + i->entries[middle].len <= off)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < i->num && i->entries[low].off < off + len; low++) {
		const struct image_entry *e = &i->entries[low];
		uint64_t from = e->off > off ? e->off : off,
			 end = e->off + e->len < off + len ? e->off + e->len : off + len;

		memcpy(data + (from - off), e->data + (from - e->off), (size_t)(end - from));
	}
}
