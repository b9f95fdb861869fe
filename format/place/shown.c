/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/place/shown.h"

#include "format/place/place.h"

#define NEW_BIT     (1ull << 52)
#define HASH_BIT    (1ull << 51)
#define NODE_SHIFT  36u
#define COUNTER_MAX ((1ull << NODE_SHIFT) - 1)

static uint64_t hash_of(uint64_t x)
{
	x = (x ^ x >> 31) * 0x9E3779B97F4A7C15ull;
	x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9ull;
	return x ^ x >> 32;
}

/* A node that made 2^36 files would begin anew: its oldest are long drained, and shown by their backing files' numbers at the next mount. */
static uint64_t number_of_new(uint64_t ino)
{
	return NEW_BIT | ino >> PLACE_INO_SHIFT << NODE_SHIFT | (ino & COUNTER_MAX);
}

uint64_t shown_number(uint64_t ino)
{
	uint64_t backing = ino & ~STATE_BACKING_INO_BIT;

	if (ino <= STATE_ROOT_INO)
		return ino;
	if (!(ino & STATE_BACKING_INO_BIT))
		return number_of_new(ino);
	return backing < HASH_BIT ? backing : HASH_BIT | (hash_of(backing) & (HASH_BIT - 1));
}

bool shown_inode(uint64_t shown, uint64_t *ret)
{
	if (shown >= NEW_BIT << 1 || (shown >= HASH_BIT && shown < NEW_BIT))
		return false;
	if (shown <= STATE_ROOT_INO)
		*ret = shown;
	else if (shown < HASH_BIT)
		*ret = STATE_BACKING_INO_BIT | shown;
	else
		*ret = (shown & ~NEW_BIT) >> NODE_SHIFT << PLACE_INO_SHIFT | (shown & COUNTER_MAX);
	return true;
}
