/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The sink over a directory: what is written past the page cache is, wherever it begins and ends, what a descriptor of its own reads, and
 * what a model holds; and it leaves nothing in the page cache.
 * A directory that could not be synced is told of, whenever that was.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mpi-agent/sink/sink.h"
#include "tests/lib/tap.h"
#include "tests/lib/world.h"

#define FILE_BYTES (8u << 20)
#define PAGE       4096u
#define WRITES     60u
#define NUM_DIRS   40u /* a sink keeps fewer open */

struct bench {
	struct world *w;
	struct sink *sink;
	struct sink_file *file;
	int dir, fd; /* fd: the same file, not the sink's */
	uint8_t *model, *buf, *back;
};

static struct {
	ino_t ino;
	bool met;
} bad; /* a directory that cannot be synced, the first time */

/* In place of the C library's. */
int fsync(int fd)
{
	struct stat st;

	if (bad.ino && fstat(fd, &st) == 0 && st.st_ino == bad.ino) {
		bad.ino = 0;
		bad.met = true;
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_fsync, fd);
}

static uint8_t *bytes(size_t len)
{
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		world_die("mmap", -errno);
	return p;
}

static void begin(struct bench *b)
{
	b->w = world_new();
	b->w->random = 20261122;
	b->dir = open(b->w->top, O_RDONLY | O_DIRECTORY);
	world_must(sink_posix_create(b->dir, &b->sink), "sink");
	world_must(b->sink->ops->open(b->sink, "file", SINK_CREATE, &b->file), "create");
	world_must(b->file->ops->truncate(b->file, FILE_BYTES), "truncate");
	b->fd = openat(b->dir, "file", O_RDONLY);
	b->model = bytes(FILE_BYTES);
	b->buf = bytes(FILE_BYTES);
	b->back = bytes(FILE_BYTES);
	for (size_t i = 0; i < FILE_BYTES; i++)
		b->buf[i] = (uint8_t)(i * 31 + i / PAGE);
}

static void end(struct bench *b)
{
	munmap(b->model, FILE_BYTES);
	munmap(b->buf, FILE_BYTES);
	munmap(b->back, FILE_BYTES);
	close(b->fd);
	sink_file_close(b->file);
	sink_destroy(b->sink);
	close(b->dir);
	world_free(b->w);
}

static bool same(struct bench *b)
{
	return pread(b->fd, b->back, FILE_BYTES, 0) == FILE_BYTES && memcmp(b->back, b->model, FILE_BYTES) == 0;
}

/* From memory that lies on a page as the file's place does, or not. */
static int put(struct bench *b, uint64_t off, size_t len, size_t from, bool past)
{
	memcpy(b->model + off, b->buf + from, len);
	return (past ? b->file->ops->pwrite_past : b->file->ops->pwrite)(b->file, b->buf + from, len, off);
}

static void check_random(struct bench *b)
{
	bool wrong = false;

	for (unsigned int i = 0; i < WRITES && !wrong; i++) {
		uint64_t off = world_below(b->w, FILE_BYTES);
		size_t len = 1 + world_below(b->w, FILE_BYTES - (unsigned int)off), from;

		if (i % 3 == 0)
			off -= off % PAGE;
		from = (i % 4 == 0 ? world_below(b->w, PAGE) : (size_t)(off % PAGE));
		if (from + len > FILE_BYTES)
			len = FILE_BYTES - from;
		wrong = put(b, off, len, from, i % 5 != 0) < 0 || !same(b);
		if (wrong)
			tap_diag("write %u: %zu bytes at %llu from %zu", i, len, (unsigned long long)off, from);
	}
	ok(!wrong, "what was written past the page cache and through it, by turns, is read by another");
	is_int(b->file->ops->sync(b->file, false), 0, "synced");
}

static size_t cached_pages(struct bench *b)
{
	uint8_t *map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, b->fd, 0);
	unsigned char in[FILE_BYTES / PAGE];
	size_t num = 0;

	if (map == MAP_FAILED || mincore(map, FILE_BYTES, in) < 0)
		world_die("mincore", -errno);
	for (size_t i = 0; i < FILE_BYTES / PAGE; i++)
		num += in[i] & 1;
	munmap(map, FILE_BYTES);
	return num;
}

static bool has_direct(struct bench *b)
{
	int fd = openat(b->dir, "file", O_WRONLY | O_DIRECT);
	bool r = fd >= 0 && pwrite(fd, b->buf, PAGE, 0) == PAGE && (fsync(fd), cached_pages(b)) < FILE_BYTES / PAGE;

	if (fd >= 0)
		close(fd);
	return r;
}

static void drop(struct bench *b)
{
	b->file->ops->sync(b->file, false);
	posix_fadvise(b->fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void check_cache(struct bench *b)
{
	drop(b);
	if (cached_pages(b) > 0 || !has_direct(b)) {
		tap_skip("this file system keeps its files in the page cache");
		return;
	}
	is_int(put(b, 0, FILE_BYTES, 0, true), 0, "all of it, past the page cache");
	is_u64(cached_pages(b), 0, "nothing of it is there");
	drop(b);
	is_int(put(b, PAGE - 1, FILE_BYTES - PAGE, PAGE - 1, true), 0, "but for the ends of it");
	ok(cached_pages(b) <= 2, "two pages are there at most");
	drop(b);
	is_int(put(b, 0, 16 * PAGE, 0, true), 0, "a small piece");
	is_u64(cached_pages(b), 16, "goes through the page cache");
	ok(same(b), "all of that is what it should be");
}

/* More directories change than are kept open: one of them is synced, in vain, while others are looked for. */
static void check_sync_error(struct bench *b)
{
	char path[32];
	struct stat st;
	int r = 0;

	for (unsigned int i = 0; i < NUM_DIRS && r == 0; i++) {
		snprintf(path, sizeof(path), "d%u", i);
		r = b->sink->ops->mkdir(b->sink, path);
	}
	is_int(r == 0 ? b->sink->ops->sync_names(b->sink) : r, 0, "directories are made");
	world_must(fstatat(b->dir, "d0", &st, 0), "d0");
	bad.ino = st.st_ino;
	for (unsigned int i = 0; i < NUM_DIRS && r == 0; i++) {
		snprintf(path, sizeof(path), "d%u/link", i);
		r = b->sink->ops->symlink(b->sink, "target", path);
	}
	is_int(r, 0, "no other directory's names fail when one cannot be synced");
	ok(bad.met, "which was tried");
	is_int(b->sink->ops->sync_names(b->sink), -EIO, "but not all names are durable");
	is_int(b->sink->ops->sync_names(b->sink), -EIO, "and never will be known to be");
}

int main(void)
{
	struct bench b = { 0 };

	begin(&b);
	check_random(&b);
	check_cache(&b);
	check_sync_error(&b);
	end(&b);
	return done_testing();
}
