/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The kernel's own asynchronous I/O takes any number of reads by one call, and what is in the page cache has been read when that call returns
 * (RWF_NOWAIT). So a block of 4 KiB costs the finding of its page and the copy, and no entry into the kernel of its own, which is half of it where
 * entries are dear.
 *
 * Where there is no such thing (a kernel without it, a filter of system calls, a limit that others have used up), and for a single read that it
 * does not take, it is preadv2().
 */
#include "format/base/read_batch.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READS_AT_ONCE 256u

struct read_batch {
	aio_context_t context;
	bool usable;
	struct iocb blocks[READS_AT_ONCE];
	struct iocb *pointers[READS_AT_ONCE];
	struct io_event events[READS_AT_ONCE];
};

int read_batch_create(struct read_batch **ret)
{
	struct read_batch *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	for (unsigned int i = 0; i < READS_AT_ONCE; i++)
		b->pointers[i] = &b->blocks[i];
	b->usable = syscall(SYS_io_setup, READS_AT_ONCE, &b->context) == 0;
	*ret = b;
	return 0;
}

void read_batch_destroy(struct read_batch *b)
{
	if (b && b->context)
		syscall(SYS_io_destroy, b->context);
	free(b);
}

static void read_one(struct cached_read *r)
{
	r->got = preadv2(r->fd, r->iov, (int)r->num_iov, (off_t)r->off, RWF_NOWAIT);
	if (r->got < 0)
		r->got = -errno;
}

static void describe(struct iocb *block, struct cached_read *r)
{
	*block = (struct iocb){ .aio_data = (uintptr_t)r,
		.aio_lio_opcode = IOCB_CMD_PREADV,
		.aio_fildes = (uint32_t)r->fd,
		.aio_buf = (uintptr_t)r->iov,
		.aio_nbytes = r->num_iov,
		.aio_offset = (int64_t)r->off,
		.aio_rw_flags = RWF_NOWAIT };
}

/* Until all that the kernel has taken are done: it writes into their memory. */
static void collect(struct read_batch *b, size_t num)
{
	while (num > 0) {
		long n = syscall(SYS_io_getevents, b->context, 1L, (long)num, b->events, NULL);

		for (long i = 0; i < n; i++)
			((struct cached_read *)(uintptr_t)b->events[i].data)->got = (ssize_t)b->events[i].res;
		if (n > 0)
			num -= (size_t)n;
	}
}

/* How many of them the kernel has taken. */
static size_t submit(struct read_batch *b, struct cached_read *reads, size_t num)
{
	long n;

	for (size_t i = 0; i < num; i++)
		describe(&b->blocks[i], &reads[i]);
	n = syscall(SYS_io_submit, b->context, (long)num, b->pointers);
	if (n <= 0)
		return 0;
	collect(b, (size_t)n);
	return (size_t)n;
}

void read_batch_run(struct read_batch *b, struct cached_read *reads, size_t num)
{
	size_t n;

	for (; num > 0; reads += n, num -= n) {
		n = b->usable ? submit(b, reads, num < READS_AT_ONCE ? num : READS_AT_ONCE) : 0;
		if (n > 0)
			continue;
		read_one(reads);
		if (reads->got >= 0) /* it is not the read, then */
			b->usable = false;
		n = 1;
	}
}
