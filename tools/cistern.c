/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern: one command with sub-commands. Long-running parts are separate programs that it starts. Called by
 * mount(8), under the name mount.fuse.cistern or with two paths, it is "cistern mount".
 */
#include "tools/cistern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cistern/error.h"
#include "format/base/descriptors.h"
#include "tools/lib/say.h"

static const struct command *const commands[] = {
	&command_mount,
	&command_umount,
	&command_flush,
	&command_wait,
	&command_pause,
	&command_resume,
	&command_status,
	&command_inspect,
	&command_fsck,
	&command_recover,
	&command_convert,
	&command_agent,
	&command_config,
	&command_help,
	NULL,
};

const struct command *const *command_list(void)
{
	return commands;
}

const struct command *command_find(const char *name)
{
	for (size_t i = 0; commands[i]; i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

static bool is_mount_helper(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/');

	return strncmp(slash ? slash + 1 : argv[0], "mount.", 6) == 0 || (argc > 1 && argv[1][0] == '/');
}

static int unknown(const char *name)
{
	const char *near = command_nearest(name);

	if (near)
		say("there is no command '%s'; did you mean '%s'?", name, near);
	else
		say("there is no command '%s'; 'cistern --help' lists them", name);
	return CISTERN_EXIT_USAGE;
}

/* What was printed must have arrived: a full disk under our standard output is a failure. */
static int flush_output(int status)
{
	if (fflush(stdout) != 0 || ferror(stdout)) {
		say("cannot write the output");
		return status == CISTERN_EXIT_OK ? CISTERN_EXIT_FAILED : status;
	}
	return status;
}

static int run(int argc, char **argv)
{
	const struct command *cmd;

	if (is_mount_helper(argc, argv))
		return mount_helper(argc, argv);
	if (argc < 2) {
		command_overview(stderr);
		return CISTERN_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		command_overview(stdout);
		return CISTERN_EXIT_OK;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		puts("cistern " PACKAGE_VERSION);
		return CISTERN_EXIT_OK;
	}
	cmd = command_find(argv[1]);
	return cmd ? cmd->run(cmd, argc - 1, argv + 1) : unknown(argv[1]);
}

int main(int argc, char **argv)
{
	descriptors_fill();
	return argc > 0 ? flush_output(run(argc, argv)) : CISTERN_EXIT_USAGE;
}
