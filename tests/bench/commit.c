/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * commit FILE THERE NEW BLOCK STEP: writes THERE blocks and syncs, then NEW ones between them, and tells how long the sync of those takes.
 * Blocks lie STEP blocks apart, so that none touches another, and are written in an order in which no block follows its neighbour.
 */
#include <fcntl.h>

#include "tests/bench/bench.h"

struct blocks {
	const char *path;
	int fd;
	size_t bytes;
	uint64_t num, step, at, jump;
	char *buf;
};

static void write_some(struct blocks *b, uint64_t num)
{
	for (; num > 0; num--, b->at = (b->at + b->jump) % b->num)
		bench_pwrite(b->fd, b->buf, b->bytes, b->at * b->step * b->bytes, b->path);
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
	uint64_t there, new;
	double first, second;
	struct blocks b = { 0 };

	bench_usage(argc, 5, "commit FILE THERE NEW BLOCK STEP");
	there = bench_number(argv[2], 0);
	new = bench_number(argv[3], 1);
	b = (struct blocks){ .path = argv[1], .num = there + new, .jump = bench_step(there + new) };
	b.bytes = (size_t)bench_number(argv[4], 1);
	b.step = bench_number(argv[5], 2);
	b.buf = calloc(1, b.bytes);
	if (!b.buf)
		bench_die("calloc", b.path);
	b.fd = open(b.path, O_WRONLY | O_CREAT, 0644);
	if (b.fd < 0)
		bench_die("open", b.path);
	write_some(&b, there);
	first = sync_all(&b);
	write_some(&b, new);
	second = sync_all(&b);
	if (close(b.fd) < 0)
		bench_die("close", b.path);
	printf("{\"seconds\": %.6f, \"first_seconds\": %.6f}\n", second, first);
	free(b.buf);
	return 0;
}
