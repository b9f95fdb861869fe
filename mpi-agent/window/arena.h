/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_WINDOW_ARENA_H
#define MPI_AGENT_WINDOW_ARENA_H

/*
 * The window: a large range of addresses, exposed to all ranks once, in which files come and go. Places in it are named by their
 * offset, the same number for who maps and for who gets. From one thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "mpi-agent/comm/comm.h"

struct arena;

int arena_create(const struct comm *c, struct arena **ret, struct cistern_error *err); /* collective */
/* Collective; nothing is under way any more. */
void arena_destroy(struct arena *a);

uint64_t arena_bytes(const struct arena *a); /* of addresses, in all */
/* Maps a file, readable, in room for len bytes (beyond its end nobody may read). -ENOSPC, or -errno of mmap. */
int arena_map(struct arena *a, int fd, uint64_t len, uint64_t *ret_at);
void arena_unmap(struct arena *a, uint64_t at); /* nobody gets from there any more */
/* Bytes [off, off + len) of what is mapped at at will be read soon: the kernel may begin to fetch them. */
void arena_will_need(struct arena *a, uint64_t at, uint64_t off, uint64_t len);

/* ---- gets */
/* Under way at once: of small ones many, so that each look at MPI finds some that have ended. A rank has half of them at most (turns.h). */
#define ARENA_GETS 128

/*
 * Begins to fetch len bytes at offset at of the rank's window. tag comes back from arena_step. -EAGAIN: ARENA_GETS are under way;
 * -EIO: MPI refuses.
 */
int arena_get(
	struct arena *a, uint32_t rank, uint64_t at, void *to, uint32_t len, void *tag, struct cistern_error *err);
bool arena_busy(const struct arena *a); /* gets are under way */
/* Lets gets go on; tells each one's end. Returns how many have ended, or -EIO. */
int arena_step(
	struct arena *a, void (*ended)(uint32_t rank, void *tag, void *arg), void *arg, struct cistern_error *err);
/* For each get under way. */
void arena_each_get(struct arena *a, void (*each)(uint32_t rank, void *arg), void *arg);

#endif
