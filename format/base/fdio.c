/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/fdio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KERNEL_COPY_BYTES ((size_t)64 << 20) /* so that a signal is heeded */
#define COPY_BYTES        ((size_t)1 << 20)

/* Offsets are off_t, signed, below us. */
static int check_range(uint64_t off, uint64_t len)
{
	return off > INT64_MAX || len > INT64_MAX - off ? -EFBIG : 0;
}

ssize_t fdio_read(int fd, void *buf, size_t len, uint64_t off)
{
	size_t done = 0;

	if (check_range(off, len))
		return -EFBIG;
	while (done < len) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int fdio_read_exact(int fd, void *buf, size_t len, uint64_t off)
{
	ssize_t n = fdio_read(fd, buf, len, off);

	if (n < 0)
		return (int)n;
	return (size_t)n == len ? 0 : -ENODATA;
}

int fdio_write(int fd, const void *buf, size_t len, uint64_t off)
{
	size_t done = 0;

	if (check_range(off, len))
		return -EFBIG;
	while (done < len) {
		ssize_t n = pwrite(fd, (const char *)buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO; /* a device that takes nothing and says nothing: do not spin on it */
		done += (size_t)n;
	}
	return 0;
}

static bool is_not_for_kernel(int error)
{
	return error == EXDEV || error == EINVAL || error == ENOSYS || error == EOPNOTSUPP;
}

/* Returns where it ended, at the end or where somebody else has to go on; or -errno. */
static int64_t copy_by_kernel(int from, int to, uint64_t off, uint64_t end)
{
	while (off < end) {
		size_t len = end - off < KERNEL_COPY_BYTES ? (size_t)(end - off) : KERNEL_COPY_BYTES;
		off_t in = (off_t)off, out = (off_t)off;
		ssize_t n = copy_file_range(from, &in, to, &out, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && !is_not_for_kernel(errno))
			return -errno;
		if (n <= 0) /* some file systems say 0 for what they do not do */
			break;
		off += (uint64_t)n;
	}
	return (int64_t)off;
}

static int copy_by_hand(int from, int to, uint64_t off, uint64_t end)
{
	size_t cap = end - off < COPY_BYTES ? (size_t)(end - off) : COPY_BYTES;
	uint8_t *buf = malloc(cap + !cap);
	int r = buf ? 0 : -ENOMEM;

	while (r == 0 && off < end) {
		size_t len = end - off < cap ? (size_t)(end - off) : cap;

		r = fdio_read_exact(from, buf, len, off);
		if (r == 0)
			r = fdio_write(to, buf, len, off);
		off += len;
	}
	free(buf);
	return r;
}

int fdio_copy(int from, int to, uint64_t off, uint64_t len)
{
	int64_t at;

	if (check_range(off, len))
		return -EFBIG;
	at = copy_by_kernel(from, to, off, off + len);
	return at < 0 ? (int)at : copy_by_hand(from, to, (uint64_t)at, off + len);
}

int fdio_sync_parent(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, r = 0;

	if (!dir)
		return -ENOMEM;
	if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL))
		r = -errno;
	if (fd >= 0)
		close(fd);
	free(dir);
	return r;
}

int fdio_check_name(int fd, const char *path)
{
	struct stat held, there;

	if (fstat(fd, &held) < 0)
		return -errno;
	if (lstat(path, &there) < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	return held.st_dev == there.st_dev && held.st_ino == there.st_ino ? 0 : -ESTALE;
}

ssize_t fdio_read_arg(void *buf, size_t len, uint64_t off, void *arg)
{
	return fdio_read(*(const int *)arg, buf, len, off);
}
