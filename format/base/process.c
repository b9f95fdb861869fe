/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The 22nd field. The second one, a name in parentheses, may have anything in it. */
static int parse(const char *text, uint64_t *ret)
{
	const char *at = strrchr(text, ')');

	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at && sscanf(at, " %" SCNu64, ret) == 1 ? 0 : -EBADMSG;
}

int process_began(pid_t pid, uint64_t *ret)
{
	char path[64], text[1024];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	n = read(fd, text, sizeof(text) - 1);
	if (n < 0)
		n = -errno;
	close(fd);
	if (n < 0)
		return (int)n;
	text[n] = '\0';
	return parse(text, ret);
}
