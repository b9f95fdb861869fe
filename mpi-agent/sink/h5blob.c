/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Three one-dimensional data sets of bytes. HDF5 is asked where they lie and lets go of the file again before anybody reads
 * or writes its data: the library is not needed for bytes in one piece, and it is not for several processes at once here.
 */
#include "mpi-agent/sink/h5blob.h"

#include <errno.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX (256u << 20)
#define TABLE_MAX  (1u << 30)

static herr_t note_first(unsigned int n, const H5E_error2_t *e, void *arg)
{
	char *text = arg;

	if (n == 0 && e->desc)
		strncat(text, e->desc, 200);
	return 0;
}

/* HDF5's own words for what it could not do, and its errors gone. */
static int h5_error(const char *path, const char *what, int code, struct cistern_error *err)
{
	char text[256] = "";

	H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, note_first, text);
	H5Eclear2(H5E_DEFAULT);
	return cistern_error_set(err, code, "%s: %s%s%s", path, what, text[0] ? ": HDF5 says: " : "", text);
}

/* ---- reading */

/* A one-dimensional data set of bytes; its identifier and length. -ENOENT: there is none. */
static int open_bytes(
	hid_t file, const char *path, const char *name, hid_t *ret, uint64_t *ret_len, struct cistern_error *err)
{
	hid_t set, space = -1, type = -1;
	hsize_t len = 0;
	int r = 0;

	if (H5Lexists(file, name, H5P_DEFAULT) <= 0) {
		H5Eclear2(H5E_DEFAULT);
		return -ENOENT;
	}
	set = H5Dopen2(file, name, H5P_DEFAULT);
	if (set >= 0) {
		space = H5Dget_space(set);
		type = H5Dget_type(set);
	}
	if (space < 0 || type < 0 || H5Sget_simple_extent_ndims(space) != 1 || H5Tget_size(type) != 1 ||
		H5Sget_simple_extent_dims(space, &len, NULL) < 0)
		r = h5_error(path, "a data set is not one-dimensional, of bytes", -EBADMSG, err);
	if (type >= 0)
		H5Tclose(type);
	if (space >= 0)
		H5Sclose(space);
	if (r < 0 && set >= 0)
		H5Dclose(set);
	if (r < 0) {
		cistern_error_prefix(err, "%s", name);
		return r;
	}
	*ret = set;
	*ret_len = len;
	return 0;
}

static int read_bytes(hid_t file, const char *path, const char *name, uint64_t max, uint8_t **ret, size_t *ret_len,
	struct cistern_error *err)
{
	uint64_t len;
	hid_t set;
	int r = open_bytes(file, path, name, &set, &len, err);

	if (r < 0)
		return r;
	*ret = len <= max ? malloc((size_t)len + 1) : NULL;
	if (!*ret)
		r = cistern_error_set(err, -EFBIG, "%s: %s has %llu bytes", path, name, (unsigned long long)len);
	else if (H5Dread(set, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, *ret) < 0)
		r = h5_error(path, name, -EBADMSG, err);
	H5Dclose(set);
	*ret_len = (size_t)len;
	return r;
}

static int find_data(hid_t file, const char *path, struct h5blob *ret, struct cistern_error *err)
{
	hid_t set, plist;
	haddr_t off;
	int r = open_bytes(file, path, "data_blob", &set, &ret->data_bytes, err);

	if (r < 0)
		return r;
	plist = H5Dget_create_plist(set);
	off = H5Dget_offset(set);
	if (plist < 0 || H5Pget_layout(plist) != H5D_CONTIGUOUS || H5Pget_external_count(plist) != 0)
		r = h5_error(path,
			"data_blob does not lie in one piece in this file (h5repack -l data_blob:CONTI makes it so)",
			-EBADMSG, err);
	else if (off == HADDR_UNDEF && ret->data_bytes > 0)
		r = h5_error(path, "data_blob was never written", -EBADMSG, err);
	ret->data_off = off == HADDR_UNDEF ? 0 : off;
	if (plist >= 0)
		H5Pclose(plist);
	H5Dclose(set);
	H5Eclear2(H5E_DEFAULT);
	return r;
}

int h5blob_open(const char *path, struct h5blob *ret, struct cistern_error *err)
{
	struct h5blob b = { 0 };
	hid_t file;
	int r;

	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	if (file < 0)
		return h5_error(path, "cannot be opened", -EBADMSG, err);
	r = read_bytes(file, path, "header_blob", HEADER_MAX, &b.header, &b.header_bytes, err);
	if (r == 0)
		r = find_data(file, path, &b, err);
	if (r == -ENOENT)
		r = cistern_error_set(err, -EBADMSG, "%s: no data sets header_blob and data_blob", path);
	if (r == 0) {
		r = read_bytes(file, path, "table_blob", TABLE_MAX, &b.table, &b.table_bytes, err);
		r = r == -ENOENT ? 0 : r;
	}
	H5Fclose(file);
	if (r < 0)
		h5blob_destroy(&b);
	else
		*ret = b;
	return r;
}

void h5blob_destroy(struct h5blob *b)
{
	if (!b)
		return;
	free(b->header);
	free(b->table);
	*b = (struct h5blob){ 0 };
}

/* ---- writing */

/* bytes NULL: room only, and *ret_off where it is. */
static int put_bytes(hid_t file, hid_t plist, const char *name, const void *bytes, uint64_t len, uint64_t *ret_off)
{
	hsize_t dim = len;
	hid_t space = H5Screate_simple(1, &dim, NULL);
	hid_t set = H5Dcreate2(file, name, H5T_STD_U8LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
	herr_t h = set < 0 ? -1 : 0;
	haddr_t off;

	if (h >= 0 && bytes && len > 0)
		h = H5Dwrite(set, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes);
	if (h >= 0 && ret_off) {
		off = H5Dget_offset(set);
		*ret_off = off == HADDR_UNDEF ? 0 : off;
		h = off == HADDR_UNDEF && len > 0 ? -1 : 0;
	}
	if (set >= 0 && H5Dclose(set) < 0)
		h = -1;
	if (space >= 0)
		H5Sclose(space);
	return h < 0 ? -EIO : 0;
}

int h5blob_create(const char *path, const void *header, size_t header_bytes, const void *table, size_t table_bytes,
	uint64_t data_bytes, uint64_t *ret_data_off, struct cistern_error *err)
{
	hid_t access, plist, file;
	int r = 0;

	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	access = H5Pcreate(H5P_FILE_ACCESS);
	plist = H5Pcreate(H5P_DATASET_CREATE);
	if (access < 0 || plist < 0 || H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_LATEST) < 0 ||
		H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER) < 0 || H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY) < 0)
		return h5_error(path, "cannot be set up", -EIO, err);
	file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
	if (file < 0)
		r = -EIO;
	if (r == 0)
		r = put_bytes(file, plist, "header_blob", header, header_bytes, NULL);
	if (r == 0)
		r = put_bytes(file, plist, "table_blob", table, table_bytes, NULL);
	if (r == 0)
		r = put_bytes(file, plist, "data_blob", NULL, data_bytes, ret_data_off);
	if (r < 0)
		h5_error(path, "cannot be written", r, err); /* before closing, which forgets why */
	if (file >= 0 && H5Fclose(file) < 0 && r == 0)
		r = h5_error(path, "cannot be written", -EIO, err);
	H5Pclose(access);
	H5Pclose(plist);
	return r;
}
