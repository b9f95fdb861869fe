/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Checked bytes in and out. The one invariant of a cursor: at <= end; every read goes through cursor_bytes(), which
 * compares lengths and never adds to a pointer before it has. The one invariant of a buf: len <= cap; every write
 * goes through reserve().
 */
#include "format/base/cursor.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define VARINT_BYTES    10 /* ceil(64 / 7) */
#define BUF_FIRST_BYTES 64

struct cursor cursor_make(const void *buf, size_t len)
{
	static const uint8_t nothing[1];
	const uint8_t *at = buf ? buf : nothing;

	return (struct cursor){ .at = at, .end = at + (buf ? len : 0), .bad = !buf && len > 0 };
}

bool cursor_ok(const struct cursor *c)
{
	return !c->bad;
}

size_t cursor_left(const struct cursor *c)
{
	return c->bad ? 0 : (size_t)(c->end - c->at);
}

void cursor_fail(struct cursor *c)
{
	c->bad = true;
}

const uint8_t *cursor_bytes(struct cursor *c, size_t len)
{
	const uint8_t *at = c->at;

	if (c->bad || len > (size_t)(c->end - c->at)) {
		c->bad = true;
		return NULL;
	}
	c->at += len;
	return at;
}

static uint64_t little_endian(struct cursor *c, size_t len)
{
	const uint8_t *p = cursor_bytes(c, len);
	uint64_t v = 0;

	for (size_t i = len; p && i > 0; i--)
		v = v << 8 | p[i - 1];
	return v;
}

uint8_t cursor_u8(struct cursor *c)
{
	return (uint8_t)little_endian(c, 1);
}

uint16_t cursor_u16(struct cursor *c)
{
	return (uint16_t)little_endian(c, 2);
}

uint32_t cursor_u32(struct cursor *c)
{
	return (uint32_t)little_endian(c, 4);
}

uint64_t cursor_u64(struct cursor *c)
{
	return little_endian(c, 8);
}

uint64_t cursor_u64_be(struct cursor *c)
{
	return __builtin_bswap64(little_endian(c, 8));
}

uint64_t cursor_varint(struct cursor *c)
{
	uint64_t v = 0;

	for (unsigned int i = 0; i < VARINT_BYTES; i++) {
		uint8_t byte = cursor_u8(c);

		if (c->bad || (i == VARINT_BYTES - 1 && byte > 1)) /* the tenth byte has room for bit 63 alone */
			break;
		v |= (uint64_t)(byte & 0x7f) << (7 * i);
		if (!(byte & 0x80))
			return v;
	}
	c->bad = true;
	return 0;
}

int64_t cursor_svarint(struct cursor *c)
{
	uint64_t v = cursor_varint(c);

	return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

const uint8_t *cursor_blob(struct cursor *c, size_t *ret_len)
{
	size_t len = cursor_u16(c);
	const uint8_t *p = cursor_bytes(c, len);

	*ret_len = p ? len : 0;
	return p;
}

void cursor_str(struct cursor *c, char *out, size_t cap)
{
	size_t len;
	const uint8_t *p = cursor_blob(c, &len);

	if (p && (len >= cap || memchr(p, 0, len)))
		c->bad = true;
	if (cap > 0)
		out[0] = '\0';
	if (c->bad)
		return;
	memcpy(out, p, len);
	out[len] = '\0';
}

void buf_free(struct buf *b)
{
	if (!b)
		return;
	free(b->data);
	*b = (struct buf){ 0 };
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->bad = false;
}

bool buf_ok(const struct buf *b)
{
	return !b->bad;
}

/* Makes room for len more bytes and counts them as written; NULL when that is not possible. */
static uint8_t *reserve(struct buf *b, size_t len)
{
	size_t cap = b->cap ? b->cap : BUF_FIRST_BYTES;
	size_t need;
	uint8_t *data;

	if (b->bad || __builtin_add_overflow(b->len, len, &need))
		goto bad;
	if (need > b->cap || !b->data) {
		while (cap < need)
			if (__builtin_mul_overflow(cap, (size_t)2, &cap))
				goto bad;
		data = realloc(b->data, cap);
		if (!data)
			goto bad;
		b->data = data;
		b->cap = cap;
	}
	b->len = need;
	return b->data + need - len;
bad:
	b->bad = true;
	return NULL;
}

void buf_bytes(struct buf *b, const void *p, size_t len)
{
	uint8_t *to = reserve(b, len);

	if (to && len > 0)
		memcpy(to, p, len);
}

void buf_zeros(struct buf *b, size_t len)
{
	uint8_t *to = reserve(b, len);

	if (to && len > 0)
		memset(to, 0, len);
}

static void put_little_endian(uint8_t *to, uint64_t v, size_t len)
{
	for (size_t i = 0; i < len; i++)
		to[i] = (uint8_t)(v >> (8 * i));
}

static void write_little_endian(struct buf *b, uint64_t v, size_t len)
{
	uint8_t *to = reserve(b, len);

	if (to)
		put_little_endian(to, v, len);
}

void buf_u8(struct buf *b, uint8_t v)
{
	write_little_endian(b, v, 1);
}

void buf_u16(struct buf *b, uint16_t v)
{
	write_little_endian(b, v, 2);
}

void buf_u32(struct buf *b, uint32_t v)
{
	write_little_endian(b, v, 4);
}

void buf_u64(struct buf *b, uint64_t v)
{
	write_little_endian(b, v, 8);
}

void buf_u64_be(struct buf *b, uint64_t v)
{
	write_little_endian(b, __builtin_bswap64(v), 8);
}

void buf_varint(struct buf *b, uint64_t v)
{
	uint8_t bytes[VARINT_BYTES];
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		bytes[n++] = (uint8_t)(v | 0x80);
	bytes[n++] = (uint8_t)v;
	buf_bytes(b, bytes, n);
}

void buf_svarint(struct buf *b, int64_t v)
{
	buf_varint(b, (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0));
}

void buf_blob(struct buf *b, const void *p, size_t len)
{
	if (len > UINT16_MAX) {
		b->bad = true;
		return;
	}
	buf_u16(b, (uint16_t)len);
	buf_bytes(b, p, len);
}

void buf_str(struct buf *b, const char *s)
{
	buf_blob(b, s, strlen(s));
}

void buf_poke_u32(struct buf *b, size_t at, uint32_t v)
{
	if (b->bad)
		return;
	assert(at <= b->len && b->len - at >= 4);
	put_little_endian(b->data + at, v, 4);
}
