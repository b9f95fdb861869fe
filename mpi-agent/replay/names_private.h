/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_NAMES_PRIVATE_H
#define MPI_AGENT_REPLAY_NAMES_PRIVATE_H

/* What one name's place (names_place.c) and the walk over all of them (names.c) share. 0, errors of the sink, or what ended the session. */

#include "mpi-agent/replay/session.h"

/* What shows in parent under name gets its parking name instead; that it cannot is told, and no failure. */
int names_move_away(struct session *s, uint64_t parent, const char *name, uint64_t ino);
/* Tells the mount that nothing shows in parent under name any more. */
int names_removed_step(struct session *s, uint64_t ino, uint64_t parent, const char *name);
/* What only a lost store may know of leaves that name before anything is said of ino, which is to get it: a line about a move takes that along. */
int names_make_way(struct session *s, const struct session_dir *dir, const char *name, uint64_t ino);
/* A temporary name, of a file or an empty directory. */
int names_remove_temp(struct session *s, const char *path);

#endif
