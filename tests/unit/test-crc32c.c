/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Expected values: RFC 3720 B.4, and a bit-by-bit CRC computed elsewhere (Python) for the others. */
#include "format/base/crc32c.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/tap.h"

static void test_vectors(void)
{
	/* RFC 3720 B.4: a SCSI read (10) command PDU */
	static const uint8_t pdu[48] = {
		0x01,
		0xc0,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x14,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x04,
		0x00,
		0x00,
		0x00,
		0x00,
		0x14,
		0x00,
		0x00,
		0x00,
		0x18,
		0x28,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x02,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
		0x00,
	};
	uint8_t zeros[32] = { 0 }, ones[32], up[32], down[32];

	for (int i = 0; i < 32; i++) {
		ones[i] = 0xff;
		up[i] = (uint8_t)i;
		down[i] = (uint8_t)(31 - i);
	}
	is_u64(crc32c(0, "123456789", 9), 0xe3069283, "check value");
	is_u64(crc32c(0, zeros, 32), 0x8a9136aa, "RFC 3720: zeros");
	is_u64(crc32c(0, ones, 32), 0x62a8ab43, "RFC 3720: ones");
	is_u64(crc32c(0, up, 32), 0x46dd794e, "RFC 3720: incrementing");
	is_u64(crc32c(0, down, 32), 0x113fdb5c, "RFC 3720: decrementing");
	is_u64(crc32c(0, pdu, 48), 0xd9963a56, "RFC 3720: read command");
	is_u64(crc32c(0x12345678, NULL, 0), 0x12345678, "nothing changes nothing");
}

/* A file of 100 bytes: "hello" at 10 and "world" at 50; the order does not matter. By a bit-by-bit CRC in Python. */
static void test_parts(void)
{
	uint32_t hello = crc32c_part(crc32c(0, "hello", 5), 5, 85), world = crc32c_part(crc32c(0, "world", 5), 5, 45);
	uint64_t far = UINT64_C(1) << 40;

	is_u64(crc32c_of_parts(hello ^ world, 100), 0x19838ea5, "two parts and zeros around them");
	is_u64(crc32c_of_parts(0, 100), crc32c_zeros(0, 100), "no part");
	is_u64(crc32c_of_parts(crc32c_part(crc32c(0, "abc", 3), 3, 0), 3), crc32c(0, "abc", 3), "one that is all");
	is_u64(crc32c_of_parts(crc32c_part(crc32c(0, "abc", 3), 3, far), far + 3),
		crc32c_zeros(crc32c(0, "abc", 3), far), "a long tail of zeros");
}

static void test_combine(void)
{
	static const char a[] = "The quick brown fox ", b[] = "jumps over the lazy dog";

	is_u64(crc32c(crc32c(0, a, strlen(a)), b, strlen(b)), 0x22620404, "in two pieces");
	is_u64(crc32c_combine(0x46675bb9, 0x1fd92d92, strlen(b)), 0x22620404, "combined");
	is_u64(crc32c_combine(0x46675bb9, 0, 0), 0x46675bb9, "combined with nothing");
	is_u64(crc32c_zeros(crc32c(0, "abc", 3), 1000), 0x290204d6, "a thousand zeros");
	is_u64(crc32c_zeros(0, 100000), 0xe5f88f3d, "only zeros");
	is_u64(crc32c_zeros(7, 0), 7, "no zeros");
	/* the table of powers has the period 2^31 - 1 bits; bytes past 2^28 wrap around in it */
	is_u64(crc32c_zeros(crc32c_zeros(5, UINT64_C(1) << 62), UINT64_C(3) << 61), crc32c_zeros(5, UINT64_C(5) << 61),
		"very long runs add up");
	is_u64(crc32c_zeros(0xdeadbeef, (UINT64_C(1) << 31) - 1), 0xdeadbeef, "2^31 - 1 zero bytes are a full turn");
}

static void test_lengths(void)
{
	static uint8_t buf[5000];
	unsigned int bad = 0, seed = 1;

	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)rand_r(&seed);
	for (size_t len = 0; len < sizeof(buf); len += 37) {
		uint32_t whole = crc32c(0, buf, len);

		for (size_t cut = 0; cut <= len; cut += 211)
			bad += crc32c_combine(crc32c(0, buf, cut), crc32c(0, buf + cut, len - cut), len - cut) != whole;
	}
	is_u64(bad, 0, "combining is the same as going on, at every cut");
	memset(buf, 0, sizeof(buf));
	for (size_t len = 0; len < sizeof(buf); len += 13)
		bad += crc32c_zeros(99, len) != crc32c(99, buf, len);
	is_u64(bad, 0, "zeros are the same as zero bytes");
}

int main(void)
{
	test_vectors();
	test_combine();
	test_parts();
	test_lengths();
	return done_testing();
}
