/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The directory that a store lives in: found, made, and looked at before anything in it is touched. A directory
 * becomes a store only when it is empty; what a creation that was cut short, a daemon's log, or mkfs leave behind does
 * not count. Links on the way are followed once, here; afterwards everything goes by the descriptor.
 */
#include "format/store/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/store/lock.h"
#include "format/store/superblock.h"

static bool harmless(const char *name)
{
	static const char *const names[] = { ".", "..", "lost+found", LOCK_FILE, SUPERBLOCK_FILE ".tmp", "ctl.sock",
		"cistern.log" };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

static int check_empty(int dirfd, const char *path, struct cistern_error *err)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int r = 0;

	if (!dir) {
		r = cistern_error_set(err, -errno, "%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return r;
	}
	while (r == 0) {
		errno = 0;
		entry = readdir(dir);
		if (!entry) {
			r = errno ? cistern_error_set(err, -errno, "%s: %s", path, strerror(errno)) : 0;
			break;
		}
		if (!harmless(entry->d_name))
			r = cistern_error_set(err, -ENOTEMPTY,
				"%s: not a store, and not empty (there is \"%s\"): name a store, or an empty or new directory",
				path, entry->d_name);
	}
	closedir(dir);
	return r;
}

static int check_owner(const char *path, const struct stat *st, struct cistern_error *err)
{
	if (st->st_uid == geteuid() || geteuid() == 0)
		return 0;
	return cistern_error_set(err, -EPERM,
		"%s: belongs to user %lu, you are user %lu: run as its owner, or name another "
		"store",
		path, (unsigned long)st->st_uid, (unsigned long)geteuid());
}

/* Does the directory hold a store? A superblock that is not a regular file makes none. */
static int find_superblock(int dirfd, const char *path, bool *ret_found, struct cistern_error *err)
{
	struct stat st;

	if (fstatat(dirfd, SUPERBLOCK_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!S_ISREG(st.st_mode))
			return cistern_error_set(
				err, -EBADMSG, "%s/" SUPERBLOCK_FILE ": not a regular file: this is not a store", path);
		*ret_found = true;
		return 0;
	}
	if (errno != ENOENT)
		return cistern_error_set(err, -errno, "%s/" SUPERBLOCK_FILE ": %s", path, strerror(errno));
	*ret_found = false;
	return 0;
}

static int sync_above(int dirfd)
{
	int fd = openat(dirfd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	if (fd < 0)
		return errno == EACCES ? 0 : -errno; /* a folder that we may not list: its owner's affair */
	r = fsync(fd) ? -errno : 0;
	close(fd);
	return r == -EINVAL ? 0 : r; /* a file system that cannot sync folders */
}

static int make_directory(const char *path, bool *ret_made, struct cistern_error *err)
{
	*ret_made = mkdir(path, 0700) == 0;
	if (*ret_made || errno == EEXIST)
		return 0;
	if (errno == ENOENT)
		return cistern_error_set(
			err, -ENOENT, "%s: the directory above it does not exist: make it first", path);
	return cistern_error_set(err, -errno, "%s: cannot be made: %s", path, strerror(errno));
}

static int open_directory(const char *path, enum store_mode mode, int *ret_dirfd, struct cistern_error *err)
{
	bool made = false;
	int fd, r = 0;

	if (mode == STORE_CREATE_OR_OPEN)
		r = make_directory(path, &made, err);
	if (r)
		return r;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOTDIR)
		return cistern_error_set(err, -ENOTDIR, "%s: not a directory: a store is a directory", path);
	if (fd < 0)
		return cistern_error_set(err, -errno, "%s: cannot be opened: %s", path, strerror(errno));
	r = made ? sync_above(fd) : 0;
	if (r) {
		close(fd);
		return cistern_error_set(err, r, "%s: the directory above it cannot be synced: %s", path, strerror(-r));
	}
	*ret_dirfd = fd;
	return 0;
}

/* Owner, contents and permissions. */
static int inspect(int dirfd, const char *path, enum store_mode mode, bool *ret_new, struct cistern_error *err)
{
	struct stat st;
	bool found = false;
	int r;

	if (fstat(dirfd, &st) < 0)
		return cistern_error_set(err, -errno, "%s: %s", path, strerror(errno));
	r = check_owner(path, &st, err);
	if (!r)
		r = find_superblock(dirfd, path, &found, err);
	if (!r && !found && mode != STORE_CREATE_OR_OPEN)
		r = cistern_error_set(
			err, -ENOENT, "%s: not a store (no superblock in it): name a store's directory", path);
	if (!r && !found)
		r = check_empty(dirfd, path, err);
	if (!r && mode == STORE_CREATE_OR_OPEN && (st.st_mode & 07777) != 0700 && fchmod(dirfd, 0700) < 0)
		r = cistern_error_set(
			err, -errno, "%s: its permissions cannot be set to 0700: %s", path, strerror(errno));
	*ret_new = !found;
	return r;
}

int directory_open(const char *path, enum store_mode mode, char **ret_path, int *ret_dirfd, bool *ret_new,
	struct cistern_error *err)
{
	char *absolute;
	int fd = -1, r = open_directory(path, mode, &fd, err);

	if (r)
		return r;
	r = inspect(fd, path, mode, ret_new, err);
	if (r) {
		close(fd);
		return r;
	}
	absolute = realpath(path, NULL);
	if (!absolute) {
		r = cistern_error_set(err, -errno, "%s: %s", path, strerror(errno));
		close(fd);
		return r;
	}
	*ret_path = absolute;
	*ret_dirfd = fd;
	return 0;
}
