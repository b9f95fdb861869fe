/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * carry HOW FILE BYTES LOG...: what the machine lets anybody reach who moves the bytes of logs into one file. A process for each log, with
 * nothing but the moving: no index, no order, no checksum, no other node. Each takes the first BYTES of its log in pieces of 8 MiB, one
 * after the other, to its own part of the file; the file is synced at the end.
 *
 *	cache    read and written through the page cache, written out behind it as a drain does
 *	direct   read through the page cache, written past it into a file that was preallocated
 *	range    copy_file_range
 *	memory   as direct, but nothing is read: each piece is the same memory. The device alone
 */
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/bench/bench.h"

#define PIECE (8u << 20)

enum how { CACHE, DIRECT, RANGE, MEMORY };

static const char *const names[] = { "cache", "direct", "range", "memory" };

static enum how how_of(const char *text)
{
	for (unsigned int i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(text, names[i]) == 0)
			return (enum how)i;
	fprintf(stderr, "'%s' is none of cache, direct, range, memory\n", text);
	exit(2);
}

static int open_or_die(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644);

	if (fd < 0)
		bench_die("open", path);
	return fd;
}

static void *buffer(void)
{
	void *p = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		bench_die("mmap", "memory");
	return p;
}

static void copy_range(int from, int to, size_t len, uint64_t at, uint64_t off, const char *path)
{
	loff_t in = (loff_t)at, out = (loff_t)off;

	while (len > 0) {
		ssize_t n = copy_file_range(from, &in, to, &out, len, 0);

		if (n <= 0)
			bench_die("copy_file_range", path);
		len -= (size_t)n;
	}
}

static void copy_piece(
	enum how how, int from, int to, void *buf, size_t len, uint64_t at, uint64_t off, const char *path)
{
	if (how == RANGE) {
		copy_range(from, to, len, at, off, path);
		return;
	}
	if (how != MEMORY && pread(from, buf, len, (off_t)at) != (ssize_t)len)
		bench_die("pread", path);
	bench_pwrite(to, buf, len, off, path);
	if (how == CACHE)
		sync_file_range(to, (off_t)off, (off_t)len, SYNC_FILE_RANGE_WRITE);
}

static void carry(enum how how, const char *path, const char *log, uint64_t bytes, uint64_t off)
{
	bool direct = how == DIRECT || how == MEMORY;
	int to = open_or_die(path, O_WRONLY | (direct ? O_DIRECT : 0));
	int from = open_or_die(log, O_RDONLY);
	void *buf = buffer();

	for (uint64_t at = 0; at < bytes; at += PIECE)
		copy_piece(how, from, to, buf, bytes - at < PIECE ? bytes - at : PIECE, at, off + at, path);
	if (fsync(to))
		bench_die("fsync", path);
	exit(0);
}

static void make_file(enum how how, const char *path, uint64_t bytes)
{
	int fd = open_or_die(path, O_WRONLY | O_CREAT | O_TRUNC);

	if (how == DIRECT || how == MEMORY)
		(void)posix_fallocate(fd, 0, (off_t)bytes);
	else if (ftruncate(fd, (off_t)bytes))
		bench_die("ftruncate", path);
	close(fd);
}

static double seconds_of(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
	enum how how;
	uint64_t bytes;
	unsigned int num;
	struct rusage used;
	double begin;
	int status = 0, failed = 0;

	if (argc < 5)
		bench_usage(argc, 0, "carry HOW FILE BYTES LOG...");
	how = how_of(argv[1]);
	bytes = bench_number(argv[3], 4096) / 4096 * 4096;
	num = (unsigned int)argc - 4;
	begin = bench_now();
	make_file(how, argv[2], bytes * num);
	for (unsigned int i = 0; i < num; i++)
		if (fork() == 0)
			carry(how, argv[2], argv[4 + i], bytes, bytes * i);
	for (unsigned int i = 0; i < num; i++)
		failed |= wait(&status) < 0 || status;
	getrusage(RUSAGE_CHILDREN, &used);
	if (!failed)
		printf("{\"seconds\": %.6f, \"bytes\": %llu, \"cpu_seconds\": %.6f}\n", bench_now() - begin,
			(unsigned long long)bytes * num, seconds_of(used.ru_utime) + seconds_of(used.ru_stime));
	return failed;
}
