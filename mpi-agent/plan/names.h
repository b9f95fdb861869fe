/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_PLAN_NAMES_H
#define MPI_AGENT_PLAN_NAMES_H

/*
 * The names plan: what the next step is for one name of the mount, given what the state says of the backing directory.
 * Pure: the executor does the step, applies its record to its copy of the state, and asks again until NAMES_DONE.
 */

#include <stdbool.h>
#include <stdint.h>

#include "format/index/state.h"
#include "format/manifest/manifest.h"

#define NAMES_PARK_PREFIX MANIFEST_PARKED

enum names_action {
	NAMES_DONE,  /* the name is where it belongs */
	NAMES_PARK,  /* another inode that is needed has the place: move it to park_name in the same directory */
	NAMES_CLEAR, /* another inode that nobody needs has the place, and nothing can be renamed over it: remove it */
	NAMES_MOVE,  /* rename from (from_parent, from_name), which is no name that anybody wants */
	NAMES_LINK,  /* hard link to (from_parent, from_name), which stays */
	NAMES_MKDIR,
	NAMES_SYMLINK,
	NAMES_DATA, /* a new file, or one under a temporary name: comes with its data */
};

struct names_step {
	enum names_action action;
	uint64_t ino;         /* PARK, CLEAR: the occupant; else the inode to be placed */
	uint32_t mode;        /* of that inode (0 when the state no longer has it) */
	uint64_t from_parent; /* PARK, MOVE, LINK */
	char from_name[RECORD_NAME_MAX + 1];
	char park_name[RECORD_NAME_MAX + 1]; /* PARK */
};

/* 0; -ENOENT: the inode is not in the state; the state's errors. *ret_in is the inode of ino. */
int names_next_step(
	struct state *st, uint64_t dir, const char *name, uint64_t ino, struct inode *ret_in, struct names_step *ret);
/* Is an inode's backing file still of use: has it a name, or may something below it be? */
bool names_is_needed(const struct inode *in);
/* Of a file that nobody knew, of this number in the backing directory, and whose name has gone to another one; or, without a name, of a directory that was removed. */
void names_aside_name(const char *name, uint64_t backing_ino, char out[RECORD_NAME_MAX + 1]);
/* Has st a file of this number there, or one that has been freed and left the name? */
bool names_is_known(struct state *st, uint64_t dir, const char *name, uint64_t backing_ino);
void names_park_name(uint64_t ino, char out[RECORD_NAME_MAX + 1]);
/*
 * A directory is in (dir, name), so the file that the state has there is not. True: it is one that is needed, and *ret says that it is parked,
 * which is as good as any other place until it is looked for.
 */
bool names_make_room(struct state *st, uint64_t dir, const char *name, struct record *ret);

#endif
