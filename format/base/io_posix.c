/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The I/O seam over a real directory. Every path is resolved from the directory's descriptor, so that a store goes
 * on working when it, or a folder above it, is renamed, and never depends on the current directory.
 *
 * A failed fdatasync or fsync is not tried again: Linux may have marked the pages clean, and a second call that
 * succeeds would prove nothing. The caller must treat the file's unsynced bytes as lost.
 */
#include "format/base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "format/base/fdio.h"

#define FILE_MODE 0600
#define DIR_MODE  0700
#define MAP_UNIT  4096

struct posix_io {
	struct io io;
	int dirfd; /* owned */
};

struct posix_file {
	struct io_file file;
	int fd; /* owned */
};

static int dirfd_of(struct io *io)
{
	return ((struct posix_io *)io)->dirfd;
}

static int fd_of(struct io_file *file)
{
	return ((struct posix_file *)file)->fd;
}

/* A quota that is used up is a device that is full: what is done about the one is done about the other. */
static int error_of(int error)
{
	return error == EDQUOT ? -ENOSPC : -error;
}

static int posix_open_flags(unsigned int flags)
{
	/* Nothing outside is opened through a link, and nobody waits for a FIFO's other end; of files that changes nothing. */
	int o = O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;

	o |= (flags & IO_WRITE) ? ((flags & IO_READ) ? O_RDWR : O_WRONLY) : O_RDONLY;
	o |= (flags & IO_CREATE) ? O_CREAT : 0;
	o |= (flags & IO_EXCL) ? O_EXCL : 0;
	o |= (flags & IO_TRUNCATE) ? O_TRUNC : 0;
	return o;
}

/* openat that stays below the store: an absolute path would leave it. */
static int open_below(struct io *io, const char *path, int o)
{
	int fd;

	if (path[0] == '/')
		return -EINVAL;
	do
		fd = openat(dirfd_of(io), path[0] ? path : ".", o, FILE_MODE);
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? error_of(errno) : fd;
}

static const struct io_ops posix_ops;

/* 0; else what it is instead of a file. */
static int check_regular(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? 0 : S_ISDIR(st.st_mode) ? -EISDIR : -ENXIO;
}

static int posix_open(struct io *io, const char *path, unsigned int flags, struct io_file **ret_file)
{
	struct posix_file *f;
	int fd, r;

	if (!(flags & (IO_READ | IO_WRITE)) || ((flags & IO_TRUNCATE) && !(flags & IO_WRITE)))
		return -EINVAL;
	f = malloc(sizeof(*f));
	if (!f)
		return -ENOMEM;
	fd = open_below(io, path, posix_open_flags(flags));
	if (fd < 0) {
		free(f);
		return fd;
	}
	r = check_regular(fd);
	if (r) {
		close(fd);
		free(f);
		return r;
	}
	f->file.ops = &posix_ops;
	f->fd = fd;
	*ret_file = &f->file;
	return 0;
}

static void posix_destroy(struct io *io)
{
	close(dirfd_of(io));
	free(io);
}

static int posix_unlink(struct io *io, const char *path)
{
	if (path[0] == '/')
		return -EINVAL;
	return unlinkat(dirfd_of(io), path, 0) ? -errno : 0;
}

static int posix_rename(struct io *io, const char *from, const char *to)
{
	if (from[0] == '/' || to[0] == '/')
		return -EINVAL;
	return renameat(dirfd_of(io), from, dirfd_of(io), to) ? error_of(errno) : 0;
}

static int posix_mkdir(struct io *io, const char *path)
{
	if (path[0] == '/')
		return -EINVAL;
	return mkdirat(dirfd_of(io), path, DIR_MODE) ? error_of(errno) : 0;
}

static int posix_sync_dir(struct io *io, const char *path)
{
	int fd = open_below(io, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return fd;
	r = fsync(fd) ? -errno : 0;
	close(fd);
	return r;
}

int io_list_fd(int fd, int (*each)(const char *name, void *arg), void *arg)
{
	struct dirent *entry;
	DIR *dir = fdopendir(fd);
	int r = 0;

	if (!dir) {
		r = -errno;
		close(fd);
		return r;
	}
	rewinddir(dir); /* fd may share its place with one that was read before */
	while (r == 0) {
		errno = 0;
		entry = readdir(dir);
		if (!entry) {
			r = -errno;
			break;
		}
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = each(entry->d_name, arg);
	}
	closedir(dir);
	return r;
}

static int posix_list(struct io *io, const char *path, int (*each)(const char *name, void *arg), void *arg)
{
	int fd = open_below(io, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? fd : io_list_fd(fd, each, arg);
}

static int posix_space(struct io *io, uint64_t *ret_total_bytes, uint64_t *ret_free_bytes)
{
	struct statvfs st;

	if (fstatvfs(dirfd_of(io), &st))
		return -errno;
	*ret_total_bytes = (uint64_t)st.f_blocks * st.f_frsize;
	*ret_free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
	return 0;
}

/* What close() could still report has been reported by sync(), and unsynced bytes carry no promise. */
static void posix_close(struct io_file *file)
{
	close(fd_of(file));
	free(file);
}

/* Offsets are off_t, signed, below us. */
static int check_range(uint64_t off, uint64_t len)
{
	return off > INT64_MAX || len > INT64_MAX - off ? -EFBIG : 0;
}

static ssize_t posix_pread(struct io_file *file, void *buf, size_t len, uint64_t off)
{
	return fdio_read(fd_of(file), buf, len, off);
}

static ssize_t posix_pwrite(struct io_file *file, const void *buf, size_t len, uint64_t off)
{
	int r = fdio_write(fd_of(file), buf, len, off);

	return r < 0 ? error_of(-r) : (ssize_t)len;
}

static int posix_sync(struct io_file *file)
{
	return fdatasync(fd_of(file)) ? -errno : 0;
}

static int posix_write_out(struct io_file *file, uint64_t off, uint64_t len)
{
	if (check_range(off, len))
		return -EFBIG;
	if (len == 0)
		return 0; /* to the kernel 0 would mean "to the end" */
	return sync_file_range(fd_of(file), (off_t)off, (off_t)len, SYNC_FILE_RANGE_WRITE) ? -errno : 0;
}

static int posix_fallocate_mode(struct io_file *file, int mode, uint64_t off, uint64_t len)
{
	int r;

	if (check_range(off, len))
		return -EFBIG;
	do
		r = fallocate(fd_of(file), mode, (off_t)off, (off_t)len);
	while (r && errno == EINTR);
	return r ? error_of(errno) : 0;
}

/* No emulation where the file system lacks it: reserved room that is not reserved would break promises later. */
static int posix_allocate(struct io_file *file, uint64_t off, uint64_t len)
{
	return posix_fallocate_mode(file, 0, off, len);
}

static int posix_punch(struct io_file *file, uint64_t off, uint64_t len)
{
	return posix_fallocate_mode(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len);
}

static int posix_truncate(struct io_file *file, uint64_t size)
{
	int r;

	if (check_range(size, 0))
		return -EFBIG;
	do
		r = ftruncate(fd_of(file), (off_t)size);
	while (r && errno == EINTR);
	return r ? -errno : 0;
}

static int posix_size(struct io_file *file, uint64_t *ret_size)
{
	struct stat st;

	if (fstat(fd_of(file), &st))
		return -errno;
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

static int posix_map(struct io_file *file, size_t len, bool writable, void **ret_addr)
{
	void *addr;

	if (len == 0 || len % MAP_UNIT != 0)
		return -EINVAL;
	addr = mmap(NULL, len, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd_of(file), 0);
	if (addr == MAP_FAILED)
		return -errno;
	*ret_addr = addr;
	return 0;
}

static void posix_unmap(struct io_file *file, void *addr, size_t len)
{
	(void)file;
	munmap(addr, len);
}

static int posix_fd(struct io_file *file)
{
	return fd_of(file);
}

static const struct io_ops posix_ops = {
	.open = posix_open,
	.destroy = posix_destroy,
	.unlink = posix_unlink,
	.rename = posix_rename,
	.mkdir = posix_mkdir,
	.sync_dir = posix_sync_dir,
	.list = posix_list,
	.space = posix_space,
	.close = posix_close,
	.pread = posix_pread,
	.pwrite = posix_pwrite,
	.sync = posix_sync,
	.write_out = posix_write_out,
	.allocate = posix_allocate,
	.punch = posix_punch,
	.truncate = posix_truncate,
	.size = posix_size,
	.map = posix_map,
	.unmap = posix_unmap,
	.fd = posix_fd,
};

int io_posix_create(int dirfd, struct io **ret_io)
{
	struct posix_io *p;
	struct stat st;

	if (fstat(dirfd, &st))
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	p = malloc(sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->io.ops = &posix_ops;
	p->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
	if (p->dirfd < 0) {
		int r = -errno;

		free(p);
		return r;
	}
	*ret_io = &p->io;
	return 0;
}
