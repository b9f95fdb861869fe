/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * For a test that ends processes and never the power: what a process wrote is there for the next one with or without a sync, so
 * a test that opens stores by the hundred need not wait for a device. Named among the sources of such a test, these take
 * the place of the C library's in the whole program, RocksDB included. The order and the failure of syncs are the matter of others
 * (tests/crash/test-power, tests/unit/test-io).
 */
#include <fcntl.h>
#include <unistd.h>

static int is_open(int fd)
{
	return fcntl(fd, F_GETFD) < 0 ? -1 : 0;
}

int fsync(int fd)
{
	return is_open(fd);
}

int fdatasync(int fd)
{
	return is_open(fd);
}

int syncfs(int fd)
{
	return is_open(fd);
}

int sync_file_range(int fd, off64_t from, off64_t bytes, unsigned int flags)
{
	return is_open(fd);
}
