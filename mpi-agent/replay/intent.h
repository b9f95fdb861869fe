/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_INTENT_H
#define MPI_AGENT_REPLAY_INTENT_H

/*
 * What is about to get a name in the destination, written down in the store before it does. The next session after a
 * killed one takes back what was done and not reported; it could not find out otherwise, since the names that a living
 * mount has may have changed by then.
 */

#include <stdbool.h>
#include <sys/stat.h>

#include "format/journal/record.h"
#include "mpi-agent/sink/sink.h"

struct intent;
struct state;

/*
 * One at a time has it: whoever comes after an agent whose daemon has died waits until that one has noticed. -EBUSY: it
 * has not within half a minute's time.
 */
int intent_open(const char *path, struct intent **ret);
bool intent_is_empty(const struct intent *in);
void intent_close(struct intent *in); /* NULL is fine */
/*
 * rec is going to be done. PLACED (with the inode number of what is placed): MOVED: as a rename of from to to, or, where it is
 * from its own place, by something new that replaces what is at to and has the further name from; else something new
 * appears at to. REMOVED: one of several names of a file, the one at to, is going to be removed. beside: what may change places with what is at to, and is removed afterwards; "": nothing. Paths in the
 * destination. made: of something new that is no directory, what it is now (NULL: not known); numbers are given again, so only that
 * is taken away. 0 or -errno.
 */
int intent_add(struct intent *in, const struct record *rec, const char *from, const char *to, const char *beside,
	bool is_dir, const struct stat *made);
/* All of them have been reported, or undone. */
int intent_clear(struct intent *in);
/*
 * Takes back, last one first, what is not in the state: what a killed session has done and could not report. After it
 * the backing files are where the state says, or parked beside that, where another file has the place by now. 0 or -errno of the sink.
 */
int intent_undo(struct intent *in, struct state *st, struct sink *sink);

#endif
