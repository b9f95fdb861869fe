/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a job's other nodes want of this node's files (docs/design/many-nodes.md, 4): to be opened by number, to be made a
 * shared one, to grow and to be cut by what was done elsewhere. And the layers of their files, which are inodes of the
 * state without names: only data is ever asked of those.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "format/base/clock.h"

#define EXTENT_BATCH 128

void core_set_job(struct core *c, void (*gone)(uint64_t ino, void *arg), void *arg)
{
	if (c->data_choice == DATA_AUTO)
		c->data_choice = DATA_LOG;
	c->gone = gone;
	c->gone_arg = arg;
}

int share_take_number(struct core *c, uint64_t ino, struct node **ret)
{
	struct inode in;

	*ret = node_get(c, ino);
	int rc = *ret && (*ret)->known ? 0 : state_inode(c->state, ino, &in);
	if (rc == 0 && !*ret)
		rc = node_of_state(c, &in, ret);
	else if (rc == 0)
		(*ret)->known = true; /* a layer has come to what was only a backing file before */
	if (rc < 0 && *ret)
		return 0; /* an untouched backing file */
	return rc == -ENOENT ? -ESTALE : rc;
}

int core_open_number(struct core *c, uint64_t ino, int flags, struct core_open_reply *ret_open)
{
	struct node_ref r NODE_CLEANUP = { c, NULL };
	struct inode in;
	int rc = share_take_number(c, ino, &r.n);

	if (rc < 0)
		return rc;
	if (state_inode(c->state, ino, &in) == 0 && data_is_layer(&in))
		r.n->caught_up = true;
	return open_file(c, r.n, NULL, flags, true, ret_open);
}

static bool has_backing_extents(struct core *c, const struct inode *in)
{
	struct extent batch[EXTENT_BATCH];
	size_t num;
	uint64_t next;

	for (uint64_t off = 0; off < in->size; off = next) {
		if (state_extents(c->state, in->ino, off, in->size - off, batch, EXTENT_BATCH, &num, &next) < 0)
			return true;
		for (size_t i = 0; i < num; i++)
			if (batch[i].kind == EXTENT_BACKING)
				return true;
	}
	return false;
}

static int share_locked(struct core *c, struct node *n)
{
	struct record rec = { .type = RECORD_SHARE, .ino = n->ino };
	struct inode in;
	int rc = state_inode(c->state, n->ino, &in);

	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	if (in.flags & INODE_SHARED)
		return 0;
	if (in.flags & INODE_PRIVATE)
		rc = seal_private(c, n, &in);
	if (rc == 0 && has_backing_extents(c, &in))
		rc = -EBUSY;
	if (rc == 0)
		rc = data_catch_up(c, n, &in);
	if (rc == 0)
		rc = store_commit(c->store, &rec);
	if (rc == 0)
		n->caught_up = true;
	return rc;
}

int core_adopt(struct core *c, uint64_t ino)
{
	struct node_ref r NODE_CLEANUP = { c, NULL };
	int rc = share_take_number(c, ino, &r.n);

	return rc < 0 ? rc : overlay_adopt_locked(c, r.n);
}

int core_share(struct core *c, struct core_file *file)
{
	struct node *n = file->node;
	int rc = overlay_adopt_locked(c, n);
	struct motion m = { 0 };

	if (rc < 0)
		return rc;
	do {
		pthread_rwlock_wrlock(&n->lock);
		rc = share_locked(c, n);
		pthread_rwlock_unlock(&n->lock);
	} while (motion_again(c, &m, rc));
	return rc;
}

/* The node's lock is held exclusively: no write of ours is between its size and its record. */
static int grow_locked(struct core *c, struct node *n, uint64_t size, int64_t mtime_ns)
{
	struct record rec = { .type = RECORD_TRUNCATE, .ino = n->ino, .time_ns = mtime_ns };
	struct inode in;
	int rc = state_inode(c->state, n->ino, &in);

	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	rec.size = size > in.size ? size : in.size;
	bool newer = rec.time_ns >= in.mtime_ns && rec.time_ns >= in.times_set_ns;
	if (!newer)
		rec.time_ns = in.mtime_ns;
	rc = store_commit(c->store, &rec);
	if (rc < 0 || newer)
		return rc;
	return store_commit(c->store,
		&(struct record){
			.type = RECORD_SETATTR, .ino = n->ino, .mask = RECORD_ATTR_CTIME, .ctime_ns = in.ctime_ns });
}

int core_grow(struct core *c, uint64_t ino, uint64_t size, int64_t mtime_ns)
{
	struct node_ref r NODE_CLEANUP = { c, NULL };
	int rc = size > INT64_MAX ? -EFBIG : share_take_number(c, ino, &r.n);

	if (rc < 0)
		return rc;
	pthread_rwlock_wrlock(&r.n->lock);
	rc = grow_locked(c, r.n, size, mtime_ns);
	pthread_rwlock_unlock(&r.n->lock);
	data_touched(c);
	return rc;
}

int core_cut(struct core *c, uint64_t ino, uint64_t size)
{
	struct node_ref r NODE_CLEANUP = { c, NULL };
	int rc = share_take_number(c, ino, &r.n);

	if (rc == 0)
		rc = overlay_adopt_locked(c, r.n);
	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	return data_truncate(c, r.n, size);
}

/* Our kernel, by our mount or by one that is dead. The node's lock is held. */
static bool is_kernels(struct core *c, const struct node *n)
{
	struct inode in;

	return n->pass_opens > 0 || (n->known && state_inode(c->state, n->ino, &in) == 0 && in.flags & INODE_PRIVATE &&
					    straggler_is_known(c->store, in.private_segment));
}

bool core_is_kernels(struct core *c, struct core_file *file)
{
	pthread_rwlock_rdlock(&file->node->lock);
	bool is = is_kernels(c, file->node);
	pthread_rwlock_unlock(&file->node->lock);
	return is;
}

int core_append(struct core *c, struct core_file *file, const void *buf, size_t len)
{
	struct iovec v = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
	struct node *n = file->node;
	struct inode in;
	int rc = -ESTALE;

	pthread_rwlock_rdlock(&n->lock);
	if (is_kernels(c, n) && state_inode(c->state, n->ino, &in) == 0) {
		int fd = data_private_fd(c, n, &in);
		ssize_t put = fd < 0 ? fd : pwritev2(fd, &v, 1, 0, RWF_APPEND);

		rc = fd < 0 ? fd : put < 0 ? -errno : (size_t)put < len ? -ENOSPC : 0;
		drain_mark_busy(c, n->ino);
	}
	pthread_rwlock_unlock(&n->lock);
	data_touched(c);
	return rc;
}

/* Nothing is known of it but its name, if that. */
static void stamp_untouched(struct core *c, uint64_t ino, struct core_where *ret)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);
	struct core_entry entry;

	if (r.n && attr_fill(c, r.n, NULL, &entry) == 0)
		ret->file_stamp = entry.stamp;
}

int core_where(struct core *c, uint64_t ino, struct core_where *ret)
{
	struct node_ref r NODE_CLEANUP = { c, NULL };
	struct core_entry entry;
	int rc = state_inode(c->state, ino, &ret->in);

	ret->known = ret->outside = ret->has_path = false;
	ret->size = 0;
	ret->mtime_ns = 0;
	ret->file_stamp = 0;
	if (rc == -ENOENT) {
		ret->outside = true;
		stamp_untouched(c, ino, ret);
		return 0;
	}
	if (rc == 0)
		rc = share_take_number(c, ino, &r.n);
	if (rc == 0)
		rc = attr_fill(c, r.n, &ret->in, &entry);
	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	ret->known = true;
	ret->outside = data_is_outside(&ret->in) && !data_is_layer(&ret->in);
	ret->size = (uint64_t)entry.attr.st_size;
	ret->mtime_ns = clock_ns_of(entry.attr.st_mtim);
	ret->file_stamp = entry.stamp;
	if (!(ret->in.flags & INODE_NEW))
		ret->has_path = state_backing_path(c->state, ino, ret->path, sizeof(ret->path)) == 0;
	return 0;
}

int core_open_backing(struct core *c, const char *path)
{
	return overlay_open_path(c->backing_fd, path, O_RDONLY | O_NOFOLLOW);
}

static bool is_found(struct core *c, int fd, uint64_t ino)
{
	struct stat st;

	return fstat(fd, &st) == 0 && node_backing_number(c, st.st_dev, st.st_ino) == ino;
}

int core_open_found(struct core *c, const char *path, uint64_t ino)
{
	int fd = core_open_backing(c, path);

	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP ? -ESTALE : fd;
	if (is_found(c, fd, ino))
		return fd;
	close(fd);
	return -ESTALE;
}

int core_open_origin(struct core *c, uint64_t ino)
{
	struct node_ref r NODE_CLEANUP = { c, NULL };
	int fd = share_take_number(c, ino, &r.n);
	struct motion m = { 0 };

	if (fd < 0)
		return fd;
	do {
		pthread_rwlock_rdlock(&r.n->lock);
		fd = data_backing_fd(c, r.n, false);
		if (fd >= 0 && (fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
			fd = -errno;
		pthread_rwlock_unlock(&r.n->lock);
	} while (motion_again(c, &m, fd));
	return fd;
}
