/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_PLACE_PLACE_H
#define FORMAT_PLACE_PLACE_H

/*
 * Which node of a job is the home of what (docs/design/many-nodes.md, 1). Pure functions of names, numbers and the
 * number of nodes, the same on every node, in recovery, and for ever: stores on disk rely on them.
 */

#include <stddef.h>
#include <stdint.h>

#include "format/index/state.h"

#define PLACE_NODES_MAX 65536u
#define PLACE_INO_SHIFT \
	STATE_INO_RANGE_SHIFT /* new inode numbers: node << 40 | counter; node 0 counts as one node alone does */
#define PLACE_GRACE_USEC  10000000ull   /* freed payload of a job is punched no earlier than this after it was freed */
#define PLACE_DOMAIN_SIZE (16ull << 20) /* default bytes of a file domain */

/* First inode number that a node gives to a new file. */
uint64_t place_first_ino(uint32_t node);
/* Home of a file's inode: the creator's node of a new one, spread by hash for those of the backing directory. */
uint32_t place_ino(uint64_t ino, uint32_t num_nodes);
/* Name server of an entry of a directory. */
uint32_t place_name(uint64_t parent, const char *name, uint32_t num_nodes);
/* Where a name is in a table: also those of one server are spread over all of it. Not for what is kept. */
uint32_t place_name_bucket(uint64_t parent, const char *name, uint32_t num_buckets);
/* Where the times of a directory are collected. */
uint32_t place_directory_times(uint64_t ino, uint32_t num_nodes);
/* For messages: "node 2 (host cn17)", or "node 2" when host is "". Returns out. */
const char *place_node_text(uint32_t node, const char *host, char *out, size_t cap);
/* Home of the extents of a shared file at offset off: consecutive domains on consecutive nodes, each file beginning elsewhere. */
uint32_t place_domain(uint64_t ino, uint64_t off, uint64_t domain_size, uint32_t num_nodes);

#endif
