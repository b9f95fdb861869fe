/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Operations on names: paths are drawn from so few that they meet files, directories, links and each other's open handles. */
#include "tests/parity/parity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

/* An operation on one path: calls one(path, arg) on both sides and compares. */
static bool on_path(struct parity *p, const char *rel, int (*one)(const char *path, const void *arg), const void *arg,
	const char *what)
{
	struct outcome o[SIDES];
	char path[PATH_MAX];

	note(p, " %.80s", rel);
	for (int s = 0; s < SIDES; s++) {
		side_path(p, s, rel, path);
		o[s] = outcome_of(one(path, arg));
	}
	return same_outcome(p, o, what) && same_path(p, rel);
}

static int do_mkdir(const char *path, const void *arg)
{
	return mkdir(path, *(const mode_t *)arg);
}

static bool op_mkdir(struct parity *p)
{
	static const mode_t dir_modes[] = { 0755, 0777, 0700, 01777 };
	char rel[PATH_MAX];

	random_path(p, rel);
	return on_path(p, rel, do_mkdir, &dir_modes[rng_below(&p->rng, 4)], "mkdir");
}

static int do_rmdir(const char *path, const void *arg)
{
	return rmdir(path);
}

static bool op_rmdir(struct parity *p)
{
	char rel[PATH_MAX];

	random_path(p, rel);
	return on_path(p, rel, do_rmdir, NULL, "rmdir");
}

static int do_unlink(const char *path, const void *arg)
{
	return unlink(path);
}

static bool op_unlink(struct parity *p)
{
	char rel[PATH_MAX];

	random_path(p, rel);
	return on_path(p, rel, do_unlink, NULL, "unlink");
}

static int do_truncate(const char *path, const void *arg)
{
	return truncate(path, (off_t) * (const uint64_t *)arg);
}

static bool op_truncate(struct parity *p)
{
	uint64_t size = rng_below(&p->rng, 65536);
	char rel[PATH_MAX];

	random_path(p, rel);
	return on_path(p, rel, do_truncate, &size, "truncate");
}

static int do_chmod(const char *path, const void *arg)
{
	return chmod(path, *(const mode_t *)arg);
}

static bool op_chmod(struct parity *p)
{
	static const mode_t any[] = { 0644, 0600, 0755, 04755, 02755, 0400, 01777, 02775 };
	char rel[PATH_MAX];

	random_path(p, rel);
	return on_path(p, rel, do_chmod, &any[rng_below(&p->rng, 8)], "chmod");
}

static int do_chown(const char *path, const void *arg)
{
	const int *id = arg;

	return lchown(path, (uid_t)id[0], (gid_t)id[1]);
}

static bool op_chown(struct parity *p)
{
	int id[2] = { (int)rng_below(&p->rng, 4) - 1, (int)rng_below(&p->rng, 4) - 1 }; /* -1: as it is */
	char rel[PATH_MAX];

	random_path(p, rel);
	if (id[0] < 0 && id[1] < 0) /* then ctime may advance or not, says POSIX */
		return true;
	return on_path(p, rel, do_chown, id, "chown");
}

static int do_utimens(const char *path, const void *arg)
{
	return utimensat(AT_FDCWD, path, arg, AT_SYMLINK_NOFOLLOW);
}

static bool op_utimens(struct parity *p)
{
	struct timespec t[2] = { { 978307200, 5 },
		{ 978307200 + (time_t)rng_below(&p->rng, 100000000), (long)rng_below(&p->rng, 1000000000) } };
	char rel[PATH_MAX];

	random_path(p, rel);
	if (rng_percent(&p->rng, 10))
		t[1].tv_nsec = rng_percent(&p->rng, 50) ? UTIME_NOW : UTIME_OMIT;
	return on_path(p, rel, do_utimens, t, "utimensat");
}

/* ---- xattrs */

static const char *const xattr_names[] = { "user.a", "user.b", "user.longer-name", "user.d" };

struct xattr_call {
	const char *name;
	unsigned char value[200];
	size_t len;
	int flags;
};

static int do_setxattr(const char *path, const void *arg)
{
	const struct xattr_call *c = arg;

	return lsetxattr(path, c->name, c->value, c->len, c->flags);
}

static bool op_setxattr(struct parity *p)
{
	struct xattr_call c = { .name = xattr_names[rng_below(&p->rng, 4)], .len = rng_below(&p->rng, 200) };
	char rel[PATH_MAX];

	if (rng_percent(&p->rng, 25))
		c.flags = rng_percent(&p->rng, 50) ? XATTR_CREATE : XATTR_REPLACE;
	rng_fill(&p->rng, c.value, c.len);
	random_path(p, rel);
	return on_path(p, rel, do_setxattr, &c, "setxattr");
}

static int do_removexattr(const char *path, const void *arg)
{
	return lremovexattr(path, arg);
}

static bool op_removexattr(struct parity *p)
{
	char rel[PATH_MAX];

	random_path(p, rel);
	return on_path(p, rel, do_removexattr, xattr_names[rng_below(&p->rng, 4)], "removexattr");
}

/* Sizes asked for and buffers too small. */
static int do_getxattr(const char *path, const void *arg)
{
	char small[4];
	int n = (int)lgetxattr(path, arg, NULL, 0), m = (int)lgetxattr(path, arg, small, sizeof(small));

	return m < 0 ? m : n * 100 + m;
}

static bool op_getxattr(struct parity *p)
{
	char rel[PATH_MAX];

	random_path(p, rel);
	return on_path(p, rel, do_getxattr, xattr_names[rng_below(&p->rng, 4)], "getxattr");
}

/* ---- two paths */

static bool op_rename(struct parity *p)
{
	static const unsigned int flags[] = { 0, 0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_EXCHANGE,
		RENAME_NOREPLACE | RENAME_EXCHANGE };
	char from[PATH_MAX], to[PATH_MAX], path[2][PATH_MAX];
	unsigned int flag = flags[rng_below(&p->rng, 8)];
	struct outcome o[SIDES];

	random_path(p, from);
	random_path(p, to);
	note(p, " %.80s to %.80s flags %u", from, to, flag);
	for (int s = 0; s < SIDES; s++) {
		side_path(p, s, from, path[0]);
		side_path(p, s, to, path[1]);
		o[s] = outcome_of(renameat2(AT_FDCWD, path[0], AT_FDCWD, path[1], flag));
	}
	return same_outcome(p, o, "rename") && same_path(p, from) && same_path(p, to);
}

static bool op_link(struct parity *p)
{
	char from[PATH_MAX], to[PATH_MAX], path[2][PATH_MAX];
	int flag = rng_percent(&p->rng, 20) ? AT_SYMLINK_FOLLOW : 0;
	struct outcome o[SIDES];

	random_path(p, from);
	random_path(p, to);
	note(p, " %.80s to %.80s", from, to);
	for (int s = 0; s < SIDES; s++) {
		side_path(p, s, from, path[0]);
		side_path(p, s, to, path[1]);
		o[s] = outcome_of(linkat(AT_FDCWD, path[0], AT_FDCWD, path[1], flag));
	}
	return same_outcome(p, o, "link") && same_path(p, from) && same_path(p, to);
}

static int do_symlink(const char *path, const void *arg)
{
	return symlink(arg, path);
}

/* Targets only ever lead down, so that none leaves the tree. */
static bool op_symlink(struct parity *p)
{
	char rel[PATH_MAX], target[PATH_MAX];

	random_path(p, target);
	random_path(p, rel);
	return on_path(p, rel, do_symlink, target, "symlink");
}

static int do_stat(const char *path, const void *arg)
{
	struct stat st;

	return stat(path, &st) < 0 ? -1 : (int)st.st_mode;
}

static bool op_stat(struct parity *p)
{
	char rel[PATH_MAX];

	random_path(p, rel);
	return on_path(p, rel, do_stat, NULL, "stat");
}

static int do_access(const char *path, const void *arg)
{
	return access(path, *(const int *)arg);
}

static bool op_access(struct parity *p)
{
	int mode = (int)rng_below(&p->rng, 8);
	char rel[PATH_MAX];

	random_path(p, rel);
	return on_path(p, rel, do_access, &mode, "access");
}

/* ---- directories as streams */

/* A number that depends on which names are read, not on their order. */
static uint64_t hash_names(DIR *d, uint64_t *ret_num)
{
	struct dirent *e;
	uint64_t sum = 0;

	for (*ret_num = 0; (e = readdir(d)); ++*ret_num) {
		uint64_t h = UINT64_C(1469598103934665603);

		for (const char *c = e->d_name; *c; c++)
			h = (h ^ (unsigned char)*c) * UINT64_C(1099511628211);
		sum += h;
	}
	return sum;
}

/* All names at once, the same after rewinddir, and seekdir leads back to where telldir was. */
static int read_dir(const char *path, uint64_t skip, uint64_t *ret_sum)
{
	DIR *d = opendir(path);
	uint64_t num, again, rest, rest_again, sum, sum_rest;
	long at;
	int r = 0;

	if (!d)
		return -1;
	*ret_sum = hash_names(d, &num);
	rewinddir(d);
	if (hash_names(d, &again) != *ret_sum || again != num)
		r = -2;
	rewinddir(d);
	for (uint64_t i = 0; i < skip && i < num; i++)
		readdir(d);
	at = telldir(d);
	sum = hash_names(d, &rest);
	seekdir(d, at);
	sum_rest = hash_names(d, &rest_again);
	if (sum != sum_rest || rest != rest_again)
		r = -3;
	closedir(d);
	errno = r ? EUCLEAN : 0;
	return r ? r : (int)num;
}

static bool op_readdir(struct parity *p)
{
	uint64_t skip = rng_below(&p->rng, 6), sum[SIDES] = { 0, 0 };
	char rel[PATH_MAX], path[PATH_MAX];
	struct outcome o[SIDES];

	random_path(p, rel);
	if (rng_percent(&p->rng, 50))
		strcpy(rel, ".");
	note(p, " %.80s", rel);
	for (int s = 0; s < SIDES; s++) {
		side_path(p, s, rel, path);
		o[s] = outcome_of(read_dir(path, skip, &sum[s]));
	}
	if (!same_outcome(p, o, "readdir"))
		return false;
	return sum[0] == sum[1] ? true : differ(p, "readdir: other names");
}

/* ---- what is only sane, or refused */

static bool op_statfs(struct parity *p)
{
	struct statvfs v;

	if (statvfs(p->root[0], &v) < 0)
		return differ(p, "statvfs: %s", strerror(errno));
	if (v.f_bsize == 0 || v.f_blocks == 0 || v.f_bfree > v.f_blocks || v.f_bavail > v.f_bfree || v.f_namemax != 255)
		return differ(p, "statvfs: nonsense");
	return true;
}

/* A socket, which everybody may make and nobody opens; gone again at once, since no drain carries it. */
static bool op_mknod(struct parity *p)
{
	struct outcome o[2], gone[2];
	char rel[PATH_MAX], path[PATH_MAX];
	struct stat st[2];

	random_path(p, rel);
	note(p, " %.80s a socket", rel);
	for (int s = 0; s < 2; s++) {
		side_path(p, s, rel, path);
		o[s] = outcome_of(mknod(path, S_IFSOCK | 0640, 0));
	}
	if (!same_outcome(p, o, "mknod") || !same_path(p, rel) || o[0].ret < 0)
		return o[0].ret < 0 && o[0].ret == o[1].ret && o[0].err == o[1].err && same_path(p, rel);
	for (int s = 0; s < 2; s++) {
		side_path(p, s, rel, path);
		if (lstat(path, &st[s]) < 0)
			return differ(p, "a socket is not there");
		gone[s] = outcome_of(unlink(path));
	}
	if (st[0].st_mode != st[1].st_mode || st[0].st_nlink != st[1].st_nlink || st[0].st_size != st[1].st_size)
		return differ(p, "%s: a socket of mode %o in A, %o in B", rel, st[0].st_mode, st[1].st_mode);
	return same_outcome(p, gone, "unlink") && same_path(p, rel);
}

const struct operation name_operations[] = {
	{ "mkdir", 40, op_mkdir },
	{ "rmdir", 12, op_rmdir },
	{ "unlink", 25, op_unlink },
	{ "truncate", 10, op_truncate },
	{ "chmod", 15, op_chmod },
	{ "chown", 10, op_chown },
	{ "utimens", 30, op_utimens },
	{ "setxattr", 20, op_setxattr },
	{ "removexattr", 8, op_removexattr },
	{ "getxattr", 8, op_getxattr },
	{ "rename", 60, op_rename },
	{ "link", 20, op_link },
	{ "symlink", 12, op_symlink },
	{ "stat", 10, op_stat },
	{ "access", 6, op_access },
	{ "readdir", 15, op_readdir },
	{ "statfs", 2, op_statfs },
	{ "mknod", 5, op_mknod },
	{ NULL, 0, NULL },
};
