/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * E3SM-IO's header_blob is a CDF-5 header with all integers in the order of the machine that wrote it. On today's machines that
 * is the other way round than in a file; it is turned here, so that one decoder reads all.
 */
#include "format/codec/blob.h"

#include <errno.h>
#include <string.h>

#define HEADER_START 12u /* magic and number of records; the tag of dimensions follows */

struct turn {
	struct cursor in;
	struct buf *out;
};

static uint32_t turn_u32(struct turn *t)
{
	uint32_t v = cursor_u32(&t->in);

	buf_u32(t->out, __builtin_bswap32(v));
	return v;
}

static uint64_t turn_u64(struct turn *t)
{
	uint64_t v = cursor_u64(&t->in);

	buf_u64_be(t->out, v);
	return v;
}

/* num values of size bytes, and their padding. */
static void turn_values(struct turn *t, uint64_t num, uint32_t size)
{
	const uint8_t *p = NULL;

	if (size == 0 || num > cursor_left(&t->in) / size)
		cursor_fail(&t->in);
	else
		p = cursor_bytes(&t->in, (size_t)num * size);
	for (uint64_t i = 0; p && i < num; i++)
		for (uint32_t k = size; k > 0; k--)
			buf_u8(t->out, p[i * size + k - 1]);
	if (p && (num * size) % 4 != 0) {
		(void)cursor_bytes(&t->in, (size_t)(-(num * size) & 3));
		buf_zeros(t->out, (size_t)(-(num * size) & 3));
	}
}

static void turn_name(struct turn *t)
{
	turn_values(t, turn_u64(t), 1);
}

static void turn_atts(struct turn *t)
{
	uint64_t num = (turn_u32(t), turn_u64(t));

	for (uint64_t i = 0; i < num && cursor_ok(&t->in); i++) {
		uint32_t type;
		uint64_t values;

		turn_name(t);
		type = turn_u32(t);
		values = turn_u64(t);
		turn_values(t, values, classic_type_bytes(type));
	}
}

static void turn_vars(struct turn *t)
{
	uint64_t num = (turn_u32(t), turn_u64(t));

	for (uint64_t i = 0; i < num && cursor_ok(&t->in); i++) {
		uint64_t dims;

		turn_name(t);
		dims = turn_u64(t);
		for (uint64_t k = 0; k < dims && cursor_ok(&t->in); k++)
			turn_u64(t);
		turn_atts(t);
		turn_u32(t);
		turn_u64(t);
		turn_u64(t);
	}
}

bool blob_header_is_little(const void *buf, size_t len)
{
	const uint8_t *p = buf;

	return len > HEADER_START + 4 && classic_is(p, len) && p[HEADER_START] != 0 && p[HEADER_START + 3] == 0;
}

int blob_header_turn(const void *buf, size_t len, struct buf *out)
{
	struct turn t = { cursor_make(buf, len), out };
	const uint8_t *magic = cursor_bytes(&t.in, 4);
	uint64_t num;

	if (magic)
		buf_bytes(out, magic, 4);
	turn_u64(&t);
	num = (turn_u32(&t), turn_u64(&t));
	for (uint64_t i = 0; i < num && cursor_ok(&t.in); i++) {
		turn_name(&t);
		turn_u64(&t);
	}
	turn_atts(&t);
	turn_vars(&t);
	if (!buf_ok(out))
		return -ENOMEM;
	return cursor_ok(&t.in) ? 0 : -EBADMSG;
}

void blob_turn_values(uint8_t *to, const uint8_t *from, uint64_t num, uint32_t size)
{
	uint64_t wide;
	uint32_t narrow;
	uint16_t half;

	switch (size) {
	case 8:
		for (uint64_t i = 0; i < num; i++) {
			memcpy(&wide, from + 8 * i, 8);
			wide = __builtin_bswap64(wide);
			memcpy(to + 8 * i, &wide, 8);
		}
		break;
	case 4:
		for (uint64_t i = 0; i < num; i++) {
			memcpy(&narrow, from + 4 * i, 4);
			narrow = __builtin_bswap32(narrow);
			memcpy(to + 4 * i, &narrow, 4);
		}
		break;
	case 2:
		for (uint64_t i = 0; i < num; i++) {
			memcpy(&half, from + 2 * i, 2);
			half = __builtin_bswap16(half);
			memcpy(to + 2 * i, &half, 2);
		}
		break;
	default: memcpy(to, from, (size_t)(num * size));
	}
}
