/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_MAPFILE_H
#define FORMAT_CODEC_MAPFILE_H

/*
 * Decompositions: which process has which elements of an array. Read from the two forms in which E3SM's are passed around,
 * PIO's text (piodecomp...dat) and E3SM-IO's netCDF (map_f_case_16p.nc), or made as an even split. docs/format/blob.md.
 */

#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"

#define MAPFILE_MAPS_MAX  1024u
#define MAPFILE_DIMS_MAX  16u
#define MAPFILE_PROCS_MAX (1u << 24)

struct mapfile_run {
	uint64_t off, len; /* elements, row-major; len > 0 */
};

struct mapfile_map {
	uint32_t num_dims;
	uint64_t dims[MAPFILE_DIMS_MAX]; /* slowest first */
	uint64_t elements;
	uint32_t num_procs;
	size_t *first;            /* owned; num_procs + 1: process p has runs first[p] to first[p + 1] */
	struct mapfile_run *runs; /* owned */
	size_t num_runs, cap_runs;
};

struct mapfile {
	uint32_t num_procs; /* of each map */
	uint32_t num;
	struct mapfile_map *maps; /* owned */
};

/* Decode either form; all of the file in buf. 0; -EBADMSG: neither, or damaged, and *err says where; -ENOMEM. */
int mapfile_decode(const void *buf, size_t len, struct mapfile *ret, struct cistern_error *err);
void mapfile_destroy(struct mapfile *d); /* NULL is fine */
#define MAPFILE_CLEANUP __attribute__((cleanup(mapfile_destroy)))

/* Each process a part of the array, in order, sizes differing by one at the most. 0, -EINVAL, -ENOMEM. */
int mapfile_even(uint32_t num_dims, const uint64_t *dims, uint32_t num_procs, struct mapfile_map *ret);
/*
 * The same map for num_procs processes, fewer or as many: each takes those of several in a row. What nobody has goes to the last
 * one; *ret_added elements. Runs of a process ascend, do not overlap, are as long as they can be, but end with their row.
 * 0, -EINVAL: more processes than the map has; -ENOMEM.
 */
int mapfile_regroup(const struct mapfile_map *m, uint32_t num_procs, struct mapfile_map *ret, uint64_t *ret_added);
void mapfile_map_destroy(struct mapfile_map *m); /* NULL is fine */

#endif
