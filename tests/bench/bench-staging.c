/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * bench-staging [DIR [REGION-DIR]]: payloads acknowledged in shared memory, beside appended ones, beside the device alone. By hand.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/crc32c.h"
#include "format/segment/segment.h"
#include "tests/bench/bench.h"
#include "tests/lib/payload.h"
#include "tests/lib/remove_tree.h"

#define MIB      (1u << 20)
#define PAYLOADS 512u

static char work[64] = "/tmp/cistern-bench-staging-XXXXXX";
static const char *region_dir; /* NULL: where it belongs */
static const uint8_t uuid[16] = { 0xab, 0xcd, 1, 2, 3 };

static char *in_work(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", work, name);
	return path;
}

static struct io *open_io(void)
{
	int fd = open(work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct io *io = NULL;

	if (fd < 0 || io_posix_create(fd, &io))
		abort();
	close(fd);
	return io;
}

static int staging_one(struct segment_set *set, const uint8_t *from, uint8_t *own, bool staged)
{
	uint8_t *at = staged ? segment_slot_get(set, true) : own;
	uint32_t segment;
	uint64_t off;
	int r;

	memcpy(at, from, MIB); /* what the kernel does */
	r = segment_append_crc(set, at, MIB, crc32c(0, at, MIB), &segment, &off);
	if (staged)
		segment_slot_put(set, at);
	return r;
}

static void staging_set(const char *name, bool staged, const uint8_t *from, uint8_t *own)
{
	struct segment_options opt = { .segment_bytes = 64 * MIB,
		.write_out = true,
		.staging = { .uuid = uuid, .owner = geteuid(), .bytes = 32 * MIB, .dir = region_dir } };
	struct io *io = open_io();
	struct segment_set *set = NULL;
	double begin_sec, acked_sec;
	int r;

	if (segment_set_open(io, &opt, &set, NULL))
		abort();
	begin_sec = bench_now();
	r = 0;
	for (unsigned int i = 0; i < PAYLOADS && !r; i++)
		r = staging_one(set, from, own, staged);
	acked_sec = bench_now();
	r = r ? r : segment_sync(set);
	printf("%-8s acknowledged %7.1f MiB/s, synced %7.1f MiB/s%s\n", name, PAYLOADS / (acked_sec - begin_sec),
		PAYLOADS / (bench_now() - begin_sec), r ? " FAILED" : "");
	segment_set_destroy(set);
	io_destroy(io);
	remove_tree(in_work("segment"));
}

static void staging_raw(const uint8_t *from)
{
	int fd = open(in_work("raw"), O_CREAT | O_RDWR | O_DIRECT, 0600);
	double begin_sec;

	if (fd < 0 || posix_fallocate(fd, 0, (off_t)PAYLOADS * MIB))
		abort();
	begin_sec = bench_now();
	for (unsigned int i = 0; i < PAYLOADS; i++)
		if (pwrite(fd, from, MIB, (off_t)i * MIB) != MIB)
			abort();
	fdatasync(fd);
	printf("%-8s synced %7.1f MiB/s (O_DIRECT, one at a time)\n", "raw", PAYLOADS / (bench_now() - begin_sec));
	close(fd);
	unlink(in_work("raw"));
}

static void measure(void)
{
	uint8_t *from = aligned_alloc(4096, MIB), *own = aligned_alloc(4096, MIB);

	payload_fill(from, MIB, 1);
	for (int i = 0; i < 3; i++) {
		staging_raw(from);
		staging_set("append", false, from, own);
		staging_set("staged", true, from, own);
	}
	free(from);
	free(own);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		snprintf(work, sizeof(work), "%.30s/cistern-staging-XXXXXX", argv[1]);
	region_dir = argc > 2 ? argv[2] : NULL;
	if (!mkdtemp(work))
		bench_die("mkdtemp", work);
	measure();
	remove_tree(work);
	return 0;
}
