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
/* For those who read through a function, as classic_read() does: arg points to the descriptor. */
ssize_t fdio_read_arg(void *buf, size_t len, uint64_t off, void *arg);

#endif
