/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Subfiles. The extents are walked in the order of the file: so the variables (and each one's records) come one after the
 * other, and what a subfile has of one is put together in memory, blob by blob, and written in one piece. Payloads are read
 * from the segments in large blocks that are kept: neighbours in the file are mostly near each other in the log, since all
 * processes work on the same variable at about the same time.
 *
 * Nothing of the store is given up here. Subfiles are made whole under temporary names and are on the device before the first of them
 * gets its name; who is killed in between is followed by somebody who does all of it again.
 */
#include "mpi-agent/replay/blobs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/crc32c.h"

#define EXTENTS_AT_ONCE 4096u
#define BLOCK_BYTES     (1u << 20)
#define BLOCKS_MOST     128u
#define BLOCKS_LEAST    4u
#define WRITE_OUT_FROM  (8u << 20)

struct piece_written {
	uint64_t off;
	size_t len;
	uint32_t crc;
};

struct subfile {
	uint32_t first, num; /* its streams */
	struct classic header;
	struct blob_process *process; /* owned; NULL: variable-centric */
	struct sink_file *f;          /* owned */
	char *temp, *final;           /* owned: paths in the destination */
	uint64_t **starts; /* owned: for each map, of each of its streams: where its blob begins, in elements */
	uint8_t *buf;      /* owned: what it has of the variable at hand */
	struct piece_written *pieces; /* owned: what was written, where all is read back */
	size_t num_pieces, cap_pieces;
	uint64_t written, begun; /* bytes; those of which the device was told */
};

struct block {
	uint8_t *data; /* owned; NULL: not used yet */
	uint64_t at;
	uint32_t segment; /* 0: nothing */
	size_t len;
};

struct writer {
	struct session *s;
	const struct inode *in;
	struct blob_plan *plan;
	enum drain_layout layout;
	struct subfile *sub; /* owned */
	uint32_t num_subfiles;
	size_t buf_bytes; /* of each sub's buf */
	struct decomp_order *order;
	struct block *blocks; /* owned */
	uint32_t num_blocks;
	int fd; /* of the segment last asked for, -1 */
	uint32_t fd_segment;
	/* the variable at hand */
	uint32_t var; /* DECOMP_NO_MAP: none */
	uint64_t record;
	size_t run; /* of its map: none before it is still of use */
	char *why;
};

/* ---- payload */

static int open_segment(struct writer *w, uint32_t segment)
{
	if (w->fd >= 0 && w->fd_segment == segment)
		return 0;
	if (w->fd >= 0)
		close(w->fd);
	w->fd = segment_open_fd(w->s->segments, segment, false);
	w->fd_segment = segment;
	return w->fd < 0 ? w->fd : 0;
}

static int load(struct writer *w, struct block *b, uint32_t segment, uint64_t at)
{
	int r = open_segment(w, segment);
	ssize_t got;

	if (r == 0 && !b->data && !(b->data = malloc(BLOCK_BYTES)))
		r = -ENOMEM;
	if (r < 0)
		return r;
	b->segment = 0;
	b->len = 0;
	do {
		got = pread(w->fd, b->data + b->len, BLOCK_BYTES - b->len, (off_t)(at + b->len));
		if (got > 0)
			b->len += (size_t)got;
	} while ((got > 0 && b->len < BLOCK_BYTES) || (got < 0 && errno == EINTR));
	if (got < 0)
		return -errno;
	b->segment = segment;
	b->at = at;
	return 0;
}

/* The bytes of a segment from off on; *ret_len: so many of them, at most len. Good until the next call. */
static int payload(struct writer *w, uint32_t segment, uint64_t off, size_t len, const uint8_t **ret, size_t *ret_len)
{
	uint64_t at = off / BLOCK_BYTES * BLOCK_BYTES;
	struct block *b = &w->blocks[(segment * 37u + off / BLOCK_BYTES) % w->num_blocks];
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

static const struct classic_var *var_of(const struct writer *w)
{
	return &w->plan->header.vars[w->var];
}

static uint32_t map_of(const struct writer *w)
{
	return w->plan->d->var_maps[w->var];
}

/* The variable at hand in a subfile's header. */
static const struct classic_var *sub_var(const struct writer *w, const struct subfile *sub)
{
	return &sub->header.vars[w->plan->d->num_maps * BLOB_MAP_VARS + w->var];
}

static int note_piece(struct writer *w, struct subfile *sub, const void *buf, size_t len, uint64_t off)
{
	if (w->s->opt->verify < DRAIN_VERIFY_READ)
		return 0;
	if (sub->num_pieces == sub->cap_pieces) {
		size_t cap = sub->cap_pieces ? 2 * sub->cap_pieces : 256;
		struct piece_written *pieces = reallocarray(sub->pieces, cap, sizeof(*pieces));

		if (!pieces)
			return -ENOMEM;
		sub->pieces = pieces;
		sub->cap_pieces = cap;
	}
	sub->pieces[sub->num_pieces++] = (struct piece_written){ off, len, crc32c(0, buf, len) };
	return 0;
}

static int sub_write(struct writer *w, struct subfile *sub, const void *buf, size_t len, uint64_t off)
{
	int r = sub->f->ops->pwrite(sub->f, buf, len, off);

	if (r == 0)
		r = note_piece(w, sub, buf, len, off);
	sub->written += len;
	if (r == 0 && sub->written - sub->begun >= WRITE_OUT_FROM) {
		sub->f->ops->write_out(sub->f, 0, 0);
		sub->begun = sub->written;
	}
	return r;
}

struct target {
	struct writer *w;
	struct subfile *sub;
};

static int put_to_target(const void *bytes, size_t len, uint64_t off, void *arg)
{
	struct target *t = arg;

	return sub_write(t->w, t->sub, bytes, len, off);
}

static int put_var_to(struct writer *w, struct subfile *sub, const struct classic_var *v)
{
	uint64_t record = v->is_record ? w->record : 0;

	if (sub->process)
		return blob_process_put_values(
			sub->process, w->var, record, sub->buf, put_to_target, &(struct target){ w, sub });
	return sub_write(w, sub, sub->buf, (size_t)v->bytes, classic_offset(&sub->header, v, record, 0));
}

/* What was put together goes to its place. */
static int put_var(struct writer *w)
{
	uint64_t bytes = 0;
	int r = 0;

	for (uint32_t i = 0; r == 0 && w->var != DECOMP_NO_MAP && i < w->num_subfiles; i++) {
		const struct classic_var *v = sub_var(w, &w->sub[i]);

		r = put_var_to(w, &w->sub[i], v);
		bytes += v->bytes;
	}
	w->var = DECOMP_NO_MAP;
	w->s->progress.done_bytes += bytes;
	return r < 0 || bytes == 0 ? r : session_throttle(w->s, (size_t)bytes);
}

static void begin_var(struct writer *w, const struct decomp_place *p)
{
	w->var = p->var;
	w->record = p->record;
	w->run = 0;
	for (uint32_t i = 0; i < w->num_subfiles; i++)
		memset(w->sub[i].buf, 0, (size_t)sub_var(w, &w->sub[i])->bytes);
}

/* len bytes, from byte on of the variable at hand, which is in no map: every subfile has it whole. */
static void put_whole(struct writer *w, uint64_t byte, const uint8_t *bytes, size_t len)
{
	for (uint32_t i = 0; i < w->num_subfiles; i++)
		memcpy(w->sub[i].buf + byte, bytes, len);
}

static struct subfile *subfile_of(struct writer *w, uint32_t stream)
{
	uint32_t i = 0;

	while (stream >= w->sub[i].first + w->sub[i].num)
		i++;
	return &w->sub[i];
}

/* The same for one in a map: each run's part goes into its blob. */
static void put_runs(struct writer *w, uint64_t byte, const uint8_t *bytes, size_t len)
{
	uint64_t size = classic_type_bytes(var_of(w)->type);
	uint32_t m = map_of(w);
	const struct decomp_map *map = &w->plan->d->maps[m];

	while (len > 0) {
		const struct decomp_run *run = &map->runs[w->run];
		uint64_t from, end;
		struct subfile *sub;
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
static int put_bytes(struct writer *w, uint64_t off, const uint8_t *bytes, size_t len)
{
	int r = 0;

	while (r == 0 && len > 0) {
		struct decomp_place p = decomp_place(w->order, off, len);

		if (p.var != DECOMP_NO_MAP && w->plan->of_job && w->plan->d->var_maps[p.var] == DECOMP_NO_MAP)
			p.var = DECOMP_NO_MAP; /* put_values() has put it */
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

static int say_damage(struct writer *w, const struct extent *e)
{
	snprintf(w->why, BLOB_WHY,
		"damaged payload at segment %" PRIu32 " offset %" PRIu64 ", file offset %" PRIu64
		": run cistern fsck on the store",
		e->segment, e->segment_off, e->off);
	return -EBADMSG;
}

static int put_extent(struct writer *w, const struct extent *e)
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

static int put_kept(struct writer *w)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < w->plan->num_kept; i++)
		r = put_extent(w, &w->plan->kept[i]);
	return r == 0 ? put_var(w) : r;
}

static int put_extents(struct writer *w)
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
static int put_values(struct writer *w)
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
static int put_shares(struct writer *w, struct subfile *sub, uint32_t m)
{
	uint8_t *data = malloc((size_t)sub->num * CLASSIC_TYPE_BYTES);
	int r = data ? 0 : -ENOMEM;

	for (uint32_t which = BLOB_NREQS; r == 0 && which <= BLOB_COUNT; which++) {
		const struct classic_var *v = &sub->header.vars[m * BLOB_MAP_VARS + which];
		unsigned int size = classic_type_bytes(v->type);

		for (uint32_t i = 0; i < sub->num; i++)
			put_be(data + (size_t)i * size,
				share_field(&w->plan->shares[m][sub->first + i], sub->starts[m][i], which), size);
		r = sub_write(w, sub, data, (size_t)sub->num * size, v->begin);
	}
	free(data);
	return r;
}

/* Offsets or lengths: a row for each blob, whose end is not used where others have more. */
static int put_requests(struct writer *w, struct subfile *sub, uint32_t m, enum blob_map_var which)
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
			r = sub_write(w, sub, data, num * size, v->begin + (uint64_t)i * row * size);
	}
	free(data);
	return r;
}

static int put_maps(struct writer *w, struct subfile *sub)
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
static int lay_map(struct writer *w, struct subfile *sub, uint32_t m, struct blob_make_map *ret)
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

static int make_header(struct writer *w, struct subfile *sub)
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

static int make_process(struct writer *w, struct subfile *sub)
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

static uint64_t subfile_bytes(const struct subfile *sub)
{
	return sub->process ? blob_process_bytes(sub->process) : classic_file_bytes(&sub->header);
}

static int put_header(struct writer *w, struct subfile *sub)
{
	struct buf BUF_CLEANUP bytes = { 0 };
	int r = classic_encode(&sub->header, &bytes);

	return r == 0 ? sub_write(w, sub, bytes.data, bytes.len, 0) : r;
}

/* All but values. */
static int put_head(struct writer *w, struct subfile *sub)
{
	int r;

	if (sub->process) {
		r = blob_process_put_head(sub->process, put_to_target, &(struct target){ w, sub });
	} else {
		r = put_header(w, sub);
		if (r == 0)
			r = put_maps(w, sub);
	}
	/* What nobody wrote reads as zeros, up to the end. */
	return r == 0 ? sub->f->ops->truncate(sub->f, subfile_bytes(sub)) : r;
}

/* ---- subfiles */

/* Our own from an earlier attempt, or those of a file that this one replaces; nothing else. */
int blob_may_replace(struct session *s, const char *path)
{
	struct classic CLASSIC_CLEANUP header = { 0 };
	struct sink_file *f;
	struct stat st;
	int r = s->to->ops->stat(s->to, path, &st);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = S_ISREG(st.st_mode) ? s->to->ops->open(s->to, path, SINK_READ, &f) : -EEXIST;
	if (r < 0)
		return r;
	r = classic_read(blob_sink_read, f, &header, NULL);
	if (r == 0 && !blob_is_header(&header))
		r = -EEXIST;
	if (r == -EBADMSG)
		r = blob_process_recognise(blob_sink_read, f, (uint64_t)st.st_size);
	sink_file_close(f);
	return r == -EBADMSG || r == -EFBIG ? -EEXIST : r;
}

int blob_subfile_path(const char *base, uint32_t number, char *out, size_t cap)
{
	int n = snprintf(out, cap, "%s.%04" PRIu32, base, number);

	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

static int name_temp(struct writer *w, struct subfile *sub, const char *base)
{
	char path[SESSION_PATH_MAX];
	int r = blob_subfile_path(base, w->plan->first_subfile + (uint32_t)(sub - w->sub), path, sizeof(path));

	if (r < 0)
		return r;
	sub->temp = strdup(path);
	return sub->temp ? 0 : -ENOMEM;
}

static int name_final(struct writer *w, struct subfile *sub, const struct file_place *place)
{
	char name[RECORD_NAME_MAX + 1], path[SESSION_PATH_MAX];
	int r = blob_subfile_path(place->name, w->plan->first_subfile + (uint32_t)(sub - w->sub), name, sizeof(name));

	if (r == 0)
		r = session_join(path, sizeof(path), place->dir_path, name);
	if (r == -ENAMETOOLONG) {
		snprintf(w->why, BLOB_WHY, "its name is too long for subfiles");
		return -EOPNOTSUPP;
	}
	if (r < 0)
		return r;
	sub->final = strdup(path);
	if (!sub->final)
		return -ENOMEM;
	r = blob_may_replace(w->s, path);
	if (r == -EEXIST)
		snprintf(w->why, BLOB_WHY,
			"%s is there already and is no subfile: move it away, then run cistern flush", sub->final);
	return r;
}

static int open_subfile(struct writer *w, struct subfile *sub)
{
	struct session *s = w->s;
	int r = s->to->ops->open(s->to, sub->temp, SINK_CREATE, &sub->f);

	if (r == -EEXIST && s->to->ops->remove(s->to, sub->temp, false) == 0)
		r = s->to->ops->open(s->to, sub->temp, SINK_CREATE, &sub->f);
	return r;
}

static int make_buffers(struct writer *w)
{
	uint64_t most = 0, sum = 0;

	for (uint32_t i = 0; i < w->num_subfiles; i++) {
		most = 0;
		for (uint32_t v = w->plan->d->num_maps * BLOB_MAP_VARS; v < w->sub[i].header.num_vars; v++)
			if (w->sub[i].header.vars[v].bytes > most)
				most = w->sub[i].header.vars[v].bytes;
		sum += most;
		w->sub[i].buf = sum <= w->s->opt->buffer_bytes ? malloc((size_t)most + 1) : NULL;
		if (!w->sub[i].buf && sum <= w->s->opt->buffer_bytes)
			return -ENOMEM;
	}
	if (sum > w->s->opt->buffer_bytes) {
		snprintf(w->why, BLOB_WHY,
			"a record of its largest variable needs %" PRIu64 " bytes of memory: raise flush_buffer_size",
			sum);
		return -EOPNOTSUPP;
	}
	w->num_blocks = (uint32_t)(w->s->opt->buffer_bytes / BLOCK_BYTES);
	w->num_blocks = w->num_blocks < BLOCKS_LEAST  ? BLOCKS_LEAST
			: w->num_blocks > BLOCKS_MOST ? BLOCKS_MOST
						      : w->num_blocks;
	w->blocks = calloc(w->num_blocks, sizeof(*w->blocks));
	return w->blocks ? 0 : -ENOMEM;
}

/* Streams are dealt out to subfiles in groups of neighbours. place: NULL: they only get temporary names, from base on. */
static int make_subfiles(struct writer *w, const char *base, const struct file_place *place)
{
	uint32_t streams = w->plan->num_streams;
	int r = 0;

	w->sub = calloc((size_t)w->num_subfiles + 1, sizeof(*w->sub));
	if (!w->sub)
		return -ENOMEM;
	for (uint32_t i = 0; i < w->num_subfiles; i++) {
		w->sub[i].first = (uint32_t)((uint64_t)streams * i / w->num_subfiles);
		w->sub[i].num = (uint32_t)((uint64_t)streams * (i + 1) / w->num_subfiles) - w->sub[i].first;
	}
	for (uint32_t i = 0; r == 0 && i < w->num_subfiles; i++) {
		r = name_temp(w, &w->sub[i], base);
		if (r == 0 && place)
			r = name_final(w, &w->sub[i], place);
		if (r == 0)
			r = make_header(w, &w->sub[i]);
		if (r == 0 && w->layout == DRAIN_LAYOUT_BLOB_PROCESS)
			r = make_process(w, &w->sub[i]);
	}
	return r == 0 ? make_buffers(w) : r;
}

static int fill_subfiles(struct writer *w)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < w->num_subfiles; i++) {
		r = open_subfile(w, &w->sub[i]);
		if (r == 0)
			r = put_head(w, &w->sub[i]);
	}
	if (r == 0)
		r = put_values(w);
	if (r == 0)
		r = w->plan->kept ? put_kept(w) : put_extents(w);
	return r;
}

/* Does the device hold what was written? All that was not written is a hole. */
static int read_back(struct writer *w, struct subfile *sub)
{
	uint8_t *buf = malloc(BLOCK_BYTES);
	int r = buf ? 0 : -ENOMEM;

	if (w->s->opt->verify >= DRAIN_VERIFY_READ)
		sub->f->ops->drop_cache(sub->f);
	for (size_t i = 0; r == 0 && i < sub->num_pieces; i++) {
		const struct piece_written *p = &sub->pieces[i];
		uint32_t crc = 0;

		for (size_t done = 0, n; r == 0 && done < p->len; done += n) {
			ssize_t got;

			n = p->len - done < BLOCK_BYTES ? p->len - done : BLOCK_BYTES;
			got = sub->f->ops->pread(sub->f, buf, n, p->off + done);
			r = got < 0 ? (int)got : (size_t)got < n ? -EIO : session_make_way(w->s);
			crc = crc32c(crc, buf, n);
		}
		if (r == 0 && crc != p->crc)
			r = -EIO;
		if (r == -EIO)
			snprintf(w->why, BLOB_WHY,
				"verification failed at %" PRIu64
				" of subfile %zu: check the backing directory's file system, "
				"then run cistern flush",
				p->off, (size_t)(sub - w->sub));
	}
	free(buf);
	return r;
}

static int finish_subfile(struct writer *w, struct subfile *sub)
{
	struct attrs_warning warning = { "" };
	struct sink_attr attr;
	struct stat st;
	int r = 0;

	attrs_of_inode(w->in, &attr);
	if (sub->final) /* else its home does so */
		r = attrs_apply(w->s, w->in, &attr, sub->f, &warning);
	if (r == 0)
		r = sub->f->ops->sync(sub->f, false);
	if (r == 0)
		r = sub->f->ops->fstat(sub->f, &st);
	if (r == 0 && (uint64_t)st.st_size != subfile_bytes(sub))
		r = -EIO;
	return r == 0 ? read_back(w, sub) : r;
}

static int finish_subfiles(struct writer *w)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < w->num_subfiles; i++)
		r = finish_subfile(w, &w->sub[i]);
	return r == 0 ? session_tick(w->s, true) : r;
}

static int publish_subfiles(struct writer *w)
{
	struct session *s = w->s;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < w->num_subfiles; i++) {
		r = s->to->ops->rename(s->to, w->sub[i].temp, w->sub[i].final, false);
		if (r == 0) {
			free(w->sub[i].temp);
			w->sub[i].temp = NULL;
		}
	}
	return r == 0 ? s->to->ops->sync_names(s->to) : r;
}

/* They stay. */
static void keep_temps(struct writer *w)
{
	for (uint32_t i = 0; i < w->num_subfiles; i++) {
		free(w->sub[i].temp);
		w->sub[i].temp = NULL;
	}
}

static void writer_free(struct writer *w)
{
	for (uint32_t i = 0; w->sub && i < w->num_subfiles; i++) {
		struct subfile *sub = &w->sub[i];

		if (sub->f && sub->temp)
			w->s->to->ops->remove(w->s->to, sub->temp, false);
		sink_file_close(sub->f);
		blob_process_destroy(sub->process);
		for (size_t m = 0; sub->starts && m < w->plan->d->num_maps; m++)
			free(sub->starts[m]);
		free(sub->starts);
		free(sub->pieces);
		classic_destroy(&sub->header);
		free(sub->temp);
		free(sub->final);
		free(sub->buf);
	}
	free(w->sub);
	for (uint32_t i = 0; w->blocks && i < w->num_blocks; i++)
		free(w->blocks[i].data);
	free(w->blocks);
	decomp_order_destroy(w->order);
	if (w->fd >= 0)
		close(w->fd);
}

/* The subfiles of the plan, whole but for their names. */
static int make_all(struct writer *w, const char *base, const struct file_place *place)
{
	int r = decomp_order_create(&w->plan->header, &w->order);

	w->num_subfiles = w->plan->num_subfiles;
	if (r == 0)
		r = make_subfiles(w, base, place);
	if (r == 0 && place)
		r = names_sweep(w->s, place->dir, place->dir_path);
	if (r == 0)
		r = fill_subfiles(w);
	return r == 0 ? finish_subfiles(w) : r;
}

static struct blob_done what_was_done(const struct writer *w)
{
	return (struct blob_done){ .subfiles = w->num_subfiles,
		.blobs = w->plan->num_streams,
		.maps = (uint32_t)w->plan->d->num_maps,
		.written = w->plan->bytes,
		.extents = w->plan->extents };
}

int blob_write_part(struct session *s, const struct inode *in, struct blob_plan *plan, const char *base,
	enum drain_layout layout, struct blob_done *ret, char why[BLOB_WHY])
{
	struct writer w = {
		.s = s, .in = in, .plan = plan, .layout = layout, .fd = -1, .var = DECOMP_NO_MAP, .why = why
	};
	int r = plan->num_subfiles > 0 ? make_all(&w, base, NULL) : 0;

	*ret = what_was_done(&w);
	if (r == 0)
		keep_temps(&w);
	writer_free(&w);
	return r;
}

static int temp_base(struct session *s, const struct inode *in, const struct file_place *place, char *out, size_t cap)
{
	char name[RECORD_NAME_MAX + 1];

	snprintf(name, sizeof(name), "%s%" PRIu64, s->temp_prefix, in->ino);
	return session_join(out, cap, place->dir_path, name);
}

int blob_write(struct session *s, const struct inode *in, const struct file_place *place, enum drain_layout layout,
	struct blob_done *ret, char why[BLOB_WHY])
{
	struct blob_plan plan = { 0 };
	struct writer w = {
		.s = s, .in = in, .plan = &plan, .layout = layout, .fd = -1, .var = DECOMP_NO_MAP, .why = why
	};
	char base[SESSION_PATH_MAX];
	int r;

	why[0] = '\0';
	r = blob_plan_make(s, in, &plan, why);
	if (r < 0)
		return r;
	r = temp_base(s, in, place, base, sizeof(base));
	if (r == 0)
		r = make_all(&w, base, place);
	if (r == 0)
		r = publish_subfiles(&w);
	*ret = what_was_done(&w);
	writer_free(&w);
	blob_plan_free(&plan);
	return r;
}
