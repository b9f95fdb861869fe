/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_JOB_PATH_H
#define TESTS_LIB_JOB_PATH_H

/*
 * System calls by path on one node of a job in one process (job_world.h): the part that the kernel plays above a mount. Paths
 * are relative to the root, without "." and ".."; symbolic links lead nowhere. 0 or -errno, as the call itself would say. Nothing is remembered from one
 * call to the next, as if the kernel kept no cache.
 */

#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "fs/job/job.h"

struct path_file { /* open; its lookup is counted until it is closed */
	struct job *j;
	struct job_file *file;
	uint64_t ino;
};

int path_stat(struct job *j, const char *path, struct stat *ret); /* lstat */
int path_mkdir(struct job *j, const char *path, mode_t mode);
int path_create(struct job *j, const char *path, mode_t mode, int flags);         /* open(O_CREAT | flags), close */
int path_open(struct job *j, const char *path, int flags, struct path_file *ret); /* of one that is there */
int path_close(struct path_file *f); /* flush and release; what flush says */
int path_mknod(struct job *j, const char *path, mode_t mode);
int path_symlink(struct job *j, const char *target, const char *path);
int path_readlink(struct job *j, const char *path, char *out, size_t cap);
int path_link(struct job *j, const char *from, const char *to);
int path_unlink(struct job *j, const char *path);
int path_rmdir(struct job *j, const char *path);
int path_rename(struct job *j, const char *from, const char *to, unsigned int flags); /* RENAME_* */
int path_chmod(struct job *j, const char *path, mode_t mode);
int path_truncate(struct job *j, const char *path, off_t size);
int path_setxattr(struct job *j, const char *path, const char *name, const char *value, int flags);
int path_getxattr(struct job *j, const char *path, const char *name, char *out, size_t cap); /* length */
int path_removexattr(struct job *j, const char *path, const char *name);
/* Names of a directory, sorted, each followed by a newline. */
int path_list(struct job *j, const char *path, char *out, size_t cap);

#endif
