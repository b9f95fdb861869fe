/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The sink over a directory: what is written past the page cache is, wherever it begins and ends, what a descriptor of its own reads, and
 * what a model holds; and it leaves nothing in the page cache.
 * A directory that could not be synced is told of, whenever that was. And where modes stop who is not root, they do not stop the sink, and
 * are as they were behind it.
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

/* ---- modes */

#define NOBODY 65534u

static unsigned int mode_of(struct bench *b, const char *path)
{
	struct stat st;
	uid_t me = geteuid();
	int r;

	world_must(seteuid(getuid()), "seteuid"); /* who looks is not stopped */
	r = fstatat(b->dir, path, &st, AT_SYMLINK_NOFOLLOW);
	world_must(seteuid(me), "seteuid");
	return r < 0 ? 0 : st.st_mode & 07777;
}

static int open_and_close(struct sink *s, const char *path, enum sink_open how)
{
	struct sink_file *f = NULL;
	int r = s->ops->open(s, path, how, &f);

	if (r == 0 && how == SINK_UPDATE)
		r = f->ops->pwrite(f, "x", 1, 0);
	sink_file_close(f);
	return r;
}

static int set_mode(struct sink *s, const char *path, mode_t mode, bool xattr)
{
	struct sink_attr attr = { .mode = mode, .uid = geteuid(), .gid = getegid() };
	struct sink_file *f = NULL;
	const char *warning;
	int r = s->ops->open(s, path, SINK_ATTR, &f);

	if (r == 0)
		r = f->ops->set_attr(f, &attr, &warning);
	if (r == 0 && xattr)
		r = f->ops->set_xattr(f, "user.cistern", "1", 1);
	if (r == 0 && xattr)
		r = f->ops->remove_xattr(f, "user.cistern");
	sink_file_close(f);
	return r == -EOPNOTSUPP ? 0 : r;
}

static void make_read_only(struct bench *b, const char *dir, const char *file)
{
	world_must(mkdirat(b->dir, dir, 0755), dir);
	close(openat(b->dir, file, O_CREAT | O_WRONLY, 0644));
	world_must(fchmodat(b->dir, file, 0444, 0), file);
	world_must(fchmodat(b->dir, dir, 0555, 0), dir);
}

static void check_names(struct bench *b, struct sink *s)
{
	struct stat st;

	is_int(s->ops->stat(s, "d/f", &st), 0, "a file in a directory that may not be entered");
	is_int(open_and_close(s, "d/f", SINK_UPDATE), 0, "it is written to");
	is_u64(mode_of(b, "d/f"), 0444, "and read-only again");
	is_int(open_and_close(s, "d/f", SINK_READ), 0, "it is read");
	is_int(open_and_close(s, "d/new", SINK_CREATE), 0, "a new one");
	is_int(s->ops->mkdir(s, "d/sub"), 0, "a directory in it");
	is_int(s->ops->symlink(s, "f", "d/link"), 0, "a symbolic link");
	is_int(s->ops->link(s, "d/f", "d/other"), 0, "a further name");
	is_int(s->ops->rename(s, "d/new", "e/new", false), 0, "a file goes from one directory to another");
	is_int(s->ops->rename(s, "d/sub", "e/sub", true), 0, "and a directory");
	is_int(set_mode(s, "e/sub", 0500, false), 0, "which is read-only itself");
	is_int(s->ops->rename(s, "e/sub", "d/sub", true), 0, "goes back");
	is_u64(mode_of(b, "d/sub"), 0500, "and is as it was");
	is_int(s->ops->rename_new(s, "e/new", "d/new"), 0, "a file goes to a free name");
	is_int(s->ops->remove(s, "d/new", false), 0, "and is removed");
	is_int(s->ops->remove(s, "d/other", false), 0, "a name is removed");
	is_int(set_mode(s, "d/f", 0400, true), 0, "extended attributes of a read-only file");
	is_u64(mode_of(b, "d/f"), 0400, "leave its mode");
}

static void check_modes(struct bench *b)
{
	struct sink *s, *reader;
	struct stat st;

	if (getuid() == 0)
		world_must(fchown(b->dir, NOBODY, (gid_t)-1), "fchown");
	world_must(seteuid(getuid() == 0 ? NOBODY : getuid()), "seteuid");
	make_read_only(b, "d", "d/f");
	make_read_only(b, "e", "e/f");
	world_must(fchmodat(b->dir, "d", 0, 0), "d");
	world_must(sink_posix_create(b->dir, &s), "sink");
	world_must(sink_posix_create_to_read(b->dir, &reader), "sink");
	is_int(reader->ops->stat(reader, "d/f", &st), -EACCES, "who only reads changes no mode");
	is_int(open_and_close(reader, "e/f", SINK_READ), 0, "and reads what may be read");
	check_names(b, s);
	is_int(set_mode(s, "e", 0755, false), 0, "a directory's attributes are set meanwhile");
	sink_destroy(s);
	sink_destroy(reader);
	is_u64(mode_of(b, "d"), 0, "a directory is as it was");
	is_u64(mode_of(b, "e"), 0755, "one whose attributes were set keeps them");
	world_must(fchmodat(b->dir, "d", 0755, 0), "d");
	world_must(seteuid(getuid()), "seteuid");
}

int main(void)
{
	struct bench b = { 0 };

	begin(&b);
	check_random(&b);
	check_cache(&b);
	check_sync_error(&b);
	check_modes(&b);
	end(&b);
	return done_testing();
}
