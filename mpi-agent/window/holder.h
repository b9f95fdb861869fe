/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_WINDOW_HOLDER_H
#define MPI_AGENT_WINDOW_HOLDER_H

/* The node's own segments, mapped when others ask for them, and unmapped when they are deleted and nobody reads them any more. */

#include "mpi-agent/window/arena.h"
#include "mpi-agent/window/control.h"

struct holder;

int holder_create(const char *store, struct arena *arena, uint32_t num_ranks, const struct control_sender *sender,
	struct holder **ret, struct cistern_error *err);
void holder_destroy(struct holder *h);
int holder_fd(const struct holder *h); /* readable: segments were deleted; call holder_look() */
/* Retires what was deleted. How many, or -errno. */
int holder_look(struct holder *h);
/* ASK, SOON and RETIRED of a rank. 0 or -errno of sending. */
int holder_on_control(struct holder *h, uint32_t rank, const struct control *m);

#endif
