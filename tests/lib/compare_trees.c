/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Both trees are walked by the names of the first, and then by those that only the second has. Which names share an inode is
 * known of the first LINKS_MAX files: an inode of one tree and one of the other, once met under the same name, must meet under all.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/lib/compare_trees.h"

#define LINKS_MAX 64

struct comparing {
	const char *a, *b; /* got, expected */
	ino_t links[LINKS_MAX][2];
	size_t num_links;
	unsigned int differences;
	bool part; /* a need not have all that is in b */
};

static void differ(struct comparing *c, const char *path, const char *what)
{
	if (c->differences++ < 20)
		printf("# differs: %s: %s\n", path, what);
}

static int64_t ns_of(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A path that is too long to be joined is one that cannot be found. */
static void join(char out[PATH_MAX], const char *dir, const char *path)
{
	if (snprintf(out, PATH_MAX, "%s/%s", dir, path) >= PATH_MAX)
		out[0] = '\0';
}

static bool same_bytes(const char *a, const char *b)
{
	static uint8_t x[65536], y[65536];
	int fa = open(a, O_RDONLY), fb = open(b, O_RDONLY);
	ssize_t na, nb;
	bool same = fa >= 0 && fb >= 0;

	do {
		na = read(fa, x, sizeof(x));
		nb = read(fb, y, sizeof(y));
		same = same && na >= 0 && na == nb && memcmp(x, y, (size_t)na) == 0;
	} while (same && na > 0);
	close(fa);
	close(fb);
	return same;
}

static void compare_links(struct comparing *c, const char *path, const struct stat *a, const struct stat *b)
{
	for (size_t i = 0; i < c->num_links; i++)
		if (c->links[i][0] == a->st_ino || c->links[i][1] == b->st_ino) {
			if (c->links[i][0] != a->st_ino || c->links[i][1] != b->st_ino)
				differ(c, path, "linked to other files");
			return;
		}
	if (c->num_links < LINKS_MAX) {
		c->links[c->num_links][0] = a->st_ino;
		c->links[c->num_links++][1] = b->st_ino;
	}
}

static void compare_xattr(struct comparing *c, const char *path, const char *a, const char *b, const char *name)
{
	char x[64], y[64];
	ssize_t nx = lgetxattr(a, name, x, sizeof(x)), ny = lgetxattr(b, name, y, sizeof(y));

	if (nx != ny || (nx > 0 && memcmp(x, y, (size_t)nx) != 0))
		differ(c, path, name);
}

static void compare_directory(struct comparing *c, const char *rel);

static void compare_one(struct comparing *c, const char *rel)
{
	char a[PATH_MAX], b[PATH_MAX], x[256], y[256];
	struct stat sa, sb;
	int ra, rb;

	join(a, c->a, rel);
	join(b, c->b, rel);
	ra = lstat(a, &sa);
	rb = lstat(b, &sb);
	if (ra && c->part)
		return;
	if (ra || rb) {
		differ(c, rel, ra ? "missing" : "should not be there");
		return;
	}
	if (sa.st_mode != sb.st_mode) {
		differ(c, rel, "mode");
		printf("# %o, expected %o\n", sa.st_mode, sb.st_mode);
	}
	if (ns_of(sa.st_mtim) != ns_of(sb.st_mtim) && !(c->part && S_ISDIR(sa.st_mode))) {
		differ(c, rel, "mtime");
		printf("# %" PRId64 ", expected %" PRId64 "\n", ns_of(sa.st_mtim), ns_of(sb.st_mtim));
	}
	compare_xattr(c, rel, a, b, "user.t");
	compare_xattr(c, rel, a, b, "user.u");
	if (S_ISDIR(sa.st_mode) && S_ISDIR(sb.st_mode)) {
		compare_directory(c, rel);
	} else if (S_ISLNK(sa.st_mode) && S_ISLNK(sb.st_mode)) {
		ra = (int)readlink(a, x, sizeof(x));
		rb = (int)readlink(b, y, sizeof(y));
		if (ra != rb || ra < 0 || memcmp(x, y, (size_t)ra) != 0)
			differ(c, rel, "target");
	} else if (S_ISREG(sa.st_mode)) {
		if (sa.st_size != sb.st_size)
			differ(c, rel, "size");
		else if (!same_bytes(a, b))
			differ(c, rel, "content");
		if (!c->part)
			compare_links(c, rel, &sa, &sb);
	}
}

static void compare_names(struct comparing *c, const char *rel, const char *in, bool only_missing)
{
	char at[PATH_MAX], other[PATH_MAX], path[PATH_MAX];
	struct dirent *e;
	struct stat st;
	DIR *dir;

	join(at, in, rel);
	dir = opendir(at);
	if (!dir) {
		differ(c, rel, "cannot be listed");
		return;
	}
	while ((e = readdir(dir))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		join(path, rel, e->d_name);
		join(other, c->a, path);
		if (only_missing && lstat(other, &st) == 0)
			continue;
		compare_one(c, path);
	}
	closedir(dir);
}

static void compare_directory(struct comparing *c, const char *rel)
{
	compare_names(c, rel, c->a, false);
	compare_names(c, rel, c->b, true);
}

unsigned int compare_trees(const char *got, const char *expected, bool part)
{
	struct comparing c = { .a = got, .b = expected, .part = part };

	compare_one(&c, ".");
	return c.differences;
}
