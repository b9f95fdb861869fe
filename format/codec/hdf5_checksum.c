/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The checksum of metadata: "lookup3" by Bob Jenkins (May 2006, public domain), its hashlittle() with 0 to begin with, byte by
 * byte. In a file of its own, so that a fuzz target can put another one in its place.
 */
#include "format/codec/hdf5_private.h"

static uint32_t rotate(uint32_t v, unsigned int bits)
{
	return v << bits | v >> (32 - bits);
}

static void mix(uint32_t v[3])
{
	static const uint8_t by[6] = { 4, 6, 8, 16, 19, 4 };

	for (unsigned int i = 0; i < 6; i++) {
		uint32_t *a = &v[i % 3], *b = &v[(i + 1) % 3], *c = &v[(i + 2) % 3];

		*a -= *c;
		*a ^= rotate(*c, by[i]);
		*c += *b;
	}
}

static void finish(uint32_t v[3])
{
	static const uint8_t by[7] = { 14, 11, 25, 16, 4, 14, 24 };

	for (unsigned int i = 0; i < 7; i++) {
		uint32_t *c = &v[(i + 2) % 3], *b = &v[(i + 1) % 3];

		*c ^= *b;
		*c -= rotate(*b, by[i]);
	}
}

uint32_t hdf5_checksum(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint32_t start = 0xdeadbeefu + (uint32_t)len;
	uint32_t v[3] = { start, start, start };

	while (len > 12) {
		for (unsigned int i = 0; i < 12; i++)
			v[i / 4] += (uint32_t)p[i] << 8 * (i % 4);
		mix(v);
		p += 12;
		len -= 12;
	}
	if (len == 0)
		return v[2];
	for (unsigned int i = 0; i < len; i++)
		v[i / 4] += (uint32_t)p[i] << 8 * (i % 4);
	finish(v);
	return v[2];
}

bool hdf5_checksum_is(const void *data, size_t len, uint32_t sum)
{
	return hdf5_checksum(data, len) == sum;
}

/*
 * Fletcher's sums of 16-bit words, high byte first, a byte left over being a high one; modulo 65535, where nothing but zeros has
 * the sum 0. HDF5 before 1.6.3 wrote each half with its bytes exchanged, and reads both.
 */
static uint32_t fletcher(const uint8_t *p, size_t len)
{
	uint64_t a = 0, b = 0;
	bool zeros = true;

	for (size_t i = 0; i < len; i += 2) {
		uint32_t word = (uint32_t)p[i] << 8 | (i + 1 < len ? p[i + 1] : 0);

		zeros = zeros && word == 0;
		a = (a + word) % 65535;
		b = (b + a) % 65535;
	}
	a = a == 0 && !zeros ? 65535 : a;
	b = b == 0 && !zeros ? 65535 : b;
	return (uint32_t)(b << 16 | a);
}

bool hdf5_fletcher_is(const void *data, size_t len, uint32_t sum)
{
	uint32_t is = fletcher(data, len);
	uint32_t exchanged = (is & 0x00ff00ffu) << 8 | (is & 0xff00ff00u) >> 8;

	return is == sum || exchanged == sum;
}
