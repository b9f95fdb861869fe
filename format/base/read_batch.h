/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_READ_BATCH_H
#define FORMAT_BASE_READ_BATCH_H

/*
 * Many small reads of what the page cache has, by few system calls. Nothing waits for a device: what is not cached is not read, and left to
 * the caller. One thread at a time; not to be used on behind fork().
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct read_batch;

struct cached_read {
	int fd;
	unsigned int num_iov;
	const struct iovec *iov; /* borrowed */
	uint64_t off;            /* bytes, at most INT64_MAX */
	ssize_t got; /* result: bytes; short where the rest is not cached, or at the end of the file; -errno, -EAGAIN: nothing is cached */
};

int read_batch_create(struct read_batch **ret); /* 0, -ENOMEM */
void read_batch_destroy(struct read_batch *b);  /* NULL is fine */
/* Each for itself: one that fails says so in got, and the others are read. */
void read_batch_run(struct read_batch *b, struct cached_read *reads, size_t num);

#endif
