/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/window/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define SEGMENT_DIR "segment"

int files_open_store(const char *store)
{
	int storefd = open(store, O_PATH | O_DIRECTORY | O_CLOEXEC), dirfd, r;

	if (storefd < 0)
		return -errno;
	dirfd = openat(storefd, SEGMENT_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = dirfd < 0 ? -errno : dirfd;
	close(storefd);
	return r;
}

const char *files_name(uint32_t segment, bool is_private, char out[FILES_NAME_MAX])
{
	snprintf(out, FILES_NAME_MAX, "%08" PRIu32 "%s", segment, is_private ? ".prv" : ".seg");
	return out;
}

int files_open(int dirfd, uint32_t segment, struct stat *st, bool *ret_private)
{
	char name[FILES_NAME_MAX];
	int fd = -1;

	for (int k = 0; k < 2 && fd < 0; k++) {
		*ret_private = k == 1;
		fd = openat(dirfd, files_name(segment, k == 1, name), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 && errno != ENOENT)
			return -errno;
	}
	if (fd < 0)
		return -ENOENT;
	if (fstat(fd, st) == 0 && S_ISREG(st->st_mode))
		return fd;
	close(fd);
	return -ENOENT;
}

bool files_is_deleted(int dirfd, uint32_t segment)
{
	char name[FILES_NAME_MAX];

	for (int k = 0; k < 2; k++)
		if (faccessat(dirfd, files_name(segment, k == 1, name), F_OK, 0) == 0 || errno != ENOENT)
			return false;
	return true;
}
