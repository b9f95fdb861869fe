/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_CONVERT_TRANSFER_H
#define MPI_AGENT_CONVERT_TRANSFER_H

/*
 * A range of the canonical file between it and the blobs, either way: pieces of blobs are read or written in large runs, and
 * elements are moved in memory. Any range can be carried by any process, in any order; no two write the same byte of the
 * canonical file, and what two write of a blob where an element lies across their border is the same. Memory is that of
 * two ranges and of a buffer, whatever the files' sizes; while one range is written the next is put together.
 */

#include <stdbool.h>
#include <stdint.h>

#include "mpi-agent/convert/set.h"

struct transfer;

/* canonical_fd, its name for messages, and set: borrowed. fill: where no blob has an element, its fill value goes, and not a hole. */
int transfer_create(const struct blob_set *set, int canonical_fd, const char *name, uint64_t bytes, bool fill,
	struct transfer **ret);
void transfer_destroy(struct transfer *t); /* NULL is fine */

/* Bytes [from, to) of the canonical file, at most those given to transfer_create(), from the blobs. They may still be on their way,
 * and an error one of an earlier range. */
int transfer_to_canonical(struct transfer *t, uint64_t from, uint64_t to, struct cistern_error *err);
/* The same from the canonical file into the blobs. The runs of each blob must ascend. */
int transfer_to_blobs(struct transfer *t, uint64_t from, uint64_t to, struct cistern_error *err);
/* All ranges are carried, as far as write(2) goes. */
int transfer_finish(struct transfer *t, struct cistern_error *err);

#endif
