/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a file in blob layout is made of. Its header is read as the file shows it, its extents are walked once, in the order of
 * the file, and each element goes to the process that wrote it. All that the file shows must be in the log: then blobs, maps and
 * what stands beside them (header, padding that is not zero) are the whole file, and it can be made again to the byte.
 */
#include "mpi-agent/replay/blobs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTENTS_AT_ONCE 4096u
#define WRITERS_MOST    65536u

int blob_refuse(char why[BLOB_WHY], const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, BLOB_WHY, fmt, ap);
	va_end(ap);
	return -EOPNOTSUPP;
}

static int no_base(uint64_t off, size_t len, void *buf, void *arg)
{
	(void)off, (void)len, (void)buf, (void)arg;
	return -EOPNOTSUPP;
}

ssize_t blob_view_read(void *buf, size_t len, uint64_t off, void *arg)
{
	const struct blob_view *v = arg;
	int r;

	if (off >= v->in->size)
		return 0;
	if (len > v->in->size - off)
		len = (size_t)(v->in->size - off);
	r = store_read(v->s->opt->store, v->in, off, len, buf, true, no_base, NULL, NULL);
	return r < 0 ? r : (ssize_t)len;
}

/* The header, as read_bytes shows it. */
int blob_plan_take_header(struct blob_plan *p, uint64_t size, classic_read_fn read_bytes, void *arg, char why[BLOB_WHY])
{
	struct cistern_error err = { 0 };
	int r = classic_read(read_bytes, arg, &p->header, &err);

	if (r == -EBADMSG || r == -EFBIG)
		return blob_refuse(why, "it is no netCDF classic file: %s", err.text);
	if (r < 0)
		return r;
	if (p->header.streaming)
		p->header.num_records = classic_count_records(&p->header, size);
	if (blob_is_header(&p->header))
		return blob_refuse(why, "it is a subfile of a blob layout itself");
	if (p->header.num_vars == 0)
		return blob_refuse(why, "it has no variables");
	p->header_bytes = malloc((size_t)p->header.header_bytes);
	if (!p->header_bytes)
		return -ENOMEM;
	r = (int)read_bytes(p->header_bytes, (size_t)p->header.header_bytes, 0, arg);
	return r < 0 ? r : 0;
}

/* ---- extents */

static int add_extent(struct blob_plan *p, const struct extent *e, char why[BLOB_WHY])
{
	int r;

	if (e->kind == EXTENT_HOLE)
		return 0;
	if (e->kind != EXTENT_LOG)
		return blob_refuse(why, "a part of it has gone to the backing directory already");
	p->bytes += e->len;
	p->extents++;
	deal_sum_add(&p->own, e->off, e->len);
	p->has_header |= e->off < p->header.header_bytes;
	r = decomp_add(p->d, e->off, e->len, e->writer);
	return r == -E2BIG ? blob_refuse(why, "bytes in more than %d places belong to no variable", DECOMP_RANGES_MAX)
			   : r;
}

static void drop_kept(struct blob_plan *p)
{
	free(p->kept);
	p->kept = NULL;
	p->num_kept = p->cap_kept = 0;
}

/* Room for as many more as are asked for at once; false: they are not kept. */
static bool make_room(struct session *s, struct blob_plan *p)
{
	size_t cap = p->cap_kept ? 2 * p->cap_kept : 4 * EXTENTS_AT_ONCE;
	struct extent *grown;

	if (p->cap_kept - p->num_kept >= EXTENTS_AT_ONCE)
		return true;
	grown = cap * sizeof(*grown) <= 2 * s->opt->buffer_bytes ? reallocarray(p->kept, cap, sizeof(*grown)) : NULL;
	if (!grown) {
		drop_kept(p);
		return false;
	}
	p->kept = grown;
	p->cap_kept = cap;
	return true;
}

int blob_plan_extents(struct session *s, const struct inode *in, struct blob_plan *p, char why[BLOB_WHY])
{
	struct extent *own = malloc(EXTENTS_AT_ONCE * sizeof(*own));
	bool keeps = s->opt->part != WIRE_PART_DEAL;
	uint64_t off = 0, next;
	size_t num;
	int r = own ? 0 : -ENOMEM;

	while (r == 0 && off < in->size) {
		struct extent *e = own;

		keeps = keeps && make_room(s, p);
		if (keeps)
			e = p->kept + p->num_kept;
		r = state_extents(s->st, in->ino, off, in->size - off, e, EXTENTS_AT_ONCE, &num, &next);
		for (size_t i = 0; r == 0 && i < num; i++)
			r = add_extent(p, &e[i], why);
		if (r == 0 && keeps)
			p->num_kept += num;
		off = next;
		if (r == 0)
			r = session_tick(s, false);
	}
	free(own);
	return r;
}

/* ---- streams */

/* Writers by their processes' numbers, those that are not known first. */
struct named {
	uint32_t process, writer;
};

static int by_process(const void *a, const void *b)
{
	const struct named *x = a, *y = b;

	return x->process != y->process ? (x->process > y->process) - (x->process < y->process)
					: (x->writer > y->writer) - (x->writer < y->writer);
}

/* 1 for each writer that has runs of a variable that is cut up. */
static int mark_streams(const struct blob_plan *p, uint32_t *stream_of)
{
	bool *used = calloc(p->d->num_maps + 1, sizeof(*used));

	for (uint32_t v = 0; used && v < p->header.num_vars; v++)
		if (p->d->var_maps[v] != DECOMP_NO_MAP)
			used[p->d->var_maps[v]] = true;
	for (size_t m = 0; used && m < p->d->num_maps; m++)
		for (size_t i = 0; used[m] && i < p->d->maps[m].num_runs; i++)
			stream_of[p->d->maps[m].runs[i].writer] = 1;
	free(used);
	return used ? 0 : -ENOMEM;
}

/* Which writers the maps have; *stream_of: for each its stream. */
static int number_streams(struct session *s, const struct inode *in, struct blob_plan *p, uint32_t *stream_of)
{
	uint32_t *process = calloc(WRITERS_MOST, sizeof(*process));
	struct named *named = calloc(WRITERS_MOST, sizeof(*named));
	size_t known;
	int r = process && named ? state_writers(s->st, in->ino, process, WRITERS_MOST, &known) : -ENOMEM;

	if (r == 0)
		r = mark_streams(p, stream_of);
	for (uint32_t w = 0; r == 0 && w < WRITERS_MOST; w++)
		if (stream_of[w])
			named[p->num_streams++] = (struct named){ w > 0 && w <= known ? process[w - 1] : 0, w };
	if (r == 0)
		qsort(named, p->num_streams, sizeof(*named), by_process);
	for (uint32_t i = 0; r == 0 && i < p->num_streams; i++)
		stream_of[named[i].writer] = i;
	free(process);
	free(named);
	return r;
}

/* Where each run lies in its stream's blob, and how much that is. */
static int lay_blobs(struct blob_plan *p, size_t m)
{
	struct decomp_map *map = &p->d->maps[m];

	p->run_at[m] = calloc(map->num_runs + 1, sizeof(**p->run_at));
	p->shares[m] = calloc((size_t)p->num_streams + 1, sizeof(**p->shares));
	if (!p->run_at[m] || !p->shares[m])
		return -ENOMEM;
	for (size_t i = 0; i < map->num_runs; i++) {
		struct blob_share *share = &p->shares[m][map->runs[i].writer];

		p->run_at[m][i] = share->count;
		share->count += map->runs[i].len;
		share->num++;
	}
	return 0;
}

int blob_plan_lay(struct blob_plan *p)
{
	int r = 0;

	p->run_at = calloc(p->d->num_maps + 1, sizeof(*p->run_at));
	p->shares = calloc(p->d->num_maps + 1, sizeof(*p->shares));
	if (!p->run_at || !p->shares)
		r = -ENOMEM;
	for (size_t m = 0; r == 0 && m < p->d->num_maps; m++)
		r = lay_blobs(p, m);
	return r;
}

int blob_plan_streams(struct session *s, const struct inode *in, struct blob_plan *p)
{
	uint32_t *stream_of = calloc(WRITERS_MOST, sizeof(*stream_of));
	int r = stream_of ? number_streams(s, in, p, stream_of) : -ENOMEM;

	for (size_t m = 0; r == 0 && m < p->d->num_maps; m++)
		for (size_t i = 0; i < p->d->maps[m].num_runs; i++)
			p->d->maps[m].runs[i].writer = stream_of[p->d->maps[m].runs[i].writer];
	free(stream_of);
	return r;
}

/* ---- what belongs to no variable */

static bool is_zero(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

int blob_plan_residue(struct session *s, const struct inode *in, struct blob_plan *p, char why[BLOB_WHY])
{
	struct blob_view v = { s, in };
	int r = 0;

	for (size_t i = 0; r >= 0 && i < p->d->num_ranges; i++) {
		const struct decomp_range *range = &p->d->ranges[i];
		uint8_t *bytes = range->len < BLOB_RESIDUE_MAX ? malloc((size_t)range->len) : NULL;

		if (!bytes)
			return range->len < BLOB_RESIDUE_MAX
				       ? -ENOMEM
				       : blob_refuse(why, "%" PRIu64 " bytes at %" PRIu64 " belong to no variable",
						 range->len, range->off);
		r = (int)blob_view_read(bytes, (size_t)range->len, range->off, &v);
		if (r >= 0 && !is_zero(bytes, (size_t)range->len))
			blob_add_residue(&p->residue, &(struct blob_residue){ .off = range->off,
							      .stride = range->len,
							      .count = 1,
							      .len = range->len,
							      .bytes = bytes });
		free(bytes);
		if (p->residue.len > BLOB_RESIDUE_MAX)
			return blob_refuse(why, "more than %u bytes belong to no variable", BLOB_RESIDUE_MAX);
	}
	if (r < 0)
		return r;
	return buf_ok(&p->residue) ? 0 : -ENOMEM;
}

/* ---- all of it */

int blob_plan_check(const struct inode *in, char why[BLOB_WHY])
{
	if (in->flags & INODE_PRIVATE)
		return blob_refuse(
			why, "it was written past the log, before its layout was asked for: nobody knows by whom");
	if (!(in->flags & INODE_NEW) || in->flags & INODE_UNPUBLISHED)
		return blob_refuse(why, "a part of it is in the backing directory");
	return in->nlink == 1 ? 0 : blob_refuse(why, "it has several names");
}

/* The same whenever and by whomever this state of the file is carried, and for no other file. */
void blob_plan_set(struct blob_plan *p, const uint8_t *uuid, uint64_t ino, uint64_t version)
{
	memcpy(p->set, uuid, BLOB_SET_BYTES);
	for (unsigned int i = 0; i < 8; i++) {
		p->set[i] ^= (uint8_t)(ino >> (8 * i));
		p->set[8 + i] ^= (uint8_t)(version >> (8 * i));
	}
}

/* ---- a file of this node alone */

/* All processes wrote here. */
static int set_alone(struct session *s, const struct inode *in, struct blob_plan *p, char why[BLOB_WHY])
{
	uint32_t wanted = s->opt->convert->num_subfiles;

	if (p->num_streams < 2)
		return blob_refuse(why,
			"no variable has parts of several processes (which write through one mount or were not known)");
	p->num_subfiles = wanted < 1 ? 1 : wanted < p->num_streams ? wanted : p->num_streams;
	p->all_subfiles = p->num_subfiles;
	p->all_streams = p->num_streams;
	blob_plan_set(p, store_superblock(s->opt->store)->uuid, in->ino, in->data_version);
	return 0;
}

int blob_plan_make(struct session *s, const struct inode *in, struct blob_plan *ret, char why[BLOB_WHY])
{
	struct blob_view v = { s, in };
	int r = blob_plan_check(in, why);

	*ret = (struct blob_plan){ 0 };
	if (r == 0)
		r = blob_plan_take_header(ret, in->size, blob_view_read, &v, why);
	if (r == 0)
		r = decomp_create(&ret->header, &ret->d);
	if (r == 0)
		r = blob_plan_extents(s, in, ret, why);
	if (r == 0)
		r = decomp_finish(ret->d);
	if (r == 0)
		r = blob_plan_streams(s, in, ret);
	if (r == 0)
		r = set_alone(s, in, ret, why);
	if (r == 0)
		r = blob_plan_lay(ret);
	if (r == 0)
		r = blob_plan_residue(s, in, ret, why);
	if (r < 0)
		blob_plan_free(ret);
	return r;
}

void blob_plan_free(struct blob_plan *p)
{
	drop_kept(p);
	for (size_t m = 0; p->d && m < p->d->num_maps; m++) {
		if (p->run_at)
			free(p->run_at[m]);
		if (p->shares)
			free(p->shares[m]);
	}
	free(p->run_at);
	free(p->shares);
	decomp_destroy(p->d);
	classic_destroy(&p->header);
	free(p->header_bytes);
	buf_free(&p->residue);
	buf_free(&p->values);
	*p = (struct blob_plan){ 0 };
}
