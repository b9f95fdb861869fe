/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_CONVERT_SET_H
#define MPI_AGENT_CONVERT_SET_H

/* A set of subfiles beside the canonical file that they stand for. */

#include <stddef.h>
#include <stdint.h>

#include "format/codec/classic.h"
#include "mpi-agent/convert/subfile.h"

struct blob_set {
	uint32_t num;
	struct subfile *files;    /* owned; in the order of their numbers */
	struct classic canonical; /* begins valid */
	uint8_t *header;          /* owned; the canonical file's first bytes */
	uint64_t header_bytes;
	uint64_t file_bytes; /* of the canonical file */
};

/*
 * Open a complete set. paths: all subfiles in any order, or one path, of any of them or what stands before ".0000" in their
 * names. align: where variables are put when the set does not say it. 0; -ENOENT: one is missing, and *err names it; -EBADMSG:
 * damaged, or not one set. The caller destroys *ret.
 */
int blob_set_open(char *const *paths, size_t num_paths, const struct classic_align *align, struct blob_set *ret,
	struct cistern_error *err);
void blob_set_destroy(struct blob_set *s); /* NULL is fine */

/* The subfile of the lowest number that is there of BASE.0000, BASE.0001, ... -ENOENT: there is none; -ENAMETOOLONG. */
int blob_set_first(const char *base, char *out, size_t cap);

/* The end of what the blobs have of a map, in elements: a direct write would have written up to there. */
uint64_t blob_set_map_end(const struct blob_set *s, uint32_t map);

/* BASE.0003 */
int blob_set_path(const char *base, uint32_t number, char *out, size_t cap);

#endif
