/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_DEAD_MOUNT_H
#define FORMAT_BASE_DEAD_MOUNT_H

/* A mount whose daemon has died stays, refuses everything, and covers a directory. Any thread. */

#include <limits.h>
#include <stdbool.h>

/* Is what is mounted there dead? It is asked, so a daemon that hangs hangs the caller. */
bool dead_mount_is(const char *mountpoint);
/*
 * path made absolute and resolved, whether or not its last part exists, and also when it is a dead
 * mount point. 0 or -errno.
 */
int dead_mount_real_path(const char *path, char out[PATH_MAX]);
/*
 * Opens the directory path, which is mountpoint or lies below it, for reading, beneath whatever is
 * mounted at mountpoint. Both are absolute and resolved. Returns a descriptor. -EPERM: only root
 * may; -ENOSYS: the kernel cannot (before Linux 5.2); -errno of the directory.
 */
int dead_mount_open_below(const char *mountpoint, const char *path);

#endif
