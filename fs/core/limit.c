/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How large a file may become: as large as one in the backing directory, or the drain would be the first to hear of it. Offsets that its file
 * system has no numbers for it refuses to lseek(); whether it, or a server behind it, takes such a size is tried with a file that has no name.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int nameless(int dirfd)
{
	int fd = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char name[48];

	if (fd >= 0)
		return fd;
	snprintf(name, sizeof(name), ".cistern-tmp-probe-%d", (int)getpid());
	fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		unlinkat(dirfd, name, 0);
	return fd;
}

static bool can_seek(int fd, uint64_t size)
{
	return lseek(fd, (off_t)size, SEEK_SET) >= 0;
}

/* What has another reason, which may be over soon, says nothing of sizes. */
static bool can_have(int fd, uint64_t size)
{
	return ftruncate(fd, (off_t)size) == 0 || (errno != EFBIG && errno != EINVAL);
}

/* The largest size up to limit of which can() is true. */
static uint64_t largest(int fd, bool (*can)(int fd, uint64_t size), uint64_t limit)
{
	uint64_t yes = 0, no = limit;

	if (can(fd, limit))
		return limit;
	while (no - yes > 1) {
		uint64_t middle = yes + (no - yes) / 2;

		*(can(fd, middle) ? &yes : &no) = middle;
	}
	return yes;
}

uint64_t limit_of_files(int backing_fd)
{
	uint64_t limit = INT64_MAX;
	int fd = nameless(backing_fd);

	if (fd < 0)
		return limit;
	limit = largest(fd, can_have, largest(fd, can_seek, limit));
	close(fd);
	return limit;
}
