/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_SINK_SINK_NULL_H
#define MPI_AGENT_SINK_SINK_NULL_H

/* A destination that keeps names, sizes and attributes in memory and drops data. The template for further sinks. */

#include "mpi-agent/sink/sink.h"

int sink_null_create(struct sink **ret);        /* empty but for "."; 0, -ENOMEM */
uint64_t sink_null_bytes(const struct sink *s); /* that were written to it */

#endif
