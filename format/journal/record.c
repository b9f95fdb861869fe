/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Records to bytes and back. Every type has a shape: the list of its body's fields in their order, the flags that it
 * may carry, and what must hold for its fields. One loop writes a shape and one reads it, and the same check stands
 * behind both, so that nothing can be written that would not be read back.
 *
 * The CRC covers the whole record, padding included, with the CRC's own field as zero. A version that we do not know
 * is told from damage by it: header and CRC stay where they are in all versions. A record has the lowest version whose
 * readers understand it: 6 when it has a trailer (trailer.c); 4 and 5 when it has write times; 3 when it says who wrote; 2 when its type is
 * one of a job of many nodes, or it has a stamp; else 1. So it will stay: what comes later is a field of the trailer.
 *
 * What the fields mean together (does this inode exist?) is the state's business.
 */
#include "format/journal/record.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/clock.h"
#include "format/base/crc32c.h"
#include "format/journal/trailer.h"

#define MAGIC                  "CJR1"
#define VERSION_TRAILER        6u
#define ALIGN                  8u
#define SEAL_RANGE_BYTES_MIN   2 /* two varints */
#define EXTENT_RANGE_BYTES_MIN 6 /* and a CRC */
#define PIECE_BYTES_MIN        3 /* two varints, kind */
#define PIECE_WHOLE            0x80u
#define PIECE_HOLE             1 /* enum extent_kind */
#define BOOT_ID_BYTES          16
#define STATE_VALUE_MAX        (64u << 20) /* of one key, over all its pieces */

enum at {
	AT_CRC = 4,
	AT_LENGTH = 8,
	AT_TYPE = 12,
	AT_VERSION = 13,
	AT_FLAGS = 14,
	AT_SEQ = 16,
	AT_TIME = 24,
	AT_INO = 32,
	AT_GEN = 40,
	AT_NODE = 44,
	AT_WRITER = 48,
	AT_RESERVED = 52
};

enum kind { U32, U64, NAME, TARGET, BLOB, LONG_BLOB, EXTENTS, RANGES, PIECES };

enum field_id {
	END,
	PARENT,
	FROM_PARENT,
	NAME_,
	FROM_NAME,
	OTHER_INO,
	MASK,
	MODE,
	UID,
	GID,
	NLINK,
	SIZE,
	ATIME,
	MTIME,
	CTIME,
	BACKING_DEV,
	BACKING_INO,
	TARGET_,
	OFF,
	LEN,
	SEGMENT,
	SEGMENT_OFF,
	PAYLOAD_CRC,
	UPTO,
	COUNT,
	KEY,
	VALUE,
	LONG_VALUE,
	EXTENTS_,
	RANGES_,
	STAMP,
	BASE,
	PIECES_
};

struct field {
	uint8_t kind;
	uint16_t at, len_at; /* in struct record */
};

#define SCALAR(kind, member)                             \
	{                                                \
		kind, offsetof(struct record, member), 0 \
	}
#define COUNTED(kind, member, length)                                                  \
	{                                                                              \
		kind, offsetof(struct record, member), offsetof(struct record, length) \
	}

static const struct field fields[] = {
	[PARENT] = SCALAR(U64, parent),
	[FROM_PARENT] = SCALAR(U64, from_parent),
	[NAME_] = SCALAR(NAME, name),
	[FROM_NAME] = SCALAR(NAME, from_name),
	[OTHER_INO] = SCALAR(U64, other_ino),
	[MASK] = SCALAR(U32, mask),
	[MODE] = SCALAR(U32, mode),
	[UID] = SCALAR(U32, uid),
	[GID] = SCALAR(U32, gid),
	[NLINK] = SCALAR(U32, nlink),
	[SIZE] = SCALAR(U64, size),
	[ATIME] = SCALAR(U64, atime_ns),
	[MTIME] = SCALAR(U64, mtime_ns),
	[CTIME] = SCALAR(U64, ctime_ns),
	[BACKING_DEV] = SCALAR(U64, backing_dev),
	[BACKING_INO] = SCALAR(U64, backing_ino),
	[TARGET_] = COUNTED(TARGET, target, target_len),
	[OFF] = SCALAR(U64, off),
	[LEN] = SCALAR(U64, len),
	[SEGMENT] = SCALAR(U32, segment),
	[SEGMENT_OFF] = SCALAR(U64, segment_off),
	[PAYLOAD_CRC] = SCALAR(U32, payload_crc),
	[UPTO] = SCALAR(U64, upto),
	[COUNT] = SCALAR(U64, count),
	[KEY] = COUNTED(BLOB, key, key_len),
	[VALUE] = COUNTED(BLOB, value, value_len),
	[LONG_VALUE] = COUNTED(LONG_BLOB, value, value_len),
	[EXTENTS_] = COUNTED(EXTENTS, ranges, num_ranges),
	[RANGES_] = COUNTED(RANGES, ranges, num_ranges),
	[STAMP] = SCALAR(U64, stamp),
	[BASE] = SCALAR(U64, base),
	[PIECES_] = COUNTED(PIECES, pieces, num_pieces),
};

enum check {
	HAS_NAME = 1, /* not empty */
	HAS_FROM = 2,
	HAS_RANGE = 4,    /* off, len > 0, within a file's largest size */
	HAS_SEGMENT = 8,  /* not 0 */
	HAS_PAYLOAD = 16, /* [segment_off, segment_off + len) within a file's largest size, len fits u32 */
	HAS_SIZE = 32,
	HAS_KEY = 64, /* 1 to 255 bytes without NUL */
	HAS_BOOT_ID = 128,
	HAS_PIECE = 256,   /* off, len: the piece of a state value */
	HAS_EXTENTS = 512, /* at least one */
	HAS_MASK = 1024,
	HAS_MOVED = 2048,     /* a from-name if and only if RECORD_F_MOVED */
	CAN_STAMP = 4096,     /* RECORD_F_STAMPED, RECORD_F_TREE; the stamp behind the body */
	HAS_STAMP = 8192,     /* in the body, not 0 */
	HAS_PIECES = 1 << 14, /* at least one; base < stamp */
	IS_VERSION_2 = 1 << 15,
	CAN_WRITER = 1 << 16, /* the header's writer may be other than 0 */
};

struct shape {
	const char *name;
	uint16_t flags;
	uint32_t checks;
	uint8_t fields[15]; /* up to END */
};

static const struct shape shapes[RECORD_TYPE_END] = {
	[RECORD_MOUNT] = { "mount", 0, HAS_BOOT_ID, { KEY, VALUE } },
	[RECORD_UNMOUNT] = { "unmount", 0, 0, { END } },
	[RECORD_SYNC] = { "sync", 0, 0, { UPTO } },
	[RECORD_CREATE] = { "create", 0, CAN_STAMP, { PARENT, NAME_, MODE, UID, GID, SEGMENT, TARGET_ } },
	[RECORD_ADOPT] = { "adopt", 0, HAS_SIZE | CAN_STAMP,
		{ PARENT, NAME_, MODE, UID, GID, NLINK, SIZE, ATIME, MTIME, CTIME, BACKING_DEV, BACKING_INO,
			TARGET_ } },
	[RECORD_LINK] = { "link", 0, HAS_NAME | CAN_STAMP, { PARENT, NAME_ } },
	[RECORD_UNLINK] = { "unlink", 0, HAS_NAME | CAN_STAMP, { PARENT, NAME_ } },
	[RECORD_RENAME] = { "rename", RECORD_F_EXCHANGE, HAS_NAME | HAS_FROM | CAN_STAMP,
		{ FROM_PARENT, FROM_NAME, PARENT, NAME_, OTHER_INO } },
	[RECORD_FREE] = { "free", 0, CAN_STAMP, { END } },
	[RECORD_FORGET] = { "forget", 0, HAS_NAME | CAN_STAMP, { PARENT, NAME_ } },
	[RECORD_SETATTR] = { "setattr", 0, HAS_MASK | CAN_STAMP, { MASK, MODE, UID, GID, ATIME, MTIME, CTIME } },
	[RECORD_SETXATTR] = { "setxattr", RECORD_F_COPIED, HAS_KEY | CAN_STAMP, { KEY, VALUE } },
	[RECORD_REMOVEXATTR] = { "removexattr", 0, HAS_KEY | CAN_STAMP, { KEY } },
	[RECORD_TRUNCATE] = { "truncate", 0, HAS_SIZE, { SIZE } },
	[RECORD_WRITE] = { "write", RECORD_F_TIMED, HAS_RANGE | HAS_SEGMENT | HAS_PAYLOAD | CAN_WRITER,
		{ OFF, LEN, SEGMENT, SEGMENT_OFF, PAYLOAD_CRC } },
	[RECORD_EXTENTS] = { "extents", RECORD_F_TIMED, HAS_SEGMENT | HAS_EXTENTS | CAN_WRITER,
		{ SEGMENT, SEGMENT_OFF, EXTENTS_ } },
	[RECORD_PUNCH] = { "punch", RECORD_F_KEEP_SIZE | RECORD_F_TIMED, HAS_RANGE, { OFF, LEN } },
	[RECORD_PRIVATE] = { "private", 0, HAS_SEGMENT, { SEGMENT } },
	[RECORD_SEAL] = { "seal", 0, HAS_SEGMENT | HAS_SIZE, { SEGMENT, SIZE, MTIME, RANGES_ } },
	[RECORD_THROUGH] = { "through", 0, HAS_RANGE, { OFF, LEN } },
	[RECORD_PLACED] = { "placed", RECORD_F_MOVED | RECORD_F_UNPUBLISHED, HAS_NAME | HAS_MOVED | CAN_STAMP,
		{ PARENT, NAME_, FROM_PARENT, FROM_NAME, BACKING_DEV, BACKING_INO } },
	[RECORD_REMOVED] = { "removed", 0, HAS_NAME | CAN_STAMP, { PARENT, NAME_ } },
	[RECORD_DRAINED] = { "drained", RECORD_F_KEEP_PRIVATE | RECORD_F_META_ONLY | RECORD_F_TIMED,
		HAS_SIZE | CAN_STAMP, { UPTO, SIZE, MTIME, BACKING_DEV, BACKING_INO } },
	[RECORD_STATE] = { "state", 0, HAS_PIECE, { OFF, LEN, KEY, LONG_VALUE } },
	[RECORD_STATE_END] = { "state-end", 0, 0, { UPTO, COUNT } },
	[RECORD_SHARE] = { "share", 0, IS_VERSION_2, { END } },
	[RECORD_FOREIGN] = { "foreign", 0, HAS_SIZE | IS_VERSION_2, { PARENT, NAME_, MODE, UID, GID, SIZE } },
	[RECORD_COMMITTED] = { "committed", 0, HAS_STAMP | IS_VERSION_2, { UPTO, STAMP } },
	[RECORD_SHARE_PUT] = { "share-put", RECORD_F_TIMED, HAS_STAMP | HAS_PIECES | IS_VERSION_2,
		{ STAMP, BASE, PIECES_ } },
	[RECORD_SHARE_CUT] = { "share-cut", 0, HAS_SIZE | HAS_STAMP | IS_VERSION_2, { SIZE, STAMP } },
	[RECORD_SHARE_DROP] = { "share-drop", RECORD_F_TIMED, HAS_STAMP | IS_VERSION_2, { STAMP } },
	[RECORD_SHARE_LOST] = { "share-lost", 0, IS_VERSION_2, { END } },
};

void record_set_attributes(struct record *rec, const struct stat *st)
{
	rec->mode = st->st_mode;
	rec->uid = st->st_uid;
	rec->gid = st->st_gid;
	rec->nlink = (uint32_t)st->st_nlink;
	rec->size = (uint64_t)st->st_size;
	rec->atime_ns = clock_ns_of(st->st_atim);
	rec->mtime_ns = clock_ns_of(st->st_mtim);
	rec->ctime_ns = clock_ns_of(st->st_ctim);
	rec->backing_dev = st->st_dev;
	rec->backing_ino = st->st_ino;
}

const char *record_type_name(enum record_type type)
{
	return type > 0 && type < RECORD_TYPE_END ? shapes[type].name : "?";
}

void record_scratch_free(struct record_scratch *s)
{
	if (!s)
		return;
	free(s->ranges);
	free(s->pieces);
	free(s->copies);
	s->ranges = NULL;
	s->pieces = NULL;
	s->copies = NULL;
	s->cap = s->cap_pieces = s->cap_copies = 0;
}

/* ---- what must hold */

static bool range_ok(uint64_t off, uint64_t len)
{
	return off <= INT64_MAX && len <= INT64_MAX - off;
}

/* One component of a path. The root of the tree alone is called "." (or nothing), in a parent that does not exist. */
static bool name_ok(const char *name, uint64_t parent)
{
	if (strchr(name, '/') || strcmp(name, "..") == 0)
		return false;
	return strcmp(name, ".") != 0 || parent == 0;
}

static bool names_ok(const struct record *rec, unsigned int checks)
{
	if (!name_ok(rec->name, rec->parent) || !name_ok(rec->from_name, rec->from_parent))
		return false;
	if ((checks & HAS_NAME) && !rec->name[0])
		return false;
	if ((checks & HAS_FROM) && !rec->from_name[0])
		return false;
	return !(checks & HAS_MOVED) || !rec->from_name[0] == !(rec->flags & RECORD_F_MOVED);
}

static bool key_ok(const struct record *rec, unsigned int checks)
{
	if ((checks & HAS_KEY) &&
		(!rec->key_len || rec->key_len > RECORD_NAME_MAX || memchr(rec->key, 0, rec->key_len)))
		return false;
	if ((checks & HAS_BOOT_ID) && rec->key_len != BOOT_ID_BYTES)
		return false;
	if (!(checks & HAS_PIECE))
		return true;
	return rec->key_len && rec->len <= STATE_VALUE_MAX && rec->off <= rec->len &&
	       rec->value_len <= rec->len - rec->off;
}

static bool ranges_ok(const struct record *rec)
{
	uint64_t payload = 0;

	for (size_t i = 0; i < rec->num_ranges; i++) {
		if (!rec->ranges[i].len || !range_ok(rec->ranges[i].off, rec->ranges[i].len))
			return false;
		payload += rec->ranges[i].len;
	}
	return rec->type == RECORD_SEAL || range_ok(rec->segment_off, payload);
}

static bool piece_ok(const struct record_piece *p, bool timed)
{
	if (p->time_usec && !timed)
		return false;
	if (!p->len || !range_ok(p->off, p->len) || p->kind > PIECE_HOLE || (!p->whole && p->crc))
		return false;
	if (p->kind == PIECE_HOLE)
		return !p->whole && !p->segment && !p->segment_off;
	return p->segment && range_ok(p->segment_off, p->len);
}

static bool pieces_ok(const struct record *rec)
{
	for (size_t i = 0; i < rec->num_pieces; i++)
		if (!piece_ok(&rec->pieces[i], rec->flags & RECORD_F_TIMED))
			return false;
	return rec->num_pieces && rec->base < rec->stamp;
}

static bool stamp_ok(const struct record *rec, unsigned int checks)
{
	if (rec->flags & (RECORD_F_STAMPED | RECORD_F_TREE))
		return rec->stamp && checks & CAN_STAMP;
	return rec->stamp || !(checks & HAS_STAMP);
}

static bool fields_ok(const struct record *rec, const struct shape *shape)
{
	unsigned int checks = shape->checks;

	if (rec->flags & ~(uint32_t)(shape->flags | RECORD_F_STAMPED | RECORD_F_TREE) || !stamp_ok(rec, checks))
		return false;
	if (rec->writer && !(checks & CAN_WRITER))
		return false;
	if ((checks & HAS_RANGE) && (!rec->len || !range_ok(rec->off, rec->len)))
		return false;
	if ((checks & HAS_PAYLOAD) && (rec->len > UINT32_MAX || !range_ok(rec->segment_off, rec->len)))
		return false;
	if ((checks & HAS_SEGMENT) && !rec->segment)
		return false;
	if ((checks & HAS_SIZE) && rec->size > INT64_MAX)
		return false;
	if ((checks & HAS_MASK) && (!rec->mask || rec->mask >= RECORD_ATTR_CTIME << 1))
		return false;
	return true;
}

/* The parts that only some types have, by the type's own fields: what is not in a shape is not looked at. */
static bool lists_ok(const struct record *rec, const struct shape *shape)
{
	for (size_t i = 0; shape->fields[i] != END; i++) {
		switch (shape->fields[i]) {
		case NAME_:
			if (!names_ok(rec, shape->checks))
				return false;
			break;
		case KEY:
			if (!key_ok(rec, shape->checks))
				return false;
			break;
		case EXTENTS_:
		case RANGES_:
			if (((shape->checks & HAS_EXTENTS) && !rec->num_ranges) || !ranges_ok(rec))
				return false;
			break;
		case PIECES_:
			if (!pieces_ok(rec))
				return false;
			break;
		default: break;
		}
	}
	return true;
}

static uint8_t version_of(const struct shape *shape, uint32_t flags, uint32_t writer)
{
	if (flags & RECORD_F_TIMED)
		return shape->checks & CAN_STAMP ? 5 : 4;
	if (writer)
		return 3;
	return shape->checks & IS_VERSION_2 || flags & (RECORD_F_STAMPED | RECORD_F_TREE) ? 2 : 1;
}

/* ---- encoding */

static void encode_ranges(struct buf *out, const struct record_range *ranges, size_t num, bool with_crc)
{
	uint64_t end = 0;

	buf_u32(out, (uint32_t)num);
	for (size_t i = 0; i < num; i++) {
		buf_svarint(out, (int64_t)(ranges[i].off - end));
		buf_varint(out, ranges[i].len);
		if (with_crc)
			buf_u32(out, ranges[i].crc);
		end = ranges[i].off + ranges[i].len;
	}
}

static void encode_pieces(struct buf *out, const struct record_piece *pieces, size_t num, bool timed)
{
	uint64_t end = 0, segment_end = 0, time = 0;
	uint32_t segment = 0;

	buf_u32(out, (uint32_t)num);
	for (const struct record_piece *p = pieces; p < pieces + num; p++) {
		buf_svarint(out, (int64_t)(p->off - end));
		buf_varint(out, p->len);
		buf_u8(out, (uint8_t)(p->kind | (p->whole ? PIECE_WHOLE : 0)));
		if (timed)
			buf_svarint(out, (int64_t)(p->time_usec - time));
		time = p->time_usec;
		end = p->off + p->len;
		if (p->kind == PIECE_HOLE)
			continue;
		buf_svarint(out, (int64_t)p->segment - (int64_t)segment);
		buf_svarint(out, (int64_t)(p->segment_off - segment_end));
		if (p->whole)
			buf_u32(out, p->crc);
		segment = p->segment;
		segment_end = p->segment_off + p->len;
	}
}

static void encode_field(struct buf *out, const struct record *rec, const struct field *f)
{
	const char *at = (const char *)rec + f->at;
	const size_t *len = (const size_t *)((const char *)rec + f->len_at);

	switch (f->kind) {
	case U32: buf_u32(out, *(const uint32_t *)at); break;
	case U64: buf_u64(out, *(const uint64_t *)at); break;
	case NAME: buf_str(out, at); break;
	case TARGET: buf_blob(out, *(const char *const *)at, *len); break;
	case BLOB: buf_blob(out, *(const uint8_t *const *)at, *len); break;
	case LONG_BLOB:
		buf_u32(out, (uint32_t)*len);
		buf_bytes(out, *(const uint8_t *const *)at, *len);
		break;
	case PIECES: encode_pieces(out, rec->pieces, rec->num_pieces, rec->flags & RECORD_F_TIMED); break;
	default: encode_ranges(out, *(const struct record_range *const *)at, *len, f->kind == EXTENTS); break;
	}
}

/* What would not fit its length field: told apart from nonsense, since a caller may split it. */
static int field_fits(const struct record *rec, const struct field *f)
{
	const char *at = (const char *)rec + f->at;
	size_t len = *(const size_t *)((const char *)rec + f->len_at);

	switch (f->kind) {
	case NAME: return memchr(at, 0, RECORD_NAME_MAX + 1) ? 0 : -ENAMETOOLONG;
	case TARGET:
		if (len > RECORD_TARGET_MAX)
			return -ENAMETOOLONG;
		return len && memchr(*(const char *const *)at, 0, len) ? -EINVAL : 0;
	case BLOB: return len <= RECORD_VALUE_MAX ? 0 : -E2BIG;
	case LONG_BLOB: return len <= RECORD_MAX_BYTES ? 0 : -E2BIG;
	case EXTENTS:
	case RANGES:
	case PIECES: return len <= RECORD_EXTENTS_MAX ? 0 : -E2BIG;
	default: return 0;
	}
}

static int check_for_encoding(const struct record *rec)
{
	const struct shape *shape;

	if (rec->type <= 0 || rec->type >= RECORD_TYPE_END)
		return -EINVAL;
	shape = &shapes[rec->type];
	for (size_t i = 0; shape->fields[i] != END; i++) {
		int r = field_fits(rec, &fields[shape->fields[i]]);

		if (r)
			return r;
	}
	return fields_ok(rec, shape) && lists_ok(rec, shape) && trailer_ok(rec) ? 0 : -EINVAL;
}

/* RECORD_F_STAMPED as the stamp says, in a shape that can have one. */
static uint32_t flags_to_store(const struct record *rec)
{
	return rec->flags | (shapes[rec->type].checks & CAN_STAMP && rec->stamp ? RECORD_F_STAMPED : 0);
}

static uint8_t version_to_store(const struct record *rec)
{
	return trailer_of(rec) ? VERSION_TRAILER : version_of(&shapes[rec->type], flags_to_store(rec), rec->writer);
}

bool record_is_of_job(const struct record *rec)
{
	return version_of(&shapes[rec->type], flags_to_store(rec), 0) > 1;
}

/* What of all that is drained or dropped goes: behind the body, and a stamp. */
static bool is_timed_drop(const struct record *rec)
{
	return (rec->type == RECORD_SHARE_DROP || rec->type == RECORD_DRAINED) && rec->flags & RECORD_F_TIMED;
}

static void encode_header(struct buf *out, const struct record *rec)
{
	uint32_t flags = flags_to_store(rec);

	buf_bytes(out, MAGIC, 4);
	buf_u32(out, 0); /* CRC, below */
	buf_u32(out, 0); /* length, below */
	buf_u8(out, (uint8_t)rec->type);
	buf_u8(out, version_to_store(rec));
	buf_u16(out, (uint16_t)flags);
	buf_u64(out, rec->seq);
	buf_u64(out, (uint64_t)rec->time_ns);
	buf_u64(out, rec->ino);
	buf_u32(out, rec->gen);
	buf_u32(out, rec->node);
	buf_u32(out, rec->writer);
	buf_u32(out, 0); /* reserved */
}

int record_encode(const struct record *rec, struct buf *out)
{
	const uint8_t *list;
	size_t start = out->len, len;
	int r = check_for_encoding(rec);

	if (r)
		return r;
	encode_header(out, rec);
	for (list = shapes[rec->type].fields; *list != END; list++)
		encode_field(out, rec, &fields[*list]);
	if (flags_to_store(rec) & RECORD_F_STAMPED)
		buf_u64(out, rec->stamp);
	if (is_timed_drop(rec))
		buf_u64(out, rec->drop_usec);
	if (trailer_of(rec))
		trailer_encode(rec, out);
	buf_zeros(out, (ALIGN - (out->len - start) % ALIGN) % ALIGN);
	len = out->len - start;
	if (!buf_ok(out))
		r = -ENOMEM;
	else if (len > RECORD_MAX_BYTES)
		r = -E2BIG;
	if (r) {
		out->len = start;
		return r;
	}
	buf_poke_u32(out, start + AT_LENGTH, (uint32_t)len);
	buf_poke_u32(out, start + AT_CRC, crc32c(0, out->data + start, len));
	return 0;
}

/* ---- decoding */

static uint16_t get_u16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static uint32_t get_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static uint64_t get_u64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static bool all_zero(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

/* Of a record whose magic has been looked at: with the CRC's field as zero, its first eight bytes are always these. */
static uint32_t crc_of(const uint8_t *p, size_t len)
{
	static const uint8_t first[AT_LENGTH] = MAGIC;

	return crc32c(crc32c(0, first, sizeof(first)), p + AT_LENGTH, len - AT_LENGTH);
}

static bool reserve_ranges(struct record_scratch *s, size_t num)
{
	struct record_range *ranges;

	if (num <= s->cap)
		return true;
	ranges = realloc(s->ranges, num * sizeof(*ranges));
	if (!ranges)
		return false;
	s->ranges = ranges;
	s->cap = num;
	return true;
}

/* The count is believed only as far as the bytes behind it could hold so many. -ENOMEM or 0; the cursor knows the rest. */
static int decode_ranges(struct cursor *c, struct record_scratch *s, bool with_crc, struct record *rec)
{
	uint32_t num = cursor_u32(c);
	uint64_t end = 0;

	if (num > RECORD_EXTENTS_MAX ||
		num > cursor_left(c) / (with_crc ? EXTENT_RANGE_BYTES_MIN : SEAL_RANGE_BYTES_MIN)) {
		cursor_fail(c);
		return 0;
	}
	if (!reserve_ranges(s, num))
		return -ENOMEM;
	for (uint32_t i = 0; i < num; i++) {
		uint64_t off = end + (uint64_t)cursor_svarint(c), len = cursor_varint(c);

		if (len > UINT32_MAX)
			cursor_fail(c);
		s->ranges[i] =
			(struct record_range){ .off = off, .len = (uint32_t)len, .crc = with_crc ? cursor_u32(c) : 0 };
		end = off + len;
	}
	rec->ranges = s->ranges;
	rec->num_ranges = num;
	return 0;
}

static bool reserve_pieces(struct record_scratch *s, size_t num)
{
	struct record_piece *pieces;

	if (num <= s->cap_pieces)
		return true;
	pieces = realloc(s->pieces, num * sizeof(*pieces));
	if (!pieces)
		return false;
	s->pieces = pieces;
	s->cap_pieces = num;
	return true;
}

struct place { /* of the payload before */
	uint64_t end;
	uint32_t segment;
};

static void decode_place(struct cursor *c, struct place *before, struct record_piece *p)
{
	int64_t segment = (int64_t)((uint64_t)before->segment + (uint64_t)cursor_svarint(c));

	p->segment_off = before->end + (uint64_t)cursor_svarint(c);
	if (segment < 0 || segment > UINT32_MAX)
		cursor_fail(c);
	p->segment = (uint32_t)segment;
	if (p->whole)
		p->crc = cursor_u32(c);
	*before = (struct place){ .end = p->segment_off + p->len, .segment = p->segment };
}

/* As decode_ranges. */
static int decode_pieces(struct cursor *c, struct record_scratch *s, struct record *rec)
{
	uint32_t num = cursor_u32(c);
	struct place before = { 0 };
	uint64_t end = 0, time = 0;

	if (num > RECORD_EXTENTS_MAX || num > cursor_left(c) / PIECE_BYTES_MIN) {
		cursor_fail(c);
		return 0;
	}
	if (!reserve_pieces(s, num))
		return -ENOMEM;
	for (uint32_t i = 0; i < num; i++) {
		uint64_t off = end + (uint64_t)cursor_svarint(c), len = cursor_varint(c);
		uint8_t kind = cursor_u8(c);

		if (len > UINT32_MAX)
			cursor_fail(c);
		if (rec->flags & RECORD_F_TIMED)
			time += (uint64_t)cursor_svarint(c);
		s->pieces[i] = (struct record_piece){ .off = off,
			.len = (uint32_t)len,
			.kind = kind & (uint8_t)~PIECE_WHOLE,
			.whole = kind & PIECE_WHOLE,
			.time_usec = time };
		if (s->pieces[i].kind != PIECE_HOLE)
			decode_place(c, &before, &s->pieces[i]);
		end = off + len;
	}
	rec->pieces = s->pieces;
	rec->num_pieces = num;
	return 0;
}

static void decode_target(struct cursor *c, struct record_scratch *s, struct record *rec)
{
	cursor_str(c, s->target, sizeof(s->target));
	if (!cursor_ok(c))
		return;
	rec->target_len = strlen(s->target);
	rec->target = rec->target_len ? s->target : NULL;
}

static uint32_t fixed_u32(struct cursor *c)
{
	const uint8_t *p = cursor_bytes(c, 4);

	return p ? get_u32(p) : 0;
}

static uint64_t fixed_u64(struct cursor *c)
{
	const uint8_t *p = cursor_bytes(c, 8);

	return p ? get_u64(p) : 0;
}

static int decode_field(struct cursor *c, struct record_scratch *s, struct record *rec, const struct field *f)
{
	char *at = (char *)rec + f->at;
	size_t *len = (size_t *)((char *)rec + f->len_at);

	switch (f->kind) {
	case U32: *(uint32_t *)at = fixed_u32(c); return 0;
	case U64: *(uint64_t *)at = fixed_u64(c); return 0;
	case NAME: cursor_str(c, at, RECORD_NAME_MAX + 1); return 0;
	case TARGET: decode_target(c, s, rec); return 0;
	case BLOB: *(const uint8_t **)at = cursor_blob(c, len); return 0;
	case LONG_BLOB:
		*len = cursor_u32(c);
		*(const uint8_t **)at = cursor_bytes(c, *len);
		return 0;
	case PIECES: return decode_pieces(c, s, rec);
	default: return decode_ranges(c, s, f->kind == EXTENTS, rec);
	}
}

/* Everything but the two names, of which two bytes say that they are empty: they are two thirds of the struct. */
static void clear_record(struct record *rec)
{
	memset(rec, 0, offsetof(struct record, name));
	rec->name[0] = '\0';
	rec->from_name[0] = '\0';
	memset(&rec->other_ino, 0, sizeof(*rec) - offsetof(struct record, other_ino));
}

static void decode_header(const uint8_t *p, struct record *rec)
{
	clear_record(rec);
	rec->type = p[AT_TYPE];
	rec->flags = get_u16(p + AT_FLAGS);
	rec->seq = get_u64(p + AT_SEQ);
	rec->time_ns = (int64_t)get_u64(p + AT_TIME);
	rec->ino = get_u64(p + AT_INO);
	rec->gen = get_u32(p + AT_GEN);
	rec->node = get_u32(p + AT_NODE);
	rec->writer = get_u32(p + AT_WRITER);
}

/* Magic, length, CRC: what all versions share. */
static int check_frame(const uint8_t *p, size_t len, size_t *ret_used)
{
	size_t used;

	if (all_zero(p, len < 8 ? len : 8) && all_zero(p, len < RECORD_HEADER_BYTES ? len : RECORD_HEADER_BYTES))
		return -ENODATA;
	if (len < RECORD_HEADER_BYTES || memcmp(p, MAGIC, 4) != 0)
		return -EBADMSG;
	used = get_u32(p + AT_LENGTH);
	if (used < RECORD_HEADER_BYTES || used > RECORD_MAX_BYTES || used % ALIGN || used > len)
		return -EBADMSG;
	if (crc_of(p, used) != get_u32(p + AT_CRC))
		return -EBADMSG;
	*ret_used = used;
	return 0;
}

/* Version 6 has a trailer, and may be any of the others besides. */
static bool version_fits(uint8_t version, const struct record *rec)
{
	return version == VERSION_TRAILER || version == version_of(&shapes[rec->type], rec->flags, rec->writer);
}

static int decode_body(struct cursor *c, struct record_scratch *scratch, struct record *rec)
{
	const uint8_t *list;

	for (list = shapes[rec->type].fields; *list != END; list++) {
		int r = decode_field(c, scratch, rec, &fields[*list]);

		if (r)
			return r;
	}
	if (rec->flags & RECORD_F_STAMPED)
		rec->stamp = fixed_u64(c);
	if (is_timed_drop(rec))
		rec->drop_usec = fixed_u64(c);
	return 0;
}

/* On failure *ret_rec holds nothing of use, but for the header after -EPROTONOSUPPORT. */
int record_decode(const void *buf, size_t len, struct record_scratch *scratch, struct record *ret_rec, size_t *ret_used)
{
	const uint8_t *p = buf;
	struct cursor c;
	int r = check_frame(p, len, ret_used);

	if (r)
		return r;
	decode_header(p, ret_rec);
	if (p[AT_VERSION] > VERSION_TRAILER)
		return -EPROTONOSUPPORT;
	if (!p[AT_TYPE] || p[AT_TYPE] >= RECORD_TYPE_END || get_u32(p + AT_RESERVED))
		return -EBADMSG;
	if (!version_fits(p[AT_VERSION], ret_rec))
		return -EBADMSG;
	c = cursor_make(p + RECORD_HEADER_BYTES, *ret_used - RECORD_HEADER_BYTES);
	r = decode_body(&c, scratch, ret_rec);
	if (r == 0 && p[AT_VERSION] == VERSION_TRAILER)
		r = trailer_decode(&c, scratch, ret_rec);
	if (r)
		return r;
	if (!cursor_ok(&c) || cursor_left(&c) >= ALIGN || !all_zero(c.at, cursor_left(&c)))
		return -EBADMSG;
	if (!fields_ok(ret_rec, &shapes[ret_rec->type]) || !lists_ok(ret_rec, &shapes[ret_rec->type]))
		return -EBADMSG;
	return trailer_ok(ret_rec) ? 0 : -EBADMSG;
}
