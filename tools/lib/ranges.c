/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The extents of a file and the gaps between them as one unbroken row of ranges.
 */
#include "tools/lib/ranges.h"

#include <errno.h>
#include <stdlib.h>

#define EXTENTS_AT_ONCE 16384 /* each question of the index costs it a search of its own */

struct row {
	uint64_t at; /* up to here everything has been told */
	uint64_t backing_limit;
	int (*each)(const struct range *r, void *arg);
	void *arg;
};

const char *range_kind_name(enum range_kind kind)
{
	static const char *const names[] = {
		[RANGE_LOG] = "log",
		[RANGE_PRIVATE] = "private",
		[RANGE_BACKING] = "backing",
		[RANGE_HOLE] = "hole",
	};

	return (size_t)kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "?";
}

static int tell(struct row *row, enum range_kind kind, uint64_t end, const struct extent *ext)
{
	struct range r = { .kind = kind, .off = row->at, .len = end - row->at, .ext = ext };

	if (r.len == 0)
		return 0;
	row->at = end;
	return row->each(&r, row->arg);
}

/* No extent up to end: the backing file shows as far as it reaches, then zeros. */
static int tell_gap(struct row *row, uint64_t end)
{
	int r = 0;

	if (row->at < row->backing_limit)
		r = tell(row, RANGE_BACKING, end < row->backing_limit ? end : row->backing_limit, NULL);
	if (r == 0 && row->at < end)
		r = tell(row, RANGE_HOLE, end, NULL);
	return r;
}

static int tell_extent(struct row *row, const struct extent *e)
{
	static const enum range_kind kinds[] = {
		[EXTENT_LOG] = RANGE_LOG,
		[EXTENT_HOLE] = RANGE_HOLE,
		[EXTENT_BACKING] = RANGE_BACKING,
	};
	int r = e->off > row->at ? tell_gap(row, e->off) : 0;

	if (r != 0 || e->off < row->at || e->kind > EXTENT_BACKING)
		return r;
	return tell(row, kinds[e->kind], e->off + e->len, e);
}

static int tell_all(struct state *st, const struct inode *in, uint64_t size, struct row *row, struct extent *ext)
{
	uint64_t off = 0, next;
	size_t num;
	int r = 0;

	while (r == 0 && off < size) {
		r = state_extents(st, in->ino, off, size - off, ext, EXTENTS_AT_ONCE, &num, &next);
		for (size_t i = 0; r == 0 && i < num; i++)
			r = tell_extent(row, &ext[i]);
		if (next <= off)
			break;
		off = next;
	}
	return r == 0 && row->at < size ? tell_gap(row, size) : r;
}

int ranges_each(struct state *st, const struct inode *in, uint64_t size, int (*each)(const struct range *r, void *arg),
	void *arg)
{
	struct row row = { .backing_limit = in->backing_limit, .each = each, .arg = arg };
	struct extent *ext;
	int r;

	if (in->flags & INODE_PRIVATE)
		return tell(&row, RANGE_PRIVATE, size, NULL);
	ext = malloc(EXTENTS_AT_ONCE * sizeof(*ext));
	if (!ext)
		return -ENOMEM;
	r = tell_all(st, in, size, &row, ext);
	free(ext);
	return r;
}
