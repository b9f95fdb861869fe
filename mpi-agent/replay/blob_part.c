/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * This node's part of a file of many nodes. What its own log has is looked at as blob_plan.c does it; what is to be agreed on goes
 * into a deal. When all deals are known, the lists of runs that were found here get the numbers of the maps that all have.
 */
#include "mpi-agent/replay/blobs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

ssize_t blob_sink_read(void *buf, size_t len, uint64_t off, void *arg)
{
	struct sink_file *f = arg;

	return f->ops->pread(f, buf, len, off);
}

int blob_plan_header(struct session *s, const struct inode *in, struct buf *ret, char why[BLOB_WHY])
{
	struct blob_plan p = { 0 };
	struct blob_view v = { s, in };
	struct extent e;
	uint64_t off = 0, next;
	size_t num = 1;
	int r = blob_plan_check(in, why);

	if (r == 0)
		r = blob_plan_take_header(&p, in->size, blob_view_read, &v, why);
	while (r == 0 && num > 0 && off < p.header.header_bytes) {
		r = state_extents(s->st, in->ino, off, p.header.header_bytes - off, &e, 1, &num, &next);
		num = num > 0 && e.kind == EXTENT_LOG && e.off <= off ? 1 : 0;
		off = num > 0 ? e.off + e.len : off;
	}
	if (r == 0 && num == 0)
		r = blob_refuse(why, "its header was not written on the node that made it");
	if (r == 0)
		buf_bytes(ret, p.header_bytes, (size_t)p.header.header_bytes);
	blob_plan_free(&p);
	return r == 0 && !buf_ok(ret) ? -ENOMEM : r;
}

/* Whether anything of [off, off + len) is in the log here. */
static int has_any(struct session *s, const struct inode *in, uint64_t off, uint64_t len)
{
	struct extent e;
	uint64_t next = off;
	size_t num;

	while (next < off + len) {
		int r = state_extents(s->st, in->ino, next, off + len - next, &e, 1, &num, &next);

		if (r < 0 || (num > 0 && e.kind == EXTENT_LOG))
			return r < 0 ? r : 1;
	}
	return 0;
}

/* All that was written here of a variable that is not cut up goes to all nodes. *ret_fits: it is not too much. */
static int add_values(
	struct session *s, const struct inode *in, struct blob_plan *p, uint32_t var, struct deal *deal, bool *ret_fits)
{
	const struct classic_var *v = &p->header.vars[var];
	uint64_t records = v->is_record ? p->header.num_records : 1;
	size_t before = deal->values.len;
	struct blob_view view = { s, in };
	uint8_t *bytes = v->bytes <= DEAL_BYTES_MAX ? malloc((size_t)v->bytes + 1) : NULL;
	int r = 0;

	*ret_fits = v->bytes <= DEAL_BYTES_MAX;
	for (uint64_t i = p->d->vars[var].first_record; r >= 0 && *ret_fits && i < records; i++) {
		uint64_t off = classic_offset(&p->header, v, i, 0);

		r = bytes ? has_any(s, in, off, v->bytes) : -ENOMEM;
		if (r <= 0)
			continue;
		memset(bytes, 0, (size_t)v->bytes);
		r = (int)blob_view_read(bytes, (size_t)v->bytes, off, &view);
		deal_add_value(
			deal, &(struct deal_value){ .var = var, .record = i, .len = (size_t)v->bytes, .bytes = bytes });
		*ret_fits = deal->values.len <= DEAL_BYTES_MAX;
	}
	free(bytes);
	if (!*ret_fits)
		deal->values.len = before;
	return r < 0 ? r : buf_ok(&deal->values) ? 0 : -ENOMEM;
}

/* What of each variable is here. Those that go to all are cut up nowhere. */
static int tell_vars(struct session *s, const struct inode *in, struct blob_plan *p, struct deal *deal)
{
	int r = 0;

	deal->num_vars = p->header.num_vars;
	deal->vars = calloc(deal->num_vars, sizeof(*deal->vars));
	if (!deal->vars)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < deal->num_vars; i++) {
		const struct decomp_var *v = &p->d->vars[i];
		bool fits = false;

		if (v->any && v->whole)
			r = add_values(s, in, p, i, deal, &fits);
		deal->vars[i] = (struct deal_var){ .first_record = v->first_record,
			.list = p->d->var_maps[i],
			.kind = !v->any ? DEAL_NOTHING
				: fits  ? DEAL_VALUES
					: DEAL_RUNS,
			.mixed = v->mixed };
		if (fits)
			p->d->var_maps[i] = DECOMP_NO_MAP;
	}
	return r;
}

/* Takes lists over from the plan. */
static int tell_rest(struct blob_plan *p, struct deal *deal)
{
	deal->num_streams = p->num_streams;
	deal->has_header = p->has_header;
	deal->own = p->own;
	deal->more_ragged = p->d->more_ragged;
	deal->num_ragged = (uint32_t)p->d->num_ragged;
	deal->ragged = p->d->ragged;
	p->d->ragged = NULL;
	p->d->num_ragged = 0;
	deal->residue = p->residue;
	p->residue = (struct buf){ 0 };
	return 0;
}

int blob_plan_part(
	struct session *s, const struct inode *in, struct sink_file *head, struct blob_plan *ret, struct deal *deal)
{
	int r;

	*ret = (struct blob_plan){ .of_job = true };
	r = blob_plan_take_header(ret, in->size, blob_sink_read, head, deal->why);
	if (r == 0)
		r = decomp_create(&ret->header, &ret->d);
	if (r == 0) {
		ret->d->cuts_whole = true;
		r = blob_plan_extents(s, in, ret, deal->why);
	}
	if (r == 0)
		r = decomp_finish(ret->d);
	if (r == 0)
		r = tell_vars(s, in, ret, deal);
	if (r == 0 && ret->extents > 0)
		r = blob_plan_streams(s, in, ret);
	if (r == 0)
		r = blob_plan_residue(s, in, ret, deal->why);
	if (r == 0 && ret->residue.len > DEAL_BYTES_MAX)
		r = blob_refuse(deal->why, "more than %u bytes belong to no variable", DEAL_BYTES_MAX);
	if (r == 0)
		r = tell_rest(ret, deal);
	if (r < 0)
		blob_plan_free(ret);
	return r == -EOPNOTSUPP ? 0 : r;
}

/* Its maps become those of all nodes, with the runs that are here. */
static int renumber_maps(struct blob_plan *p, const struct unite_plan *all)
{
	struct decomp_map *maps = calloc((size_t)all->num_maps + 1, sizeof(*maps));
	int r = maps ? 0 : -ENOMEM;

	for (uint32_t m = 0; r == 0 && m < all->num_maps; m++) {
		const struct classic_var *v = &p->header.vars[all->map_vars[m]];
		uint32_t list = p->d->var_maps[all->map_vars[m]];
		const struct decomp_map *from = list == DECOMP_NO_MAP ? NULL : &p->d->maps[list];

		maps[m] = (struct decomp_map){ .num_dims = v->num_dims - v->is_record,
			.dims = v->dims + v->is_record,
			.elements = v->elements,
			.num_runs = from ? from->num_runs : 0 };
		maps[m].runs = malloc((maps[m].num_runs + 1) * sizeof(*maps[m].runs));
		if (!maps[m].runs)
			r = -ENOMEM;
		else if (from)
			memcpy(maps[m].runs, from->runs, from->num_runs * sizeof(*from->runs));
	}
	for (size_t m = 0; m < p->d->num_maps; m++)
		free(p->d->maps[m].runs);
	free(p->d->maps);
	p->d->maps = maps;
	p->d->num_maps = maps ? all->num_maps : 0;
	memcpy(p->d->var_maps, all->var_maps, p->header.num_vars * sizeof(*all->var_maps));
	return r;
}

int blob_plan_unite(
	struct session *s, struct blob_plan *p, const struct deal *deals, uint32_t num, const struct unite_plan *all)
{
	uint32_t self = s->opt->node;
	int r;

	p->first_subfile = all->first_subfile[self];
	p->num_subfiles = all->first_subfile[self + 1] - p->first_subfile;
	p->all_subfiles = all->num_subfiles;
	p->all_streams = all->num_streams;
	for (uint32_t n = 0; n < num; n++) {
		buf_bytes(&p->values, deals[n].values.data, deals[n].values.len);
		buf_bytes(&p->residue, deals[n].residue.data, deals[n].residue.len);
	}
	r = buf_ok(&p->values) && buf_ok(&p->residue) ? renumber_maps(p, all) : -ENOMEM;
	return r == 0 ? blob_plan_lay(p) : r;
}
