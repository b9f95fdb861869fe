/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Deals as bytes. Other nodes' agents have written them, in a directory that others may write to: nothing is believed. */
#include "mpi-agent/plan/deal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"

#define HEAD_BYTES 8u
#define SUM_BYTES  24u
#define VAR_BYTES  14u

static const uint8_t magic[4] = { 'C', 'D', 'E', 'A' };

void deal_sum_add(struct deal_sum *s, uint64_t off, uint64_t len)
{
	unsigned __int128 n = len, before = n * (n - 1) / 2; /* 0 + 1 + ... */
	uint64_t squares = (uint64_t)(n * (n - 1) * (2 * n - 1) / 6);

	if (len == 0)
		return;
	s->bytes += len;
	s->places += off * len + (uint64_t)before;
	s->squares += off * off * len + 2 * off * (uint64_t)before + squares;
}

void deal_free(struct deal *d)
{
	if (!d)
		return;
	free(d->seen);
	free(d->vars);
	free(d->ragged);
	buf_free(&d->values);
	buf_free(&d->residue);
	*d = (struct deal){ 0 };
}

/* ---- values */

void deal_add_value(struct deal *d, const struct deal_value *v)
{
	buf_u32(&d->values, v->var);
	buf_u64(&d->values, v->record);
	buf_u32(&d->values, (uint32_t)v->len);
	buf_bytes(&d->values, v->bytes, v->len);
}

int deal_next_value(struct cursor *c, struct deal_value *ret)
{
	if (cursor_left(c) == 0)
		return 0;
	ret->var = cursor_u32(c);
	ret->record = cursor_u64(c);
	ret->len = cursor_u32(c);
	ret->bytes = cursor_bytes(c, ret->len);
	return cursor_ok(c);
}

/* ---- out */

static void put_sum(struct buf *out, const struct deal_sum *s)
{
	buf_u64(out, s->bytes);
	buf_u64(out, s->places);
	buf_u64(out, s->squares);
}

static void put_bytes(struct buf *out, const void *bytes, size_t len)
{
	buf_u32(out, (uint32_t)len);
	buf_bytes(out, bytes, len);
}

int deal_encode(const struct deal *d, struct buf *out)
{
	size_t begin = out->len;

	buf_bytes(out, magic, sizeof(magic));
	buf_u16(out, DEAL_VERSION);
	buf_u16(out, 0);
	put_bytes(out, d->why, strlen(d->why));
	buf_u32(out, d->node);
	buf_u32(out, d->num_streams);
	buf_u8(out, d->has_header);
	buf_u8(out, d->more_ragged);
	put_sum(out, &d->own);
	buf_u32(out, d->num_seen);
	for (uint32_t i = 0; i < d->num_seen; i++) {
		buf_u32(out, d->seen[i].node);
		put_sum(out, &d->seen[i].sum);
	}
	buf_u32(out, d->num_vars);
	for (uint32_t i = 0; i < d->num_vars; i++) {
		buf_u64(out, d->vars[i].first_record);
		buf_u32(out, d->vars[i].list);
		buf_u8(out, d->vars[i].kind);
		buf_u8(out, d->vars[i].mixed);
	}
	buf_u32(out, d->num_ragged);
	for (uint32_t i = 0; i < d->num_ragged; i++)
		buf_u64(out, d->ragged[i]);
	put_bytes(out, d->values.data, d->values.len);
	put_bytes(out, d->residue.data, d->residue.len);
	if (buf_ok(out))
		buf_u32(out, crc32c(0, out->data + begin, out->len - begin));
	return buf_ok(out) ? 0 : -ENOMEM;
}

/* ---- in */

static bool get_bool(struct cursor *c)
{
	uint8_t v = cursor_u8(c);

	if (v > 1)
		cursor_fail(c);
	return v != 0;
}

static struct deal_sum get_sum(struct cursor *c)
{
	struct deal_sum s;

	s.bytes = cursor_u64(c);
	s.places = cursor_u64(c);
	s.squares = cursor_u64(c);
	return s;
}

/* How many follow, and room for them. NULL: there are none, or c is bad. */
static void *get_list(struct cursor *c, uint32_t max, size_t bytes_each, size_t size, uint32_t *ret_num)
{
	uint32_t num = cursor_u32(c);
	void *list;

	*ret_num = 0;
	if (num > max || num > cursor_left(c) / bytes_each)
		cursor_fail(c);
	if (!cursor_ok(c) || num == 0)
		return NULL;
	list = calloc(num, size);
	if (list)
		*ret_num = num;
	return list;
}

static int get_bytes(struct cursor *c, size_t max, struct buf *out)
{
	uint32_t len = cursor_u32(c);
	const uint8_t *bytes = len <= max ? cursor_bytes(c, len) : NULL;

	if (!bytes && len > 0)
		cursor_fail(c);
	else if (len > 0)
		buf_bytes(out, bytes, len);
	return buf_ok(out) ? 0 : -ENOMEM;
}

static void get_why(struct cursor *c, struct deal *d)
{
	uint32_t len = cursor_u32(c);
	const uint8_t *bytes = len < DEAL_WHY ? cursor_bytes(c, len) : NULL;

	if (!bytes && len > 0)
		cursor_fail(c);
	else if (len > 0)
		memcpy(d->why, bytes, len);
	if (memchr(d->why, 0, sizeof(d->why)) != d->why + (len < DEAL_WHY ? len : 0))
		cursor_fail(c);
}

static int get_lists(struct cursor *c, struct deal *d)
{
	d->seen = get_list(c, DEAL_NODES_MAX, 4 + SUM_BYTES, sizeof(*d->seen), &d->num_seen);
	for (uint32_t i = 0; i < d->num_seen; i++) {
		d->seen[i].node = cursor_u32(c);
		d->seen[i].sum = get_sum(c);
		if (d->seen[i].node >= DEAL_NODES_MAX)
			cursor_fail(c);
	}
	d->vars = get_list(c, DEAL_VARS_MAX, VAR_BYTES, sizeof(*d->vars), &d->num_vars);
	for (uint32_t i = 0; i < d->num_vars; i++) {
		d->vars[i].first_record = cursor_u64(c);
		d->vars[i].list = cursor_u32(c);
		d->vars[i].kind = cursor_u8(c);
		d->vars[i].mixed = get_bool(c);
		if (d->vars[i].kind >= DEAL_KIND_END)
			cursor_fail(c);
	}
	d->ragged = get_list(c, DEAL_RAGGED_MAX, sizeof(uint64_t), sizeof(uint64_t), &d->num_ragged);
	for (uint32_t i = 0; i < d->num_ragged; i++)
		d->ragged[i] = cursor_u64(c);
	return cursor_ok(c) ? 0 : -EBADMSG;
}

static bool values_are_good(const struct deal *d)
{
	struct cursor c = cursor_make(d->values.data, d->values.len);
	struct deal_value v;

	while (deal_next_value(&c, &v))
		if (v.var >= d->num_vars)
			return false;
	return cursor_ok(&c);
}

static int get_fields(struct cursor *c, struct deal *d)
{
	int r;

	get_why(c, d);
	d->node = cursor_u32(c);
	d->num_streams = cursor_u32(c);
	d->has_header = get_bool(c);
	d->more_ragged = get_bool(c);
	d->own = get_sum(c);
	r = get_lists(c, d);
	if (r == 0)
		r = get_bytes(c, DEAL_BYTES_MAX, &d->values);
	if (r == 0)
		r = get_bytes(c, DEAL_BYTES_MAX, &d->residue);
	if (r == 0 && (!cursor_ok(c) || cursor_left(c) > 0 || !values_are_good(d)))
		r = -EBADMSG;
	return r;
}

int deal_decode(const void *bytes, size_t len, struct deal *ret)
{
	struct cursor c, end;
	struct deal d = { 0 };
	const uint8_t *head;
	int r;

	if (len < HEAD_BYTES + 4)
		return -EBADMSG;
	end = cursor_make((const uint8_t *)bytes + len - 4, 4);
	if (cursor_u32(&end) != crc32c(0, bytes, len - 4))
		return -EBADMSG;
	c = cursor_make(bytes, len - 4);
	head = cursor_bytes(&c, sizeof(magic));
	if (memcmp(head, magic, sizeof(magic)) != 0 || cursor_u16(&c) != DEAL_VERSION || cursor_u16(&c) != 0)
		return -EBADMSG;
	r = get_fields(&c, &d);
	if (r < 0)
		deal_free(&d);
	else
		*ret = d;
	return r;
}
