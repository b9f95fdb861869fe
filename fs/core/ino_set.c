/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A set of inode numbers: a table of slots of which at most half are taken,
 * each number in the first free one from its own on. */
#include <errno.h>
#include <stdlib.h>

#include "fs/core/private.h"

#define FIRST_SLOTS 64u

/* Where ino is, or would be. */
static uint64_t *slot_of(const struct ino_set *set, uint64_t ino)
{
	size_t at = (size_t)(ino * 0x9E3779B97F4A7C15ull >> 20) & (set->cap - 1);

	while (set->at[at] && set->at[at] != ino)
		at = (at + 1) & (set->cap - 1);
	return &set->at[at];
}

static int grow(struct ino_set *set)
{
	struct ino_set larger = { .num = set->num, .cap = set->cap ? 2 * set->cap : FIRST_SLOTS };

	larger.at = calloc(larger.cap, sizeof(*larger.at));
	if (!larger.at)
		return -ENOMEM;
	for (size_t i = 0; i < set->cap; i++)
		if (set->at[i])
			*slot_of(&larger, set->at[i]) = set->at[i];
	free(set->at);
	*set = larger;
	return 0;
}

bool ino_set_has(const struct ino_set *set, uint64_t ino)
{
	return set->num && ino && *slot_of(set, ino) == ino;
}

int ino_set_add(struct ino_set *set, uint64_t ino)
{
	uint64_t *slot;

	if (2 * set->num >= set->cap && grow(set) < 0)
		return -ENOMEM;
	slot = slot_of(set, ino);
	set->num += *slot != ino;
	*slot = ino;
	return 0;
}

size_t ino_set_list(const struct ino_set *set, uint64_t *out, size_t cap)
{
	size_t num = 0;

	for (size_t i = 0; i < set->cap && num < cap; i++)
		if (set->at[i])
			out[num++] = set->at[i];
	return set->num;
}

void ino_set_clear(struct ino_set *set)
{
	free(set->at);
	*set = (struct ino_set){ 0 };
}
