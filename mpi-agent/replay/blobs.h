/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_BLOBS_H
#define MPI_AGENT_REPLAY_BLOBS_H

/*
 * A file in blob layout: what it is made of (blob_plan.c) and the subfiles (blob_write.c). Within mpi-agent/replay only.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/base/cursor.h"
#include "format/codec/blob.h"
#include "format/codec/classic.h"
#include "mpi-agent/plan/decomp.h"
#include "mpi-agent/replay/session.h"

#define BLOB_WHY 256 /* bytes of a reason */

struct blob_plan {
	struct classic header; /* of the canonical file */
	uint8_t *header_bytes; /* owned */
	struct decomp *d;      /* owned; its writers are numbers of streams */
	uint32_t num_streams;  /* processes that wrote a part of a variable, by their numbers */
	uint64_t **run_at;     /* owned: for each run of each map, in elements, where it begins in its stream's blob */
	struct blob_share **shares; /* owned: of each map, what each stream has; start: 0 */
	struct buf residue;         /* encoded */
	uint64_t bytes, extents;    /* that the file has in the log */
};

/*
 * Finds out whether the file can be laid out as blobs, and how. 0; -EOPNOTSUPP: it cannot, and why says why; else
 * the file cannot be read.
 */
int blob_plan_make(struct session *s, const struct inode *in, struct blob_plan *ret, char why[BLOB_WHY]);
void blob_plan_free(struct blob_plan *p);

struct blob_done {
	uint32_t subfiles, blobs, maps;
	uint64_t written, extents;
};
/*
 * Writes the subfiles beside the file's place, under temporary names, makes them durable, gives them their names; those are
 * durable, too, when it returns 0. As blob_plan_make(); -EEXIST: something else has one of the names. A repetition gives the
 * same bytes.
 */
int blob_write(struct session *s, const struct inode *in, const struct file_place *place, uint32_t num_subfiles,
	struct blob_done *ret, char why[BLOB_WHY]);

#endif
