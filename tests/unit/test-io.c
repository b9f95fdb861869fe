/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The contract of the I/O seam, put to the real and to the simulated disk alike: whoever passes a test on the
 * simulated one may rely on the real one.
 */
#include "format/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/sim.h"
#include "tests/lib/tap.h"

static struct io_file *open_file(struct io *io, const char *path, unsigned int flags)
{
	struct io_file *file = NULL;

	is_int(io_open(io, path, flags, &file), 0, path);
	return file;
}

static int count(const char *name, void *arg)
{
	(void)name;
	return ++*(int *)arg == 100;
}

static int stop(const char *name, void *arg)
{
	(void)name;
	(void)arg;
	return 77;
}

static void test_names(struct io *io)
{
	struct io_file *file, *other;
	int num = 0;

	is_int(io_open(io, "none", IO_READ, &file), -ENOENT, "no such file");
	is_int(io_open(io, "/etc/passwd", IO_READ, &file), -EINVAL, "an absolute path");
	is_int(io_open(io, "none", IO_CREATE, &file), -EINVAL, "neither read nor write");
	is_int(io_open(io, "none/x", IO_WRITE | IO_CREATE, &file), -ENOENT, "no such directory");
	is_int(io->ops->mkdir(io, "d"), 0, "mkdir");
	is_int(io->ops->mkdir(io, "d"), -EEXIST, "mkdir again");
	is_int(io->ops->mkdir(io, "none/d"), -ENOENT, "mkdir below nothing");
	is_int(io_open(io, "d", IO_WRITE, &file), -EISDIR, "a directory is no file");
	file = open_file(io, "d/a", IO_WRITE | IO_CREATE | IO_EXCL);
	is_int(io_open(io, "d/a", IO_WRITE | IO_CREATE | IO_EXCL, &other), -EEXIST, "exclusive");
	io_close(file);
	is_int(io->ops->sync_dir(io, "d"), 0, "sync_dir");
	is_int(io->ops->sync_dir(io, "."), 0, "sync_dir of the root");
	is_int(io->ops->sync_dir(io, "d/a"), -ENOTDIR, "sync_dir of a file");
	io_close(open_file(io, "d/b", IO_WRITE | IO_CREATE));
	is_int(io->ops->list(io, "d", count, &num), 0, "list");
	is_int(num, 2, "two entries");
	is_int(io->ops->list(io, "d", stop, NULL), 77, "list stops when told");
	is_int(io->ops->list(io, "none", count, &num), -ENOENT, "list of nothing");
	is_int(io->ops->rename(io, "d/a", "d/b"), 0, "rename over another");
	is_int(io->ops->rename(io, "d/a", "d/b"), -ENOENT, "rename of nothing");
	is_int(io->ops->unlink(io, "d/b"), 0, "unlink");
	is_int(io->ops->unlink(io, "d/b"), -ENOENT, "unlink of nothing");
	is_int(io->ops->unlink(io, "d"), -EISDIR, "unlink of a directory");
	num = 0;
	is_int(io->ops->list(io, "./d/", count, &num), 0, "list");
	is_int(num, 0, "empty");
}

static void test_data(struct io *io)
{
	struct io_file *file = open_file(io, "f", IO_READ | IO_WRITE | IO_CREATE), *reader;
	char buf[16] = "";
	uint64_t size;

	is_int(io_write(file, "hello", 5, 3), 0, "write");
	is_int(file->ops->size(file, &size), 0, "size");
	is_u64(size, 8, "grown");
	is_int(file->ops->pread(file, buf, 16, 0), 8, "a read is short only at the end");
	ok(memcmp(buf, "\0\0\0hello", 8) == 0, "a gap reads zero");
	is_int(file->ops->pread(file, buf, 16, 8), 0, "nothing at the end");
	is_int(io_read_exact(file, buf, 9, 0), -ENODATA, "exactly more than there is");
	is_int(io_read_exact(file, buf, 5, 3), 0, "exactly what there is");
	is_int(io_write(file, "x", 1, UINT64_MAX), -EFBIG, "an offset beyond all files");
	is_int(file->ops->sync(file), 0, "sync");
	is_int(file->ops->write_out(file, 0, 4096), 0, "write_out");
	reader = open_file(io, "f", IO_READ);
	is_int(io_write(reader, "x", 1, 0), -EBADF, "a reader cannot write");
	io_close(reader);
	reader = open_file(io, "f", IO_WRITE);
	is_int(io_read_exact(reader, buf, 1, 0), -EBADF, "a writer cannot read");
	io_close(reader);
	is_int(file->ops->truncate(file, 5), 0, "cut off");
	is_int(file->ops->truncate(file, 8), 0, "and grown again");
	is_int(io_read_exact(file, buf, 8, 0), 0, "read");
	ok(memcmp(buf, "\0\0\0he\0\0\0", 8) == 0, "what was cut off is zero");
	io_close(file);
	io_close(open_file(io, "f", IO_WRITE | IO_CREATE));
	file = open_file(io, "f", IO_WRITE | IO_TRUNCATE);
	is_int(file->ops->size(file, &size), 0, "size");
	is_u64(size, 0, "truncated by open");
	io_close(file);
	io_close(NULL);
	is_int(io->ops->unlink(io, "f"), 0, "unlink");
}

static void test_allocate_and_map(struct io *io)
{
	struct io_file *file = open_file(io, "m", IO_READ | IO_WRITE | IO_CREATE);
	char buf[8192], zeros[8192] = { 0 };
	uint64_t size;
	void *map;
	int r = file->ops->allocate(file, 0, 65536);

	if (r == -EOPNOTSUPP) {
		tap_skip("this file system cannot allocate");
		io_close(file);
		return;
	}
	is_int(r, 0, "allocate");
	is_int(file->ops->size(file, &size), 0, "size");
	is_u64(size, 65536, "grown");
	is_int(file->ops->allocate(file, 0, 4096), 0, "allocate what is there");
	is_int(file->ops->allocate(file, 0, 0), -EINVAL, "allocate nothing");
	is_int(file->ops->map(file, 100, true, &map), -EINVAL, "map an odd length");
	is_int(file->ops->map(file, 65536, true, &map), 0, "map");
	memset(map, 'a', 20000);
	is_int(io_read_exact(file, buf, 5, 19997), 0, "read");
	ok(memcmp(buf, "aaa\0\0", 5) == 0, "what was stored is read");
	is_int(io_write(file, "bcd", 3, 10), 0, "write");
	ok(memcmp((char *)map + 9, "abcda", 5) == 0, "what was written is in the mapping");
	is_int(file->ops->punch(file, 4096, 8192), 0, "punch");
	ok(memcmp((char *)map + 4096, zeros, 8192) == 0 && ((char *)map)[4095] == 'a' && ((char *)map)[12288] == 'a',
		"punched is zero, and no more than that");
	is_int(file->ops->size(file, &size), 0, "size");
	is_u64(size, 65536, "a punch leaves the size");
	is_int(file->ops->sync(file), 0, "sync");
	file->ops->unmap(file, map, 65536);
	is_int(io_read_exact(file, buf, 2, 12288), 0, "read");
	ok(memcmp(buf, "aa", 2) == 0, "and is there after the unmapping");
	is_int(io->ops->unlink(io, "m"), 0, "unlink while open");
	is_int(io_read_exact(file, buf, 1, 0), 0, "still readable");
	io_close(file);
}

static void test_whole_files(struct io *io)
{
	void *buf = NULL;
	size_t len = 0;
	int num = 0;

	is_int(io->ops->mkdir(io, "w"), 0, "mkdir");
	is_int(io_replace(io, "w/x", "first", 5), 0, "made");
	is_int(io_replace(io, "w/x", "2nd", 3), 0, "replaced");
	is_int(io_replace(io, "none/x", "2nd", 3), -ENOENT, "no such directory");
	is_int(io_read_all(io, "w/x", 3, &buf, &len), 0, "read");
	ok(len == 3 && strcmp(buf, "2nd") == 0, "the new one, terminated");
	free(buf);
	is_int(io_read_all(io, "w/x", 2, &buf, &len), -EFBIG, "larger than allowed");
	is_int(io_read_all(io, "w/y", 2, &buf, &len), -ENOENT, "not there");
	is_int(io->ops->list(io, "w", count, &num), 0, "list");
	is_int(num, 1, "nothing is left over");
	is_int(io_replace(io, "top", "", 0), 0, "an empty file in the root");
	is_int(io_read_all(io, "top", 0, &buf, &len), 0, "read");
	ok(len == 0 && !*(char *)buf, "empty");
	free(buf);
	is_int(io->ops->unlink(io, "top"), 0, "unlink");
	is_int(io->ops->unlink(io, "w/x"), 0, "unlink");
}

struct writer {
	struct io_file *file;
	uint8_t id;
};

static void *write_blocks(void *arg)
{
	struct writer *w = arg;
	uint8_t buf[1000];

	memset(buf, w->id, sizeof(buf));
	for (uint64_t i = 0; i < 200; i++)
		if (io_write(w->file, buf, sizeof(buf), (4 * i + w->id) * sizeof(buf)))
			return arg;
	return NULL;
}

static void test_threads(struct io *io)
{
	struct io_file *file = open_file(io, "t", IO_READ | IO_WRITE | IO_CREATE);
	pthread_t threads[4];
	struct writer writers[4];
	unsigned int bad = 0;
	uint8_t byte;

	for (uint8_t i = 0; i < 4; i++) {
		writers[i] = (struct writer){ file, i };
		if (pthread_create(&threads[i], NULL, write_blocks, &writers[i]))
			abort();
	}
	for (int i = 0; i < 4; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		bad += failed != NULL;
	}
	for (uint64_t i = 0; i < 800; i++)
		bad += io_read_exact(file, &byte, 1, i * 1000 + 999) || byte != i % 4;
	is_u64(bad, 0, "four threads write to one handle");
	io_close(file);
	is_int(io->ops->unlink(io, "t"), 0, "unlink");
}

static void test_all(struct io *io)
{
	uint64_t total = 0, free_bytes = 0;

	test_names(io);
	test_data(io);
	test_allocate_and_map(io);
	test_whole_files(io);
	test_threads(io);
	is_int(io->ops->space(io, &total, &free_bytes), 0, "space");
	ok(total >= free_bytes && total > 0, "more in all than free");
}

/* What has a file's name and is none. dirfd: that of io. */
static void test_odd(struct io *io, int dirfd)
{
	const unsigned int write = IO_READ | IO_WRITE | IO_CREATE | IO_TRUNCATE;
	struct io_file *file = open_file(io, "target", IO_WRITE | IO_CREATE);
	uint64_t size = 0;

	is_int(io_write(file, "x", 1, 0), 0, "one byte");
	is_int(symlinkat("target", dirfd, "link"), 0, "a link");
	is_int(mkfifoat(dirfd, "fifo", 0600), 0, "a FIFO");
	is_int(mkdirat(dirfd, "folder", 0700), 0, "a folder");
	is_int(io_open(io, "link", write, &file), -ELOOP, "a link is not followed");
	is_int(file->ops->size(file, &size), 0, "size of what it points to");
	is_u64(size, 1, "which is as it was");
	is_int(io_open(io, "fifo", IO_READ, NULL), -ENXIO, "a FIFO is no file, and not waited for");
	is_int(io_open(io, "folder", IO_READ, NULL), -EISDIR, "nor is a folder");
	io_close(file);
	unlinkat(dirfd, "folder", AT_REMOVEDIR);
	unlinkat(dirfd, "fifo", 0);
	unlinkat(dirfd, "link", 0);
	unlinkat(dirfd, "target", 0);
}

static void test_posix(void)
{
	char dir[] = "/tmp/test-io-XXXXXX", moved[40];
	struct io_file *file;
	struct io *io;
	int fd;

	if (!mkdtemp(dir))
		abort();
	fd = open(dir, O_RDONLY | O_DIRECTORY);
	is_int(io_posix_create(fd, &io), 0, "the real disk");
	close(fd);
	is_int(io_posix_create(fd, &io), -EBADF, "a closed directory");
	snprintf(moved, sizeof(moved), "%s-moved", dir);
	is_int(rename(dir, moved), 0, "a store may be moved");
	test_all(io);
	file = open_file(io, "fd", IO_WRITE | IO_CREATE);
	ok(fcntl(file->ops->fd(file), F_GETFD) & FD_CLOEXEC, "descriptors are not inherited");
	io_close(file);
	fd = open(moved, O_RDONLY | O_DIRECTORY);
	test_odd(io, fd);
	unlinkat(fd, "fd", 0);
	unlinkat(fd, "w", AT_REMOVEDIR);
	unlinkat(fd, "d", AT_REMOVEDIR);
	close(fd);
	io_destroy(io);
	io_destroy(NULL);
	is_int(rmdir(moved), 0, "nothing is left over");
	fd = open("/dev/null", O_RDONLY);
	is_int(io_posix_create(fd, &io), -ENOTDIR, "a file is no directory");
	close(fd);
}

int main(void)
{
	struct sim *sim;
	struct io *io;

	test_posix();
	if (sim_create(&sim, &io))
		return 1;
	tap_diag("the simulated disk");
	test_all(io);
	sim_destroy(sim);
	return done_testing();
}
