/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A drain makes way: how much of the time the daemon allows it. Rule: docs/design/one-node.md, section 5. */
#include "fs/drain/yield.h"

#include "tests/lib/tap.h"

#define MIB  (UINT64_C(1) << 20)
#define GIB  (UINT64_C(1) << 30)
#define MSEC INT64_C(1000)

static void test_note(void)
{
	struct core_activity a = { .bytes = 5 * GIB, .syncs = 7 };
	struct yield y = { 0 };
	int64_t now = 1000000 * MSEC;

	ok(!yield_note(&y, &a, now), "what was written before a session began is of no interest");
	a.bytes += MIB;
	ok(yield_note(&y, &a, now += 20 * MSEC), "1 MiB in 20 ms: somebody writes");
	ok(yield_note(&y, &a, now += 240 * MSEC), "a pause of 240 ms is none");
	ok(!yield_note(&y, &a, now += 20 * MSEC), "one of 260 ms is the end");
	for (int i = 0; i < 50; i++) {
		a.bytes += MIB / 64;
		if (yield_note(&y, &a, now += 20 * MSEC))
			break;
	}
	ok(!yield_note(&y, &a, now), "a trickle, of less than 1 MiB in a tenth of a second, counts for nothing");
	a.bytes += 10 * MIB;
	ok(!yield_note(&y, &a, now += 2000 * MSEC),
		"when nobody looked for long, the rate counts: 5 MiB/s are a trickle");
	a.bytes += 30 * MIB;
	ok(yield_note(&y, &a, now += 2000 * MSEC), "15 MiB/s are not");
	ok(!yield_note(&y, &a, now += 1000 * MSEC), "quiet");
	a.syncs++;
	ok(yield_note(&y, &a, now += 20 * MSEC), "a sync was asked for");
	ok(!yield_note(&y, &a, now += 1000 * MSEC), "quiet again");
	a.syncing = true;
	ok(yield_note(&y, &a, now += 1000 * MSEC), "somebody still waits for one");
}

static unsigned int share(enum drain_kind kind, bool busy, uint64_t used)
{
	return yield_share(&(struct yield_view){ .kind = kind,
		.busy = busy,
		.share_percent = 40,
		.high_water_percent = 70,
		.used_bytes = used,
		.capacity_bytes = 1000 * GIB });
}

static void test_share(void)
{
	is_u64(share(DRAIN_BACKGROUND, false, 0), 100, "nobody writes: all of the time");
	is_u64(share(DRAIN_BACKGROUND, true, 100 * GIB), 40, "somebody does: the setting");
	is_u64(share(DRAIN_FLUSH, true, 100 * GIB), 40, "also when a flush was asked for");
	is_u64(share(DRAIN_FINAL, true, 100 * GIB), 100, "nobody can write after an unmount");
	is_u64(share(DRAIN_BACKGROUND, true, 700 * GIB), 40, "at the high-water mark");
	ok(share(DRAIN_BACKGROUND, true, 800 * GIB) > 40 &&
			share(DRAIN_BACKGROUND, true, 900 * GIB) > share(DRAIN_BACKGROUND, true, 800 * GIB) &&
			share(DRAIN_BACKGROUND, true, 900 * GIB) < 100,
		"beyond it the more, the less room there is");
	is_u64(share(DRAIN_FLUSH, true, 938 * GIB), 100, "all where writers are slowed down for want of room");
	is_u64(yield_share(&(struct yield_view){ .busy = true, .share_percent = 100 }), 100,
		"a drain that makes no way");
	is_u64(yield_share(&(struct yield_view){ .busy = true, .share_percent = 40 }), 40, "a store of unknown size");
}

int main(void)
{
	test_note();
	test_share();
	return done_testing();
}
