/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The bytes of open files, as far as the kernel does not move them itself: reads from segments and backing file, writes
 * into the log, and what changes a file's shape.
 *
 * A private file is its segment: everything is done to that. Any other file is log extents over the backing file.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "format/base/descriptors.h"
#include "format/base/fdio.h"

#define DATA_EXTENT_BATCH 128
#define DATA_COPY_BYTES   (1u << 20)

void data_touched(struct core *c)
{
	c->last_write_usec = clock_usec();
}

/* The last descriptors are not for files that applications have open. */
static int unless_scarce(int fd)
{
	if (!descriptors_scarce(fd))
		return fd;
	close(fd);
	return -EMFILE;
}

/* Keep one descriptor per node: whoever comes second closes its own again. */
static int keep_fd(_Atomic(int) *slot, int fd)
{
	int none = -1;

	if (fd < 0 || atomic_compare_exchange_strong(slot, &none, fd))
		return fd;
	close(fd);
	return none;
}

int data_private_fd(struct core *c, struct node *n, const struct inode *in)
{
	int fd = n->private_fd;

	return fd >= 0 ? fd
		       : keep_fd(&n->private_fd,
				 unless_scarce(segment_open_fd(c->segments, in->private_segment, true)));
}

/* The same file again, for writing, whatever its name is now: it may have none. */
static int reopen(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int wide = open(path, O_RDWR | O_CLOEXEC);
	return wide < 0 ? -errno : wide;
}

int data_backing_fd(struct core *c, struct node *n, bool writable)
{
	int fd = n->backing_fd;

	if (fd >= 0 && (!writable || n->backing_writable))
		return fd;
	if (!writable)
		return keep_fd(&n->backing_fd, unless_scarce(overlay_open(c, n, O_RDONLY)));
	int wide = fd >= 0 ? reopen(fd) : unless_scarce(overlay_open(c, n, O_RDWR)); /* exclusively locked */
	if (wide < 0)
		return wide;
	if (fd >= 0)
		close(fd);
	n->backing_fd = wide;
	n->backing_writable = true;
	return wide;
}

void data_close_backing(struct node *n)
{
	int fd = atomic_exchange(&n->backing_fd, -1);

	n->backing_writable = false; /* the next one may be for reading only */
	if (fd >= 0)
		close(fd);
}

struct base_arg {
	struct core *c;
	struct node *n;
};

/* The backing file's part of a read; where it has become shorter than it was, zeros. */
static int read_base(uint64_t off, size_t len, void *buf, void *arg)
{
	struct base_arg *a = arg;
	int fd = data_backing_fd(a->c, a->n, false);
	if (fd < 0)
		return fd;
	ssize_t got = fdio_read(fd, buf, len, off);
	if (got < 0)
		return (int)got;
	memset((char *)buf + got, 0, len - (size_t)got);
	return 0;
}

static ssize_t read_fd(int fd, void *buf, size_t len, uint64_t off)
{
	ssize_t got;

	if (fd < 0)
		return fd;
	do
		got = pread(fd, buf, len, (off_t)off);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

static ssize_t read_locked(struct core *c, struct node *n, void *buf, size_t len, uint64_t off)
{
	struct cistern_error err = { 0 };
	struct base_arg arg = { c, n };
	struct inode in;

	if (!n->known)
		return read_fd(data_backing_fd(c, n, false), buf, len, off);
	int rc = state_inode(c->state, n->ino, &in);
	if (rc < 0)
		return rc;
	if (in.flags & INODE_PRIVATE)
		return read_fd(data_private_fd(c, n, &in), buf, len, off);
	uint64_t size;
	rc = attr_size(c, n, &in, &size);
	if (rc < 0 || off >= size)
		return rc;
	if (len > size - off)
		len = size - off;
	if (!(in.flags & (INODE_NEW | INODE_DIRTY_DATA)))
		return read_fd(data_backing_fd(c, n, false), buf, len, off);
	rc = store_read(c->store, &in, off, len, buf, true, read_base, &arg, &err);
	if (rc < 0 && err.text[0])
		c->hooks.unreadable(err.text, c->hooks.arg);
	if (rc < 0)
		return rc == -EBADMSG ? -EIO : rc;
	return (ssize_t)len;
}

ssize_t core_read(struct core *c, struct core_file *file, void *buf, size_t len, uint64_t off)
{
	struct node *n = file->node;
	struct motion m = { 0 };
	ssize_t got;

	do {
		pthread_rwlock_rdlock(&n->lock);
		got = read_locked(c, n, buf, len, off);
		pthread_rwlock_unlock(&n->lock);
	} while (motion_again(c, &m, got));
	if (got > 0)
		c->read_bytes += (uint64_t)got;
	return got;
}

int core_peek(struct core *c, uint64_t ino, uint64_t off, uint8_t *ret)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);

	if (!r.n)
		return -ESTALE;
	pthread_rwlock_rdlock(&r.n->lock);
	ssize_t got = read_locked(c, r.n, ret, 1, off);
	pthread_rwlock_unlock(&r.n->lock);
	return got < 0 ? (int)got : got == 0 ? -ENODATA : 0;
}

static ssize_t write_private(
	struct core *c, struct node *n, const struct inode *in, const void *buf, size_t len, uint64_t off)
{
	int fd = data_private_fd(c, n, in);
	size_t done = 0;

	if (fd < 0)
		return fd;
	int err = 0;
	while (done < len && err == 0) {
		ssize_t put = pwrite(fd, (const char *)buf + done, len - done, (off_t)(off + done));
		if (put >= 0)
			done += (size_t)put;
		else if (errno != EINTR)
			err = errno == EDQUOT ? -ENOSPC : -errno;
	}
	drain_mark_busy(c, n->ino);
	return done ? (ssize_t)done : err;
}

/*
 * What the state says of a file that the store has nothing of is from when it was adopted or drained; since then somebody may
 * have appended to it in the backing directory, or cut it. Before the first change here that is taken over: bytes that were
 * added count as gone through. The node's lock is held exclusively.
 */
int data_catch_up(struct core *c, struct node *n, const struct inode *in)
{
	struct record rec = { .ino = n->ino, .off = in->size };
	struct stat st;

	if (!data_is_outside(in) || data_is_layer(in)) {
		n->caught_up = true;
		return 0;
	}
	int fd = data_backing_fd(c, n, false);
	if (fd == -ENOENT)
		return 0; /* it was deleted: the drain will say so */
	int rc = fd < 0 ? fd : fstat(fd, &st) < 0 ? -errno : 0;
	if (n->opens == 0)
		data_close_backing(n);
	if (rc < 0)
		return rc;
	if ((uint64_t)st.st_size == in->size || !overlay_is_same(in, &st))
		return 0; /* another file in its place is none that we write to: the drain will say so */
	rec.type = (uint64_t)st.st_size > in->size ? RECORD_THROUGH : RECORD_TRUNCATE;
	rec.size = (uint64_t)st.st_size;
	rec.len = rec.type == RECORD_THROUGH ? rec.size - in->size : 0;
	return store_commit(c->store, &rec);
}

static int catch_up_before_write(struct core *c, struct node *n)
{
	struct motion m = { 0 };
	struct inode in;
	int rc;

	if (n->caught_up)
		return 0;
	do {
		pthread_rwlock_wrlock(&n->lock);
		rc = state_inode(c->state, n->ino, &in);
		if (rc == 0)
			rc = data_catch_up(c, n, &in);
		pthread_rwlock_unlock(&n->lock);
	} while (motion_again(c, &m, rc));
	return rc == -ENOENT ? -ESTALE : rc;
}

struct write {
	uint32_t writer;
	const void *buf;
	size_t len;
	uint64_t off;
	const struct core_guard *guard; /* NULL: none */
};

static ssize_t write_kept(struct core *c, struct node *n, const struct inode *in, const struct write *w)
{
	if (in->flags & INODE_PRIVATE)
		return write_private(c, n, in, w->buf, w->len, w->off);
	int rc = store_write_as(c->store, w->writer, n->ino, in->gen, w->off, w->buf, w->len);
	return rc < 0 ? rc : (ssize_t)w->len;
}

/* The bytes of a writer that was killed while it waited must not come behind those of who has written since. */
static ssize_t write_shared(struct core *c, struct node *n, const struct write *w)
{
	struct inode in;
	int rc = state_inode(c->state, n->ino, &in);

	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	if (w->guard && *w->guard->at != w->guard->is)
		return -ECANCELED;
	if (c->hooks.commits && !c->hooks.commits(true, c->hooks.arg))
		return -EINTR;
	ssize_t done = write_kept(c, n, &in, w);
	if (c->hooks.commits) /* a copy of a range has more to write, and to wait for */
		(void)c->hooks.commits(false, c->hooks.arg);
	return done;
}

/* Room is waited for until the store takes the bytes; -ENOSPC when patience has run out. */
static ssize_t write_store(struct core *c, struct node *n, const struct write *w)
{
	ssize_t done = 0;

	do {
		int rc = space_wait(c, w->len, done == -ENOSPC);
		if (rc < 0)
			return rc;
		pthread_rwlock_rdlock(&n->lock);
		done = write_shared(c, n, w);
		pthread_rwlock_unlock(&n->lock);
	} while (done == -ENOSPC);
	return done;
}

static ssize_t write_once(struct core *c, struct node *n, const struct write *w)
{
	ssize_t done = write_store(c, n, w);

	return done == -ENOSPC ? space_write_through(c, n, w->buf, w->len, w->off) : done;
}

static ssize_t write_log(struct core *c, struct node *n, const struct write *w)
{
	ssize_t done;

	do
		done = write_once(c, n, w);
	while (done == -EAGAIN); /* full, and a drain is at the backing file: it may have made room */
	return done;
}

/* The kernel writes to it as well, and never waits for the store's room: nor do we. */
static ssize_t write_pass(struct core *c, struct node *n, const struct write *w)
{
	struct inode in;

	pthread_rwlock_rdlock(&n->lock);
	ssize_t done = state_inode(c->state, n->ino, &in);
	if (done == 0)
		done = in.flags & INODE_PRIVATE ? write_private(c, n, &in, w->buf, w->len, w->off) : -ESTALE;
	pthread_rwlock_unlock(&n->lock);
	return done;
}

static ssize_t write_caught_up(struct core *c, struct node *n, const struct write *w)
{
	int rc = catch_up_before_write(c, n);

	return rc < 0 ? rc : write_log(c, n, w);
}

ssize_t core_write_while(struct core *c, uint32_t writer, struct core_file *file, const void *buf, size_t len,
	uint64_t off, const struct core_guard *guard)
{
	struct write w = { .writer = writer, .buf = buf, .len = len, .off = off, .guard = guard };
	struct node *n = file->node;
	int rc = overlay_adopt_locked(c, n);

	if (rc < 0 || len == 0)
		return rc;
	if (off >= c->max_bytes)
		return -EFBIG;
	if (len > c->max_bytes - off)
		w.len = len = c->max_bytes - off;
	ssize_t done = file->pass ? write_pass(c, n, &w) : write_caught_up(c, n, &w);
	if (done < 0)
		return done;
	data_touched(c);
	c->written_bytes += (uint64_t)done;
	if (file->flags & (O_SYNC | O_DSYNC)) {
		rc = core_fsync(c, n->ino, file, true);
		if (rc < 0)
			return rc;
	}
	return done;
}

ssize_t core_write_as(
	struct core *c, uint32_t writer, struct core_file *file, const void *buf, size_t len, uint64_t off)
{
	return core_write_while(c, writer, file, buf, len, off, NULL);
}

ssize_t core_write(struct core *c, struct core_file *file, const void *buf, size_t len, uint64_t off)
{
	return core_write_as(c, 0, file, buf, len, off);
}

/* The node's lock is held exclusively. */
static int truncate_locked(struct core *c, struct node *n, uint64_t size)
{
	struct record rec = { .type = RECORD_TRUNCATE, .ino = n->ino, .size = size };
	struct inode in;
	int rc = state_inode(c->state, n->ino, &in);

	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	if (in.flags & INODE_FOREIGN && in.size <= size)
		return 0;
	if (!(in.flags & INODE_PRIVATE)) {
		rc = size ? data_catch_up(c, n, &in) : 0;
		return rc < 0 ? rc : store_commit(c->store, &rec);
	}
	int fd = data_private_fd(c, n, &in);
	if (fd < 0)
		return fd;
	rc = ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
	drain_mark_busy(c, n->ino);
	return rc;
}

int data_truncate(struct core *c, struct node *n, uint64_t size)
{
	struct motion m = { 0 };
	int rc;

	if (size > c->max_bytes)
		return -EFBIG;
	do {
		pthread_rwlock_wrlock(&n->lock);
		rc = truncate_locked(c, n, size);
		pthread_rwlock_unlock(&n->lock);
	} while (motion_again(c, &m, rc));
	data_touched(c);
	return rc;
}

/* The node's through is held. */
static int sync_backing(struct node *n, int fd)
{
	if (fdatasync(fd) < 0) {
		n->through_error = -errno;
		n->through_dirty = true;
	}
	return n->through_error;
}

/* Of an earlier daemon, which may have been killed: a file that it did not write is synced for nothing, once. The node's through is held. */
static int sync_before(struct core *c, struct node *n)
{
	int fd = overlay_open(c, n, O_RDONLY), rc = 0;

	if (fd == -EACCES)
		fd = overlay_open(c, n, O_WRONLY);
	if (fd < 0 && fd != -ENOENT) /* it was deleted: the drain will say so */
		return fd;
	if (fd >= 0) {
		rc = sync_backing(n, fd);
		close(fd);
	}
	n->through_before = false;
	return rc;
}

/*
 * When that has failed it is not tried again: the kernel may have dropped the pages, and would not say so twice. Who comes meanwhile
 * waits until it is done, and is told of the same error; reads and log writes go on.
 */
static int sync_through_once(struct core *c, struct node *n)
{
	pthread_rwlock_rdlock(&n->lock);
	pthread_mutex_lock(&n->through);
	int rc = n->through_error;
	if (rc == 0 && n->through_before)
		rc = sync_before(c, n);
	if (rc == 0 && n->through_dirty) {
		rc = sync_backing(n, n->backing_fd);
		n->through_dirty = rc < 0;
	}
	pthread_mutex_unlock(&n->through);
	pthread_rwlock_unlock(&n->lock);
	return rc;
}

int data_sync_through(struct core *c, struct node *n)
{
	struct motion m = { 0 };
	int rc;

	do
		rc = sync_through_once(c, n);
	while (motion_again(c, &m, rc));
	return rc;
}

static int sync_private(struct core *c, struct node *n)
{
	struct inode in;

	pthread_rwlock_rdlock(&n->lock);
	int rc = state_inode(c->state, n->ino, &in);
	if (rc == -ENOENT)
		rc = 0; /* it was freed */
	else if (rc == 0 && in.flags & INODE_PRIVATE)
		rc = segment_sync_private(c->segments, in.private_segment);
	pthread_rwlock_unlock(&n->lock);
	return rc;
}

static int sync_known(struct core *c, struct node *n)
{
	int rc = n->type == S_IFREG ? sync_private(c, n) : 0;

	if (rc == 0 && (n->through_dirty || n->through_before))
		rc = data_sync_through(c, n);
	return rc < 0 ? rc : store_sync(c->store);
}

int core_fsync(struct core *c, uint64_t ino, struct core_file *file, bool data_only)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);

	(void)file, (void)data_only; /* a size without its data, or the reverse, is of no use: both always */
	if (!r.n)
		return -ESTALE;
	if (!r.n->known)
		return 0;
	c->syncs++;
	c->syncing++;
	int rc = sync_known(c, r.n);
	c->syncing--;
	return rc;
}

int core_syncfs(struct core *c)
{
	int rc = store_sync(c->store);

	return syncfs(c->backing_fd) < 0 && rc == 0 ? -errno : rc;
}

/* Space for the file must be had somewhere, or the promise of fallocate is empty: the store spills into the backing directory. */
static int check_backing_room(struct core *c, uint64_t len)
{
	struct statvfs vfs;

	if (fstatvfs(c->backing_fd, &vfs) < 0)
		return -errno;
	return (uint64_t)vfs.f_bavail * vfs.f_frsize < len ? -ENOSPC : 0;
}

static int fallocate_log(struct core *c, struct node *n, const struct inode *in, int mode, uint64_t off, uint64_t len)
{
	struct record rec = { .ino = n->ino, .off = off, .len = len, .size = off + len };

	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
		rec.type = RECORD_PUNCH;
		rec.flags = mode & FALLOC_FL_KEEP_SIZE ? RECORD_F_KEEP_SIZE : 0;
		return store_commit(c->store, &rec);
	}
	int rc = check_backing_room(c, len);
	if (rc < 0)
		return rc;
	if (!(mode & FALLOC_FL_KEEP_SIZE) && off + len > in->size) {
		rec.type = RECORD_TRUNCATE;
	} else {
		rec.type = RECORD_SETATTR; /* nothing but the time of it */
		rec.mask = RECORD_ATTR_MTIME;
		rec.mtime_ns = rec.time_ns = state_time_ns(c->state);
	}
	return store_commit(c->store, &rec);
}

/* The store's room is everybody's: what does not fit in is refused before it has taken all of it. */
static int check_store_room(struct core *c, const struct stat *st, uint64_t len)
{
	uint64_t has = (uint64_t)st->st_blocks * 512;
	struct store_space sp;

	return len > has && store_space(c->store, &sp) == 0 && len - has > sp.free_bytes ? -ENOSPC : 0;
}

/* Nobody writes meanwhile: the kernel waits with writes for the call to end. */
static int fallocate_private(struct core *c, int fd, int mode, uint64_t off, uint64_t len)
{
	struct stat st;
	int rc = fstat(fd, &st) < 0 ? -errno : 0;

	if (rc == 0 && !(mode & FALLOC_FL_PUNCH_HOLE))
		rc = check_store_room(c, &st, len);
	if (rc < 0)
		return rc;
	if (fallocate(fd, mode, (off_t)off, (off_t)len) < 0)
		rc = errno == EDQUOT ? -ENOSPC : -errno;
	/* A device that was full half-way leaves behind the end what it had. */
	if (rc == -ENOSPC && st.st_blocks * 512 <= st.st_size + st.st_blksize)
		(void)!ftruncate(fd, st.st_size);
	return rc;
}

static int fallocate_locked(struct core *c, struct node *n, int mode, uint64_t off, uint64_t len)
{
	struct inode in;
	int rc = state_inode(c->state, n->ino, &in);

	if (rc == 0 && !(in.flags & INODE_PRIVATE))
		rc = data_catch_up(c, n, &in);
	if (rc == 0)
		rc = state_inode(c->state, n->ino, &in);
	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : rc;
	if (!(in.flags & INODE_PRIVATE))
		return fallocate_log(c, n, &in, mode, off, len);
	int fd = data_private_fd(c, n, &in);
	if (fd < 0)
		return fd;
	rc = fallocate_private(c, fd, mode, off, len);
	drain_mark_busy(c, n->ino);
	return rc;
}

int core_fallocate(struct core *c, struct core_file *file, int mode, uint64_t off, uint64_t len)
{
	int rc = overlay_adopt_locked(c, file->node);

	if (rc < 0)
		return rc;
	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		return -EOPNOTSUPP;
	if (mode & FALLOC_FL_PUNCH_HOLE && !(mode & FALLOC_FL_KEEP_SIZE))
		return -EOPNOTSUPP;
	if (off > INT64_MAX - len || (!(mode & FALLOC_FL_PUNCH_HOLE) && off + len > c->max_bytes))
		return -EFBIG;
	struct motion m = { 0 };
	do {
		pthread_rwlock_wrlock(&file->node->lock);
		rc = fallocate_locked(c, file->node, mode, off, len);
		pthread_rwlock_unlock(&file->node->lock);
	} while (motion_again(c, &m, rc));
	data_touched(c);
	return rc;
}

/* Where does data (or a hole) begin in the gap [off, end) between extents? end when nowhere in it. */
static int seek_gap(
	struct core *c, struct node *n, const struct inode *in, uint64_t off, uint64_t end, int whence, uint64_t *ret)
{
	uint64_t limit = in->backing_limit < end ? in->backing_limit : end;

	*ret = end;
	if (off < limit) {
		int fd = data_backing_fd(c, n, false);
		off_t at = fd < 0 ? fd : lseek(fd, (off_t)off, whence);
		if (fd < 0)
			return fd;
		if (at >= 0 && (uint64_t)at < limit)
			*ret = (uint64_t)at;
		else if (at < 0 && errno != ENXIO)
			return -errno;
		else if (whence == SEEK_HOLE && (at < 0 || limit < end))
			*ret = at < 0 ? off : limit;
		return 0;
	}
	if (whence == SEEK_HOLE)
		*ret = off;
	return 0;
}

static int seek_extents(struct core *c, struct node *n, const struct inode *in, uint64_t off, int whence, uint64_t *ret)
{
	struct extent batch[DATA_EXTENT_BATCH];
	uint64_t at = off, found;
	size_t num;

	while (at < in->size) {
		uint64_t next;
		int rc = state_extents(c->state, n->ino, at, in->size - at, batch, DATA_EXTENT_BATCH, &num, &next);
		for (size_t i = 0; rc == 0 && i <= num; i++) {
			uint64_t begin = i < num ? batch[i].off : next;
			if (begin > at) {
				rc = seek_gap(c, n, in, at, begin, whence, &found);
				if (rc < 0 || found < begin) {
					*ret = found;
					return rc;
				}
			}
			if (i < num && (batch[i].kind == EXTENT_HOLE) == (whence == SEEK_HOLE)) {
				*ret = begin;
				return 0;
			}
			at = i < num ? batch[i].off + batch[i].len : next;
		}
		if (rc < 0)
			return rc;
	}
	*ret = in->size;
	return whence == SEEK_HOLE ? 0 : -ENXIO;
}

static int seek_fd(int fd, int64_t off, int whence, uint64_t *ret)
{
	off_t at = fd < 0 ? fd : lseek(fd, off, whence);

	if (fd < 0)
		return fd;
	if (at < 0)
		return -errno;
	*ret = (uint64_t)at;
	return 0;
}

static int seek_locked(struct core *c, struct node *n, int64_t off, int whence, uint64_t *ret)
{
	struct inode in;

	if (!n->known)
		return seek_fd(data_backing_fd(c, n, false), off, whence, ret);
	int rc = state_inode(c->state, n->ino, &in);
	if (rc < 0)
		return rc;
	if (in.flags & INODE_PRIVATE)
		return seek_fd(data_private_fd(c, n, &in), off, whence, ret);
	if (!(in.flags & (INODE_NEW | INODE_DIRTY_DATA)))
		return seek_fd(data_backing_fd(c, n, false), off, whence, ret);
	return (uint64_t)off >= in.size ? -ENXIO : seek_extents(c, n, &in, (uint64_t)off, whence, ret);
}

int core_lseek(struct core *c, struct core_file *file, int64_t off, int whence, uint64_t *ret_off)
{
	if ((whence != SEEK_DATA && whence != SEEK_HOLE) || off < 0)
		return off < 0 ? -ENXIO : -EINVAL;
	struct motion m = { 0 };
	int rc;
	do {
		pthread_rwlock_rdlock(&file->node->lock);
		rc = seek_locked(c, file->node, off, whence, ret_off);
		pthread_rwlock_unlock(&file->node->lock);
	} while (motion_again(c, &m, rc));
	return rc;
}

ssize_t core_copy_range(
	struct core *c, struct core_file *from, uint64_t from_off, struct core_file *to, uint64_t to_off, size_t len)
{
	char *buf = malloc(DATA_COPY_BYTES);
	ssize_t done = 0;

	if (!buf)
		return -ENOMEM;
	while ((size_t)done < len) {
		size_t want = len - (size_t)done < DATA_COPY_BYTES ? len - (size_t)done : DATA_COPY_BYTES;
		ssize_t got = core_read(c, from, buf, want, from_off + (size_t)done);
		if (got > 0)
			got = core_write(c, to, buf, (size_t)got, to_off + (size_t)done);
		if (got <= 0) {
			done = done ? done : got;
			break;
		}
		done += got;
	}
	free(buf);
	return done;
}
