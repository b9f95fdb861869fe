/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Opening and closing files: here it is decided how an open file's bytes travel (docs/design/one-node.md, section 2). The
 * kernel's rules behind it: an inode has either cached opens or passthrough opens at a time, and all passthrough opens
 * share one backing file; direct I/O goes with either.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "format/base/descriptors.h"

#define OPEN_SMALL_STREAK  8u /* so many small files in a row make a habit */
#define OPEN_RELEASES_USEC 1000000u

static bool is_writable(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

static bool has_ample_room(struct core *c)
{
	struct store_space sp;

	if (store_space(c->store, &sp) < 0)
		return false;
	uint64_t quarter = sp.capacity_bytes / 4;
	return sp.free_bytes >= (quarter > c->private_min_free ? quarter : c->private_min_free);
}

/* What is laid out by who wrote it must be written through us. */
static bool needs_writers(struct core *c, const char *name)
{
	bool needed = false;

	for (enum drain_layout l = 0; l < DRAIN_LAYOUT_END; l++)
		if (drain_layout_is_blob(l))
			needed |= name ? drain_layout_is_possible(c->layouts, l, name)
				       : drain_layout_is_wanted(c->layouts, l);
	return needed;
}

bool open_wants_private(struct core *c, struct node *dir, const char *name, int flags)
{
	if (!c->passthrough || c->data_choice == DATA_LOG || !is_writable(flags) || needs_writers(c, name))
		return false;
	if (c->data_choice == DATA_PRIVATE)
		return true;
	if (flags & O_DIRECT || (dir && dir->small_streak >= OPEN_SMALL_STREAK))
		return false;
	return has_ample_room(c);
}

/* The file's own attribute asks for its writers. */
static bool attribute_needs_writers(struct core *c, uint64_t ino)
{
	char value[256], *options = NULL;
	enum drain_layout layout = DRAIN_LAYOUT_CANONICAL;
	size_t len;

	if (state_xattr(c->state, ino, DRAIN_LAYOUT_XATTR, value, sizeof(value), &len) < 0 ||
		drain_layout_parse_xattr(value, len, &layout, &options, NULL) < 0)
		return false;
	free(options);
	return drain_layout_is_blob(layout);
}

/* An empty file that nobody has open gets a private segment. The node's lock is held exclusively. */
static int make_private(struct core *c, struct node *n, struct inode *in)
{
	struct record rec = { .type = RECORD_PRIVATE, .ino = n->ino };
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, clock_timespec(in->mtime_ns) };
	int rc = segment_create_private(c->segments, &rec.segment);
	int fd = rc < 0 ? rc : segment_open_fd(c->segments, rec.segment, true);

	/* From now on the segment's times are the file's. */
	if (descriptors_scarce(fd))
		rc = -EMFILE;
	else if (fd >= 0)
		rc = futimens(fd, times) < 0 ? -errno : store_commit(c->store, &rec);
	else
		rc = fd;
	if (fd >= 0)
		close(fd);
	if (rc < 0) {
		if (rec.segment && rec.seq == 0)
			store_drop_private(c->store, rec.segment);
		return rc;
	}
	return state_inode(c->state, n->ino, in);
}

/* -EBUSY: the private segment has data. The node's lock is held exclusively. */
static int check_empty(struct core *c, struct node *n, const struct inode *in)
{
	int fd = data_private_fd(c, n, in);

	if (fd < 0)
		return fd;
	if (lseek(fd, 0, SEEK_DATA) >= 0)
		return -EBUSY;
	return errno == ENXIO ? 0 : -errno;
}

/*
 * O_DIRECT asks for writes that do not wait for a cache; small ones are fastest appended to the log. A private file that has no data
 * yet (laid out with truncate or fallocate before, as fio does) goes over to the log. The node's lock is held exclusively.
 */
static int seal_empty(struct core *c, struct node *n, struct inode *in)
{
	int rc = check_empty(c, n, in);

	return rc < 0 ? rc : seal_private(c, n, in);
}

/* Is it private only because those who have it open could not know that its writers would matter? */
static bool is_private_till_closed(struct core *c, struct node *n)
{
	struct inode in;

	pthread_rwlock_wrlock(&n->lock);
	bool is = n->known && n->opens > 0 && state_inode(c->state, n->ino, &in) == 0 && in.flags & INODE_PRIVATE &&
		  attribute_needs_writers(c, n->ino) && check_empty(c, n, &in) == 0;
	pthread_rwlock_unlock(&n->lock);
	return is;
}

/*
 * close() does not wait until we have heard of it. A program that makes a file, asks for a layout, and opens the file again for writing
 * must find it closed, if only it was quicker than its release.
 */
static void await_releases(struct core *c, struct node *n)
{
	uint64_t until = clock_usec() + OPEN_RELEASES_USEC;

	while (is_private_till_closed(c, n) && clock_usec() < until)
		usleep(1000);
}

/* The node's lock is held exclusively. 0: the kernel can reach the private segment; else it must be served by us. */
static int register_private(struct core *c, struct node *n, const struct inode *in)
{
	if (n->pass_opens > 0)
		return 0;
	int fd = c->passthrough ? data_private_fd(c, n, in) : -ENOTSUP;
	if (fd < 0)
		return fd;
	int id = c->hooks.backing_open(fd, c->hooks.arg);
	if (id <= 0) {
		c->passthrough = false; /* no right to it, or a file system that cannot be stacked upon: ask no more */
		return id < 0 ? id : -ENOTSUP;
	}
	n->backing_id = id;
	return 0;
}

static void reply_pass(struct node *n, struct core_file *file, struct core_open_reply *ret)
{
	n->pass_opens++;
	file->pass = true;
	ret->backing_id = n->backing_id;
}

/*
 * The backing file that has all of the file's bytes is there as long as the file is open, whatever others do to its name. *ret 0: the
 * store has some of them. The node's lock is held exclusively.
 */
static int hold_outside(struct core *c, struct node *n, const struct inode *in, uint64_t *ret)
{
	struct stat st;

	*ret = 0;
	if (in && in->flags & (INODE_NEW | INODE_DIRTY_DATA))
		return 0;
	int fd = data_backing_fd(c, n, false);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	stamp_see(n, &st);
	*ret = stamp_of(&st);
	return 0;
}

/*
 * May the kernel keep the pages it has of this file? Writes through the kernel keep its pages right, so only what it cannot have
 * seen counts: a change from outside. The node's lock is held exclusively.
 */
static void stamp_cache(struct node *n, uint64_t stamp, struct core_open_reply *ret)
{
	bool same = n->cache == CACHE_STAMPED && n->cache_stamp == stamp && (stamp == 0 || stamp & STAMP_SETTLED);

	ret->stamp = stamp;
	ret->had_pages = n->cache != CACHE_NONE;
	ret->keep_cache = n->cache == CACHE_NONE || same;
	n->cache = CACHE_STAMPED;
	n->cache_stamp = stamp;
}

/*
 * A file that others change is read past the kernel's pages: each read finds what is there. So are all, when nothing is to be believed
 * for any time. Not where that would forbid to map it.
 */
static bool is_read_past(struct core *c, const struct node *n, uint64_t stamp)
{
	return stamp && c->kernel.direct_mmap && (core_backing_timeout_usec(c) == 0 || stamp_is_changing(n));
}

static int reply_cached(
	struct core *c, struct node *n, const struct inode *in, struct core_file *file, struct core_open_reply *ret)
{
	uint64_t stamp;
	int rc = hold_outside(c, n, in, &stamp);

	if (rc < 0)
		return rc;
	stamp_cache(n, stamp, ret);
	ret->direct_io = is_read_past(c, n, stamp);
	if (ret->direct_io)
		return 0;
	n->cached_opens++;
	file->cached = true;
	return 0;
}

/* Reads and writes go past the kernel's pages; but mappings have them. A file that its owner alone may write cannot be held by reading. */
static int reply_direct(struct core *c, struct node *n, const struct inode *in, struct core_open_reply *ret)
{
	uint64_t stamp;
	int rc = hold_outside(c, n, in, &stamp);

	if (rc == 0)
		stamp_cache(n, stamp, ret);
	ret->direct_io = ret->parallel = true;
	return rc == -EACCES ? 0 : rc;
}

/*
 * The kernel opens the private segment with the flags that the application's descriptor has now:
 * what takes O_APPEND off later (F_SETFL), or for one call (RWF_NOAPPEND), does not reach it. So
 * writes of those who append come to us, with the place where the kernel wants them. In a job,
 * and where somebody writes through a dead mount, others append as well, and only the segment
 * itself knows its end.
 */
static bool needs_places(struct core *c, const struct core_file *file, const struct inode *in)
{
	return file->flags & O_APPEND && is_writable(file->flags) && !c->joined &&
	       !(in && straggler_is_known(c->store, in->private_segment));
}

static bool may_become_private(struct core *c, struct node *n, const struct inode *in, int flags)
{
	return in && in->size == 0 && in->backing_limit == 0 && n->opens == 0 && !(in->flags & INODE_UNPUBLISHED) &&
	       open_wants_private(c, NULL, NULL, flags) && !attribute_needs_writers(c, n->ino);
}

/* An opening that the kernel does not know: nothing of the kernel's is chosen, or forbidden, by it. The node's lock is held exclusively. */
static int choose_inner(struct core *c, struct node *n, struct core_open_reply *ret)
{
	struct inode in;
	int rc = n->known ? state_inode(c->state, n->ino, &in) : 0;
	bool outside = !n->known || (rc == 0 && !data_is_layer(&in) && data_is_outside(&in));

	ret->direct_io = ret->parallel = true;
	if (rc == 0 && outside)
		rc = data_backing_fd(c, n, false); /* it is there as long as it is open, whatever becomes of its name */
	return rc < 0 ? (rc == -ENOENT && n->known ? -ESTALE : rc) : 0;
}

/* The node's lock is held exclusively. */
static int choose(struct core *c, struct node *n, bool created, struct core_file *file, struct core_open_reply *ret)
{
	struct inode own, *in = NULL;
	int rc;

	if (n->known) {
		rc = state_inode(c->state, n->ino, &own);
		if (rc < 0)
			return rc == -ENOENT ? -ESTALE : rc;
		in = &own;
	}
	if (in && data_is_layer(in)) {
		ret->direct_io = ret->parallel = true; /* fs/job knows better */
		return 0;
	}
	if (in && in->flags & INODE_PRIVATE && n->opens == 0 && c->data_choice == DATA_AUTO &&
		is_writable(file->flags) && (file->flags & O_DIRECT || attribute_needs_writers(c, n->ino)))
		(void)seal_empty(c, n, in); /* if not, it stays private, which works too */
	/* A file just created has its choice made: CREATE gave it a private segment, or its directory's habit did not. */
	if (in && !(in->flags & INODE_PRIVATE) && !created && may_become_private(c, n, in, file->flags))
		(void)make_private(c, n, in); /* without one the log takes it */
	if (n->pass_opens > 0 || (in && in->flags & INODE_PRIVATE)) {
		if (register_private(c, n, in) == 0) {
			reply_pass(n, file, ret);
			ret->direct_io = needs_places(c, file, in);
			return 0;
		}
		ret->direct_io = true;
		return 0;
	}
	if (is_writable(file->flags) && c->kernel.direct_mmap)
		return reply_direct(c, n, in, ret);
	return reply_cached(c, n, in, file, ret);
}

/* Of a file without a name the drain removes the backing file: what is in there only must be held by now. The node's lock is held exclusively. */
static int hold_nameless(struct core *c, struct node *n)
{
	struct inode in;

	if (!n->orphan || state_inode(c->state, n->ino, &in) < 0 || in.flags & INODE_NEW || in.backing_limit == 0)
		return 0;
	int fd = data_backing_fd(c, n, false);
	return fd == -ENOENT ? -ESTALE : fd < 0 ? fd : 0;
}

static int open_once(
	struct core *c, struct node *n, bool created, bool inner, struct core_file *file, struct core_open_reply *ret)
{
	*ret = (struct core_open_reply){ .had_pages = true };
	pthread_rwlock_wrlock(&n->lock);
	int rc = hold_nameless(c, n);
	if (rc == 0)
		rc = inner ? choose_inner(c, n, ret) : choose(c, n, created, file, ret);
	if (rc == 0) {
		n->opens++;
		n->writers += is_writable(file->flags);
		if (file->pass || is_writable(file->flags))
			tick_add(c, n);
		if (file->pass)
			drain_mark_busy(c, n->ino); /* after tick_add: a session that begins in between sees the list */
	}
	pthread_rwlock_unlock(&n->lock);
	return rc;
}

int open_file(struct core *c, struct node *n, struct node *dir, int flags, bool inner, struct core_open_reply *ret)
{
	bool writes = is_writable(flags) || flags & O_TRUNC;
	int rc = 0;

	if (n->type != S_IFREG)
		return n->type == S_IFDIR ? -EISDIR : -EPERM;
	if (writes && c->read_only)
		return -EROFS;
	if (writes && !dir && !inner)
		rc = ground_check_change(c, n);
	if (rc < 0)
		return rc;
	if (flags & O_TRUNC) {
		rc = overlay_adopt_locked(c, n);
		if (rc == 0)
			rc = data_truncate(c, n, 0);
		if (rc < 0)
			return rc;
	}
	struct core_file *file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	file->flags = flags;
	if (!inner && !dir && is_writable(flags) && c->data_choice == DATA_AUTO)
		await_releases(c, n);
	struct motion m = { 0 };
	do
		rc = open_once(c, n, dir != NULL, inner, file, ret);
	while (motion_again(c, &m, rc));
	if (rc < 0) {
		free(file);
		return rc;
	}
	node_ref(c, n);
	file->node = n;
	if (dir)
		node_ref(c, dir);
	file->dir = dir;
	c->open_files++;
	ret->file = file;
	if (file->pass && is_writable(flags) && !dir && c->hooks.invalidate)
		c->hooks.invalidate(
			n->ino, false, c->hooks.arg); /* what it was told before may be kept for long: attr_timeout */
	/* The kernel syncs each write to the private segment by itself, without asking us: what leads to it must be durable before. */
	if (file->pass && is_writable(flags) && flags & O_DSYNC)
		rc = core_fsync(c, n->ino, file, true);
	if (rc < 0)
		core_release(c, file);
	return rc;
}

int core_open(struct core *c, uint64_t ino, int flags, struct core_open_reply *ret_open)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);

	/* The kernel may believe a name for long that we have made and drained: it is to look it up anew. */
	int rc = !r.n || (!c->joined && name_is_replaced(c, r.n)) ? -ESTALE
								  : open_file(c, r.n, NULL, flags, false, ret_open);
	return rc == -ENOENT ? -ESTALE : rc; /* as for core_getattr */
}

/* Directories whose files turn out small, one after the other, have a habit. */
static void learn_habit(struct core *c, struct core_file *file)
{
	struct core_entry entry;

	if (!file->dir || attr_fill(c, file->node, NULL, &entry) < 0)
		return;
	if ((uint64_t)entry.attr.st_size <= c->small_file)
		file->dir->small_streak++;
	else
		file->dir->small_streak = 0;
}

void core_release(struct core *c, struct core_file *file)
{
	struct node *n = file->node;
	int id = 0;

	learn_habit(c, file);
	pthread_rwlock_wrlock(&n->lock);
	n->opens--;
	n->writers -= is_writable(file->flags);
	n->cached_opens -= file->cached;
	n->pass_opens -= file->pass;
	if (file->pass && n->pass_opens == 0) {
		id = n->backing_id;
		n->backing_id = 0;
	}
	if (n->pass_opens == 0 && n->writers == 0)
		tick_remove(c, n);
	int private_fd = n->opens == 0 ? atomic_exchange(&n->private_fd, -1) : -1;
	if (n->opens == 0 && !n->through_dirty && !n->orphan)
		data_close_backing(n);
	pthread_rwlock_unlock(&n->lock);
	if (id)
		c->hooks.backing_close(id, c->hooks.arg);
	if (private_fd >= 0)
		close(private_fd);
	c->open_files--;
	node_put(c, file->dir);
	node_put(c, n);
	free(file);
}
