/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A copy of the mount that holds the mount point, without what is mounted on it, shows the
 * directory itself. The copy belongs to no mount namespace and goes when its descriptor is closed;
 * the directory's descriptor stays.
 */
#include "format/base/dead_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef SYS_open_tree
#define SYS_open_tree 428 /* the same number everywhere but on alpha */
#endif
#define COPY_OF_TREE 1u /* OPEN_TREE_CLONE */

/* statfs() asks the daemon; what stat() says may come from a cache that has outlived it. */
bool dead_mount_is(const char *mountpoint)
{
	struct statfs st;

	return statfs(mountpoint, &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

/*
 * The directory of path resolved, then its last part: for what does not exist yet or does not
 * answer any more.
 */
static int resolve_by_parent(const char *path, char out[PATH_MAX])
{
	char copy[PATH_MAX], parent[PATH_MAX];
	char *slash;
	const char *base;
	size_t len = strlen(path);

	if (len == 0 || len >= sizeof(copy))
		return len ? -ENAMETOOLONG : -ENOENT;
	memcpy(copy, path, len + 1);
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = '\0';
	slash = strrchr(copy, '/');
	base = slash ? slash + 1 : copy;
	if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
		return -ENOENT;
	if (slash)
		*slash = '\0';
	if (!realpath(!slash ? "." : *copy ? copy : "/", parent))
		return -errno;
	len = strlen(parent);
	if (len + strlen(base) + 2 > PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(out, parent, len);
	if (out[len - 1] != '/')
		out[len++] = '/';
	memcpy(out + len, base, strlen(base) + 1);
	return 0;
}

int dead_mount_real_path(const char *path, char out[PATH_MAX])
{
	if (realpath(path, out))
		return 0;
	return errno == ENOENT || errno == ENOTCONN || errno == ECONNABORTED ? resolve_by_parent(path, out) : -errno;
}

int dead_mount_open_below(const char *mountpoint, const char *path)
{
	const char *slash = strrchr(mountpoint, '/');
	char parent[PATH_MAX];
	int tree, fd;

	if (!slash || !slash[1] || strncmp(path, mountpoint, strlen(mountpoint)) != 0)
		return -EINVAL;
	if (snprintf(parent, sizeof(parent), "%.*s", (int)(slash - mountpoint + 1), mountpoint) >= (int)sizeof(parent))
		return -ENAMETOOLONG;
	tree = (int)syscall(SYS_open_tree, AT_FDCWD, parent, COPY_OF_TREE | O_CLOEXEC);
	if (tree < 0)
		return -errno;
	fd = openat(tree, path + (slash + 1 - mountpoint), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		fd = -errno;
	close(tree);
	return fd;
}
