/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_CONVERT_RESIDUE_H
#define MPI_AGENT_CONVERT_RESIDUE_H

/* Bytes of a classic file that belong to no variable, and are not zero: mostly padding that a library filled. */

#include "format/base/cursor.h"
#include "format/codec/classic.h"

/* Append them to *out, as blob_add_residue() does. 0; -EFBIG: more than BLOB_RESIDUE_MAX; or the reader's error. */
int residue_find(const struct classic *c, uint64_t file_bytes, classic_read_fn read_bytes, void *arg, struct buf *out,
	struct cistern_error *err);

#endif
