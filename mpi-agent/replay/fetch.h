/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_FETCH_H
#define MPI_AGENT_REPLAY_FETCH_H

/* The pieces of a window that other nodes have: brought by the watcher, a few parts at a time, while others are worked on. */

#include <stdbool.h>
#include <stdint.h>

#include "mpi-agent/plan/window.h"
#include "mpi-agent/replay/drain.h"

struct fetches;

struct fetches *fetches_create(const struct drain_watcher *watcher); /* borrowed; NULL: no memory */
void fetches_destroy(struct fetches *f);                             /* NULL is fine */
/*
 * Begins to bring pieces[order[0]] to pieces[order[num - 1]], none longer than WIRE_FETCH_BYTES, to where they belong in data. All
 * three are borrowed until fetches_end, which is to follow also when this fails.
 */
int fetches_begin(struct fetches *f, const struct piece *pieces, uint8_t *data, const uint32_t *order, uint32_t num);
/* Waits for the next part, if there is one, puts it in its place, and begins another one. */
int fetches_take(struct fetches *f);
/*
 * wanted: all that is left is put in its place; else it is only waited for. The first error; *ret_failed: a piece of the segment that could
 * not be had, or NULL.
 */
int fetches_end(struct fetches *f, bool wanted, const struct piece **ret_failed);

#endif
