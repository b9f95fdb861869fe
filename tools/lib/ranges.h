/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_RANGES_H
#define TOOLS_LIB_RANGES_H

/* A file from its first byte to its last: where each range is. */

#include "format/index/state.h"

enum range_kind {
	RANGE_LOG,     /* in a segment */
	RANGE_PRIVATE, /* in the private segment */
	RANGE_BACKING, /* in the backing file */
	RANGE_HOLE,    /* nowhere; reads as zeros */
};

struct range {
	enum range_kind kind;
	uint64_t off, len;        /* bytes in the file */
	const struct extent *ext; /* RANGE_LOG, and others where an extent says so; NULL. Borrowed for the call */
};

const char *range_kind_name(enum range_kind kind); /* "log", "private", "backing", "hole" */
/* size: of the file (a private file's is that of its segment). each() non-zero stops and is returned. -errno. */
int ranges_each(struct state *st, const struct inode *in, uint64_t size, int (*each)(const struct range *r, void *arg),
	void *arg);

#endif
