/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMM_WAKE_H
#define MPI_AGENT_COMM_WAKE_H

/*
 * Wake-ups: an agent with nothing to do sleeps in poll(), where MPI cannot wake it. Who wants something of it sends an empty
 * datagram. A lost one costs the time after which a sleeper looks at MPI anyway.
 */

#include "mpi-agent/comm/identity.h"

#define WAKE_SPINS_USEC 200u  /* so long an agent looks at MPI all the time after something happened */
#define WAKE_STAYS_USEC 1000u /* so long it looks often; then it sleeps */
#define WAKE_HEARD_USEC 100u  /* who was heard of since looks at MPI now: less than WAKE_SPINS_USEC */

struct wake;

/* Makes the socket; *ret_place: where it can be reached. */
int wake_create(struct identity_place *ret_place, struct wake **ret, struct cistern_error *err);
void wake_destroy(struct wake *w);
/* Where the num ranks can be reached. -ENOMEM */
int wake_set_peers(struct wake *w, const struct identity_place *places, uint32_t num);
int wake_fd(const struct wake *w);
bool wake_drain(struct wake *w); /* takes what has come; was there something? */
/* The rank has just been heard of. */
void wake_heard(struct wake *w, uint32_t rank, uint64_t now_usec);
/* Something goes to the rank: wakes it unless it is known to look at MPI. */
void wake_up(struct wake *w, uint32_t rank, uint64_t now_usec);
/* We wait for the rank, whatever we have heard of it. */
void wake_hurry(struct wake *w, uint32_t rank, uint64_t now_usec);

#endif
