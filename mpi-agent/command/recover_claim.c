/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The stores' own locks do not keep two recoveries apart that read copies of them, or where stores cannot be locked; and both would call their temporary files the
 * same, so that one would sweep, or write, the other's. So who recovers claims what it recovers in the directory that it writes to: a file there,
 * with a lock that ends with its process, and that a mount does not show. It goes at the end; what a killed recovery leaves, the next one takes over, or a mount's drain removes.
 *
 * Where files cannot be locked, that it is there is the claim. Then it is taken over when its text names a process of this machine that is
 * gone; else only people can know.
 */
#include "mpi-agent/command/recover_claim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/store/lock.h"

#define CLAIM_PREFIX ".cistern-tmp-" /* hidden; behind the number not as temporary files of sessions, which are swept */

void recover_claim_init(struct recover_claim *c, const struct superblock *sb)
{
	char text[37];

	store_uuid_text(sb->num_nodes > 1 ? sb->job_uuid : sb->uuid, text);
	*c = (struct recover_claim){ .fd = -1 };
	snprintf(c->name, sizeof(c->name), CLAIM_PREFIX "%.8s-recovery", text);
}

bool recover_claim_is(const struct recover_claim *c, const char *name)
{
	return strcmp(name, c->name) == 0;
}

/* The directory's times are those that it had: best effort, as it may be another user's. */
static void keep_times(int dirfd, const struct stat *was)
{
	(void)!futimens(dirfd, (struct timespec[]){ was->st_atim, was->st_mtim });
}

/* 0: who made it has ended, and it is gone. */
static int remove_dead(const struct recover_claim *c, int dirfd, const char *path, struct cistern_error *err)
{
	int fd = openat(dirfd, c->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
	char host[LOCK_HOST_BYTES] = "";
	pid_t pid = 0;
	bool known;

	if (fd < 0 && errno == ENOENT)
		return 0;
	known = fd >= 0 && lock_read_text(fd, &pid, host);
	if (fd >= 0)
		close(fd);
	if (known && lock_is_here(host) && kill(pid, 0) && errno == ESRCH)
		return unlinkat(dirfd, c->name, 0) && errno != ENOENT ? -errno : 0;
	return cistern_error_set(err, -EBUSY,
		"%s: in use by a recovery (process %ld on %s), by what its file %s says: wait until it has ended; if there is none, remove that file",
		path, (long)pid, known ? host : "?", c->name);
}

static int make_file(struct recover_claim *c, int dirfd, const char *path, struct cistern_error *err)
{
	int r = 0;

	while (r == 0) {
		c->fd = openat(dirfd, c->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (c->fd >= 0) {
			lock_write_text(c->fd);
			return 0;
		}
		r = errno == EEXIST ? remove_dead(c, dirfd, path, err) : -errno;
	}
	return r;
}

/* 1: the name leads to what is open as fd; 0: who had it has removed it in between. */
static int has_name(const struct recover_claim *c, int fd, int dirfd)
{
	struct stat ours, named;

	if (fstat(fd, &ours))
		return -errno;
	if (fstatat(dirfd, c->name, &named, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	return ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

static int take_lock(struct recover_claim *c, int dirfd, const char *path, struct cistern_error *err)
{
	int r = 0;

	while (r == 0) {
		r = lock_take_named(dirfd, c->name, path, true, &c->fd, err);
		if (r < 0)
			return r;
		r = has_name(c, c->fd, dirfd);
		if (r <= 0) {
			lock_release(c->fd);
			c->fd = -1;
		}
	}
	return r < 0 ? r : 0;
}

/* The attempt to lock it has made it, or another one has: a claim has a text. */
static void remove_empty(const struct recover_claim *c, int dirfd)
{
	struct stat st;

	if (fstatat(dirfd, c->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) && st.st_size == 0)
		(void)unlinkat(dirfd, c->name, 0);
}

/* A recovery may do without new files: what is there already is changed, or removed. */
static bool is_refusal(int code)
{
	return code == -EACCES || code == -EPERM || code == -EROFS || code == -ENOSPC || code == -EDQUOT;
}

/* Nothing can be made in the directory: that is no claim. What is there and cannot be opened is another user's. */
static int take_refusal(const struct recover_claim *c, int dirfd, const char *path, struct cistern_error *err)
{
	if (faccessat(dirfd, c->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return cistern_error_set(err, -EBUSY,
			"%s: in use by another user's recovery: wait until it has ended; if there is none, remove its file %s",
			path, c->name);
	return 0;
}

static int take(struct recover_claim *c, int dirfd, const char *path, struct cistern_error *err)
{
	int r = take_lock(c, dirfd, path, err);

	if (r == -ENOLCK)
		remove_empty(c, dirfd);
	if (r == -ENOLCK || lock_is_unknown(r))
		r = make_file(c, dirfd, path, err);
	if (is_refusal(r))
		return take_refusal(c, dirfd, path, err);
	return r == 0 || r == -EBUSY ? r : cistern_error_set(err, r, "%s/%s: %s", path, c->name, strerror(-r));
}

int recover_claim_take(struct recover_claim *c, int dirfd, const char *path, struct cistern_error *err)
{
	struct cistern_error why = { 0 };
	struct stat was;
	int r;

	if (fstat(dirfd, &was))
		return cistern_error_set(err, -errno, "%s: %s", path, strerror(errno));
	r = take(c, dirfd, path, &why);
	if (r < 0)
		return cistern_error_set(err, r, "%s", why.text);
	c->dirfd = dirfd;
	if (c->fd >= 0)
		keep_times(dirfd, &was);
	return 0;
}

void recover_claim_end(struct recover_claim *c)
{
	struct stat was;
	bool known;

	if (c->fd < 0)
		return;
	known = fstat(c->dirfd, &was) == 0;
	(void)unlinkat(c->dirfd, c->name, 0); /* or the next recovery takes it over */
	if (known)
		keep_times(c->dirfd, &was);
	lock_release(c->fd);
	c->fd = -1;
}

void recover_claim_sweep(const struct superblock *sb, int dirfd, const char *path)
{
	struct recover_claim c;

	recover_claim_init(&c, sb);
	if (faccessat(dirfd, c.name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 && recover_claim_take(&c, dirfd, path, NULL) == 0)
		recover_claim_end(&c);
}
