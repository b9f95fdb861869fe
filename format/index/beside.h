/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_INDEX_BESIDE_H
#define FORMAT_INDEX_BESIDE_H

/*
 * A file whose place in the backing directory is taken by something that Cistern does not know stands beside it there, as
 * NAME.cistern-TAG-INODE (docs/design/one-node.md, 5). The state says so by the backing name alone: a function of the name, so that whoever
 * does the same again finds it done.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/index/state.h"

#define BESIDE_TAG_BYTES 48

/* Of a store: its job's name, if it has a plain one, and the first part of its number. */
void beside_tag(const char *job, const char *uuid, char out[BESIDE_TAG_BYTES]);
/* The name beside name for ino. A long name is shortened, with a number of the whole one in its place. */
void beside_name(const char *name, const char *tag, uint64_t ino, char out[RECORD_NAME_MAX + 1]);
/* Is backing such a name of ino's name, with whatever tag? */
bool beside_is_of(const char *backing, const char *name, uint64_t ino);
/* path leads to ino under such a name: it is cut down to the name that it stands beside, which people know. Not when that was shortened. */
void beside_to_shown(char *path, uint64_t ino);
/*
 * Is (parent, backing), which is ino's in the backing directory, the place of one of its names in the mount that it cannot have there?
 * ret_name (RECORD_NAME_MAX + 1, may be NULL): that name.
 */
bool state_is_beside(struct state *st, uint64_t parent, const char *backing, uint64_t ino, char *ret_name);
/* Has the inode its place for the name (dir, name) beside it? out: the backing name. */
bool state_has_beside(struct state *st, uint64_t dir, const char *name, const struct inode *in, const char *tag,
	char out[RECORD_NAME_MAX + 1]);

#endif
