/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_INDEX_LEFT_H
#define FORMAT_INDEX_LEFT_H

/*
 * What a store has that its backing directory has not: the one answer behind "is a drain needed", "is everything
 * drained" and "may this store be deleted".
 */

#include <stdbool.h>
#include <stdint.h>

#include "format/index/state.h"

struct state_left {
	uint64_t files;       /* with data, attributes or a name that are not there yet */
	uint64_t names;       /* of the backing directory: deleted or moved in the mount */
	uint64_t beside;      /* of those that are there: under another name, since somebody else has theirs */
	uint64_t layers;      /* files homed on other nodes, of which this node has bytes that are not drained */
	uint64_t layer_bytes; /* these bytes */
	uint64_t
		shares; /* ranges that nodes have committed and no drain has carried: only this node knows their order */
	uint64_t special; /* FIFOs, sockets and device nodes: they never go there, and nothing is lost with them */
};

/* Whether a backing name does not show in the mount, or shows another inode there, and stands beside no name. -errno where that cannot be read. */
int state_is_misplaced(struct state *st, uint64_t parent, const char *name, uint64_t ino);
/* Files that are open without a name do not count. Takes time in proportion to the inodes. 0 or -errno. */
int state_left(struct state *st, struct state_left *ret);
bool state_left_nothing(const struct state_left *left);

#endif
