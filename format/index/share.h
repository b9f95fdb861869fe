/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_INDEX_SHARE_H
#define FORMAT_INDEX_SHARE_H

/*
 * A share map says, for a file that several nodes write, whose bytes count: extents that do not overlap, each with the
 * stamp of the commit that brought it. The higher (stamp, node) wins wherever two meet, so the map is the same in whatever
 * order, and however often, commits arrive. Like extents they are kept in pages of EXTENT_PAGE_SPAN bytes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/base/cursor.h"

struct share_extent {
	uint64_t off;         /* in the file, bytes */
	uint64_t segment_off; /* EXTENT_LOG: in the node's segment, bytes */
	uint64_t stamp;       /* of the commit */
	uint64_t base;        /* newest stamp that the writer had seen then; < stamp */
	uint32_t len;         /* bytes, > 0 */
	uint32_t node;        /* whose */
	uint32_t segment;     /* EXTENT_LOG: of that node's store */
	uint32_t crc;         /* CRC32C of the payload while whole */
	uint8_t kind;         /* EXTENT_LOG or EXTENT_HOLE */
	bool whole;           /* crc is valid: nothing of the payload has been cut off */
};

struct share_conflict {
	uint64_t off, len;    /* in the file, bytes */
	uint32_t node, other; /* node's bytes count (it had the higher stamp), other's are hidden */
};

#endif
