/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

/*
 * What the small programs of this folder share: a clock, numbers of the command line, a way out. They are given paths and
 * numbers, do one thing, and print one line of JSON on standard output.
 */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Seconds of CLOCK_MONOTONIC. */
static inline double bench_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Says which call on which path failed, by errno, and ends with status 1. */
static inline void __attribute__((noreturn)) bench_die(const char *call, const char *path)
{
	fprintf(stderr, "%s: %s: %s\n", call, path, strerror(errno));
	exit(1);
}

/* A whole number from min to 2^62; anything else ends the program with status 2. */
static inline uint64_t bench_number(const char *text, uint64_t min)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || value < min || value > 1ull << 62) {
		fprintf(stderr, "'%s' is not a number from %llu on\n", text, (unsigned long long)min);
		exit(2);
	}
	return value;
}

static inline void bench_usage(int argc, int wanted, const char *synopsis)
{
	if (argc == wanted + 1)
		return;
	fprintf(stderr, "usage: %s\n", synopsis);
	exit(2);
}

/* All of it, or the end. */
static inline void bench_pwrite(int fd, const void *buf, size_t len, uint64_t off, const char *path)
{
	ssize_t n = pwrite(fd, buf, len, (off_t)off);

	if (n >= 0 && (size_t)n != len)
		errno = ENOSPC;
	if (n < 0 || (size_t)n != len)
		bench_die("pwrite", path);
}

/*
 * A permutation of [0, num): i * step mod num with a step near num / 1.618 that shares no factor with num, so that
 * neighbours in time are far apart in place, and the same on every machine.
 */
static inline uint64_t bench_step(uint64_t num)
{
	uint64_t step = (uint64_t)((double)num * 0.6180339887) | 1;

	for (;; step += 2) {
		uint64_t a = num, b = step % num;

		while (b) {
			uint64_t rest = a % b;

			a = b;
			b = rest;
		}
		if (a == 1)
			return step % num ? step % num : 1;
	}
}

#endif
