/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Homes: how evenly names, files and domains are spread, and that the functions are what they were: stores on disk rely on them.
 * The expected homes were computed by a Python program from the definitions of SplitMix64 and FNV-1a.
 *
 * Evenness. When m things fall on n nodes at random, with m/n = k of them on each on average, the fullest has about
 * k + sqrt(2 k ln n): below twice the mean when k is above 2 ln n, which is 18 for 8192 nodes. Here k is 64 or more.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/index/state.h"
#include "format/place/place.h"
#include "format/place/shown.h"
#include "format/place/places.h"
#include "tests/lib/tap.h"

#define PER_NODE 64u

static const uint32_t node_counts[] = { 4, 64, 1024, 8192 };

/* What the i-th thing's home is. */
typedef uint32_t home_fn(uint64_t i, uint32_t num_nodes);

static void check_spread(const char *what, home_fn *home, uint64_t num_things)
{
	for (size_t c = 0; c < sizeof node_counts / sizeof node_counts[0]; c++) {
		uint32_t n = node_counts[c], *count = calloc(n, sizeof *count), fullest = 0, outside = 0;
		uint64_t num = num_things ? num_things : (uint64_t)n * PER_NODE;

		for (uint64_t i = 0; i < num; i++) {
			uint32_t node = home(i, n);

			if (node < n)
				fullest = ++count[node] > fullest ? count[node] : fullest;
			else
				outside++;
		}
		ok(outside == 0 && (uint64_t)fullest * n <= 2 * num,
			"%s: %" PRIu64 " on %u nodes: fullest %u, mean %.1f", what, num, n, fullest, (double)num / n);
		free(count);
	}
}

/* One shared directory: rank.000000, rank.000001, ... */
static uint32_t name_in_one_directory(uint64_t i, uint32_t n)
{
	char name[32];

	snprintf(name, sizeof name, "rank.%06" PRIu64, i);
	return place_name(STATE_ROOT_INO, name, n);
}

/* A directory for each rank, with the same names in it. */
static uint32_t same_name_in_many(uint64_t i, uint32_t n)
{
	return place_name(2 + i / 4,
		i % 4 == 0   ? "restart.nc"
		: i % 4 == 1 ? "history.nc"
		: i % 4 == 2 ? "log"
			     : "x",
		n);
}

static uint32_t name_of_one_byte(uint64_t i, uint32_t n)
{
	char name[3] = { (char)('!' + i % 90), (char)('0' + i / 90 % 40), '\0' };

	if (name[0] == '/')
		name[0] = '~';
	return place_name(2 + i / 3600, name, n);
}

/* One shared file, from front to back. */
static uint32_t domain_of_one_file(uint64_t i, uint32_t n)
{
	return place_domain(UINT64_C(3) << PLACE_INO_SHIFT | 7, i * PLACE_DOMAIN_SIZE, PLACE_DOMAIN_SIZE, n);
}

/* Many shared files of one domain each, made one after the other by one node. */
static uint32_t first_domain_of_many(uint64_t i, uint32_t n)
{
	return place_domain(place_first_ino(2) + i, 5, PLACE_DOMAIN_SIZE, n);
}

/* Backing files with numbers in a row, as they are when the backing directory's are used unhashed. */
static uint32_t backing_file(uint64_t i, uint32_t n)
{
	return place_ino(STATE_BACKING_INO_BIT | (1000000 + i), n);
}

static uint32_t backing_file_with_steps(uint64_t i, uint32_t n)
{
	return place_ino(STATE_BACKING_INO_BIT | i << 12, n);
}

static uint32_t new_file_of_each_node(uint64_t i, uint32_t n)
{
	return place_ino(place_first_ino((uint32_t)(i % n)) + i / n, n);
}

static uint32_t directory_times(uint64_t i, uint32_t n)
{
	return place_directory_times(2 + i, n);
}

/* Each node's own part of one file, of any size: no node is home to more than its share of consecutive domains. */
static void test_consecutive(void)
{
	for (size_t c = 0; c < sizeof node_counts / sizeof node_counts[0]; c++) {
		uint32_t n = node_counts[c];
		bool next = true;

		for (uint64_t i = 0; i < 3ull * n; i++)
			next = next && domain_of_one_file(i + 1, n) == (domain_of_one_file(i, n) + 1) % n;
		ok(next, "consecutive domains are on consecutive nodes of %u", n);
	}
	is_u64(place_domain(77, 999, 1000, 8), place_domain(77, 0, 1000, 8), "a domain has one home");
	is_u64(place_domain(77, 1000, 1000, 8), (place_domain(77, 0, 1000, 8) + 1) % 8,
		"the next begins where it ends");
	is_u64(place_domain(77, INT64_MAX, 1, 1), 0, "one node is home to all");
}

static void test_numbers(void)
{
	is_u64(place_first_ino(0), STATE_ROOT_INO + 1, "node 0 counts as one node alone does");
	is_u64(place_first_ino(5), UINT64_C(5) << 40, "another from its own range on");
	is_u64(place_ino(STATE_ROOT_INO, 8), 0, "the root is node 0's");
	is_u64(place_ino(place_first_ino(0), 8), 0, "so are its own");
	is_u64(place_ino(place_first_ino(7), 8), 7, "the first of node 7");
	is_u64(place_ino(place_first_ino(8) - 1, 8), 7, "and its last");
	is_u64(place_ino(place_first_ino(PLACE_NODES_MAX - 1), PLACE_NODES_MAX), PLACE_NODES_MAX - 1, "the last node");
	ok(!(place_first_ino(PLACE_NODES_MAX - 1) & STATE_BACKING_INO_BIT), "is no backing file's number");
}

/* Below 2^53, each once, and back again where they are no hash. */
static void test_shown(void)
{
	const uint64_t inodes[] = { 1, 2, 3, (1ull << 36) - 1, place_first_ino(1), place_first_ino(1) + 1,
		place_first_ino(7), place_first_ino(PLACE_NODES_MAX - 1), STATE_BACKING_INO_BIT | 2,
		STATE_BACKING_INO_BIT | 12, STATE_BACKING_INO_BIT | UINT32_MAX,
		STATE_BACKING_INO_BIT | ((1ull << 51) - 1) };
	const size_t num = sizeof(inodes) / sizeof(inodes[0]);
	unsigned int wrong = 0, same = 0, folded = 0;
	uint64_t back = 0;

	for (size_t i = 0; i < num; i++) {
		uint64_t shown = shown_number(inodes[i]);

		wrong += shown >= 1ull << 53 || (uint64_t)(double)shown != shown || !shown_inode(shown, &back) ||
			 back != inodes[i];
		for (size_t j = 0; j < i; j++)
			same += shown_number(inodes[j]) == shown;
	}
	is_u64(wrong, 0, "numbers as programs see them: below 2^53, and back again");
	is_u64(same, 0, "of each file another one");
	is_u64(shown_number(STATE_BACKING_INO_BIT | 4711), 4711, "a backing file has the number that it has there");
	is_u64(shown_number(0), 0, "nothing stays nothing");
	for (uint64_t i = 0; i < 1000; i++) { /* such as Lustre has */
		uint64_t shown = shown_number(STATE_BACKING_INO_BIT | 1ull << 60 | i << 17);

		folded += shown >> 51 == 1 && !shown_inode(shown, &back);
		for (uint64_t j = 0; j < i; j++)
			same += shown_number(STATE_BACKING_INO_BIT | 1ull << 60 | j << 17) == shown;
	}
	is_u64(folded, 1000, "higher numbers are folded into a range of their own");
	is_u64(same, 0, "apart from each other");
	ok(!shown_inode(1ull << 53, &back), "what no file has");
}

static void test_known(void)
{
	is_u64(place_name(1ull, "a", 4), 0, "home of a name");
	is_u64(place_name(1ull, "rank.000017", 1024), 166, "home of a name");
	is_u64(place_name(5497558138880ull, "\xc3\xa4 b", 8192), 6853, "home of a name");
	is_u64(place_ino(9223372036854775815ull, 64), 59, "home of a backing file");
	is_u64(place_ino(9223372036978232597ull, 8192), 3442, "home of a backing file");
	is_u64(place_directory_times(1ull, 64), 54, "home of times");
	is_u64(place_directory_times(77ull, 8192), 7265, "home of times");
	is_u64(place_domain(7ull, 0ull, PLACE_DOMAIN_SIZE, 64), 4, "home of a domain");
	is_u64(place_domain(3298534883335ull, 1099511627776ull, PLACE_DOMAIN_SIZE, 8192), 6546, "home of a domain");
}

#define BUCKETS 65536u

/* A server's own names use its whole table. */
static void test_buckets(void)
{
	const uint32_t n = 64, server = 17;
	uint8_t *used = calloc(BUCKETS, 1);
	uint32_t num = 0, outside = 0;
	char name[32];

	for (uint32_t i = 0, found = 0; found < 3 * BUCKETS; i++) {
		snprintf(name, sizeof name, "rank.%06" PRIu32, i);
		if (place_name(STATE_ROOT_INO, name, n) != server)
			continue;
		uint32_t bucket = place_name_bucket(STATE_ROOT_INO, name, BUCKETS);

		found++;
		if (bucket < BUCKETS)
			num += !used[bucket]++;
		else
			outside++;
	}
	/* At random 1 - exp(-3) of them are: 62 300. */
	ok(outside == 0 && num > 60000, "the names of one server of 64 are in %" PRIu32 " of its buckets", num);
	free(used);
}

static void test_places(void)
{
	const struct share_extent e = { .off = 0x0102030405060708ull,
		.segment_off = 9,
		.time_usec = 10,
		.stamp = 11,
		.len = 12,
		.node = 13,
		.segment = 14,
		.crc = 15,
		.kind = EXTENT_LOG,
		.whole = true };
	static const uint8_t bytes[PLACES_BYTES] = { 8, 7, 6, 5, 4, 3, 2, 1,
		9, [16] = 10, [24] = 11, [32] = 12, [36] = 13, [40] = 14, [44] = 15, [48] = EXTENT_LOG, [49] = 1 };
	struct share_extent got = { 0 };
	struct buf b BUF_CLEANUP = { 0 };

	places_put(&b, &e);
	ok(b.len == sizeof(bytes) && memcmp(b.data, bytes, sizeof(bytes)) == 0, "a place as bytes");
	struct cursor c = cursor_make(bytes, sizeof(bytes));
	ok(places_get(&c, &got) && got.off == e.off && got.segment_off == 9 && got.time_usec == 10 && got.stamp == 11,
		"where and when");
	ok(got.len == 12 && got.node == 13 && got.segment == 14 && got.crc == 15 && got.kind == EXTENT_LOG && got.whole,
		"whose and what");
	c = cursor_make(bytes, sizeof(bytes) - 1);
	ok(!places_get(&c, &got), "one that is cut short is none");
	c = cursor_make((const uint8_t[PLACES_BYTES]){ 0 }, PLACES_BYTES);
	ok(!places_get(&c, &got), "nor one of no bytes");
}

int main(void)
{
	test_places();
	test_buckets();
	test_known();
	test_numbers();
	test_shown();
	test_consecutive();
	check_spread("names of one directory", name_in_one_directory, 0);
	check_spread("the same names in many directories", same_name_in_many, 0);
	check_spread("short names", name_of_one_byte, 0);
	check_spread("domains of one file", domain_of_one_file, 0);
	check_spread("one shared file of 64 TiB", domain_of_one_file, (UINT64_C(1) << 40) / PLACE_DOMAIN_SIZE * 64);
	check_spread("first domains of many files", first_domain_of_many, 0);
	check_spread("backing files", backing_file, 0);
	check_spread("backing files, numbers with steps", backing_file_with_steps, 0);
	check_spread("new files", new_file_of_each_node, 0);
	check_spread("times of directories", directory_times, 0);
	return done_testing();
}
