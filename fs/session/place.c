/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What came in the gap is told by ctime, which nobody can set back: it is not older than the moment
 * before the dead mount went. (Where the directory lies on a server with a clock of its own, the
 * two clocks must agree.)
 */
#include "fs/session/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/dead_mount.h"
#include "fs/session/unmount.h"

#define LOOK_MAX   20000u /* entries: the directory below may be a backing directory of millions */
#define DEPTH_MAX  64
#define OURS       ".cistern-"
#define FIND_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

void place_init(struct place *p, const char *mountpoint)
{
	*p = (struct place){ .below_fd = -1 };
	snprintf(p->mountpoint, sizeof(p->mountpoint), "%s", mountpoint);
	p->dead = dead_mount_is(mountpoint);
}

void place_close(struct place *p)
{
	if (p->below_fd >= 0)
		close(p->below_fd);
	p->below_fd = -1;
}

int place_free(struct place *p, struct cistern_error *err)
{
	int r;

	if (p->freed || !p->dead)
		return 0;
	clock_gettime(CLOCK_REALTIME_COARSE, &p->begun);
	clock_gettime(CLOCK_MONOTONIC, &p->begun_mono);
	r = unmount_path(p->mountpoint, true);
	if (r < 0)
		return cistern_error_set(err, r,
			"%s: the mount of a daemon that has died cannot be taken away (%s): is it your own? 'cistern umount %s'",
			p->mountpoint, strerror(-r), p->mountpoint);
	p->freed = true;
	p->below_fd = open(p->mountpoint, FIND_FLAGS);
	return 0;
}

void place_filled(struct place *p)
{
	clock_gettime(CLOCK_MONOTONIC, &p->filled_mono);
}

unsigned int place_gap_msec(const struct place *p)
{
	long long nsec = (p->filled_mono.tv_sec - p->begun_mono.tv_sec) * 1000000000LL + p->filled_mono.tv_nsec -
			 p->begun_mono.tv_nsec;

	return p->freed ? (unsigned int)(nsec / 1000000 + 1) : 0;
}

/* ---- what came */

struct look {
	const struct place *p;
	void (*each)(const char *path, void *arg);
	void *arg;
	size_t looked, found;
	bool all;
	char path[PATH_MAX];
};

static bool is_since(const struct place *p, int64_t sec, uint32_t nsec)
{
	return sec > p->begun.tv_sec || (sec == p->begun.tv_sec && nsec >= (uint32_t)p->begun.tv_nsec);
}

/*
 * A directory's ctime tells of each name in it, which is told itself: a directory counts when it is
 * new.
 */
static bool came(const struct place *p, const struct statx *st)
{
	if (!S_ISDIR(st->stx_mode))
		return is_since(p, st->stx_ctime.tv_sec, st->stx_ctime.tv_nsec);
	return st->stx_mask & STATX_BTIME && is_since(p, st->stx_btime.tv_sec, st->stx_btime.tv_nsec);
}

static void look_in(struct look *l, int dir_fd, size_t len, int depth);

static void look_at(struct look *l, int dir_fd, const char *name, size_t len, int depth)
{
	struct statx st;
	int n = snprintf(l->path + len, sizeof(l->path) - len, "%s%s", len ? "/" : "", name), fd;

	if (n < 0 || (size_t)n >= sizeof(l->path) - len ||
		statx(dir_fd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_CTIME | STATX_BTIME,
			&st) < 0)
		return;
	l->looked++;
	if (came(l->p, &st)) {
		l->found++;
		l->each(l->path, l->arg);
	}
	if (!S_ISDIR(st.stx_mode))
		return;
	fd = depth < DEPTH_MAX ? openat(dir_fd, name, FIND_FLAGS) : -1;
	if (fd >= 0)
		look_in(l, fd, len + (size_t)n, depth + 1);
	else
		l->all = false;
}

/* Takes dir_fd. */
static void look_in(struct look *l, int dir_fd, size_t len, int depth)
{
	DIR *d = fdopendir(dir_fd);
	struct dirent *e;

	if (!d) {
		close(dir_fd);
		l->all = false;
		return;
	}
	while ((e = readdir(d)) != NULL && l->looked < LOOK_MAX)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
			strncmp(e->d_name, OURS, strlen(OURS)) != 0)
			look_at(l, dirfd(d), e->d_name, len, depth);
	l->all = l->all && !e;
	closedir(d);
}

size_t place_look(const struct place *p, void (*each)(const char *path, void *arg), void *arg, bool *ret_all)
{
	struct look l = { .p = p, .each = each, .arg = arg, .all = true };
	int fd = p->freed && p->below_fd >= 0 ? openat(p->below_fd, ".", FIND_FLAGS) : -1;

	if (fd >= 0)
		look_in(&l, fd, 0, 0);
	*ret_all = l.all && (fd >= 0 || !p->freed);
	return l.found;
}
