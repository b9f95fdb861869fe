/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What is in front of the values of a subfile: its header, the maps, and in the process-centric form the frame around them. */
#include "mpi-agent/replay/blob_writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- maps */

static void put_be(uint8_t *to, uint64_t value, unsigned int bytes)
{
	for (unsigned int i = 0; i < bytes; i++)
		to[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
}

static uint64_t share_field(const struct blob_share *share, uint64_t start, enum blob_map_var which)
{
	return which == BLOB_NREQS ? share->num : which == BLOB_START ? start : share->count;
}

/* The variables with one value for each blob. */
static int put_shares(struct blob_writer *w, struct blob_subfile *sub, uint32_t m)
{
	uint8_t *data = malloc((size_t)sub->num * CLASSIC_TYPE_BYTES);
	int r = data ? 0 : -ENOMEM;

	for (uint32_t which = BLOB_NREQS; r == 0 && which <= BLOB_COUNT; which++) {
		const struct classic_var *v = &sub->header.vars[m * BLOB_MAP_VARS + which];
		unsigned int size = classic_type_bytes(v->type);

		for (uint32_t i = 0; i < sub->num; i++)
			put_be(data + (size_t)i * size,
				share_field(&w->plan->shares[m][sub->first + i], sub->starts[m][i], which), size);
		r = blob_sub_write(w, sub, data, (size_t)sub->num * size, v->begin);
	}
	free(data);
	return r;
}

/* Offsets or lengths: a row for each blob, whose end is not used where others have more. */
static int put_requests(struct blob_writer *w, struct blob_subfile *sub, uint32_t m, enum blob_map_var which)
{
	const struct decomp_map *map = &w->plan->d->maps[m];
	const struct classic_var *v = &sub->header.vars[m * BLOB_MAP_VARS + which];
	unsigned int size = classic_type_bytes(v->type);
	size_t row = (size_t)(v->elements / sub->num);
	uint8_t *data = calloc(row, size);
	int r = data ? 0 : -ENOMEM;

	for (uint32_t i = 0; r == 0 && i < sub->num; i++) {
		size_t num = 0;

		for (size_t k = 0; k < map->num_runs; k++)
			if (map->runs[k].writer == sub->first + i)
				put_be(data + num++ * size, which == BLOB_OFFSETS ? map->runs[k].off : map->runs[k].len,
					size);
		if (num > 0)
			r = blob_sub_write(w, sub, data, num * size, v->begin + (uint64_t)i * row * size);
	}
	free(data);
	return r;
}

static int put_maps(struct blob_writer *w, struct blob_subfile *sub)
{
	int r = 0;

	for (uint32_t m = 0; r == 0 && m < w->plan->d->num_maps; m++) {
		r = put_shares(w, sub, m);
		if (r == 0)
			r = put_requests(w, sub, m, BLOB_OFFSETS);
		if (r == 0)
			r = put_requests(w, sub, m, BLOB_LENGTHS);
	}
	return r;
}

/* ---- headers */

/* Starts of the blobs in each map; and what the header wants to know of it. */
static int lay_map(struct blob_writer *w, struct blob_subfile *sub, uint32_t m, struct blob_make_map *ret)
{
	const struct decomp_map *map = &w->plan->d->maps[m];

	*ret = (struct blob_make_map){ .num_dims = map->num_dims, .dims = map->dims };
	sub->starts[m] = calloc(sub->num, sizeof(**sub->starts));
	if (!sub->starts[m])
		return -ENOMEM;
	for (uint32_t i = 0; i < sub->num; i++) {
		const struct blob_share *share = &w->plan->shares[m][sub->first + i];

		sub->starts[m][i] = ret->nelems;
		ret->nelems += share->count;
		if (share->num > ret->max_nreqs)
			ret->max_nreqs = share->num;
	}
	return 0;
}

int blob_make_subfile(struct blob_writer *w, struct blob_subfile *sub)
{
	struct blob_make_map *maps = calloc(w->plan->d->num_maps + 1, sizeof(*maps));
	struct blob_exact exact = { .subfile = w->plan->first_subfile + (uint32_t)(sub - w->sub),
		.file_bytes = w->in->size,
		.header = w->plan->header_bytes,
		.header_bytes = w->plan->header.header_bytes,
		.residue = w->plan->residue.data,
		.residue_bytes = w->plan->residue.len };
	struct blob_make make = { .canonical = &w->plan->header,
		.global_nprocs = w->plan->all_streams,
		.num_subfiles = w->plan->all_subfiles,
		.nblobs = sub->num,
		.num_maps = (uint32_t)w->plan->d->num_maps,
		.maps = maps,
		.var_maps = w->plan->d->var_maps,
		.exact = &exact };
	struct cistern_error err = { 0 };
	int r = 0;

	sub->starts = calloc(w->plan->d->num_maps + 1, sizeof(*sub->starts));
	if (!maps || !sub->starts)
		r = -ENOMEM;
	for (uint32_t m = 0; r == 0 && m < make.num_maps; m++)
		r = lay_map(w, sub, m, &maps[m]);
	memcpy(exact.set, w->plan->set, sizeof(exact.set));
	if (r == 0)
		r = blob_make_header(&make, &sub->header, &err);
	if (r == -EINVAL) {
		snprintf(w->why, BLOB_WHY, "%.*s", BLOB_WHY - 1, err.text);
		r = -EOPNOTSUPP;
	}
	free(maps);
	return r;
}

int blob_make_process(struct blob_writer *w, struct blob_subfile *sub)
{
	size_t num_maps = w->plan->d->num_maps;
	struct blob_share *shares = calloc(num_maps * sub->num + 1, sizeof(*shares));
	int r;

	if (!shares)
		return -ENOMEM;
	for (size_t m = 0; m < num_maps; m++)
		for (uint32_t i = 0; i < sub->num; i++) {
			shares[m * sub->num + i] = w->plan->shares[m][sub->first + i];
			shares[m * sub->num + i].start = sub->starts[m][i];
		}
	r = blob_process_create(w->plan, sub->first, sub->num, &sub->header, shares, &sub->process);
	free(shares);
	return r;
}

uint64_t blob_subfile_bytes(const struct blob_subfile *sub)
{
	return sub->process ? blob_process_bytes(sub->process) : classic_file_bytes(&sub->header);
}

static int put_header(struct blob_writer *w, struct blob_subfile *sub)
{
	struct buf BUF_CLEANUP bytes = { 0 };
	int r = classic_encode(&sub->header, &bytes);

	return r == 0 ? blob_sub_write(w, sub, bytes.data, bytes.len, 0) : r;
}

/* All but values. */
int blob_put_head(struct blob_writer *w, struct blob_subfile *sub)
{
	int r;

	if (sub->process) {
		r = blob_process_put_head(sub->process, blob_put_to_target, &(struct blob_target){ w, sub });
	} else {
		r = put_header(w, sub);
		if (r == 0)
			r = put_maps(w, sub);
	}
	/* What nobody wrote reads as zeros, up to the end. */
	return r == 0 ? sub->f->ops->truncate(sub->f, blob_subfile_bytes(sub)) : r;
}
