/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Which way a call goes: to core alone, or through the parts that know the other nodes. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/job/private.h"
#include "fs/job/carry.h"
#include "fs/job/quiet.h"
#include "fs/job/walk.h"

#define FRONT_TRIES       8
#define FRONT_DIR_SECONDS 1.0 /* attributes of directories: who is not told of their times finds out (times.c) */

static int check_name(const char *name)
{
	return strlen(name) > RECORD_NAME_MAX ? -ENAMETOOLONG : 0;
}

static int begin(struct job *j, const char *name)
{
	int rc = name ? check_name(name) : 0;

	if (rc == 0)
		rc = job_wait_numbered(j);
	if (rc == 0)
		rc = lag_gate(j);
	return rc == 0 && job_is_unwanted(j) ? -EINTR : rc;
}

/* Others may change it without a word to our kernel; but directories, of which they all are told. */
static int with_timeouts(struct job *j, int rc, struct core_entry *e)
{
	if (rc < 0 || job_alone(j))
		return rc;
	if (!S_ISDIR(e->attr.st_mode))
		e->entry_timeout_sec = e->attr_timeout_sec = 0;
	else if (e->attr_timeout_sec > FRONT_DIR_SECONDS)
		e->attr_timeout_sec = FRONT_DIR_SECONDS;
	return rc;
}

/* What fails between the nodes is an I/O error to the application; the log says more. */
int job_errno(int rc)
{
	switch (rc) {
	case -ETIMEDOUT:
	case -EHOSTDOWN:
	case -ECONNRESET:
	case -ESHUTDOWN:
	case -EREMCHG:
	case -ETIME:
	case -EBADMSG:
	case -EILSEQ: return -EIO;
	default: return rc;
	}
}

static bool is_dir(struct job *j, uint64_t ino)
{
	return !remote_has(j, ino) && core_type(j->core, ino) == S_IFDIR;
}

static bool is_here(struct job *j, uint64_t ino)
{
	return job_alone(j) || !remote_has(j, ino);
}

/* ---- lookups */

static int lookup_backing(struct job *j, uint64_t parent, const char *name, struct core_entry *ret)
{
	struct hint hint;
	int rc = core_backing_lookup(j->core, parent, name, ret);

	if (rc < 0 || S_ISDIR(ret->attr.st_mode))
		return rc;
	rc = core_hint(j->core, parent, name, &hint.dir, hint.path, sizeof(hint.path));
	return rc < 0 ? rc : remote_lookup(j, ret->ino, 0, NULL, &hint, ret);
}

/* -EAGAIN: it has just changed. */
static int lookup_once(struct job *j, uint64_t parent, const char *name, struct core_entry *ret)
{
	struct pointer at = { 0 };
	int rc = core_tree_lookup(j->core, parent, name, ret);

	if (rc == 0 && tree_is_moving(j, ret->ino)) {
		core_forget(j->core, ret->ino, 1);
		rc = -ENOENT;
	}
	if (rc != -ENOENT)
		return rc;
	int known = core_is_known(j->core, parent);
	if (known < 0)
		return known;
	if (known && (seen_lookup(j, parent, name, ret) ||
			     (walk_ahead(j, parent, name) && seen_lookup(j, parent, name, ret))))
		return 0;
	if (known) { /* else no node has names in it */
		rc = held_lookup(j, parent, name, &at);
		if (rc == 0 && at.ino)
			rc = remote_lookup(j, at.ino, parent, name, NULL, ret);
		else if (rc == 0) /* a directory may have been made while the lookup waited */
			rc = core_tree_lookup(j->core, parent, name, ret);
		if (at.ino && (rc == -ENOENT || rc == -ESTALE))
			return -EAGAIN;
		if (rc != -ENOENT || at.hidden)
			return rc;
	}
	rc = lookup_backing(j, parent, name, ret);
	return rc == -ESTALE && core_type(j->core, parent) ? -EAGAIN : rc;
}

/*
 * The job has never been assembled: nothing in it has been changed, so all there is to see is the backing directory, for the moment. What the
 * file's home will be is not known yet.
 */
static int lookup_early(struct job *j, uint64_t parent, const char *name, struct core_entry *ret)
{
	int rc = core_lookup(j->core, parent, name, ret);

	ret->entry_timeout_sec = ret->attr_timeout_sec = 0;
	if (rc == 0 && !S_ISDIR(ret->attr.st_mode))
		remote_note_early(j, ret->ino);
	return rc;
}

static int lookup(struct job *j, uint64_t parent, const char *name, struct core_entry *ret)
{
	int rc = -EAGAIN;

	if (strcmp(name, ".") == 0)
		return core_lookup(j->core, parent, name, ret);
	if (!peers_numbered(j->peers))
		return lookup_early(j, parent, name, ret);
	rc = begin(j, name);
	if (rc == 0 && !core_type(j->core, parent))
		rc = -ESTALE;
	if (rc == 0)
		rc = -EAGAIN;
	for (int tries = 0; rc == -EAGAIN && tries < FRONT_TRIES; tries++) {
		if (tries == FRONT_TRIES / 2)
			held_doubt(j, parent, name);
		rc = lookup_once(j, parent, name, ret);
	}
	if (rc < 0 || announce_is(j, parent, name))
		ret->entry_timeout_sec = 0;
	if (rc == 0 && S_ISDIR(ret->attr.st_mode))
		times_fix(j, ret);
	return with_timeouts(j, rc == -EAGAIN ? -ENOENT : rc, ret);
}

int job_lookup(struct job *j, uint64_t parent, const char *name, struct core_entry *ret)
{
	return job_alone(j) ? core_lookup(j->core, parent, name, ret) : job_errno(lookup(j, parent, name, ret));
}

void job_forget(struct job *j, uint64_t ino, uint64_t nlookup)
{
	if (job_alone(j))
		core_forget(j->core, ino, nlookup);
	else
		remote_forget(j, ino, nlookup);
}

/* ---- attributes */

/* A request about a file of another node, whose answer may be an entry. */
static int ask_home(struct job *j, uint64_t ino, struct wire_msg *m, struct core_entry *ret)
{
	struct wire_msg reply = { 0 };
	int rc = remote_call(j, ino, NULL, m, &reply, NULL);

	if (rc == 0 && ret)
		rc = with_timeouts(j, entry_get(&reply, ret), ret);
	wire_msg_free(&reply);
	wire_msg_free(m);
	return job_errno(rc);
}

/* A change of a directory. */
static int ask_tree(struct job *j, uint64_t ino, struct wire_msg *m)
{
	int rc = begin(j, NULL);

	if (rc == 0)
		rc = tree_know(j, ino);
	message_put(m, MESSAGE_INO, ino);
	while (rc == 0 && (rc = tree_change(j, m)) == -ECONNRESET)
		rc = 0; /* done twice it is the same */
	wire_msg_free(m);
	return job_errno(rc);
}

/* A change of a file at home here: the directories above it may have to come into the tree first. */
static int after_adoption(struct job *j, uint64_t ino, int rc)
{
	struct hint hint;

	if (rc != -EREMCHG)
		return rc;
	rc = job_wait_numbered(j);
	remote_hint(j, ino, &hint);
	if (rc == 0)
		rc = hint.dir ? tree_know_above(j, hint.dir, hint.path) : -ESTALE;
	return rc == 0 ? 1 : job_errno(rc);
}

int job_getattr(struct job *j, uint64_t ino, struct job_file *file, struct core_entry *ret)
{
	struct wire_msg m = { 0 };

	int rc;

	if (is_here(j, ino)) {
		rc = core_getattr(j->core, ino, file ? file->local : NULL, ret);
		if (rc == 0 && !job_alone(j) && S_ISDIR(ret->attr.st_mode))
			times_fix(j, ret);
		return with_timeouts(j, rc, ret);
	}
	message_init(&m, MESSAGE_FILE_GET);
	rc = seen_attr(j, ino, ret, NULL) ? with_timeouts(j, 0, ret) : ask_home(j, ino, &m, ret);
	if (rc == 0)
		share_fix_size(j, ino, ret);
	return rc;
}

static int setattr_tree(
	struct job *j, uint64_t ino, const struct core_entry *e, unsigned int to_set, struct core_entry *ret)
{
	struct wire_msg m = { 0 };

	if (to_set & CORE_SET_SIZE)
		return -EINVAL;
	tree_init(&m, TREE_SETATTR);
	message_put(&m, MESSAGE_MASK, to_set);
	share_put_until(j, &m);
	entry_put(&m, e);
	int rc = ask_tree(j, ino, &m);
	return rc < 0 ? rc : job_getattr(j, ino, NULL, ret);
}

/* The size is not an attribute: it cuts what all nodes have of the file. */
static int truncate_file(struct job *j, uint64_t ino, uint64_t size)
{
	bool here = is_here(j, ino);
	int rc = job_wait_numbered(j);

	if (here)
		quiet_begin_change(j);
	while (rc == 0 && (rc = after_adoption(j, ino, share_truncate(j, ino, size))) > 0)
		rc = 0;
	if (here)
		quiet_end_change(j);
	return job_errno(rc);
}

/* Until the home syncs it is in its store alone, as what is carried there: who has the file open is to hear if it is lost. */
static int set_at_home(struct job *j, uint64_t ino, struct wire_msg *m, struct core_entry *ret)
{
	share_put_until(j, m);
	carry_note_set(j, ino); /* and behind it: a sync in between need not cover it */
	int rc = ask_home(j, ino, m, ret);
	carry_note_set(j, ino);
	return rc;
}

int job_setattr(struct job *j, uint64_t ino, const struct stat *attr, unsigned int to_set, struct job_file *file,
	struct core_entry *ret)
{
	struct core_entry e = { .ino = ino, .attr = *attr };
	struct wire_msg m = { 0 };
	int rc;

	if (!job_alone(j) && is_dir(j, ino))
		return setattr_tree(j, ino, &e, to_set, ret);
	if (!job_alone(j) && to_set & CORE_SET_SIZE) {
		rc = truncate_file(j, ino, (uint64_t)attr->st_size);
		to_set &= ~(unsigned int)CORE_SET_SIZE;
		if (rc < 0 || to_set == 0)
			return rc < 0 ? rc : job_getattr(j, ino, file, ret);
	}
	/* What was written before times are set must not set them later. */
	if (!job_alone(j) && to_set & (CORE_SET_ATIME | CORE_SET_MTIME | CORE_SET_ATIME_NOW | CORE_SET_MTIME_NOW)) {
		rc = share_commit_now(j, ino);
		if (rc < 0)
			return job_errno(rc);
	}
	if (is_here(j, ino)) {
		quiet_begin_change(j);
		do
			rc = core_setattr(j->core, ino, attr, to_set, file ? file->local : NULL, ret);
		while ((rc = after_adoption(j, ino, rc)) > 0);
		quiet_end_change(j);
		return with_timeouts(j, rc, ret);
	}
	message_init(&m, MESSAGE_FILE_SET);
	message_put(&m, MESSAGE_MASK, to_set);
	entry_put(&m, &e);
	return set_at_home(j, ino, &m, ret);
}

int job_readlink(struct job *j, uint64_t ino, char *out, size_t cap)
{
	struct wire_msg m = { 0 }, reply = { 0 };

	if (is_here(j, ino))
		return core_readlink(j->core, ino, out, cap);
	message_init(&m, MESSAGE_FILE_READLINK);
	int rc = remote_call(j, ino, NULL, &m, &reply, NULL);
	if (rc == 0 && !message_get_str(&reply, MESSAGE_TARGET, out, cap))
		rc = -ENAMETOOLONG;
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return job_errno(rc);
}

/* ---- names */

int job_mkdir(
	struct job *j, uint64_t parent, const char *name, mode_t mode, struct core_cred cred, struct core_entry *ret)
{
	if (job_alone(j))
		return core_mkdir(j->core, parent, name, mode, cred, ret);
	int rc = begin(j, name);
	return job_errno(with_timeouts(j, rc < 0 ? rc : change_mkdir(j, parent, name, mode, cred, ret), ret));
}

int job_symlink(struct job *j, uint64_t parent, const char *name, const char *target, struct core_cred cred,
	struct core_entry *ret)
{
	if (job_alone(j))
		return core_symlink(j->core, parent, name, target, cred, ret);
	int rc = begin(j, name);
	if (rc == 0)
		rc = change_create(j, parent, name, S_IFLNK | 0777, target, 0, 0, cred, ret, NULL);
	return job_errno(with_timeouts(j, rc, ret));
}

int job_mknod(struct job *j, uint64_t parent, const char *name, mode_t mode, dev_t rdev, struct core_cred cred,
	struct core_entry *ret)
{
	if (job_alone(j))
		return core_mknod(j->core, parent, name, mode, rdev, cred, ret);
	if ((mode & S_IFMT) == 0)
		mode |= S_IFREG;
	if (!S_ISREG(mode) && !inode_is_special(mode))
		return -EINVAL;
	int rc = begin(j, name);
	if (rc == 0)
		rc = change_create(j, parent, name, mode & (S_IFMT | 07777), NULL, rdev, 0, cred, ret, NULL);
	return job_errno(with_timeouts(j, rc, ret));
}

int job_link(struct job *j, uint64_t ino, uint64_t parent, const char *name, struct core_entry *ret)
{
	if (job_alone(j))
		return core_link(j->core, ino, parent, name, ret);
	int rc = is_dir(j, ino) ? -EPERM : begin(j, name);
	if (rc == 0 && core_crosses(j->core, ino, parent))
		rc = -EXDEV;
	return job_errno(with_timeouts(j, rc < 0 ? rc : change_link(j, ino, parent, name, ret), ret));
}

static int remove_name(struct job *j, uint64_t parent, const char *name, bool dir)
{
	int rc = begin(j, name);

	return job_errno(rc < 0 ? rc : change_remove(j, parent, name, dir));
}

int job_unlink(struct job *j, uint64_t parent, const char *name)
{
	return job_alone(j) ? core_unlink(j->core, parent, name) : remove_name(j, parent, name, false);
}

int job_rmdir(struct job *j, uint64_t parent, const char *name)
{
	return job_alone(j) ? core_rmdir(j->core, parent, name) : remove_name(j, parent, name, true);
}

int job_rename(
	struct job *j, uint64_t from_parent, const char *from, uint64_t parent, const char *name, unsigned int flags)
{
	if (job_alone(j))
		return core_rename(j->core, from_parent, from, parent, name, flags);
	int rc = begin(j, from);
	if (rc == 0)
		rc = check_name(name);
	if (rc == 0 && core_crosses(j->core, from_parent, parent))
		rc = -EXDEV;
	return job_errno(rc < 0 ? rc : change_rename(j, from_parent, from, parent, name, flags));
}

/* ---- directories */

static int open_list(struct job *j, uint64_t ino, struct job_dir *dir)
{
	int rc = core_is_known(j->core, ino);

	/* What the tree does not have is as the backing directory has it, and what was removed is empty. */
	if (rc <= 0)
		return rc < 0 ? job_errno(rc) : core_opendir(j->core, ino, &dir->local);
	if (!is_dir(j, ino))
		return -ENOTDIR;
	if (!peers_numbered(j->peers)) /* as lookup_early */
		return core_opendir(j->core, ino, &dir->local);
	rc = begin(j, NULL);
	return job_errno(rc < 0 ? rc : list_open(j, ino, &dir->list));
}

/* Other nodes are asked when somebody reads it: df, for one, opens the root of a mount and reads nothing. */
static int open_unread(struct job *j, uint64_t ino, struct job_dir *dir)
{
	int rc = job_alone(j) ? 0 : core_is_known(j->core, ino);

	if (rc <= 0)
		return rc < 0 ? job_errno(rc) : core_opendir(j->core, ino, &dir->local);
	return is_dir(j, ino) ? 0 : -ENOTDIR;
}

int job_opendir(struct job *j, uint64_t ino, struct job_dir **ret)
{
	struct job_dir *dir = calloc(1, sizeof(*dir));
	int r = dir ? open_unread(j, ino, dir) : -ENOMEM;

	if (r) {
		free(dir);
		return r;
	}
	dir->ino = ino;
	pthread_mutex_init(&dir->lock, NULL);
	*ret = dir;
	return 0;
}

static void close_list(struct job *j, struct job_dir *dir)
{
	if (dir->local)
		core_closedir(j->core, dir->local);
	list_close(dir->list);
}

void job_closedir(struct job *j, struct job_dir *dir)
{
	close_list(j, dir);
	pthread_mutex_destroy(&dir->lock);
	free(dir);
}

int job_readdir(struct job *j, struct job_dir *dir, uint64_t index, const char **ret_name, uint64_t *ret_ino,
	uint32_t *ret_type)
{
	if (job_alone(j))
		return core_readdir(j->core, dir->local, index, ret_name, ret_ino, ret_type);
	pthread_mutex_lock(&dir->lock);
	int rc = dir->list || dir->local ? 0 : open_list(j, dir->ino, dir);
	if (rc == 0)
		rc = dir->list ? list_get(dir->list, index, ret_name, ret_ino, ret_type)
			       : core_readdir(j->core, dir->local, index, ret_name, ret_ino, ret_type);
	pthread_mutex_unlock(&dir->lock);
	return rc;
}

int job_rewinddir(struct job *j, struct job_dir *dir)
{
	struct job_dir old, fresh = { 0 };
	int rc;

	if (job_alone(j))
		return core_rewinddir(j->core, dir->local);
	rc = open_list(j, dir->ino, &fresh);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&dir->lock);
	old = (struct job_dir){ .local = dir->local, .list = dir->list };
	dir->local = fresh.local;
	dir->list = fresh.list;
	pthread_mutex_unlock(&dir->lock);
	close_list(j, &old);
	return 0;
}

/* ---- extended attributes */

/* Of a file of another node, as its home would say now. */
static bool has_none(struct job *j, uint64_t ino)
{
	bool bare;

	return seen_attr(j, ino, NULL, &bare) && bare;
}

static ssize_t get_xattr(struct job *j, uint64_t ino, enum message_type type, const char *name, void *out, size_t cap)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	const uint8_t *value;
	size_t len;

	message_init(&m, type);
	if (name)
		message_put_str(&m, MESSAGE_NAME, name);
	message_put(&m, MESSAGE_SIZE, cap);
	ssize_t rc = remote_call(j, ino, NULL, &m, &reply, NULL);
	if (rc == 0)
		rc = (ssize_t)message_get(&reply, MESSAGE_COUNT);
	if (rc > 0 && cap) {
		if (!message_get_bytes(&reply, MESSAGE_VALUE, 0, &value, &len) || len != (size_t)rc || len > cap)
			rc = -EIO;
		else
			memcpy(out, value, len);
	}
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc < 0 ? job_errno((int)rc) : rc;
}

ssize_t job_getxattr(struct job *j, uint64_t ino, const char *name, void *out, size_t cap)
{
	if (is_here(j, ino))
		return core_getxattr(j->core, ino, name, out, cap);
	if (strncmp(name, "system.", 7) != 0 && strlen(name) <= XATTR_NAME_MAX && has_none(j, ino))
		return -ENODATA;
	return strlen(name) > XATTR_NAME_MAX ? -ERANGE : get_xattr(j, ino, MESSAGE_FILE_GETXATTR, name, out, cap);
}

ssize_t job_listxattr(struct job *j, uint64_t ino, char *out, size_t cap)
{
	if (is_here(j, ino))
		return core_listxattr(j->core, ino, out, cap);
	return has_none(j, ino) ? 0 : get_xattr(j, ino, MESSAGE_FILE_LISTXATTR, NULL, out, cap);
}

static int set_xattr(struct job *j, uint64_t ino, const char *name, const void *value, size_t len, int flags)
{
	bool dir = !job_alone(j) && is_dir(j, ino);
	struct wire_msg m = { 0 };

	if (strlen(name) > XATTR_NAME_MAX)
		return strncmp(name, "system.", 7) == 0 ? -EOPNOTSUPP : -ERANGE;
	if (len > RECORD_VALUE_MAX)
		return -E2BIG;
	if (dir)
		tree_init(&m, value ? TREE_SETXATTR : TREE_REMOVEXATTR);
	else
		message_init(&m, value ? MESSAGE_FILE_SETXATTR : MESSAGE_FILE_REMOVEXATTR);
	message_put_str(&m, MESSAGE_NAME, name);
	if (value)
		message_put_bytes(&m, MESSAGE_VALUE, value, len);
	message_put(&m, MESSAGE_FLAGS, (uint64_t)flags);
	if (!dir)
		return set_at_home(j, ino, &m, NULL);
	share_put_until(j, &m);
	return ask_tree(j, ino, &m);
}

static bool is_file_here(struct job *j, uint64_t ino)
{
	return job_alone(j) || (is_here(j, ino) && !is_dir(j, ino));
}

int job_setxattr(struct job *j, uint64_t ino, const char *name, const void *value, size_t len, int flags)
{
	int rc;

	if (!is_file_here(j, ino))
		return set_xattr(j, ino, name, value ? value : "", len, flags);
	quiet_begin_change(j);
	do
		rc = core_setxattr(j->core, ino, name, value, len, flags);
	while ((rc = after_adoption(j, ino, rc)) > 0);
	quiet_end_change(j);
	return rc;
}

int job_removexattr(struct job *j, uint64_t ino, const char *name)
{
	int rc;

	if (!is_file_here(j, ino))
		return set_xattr(j, ino, name, NULL, 0, 0);
	quiet_begin_change(j);
	do
		rc = core_removexattr(j->core, ino, name);
	while ((rc = after_adoption(j, ino, rc)) > 0);
	quiet_end_change(j);
	return rc;
}

bool job_may_ask(struct job *j, uint64_t ino, const char *name, bool content)
{
	if (!job_alone(j))
		return true;
	return name ? core_name_may_ask(j->core, ino, name) : core_may_ask(j->core, ino, content);
}

int job_statfs(struct job *j, struct statvfs *ret)
{
	return core_statfs(j->core, ret);
}

/* A name that is there already. */
static int open_found(struct job *j, uint64_t parent, const char *name, int flags, struct core_entry *ret,
	struct job_file **ret_file, struct core_open_reply *ret_open)
{
	int rc = lookup(j, parent, name, ret);

	if (rc < 0)
		return rc;
	if (!S_ISREG(ret->attr.st_mode))
		rc = S_ISDIR(ret->attr.st_mode) ? -EISDIR : -ELOOP;
	else
		rc = job_open(j, ret->ino, flags, ret_file, ret_open);
	if (rc < 0)
		job_forget(j, ret->ino, 1);
	return rc;
}

static int create_file(struct job *j, uint64_t parent, const char *name, mode_t mode, int flags, struct core_cred cred,
	struct core_entry *ret, struct job_file **ret_file, struct core_open_reply *ret_open)
{
	int rc;

	if (job_alone(j)) {
		rc = core_create_file(j->core, parent, name, mode, flags, cred, ret, ret_open);
	} else {
		rc = begin(j, name);
		for (int tries = 0; rc == 0 && tries < FRONT_TRIES; tries++) {
			rc = change_create(
				j, parent, name, S_IFREG | (mode & 07777), NULL, 0, flags, cred, ret, ret_open);
			if (rc != -EEXIST || flags & O_EXCL)
				break;
			rc = open_found(j, parent, name, flags, ret, ret_file, ret_open);
			if (rc != -ENOENT && rc != -ESTALE)
				return job_errno(rc);
			rc = tries + 1 < FRONT_TRIES
				     ? 0
				     : -ESTALE; /* removed meanwhile; again and again: the kernel looks anew */
		}
		rc = job_errno(with_timeouts(j, rc, ret));
	}
	return file_created(j, rc, ret->ino, flags, ret_open, ret_file);
}

int job_create_file(struct job *j, uint64_t parent, const char *name, mode_t mode, int flags, struct core_cred cred,
	struct core_entry *ret, struct job_file **ret_file, struct core_open_reply *ret_open)
{
	quiet_begin_birth(j);
	int rc = create_file(j, parent, name, mode, flags, cred, ret, ret_file, ret_open);
	quiet_end_birth(j);
	return rc;
}

int job_tmpfile(struct job *j, uint64_t parent, mode_t mode, int flags, struct core_cred cred, struct core_entry *ret,
	struct job_file **ret_file, struct core_open_reply *ret_open)
{
	int rc = job_alone(j) ? 0 : begin(j, NULL);

	if (rc == 0 && !job_alone(j))
		rc = job_errno(tree_know(j, parent));
	if (rc == 0)
		rc = core_tmpfile(j->core, parent, mode, flags, cred, ret, ret_open);
	return file_created(j, with_timeouts(j, rc, ret), ret->ino, flags, ret_open, ret_file);
}
