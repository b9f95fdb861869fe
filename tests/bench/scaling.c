/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * scaling [PER_NODE]: a counted run of format/place for docs/scaling.md. For several numbers of nodes, things of a job are given to their
 * homes, PER_NODE files or records for each node, and the fullest node is compared with the mean. Prints a table in Markdown;
 * status 1: some node has more than twice the mean of something that there is enough of.
 * A second table has the messages of the home of one file that all nodes write and commit, by the rule of fs/job/tell.c.
 */
#include <inttypes.h>
#include <stdbool.h>

#include "format/index/state.h"
#include "format/place/place.h"
#include "tests/bench/bench.h"

#define RECORD    47008u
#define DOMAIN    PLACE_DOMAIN_SIZE
#define WANTED    2.0
#define DEFAULT   64u
#define DIRECTORY 77u

static const uint32_t node_counts[] = { 4, 64, 1024, 8192 };

struct tally {
	uint64_t *of; /* each node's */
	uint32_t nodes;
	uint64_t per_node;
};

static void add(struct tally *t, uint32_t node, uint64_t what)
{
	t->of[node] += what;
}

/* The same on every machine. */
static uint64_t pseudo_random(uint64_t i)
{
	i = (i + 1) * 0x9E3779B97F4A7C15ull;
	i = (i ^ i >> 31) * 0xBF58476D1CE4E5B9ull;
	return i ^ i >> 29;
}

static uint64_t file_of(const struct tally *t, uint64_t i)
{
	return place_first_ino((uint32_t)(i % t->nodes)) + i / t->nodes;
}

static void one_directory(struct tally *t)
{
	char name[32];

	for (uint64_t i = 0; i < t->per_node * t->nodes; i++) {
		snprintf(name, sizeof(name), "rank.%08" PRIu64, i);
		add(t, place_name(DIRECTORY, name, t->nodes), 1);
	}
}

static void own_directories(struct tally *t)
{
	char name[32];

	for (uint64_t i = 0; i < t->per_node * t->nodes; i++) {
		snprintf(name, sizeof(name), "step.%" PRIu64, i % t->per_node);
		add(t, place_name(DIRECTORY + i / t->per_node, name, t->nodes), 1);
	}
}

static void backing_files(struct tally *t)
{
	for (uint64_t i = 0; i < t->per_node * t->nodes; i++)
		add(t, place_ino(STATE_BACKING_INO_BIT | (1000000 + i), t->nodes), 1);
}

/* Who is home to records that lie one after the other: as strided or segmented writers leave them. */
static void records(struct tally *t, uint64_t ino, uint64_t num)
{
	for (uint64_t k = 0; k < num; k++)
		add(t, place_domain(ino, k * RECORD, DOMAIN, t->nodes), 1);
}

static void bytes(struct tally *t, uint64_t ino, uint64_t size)
{
	for (uint64_t off = 0; off < size; off += DOMAIN)
		add(t, place_domain(ino, off, DOMAIN, t->nodes), size - off < DOMAIN ? size - off : DOMAIN);
}

/* As many records for each node as fill PER_NODE / 16 domains. */
static void extents_of_one_file(struct tally *t)
{
	records(t, file_of(t, 5), t->per_node / 16 * t->nodes * (DOMAIN / RECORD));
}

static void extents_of_many_files(struct tally *t)
{
	for (uint64_t i = 0; i < t->per_node * t->nodes; i++)
		records(t, file_of(t, i), pseudo_random(i) % 32 + 1);
}

static void drain_of_one_file(struct tally *t)
{
	bytes(t, file_of(t, 5), t->per_node * t->nodes / 16 * DOMAIN + DOMAIN / 3);
}

static void drain_of_many_files(struct tally *t)
{
	for (uint64_t i = 0; i < t->per_node * t->nodes; i++)
		bytes(t, file_of(t, i), pseudo_random(i) % (4 * DOMAIN));
}

static void drain_of_a_small_file(struct tally *t)
{
	bytes(t, file_of(t, 5), 64 * DOMAIN);
}

static const struct thing {
	const char *name;
	void (*count)(struct tally *t);
	bool wanted; /* false: there is less of it than nodes */
} things[] = {
	{ "entries of one shared directory, name servers", one_directory, true },
	{ "entries of a directory for each node, name servers", own_directories, true },
	{ "files found in the backing directory, homes", backing_files, true },
	{ "extents of one shared file, 47,008-byte records", extents_of_one_file, true },
	{ "extents of many shared files of 1 to 32 records", extents_of_many_files, true },
	{ "drain bytes of one shared file", drain_of_one_file, true },
	{ "drain bytes of many shared files up to 64 MiB", drain_of_many_files, true },
	{ "drain bytes of one shared file of 1 GiB", drain_of_a_small_file, false },
};

/* The fullest node's share, in means. */
static double fullest(const struct thing *thing, uint32_t nodes, uint64_t per_node)
{
	struct tally t = { .of = calloc(nodes, sizeof(*t.of)), .nodes = nodes, .per_node = per_node };
	uint64_t most = 0, sum = 0;

	if (!t.of)
		bench_die("calloc", "nodes");
	thing->count(&t);
	for (uint32_t i = 0; i < nodes; i++) {
		sum += t.of[i];
		most = t.of[i] > most ? t.of[i] : most;
	}
	free(t.of);
	return (double)most * nodes / (double)sum;
}

/* ---- commits of one file that all nodes have open */

/* All write, then all commit: who was told looks before it writes; a commit is told to who has looked since the last one. */
static uint64_t commit_step(bool *promised, uint32_t nodes)
{
	uint64_t messages = 0;

	for (uint32_t n = 0; n < nodes; n++) {
		messages += promised[n] ? 0 : 2;
		promised[n] = true;
	}
	for (uint32_t n = 0; n < nodes; n++) {
		messages += 4; /* STAMP, COMMITTED */
		for (uint32_t to = 0; to < nodes; to++) {
			messages += to != n && promised[to] ? 2 : 0;
			promised[to] = to == n;
		}
	}
	return messages;
}

static void print_commits(void)
{
	printf("\n| messages of the home, a step |");
	for (size_t c = 0; c < sizeof(node_counts) / sizeof(node_counts[0]); c++) {
		bool *promised = calloc(node_counts[c], sizeof(*promised));

		if (!promised)
			bench_die("calloc", "nodes");
		(void)commit_step(promised, node_counts[c]);
		printf(" %" PRIu64 " |", commit_step(promised, node_counts[c]));
		free(promised);
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	uint64_t per_node = argc > 1 ? bench_number(argv[1], 16) : DEFAULT;
	bool met = true;

	printf("| fullest node, in means |");
	for (size_t c = 0; c < sizeof(node_counts) / sizeof(node_counts[0]); c++)
		printf(" %" PRIu32 " nodes |", node_counts[c]);
	printf("\n|---|---|---|---|---|\n");
	for (size_t i = 0; i < sizeof(things) / sizeof(things[0]); i++) {
		printf("| %s |", things[i].name);
		for (size_t c = 0; c < sizeof(node_counts) / sizeof(node_counts[0]); c++) {
			double share = fullest(&things[i], node_counts[c], per_node);

			met = met && (!things[i].wanted || share <= WANTED);
			printf(" %.2f |", share);
		}
		printf("\n");
	}
	print_commits();
	return met ? 0 : 1;
}
