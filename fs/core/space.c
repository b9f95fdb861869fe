/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Room in the store. Past the high-water mark a drain is asked for; when room gets scarce writers are slowed down in
 * proportion; when there is none they wait for the drain as long as it makes progress, and then write through to the
 * backing file. Only when that is full as well does an application see ENOSPC.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "format/store/steps.h"

#define SPACE_SLACK_BYTES   (2u << 20) /* more than one write and its record ever need */
#define SPACE_SLOW_FRACTION 16u        /* below 1/16 of the capacity writers are slowed */
#define SPACE_SLOW_MAX_USEC 20000u
#define SPACE_POLL_USEC     50000u
#define SPACE_EXTENT_BATCH  128

static void slow_down(const struct store_space *sp)
{
	uint64_t scarce = sp->capacity_bytes / SPACE_SLOW_FRACTION;

	if (sp->free_bytes < scarce)
		usleep((useconds_t)(SPACE_SLOW_MAX_USEC * (scarce - sp->free_bytes) / scarce));
}

static bool have_room(struct core *c, size_t len, struct store_space *sp)
{
	/* An error of statvfs must not stop writers: the append itself says what is wrong. */
	if (store_space(c->store, sp) < 0)
		return true;
	return sp->free_bytes >= len + SPACE_SLACK_BYTES ||
	       (sp->free_bytes >= len && segment_free_in_open(c->segments) >= len);
}

/* room is held. */
static void wait_slice(struct core *c)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += SPACE_POLL_USEC * 1000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_cond_clockwait(&c->room_cond, &c->room, CLOCK_MONOTONIC, &until);
}

static bool is_unwanted(struct core *c)
{
	return c->hooks.unwanted && c->hooks.unwanted(c->hooks.arg);
}

/* room is held. Wait a moment; false when the patience for this spell of fullness has run out, or who waits was killed. */
static bool wait_a_moment(struct core *c)
{
	uint64_t now = clock_usec();

	if (!c->full_since_usec)
		c->full_since_usec = c->progress_usec = now;
	if (now - c->progress_usec >= c->full_timeout_usec || is_unwanted(c))
		return false;
	wait_slice(c);
	return true;
}

/*
 * The spell of fullness is over when there is room for more than a write or two: else patience would begin anew with each write that
 * just fits, and the one behind it would wait in vain again.
 */
static void end_spell(struct core *c, const struct store_space *sp)
{
	if (!c->full_since_usec || sp->free_bytes < sp->capacity_bytes / SPACE_SLOW_FRACTION)
		return;
	pthread_mutex_lock(&c->room);
	c->full_since_usec = 0;
	pthread_mutex_unlock(&c->room);
}

/*
 * refused: the store had no room after all when it was last asked, since others were quicker; that spell of fullness goes on, however
 * much room there seems to be now.
 */
int space_wait(struct core *c, size_t len, bool refused)
{
	struct store_space sp = { 0 };
	bool room = !refused && have_room(c, len, &sp);

	if (room) {
		end_spell(c, &sp);
		if (sp.used_bytes * 100 >= sp.capacity_bytes * c->high_water_percent)
			c->hooks.want_drain(false, c->hooks.arg);
		slow_down(&sp);
		return 0;
	}
	c->hooks.want_drain(true, c->hooks.arg);
	c->hooks.waits(true, c->hooks.arg);
	pthread_mutex_lock(&c->room);
	room = !refused && have_room(c, len, &sp);
	while (!room && wait_a_moment(c))
		room = have_room(c, len, &sp);
	pthread_mutex_unlock(&c->room);
	c->hooks.waits(false, c->hooks.arg);
	if (room && !refused)
		end_spell(c, &sp);
	return room ? 0 : is_unwanted(c) ? -EINTR : -ENOSPC;
}

void space_signal(struct core *c)
{
	pthread_mutex_lock(&c->room);
	c->progress_usec = clock_usec();
	pthread_cond_broadcast(&c->room_cond);
	pthread_mutex_unlock(&c->room);
}

/*
 * A daemon that is killed between making the backing file and its record leaves one that nothing names. So before its first one it leaves a word in the
 * store, by which the drain looks for such; it goes with the last drain (fs/main.c).
 */
static void note_through(struct core *c)
{
	char path[STORE_PATH_MAX + sizeof(THROUGH_FILE) + 1];

	if (atomic_exchange(&c->through_noted, true))
		return;
	snprintf(path, sizeof(path), "%s/" THROUGH_FILE, store_path(c->store));
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}

/* A new file gets a backing file before its time, under a name that nobody sees. The node's lock is held exclusively. */
static int make_backing(struct core *c, struct node *n)
{
	struct record rec = {
		.type = RECORD_PLACED, .flags = RECORD_F_UNPUBLISHED, .ino = n->ino, .parent = STATE_ROOT_INO
	};

	snprintf(rec.name, sizeof(rec.name), "%s%" PRIu64, c->through_prefix, n->ino);
	note_through(c);
	int fd = openat(c->backing_fd, rec.name, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	(void)fsync(c->backing_fd); /* its name, before anything says that it is there; some file systems cannot */
	struct stat st;
	int rc = fstat(fd, &st) < 0 ? -errno : 0;
	if (rc == 0) {
		rec.backing_dev = st.st_dev;
		rec.backing_ino = st.st_ino;
		rc = store_commit(c->store, &rec);
	}
	if (rc < 0) {
		close(fd);
		if (rec.seq == 0) /* else the journal tells of it */
			unlinkat(c->backing_fd, rec.name, 0);
		return rc;
	}
	int old = atomic_exchange(&n->backing_fd, fd);
	if (old >= 0)
		close(old);
	n->backing_writable = true;
	return 0;
}

/* A file without a name has nowhere to be drained to: its bytes need a place only as long as it is open. */
static int make_nameless(struct core *c, struct node *n)
{
	int fd = openat(c->backing_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return errno == EOPNOTSUPP || errno == EISDIR ? -ENOSPC : -errno;
	n->backing_fd = fd;
	n->backing_writable = true;
	return 0;
}

/* The backing file has bytes in [from, end) that the file does not show, and would if these were all it had. */
static bool shows_old(const struct inode *in, uint64_t from, uint64_t end, uint64_t backing_size)
{
	uint64_t begin = from > in->backing_limit ? from : in->backing_limit;

	return begin < end && begin < backing_size;
}

/*
 * Once the record is durable, by anybody's fsync, the backing file counts. Should the power be lost before that has been synced, too, it is as it was:
 * that must be what the file showed. 1: it is not; 0, or -errno.
 */
static int hides_other(struct core *c, const struct inode *in, uint64_t off, uint64_t end, uint64_t backing_size)
{
	struct extent batch[SPACE_EXTENT_BATCH];
	uint64_t next;
	size_t num;

	for (; off < end; off = next) {
		int rc = state_extents(c->state, in->ino, off, end - off, batch, SPACE_EXTENT_BATCH, &num, &next);
		if (rc < 0)
			return rc;
		for (size_t i = 0; i < num; i++) {
			if (batch[i].kind != EXTENT_BACKING || shows_old(in, off, batch[i].off, backing_size))
				return 1;
			off = batch[i].off + batch[i].len;
		}
		if (shows_old(in, off, next, backing_size))
			return 1;
	}
	return 0;
}

static ssize_t write_backing(struct core *c, const struct inode *in, int fd, const void *buf, size_t len, uint64_t off)
{
	struct stat st;
	int other = fstat(fd, &st) < 0 ? -errno : hides_other(c, in, off, off + len, (uint64_t)st.st_size);

	if (other < 0)
		return other;
	ssize_t done = pwrite(fd, buf, len, (off_t)off);
	if (done < 0 || (other && fdatasync(fd) < 0))
		return -errno;
	return done;
}

static ssize_t through_locked(struct core *c, struct node *n, const void *buf, size_t len, uint64_t off)
{
	struct record rec = { .type = RECORD_THROUGH, .ino = n->ino, .off = off };
	struct inode in;
	int rc = state_inode(c->state, n->ino, &in);

	if (rc < 0)
		return rc;
	if (in.flags & INODE_PRIVATE || data_is_layer(&in))
		return -ENOSPC;
	if (in.origin_name[0] == '\0' && n->backing_fd < 0)
		rc = in.flags & INODE_ORPHAN && !n->linkable ? make_nameless(c, n) : make_backing(c, n);
	int fd = rc < 0 ? rc : data_backing_fd(c, n, true);
	if (fd < 0)
		return fd;
	ssize_t done = write_backing(c, &in, fd, buf, len, off);
	if (done < 0)
		return done;
	n->through_dirty = true;
	rec.len = (uint64_t)done;
	rc = store_commit(c->store, &rec);
	if (rc < 0)
		return rc;
	c->through_bytes += (uint64_t)done;
	return done;
}

/*
 * Who was killed while it waited for the node's lock does not write: its bytes would come behind those of who has written since.
 *
 * A session's agent writes into backing files what the snapshot has of them; older than what would go through now, but perhaps
 * later. So nothing goes through to a file that the session may touch: its writer waits for room, or for the end.
 */
ssize_t space_write_through(struct core *c, struct node *n, const void *buf, size_t len, uint64_t off)
{
	ssize_t done = -EAGAIN;

	pthread_rwlock_rdlock(&c->through);
	if (drain_allows_through(c, n->ino)) {
		pthread_rwlock_wrlock(&n->lock);
		done = is_unwanted(c) ? -EINTR : through_locked(c, n, buf, len, off);
		pthread_rwlock_unlock(&n->lock);
	}
	pthread_rwlock_unlock(&c->through);
	if (done == -CORE_MOVING)
		done = -EAGAIN;
	if (done == -EAGAIN) {
		c->hooks.waits(true, c->hooks.arg);
		pthread_mutex_lock(&c->room);
		wait_slice(c);
		pthread_mutex_unlock(&c->room);
		c->hooks.waits(false, c->hooks.arg);
	}
	return done;
}
