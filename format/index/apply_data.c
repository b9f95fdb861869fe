/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Records that change the bytes of a file. Two rules hold for a regular file that is not private, and each function
 * keeps them: every extent ends at or below size, and backing_limit is not above size.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <sys/stat.h>

static bool bad_range(uint64_t off, uint64_t len)
{
	return len == 0 || len > INT64_MAX || off > INT64_MAX - len;
}

/* A regular file with extents. */
static int find_log_file(struct state *st, const struct record *rec, struct node_item **ret)
{
	int r = find_file(st, rec, ret);

	return r == 0 && (*ret)->n.flags & INODE_PRIVATE ? -EINVAL : r;
}

/* What other nodes write must not be mixed with what bypasses the log. */
static int find_lone_file(struct state *st, const struct record *rec, struct node_item **ret)
{
	int r = find_log_file(st, rec, ret);

	return r == 0 && (*ret)->n.flags & INODE_SHARED ? -EINVAL : r;
}

static uint64_t time_of(const struct record *rec)
{
	return rec->flags & RECORD_F_TIMED && rec->time_ns > 0 ? (uint64_t)rec->time_ns / 1000 : 0;
}

static int data_changed(struct state *st, struct node_item *ni, const struct record *rec)
{
	ni->n.mtime_ns = ni->n.ctime_ns = rec->time_ns;
	ni->n.data_version = rec->seq;
	node_changed(st, ni, rec->seq);
	return node_set_flags(st, ni, ni->n.flags | INODE_DIRTY_DATA);
}

static void grow(struct node_item *ni, uint64_t end)
{
	if (end > ni->n.size)
		ni->n.size = end;
}

/* ---- TRUNCATE */

int check_truncate(struct state *st, const struct record *rec)
{
	struct node_item *ni;

	return rec->size > INT64_MAX ? -EFBIG : find_file(st, rec, &ni);
}

int apply_truncate(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r;

	r = find_node(st, rec->ino, &ni);
	if (r == 0)
		r = pages_clear(st, ni, rec->size, UINT64_MAX, rec->seq, &st->meta.saved_bytes);
	if (r < 0)
		return r;
	if (ni->n.backing_limit > rec->size)
		ni->n.backing_limit = rec->size;
	ni->n.size = rec->size;
	r = rec->size == 0 ? writers_drop(st, ni) : 0;
	return r < 0 ? r : data_changed(st, ni, rec);
}

/* ---- WRITE, EXTENTS */

int check_write(struct state *st, const struct record *rec)
{
	struct node_item *ni;

	if (rec->len > UINT32_MAX || bad_range(rec->off, rec->len))
		return -EFBIG;
	if (rec->segment == 0 || rec->segment_off > UINT64_MAX - rec->len)
		return -EINVAL;
	return find_log_file(st, rec, &ni);
}

int apply_write(struct state *st, const struct record *rec)
{
	struct extent e = { .off = rec->off,
		.segment = rec->segment,
		.segment_off = rec->segment_off,
		.seq = rec->seq,
		.time_usec = time_of(rec),
		.crc = rec->payload_crc,
		.whole = true };
	struct node_item *ni;
	int r;

	r = find_node(st, rec->ino, &ni);
	if (r == 0)
		r = node_writer(st, ni, rec->writer, &e.writer);
	if (r == 0)
		r = pages_put(st, ni, &e, rec->len, &st->meta.saved_bytes);
	if (r < 0)
		return r;
	st->meta.written_bytes += rec->len;
	grow(ni, rec->off + rec->len);
	return data_changed(st, ni, rec);
}

static int check_ranges(const struct record *rec)
{
	if (rec->segment == 0 || rec->num_ranges > RECORD_EXTENTS_MAX || (rec->num_ranges && !rec->ranges))
		return -EINVAL;
	for (size_t i = 0; i < rec->num_ranges; i++)
		if (bad_range(rec->ranges[i].off, rec->ranges[i].len))
			return -EFBIG;
	return 0;
}

int check_extents(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r = check_ranges(rec);

	if (r < 0)
		return r;
	if (rec->num_ranges == 0 || rec->segment_off > INT64_MAX)
		return -EINVAL;
	return find_log_file(st, rec, &ni);
}

int apply_extents(struct state *st, const struct record *rec)
{
	struct extent e = { .segment = rec->segment,
		.segment_off = rec->segment_off,
		.seq = rec->seq,
		.time_usec = time_of(rec),
		.whole = true };
	struct node_item *ni;
	int r = find_node(st, rec->ino, &ni);

	if (r == 0)
		r = node_writer(st, ni, rec->writer, &e.writer);
	for (size_t i = 0; r == 0 && i < rec->num_ranges; i++) {
		e.off = rec->ranges[i].off;
		e.crc = rec->ranges[i].crc;
		r = pages_put(st, ni, &e, rec->ranges[i].len, &st->meta.saved_bytes);
		if (r < 0)
			return r;
		e.segment_off += rec->ranges[i].len;
		st->meta.written_bytes += rec->ranges[i].len;
		grow(ni, e.off + rec->ranges[i].len);
	}
	return r < 0 ? r : data_changed(st, ni, rec);
}

/* ---- PUNCH */

int check_punch(struct state *st, const struct record *rec)
{
	struct node_item *ni;

	return bad_range(rec->off, rec->len) ? -EFBIG : find_file(st, rec, &ni);
}

/* A layer's hole hides what other nodes have there, too. It grows a foreign one: whose size this node does not know. */
static int put_layer_hole(struct state *st, struct node_item *ni, const struct record *rec)
{
	struct extent hole = { .off = rec->off, .kind = EXTENT_HOLE, .seq = rec->seq, .time_usec = time_of(rec) };
	uint64_t end = rec->off + rec->len;

	if (ni->n.flags & INODE_FOREIGN || !(rec->flags & RECORD_F_KEEP_SIZE))
		grow(ni, end);
	if (end > ni->n.size)
		end = ni->n.size;
	return rec->off < end ? pages_put(st, ni, &hole, end - rec->off, &st->meta.saved_bytes) : 0;
}

/* What lies below backing_limit needs a hole to hide it; a range that reaches the limit lowers the limit instead. */
static int hide_backing(struct state *st, struct node_item *ni, const struct record *rec)
{
	struct extent hole = { .off = rec->off, .kind = EXTENT_HOLE, .seq = rec->seq };

	if (ni->n.flags & INODE_SHARED)
		return put_layer_hole(st, ni, rec);
	if (rec->off >= ni->n.backing_limit)
		return 0;
	if (rec->off + rec->len < ni->n.backing_limit)
		return pages_put(st, ni, &hole, rec->len, &st->meta.saved_bytes);
	ni->n.backing_limit = rec->off;
	return 0;
}

int apply_punch(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r;

	r = find_node(st, rec->ino, &ni);
	if (r == 0)
		r = pages_clear(st, ni, rec->off, rec->off + rec->len, rec->seq, &st->meta.saved_bytes);
	if (r == 0)
		r = hide_backing(st, ni, rec);
	if (r < 0)
		return r;
	if (!(rec->flags & RECORD_F_KEEP_SIZE))
		grow(ni, rec->off + rec->len);
	return data_changed(st, ni, rec);
}

/* ---- PRIVATE, SEAL */

int check_private(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r = rec->segment ? find_lone_file(st, rec, &ni) : -EINVAL;

	return r == 0 && ni->n.size ? -EINVAL : r;
}

int apply_private(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r;

	r = find_node(st, rec->ino, &ni);
	if (r == 0)
		r = segment_use_private(st, rec->segment);
	if (r < 0)
		return r;
	ni->n.private_segment = rec->segment;
	ni->n.backing_limit = 0;
	ni->n.data_version = rec->seq;
	node_changed(st, ni, rec->seq);
	return node_set_flags(st, ni, ni->n.flags | INODE_PRIVATE | INODE_DIRTY_DATA);
}

int check_seal(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r;

	r = check_ranges(rec);
	if (r == 0)
		r = find_file(st, rec, &ni);
	if (r < 0)
		return r;
	if (rec->size > INT64_MAX || ni->n.flags & INODE_SHARED ||
		(ni->n.flags & INODE_PRIVATE && ni->n.private_segment != rec->segment))
		return -EINVAL;
	for (size_t i = 0; i < rec->num_ranges; i++)
		if (rec->ranges[i].off + rec->ranges[i].len > rec->size)
			return -EINVAL;
	return 0;
}

/* The private segment's own part ends when its ranges have become extents, so that it is never without users between. */
static int end_private(struct state *st, struct node_item *ni, const struct record *rec)
{
	int r = segment_release_private(st, rec->segment, rec->num_ranges == 0, rec->seq);

	if (r < 0)
		return r;
	ni->n.private_segment = 0;
	return node_set_flags(st, ni, ni->n.flags & ~(uint32_t)INODE_PRIVATE);
}

int apply_seal(struct state *st, const struct record *rec)
{
	struct extent e = { .segment = rec->segment, .seq = rec->seq };
	struct node_item *ni;
	int r = find_node(st, rec->ino, &ni);

	if (r == 0 && rec->size < ni->n.size)
		r = pages_clear(st, ni, rec->size, UINT64_MAX, rec->seq, &st->meta.saved_bytes);
	if (r < 0)
		return r;
	ni->n.size = rec->size;
	for (size_t i = 0; r == 0 && i < rec->num_ranges; i++) {
		e.off = e.segment_off = rec->ranges[i].off;
		r = pages_put(st, ni, &e, rec->ranges[i].len, &st->meta.saved_bytes);
		st->meta.written_bytes += rec->ranges[i].len;
	}
	if (r == 0 && ni->n.flags & INODE_PRIVATE)
		r = end_private(st, ni, rec);
	if (r < 0)
		return r;
	if (ni->n.backing_limit > rec->size)
		ni->n.backing_limit = rec->size;
	ni->n.mtime_ns = rec->mtime_ns;
	ni->n.data_version = rec->seq;
	node_changed(st, ni, rec->seq);
	return node_set_flags(st, ni, ni->n.flags | INODE_DIRTY_DATA);
}

/* ---- THROUGH */

int check_through(struct state *st, const struct record *rec)
{
	struct node_item *ni;

	return bad_range(rec->off, rec->len) ? -EFBIG : find_lone_file(st, rec, &ni);
}

int apply_through(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r;

	r = find_node(st, rec->ino, &ni);
	if (r == 0)
		r = pages_put_backing(st, ni, rec->off, rec->len, rec->seq, &st->meta.saved_bytes);
	if (r < 0)
		return r;
	st->meta.through_bytes += rec->len;
	grow(ni, rec->off + rec->len);
	return data_changed(st, ni, rec);
}
