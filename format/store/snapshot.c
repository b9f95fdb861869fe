/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Snapshots of the index, for readers in other processes: STORE/snap-N, hard links made by RocksDB. They live no
 * longer than the daemon that made them; what a dead one left is removed when the store is opened.
 */
#include "format/store/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX    "snap-"
#define DEPTH_MAX 4 /* RocksDB makes one level */

bool snapshot_name_valid(const char *name)
{
	size_t len = strlen(PREFIX);

	return strncmp(name, PREFIX, len) == 0 && name[len] && strspn(name + len, "0123456789") == strlen(name + len);
}

static int remove_tree(int dirfd, const char *name, int depth);

static int remove_entry(int dirfd, const char *name, int depth)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(st.st_mode))
		return remove_tree(dirfd, name, depth);
	return unlinkat(dirfd, name, 0) == 0 || errno == ENOENT ? 0 : -errno;
}

/* Everything in the directory, never through a link. */
static int remove_content(int fd, int depth)
{
	DIR *dir = fdopendir(fd);
	struct dirent *entry;
	int r = 0;

	if (!dir) {
		r = -errno;
		close(fd);
		return r;
	}
	while (!r && (errno = 0, entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = remove_entry(fd, entry->d_name, depth - 1);
	if (!r && errno)
		r = -errno;
	closedir(dir);
	return r;
}

static int remove_tree(int dirfd, const char *name, int depth)
{
	int fd, r;

	if (depth <= 0)
		return -ELOOP;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	r = remove_content(fd, depth);
	if (!r && unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = -errno;
	return r;
}

int snapshot_remove_all(int dirfd, const char *path, struct cistern_error *err)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0, e;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return cistern_error_set(err, r, "%s: cannot be listed: %s", path, strerror(-r));
	}
	while ((entry = readdir(dir))) {
		if (!snapshot_name_valid(entry->d_name))
			continue;
		e = remove_entry(dirfd, entry->d_name, DEPTH_MAX + 1);
		if (e)
			r = cistern_error_set(err, e, "%s/%s: what an earlier daemon left cannot be removed: %s", path,
				entry->d_name, strerror(-e));
	}
	closedir(dir);
	return r;
}

int store_snapshot(struct store *s, char *ret_name, size_t cap, uint64_t *ret_seq, struct cistern_error *err)
{
	char name[32];
	char *path = NULL;
	uint64_t seq;
	int r;

	snprintf(name, sizeof(name), PREFIX "%u", atomic_fetch_add(&s->snapshots, 1) + 1);
	if (strlen(name) >= cap)
		return cistern_error_set(err, -ERANGE, "no room for the name of a snapshot");
	if (asprintf(&path, "%s/%s", s->path, name) < 0)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	r = state_snapshot(s->state, path, &seq, err);
	if (!r) { /* its readers do not see our memory */
		r = segment_settle(s->segments);
		if (r)
			cistern_error_set(err, r, "%s: payloads could not be written to their segments: %s", s->path,
				strerror(-r));
	}
	if (r)
		(void)store_remove_snapshot(s->path, name);
	free(path);
	if (r)
		return r;
	strcpy(ret_name, name);
	*ret_seq = seq;
	return 0;
}

int store_remove_snapshot(const char *path, const char *name)
{
	int dirfd, r;

	if (!snapshot_name_valid(name))
		return -EINVAL;
	dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return -errno;
	r = remove_tree(dirfd, name, DEPTH_MAX);
	close(dirfd);
	return r;
}
