/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

/* Whoever opens the file for writing in between waits for that moment, and we get a signal: one that is ignored. */
int lease_find_writer(int fd)
{
	if (fcntl(fd, F_SETSIG, SIGURG) < 0)
		return -errno;
	if (fcntl(fd, F_SETLEASE, F_RDLCK) < 0)
		return errno == EAGAIN ? 1 : -errno;
	return fcntl(fd, F_SETLEASE, F_UNLCK) < 0 ? -errno : 0;
}
