/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/lib/payload.h"

#include <stdlib.h>
#include <string.h>

void payload_fill(uint8_t *at, size_t len, uint32_t seed)
{
	uint64_t x = seed * 2654435761u + 88172645463325252u;

	for (size_t i = 0; i < len; i++) {
		if (i % 8 == 0) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
		}
		at[i] = (uint8_t)(x >> (8 * (i % 8)));
	}
}

bool payload_is(const uint8_t *at, size_t from, size_t len, size_t whole, uint32_t seed)
{
	uint8_t *want = malloc(whole);
	bool same;

	if (!want)
		abort();
	payload_fill(want, whole, seed);
	same = memcmp(at, want + from, len) == 0;
	free(want);
	return same;
}
