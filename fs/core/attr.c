/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Attributes. Whoever holds the newest answers: the private segment for size and times of a private file, the state for
 * what the store has changed, the backing file for everything else.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "format/base/clock.h"

static void stat_of_inode(const struct inode *in, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_mode = in->mode;
	st->st_rdev = makedev(in->dev_major, in->dev_minor);
	st->st_nlink = in->nlink;
	st->st_uid = in->uid;
	st->st_gid = in->gid;
	st->st_size = (off_t)in->size;
	st->st_blocks = (blkcnt_t)((in->size + 511) / 512);
	st->st_atim = clock_timespec(in->atime_ns);
	st->st_mtim = clock_timespec(in->mtime_ns);
	st->st_ctim = clock_timespec(in->ctime_ns);
}

static void overlay_private_times(const struct stat *seg, struct stat *st)
{
	st->st_size = seg->st_size;
	st->st_blocks = seg->st_blocks;
	st->st_mtim = seg->st_mtim;
	if (clock_ns_of(seg->st_ctim) > clock_ns_of(st->st_ctim))
		st->st_ctim = seg->st_ctim;
}

static int stat_private(struct core *c, const struct inode *in, struct stat *st)
{
	uint64_t size, allocated;
	int64_t mtime_ns;
	int rc = segment_private_size(c->segments, in->private_segment, &size, &allocated, &mtime_ns);

	if (rc < 0)
		return rc;
	struct stat seg = {
		.st_size = (off_t)size, .st_blocks = (blkcnt_t)(allocated / 512), .st_mtim = clock_timespec(mtime_ns)
	};
	seg.st_ctim = seg.st_mtim;
	overlay_private_times(&seg, st);
	return 0;
}

static bool is_clean(const struct inode *in)
{
	return !(in->flags & (INODE_NEW | INODE_DIRTY_DATA | INODE_DIRTY_META | INODE_ORPHAN | INODE_PRIVATE)) &&
	       !inode_is_special(in->mode);
}

static double attr_timeout(struct core *c, struct node *n, const struct inode *in)
{
	if (is_clean(in) || (n->type == S_IFREG && data_is_outside(in)))
		return c->backing_timeout_sec;
	/* Stores into a mapping of a private file move its mtime without telling anybody, the kernel included. */
	if (in->flags & INODE_PRIVATE && (n->pass_opens > 0 || straggler_is_known(c->store, in->private_segment)))
		return 0;
	return CORE_LONG_TIMEOUT_SEC;
}

/* By its descriptor if there is one: the name of an open file may be gone, or just be moved by a drain. */
static int stat_outside(struct core *c, struct node *n, struct stat *st)
{
	int rc = 1;

	if (n->type == S_IFREG) {
		pthread_rwlock_rdlock(&n->lock);
		if (n->backing_fd >= 0)
			rc = fstat(n->backing_fd, st) < 0 ? -errno : 0;
		pthread_rwlock_unlock(&n->lock);
	}
	return rc == 1 ? overlay_stat(c, n, st) : rc;
}

/* The kernel's pages of the file are of that, if it has any. */
static void stamp_entry(struct node *n, const struct stat *st, struct core_entry *ret)
{
	if (n->type != S_IFREG)
		return;
	stamp_see(n, st);
	ret->stamp = stamp_of(st);
}

static int fill_known(struct core *c, struct node *n, const struct inode *in, struct core_entry *ret)
{
	struct stat st;
	int rc = 0;

	stat_of_inode(in, &ret->attr);
	if (!data_is_outside(in))
		stamp_forget(n);
	if (in->flags & INODE_PRIVATE)
		rc = stat_private(c, in, &ret->attr);
	else if (is_clean(in) && n->type != S_IFDIR) {
		rc = stat_outside(c, n, &st);
		if (rc == 0) {
			stamp_entry(n, &st, ret);
			ret->attr = st;
			if (in->ctime_ns > clock_ns_of(st.st_ctim))
				ret->attr.st_ctim =
					clock_timespec(in->ctime_ns); /* renamed or linked here, not there yet */
		}
	} else if (n->type == S_IFREG && data_is_outside(in)) {
		int outside = stat_outside(c, n, &st);
		if (outside == 0) {
			stamp_entry(n, &st, ret);
			ret->attr.st_size = st.st_size;
			ret->attr.st_blocks = st.st_blocks;
		}
		rc = outside == -CORE_MOVING ? outside : 0;
	}
	ret->attr.st_nlink = in->nlink;
	ret->entry_timeout_sec = is_clean(in) ? c->backing_timeout_sec : CORE_LONG_TIMEOUT_SEC;
	ret->attr_timeout_sec = attr_timeout(c, n, in);
	return rc;
}

static int fill_once(struct core *c, struct node *n, const struct inode *in, struct core_entry *ret)
{
	struct inode own;
	int rc;

	ret->stamp = 0;
	if (n->known && !in) {
		rc = state_inode(c->state, n->ino, &own);
		if (rc < 0)
			return rc == -ENOENT ? -ESTALE : rc;
		in = &own;
	}
	if (in) {
		rc = fill_known(c, n, in, ret);
		ret->gen = in->gen;
	} else {
		rc = stat_outside(c, n, &ret->attr);
		if (rc == 0)
			stamp_entry(n, &ret->attr, ret);
		ret->entry_timeout_sec = ret->attr_timeout_sec = c->backing_timeout_sec;
		ret->gen = 0;
	}
	ret->gen += n->lives;
	ret->ino = n->ino;
	ret->attr.st_ino = n->ino;
	ret->attr.st_blksize = 1 << 20;
	return rc;
}

int attr_fill(struct core *c, struct node *n, const struct inode *in, struct core_entry *ret)
{
	struct motion m = { 0 };
	int rc;

	do
		rc = fill_once(c, n, in, ret);
	while (motion_again(c, &m, rc));
	return rc;
}

int attr_size(struct core *c, struct node *n, const struct inode *in, uint64_t *ret_size)
{
	struct stat st;

	if (in && in->flags & INODE_PRIVATE) {
		int fd = data_private_fd(c, n, in);
		if (fd < 0)
			return fd;
		if (fstat(fd, &st) < 0)
			return -errno;
	} else if (!in || data_is_outside(in)) {
		int fd = data_backing_fd(c, n, false);
		if (fd < 0)
			return fd;
		if (fstat(fd, &st) < 0)
			return -errno;
	} else {
		st.st_size = (off_t)in->size;
	}
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

int core_getattr(struct core *c, uint64_t ino, struct core_file *file, struct core_entry *ret)
{
	(void)file;
	struct node_ref r NODE_CLEANUP = node_take(c, ino);
	int rc = r.n ? attr_fill(c, r.n, NULL, ret) : -ESTALE;

	return rc == -ENOENT ? -ESTALE
			     : rc; /* gone from the backing directory: the kernel is to look the name up anew */
}

static void record_of_attr(const struct stat *attr, unsigned int to_set, int64_t now, struct record *rec)
{
	rec->type = RECORD_SETATTR;
	rec->time_ns = now;
	if (to_set & CORE_SET_MODE) {
		rec->mask |= RECORD_ATTR_MODE;
		rec->mode = attr->st_mode;
	}
	if (to_set & CORE_SET_UID) {
		rec->mask |= RECORD_ATTR_UID;
		rec->uid = attr->st_uid;
	}
	if (to_set & CORE_SET_GID) {
		rec->mask |= RECORD_ATTR_GID;
		rec->gid = attr->st_gid;
	}
	if (to_set & (CORE_SET_ATIME | CORE_SET_ATIME_NOW)) {
		rec->mask |= RECORD_ATTR_ATIME;
		rec->atime_ns = to_set & CORE_SET_ATIME_NOW ? now : clock_ns_of(attr->st_atim);
	}
	if (to_set & (CORE_SET_MTIME | CORE_SET_MTIME_NOW)) {
		rec->mask |= RECORD_ATTR_MTIME;
		rec->mtime_ns = to_set & CORE_SET_MTIME_NOW ? now : clock_ns_of(attr->st_mtim);
	}
}

/* The mtime of a private file is its segment's; keep the two the same. */
static int set_private_mtime(struct core *c, struct node *n, int64_t mtime_ns)
{
	struct inode in;
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, clock_timespec(mtime_ns) };
	int rc = 0;

	pthread_rwlock_wrlock(&n->lock);
	if (state_inode(c->state, n->ino, &in) == 0 && in.flags & INODE_PRIVATE) {
		int fd = data_private_fd(c, n, &in);
		rc = fd < 0 ? fd : futimens(fd, times) < 0 ? -errno : 0;
		drain_mark_busy(c, n->ino);
	}
	pthread_rwlock_unlock(&n->lock);
	return rc;
}

/* Of a file that other nodes write: what was written before its times are set does not change them, whenever it is committed. */
static int commit_attr(struct core *c, struct node *n, struct record *rec)
{
	struct inode in;

	if (n->type != S_IFREG)
		return tree_commit(c, n->type, rec);
	pthread_rwlock_wrlock(&n->lock); /* core_grow */
	if (rec->mask & RECORD_ATTR_MTIME && state_inode(c->state, n->ino, &in) == 0 && in.flags & INODE_SHARED)
		rec->stamp = (uint64_t)clock_now(state_clock(c->state));
	int rc = store_commit(c->store, rec);
	pthread_rwlock_unlock(&n->lock);
	return rc;
}

int core_setattr(struct core *c, uint64_t ino, const struct stat *attr, unsigned int to_set, struct core_file *file,
	struct core_entry *ret)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);
	struct record rec = { .ino = ino };
	int rc;

	(void)file;
	if (!r.n)
		return -ESTALE;
	if (c->read_only)
		return -EROFS;
	rc = ground_check_change(c, r.n);
	if (rc == 0)
		rc = overlay_adopt_locked(c, r.n);
	if (rc == 0 && to_set & CORE_SET_SIZE)
		rc = r.n->type == S_IFREG ? data_truncate(c, r.n, (uint64_t)attr->st_size) : -EINVAL;
	if (rc < 0)
		return rc;
	record_of_attr(attr, to_set, state_time_ns(c->state), &rec);
	if (rec.mask & RECORD_ATTR_MTIME) {
		rc = set_private_mtime(c, r.n, rec.mtime_ns);
		if (rc < 0)
			return rc;
	}
	if (rec.mask) {
		rc = commit_attr(c, r.n, &rec);
		if (rc < 0)
			return rc;
		data_touched(c);
	}
	return attr_fill(c, r.n, NULL, ret);
}
