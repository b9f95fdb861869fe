/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern inspect: what is in a store, file by file, or one file range by range. A running daemon is asked for a
 * snapshot of its index, which lives as long as the connection; a store without one is read as it is. Nothing is
 * changed either way.
 */
#include "tools/inspect.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/store/store.h"
#include "tools/bblog.h"
#include "tools/cistern.h"
#include "tools/conflicts.h"
#include "tools/lib/bbset.h"
#include "tools/lib/say.h"
#include "tools/lib/target.h"

static int say_lost(const char *path, const struct inode *node, void *arg)
{
	(void)node;
	(void)arg;
	fprintf(stderr, "cistern inspect: %s: " STATE_LOST_TEXT "\n", path);
	return 0;
}

static int show(struct inspect *in, const char *path)
{
	struct cistern_error err = { 0 };
	int r;

	r = state_each_lost(store_state(in->store), say_lost, NULL);
	if (r < 0) {
		cistern_error_set(&err, r, "%s: reading the index: %s", store_path(in->store), strerror(-r));
		return say_error(&err);
	}
	if (!path)
		inspect_read_history(in, in->store, NULL, NULL);
	if (in->want_json) {
		json_init(&in->j, stdout, true);
		json_object(&in->j);
	}
	r = path ? inspect_file(in, path, &err) : inspect_list(in);
	if (r < 0 && !path)
		cistern_error_set(&err, r, "%s: reading the index: %s", store_path(in->store), strerror(-r));
	if (in->want_json) {
		json_end_object(&in->j);
		json_finish(&in->j);
	}
	history_destroy(in->history);
	return r < 0 ? say_error(&err) : CISTERN_EXIT_OK;
}

enum { OPT_JSON = 256, OPT_CONFLICTS, OPT_RANGES, OPT_MAP, OPT_SVG, OPT_FILL, OPT_WITH };

#define STORES_MAX 65536

static const struct args_option options[] = {
	{ OPT_JSON, "json", NULL, "print JSON, all sizes in bytes" },
	{ OPT_MAP, "map", NULL,
		"of a file: draw a line for each variable: # in the store, . in the backing file, - in part, _ missing; on a terminal as wide as that, in colours of writers" },
	{ OPT_SVG, "svg", "FILE", "of a file: draw a picture of its writes and of where its bytes are now" },
	{ OPT_RANGES, "ranges", NULL, "of a file: list its ranges also when its variables are known" },
	{ OPT_FILL, "fill", NULL,
		"of a file: compare with fill values also where that means to read more than 256 MiB" },
	{ OPT_WITH, "with", "STORE",
		"of a file that nodes of a job write together: look into that node's store, too; may be repeated" },
	{ OPT_CONFLICTS, "conflicts", NULL,
		"list what several nodes of a job wrote to the same bytes; the exit status is 0 also when there is some" },
	{ 0 },
};

/* With the other stores that were named. */
static int open_all(struct inspect *in, const char *store, struct cistern_error *err)
{
	int r = stores_add(&in->all, store, err);

	for (size_t i = 0; r == 0 && i < in->opt->num_with; i++) {
		struct target t;

		r = target_resolve(in->opt->with[i], &t, err);
		if (r == 0)
			r = stores_add(&in->all, t.store, err);
	}
	if (r == 0)
		in->first = in->store = in->all.list[0].store;
	return r;
}

static bool needs_file(const struct inspect_options *opt)
{
	return opt->map || opt->svg || opt->ranges || opt->look || opt->num_with > 0;
}

static int inspect_store(const char *name, const char *file, const struct inspect_options *opt)
{
	struct inspect in = { .want_json = opt->json, .opt = opt };
	char mounted[2 * PATH_MAX];
	struct cistern_error err = { 0 };
	struct target t;
	int status;

	if (target_resolve(name, &t, &err) < 0)
		return say_error(&err);
	if (!file && t.mounted && strcmp(t.path, ".") != 0)
		file = t.path; /* a file named by its path in the mount */
	if (!file && needs_file(opt))
		return args_usage_error(&command_inspect,
			"--map, --svg, --ranges, --fill and --with are about a file, and none is named");
	status = open_all(&in, t.store, &err) < 0 ? say_error(&err) : CISTERN_EXIT_OK;
	if (file && t.mounted) {
		snprintf(mounted, sizeof(mounted), "%s/%s", t.mount.mountpoint,
			mounts_path_in(file, t.mount.mountpoint) ? file + strlen(t.mount.mountpoint) : file);
		in.mounted = mounted;
	}
	if (status == CISTERN_EXIT_OK)
		status = show(&in, file);
	stores_close(&in.all);
	return status;
}

static void take_option(struct inspect_options *opt, int key)
{
	opt->json = opt->json || key == OPT_JSON;
	opt->conflicts = opt->conflicts || key == OPT_CONFLICTS;
	opt->ranges = opt->ranges || key == OPT_RANGES;
	opt->map = opt->map || key == OPT_MAP;
	opt->look = opt->look || key == OPT_FILL;
	if (key == OPT_SVG)
		opt->svg = optarg;
	if (key == OPT_WITH)
		opt->with[opt->num_with++] = optarg;
}

/* In a mount, a directory or a netCDF file means what the store has of it; a log is a log everywhere. */
static bool are_logs(const char *name)
{
	struct cistern_error err;
	struct target t;

	return bbset_is_target(name, false) ? !bbset_is_directory(name) || target_resolve_mount(name, &t, &err) < 0
					    : bbset_is_target(name, true) && target_resolve_mount(name, &t, &err) < 0;
}

static int run_with_options(const struct command *cmd, int argc, char **argv, struct inspect_options *opt)
{
	struct args a;
	int key;

	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0)
		take_option(opt, key);
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 1, STORES_MAX)) >= 0)
		return a.exit_status;
	if (opt->conflicts)
		return conflicts_show(argv + optind, (size_t)(argc - optind), opt->json);
	if (are_logs(argv[optind]))
		return bblog_inspect(argv + optind, opt->json);
	for (int i = optind + 1; i < argc - 1; i++) /* STORE... FILE */
		opt->with[opt->num_with++] = argv[i];
	return inspect_store(argv[optind], argc - optind > 1 ? argv[argc - 1] : NULL, opt);
}

static int run_inspect(const struct command *cmd, int argc, char **argv)
{
	struct inspect_options opt = { .with = calloc((size_t)argc + 1, sizeof(*opt.with)) };
	int status = CISTERN_EXIT_FAILED;

	if (opt.with)
		status = run_with_options(cmd, argc, argv, &opt);
	else
		say("out of memory");
	free(opt.with);
	return status;
}

const struct command command_inspect = {
	.name = "inspect",
	.summary = "show what is in a store, file by file",
	.synopsis =
		"inspect [--json] STORE|MOUNTPOINT\n"
		"inspect [--json] [--map] [--svg FILE] [--ranges] [--fill] [--with STORE]... STORE|MOUNTPOINT... PATH\n"
		"inspect [--json] [--map] [--svg FILE] [--ranges] [--fill] [--with STORE]... PATH-IN-A-MOUNT\n"
		"inspect --conflicts [--json] STORE|MOUNTPOINT...\n"
		"inspect [--json] LOG|DIR... [FILE.nc]",
	.about =
		"Lists what the store knows: for each file its size, the bytes and extents it has in the log, how many writes there were and how many bytes of them "
		"have been overwritten (as far back as the journal reaches), the sequence numbers of the oldest and newest write that is still there, and its state: "
		"new (not in the backing directory yet), modified, attributes (only those changed), clean, orphan (deleted while open); private: its data lie in a "
		"file of their own in the store.\n\n"
		"With PATH, one file, as its mount would show it now. When its format is known, a table of what it is made of: for each variable the bytes that it has, "
		"how many of them are in the store, in the backing file, and in neither (missing: nobody has written them), how many were overwritten since the last drain, "
		"the share of the logged elements that equal the fill value, how many of its records (or chunks, or 1) are complete, the index of its first missing element, "
		"and who wrote what is logged (NODE:PROCESS, or NODE where the process is not known). Then what headers the file has had, as far as the journal and the payloads still tell. A file of another format, or "
		"whose header has not been written yet, is raw: the reason is said, and its ranges are listed, with the segment and offset where each is, the "
		"sequence number of the write and the checksum.\n\n"
		"Known are netCDF classic (CDF-1, 2 and 5) and HDF5 with netCDF-4; an HDF5 file can be mapped once its writer has flushed or closed it. What is missing of bytes in the backing file is known as finely as its file system keeps holes, and not at all where it "
		"keeps none. Of a file in a private segment (data=auto, where one node alone writes it) the journal has no writes: which node wrote it is known, but not which of its processes wrote "
		"what, nor what was overwritten; mount with data=log to know. Of a file that nodes of a job write together, one store knows a part; a "
		"path in a mount has its header read through the mount. Further stores, named before PATH or by --with, are put together with the first as recovery "
		"would; of a dead job name all of them, in any order. Of what is only in stores that are not given, the bytes are listed (not seen): they count as in the store, "
		"but their values, and a header among them, cannot be read. Bytes of header or metadata that cannot be had, since their store is not given, their segment "
		"is gone or their checksum is wrong, are listed (lost), with the node that wrote them; what they describe is then not in the table.\n\n"
		"With --conflicts, the stores of a job of many nodes: which bytes of which files two nodes wrote although neither had seen what the other "
		"had written, so that nothing but their clocks decided whose was later. NODE's bytes count, OTHER's do not; all nodes agree on that. A "
		"store knows of its own part of each file; all stores together know everything. What has been drained is "
		"no longer listed.\n\n"
		"LOG is the .meta file of a log that PnetCDF's burst-buffer driver left behind, DIR a directory with such logs: shown are each rank's log and each "
		"entry in it, which variable it is for, from where and how many elements, and where in the data file its values are.\n\n"
		"It works on a store in use, of which it shows one moment, and on one without a daemon. Nothing is changed.",
	.examples = "cistern inspect /local/nvme/$JOB\ncistern inspect --json /local/nvme/$JOB out.nc\n"
		    "cistern inspect --conflicts /stores/node-*\ncistern inspect /local/nvme/out.nc_0_0.meta",
	.options = options,
	.run = run_inspect,
};
