/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_SINK_H5BLOB_H
#define MPI_AGENT_SINK_H5BLOB_H

/*
 * Process-centric blob subfiles as HDF5 files: where in the file data_blob lies, so that all else can be done by plain reads
 * and writes. The only code of the converter that knows HDF5; without it (--without-hdf5) both calls return -ENOTSUP. From
 * one thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"

struct h5blob {
	uint8_t *header; /* owned: header_blob */
	size_t header_bytes;
	uint8_t *table; /* owned: table_blob, or NULL where there is none */
	size_t table_bytes;
	uint64_t data_off, data_bytes; /* data_blob, in the file */
};

/* 0; -EBADMSG: not such a file, or data_blob does not lie in one piece; -ENOTSUP; *err says it. The caller destroys *ret. */
int h5blob_open(const char *path, struct h5blob *ret, struct cistern_error *err);
void h5blob_destroy(struct h5blob *b); /* NULL is fine */

/*
 * Write such a file over path (which must exist) with header and table, and with room for data_bytes; *ret_data_off: where
 * that is. The file's size is right then. 0; -ENOTSUP; -EIO with HDF5's words.
 */
int h5blob_create(const char *path, const void *header, size_t header_bytes, const void *table, size_t table_bytes,
	uint64_t data_bytes, uint64_t *ret_data_off, struct cistern_error *err);

#endif
