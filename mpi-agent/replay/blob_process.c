/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Subfiles in the process-centric form: an HDF5 file whose data_blob has the blobs one behind the other, in each the maps and then
 * all variables (docs/format/blob.md). How long everything is is known before the first byte is written; so header and table stand
 * at the beginning, and each blob's part of a variable goes to its place when it is put together.
 */
#include "mpi-agent/replay/blobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/hdf5.h"

#define NOWHERE UINT64_MAX

struct blob_process {
	const struct blob_plan *plan; /* borrowed */
	const struct classic *header; /* borrowed; of the subfile */
	uint32_t first, num;          /* streams */
	uint32_t num_maps, num_vars;  /* num_vars: canonical ones */
	struct blob_share *shares;    /* owned; [map * num + blob] */
	uint64_t *places; /* owned; [blob * (variables of the header) + variable]: in the file; NOWHERE: nothing */
	struct buf head;  /* all before data_blob */
	uint64_t data_bytes;
};

/* ---- where things lie */

static int index_places(struct blob_process *p, const struct blob_table *t)
{
	size_t num = (size_t)p->num * p->header->num_vars;

	p->places = malloc(num * sizeof(*p->places));
	if (!p->places)
		return -ENOMEM;
	for (size_t i = 0; i < num; i++)
		p->places[i] = NOWHERE;
	for (size_t i = 0; i < t->num; i++)
		p->places[(size_t)t->entries[i].blob * p->header->num_vars + t->entries[i].var] =
			p->head.len + t->entries[i].off;
	return 0;
}

static int make_head(struct blob_process *p, const struct blob_table *t)
{
	struct buf BUF_CLEANUP header = { 0 }, BUF_CLEANUP table = { 0 };
	int r = classic_encode(p->header, &header);

	blob_table_encode(t, &table);
	if (r == 0 && !buf_ok(&table))
		r = -ENOMEM;
	if (r == 0)
		blob_hdf5_encode(
			&(struct blob_hdf5){ header.data, table.data, header.len, table.len, t->data_bytes }, &p->head);
	return r < 0 || buf_ok(&p->head) ? r : -ENOMEM;
}

static int lay(struct blob_process *p)
{
	struct blob_lay l = { p->header, p->num, p->num_maps, p->plan->d->var_maps, p->shares };
	struct blob_table BLOB_TABLE_CLEANUP t = { 0 };
	int r = blob_table_lay(&l, &t);

	if (r == 0)
		r = make_head(p, &t);
	p->data_bytes = t.data_bytes;
	return r < 0 ? r : index_places(p, &t);
}

int blob_process_create(const struct blob_plan *plan, uint32_t first, uint32_t num, struct classic *header,
	const struct blob_share *shares, struct blob_process **ret)
{
	struct blob_process *p = calloc(1, sizeof(*p));
	size_t num_shares = plan->d->num_maps * num;
	int r;

	if (!p)
		return -ENOMEM;
	for (uint32_t i = 0; i < header->num_vars; i++)
		header->vars[i].begin = 0;
	*p = (struct blob_process){ .plan = plan,
		.header = header,
		.first = first,
		.num = num,
		.num_maps = (uint32_t)plan->d->num_maps,
		.num_vars = plan->header.num_vars };
	p->shares = malloc((num_shares + 1) * sizeof(*p->shares));
	if (p->shares)
		memcpy(p->shares, shares, num_shares * sizeof(*shares));
	r = p->shares ? lay(p) : -ENOMEM;
	if (r < 0)
		blob_process_destroy(p);
	else
		*ret = p;
	return r;
}

void blob_process_destroy(struct blob_process *p)
{
	if (!p)
		return;
	free(p->shares);
	free(p->places);
	buf_free(&p->head);
	free(p);
}

uint64_t blob_process_bytes(const struct blob_process *p)
{
	return p->head.len + p->data_bytes;
}

static uint64_t place(const struct blob_process *p, uint32_t blob, uint32_t var)
{
	return p->places[(size_t)blob * p->header->num_vars + var];
}

/* ---- maps */

static void put_integer(struct buf *out, uint64_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		buf_u8(out, (uint8_t)(value >> (8 * (bytes - 1 - i))));
}

static uint32_t integer_bytes(const struct blob_process *p, uint32_t map, enum blob_map_var which)
{
	return classic_type_bytes(p->header->vars[map * BLOB_MAP_VARS + which].type);
}

/* The runs of a map: of each blob its offsets and its lengths. */
static int sort_runs(const struct blob_process *p, uint32_t map, struct buf *offsets, struct buf *lengths)
{
	const struct decomp_map *m = &p->plan->d->maps[map];
	uint32_t offset_bytes = integer_bytes(p, map, BLOB_OFFSETS), length_bytes = integer_bytes(p, map, BLOB_LENGTHS);

	for (size_t i = 0; i < m->num_runs; i++) {
		uint32_t blob = m->runs[i].writer - p->first;

		if (m->runs[i].writer < p->first || blob >= p->num)
			continue;
		put_integer(&offsets[blob], m->runs[i].off, offset_bytes);
		put_integer(&lengths[blob], m->runs[i].len, length_bytes);
	}
	for (uint32_t b = 0; b < p->num; b++)
		if (!buf_ok(&offsets[b]) || !buf_ok(&lengths[b]))
			return -ENOMEM;
	return 0;
}

/* A blob's part of a map is in one piece. */
static int put_map_of(const struct blob_process *p, uint32_t map, uint32_t blob, const struct buf *offsets,
	const struct buf *lengths, blob_put_fn put, void *arg)
{
	const struct blob_share *s = &p->shares[(size_t)map * p->num + blob];
	struct buf BUF_CLEANUP out = { 0 };

	put_integer(&out, s->num, integer_bytes(p, map, BLOB_NREQS));
	put_integer(&out, s->start, integer_bytes(p, map, BLOB_START));
	put_integer(&out, s->count, integer_bytes(p, map, BLOB_COUNT));
	buf_bytes(&out, offsets->data, offsets->len);
	buf_bytes(&out, lengths->data, lengths->len);
	return buf_ok(&out) ? put(out.data, out.len, place(p, blob, map * BLOB_MAP_VARS + BLOB_NREQS), arg) : -ENOMEM;
}

static int put_map(const struct blob_process *p, uint32_t map, blob_put_fn put, void *arg)
{
	struct buf *runs = calloc(2 * (size_t)p->num, sizeof(*runs));
	int r = runs ? sort_runs(p, map, runs, runs + p->num) : -ENOMEM;

	for (uint32_t b = 0; r == 0 && b < p->num; b++)
		r = put_map_of(p, map, b, &runs[b], &runs[p->num + b], put, arg);
	for (uint32_t b = 0; runs && b < 2 * p->num; b++)
		buf_free(&runs[b]);
	free(runs);
	return r;
}

int blob_process_put_head(const struct blob_process *p, blob_put_fn put, void *arg)
{
	int r = put(p->head.data, p->head.len, 0, arg);

	for (uint32_t m = 0; r == 0 && m < p->num_maps; m++)
		r = put_map(p, m, put, arg);
	return r;
}

/* ---- values */

int blob_process_put_values(
	const struct blob_process *p, uint32_t var, uint64_t record, const uint8_t *values, blob_put_fn put, void *arg)
{
	uint32_t in_header = p->num_maps * BLOB_MAP_VARS + var, map = p->plan->d->var_maps[var];
	const struct classic_var *v = &p->header->vars[in_header];
	uint32_t size = classic_type_bytes(v->type);
	int r = 0;

	for (uint32_t b = 0; r == 0 && b < p->num; b++) {
		uint64_t at = place(p, b, in_header), len = v->bytes;

		if (at == NOWHERE)
			continue;
		if (map != DECOMP_NO_MAP)
			len = p->shares[(size_t)map * p->num + b].count * size;
		r = put(values, (size_t)len, at + record * len, arg);
		values += len;
	}
	return r;
}

/* ---- what is there already */

int blob_process_recognise(hdf5_read_fn read_bytes, void *arg, uint64_t size)
{
	struct hdf5 h = { 0 };
	unsigned int found = 0;
	int r = hdf5_walk(read_bytes, arg, size, &h, NULL);

	if (r < 0)
		return r == -ENOMEM ? r : -EBADMSG;
	for (size_t i = 0; i < h.num_objects; i++)
		if (strcmp(h.objects[i].path, "header_blob") == 0 || strcmp(h.objects[i].path, "data_blob") == 0)
			found += h.objects[i].kind == HDF5_DATASET;
	hdf5_destroy(&h);
	return found == 2 ? 0 : -EBADMSG;
}
