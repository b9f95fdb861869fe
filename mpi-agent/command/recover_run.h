/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMMAND_RECOVER_RUN_H
#define MPI_AGENT_COMMAND_RECOVER_RUN_H

/* Carries what the stores of a dead job hold into a directory: by one process, or by a team of any size. */

#include "mpi-agent/command/recover_set.h"
#include "mpi-agent/comm/team.h"
#include "mpi-agent/replay/drain.h"

/*
 * opt: as for one store; store, node, part and what belongs to them are set here. Collective: the same set, merged, in all processes, and
 * each its own manifest. *ret and the manifest are those of all in the first process. A failure is the same everywhere.
 */
int recover_run(struct recover_set *set, const struct team *team, const struct drain_options *opt,
	struct manifest_totals *ret, struct cistern_error *err);

#endif
