/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMM_TEAM_H
#define MPI_AGENT_COMM_TEAM_H

/*
 * The processes that do a command together: those that mpiexec or srun has started, or this one alone. All calls are collective;
 * alone, they cost nothing and need no MPI.
 */

#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"

struct comm;
struct team {
	struct comm *comm; /* owned; NULL: alone */
	uint32_t rank, size;
};

/* argc, argv: main's; MPI may take arguments of its own out. -EINVAL: by Open MPI's mpiexec, as several that know nothing of each other. */
int team_join(struct team *t, int *argc, char ***argv, struct cistern_error *err);
/* The first failure of all, with its text, everywhere. code 0: well, and err is emptied. */
int team_agree(const struct team *t, int code, struct cistern_error *err);
/* As comm_gather() and comm_broadcast(). */
int team_gather(const struct team *t, const void *mine, size_t len, void *all, struct cistern_error *err);
int team_broadcast(const struct team *t, void *bytes, size_t len, struct cistern_error *err);
/* Ends MPI, or itself by SIGALRM should others never come. A team that was not joined is fine. */
void team_leave(struct team *t);

#endif
