/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The verdict on a store that nobody has open. The daemon's own word (result.json) explains; what counts is the state of
 * the store, whatever the daemon said.
 */
#include "tools/lib/drained.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "format/base/units.h"
#include "format/store/store.h"
#include "tools/lib/daemon.h"
#include "tools/lib/say.h"

struct count_names {
	struct state *st;
	uint64_t num;
};

/* A backing name that does not show in the mount, or shows another inode there: the drain has yet to move or remove it. */
static int count_misplaced(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct count_names *c = arg;
	struct state_name found;

	if (parent != 0) /* the root has no name */
		c->num += state_lookup(c->st, parent, name, &found) != 0 || found.ino != ino;
	return 0;
}

int drained_left(struct state *st, struct drained_left *ret)
{
	struct count_names names = { .st = st };
	struct state_totals totals;
	int r = state_each_backing_name(st, count_misplaced, &names);

	if (r < 0)
		return r;
	state_totals(st, &totals);
	*ret = (struct drained_left){ .files = totals.dirty_files, .names = names.num };
	return 0;
}

/* *ret_of_many: it is one of several nodes' of a job. */
static int look_into(const char *store, struct drained_left *ret, char *backing, size_t cap, bool *ret_of_many,
	struct cistern_error *err)
{
	struct store_options opt = { .mode = STORE_READ_ONLY };
	struct state_report report;
	struct store *s;
	int r = store_open(store, &opt, &s, &report, err);

	if (r < 0)
		return r;
	snprintf(backing, cap, "%s", store_superblock(s)->backing);
	*ret_of_many = store_superblock(s)->num_nodes > 1;
	r = drained_left(store_state(s), ret);
	store_abandon(s);
	return r < 0 ? cistern_error_set(err, r, "%s: the index cannot be read", store) : 0;
}

static void say_result(const struct daemon_result *result)
{
	if (result->text[0])
		say("%s", result->text);
	for (size_t i = 0; i < result->num_errors; i++)
		say("  %s: %s", result->errors[i].path, result->errors[i].text);
}

int drained_verdict(const char *store, const char *backing, const char *noted)
{
	char recorded[STORE_PATH_MAX] = "";
	struct drained_left left = { 0 };
	char files[UNITS_COUNT], names[UNITS_COUNT];
	struct cistern_error err = { 0 };
	struct daemon_result result;
	int said = daemon_read_result(store, &result, &err);
	bool of_many = false;

	if (said < 0 && said != -ENOENT)
		say("%s", err.text);
	if (said == 0 && result.result != CISTERN_EXIT_OK)
		say_result(&result);
	else if (said == 0 && result.text[0])
		say("%s", result.text);
	else if (noted && noted[0])
		say("%s", noted);
	if (look_into(store, &left, recorded, sizeof(recorded), &of_many, &err) < 0)
		return say_error(&err);
	if (left.files + left.names > 0) {
		if (said < 0 || result.result == CISTERN_EXIT_OK || !result.text[0])
			say("not on the backing directory yet: %s, and %s deleted or moved; "
			    "'cistern recover %s --to %s' drains them, 'cistern inspect %s' lists the files",
				units_format_count(left.files, "file", files),
				units_format_count(left.names, "name", names), store, backing ? backing : recorded,
				store);
		return CISTERN_EXIT_INCOMPLETE;
	}
	if (said == -ENOENT && of_many) { /* what it has of other nodes' files is no file of its own */
		say("the daemon has died before it could say how the drain of its job ended; mount all nodes again, or 'cistern "
		    "recover' all stores");
		return CISTERN_EXIT_INCOMPLETE;
	}
	if (said == 0 && result.result != CISTERN_EXIT_OK)
		return result.result > 0 && result.result <= CISTERN_EXIT_TIMEOUT ? (int)result.result
										  : CISTERN_EXIT_FAILED;
	return CISTERN_EXIT_OK;
}
