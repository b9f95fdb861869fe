/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Mounts, read from /proc/self/mountinfo. Nothing here touches a mounted file system: a daemon that hangs must not hang
 * the tool that is to find out.
 */
#include "tools/lib/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

/* mountinfo writes blank, tab, newline and backslash as \ooo. */
static void unescape(const char *from, char *to, size_t cap)
{
	size_t n = 0;

	while (*from && n + 1 < cap) {
		if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' &&
			from[3] >= '0' && from[3] <= '7') {
			to[n++] = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 4;
		} else {
			to[n++] = *from++;
		}
	}
	to[n] = '\0';
}

/* "36 35 98:0 /root /mount/point rw,noatime shared:1 - fuse.cistern /source rw" */
bool mounts_parse_line(char *line, struct mount_entry *ret)
{
	char *save = NULL, *word, *root = NULL, *mountpoint = NULL, *type, *source;
	int n = 0;

	*ret = (struct mount_entry){ .mnt_id = -1, .parent_id = -1 };
	line[strcspn(line, "\n")] = '\0';
	for (word = strtok_r(line, " ", &save); word && strcmp(word, "-") != 0;
		word = strtok_r(NULL, " ", &save), n++) {
		if (n == 0 && sscanf(word, "%d", &ret->mnt_id) != 1)
			return false;
		if (n == 1 && sscanf(word, "%d", &ret->parent_id) != 1)
			return false;
		if (n == 2 && sscanf(word, "%u:%u", &ret->major, &ret->minor) != 2)
			return false;
		if (n == 3)
			root = word;
		if (n == 4)
			mountpoint = word;
	}
	type = strtok_r(NULL, " ", &save);
	source = strtok_r(NULL, " ", &save);
	if (!word || n < 6 || !root || !mountpoint || !type || !source)
		return false;
	unescape(root, ret->root, sizeof(ret->root));
	unescape(mountpoint, ret->mountpoint, sizeof(ret->mountpoint));
	unescape(source, ret->source, sizeof(ret->source));
	unescape(type, ret->type, sizeof(ret->type));
	ret->cistern = strcmp(ret->type, MOUNTS_FS_TYPE) == 0;
	return true;
}

int mounts_each(int (*each)(const struct mount_entry *m, void *arg), void *arg)
{
	return mounts_each_of(getpid(), each, arg);
}

int mounts_each_of(pid_t pid, int (*each)(const struct mount_entry *m, void *arg), void *arg)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	FILE *f = fopen(path, "re");
	struct mount_entry *m = malloc(sizeof(*m));
	char *line = NULL;
	size_t cap = 0;
	int r = 0;

	if (!f || !m) {
		r = f ? -ENOMEM : -errno;
		goto out;
	}
	while (r == 0 && getline(&line, &cap, f) > 0)
		if (mounts_parse_line(line, m))
			r = each(m, arg);
out:
	free(line);
	free(m);
	if (f)
		fclose(f);
	return r;
}

struct wanted {
	int mnt_id;                     /* or, if -1: */
	const struct mount_entry *same; /* another mount of the same */
	struct mount_entry *ret;
};

static bool is_same(const struct mount_entry *a, const struct mount_entry *b)
{
	return a->major == b->major && a->minor == b->minor && a->cistern == b->cistern &&
	       strcmp(a->source, b->source) == 0;
}

static int is_wanted(const struct mount_entry *m, void *arg)
{
	struct wanted *w = arg;

	if (w->mnt_id >= 0 ? m->mnt_id != w->mnt_id : !is_same(m, w->same))
		return 0;
	*w->ret = *m;
	return 1;
}

static int first_wanted(struct wanted *w)
{
	int r = mounts_each(is_wanted, w);

	return r < 0 ? r : r > 0 ? 0 : -ENOENT;
}

int mounts_by_id(int mnt_id, struct mount_entry *ret)
{
	return first_wanted(&(struct wanted){ .mnt_id = mnt_id, .ret = ret });
}

int mounts_same(const struct mount_entry *m, struct mount_entry *ret)
{
	return first_wanted(&(struct wanted){ .mnt_id = -1, .same = m, .ret = ret });
}

bool mounts_path_in(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (strcmp(dir, "/") == 0)
		return path[0] == '/';
	return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

struct search {
	const char *path;
	bool exact;
	bool found;
	struct mount_entry *best;
};

/* Later mounts cover earlier ones, but for one that was put beneath another; a mount further down the path covers those above it. */
static int consider(const struct mount_entry *m, void *arg)
{
	struct search *s = arg;

	if (s->exact ? strcmp(s->path, m->mountpoint) != 0 : !mounts_path_in(s->path, m->mountpoint))
		return 0;
	if (s->found && (strlen(m->mountpoint) < strlen(s->best->mountpoint) || s->best->parent_id == m->mnt_id))
		return 0;
	*s->best = *m;
	s->found = true;
	return 0;
}

static int search(const char *path, bool exact, struct mount_entry *ret)
{
	struct search s = { .path = path, .exact = exact, .best = ret };
	int r = mounts_each(consider, &s);

	if (r < 0)
		return r;
	return s.found ? 0 : -ENOENT;
}

int mounts_holding(const char *path, struct mount_entry *ret)
{
	return search(path, false, ret);
}

int mounts_at(const char *mountpoint, struct mount_entry *ret)
{
	return search(mountpoint, true, ret);
}

/* Runs fusermount3, quiet: what went wrong is told by us. Returns its exit status or -errno. */
static int fusermount(const char *mountpoint, bool lazy)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		if (null >= 0)
			dup2(null, STDERR_FILENO);
		execlp("fusermount3", "fusermount3", lazy ? "-uz" : "-u", "--", mountpoint, (char *)NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

static int unmount_as_user(const char *mountpoint, bool lazy, struct cistern_error *err)
{
	struct mount_entry m;
	int r = fusermount(mountpoint, lazy);

	if (r == 0)
		return 0;
	if (r == 127)
		return cistern_error_set(err, -ENOENT,
			"%s: fusermount3 was not found (Debian: fuse3); root can unmount without it", mountpoint);
	/* fusermount3 says in words only why not; a mount that is held is by far the likeliest */
	if (r > 0 && mounts_at(mountpoint, &m) == 0 && mounts_holders(&m, NULL, NULL) > 0)
		return cistern_error_set(err, -EBUSY, "%s is in use", mountpoint);
	return cistern_error_set(
		err, r < 0 ? r : -EPERM, "%s: fusermount3 could not unmount it; is it your own mount?", mountpoint);
}

int mounts_unmount(const char *mountpoint, bool lazy, struct cistern_error *err)
{
	if (umount2(mountpoint, (lazy ? MNT_DETACH : 0) | UMOUNT_NOFOLLOW) == 0)
		return 0;
	if (errno == EPERM)
		return unmount_as_user(mountpoint, lazy, err);
	if (errno == EBUSY)
		return cistern_error_set(err, -EBUSY, "%s is in use", mountpoint);
	return cistern_error_set(err, -errno, "%s: could not unmount: %s", mountpoint, strerror(errno));
}
