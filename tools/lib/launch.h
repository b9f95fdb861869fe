/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_LAUNCH_H
#define TOOLS_LIB_LAUNCH_H

/* Commands that several processes can do together: started by MPICH's mpiexec, or, with -n, starting it. */

#include <stdint.h>

#include "cistern/error.h"

#define LAUNCH_OPTION                                                                 \
	{                                                                             \
		'n', NULL, "N", "run N processes, through MPICH's mpiexec; default 1" \
	}

/* text: what -n has, or NULL. *ret: how many, 1 without. -EINVAL: the text says why not. */
int launch_count(const char *text, uint64_t *ret, struct cistern_error *err);
/*
 * Becomes mpiexec with n processes of argv[LAUNCH_ARGS] (a path) and what follows it, up to NULL; what stands before is overwritten. For
 * n = 1 that program itself. Returns only with an error.
 */
#define LAUNCH_ARGS 3
int launch_exec(const char **argv, uint64_t n, struct cistern_error *err);

#endif
