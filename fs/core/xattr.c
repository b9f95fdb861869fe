/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Extended attributes. Until one is changed the backing file has them; with the first change the whole set moves into
 * the store, so that from then on one side knows all of them.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PROC_PATH_BYTES 32

static bool store_has_all(const struct inode *in)
{
	return in->flags & (INODE_NEW | INODE_DIRTY_XATTR);
}

/* ACLs would have to be enforced by the kernel, which knows nothing of them here: refuse instead of ignoring. */
static int check_name(const char *name)
{
	if (strncmp(name, "system.", 7) == 0)
		return -EOPNOTSUPP;
	return strlen(name) > XATTR_NAME_MAX ? -ERANGE : 0;
}

static void proc_path(int fd, char out[PROC_PATH_BYTES])
{
	snprintf(out, PROC_PATH_BYTES, "/proc/self/fd/%d", fd);
}

/* The backing file, for calls that take a path and no O_PATH descriptor: path leads to it wherever a drain moves it. */
static int open_path(struct core *c, struct node *n, char path[PROC_PATH_BYTES])
{
	int fd = overlay_open(c, n, O_PATH);

	proc_path(fd, path);
	return fd;
}

ssize_t core_getxattr(struct core *c, uint64_t ino, const char *name, void *out, size_t cap)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);
	char path[PROC_PATH_BYTES], value[RECORD_VALUE_MAX];
	struct inode in;
	size_t len;
	int rc = check_name(name);

	if (!r.n)
		return -ESTALE;
	if (rc < 0)
		return rc;
	if (r.n->known && state_inode(c->state, ino, &in) == 0 && store_has_all(&in)) {
		rc = state_xattr(c->state, ino, name, value, sizeof(value), &len);
		if (rc < 0)
			return rc;
		if (cap && len > cap)
			return -ERANGE;
		if (cap)
			memcpy(out, value, len);
		return (ssize_t)len;
	}
	int fd = open_path(c, r.n, path);
	if (fd < 0)
		return fd == -ENOENT ? -ENODATA : fd;
	ssize_t got = getxattr(path, name, out, cap);
	got = got < 0 ? -errno : got;
	close(fd);
	return got;
}

struct name_list {
	char *out;
	size_t cap, len;
};

static int add_name(const char *name, const void *val, size_t val_len, void *arg)
{
	struct name_list *l = arg;
	size_t len = strlen(name) + 1;

	(void)val, (void)val_len;
	if (l->len + len <= l->cap)
		memcpy(l->out + l->len, name, len);
	l->len += len;
	return 0;
}

static ssize_t list_path(const char *path, char *out, size_t cap)
{
	ssize_t got = listxattr(path, out, cap);

	return got < 0 ? (errno == EOPNOTSUPP ? 0 : -errno) : got;
}

static ssize_t list_backing(struct core *c, struct node *n, char *out, size_t cap)
{
	char path[PROC_PATH_BYTES];
	int fd = open_path(c, n, path);

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	ssize_t got = list_path(path, out, cap);
	close(fd);
	return got;
}

ssize_t core_listxattr(struct core *c, uint64_t ino, char *out, size_t cap)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);
	struct name_list l = { out, cap, 0 };
	struct inode in;

	if (!r.n)
		return -ESTALE;
	if (!r.n->known || state_inode(c->state, ino, &in) < 0 || !store_has_all(&in))
		return list_backing(c, r.n, out, cap);
	int rc = state_list_xattrs(c->state, ino, add_name, &l);
	if (rc < 0)
		return rc;
	return cap && l.len > cap ? -ERANGE : (ssize_t)l.len;
}

static int commit_xattr(struct core *c, struct node *n, enum record_type type, uint32_t flags, const char *name,
	const void *value, size_t len)
{
	struct record rec = { .type = type,
		.flags = flags,
		.ino = n->ino,
		.key = (const uint8_t *)name,
		.key_len = strlen(name),
		.value = value,
		.value_len = len };

	return tree_commit(c, n->type, &rec);
}

static int copy_one(struct core *c, struct node *n, const char *path, const char *name)
{
	char value[RECORD_VALUE_MAX];
	ssize_t len = getxattr(path, name, value, sizeof(value));

	if (check_name(name) < 0)
		return 0;
	return len < 0 ? -errno : commit_xattr(c, n, RECORD_SETXATTR, RECORD_F_COPIED, name, value, (size_t)len);
}

static int copy_all(struct core *c, struct node *n, const char *path)
{
	char list[XATTR_LIST_MAX];
	ssize_t len = list_path(path, list, sizeof(list));
	int rc = len < 0 ? (int)len : 0;

	for (ssize_t at = 0; at < len && rc == 0; at += (ssize_t)strlen(list + at) + 1)
		rc = copy_one(c, n, path, list + at);
	return rc;
}

/* Is there a set to be brought into the store? */
static bool set_is_behind(struct core *c, const struct node *n)
{
	struct inode in;

	return !n->known || state_inode(c->state, n->ino, &in) < 0 || !store_has_all(&in);
}

/*
 * names is held: bring the backing file's set into the store before it is changed for the first time. fd: the file, opened before
 * that, since a drain that has moved it cannot say so while names is held; -EAGAIN: it seemed that it would not be needed.
 */
static int take_over(struct core *c, struct node *n, int fd)
{
	char path[PROC_PATH_BYTES];
	int rc = overlay_adopt(c, n);

	if (rc < 0 || !set_is_behind(c, n))
		return rc;
	if (fd < 0)
		return fd;
	proc_path(fd, path);
	return copy_all(c, n, path);
}

static int change_xattr(struct core *c, struct node *n, int fd, const char *name, const void *value, size_t len,
	int flags, bool removal)
{
	char old[RECORD_VALUE_MAX];
	size_t old_len;
	int rc = take_over(c, n, fd);

	if (rc < 0)
		return rc;
	int there = state_xattr(c->state, n->ino, name, old, sizeof(old), &old_len);
	if (there < 0 && there != -ENODATA)
		return there;
	if (there == 0 && flags & XATTR_CREATE)
		return -EEXIST;
	if (there == -ENODATA && (removal || flags & XATTR_REPLACE))
		return -ENODATA;
	return commit_xattr(c, n, removal ? RECORD_REMOVEXATTR : RECORD_SETXATTR, 0, name, value, len);
}

/* One try; -EAGAIN: the whole set was drained meanwhile. */
static int try_change(
	struct core *c, struct node *n, const char *name, const void *value, size_t len, int flags, bool removal)
{
	int fd = set_is_behind(c, n) ? overlay_open(c, n, O_PATH) : -EAGAIN;

	pthread_mutex_lock(&c->names);
	int rc = change_xattr(c, n, fd, name, value, len, flags, removal);
	pthread_mutex_unlock(&c->names);
	if (fd >= 0)
		close(fd);
	return rc;
}

/* A layout that does not exist is an error now, and not a surprise at the end. */
static int check_layout(const char *name, const void *value, size_t len)
{
	enum drain_layout layout;
	char *options = NULL;
	int rc;

	if (strcmp(name, DRAIN_LAYOUT_XATTR) != 0)
		return 0;
	rc = drain_layout_parse_xattr(value, len, &layout, &options, NULL);
	free(options);
	return rc;
}

static int set_or_remove(
	struct core *c, uint64_t ino, const char *name, const void *value, size_t len, int flags, bool removal)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);
	int rc = check_name(name);

	if (!r.n)
		return -ESTALE;
	if (rc == 0 && c->read_only)
		rc = -EROFS;
	if (rc == 0 && len > RECORD_VALUE_MAX)
		rc = -E2BIG;
	if (rc == 0 && !removal)
		rc = check_layout(name, value, len);
	if (rc < 0)
		return rc;
	do
		rc = try_change(c, r.n, name, value, len, flags, removal);
	while (rc == -EAGAIN);
	if (rc == 0)
		data_touched(c);
	return rc;
}

int core_setxattr(struct core *c, uint64_t ino, const char *name, const void *value, size_t len, int flags)
{
	return set_or_remove(c, ino, name, value, len, flags, false);
}

int core_removexattr(struct core *c, uint64_t ino, const char *name)
{
	return set_or_remove(c, ino, name, NULL, 0, 0, true);
}
