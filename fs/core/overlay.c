/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names through the layers: first what the store says of a name (shown, or hidden), then the backing directory; and
 * adoption, by which an untouched backing file becomes one that the store knows. Adoption changes nothing that can
 * be seen, so it needs no undoing when what it was done for fails.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OVERLAY_WAIT_USEC   5000u
#define OVERLAY_WAIT_TRIES  400 /* two seconds */
#define OVERLAY_OTHER_TRIES 60  /* while another file is there: perhaps somebody has put it there for good */

bool overlay_is_hidden(const char *name)
{
	static const char *const prefixes[] = { ".cistern-tmp-", ".cistern-park-", ".cistern-through-",
		".cistern-shared-", ".cistern-classic-" };

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

static int append_component(char *out, size_t cap, const char *name)
{
	size_t len = strlen(out), add = strlen(name);

	if (strcmp(out, ".") == 0)
		len = 0;
	if (len + (len > 0) + add + 1 > cap)
		return -ENAMETOOLONG;
	if (len > 0)
		out[len++] = '/';
	memcpy(out + len, name, add + 1);
	return 0;
}

int overlay_path(struct core *c, struct node *n, char *out, size_t cap)
{
	if (n == c->root) {
		snprintf(out, cap, ".");
		return 0;
	}
	if (n->known)
		return state_backing_path(c->state, n->ino, out, cap);
	struct node_ref parent NODE_CLEANUP = { c, NULL };
	char name[RECORD_NAME_MAX + 1];
	int rc = node_origin(c, n, &parent.n, name);

	if (rc == 0) /* else it vanished from the backing directory */
		rc = overlay_path(c, parent.n, out, cap);
	return rc < 0 ? rc : append_component(out, cap, name);
}

int overlay_child_path(struct core *c, struct node *parent, const char *name, char *out, size_t cap)
{
	int rc = overlay_path(c, parent, out, cap);

	return rc < 0 ? rc : append_component(out, cap, name);
}

/*
 * A drain renames in the backing directory first and tells us afterwards; between the two a path that the state gives
 * leads nowhere. So, while a drain runs, "not there" is believed only if the directory around it is there.
 */
static bool path_in_motion(struct core *c, const char *path)
{
	char dir[PATH_MAX];
	struct stat st;

	if (!drain_is_running(c))
		return false;
	snprintf(dir, sizeof(dir), "%s", path);
	char *slash = strrchr(dir, '/');
	if (!slash)
		return false;
	*slash = '\0';
	return fstatat(c->backing_fd, dir, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

bool overlay_is_same(const struct inode *in, const struct stat *st)
{
	return in->backing_ino == 0 || (in->backing_dev == st->st_dev && in->backing_ino == st->st_ino);
}

/* An untouched file's number is its backing file's. Others have put another file in its place: that one has a node of its own. */
static bool is_replaced(const struct node *n, const struct stat *st)
{
	return !n->known && n->origin_parent && !node_is_backed_by(n, st);
}

static bool is_other(struct core *c, struct node *n, const struct stat *st)
{
	struct inode in;

	if (!n->known)
		return is_replaced(n, st);
	return state_inode(c->state, n->ino, &in) == 0 && !overlay_is_same(&in, st);
}

/*
 * The drain exchanges names, and tells of it afterwards: meanwhile the path of one file can lead to another one. True: it does,
 * and it is worth to look again. Without a drain it is somebody else who has replaced the file.
 */
static bool is_passed_by(struct core *c, struct node *n, const struct stat *st, int tries)
{
	return tries < OVERLAY_OTHER_TRIES && is_other(c, n, st) && drain_is_running(c);
}

static int close_with(int fd, int rc)
{
	close(fd);
	return rc;
}

int overlay_open(struct core *c, struct node *n, int flags)
{
	struct stat st;
	char path[PATH_MAX];

	for (int tries = 0;; tries++) {
		int rc = overlay_path(c, n, path, sizeof(path));
		if (rc < 0)
			return rc;
		int fd = openat(c->backing_fd, path, flags | O_NOFOLLOW | O_CLOEXEC | O_NOATIME);
		if (fd < 0 && errno == EPERM)
			fd = openat(c->backing_fd, path, flags | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0 && fstat(fd, &st) < 0)
			return close_with(fd, -errno);
		if (fd >= 0 && !is_passed_by(c, n, &st, tries))
			return is_replaced(n, &st) ? close_with(fd, -ESTALE) : fd;
		if (fd >= 0)
			close(fd);
		else if (errno != ENOENT || !drain_is_running(c) || tries == OVERLAY_WAIT_TRIES)
			return -errno;
		usleep(OVERLAY_WAIT_USEC);
	}
}

static int stat_path(struct core *c, int (*path_of)(struct core *, struct node *, const char *, char *, size_t),
	struct node *n, const char *name, struct stat *ret)
{
	char path[PATH_MAX];

	for (int tries = 0;; tries++) {
		int rc = path_of(c, n, name, path, sizeof(path));
		if (rc < 0)
			return rc;
		if (fstatat(c->backing_fd, path, ret, AT_SYMLINK_NOFOLLOW) == 0) {
			if (name || !is_passed_by(c, n, ret, tries))
				return !name && is_replaced(n, ret) ? -ESTALE : 0;
		} else {
			if (errno != ENOENT)
				return -errno;
			bool waiting = name ? path_in_motion(c, path) : drain_is_running(c);
			if (!waiting)
				return -ENOENT;
			if (tries == OVERLAY_WAIT_TRIES) /* a name that may be there is not to be taken for free */
				return name ? -ESTALE : -ENOENT;
		}
		usleep(OVERLAY_WAIT_USEC);
	}
}

static int own_path(struct core *c, struct node *n, const char *name, char *out, size_t cap)
{
	(void)name;
	return overlay_path(c, n, out, cap);
}

int overlay_stat(struct core *c, struct node *n, struct stat *ret)
{
	if (n == c->root)
		return fstat(c->backing_fd, ret) < 0 ? -errno : 0;
	return stat_path(c, own_path, n, NULL, ret);
}

static int resolve_in_state(struct core *c, struct node *parent, const char *name, struct node **ret)
{
	struct state_name found;
	struct inode in;
	int rc = state_lookup(c->state, parent->ino, name, &found);

	if (rc < 0)
		return rc;
	rc = state_inode(c->state, found.ino, &in);
	if (rc < 0)
		return rc == -ENOENT ? -EIO : rc;
	return node_of_state(c, &in, ret);
}

int overlay_resolve(struct core *c, struct node *parent, const char *name, struct node **ret)
{
	uint64_t owner;
	struct stat st;
	int rc;

	if (parent->known) {
		rc = resolve_in_state(c, parent, name, ret);
		if (rc != -ENOENT)
			return rc;
		/* In this order: a name that is in doubt no more is known to the state. */
		rc = doubt_hides(c, parent->ino, name) ? 0 : state_backing_owner(c->state, parent->ino, name, &owner);
		if (rc != -ENOENT)
			return rc < 0 ? rc : -ENOENT;
	}
	if (overlay_is_hidden(name))
		return -ENOENT;
	rc = stat_path(c, overlay_child_path, parent, name, &st);
	return rc < 0 ? rc : node_of_backing(c, parent, name, &st, ret);
}

int overlay_stat_child(struct core *c, struct node *parent, const char *name, struct stat *ret)
{
	return overlay_is_hidden(name) ? -ENOENT : stat_path(c, overlay_child_path, parent, name, ret);
}

static int commit_adopt(struct core *c, struct node *parent, const char *name, struct node *n)
{
	struct record rec = { .type = RECORD_ADOPT, .ino = n->ino, .parent = parent->ino };
	char path[PATH_MAX], target[RECORD_TARGET_MAX + 1];
	struct stat st;
	int rc = overlay_child_path(c, parent, name, path, sizeof(path));

	if (rc < 0)
		return rc;
	if (fstatat(c->backing_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (is_replaced(n, &st))
		return -ESTALE;
	snprintf(rec.name, sizeof(rec.name), "%s", name);
	record_set_attributes(&rec, &st);
	if (S_ISLNK(st.st_mode)) {
		ssize_t len = readlinkat(c->backing_fd, path, target, sizeof(target) - 1);
		if (len < 0)
			return -errno;
		target[len] = '\0';
		rec.target = target;
		rec.target_len = (size_t)len;
	}
	return tree_commit(c, n->type, &rec);
}

int overlay_adopt(struct core *c, struct node *n)
{
	struct node_ref parent NODE_CLEANUP = { c, NULL };
	char name[RECORD_NAME_MAX + 1];

	if (n->known)
		return 0;
	if (node_origin(c, n, &parent.n, name) < 0)
		return -ESTALE;
	int rc = overlay_adopt(c, parent.n);
	if (rc < 0)
		return rc;
	rc = commit_adopt(c, parent.n, name, n);
	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	n->known = true;
	return 0;
}

int overlay_adopt_name(struct core *c, struct node *parent, const char *name, struct node *n)
{
	struct state_name found;
	int rc = overlay_adopt(c, parent);

	if (rc == 0)
		rc = overlay_adopt(c, n);
	if (rc < 0 || state_lookup(c->state, parent->ino, name, &found) == 0)
		return rc;
	return commit_adopt(c, parent, name, n);
}

int overlay_adopt_locked(struct core *c, struct node *n)
{
	if (n->known)
		return 0;
	pthread_mutex_lock(&c->names);
	int rc = overlay_adopt(c, n);
	pthread_mutex_unlock(&c->names);
	return rc;
}
