/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_MOMENT_H
#define TOOLS_LIB_MOMENT_H

/* When a write was, among those of a job's nodes: by the clock, then by node, of one node by its journal. */

#include <stdint.h>

struct moment {
	int64_t time_ns;
	uint32_t node;
	uint64_t seq;
};

/* As for qsort(). */
static inline int moment_compare(struct moment a, struct moment b)
{
	if (a.time_ns != b.time_ns)
		return a.time_ns < b.time_ns ? -1 : 1;
	if (a.node != b.node)
		return a.node < b.node ? -1 : 1;
	return (a.seq > b.seq) - (a.seq < b.seq);
}

#endif
