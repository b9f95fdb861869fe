/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_INDEX_COMMITS_H
#define FORMAT_INDEX_COMMITS_H

/*
 * When what a node wrote to a shared file was committed: points (upto, stamp), both rising; and which pages of extents may have
 * something behind the last one.
 */

#include <stddef.h>
#include <stdint.h>

#include "format/base/cursor.h"
#include "format/index/state.h"

struct commits {
	struct commit_point *points; /* owned */
	uint32_t num, cap;
	uint32_t prune_at; /* so many points are worth a look at which ones are needed */
	uint64_t *pages;   /* owned, rising */
	size_t num_pages, cap_pages;
};

#define COMMITS_PRUNE_MIN 64

void commits_free(struct commits *c);
size_t commits_bytes(const struct commits *c);                    /* memory that it owns */
int commits_add(struct commits *c, const struct commit_point *p); /* -ENOMEM */
uint64_t commits_upto(const struct commits *c);                   /* of the last point; 0: none. NULL is fine */
/* Index of the point that a record with this seq belongs to; num: not committed. */
uint32_t commits_find(const struct commits *c, uint64_t seq);
uint32_t commits_by(const struct commits *c, uint64_t stamp); /* how many points have a stamp not above that */
/* Keep those that are marked and the last one. */
void commits_keep(struct commits *c, const uint8_t *needed);
int commits_mark(struct commits *c, uint64_t page);               /* 1: it was not marked; 0; -ENOMEM */
size_t commits_find_page(const struct commits *c, uint64_t page); /* index of the first one not below */
int commits_encode(const struct commits *c, struct buf *out);
int commits_decode(const void *val, size_t len, struct commits *ret_commits); /* -EBADMSG, -ENOMEM */

#endif
