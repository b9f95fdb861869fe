/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The first bytes say what a file is. Those who come with another one than is converted here are told so, rather than at which offset
 * they differ.
 */
#include "mpi-agent/convert/stranger.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "format/base/fdio.h"
#include "format/codec/bblog.h"
#include "format/codec/classic.h"
#include "format/codec/hdf5.h"
#include "format/store/superblock.h"

#define MAGIC_BYTES 8

int stranger_refuse_classic(struct cistern_error *err)
{
	return cistern_error_set(err, -EBADMSG,
		"no subfile of blobs, but a netCDF classic file (global_nprocs, num_decompositions and num_subfiles are not all among its "
		"attributes): 'cistern convert FILE --layout blob-variable --to BASE' makes subfiles of it, 'nccopy -k nc4' netCDF-4");
}

int stranger_refuse_hdf5(struct cistern_error *err)
{
	return cistern_error_set(err, -EBADMSG,
		"no subfile of blobs, but an HDF5 file without data sets header_blob and data_blob: 'nccopy -k cdf5' makes a netCDF classic "
		"file of it if it is netCDF-4; 'cistern fsck FILE' checks it");
}

static int refuse_empty(struct cistern_error *err)
{
	return cistern_error_set(err, -EBADMSG,
		"it is empty: a file that a mount still holds, or whose program ended before it wrote; 'cistern status' tells of mounts");
}

int stranger_look(int fd, enum stranger_for wanted, struct cistern_error *err)
{
	uint8_t first[MAGIC_BYTES] = { 0 };
	ssize_t n = fdio_read(fd, first, sizeof(first), 0);
	bool is_hdf5 = n > 0 && hdf5_is(first, (size_t)n);

	if (n < 0)
		return cistern_error_set(err, (int)n, "%s", strerror((int)-n));
	if ((n > 0 && classic_is(first, (size_t)n)) || (is_hdf5 && wanted == STRANGER_FOR_CANONICAL))
		return 0;
	if (n == 0)
		return refuse_empty(err);
	if (is_hdf5)
		return cistern_error_set(err, -EBADMSG,
			"an HDF5 file, and blobs are made of netCDF classic files: of netCDF-4, 'nccopy -k cdf5' makes one; of subfiles, "
			"'cistern convert' without --layout");
	if (n >= (ssize_t)strlen(BBLOG_MAGIC) && memcmp(first, BBLOG_MAGIC, strlen(BBLOG_MAGIC)) == 0)
		return cistern_error_set(err, -EBADMSG,
			"a log of PnetCDF's burst-buffer driver: 'cistern recover LOG.meta... --to FILE.nc' makes the netCDF file of all "
			"its logs, 'cistern inspect LOG.meta' shows what is in it");
	return cistern_error_set(err, -EBADMSG,
		"neither a netCDF classic file nor %s: of no format that can be converted",
		wanted == STRANGER_FOR_CANONICAL ? "an HDF5 file" : "another one that is known here");
}

int stranger_refuse_other(const char *path, struct cistern_error *err)
{
	char inside[PATH_MAX];

	if (snprintf(inside, sizeof(inside), "%s/" SUPERBLOCK_FILE, path) < (int)sizeof(inside) &&
		access(inside, F_OK) == 0)
		return cistern_error_set(err, -EINVAL,
			"the store of a mount: 'cistern recover STORE --to DIR' makes files of it, 'cistern inspect STORE' shows what is in it");
	return cistern_error_set(err, -EINVAL,
		"not a regular file: name a set by what stands before \".0000\" in the names of its subfiles, or all its subfiles");
}
