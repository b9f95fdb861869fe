/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cistern agent: becomes cistern-mpi-agent, which is never linked, since it needs MPI. mpiexec starts one on each node; what it hands to
 * its processes, in the environment and in open descriptors, must reach the agent.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cistern/error.h"
#include "tools/cistern.h"
#include "tools/lib/libexec.h"
#include "tools/lib/say.h"

#define AGENT "cistern-mpi-agent"

enum { OPT_STORE = 256, OPT_TIMEOUT };

static const struct args_option options[] = {
	{ OPT_STORE, "store", "DIR", "the store of this node's mount" },
	{ OPT_TIMEOUT, "timeout", "TIME", "how long to wait until the store is mounted; default 60s" },
	{ 0 },
};

/* Becomes the agent. Returns only with an error. */
static int exec_agent(const char *store, const char *timeout, struct cistern_error *err)
{
	const char *argv[] = { AGENT, "--store", store, timeout ? "--timeout" : NULL, timeout, NULL };
	char program[PATH_MAX];
	int r = libexec_find(AGENT, program, err);

	if (r < 0)
		return r;
	fflush(NULL);
	execv(program, (char *const *)argv);
	return cistern_error_set(err, -errno, "%s: %s", program, strerror(errno));
}

static int run_agent(const struct command *cmd, int argc, char **argv)
{
	const char *store = NULL, *timeout = NULL;
	struct cistern_error err = { 0 };
	uint64_t usec;
	struct args a;
	int key;

	args_init(&a, cmd, argc, argv);
	while ((key = args_next(&a)) >= 0) {
		if (key == OPT_STORE)
			store = optarg;
		if (key == OPT_TIMEOUT) {
			timeout = optarg;
			if (args_usec(cmd, "--timeout", timeout, &usec) >= 0)
				return CISTERN_EXIT_USAGE;
		}
	}
	if (a.exit_status >= 0 || (a.exit_status = args_operands(&a, 0, 0)) >= 0)
		return a.exit_status;
	if (!store)
		return args_usage_error(cmd, "--store DIR is missing");
	exec_agent(store, timeout, &err);
	return say_error(&err);
}

const struct command command_agent = {
	.name = "agent",
	.summary = "join this node's mount with those of the job's other nodes",
	.synopsis = "agent --store DIR [--timeout TIME]",
	.about =
		"Started by MPICH's mpiexec, or srun with --mpi=pmi2, once on each node of a job, each with the store of its node's mount, the "
		"agents make one file system of the mounts: they carry messages and data between them. The mounts are made first, without MPI; "
		"those of a job of several nodes wait for their agents when they need other nodes.\n\n"
		"The first time, the stores are numbered. From then on they belong together: all must be there, each once. A wrong set is "
		"refused, and the message names the store that does not fit.\n\n"
		"The agents end when all mounts have been taken down, or when one of them is told to by SIGTERM or SIGINT, or dies. Nothing is "
		"lost by that; they can be started again while the mounts and applications live.\n\n"
		"When several are started at once with the same store, as srun does with several tasks a node, one serves it and the others wait "
		"for its end. When all stores have their agents already, the command ends at once, with exit status 0.\n\n"
		"Exit status 2: this set of stores is wrong; 6: a store was not mounted in time.",
	.examples = "mpiexec -ppn 1 cistern agent --store /local/nvme/$JOB &\n"
		    "srun --overlap --mpi=pmi2 --ntasks-per-node=1 cistern agent --store /local/nvme/$JOB &",
	.options = options,
	.run = run_agent,
};
