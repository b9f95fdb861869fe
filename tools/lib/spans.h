/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_SPANS_H
#define TOOLS_LIB_SPANS_H

/*
 * Where the bytes of a file are now, and who wrote them: spans that rise and do not overlap. Bytes in no span are nowhere: nobody
 * has written them. Of a file that nodes of a job write together, what the stores know of it is laid one over the other: what
 * is committed (share maps), over what nodes have not committed (layers), over the backing file.
 */

#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/store/store.h"
#include "tools/lib/content.h"

enum span_state {
	SPAN_LOGGED,  /* in a store */
	SPAN_DRAINED, /* in the backing file */
	SPAN_HOLE,    /* zeros by order; never in the result */
};

struct span {
	uint64_t off, len;
	uint64_t seq, last_seq; /* of the records that wrote it; 0: not known */
	uint32_t node, process; /* COVERAGE_NOBODY: not known */
	enum span_state state;
};

struct spans {             /* spans_free */
	struct span *list; /* owned */
	size_t num, cap;
};

/* Of content's file. 0, -ENOMEM, or -errno of an index. */
int spans_gather(const struct content *c, struct spans *ret);
void spans_free(struct spans *s);

#endif
