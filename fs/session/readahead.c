/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How far the kernel reads ahead on the mount. FUSE gives every mount 128 KiB, much less than an SSD needs to be busy; the limit
 * can be raised only through sysfs, by root. Without it reads are right, and slower when they are cold.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fs/session/private.h"

#define READAHEAD_KIB "4096"

bool session_widen_readahead(unsigned int dev_minor)
{
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "/sys/class/bdi/0:%u/read_ahead_kb", dev_minor);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	bool done = write(fd, READAHEAD_KIB, strlen(READAHEAD_KIB)) > 0;
	close(fd);
	return done;
}
