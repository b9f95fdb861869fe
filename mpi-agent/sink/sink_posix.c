/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The sink over a directory. Every path is walked component by component from the root's descriptor without
 * following links, so that nobody who may write to the backing directory can lead a drain out of it. The last
 * directories are kept open; those whose names have changed stay open until sync_names has synced them.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "format/base/descriptors.h"
#include "format/base/io.h"
#include "mpi-agent/sink/sink_posix_private.h"

static struct sink_posix *sink_of(struct sink *s)
{
	return (struct sink_posix *)s;
}

/* r is of a call with names in one, and perhaps in other: is it to be done again? */
static bool may_now(struct sink_posix *p, int r, struct open_dir *one, struct open_dir *other, unsigned int *tries)
{
	bool taken;

	if (r != -EACCES || ++*tries > TRIES)
		return false;
	taken = sink_posix_take_rights(p, one->fd, S_IRWXU, &one->taken);
	return (other && sink_posix_take_rights(p, other->fd, S_IRWXU, &other->taken)) || taken;
}

/* Opens what has that name, once more, with these rights. */
static int open_taking(struct sink_posix *p, int dir, const char *name, int flags, mode_t rights, mode_t *taken)
{
	int at = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), fd = -1;
	char link[64];

	if (at < 0)
		return -errno;
	for (unsigned int tries = 0; fd < 0 && tries < TRIES; tries++) {
		if (!sink_posix_take_rights(p, at, rights, taken)) {
			fd = -EACCES;
			break;
		}
		fd = open(sink_posix_link_to(at, link), flags & ~O_NOFOLLOW);
		fd = fd < 0 ? -errno : fd;
	}
	if (fd < 0)
		sink_posix_give_back(p, at, taken);
	close(at);
	return fd;
}

/* ---- directories */

/* EINVAL: this file system does not sync directories; nothing better can be done there. */
static int sync_dir(const struct open_dir *d)
{
	return fsync(d->fd) && errno != EINVAL ? -errno : 0;
}

static int drop_dir(struct sink_posix *p, struct open_dir *d)
{
	int r;

	if (d->used)
		sink_posix_give_back(p, d->fd, &d->taken);
	r = d->used && d->changed ? sync_dir(d) : 0;
	if (d->used)
		close(d->fd);
	free(d->path);
	*d = (struct open_dir){ .fd = -1 };
	return r;
}

/* A directory has moved or gone: no cached path can be trusted. What still has to be synced stays open. */
static void forget_paths(struct sink_posix *p)
{
	for (unsigned int i = 0; i < DIRS_CACHED; i++) {
		struct open_dir *d = &p->dirs[i];

		if (d->used && !d->changed)
			drop_dir(p, d);
		free(d->path);
		d->path = NULL;
	}
}

/* The directory name in the one that is open as in, whose rights it may take for that. */
static int step_into(struct sink_posix *p, int in, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	mode_t above = 0, taken = 0;
	int fd = openat(in, name, flags);

	if (fd >= 0 || errno != EACCES)
		return fd < 0 ? -errno : fd;
	(void)sink_posix_take_rights(p, in, S_IXUSR, &above);
	fd = openat(in, name, flags);
	fd = fd < 0 ? -errno : fd;
	if (fd == -EACCES)
		fd = open_taking(p, in, name, flags, S_IRUSR, &taken);
	if (fd >= 0)
		sink_posix_give_back(p, fd, &taken);
	sink_posix_give_back(p, in, &above);
	return fd;
}

/* Opens the directory of the first len bytes of path. */
static int walk(struct sink_posix *p, const char *path, size_t len)
{
	int fd = fcntl(p->root, F_DUPFD_CLOEXEC, 3);
	size_t at = 0;

	if (fd < 0)
		return -errno;
	while (fd >= 0 && at < len) {
		char name[NAME_MAX + 1];
		const char *slash = memchr(path + at, '/', len - at);
		size_t n = slash ? (size_t)(slash - path) - at : len - at;
		int next;

		if (n > NAME_MAX) {
			close(fd);
			return -ENAMETOOLONG;
		}
		memcpy(name, path + at, n);
		name[n] = '\0';
		at += n + 1;
		if (n == 0 || strcmp(name, ".") == 0)
			continue;
		next = strcmp(name, "..") == 0 ? -EINVAL : step_into(p, fd, name);
		close(fd);
		fd = next;
	}
	return fd;
}

/* It is not about what is looked for: sync_names says so. */
static void note_error(struct sink_posix *p, int r)
{
	if (r < 0 && p->names_error == 0)
		p->names_error = r;
}

static int find_dir(struct sink_posix *p, const char *path, size_t len, struct open_dir **ret)
{
	struct open_dir *d = NULL;
	int fd;

	for (unsigned int i = 0; i < DIRS_CACHED; i++) {
		d = &p->dirs[i];
		if (d->path && strlen(d->path) == len && memcmp(d->path, path, len) == 0) {
			*ret = d;
			return 0;
		}
	}
	fd = walk(p, path, len);
	if (fd < 0)
		return fd;
	d = &p->dirs[p->next_victim++ % p->num_dirs];
	note_error(p, drop_dir(p, d));
	d->path = strndup(path, len);
	if (!d->path) {
		close(fd);
		return -ENOMEM;
	}
	d->fd = fd;
	d->used = true;
	*ret = d;
	return 0;
}

/* The directory of path and the last component (borrowed from path; "." for the root). The dir is good until the next call. */
static int split(struct sink_posix *p, const char *path, struct open_dir **ret_dir, const char **ret_name)
{
	const char *slash = strrchr(path, '/');

	*ret_name = slash ? slash + 1 : path;
	if (!**ret_name || strcmp(*ret_name, "..") == 0)
		return -EINVAL;
	return find_dir(p, path, slash ? (size_t)(slash - path) : 0, ret_dir);
}

static int posix_stat(struct sink *s, const char *path, struct stat *ret)
{
	struct sink_posix *p = sink_of(s);
	unsigned int tries = 0;
	struct open_dir *d;
	const char *name;
	int r = split(p, path, &d, &name);

	if (r < 0)
		return r;
	do
		r = fstatat(d->fd, name, ret, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
	while (may_now(p, r, d, NULL, &tries));
	return r;
}

static int posix_list(struct sink *s, const char *path, int (*each)(const char *name, void *arg), void *arg)
{
	int fd = walk(sink_of(s), path, strlen(path));

	return fd < 0 ? fd : io_list_fd(fd, each, arg);
}

static int posix_space(struct sink *s, uint64_t *ret_free_bytes)
{
	struct statvfs v;

	if (fstatvfs(sink_of(s)->root, &v))
		return -errno;
	*ret_free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
	return 0;
}

static int posix_mkdir(struct sink *s, const char *path)
{
	struct sink_posix *p = sink_of(s);
	unsigned int tries = 0;
	struct open_dir *d;
	const char *name;
	int r = split(p, path, &d, &name);

	if (r < 0)
		return r;
	d->changed = true;
	do
		r = sink_posix_changed(p, mkdirat(d->fd, name, 0700));
	while (may_now(p, r, d, NULL, &tries));
	return r;
}

static int posix_symlink(struct sink *s, const char *target, const char *path)
{
	struct sink_posix *p = sink_of(s);
	unsigned int tries = 0;
	struct open_dir *d;
	const char *name;
	int r = split(p, path, &d, &name);

	if (r < 0)
		return r;
	d->changed = true;
	do
		r = sink_posix_changed(p, symlinkat(target, d->fd, name));
	while (may_now(p, r, d, NULL, &tries));
	return r;
}

/*
 * Both places of a name that moves or is linked. The second look-up may push the first one's directory out of the
 * cache (and sync it, too early); looking again puts it into another slot than the second one's.
 */
static int split_two(struct sink_posix *p, const char *from, const char *to, struct open_dir **ret_from_dir,
	const char **ret_from, struct open_dir **ret_to_dir, const char **ret_to)
{
	int r = split(p, from, ret_from_dir, ret_from);

	if (r == 0)
		r = split(p, to, ret_to_dir, ret_to);
	if (r == 0)
		r = split(p, from, ret_from_dir, ret_from);
	if (r < 0)
		return r;
	(*ret_from_dir)->changed = true;
	(*ret_to_dir)->changed = true;
	return 0;
}

static int posix_link(struct sink *s, const char *from, const char *to)
{
	struct sink_posix *p = sink_of(s);
	const char *from_name, *to_name;
	struct open_dir *from_dir, *to_dir;
	unsigned int tries = 0;
	int r = split_two(p, from, to, &from_dir, &from_name, &to_dir, &to_name);

	if (r < 0)
		return r;
	do
		r = sink_posix_changed(p, linkat(from_dir->fd, from_name, to_dir->fd, to_name, 0));
	while (may_now(p, r, from_dir, to_dir, &tries));
	return r;
}

static int rename_between(struct sink_posix *p, const char *from, const char *to, unsigned int flags, bool is_dir)
{
	const char *from_name, *to_name;
	struct open_dir *from_dir, *to_dir, moved = { .fd = -1 };
	unsigned int tries = 0;
	int r = split_two(p, from, to, &from_dir, &from_name, &to_dir, &to_name);

	if (r < 0)
		return r;
	do
		r = sink_posix_changed(p, renameat2(from_dir->fd, from_name, to_dir->fd, to_name, flags));
	while (may_now(p, r, from_dir, to_dir, &tries));
	if (r != -EACCES || !is_dir)
		return r;
	/* It has an entry for the directory above it: for that it is written to. */
	moved.fd = openat(from_dir->fd, from_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (moved.fd < 0)
		return r;
	for (tries = 0; may_now(p, r, &moved, NULL, &tries);)
		r = sink_posix_changed(p, renameat2(from_dir->fd, from_name, to_dir->fd, to_name, flags));
	sink_posix_give_back(p, moved.fd, &moved.taken);
	close(moved.fd);
	return r;
}

static int posix_rename(struct sink *s, const char *from, const char *to, bool is_dir)
{
	int r = rename_between(sink_of(s), from, to, 0, is_dir);

	if (is_dir)
		forget_paths(sink_of(s));
	return r;
}

/* Kernels and file systems that do not know the flag say EINVAL or ENOSYS; nothing else of ours can be invalid here. */
static int rename_flagged(struct sink *s, const char *from, const char *to, unsigned int flags)
{
	int r = rename_between(sink_of(s), from, to, flags, false);

	return r == -EINVAL || r == -ENOSYS || r == -ENOTSUP ? -EOPNOTSUPP : r;
}

static int posix_rename_new(struct sink *s, const char *from, const char *to)
{
	return rename_flagged(s, from, to, RENAME_NOREPLACE);
}

static int posix_exchange(struct sink *s, const char *one, const char *other)
{
	return rename_flagged(s, one, other, RENAME_EXCHANGE);
}

static int posix_remove(struct sink *s, const char *path, bool is_dir)
{
	struct sink_posix *p = sink_of(s);
	unsigned int tries = 0;
	struct open_dir *d;
	const char *name;
	int r = split(p, path, &d, &name);

	if (r < 0)
		return r;
	d->changed = true;
	do
		r = sink_posix_changed(p, unlinkat(d->fd, name, is_dir ? AT_REMOVEDIR : 0));
	while (may_now(p, r, d, NULL, &tries));
	if (is_dir)
		forget_paths(p);
	return r;
}

static int posix_mark(struct sink *s, const char *path)
{
	struct open_dir *d;
	const char *name;
	int r = split(sink_of(s), path, &d, &name);

	if (r == 0)
		d->changed = true;
	return r;
}

static int posix_sync_names(struct sink *s)
{
	struct sink_posix *p = sink_of(s);

	for (unsigned int i = 0; i < DIRS_CACHED; i++) {
		struct open_dir *d = &p->dirs[i];

		if (!d->used || !d->changed)
			continue;
		note_error(p, sync_dir(d));
		d->changed = false;
		if (!d->path)
			drop_dir(p, d);
	}
	return p->names_error;
}

static const struct sink_ops posix_ops;

static int open_flags(enum sink_open how)
{
	switch (how) {
	case SINK_CREATE: return O_RDWR | O_CREAT | O_EXCL;
	case SINK_UPDATE: return O_RDWR;
	case SINK_READ: return O_RDONLY;
	default: return O_PATH;
	}
}

static mode_t open_rights(enum sink_open how)
{
	return how == SINK_UPDATE ? S_IRUSR | S_IWUSR : how == SINK_READ ? S_IRUSR : 0;
}

static int open_name(struct sink_posix *p, struct open_dir *d, const char *name, enum sink_open how, mode_t *taken)
{
	int flags = open_flags(how) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, fd;
	unsigned int tries = 0;

	do {
		fd = openat(d->fd, name, flags, 0600);
		fd = fd < 0 ? -errno : fd;
	} while (may_now(p, fd, d, NULL, &tries));
	return fd == -EACCES && open_rights(how) ? open_taking(p, d->fd, name, flags, open_rights(how), taken) : fd;
}

static int posix_open(struct sink *s, const char *path, enum sink_open how, struct sink_file **ret)
{
	struct sink_posix *p = sink_of(s);
	struct posix_file *f;
	struct open_dir *d;
	const char *name;
	struct stat st;
	int r = split(p, path, &d, &name);

	if (r < 0)
		return r;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->file.ops = &posix_ops;
	f->sink = p;
	f->past_fd = PAST_NOT_YET;
	f->path_only = how == SINK_ATTR;
	f->fd = open_name(p, d, name, how, &f->taken);
	r = f->fd < 0 ? f->fd : 0;
	if (how == SINK_CREATE) {
		d->changed = true;
		errno = -r;
		r = sink_posix_changed(p, r < 0 ? -1 : 0);
	} else if (r == 0 && how != SINK_ATTR && (fstat(f->fd, &st) || !S_ISREG(st.st_mode))) {
		sink_posix_give_back(p, f->fd, &f->taken);
		close(f->fd);
		r = -ESTALE; /* something else has taken the place of a regular file */
	}
	if (r < 0) {
		free(f);
		return r;
	}
	*ret = &f->file;
	return 0;
}

static void posix_destroy(struct sink *s)
{
	struct sink_posix *p = sink_of(s);

	for (unsigned int i = 0; i < DIRS_CACHED; i++)
		drop_dir(p, &p->dirs[i]);
	close(p->root);
	free(p);
}

static uint64_t posix_changes(const struct sink *s)
{
	return atomic_load(&((const struct sink_posix *)s)->changes);
}

static const struct sink_ops posix_ops = {
	.destroy = posix_destroy,
	.changes = posix_changes,
	.stat = posix_stat,
	.list = posix_list,
	.space = posix_space,
	.mkdir = posix_mkdir,
	.symlink = posix_symlink,
	.link = posix_link,
	.rename = posix_rename,
	.rename_new = posix_rename_new,
	.exchange = posix_exchange,
	.remove = posix_remove,
	.mark = posix_mark,
	.sync_names = posix_sync_names,
	.open = posix_open,
	.close = sink_posix_close,
	.pwrite = sink_posix_pwrite,
	.pwrite_past = sink_posix_pwrite_past,
	.pread = sink_posix_pread,
	.zero = sink_posix_zero,
	.truncate = sink_posix_truncate,
	.write_out = sink_posix_write_out,
	.write_wait = sink_posix_write_wait,
	.drop_cache = sink_posix_drop_cache,
	.next_data = sink_posix_next_data,
	.sync = sink_posix_sync,
	.fstat = sink_posix_fstat,
	.descriptor = sink_posix_descriptor,
	.set_attr = sink_posix_set_attr,
	.set_xattr = sink_posix_set_xattr,
	.get_xattr = sink_posix_get_xattr,
	.remove_xattr = sink_posix_remove_xattr,
	.list_xattrs = sink_posix_list_xattrs,
};

static int create(int dirfd, bool reads, struct sink **ret)
{
	const char *text = getenv("CISTERN_AGENT_ABORT_AFTER");
	struct sink_posix *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->sink.ops = &posix_ops;
	p->reads = reads;
	p->num_dirs = (unsigned int)descriptors_share(DIRS_CACHED, 16);
	for (unsigned int i = 0; i < DIRS_CACHED; i++)
		p->dirs[i].fd = -1;
	p->abort_after = text ? strtoull(text, NULL, 10) : 0;
	p->root = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
	if (p->root < 0) {
		int r = -errno;

		free(p);
		return r;
	}
	*ret = &p->sink;
	return 0;
}

int sink_posix_create(int dirfd, struct sink **ret)
{
	return create(dirfd, false, ret);
}

int sink_posix_create_to_read(int dirfd, struct sink **ret)
{
	return create(dirfd, true, ret);
}

void sink_destroy(struct sink *s)
{
	if (s)
		s->ops->destroy(s);
}

void sink_file_close(struct sink_file *f)
{
	if (f)
		f->ops->close(f);
}
