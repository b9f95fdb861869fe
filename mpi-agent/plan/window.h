/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_PLAN_WINDOW_H
#define MPI_AGENT_PLAN_WINDOW_H

/*
 * The data plan of one file: its transfer ranges in the order of the file, cut into windows that fit a buffer. A page
 * (EXTENT_PAGE_SPAN bytes of the file) is never split over two windows unless it alone is too many pieces, so dense
 * files are written in whole aligned MiB. No I/O but the state's queries, no threads.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/index/state.h"

#define WINDOW_PIECES_MAX 65536u

enum piece_source {
	PIECE_LOG,  /* payload in a segment */
	PIECE_BASE, /* bytes of the backing file */
	PIECE_HOLE, /* zeros, nothing in the buffer */
	PIECE_LOST, /* was in a store that is not there: not written */
};

struct piece {
	uint64_t off;         /* in the file, bytes */
	uint64_t segment_off; /* PIECE_LOG */
	size_t at;            /* in the window's buffer */
	uint32_t len;         /* bytes, > 0 */
	uint32_t segment;     /* PIECE_LOG */
	uint32_t node;        /* PIECE_LOG: of a shared file: whose segment; else options' node */
	uint32_t crc;         /* PIECE_LOG: of the payload, when whole */
	uint8_t source;       /* enum piece_source */
	bool whole;
};

struct window {               /* zero-initialise; window_free */
	struct piece *pieces; /* owned; sorted by off, no overlaps */
	uint32_t num, cap;
	size_t bytes; /* of the buffer that the pieces fill */
};

void window_free(struct window *w);
void window_reset(struct window *w);
/* Put p behind the others; p->at is set, and pieces that continue one another in file and segment and carry no CRC are
 * merged. 0, -ENOMEM. */
int window_add(struct window *w, const struct piece *p);

struct window_plan_options {
	struct state *st; /* borrowed */
	uint64_t ino;
	uint64_t from, to;    /* bytes of the file; from is a multiple of EXTENT_PAGE_SPAN */
	bool shared;          /* by the share map that the state has of the file, not by its own extents */
	uint32_t node;        /* whose state it is */
	uint32_t num_nodes;   /* shared: only domains whose home node is, of so many nodes; 0: all that the map has */
	uint64_t domain_size; /* bytes; not 0 when num_nodes is not */
	bool holes;           /* PIECE_HOLE is wanted (updates in place) */
	bool base;            /* PIECE_BASE is wanted for what the backing file shows (files made whole elsewhere) */
	uint64_t backing_limit;
};

struct window_plan;
int window_plan_create(const struct window_plan_options *opt, struct window_plan **ret);
void window_plan_destroy(struct window_plan *plan);
/*
 * The next window of at most cap_bytes (at least EXTENT_PAGE_SPAN) into w, which is emptied. w->num is 0 at the end;
 * *ret_last: no further window follows this one. 0, -ENOMEM, the state's errors.
 */
int window_plan_next(struct window_plan *plan, size_t cap_bytes, struct window *w, bool *ret_last);

/* The reads that fill a window: pieces of PIECE_LOG by (segment, segment_off). order has room for w->num; *ret_num set. */
void window_read_order(const struct window *w, uint32_t *order, uint32_t *ret_num);
/* How many entries of order from at on are one run of bytes in one segment (at least 1, at most max). */
uint32_t window_read_run(const struct window *w, const uint32_t *order, uint32_t num, uint32_t at, uint32_t max);
/* The pieces from at on that are one write: how many, and their bytes. A PIECE_HOLE stands alone. */
uint32_t window_write_run(const struct window *w, uint32_t at, uint64_t *ret_bytes);

struct gap {
	uint64_t off, len;
};
/*
 * What of [limit, end) a backing file must show as zeros although it may hold old bytes: the parts that no extent covers
 * below the last byte of an EXTENT_BACKING there, as gaps (malloc'd array), and *ret_tail, from where on all are. 0, -ENOMEM.
 */
int window_stale_ranges(struct state *st, uint64_t ino, uint64_t limit, uint64_t end, struct gap **ret, size_t *ret_num,
	uint64_t *ret_tail);
/* Has the backing file bytes of it behind its backing limit, which went through or were carried, and of which the store has no copy? 1, 0, -errno */
int window_has_carried(struct state *st, uint64_t ino);
/* Bytes that a plan for ino would write, and its number of extents (for progress). */
int window_count(struct state *st, uint64_t ino, uint64_t size, uint64_t *ret_bytes, uint64_t *ret_extents);

#endif
