/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern recover: hands a store without a daemon to cistern-agent, which carries what is in it to a directory. The
 * checks that need no agent are made here; the agent itself is never linked, since it may need MPI.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cistern/error.h"
#include "format/store/store.h"
#include "tools/cistern.h"
#include "tools/lib/libexec.h"
#include "tools/lib/say.h"

#define AGENT "cistern-agent"

static int check_store(const char *store, const char *to, struct cistern_error *err)
{
	struct superblock *sb = malloc(sizeof(*sb));
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
	r = store_holder(store, &pid);
	if (r < 0)
		return cistern_error_set(err, r, "%s: cannot ask who holds it: %s", store, strerror(-r));
	if (pid)
		return cistern_error_set(err, -EBUSY, "%s is in use by process %d; 'cistern wait %s' waits for its end",
			store, (int)pid, store);
	return 0;
}

static int check_to(const char *to, struct cistern_error *err)
{
	struct stat st;

	if (stat(to, &st) < 0)
		return cistern_error_set(
			err, -errno, "%s: %s%s", to, strerror(errno), errno == ENOENT ? "; create it first" : "");
	return S_ISDIR(st.st_mode) ? 0 : cistern_error_set(err, -ENOTDIR, "%s is not a directory", to);
}

enum { OPT_TO = 256, OPT_BACKING, OPT_VERIFY, OPT_MANIFEST, OPT_FORCE, OPT_JSON };

/* They are the agent's, and go to it as they are. */
static const struct args_option options[] = {
	{ OPT_TO, "to", "DIR", "where the files go: the backing directory, or an empty directory" },
	{ OPT_BACKING, "backing", "DIR",
		"the backing directory, if it is elsewhere than it was when the store was mounted" },
	{ OPT_VERIFY, "verify", "none|size|read", "how each file is checked, instead of as the setting verify says" },
	{ OPT_MANIFEST, "manifest", "FILE", "where the list of files with their sizes, checksums and states goes" },
	{ OPT_FORCE, "force", NULL,
		"add to a DIR that is not empty and not the backing directory, over what is there" },
	{ OPT_JSON, "json", NULL, "print the outcome as JSON" },
	{ 0 },
};

#define STORES_MAX 65536

struct agent_call {
	const char **argv;                /* owned; what they point to is borrowed, but for the options' heads */
	char heads[ARGS_MAX_OPTIONS][32]; /* "--to" */
	size_t num, num_heads;
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

/* Becomes the agent. Returns only with an error. */
static int exec_agent(struct agent_call *call, char *const *stores, struct cistern_error *err)
{
	char program[PATH_MAX];
	int r = libexec_find(AGENT, program, err);

	if (r < 0)
		return r;
	call->argv[call->num++] = "--";
	while (*stores)
		call->argv[call->num++] = *stores++;
	call->argv[call->num] = NULL;
	fflush(NULL);
	execv(program, (char *const *)call->argv);
	return cistern_error_set(err, -errno, "%s: %s", program, strerror(errno));
}

static int recover(const struct command *cmd, struct agent_call *call, int argc, char **argv)
{
	struct cistern_error err = { 0 };
	const char *to = NULL;
	struct args a;
	int key;

	call->argv[call->num++] = AGENT;
	call->argv[call->num++] = "recover";
	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0) {
		if (call->num_heads == ARGS_MAX_OPTIONS)
			return args_usage_error(cmd, "too many options");
		pass_on(call, key, optarg);
		if (key == OPT_TO)
			to = optarg;
	}
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 1, STORES_MAX)) >= 0)
		return a.exit_status;
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
	struct agent_call call = { .argv = calloc(2 * ARGS_MAX_OPTIONS + 4 + (size_t)argc, sizeof(char *)) };
	struct cistern_error err = { 0 };
	int status;

	if (!call.argv) {
		cistern_error_set(&err, -ENOMEM, "out of memory");
		return say_error(&err);
	}
	status = recover(cmd, &call, argc, argv);
	free(call.argv);
	return status;
}

const struct command command_recover = {
	.name = "recover",
	.summary = "drain a store whose daemon is gone",
	.synopsis =
		"recover STORE... --to DIR [--backing DIR] [--verify none|size|read] [--manifest FILE] [--force] [--json]",
	.about =
		"Writes what is only in STORE to DIR. If DIR is the backing directory, it is drained just as the daemon would have done: new "
		"files appear when they are whole, existing ones are changed in place. If DIR is another, empty directory, the files that the "
		"store changed are made whole there.\n\n"
		"The store is only read; it can be deleted when the exit status was 0, which says that everything is in DIR. The command can be "
		"interrupted and started again. Settings are those of cistern.conf(5).\n\n"
		"Mounting the store again does the same in the background.\n\n"
		"The stores of a job of many nodes are given together, copied to one machine or on a file system that it reaches, in any order. When "
		"some are lost, what the others have is written, and the manifest lists which ranges of which files are known to be "
		"missing; the exit status is 3 then.",
	.examples = "cistern fsck /local/nvme/$JOB\ncistern recover /local/nvme/$JOB --to /lustre/proj/run42\n"
		    "cistern recover /stores/node-* --to /lustre/proj/run42",
	.options = options,
	.run = run_recover,
};
