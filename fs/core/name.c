/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names: lookup, and everything that makes, links or removes one. Each change is one record; what it needs to know
 * beforehand (adopted ancestors) is committed first and changes nothing that can be seen.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define NAME_LINKS_MAX 65000u /* as on ext4 */

static const struct core_how alone; /* nobody knows more than we do */

static int check_name(const char *name)
{
	return strlen(name) > RECORD_NAME_MAX ? -ENAMETOOLONG : 0;
}

/*
 * The backing file of a known inode is not where the state says. If somebody has deleted or renamed it there, the state forgets
 * that name: true, and it may be worth to look again. But a drain that died may have moved it, or a directory above it, without
 * having told us; the next one will. So the directory must be there, and the name must be one that no drain had to move. One that the
 * mount does not show any more a drain has removed, without having told us: the file has others.
 */
static bool forget_vanished(struct core *c, struct node *n)
{
	struct record rec = { .type = RECORD_FORGET, .ino = n->ino };
	struct state_name shown;
	char path[PATH_MAX];
	struct inode in;
	struct stat st;

	if (drain_is_running(c) || motion_has_intents(c) || state_inode(c->state, n->ino, &in) < 0 ||
		in.origin_name[0] == '\0')
		return false;
	if (state_backing_path(c->state, in.origin_parent, path, sizeof(path)) < 0 ||
		fstatat(c->backing_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
		return false;
	rec.parent = in.origin_parent;
	snprintf(rec.name, sizeof(rec.name), "%s", in.origin_name);
	pthread_mutex_lock(&c->names);
	if (in.num_backing > 1 && n->type != S_IFDIR && state_lookup(c->state, rec.parent, rec.name, &shown) == -ENOENT)
		rec.type = RECORD_REMOVED;
	int rc = store_commit(c->store, &rec); /* refused when the mount shows something else there */
	if (rc == 0 && state_inode(c->state, n->ino, &in) == -ENOENT)
		n->known = false;
	pthread_mutex_unlock(&c->names);
	return rc == 0;
}

bool name_is_replaced(struct core *c, struct node *n)
{
	struct stat held, there;
	struct inode in;

	if (!n->known || n->type != S_IFREG || n->backing_fd < 0 || drain_is_running(c))
		return false;
	pthread_rwlock_rdlock(&n->lock);
	bool is = n->backing_fd >= 0 && !n->through_dirty && state_inode(c->state, n->ino, &in) == 0 &&
		  data_is_outside(&in) && !data_is_layer(&in) && !(in.flags & (INODE_DIRTY_META | INODE_DIRTY_XATTR)) &&
		  fstat(n->backing_fd, &held) == 0 && overlay_stat(c, n, &there) == 0 && S_ISREG(there.st_mode) &&
		  (held.st_ino != there.st_ino || held.st_dev != there.st_dev);
	pthread_rwlock_unlock(&n->lock);
	return is && !motion_has_intents(c);
}

/*
 * Found by a name that the state does not have, of a file that it knows by another one, which has gone: by this one it is known from now on.
 * False: it knows it, or cannot.
 */
static bool know_name(struct core *c, struct node *dir, const char *name, struct node *n)
{
	struct state_name known;
	int rc = -EEXIST;

	if (c->read_only || n->type == S_IFDIR)
		return false;
	pthread_mutex_lock(&c->names);
	if (!dir->known || state_lookup(c->state, dir->ino, name, &known) == -ENOENT)
		rc = overlay_adopt_name(c, dir, name, n);
	pthread_mutex_unlock(&c->names);
	return rc == 0;
}

#define NAME_LOOKS 4 /* at a file that moves in the backing directory */

int core_lookup(struct core *c, uint64_t parent, const char *name, struct core_entry *ret)
{
	struct node_ref dir NODE_CLEANUP = node_take(c, parent);
	int rc = check_name(name);

	/* Names that are not there are asked for again soon: the backing directory is everybody's, once it is made. */
	ret->entry_timeout_sec = c->backing_timeout_sec;
	if (!dir.n)
		return -ESTALE;
	struct motion m = { 0 };
	for (int looks = 0; rc == 0; looks++) {
		struct node_ref found NODE_CLEANUP = { c, NULL };
		do
			rc = overlay_resolve(c, dir.n, name, &found.n);
		while (motion_again(c, &m, rc));
		if (rc < 0)
			break;
		if (looks < NAME_LOOKS && name_is_replaced(c, found.n) && forget_vanished(c, found.n))
			continue;
		rc = attr_fill(c, found.n, NULL, ret);
		if (rc == 0) {
			node_count_lookup(c, found.n);
			return 0;
		}
		if (rc != -ENOENT || !found.n->known)
			break;
		ret->entry_timeout_sec = 0;
		if (looks < NAME_LOOKS && (know_name(c, dir.n, name, found.n) || forget_vanished(c, found.n)))
			rc = 0;
	}
	return rc;
}

/* names is held. free: of overlay_is_free. */
static int resolve_new(struct core *c, struct node *dir, const char *name, bool free, struct node **ret)
{
	int rc = free ? overlay_resolve_known(c, dir, name, ret) : overlay_resolve(c, dir, name, ret);

	return rc == 1 ? -ENOENT : rc;
}

/* Before names is taken: should the backing directory hang, it is while nobody waits for that. What is new is found again under names. */
static void adopt_before(struct core *c, struct node *n)
{
	struct stat st;

	if (!n->known)
		(void)overlay_stat(c, n, &st);
	if (!c->read_only)
		ground_before(c, n);
}

/* Before names is taken: is it worth to look, and is the name free then? */
static bool look_before(struct core *c, struct node *dir, const char *name, const struct core_how *how)
{
	return !how->free && !c->read_only && !dir->orphan && check_name(name) == 0 && overlay_is_free(c, dir, name);
}

/* names is held. The directory is known to the state afterwards, and the name is free (else -EEXIST). */
static int prepare_new(struct core *c, struct node *dir, const char *name, const struct core_how *how, bool free)
{
	struct node *there;
	int rc = check_name(name);

	if (rc == 0 && c->read_only)
		rc = -EROFS;
	if (rc == 0 && dir->orphan)
		rc = -ENOENT;
	if (rc == 0 && overlay_is_hidden(name))
		rc = -EPERM; /* these names belong to the drain */
	if (rc < 0)
		return rc;
	rc = how->free ? -ENOENT : resolve_new(c, dir, name, free, &there);
	if (rc == 0) {
		node_put(c, there);
		return -EEXIST;
	}
	if (rc == -ENOENT)
		rc = ground_check_new(c, dir, name);
	return rc == 0 ? overlay_adopt(c, dir) : rc;
}

static int dir_group(struct core *c, struct node *dir, struct core_cred cred, gid_t *ret_gid, bool *ret_setgid)
{
	struct inode in;
	int rc = state_inode(c->state, dir->ino, &in);

	if (rc < 0)
		return rc;
	*ret_setgid = in.mode & S_ISGID;
	*ret_gid = *ret_setgid ? in.gid : cred.gid;
	return 0;
}

/* names is held; rec has mode, target and segment. Makes the inode and its node (with a reference and one lookup). */
static int commit_create(struct core *c, struct node *dir, const char *name, struct core_cred cred,
	const struct core_how *how, bool free, struct record *rec, struct core_entry *ret, struct node **ret_node)
{
	struct inode in;
	gid_t gid = cred.gid;
	bool setgid = false;
	int rc = prepare_new(c, dir, name, how, free);

	if (rc == 0)
		rc = dir_group(c, dir, cred, &gid, &setgid);
	if (rc < 0)
		return rc;
	rec->type = RECORD_CREATE;
	rec->ino = state_new_ino(c->state);
	rec->parent = dir->ino;
	rec->uid = cred.uid;
	rec->gid = gid;
	if (setgid && S_ISDIR(rec->mode))
		rec->mode |= S_ISGID;
	rec->stamp = how->stamp;
	snprintf(rec->name, sizeof(rec->name), "%s", name);
	rc = tree_commit(c, rec->mode & S_IFMT, rec);
	if (rc == 0)
		rc = state_inode(c->state, rec->ino, &in);
	if (rc == 0)
		rc = node_of_state(c, &in, ret_node);
	if (rc < 0)
		return rc;
	(*ret_node)->parent_ino = dir->ino;
	ground_inherit(*ret_node, dir);
	rc = attr_fill(c, *ret_node, &in, ret);
	if (rc < 0) {
		node_put(c, *ret_node);
		*ret_node = NULL; /* the caller gives back what it finds there */
		return rc;
	}
	node_count_lookup(c, *ret_node);
	data_touched(c);
	return 0;
}

static int create_simple(struct core *c, uint64_t parent, const char *name, struct core_cred cred,
	const struct core_how *how, struct record *rec, struct core_entry *ret)
{
	struct node_ref dir NODE_CLEANUP = node_take(c, parent);
	struct node *made = NULL;
	struct motion m = { 0 };
	int rc;

	if (!dir.n)
		return -ESTALE;
	do {
		adopt_before(c, dir.n);
		bool free = look_before(c, dir.n, name, how);
		pthread_mutex_lock(&c->names);
		rc = commit_create(c, dir.n, name, cred, how, free, rec, ret, &made);
		pthread_mutex_unlock(&c->names);
	} while (motion_again(c, &m, rc));
	node_put(c, made);
	return rc;
}

int core_make_at(struct core *c, uint64_t parent, const char *name, mode_t mode, const char *target,
	struct core_cred cred, const struct core_how *how, struct core_entry *ret)
{
	struct record_trailer trailer = {
		.has = RECORD_HAS(RECORD_TAG_DEVICE), .dev_major = major(how->rdev), .dev_minor = minor(how->rdev)
	};
	struct record rec = { .mode = mode, .target = target, .target_len = target ? strlen(target) : 0 };

	if (inode_is_special(mode))
		rec.trailer = &trailer;
	if (!S_ISCHR(mode) && !S_ISBLK(mode))
		trailer.dev_major = trailer.dev_minor = 0;

	if (rec.target_len > RECORD_TARGET_MAX)
		return -ENAMETOOLONG;
	return create_simple(c, parent, name, cred, how, &rec, ret);
}

int core_mkdir(
	struct core *c, uint64_t parent, const char *name, mode_t mode, struct core_cred cred, struct core_entry *ret)
{
	return core_make_at(c, parent, name, S_IFDIR | (mode & 07777), NULL, cred, &alone, ret);
}

int core_symlink(struct core *c, uint64_t parent, const char *name, const char *target, struct core_cred cred,
	struct core_entry *ret)
{
	return core_make_at(c, parent, name, S_IFLNK | 0777, target, cred, &alone, ret);
}

int core_mknod(struct core *c, uint64_t parent, const char *name, mode_t mode, dev_t rdev, struct core_cred cred,
	struct core_entry *ret)
{
	struct core_how how = { .rdev = rdev };

	if ((mode & S_IFMT) == 0)
		mode |= S_IFREG;
	if (!S_ISREG(mode) && !inode_is_special(mode))
		return -EINVAL;
	return core_make_at(c, parent, name, mode & (S_IFMT | 07777), NULL, cred, &how, ret);
}

/* Opens it, and counts the look-up that the entry is. On an error neither has happened. */
static int open_and_show(
	struct core *c, struct node *n, int flags, struct core_entry *ret, struct core_open_reply *ret_open)
{
	int rc = open_file(c, n, NULL, flags, false, ret_open);

	if (rc < 0)
		return rc;
	rc = attr_fill(c, n, NULL, ret);
	if (rc < 0)
		core_release(c, ret_open->file);
	else
		node_count_lookup(c, n);
	return rc;
}

static int create_and_open(struct core *c, struct node *dir, const char *name, struct core_cred cred,
	const struct core_how *how, struct record *rec, int flags, struct core_entry *ret,
	struct core_open_reply *ret_open)
{
	struct node_ref made NODE_CLEANUP = { c, NULL };
	struct motion m = { 0 };
	int rc;

	do {
		adopt_before(c, dir);
		bool free = look_before(c, dir, name, how);
		pthread_mutex_lock(&c->names);
		rc = commit_create(c, dir, name, cred, how, free, rec, ret, &made.n);
		pthread_mutex_unlock(&c->names);
	} while (motion_again(c, &m, rc));
	if (rc < 0)
		return rc;
	rc = open_file(c, made.n, dir, flags & ~O_TRUNC, false, ret_open);
	if (rc < 0)
		core_forget(c, made.n->ino, 1);
	return rc;
}

int core_create_file_at(struct core *c, uint64_t parent, const char *name, mode_t mode, int flags,
	struct core_cred cred, const struct core_how *how, struct core_entry *ret, struct core_open_reply *ret_open)
{
	struct node_ref dir NODE_CLEANUP = node_take(c, parent);
	struct record rec = { .mode = S_IFREG | (mode & 07777) };

	if (!dir.n)
		return -ESTALE;
	if (c->read_only)
		return -EROFS;
	if (open_wants_private(c, dir.n, name, flags) && segment_create_private(c->segments, &rec.segment) < 0)
		rec.segment = 0; /* the log takes it, or says why not */
	int rc = create_and_open(c, dir.n, name, cred, how, &rec, flags, ret, ret_open);
	if (rc < 0 && rec.segment && rec.seq == 0)
		store_drop_private(c->store, rec.segment);
	return rc;
}

int core_create_file(struct core *c, uint64_t parent, const char *name, mode_t mode, int flags, struct core_cred cred,
	struct core_entry *ret, struct core_open_reply *ret_open)
{
	int rc = core_create_file_at(c, parent, name, mode, flags, cred, &alone, ret, ret_open);

	/*
	 * Others have made it since the kernel looked. For what a create opens the kernel asks for no permission: it
	 * is to look anew, and to open what it finds.
	 */
	return rc == -EEXIST && !(flags & O_EXCL) ? -ESTALE : rc;
}

static int commit_tmpfile(
	struct core *c, struct node *dir, struct core_cred cred, struct record *rec, struct node **ret)
{
	struct inode in;
	gid_t gid = cred.gid;
	bool setgid;
	int rc = dir->orphan ? -ENOENT : ground_check_new(c, dir, "");

	if (rc == 0)
		rc = overlay_adopt(c, dir);

	if (rc == 0)
		rc = dir_group(c, dir, cred, &gid, &setgid);
	if (rc < 0)
		return rc;
	rec->type = RECORD_CREATE; /* without parent and name */
	rec->ino = state_new_ino(c->state);
	rec->uid = cred.uid;
	rec->gid = gid;
	rc = store_commit(c->store, rec);
	if (rc == 0)
		rc = state_inode(c->state, rec->ino, &in);
	if (rc == 0)
		rc = node_of_state(c, &in, ret);
	if (rc == 0)
		(*ret)->parent_ino = dir->ino;
	return rc;
}

int core_tmpfile(struct core *c, uint64_t parent, mode_t mode, int flags, struct core_cred cred, struct core_entry *ret,
	struct core_open_reply *ret_open)
{
	struct node_ref dir NODE_CLEANUP = node_take(c, parent);
	struct node_ref made NODE_CLEANUP = { c, NULL };
	struct record rec = { .mode = S_IFREG | (mode & 07777) };

	if (!dir.n)
		return -ESTALE;
	if (c->read_only)
		return -EROFS;
	struct motion m = { 0 };
	int rc;
	do {
		pthread_mutex_lock(&c->names);
		rc = commit_tmpfile(c, dir.n, cred, &rec, &made.n);
		pthread_mutex_unlock(&c->names);
	} while (motion_again(c, &m, rc));
	if (rc < 0)
		return rc;
	made.n->linkable = !(flags & O_EXCL);
	return open_and_show(c, made.n, flags & ~(O_TRUNC | O_EXCL), ret, ret_open);
}

int core_readlink(struct core *c, uint64_t ino, char *out, size_t cap)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);
	struct motion m = { 0 };
	int fd;

	if (!r.n)
		return -ESTALE;
	if (r.n->type != S_IFLNK)
		return -EINVAL;
	if (r.n->known)
		return state_symlink(c->state, ino, out, cap);
	do
		fd = overlay_open(c, r.n, O_PATH);
	while (motion_again(c, &m, fd));
	if (fd < 0)
		return fd;
	ssize_t len = readlinkat(fd, "", out, cap - 1);
	int rc = len < 0 ? -errno : 0;
	close(fd);
	if (rc == 0)
		out[len] = '\0';
	return rc;
}

static int link_locked(
	struct core *c, struct node *n, struct node *dir, const char *name, const struct core_how *how, bool free)
{
	struct record rec = { .type = RECORD_LINK, .ino = n->ino, .parent = dir->ino, .stamp = how->stamp };
	struct inode in;
	int rc = prepare_new(c, dir, name, how, free);

	if (rc == 0 && ground_differs(c, n, dir))
		rc = -EXDEV;
	if (rc == 0)
		rc = ground_check_change(c, n);
	if (rc == 0)
		rc = overlay_adopt(c, n);
	if (rc == 0)
		rc = state_inode(c->state, n->ino, &in);
	if (rc < 0)
		return rc;
	if (in.nlink == 0 && !n->linkable)
		return -ENOENT;
	if (in.nlink >= NAME_LINKS_MAX)
		return -EMLINK;
	snprintf(rec.name, sizeof(rec.name), "%s", name);
	rc = store_commit(c->store, &rec);
	if (rc == 0)
		n->orphan = false;
	return rc;
}

int core_link_at(struct core *c, uint64_t ino, uint64_t parent, const char *name, const struct core_how *how,
	struct core_entry *ret)
{
	struct node_ref n NODE_CLEANUP = node_take(c, ino);
	struct node_ref dir NODE_CLEANUP = node_take(c, parent);

	if (!n.n || !dir.n)
		return -ESTALE;
	if (n.n->type == S_IFDIR)
		return -EPERM;
	struct motion m = { 0 };
	int rc;
	do {
		adopt_before(c, n.n);
		adopt_before(c, dir.n);
		bool free = look_before(c, dir.n, name, how);
		pthread_mutex_lock(&c->names);
		rc = link_locked(c, n.n, dir.n, name, how, free);
		pthread_mutex_unlock(&c->names);
	} while (motion_again(c, &m, rc));
	if (rc == 0)
		rc = attr_fill(c, n.n, NULL, ret);
	if (rc == 0) {
		node_count_lookup(c, n.n);
		data_touched(c);
	}
	return rc;
}

int core_link(struct core *c, uint64_t ino, uint64_t parent, const char *name, struct core_entry *ret)
{
	return core_link_at(c, ino, parent, name, &alone, ret);
}

/* Files that are open keep their backing file, whatever the drain does to its name. 0, or -CORE_MOVING. */
static int hold_backing(struct core *c, struct node *n)
{
	int fd = 0;

	pthread_rwlock_wrlock(&n->lock);
	if (n->opens > 0 && n->type == S_IFREG)
		fd = data_backing_fd(c, n, false);
	pthread_rwlock_unlock(&n->lock);
	return fd == -CORE_MOVING ? fd : 0;
}

/* Who opened it since, while it was moving. No lock is held. */
static void hold_lost(struct core *c, struct node *n)
{
	struct motion m = { 0 };

	while (n && n->orphan && motion_again(c, &m, hold_backing(c, n)))
		;
}

/* The same as adopt_before(), of a name that is to go, and of all that is asked for on the way. */
static void old_before(struct core *c, struct node *dir, const char *name)
{
	struct node_ref found NODE_CLEANUP = { c, NULL };

	if (c->read_only || check_name(name) < 0)
		return;
	adopt_before(c, dir);
	if (overlay_resolve(c, dir, name, &found.n) < 0)
		return;
	ground_before(c, found.n);
	(void)hold_backing(c, found.n);
}

/* The inode that lost a name, possibly its last: who opens it from here on sees to its backing file. names is held. */
void name_lost(struct core *c, struct node *n)
{
	struct inode in;

	if (state_inode(c->state, n->ino, &in) < 0 || !(in.flags & INODE_ORPHAN))
		return;
	n->orphan = true;
	(void)hold_backing(c, n); /* who opened it since it was held before */
	pthread_rwlock_wrlock(&n->lock);
	bool kept = n->kept;
	n->kept = false;
	pthread_rwlock_unlock(&n->lock);
	if (kept)
		node_put(c, n); /* nobody is owed it; the caller has one, too */
}

/* Does the merged directory show anything? names is held. */
static int check_empty(struct core *c, struct node *dir)
{
	if (dir->known && !state_dir_is_empty(c->state, dir->ino))
		return -ENOTEMPTY;
	int rc = dir_shows_any(c, dir);
	return rc > 0 ? -ENOTEMPTY : rc;
}

/* *ret_lost: a reference to what had the name. */
static int unlink_locked(struct core *c, struct node *dir, const char *name, bool is_rmdir, const struct core_how *how,
	struct node **ret_lost)
{
	struct record rec = { .type = RECORD_UNLINK, .parent = dir->ino };
	struct node_ref victim NODE_CLEANUP = { c, NULL };
	int rc = c->read_only ? -EROFS : overlay_resolve(c, dir, name, &victim.n);

	if (rc < 0)
		return rc;
	if (how->ino && victim.n->ino != how->ino)
		return -ESTALE;
	if (is_rmdir != (victim.n->type == S_IFDIR))
		return is_rmdir ? -ENOTDIR : -EISDIR;
	rc = ground_check_loss(c, dir, victim.n);
	if (rc == 0 && is_rmdir && !how->empty)
		rc = check_empty(c, victim.n);
	if (rc == 0)
		rc = overlay_adopt_name(c, dir, name, victim.n);
	if (rc == 0)
		rc = hold_backing(c, victim.n);
	if (rc < 0)
		return rc;
	rec.ino = victim.n->ino;
	snprintf(rec.name, sizeof(rec.name), "%s", name);
	rc = doubt_add(c, dir->ino, name, victim.n->ino);
	if (rc == 0)
		rc = tree_commit(c, victim.n->type, &rec);
	if (rc == 0) {
		name_lost(c, victim.n);
		node_ref(c, victim.n);
		*ret_lost = victim.n;
	}
	return rc;
}

int core_remove_at(struct core *c, uint64_t parent, const char *name, bool is_rmdir, const struct core_how *how)
{
	struct node_ref dir NODE_CLEANUP = node_take(c, parent);
	struct node_ref lost NODE_CLEANUP = { c, NULL };
	struct motion m = { 0 };
	int rc = check_name(name);

	if (!dir.n)
		return -ESTALE;
	if (rc < 0)
		return rc;
	do {
		old_before(c, dir.n, name);
		pthread_mutex_lock(&c->names);
		rc = unlink_locked(c, dir.n, name, is_rmdir, how, &lost.n);
		pthread_mutex_unlock(&c->names);
	} while (motion_again(c, &m, rc));
	hold_lost(c, lost.n);
	if (rc == 0)
		data_touched(c);
	return rc;
}

int core_unlink(struct core *c, uint64_t parent, const char *name)
{
	return core_remove_at(c, parent, name, false, &alone);
}

int core_rmdir(struct core *c, uint64_t parent, const char *name)
{
	return core_remove_at(c, parent, name, true, &alone);
}

/* Rename. */

struct rename_op {
	struct node *from_dir, *to_dir; /* borrowed */
	const char *from, *to;
	unsigned int flags;
	const struct core_how *how;
	struct node *moved, *target; /* references; target NULL: the new name is free */
};

static int rename_find(struct core *c, struct rename_op *op)
{
	int rc = check_name(op->from);

	if (rc == 0)
		rc = check_name(op->to);
	if (rc == 0 && (op->to_dir->orphan || op->from_dir->orphan))
		rc = -ENOENT;
	if (rc == 0 && overlay_is_hidden(op->to))
		rc = -EPERM;
	if (rc == 0)
		rc = overlay_resolve(c, op->from_dir, op->from, &op->moved);
	if (rc == 0 && op->how->ino && op->how->ino != op->moved->ino)
		rc = -ESTALE;
	if (rc < 0 || op->how->free)
		return rc;
	rc = overlay_resolve(c, op->to_dir, op->to, &op->target);
	return rc == -ENOENT ? 0 : rc;
}

static int rename_check(struct core *c, const struct rename_op *op)
{
	if (op->flags & RENAME_EXCHANGE)
		return op->target ? 0 : -ENOENT;
	if (!op->target)
		return 0;
	if (op->flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (op->target->type == S_IFDIR && op->moved->type != S_IFDIR)
		return -EISDIR;
	if (op->target->type != S_IFDIR && op->moved->type == S_IFDIR)
		return -ENOTDIR;
	return op->target->type == S_IFDIR && op->target != op->moved && !op->how->empty ? check_empty(c, op->target)
											 : 0;
}

/* What the backing directory would say. */
static int rename_allowed(struct core *c, const struct rename_op *op)
{
	int rc = ground_differs(c, op->from_dir, op->to_dir) ? -EXDEV : ground_check_loss(c, op->from_dir, op->moved);

	if (rc == 0)
		rc = op->target ? ground_check_loss(c, op->to_dir, op->target)
				: ground_check_new(c, op->to_dir, op->to);
	return rc;
}

static int rename_commit(struct core *c, const struct rename_op *op)
{
	struct record rec = { .type = RECORD_RENAME,
		.ino = op->moved->ino,
		.from_parent = op->from_dir->ino,
		.parent = op->to_dir->ino,
		.stamp = op->how->stamp };
	int rc = overlay_adopt_name(c, op->from_dir, op->from, op->moved);

	if (rc == 0)
		rc = op->target ? overlay_adopt_name(c, op->to_dir, op->to, op->target) : overlay_adopt(c, op->to_dir);
	if (rc < 0)
		return rc;
	if (op->target) {
		rec.other_ino = op->target->ino;
		rc = hold_backing(c, op->target);
	}
	if (rc < 0)
		return rc;
	if (op->flags & RENAME_EXCHANGE)
		rec.flags |= RECORD_F_EXCHANGE;
	snprintf(rec.from_name, sizeof(rec.from_name), "%s", op->from);
	snprintf(rec.name, sizeof(rec.name), "%s", op->to);
	rc = doubt_add(c, op->from_dir->ino, op->from, op->moved->ino);
	if (rc == 0 && op->target)
		rc = doubt_add(c, op->to_dir->ino, op->to, op->target->ino);
	if (rc == 0)
		rc = tree_commit(c, op->moved->type, &rec);
	if (rc == 0 && op->target && !(op->flags & RENAME_EXCHANGE))
		name_lost(c, op->target);
	if (rc == 0)
		op->moved->parent_ino = op->to_dir->ino;
	if (rc == 0 && op->flags & RENAME_EXCHANGE)
		op->target->parent_ino = op->from_dir->ino;
	return rc;
}

static void rename_forget(struct core *c, struct rename_op *op)
{
	node_put(c, op->moved);
	node_put(c, op->target);
	op->moved = op->target = NULL;
}

static int rename_once(struct core *c, struct rename_op *op)
{
	rename_forget(c, op);
	pthread_mutex_lock(&c->names);
	int rc = rename_find(c, op);
	if (rc == 0)
		rc = rename_check(c, op);
	if (rc == 0 && op->target != op->moved)
		rc = rename_allowed(c, op);
	if (rc == 0 && op->target != op->moved) /* two names of one file: nothing is done, as POSIX has it */
		rc = rename_commit(c, op);
	pthread_mutex_unlock(&c->names);
	return rc;
}

int core_rename_at(struct core *c, uint64_t from_parent, const char *from, uint64_t parent, const char *name,
	unsigned int flags, const struct core_how *how)
{
	struct node_ref from_dir NODE_CLEANUP = node_take(c, from_parent);
	struct node_ref to_dir NODE_CLEANUP = node_take(c, parent);
	struct rename_op op = {
		.from_dir = from_dir.n, .to_dir = to_dir.n, .from = from, .to = name, .flags = flags, .how = how
	};

	if (!from_dir.n || !to_dir.n)
		return -ESTALE;
	if (flags & ~(unsigned int)(RENAME_EXCHANGE | RENAME_NOREPLACE) ||
		flags == (RENAME_EXCHANGE | RENAME_NOREPLACE))
		return -EINVAL;
	if (c->read_only)
		return -EROFS;
	struct motion m = { 0 };
	int rc;
	do {
		old_before(c, from_dir.n, from);
		old_before(c, to_dir.n, name);
		rc = rename_once(c, &op);
	} while (motion_again(c, &m, rc));
	if (rc == 0)
		hold_lost(c, op.target);
	rename_forget(c, &op);
	if (rc == 0)
		data_touched(c);
	return rc;
}

int core_rename(
	struct core *c, uint64_t from_parent, const char *from, uint64_t parent, const char *name, unsigned int flags)
{
	return core_rename_at(c, from_parent, from, parent, name, flags, &alone);
}
