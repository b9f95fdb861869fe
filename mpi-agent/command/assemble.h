/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMMAND_ASSEMBLE_H
#define MPI_AGENT_COMMAND_ASSEMBLE_H

/* From a number of processes with a store each to the agents of one job. */

#include "mpi-agent/comm/comm.h"
#include "mpi-agent/comm/identity.h"
#include "mpi-agent/comm/wake.h"

struct assembly_member { /* one rank */
	uint32_t node;
	uint64_t incarnation; /* 0: its daemon has left */
	char host[IDENTITY_NAME_BYTES];
	char *store; /* owned; NULL: of another host */
	struct identity_folder folder;
};

struct assembly_memory { /* shared with a daemon */
	uint8_t *at;     /* owned */
	uint64_t bytes;
};

struct assembly {
	struct identity self;
	uint8_t job_uuid[IDENTITY_UUID_BYTES];
	struct protocols protocols; /* that all nodes speak */
	uint32_t num;
	struct assembly_member *members; /* owned, by rank */
	uint32_t *rank_of;               /* owned, by node */
	int fd;                          /* owned: the daemon; -1 */
	struct assembly_memory memory;
};

/*
 * Collective, before assemble(): of agents that were started with the same store on one host the first is kept (comm_keep).
 */
int assembly_keep_first(struct comm *c, struct assembly *a, bool *ret_kept, struct cistern_error *err);
/*
 * Collective: asks the daemon of the store (waiting so long for one), checks the set, tells the daemon, and waits for all. On failure,
 * the daemon has been told, and *err is the same on all ranks. -EALREADY: all stores have their agents already.
 */
int assemble(struct comm *c, struct wake *w, struct assembly *a, uint64_t timeout_usec, struct cistern_error *err);
/*
 * One try to get a new daemon of the same store, after the old one has left. It is not told about the assembly yet, but if it is not to
 * be served, why. *ret_old: the memory of the one before, the caller's now. -ENOENT, -ECONNREFUSED: there is none.
 */
int assemble_again(struct assembly *a, struct assembly_memory *ret_old, struct cistern_error *err);
void assembly_memory_free(struct assembly_memory *m);
/*
 * WIRE_AGENT_ASSEMBLED to the daemon of assemble_again(); its answer. Blocks for as short a time as that one. After -ETIMEDOUT it may have been
 * taken: the connection is to be closed, which to the daemon is an agent that is lost.
 */
int assemble_tell_again(struct assembly *a, struct cistern_error *err);
void assembly_release(struct assembly *a);

#endif
