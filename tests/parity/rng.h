/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_PARITY_RNG_H
#define TESTS_PARITY_RNG_H

/* Pseudo-random numbers that depend on nothing but the seed: splitmix64 (Steele, Lea, Flood, 2014). One thread each. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct rng {
	uint64_t state;
};

static inline uint64_t rng_next(struct rng *r)
{
	uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* 0 .. n - 1; 0 for n = 0. */
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
	return n ? rng_next(r) % n : 0;
}

/* True in percent of all cases. */
static inline int rng_percent(struct rng *r, unsigned int percent)
{
	return rng_below(r, 100) < percent;
}

/* len bytes, none of them zero, so that a hole is never taken for data. */
static inline void rng_fill(struct rng *r, void *buf, size_t len)
{
	unsigned char *p = buf;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = rng_next(r) | UINT64_C(0x0101010101010101);

		memcpy(p + i, &v, len - i < 8 ? len - i : 8);
	}
}

#endif
