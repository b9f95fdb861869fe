/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_SESSION_NOTIFY_H
#define FS_SESSION_NOTIFY_H

/* A queue of inodes and names that the kernel shall forget attributes, pages or entries of, and the thread that tells it. */

#include <stdbool.h>
#include <stdint.h>

struct fuse_session;
struct notify;

int notify_create(struct fuse_session *fuse, struct notify **ret); /* fuse is borrowed */
void notify_destroy(struct notify *n);                             /* what is queued is dropped; NULL is fine */
/* Never blocks; may be called under locks. Without memory the entry is lost and the cache ages out by its time-outs. */
uint64_t notify_inode(struct notify *n, uint64_t ino, bool data);
/* The same of a name in a directory: the kernel looks it up anew. */
uint64_t notify_name(struct notify *n, uint64_t parent, const char *name);
/*
 * Until the kernel has been told what these two returned a ticket for, at most that long. Not without an end: the kernel waits for
 * requests under way, which may wait for who waits here. false: it has not been told yet.
 */
bool notify_wait(struct notify *n, uint64_t ticket, uint64_t usec);
/* What has been queued up to now; and: the kernel has forgotten all that in another way, so nobody waits until it has been told. */
uint64_t notify_ticket(struct notify *n);
void notify_cover(struct notify *n, uint64_t ticket);

#endif
