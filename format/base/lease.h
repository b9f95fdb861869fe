/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_LEASE_H
#define FORMAT_BASE_LEASE_H

/*
 * Has anybody the file open for writing, by a descriptor or a mapping? The kernel tells by granting
 * a read lease or not. fd: opened for reading alone; the caller's own descriptors for writing count.
 * 0: nobody. 1: somebody. Else this cannot be known: -EINVAL, the file system has no leases; -EACCES,
 * the file is somebody else's.
 */
int lease_find_writer(int fd);

#endif
