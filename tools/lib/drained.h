/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_DRAINED_H
#define TOOLS_LIB_DRAINED_H

/* Is everything of a store on its backing directory? */

#include <stdint.h>

#include "format/index/state.h"

struct drained_left {
	uint64_t files; /* dirty, or not in the backing directory yet */
	uint64_t names; /* of the backing directory, which have been deleted or moved in the mount */
};

/* What of a store's state is not on the backing directory. 0 or -errno. */
int drained_left(struct state *st, struct drained_left *ret);

/*
 * Of a store without a daemon: says what the last daemon left word of, and what is left in the store, and what can be done.
 * backing: for the advice; NULL: the one recorded in the store. noted: what is said of a drain that went well when its last
 * session had nothing to carry, and so nothing to say; NULL. CISTERN_EXIT_OK only if all is drained;
 * CISTERN_EXIT_INCOMPLETE: something is still in the store.
 */
int drained_verdict(const char *store, const char *backing, const char *noted);

#endif
