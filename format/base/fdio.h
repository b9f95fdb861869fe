/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_FDIO_H
#define FORMAT_BASE_FDIO_H

/* Reads and writes of a descriptor at an offset that go on where the system does a part only. Offsets above INT64_MAX: -EFBIG. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

ssize_t fdio_read(
	int fd, void *buf, size_t len, uint64_t off); /* how many: short only at the end of the file; -errno */
int fdio_read_exact(int fd, void *buf, size_t len, uint64_t off);  /* 0; -ENODATA when the file is shorter; -errno */
int fdio_write(int fd, const void *buf, size_t len, uint64_t off); /* 0; -errno */
/*
 * len bytes at off of one file to the same place of another. By the kernel, which may share the blocks, or by reading and writing
 * where it cannot: between two file systems. 0; -ENODATA when the first one is shorter; -errno.
 */
int fdio_copy(int from, int to, uint64_t off, uint64_t len);
/* Makes the names of the folder that holds path durable, where the file system has such a thing. 0; -errno. */
int fdio_sync_parent(const char *path);
/*
 * Does path name what is open as fd? For who has locked a file that others may have renamed or removed in between: with its lock they have
 * let go of its name, too. 0; -ESTALE: something else, or nothing, has the name; -errno.
 */
int fdio_check_name(int fd, const char *path);
/* For those who read through a function, as classic_read() does: arg points to the descriptor. */
ssize_t fdio_read_arg(void *buf, size_t len, uint64_t off, void *arg);

#endif
