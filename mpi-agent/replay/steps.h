/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_STEPS_H
#define MPI_AGENT_REPLAY_STEPS_H

/*
 * The steps of a recovery in place, kept beside a dead store's own files, which are not changed: a next recovery of the same
 * store applies them to its copy of the state and so knows what is done.
 */

#include "format/index/state.h"
#include "format/journal/record.h"

struct steps;

/* Opens or makes the file; what it holds of a store at another seq than st's is of no use any more and is dropped. The steps
 * in it are applied to st. 0, -errno. */
int steps_open(const char *path, struct state *st, struct steps **ret);
void steps_close(struct steps *s);                        /* NULL is fine */
int steps_add(struct steps *s, const struct record *rec); /* -EINVAL, -ENOMEM */
int steps_write(struct steps *s);                         /* what was added is durable when it returns 0 */

#endif
