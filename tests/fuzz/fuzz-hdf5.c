/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * HDF5 files from anybody. Checksums always fit here, so that what they protect is reached. What a walk finds must lie in the
 * file, in order, and be the layout's, too.
 */
#include <stdlib.h>
#include <string.h>

#include "format/codec/hdf5_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes {
	const uint8_t *data;
	size_t size;
};

bool hdf5_checksum_is(const void *data, size_t len, uint32_t sum)
{
	(void)data;
	(void)len;
	(void)sum;
	return true;
}

bool hdf5_fletcher_is(const void *data, size_t len, uint32_t sum)
{
	return hdf5_checksum_is(data, len, sum);
}

static void demand(bool condition)
{
	if (!condition)
		abort();
}

static ssize_t read_bytes(void *buf, size_t len, uint64_t off, void *arg)
{
	const struct bytes *b = arg;

	if (off >= b->size)
		return 0;
	if (len > b->size - off)
		len = b->size - (size_t)off;
	memcpy(buf, b->data + off, len);
	return (ssize_t)len;
}

static void check_pieces(const struct layout_piece *p, size_t num, size_t size)
{
	uint64_t at = 0;

	for (size_t i = 0; i < num; i++) {
		demand(p[i].off <= size && p[i].len <= size - p[i].off);
		demand(p[i].off >= at);
		at = p[i].off;
	}
}

static void check_object(const struct hdf5 *h, const struct hdf5_object *o, size_t size)
{
	demand(o->rank <= HDF5_RANK_MAX && o->addr < size && (o->dim == HDF5_NO_DIM || o->dim < h->num_dims));
	check_pieces(o->pieces, o->num_pieces, size);
	if (o->storage == HDF5_CONTIGUOUS && o->data_off != HDF5_NOWHERE)
		demand(o->data_off <= size && o->data_bytes <= size - o->data_off);
	for (uint32_t i = 0; o->axes && i < o->rank; i++)
		demand(o->axes[i] == HDF5_NO_DIM || o->axes[i] < h->num_dims);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes b = { data, size };
	struct hdf5 h HDF5_CLEANUP = { 0 };
	struct layout l LAYOUT_CLEANUP = { 0 };

	if (hdf5_walk(read_bytes, &b, size, &h, NULL) < 0)
		return 0;
	check_pieces(h.metadata, h.num_metadata, size);
	for (size_t i = 0; i < h.num_objects; i++)
		check_object(&h, &h.objects[i], size);
	demand(hdf5_to_layout(&h, &l) == 0);
	return 0;
}
