/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_STORE_UNITE_H
#define FORMAT_STORE_UNITE_H

/* A file that nodes of a job write together, as all their stores know it: for recovery and inspection. */

#include <stdint.h>

#include "format/store/store.h"

struct store_united {
	uint64_t
		size; /* of the file: as to says, but for what that does not know to be cut off, and at least up to the end of what was written */
	uint64_t limit; /* so far at most the backing file counts */
};

/*
 * Puts what the stores know of file ino into the share map of to_ino in to, which is changed: a copy in memory, of a store that was
 * opened to be read. stores: num_nodes of one job, by node, NULL: not at hand. to need not have an inode
 * of that number. 0, -ENOMEM, -EINVAL: more nodes than a
 * job has; or -errno of an index; the map may hold a part then.
 */
int store_unite(struct store *const *stores, uint32_t num_nodes, uint64_t ino, struct state *to, uint64_t to_ino,
	struct store_united *ret);

#endif
