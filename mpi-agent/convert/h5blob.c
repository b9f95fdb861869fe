/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Three one-dimensional data sets of bytes, found by our own walk of the HDF5 file. */
#include "mpi-agent/convert/h5blob.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/fdio.h"
#include "format/codec/hdf5.h"
#include "mpi-agent/convert/stranger.h"

#define HEADER_MAX (256u << 20)
#define TABLE_MAX  (1u << 30)

struct reading {
	int fd;
	uint64_t size;
	struct hdf5 h;
	struct cistern_error *err;
};

static ssize_t read_at(void *buf, size_t len, uint64_t off, void *arg)
{
	const struct reading *r = arg;

	return fdio_read(r->fd, buf, len, off);
}

/* A one-dimensional data set of bytes in one piece, in the root group. 0; -ENOENT: there is none; -EBADMSG. */
static int find(struct reading *r, const char *name, const struct hdf5_object **ret)
{
	const struct hdf5_object *o = NULL;

	for (size_t i = 0; i < r->h.num_objects && !o; i++)
		if (strcmp(r->h.objects[i].path, name) == 0)
			o = &r->h.objects[i];
	if (!o)
		return -ENOENT;
	if (o->kind != HDF5_DATASET || o->rank != 1 || o->type.size != 1)
		return cistern_error_set(r->err, -EBADMSG, "%s is not one-dimensional, of bytes", name);
	if ((o->storage != HDF5_CONTIGUOUS && o->storage != HDF5_COMPACT && o->storage != HDF5_NO_DATA) ||
		o->num_filters > 0)
		return cistern_error_set(r->err, -EBADMSG,
			"%s does not lie in one piece in this file (h5repack -l %s:CONTI makes it so)", name, name);
	if (o->data_off == HDF5_NOWHERE && o->data_bytes > 0)
		return cistern_error_set(r->err, -EBADMSG, "%s was never written", name);
	*ret = o;
	return 0;
}

/* *ret: malloc'd */
static int read_part(struct reading *r, const char *name, uint64_t max, uint8_t **ret, size_t *ret_len)
{
	const struct hdf5_object *o;
	uint8_t *bytes;
	ssize_t n = 0;
	int code = find(r, name, &o);

	if (code < 0)
		return code;
	if (o->data_bytes > max)
		return cistern_error_set(r->err, -EFBIG, "%s has %" PRIu64 " bytes", name, o->data_bytes);
	if (o->data_bytes > r->size)
		return cistern_error_set(r->err, -EBADMSG, "%s is cut short", name);
	bytes = malloc((size_t)o->data_bytes + 1);
	if (!bytes)
		return -ENOMEM;
	if (o->data_bytes > 0)
		n = read_at(bytes, (size_t)o->data_bytes, o->data_off, r);
	if (n < 0)
		code = cistern_error_set(r->err, (int)n, "%s: %s", name, strerror((int)-n));
	else if ((uint64_t)n < o->data_bytes)
		code = cistern_error_set(r->err, -EBADMSG, "%s is cut short", name);
	if (code < 0) {
		free(bytes);
		return code;
	}
	*ret = bytes;
	*ret_len = (size_t)o->data_bytes;
	return 0;
}

static int read_parts(struct reading *r, struct h5blob *ret)
{
	const struct hdf5_object *data;
	int code = read_part(r, "header_blob", HEADER_MAX, &ret->header, &ret->header_bytes);

	if (code == 0)
		code = find(r, "data_blob", &data);
	if (code == -ENOENT)
		return stranger_refuse_hdf5(r->err);
	if (code < 0)
		return code;
	ret->data_off = data->data_off == HDF5_NOWHERE ? 0 : data->data_off;
	ret->data_bytes = data->data_bytes;
	code = read_part(r, "table_blob", TABLE_MAX, &ret->table, &ret->table_bytes);
	return code == -ENOENT ? 0 : code;
}

int h5blob_open(int fd, uint64_t size, struct h5blob *ret, struct cistern_error *err)
{
	struct reading r = { .fd = fd, .size = size, .err = err };
	struct h5blob b = { 0 };
	int code = hdf5_walk(read_at, &r, size, &r.h, err);

	if (code == -ENODATA || code == -ENOTSUP)
		code = -EBADMSG;
	if (code < 0)
		return code;
	code = read_parts(&r, &b);
	hdf5_destroy(&r.h);
	if (code < 0)
		h5blob_destroy(&b);
	else
		*ret = b;
	return code;
}

void h5blob_destroy(struct h5blob *b)
{
	if (!b)
		return;
	free(b->header);
	free(b->table);
	*b = (struct h5blob){ 0 };
}
