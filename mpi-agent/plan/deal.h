/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_PLAN_DEAL_H
#define MPI_AGENT_PLAN_DEAL_H

/*
 * What a node of a job tells the others of its part of a file that is laid out as blobs (docs/design/blob-layouts.md): its deal.
 * Pure: bytes in, bytes out. Plain data, each thread its own.
 *
 * "CDEA", u16 version, u16 0, then fields in the order of struct deal (lists: u32 how many, then their members; texts and bytes:
 * u32 length, bytes), CRC32C of all before it. Integers smallest byte first.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/base/cursor.h"

#define DEAL_VERSION    1u
#define DEAL_WHY        256
#define DEAL_NODES_MAX  65536u
#define DEAL_VARS_MAX   (1u << 24)
#define DEAL_RAGGED_MAX 4096u
#define DEAL_BYTES_MAX  (1u << 20) /* of values, and of residue */

/* Of a set of bytes of a file, however it is cut: sums over all their offsets, modulo 2^64. */
struct deal_sum {
	uint64_t bytes, places, squares; /* offset^0, ^1, ^2 */
};
void deal_sum_add(struct deal_sum *s, uint64_t off, uint64_t len); /* len < 2^32 */

struct deal_seen { /* what share maps here have of a node */
	uint32_t node;
	struct deal_sum sum;
};

enum deal_kind {
	DEAL_NOTHING, /* this node wrote nothing of it */
	DEAL_VALUES,  /* all that it wrote is among the values */
	DEAL_RUNS,    /* list says which elements */
	DEAL_KIND_END
};

struct deal_var {
	uint64_t first_record; /* that this node wrote something of */
	uint32_t list;         /* those of equal numbers have equal lists of runs, on this node */
	uint8_t kind;          /* enum deal_kind */
	bool mixed;            /* the list's elements are not the same in all records */
};

struct deal_value { /* a variable, or one record of it, whole */
	uint32_t var;
	uint64_t record;
	size_t len;
	const uint8_t *bytes; /* borrowed */
};

struct deal {               /* zero-initialise; deal_free */
	char why[DEAL_WHY]; /* why this node's part cannot be laid out so; "": it can */
	uint32_t node;
	uint32_t num_streams;
	bool has_header;  /* some of the header's bytes are this node's */
	bool more_ragged; /* than are listed */
	struct deal_sum own;
	uint32_t num_seen;
	struct deal_seen *seen; /* owned */
	uint32_t num_vars;
	struct deal_var *vars; /* owned */
	uint32_t num_ragged;
	uint64_t *ragged;   /* owned: offsets of elements that this node wrote a part of, rising */
	struct buf values;  /* deal_add_value() */
	struct buf residue; /* as format/codec/blob.h has it */
};

void deal_free(struct deal *d); /* NULL is fine */
void deal_add_value(struct deal *d, const struct deal_value *v);
/* The next of the values. 1 and *ret; 0: that was all. Begin with cursor_make() of values, which deal_decode() has checked. */
int deal_next_value(struct cursor *c, struct deal_value *ret);

int deal_encode(const struct deal *d, struct buf *out); /* 0, -ENOMEM */
/* 0; -EBADMSG: damaged; -ENOMEM. *ret is the caller's to free. */
int deal_decode(const void *bytes, size_t len, struct deal *ret);

#endif
