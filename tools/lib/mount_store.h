/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_MOUNT_STORE_H
#define TOOLS_LIB_MOUNT_STORE_H

#include <limits.h>

#define MOUNT_STORE_XATTR "user.cistern.store" /* the daemon answers it on every inode: the store's absolute path */

/*
 * The store of what is mounted there: as the mount says, or, when that takes too long, as the command line of its daemon does, if that is
 * ours or root's. -ENOTCONN, -ECONNABORTED: its daemon has died. -ETIMEDOUT: it does not answer, and no daemon is found. -ENODATA: an empty answer. Others from getxattr.
 */
int mount_store(const char *mountpoint, char out[PATH_MAX]);

#endif
