/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_AHEAD_H
#define FS_JOB_AHEAD_H

/* Payload of other nodes, fetched before it is asked for. Any thread may call any of this. */

#include "fs/job/share.h"

struct ahead;
struct chunk;

int ahead_create(struct job *j, struct ahead **ret);
void ahead_destroy(struct ahead *a); /* nobody reads any more, and the transport is shut down; NULL is fine */
/*
 * A read of [off, off + len) by file begins: if it goes on from those before, what lies there and behind it is fetched. Waits for
 * nothing that the read itself would not have to wait for.
 */
void ahead_of(struct job *j, struct job_file *file, size_t len, uint64_t off);
/*
 * Bytes of pieces of other nodes that are here, or on their way, are put where they belong in to, whose first byte is the file's at
 * off; these pieces become PIECE_DONE. Their checksums are right, so far as they cover a chunk's part.
 */
void ahead_take(struct job *j, struct shared *s, struct pieces *p, uint8_t *to, uint64_t off);
/* All of p, which is all of [off, off + len), where it lies, until ahead_view_end; NULL: it is not so simple. */
const uint8_t *ahead_view(
	struct job *j, struct shared *s, const struct pieces *p, uint64_t off, size_t len, struct chunk **ret);
void ahead_view_end(struct chunk *c, size_t len);
void ahead_forget(struct job *j, uint64_t ino); /* memory is given back */

#endif
