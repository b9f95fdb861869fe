/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern recover: hands a store without a daemon to cistern-agent, which carries what is in it to a directory. The
 * checks that need no agent are made here; the agent itself is never linked, since it may need MPI. Logs of PnetCDF need
 * no agent: bblog_recover.c replays them.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cistern/error.h"
#include "format/base/config.h"
#include "format/base/dead_mount.h"
#include "format/base/launch.h"
#include "format/store/store.h"
#include "tools/bblog.h"
#include "tools/cistern.h"
#include "tools/lib/bbset.h"
#include "tools/lib/launch.h"
#include "tools/lib/libexec.h"
#include "tools/lib/mounts.h"
#include "tools/lib/say.h"

#define ALONE "cistern-agent"
#define TEAM  "cistern-mpi-agent"

static int check_store(const char *store, const char *to, struct cistern_error *err)
{
	struct superblock *sb = malloc(sizeof(*sb));
	bool recovers = false;
	pid_t pid = 0;
	int r;

	if (!sb)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	r = store_read_superblock(store, sb, err);
	if (r == 0 && !to)
		r = cistern_error_set(err, -EINVAL, "--to DIR is missing; the store was mounted over %s", sb->backing);
	free(sb);
	if (r < 0)
		return r;
	r = store_holder(store, &pid, &recovers);
	if (recovers)
		return cistern_error_set(err, -EBUSY,
			"%s is in use by a recovery (process %d): wait until it has ended", store, (int)pid);
	if (r < 0)
		return cistern_error_set(err, r, "%s: cannot ask who holds it: %s", store, strerror(-r));
	if (pid)
		return cistern_error_set(err, -EBUSY, "%s is in use by process %d; 'cistern wait %s' waits for its end",
			store, (int)pid, store);
	return 0;
}

static int check_to(const char *to, struct cistern_error *err)
{
	struct mount_entry m;
	char real[PATH_MAX];
	struct stat st;

	if (dead_mount_is(to))
		return 0; /* below a dead mount: the agent looks there, if it may */
	if (stat(to, &st) < 0)
		return cistern_error_set(
			err, -errno, "%s: %s%s", to, strerror(errno), errno == ENOENT ? "; create it first" : "");
	if (!S_ISDIR(st.st_mode))
		return cistern_error_set(err, -ENOTDIR, "%s is not a directory", to);
	if (realpath(to, real) && mounts_holding(real, &m) == 0 && m.cistern)
		return cistern_error_set(err, -EINVAL,
			"%s lies in a cistern mount, that of %s at %s, where a recovery cannot make its names: recover into a directory "
			"outside of it",
			to, m.source, m.mountpoint);
	return 0;
}

enum { OPT_TO = 256, OPT_BACKING, OPT_VERIFY, OPT_MANIFEST, OPT_FORCE, OPT_JSON, OPT_IN_PLACE, OPT_SKIP, OPT_DRY_RUN };

/* With stores they are the agent's, and go to it as they are; the last three are for logs of PnetCDF only. */
static const struct args_option options[] = {
	LAUNCH_OPTION,
	{ OPT_TO, "to", "DIR|FILE",
		"where the files go: the backing directory, or an empty directory; with logs of PnetCDF the netCDF file, or a directory" },
	{ OPT_BACKING, "backing", "DIR",
		"the backing directory, if it is elsewhere than it was when the store was mounted, or a copy of it" },
	{ OPT_VERIFY, "verify", "none|size|read|format",
		"how each file is checked, instead of as the setting verify says" },
	{ OPT_MANIFEST, "manifest", "FILE", "where the list of files with their sizes, checksums and states goes" },
	{ OPT_FORCE, "force", NULL,
		"add to a DIR that is not empty and not the backing directory, over what is there; replay onto a file that was changed after the logs, or logs that do not say the same number of ranks" },
	{ OPT_JSON, "json", NULL, "print the outcome as JSON" },
	{ OPT_IN_PLACE, "in-place", NULL,
		"logs of PnetCDF: change the netCDF file itself instead of a copy that takes its place when it is whole" },
	{ OPT_SKIP, "skip", "RANK:ENTRY",
		"logs of PnetCDF: leave out an entry, one that the program is known to have cancelled; may be given more than once" },
	{ OPT_DRY_RUN, "dry-run", NULL, "logs of PnetCDF: only say what would change" },
	{ 0 },
};

#define STORES_MAX 65536

struct agent_call {
	const char **argv;                /* owned; what they point to is borrowed, but for the options' heads */
	char heads[ARGS_MAX_OPTIONS][32]; /* "--to" */
	size_t num, num_heads;
	uint64_t processes;
};

static void pass_on(struct agent_call *call, int key, const char *value)
{
	const struct args_option *o = options;

	while (o->key && o->key != key)
		o++;
	if (!o->key || call->num_heads == ARGS_MAX_OPTIONS)
		return;
	snprintf(call->heads[call->num_heads], sizeof(call->heads[0]), "--%s", o->name);
	call->argv[call->num++] = call->heads[call->num_heads++];
	if (o->arg)
		call->argv[call->num++] = value;
}

/* Becomes the agent, or mpiexec with several. Returns only with an error. */
static int exec_agent(struct agent_call *call, char *const *stores, struct cistern_error *err)
{
	bool alone = call->processes == 1 && !launch_is_one_of_many();
	char program[PATH_MAX];
	int r = libexec_find(alone ? ALONE : TEAM, program, err);

	if (r < 0)
		return r;
	call->argv[LAUNCH_ARGS] = program;
	call->argv[call->num++] = "--";
	while (*stores)
		call->argv[call->num++] = *stores++;
	call->argv[call->num] = NULL;
	return launch_exec(call->argv, call->processes, err);
}

/* ---- logs of PnetCDF */

struct recover_args {
	struct bblog_recover logs;
	bool of_stores, of_logs; /* an option that only the one kind has was given */
};

/* "RANK:ENTRY" */
static bool add_skip(struct bblog_recover *logs, const char *text)
{
	char *end = NULL;
	struct bblog_skip skip = { 0 };

	errno = 0;
	skip.rank = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != ':' || end[1] < '0' || end[1] > '9')
		return false;
	skip.seq = strtoull(end + 1, &end, 10);
	if (*end || errno)
		return false;
	logs->skip[logs->num_skip++] = skip;
	return true;
}

/* The memory that a drain would use. */
static int load_settings(struct bblog_recover *logs)
{
	struct cistern_error err = { 0 };
	struct config *cfg = NULL;
	int r = config_create(&cfg);

	if (r == 0)
		r = config_load(cfg, &err);
	if (r == 0)
		logs->memory_bytes = config_number(cfg, CONFIG_FLUSH_BUFFER_SIZE);
	config_destroy(cfg);
	if (r == 0)
		return CISTERN_EXIT_OK;
	say("recover: %s", err.text[0] ? err.text : "out of memory");
	return CISTERN_EXIT_USAGE;
}

static int recover_logs(const struct command *cmd, struct recover_args *ra, char *const *names)
{
	int status;

	if (ra->of_stores)
		return args_usage_error(
			cmd, "-n, --backing, --verify and --manifest are for stores, and these are logs of PnetCDF");
	if (launch_is_one_of_many())
		return args_usage_error(cmd, "logs of PnetCDF are replayed by one process: start it without mpiexec");
	if (ra->logs.in_place && ra->logs.dry_run)
		return args_usage_error(cmd, "--in-place changes the file, --dry-run changes nothing");
	status = load_settings(&ra->logs);
	return status == CISTERN_EXIT_OK ? bblog_recover(&ra->logs, names) : status;
}

static bool any_logs(char *const *names)
{
	while (*names)
		if (bbset_is_target(*names++, true))
			return true;
	return false;
}

/* ---- the command */

/* An option that is the agent's also goes into its arguments. */
static int take_option(
	const struct command *cmd, struct agent_call *call, struct recover_args *ra, int key, const char *value)
{
	struct cistern_error err = { 0 };

	switch (key) {
	case 'n':
		ra->of_stores = true;
		return launch_count(value, &call->processes, &err) < 0 ? args_usage_error(cmd, "%s", err.text) : -1;
	case OPT_TO: ra->logs.to = value; break;
	case OPT_FORCE: ra->logs.force = true; break;
	case OPT_JSON: ra->logs.want_json = true; break;
	case OPT_IN_PLACE: ra->logs.in_place = ra->of_logs = true; return -1;
	case OPT_DRY_RUN: ra->logs.dry_run = ra->of_logs = true; return -1;
	case OPT_SKIP:
		ra->of_logs = true;
		return add_skip(&ra->logs, value)
			       ? -1
			       : args_usage_error(cmd, "--skip %s: give the rank and the entry, as 0:17", value);
	default: ra->of_stores = true; break;
	}
	if (call->num_heads == ARGS_MAX_OPTIONS)
		return args_usage_error(cmd, "too many options");
	pass_on(call, key, value);
	return -1;
}

static int recover(const struct command *cmd, struct agent_call *call, struct recover_args *ra, int argc, char **argv)
{
	struct cistern_error err = { 0 };
	const char *to;
	struct args a;
	int key, status;

	call->num = LAUNCH_ARGS + 1;
	call->argv[call->num++] = "recover";
	call->processes = 1;
	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0) {
		status = take_option(cmd, call, ra, key, optarg);
		if (status >= 0)
			return status;
	}
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 1, STORES_MAX)) >= 0)
		return a.exit_status;
	if (any_logs(argv + optind))
		return recover_logs(cmd, ra, argv + optind);
	if (ra->of_logs)
		return args_usage_error(cmd, "--in-place, --skip and --dry-run are for logs of PnetCDF");
	to = ra->logs.to;
	for (int i = optind; i < argc; i++)
		if (check_store(argv[i], to, &err) < 0)
			return err.code == -EINVAL ? args_usage_error(cmd, "%s", err.text) : say_error(&err);
	if (check_to(to, &err) < 0)
		return say_error(&err);
	exec_agent(call, argv + optind, &err);
	return say_error(&err);
}

static int run_recover(const struct command *cmd, int argc, char **argv)
{
	struct agent_call call = { .argv = calloc(
					   2 * ARGS_MAX_OPTIONS + LAUNCH_ARGS + 4 + (size_t)argc, sizeof(char *)) };
	struct recover_args ra = { .logs.skip = calloc((size_t)argc, sizeof(*ra.logs.skip)) };
	struct cistern_error err = { 0 };
	int status;

	if (call.argv && ra.logs.skip) {
		status = recover(cmd, &call, &ra, argc, argv);
	} else {
		cistern_error_set(&err, -ENOMEM, "out of memory");
		status = say_error(&err);
	}
	free(call.argv);
	free(ra.logs.skip);
	return status;
}

const struct command command_recover = {
	.name = "recover",
	.summary = "drain a store whose daemon is gone",
	.synopsis =
		"recover [-n N] STORE... --to DIR [--backing DIR] [--verify none|size|read|format] [--manifest FILE] [--force] [--json]\n"
		"recover LOG|DIR... [FILE.nc] --to FILE|DIR [--in-place] [--skip RANK:ENTRY] [--dry-run] [--force] [--json]",
	.about =
		"Writes what is only in STORE to DIR. If DIR is the backing directory, it is drained just as the daemon would have done: new "
		"files appear when they are whole, existing ones are changed in place. If DIR is another, empty directory, the files that the "
		"store changed are made whole there.\n\n"
		"The store is only read, under its lock: meanwhile it can be neither mounted nor recovered by another one. It can be deleted when "
		"the exit status was 0 or 7: then everything is in DIR. 7 says that something is there under another name, because DIR had "
		"a file of that name that the store does not know. Such a file is never overwritten; the manifest lists what stands beside "
		"it. The command can be interrupted and started again. Settings are those of cistern.conf(5).\n\n"
		"Mounting the store again does the same in the background.\n\n"
		"The stores of a job of many nodes are given together, copied to one machine or on a file system that it reaches, in any order. When "
		"some are lost, what the others have is written, and the manifest lists which ranges of which files are known to be "
		"missing, and which node, on which host, had them; the exit status is 3 then. A file that a lost store kept comes back "
		"under the name by which another node opened it last, over what was in the backing directory; as NAME.recovered-inode-N when "
		"another file has that name by now, and as recovered-inode-N when no other node opened it by a name.\n\n"
		"With -n, or started by MPICH's mpiexec or srun, several processes do it, on machines that all reach the stores and DIR: any number of them, "
		"each for some of the stores. Every one opens all stores.\n\n"
		"LOG is the .meta file of a log that PnetCDF's burst-buffer driver left behind, from any release, with its .data file beside it; "
		"DIR a directory with such logs. All ranks' logs are replayed, in the order of ranks and each in its own order, onto the netCDF "
		"file that they belong to: as PnetCDF's close would have done, but of two writes to the same place the later one always wins. "
		"That file is looked for where the logs say and beside them, or is given as FILE.nc. When --to names an existing file, it is replaced by "
		"a changed copy once that is whole; else a copy is made under that name. --in-place changes the file itself, which keeps its "
		"links and extended attributes; interrupted, it is to be done again. The logs stay as they are.\n\n"
		"It is said which values did not fit the type of their variable, what several ranks wrote differently (the highest rank's counts), which "
		"ranks' logs are missing and which entries were damaged; with these the exit status is 3. A file that was closed normally, its logs kept, "
		"is not changed by this, but one that was changed after that would be set back: it is left alone without --force.",
	.examples = "cistern fsck /local/nvme/$JOB\ncistern recover /local/nvme/$JOB --to /lustre/proj/run42\n"
		    "cistern recover /stores/node-* --to /lustre/proj/run42\n"
		    "cistern recover -n 8 /stores/node-* --to /lustre/proj/run42\n"
		    "mpiexec -ppn 1 cistern recover /shared/stores/node-* --to /lustre/proj/run42\n"
		    "cistern recover /local/nvme/out.nc_*.meta --to /lustre/proj/run42/out.nc",
	.options = options,
	.run = run_recover,
};
