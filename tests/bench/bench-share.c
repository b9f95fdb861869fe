/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What files of many nodes cost the state: milliseconds for commits of 100,000 extents, on top of few and of many. Not part
 * of make check.
 *
 *	bench-share DIRECTORY
 *
 * DIRECTORY must not exist. The file is a checkpoint as many ranks write it: records of 4096 bytes in turn.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "format/index/state.h"
#include "tests/bench/bench.h"

#define NEW     100000u
#define BATCH   16384u
#define BYTES   4096u
#define STRIDE  (4 * BYTES) /* room for other nodes' records, and for new ones between old ones */
#define FOREIGN (UINT64_C(5) << 40)

struct bench {
	struct io *io;
	struct state *st;
	uint64_t segment_off, stamp, writes;
};

static void check(const char *what, int r)
{
	errno = -r;
	if (r < 0)
		bench_die(what, "state");
}

static void print(const char *what, double begun)
{
	printf("%-60s %8.1f ms\n", what, (bench_now() - begun) * 1000);
}

static void open_state(struct bench *b, const char *dir)
{
	char index[4096];
	struct state_options opt = { .index_path = index, .mode = STATE_READ_WRITE };
	struct record root = { .type = RECORD_ADOPT, .ino = STATE_ROOT_INO, .mode = S_IFDIR | 0755, .nlink = 2 };
	int fd;

	if (mkdir(dir, 0700) < 0 || (fd = open(dir, O_DIRECTORY | O_RDONLY)) < 0)
		bench_die("mkdir", dir);
	check("io", io_posix_create(fd, &b->io));
	close(fd);
	snprintf(index, sizeof index, "%s/index", dir);
	opt.io = b->io;
	check("open", state_open(&opt, &b->st, NULL, NULL));
	check("commit", state_commit(b->st, &root));
}

/* ---- share maps */

/* Writes take some 20 us each; those of a later stamp are later. */
static uint64_t time_of(struct bench *b, uint64_t stamp)
{
	return UINT64_C(1700000000000000) + stamp * 100000000 + b->writes++ * 20;
}

/* num extents from off on, told in records of 16384. */
static void put(struct bench *b, uint64_t ino, uint32_t node, uint64_t stamp, uint64_t off, uint32_t num)
{
	static struct record_piece piece[BATCH];
	struct record rec = { .type = RECORD_SHARE_PUT,
		.flags = RECORD_F_TIMED,
		.ino = ino,
		.node = node,
		.stamp = stamp,
		.base = stamp - 1 };

	for (uint32_t done = 0; done < num; done += (uint32_t)rec.num_pieces) {
		rec.num_pieces = num - done < BATCH ? num - done : BATCH;
		for (uint32_t i = 0; i < rec.num_pieces; i++) {
			uint64_t at = done + i;

			piece[i] = (struct record_piece){ .off = off + at * STRIDE,
				.len = BYTES,
				.segment = 1,
				.segment_off = at * BYTES,
				.crc = (uint32_t)at * 2654435761u,
				.time_usec = time_of(b, stamp),
				.whole = true };
		}
		rec.pieces = piece;
		rec.time_ns = 0;
		check("share-put", state_commit(b->st, &rec));
	}
}

static void bench_maps(struct bench *b)
{
	static struct share_extent out[BATCH];
	uint64_t at = 0, num_all = 0;
	size_t num;
	double t = bench_now();

	put(b, 1000, 1, 1, 0, NEW);
	print("share-put of 100,000 into an empty map", t);
	t = bench_now();
	put(b, 1000, 2, 2, BYTES, NEW);
	print("share-put of 100,000 between as many of another node", t);
	t = bench_now();
	put(b, 1000, 3, 3, BYTES / 2, NEW);
	print("share-put of 100,000 over parts of both", t);
	t = bench_now();
	put(b, 1000, 3, 3, BYTES / 2, NEW);
	print("the same again", t);
	put(b, 1001, 1, 1, 0, 10 * NEW);
	t = bench_now();
	put(b, 1001, 2, 2, BYTES, NEW);
	print("share-put of 100,000 between the first tenth of 1,000,000", t);
	t = bench_now();
	while (at != UINT64_MAX) {
		check("share-extents", state_share_extents(b->st, 1001, at, UINT64_MAX - at, out, BATCH, &num, &at));
		num_all += num;
	}
	print("reading the map of 1,100,000", t);
	if (num_all != 11 * NEW)
		bench_die("share-extents", "not all");
}

/* ---- small extents: tens of thousands of them in a page of the map */

#define SMALL       28u
#define SMALL_NODES 4u

/* num extents of a record each, step records apart. */
static void put_small(struct bench *b, uint32_t node, uint64_t stamp, uint64_t first, uint64_t step, uint32_t num)
{
	static struct record_piece piece[BATCH];
	struct record rec = { .type = RECORD_SHARE_PUT,
		.flags = RECORD_F_TIMED,
		.ino = 1002,
		.node = node,
		.stamp = stamp,
		.base = stamp - 1 };

	for (uint32_t done = 0; done < num; done += (uint32_t)rec.num_pieces) {
		rec.num_pieces = num - done < BATCH ? num - done : BATCH;
		for (uint32_t i = 0; i < rec.num_pieces; i++)
			piece[i] = (struct record_piece){ .off = (first + (done + i) * step) * SMALL,
				.len = SMALL - 1,
				.segment = 1,
				.segment_off = b->segment_off += SMALL,
				.time_usec = time_of(b, stamp) };
		rec.pieces = piece;
		rec.time_ns = 0;
		check("share-put", state_commit(b->st, &rec));
	}
}

static void bench_small(struct bench *b)
{
	static const uint32_t nums[] = { 1, 10, 1000, 10000, NEW };
	const uint32_t all = 10 * NEW;
	double t = bench_now();
	char what[80];

	for (uint32_t node = 0; node < SMALL_NODES; node++)
		put_small(b, node, node + 1, node, SMALL_NODES, all / SMALL_NODES);
	print("share-put of 1,000,000 extents of 27 bytes by 4 nodes in turn", t);
	for (size_t i = 0; i < sizeof(nums) / sizeof(nums[0]); i++) {
		t = bench_now();
		put_small(b, 7, 100 + i, 0, all / nums[i], nums[i]);
		snprintf(what, sizeof what, "share-put of %u among all of them", nums[i]);
		print(what, t);
		t = bench_now();
		put_small(b, 7, 200 + i, 0, 1, nums[i]);
		snprintf(what, sizeof what, "share-put of %u, one behind the other", nums[i]);
		print(what, t);
	}
}

/* ---- layers */

static void write_layer(struct bench *b, uint64_t ino, uint64_t off, uint64_t step, uint32_t num)
{
	static struct record_range range[1024];
	struct record rec = { .type = RECORD_EXTENTS, .ino = ino, .segment = 1, .ranges = range };

	for (uint32_t done = 0; done < num; done += (uint32_t)rec.num_ranges) {
		rec.num_ranges = num - done < 1024 ? num - done : 1024;
		for (uint32_t i = 0; i < rec.num_ranges; i++)
			range[i] = (struct record_range){ .off = off + (done + i) * step, .len = BYTES };
		rec.segment_off = b->segment_off;
		rec.time_ns = 0;
		check("extents", state_commit(b->st, &rec));
		b->segment_off += rec.num_ranges * BYTES;
	}
}

/* What a commit asks and says, in the state; the messages between are not ours. */
static void commit_layer(struct bench *b, uint64_t ino, uint32_t expected, const char *what)
{
	static struct extent out[BATCH];
	struct record rec = { .type = RECORD_COMMITTED, .ino = ino, .upto = state_seq(b->st), .stamp = ++b->stamp };
	double t = bench_now();
	uint64_t at = 0;
	uint32_t all = 0;
	size_t num;

	while (at != UINT64_MAX) {
		check("uncommitted", state_uncommitted(b->st, ino, at, out, BATCH, &num, &at));
		all += (uint32_t)num;
	}
	check("committed", state_commit(b->st, &rec));
	if (what)
		print(what, t);
	if (all != expected)
		bench_die("uncommitted", "not all");
}

static void bench_layer(struct bench *b, uint32_t existing)
{
	struct record rec = {
		.type = RECORD_FOREIGN, .ino = FOREIGN + existing, .parent = 1, .name = "f", .mode = S_IFREG
	};
	uint64_t ino = rec.ino, end = (uint64_t)existing * STRIDE;
	char what[80];

	check("foreign", state_commit(b->st, &rec));
	write_layer(b, ino, 0, STRIDE, existing);
	commit_layer(b, ino, existing, NULL);
	write_layer(b, ino, end, STRIDE, NEW);
	snprintf(what, sizeof what, "commit of 100,000 behind %u", existing);
	commit_layer(b, ino, NEW, what);
	write_layer(b, ino, BYTES, STRIDE, NEW);
	snprintf(what, sizeof what, "commit of 100,000 between the first of %u", existing);
	commit_layer(b, ino, NEW, what);
	write_layer(b, ino, 2 * BYTES, (uint64_t)STRIDE * (existing / NEW), NEW);
	snprintf(what, sizeof what, "commit of 100,000 between all of %u", existing);
	commit_layer(b, ino, NEW, what);
	write_layer(b, ino, 3 * BYTES, STRIDE, 1);
	snprintf(what, sizeof what, "commit of 1 among %u", existing);
	commit_layer(b, ino, 1, what);
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };

	if (argc != 2) {
		fprintf(stderr, "usage: bench-share DIRECTORY\n");
		return 2;
	}
	open_state(&b, argv[1]);
	bench_maps(&b);
	bench_small(&b);
	bench_layer(&b, NEW);
	bench_layer(&b, 10 * NEW);
	state_destroy(b.st);
	io_destroy(b.io);
	return 0;
}
