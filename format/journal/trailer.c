/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Trailers: what was added to records after their bodies had been settled. A row of the table below is a tag: which types may
 * have it, whether a reader may skip it, and how its bytes are written, read and judged. A program that does not know an
 * optional tag is none the worse for it: so nothing may be in one that the meaning of the rest depends on.
 */
#include "format/journal/trailer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "format/base/clock.h"
#include "format/base/tagged.h"

#define ERROR_MAX      4095 /* the kernel's MAX_ERRNO */
#define NSEC_PER_SEC   1000000000
#define COPY_BYTES_MIN 3 /* three varints */
#define ALL_TIMES      (RECORD_ATTR_ATIME | RECORD_ATTR_MTIME | RECORD_ATTR_CTIME)

static bool is_device(uint32_t mode)
{
	return S_ISFIFO(mode) || S_ISSOCK(mode) || S_ISCHR(mode) || S_ISBLK(mode);
}

/* ---- request */

static bool may_have_request(const struct record *rec)
{
	return rec->type >= RECORD_CREATE && rec->type <= RECORD_THROUGH;
}

static bool request_ok(const struct record *rec)
{
	const struct record_trailer *t = rec->trailer;

	return t->unique && t->answer_error <= ERROR_MAX && !(t->answer_error && t->answer_ino);
}

static void encode_request(const struct record_trailer *t, struct buf *out)
{
	buf_u64(out, t->unique);
	buf_u32(out, t->answer_error);
	buf_u64(out, t->answer_ino);
}

static int decode_request(struct cursor *c, struct record_scratch *s)
{
	s->trailer.unique = cursor_u64(c);
	s->trailer.answer_error = cursor_u32(c);
	s->trailer.answer_ino = cursor_u64(c);
	return 0;
}

/* ---- times */

static const uint32_t time_bits[3] = { RECORD_ATTR_ATIME, RECORD_ATTR_MTIME, RECORD_ATTR_CTIME };

/* The times of a record's own that could be too narrow. */
static uint32_t times_of(const struct record *rec)
{
	switch (rec->type) {
	case RECORD_ADOPT: return ALL_TIMES;
	case RECORD_SETATTR: return rec->mask & ALL_TIMES;
	case RECORD_SEAL:
	case RECORD_DRAINED: return RECORD_ATTR_MTIME;
	default: return 0;
	}
}

static bool may_have_times(const struct record *rec)
{
	return times_of(rec) != 0;
}

static bool times_ok(const struct record *rec)
{
	const int64_t narrow[3] = { rec->atime_ns, rec->mtime_ns, rec->ctime_ns };
	const struct record_trailer *t = rec->trailer;

	if (!t->wide_mask || t->wide_mask & ~times_of(rec))
		return false;
	for (int i = 0; i < 3; i++) {
		if (!(t->wide_mask & time_bits[i]))
			continue;
		if (t->wide[i].tv_nsec < 0 || t->wide[i].tv_nsec >= NSEC_PER_SEC ||
			clock_ns_of(t->wide[i]) != narrow[i])
			return false;
	}
	return true;
}

static void encode_times(const struct record_trailer *t, struct buf *out)
{
	buf_u8(out, (uint8_t)t->wide_mask);
	for (int i = 0; i < 3; i++) {
		if (!(t->wide_mask & time_bits[i]))
			continue;
		buf_u64(out, (uint64_t)t->wide[i].tv_sec);
		buf_u32(out, (uint32_t)t->wide[i].tv_nsec);
	}
}

static int decode_times(struct cursor *c, struct record_scratch *s)
{
	s->trailer.wide_mask = cursor_u8(c);
	for (int i = 0; i < 3; i++) {
		if (!(s->trailer.wide_mask & time_bits[i]))
			continue;
		s->trailer.wide[i].tv_sec = (int64_t)cursor_u64(c);
		s->trailer.wide[i].tv_nsec = cursor_u32(c);
	}
	return 0;
}

/* ---- device */

static bool may_have_device(const struct record *rec)
{
	return (rec->type == RECORD_CREATE || rec->type == RECORD_ADOPT) && is_device(rec->mode);
}

static bool device_ok(const struct record *rec)
{
	return S_ISCHR(rec->mode) || S_ISBLK(rec->mode) || (!rec->trailer->dev_major && !rec->trailer->dev_minor);
}

static void encode_device(const struct record_trailer *t, struct buf *out)
{
	buf_u32(out, t->dev_major);
	buf_u32(out, t->dev_minor);
}

static int decode_device(struct cursor *c, struct record_scratch *s)
{
	s->trailer.dev_major = cursor_u32(c);
	s->trailer.dev_minor = cursor_u32(c);
	return 0;
}

/* ---- copies */

static bool may_have_copies(const struct record *rec)
{
	return rec->type == RECORD_SYNC;
}

static bool copies_ok(const struct record *rec)
{
	const struct record_trailer *t = rec->trailer;

	for (const struct record_copy *p = t->copies; p < t->copies + t->num_copies; p++)
		if (!p->segment || !p->len || p->off > INT64_MAX || p->len > INT64_MAX - p->off)
			return false;
	return t->num_copies > 0 && t->num_copies <= RECORD_EXTENTS_MAX;
}

static void encode_copies(const struct record_trailer *t, struct buf *out)
{
	struct record_copy before = { 0 };

	buf_u32(out, t->copies_node);
	buf_u32(out, (uint32_t)t->num_copies);
	for (const struct record_copy *p = t->copies; p < t->copies + t->num_copies; p++) {
		buf_svarint(out, (int64_t)p->segment - (int64_t)before.segment);
		buf_svarint(out, (int64_t)(p->off - (before.off + before.len)));
		buf_varint(out, p->len);
		before = *p;
	}
}

static bool reserve_copies(struct record_scratch *s, size_t num)
{
	struct record_copy *copies;

	if (num <= s->cap_copies)
		return true;
	copies = realloc(s->copies, num * sizeof(*copies));
	if (!copies)
		return false;
	s->copies = copies;
	s->cap_copies = num;
	return true;
}

/* The count is believed only as far as the bytes behind it could hold so many. */
static int decode_copies(struct cursor *c, struct record_scratch *s)
{
	struct record_copy before = { 0 };
	uint32_t num;

	s->trailer.copies_node = cursor_u32(c);
	num = cursor_u32(c);
	if (num > RECORD_EXTENTS_MAX || num > cursor_left(c) / COPY_BYTES_MIN) {
		cursor_fail(c);
		return 0;
	}
	if (!reserve_copies(s, num))
		return -ENOMEM;
	for (uint32_t i = 0; i < num; i++) {
		uint64_t segment = (uint64_t)before.segment + (uint64_t)cursor_svarint(c);

		if (segment > UINT32_MAX)
			cursor_fail(c);
		s->copies[i].segment = (uint32_t)segment;
		s->copies[i].off = before.off + before.len + (uint64_t)cursor_svarint(c);
		s->copies[i].len = cursor_varint(c);
		before = s->copies[i];
	}
	s->trailer.copies = s->copies;
	s->trailer.num_copies = num;
	return 0;
}

/* ---- all of them */

struct tag {
	bool required;
	bool (*allowed)(const struct record *rec);
	bool (*ok)(const struct record *rec); /* with a trailer, of a type that may have it */
	void (*encode)(const struct record_trailer *t, struct buf *out);
	int (*decode)(struct cursor *c, struct record_scratch *s); /* 0 or -ENOMEM; the cursor knows the rest */
};

static const struct tag tags[RECORD_TAG_END] = {
	[RECORD_TAG_REQUEST] = { false, may_have_request, request_ok, encode_request, decode_request },
	[RECORD_TAG_TIMES] = { false, may_have_times, times_ok, encode_times, decode_times },
	[RECORD_TAG_DEVICE] = { true, may_have_device, device_ok, encode_device, decode_device },
	[RECORD_TAG_COPIES] = { false, may_have_copies, copies_ok, encode_copies, decode_copies },
};

const struct record_trailer *trailer_of(const struct record *rec)
{
	return rec->trailer && rec->trailer->has ? rec->trailer : NULL;
}

bool trailer_ok(const struct record *rec)
{
	const struct record_trailer *t = trailer_of(rec);
	uint32_t has = t ? t->has : 0;

	if (may_have_device(rec) != !!(has & RECORD_HAS(RECORD_TAG_DEVICE)))
		return false;
	if (!has)
		return true;
	if (has >= RECORD_HAS(RECORD_TAG_END) || has & 1)
		return false;
	for (unsigned int tag = 1; tag < RECORD_TAG_END; tag++)
		if (has & RECORD_HAS(tag) && (!tags[tag].allowed(rec) || !tags[tag].ok(rec)))
			return false;
	return true;
}

void trailer_encode(const struct record *rec, struct buf *out)
{
	struct buf bytes BUF_CLEANUP = { 0 };

	for (unsigned int tag = 1; tag < RECORD_TAG_END; tag++) {
		if (!(rec->trailer->has & RECORD_HAS(tag)))
			continue;
		buf_reset(&bytes);
		tags[tag].encode(rec->trailer, &bytes);
		if (!buf_ok(&bytes))
			out->bad = true;
		else
			tagged_put(out, tag, tags[tag].required, bytes.data, bytes.len);
	}
}

/* One field. A known one is as it is known: as required, and used up to its last byte. */
static int decode_one(struct tagged *f, struct record_scratch *s)
{
	const struct tag *tag = f->tag < RECORD_TAG_END ? &tags[f->tag] : NULL;
	int r;

	if (!tag) {
		s->trailer.num_skipped += !f->required;
		s->trailer.unknown = f->required ? f->tag : 0;
		return f->required ? -EPROTONOSUPPORT : 0;
	}
	r = tag->decode(&f->bytes, s);
	s->trailer.has |= RECORD_HAS(f->tag);
	if (r == 0 && (!cursor_ok(&f->bytes) || cursor_left(&f->bytes) > 0 || f->required != tag->required))
		r = -EBADMSG;
	return r;
}

int trailer_decode(struct cursor *c, struct record_scratch *scratch, struct record *rec)
{
	struct tagged f = { 0 };
	int r;

	if (!cursor_ok(c))
		return -EBADMSG;
	scratch->trailer = (struct record_trailer){ 0 };
	rec->trailer = &scratch->trailer;
	while ((r = tagged_next(c, &f)) > 0) {
		r = decode_one(&f, scratch);
		if (r < 0)
			return r;
	}
	if (r == -EPROTONOSUPPORT) /* the field has a flag that is not known */
		scratch->trailer.unknown = f.tag;
	return r == 0 && f.tag == 0 ? -EBADMSG : r;
}
