/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Has a file of the backing directory changed since it was looked at? Its size and mtime do not tell: mtime can be set back, and
 * is, by touch -r, cp -p, tar and rsync. ctime cannot. But a file system's clock has a grain: two changes within one grain
 * leave the same ctime. So a stamp that was taken so soon after a change that another one could hide in the same grain is not settled:
 * what was read under it is read again later, once.
 */
#include "fs/core/private.h"

#include "format/base/clock.h"

#define GRAIN_FINE_NS   100000000ll  /* a tick is 10 ms at most; servers' clocks differ a little from ours */
#define GRAIN_COARSE_NS 2000000000ll /* file systems that count seconds, or pairs of them */

static uint64_t mix(uint64_t h, uint64_t value)
{
	h = (h ^ value) * 0x9E3779B97F4A7C15ull;
	return h ^ h >> 29;
}

static bool counts_seconds(const struct stat *st)
{
	return st->st_ctim.tv_nsec == 0 && st->st_mtim.tv_nsec == 0;
}

struct backing_stamp stamp_of(const struct stat *st)
{
	int64_t grain = counts_seconds(st) ? GRAIN_COARSE_NS : GRAIN_FINE_NS;
	uint64_t h = mix(mix(0, st->st_dev), st->st_ino);

	h = mix(mix(h, (uint64_t)st->st_size), (uint64_t)clock_ns_of(st->st_mtim));
	h = mix(h, (uint64_t)clock_ns_of(st->st_ctim));
	return (struct backing_stamp){ .value = h ? h : 1, .settled = clock_wall_ns() - clock_ns_of(st->st_ctim) > grain };
}
