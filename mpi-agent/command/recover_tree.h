/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMMAND_RECOVER_TREE_H
#define MPI_AGENT_COMMAND_RECOVER_TREE_H

#include "mpi-agent/command/recover_set.h"

/*
 * All stores get the directories of the one that leads, and where those are in the backing directory. What that one has not kept is said on
 * stderr. 0 or -errno.
 */
int recover_tree_follow(struct recover_set *set);

#endif
