/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_PLAN_RUNS_H
#define MPI_AGENT_PLAN_RUNS_H

/*
 * The runs of one blob: for element after element of it, where in the canonical variable it belongs. They are looked at as
 * they are stored; an index with an entry for each RUNS_CHUNK runs finds those that meet a range of the variable.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"

#define RUNS_CHUNK 256u

struct runs {
	const uint8_t *offsets, *lengths; /* borrowed; num integers each */
	uint64_t num;
	uint8_t offset_bytes, length_bytes; /* 4 or 8 */
	bool little_endian;
};

struct runs_chunk {
	uint64_t low, high; /* its runs lie in [low, high) */
	uint64_t at;        /* elements of the blob before its first run */
};

struct runs_index {
	struct runs runs;
	uint64_t count;     /* elements of the blob */
	uint64_t low, high; /* all runs lie in [low, high) */
	bool sorted;        /* runs ascend and do not overlap */
	size_t num_chunks;
	struct runs_chunk *chunks; /* owned */
};

/* Some runs [first, last) and the elements [from, to) of the blob that hold all of them that the range asked for meets. */
struct runs_span {
	uint64_t first, last;
	uint64_t at; /* elements of the blob before run first */
	uint64_t from, to;
};

static inline uint64_t runs_integer(const uint8_t *p, uint8_t bytes, bool little_endian)
{
	uint64_t wide;
	uint32_t narrow;

	if (bytes == 4) {
		__builtin_memcpy(&narrow, p, 4);
		return little_endian ? narrow : __builtin_bswap32(narrow);
	}
	__builtin_memcpy(&wide, p, 8);
	return little_endian ? wide : __builtin_bswap64(wide);
}

/* Run i; negative numbers come out as large ones. */
static inline void runs_get(const struct runs *r, uint64_t i, uint64_t *ret_offset, uint64_t *ret_length)
{
	*ret_offset = runs_integer(r->offsets + i * r->offset_bytes, r->offset_bytes, r->little_endian);
	*ret_length = runs_integer(r->lengths + i * r->length_bytes, r->length_bytes, r->little_endian);
}

/*
 * Index runs that must lie in [0, elements) and have count elements together. 0; -EBADMSG: they do not, and *err says which;
 * -ENOMEM. The caller destroys *ret; runs must stay.
 */
int runs_index_build(
	const struct runs *runs, uint64_t elements, uint64_t count, struct runs_index *ret, struct cistern_error *err);
void runs_index_destroy(struct runs_index *x); /* NULL is fine */

/*
 * Hand over spans that meet [from, to) of the variable, in order, none with more than max elements of the blob, but where one
 * run alone has more. Stops when each() returns non-zero and returns that.
 */
int runs_spans(const struct runs_index *x, uint64_t from, uint64_t to, uint64_t max,
	int (*each)(const struct runs_span *span, void *arg), void *arg);

#endif
