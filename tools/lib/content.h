/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_CONTENT_H
#define TOOLS_LIB_CONTENT_H

/*
 * The bytes of a file as its mount would show them: what the store has over what the backing file has. Of a file that several
 * nodes of a job write, one store knows a part: through the mount, which asks the others, all of it can be read.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cistern/error.h"
#include "format/store/store.h"

struct content {             /* content_close */
	struct store *store; /* borrowed */
	struct inode in;
	uint64_t size;     /* of the file now */
	int private_fd;    /* negative: not private, or why its segment cannot be opened */
	int backing_fd;    /* -1: there is none, or it cannot be read */
	int mounted_fd;    /* -1: not read through the mount */
	bool partial;      /* several nodes write it, and only this one's part can be read */
	int backing_error; /* -errno of opening it; 0 */
};

/*
 * mounted: the file's path in its mount, or NULL. in->ino 0: a file that the store knows nothing of, which is read through the mount
 * and is all in the backing directory. 0 or -errno.
 */
int content_open(struct store *s, const struct inode *in, uint64_t size, const char *mounted, struct content *ret,
	struct cistern_error *err);
void content_close(struct content *c);
/* Up to len bytes at off; 0 at the end; -errno. As the codecs want it: arg is the struct content. */
ssize_t content_read(void *buf, size_t len, uint64_t off, void *arg);
/*
 * The ranges of [off, off + len) of the backing file (private: of the private segment) that have data and are no holes; where
 * the file system cannot tell, all of it up to its end. each() non-zero stops and is returned.
 */
int content_each_backed(const struct content *c, uint64_t off, uint64_t len,
	int (*each)(uint64_t off, uint64_t len, void *arg), void *arg);
int content_each_private(const struct content *c, int (*each)(uint64_t off, uint64_t len, void *arg), void *arg);

#endif
