/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern-agent undo: takes back what a killed drain had moved in the backing directory and could not report any more. To
 * be run before a store is mounted anew; without it the mount would look for those files where they are not, until
 * its first drain. Nothing is opened when nothing was left over.
 */
#include "mpi-agent/command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/store/store.h"
#include "mpi-agent/replay/intent.h"
#include "mpi-agent/sink/sink.h"

#define INTENT_FILE "drain.intent"

static int undo_in(struct store *s, const char *intent_path, int backing_fd, struct cistern_error *err)
{
	struct intent *intent = NULL;
	struct sink *sink = NULL;
	int r = sink_posix_create(backing_fd, &sink);

	if (r == 0)
		r = intent_open(intent_path, &intent);
	if (r == 0)
		r = intent_undo(intent, store_state(s), sink);
	intent_close(intent);
	sink_destroy(sink);
	return r < 0 ? cistern_error_set(err, r, "%s: what a killed drain has left cannot be taken back: %s",
			       intent_path, strerror(-r))
		     : 0;
}

static int undo(const char *store_dir, struct cistern_error *err)
{
	struct store_options opt = { .mode = STORE_READ_ONLY };
	char path[STORE_PATH_MAX + 32];
	struct state_report report;
	struct store *s = NULL;
	struct stat st;
	int fd, r;

	if (snprintf(path, sizeof(path), "%s/" INTENT_FILE, store_dir) >= (int)sizeof(path))
		return cistern_error_set(err, -ENAMETOOLONG, "%s: too long", store_dir);
	if (stat(path, &st) || st.st_size == 0)
		return 0;
	r = store_open(store_dir, &opt, &s, &report, err);
	if (r < 0)
		return r;
	fd = open(store_superblock(s)->backing, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 ? cistern_error_set(err, -errno, "%s: %s", store_superblock(s)->backing, strerror(errno))
		   : undo_in(s, path, fd, err);
	if (fd >= 0)
		close(fd);
	store_abandon(s);
	return r;
}

int command_undo(int argc, char **argv)
{
	static const struct option options[] = { { "store", required_argument, NULL, 's' }, { 0 } };
	struct cistern_error err = { 0 };
	const char *store_dir = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) == 's')
		store_dir = optarg;
	if (c != -1 || !store_dir || optind != argc) {
		fputs("usage: cistern-agent undo --store DIR\n", stderr);
		return CISTERN_EXIT_USAGE;
	}
	if (undo(store_dir, &err) == 0)
		return CISTERN_EXIT_OK;
	fprintf(stderr, "cistern-agent: %s\n", err.text);
	return err.code == -EBUSY ? CISTERN_EXIT_BUSY : CISTERN_EXIT_FAILED;
}
