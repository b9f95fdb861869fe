/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * CRC-32C. The bulk is ISA-L's, which picks the processor's instructions by itself.
 *
 * Combining is arithmetic of polynomials over GF(2) modulo P, in the reflected notation of the CRC (bit 31 is x^0).
 * To run n zero bytes through the register is to multiply it by x^(8n), a linear map. x^(8n) is a product of
 * x^(2^k), one factor for every bit set in 8n; and since P is (x + 1) times a primitive polynomial of degree 31,
 * x has the order 2^31 - 1, so x^(2^k) repeats with the period 31 and 31 constants serve every 64-bit length.
 */
#include "format/base/crc32c.h"

#include <isa-l.h>

#define CRC32C_POLY  0x82f63b78u
#define CRC32C_ONE   0x80000000u       /* the polynomial 1 */
#define CRC32C_CHUNK ((size_t)1 << 30) /* ISA-L counts bytes in an int */
#define POWER_PERIOD 31

/* x^(2^k) mod P, k = 0..30 */
static const uint32_t power_table[POWER_PERIOD] = { 0x40000000, 0x20000000, 0x08000000, 0x00800000, 0x00008000,
	0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7, 0x88e56f72, 0x74c360a4, 0xe4172b16,
	0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc, 0xfe7740e6, 0xf946610b, 0x3c204f8f, 0x538586e3,
	0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc, 0xd289cabe, 0xe94ca9bc, 0x05b74f3f, 0xa51e1f42 };

uint32_t crc32c(uint32_t crc, const void *buf, size_t len)
{
	const uint8_t *p = buf;

	crc = ~crc;
	while (len > 0) {
		size_t n = len < CRC32C_CHUNK ? len : CRC32C_CHUNK;

		crc = crc32_iscsi((unsigned char *)p, (int)n, crc);
		p += n;
		len -= n;
	}
	return ~crc;
}

/* a times b mod P */
static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; a; a <<= 1) {
		if (a & CRC32C_ONE)
			product ^= b;
		b = (b & 1) ? (b >> 1) ^ CRC32C_POLY : b >> 1;
	}
	return product;
}

/* x^(8 * len) mod P */
static uint32_t shift_of(uint64_t len)
{
	uint32_t shift = CRC32C_ONE;

	for (unsigned int k = 3; len; k++, len >>= 1)
		if (len & 1)
			shift = multiply(power_table[k % POWER_PERIOD], shift);
	return shift;
}

/* The initial and final inversions cancel out, because crc_b began with the register that crc_a's would shift in. */
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b)
{
	return multiply(shift_of(len_b), crc_a) ^ crc_b;
}

uint32_t crc32c_zeros(uint32_t crc, uint64_t len)
{
	return ~multiply(shift_of(len), ~crc);
}

/*
 * Without the inversions the CRC is linear: that of a file is the exclusive or of those of its parts, each in a file of
 * zeros, and leading zeros do not count. crc32c_zeros(0, len) is what the inversions alone make of len bytes.
 */
uint32_t crc32c_part(uint32_t crc, uint64_t len, uint64_t behind)
{
	return multiply(shift_of(behind), crc ^ crc32c_zeros(0, len));
}

uint32_t crc32c_of_parts(uint32_t sum, uint64_t size)
{
	return sum ^ crc32c_zeros(0, size);
}
