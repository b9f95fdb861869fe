/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/session/unmount.h"

#include <errno.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

static int run_fusermount(const char *mountpoint, bool lazy)
{
	const char *argv[] = { "fusermount3", "-u", lazy ? "-zq" : "-q", "--", mountpoint, NULL };
	pid_t pid;
	int status, r = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ);

	if (r)
		return -r;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

int unmount_path(const char *mountpoint, bool lazy)
{
	if (umount2(mountpoint, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
		return 0;
	return errno == EPERM ? run_fusermount(mountpoint, lazy) : -errno;
}

int unmount_forced(const char *mountpoint)
{
	int r;

	if (umount2(mountpoint, MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		return 0;
	r = -errno;
	if (r == -EPERM)
		run_fusermount(mountpoint, true);
	return r;
}
