/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_SESSION_UNMOUNT_H
#define FS_SESSION_UNMOUNT_H

#include <stdbool.h>

/*
 * Takes what is mounted at mountpoint away, as root by umount2(2), else by fusermount3; lazy: also
 * while it is in use, out of sight then. 0 or -errno; -EBUSY: in use, or fusermount3 refused.
 */
int unmount_path(const char *mountpoint, bool lazy);
/*
 * The same at once and with its connection severed. -errno: it may only be out of sight, or is
 * untouched.
 */
int unmount_forced(const char *mountpoint);

#endif
