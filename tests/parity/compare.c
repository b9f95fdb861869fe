/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a program can see of two trees, side by side. Not compared: inode numbers (only which names share one), block counts, sizes of
 * directories, atime, and the clock: a time that was set explicitly lies years back and must agree to the nanosecond,
 * any other must be of this run on both sides.
 */
#include "tests/parity/parity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define XATTR_LIST_BYTES 4096
#define NAMES_MAX        4096
#define CTIME_SLACK_NS   50000000

void side_path(const struct parity *p, int side, const char *path, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%.2000s/%.2000s", p->root[side], path);
}

/* Few names, so that operations meet; now and then a name that is odd or too long. */
void random_path(struct parity *p, char out[PATH_MAX])
{
	size_t dice = rng_below(&p->rng, 100), depth = dice < 45 ? 1 : dice < 85 ? 2 : 3, len = 0;

	for (size_t i = 0; i < depth; i++)
		len += (size_t)sprintf(out + len, "%s%c", i ? "/" : "", (int)('a' + rng_below(&p->rng, 7)));
	if (rng_percent(&p->rng, 1)) {
		size_t num = 254 + rng_below(&p->rng, 3);

		memset(out + len, 'x', num);
		out[len + num] = '\0';
	} else if (rng_percent(&p->rng, 1)) {
		strcpy(out + len, "/");
	} else if (rng_percent(&p->rng, 1)) {
		strcpy(out + len, "/.");
	}
}

static bool same_time(
	struct parity *p, const struct timespec *a, const struct timespec *b, const char *which, const char *what)
{
	if (b->tv_sec < p->run_start_sec ? a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec
					 : a->tv_sec >= p->run_start_sec)
		return true;
	return differ(p, "%s: %s is %" PRId64 ".%09ld in A, %" PRId64 ".%09ld in B", what, which, (int64_t)a->tv_sec,
		a->tv_nsec, (int64_t)b->tv_sec, b->tv_nsec);
}

/*
 * What this operation changed on B it must have changed on A. What B was changed in the same tick of its clock may have been
 * changed by an operation before, whose A comes from the tick in which that one began.
 */
static bool same_change(struct parity *p, const struct stat st[SIDES], const char *what)
{
	int64_t behind = p->tick_start_ns - nsec(&st[0].st_ctim);

	if (nsec(&st[1].st_ctim) < p->op_start_ns || behind <= CTIME_SLACK_NS)
		return true;
	return differ(p, "%s: ctime advanced in B, but not in A (%" PRId64 " ns behind)", what, behind);
}

bool same_stat(struct parity *p, const struct stat st[SIDES], const char *what)
{
	if (st[0].st_mode != st[1].st_mode)
		return differ(p, "%s: mode is %o in A, %o in B", what, st[0].st_mode, st[1].st_mode);
	if (st[0].st_nlink != st[1].st_nlink)
		return differ(p, "%s: nlink is %ju in A, %ju in B", what, (uintmax_t)st[0].st_nlink,
			(uintmax_t)st[1].st_nlink);
	if (st[0].st_uid != st[1].st_uid || st[0].st_gid != st[1].st_gid)
		return differ(p, "%s: owner is %u:%u in A, %u:%u in B", what, st[0].st_uid, st[0].st_gid, st[1].st_uid,
			st[1].st_gid);
	if (!S_ISDIR(st[0].st_mode) && st[0].st_size != st[1].st_size)
		return differ(
			p, "%s: size is %jd in A, %jd in B", what, (intmax_t)st[0].st_size, (intmax_t)st[1].st_size);
	if (p->num_roots > 1)
		return true; /* a job's files have the time of their last commit, which is not that of the write */
	return same_time(p, &st[0].st_mtim, &st[1].st_mtim, "mtime", what) && same_change(p, st, what);
}

/* ---- extended attributes */

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of user.* in a list, sorted; returns their number. */
static size_t user_names(char *list, ssize_t len, char **names, size_t max)
{
	size_t num = 0;

	for (char *n = list; n < list + len && num < max; n += strlen(n) + 1)
		if (strncmp(n, "user.", 5) == 0 && strncmp(n, "user.cistern.", 13) != 0)
			names[num++] = n;
	qsort(names, num, sizeof(*names), compare_names);
	return num;
}

static bool same_xattr(struct parity *p, char path[SIDES][PATH_MAX], const char *name)
{
	char value[SIDES][1024];
	struct outcome o[SIDES];

	for (int s = 0; s < SIDES; s++)
		o[s] = outcome_of(lgetxattr(path[s], name, value[s], sizeof(value[s])));
	if (o[0].ret == o[1].ret && o[0].err == o[1].err &&
		(o[0].ret <= 0 || memcmp(value[0], value[1], (size_t)o[0].ret) == 0))
		return true;
	return differ(p, "%s: xattr %s differs", path[0], name);
}

static bool same_xattrs(struct parity *p, const char *rel)
{
	char path[SIDES][PATH_MAX], list[SIDES][XATTR_LIST_BYTES], *names[SIDES][64];
	size_t num[SIDES];

	for (int s = 0; s < SIDES; s++) {
		ssize_t len;

		side_path(p, s, rel, path[s]);
		len = llistxattr(path[s], list[s], sizeof(list[s]));
		num[s] = user_names(list[s], len < 0 ? 0 : len, names[s], 64);
	}
	if (num[0] != num[1])
		return differ(p, "%s: has %zu xattrs in A, %zu in B", rel, num[0], num[1]);
	for (size_t i = 0; i < num[0]; i++)
		if (strcmp(names[0][i], names[1][i]) != 0 || !same_xattr(p, path, names[1][i]))
			return differ(p, "%s: xattr %s in A, %s in B", rel, names[0][i], names[1][i]);
	return true;
}

/* ---- one path, one descriptor */

static bool same_link(struct parity *p, const char *rel)
{
	char path[PATH_MAX], target[SIDES][PATH_MAX];
	struct outcome o[SIDES];

	for (int s = 0; s < SIDES; s++) {
		side_path(p, s, rel, path);
		o[s] = outcome_of(readlink(path, target[s], PATH_MAX));
	}
	if (o[0].ret == o[1].ret && o[0].err == o[1].err &&
		(o[0].ret <= 0 || memcmp(target[0], target[1], (size_t)o[0].ret) == 0))
		return true;
	return differ(p, "%s: readlink differs", rel);
}

static bool same_lstat(struct parity *p, const char *rel, struct stat st[SIDES], bool *ret_exists)
{
	char path[PATH_MAX];
	struct outcome o[SIDES];

	for (int s = 0; s < SIDES; s++) {
		side_path(p, s, rel, path);
		o[s] = outcome_of(lstat(path, &st[s]));
	}
	*ret_exists = o[1].ret == 0;
	if (o[0].ret != o[1].ret || o[0].err != o[1].err)
		return differ(p, "lstat %s: A says %s, B %s", rel, strerror(o[0].err), strerror(o[1].err));
	return !*ret_exists || same_stat(p, st, rel);
}

bool same_path(struct parity *p, const char *path)
{
	char parent[PATH_MAX];
	struct stat st[SIDES];
	bool exists;
	char *slash;

	if (!same_lstat(p, path, st, &exists))
		return false;
	if (exists && S_ISLNK(st[1].st_mode) && !same_link(p, path))
		return false;
	if (exists && !same_xattrs(p, path))
		return false;
	strcpy(parent, path);
	slash = strrchr(parent, '/');
	strcpy(slash ? slash : parent, slash ? "" : ".");
	return same_lstat(p, parent, st, &exists);
}

bool same_fd(struct parity *p, const struct handle *h)
{
	struct stat st[SIDES];

	for (int s = 0; s < SIDES; s++)
		if (fstat(h->fd[s], &st[s]) < 0)
			return differ(p, "fstat of side %d: %s", s, strerror(errno));
	return same_stat(p, st, "fstat");
}

/* The file is read by path of its own, since a handle may be write-only: through /proc, which works for deleted files as well. */
static ssize_t read_again(int fd, unsigned char *buf, size_t len, uint64_t off)
{
	char path[64];
	ssize_t n, done = 0;
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDONLY | O_CLOEXEC);
	if (again < 0)
		return -1;
	while ((size_t)done < len && (n = pread(again, buf + done, len - (size_t)done, (off_t)off + done)) > 0)
		done += n;
	close(again);
	return done;
}

bool same_content(struct parity *p, const int fd[SIDES], uint64_t off, uint64_t len, const char *what)
{
	struct outcome o[SIDES];

	len = len > FILE_MAX ? FILE_MAX : len;
	for (int s = 0; s < SIDES; s++)
		o[s] = outcome_of(read_again(fd[s], p->buf[s], len, off));
	if (o[1].ret < 0 && o[0].ret < 0) /* the user has no right to read it */
		return true;
	if (o[0].ret != o[1].ret)
		return differ(p, "%s: %" PRId64 " bytes at %" PRIu64 " in A (%s), %" PRId64 " in B (%s)", what,
			o[0].ret, off, strerror(o[0].err), o[1].ret, strerror(o[1].err));
	for (int64_t i = 0; i < o[0].ret; i++)
		if (p->buf[0][i] != p->buf[1][i])
			return differ(p, "%s: byte %" PRIu64 " is %02x in A, %02x in B", what, off + (uint64_t)i,
				p->buf[0][i], p->buf[1][i]);
	return true;
}

/* ---- the whole tree */

struct pairs { /* inode numbers of A and B that belong together */
	uint64_t ino[NAMES_MAX][SIDES];
	size_t num;
};

static bool same_identity(struct parity *p, struct pairs *pairs, const struct stat st[SIDES], const char *path)
{
	for (size_t i = 0; i < pairs->num; i++) {
		bool same_a = pairs->ino[i][0] == st[0].st_ino, same_b = pairs->ino[i][1] == st[1].st_ino;

		if (same_a != same_b)
			return differ(
				p, "%s: is another link to a file seen before only in %s", path, same_a ? "A" : "B");
		if (same_a)
			return true;
	}
	if (pairs->num < NAMES_MAX) {
		pairs->ino[pairs->num][0] = st[0].st_ino;
		pairs->ino[pairs->num++][1] = st[1].st_ino;
	}
	return true;
}

static bool same_file(struct parity *p, const char *rel)
{
	char path[PATH_MAX];
	int fd[SIDES];
	bool good;

	for (int s = 0; s < SIDES; s++) {
		side_path(p, s, rel, path);
		fd[s] = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd[0] < 0 || fd[1] < 0)
		good = fd[0] < 0 && fd[1] < 0 ? true : differ(p, "%s: opens only on one side", rel);
	else
		good = same_content(p, fd, 0, FILE_MAX, rel);
	for (int s = 0; s < SIDES; s++)
		if (fd[s] >= 0)
			close(fd[s]);
	return good;
}

static int sorted_names(const struct parity *p, int side, const char *rel, struct dirent ***ret)
{
	char path[PATH_MAX];

	side_path(p, side, rel, path);
	return scandir(path, ret, NULL, alphasort);
}

static void free_names(struct dirent **names, int num)
{
	for (int i = 0; i < num; i++)
		free(names[i]);
	free(names);
}

static bool same_dir(struct parity *p, struct pairs *pairs, const char *rel);

static bool same_entry(
	struct parity *p, struct pairs *pairs, const char *dir, const struct dirent *a, const struct dirent *b)
{
	char path[PATH_MAX];
	struct stat st[SIDES];
	bool exists;

	if (strcmp(a->d_name, b->d_name) != 0)
		return differ(p, "%s: lists %s in A, %s in B", dir, a->d_name, b->d_name);
	if (strcmp(a->d_name, ".") == 0 || strcmp(a->d_name, "..") == 0)
		return true;
	snprintf(path, sizeof(path), "%.1500s/%.300s", dir, a->d_name);
	if (!same_lstat(p, path, st, &exists))
		return false;
	if (!exists) /* the user has no right to look; else it must be there */
		return errno == EACCES ? true : differ(p, "%s: listed but not there", path);
	if (a->d_type != b->d_type)
		return differ(p, "%s: readdir says type %d in A, %d in B", path, a->d_type, b->d_type);
	if (!same_path(p, path) || !same_identity(p, pairs, st, path))
		return false;
	return S_ISDIR(st[1].st_mode) ? same_dir(p, pairs, path) : S_ISREG(st[1].st_mode) ? same_file(p, path) : true;
}

static bool same_dir(struct parity *p, struct pairs *pairs, const char *rel)
{
	struct dirent **names[SIDES];
	int num[SIDES];
	bool good = true;

	for (int s = 0; s < SIDES; s++)
		num[s] = sorted_names(p, s, rel, &names[s]);
	for (int i = 0; good && i < num[0] && i < num[1]; i++)
		good = same_entry(p, pairs, rel, names[0][i], names[1][i]);
	if (good && num[0] != num[1])
		good = differ(p, "%s: %d names in A, %d in B", rel, num[0], num[1]);
	for (int s = 0; s < SIDES; s++)
		if (num[s] >= 0)
			free_names(names[s], num[s]);
	return good;
}

bool same_tree(struct parity *p)
{
	struct pairs *pairs = calloc(1, sizeof(*pairs));
	bool good = pairs && same_dir(p, pairs, ".");

	free(pairs);
	return good;
}
