/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Messages: a header and a body of fields {u16 tag, u8 kind, value}. U64 and I64 are 8 bytes; every other kind, those
 * to come too, is a u32 length and that many bytes, so that a reader can step over what it does not know. A body is
 * checked as a whole when it arrives; the getters walk over it and check again, which is cheap and trusts nobody.
 */
#include "format/wire/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"
#include "format/wire/frame.h"

#define MAGIC "CWR1"

struct field {
	uint16_t tag;
	uint8_t kind;
	uint64_t number;      /* U64, I64 */
	const uint8_t *bytes; /* the other kinds; borrowed */
	size_t len;
};

void wire_msg_init(struct wire_msg *m, enum wire_type type)
{
	m->type = (uint16_t)type;
	buf_reset(&m->body);
}

void wire_msg_free(struct wire_msg *m)
{
	if (m)
		buf_free(&m->body);
}

static void put_head(struct wire_msg *m, enum wire_tag tag, enum wire_kind kind)
{
	buf_u16(&m->body, (uint16_t)tag);
	buf_u8(&m->body, (uint8_t)kind);
}

void wire_put_u64(struct wire_msg *m, enum wire_tag tag, uint64_t v)
{
	put_head(m, tag, WIRE_U64);
	buf_u64(&m->body, v);
}

void wire_put_i64(struct wire_msg *m, enum wire_tag tag, int64_t v)
{
	put_head(m, tag, WIRE_I64);
	buf_u64(&m->body, (uint64_t)v);
}

void wire_put_bytes(struct wire_msg *m, enum wire_tag tag, const void *p, size_t len)
{
	if (len > WIRE_MAX_BYTES) {
		m->body.bad = true; /* wire_send says -E2BIG or -ENOMEM */
		return;
	}
	put_head(m, tag, WIRE_BYTES);
	buf_u32(&m->body, (uint32_t)len);
	buf_bytes(&m->body, p, len);
}

void wire_put_str(struct wire_msg *m, enum wire_tag tag, const char *s)
{
	wire_put_bytes(m, tag, s, strlen(s));
}

/* False at the end, and when the rest is no field. */
static bool next_field(struct cursor *c, struct field *f)
{
	if (cursor_left(c) == 0)
		return false;
	f->tag = cursor_u16(c);
	f->kind = cursor_u8(c);
	if (f->kind == WIRE_U64 || f->kind == WIRE_I64) {
		f->number = cursor_u64(c);
	} else {
		f->len = cursor_u32(c);
		f->bytes = cursor_bytes(c, f->len);
	}
	if (f->kind == 0)
		cursor_fail(c);
	return cursor_ok(c);
}

/* Of whatever kind. */
static bool find_tag(const struct wire_msg *m, enum wire_tag tag, unsigned int n, struct field *ret)
{
	struct cursor c = cursor_make(m->body.data, m->body.len);

	while (next_field(&c, ret))
		if (ret->tag == (unsigned int)tag && n-- == 0)
			return true;
	return false;
}

static bool find(const struct wire_msg *m, enum wire_tag tag, enum wire_kind kind, unsigned int n, struct field *ret)
{
	return find_tag(m, tag, n, ret) && ret->kind == kind;
}

bool wire_get_u64(const struct wire_msg *m, enum wire_tag tag, uint64_t *ret)
{
	struct field f;
	bool found = find(m, tag, WIRE_U64, 0, &f);

	if (found)
		*ret = f.number;
	return found;
}

bool wire_get_i64(const struct wire_msg *m, enum wire_tag tag, int64_t *ret)
{
	struct field f;
	bool found = find(m, tag, WIRE_I64, 0, &f);

	if (found)
		*ret = (int64_t)f.number;
	return found;
}

bool wire_get_bytes(const struct wire_msg *m, enum wire_tag tag, unsigned int n, const uint8_t **ret, size_t *ret_len)
{
	struct field f;
	bool found = find(m, tag, WIRE_BYTES, n, &f);

	if (found) {
		*ret = f.bytes;
		*ret_len = f.len;
	}
	return found;
}

bool wire_each_bytes(
	const struct wire_msg *m, enum wire_tag tag, bool (*each)(const uint8_t *p, size_t len, void *arg), void *arg)
{
	struct cursor c = cursor_make(m->body.data, m->body.len);
	struct field f;

	while (next_field(&c, &f))
		if (f.tag == (unsigned int)tag && (f.kind != WIRE_BYTES || !each(f.bytes, f.len, arg)))
			return false;
	return true;
}

/* False also when it does not fit, or holds a NUL: half a path is no path. */
bool wire_get_str(const struct wire_msg *m, enum wire_tag tag, unsigned int n, char *out, size_t cap)
{
	const uint8_t *p = NULL;
	size_t len = 0;

	if (!wire_get_bytes(m, tag, n, &p, &len) || len >= cap || (len && memchr(p, '\0', len)))
		return false;
	if (len)
		memcpy(out, p, len);
	out[len] = '\0';
	return true;
}

int wire_copy_str(const struct wire_msg *m, enum wire_tag tag, unsigned int n, size_t max_bytes, char **ret)
{
	struct field f;
	char *copy;

	if (!find_tag(m, tag, n, &f))
		return -ENOENT;
	if (f.kind != WIRE_BYTES || f.len > max_bytes || (f.len && memchr(f.bytes, '\0', f.len)))
		return -EBADMSG;
	copy = malloc(f.len + 1);
	if (!copy)
		return -ENOMEM;
	if (f.len)
		memcpy(copy, f.bytes, f.len);
	copy[f.len] = '\0';
	*ret = copy;
	return 0;
}

static void store_le(uint8_t *out, uint32_t v, unsigned int bytes)
{
	for (unsigned int i = 0; i < bytes; i++)
		out[i] = (uint8_t)(v >> (8 * i));
}

void wire_encode_header(const struct wire_msg *m, uint8_t out[WIRE_HEADER_BYTES])
{
	memcpy(out, MAGIC, 4);
	store_le(out + 4, WIRE_VERSION, 2);
	store_le(out + 6, m->type, 2);
	store_le(out + 8, (uint32_t)m->body.len, 4);
	store_le(out + 12, crc32c(0, m->body.data, m->body.len), 4);
}

int wire_decode_header(const uint8_t in[WIRE_HEADER_BYTES], struct wire_header *ret)
{
	struct cursor c = cursor_make(in, WIRE_HEADER_BYTES);
	const uint8_t *magic = cursor_bytes(&c, 4);
	uint16_t version = cursor_u16(&c);
	struct wire_header h;

	h.type = cursor_u16(&c);
	h.len = cursor_u32(&c);
	h.crc = cursor_u32(&c);
	if (!magic || memcmp(magic, MAGIC, 4) != 0 || version == 0)
		return -EBADMSG;
	if (version > WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (h.len > WIRE_MAX_BYTES)
		return -E2BIG;
	*ret = h;
	return 0;
}

int wire_check_body(const struct wire_header *h, const uint8_t *body, size_t len)
{
	struct cursor c = cursor_make(body, len);
	struct field f;

	if (len != h->len || crc32c(0, body, len) != h->crc)
		return -EBADMSG;
	while (next_field(&c, &f))
		;
	return cursor_ok(&c) ? 0 : -EBADMSG;
}

void wire_reply_error(struct wire_msg *reply, const struct cistern_error *err)
{
	wire_msg_init(reply, WIRE_REPLY);
	wire_put_i64(reply, WIRE_STATUS, err ? err->code : 0);
	if (err && err->code)
		wire_put_str(reply, WIRE_TEXT, err->text);
}
