/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_INDEX_INODE_H
#define FORMAT_INDEX_INODE_H

/*
 * An inode as the index holds it: struct inode, with the origin's name behind a pointer (most have none) and with the
 * counts that spare the index its searches. The codec makes a value of it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/base/cursor.h"
#include "format/index/state.h"

struct node {
	uint64_t ino;
	uint32_t gen, mode, uid, gid, nlink, flags;
	uint64_t size;
	int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
	uint64_t version, data_version;
	uint32_t private_segment;
	uint64_t backing_limit;
	uint64_t origin_parent;
	char *origin_name; /* owned; NULL: none */
	uint64_t backing_dev, backing_ino;
	int64_t times_set_ns;
	uint32_t dev_major, dev_minor; /* of a device node */
	/* the index's own */
	uint64_t num_pages;    /* extent pages that exist */
	uint64_t num_children; /* a directory's names */
	uint32_t num_names;    /* names that lead here */
	uint32_t num_backing;  /* backing names that are its own */
	uint32_t num_xattrs;
	uint16_t last_number; /* in memory alone: what last_writer (0: none) is in the table of writers */
	uint32_t last_writer;
	bool freed; /* RECORD_FREE has come; an orphan that waits for its backing names to go: see node_is_remembered() */
};

/*
 * A freed directory is found as any other: the names below it are found by it. A freed file, which is kept in a job only, is found by nobody
 * but who is to remove its backing file.
 */
bool node_is_remembered(const struct node *n);

void node_free(struct node *n); /* what it owns; also resets */
int node_set_origin(
	struct node *n, uint64_t parent, const char *name, size_t len); /* len 0: none. 0, -ENOMEM (unchanged) */
void node_to_inode(const struct node *n, struct inode *ret);
int node_encode(const struct node *n, struct buf *out);         /* 0, -ENOMEM */
int node_decode(const void *val, size_t len, struct node *ret); /* -EBADMSG, -EPROTONOSUPPORT, -ENOMEM */

#endif
