/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The verdict on a store that nobody has open. The daemon's own word (result.json) comes first; without it, or when
 * it claims success, the state of the store is asked, since only what it says counts.
 */
#include "tools/lib/drained.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "format/store/store.h"
#include "tools/lib/daemon.h"
#include "tools/lib/say.h"

/* Number of files that are not drained, from the state. */
static int count_dirty(const char *store, uint64_t *ret_files, char *backing, size_t cap, struct cistern_error *err)
{
	struct store_options opt = { .mode = STORE_READ_ONLY };
	struct state_report report;
	struct state_totals totals;
	struct store *s;
	int r = store_open(store, &opt, &s, &report, err);

	if (r < 0)
		return r;
	state_totals(store_state(s), &totals);
	*ret_files = totals.dirty_files;
	snprintf(backing, cap, "%s", store_superblock(s)->backing);
	store_abandon(s);
	return 0;
}

int drained_verdict(const char *store, const char *backing)
{
	char recorded[STORE_PATH_MAX] = "";
	struct cistern_error err = { 0 };
	struct daemon_result result;
	uint64_t dirty = 0;
	int said, r;

	said = daemon_read_result(store, &result, &err);
	if (said < 0 && said != -ENOENT)
		say("%s", err.text);
	if (said == 0 && result.text[0] && result.result != CISTERN_EXIT_OK)
		say("%s", result.text);
	r = count_dirty(store, &dirty, recorded, sizeof(recorded), &err);
	if (r < 0)
		return say_error(&err);
	if (dirty > 0) {
		say("%" PRIu64
		    " file%s still only in the store; 'cistern recover %s --to %s' drains %s, 'cistern inspect %s' lists %s",
			dirty, dirty == 1 ? " is" : "s are", store, backing ? backing : recorded,
			dirty == 1 ? "it" : "them", store, dirty == 1 ? "it" : "them");
		return CISTERN_EXIT_INCOMPLETE;
	}
	if (said == 0 && result.result != CISTERN_EXIT_OK)
		return result.result > 0 && result.result <= CISTERN_EXIT_TIMEOUT ? (int)result.result
										  : CISTERN_EXIT_FAILED;
	return CISTERN_EXIT_OK;
}
