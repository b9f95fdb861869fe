/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Bytes in, bytes out. A write is a payload in a segment and then a record that names it; the gate is held (shared)
 * over both, so that nobody takes the segment for dead in between. The payload may lie in shared memory still when the record
 * is committed (segment_append_crc): to everybody here it is in its segment. A read finds extents and reads their payload under
 * the gate too; what belongs to the backing file is read after it, because the global file system may be slow and
 * must not hold up those who give space back.
 */
#include "format/store/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"

#define WRITE_MAX_BYTES (1u << 20)
#define EXTENTS_AT_ONCE 64
#define CHECK_CHUNK     (64u << 10)

static void raise_u32(_Atomic uint32_t *v, uint32_t to)
{
	uint32_t old = atomic_load(v);

	while (old < to && !atomic_compare_exchange_weak(v, &old, to))
		;
}

/* Of these the store gets emptier, or does not get fuller. */
static bool makes_room(enum record_type type)
{
	switch (type) {
	case RECORD_UNLINK:
	case RECORD_FREE:
	case RECORD_FORGET:
	case RECORD_TRUNCATE:
	case RECORD_PUNCH:
	case RECORD_THROUGH:
	case RECORD_PLACED:
	case RECORD_REMOVED:
	case RECORD_DRAINED: return true;
	default: return false;
	}
}

static int commit(struct store *s, struct record *rec)
{
	return rec->type == RECORD_DRAINED ? freed_commit_drained(s, rec) : state_commit(s->state, rec);
}

int store_commit(struct store *s, struct record *rec)
{
	int r = 0;

	if (rec->type == RECORD_SEAL)
		r = sync_note_sealed(&s->sync, rec->segment);
	/* Before the record is applied: from then on the segment may be found dead, and the highest must stay. */
	if (!r && rec->segment)
		raise_u32(&s->max_segment, rec->segment);
	if (!r)
		r = commit(s, rec);
	if (r == -ENOSPC && makes_room(rec->type) && ballast_release(s))
		r = commit(s, rec);
	return r;
}

void store_read_begin(struct store *s)
{
	pthread_rwlock_rdlock(&s->gate);
}

void store_read_end(struct store *s)
{
	pthread_rwlock_unlock(&s->gate);
}

int store_write_as(
	struct store *s, uint32_t writer, uint64_t ino, uint32_t gen, uint64_t off, const void *buf, size_t len)
{
	struct record rec = { .type = RECORD_WRITE, .ino = ino, .gen = gen, .writer = writer, .off = off, .len = len };
	int r;

	if (len == 0 || len > WRITE_MAX_BYTES || off + len < off)
		return -EINVAL;
	rec.payload_crc = crc32c(0, buf, len);
	r = space_take(s, len);
	if (r)
		return r;
	store_read_begin(s);
	r = segment_append_crc(s->segments, buf, len, rec.payload_crc, &rec.segment, &rec.segment_off);
	space_settle(s, len);
	if (!r)
		r = store_commit(s, &rec);
	store_read_end(s);
	if (r == -ENOSPC && rec.segment)
		freed_push(
			rec.segment, rec.segment_off, len, 0, s); /* the journal is full: nothing names these bytes */
	return r;
}

int store_write(struct store *s, uint64_t ino, uint32_t gen, uint64_t off, const void *buf, size_t len)
{
	return store_write_as(s, 0, ino, gen, off, buf, len);
}

/* One store_read. Ranges of the backing file are collected while they continue each other. */
struct reading {
	struct store *s;
	const struct inode *in;
	uint64_t start; /* what buf's first byte is, offset in the file */
	uint8_t *buf;
	bool check;
	int (*base)(uint64_t off, size_t len, void *buf, void *arg);
	void *arg;
	struct cistern_error *err;
	uint64_t base_from, base_to;
};

static int read_payload(struct reading *rd, const struct extent *e)
{
	uint8_t *to = rd->buf + (e->off - rd->start);
	int r = segment_read(rd->s->segments, e->segment, e->segment_off, to, e->len);

	if (r)
		return cistern_error_set(rd->err, r == -ENOENT || r == -ENODATA ? -EIO : r,
			"%s: inode %llu, offset %llu: payload in segment %u at %llu cannot be read: %s: run cistern fsck",
			rd->s->path, (unsigned long long)rd->in->ino, (unsigned long long)e->off, e->segment,
			(unsigned long long)e->segment_off, strerror(-r));
	if (rd->check && e->whole && crc32c(0, to, e->len) != e->crc)
		return cistern_error_set(rd->err, -EBADMSG,
			"%s: inode %llu, offset %llu: payload in segment %u at %llu (%u bytes) is damaged: run cistern fsck",
			rd->s->path, (unsigned long long)rd->in->ino, (unsigned long long)e->off, e->segment,
			(unsigned long long)e->segment_off, e->len);
	return 0;
}

/* Find the extents of the first part of [off, end), and fill in what the store has of it. */
static int read_logged(
	struct reading *rd, uint64_t off, uint64_t end, struct extent *ext, size_t *ret_num, uint64_t *ret_next)
{
	size_t i, num = 0;
	int r;

	store_read_begin(rd->s);
	r = state_extents(rd->s->state, rd->in->ino, off, end - off, ext, EXTENTS_AT_ONCE, &num, ret_next);
	if (r)
		cistern_error_set(rd->err, r, "%s: inode %llu: extents cannot be read: %s", rd->s->path,
			(unsigned long long)rd->in->ino, strerror(-r));
	for (i = 0; !r && i < num; i++)
		if (ext[i].kind == EXTENT_LOG)
			r = read_payload(rd, &ext[i]);
		else if (ext[i].kind == EXTENT_HOLE)
			memset(rd->buf + (ext[i].off - rd->start), 0, ext[i].len);
	store_read_end(rd->s);
	*ret_num = num;
	return r;
}

static int flush_base(struct reading *rd)
{
	uint64_t from = rd->base_from, len = rd->base_to - from;

	rd->base_from = rd->base_to = 0;
	if (len == 0)
		return 0;
	if (!rd->base)
		return cistern_error_set(rd->err, -EOPNOTSUPP,
			"inode %llu, offset %llu: the bytes are in the backing directory",
			(unsigned long long)rd->in->ino, (unsigned long long)from);
	return rd->base(from, len, rd->buf + (from - rd->start), rd->arg);
}

static int want_base(struct reading *rd, uint64_t from, uint64_t to)
{
	int r = 0;

	if (from >= to)
		return 0;
	if (rd->base_to != from || rd->base_from == rd->base_to) {
		r = flush_base(rd);
		rd->base_from = from;
	}
	rd->base_to = to;
	return r;
}

/* No extent: the backing file up to its limit, zeros behind. */
static int read_gap(struct reading *rd, uint64_t from, uint64_t to)
{
	uint64_t limit = rd->in->backing_limit;
	uint64_t border = limit <= from ? from : limit < to ? limit : to;

	if (border < to)
		memset(rd->buf + (border - rd->start), 0, to - border);
	return want_base(rd, from, border);
}

/* What the extents of [off, next) leave to the backing file. */
static int read_rest(struct reading *rd, uint64_t off, uint64_t next, const struct extent *ext, size_t num)
{
	size_t i;
	int r = 0;

	for (i = 0; !r && i < num; i++) {
		r = read_gap(rd, off, ext[i].off);
		if (!r && ext[i].kind == EXTENT_BACKING)
			r = want_base(rd, ext[i].off, ext[i].off + ext[i].len);
		off = ext[i].off + ext[i].len;
	}
	return r ? r : read_gap(rd, off, next);
}

int store_read(struct store *s, const struct inode *in, uint64_t off, size_t len, void *buf, bool check,
	int (*base)(uint64_t off, size_t len, void *buf, void *arg), void *arg, struct cistern_error *err)
{
	struct reading rd = {
		.s = s, .in = in, .start = off, .buf = buf, .check = check, .base = base, .arg = arg, .err = err
	};
	struct extent ext[EXTENTS_AT_ONCE];
	uint64_t end = off + len, next = off;
	size_t num;
	int r = 0;

	if (end < off)
		return cistern_error_set(err, -EINVAL, "range past the end of all offsets");
	for (; !r && off < end; off = next) {
		r = read_logged(&rd, off, end, ext, &num, &next);
		if (!r && (next <= off || next > end))
			r = cistern_error_set(err, -EIO,
				"%s: inode %llu: the index makes no sense at offset %llu: run cistern fsck", s->path,
				(unsigned long long)in->ino, (unsigned long long)off);
		if (!r)
			r = read_rest(&rd, off, next, ext, num);
	}
	return r ? r : flush_base(&rd);
}

/* ---- is it there? */

static int check_range(struct segment_set *segments, uint32_t segment, uint64_t off, uint64_t len, uint32_t crc)
{
	uint8_t *buf = malloc(CHECK_CHUNK);
	uint32_t found = 0;
	uint64_t n;
	int r = buf ? 0 : -ENOMEM;

	for (; !r && len; off += n, len -= n) {
		n = len < CHECK_CHUNK ? len : CHECK_CHUNK;
		r = segment_read(segments, segment, off, buf, n);
		if (!r)
			found = crc32c(found, buf, n);
	}
	free(buf);
	if (r == -ENOENT || r == -ENODATA || r == -EIO)
		return -EBADMSG;
	return r ? r : found == crc ? 0 : -EBADMSG;
}

int store_check_payload(struct segment_set *segments, const struct record *rec)
{
	uint64_t off = rec->segment_off;
	int r = 0;

	if (rec->type == RECORD_WRITE)
		return check_range(segments, rec->segment, off, rec->len, rec->payload_crc);
	for (size_t i = 0; !r && i < rec->num_ranges; off += rec->ranges[i].len, i++)
		r = check_range(segments, rec->segment, off, rec->ranges[i].len, rec->ranges[i].crc);
	return r;
}
