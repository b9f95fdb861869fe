/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_WINDOW_NEAR_H
#define MPI_AGENT_WINDOW_NEAR_H

/*
 * Stores of other ranks that this process can open itself: those on the same host, if we may. What lies there needs no get: one copy
 * by one process does.
 */

#include "mpi-agent/comm/identity.h"

struct near;

void near_look(const char *store, struct identity_folder *ret); /* of our own; zeros when it cannot be told */

int near_create(uint32_t num_ranks, struct near **ret); /* 0, -ENOMEM */
void near_destroy(struct near *n);
/* A rank of this host. Nothing comes of it when the path does not lead us to that very folder. */
void near_add(struct near *n, uint32_t rank, const char *store, const struct identity_folder *place);
/* Opens a segment to be read. fd, to be closed by the caller; -ENOENT: not near, or no such segment; -EMFILE: enough are open. */
int near_open(struct near *n, uint32_t rank, uint32_t segment);
void near_close(struct near *n, int fd); /* -1: nothing */

#endif
