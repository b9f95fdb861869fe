/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_CONVERT_REWRITE_H
#define MPI_AGENT_CONVERT_REWRITE_H

/*
 * The canonical file of a set, written into a Cistern mount as it was written first: each blob by a process of its own, with one write
 * for each run. So the mount knows again which process has which elements, and the drain makes the same blobs of them, with what
 * is written meanwhile (docs/design/blob-layouts.md, "Going on with a file").
 */

#include <stdint.h>

#include "mpi-agent/convert/set.h"

/* Create path, or take it, empty, and give it the layout of the set. 0; -EINVAL: path is not in a Cistern mount; as open(2). */
int rewrite_create(const struct blob_set *set, const char *path, struct cistern_error *err);
/* All that is in no blob: header, variables that are not cut up, residue. path: for messages. */
int rewrite_frame(const struct blob_set *set, int fd, const char *path, struct cistern_error *err);

struct rewrite {
	const struct blob_set *set;                            /* borrowed */
	const char *path;                                      /* borrowed; of the file that is written */
	uint32_t share, num;                                   /* this is part share of num of the blobs */
	int (*each)(uint64_t done, uint64_t total, void *arg); /* after each blob: bytes; not 0 stops */
	void *arg;
};
/* This part's blobs, one process after the other. The caller waits for no other children. */
int rewrite_blobs(const struct rewrite *w, struct cistern_error *err);

#endif
