/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_MOUNTS_H
#define TOOLS_LIB_MOUNTS_H

/* The mounts of this machine, from /proc/self/mountinfo, and who holds them. */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cistern/error.h"

#define MOUNTS_FS_TYPE "fuse.cistern"

struct mount_entry {
	int mnt_id, parent_id;
	unsigned int major, minor; /* of its device */
	bool cistern;              /* type fuse.cistern */
	char root[PATH_MAX];       /* what of the file system is mounted there: "/", or a path in it */
	char mountpoint[PATH_MAX];
	char source[PATH_MAX]; /* cistern: the backing directory */
	char type[64];
};

/* One line of mountinfo (proc(5)). False when it is none. The line is cut up. */
bool mounts_parse_line(char *line, struct mount_entry *ret);
/* Calls each(entry, arg) for every mount in the order of mounting; non-zero stops and is returned. -errno. */
int mounts_each(int (*each)(const struct mount_entry *m, void *arg), void *arg);
int mounts_each_of(
	pid_t pid, int (*each)(const struct mount_entry *m, void *arg), void *arg); /* as that process sees them */
/* The topmost mount that holds path (absolute and resolved; need not exist). -ENOENT. */
int mounts_holding(const char *path, struct mount_entry *ret);
/* The topmost mount at exactly mountpoint. -ENOENT: nothing is mounted there. */
int mounts_at(const char *mountpoint, struct mount_entry *ret);
int mounts_by_id(int mnt_id, struct mount_entry *ret); /* -ENOENT */
/* The first mount of the same file system as m, also if that has gone; bind mounts count. -ENOENT. */
int mounts_same(const struct mount_entry *m, struct mount_entry *ret);
/* path is dir or lies in it; both absolute and resolved. */
bool mounts_path_in(const char *path, const char *dir);

/*
 * Take the mount at mountpoint away; lazy: at once, whoever uses it. As root by umount2(2), else by fusermount3.
 * -EBUSY.
 */
int mounts_unmount(const char *mountpoint, bool lazy, struct cistern_error *err);

struct mount_holder {
	pid_t pid;
	char name[32];
	char what[16]; /* "fd 3", "cwd", "exe", "root", "map", "mount" */
	char path[PATH_MAX];
};
/*
 * Calls each() once for every process that we may look into and that holds the mount: with an open file, its working
 * directory, root, program or a mapping. Never touches the mount itself. Returns their number.
 */
int mounts_holders(const struct mount_entry *m, void (*each)(const struct mount_holder *h, void *arg), void *arg);
/*
 * m was unmounted here: calls each() for one process of each other mount namespace that has it still, as containers do that were started
 * under it. Returns their number.
 */
int mounts_elsewhere(const struct mount_entry *m, void (*each)(const struct mount_holder *h, void *arg), void *arg);

#endif
