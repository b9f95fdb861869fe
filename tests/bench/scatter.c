/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * scatter FILE EXTENTS BLOCK PARTS PART: fills EXTENTS blocks of a file with one write a block, in an order in which no block follows
 * its neighbour: of each PARTS blocks in a row that with number PART. What a log makes of it are that many extents.
 */
#include <fcntl.h>

#include "tests/bench/bench.h"

int main(int argc, char **argv)
{
	uint64_t extents, step, parts, part;
	size_t block;
	double begin;
	char *buf;
	int fd;

	bench_usage(argc, 5, "scatter FILE EXTENTS BLOCK PARTS PART");
	extents = bench_number(argv[2], 1);
	block = (size_t)bench_number(argv[3], 8);
	parts = bench_number(argv[4], 1);
	part = bench_number(argv[5], 0);
	step = bench_step(extents);
	buf = calloc(1, block);
	if (!buf)
		bench_die("calloc", argv[1]);
	fd = open(argv[1], O_WRONLY | O_CREAT, 0644);
	if (fd < 0)
		bench_die("open", argv[1]);
	begin = bench_now();
	for (uint64_t i = 0, at = 0; i < extents; i++, at = (at + step) % extents) {
		memcpy(buf, &at, sizeof(at)); /* whoever reads it back can tell where it belongs */
		bench_pwrite(fd, buf, block, (at * parts + part) * block, argv[1]);
	}
	if (fsync(fd) < 0)
		bench_die("fsync", argv[1]);
	if (close(fd) < 0)
		bench_die("close", argv[1]);
	printf("{\"seconds\": %.6f, \"bytes\": %llu}\n", bench_now() - begin, (unsigned long long)(extents * block));
	free(buf);
	return 0;
}
