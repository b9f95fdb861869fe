/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_INDEX_SHARE_H
#define FORMAT_INDEX_SHARE_H

/*
 * A share map says, for a file that several nodes write, whose bytes count: extents that do not overlap, each with the
 * time of the write and the stamp of the commit that brought it. The higher (time, stamp, node) wins wherever two meet, so the
 * map is the same in whatever order, and however often, commits arrive. What is cut off must be older, by time too, than what
 * is not (docs/design/write-times.md). Like extents they are kept in pages of EXTENT_PAGE_SPAN bytes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/base/cursor.h"
#include "format/index/extent.h"

struct share_extent {
	uint64_t off;         /* in the file, bytes */
	uint64_t segment_off; /* EXTENT_LOG: in the node's segment, bytes */
	uint64_t time_usec;   /* of the write, by the job's clock; 0: not known */
	uint64_t stamp;       /* of the commit */
	uint64_t base;        /* newest stamp that the writer had seen then; < stamp */
	uint32_t len;         /* bytes, > 0 */
	uint32_t node;        /* whose */
	uint32_t segment;     /* EXTENT_LOG: of that node's store */
	uint32_t crc;         /* CRC32C of the payload while whole */
	uint8_t kind;         /* EXTENT_LOG or EXTENT_HOLE */
	bool whole;           /* crc is valid: nothing of the payload has been cut off */
};

/* What a node has in its layer, as a share map has it; uncommitted. */
static inline struct share_extent share_extent_of(const struct extent *e, uint32_t node)
{
	return (struct share_extent){ .off = e->off,
		.segment_off = e->segment_off,
		.time_usec = e->time_usec,
		.len = e->len,
		.node = node,
		.segment = e->segment,
		.crc = e->crc,
		.kind = e->kind,
		.whole = e->whole };
}

struct share_conflict {
	uint64_t off, len;    /* in the file, bytes */
	uint32_t node, other; /* node's bytes count (it wrote later), other's are hidden */
};

/* ---- a page of the map */

struct share_page {
	struct share_extent *ext; /* owned, sorted by off, no overlaps */
	uint32_t num, cap;
};

void share_page_free(struct share_page *p);
/*
 * Put num extents (within the page, sorted, no overlaps) among those that are there. met(): node's bytes of [off, off + len)
 * won over other's, and neither commit had seen the other (the base of each < the other's stamp); it may come again. 0, -ENOMEM
 * (page unchanged), or what met() returned.
 */
int share_page_put(struct share_page *p, const struct share_extent *ext, size_t num,
	int (*met)(const struct share_conflict *c, void *arg), void *arg);
/* Take away what lies at or behind off, has a stamp below this one, and was written at upto_usec or before. */
void share_page_cut(struct share_page *p, uint64_t off, uint64_t stamp, uint64_t upto_usec);
bool share_extent_wins(const struct share_extent *a, const struct share_extent *over); /* where they overlap */
#define SHARE_ALL_NODES UINT32_MAX
void share_page_lose(struct share_page *p, uint32_t node); /* what is this node's goes, or all */
/* Index of the first extent that ends behind off; num when none does. */
uint32_t share_page_find(const struct share_page *p, uint64_t off);
struct share_extent share_extent_clip(const struct share_extent *e, uint64_t off, uint64_t end);
int share_page_encode(const struct share_page *p, uint64_t page_no, struct buf *out); /* -ENOMEM */
int share_page_decode(
	const void *val, size_t len, uint64_t page_no, struct share_page *ret_page); /* -EBADMSG, -ENOMEM */

/* ---- what belongs to the map as a whole */

struct share_cut { /* nothing at or behind size has a stamp below this one */
	uint64_t stamp, size;
};
#define SHARE_CUTS_MAX 1024 /* only the newest are kept */

struct share_head {
	uint64_t num_pages, num_extents;
	uint64_t
		dropped; /* nothing that was written up to dropped_usec and has a stamp up to this one comes into the map */
	uint64_t dropped_usec;  /* UINT64_MAX: whenever */
	struct share_cut *cuts; /* owned; both rise: a lower size with a higher stamp makes another cut void */
	uint32_t num_cuts, cap_cuts;
};

void share_head_free(struct share_head *h);
bool share_head_lacks(const struct share_head *h, uint64_t stamp, uint64_t size); /* that cut would change it */
int share_head_cut(struct share_head *h, uint64_t stamp, uint64_t size);          /* -ENOMEM */
void share_head_drop(struct share_head *h, uint64_t stamp, uint64_t upto_usec);
uint64_t share_head_limit(const struct share_head *h, uint64_t stamp); /* where bytes with this stamp are cut off */
bool share_head_is_dropped(const struct share_head *h, uint64_t stamp, uint64_t time_usec);
bool share_head_is_empty(const struct share_head *h);
int share_head_encode(const struct share_head *h, struct buf *out);
int share_head_decode(const void *val, size_t len, struct share_head *ret_head);

struct share_conflicts {
	struct share_conflict *list; /* owned, sorted by node, other, off; those that touch are one */
	uint32_t num, cap;
	uint64_t more; /* times that one was met which is not in the list, since it was full */
};

void share_conflicts_free(struct share_conflicts *s);
int share_conflicts_add(struct share_conflicts *s, const struct share_conflict *c, uint32_t max); /* -ENOMEM */
int share_conflicts_encode(const struct share_conflicts *s, struct buf *out);
int share_conflicts_decode(const void *val, size_t len, struct share_conflicts *ret_conflicts);

#endif
