/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_OPS_TAIL_H
#define FS_OPS_TAIL_H

/* Stores into a mapping behind a file's end, in its last page (tail.c). Any thread; no locks. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Zeros to begin with. */
struct tail {
	_Atomic(uint64_t) end; /* the kernel's last page of the file ended there; 0: it has no such page */
	_Atomic(uint64_t) cut; /* write-back of the page that this lies in ends here; 0: of no page */
};

/* A READ for the kernel's pages at off has got of len bytes, and is not answered yet. */
void tail_read(struct tail *t, ssize_t got, size_t len, uint64_t off);
/*
 * The file is about to reach to end, by bytes from off on (UINT64_MAX: without any). True, once: the
 * kernel must drop its page at *ret_page first.
 */
bool tail_leaves(struct tail *t, uint64_t off, uint64_t end, uint64_t *ret_page);
/* Bytes from off to end were written, and not by write-back. */
void tail_written(struct tail *t, uint64_t off, uint64_t end);
/* A SETATTR has given the file this size, and is not answered yet. */
void tail_sized(struct tail *t, uint64_t size);
/* len bytes at off are written back: those before the result count, and those from *ret_after on. Both are len: all count. */
size_t tail_cut(struct tail *t, size_t len, uint64_t off, size_t *ret_after);

#endif
