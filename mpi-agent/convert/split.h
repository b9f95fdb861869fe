/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_CONVERT_SPLIT_H
#define MPI_AGENT_CONVERT_SPLIT_H

/* From a canonical file to the set of subfiles that will hold it: which variable is cut up how, and all of each subfile but the
 * variables' values, which transfers carry. */

#include <stdbool.h>
#include <stdint.h>

#include "format/codec/mapfile.h"
#include "mpi-agent/convert/set.h"

struct split_options {
	bool process_centric;
	uint32_t num_subfiles;
	uint32_t num_procs;           /* blobs of all subfiles together; at least num_subfiles */
	const struct mapfile *decomp; /* borrowed; NULL: even parts */
	uint8_t set[BLOB_SET_BYTES];
};

/*
 * Plan the set of the canonical file fd (path for messages). All processes that do so come to the same. 0; -EBADMSG: no
 * classic file; -EINVAL: it cannot be cut up so; *err says it. *ret_added: elements that the maps gave to nobody, and the last
 * process has. The files of *ret have no paths and are not open. The caller destroys *ret.
 */
int split_plan(int fd, const char *path, const struct split_options *o, struct blob_set *ret, uint64_t *ret_added,
	struct cistern_error *err);

/*
 * Make what is in a subfile before its variables' values: f->path exists and f->fd is open for writing. Its size is right
 * then; of a process-centric one, f->data_off is known.
 */
int split_write_head(struct subfile *f, struct cistern_error *err);
/* Bytes that the subfile will have, about. */
uint64_t split_bytes(const struct subfile *f);

#endif
