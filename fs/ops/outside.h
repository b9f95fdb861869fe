/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_OPS_OUTSIDE_H
#define FS_OPS_OUTSIDE_H

/* The kernel's pages of open files of the backing directory, which others may change (outside.c). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/job/job.h"
#include "fs/session/session.h"

struct outside_table;
struct outside; /* a file as long as it is open */

int outside_create(struct job *job, struct outside_table **ret); /* job is borrowed */
/* Its thread ends. Before the job is shut down; twice is fine. */
void outside_stop(struct outside_table *t);
void outside_destroy(struct outside_table *t); /* NULL is fine */

/*
 * ino is being opened, and the kernel has not heard of it yet: pages that it has from before are dropped if they are older than what open
 * says. Sets open->keep_cache. Owned by the caller until outside_close(). NULL: there is nothing to do for this file.
 */
struct outside *outside_open(struct outside_table *t, struct session *s, uint64_t ino, struct core_open_reply *open);
void outside_close(struct outside_table *t, struct outside *p); /* NULL is fine */
/* A READ for the kernel's pages begins, and has ended with got of len bytes. p may be NULL. */
void outside_read_begins(struct outside *p);
void outside_read_ended(struct outside *p, ssize_t got, size_t len, uint64_t off);
/*
 * The file is about to reach to end, by bytes from off on (UINT64_MAX: without any): of its last page
 * what was stored behind its end goes (tail.h). The kernel holds up no write-back meanwhile. p may be NULL.
 */
void outside_grows(struct outside_table *t, struct outside *p, uint64_t off, uint64_t end);
/* Bytes from off to end were written, not by write-back. p may be NULL. */
void outside_wrote(struct outside *p, uint64_t off, uint64_t end);
/*
 * The kernel is about to be told of e, whose size a SETATTR of its own has set. Instead of outside_look(): the kernel holds up write-back
 * until it has the answer, so nothing can be dropped before. Then it drops all pages itself, if the size is another one; else the next
 * look does. Does not wait.
 */
void outside_sized(struct outside_table *t, const struct core_entry *e);
/* Of pages that are written back the bytes before the result count, and those from *ret_after on. p may be NULL. */
size_t outside_page_cut(struct outside *p, size_t len, uint64_t off, size_t *ret_after);
/* Before a time of ino is set: what was stored into its mappings until now is written, as far as that can be waited for. */
void outside_write_back(struct outside_table *t, uint64_t ino);
/*
 * The file was written to, and the kernel is about to hear of that: it will take what others have added to the file before for a part of
 * it. direct: it holds none of the file's pages locked. p may be NULL.
 */
void outside_written(struct outside_table *t, struct outside *p, bool direct);
/*
 * The kernel is about to be told of e: not before pages that are older than that are gone. If they cannot go now e becomes what the kernel
 * was told before, for no time at all. Any thread; may wait for READs that are under way.
 */
void outside_look(struct outside_table *t, struct core_entry *e);

#endif
