/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The bytes of the canonical header, told by what the subfile does not say itself. Definitions it has; so a header is encoded from
 * them, with each variable right behind the one before it, and what is kept is the format's version, where variables begin
 * elsewhere, and which bytes then still differ. For all that the netCDF libraries write these are a few bytes, where the header has
 * hundreds of kilobytes; people who look at a subfile are spared the rest.
 */
#include "format/codec/blob.h"

#include <errno.h>
#include <string.h>

#include "format/base/crc32c.h"
#include "format/codec/blob_private.h"

#define LAYOUT_FORMAT    1u
#define LAYOUT_STREAMING 1u

static size_t numrecs_bytes(uint32_t version)
{
	return version == 5 ? 8 : 4;
}

/* Of the header with nothing in the number of records. */
static uint32_t checksum(const uint8_t *header, size_t len, uint32_t version)
{
	static const uint8_t zeros[8];
	size_t skip = numrecs_bytes(version);
	uint32_t crc = crc32c(crc32c(0, header, CLASSIC_NUMRECS_OFF), zeros, skip);

	return crc32c(crc, header + CLASSIC_NUMRECS_OFF + skip, len - CLASSIC_NUMRECS_OFF - skip);
}

static bool is_streaming(const uint8_t *header, uint32_t version)
{
	static const uint8_t ones[8] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

	return memcmp(header + CLASSIC_NUMRECS_OFF, ones, numrecs_bytes(version)) == 0;
}

/* ---- where variables begin: fixed ones, then those with records, each in the order of definition */

typedef int (*each_gap_fn)(struct classic_var *v, uint32_t number, uint64_t end, void *arg);

/* each() is told where the variable before ended, and may set begin. */
static int for_each_begin(struct classic *c, each_gap_fn each, void *arg)
{
	uint64_t end = c->header_bytes;
	uint32_t number = 0;
	int r = 0;

	for (int records = 0; records < 2; records++)
		for (uint32_t i = 0; r == 0 && i < c->num_vars; i++) {
			struct classic_var *v = &c->vars[i];

			if (v->is_record != records)
				continue;
			r = each(v, number++, end, arg);
			if (v->begin > CLASSIC_BYTES_MAX || v->bytes > CLASSIC_BYTES_MAX - v->begin)
				return -EBADMSG;
			end = (v->begin + v->bytes + 3) & ~(uint64_t)3;
		}
	return r;
}

struct gaps {
	struct buf out;
	uint64_t num;
	uint32_t next; /* number of the variable after the last that is told of */
};

static int note_gap(struct classic_var *v, uint32_t number, uint64_t end, void *arg)
{
	struct gaps *g = arg;

	if (v->begin == end)
		return 0;
	buf_varint(&g->out, number - g->next);
	buf_svarint(&g->out, (int64_t)(v->begin - end));
	g->next = number + 1;
	g->num++;
	return 0;
}

struct told {
	struct cursor *c;
	uint64_t left, number; /* gaps, and of which variable the next is */
};

static void next_gap(struct told *t, uint64_t after)
{
	t->number = t->left > 0 ? after + cursor_varint(t->c) : UINT64_MAX;
	if (t->number < after)
		cursor_fail(t->c);
}

static int take_gap(struct classic_var *v, uint32_t number, uint64_t end, void *arg)
{
	struct told *t = arg;

	v->begin = end;
	if (number != t->number)
		return 0;
	v->begin = end + (uint64_t)cursor_svarint(t->c);
	t->left--;
	next_gap(t, (uint64_t)number + 1);
	return cursor_ok(t->c) ? 0 : -EBADMSG;
}

/* ---- bytes that differ */

static void note_bytes(const uint8_t *made, const uint8_t *header, size_t len, uint32_t version, struct buf *out)
{
	size_t at = CLASSIC_NUMRECS_OFF + numrecs_bytes(version), done = 0;

	while (at < len) {
		size_t end = at;

		while (end < len && made[end] != header[end])
			end++;
		if (end > at) {
			buf_varint(out, at - done);
			buf_varint(out, end - at);
			buf_bytes(out, header + at, end - at);
			done = end;
		}
		at = end + 1;
	}
}

static int take_bytes(struct cursor *c, struct buf *header)
{
	size_t done = 0;

	while (cursor_left(c) > 0) {
		uint64_t skip = cursor_varint(c), num = cursor_varint(c);
		const uint8_t *bytes;

		if (!cursor_ok(c) || skip > header->len - done || num > header->len - done - skip)
			return -EBADMSG;
		bytes = cursor_bytes(c, (size_t)num);
		if (!bytes)
			return -EBADMSG;
		memcpy(header->data + done + skip, bytes, (size_t)num);
		done += (size_t)(skip + num);
	}
	return cursor_ok(c) ? 0 : -EBADMSG;
}

/* ---- all of it */

/* The header as it is when nothing is wrong with it; c's vsizes change. */
static int encode(struct classic *c, bool streaming, struct buf *out)
{
	c->num_records = 0;
	c->streaming = streaming;
	classic_set_vsizes(c);
	return classic_encode(c, out);
}

int blob_layout_encode(const uint8_t *header, size_t len, struct buf *out)
{
	struct classic CLASSIC_CLEANUP c = { 0 };
	struct buf BUF_CLEANUP made = { 0 };
	struct gaps g = { .num = 0 };
	int r = classic_decode_definitions(header, len, &c, NULL);

	if (r == 0)
		r = for_each_begin(&c, note_gap, &g);
	if (r == 0)
		r = encode(&c, is_streaming(header, c.version), &made);
	if (r == 0 && made.len != len)
		r = -ENOTSUP;
	if (r == 0) {
		buf_u8(out, LAYOUT_FORMAT);
		buf_u8(out, (uint8_t)c.version);
		buf_u8(out, is_streaming(header, c.version) ? LAYOUT_STREAMING : 0);
		buf_u32(out, checksum(header, len, c.version));
		buf_varint(out, g.num);
		buf_bytes(out, g.out.data, g.out.len);
		note_bytes(made.data, header, len, c.version, out);
		r = buf_ok(out) && buf_ok(&g.out) ? 0 : -ENOMEM;
	}
	buf_free(&g.out);
	return r == -EBADMSG || r == -ENODATA ? -ENOTSUP : r;
}

static int apply(struct cursor *c, struct classic *definitions, struct buf *ret)
{
	uint8_t format = cursor_u8(c), version = cursor_u8(c), flags = cursor_u8(c);
	uint32_t crc = cursor_u32(c);
	struct told t = { .c = c };
	int r;

	if (!cursor_ok(c) || format != LAYOUT_FORMAT || (version != 1 && version != 2 && version != 5) ||
		flags > LAYOUT_STREAMING)
		return -EBADMSG;
	definitions->version = version;
	r = classic_finish(definitions, NULL);
	t.left = cursor_varint(c);
	next_gap(&t, 0);
	if (r == 0)
		r = for_each_begin(definitions, take_gap, &t);
	if (r == 0 && (t.left > 0 || !cursor_ok(c)))
		r = -EBADMSG;
	if (r == 0)
		r = encode(definitions, flags & LAYOUT_STREAMING, ret);
	if (r == 0)
		r = take_bytes(c, ret);
	return r == 0 && checksum(ret->data, ret->len, version) != crc ? -EBADMSG : r;
}

int blob_layout_apply(const uint8_t *layout, size_t len, struct classic *definitions, struct buf *ret)
{
	struct cursor c = cursor_make(layout, len);
	int r = apply(&c, definitions, ret);

	if (r < 0)
		buf_reset(ret);
	return r;
}
