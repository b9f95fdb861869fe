/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMMAND_RECOVER_NAMES_H
#define MPI_AGENT_COMMAND_RECOVER_NAMES_H

#include "mpi-agent/command/recover_set.h"

/* Each name of a file becomes that of one store, in the stores' states. 0, -ENOMEM, or as state_apply(). */
int recover_names_settle(struct recover_set *set);

#endif
