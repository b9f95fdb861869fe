/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Expected bytes: LEB128 and zigzag examples from the DWARF and Protocol Buffers documents. */
#include "format/base/cursor.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/tap.h"

#define BYTES_ARE(b, ...)                                  \
	((b)->len == sizeof((uint8_t[]){ __VA_ARGS__ }) && \
		memcmp((b)->data, (uint8_t[]){ __VA_ARGS__ }, sizeof((uint8_t[]){ __VA_ARGS__ })) == 0)

static void test_bytes_written(void)
{
	BUF_CLEANUP struct buf b = { 0 };

	buf_u8(&b, 1);
	buf_u16(&b, 0x0302);
	buf_u32(&b, 0x07060504);
	buf_u64(&b, 0x0f0e0d0c0b0a0908);
	ok(BYTES_ARE(&b, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), "integers are little-endian");
	buf_poke_u32(&b, 3, 0xaabbccdd);
	ok(b.data[2] == 3 && b.data[3] == 0xdd && b.data[6] == 0xaa && b.data[7] == 8, "poke");
	buf_reset(&b);
	buf_u64_be(&b, 0x0102030405060708);
	ok(BYTES_ARE(&b, 1, 2, 3, 4, 5, 6, 7, 8), "big-endian");
	buf_reset(&b);
	buf_varint(&b, 624485);
	ok(BYTES_ARE(&b, 0xe5, 0x8e, 0x26), "LEB128 of 624485");
	buf_reset(&b);
	buf_varint(&b, UINT64_MAX);
	ok(BYTES_ARE(&b, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1), "LEB128 of 2^64 - 1");
	buf_reset(&b);
	buf_svarint(&b, -1);
	buf_svarint(&b, 1);
	buf_svarint(&b, -2);
	buf_svarint(&b, INT64_C(-2147483648));
	ok(BYTES_ARE(&b, 1, 2, 3, 255, 255, 255, 255, 15), "zigzag");
	buf_reset(&b);
	buf_str(&b, "ab");
	buf_zeros(&b, 2);
	ok(BYTES_ARE(&b, 2, 0, 'a', 'b', 0, 0), "string and zeros");
}

static void test_round_trip(void)
{
	static const uint64_t values[] = { 0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_MAX / 2, UINT64_MAX };
	BUF_CLEANUP struct buf b = { 0 };
	struct cursor c;
	unsigned int bad = 0;

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		buf_varint(&b, values[i]);
		buf_svarint(&b, (int64_t)values[i]);
		buf_u64(&b, values[i]);
		buf_u64_be(&b, values[i]);
	}
	ok(buf_ok(&b), "written");
	c = cursor_make(b.data, b.len);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		bad += cursor_varint(&c) != values[i];
		bad += cursor_svarint(&c) != (int64_t)values[i];
		bad += cursor_u64(&c) != values[i];
		bad += cursor_u64_be(&c) != values[i];
	}
	ok(bad == 0 && cursor_ok(&c) && cursor_left(&c) == 0, "read back");
	cursor_u8(&c);
	ok(!cursor_ok(&c), "and nothing more");
}

static void test_strings(void)
{
	static const uint8_t in[] = { 3, 0, 'a', 'b', 'c', 2, 0, 'x', 0, 9, 0, 'y' };
	struct cursor c = cursor_make(in, sizeof(in));
	const uint8_t *p;
	char out[4];
	size_t len;

	cursor_str(&c, out, sizeof(out));
	is_str(out, "abc", "a string that just fits");
	p = cursor_blob(&c, &len);
	ok(p == in + 7 && len == 2, "a blob may hold a NUL");
	p = cursor_blob(&c, &len);
	ok(!p && len == 0 && !cursor_ok(&c) && cursor_left(&c) == 0, "a blob longer than what is left");
	c = cursor_make(in, sizeof(in));
	cursor_str(&c, out, 3);
	ok(!cursor_ok(&c) && !*out, "a string that does not fit");
	c = cursor_make(in + 5, 4);
	cursor_str(&c, out, sizeof(out));
	ok(!cursor_ok(&c) && !*out, "a string with a NUL");
	c = cursor_make(in, sizeof(in));
	cursor_str(&c, NULL, 0);
	ok(!cursor_ok(&c), "no room at all");
}

static void test_sticky(void)
{
	static const uint8_t endless[] = { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00 };
	static const uint8_t too_big[] = { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02 };
	struct cursor c = cursor_make(endless, sizeof(endless));
	BUF_CLEANUP struct buf b = { 0 };

	ok(cursor_varint(&c) == 0 && !cursor_ok(&c), "a varint of eleven bytes");
	c = cursor_make(too_big, sizeof(too_big));
	ok(cursor_varint(&c) == 0 && !cursor_ok(&c), "a varint of 65 bits");
	c = cursor_make(endless, 3);
	ok(cursor_varint(&c) == 0 && !cursor_ok(&c), "a varint cut off");
	c = cursor_make(endless, 3);
	ok(cursor_u32(&c) == 0 && cursor_u8(&c) == 0 && cursor_left(&c) == 0, "after a failure all reads give 0");
	c = cursor_make(NULL, 0);
	ok(cursor_ok(&c) && cursor_bytes(&c, 0) && cursor_ok(&c), "nothing can be read from nothing");
	ok(!cursor_bytes(&c, SIZE_MAX) && !cursor_ok(&c), "a length of all ones");
	c = cursor_make(endless, 3);
	cursor_fail(&c);
	ok(!cursor_ok(&c), "the decoder's own judgement");
	buf_blob(&b, endless, 65536);
	ok(!buf_ok(&b), "a blob too long for its length");
	buf_reset(&b);
	buf_u8(&b, 1);
	buf_zeros(&b, SIZE_MAX);
	buf_u8(&b, 1);
	ok(!buf_ok(&b) && b.len == 1, "more than there is memory");
	buf_free(&b);
	buf_free(NULL);
	ok(buf_ok(&b) && !b.data && !b.len, "freed is empty");
}

/* Nothing to compare with: the sanitizers judge. */
static void test_noise(void)
{
	unsigned int seed = 3;

	for (int round = 0; round < 20000; round++) {
		size_t len = (size_t)rand_r(&seed) % 40, blob_len;
		uint8_t *in = malloc(len ? len : 1);
		struct cursor c = cursor_make(in, len);
		char text[8];

		for (size_t i = 0; i < len; i++)
			in[i] = (uint8_t)(rand_r(&seed) % 3 ? rand_r(&seed) % 6 : rand_r(&seed));
		while (cursor_ok(&c)) {
			switch (rand_r(&seed) % 8) {
			case 0: cursor_u8(&c); break;
			case 1: cursor_u16(&c); break;
			case 2: cursor_u32(&c); break;
			case 3: cursor_u64_be(&c); break;
			case 4: cursor_varint(&c); break;
			case 5: cursor_svarint(&c); break;
			case 6: cursor_str(&c, text, sizeof(text)); break;
			case 7: cursor_blob(&c, &blob_len); break;
			}
		}
		free(in);
	}
	ok(true, "noise is survived");
}

int main(void)
{
	test_bytes_written();
	test_round_trip();
	test_strings();
	test_sticky();
	test_noise();
	return done_testing();
}
