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

bool overlay_is_same(const struct inode *in, const struct stat *st)
{
	return in->backing_ino == 0 || (in->backing_dev == st->st_dev && in->backing_ino == st->st_ino);
}

/* An untouched file's number is its backing file's. Others have put another file in its place: that one has a node of its own. */
static bool is_replaced(const struct node *n, const struct stat *st)
{
	return !n->known && n->origin_parent && !node_is_backed_by(n, st);
}

/*
 * By its inode number alone: device numbers change when a file system is mounted anew, and no drain moves anything to another one. The
 * number of some directories that drains have made is not known.
 */
static bool is_own(struct core *c, struct node *n, const struct stat *st)
{
	struct inode in = { .backing_ino = n->backing_ino };

	if (n == c->root || (n->known && state_inode(c->state, n->ino, &in) < 0))
		return true;
	return in.backing_ino == 0 || (in.backing_ino == st->st_ino && n->type == (st->st_mode & S_IFMT));
}

static int open_as(int dirfd, const char *path, int flags)
{
	int fd = openat(dirfd, path, flags | O_CLOEXEC | O_NOATIME);

	if (fd < 0 && errno == EPERM)
		fd = openat(dirfd, path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int overlay_open_path(int dirfd, const char *path, int flags)
{
	int fd = open_as(dirfd, path, flags | O_NONBLOCK);

	if (fd == -EWOULDBLOCK)
		return open_as(dirfd, path, flags);
	if (fd >= 0 && !(flags & O_PATH)) /* some file systems read otherwise with it */
		(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	return fd;
}

/* What an O_PATH descriptor stands for, which is ours to close. */
static int open_for_real(int at, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
	int fd = overlay_open_path(AT_FDCWD, path, flags);
	close(at);
	return fd;
}

/* -ENODATA: there is no path. *ret_st: of what is open. */
static int open_once(struct core *c, struct node *n, int flags, struct stat *ret_st)
{
	char path[PATH_MAX];
	int rc = overlay_path(c, n, path, sizeof(path));

	if (rc < 0)
		return rc == -ENOENT ? -ENODATA : rc;
	int fd = overlay_open_path(c->backing_fd, path, flags | O_NOFOLLOW);
	if (fd >= 0 && fstat(fd, ret_st) < 0) {
		rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

/* No motion explains it. */
static bool is_certain(struct core *c, struct node *n, int fd, const struct stat *st)
{
	if (fd >= 0)
		return is_own(c, n, st);
	return fd == -ENODATA || fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || fd == -EINTR || fd == -EIO;
}

/* While things move, what is at the path may be what must not even be opened. */
int overlay_open(struct core *c, struct node *n, int flags)
{
	struct motion_look look = motion_begin(c);
	struct stat st;

	for (;;) {
		bool careful = drain_is_running(c) && !(flags & O_PATH);
		int fd = open_once(c, n, careful ? O_PATH | (flags & O_DIRECTORY) : flags, &st);
		enum motion_verdict verdict = !motion_is_possible(c, &look) || is_certain(c, n, fd, &st)
						      ? MOTION_NONE
						      : motion_judge(c, &look);

		if (verdict == MOTION_NONE && fd < 0)
			return fd == -ENODATA ? -ENOENT : fd;
		if (verdict == MOTION_NONE && !is_replaced(n, &st))
			return careful ? open_for_real(fd, flags) : fd;
		if (fd >= 0)
			close(fd);
		if (verdict != MOTION_TOLD)
			return verdict == MOTION_NONE ? -ESTALE : -CORE_MOVING;
	}
}

/* Where nothing moves one call does. True: *ret_rc is what it says. */
static bool stat_at_rest(struct core *c, struct node *n, const char *name, struct stat *ret, int *ret_rc)
{
	struct motion_look look = motion_begin(c);
	char path[PATH_MAX];

	if (drain_is_running(c))
		return false;
	int rc = name ? overlay_child_path(c, n, name, path, sizeof(path)) : overlay_path(c, n, path, sizeof(path));
	if (rc == 0)
		rc = fstatat(c->backing_fd, path, ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
	*ret_rc = rc;
	return !motion_is_possible(c, &look);
}

int overlay_stat(struct core *c, struct node *n, struct stat *ret)
{
	int rc;

	if (n == c->root)
		return fstat(c->backing_fd, ret) < 0 ? -errno : 0;
	if (stat_at_rest(c, n, NULL, ret, &rc))
		return rc == 0 && is_replaced(n, ret) ? -ESTALE : rc;
	int fd = overlay_open(c, n, O_PATH);
	if (fd < 0)
		return fd;
	rc = fstat(fd, ret) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

/* The directory is the one that it should be; nothing but what the state knows moves in it. A descriptor to close. */
static int open_dir(struct core *c, struct node *dir)
{
	if (dir != c->root)
		return overlay_open(c, dir, O_PATH | O_DIRECTORY);
	int fd = fcntl(c->backing_fd, F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

static int stat_child(struct core *c, struct node *parent, const char *name, struct stat *ret)
{
	int rc;

	if (stat_at_rest(c, parent, name, ret, &rc))
		return rc;
	int fd = open_dir(c, parent);
	if (fd < 0)
		return fd;
	rc = fstatat(fd, name, ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
	close(fd);
	return rc;
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
	rc = node_of_state(c, &in, ret);
	if (rc == 0)
		(*ret)->parent_ino = parent->ino;
	return rc;
}

int overlay_resolve_known(struct core *c, struct node *parent, const char *name, struct node **ret)
{
	uint64_t owner;

	if (!parent->known)
		return 1;
	int rc = resolve_in_state(c, parent, name, ret);
	if (rc != -ENOENT)
		return rc;
	/* In this order: a name that is in doubt no more is known to the state. */
	rc = doubt_hides(c, parent->ino, name) ? 0 : state_backing_owner(c->state, parent->ino, name, &owner);
	return rc == -ENOENT ? 1 : rc < 0 ? rc : -ENOENT;
}

int overlay_resolve(struct core *c, struct node *parent, const char *name, struct node **ret)
{
	struct motion_look look = motion_begin(c);
	struct stat st;
	int rc = overlay_resolve_known(c, parent, name, ret);

	if (rc <= 0)
		return rc;
	if (overlay_is_hidden(name))
		return -ENOENT;
	rc = stat_child(c, parent, name, &st);
	if (rc < 0)
		return rc;
	/* A drain may just have put it there, of a file that the state has got meanwhile. */
	int known = motion_is_possible(c, &look) ? overlay_resolve_known(c, parent, name, ret) : 1;
	return known > 0 ? node_of_backing(c, parent, name, &st, ret) : known;
}

bool overlay_is_free(struct core *c, struct node *parent, const char *name)
{
	struct node_ref found NODE_CLEANUP = { c, NULL };
	struct stat st;

	return overlay_resolve_known(c, parent, name, &found.n) == 1 && !overlay_is_hidden(name) &&
	       stat_child(c, parent, name, &st) == -ENOENT;
}

int overlay_stat_child(struct core *c, struct node *parent, const char *name, struct stat *ret)
{
	return overlay_is_hidden(name) ? -ENOENT : stat_child(c, parent, name, ret);
}

static int open_child(struct core *c, struct node *parent, const char *name)
{
	int dirfd = open_dir(c, parent);

	if (dirfd < 0)
		return dirfd;
	int fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), rc = -errno;
	close(dirfd);
	return fd < 0 ? rc : fd;
}

static int describe(struct node *n, int fd, char target[RECORD_TARGET_MAX + 1], struct record *rec)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (is_replaced(n, &st))
		return -ESTALE;
	record_set_attributes(rec, &st);
	if (!S_ISLNK(st.st_mode))
		return 0;
	ssize_t len = readlinkat(fd, "", target, RECORD_TARGET_MAX);
	if (len < 0)
		return -errno;
	target[len] = '\0';
	rec->target = target;
	rec->target_len = (size_t)len;
	return 0;
}

static int commit_adopt(struct core *c, struct node *parent, const char *name, struct node *n)
{
	struct record rec = { .type = RECORD_ADOPT, .ino = n->ino, .parent = parent->ino };
	char target[RECORD_TARGET_MAX + 1];
	int fd = open_child(c, parent, name);

	if (fd < 0)
		return fd;
	snprintf(rec.name, sizeof(rec.name), "%s", name);
	int rc = describe(n, fd, target, &rec);
	close(fd);
	return rc < 0 ? rc : tree_commit(c, n->type, &rec);
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
	struct stat st;

	if (n->known)
		return 0;
	struct motion m = { 0 };
	int rc;
	do {
		/* Should the backing directory hang, then while nobody waits for names. */
		(void)overlay_stat(c, n, &st);
		pthread_mutex_lock(&c->names);
		rc = overlay_adopt(c, n);
		pthread_mutex_unlock(&c->names);
	} while (motion_again(c, &m, rc));
	return rc;
}
