/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Has a file of the backing directory changed since it was looked at? Its size and mtime do not tell: mtime can be set back, and
 * is, by touch -r, cp -p, tar and rsync. ctime cannot. But a file system's clock has a grain: two changes within one grain
 * leave the same ctime. So a stamp that was taken so soon after a change that another one could hide in the same grain is not settled:
 * what was read under it is read again later, once: such a stamp differs from the one that the same file gives when it has settled.
 */
#include "fs/core/private.h"

#include "format/base/clock.h"

#define GRAIN_FINE_NS   100000000ll  /* a tick is 10 ms at most; servers' clocks differ a little from ours */
#define GRAIN_COARSE_NS 2000000000ll /* file systems that count seconds, or pairs of them */

#define CHANGING_USEC 10000000u /* so long a file that was seen to change is taken for one that will again */

static uint64_t mix(uint64_t h, uint64_t value)
{
	h = (h ^ value) * 0x9E3779B97F4A7C15ull;
	return h ^ h >> 29;
}

static bool counts_seconds(const struct stat *st)
{
	return st->st_ctim.tv_nsec == 0 && st->st_mtim.tv_nsec == 0;
}

uint64_t stamp_of(const struct stat *st)
{
	int64_t grain = counts_seconds(st) ? GRAIN_COARSE_NS : GRAIN_FINE_NS;
	uint64_t h = mix(mix(0, st->st_dev), st->st_ino);

	h = mix(mix(h, (uint64_t)st->st_size), (uint64_t)clock_ns_of(st->st_mtim));
	h = mix(h, (uint64_t)clock_ns_of(st->st_ctim));
	bool settled = clock_wall_ns() - clock_ns_of(st->st_ctim) > grain;
	return (h & ~(uint64_t)STAMP_SETTLED) | 2u | (settled ? STAMP_SETTLED : 0);
}

void stamp_see(struct node *n, const struct stat *st)
{
	uint64_t now = mix(mix(0, (uint64_t)st->st_size), (uint64_t)clock_ns_of(st->st_mtim)) | 1u;
	uint64_t before = atomic_exchange(&n->seen, now);

	if (before && before != now)
		n->changed_usec = clock_usec();
}

void stamp_forget(struct node *n)
{
	n->seen = 0;
}

bool stamp_is_changing(const struct node *n)
{
	uint64_t changed = n->changed_usec;

	return changed && clock_usec() - changed < CHANGING_USEC;
}
