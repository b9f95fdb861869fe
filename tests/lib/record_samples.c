/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Sample records, and how tests compare and print records. What a type stores is listed here once more, on purpose: a
 * test must not ask the code under test.
 */
#include "tests/lib/record_samples.h"

#include <string.h>

#include "format/base/json.h"

#define COMMON .time_ns = 1700000000123456789, .ino = 0x8123456789abcdef, .gen = 7, .node = 3
#define TIMES  .atime_ns = -1, .mtime_ns = 1600000000000000001, .ctime_ns = 1650000000999999999

static const struct record_range ranges[] = {
	{ .off = 4096, .len = 100, .crc = 0xdeadbeef },
	{ .off = 4196, .len = 1, .crc = 1 },
	{ .off = 0, .len = UINT32_MAX, .crc = 0 },
	{ .off = INT64_MAX - 10, .len = 10, .crc = 0xffffffff },
};
static const struct record_range sealed[] = { { .off = 0, .len = 1 << 30 }, { .off = 5u << 30, .len = 4096 } };

static const struct record_piece pieces[] = {
	{ .off = 4096, .len = 100, .segment = 9, .segment_off = 1ull << 33, .crc = 0xdeadbeef, .whole = true },
	{ .off = 4196, .len = 1, .kind = 1 },
	{ .off = 8192, .len = 7, .segment = 3, .segment_off = 5 },
	{ .off = 0, .len = UINT32_MAX, .segment = UINT32_MAX, .segment_off = 12, .whole = true },
	{ .off = INT64_MAX - 10, .len = 10, .kind = 1 },
};

static const struct record_piece timed_pieces[] = {
	{ .off = 4096,
		.len = 100,
		.segment = 9,
		.segment_off = 1ull << 33,
		.crc = 0xdeadbeef,
		.whole = true,
		.time_usec = 1700000000123456 },
	{ .off = 4196, .len = 1, .kind = 1, .time_usec = 1700000000123400 },
	{ .off = 8192, .len = 7, .segment = 3, .segment_off = 5 },
	{ .off = 8199, .len = 7, .segment = 3, .segment_off = 12, .time_usec = UINT64_MAX },
};

/* Trailers: each of its fields alone, and several together. */
static const struct record_copy copies[] = {
	{ .segment = 7, .off = 4096, .len = 1 << 20 },
	{ .segment = 7, .off = (1 << 20) + 4096, .len = 1 },
	{ .segment = UINT32_MAX, .off = 0, .len = INT64_MAX },
	{ .segment = 1, .off = INT64_MAX - 1, .len = 1 },
};
static const struct record_trailer asked = { .has = RECORD_HAS(RECORD_TAG_REQUEST),
	.unique = 0x123456789abcdef0,
	.answer_ino = 0x8123456789abcdef },
				   failed = { .has = RECORD_HAS(RECORD_TAG_REQUEST),
					   .unique = UINT64_MAX,
					   .answer_error = 4095 },
				   wide = { .has = RECORD_HAS(RECORD_TAG_TIMES),
					   .wide_mask = RECORD_ATTR_ATIME | RECORD_ATTR_CTIME,
					   .wide = { { -INT64_C(11676096000), 999999999 }, { 0 }, { INT64_MAX, 1 } } },
				   wide_mtime = { .has = RECORD_HAS(RECORD_TAG_REQUEST) | RECORD_HAS(RECORD_TAG_TIMES),
					   .unique = 1,
					   .wide_mask = RECORD_ATTR_MTIME,
					   .wide = { { 0 }, { INT64_C(13569465600), 5 } } },
				   fifo = { .has = RECORD_HAS(RECORD_TAG_DEVICE) },
				   device = { .has = RECORD_HAS(RECORD_TAG_REQUEST) | RECORD_HAS(RECORD_TAG_DEVICE),
					   .unique = 2,
					   .dev_major = 259,
					   .dev_minor = UINT32_MAX },
				   held = { .has = RECORD_HAS(RECORD_TAG_COPIES),
					   .copies_node = 5,
					   .copies = copies,
					   .num_copies = 4 };

static const struct record samples[] = {
	{ .type = RECORD_MOUNT,
		.time_ns = 1,
		.key = (const uint8_t *)"0123456789\0abcde",
		.key_len = 16,
		.value = (const uint8_t *)"cistern 0.1",
		.value_len = 11 },
	{ .type = RECORD_ADOPT,
		COMMON,
		.parent = 0,
		.name = ".",
		.mode = 040755,
		.uid = 1,
		.gid = 2,
		.nlink = 9,
		.size = 4096,
		TIMES,
		.backing_dev = 0xfd01,
		.backing_ino = 1ull << 40 },
	{ .type = RECORD_ADOPT,
		COMMON,
		.parent = 1,
		.name = "link",
		.mode = 0120777,
		.uid = UINT32_MAX,
		.gid = 100,
		.nlink = 1,
		.size = 9,
		TIMES,
		.backing_dev = 0xfd01,
		.backing_ino = 12,
		.target = "../a/b/ c",
		.target_len = 9 },
	{ .type = RECORD_CREATE,
		COMMON,
		.parent = 1,
		.name = "out\xff\n.nc",
		.mode = 0100644,
		.uid = 1000,
		.gid = 100,
		.segment = 5 },
	{ .type = RECORD_CREATE, COMMON, .parent = 1, .name = "s", .mode = 0120777, .target = "t", .target_len = 1 },
	{ .type = RECORD_CREATE, COMMON, .parent = 1, .name = "", .mode = 0100600 },
	{ .type = RECORD_LINK, COMMON, .parent = 1, .name = "second name" },
	{ .type = RECORD_RENAME,
		COMMON,
		.from_parent = 1,
		.from_name = "a",
		.parent = 4,
		.name = "b",
		.other_ino = 17 },
	{ .type = RECORD_RENAME,
		.flags = RECORD_F_EXCHANGE,
		COMMON,
		.from_parent = 4,
		.from_name = "b",
		.parent = 1,
		.name = "c",
		.other_ino = 18 },
	{ .type = RECORD_WRITE,
		COMMON,
		.off = 1000,
		.len = 10,
		.segment = 2,
		.segment_off = 500,
		.payload_crc = 0x12345678 },
	{ .type = RECORD_WRITE,
		COMMON,
		.off = 1010,
		.len = 10,
		.segment = 2,
		.segment_off = 510,
		.payload_crc = 0x9abcdef0 },
	{ .type = RECORD_WRITE, COMMON, .off = 0, .len = 300, .segment = 2, .segment_off = 520, .payload_crc = 3 },
	{ .type = RECORD_WRITE,
		COMMON,
		.off = 1ull << 50,
		.len = UINT32_MAX,
		.segment = 2,
		.segment_off = 820,
		.payload_crc = 4 },
	{ .type = RECORD_WRITE,
		.ino = 9,
		.off = 1,
		.len = 1,
		.segment = 2,
		.segment_off = 820ull + UINT32_MAX,
		.payload_crc = 5 },
	{ .type = RECORD_EXTENTS, COMMON, .segment = 3, .segment_off = 1ull << 33, .ranges = ranges, .num_ranges = 4 },
	{ .type = RECORD_PUNCH, .flags = RECORD_F_KEEP_SIZE, COMMON, .off = 4096, .len = INT64_MAX - 4096 },
	{ .type = RECORD_TRUNCATE, COMMON, .size = INT64_MAX },
	{ .type = RECORD_THROUGH, COMMON, .off = 77, .len = 1ull << 40 },
	{ .type = RECORD_PRIVATE, COMMON, .segment = 6 },
	{ .type = RECORD_SEAL,
		COMMON,
		.segment = 6,
		.size = 6ull << 30,
		.mtime_ns = 42,
		.ranges = sealed,
		.num_ranges = 2 },
	{ .type = RECORD_SEAL, COMMON, .segment = 6, .size = 1 },
	{ .type = RECORD_SETATTR, COMMON, .mask = 63, .mode = 0100600, .uid = 5, .gid = 6, TIMES },
	{ .type = RECORD_SETXATTR,
		COMMON,
		.key = (const uint8_t *)"user.a",
		.key_len = 6,
		.value = (const uint8_t *)"\0\1\xfe",
		.value_len = 3 },
	{ .type = RECORD_SETXATTR, COMMON, .key = (const uint8_t *)"user.empty", .key_len = 10 },
	{ .type = RECORD_REMOVEXATTR, COMMON, .key = (const uint8_t *)"user.a", .key_len = 6 },
	{ .type = RECORD_UNLINK, COMMON, .parent = 1, .name = "second name" },
	{ .type = RECORD_FREE, COMMON },
	{ .type = RECORD_FORGET, COMMON, .parent = 1, .name = "gone" },
	{ .type = RECORD_SYNC, .time_ns = 2, .upto = 25 },
	{ .type = RECORD_PLACED,
		.flags = RECORD_F_UNPUBLISHED,
		COMMON,
		.parent = 1,
		.name = ".cistern-tmp-1",
		.backing_dev = 1,
		.backing_ino = 2 },
	{ .type = RECORD_PLACED,
		.flags = RECORD_F_MOVED,
		COMMON,
		.parent = 1,
		.name = "x",
		.from_parent = 1,
		.from_name = "y" },
	{ .type = RECORD_REMOVED, COMMON, .parent = 1, .name = "z" },
	{ .type = RECORD_DRAINED,
		.flags = RECORD_F_KEEP_PRIVATE | RECORD_F_META_ONLY,
		COMMON,
		.upto = 30,
		.size = 1234,
		.mtime_ns = 5,
		.backing_dev = 1,
		.backing_ino = 99 },
	{ .type = RECORD_STATE,
		.key = (const uint8_t *)"key",
		.key_len = 3,
		.value = (const uint8_t *)"value",
		.value_len = 5,
		.len = 5 },
	{ .type = RECORD_STATE_END, .upto = 1ull << 60, .count = 1 },
	{ .type = RECORD_UNMOUNT, .time_ns = 3 },
	{ .type = RECORD_CREATE,
		.flags = RECORD_F_STAMPED | RECORD_F_TREE,
		COMMON,
		.parent = 1,
		.name = "dir",
		.mode = 040755,
		.stamp = 1ull << 40 },
	{ .type = RECORD_LINK, .flags = RECORD_F_STAMPED, COMMON, .parent = 1, .name = "l", .stamp = UINT64_MAX },
	{ .type = RECORD_FREE, .flags = RECORD_F_STAMPED | RECORD_F_TREE, COMMON, .stamp = 77 },
	{ .type = RECORD_SHARE, COMMON },
	{ .type = RECORD_FOREIGN,
		COMMON,
		.parent = 1,
		.name = "shared",
		.mode = 0100640,
		.uid = 1000,
		.gid = 100,
		.size = 1ull << 40 },
	{ .type = RECORD_COMMITTED, COMMON, .upto = 30, .stamp = 5 },
	{ .type = RECORD_SHARE_PUT, COMMON, .stamp = 6, .base = 4, .pieces = pieces, .num_pieces = 5 },
	{ .type = RECORD_SHARE_CUT, COMMON, .size = 4096, .stamp = 7 },
	{ .type = RECORD_SHARE_DROP, COMMON, .stamp = UINT64_MAX },
	{ .type = RECORD_WRITE,
		COMMON,
		.writer = 4711,
		.off = 9,
		.len = 3,
		.segment = 2,
		.segment_off = 5,
		.payload_crc = 6 },
	{ .type = RECORD_WRITE,
		COMMON,
		.writer = UINT32_MAX,
		.off = 1ull << 50,
		.len = UINT32_MAX,
		.segment = 2,
		.segment_off = 8,
		.payload_crc = 7 },
	{ .type = RECORD_EXTENTS,
		COMMON,
		.writer = 1,
		.segment = 3,
		.segment_off = 1ull << 34,
		.ranges = ranges,
		.num_ranges = 4 },
	{ .type = RECORD_WRITE,
		.flags = RECORD_F_TIMED,
		COMMON,
		.off = 9,
		.len = 3,
		.segment = 2,
		.segment_off = 5,
		.payload_crc = 6 },
	{ .type = RECORD_WRITE,
		.flags = RECORD_F_TIMED,
		COMMON,
		.writer = 4711,
		.off = 12,
		.len = 3,
		.segment = 2,
		.segment_off = 8,
		.payload_crc = 7 },
	{ .type = RECORD_EXTENTS,
		.flags = RECORD_F_TIMED,
		COMMON,
		.segment = 3,
		.segment_off = 1ull << 34,
		.ranges = ranges,
		.num_ranges = 4 },
	{ .type = RECORD_PUNCH, .flags = RECORD_F_TIMED | RECORD_F_KEEP_SIZE, COMMON, .off = 4096, .len = 8192 },
	{ .type = RECORD_SHARE_PUT,
		.flags = RECORD_F_TIMED,
		COMMON,
		.stamp = 6,
		.base = 4,
		.pieces = timed_pieces,
		.num_pieces = 4 },
	{ .type = RECORD_SHARE_DROP, .flags = RECORD_F_TIMED, COMMON, .stamp = 7, .drop_usec = 1700000000123456 },
	{ .type = RECORD_SHARE_LOST, COMMON },
	{ .type = RECORD_DRAINED,
		.flags = RECORD_F_STAMPED | RECORD_F_TIMED,
		COMMON,
		.upto = 31,
		.size = 77,
		.stamp = 8,
		.drop_usec = 1700000000123457 },
	{ .type = RECORD_UNLINK, COMMON, .parent = 1, .name = "asked", .trailer = &asked },
	{ .type = RECORD_WRITE,
		COMMON,
		.writer = 4711,
		.off = 9,
		.len = 3,
		.segment = 2,
		.segment_off = 5,
		.payload_crc = 6,
		.trailer = &failed },
	{ .type = RECORD_WRITE, COMMON, .writer = 4711, .off = 12, .len = 3, .segment = 2, .segment_off = 8 },
	{ .type = RECORD_SETATTR,
		COMMON,
		.mask = 56,
		.atime_ns = INT64_MIN,
		.mtime_ns = 3,
		.ctime_ns = INT64_MAX,
		.trailer = &wide },
	{ .type = RECORD_SEAL, COMMON, .segment = 6, .size = 1, .mtime_ns = INT64_MAX, .trailer = &wide_mtime },
	{ .type = RECORD_CREATE, COMMON, .parent = 1, .name = "fifo", .mode = 0010644, .trailer = &fifo },
	{ .type = RECORD_CREATE,
		.flags = RECORD_F_STAMPED | RECORD_F_TREE,
		COMMON,
		.parent = 1,
		.name = "disk",
		.mode = 0060600,
		.stamp = 9,
		.trailer = &device },
	{ .type = RECORD_SYNC, .time_ns = 2, .upto = 25, .trailer = &held },
};

size_t record_samples(const struct record **ret)
{
	*ret = samples;
	return sizeof(samples) / sizeof(samples[0]);
}

static bool bytes_equal(const void *a, size_t a_len, const void *b, size_t b_len)
{
	return a_len == b_len && (a_len == 0 || memcmp(a, b, a_len) == 0);
}

static bool ranges_equal(const struct record *a, const struct record *b)
{
	if (a->num_ranges != b->num_ranges)
		return false;
	for (size_t i = 0; i < a->num_ranges; i++)
		if (a->ranges[i].off != b->ranges[i].off || a->ranges[i].len != b->ranges[i].len ||
			a->ranges[i].crc != b->ranges[i].crc)
			return false;
	return true;
}

static bool pieces_equal(const struct record *a, const struct record *b)
{
	if (a->num_pieces != b->num_pieces)
		return false;
	for (size_t i = 0; i < a->num_pieces; i++) {
		const struct record_piece *p = &a->pieces[i], *q = &b->pieces[i];

		if (p->off != q->off || p->len != q->len || p->kind != q->kind || p->whole != q->whole ||
			p->segment != q->segment || p->segment_off != q->segment_off || p->crc != q->crc ||
			p->time_usec != q->time_usec)
			return false;
	}
	return true;
}

static bool copies_equal(const struct record_trailer *a, const struct record_trailer *b)
{
	if (a->num_copies != b->num_copies || a->copies_node != b->copies_node)
		return false;
	for (size_t i = 0; i < a->num_copies; i++)
		if (a->copies[i].segment != b->copies[i].segment || a->copies[i].off != b->copies[i].off ||
			a->copies[i].len != b->copies[i].len)
			return false;
	return true;
}

static bool wide_equal(const struct record_trailer *a, const struct record_trailer *b)
{
	for (int i = 0; i < 3; i++)
		if (a->wide[i].tv_sec != b->wide[i].tv_sec || a->wide[i].tv_nsec != b->wide[i].tv_nsec)
			return false;
	return a->wide_mask == b->wide_mask;
}

/* One that says nothing is as none. */
static bool trailers_equal(const struct record *x, const struct record *y)
{
	static const struct record_trailer none = { 0 };
	const struct record_trailer *a = x->trailer ? x->trailer : &none, *b = y->trailer ? y->trailer : &none;

	return a->has == b->has && a->unique == b->unique && a->answer_error == b->answer_error &&
	       a->answer_ino == b->answer_ino && a->dev_major == b->dev_major && a->dev_minor == b->dev_minor &&
	       wide_equal(a, b) && copies_equal(a, b);
}

/* What a type does not store is 0 in the samples, and must be after decoding: so all fields are compared. */
bool record_equal(const struct record *a, const struct record *b)
{
#define SAME(field) (a->field == b->field)
	return SAME(type) && SAME(flags) && SAME(seq) && SAME(time_ns) && SAME(ino) && SAME(gen) && SAME(node) &&
	       SAME(writer) && SAME(parent) && SAME(from_parent) && SAME(other_ino) && SAME(mask) && SAME(mode) &&
	       SAME(uid) && SAME(gid) && SAME(nlink) && SAME(size) && SAME(atime_ns) && SAME(mtime_ns) &&
	       SAME(ctime_ns) && SAME(backing_dev) && SAME(backing_ino) && SAME(off) && SAME(len) && SAME(segment) &&
	       SAME(segment_off) && SAME(payload_crc) && SAME(upto) && SAME(count) && SAME(stamp) && SAME(base) &&
	       SAME(drop_usec) && strcmp(a->name, b->name) == 0 && strcmp(a->from_name, b->from_name) == 0 &&
	       bytes_equal(a->target, a->target_len, b->target, b->target_len) &&
	       bytes_equal(a->key, a->key_len, b->key, b->key_len) &&
	       bytes_equal(a->value, a->value_len, b->value, b->value_len) && ranges_equal(a, b) &&
	       pieces_equal(a, b) && trailers_equal(a, b);
#undef SAME
}

/* ---- as JSON */

struct printed { /* a type's fields by the names of docs/format/store.md */
	enum record_type type;
	const char *fields;
};

static const struct printed printed[] = {
	{ RECORD_MOUNT, "key value" },
	{ RECORD_SYNC, "upto" },
	{ RECORD_CREATE, "parent name mode uid gid segment target" },
	{ RECORD_ADOPT,
		"parent name mode uid gid nlink size atime_ns mtime_ns ctime_ns backing_dev backing_ino target" },
	{ RECORD_LINK, "parent name" },
	{ RECORD_UNLINK, "parent name" },
	{ RECORD_RENAME, "from_parent from_name parent name other_ino" },
	{ RECORD_FORGET, "parent name" },
	{ RECORD_SETATTR, "mask mode uid gid atime_ns mtime_ns ctime_ns" },
	{ RECORD_SETXATTR, "key value" },
	{ RECORD_REMOVEXATTR, "key" },
	{ RECORD_TRUNCATE, "size" },
	{ RECORD_WRITE, "writer off len segment segment_off payload_crc" },
	{ RECORD_EXTENTS, "writer segment segment_off ranges" },
	{ RECORD_PUNCH, "off len" },
	{ RECORD_PRIVATE, "segment" },
	{ RECORD_SEAL, "segment size mtime_ns ranges" },
	{ RECORD_THROUGH, "off len" },
	{ RECORD_PLACED, "parent name from_parent from_name backing_dev backing_ino" },
	{ RECORD_REMOVED, "parent name" },
	{ RECORD_DRAINED, "upto size mtime_ns backing_dev backing_ino" },
	{ RECORD_STATE, "off len key value" },
	{ RECORD_STATE_END, "upto count" },
	{ RECORD_FOREIGN, "parent name mode uid gid size" },
	{ RECORD_COMMITTED, "upto stamp" },
	{ RECORD_SHARE_PUT, "stamp base pieces" },
	{ RECORD_SHARE_CUT, "size stamp" },
	{ RECORD_SHARE_DROP, "stamp drop_usec" },
	{ RECORD_SHARE_LOST, "" },
};

static bool print_number(struct json *j, const struct record *rec, const char *name)
{
#define NUMBER(field)                           \
	if (strcmp(name, #field) == 0) {        \
		json_ku64(j, name, rec->field); \
		return true;                    \
	}
#define TIME(field)                      \
	if (strcmp(name, #field) == 0) { \
		json_key(j, name);       \
		json_i64(j, rec->field); \
		return true;             \
	}
	NUMBER(writer);
	NUMBER(parent);
	NUMBER(from_parent);
	NUMBER(other_ino);
	NUMBER(mask);
	NUMBER(mode);
	NUMBER(uid);
	NUMBER(gid);
	NUMBER(nlink);
	NUMBER(size);
	NUMBER(backing_dev);
	NUMBER(backing_ino);
	NUMBER(off);
	NUMBER(len);
	NUMBER(segment);
	NUMBER(segment_off);
	NUMBER(payload_crc);
	NUMBER(upto);
	NUMBER(count);
	NUMBER(stamp);
	NUMBER(base);
	NUMBER(drop_usec);
	TIME(atime_ns);
	TIME(mtime_ns);
	TIME(ctime_ns);
#undef NUMBER
#undef TIME
	return false;
}

static void print_hex(struct json *j, const uint8_t *p, size_t len)
{
	char text[2 * 4096 + 1] = "";

	for (size_t i = 0; i < len && i < 4096; i++)
		snprintf(text + 2 * i, 3, "%02x", p[i]);
	json_str(j, text);
}

static void print_ranges(struct json *j, const struct record *rec)
{
	json_array(j);
	for (size_t i = 0; i < rec->num_ranges; i++) {
		json_array(j);
		json_u64(j, rec->ranges[i].off);
		json_u64(j, rec->ranges[i].len);
		json_u64(j, rec->ranges[i].crc);
		json_end_array(j);
	}
	json_end_array(j);
}

static void print_pieces(struct json *j, const struct record *rec)
{
	json_array(j);
	for (const struct record_piece *p = rec->pieces; p < rec->pieces + rec->num_pieces; p++) {
		json_array(j);
		json_u64(j, p->off);
		json_u64(j, p->len);
		json_u64(j, p->kind);
		json_u64(j, p->segment);
		json_u64(j, p->segment_off);
		json_u64(j, p->whole);
		json_u64(j, p->crc);
		json_u64(j, p->time_usec);
		json_end_array(j);
	}
	json_end_array(j);
}

static void print_field(struct json *j, const struct record *rec, const char *name)
{
	if (print_number(j, rec, name))
		return;
	json_key(j, name);
	if (strcmp(name, "name") == 0)
		print_hex(j, (const uint8_t *)rec->name, strlen(rec->name));
	else if (strcmp(name, "from_name") == 0)
		print_hex(j, (const uint8_t *)rec->from_name, strlen(rec->from_name));
	else if (strcmp(name, "target") == 0)
		print_hex(j, (const uint8_t *)rec->target, rec->target_len);
	else if (strcmp(name, "key") == 0)
		print_hex(j, rec->key, rec->key_len);
	else if (strcmp(name, "value") == 0)
		print_hex(j, rec->value, rec->value_len);
	else if (strcmp(name, "pieces") == 0)
		print_pieces(j, rec);
	else
		print_ranges(j, rec);
}

static void print_header(struct json *j, const struct record *rec)
{
	json_ku64(j, "seq", rec->seq);
	json_kstr(j, "type", record_type_name(rec->type));
	json_ku64(j, "flags", rec->flags);
	json_key(j, "time_ns");
	json_i64(j, rec->time_ns);
	json_ku64(j, "ino", rec->ino);
	json_ku64(j, "gen", rec->gen);
	json_ku64(j, "node", rec->node);
}

static void print_times(struct json *j, const struct record_trailer *t)
{
	static const char *const names[3] = { "atime", "mtime", "ctime" };

	json_key(j, "times");
	json_object(j);
	for (int i = 0; i < 3; i++) {
		if (!(t->wide_mask & RECORD_ATTR_ATIME << i))
			continue;
		json_key(j, names[i]);
		json_array(j);
		json_i64(j, t->wide[i].tv_sec);
		json_i64(j, t->wide[i].tv_nsec);
		json_end_array(j);
	}
	json_end_object(j);
}

static void print_copies(struct json *j, const struct record_trailer *t)
{
	json_key(j, "copies");
	json_object(j);
	json_ku64(j, "node", t->copies_node);
	json_key(j, "ranges");
	json_array(j);
	for (size_t i = 0; i < t->num_copies; i++) {
		json_array(j);
		json_u64(j, t->copies[i].segment);
		json_u64(j, t->copies[i].off);
		json_u64(j, t->copies[i].len);
		json_end_array(j);
	}
	json_end_array(j);
	json_end_object(j);
}

static void print_trailer(struct json *j, const struct record_trailer *t)
{
	json_key(j, "trailer");
	json_object(j);
	if (t->has & RECORD_HAS(RECORD_TAG_REQUEST)) {
		json_key(j, "request");
		json_object(j);
		json_ku64(j, "unique", t->unique);
		json_ku64(j, "error", t->answer_error);
		json_ku64(j, "ino", t->answer_ino);
		json_end_object(j);
	}
	if (t->has & RECORD_HAS(RECORD_TAG_TIMES))
		print_times(j, t);
	if (t->has & RECORD_HAS(RECORD_TAG_DEVICE)) {
		json_key(j, "device");
		json_object(j);
		json_ku64(j, "major", t->dev_major);
		json_ku64(j, "minor", t->dev_minor);
		json_end_object(j);
	}
	if (t->has & RECORD_HAS(RECORD_TAG_COPIES))
		print_copies(j, t);
	json_end_object(j);
}

void record_print_json(FILE *out, const struct record *rec)
{
	char fields[256] = "", *rest = fields, *name;
	struct json j;

	for (size_t i = 0; i < sizeof(printed) / sizeof(printed[0]); i++)
		if (printed[i].type == rec->type)
			snprintf(fields, sizeof(fields), "%s", printed[i].fields);
	json_init(&j, out, false);
	json_object(&j);
	print_header(&j, rec);
	while ((name = strsep(&rest, " ")))
		if (name[0])
			print_field(&j, rec, name);
	if (rec->flags & RECORD_F_STAMPED)
		print_field(&j, rec, "stamp");
	if (rec->type == RECORD_DRAINED)
		print_field(&j, rec, "drop_usec");
	if (rec->trailer)
		print_trailer(&j, rec->trailer);
	json_end_object(&j);
	json_finish(&j);
}
