/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Which way a call goes: to core alone, or through the parts that know the other nodes. */
#include <errno.h>
#include <stdlib.h>

#include "fs/job/private.h"

int job_create(const struct job_options *opt, struct job **ret, struct cistern_error *err)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	j->opt = *opt;
	j->core = opt->core;
	j->peers = opt->peers;
	*ret = j;
	return 0;
}

void job_shut_down(struct job *j)
{
	peers_shut_down(j->peers);
}

void job_destroy(struct job *j)
{
	free(j);
}

bool job_is_alone(const struct job *j)
{
	return !j->peers;
}

int job_lookup(struct job *j, uint64_t parent, const char *name, struct core_entry *ret)
{
	return core_lookup(j->core, parent, name, ret);
}

void job_forget(struct job *j, uint64_t ino, uint64_t nlookup)
{
	core_forget(j->core, ino, nlookup);
}

int job_getattr(struct job *j, uint64_t ino, struct job_file *file, struct core_entry *ret)
{
	return core_getattr(j->core, ino, file ? file->local : NULL, ret);
}

int job_setattr(struct job *j, uint64_t ino, const struct stat *attr, unsigned int to_set, struct job_file *file,
	struct core_entry *ret)
{
	return core_setattr(j->core, ino, attr, to_set, file ? file->local : NULL, ret);
}

int job_readlink(struct job *j, uint64_t ino, char *out, size_t cap)
{
	return core_readlink(j->core, ino, out, cap);
}

int job_mkdir(
	struct job *j, uint64_t parent, const char *name, mode_t mode, struct core_cred cred, struct core_entry *ret)
{
	return core_mkdir(j->core, parent, name, mode, cred, ret);
}

int job_symlink(struct job *j, uint64_t parent, const char *name, const char *target, struct core_cred cred,
	struct core_entry *ret)
{
	return core_symlink(j->core, parent, name, target, cred, ret);
}

int job_mknod(
	struct job *j, uint64_t parent, const char *name, mode_t mode, struct core_cred cred, struct core_entry *ret)
{
	return core_mknod(j->core, parent, name, mode, cred, ret);
}

int job_link(struct job *j, uint64_t ino, uint64_t parent, const char *name, struct core_entry *ret)
{
	return core_link(j->core, ino, parent, name, ret);
}

int job_unlink(struct job *j, uint64_t parent, const char *name)
{
	return core_unlink(j->core, parent, name);
}

int job_rmdir(struct job *j, uint64_t parent, const char *name)
{
	return core_rmdir(j->core, parent, name);
}

int job_rename(
	struct job *j, uint64_t from_parent, const char *from, uint64_t parent, const char *name, unsigned int flags)
{
	return core_rename(j->core, from_parent, from, parent, name, flags);
}

ssize_t job_read(struct job *j, struct job_file *file, void *buf, size_t len, uint64_t off)
{
	return core_read(j->core, file->local, buf, len, off);
}

ssize_t job_write(struct job *j, struct job_file *file, const void *buf, size_t len, uint64_t off)
{
	return core_write(j->core, file->local, buf, len, off);
}

int job_fsync(struct job *j, uint64_t ino, struct job_file *file, bool data_only)
{
	return core_fsync(j->core, ino, file ? file->local : NULL, data_only);
}

int job_syncfs(struct job *j)
{
	return core_syncfs(j->core);
}

int job_fallocate(struct job *j, struct job_file *file, int mode, uint64_t off, uint64_t len)
{
	return core_fallocate(j->core, file->local, mode, off, len);
}

int job_lseek(struct job *j, struct job_file *file, int64_t off, int whence, uint64_t *ret_off)
{
	return core_lseek(j->core, file->local, off, whence, ret_off);
}

int job_readdir(struct job *j, struct job_dir *dir, uint64_t index, const char **ret_name, uint64_t *ret_ino,
	uint32_t *ret_type)
{
	return core_readdir(j->core, dir->local, index, ret_name, ret_ino, ret_type);
}

int job_rewinddir(struct job *j, struct job_dir *dir)
{
	return core_rewinddir(j->core, dir->local);
}

ssize_t job_getxattr(struct job *j, uint64_t ino, const char *name, void *out, size_t cap)
{
	return core_getxattr(j->core, ino, name, out, cap);
}

ssize_t job_listxattr(struct job *j, uint64_t ino, char *out, size_t cap)
{
	return core_listxattr(j->core, ino, out, cap);
}

int job_setxattr(struct job *j, uint64_t ino, const char *name, const void *value, size_t len, int flags)
{
	return core_setxattr(j->core, ino, name, value, len, flags);
}

int job_removexattr(struct job *j, uint64_t ino, const char *name)
{
	return core_removexattr(j->core, ino, name);
}

int job_statfs(struct job *j, struct statvfs *ret)
{
	return core_statfs(j->core, ret);
}

int job_opendir(struct job *j, uint64_t ino, struct job_dir **ret)
{
	struct job_dir *dir = calloc(1, sizeof(*dir));
	int r = dir ? core_opendir(j->core, ino, &dir->local) : -ENOMEM;

	if (r)
		free(dir);
	else
		*ret = dir;
	return r;
}

void job_closedir(struct job *j, struct job_dir *dir)
{
	core_closedir(j->core, dir->local);
	free(dir);
}

/* Every way to open a file ends here: r is what core said. */
static int opened(struct job_file *file, int r, struct job_file **ret_file, const struct core_open_reply *open)
{
	if (r) {
		free(file);
		return r;
	}
	file->local = open->file;
	*ret_file = file;
	return 0;
}

int job_create_file(struct job *j, uint64_t parent, const char *name, mode_t mode, int flags, struct core_cred cred,
	struct core_entry *ret, struct job_file **ret_file, struct core_open_reply *ret_open)
{
	struct job_file *file = calloc(1, sizeof(*file));

	return opened(file, file ? core_create_file(j->core, parent, name, mode, flags, cred, ret, ret_open) : -ENOMEM,
		ret_file, ret_open);
}

int job_tmpfile(struct job *j, uint64_t parent, mode_t mode, int flags, struct core_cred cred, struct core_entry *ret,
	struct job_file **ret_file, struct core_open_reply *ret_open)
{
	struct job_file *file = calloc(1, sizeof(*file));

	return opened(file, file ? core_tmpfile(j->core, parent, mode, flags, cred, ret, ret_open) : -ENOMEM, ret_file,
		ret_open);
}

int job_open(struct job *j, uint64_t ino, int flags, struct job_file **ret_file, struct core_open_reply *ret_open)
{
	struct job_file *file = calloc(1, sizeof(*file));

	return opened(file, file ? core_open(j->core, ino, flags, ret_open) : -ENOMEM, ret_file, ret_open);
}

void job_release(struct job *j, struct job_file *file)
{
	core_release(j->core, file->local);
	free(file);
}

ssize_t job_copy_range(
	struct job *j, struct job_file *from, uint64_t from_off, struct job_file *to, uint64_t to_off, size_t len)
{
	return core_copy_range(j->core, from->local, from_off, to->local, to_off, len);
}
