/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_YIELD_H
#define FS_DRAIN_YIELD_H

/*
 * How much of the time a drain may work: all of it while nobody writes, the share that is set while somebody does, and more
 * again the scarcer the store gets. Functions of their arguments alone.
 */

#include <stdbool.h>
#include <stdint.h>

#include "fs/core/core.h"
#include "fs/drain/drain.h"

/* Whether applications write, as seen by one who looks now and then. Zero: nothing was seen yet. */
struct yield {
	bool seen;
	uint64_t bytes, syncs; /* of the activity at since_usec */
	int64_t since_usec;
	int64_t busy_until_usec;
};

/* Notes what is seen at now_usec (any clock, never backwards). Does somebody write, or did so a moment ago? */
bool yield_note(struct yield *y, const struct core_activity *activity, int64_t now_usec);

struct yield_view {
	enum drain_kind kind;
	bool busy;                  /* as yield_note() says */
	unsigned int share_percent; /* the setting: 1 to 100 */
	unsigned int high_water_percent;
	uint64_t used_bytes, capacity_bytes; /* of the store; capacity 0: unknown */
};

/* Percent of the time, 1 to 100. */
unsigned int yield_share(const struct yield_view *view);

#endif
