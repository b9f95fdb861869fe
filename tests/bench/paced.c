/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * paced FILE BYTES RATE: an application that produces so many bytes a second and writes them in pieces of 1 MiB, then syncs. A
 * piece that is late is written at once, so that what was lost can be made good, as far as the file system is fast enough.
 * Prints the time of all, with and without the sync, and what the single writes took.
 */
#include <fcntl.h>

#include "tests/bench/bench.h"

#define PIECE_BYTES (1u << 20)

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void sleep_until(double when)
{
	struct timespec ts = { .tv_sec = (time_t)when, .tv_nsec = (long)((when - (double)(time_t)when) * 1e9) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static void write_pieces(int fd, const char *path, uint64_t pieces, double interval, double *latencies)
{
	double begin = bench_now(), start;
	char *buf = malloc(PIECE_BYTES);

	if (!buf)
		bench_die("malloc", path);
	memset(buf, 0x5a, PIECE_BYTES);
	for (uint64_t i = 0; i < pieces; i++) {
		sleep_until(begin + (double)i * interval);
		start = bench_now();
		bench_pwrite(fd, buf, PIECE_BYTES, i * PIECE_BYTES, path);
		latencies[i] = bench_now() - start;
	}
	free(buf);
}

int main(int argc, char **argv)
{
	double begin, written, *latencies, sum = 0;
	uint64_t pieces, rate;
	int fd;

	bench_usage(argc, 3, "paced FILE BYTES RATE");
	pieces = bench_number(argv[2], PIECE_BYTES) / PIECE_BYTES;
	rate = bench_number(argv[3], 1);
	latencies = calloc(pieces, sizeof(*latencies));
	if (!latencies)
		bench_die("calloc", argv[1]);
	fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0)
		bench_die("open", argv[1]);
	begin = bench_now();
	write_pieces(fd, argv[1], pieces, (double)PIECE_BYTES / (double)rate, latencies);
	written = bench_now() - begin;
	if (fsync(fd) < 0)
		bench_die("fsync", argv[1]);
	printf("{\"seconds\": %.6f, \"write_seconds\": %.6f, ", bench_now() - begin, written);
	if (close(fd) < 0)
		bench_die("close", argv[1]);
	qsort(latencies, pieces, sizeof(*latencies), by_value);
	for (uint64_t i = 0; i < pieces; i++)
		sum += latencies[i];
	printf("\"mean_usec\": %.1f, \"median_usec\": %.1f, \"p99_usec\": %.1f, \"max_usec\": %.1f}\n",
		sum / (double)pieces * 1e6, latencies[pieces / 2] * 1e6, latencies[pieces * 99 / 100] * 1e6,
		latencies[pieces - 1] * 1e6);
	free(latencies);
	return 0;
}
