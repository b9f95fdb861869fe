/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * metadata DIR FILES: create + write 4 KiB + close of so many files in one directory, then stat of each, then unlink of
 * each; each pass is timed on its own.
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

static void create_all(int dirfd, uint64_t files)
{
	char name[NAME_BYTES], data[DATA_BYTES];

	memset(data, 0x5a, sizeof(data));
	for (uint64_t i = 0; i < files; i++) {
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

static void stat_all(int dirfd, uint64_t files)
{
	char name[NAME_BYTES];
	struct stat st;

	for (uint64_t i = 0; i < files; i++) {
		name_of(i, name);
		if (fstatat(dirfd, name, &st, 0) < 0)
			bench_die("stat", name);
		if (st.st_size == DATA_BYTES)
			continue;
		fprintf(stderr, "%s has %lld bytes\n", name, (long long)st.st_size);
		exit(1);
	}
}

static void unlink_all(int dirfd, uint64_t files)
{
	char name[NAME_BYTES];

	for (uint64_t i = 0; i < files; i++) {
		name_of(i, name);
		if (unlinkat(dirfd, name, 0) < 0)
			bench_die("unlink", name);
	}
}

int main(int argc, char **argv)
{
	uint64_t files;
	double times[4];
	int dirfd;

	bench_usage(argc, 2, "metadata DIR FILES");
	files = bench_number(argv[2], 1);
	dirfd = open(argv[1], O_RDONLY | O_DIRECTORY);
	if (dirfd < 0)
		bench_die("open", argv[1]);
	times[0] = bench_now();
	create_all(dirfd, files);
	times[1] = bench_now();
	stat_all(dirfd, files);
	times[2] = bench_now();
	unlink_all(dirfd, files);
	times[3] = bench_now();
	printf("{\"create_seconds\": %.6f, \"stat_seconds\": %.6f, \"unlink_seconds\": %.6f}\n", times[1] - times[0],
		times[2] - times[1], times[3] - times[2]);
	close(dirfd);
	return 0;
}
