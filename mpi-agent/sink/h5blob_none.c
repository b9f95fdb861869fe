/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What stands for h5blob.c in a build without HDF5. */
#include "mpi-agent/sink/h5blob.h"

#include <errno.h>

static int none(const char *path, struct cistern_error *err)
{
	return cistern_error_set(err, -ENOTSUP, "%s: this cistern was built without HDF5", path);
}

int h5blob_open(const char *path, struct h5blob *ret, struct cistern_error *err)
{
	return none(path, err);
}

void h5blob_destroy(struct h5blob *b)
{
}

int h5blob_create(const char *path, const void *header, size_t header_bytes, const void *table, size_t table_bytes,
	uint64_t data_bytes, uint64_t *ret_data_off, struct cistern_error *err)
{
	return none(path, err);
}
