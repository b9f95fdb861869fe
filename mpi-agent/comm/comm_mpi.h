/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMM_COMM_MPI_H
#define MPI_AGENT_COMM_COMM_MPI_H

/* For who calls MPI itself: the window. */

#include <mpi.h>

#include "mpi-agent/comm/comm.h"

MPI_Comm comm_mpi(const struct comm *c); /* of the ranks that c has; borrowed */

#endif
