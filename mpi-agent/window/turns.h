/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_WINDOW_TURNS_H
#define MPI_AGENT_WINDOW_TURNS_H

/*
 * Whose get is begun next. A rank that does not answer keeps the gets from it under way for as long as it does not, and only so many can be.
 * So ranks take turns, each with its own in the order in which they came, and a rank may have a get more only while fewer are under way from it
 * than are left: one that hangs has half of them, two have three quarters, and those that answer go on. From one thread.
 */

#include <stdint.h>

struct turns;

struct turn { /* in each thing that waits */
	struct turn *next;
	uint32_t rank;
};

int turns_create(uint32_t num_ranks, uint32_t most, struct turns **ret); /* most: under way at once. 0, -ENOMEM */
void turns_destroy(struct turns *t);                                     /* what waits is the caller's */

void turns_push(struct turns *t, uint32_t rank, struct turn *waits);
struct turn *turns_next(
	struct turns *t); /* counts as under way from its rank, until turns_ended; NULL: none may begin */
void turns_ended(struct turns *t, uint32_t rank);
struct turn *turns_take(struct turns *t, uint32_t rank); /* out of those that wait: all of the rank, in their order */

#endif
