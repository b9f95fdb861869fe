/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Numbers after a loss of power (docs/design/power-loss.md). In a job, other nodes have seen numbers of inodes and segments whose
 * records were lost: they may hold a layer of such an inode, or the place of a piece in such a segment. The same number
 * given again would make their bytes part of another file. So what may have been given is left out, and where we go on from
 * is made durable before anything is given: an inode that is made and freed at once, a segment with a few bytes in it.
 */
#include "format/store/internal.h"

#include <errno.h>
#include <sys/stat.h>

/*
 * More than a node gives between two checkpoints, which sync: each number costs a record of some 50 bytes, or a file. A
 * store that has lost power 4000 times has segment numbers left, and inode numbers for 16,000 times.
 */
#define SKIP_INOS     (UINT64_C(1) << 26)
#define SKIP_SEGMENTS (UINT32_C(1) << 20)

static int skip_inos(struct store *s)
{
	struct record rec = { .type = RECORD_CREATE, .mode = S_IFREG | 0600 };
	int r;

	state_reserve_inos(s->state, state_new_ino(s->state) + SKIP_INOS);
	rec.ino = state_new_ino(s->state);
	r = store_commit(s, &rec);
	rec = (struct record){ .type = RECORD_FREE, .ino = rec.ino };
	return r ? r : store_commit(s, &rec);
}

static int skip_segments(struct store *s)
{
	static const uint8_t bytes[8] = { 0 };
	uint32_t segment;
	uint64_t off;

	segment_reserve_ids(s->segments, atomic_load(&s->max_segment) + SKIP_SEGMENTS);
	return segment_append(s->segments, bytes, sizeof(bytes), &segment, &off);
}

/* On a device without room for it that is remembered only until the daemon ends: no reason not to open. */
int skip_lost_numbers(struct store *s, bool *ret_durable)
{
	int r = skip_inos(s), e = skip_segments(s);

	r = r ? r : e;
	*ret_durable = r == 0;
	if (r && r != -ENOSPC)
		return r;
	r = segment_sync(s->segments);
	return r ? r : store_sync(s);
}
