/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_CONTENT_H
#define TOOLS_LIB_CONTENT_H

/*
 * The bytes of a file as its mount would show them: what the store has over what the backing file has. Of a file that several
 * nodes of a job write, one store knows a part: through the mount, which asks the others, all of it can be read, and without a
 * mount what the stores that are given have of it, put together as recovery would.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cistern/error.h"
#include "format/store/store.h"
#include "tools/lib/losses.h"
#include "tools/lib/stores.h"

struct content {                     /* content_close */
	struct store *store;         /* borrowed: in which in is */
	const struct stores *stores; /* borrowed */
	bool shared;                 /* several nodes write it: all that the stores know is in store's share map */
	struct inode in;
	uint64_t size;        /* of the file now */
	int private_fd;       /* negative: not private, or why its segment cannot be opened */
	int backing_fd;       /* -1: there is none, or it cannot be read */
	int mounted_fd;       /* -1: not read through the mount */
	bool partial;         /* several nodes write it, and not all of their stores are there to be read */
	int backing_error;    /* -errno of opening it; 0 */
	uint64_t reach;       /* the end of what has been asked for */
	struct losses losses; /* that reads have met, or losses_look() has found */
};

/*
 * mounted: the file's path in its mount, or NULL. in->ino 0: a file that the store knows nothing of, which is read through the mount
 * and is all in the backing directory. 0 or -errno.
 */
int content_open(const struct stores *all, struct store *s, const struct inode *in, uint64_t size, const char *mounted,
	struct content *ret, struct cistern_error *err);
void content_close(struct content *c);
/* What that node wrote cannot be read here: its store is not given. */
bool content_is_unseen(const struct content *c, uint32_t node);
/*
 * Up to len bytes at off, and up to those that a store should have and that cannot be had (-ENODATA): these are then among the losses. 0 at
 * the end; -errno. As the codecs want it: arg is the struct content.
 */
ssize_t content_read(void *buf, size_t len, uint64_t off, void *arg);
/*
 * The ranges of [off, off + len) of the backing file (private: of the private segment) that have data and are no holes; where
 * the file system cannot tell, all of it up to its end. each() non-zero stops and is returned.
 */
int content_each_backed(const struct content *c, uint64_t off, uint64_t len,
	int (*each)(uint64_t off, uint64_t len, void *arg), void *arg);
int content_each_private(const struct content *c, int (*each)(uint64_t off, uint64_t len, void *arg), void *arg);

#endif
