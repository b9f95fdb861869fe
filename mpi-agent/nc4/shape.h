/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_NC4_SHAPE_H
#define MPI_AGENT_NC4_SHAPE_H

/*
 * What a netCDF classic file becomes as a netCDF-4 file: names of datasets, which of them are dimension scales, how each is
 * cut into chunks. Pure: the same header and settings always give the same shape. docs/design/netcdf4.md says why it is so.
 */

#include <stdbool.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/codec/classic.h"

#define NC4_CHUNK_TARGET (1u << 20)  /* bytes of a chunk, where nothing else is said */
#define NC4_CHUNK_MAX    (64u << 20) /* bytes; several are in memory at a time, and anybody may ask for them */
#define NC4_SMALL        8192u       /* bytes; a fixed variable below it is neither cut nor compressed */
#define NC4_RANK_MAX     32u         /* H5S_MAX_RANK */

struct nc4_options {
	unsigned int deflate; /* 0 to 9 */
	bool shuffle;
	const char *chunk; /* borrowed: "DIM:N,VARIABLE:DIM:N,..." (or with slashes between); "" */
};

struct nc4_var {          /* as in the header; indices are the same */
	char *name;       /* owned: the dataset's */
	bool is_scale;    /* the coordinate variable of its first dimension */
	bool is_chunked;  /* else in one piece; chunk is then how it is worked through */
	bool is_filtered; /* deflate, and shuffle where wanted and of use */
	bool is_shuffled;
	uint64_t *dims;       /* owned, num_dims: lengths now; NULL without dimensions */
	uint64_t *chunk;      /* owned, num_dims, each > 0 */
	uint64_t chunk_bytes; /* of a whole one */
	uint64_t num_chunks;
};

struct nc4_shape {
	const struct classic *c; /* borrowed */
	struct nc4_var *vars;    /* owned, c->num_vars */
	uint32_t *scale_of;      /* owned, c->num_dims: its coordinate variable; CLASSIC_NONE: a scale without one */
	unsigned int deflate;    /* of what is filtered */
	bool strict;             /* only what the classic model knows */
	uint64_t num_chunks, max_chunk_bytes;
};

/*
 * 0; -EINVAL: it cannot be a netCDF-4 file, *err says why; -EBADMSG: the file, of file_bytes, has not all that its header says,
 * or more records; -ENOMEM. c must stay; c->num_records is set where the header does not say it.
 */
int nc4_shape_make(struct classic *c, uint64_t file_bytes, const struct nc4_options *opt, struct nc4_shape *ret,
	struct cistern_error *err);
void nc4_shape_free(struct nc4_shape *s);

/*
 * One of num helpers' share of a file's chunks, which are numbered through: of all variables in order, of each in order. It
 * has every num-th run of them: as many as lie near each other in the classic file, but every helper some.
 */
struct nc4_share {
	uint32_t which, num; /* which < num */
};
/* Does chunk n of total belong to it? *ret_index: how many of its chunks are before. */
bool nc4_share_has(const struct nc4_share *share, uint64_t total, uint64_t n, uint64_t *ret_index);

/* Where chunk number at (row-major over the grid) of a variable lies: first element and how many, per dimension. */
void nc4_chunk_box(const struct nc4_var *v, uint32_t num_dims, uint64_t at, uint64_t *ret_start, uint64_t *ret_count);

#endif
