/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_SESSION_NEW_MOUNT_H
#define FS_SESSION_NEW_MOUNT_H

/*
 * A mount that is made before it has a place, and then put where a dead one is
 * (docs/design/dead-mounts.md). Root's alone.
 */

#include "fs/session/session.h"

/*
 * *ret_device: the connection, whose INIT waits to be answered; *ret_mount: the mount, which is
 * nowhere yet; both the caller's. -errno: ordinary users, and kernels before Linux 5.2, have no
 * such thing; nothing has happened.
 */
int new_mount_create(const struct session_options *opt, int *ret_device, int *ret_mount);
/*
 * Puts it beneath the dead mount at mountpoint and takes that one away: nobody sees what is below.
 * -EINVAL: the kernel cannot (before Linux 6.5), or nothing is mounted there any more. On any error
 * what was there is there still.
 */
int new_mount_replace(int mount_fd, const char *mountpoint);
int new_mount_put(int mount_fd, const char *mountpoint); /* on a directory that is free */

#endif
