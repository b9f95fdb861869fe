/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * metadata DIR FILES BATCH: create + write 4 KiB + close of so many files in one directory, then stat of each, then unlink of
 * each; each pass is timed on its own. BATCH files at a time: these go through all three before the next are made.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/bench/bench.h"

#define DATA_BYTES 4096
#define NAME_BYTES 32

static void name_of(uint64_t i, char name[NAME_BYTES])
{
	snprintf(name, NAME_BYTES, "file.%08llu", (unsigned long long)i);
}

static void create_all(int dirfd, uint64_t first, uint64_t end)
{
	char name[NAME_BYTES], data[DATA_BYTES];

	memset(data, 0x5a, sizeof(data));
	for (uint64_t i = first; i < end; i++) {
		int fd;

		name_of(i, name);
		fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL, 0644);
		if (fd < 0)
			bench_die("create", name);
		bench_pwrite(fd, data, sizeof(data), 0, name);
		if (close(fd) < 0)
			bench_die("close", name);
	}
}

static void stat_all(int dirfd, uint64_t first, uint64_t end)
{
	char name[NAME_BYTES];
	struct stat st;

	for (uint64_t i = first; i < end; i++) {
		name_of(i, name);
		if (fstatat(dirfd, name, &st, 0) < 0)
			bench_die("stat", name);
		if (st.st_size == DATA_BYTES)
			continue;
		fprintf(stderr, "%s has %lld bytes\n", name, (long long)st.st_size);
		exit(1);
	}
}

static void unlink_all(int dirfd, uint64_t first, uint64_t end)
{
	char name[NAME_BYTES];

	for (uint64_t i = first; i < end; i++) {
		name_of(i, name);
		if (unlinkat(dirfd, name, 0) < 0)
			bench_die("unlink", name);
	}
}

int main(int argc, char **argv)
{
	double create = 0, stat = 0, unlink = 0;
	uint64_t files, batch;
	int dirfd;

	bench_usage(argc, 3, "metadata DIR FILES BATCH");
	files = bench_number(argv[2], 1);
	batch = bench_number(argv[3], 1);
	dirfd = open(argv[1], O_RDONLY | O_DIRECTORY);
	if (dirfd < 0)
		bench_die("open", argv[1]);
	for (uint64_t first = 0; first < files; first += batch) {
		uint64_t end = first + batch < files ? first + batch : files;
		double times[4];

		times[0] = bench_now();
		create_all(dirfd, first, end);
		times[1] = bench_now();
		stat_all(dirfd, first, end);
		times[2] = bench_now();
		unlink_all(dirfd, first, end);
		times[3] = bench_now();
		create += times[1] - times[0];
		stat += times[2] - times[1];
		unlink += times[3] - times[2];
	}
	printf("{\"create_seconds\": %.6f, \"stat_seconds\": %.6f, \"unlink_seconds\": %.6f}\n", create, stat, unlink);
	close(dirfd);
	return 0;
}
