/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * libfuse and fusermount3 say why a mount failed on stderr and return only -1. While mounting, before anything else
 * runs, stderr is a file in memory, and its last line becomes the text of our error.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fs/session/private.h"

int capture_begin(int *ret_saved)
{
	int saved, fd = memfd_create("stderr", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (saved < 0 || dup2(fd, STDERR_FILENO) < 0) {
		int r = -errno;

		if (saved >= 0)
			close(saved);
		close(fd);
		return r;
	}
	*ret_saved = saved;
	return fd;
}

void capture_end(int fd, int saved, char *out, size_t cap)
{
	off_t end;
	ssize_t n;
	char *line;

	*out = '\0';
	if (fd < 0)
		return;
	dup2(saved, STDERR_FILENO);
	close(saved);
	end = lseek(fd, 0, SEEK_END);
	n = pread(fd, out, cap - 1, end > (off_t)cap - 1 ? end - (off_t)cap + 1 : 0);
	close(fd);
	if (n <= 0)
		return;
	while (n > 0 && out[n - 1] == '\n')
		n--;
	out[n] = '\0';
	line = strrchr(out, '\n');
	if (line)
		memmove(out, line + 1, strlen(line + 1) + 1);
}
