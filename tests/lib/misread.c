/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A destination that gives back other bytes than were written, for LD_PRELOAD: while the directory $MISREAD_DIR holds a file
 * "misread.on" beside others, every read by position that cistern-agent does from a file in it has its first byte flipped; with
 * $MISREAD_FROM only those that begin at that offset or behind.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define PATH_BYTES 4096

typedef ssize_t pread_fn(int fd, void *buf, size_t len, off_t off);

/* pread64() as well: programs call whichever their off_t asks for, and here both are 64 bits wide. */
ssize_t misread(int fd, void *buf, size_t len, off_t off) __asm__("pread64");
ssize_t misread_plain(int fd, void *buf, size_t len, off_t off) __asm__("pread");

static int is_victim(int fd)
{
	const char *dir = getenv("MISREAD_DIR");
	char link[64], path[PATH_BYTES], on[PATH_BYTES];
	size_t dir_len = dir ? strlen(dir) : 0;
	ssize_t len;

	if (!dir || strcmp(program_invocation_short_name, "cistern-agent") != 0)
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	if (len <= (ssize_t)dir_len || strncmp(path, dir, dir_len) != 0 || path[dir_len] != '/')
		return 0;
	snprintf(on, sizeof(on), "%s/misread.on", dir);
	return access(on, F_OK) == 0;
}

ssize_t misread(int fd, void *buf, size_t len, off_t off)
{
	pread_fn *next = (pread_fn *)dlsym(RTLD_NEXT, "pread64");
	int saved = errno;
	ssize_t n = next(fd, buf, len, off);

	if (n > 0 && is_victim(fd) && off >= (getenv("MISREAD_FROM") ? atoll(getenv("MISREAD_FROM")) : 0))
		*(unsigned char *)buf ^= 1;
	if (n >= 0)
		errno = saved;
	return n;
}

ssize_t misread_plain(int fd, void *buf, size_t len, off_t off)
{
	return misread(fd, buf, len, off);
}
