/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_INDEX_EXTENT_H
#define FORMAT_INDEX_EXTENT_H

/*
 * Where a range of a file is. The extents of a file do not overlap. A range that no extent covers shows the
 * backing file below the inode's backing_limit, and zeros from there on.
 *
 * They are kept in pages of EXTENT_PAGE_SPAN bytes of the file; no extent crosses a page's border, so a page can be
 * found, cached and stored by (inode, off / EXTENT_PAGE_SPAN).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/base/cursor.h"

#define EXTENT_PAGE_SPAN (1u << 20)

enum extent_kind { EXTENT_LOG = 0, EXTENT_HOLE = 1, EXTENT_BACKING = 2 };

struct extent {
	uint64_t off;         /* in the file, bytes */
	uint64_t segment_off; /* EXTENT_LOG: in the segment, bytes */
	uint64_t seq;         /* of the record that wrote it (the order of writes) */
	uint64_t time_usec;   /* in a shared file: when, by the job's clock; 0: before it was shared, or not known */
	uint32_t len;         /* bytes, > 0 */
	uint32_t segment;     /* EXTENT_LOG */
	uint32_t crc;         /* CRC32C of the payload while whole */
	uint8_t kind;         /* enum extent_kind */
	bool whole;           /* crc is valid: nothing of the payload has been cut off (false for sealed ranges) */
	uint16_t writer;      /* EXTENT_LOG: number of the process in the file's table (writers.h); 0: not known */
};

struct extent_page {
	struct extent *ext; /* owned, sorted by off, no overlaps */
	uint32_t num, cap;
};

void extent_page_free(struct extent_page *p);
/*
 * Put e (within the page) over what is there. For every piece of an EXTENT_LOG that is covered freed(segment, off,
 * len, arg) is called (NULL: nobody wants to know). Neighbours that continue each other in file and segment, both
 * whole, are merged (crc32c_combine) up to the page. 0, -ENOMEM (page unchanged).
 */
int extent_page_put(struct extent_page *p, const struct extent *e,
	void (*freed)(uint32_t segment, uint64_t off, uint64_t len, void *arg), void *arg);
/* Take everything in [off, off + len) away; freed as above. 0, -ENOMEM. */
int extent_page_clear(struct extent_page *p, uint64_t off, uint64_t len,
	void (*freed)(uint32_t segment, uint64_t off, uint64_t len, void *arg), void *arg);
/* As extent_page_put, but only what one record wrote (one seq) is merged. */
int extent_page_put_apart(struct extent_page *p, const struct extent *e,
	void (*freed)(uint32_t segment, uint64_t off, uint64_t len, void *arg), void *arg);
/* Make one of a and b, which lies right behind it, if they continue each other (as put does; apart: as put_apart). */
bool extent_join(struct extent *a, const struct extent *b, bool apart);
/* e goes where no extent is, as it is; it may begin anywhere in the page. The page's other extents stay as they are. 0, -ENOMEM. */
int extent_page_insert(struct extent_page *p, const struct extent *e, uint32_t *ret_index);
void extent_page_remove(struct extent_page *p, uint32_t i);
struct extent extent_clip(
	const struct extent *e, uint64_t off, uint64_t end); /* its part in [off, end): there is one */
/* Index of the first extent that ends behind off; num when none does. */
uint32_t extent_page_find(const struct extent_page *p, uint64_t off);
int extent_page_encode(const struct extent_page *p, uint64_t page_no, struct buf *out); /* delta-coded varints */
int extent_page_decode(const void *buf, size_t len, uint64_t page_no, struct extent_page *ret); /* -EBADMSG */

#endif
