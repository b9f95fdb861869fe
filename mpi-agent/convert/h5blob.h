/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_CONVERT_H5BLOB_H
#define MPI_AGENT_CONVERT_H5BLOB_H

/*
 * Process-centric blob subfiles as HDF5 files: their small parts, and where in the file data_blob lies, so that all else can be done by
 * plain reads. Without HDF5's library, which with all that it needs would take longer to start than many a file to convert.
 */

#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"

struct h5blob {
	uint8_t *header; /* owned: header_blob */
	size_t header_bytes;
	uint8_t *table; /* owned: table_blob, or NULL where there is none */
	size_t table_bytes;
	uint64_t data_off, data_bytes; /* data_blob, in the file; it may be cut short */
};

/* fd: of size bytes. 0; -EBADMSG: not such a file, or a part does not lie in one piece; *err says it. The caller destroys *ret. */
int h5blob_open(int fd, uint64_t size, struct h5blob *ret, struct cistern_error *err);
void h5blob_destroy(struct h5blob *b); /* NULL is fine */

#endif
