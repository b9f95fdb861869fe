/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The library's fcntl(), but for file systems without locks; in the programs that use no_locks. */
#include "tests/lib/no_locks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

int no_locks;

int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (no_locks && (cmd == F_OFD_SETLK || cmd == F_OFD_GETLK)) {
		errno = no_locks;
		return -1;
	}
	return (int)syscall(SYS_fcntl, fd, cmd, arg);
}
