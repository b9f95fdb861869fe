/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Expected bytes: what pread() gives of the same places. */
#include "format/base/read_batch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/scratch.h"
#include "tests/lib/tap.h"

#define FILE_BYTES (4u << 20)
#define BLOCK      4096u
#define NUM_READS  1000u /* more than go by one call */

struct reads {
	struct cached_read at[NUM_READS];
	struct iovec iov[NUM_READS][2];
	uint8_t *bytes; /* owned: BLOCK for each */
};

static void *must_alloc(size_t len)
{
	void *p = calloc(1, len);

	if (!p)
		abort();
	return p;
}

static struct read_batch *make_batch(void)
{
	struct read_batch *b;

	if (read_batch_create(&b))
		abort();
	return b;
}

/* A file of noise, in the page cache. */
static int make_file(const char *path)
{
	uint32_t *noise = must_alloc(FILE_BYTES);
	uint32_t x = 2463534242u;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	for (size_t i = 0; i < FILE_BYTES / 4; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		noise[i] = x;
	}
	ok(fd >= 0 && write(fd, noise, FILE_BYTES) == (ssize_t)FILE_BYTES, "a file");
	free(noise);
	return fd;
}

/* Of all kinds: any place and length, in two parts. */
static struct reads *make_reads(int fd)
{
	struct reads *r = must_alloc(sizeof(*r));

	r->bytes = must_alloc((size_t)NUM_READS * BLOCK);
	for (uint32_t i = 0; i < NUM_READS; i++) {
		uint8_t *to = r->bytes + (size_t)i * BLOCK;
		uint32_t len = i * 37 % BLOCK + 1, first = len / 3;

		r->iov[i][0] = (struct iovec){ to, first };
		r->iov[i][1] = (struct iovec){ to + first, len - first };
		r->at[i] = (struct cached_read){
			.fd = fd, .num_iov = 2, .iov = r->iov[i], .off = (uint64_t)i * 982451653 % (FILE_BYTES - BLOCK)
		};
	}
	return r;
}

static void free_reads(struct reads *r)
{
	free(r->bytes);
	free(r);
}

static bool is_right(const struct cached_read *read, int fd)
{
	uint8_t expected[BLOCK];
	size_t len = read->iov[0].iov_len + read->iov[1].iov_len;

	return read->got == (ssize_t)len && pread(fd, expected, len, (off_t)read->off) == (ssize_t)len &&
	       memcmp(expected, read->iov[0].iov_base, len) == 0;
}

static uint32_t num_right(const struct reads *r, int fd)
{
	uint32_t right = 0;

	for (uint32_t i = 0; i < NUM_READS; i++)
		right += is_right(&r->at[i], fd);
	return right;
}

static void test_many(const char *path)
{
	int fd = make_file(path);
	struct reads *r = make_reads(fd);
	struct read_batch *b = make_batch();

	read_batch_run(b, r->at, 0);
	read_batch_run(b, r->at, NUM_READS);
	is_int(num_right(r, fd), NUM_READS, "many reads of any place, length and parts");
	read_batch_destroy(b);
	free_reads(r);
	close(fd);
}

static void test_each_for_itself(const char *path)
{
	int fd = make_file(path), closed = dup(fd);
	struct reads *r = make_reads(fd);
	struct read_batch *b = make_batch();

	close(closed);
	r->at[0].fd = closed;
	r->at[300].fd = -1;
	r->at[301].off = FILE_BYTES;
	r->at[302].off = FILE_BYTES - 1;
	read_batch_run(b, r->at, NUM_READS);
	is_int(r->at[0].got, -EBADF, "a descriptor that is closed");
	is_int(r->at[300].got, -EBADF, "none");
	is_int(r->at[301].got, 0, "behind the end of the file");
	is_int(r->at[302].got, 1, "across it");
	is_int(num_right(r, fd), NUM_READS - 4, "all others are read");
	read_batch_destroy(b);
	free_reads(r);
	close(fd);
}

static void test_not_cached(const char *path)
{
	int fd = make_file(path);
	struct reads *r = make_reads(fd);
	struct read_batch *b = make_batch();
	uint32_t cached = 0;

	ok(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "it is dropped from the cache");
	read_batch_run(b, r->at, NUM_READS);
	for (uint32_t i = 0; i < NUM_READS; i++)
		cached += r->at[i].got > 0;
	if (cached == NUM_READS)
		tap_skip("this file system keeps all in memory");
	else
		is_int(r->at[0].got, -EAGAIN, "what is not cached is not waited for");
	read_batch_destroy(b);
	free_reads(r);
	close(fd);
}

/* A child does not have its parent's asynchronous I/O. */
static void test_without(const char *path)
{
	int fd = make_file(path), status = 0;
	struct reads *r = make_reads(fd);
	struct read_batch *b = make_batch();
	pid_t pid = fork();

	if (pid == 0) {
		read_batch_run(b, r->at, NUM_READS);
		_exit(num_right(r, fd) == NUM_READS ? 0 : 1);
	}
	ok(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0,
		"where the kernel takes none, it is one call each");
	read_batch_destroy(b);
	free_reads(r);
	close(fd);
}

/* As tmpfs may not: there all is read by other ways. */
static bool can_tell_cached(int fd)
{
	char byte;
	struct iovec to = { &byte, 1 };

	return preadv2(fd, &to, 1, 0, RWF_NOWAIT) >= 0 || errno != EOPNOTSUPP;
}

int main(void)
{
	char path[SCRATCH_PARENT_MAX + 32];
	int fd;

	snprintf(path, sizeof(path), "%s/cistern-read-batch.XXXXXX", scratch_parent());
	fd = mkstemp(path);
	if (fd < 0)
		abort();
	if (can_tell_cached(fd)) {
		test_many(path);
		test_each_for_itself(path);
		test_not_cached(path);
		test_without(path);
	} else {
		tap_skip("the file system of %s does not tell what is cached", path);
	}
	close(fd);
	unlink(path);
	return done_testing();
}
