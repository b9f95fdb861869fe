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
#include "format/base/config.h"
#include "format/store/store.h"
#include "tools/cistern.h"
#include "tools/lib/libexec.h"
#include "tools/lib/say.h"

#define AGENT          "cistern-agent"
#define CONFIG_CLEANUP __attribute__((cleanup(destroy_config)))

static void destroy_config(struct config **cfg)
{
	config_destroy(*cfg);
}

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

/* Becomes the agent. Returns only with an error. */
static int exec_agent(const char *store, const char *to, const char *options, struct cistern_error *err)
{
	const char *argv[] = { AGENT, "recover", store, "--to", to, "-o", options, NULL };
	char program[PATH_MAX];
	int r = libexec_find(AGENT, program, err);

	if (r < 0)
		return r;
	fflush(NULL);
	execv(program, (char *const *)argv);
	return cistern_error_set(err, -errno, "%s: %s", program, strerror(errno));
}

enum { OPT_TO = 256 };

static const struct args_option options[] = {
	{ OPT_TO, "to", "DIR", "where the files go; usually the backing directory" },
	{ 'o', "options", "KEY=VALUE,...",
		"settings, see cistern.conf(5): verify, flush_buffer_size, drain_rate, manifest" },
	{ 0 },
};

static int run_recover(const struct command *cmd, int argc, char **argv)
{
	CONFIG_CLEANUP struct config *cfg = NULL;
	struct cistern_error err = { 0 };
	const char *to = NULL;
	char *text;
	struct args a;
	int key;

	if (config_create(&cfg) < 0 || config_load(cfg, &err) < 0) {
		say("recover: %s", err.text[0] ? err.text : "out of memory");
		return CISTERN_EXIT_USAGE;
	}
	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0) {
		if (key == OPT_TO)
			to = optarg;
		else if (config_parse_options(cfg, optarg, "-o", &err) < 0)
			return args_usage_error(cmd, "%s", err.text);
	}
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 1, 1)) >= 0)
		return a.exit_status;
	if (check_store(argv[optind], to, &err) < 0 || check_to(to, &err) < 0)
		return err.code == -EINVAL ? args_usage_error(cmd, "%s", err.text) : say_error(&err);
	text = config_to_options(cfg);
	if (text)
		exec_agent(argv[optind], to, text, &err);
	free(text);
	return say_error(&err);
}

const struct command command_recover = {
	.name = "recover",
	.summary = "drain a store whose daemon is gone",
	.synopsis = "recover STORE --to DIR [-o KEY=VALUE,...]",
	.about =
		"Writes everything that is only in STORE to DIR, as a drain does: new files appear when they are whole, existing ones are changed in place. "
		"It can be interrupted and started again. Nothing is taken from the store before it is safe in DIR. The exit status is 0 only if "
		"nothing is left. Mounting the store again does the same in the background.",
	.examples = "cistern fsck /local/nvme/$JOB\ncistern recover /local/nvme/$JOB --to /lustre/proj/run42",
	.options = options,
	.run = run_recover,
};
