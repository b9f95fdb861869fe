/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/lib/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "format/base/launch.h"
#include "format/base/units.h"

#define PROCS_MAX 65536u

int launch_count(const char *text, uint64_t *ret, struct cistern_error *err)
{
	*ret = 1;
	if (text && (units_parse_u64(text, ret) < 0 || *ret == 0 || *ret > PROCS_MAX))
		return cistern_error_set(err, -EINVAL, "-n is a number of processes, from 1 on, not '%s'", text);
	if (*ret > 1 && launch_is_one_of_many())
		return cistern_error_set(
			err, -EINVAL, "-n inside mpiexec, which says already how many processes there are");
	return 0;
}

/* By the names that MPICH's launcher has. */
static int exec_mpiexec(const char **argv, struct cistern_error *err)
{
	static const char *const names[] = { "mpiexec.mpich", "mpiexec.hydra", "mpiexec" };
	int null = open("/dev/null", O_RDONLY);

	if (null >= 0) /* it would read what others type */
		dup2(null, STDIN_FILENO);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		argv[0] = names[i];
		execvp(argv[0], (char *const *)argv);
	}
	return cistern_error_set(err, -errno, "mpiexec.mpich cannot be started: %s", strerror(errno));
}

int launch_exec(const char **argv, uint64_t n, struct cistern_error *err)
{
	char procs[24];

	fflush(NULL);
	if (n > 1) {
		snprintf(procs, sizeof(procs), "%" PRIu64, n);
		argv[1] = "-n";
		argv[2] = procs;
		return exec_mpiexec(argv, err);
	}
	execv(argv[LAUNCH_ARGS], (char *const *)(argv + LAUNCH_ARGS));
	return cistern_error_set(err, -errno, "%s: %s", argv[LAUNCH_ARGS], strerror(errno));
}
