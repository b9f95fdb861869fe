/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern-agent undo: takes back what a killed drain had moved in the backing directory and could not report any more:
 * without it the mount would look for those files where they are not, until its next drain. A daemon that has the
 * store open gives a snapshot, made after the last report that it took. Nothing is opened when nothing was left over.
 */
#include "mpi-agent/command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/units.h"
#include "format/store/steps.h"
#include "format/store/store.h"
#include "mpi-agent/replay/intent.h"
#include "mpi-agent/sink/sink.h"

static int undo_in(struct store *s, struct intent *intent, int backing_fd)
{
	struct sink *sink = NULL;
	int r = sink_posix_create(backing_fd, &sink);

	if (r == 0)
		r = intent_undo(intent, store_state(s), sink);
	sink_destroy(sink);
	return r;
}

struct undo_options {
	const char *store_dir, *snapshot; /* snapshot: NULL for a dead store */
	int backing_fd;                   /* ours to close; -1: by its path */
};

static int undo_all(struct undo_options *o, struct intent *intent, struct cistern_error *err)
{
	struct store_options opt = { .mode = STORE_READ_ONLY, .snapshot = o->snapshot };
	struct state_report report;
	struct store *s = NULL;
	int r = store_open(o->store_dir, &opt, &s, &report, err);

	if (r < 0)
		return r;
	if (o->backing_fd < 0)
		o->backing_fd = open(store_superblock(s)->backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (o->backing_fd < 0) {
		r = cistern_error_set(err, -errno, "%s: %s", store_superblock(s)->backing, strerror(errno));
	} else {
		r = undo_in(s, intent, o->backing_fd);
		if (r < 0)
			cistern_error_set(err, r, "%s: what a killed drain has left cannot be taken back: %s",
				store_superblock(s)->backing, strerror(-r));
		close(o->backing_fd);
	}
	store_abandon(s);
	return r;
}

static int undo(struct undo_options *o, struct cistern_error *err)
{
	char path[STORE_PATH_MAX + sizeof(INTENT_FILE) + 1];
	struct intent *intent = NULL;
	int r;

	if (snprintf(path, sizeof(path), "%s/" INTENT_FILE, o->store_dir) >= (int)sizeof(path))
		return cistern_error_set(err, -ENAMETOOLONG, "%s: too long", o->store_dir);
	if (access(path, F_OK) && errno == ENOENT)
		return 0;
	r = intent_open(path, &intent);
	if (r < 0)
		return cistern_error_set(
			err, r, "%s: %s", path, r == -EBUSY ? "an agent is still at it" : strerror(-r));
	if (!intent_is_empty(intent))
		r = undo_all(o, intent, err);
	intent_close(intent);
	return r;
}

static int parse(struct undo_options *o, int argc, char **argv)
{
	static const struct option options[] = { { "store", required_argument, NULL, 's' },
		{ "snapshot", required_argument, NULL, 'n' }, { "backing-fd", required_argument, NULL, 'b' }, { 0 } };
	uint64_t fd;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			o->store_dir = optarg;
		else if (c == 'n')
			o->snapshot = optarg;
		else if (c == 'b' && units_parse_u64(optarg, &fd) == 0 && fd <= INT32_MAX)
			o->backing_fd = (int)fd;
		else
			return -EINVAL;
	}
	return o->store_dir && optind == argc ? 0 : -EINVAL;
}

int command_undo(int argc, char **argv)
{
	struct undo_options o = { .backing_fd = -1 };
	struct cistern_error err = { 0 };

	if (parse(&o, argc, argv) < 0) {
		fputs("usage: cistern-agent undo --store DIR [--snapshot NAME] [--backing-fd N]\n", stderr);
		return CISTERN_EXIT_USAGE;
	}
	unsetenv("CISTERN_AGENT_ABORT_AFTER"); /* the test means the drain that we clean up after */
	if (undo(&o, &err) == 0)
		return CISTERN_EXIT_OK;
	fprintf(stderr, "cistern-agent: %s\n", err.text);
	return err.code == -EBUSY ? CISTERN_EXIT_BUSY : CISTERN_EXIT_FAILED;
}
