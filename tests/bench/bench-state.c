/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the state costs: nanoseconds per commit and look-up, records per second of replay and rebuild, bytes of memory per
 * extent. Not part of make check.
 *
 *	bench-state [DIRECTORY [EXTENTS [CREATES]]]
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "format/index/state.h"

#define WRITE_BYTES     4096u
#define FILE_SPAN_BYTES (40ull << 30)
#define SEQUENTIAL      1000000u

struct bench {
	char dir[3000], index[3100];
	struct io *io;
	struct state *st;
	uint64_t extents, creates, file_ino;
	uint64_t checkpoints, checkpoint_ns, longest_ns;
	struct cistern_error err;
};

/* Of this thread: other work on the machine does not count, nor does waiting for the device. */
static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t resident_bytes(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%*u %lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * 4096u;
}

static void die(const struct bench *b, const char *what, int r)
{
	fprintf(stderr, "bench-state: %s: %s %s\n", what, strerror(-r), b->err.text);
	exit(EXIT_FAILURE);
}

static void print_each(const char *what, uint64_t ns, uint64_t num)
{
	printf("%-34s %10.0f ns each %12.0f per second\n", what, (double)ns / (double)num,
		(double)num * 1e9 / (double)ns);
}

static void commit(struct bench *b, struct record *rec)
{
	int r = state_commit(b->st, rec);

	if (r < 0)
		die(b, record_type_name(rec->type), r);
}

/* What the daemon's background thread would do. */
static void maintain(struct bench *b)
{
	uint64_t start;
	int r;

	if (!state_wants_checkpoint(b->st))
		return;
	start = now();
	r = state_checkpoint(b->st);
	if (r < 0)
		die(b, "checkpoint", r);
	start = now() - start;
	b->checkpoints++;
	b->checkpoint_ns += start;
	if (start > b->longest_ns)
		b->longest_ns = start;
}

static void open_state(struct bench *b, enum state_mode mode, const char *what)
{
	struct state_options opt = { .io = b->io, .index_path = b->index, .mode = mode };
	struct state_report report;
	uint64_t start = now();
	int r = state_open(&opt, &b->st, &report, &b->err);

	if (r < 0)
		die(b, what, r);
	if (report.replayed_records)
		print_each(what, now() - start, report.replayed_records);
	printf("%-34s %10.0f MiB resident\n", "", (double)resident_bytes() / 1048576.0);
}

static void begin(struct bench *b)
{
	struct record root = { .type = RECORD_ADOPT, .ino = STATE_ROOT_INO, .mode = S_IFDIR | 0755, .nlink = 2 };
	int fd = open(b->dir, O_DIRECTORY | O_RDONLY), r = io_posix_create(fd, &b->io);

	if (r < 0)
		die(b, b->dir, r);
	close(fd);
	snprintf(b->index, sizeof b->index, "%s/index", b->dir);
	open_state(b, STATE_READ_WRITE, "open, empty");
	commit(b, &root);
}

static void create(struct bench *b, uint64_t ino, const char *prefix, uint64_t number)
{
	struct record rec = { .type = RECORD_CREATE, .ino = ino, .parent = STATE_ROOT_INO, .mode = S_IFREG | 0644 };

	snprintf(rec.name, sizeof rec.name, "%s%08" PRIu64, prefix, number * 2654435761u % 100000000u);
	commit(b, &rec);
}

static void bench_names(struct bench *b)
{
	uint64_t start = now(), ino = 0, checkpoint_ns = b->checkpoint_ns;
	struct state_name found;

	for (uint64_t i = 0; i < b->creates; i++) {
		ino = state_new_ino(b->st);
		create(b, ino, "file-", i);
		maintain(b);
	}
	checkpoint_ns = b->checkpoint_ns - checkpoint_ns;
	print_each("create", now() - start - checkpoint_ns, b->creates);
	print_each("  with checkpoints", now() - start, b->creates);
	start = now();
	for (uint64_t i = 0; i < b->creates; i++) {
		char name[32];

		snprintf(name, sizeof name, "file-%08" PRIu64, i * 2654435761u % 100000000u);
		if (state_lookup(b->st, STATE_ROOT_INO, name, &found) < 0)
			die(b, name, -ENOENT);
	}
	print_each("lookup, there", now() - start, b->creates);
	start = now();
	for (uint64_t i = 0; i < b->creates; i++) {
		char name[32];

		snprintf(name, sizeof name, "none-%08" PRIu64, i);
		if (state_lookup(b->st, STATE_ROOT_INO, name, &found) == 0)
			die(b, name, -EEXIST);
	}
	print_each("lookup, not there", now() - start, b->creates);
}

static void bench_unlink(struct bench *b)
{
	uint64_t start = now(), num = b->creates / 2;

	for (uint64_t i = 0; i < num; i++) {
		struct record rec = { .type = RECORD_UNLINK, .parent = STATE_ROOT_INO, .ino = i + 2 };
		struct record freed = { .type = RECORD_FREE, .ino = i + 2 };

		snprintf(rec.name, sizeof rec.name, "file-%08" PRIu64, i * 2654435761u % 100000000u);
		commit(b, &rec);
		commit(b, &freed);
		maintain(b);
	}
	print_each("unlink and free", now() - start, num);
}

static void write_4k(struct bench *b, uint64_t off, uint64_t number)
{
	struct record rec = { .type = RECORD_WRITE,
		.ino = b->file_ino,
		.off = off,
		.len = WRITE_BYTES,
		.segment = 1 + (uint32_t)(number >> 14),
		.segment_off = (number & 0x3fff) * WRITE_BYTES,
		.payload_crc = (uint32_t)number };

	commit(b, &rec);
}

static void bench_writes(struct bench *b)
{
	uint64_t start, checkpoint_ns = b->checkpoint_ns, seed = 88172645463325252u;

	b->file_ino = state_new_ino(b->st);
	create(b, b->file_ino, "sequential-", 0);
	start = now();
	for (uint64_t i = 0; i < SEQUENTIAL; i++) {
		write_4k(b, i * WRITE_BYTES, i);
		maintain(b);
	}
	checkpoint_ns = b->checkpoint_ns - checkpoint_ns;
	print_each("write 4 KiB, in order", now() - start - checkpoint_ns, SEQUENTIAL);
	b->file_ino = state_new_ino(b->st);
	create(b, b->file_ino, "random-", 0);
	checkpoint_ns = b->checkpoint_ns;
	b->checkpoints = b->longest_ns = 0;
	start = now();
	for (uint64_t i = 0; i < b->extents; i++) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		write_4k(b, seed % (FILE_SPAN_BYTES / WRITE_BYTES) * WRITE_BYTES, SEQUENTIAL + i);
		maintain(b);
	}
	checkpoint_ns = b->checkpoint_ns - checkpoint_ns;
	print_each("write 4 KiB, random", now() - start - checkpoint_ns, b->extents);
	print_each("  with checkpoints", now() - start, b->extents);
	printf("%-34s %10" PRIu64 ", longest %.0f ms\n", "  checkpoints", b->checkpoints, (double)b->longest_ns / 1e6);
}

static void print_memory(struct bench *b)
{
	struct state_totals t;

	state_totals(b->st, &t);
	printf("%-34s %10" PRIu64 ", %.0f MiB of memory, %.0f MiB resident\n", "live extents", t.extents,
		(double)t.index_bytes / 1048576.0, (double)resident_bytes() / 1048576.0);
}

int main(int argc, char **argv)
{
	struct bench b = { .extents = argc > 2 ? strtoull(argv[2], NULL, 0) : 10000000u,
		.creates = argc > 3 ? strtoull(argv[3], NULL, 0) : 500000u };
	int r;

	snprintf(b.dir, sizeof b.dir, "%s/bench-state-XXXXXX", argc > 1 ? argv[1] : "/tmp");
	if (!mkdtemp(b.dir))
		die(&b, b.dir, -errno);
	printf("in %s (left behind)\n", b.dir);
	begin(&b);
	bench_names(&b);
	bench_unlink(&b);
	bench_writes(&b);
	print_memory(&b);
	state_destroy(b.st);
	malloc_trim(0);
	open_state(&b, STATE_READ_WRITE, "replay of the tail");
	state_destroy(b.st);
	malloc_trim(0);
	open_state(&b, STATE_REBUILD, "rebuild");
	print_memory(&b);
	r = state_compact(b.st);
	if (r < 0)
		die(&b, "compact", r);
	r = state_close(b.st);
	io_destroy(b.io);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
