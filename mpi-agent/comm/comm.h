/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMM_COMM_H
#define MPI_AGENT_COMM_COMM_H

/*
 * Messages between agents: MPI behind a small interface. Ranks are MPI's. All of it from one thread. MPI's errors come back
 * as -EIO with MPI's own words.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"

struct comm;

int comm_create(int *argc, char ***argv, struct comm **ret, struct cistern_error *err);
int comm_destroy(struct comm *c, struct cistern_error *err); /* collective: ends MPI */
/*
 * Collective, before anything else: c has only those that are kept from now on, in the order of before. A rank that is not has nothing to do but
 * comm_destroy(), which waits there, asleep, for that of the others. 0, or an error: c is as it was.
 */
int comm_keep(struct comm *c, bool keep, struct cistern_error *err);
/* Ends all ranks at once, whatever they do. Does not return. */
void comm_abort(struct comm *c, int status) __attribute__((noreturn));
uint32_t comm_rank(const struct comm *c);
uint32_t comm_size(const struct comm *c);

/* ---- collective, while the ranks gather. They wait asleep, however long the others need. */
/* len bytes of each rank to rank 0: there all holds comm_size() * len, elsewhere it may be NULL. */
int comm_gather(struct comm *c, const void *mine, size_t len, void *all, struct cistern_error *err);
/* len bytes of rank 0 to all. */
int comm_broadcast(struct comm *c, void *bytes, size_t len, struct cistern_error *err);
/* Is it so on all ranks? */
int comm_all(struct comm *c, bool mine, bool *ret_all, struct cistern_error *err);
/* One failure fails all: each rank's code (0: well) and text; the lowest rank's failure comes back everywhere. */
int comm_agree(struct comm *c, int code, const char *text, struct cistern_error *err);
/* Until all ranks are here, at most so long. -ETIMEDOUT */
int comm_barrier(struct comm *c, uint64_t timeout_usec, struct cistern_error *err);

/*
 * ---- messages: whole. PAYLOAD and NOTICE arrive in order for each pair of ranks, and wait while the receiver has COMM_WINDOW_BYTES
 * of them that it has not said to have taken. CONTROL is small, waits for nothing, and may overtake those.
 */
#define COMM_WINDOW_BYTES (16u << 20)
enum comm_kind { COMM_PAYLOAD = 1, COMM_NOTICE, COMM_CONTROL, COMM_CREDIT /* our own */ };

/* Called with each message that is handed to MPI: its receiver must be awake. */
void comm_set_sending(struct comm *c, void (*sending)(uint32_t rank, void *arg), void *arg);
/* Queues bytes (malloc'd, taken over in any case) for a rank. Never blocks. */
int comm_send(struct comm *c, uint32_t rank, enum comm_kind kind, void *bytes, size_t len, struct cistern_error *err);
uint64_t comm_unsent_bytes(const struct comm *c); /* waiting, or MPI is not done with them */

/* bytes: malloc'd, the receiver's. 0, or an error that ends comm_step. */
typedef int (*comm_received)(uint32_t rank, enum comm_kind kind, uint8_t *bytes, size_t len, void *arg);
/*
 * Lets MPI work, and hands over what has arrived. more: what was handed over so far is done with, so that the senders may send more.
 * Returns how many things happened, or an error.
 */
int comm_step(struct comm *c, bool more, comm_received received, void *arg, struct cistern_error *err);
bool comm_busy(const struct comm *c); /* something is under way, which MPI must be called for */

/* MPI's code as -EIO and its words; 0 for MPI_SUCCESS. what: the call. */
int comm_error(int mpi_code, const char *what, struct cistern_error *err);

#endif
