/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The values of subfiles. The extents are walked in the order of the file: so the variables (and each one's records) come one after the
 * other, and what a subfile has of one is put together in memory, blob by blob, and written in one piece. Payloads are read
 * from the segments in large blocks that are kept: neighbours in the file are mostly near each other in the log, since all
 * processes work on the same variable at about the same time.
 */
#include "mpi-agent/replay/blob_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/crc32c.h"

#define EXTENTS_AT_ONCE 4096u

/* ---- payload */

static int open_segment(struct blob_writer *w, uint32_t segment)
{
	if (w->fd >= 0 && w->fd_segment == segment)
		return 0;
	if (w->fd >= 0)
		close(w->fd);
	w->fd = segment_open_fd(w->s->segments, segment, false);
	w->fd_segment = segment;
	return w->fd < 0 ? w->fd : 0;
}

static int load(struct blob_writer *w, struct blob_block *b, uint32_t segment, uint64_t at)
{
	int r = open_segment(w, segment);
	ssize_t got;

	if (r == 0 && !b->data && !(b->data = malloc(BLOB_BLOCK_BYTES)))
		r = -ENOMEM;
	if (r < 0)
		return r;
	b->segment = 0;
	b->len = 0;
	do {
		got = pread(w->fd, b->data + b->len, BLOB_BLOCK_BYTES - b->len, (off_t)(at + b->len));
		if (got > 0)
			b->len += (size_t)got;
	} while ((got > 0 && b->len < BLOB_BLOCK_BYTES) || (got < 0 && errno == EINTR));
	if (got < 0)
		return -errno;
	b->segment = segment;
	b->at = at;
	return 0;
}

/* The bytes of a segment from off on; *ret_len: so many of them, at most len. Good until the next call. */
static int payload(
	struct blob_writer *w, uint32_t segment, uint64_t off, size_t len, const uint8_t **ret, size_t *ret_len)
{
	uint64_t at = off / BLOB_BLOCK_BYTES * BLOB_BLOCK_BYTES;
	struct blob_block *b = &w->blocks[(segment * 37u + off / BLOB_BLOCK_BYTES) % w->num_blocks];
	int r = b->segment == segment && b->at == at ? 0 : load(w, b, segment, at);

	if (r < 0)
		return r;
	if (off - at >= b->len)
		return -ENODATA;
	*ret = b->data + (off - at);
	*ret_len = b->len - (size_t)(off - at) < len ? b->len - (size_t)(off - at) : len;
	return 0;
}

/* ---- one variable, or a record of one */

static const struct classic_var *var_of(const struct blob_writer *w)
{
	return &w->plan->header.vars[w->var];
}

static uint32_t map_of(const struct blob_writer *w)
{
	return w->plan->d->var_maps[w->var];
}

/* The variable at hand in a subfile's header. */
static const struct classic_var *sub_var(const struct blob_writer *w, const struct blob_subfile *sub)
{
	return &sub->header.vars[w->plan->d->num_maps * BLOB_MAP_VARS + w->var];
}

static int put_var_to(struct blob_writer *w, struct blob_subfile *sub, const struct classic_var *v)
{
	uint64_t record = v->is_record ? w->record : 0;

	if (sub->process)
		return blob_process_put_values(
			sub->process, w->var, record, sub->buf, blob_put_to_target, &(struct blob_target){ w, sub });
	return blob_sub_write(w, sub, sub->buf, (size_t)v->bytes, classic_offset(&sub->header, v, record, 0));
}

/* What was put together goes to its place. */
static int put_var(struct blob_writer *w)
{
	uint64_t bytes = 0;
	int r = 0;

	for (uint32_t i = 0; r == 0 && w->var != DECOMP_NO_MAP && i < w->num_subfiles; i++) {
		const struct classic_var *v = sub_var(w, &w->sub[i]);

		r = put_var_to(w, &w->sub[i], v);
		bytes += v->bytes;
	}
	w->var = DECOMP_NO_MAP;
	session_done(w->s, bytes);
	return r < 0 || bytes == 0 ? r : session_throttle(w->s, (size_t)bytes);
}

static void begin_var(struct blob_writer *w, const struct decomp_place *p)
{
	w->var = p->var;
	w->record = p->record;
	w->run = 0;
	for (uint32_t i = 0; i < w->num_subfiles; i++)
		memset(w->sub[i].buf, 0, (size_t)sub_var(w, &w->sub[i])->bytes);
}

/* len bytes, from byte on of the variable at hand, which is in no map: every subfile has it whole. */
static void put_whole(struct blob_writer *w, uint64_t byte, const uint8_t *bytes, size_t len)
{
	for (uint32_t i = 0; i < w->num_subfiles; i++)
		memcpy(w->sub[i].buf + byte, bytes, len);
}

static struct blob_subfile *subfile_of(struct blob_writer *w, uint32_t stream)
{
	uint32_t i = 0;

	while (stream >= w->sub[i].first + w->sub[i].num)
		i++;
	return &w->sub[i];
}

/* The same for one in a map: each run's part goes into its blob. */
static void put_runs(struct blob_writer *w, uint64_t byte, const uint8_t *bytes, size_t len)
{
	uint64_t size = classic_type_bytes(var_of(w)->type);
	uint32_t m = map_of(w);
	const struct decomp_map *map = &w->plan->d->maps[m];

	while (len > 0) {
		const struct decomp_run *run = &map->runs[w->run];
		uint64_t from, end;
		struct blob_subfile *sub;
		size_t part;

		while ((run->off + run->len) * size <= byte)
			run = &map->runs[++w->run];
		from = run->off * size;
		end = from + run->len * size;
		part = end - byte < len ? (size_t)(end - byte) : len;
		sub = subfile_of(w, run->writer);
		memcpy(sub->buf + (sub->starts[m][run->writer - sub->first] + w->plan->run_at[m][w->run]) * size +
				(byte - from),
			bytes, part);
		byte += part;
		bytes += part;
		len -= part;
	}
}

/* ---- extents */

/* Bytes of the file from off on. */
static int put_bytes(struct blob_writer *w, uint64_t off, const uint8_t *bytes, size_t len)
{
	int r = 0;

	while (r == 0 && len > 0) {
		struct decomp_place p = decomp_place(w->order, off, len);

		if (p.var != DECOMP_NO_MAP && w->plan->of_job && w->plan->d->var_maps[p.var] == DECOMP_NO_MAP)
			p.var = DECOMP_NO_MAP; /* blob_put_values() has put it */
		if (p.var != DECOMP_NO_MAP && (p.var != w->var || p.record != w->record)) {
			r = put_var(w);
			begin_var(w, &p);
		}
		if (r == 0 && p.var != DECOMP_NO_MAP)
			(map_of(w) == DECOMP_NO_MAP ? put_whole : put_runs)(w, p.byte, bytes, (size_t)p.len);
		off += p.len;
		bytes += p.len;
		len -= (size_t)p.len;
	}
	return r;
}

static int say_damage(struct blob_writer *w, const struct extent *e)
{
	snprintf(w->why, BLOB_WHY,
		"damaged payload at segment %" PRIu32 " offset %" PRIu64 ", file offset %" PRIu64
		": run cistern fsck on the store",
		e->segment, e->segment_off, e->off);
	return -EBADMSG;
}

static int put_extent(struct blob_writer *w, const struct extent *e)
{
	uint32_t crc = 0;
	size_t done = 0;

	if (e->kind == EXTENT_HOLE)
		return 0;
	while (done < e->len) {
		const uint8_t *bytes;
		size_t len;
		int r = payload(w, e->segment, e->segment_off + done, e->len - done, &bytes, &len);

		if (r == -ENODATA || r == -ENOENT)
			return say_damage(w, e);
		if (r == 0 && e->whole)
			crc = crc32c(crc, bytes, len);
		if (r == 0)
			r = put_bytes(w, e->off + done, bytes, len);
		if (r < 0)
			return r;
		done += len;
	}
	return e->whole && crc != e->crc ? say_damage(w, e) : 0;
}

static int put_kept(struct blob_writer *w)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < w->plan->num_kept; i++)
		r = put_extent(w, &w->plan->kept[i]);
	return r == 0 ? put_var(w) : r;
}

static int put_extents(struct blob_writer *w)
{
	struct extent *e = malloc(EXTENTS_AT_ONCE * sizeof(*e));
	uint64_t off = 0, next;
	size_t num;
	int r = e ? 0 : -ENOMEM;

	while (r == 0 && off < w->in->size) {
		r = state_extents(w->s->st, w->in->ino, off, w->in->size - off, e, EXTENTS_AT_ONCE, &num, &next);
		for (size_t i = 0; r == 0 && i < num; i++)
			r = put_extent(w, &e[i]);
		off = next;
	}
	free(e);
	return r == 0 ? put_var(w) : r;
}

/* What all nodes have of variables that are not cut up. */
static int put_deal_values(struct blob_writer *w)
{
	struct cursor c = cursor_make(w->plan->values.data, w->plan->values.len);
	struct deal_value v;
	int r = 0;

	while (r == 0 && deal_next_value(&c, &v)) {
		const struct classic_var *var = &w->plan->header.vars[v.var];
		struct decomp_place p = { .var = v.var, .record = v.record };

		if (v.len != var->bytes || v.record >= (var->is_record ? w->plan->header.num_records : 1) ||
			w->plan->d->var_maps[v.var] != DECOMP_NO_MAP)
			return -EBADMSG;
		begin_var(w, &p);
		put_whole(w, 0, v.bytes, v.len);
		r = put_var(w);
	}
	return r;
}

int blob_put_values(struct blob_writer *w)
{
	int r = put_deal_values(w);

	if (r < 0)
		return r;
	return w->plan->kept ? put_kept(w) : put_extents(w);
}
