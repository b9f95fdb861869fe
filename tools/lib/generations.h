/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_GENERATIONS_H
#define TOOLS_LIB_GENERATIONS_H

/*
 * Which headers a classic file has had, as far as the journal and the payloads still tell: definitions that were added later,
 * variables that were moved. Each write that touches the header is laid over those before it, and what that gives is decoded. A
 * payload that has been given back since leaves a gap that is not known. Of several stores of a job the writes are put in the order
 * of their times.
 */

#include <stdbool.h>
#include <stdint.h>

#include "format/journal/record.h"
#include "format/segment/segment.h"

#define GENERATIONS_MAX 64 /* the last ones are told */

struct generation {
	uint64_t seq; /* of the write that made it */
	int64_t time_ns;
	uint32_t node;
	uint32_t num_dims, num_vars;
	uint64_t header_bytes, record_bytes, first_begin;
};

struct generation_change; /* of the header's bytes */

struct generations {                       /* generations_free */
	uint64_t header_bytes;             /* of the present header, and what may lie before the first variable */
	uint8_t *bytes, *known;            /* owned */
	struct generation_change *changes; /* owned; num_changes of them, until generations_finish() */
	size_t num_changes, cap_changes;
	bool many_stores;
	struct generation list[GENERATIONS_MAX];
	uint32_t num;       /* of all; the last GENERATIONS_MAX are in the list, from number num - GENERATIONS_MAX on */
	uint64_t writes;    /* that touch the header */
	uint64_t counts;    /* of them: of the number of records alone */
	uint64_t lost;      /* of them: payload no longer there */
	uint64_t undecoded; /* of them: what they left was no whole header that is known */
};

/* header_bytes: up to where writes may touch a header. 0, -ENOMEM; -EFBIG: larger than is looked at. */
int generations_init(struct generations *g, uint64_t header_bytes);
void generations_free(struct generations *g);
/*
 * The next record of the file in a store's journal, store after store; others are passed over. segments: of that store, borrowed
 * until generations_finish(). 0, -ENOMEM.
 */
int generations_note(struct generations *g, struct segment_set *segments, const struct record *rec);
/* All have been noted: makes the list. */
void generations_finish(struct generations *g);
/* The i-th of all, or NULL: no longer in the list. */
const struct generation *generations_at(const struct generations *g, uint32_t i);

#endif
