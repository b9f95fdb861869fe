/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_STORES_H
#define TOOLS_LIB_STORES_H

/* The stores of one job that a command was given, or the one store of a node that is alone. */

#include <stddef.h>
#include <stdint.h>

#include "format/store/hosts.h"
#include "tools/lib/reader.h"

#define STORES_NODE_BYTES  HOSTS_NODE_BYTES
#define STORES_NODES_BYTES 512u

struct stores {                 /* stores_close; zero-initialised = none */
	struct reader *list;    /* owned; num of them, in the order in which they were added */
	struct store **by_node; /* owned; num_nodes of them, NULL: not given */
	size_t num;
	uint32_t num_nodes; /* of the job; 1: alone */
};

/* dir: a store's directory. -EINVAL: not of the same job as the others, or of a node that is there already: text. */
int stores_add(struct stores *s, const char *dir, struct cistern_error *err);
void stores_close(struct stores *s);
/*
 * The file path (relative to the root of the mount, or in the mount point of a store), in the store of its home where that is given,
 * else in another one that has it. -ENOENT; -errno of an index.
 */
int stores_find(const struct stores *s, const char *path, struct store **ret_store, struct inode *ret);
/* By what other nodes than its home remember as its path, which may be out of date. */
int stores_find_remembered(const struct stores *s, const char *path, struct store **ret_store, struct inode *ret);
/* Where the node was when the job assembled last, as the stores that are given know it; empty: they do not. */
void stores_host(const struct stores *s, uint32_t node, char ret[HOSTS_NAME_BYTES]);
/* "node 3 (host n17)", or "node 3". Returns out. */
const char *stores_node_text(const struct stores *s, uint32_t node, char out[STORES_NODE_BYTES]);
/* Those that are not given: "node 1 (host n15), node 3 (host n17)", and "..." for what does not fit. Returns out. */
const char *stores_not_given(const struct stores *s, char out[STORES_NODES_BYTES]);
/* path without the mount point of s or slashes in front. */
const char *stores_relative(const struct store *s, const char *path);
/* By its number. */
int stores_find_ino(const struct stores *s, uint64_t ino, struct store **ret_store, struct inode *ret);

#endif
