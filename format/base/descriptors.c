/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/descriptors.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>
#include <unistd.h>

#define LEFT_MAX    64u /* descriptors that are left to others when they become scarce */
#define LEFT_ONE_IN 4u

void descriptors_fill(void)
{
	int fd;

	do /* the lowest free number is the one that is given */
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

static size_t count_of(rlim_t limit)
{
	return limit == RLIM_INFINITY || limit > INT_MAX ? INT_MAX : (size_t)limit;
}

size_t descriptors_raise(void)
{
	struct rlimit limit, most;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return INT_MAX;
	most = (struct rlimit){ .rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max };
	return count_of(setrlimit(RLIMIT_NOFILE, &most) == 0 ? most.rlim_cur : limit.rlim_cur);
}

static size_t all(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? count_of(limit.rlim_cur) : INT_MAX;
}

size_t descriptors_share(size_t wanted, unsigned int one_in)
{
	size_t share = all() / one_in;

	return share < wanted ? share : wanted;
}

bool descriptors_scarce(int fd)
{
	size_t num = all(), left = num / LEFT_ONE_IN;

	return fd >= 0 && (size_t)fd >= num - (left < LEFT_MAX ? left : LEFT_MAX);
}

void descriptors_drop_inherited(int keep)
{
	unsigned int first = 3;

	if (keep > 3)
		(void)close_range(3, (unsigned int)keep - 1, 0);
	if (keep >= 3)
		first = (unsigned int)keep + 1;
	(void)close_range(first, ~0u, 0);
}
