/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Extended attributes. Until one is changed the backing file has them; with the first change the whole set moves into
 * the store, so that from then on one side knows all of them, until the set is drained. Which side it is can change only under
 * the node's lock, which is held while the store's set is read or changed.
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

#include "format/base/config_check.h"

/* The node's lock is held, or it is just a guess. */
static bool store_has_all(struct core *c, struct node *n)
{
	struct inode in;

	return n->known && state_inode(c->state, n->ino, &in) == 0 &&
	       (in.flags & (INODE_NEW | INODE_DIRTY_XATTR) || inode_is_special(in.mode));
}

/* ACLs would have to be enforced by the kernel, which knows nothing of them here: refuse instead of ignoring. */
static int check_name(const char *name)
{
	if (strncmp(name, "system.", 7) == 0)
		return -EOPNOTSUPP;
	return strlen(name) > XATTR_NAME_MAX ? -ERANGE : 0;
}

/* Other spaces than these no backing file system takes from everybody: what it would refuse at the drain is refused now. */
static int check_space(const char *name)
{
	static const char *const spaces[] = { "user.", "trusted.", "security." };

	for (size_t k = 0; k < sizeof(spaces) / sizeof(spaces[0]); k++)
		if (strncmp(name, spaces[k], strlen(spaces[k])) == 0)
			return name[strlen(spaces[k])] ? 0 : -EINVAL;
	return -EOPNOTSUPP;
}

/* The backing file, wherever a drain is moving it: as a path that the xattr calls, which have no "at" form here, can use. */
struct backing {
	int fd;
	char path[32];
};

static void backing_close(struct backing *b)
{
	if (b->fd >= 0)
		close(b->fd);
}

#define BACKING_CLEANUP __attribute__((cleanup(backing_close)))

static int backing_open(struct core *c, struct node *n, struct backing *ret)
{
	struct motion m = { 0 };

	do
		ret->fd = overlay_open(c, n, O_PATH);
	while (motion_again(c, &m, ret->fd));
	snprintf(ret->path, sizeof(ret->path), "/proc/self/fd/%d", ret->fd);
	return ret->fd < 0 ? ret->fd : 0;
}

/* The node's lock is held. */
static ssize_t get_from_store(struct core *c, struct node *n, const char *name, void *out, size_t cap)
{
	char value[RECORD_VALUE_MAX];
	size_t len;
	int rc = state_xattr(c->state, n->ino, name, value, sizeof(value), &len);

	if (rc < 0)
		return rc;
	if (cap && len > cap)
		return -ERANGE;
	if (cap)
		memcpy(out, value, len);
	return (ssize_t)len;
}

static ssize_t get_from_backing(struct core *c, struct node *n, const char *name, void *out, size_t cap)
{
	struct backing b BACKING_CLEANUP = { .fd = -1 };
	int rc = backing_open(c, n, &b);

	if (rc < 0)
		return rc == -ENOENT ? -ENODATA : rc;
	ssize_t got = getxattr(b.path, name, out, cap);
	return got < 0 ? -errno : got;
}

ssize_t core_getxattr(struct core *c, uint64_t ino, const char *name, void *out, size_t cap)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);
	int rc = check_name(name);
	ssize_t got = 0;

	if (!r.n)
		return -ESTALE;
	if (rc < 0)
		return rc;
	pthread_rwlock_rdlock(&r.n->lock);
	bool here = store_has_all(c, r.n);
	if (here)
		got = get_from_store(c, r.n, name, out, cap);
	pthread_rwlock_unlock(&r.n->lock);
	return here ? got : get_from_backing(c, r.n, name, out, cap);
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

static ssize_t list_store(struct core *c, struct node *n, char *out, size_t cap)
{
	struct name_list l = { out, cap, 0 };
	int rc = state_list_xattrs(c->state, n->ino, add_name, &l);

	if (rc < 0)
		return rc;
	return cap && l.len > cap ? -ERANGE : (ssize_t)l.len;
}

static ssize_t list_backing(struct core *c, struct node *n, char *out, size_t cap)
{
	struct backing b BACKING_CLEANUP = { .fd = -1 };
	int rc = backing_open(c, n, &b);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	ssize_t got = listxattr(b.path, out, cap);
	return got < 0 ? (errno == EOPNOTSUPP ? 0 : -errno) : got;
}

ssize_t core_listxattr(struct core *c, uint64_t ino, char *out, size_t cap)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);
	ssize_t got = 0;

	if (!r.n)
		return -ESTALE;
	pthread_rwlock_rdlock(&r.n->lock);
	bool here = store_has_all(c, r.n);
	if (here)
		got = list_store(c, r.n, out, cap);
	pthread_rwlock_unlock(&r.n->lock);
	return here ? got : list_backing(c, r.n, out, cap);
}

bool core_is_bare(struct core *c, uint64_t ino)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);

	if (!r.n)
		return false;
	pthread_rwlock_rdlock(&r.n->lock);
	bool bare = store_has_all(c, r.n) && list_store(c, r.n, NULL, 0) == 0;
	pthread_rwlock_unlock(&r.n->lock);
	return bare;
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

static bool is_listed(const char *list, ssize_t len, const char *name)
{
	for (ssize_t at = 0; at < len; at += (ssize_t)strlen(list + at) + 1)
		if (strcmp(list + at, name) == 0)
			return true;
	return false;
}

/* What a daemon that was killed over it had copied, and is in the backing file's set no more. The rest of that is in the store by now. */
static int drop_leftovers(struct core *c, struct node *n, const char *list, ssize_t len)
{
	char have[XATTR_LIST_MAX];
	ssize_t num = list_store(c, n, have, sizeof(have));
	int rc = num < 0 ? (int)num : 0;

	for (ssize_t at = 0; at < num && rc == 0; at += (ssize_t)strlen(have + at) + 1)
		if (!is_listed(list, len, have + at))
			rc = commit_xattr(c, n, RECORD_REMOVEXATTR, 0, have + at, NULL, 0);
	return rc;
}

/* Brings the backing file's set into the store before it is changed for the first time. */
static int take_over(struct core *c, struct node *n, const struct backing *b)
{
	char list[XATTR_LIST_MAX];
	int rc = 0;
	ssize_t len = listxattr(b->path, list, sizeof(list));
	if (len < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (ssize_t at = 0; at < len && rc == 0; at += (ssize_t)strlen(list + at) + 1)
		rc = copy_one(c, n, b->path, list + at);
	return rc < 0 ? rc : drop_leftovers(c, n, list, len);
}

struct change {
	const char *name;
	const void *value;
	size_t len;
	int flags;
	bool removal;
};

/* 1: there is one of that name; 0: there is none. */
static int look_in_store(struct core *c, struct node *n, const char *name)
{
	char old[RECORD_VALUE_MAX];
	size_t len;
	int rc = state_xattr(c->state, n->ino, name, old, sizeof(old), &len);

	return rc == 0 ? 1 : rc == -ENODATA ? 0 : rc;
}

static int look_in_backing(const struct backing *b, const char *name)
{
	if (b->fd < 0)
		return -EAGAIN;
	if (getxattr(b->path, name, NULL, 0) >= 0)
		return 1;
	return errno == ENODATA || errno == EOPNOTSUPP ? 0 : -errno;
}

static int check_change(const struct change *ch, bool there)
{
	if (there)
		return ch->flags & XATTR_CREATE ? -EEXIST : 0;
	return ch->removal || ch->flags & XATTR_REPLACE ? -ENODATA : 0;
}

/* names and the node's lock are held. -EAGAIN: the backing file is needed, which b is not. */
static int change_locked(struct core *c, struct node *n, const struct backing *b, const struct change *ch)
{
	bool here = store_has_all(c, n);
	int there = here ? look_in_store(c, n, ch->name) : look_in_backing(b, ch->name);
	int rc = there < 0 ? there : check_change(ch, there);

	if (rc == 0 && !here)
		rc = take_over(c, n, b);
	return rc < 0 ? rc
		      : commit_xattr(c, n, ch->removal ? RECORD_REMOVEXATTR : RECORD_SETXATTR, 0, ch->name, ch->value,
				ch->len);
}

/* The backing file is opened first: a drain that moves it needs names to say so. */
static int change_xattr(struct core *c, struct node *n, const struct change *ch)
{
	struct backing b BACKING_CLEANUP = { .fd = -1 };
	int rc = store_has_all(c, n) ? 0 : backing_open(c, n, &b);

	if (rc == 0)
		rc = overlay_adopt_locked(c, n);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&c->names);
	rc = overlay_adopt(c, n);
	if (rc == 0) {
		pthread_rwlock_wrlock(&n->lock);
		rc = change_locked(c, n, &b, ch);
		pthread_rwlock_unlock(&n->lock);
	}
	pthread_mutex_unlock(&c->names);
	return rc;
}

/* A layout that does not exist, or a setting of it, is an error now, and not a surprise at the end. A folder hands none down. */
static int check_layout(const struct node *n, const struct change *ch)
{
	if (ch->removal || strcmp(ch->name, DRAIN_LAYOUT_XATTR) != 0)
		return 0;
	return n->type == S_IFREG ? config_check_layout_xattr(ch->value, ch->len, NULL) : -EINVAL;
}

static int set_or_remove(struct core *c, uint64_t ino, const struct change *ch)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);
	int rc = check_name(ch->name);

	if (!r.n)
		return -ESTALE;
	if (rc == 0)
		rc = check_space(ch->name);
	if (rc == 0 && c->read_only)
		rc = -EROFS;
	if (rc == 0 && ch->len > RECORD_VALUE_MAX)
		rc = -E2BIG;
	if (rc == 0)
		rc = check_layout(r.n, ch);
	if (rc == 0)
		rc = ground_check_change(c, r.n);
	if (rc < 0)
		return rc;
	while ((rc = change_xattr(c, r.n, ch)) == -EAGAIN)
		; /* drained meanwhile */
	if (rc == 0)
		data_touched(c);
	return rc;
}

int core_setxattr(struct core *c, uint64_t ino, const char *name, const void *value, size_t len, int flags)
{
	return set_or_remove(c, ino, &(struct change){ name, value, len, flags, false });
}

int core_removexattr(struct core *c, uint64_t ino, const char *name)
{
	return set_or_remove(c, ino, &(struct change){ .name = name, .removal = true });
}
