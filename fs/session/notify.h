/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_SESSION_NOTIFY_H
#define FS_SESSION_NOTIFY_H

/* A queue of what the kernel shall forget, attributes or pages of inodes and names, and the thread that tells it. */

#include <stdbool.h>
#include <stdint.h>

struct fuse_session;
struct notify;

int notify_create(struct fuse_session *fuse, struct notify **ret); /* fuse is borrowed */
void notify_destroy(struct notify *n);                             /* what is queued is dropped; NULL is fine */
/* Never blocks; may be called under locks. Without memory the entry is lost and the cache ages out by its time-outs. */
void notify_inode(struct notify *n, uint64_t ino, bool data);
void notify_name(struct notify *n, uint64_t parent, const char *name); /* the same */

#endif
