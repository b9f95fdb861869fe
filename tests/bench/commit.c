/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * commit FILE THERE NEW BLOCK STEP SPREAD: writes THERE blocks and syncs, then NEW ones, and tells how long the sync of those takes. THERE is not
 * below NEW. Blocks lie STEP blocks apart, so that none touches another, and are written in an order in which no block follows its
 * neighbour. SPREAD 0: the new ones lie between the first NEW of the others, however many more there are behind; 1: among all.
 */
#include <fcntl.h>
#include <stdbool.h>

#include "tests/bench/bench.h"

struct blocks {
	const char *path;
	int fd;
	size_t bytes;
	uint64_t there, new, step;
	bool spread;
	char *buf;
};

/* The place of the i-th block in the order of writing; the new ones come behind those that are there. */
static uint64_t place_of(const struct blocks *b, uint64_t i)
{
	uint64_t all = b->there + b->new, k;

	if (b->spread)
		return i * bench_step(all) % all;
	if (i >= b->there)
		return (i - b->there) * bench_step(b->new) % b->new * 2 + 1;
	k = i * bench_step(b->there) % b->there;
	return k < b->new ? 2 * k : b->new + k;
}

static void write_some(struct blocks *b, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		bench_pwrite(b->fd, b->buf, b->bytes, place_of(b, i) * b->step * b->bytes, b->path);
}

/* Seconds. */
static double sync_all(const struct blocks *b)
{
	double begin = bench_now();

	if (fsync(b->fd) < 0)
		bench_die("fsync", b->path);
	return bench_now() - begin;
}

int main(int argc, char **argv)
{
	double first, second;
	struct blocks b = { 0 };

	bench_usage(argc, 6, "commit FILE THERE NEW BLOCK STEP SPREAD");
	b.path = argv[1];
	b.new = bench_number(argv[3], 1);
	b.there = bench_number(argv[2], b.new);
	b.bytes = (size_t)bench_number(argv[4], 1);
	b.step = bench_number(argv[5], 2);
	b.spread = bench_number(argv[6], 0);
	b.buf = calloc(1, b.bytes);
	if (!b.buf)
		bench_die("calloc", b.path);
	b.fd = open(b.path, O_WRONLY | O_CREAT, 0644);
	if (b.fd < 0)
		bench_die("open", b.path);
	write_some(&b, 0, b.there);
	first = sync_all(&b);
	write_some(&b, b.there, b.there + b.new);
	second = sync_all(&b);
	if (close(b.fd) < 0)
		bench_die("close", b.path);
	printf("{\"seconds\": %.6f, \"first_seconds\": %.6f}\n", second, first);
	free(b.buf);
	return 0;
}
