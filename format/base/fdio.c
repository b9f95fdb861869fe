/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/fdio.h"

#include <errno.h>
#include <unistd.h>

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

ssize_t fdio_read_arg(void *buf, size_t len, uint64_t off, void *arg)
{
	return fdio_read(*(const int *)arg, buf, len, off);
}
