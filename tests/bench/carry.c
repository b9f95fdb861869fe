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
 *	blocks   as direct, but each piece is put together from blocks of 4 KiB that lie scattered over all logs, each read for itself, as in a
 *	         file that all nodes wrote out of order
 *	mapped   the same, copied out of mappings of the logs
 */
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/bench/bench.h"

#define PIECE    (8u << 20)
#define BLOCK    4096u
#define MAX_LOGS 64u

enum how { CACHE, DIRECT, RANGE, MEMORY, BLOCKS, MAPPED };

static const char *const names[] = { "cache", "direct", "range", "memory", "blocks", "mapped" };

struct log {
	const char *path;
	int fd;
	const uint8_t *map; /* MAPPED */
};

struct logs {
	struct log at[MAX_LOGS];
	unsigned int num;
	uint64_t bytes; /* of each that are moved */
};

static enum how how_of(const char *text)
{
	for (unsigned int i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(text, names[i]) == 0)
			return (enum how)i;
	fprintf(stderr, "'%s' is none of cache, direct, range, memory, blocks, mapped\n", text);
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

/* ---- blocks that lie scattered */

static void read_block(const struct log *l, uint8_t *buf, uint64_t at)
{
	if (l->map)
		memcpy(buf, l->map + at, BLOCK);
	else if (pread(l->fd, buf, BLOCK, (off_t)at) != BLOCK)
		bench_die("pread", l->path);
}

/* Block after block of the file: of one log after the other, each time a prime number of blocks further on in it. */
static void gather(const struct logs *logs, uint8_t *buf, size_t len, uint64_t off)
{
	static const uint64_t step = 982451653;
	uint64_t blocks = logs->bytes / BLOCK;

	for (size_t done = 0; done < len; done += BLOCK) {
		uint64_t number = (off + done) / BLOCK;

		read_block(&logs->at[number % logs->num], buf + done, number / logs->num * step % blocks * BLOCK);
	}
}

/* ---- a process */

static bool is_direct(enum how how)
{
	return how != CACHE && how != RANGE;
}

static void read_piece(
	enum how how, const struct logs *logs, const struct log *own, void *buf, size_t len, uint64_t at, uint64_t off)
{
	if (how == BLOCKS || how == MAPPED)
		gather(logs, buf, len, off);
	else if (how != MEMORY && pread(own->fd, buf, len, (off_t)at) != (ssize_t)len)
		bench_die("pread", own->path);
}

static _Noreturn void carry(enum how how, const char *path, const struct logs *logs, unsigned int index)
{
	int to = open_or_die(path, O_WRONLY | (is_direct(how) ? O_DIRECT : 0));
	const struct log *own = &logs->at[index];
	uint64_t begin = logs->bytes * index;
	void *buf = buffer();

	for (uint64_t at = 0; at < logs->bytes; at += PIECE) {
		size_t len = logs->bytes - at < PIECE ? logs->bytes - at : PIECE;

		if (how == RANGE) {
			copy_range(own->fd, to, len, at, begin + at, path);
			continue;
		}
		read_piece(how, logs, own, buf, len, at, begin + at);
		bench_pwrite(to, buf, len, begin + at, path);
		if (how == CACHE)
			sync_file_range(to, (off_t)(begin + at), (off_t)len, SYNC_FILE_RANGE_WRITE);
	}
	if (fsync(to))
		bench_die("fsync", path);
	exit(0);
}

static void open_log(struct log *l, enum how how, const char *path, uint64_t bytes)
{
	*l = (struct log){ .path = path, .fd = open_or_die(path, O_RDONLY) };
	if (how != MAPPED)
		return;
	l->map = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, l->fd, 0);
	if (l->map == MAP_FAILED)
		bench_die("mmap", path);
}

static void make_file(enum how how, const char *path, uint64_t bytes)
{
	int fd = open_or_die(path, O_WRONLY | O_CREAT | O_TRUNC);

	if (is_direct(how))
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
	static struct logs logs;
	enum how how;
	struct rusage used;
	double begin;
	int status = 0, failed = 0;

	if (argc < 5 || argc > 4 + (int)MAX_LOGS)
		bench_usage(argc, 0, "carry HOW FILE BYTES LOG...");
	how = how_of(argv[1]);
	logs.bytes = bench_number(argv[3], BLOCK) / BLOCK * BLOCK;
	logs.num = (unsigned int)argc - 4;
	begin = bench_now();
	for (unsigned int i = 0; i < logs.num; i++)
		open_log(&logs.at[i], how, argv[4 + i], logs.bytes);
	make_file(how, argv[2], logs.bytes * logs.num);
	for (unsigned int i = 0; i < logs.num; i++)
		if (fork() == 0)
			carry(how, argv[2], &logs, i);
	for (unsigned int i = 0; i < logs.num; i++)
		failed |= wait(&status) < 0 || status;
	getrusage(RUSAGE_CHILDREN, &used);
	if (!failed)
		printf("{\"seconds\": %.6f, \"bytes\": %llu, \"cpu_seconds\": %.6f}\n", bench_now() - begin,
			(unsigned long long)logs.bytes * logs.num,
			seconds_of(used.ru_utime) + seconds_of(used.ru_stime));
	return failed;
}
