/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/place/place.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* SplitMix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xBF58476D1CE4E5B9ull;
	x ^= x >> 27;
	x *= 0x94D049BB133111EBull;
	return x ^ x >> 31;
}

/* FNV-1a, 64 bit (draft-eastlake-fnv). */
static uint64_t hash_name(const char *name)
{
	uint64_t h = 0xCBF29CE484222325ull;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 0x100000001B3ull;
	return h;
}

/* x, evenly spread over 2^64, as a number below n. */
static uint32_t spread(uint64_t x, uint32_t n)
{
	return (uint32_t)((unsigned __int128)x * n >> 64);
}

uint64_t place_first_ino(uint32_t node)
{
	return node == 0 ? STATE_ROOT_INO + 1 : (uint64_t)node << PLACE_INO_SHIFT;
}

uint32_t place_ino(uint64_t ino, uint32_t num_nodes)
{
	if (ino & STATE_BACKING_INO_BIT)
		return spread(mix(ino), num_nodes);
	return (uint32_t)(ino >> PLACE_INO_SHIFT);
}

uint32_t place_name(uint64_t parent, const char *name, uint32_t num_nodes)
{
	return spread(mix(mix(parent) ^ hash_name(name)), num_nodes);
}

uint32_t place_name_bucket(uint64_t parent, const char *name, uint32_t num_buckets)
{
	return place_name(parent, name, UINT32_MAX) % num_buckets;
}

uint32_t place_directory_times(uint64_t ino, uint32_t num_nodes)
{
	return spread(mix(ino + 1), num_nodes);
}

uint32_t place_domain(uint64_t ino, uint64_t off, uint64_t domain_size, uint32_t num_nodes)
{
	return (uint32_t)((spread(mix(ino), num_nodes) + off / domain_size) % num_nodes);
}

const char *place_node_text(uint32_t node, const char *host, char *out, size_t cap)
{
	if (*host)
		snprintf(out, cap, "node %" PRIu32 " (host %s)", node, host);
	else
		snprintf(out, cap, "node %" PRIu32, node);
	return out;
}
