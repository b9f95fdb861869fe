/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_STORE_STEPS_H
#define FORMAT_STORE_STEPS_H

/*
 * The steps of a recovery in place, kept beside a dead store's own files, which are not changed: a next recovery of the same
 * store applies them to its copy of the state and so knows what is done; who opens the store for writing next, a mount or
 * fsck, commits them.
 */

#include "cistern/error.h"
#include "format/index/state.h"
#include "format/journal/record.h"

#define STEPS_FILE "recover.steps" /* in the store */
#define CONVERT_FILE \
	"drain.convert" /* likewise: inodes of drained files that get another layout in the last drain, a line each */
#define INTENT_FILE "drain.intent" /* likewise: what whoever drains is about to do and has not reported yet */
#define THROUGH_FILE \
	"drain.through" /* likewise: it is there when the backing directory may have files written through that nothing names */
#define TEMPS_FILE "drain.temps" /* likewise: directories in which it has temporary files (mpi-agent/replay/temps.c) */

struct store;

struct steps;

/* Opens or makes the file; what it holds of a store at another seq than st's is of no use any more and is dropped. The steps
 * in it are applied to st. 0, -errno. */
int steps_open(const char *path, struct state *st, struct steps **ret);
void steps_close(struct steps *s);                        /* NULL is fine */
int steps_add(struct steps *s, const struct record *rec); /* -EINVAL, -ENOMEM */
int steps_write(struct steps *s);                         /* what was added is durable when it returns 0 */

/*
 * For who has just opened s for writing, before anything else is committed: commits the steps in the file, if they are of
 * the store at seq (what the last one who had it open left), makes them durable and removes the file. Killed on the way, it is
 * to be called again at the next open. Steps of another seq are removed; *ret_stale says so. *ret_num: how many were
 * committed. 0 also when there is no file; else -errno, and the store's names are not to be relied upon.
 */
int steps_settle(struct store *s, uint64_t seq, size_t *ret_num, bool *ret_stale, struct cistern_error *err);

#endif
