/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The store's lock file. Locks in it, for three purposes:
 *
 * - byte 0, an open-file-description lock, excludes. It belongs to our descriptor alone: it survives a fork into the
 *   background, holds between two openers of one process, and is not lost when somebody in this process opens and
 *   closes the file, as lock_holder() does.
 * - byte 1, a process lock, tells others our pid (F_GETLK gives it in the asker's own pid name space). It may get lost in
 *   the ways just named; then the pid in the file's text serves.
 * - byte 2, as byte 0, is a recovery's: it only reads, and others may read beside it.
 *
 * The file itself stays when the lock goes: removing it would let two openers lock two different files. (Who removes one of another name has to look
 * whether what he has locked still has it.)
 *
 * Who was killed has his locks until the kernel has closed his files, which may be a moment after he is gone for all
 * others: who holds the lock and is ending is waited for.
 */
#include "format/store/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT_BYTES 512

#define ENDING_MS      3000u
#define ENDING_STEP_MS 5u

static struct flock lock_of(off_t byte)
{
	return (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };
}

/* "pid N" at the start of the text; 0 when it says nothing sensible. */
static pid_t pid_in_text(int fd)
{
	char text[TEXT_BYTES + 1];
	ssize_t n = pread(fd, text, TEXT_BYTES, 0);
	long pid;

	if (n <= 0)
		return 0;
	text[n] = '\0';
	if (sscanf(text, "pid %ld", &pid) != 1 || pid <= 0 || pid != (pid_t)pid)
		return 0;
	return (pid_t)pid;
}

/* The file system has no locks, so nobody has one. */
bool lock_is_unknown(int code)
{
	return code == -ENOSYS || code == -EOPNOTSUPP || code == -EINVAL;
}

static int holder_now(int fd, pid_t *ret_pid, bool *ret_recovers)
{
	struct flock excludes = lock_of(0), tells = lock_of(1), recovers = lock_of(2);
	int r = fcntl(fd, F_OFD_GETLK, &excludes) < 0 ? -errno : 0;

	*ret_recovers = false;
	if (r < 0 && r != -ENOLCK && !lock_is_unknown(r))
		return r;
	if (r < 0 || excludes.l_type == F_UNLCK) {
		*ret_pid = 0;
		return 0;
	}
	*ret_recovers = fcntl(fd, F_OFD_GETLK, &recovers) == 0 && recovers.l_type != F_UNLCK;
	if (fcntl(fd, F_GETLK, &tells) == 0 && tells.l_type != F_UNLCK && tells.l_pid > 0)
		*ret_pid = tells.l_pid;
	else
		*ret_pid = pid_in_text(fd);
	return *ret_pid ? 0 : -EBUSY;
}

/* It has no memory any more, so no command line either. */
static bool is_ending(pid_t pid)
{
	char path[64], c;
	int fd;

	snprintf(path, sizeof(path), "/proc/%ld/cmdline", (long)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false; /* ended by now, or of another host */
	bool empty = read(fd, &c, 1) == 0;
	close(fd);
	return empty;
}

static int holder_of(int fd, pid_t *ret_pid, bool *ret_recovers)
{
	const struct timespec step = { .tv_nsec = ENDING_STEP_MS * 1000000L };

	for (unsigned int ms = 0; ms < ENDING_MS; ms += ENDING_STEP_MS) {
		int r = holder_now(fd, ret_pid, ret_recovers);

		if (r < 0 || *ret_pid == 0)
			return r;
		if (!is_ending(*ret_pid))
			break;
		(void)nanosleep(&step, NULL);
	}
	return holder_now(fd, ret_pid, ret_recovers);
}

/* For people; the lock itself does not depend on it. */
void lock_write_text(int fd)
{
	char text[TEXT_BYTES], host[LOCK_HOST_BYTES] = "?", when[64] = "?";
	time_t now = time(NULL);
	struct tm tm;
	int n;

	(void)gethostname(host, sizeof(host) - 1);
	if (localtime_r(&now, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S%z", &tm);
	n = snprintf(text, sizeof(text), "pid %ld\nhost %s\nsince %s\n", (long)getpid(), host, when);
	if (n > 0 && (size_t)n < sizeof(text) && pwrite(fd, text, (size_t)n, 0) == n)
		(void)!ftruncate(fd, n);
}

bool lock_read_text(int fd, pid_t *ret_pid, char ret_host[LOCK_HOST_BYTES])
{
	char text[TEXT_BYTES + 1];
	ssize_t n = pread(fd, text, TEXT_BYTES, 0);
	long pid;

	text[n > 0 ? n : 0] = '\0';
	if (sscanf(text, "pid %ld host %127s", &pid, ret_host) != 2 || pid <= 0 || pid != (pid_t)pid)
		return false;
	*ret_pid = (pid_t)pid;
	return true;
}

bool lock_is_here(const char *host)
{
	char here[LOCK_HOST_BYTES] = "?";

	(void)gethostname(here, sizeof(here) - 1);
	return strcmp(host, here) == 0;
}

/* " on HOST" when the text names another one than this; else "". */
static void host_in_text(int fd, char out[LOCK_HOST_BYTES + 8])
{
	char host[LOCK_HOST_BYTES];
	pid_t pid;

	out[0] = '\0';
	if (lock_read_text(fd, &pid, host) && !lock_is_here(host))
		snprintf(out, LOCK_HOST_BYTES + 8, " on %s", host);
}

static int refuse(int fd, const char *store_path, struct cistern_error *err)
{
	char host[LOCK_HOST_BYTES + 8];
	bool recovers = false;
	pid_t pid = 0;
	int r = holder_now(fd, &pid, &recovers);

	host_in_text(fd, host);
	if (recovers)
		return cistern_error_set(err, -EBUSY,
			"%s: in use by a recovery (process %ld%s): wait until it has ended", store_path, (long)pid,
			host);
	if (r == 0 && pid > 0)
		return cistern_error_set(err, -EBUSY,
			"%s: in use by process %ld%s: unmount it first (cistern umount), or wait until it has ended",
			store_path, (long)pid, host);
	return cistern_error_set(
		err, -EBUSY, "%s: in use by another process: unmount it first (cistern umount)", store_path);
}

static int open_to_lock(int dirfd, const char *name, bool *ret_is_new)
{
	const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY;
	int fd;

	do {
		*ret_is_new = false;
		fd = openat(dirfd, name, flags);
		if (fd >= 0 || errno != ENOENT)
			return fd;
		*ret_is_new = true;
		fd = openat(dirfd, name, flags | O_CREAT | O_EXCL, 0600);
	} while (fd < 0 && errno == EEXIST);
	return fd;
}

static int set_lock(int fd, const struct flock *l)
{
	if (fcntl(fd, F_OFD_SETLK, l) == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

static int exclude_others(int fd)
{
	struct flock excludes = lock_of(0);
	bool recovers;
	pid_t pid;
	int r = set_lock(fd, &excludes);

	if (r == -EAGAIN && holder_of(fd, &pid, &recovers) == 0 && pid == 0)
		r = set_lock(fd, &excludes);
	return r;
}

int lock_take_named(
	int dirfd, const char *name, const char *path, bool recovers, int *ret_fd, struct cistern_error *err)
{
	struct flock tells = lock_of(1), reads = lock_of(2);
	bool is_new;
	int fd = open_to_lock(dirfd, name, &is_new), r;

	if (fd < 0)
		return cistern_error_set(err, -errno, "%s/%s: %s", path, name, strerror(errno));
	r = exclude_others(fd);
	if (r < 0) {
		if (r == -EAGAIN)
			r = refuse(fd, path, err);
		else
			cistern_error_set(err, r,
				"%s/%s: cannot be locked: %s: put the store on a local file "
				"system",
				path, name, strerror(-r));
		if (is_new && lock_is_unknown(r))
			(void)unlinkat(dirfd, name, 0);
		close(fd);
		return r;
	}
	if (recovers)
		(void)fcntl(fd, F_OFD_SETLK, &reads);
	(void)fcntl(fd, F_SETLK, &tells);
	lock_write_text(fd);
	*ret_fd = fd;
	return 0;
}

int lock_take(int dirfd, const char *store_path, bool recovers, int *ret_fd, struct cistern_error *err)
{
	return lock_take_named(dirfd, LOCK_FILE, store_path, recovers, ret_fd, err);
}

void lock_release(int fd)
{
	if (fd >= 0)
		close(fd);
}

int lock_holder(int dirfd, pid_t *ret_pid, bool *ret_recovers)
{
	int fd = openat(dirfd, LOCK_FILE, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
	int r;

	*ret_recovers = false;
	if (fd < 0 && (errno == EROFS || errno == EACCES))
		fd = openat(dirfd, LOCK_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
	if (fd < 0 && errno == ENOENT) {
		*ret_pid = 0;
		return 0;
	}
	if (fd < 0)
		return -errno;
	r = holder_of(fd, ret_pid, ret_recovers);
	close(fd);
	return r;
}
