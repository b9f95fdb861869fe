/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * An application counts as writing from 1 MiB within a tenth of a second on, or when it asked for a sync, and for a quarter
 * of a second after that: long enough that the pauses between its writes are none, and short enough that a drain loses
 * little when it has ended. Less than that is not worth a slower drain.
 *
 * A share of the time rather than a rate: what the disk can do, nobody needs to know, and when it is slow, because the
 * application keeps it busy, the drain takes longer for each piece and rests longer after it.
 */
#include "fs/drain/yield.h"

#define BUSY_BYTES  (UINT64_C(1) << 20)
#define WINDOW_USEC INT64_C(100000)
#define HOLD_USEC   INT64_C(250000)
#define PERMILLE    1000u
#define FULL_PERMILLE \
	937u /* from here on core slows writers down (fs/core/space.c): they need the room more than the disk */

/* In so long a time; when nobody looked for longer, the rate counts. */
static uint64_t busy_bytes(int64_t usec)
{
	return usec <= WINDOW_USEC ? BUSY_BYTES : BUSY_BYTES * (uint64_t)usec / (uint64_t)WINDOW_USEC;
}

bool yield_note(struct yield *y, const struct core_activity *activity, int64_t now_usec)
{
	int64_t took = now_usec - y->since_usec;
	bool wrote = y->seen && activity->bytes - y->bytes >= busy_bytes(took);
	bool synced = activity->syncing || (y->seen && activity->syncs != y->syncs);

	if (wrote || synced)
		y->busy_until_usec = now_usec + HOLD_USEC;
	if (!y->seen || wrote || took >= WINDOW_USEC) {
		y->bytes = activity->bytes;
		y->since_usec = now_usec;
	}
	y->syncs = activity->syncs;
	y->seen = true;
	return now_usec < y->busy_until_usec;
}

/* From the high-water mark to a full store the share grows to all, in proportion. */
static unsigned int urgency_percent(const struct yield_view *view)
{
	uint64_t high = view->high_water_percent * (PERMILLE / 100), used;

	if (view->capacity_bytes < PERMILLE)
		return 0;
	used = view->used_bytes / (view->capacity_bytes / PERMILLE);
	if (used >= FULL_PERMILLE)
		return 100;
	return used <= high ? 0 : (unsigned int)((used - high) * 100 / (FULL_PERMILLE - high));
}

unsigned int yield_share(const struct yield_view *view)
{
	if (!view->busy || view->kind == DRAIN_FINAL)
		return 100;
	return view->share_percent + (100 - view->share_percent) * urgency_percent(view) / 100;
}
