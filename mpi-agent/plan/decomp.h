/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_PLAN_DECOMP_H
#define MPI_AGENT_PLAN_DECOMP_H

/*
 * Decomposition discovery: which of several writers wrote which elements of the variables of a netCDF classic file. Variables of
 * one shape whose elements were dealt out alike share a map. Pure: no I/O, no threads.
 *
 * An element belongs to the writer of its first byte that was written, of the first record in which it was. What records lack
 * reads as zeros, in a blob as in the file. A variable that one writer wrote whole, or nobody, has no map.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/codec/classic.h"

#define DECOMP_NO_MAP     UINT32_MAX
#define DECOMP_RAGGED_MAX 4096
#define DECOMP_RANGES_MAX 4096 /* ranges of bytes that belong to no variable */

struct decomp_run {   /* neighbouring elements of one writer, none beyond the end of a row of the last dimension */
	uint64_t off; /* in elements of the variable, or of one record of it; row-major */
	uint32_t len; /* > 0 */
	uint32_t writer;
};

struct decomp_map {
	uint32_t num_dims;
	const uint32_t *dims; /* borrowed from the header; slowest first, without the record dimension */
	uint64_t elements;    /* product of their lengths */
	size_t num_runs;
	struct decomp_run *runs; /* owned; by off, none overlap */
};

struct decomp_range {
	uint64_t off, len; /* bytes of the file */
};

/* How a variable was met. */
struct decomp_var {
	uint64_t first_record; /* the first one in which something of it was written */
	bool any;              /* something of it was */
	bool whole;            /* all of it, by one writer; or it has no dimension but that of records */
	bool mixed;            /* not the same elements in all records that have any, whoever wrote them */
};

struct decomp {
	const struct classic *header; /* borrowed */
	bool cuts_whole; /* set before decomp_finish(): variables that one writer wrote whole have a map, too, if they have dimensions */
	/* after decomp_finish() */
	struct decomp_var *vars; /* owned; for each variable of the header */
	/* File offsets of elements of which only a part was written; in rising order, perhaps twice. */
	uint64_t *ragged; /* owned */
	size_t num_ragged;
	bool more_ragged; /* than DECOMP_RAGGED_MAX */
	size_t num_maps;
	struct decomp_map *maps; /* owned */
	uint32_t *var_maps;      /* owned; for each variable of the header its map, or DECOMP_NO_MAP */
	size_t num_ranges;
	struct decomp_range *ranges; /* owned: what was written to no variable, behind the header's bytes */
	struct decomp_work *work;    /* owned; until then */
};

/*
 * header: computed fields valid, num_records as many as count. -EINVAL: it has no variables.
 */
int decomp_create(const struct classic *header, struct decomp **ret);
/* [off, off + len) was written by writer. In rising order, without overlaps. -E2BIG: more than can be kept; -ENOMEM. */
int decomp_add(struct decomp *d, uint64_t off, uint64_t len, uint32_t writer);
int decomp_finish(struct decomp *d);   /* -ENOMEM */
void decomp_destroy(struct decomp *d); /* NULL is fine */

/* Where in a file: a part of one variable and record. */
struct decomp_place {
	uint32_t var; /* DECOMP_NO_MAP: none */
	uint64_t record;
	uint64_t byte; /* of the variable's (record's) own bytes */
	uint64_t len;  /* so many of the bytes asked for lie there, at least 1 */
};
/*
 * What [off, off + len), len > 0, begins with. sorted: of decomp_sort(). Padding, and what lies behind the last record, is in no
 * variable.
 */
struct decomp_order; /* variables by their place in the file */
int decomp_order_create(const struct classic *header, struct decomp_order **ret);
void decomp_order_destroy(struct decomp_order *o); /* NULL is fine */
struct decomp_place decomp_place(struct decomp_order *o, uint64_t off, uint64_t len);

#endif
