/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The two images of a file. Every change through a call marks its sectors dirty; stores to a mapping cannot be seen,
 * so of mapped files the images are compared when it matters. Invariant: a sector that is not dirty, and was not
 * stored to through a mapping, is the same in both images.
 */
#include "tests/lib/sim_inode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/sim.h"

#define SECTOR      ((size_t)SIM_SECTOR_BYTES)
#define BLOCK       ((size_t)4096)
#define TORN_ONE_IN 64

static size_t round_up(uint64_t v, size_t unit)
{
	return (size_t)((v + unit - 1) / unit * unit);
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* splitmix64 (Steele, Lea, Flood 2014) */
uint64_t sim_random_next(struct sim_random *random)
{
	uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint64_t sim_random_below(struct sim_random *random, uint64_t limit)
{
	return sim_random_next(random) % limit;
}

int sim_inode_create(size_t limit, struct sim_inode **ret_inode)
{
	struct sim_inode *inode = calloc(1, sizeof(*inode));
	int r;

	if (!inode)
		return -ENOMEM;
	r = image_create(&inode->seen, limit);
	if (!r)
		r = image_create(&inode->disk, limit);
	if (r) {
		sim_inode_destroy(inode);
		return r;
	}
	*ret_inode = inode;
	return 0;
}

void sim_inode_destroy(struct sim_inode *inode)
{
	if (!inode)
		return;
	image_destroy(&inode->seen);
	image_destroy(&inode->disk);
	bits_destroy(&inode->dirty);
	bits_destroy(&inode->blocks);
	free(inode);
}

static int grow(struct sim_inode *inode, uint64_t off, uint64_t len)
{
	int r;

	if (off > inode->seen.limit || len > inode->seen.limit - off)
		return -EFBIG;
	r = image_grow(&inode->seen, (size_t)(off + len));
	if (!r)
		r = image_grow(&inode->disk, inode->seen.usable);
	if (!r)
		r = bits_grow(&inode->dirty, inode->seen.usable / SECTOR);
	return r ? r : bits_grow(&inode->blocks, inode->seen.usable / BLOCK);
}

static void mark_dirty(struct sim_inode *inode, uint64_t from, uint64_t to)
{
	if (from < to)
		bits_set_range(&inode->dirty, (size_t)from / SECTOR, round_up(to, SECTOR) / SECTOR);
}

/* A larger size. What a mapping holds past the old end, in its last page, does not become part of the file. */
static void grow_size(struct sim_inode *inode, uint64_t size)
{
	size_t page_end = round_up(inode->size, BLOCK);

	if (size <= inode->size)
		return;
	if (inode->maps && page_end <= inode->seen.usable)
		image_zero(&inode->seen, (size_t)inode->size, page_end);
	inode->size = size;
}

uint64_t sim_inode_missing(const struct sim_inode *inode, uint64_t off, uint64_t len)
{
	uint64_t missing = 0;

	for (uint64_t b = off / BLOCK; len > 0 && b <= (off + len - 1) / BLOCK; b++)
		missing += !bits_test(&inode->blocks, (size_t)b);
	return missing;
}

static void take_blocks(struct sim_inode *inode, uint64_t off, uint64_t len)
{
	bits_set_range(&inode->blocks, (size_t)(off / BLOCK), round_up(off + len, BLOCK) / BLOCK);
}

int sim_inode_write(struct sim_inode *inode, const void *buf, size_t len, uint64_t off)
{
	int r = grow(inode, off, len);

	if (r || len == 0)
		return r;
	grow_size(inode, off + len);
	memcpy(inode->seen.base + off, buf, len);
	mark_dirty(inode, off, off + len);
	take_blocks(inode, off, len);
	return 0;
}

size_t sim_inode_read(const struct sim_inode *inode, void *buf, size_t len, uint64_t off)
{
	if (off >= inode->size)
		return 0;
	if (len > inode->size - off)
		len = (size_t)(inode->size - off);
	memcpy(buf, inode->seen.base + off, len);
	return len;
}

int sim_inode_allocate(struct sim_inode *inode, uint64_t off, uint64_t len)
{
	int r = grow(inode, off, len);

	if (r)
		return r;
	grow_size(inode, off + len);
	take_blocks(inode, off, len);
	return 0;
}

void sim_inode_punch(struct sim_inode *inode, uint64_t off, uint64_t len)
{
	uint64_t end = off > inode->size || len > inode->size - off ? inode->size : off + len;

	if (off >= end)
		return;
	image_zero(&inode->seen, (size_t)off, (size_t)end);
	mark_dirty(inode, off, end);
	bits_clear_range(&inode->blocks, round_up(off, BLOCK) / BLOCK,
		end == inode->size ? round_up(end, BLOCK) / BLOCK : (size_t)end / BLOCK);
}

int sim_inode_truncate(struct sim_inode *inode, uint64_t size)
{
	int r = grow(inode, size, 0);

	if (r)
		return r;
	if (size < inode->size) {
		image_zero(&inode->seen, (size_t)size, (size_t)inode->size);
		mark_dirty(inode, size, inode->size);
		bits_clear_range(&inode->blocks, round_up(size, BLOCK) / BLOCK, SIZE_MAX);
	}
	grow_size(inode, size);
	inode->size = size;
	return 0;
}

/* Finds what stores to a mapping have changed: whole blocks first, then sectors. */
static void absorb(struct sim_inode *inode)
{
	size_t end = round_up(inode->size, SECTOR);

	if (!inode->maps)
		return;
	for (size_t at = 0; at < end; at += BLOCK) {
		size_t block_end = at + BLOCK < end ? at + BLOCK : end;

		if (memcmp(inode->seen.base + at, inode->disk.base + at, block_end - at) == 0)
			continue;
		for (size_t s = at; s < block_end; s += SECTOR)
			if (memcmp(inode->seen.base + s, inode->disk.base + s, SECTOR) != 0)
				bits_set(&inode->dirty, s / SECTOR);
	}
}

void sim_inode_unmap(struct sim_inode *inode)
{
	absorb(inode);
	inode->maps--;
}

/* Equal bytes are not copied: that would make memory of untouched pages. */
static void copy_bytes(uint8_t *to, const uint8_t *from, size_t len)
{
	if (memcmp(to, from, len) != 0)
		memcpy(to, from, len);
}

/* Bytes of a mapping past the end are nobody's. */
static void zero_past_end(struct sim_inode *inode)
{
	size_t end = round_up(max_u64(inode->size, inode->disk_size), SECTOR);

	if (inode->disk_size > inode->size)
		image_zero(&inode->disk, (size_t)inode->size, (size_t)inode->disk_size);
	if (end > inode->size && end <= inode->disk.usable)
		memset(inode->disk.base + inode->size, 0, end - (size_t)inode->size);
}

void sim_inode_sync(struct sim_inode *inode)
{
	absorb(inode);
	for (size_t s = bits_next(&inode->dirty, 0); s != SIZE_MAX; s = bits_next(&inode->dirty, s + 1))
		copy_bytes(inode->disk.base + s * SECTOR, inode->seen.base + s * SECTOR, SECTOR);
	bits_clear_range(&inode->dirty, 0, SIZE_MAX);
	zero_past_end(inode);
	inode->disk_size = inode->size;
}

int sim_inode_detach(struct sim_inode *inode, struct image *ret_old)
{
	struct image fresh;
	int r = image_create(&fresh, inode->seen.limit);

	if (r)
		return r;
	r = image_grow(&fresh, inode->seen.usable);
	if (r) {
		image_destroy(&fresh);
		return r;
	}
	absorb(inode);
	for (size_t at = 0; at < inode->size; at += BLOCK) {
		size_t len = inode->size - at < BLOCK ? (size_t)(inode->size - at) : BLOCK;

		copy_bytes(fresh.base + at, inode->seen.base + at, len);
	}
	*ret_old = inode->seen;
	inode->seen = fresh;
	inode->maps = 0;
	return 0;
}

/* Old, new, or between: a file grows in pieces. */
static uint64_t choose_size(const struct sim_inode *inode, struct sim_random *random)
{
	uint64_t chance = sim_random_below(random, 3);

	if (inode->size <= inode->disk_size)
		return chance ? inode->size : inode->disk_size;
	if (chance == 0)
		return inode->disk_size;
	return chance == 1 ? inode->size
			   : inode->disk_size + sim_random_below(random, inode->size - inode->disk_size + 1);
}

/* One sector's fate; percent is the chance that it was written. */
static void settle(struct sim_inode *inode, size_t s, uint64_t percent, struct sim_random *random)
{
	uint8_t *disk = inode->disk.base + s * SECTOR, *seen = inode->seen.base + s * SECTOR;
	bool kept = sim_random_below(random, 100) < percent;
	size_t half = SECTOR / 2, at = sim_random_below(random, 2) * half;

	if (sim_random_below(random, TORN_ONE_IN) == 0)
		copy_bytes(disk + at, seen + at, half);
	else if (kept)
		copy_bytes(disk, seen, SECTOR);
	copy_bytes(seen, disk, SECTOR);
	if (disk[0] || memcmp(disk, disk + 1, SECTOR - 1) != 0)
		bits_set(&inode->blocks, s * SECTOR / BLOCK);
}

/*
 * The chance is the file's: all that a device does to a file at an instant has a tendency, and histories in which
 * nothing, or all, of a file was written must be likely. A truncation that did not reach the disk has cleared nothing.
 */
void sim_inode_power_cut(struct sim_inode *inode, struct sim_random *random)
{
	static const unsigned char percents[] = { 0, 10, 50, 90, 100 };
	uint64_t percent = percents[sim_random_below(random, sizeof(percents))];
	uint64_t size = choose_size(inode, random);
	size_t cut = size > inode->size ? (size_t)(inode->size / SECTOR) : SIZE_MAX;

	for (size_t s = bits_next(&inode->dirty, 0); s != SIZE_MAX; s = bits_next(&inode->dirty, s + 1)) {
		if (s >= cut)
			copy_bytes(inode->seen.base + s * SECTOR, inode->disk.base + s * SECTOR, SECTOR);
		else
			settle(inode, s, percent, random);
	}
	bits_clear_range(&inode->dirty, 0, SIZE_MAX);
	bits_clear_range(&inode->blocks, round_up(size, BLOCK) / BLOCK, SIZE_MAX);
	image_zero(&inode->seen, (size_t)size, inode->seen.usable);
	image_zero(&inode->disk, (size_t)size, inode->disk.usable);
	inode->size = inode->disk_size = size;
}
