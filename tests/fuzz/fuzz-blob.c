/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Blob subfiles and decompositions from anybody's bytes. The first byte says what the rest is: 'h' a subfile's header, 't' a
 * table, 's' a header (its length first, 4 bytes, smallest first) and a data_blob without a table, 'd' a decomposition, 'l' a
 * header with its integers smallest byte first.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/blob.h"
#include "format/codec/mapfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool condition)
{
	if (!condition)
		abort();
}

struct bytes {
	const uint8_t *data;
	size_t size;
};

static ssize_t read_bytes(void *buf, size_t len, uint64_t off, void *arg)
{
	const struct bytes *b = arg;

	if (off >= b->size)
		return 0;
	len = len < b->size - off ? len : b->size - (size_t)off;
	memcpy(buf, b->data + off, len);
	return (ssize_t)len;
}

static int decode_head(const uint8_t *data, size_t size, struct blob_head *ret)
{
	struct cistern_error err = { 0 };
	struct classic c;
	int r = classic_decode_definitions(data, size, &c, &err);

	if (r == 0)
		r = blob_head_decode(&c, ret, &err);
	demand(r == 0 || err.text[0]);
	return r;
}

static void check_head(const struct blob_head *h)
{
	struct cursor c = cursor_make(h->exact.residue, (size_t)h->exact.residue_bytes);
	struct blob_residue r;

	demand(blob_head_compare(h, h, NULL) == (h->is_exact ? -EBADMSG : 0));
	demand(h->nblobs <= h->global_nprocs && h->num_subfiles > 0);
	for (uint32_t i = 0; i < h->canonical.num_vars; i++) {
		demand(h->vars[i].var < h->header.num_vars);
		demand(h->vars[i].map == BLOB_NO_MAP || h->vars[i].map < h->num_maps);
		demand(h->vars[i].map == BLOB_NO_MAP ||
			h->canonical.vars[i].elements == h->maps[h->vars[i].map].elements);
	}
	while (blob_next_residue(&c, &r) > 0)
		demand(r.off + r.stride * (r.count - 1) + r.len <= h->exact.file_bytes);
}

static void fuzz_head(const uint8_t *data, size_t size)
{
	struct blob_head h;

	if (decode_head(data, size, &h) < 0)
		return;
	check_head(&h);
	blob_head_destroy(&h);
}

/* What is turned is no longer than what was read, and as good or bad as any header. */
static void fuzz_turned(const uint8_t *data, size_t size)
{
	struct buf turned BUF_CLEANUP = { 0 };
	int r = blob_header_turn(data, size, &turned);

	demand((r == 0 && turned.len <= size) || r == -EBADMSG);
	(void)blob_header_is_little(data, size);
	if (r == 0)
		fuzz_head(turned.data, turned.len);
}

static void check_table(const struct blob_table *t)
{
	for (size_t i = 0; i < t->num; i++) {
		const struct blob_entry *e = &t->entries[i];

		demand(e->blob < t->num_blobs && e->var < t->num_vars && e->off <= t->data_bytes &&
			e->len <= t->data_bytes - e->off && e->num_records > 0 && e->len % e->num_records == 0);
	}
}

static void fuzz_table(const uint8_t *data, size_t size)
{
	struct buf again BUF_CLEANUP = { 0 };
	struct blob_table t;

	if (blob_table_decode(data, size, &t, NULL) < 0)
		return;
	check_table(&t);
	blob_table_encode(&t, &again);
	demand(again.len == size && memcmp(again.data, data, size) == 0);
	blob_table_destroy(&t);
}

static void fuzz_sum(const uint8_t *data, size_t size)
{
	struct bytes b;
	struct blob_table t;
	struct blob_head h;
	uint32_t len;

	if (size < 4)
		return;
	len = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
	if (len > size - 4 || decode_head(data + 4, len, &h) < 0)
		return;
	b = (struct bytes){ data + 4 + len, size - 4 - len };
	if (h.nblobs < 1000 && h.num_maps < 1000 && blob_table_sum(&h, b.size, read_bytes, &b, &t, NULL) == 0) {
		check_table(&t);
		blob_table_destroy(&t);
	}
	blob_head_destroy(&h);
}

static void fuzz_decomp(const uint8_t *data, size_t size)
{
	struct cistern_error err = { 0 };
	struct mapfile_map m;
	struct mapfile d;
	uint64_t added;

	if (mapfile_decode(data, size, &d, &err) < 0) {
		demand(err.text[0]);
		return;
	}
	for (uint32_t i = 0; i < d.num; i++) {
		uint64_t rows = d.maps[i].elements / d.maps[i].dims[d.maps[i].num_dims - 1], sum = 0;

		if (rows > 10000 || d.num_procs > 10000) /* each row is a run */
			continue;
		demand(mapfile_regroup(&d.maps[i], (d.num_procs + 1) / 2, &m, &added) == 0);
		for (size_t k = 0; k < m.num_runs; k++)
			sum += m.runs[k].len;
		demand(sum >= m.elements && m.first[m.num_procs] == m.num_runs);
		mapfile_map_destroy(&m);
	}
	mapfile_destroy(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	switch (data[0]) {
	case 'h': fuzz_head(data + 1, size - 1); break;
	case 'l': fuzz_turned(data + 1, size - 1); break;
	case 't': fuzz_table(data + 1, size - 1); break;
	case 's': fuzz_sum(data + 1, size - 1); break;
	case 'd': fuzz_decomp(data + 1, size - 1); break;
	default: break;
	}
	return 0;
}
