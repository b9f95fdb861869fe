/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_NC4_FILE_H
#define MPI_AGENT_NC4_FILE_H

/* What making and checking netCDF-4 files share: HDF5's errors, settings, types. Not thread-safe: HDF5 is not. */

#include <hdf5.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/base/config.h"
#include "mpi-agent/nc4/parcel.h"
#include "mpi-agent/nc4/shape.h"

#define NC4_NO_VARIABLE "This is a netCDF dimension but not a netCDF variable."
#define NC4_NAME_BYTES  64 /* of NAME with the text above and the length in ten places, NUL included */
#define NC4_SCALE_CLASS "DIMENSION_SCALE"
#define NC4_PROPERTIES  "_NCProperties"

struct nc4_cache_report { /* of HDF5's metadata cache */
	double hit_rate;
	size_t max_bytes, min_clean_bytes, now_bytes;
	int entries;
};

struct nc4_ref { /* an entry of REFERENCE_LIST: as HDF5's dimension scales have it */
	hobj_ref_t dataset;
	int dimension;
};

/* To be called first: HDF5 prints nothing, and locks no files (these are the drain's alone). 0, -EIO. */
int nc4_hdf5_begin(void);
/* -EIO, or what HDF5's innermost error says of the system; *err: doing, and why. The stack is cleared. */
int nc4_hdf5_error(struct cistern_error *err, const char *doing, const char *name);
/* A list for opening files, with the cache's settings (mdc.*; NULL: HDF5's own); < 0: refused. The caller closes it. */
hid_t nc4_access_list(const struct config *cfg);
int nc4_cache_report(hid_t file, struct nc4_cache_report *ret);
/* In this machine's byte order; characters: strings of one byte. Owned by the caller. */
hid_t nc4_type(enum classic_type type);
hid_t nc4_string_type(size_t bytes); /* > 0 */
hid_t nc4_ref_type(void);            /* compound of struct nc4_ref */

/* c, made into out, which is truncated. file: the classic file, mapped. */
struct nc4_make {
	const struct nc4_shape *shape;
	const uint8_t *file;
	const struct config *cfg;
	const char *out;
	unsigned int threads;
	struct parcel *const *
		parcels; /* borrowed: chunks that others have packed; NULL: there are none; the others are packed here */
	uint32_t num_parcels;
	uint64_t parcel_chunks;         /* result: how many were taken from there */
	struct nc4_cache_report report; /* result */
	uint64_t stored_bytes;          /* result: of chunks */
};
int nc4_make(struct nc4_make *m, struct cistern_error *err);

/*
 * Does out hold what the classic file has? Part number part of the parts of a share: each looks at its values, the first part of the
 * first share at the rest, too.
 */
struct nc4_check {
	const struct nc4_shape *shape;
	const uint8_t *file;
	const char *out;
	struct nc4_share share;
	unsigned int part, parts;
};
/* 0; -EBADMSG: it does not, *err says where; -EIO, -ENOMEM. */
int nc4_check(const struct nc4_check *c, struct cistern_error *err);

#endif
