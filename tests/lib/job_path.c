/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/lib/job_path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOT_INO 1u
#define SEEN_MAX 64

static const struct core_cred cred = { .uid = 0, .gid = 0, .pid = 1 };

struct walk {
	struct job *j;
	uint64_t seen[SEEN_MAX]; /* looked up on the way */
	size_t num;
	uint64_t parent;
	char name[PATH_MAX];
};

static void see(struct walk *w, uint64_t ino)
{
	if (w->num == SEEN_MAX)
		abort();
	w->seen[w->num++] = ino;
}

static int finish(struct walk *w, int rc)
{
	while (w->num > 0)
		job_forget(w->j, w->seen[--w->num], 1);
	return rc;
}

static int lookup(struct walk *w, struct core_entry *ret)
{
	if (w->name[0] == '\0') {
		*ret = (struct core_entry){ 0 };
		ret->ino = ROOT_INO;
		return job_getattr(w->j, ROOT_INO, NULL, ret);
	}
	int rc = job_lookup(w->j, w->parent, w->name, ret);

	if (rc == 0)
		see(w, ret->ino);
	return rc;
}

/* To the last component, which is not looked up. */
static int walk_to_parent(struct walk *w, struct job *j, const char *path)
{
	char copy[PATH_MAX], *save = NULL;

	*w = (struct walk){ .j = j, .parent = ROOT_INO };
	snprintf(copy, sizeof(copy), "%s", path);
	char *part = strtok_r(copy, "/", &save);
	while (part) {
		char *next = strtok_r(NULL, "/", &save);
		struct core_entry e;

		snprintf(w->name, sizeof(w->name), "%s", part);
		if (!next)
			return 0;
		int rc = lookup(w, &e);
		if (rc == 0 && !S_ISDIR(e.attr.st_mode))
			rc = S_ISLNK(e.attr.st_mode) ? -ENOENT : -ENOTDIR;
		if (rc < 0)
			return rc;
		w->parent = e.ino;
		part = next;
	}
	return 0;
}

static int walk(struct walk *w, struct job *j, const char *path, struct core_entry *ret)
{
	int rc = walk_to_parent(w, j, path);

	return rc < 0 ? rc : lookup(w, ret);
}

/* The last component must not be there. */
static int walk_new(struct walk *w, struct job *j, const char *path)
{
	struct core_entry e;
	int rc = walk(w, j, path, &e);

	return rc == 0 ? -EEXIST : rc == -ENOENT ? walk_to_parent(w, j, path) : rc;
}

/* The kernel looks a name that is gone up again, and says what is there then; so do callers, once. */
static bool again(int rc, int *tries)
{
	return rc == -ESTALE && ++*tries < 4;
}

#define RETRY(call)                              \
	do {                                     \
		int tries_ = 0;                  \
		do                               \
			rc = finish(&w, (call)); \
		while (again(rc, &tries_));      \
	} while (0)

int path_stat(struct job *j, const char *path, struct stat *ret)
{
	struct walk w;
	struct core_entry e;
	int rc;

	RETRY(walk(&w, j, path, &e));
	if (rc == 0)
		*ret = e.attr;
	return rc;
}

static int do_mkdir(struct walk *w, struct job *j, const char *path, mode_t mode)
{
	struct core_entry e;
	int rc = walk_new(w, j, path);

	if (rc == 0)
		rc = job_mkdir(j, w->parent, w->name, mode, cred, &e);
	if (rc == 0)
		see(w, e.ino);
	return rc;
}

int path_mkdir(struct job *j, const char *path, mode_t mode)
{
	struct walk w;
	int rc;

	RETRY(do_mkdir(&w, j, path, mode));
	return rc;
}

static int do_create(struct walk *w, struct job *j, const char *path, mode_t mode, int flags)
{
	struct core_entry e;
	struct core_open_reply open;
	struct job_file *file;
	int rc = walk(w, j, path, &e);

	if (rc == 0 && flags & O_EXCL)
		return -EEXIST;
	if (rc == 0 && !S_ISREG(e.attr.st_mode))
		return S_ISDIR(e.attr.st_mode) ? -EISDIR : -ELOOP;
	if (rc == 0) /* opening is not what is tried here */
		return 0;
	if (rc != -ENOENT)
		return rc;
	finish(w, 0);
	rc = walk_to_parent(w, j, path);
	if (rc == 0)
		rc = job_create_file(j, w->parent, w->name, mode, flags | O_WRONLY | O_CREAT, cred, &e, &file, &open);
	if (rc == 0) {
		see(w, e.ino);
		job_release(j, file);
	}
	return rc;
}

int path_create(struct job *j, const char *path, mode_t mode, int flags)
{
	struct walk w;
	int rc;

	RETRY(do_create(&w, j, path, mode, flags));
	return rc;
}

static int do_open(struct walk *w, struct job *j, const char *path, int flags, struct path_file *f)
{
	struct core_open_reply reply;
	struct core_entry e;
	int rc = walk(w, j, path, &e);

	*f = (struct path_file){ .j = j };
	if (rc == 0)
		rc = job_open(j, e.ino, flags, &f->file, &reply);
	if (rc < 0)
		return rc;
	f->ino = e.ino;
	w->num--; /* seen for as long as it is open */
	return 0;
}

int path_open(struct job *j, const char *path, int flags, struct path_file *ret)
{
	struct walk w;
	int rc;

	RETRY(do_open(&w, j, path, flags, ret));
	return rc;
}

int path_close(struct path_file *f)
{
	int rc = job_flush(f->j, f->file);

	job_release(f->j, f->file);
	job_forget(f->j, f->ino, 1);
	return rc;
}

static int do_mknod(struct walk *w, struct job *j, const char *path, mode_t mode)
{
	struct core_entry e;
	int rc = walk_new(w, j, path);

	if (rc == 0)
		rc = job_mknod(j, w->parent, w->name, mode, 0, cred, &e);
	if (rc == 0)
		see(w, e.ino);
	return rc;
}

int path_mknod(struct job *j, const char *path, mode_t mode)
{
	struct walk w;
	int rc;

	RETRY(do_mknod(&w, j, path, mode));
	return rc;
}

static int do_symlink(struct walk *w, struct job *j, const char *target, const char *path)
{
	struct core_entry e;
	int rc = walk_new(w, j, path);

	if (rc == 0)
		rc = job_symlink(j, w->parent, w->name, target, cred, &e);
	if (rc == 0)
		see(w, e.ino);
	return rc;
}

int path_symlink(struct job *j, const char *target, const char *path)
{
	struct walk w;
	int rc;

	RETRY(do_symlink(&w, j, target, path));
	return rc;
}

static int do_readlink(struct walk *w, struct job *j, const char *path, char *out, size_t cap)
{
	struct core_entry e;
	int rc = walk(w, j, path, &e);

	return rc == 0 ? job_readlink(j, e.ino, out, cap) : rc;
}

int path_readlink(struct job *j, const char *path, char *out, size_t cap)
{
	struct walk w;
	int rc;

	RETRY(do_readlink(&w, j, path, out, cap));
	return rc;
}

static int do_link(struct walk *w, struct job *j, const char *from, const char *to)
{
	struct walk target;
	struct core_entry e, made;
	int rc = walk(w, j, from, &e);

	if (rc < 0)
		return rc;
	rc = walk_new(&target, j, to);
	if (rc == 0 && S_ISDIR(e.attr.st_mode))
		rc = -EPERM;
	if (rc == 0)
		rc = job_link(j, e.ino, target.parent, target.name, &made);
	if (rc == 0)
		see(&target, made.ino);
	return finish(&target, rc);
}

int path_link(struct job *j, const char *from, const char *to)
{
	struct walk w;
	int rc;

	RETRY(do_link(&w, j, from, to));
	return rc;
}

static int do_remove(struct walk *w, struct job *j, const char *path, bool dir)
{
	struct core_entry e;
	int rc = walk(w, j, path, &e);

	if (rc == 0 && S_ISDIR(e.attr.st_mode) != dir)
		rc = dir ? -ENOTDIR : -EISDIR;
	if (rc < 0)
		return rc;
	return dir ? job_rmdir(j, w->parent, w->name) : job_unlink(j, w->parent, w->name);
}

int path_unlink(struct job *j, const char *path)
{
	struct walk w;
	int rc;

	RETRY(do_remove(&w, j, path, false));
	return rc;
}

int path_rmdir(struct job *j, const char *path)
{
	struct walk w;
	int rc;

	RETRY(do_remove(&w, j, path, true));
	return rc;
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && path[n] == '/';
}

/* What the kernel checks before it asks the file system. */
static int check_rename(const char *from, const char *to, const struct core_entry *a, const struct core_entry *b,
	int there, unsigned int flags)
{
	if (there == 0 && flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (there < 0 && flags & RENAME_EXCHANGE)
		return -ENOENT;
	if (is_below(to, from))
		return -EINVAL;
	if (is_below(from, to))
		return flags & RENAME_EXCHANGE ? -EINVAL : -ENOTEMPTY;
	if (there < 0 || a->ino == b->ino)
		return there < 0 ? 0 : 1;
	if (flags & RENAME_EXCHANGE || S_ISDIR(a->attr.st_mode) == S_ISDIR(b->attr.st_mode))
		return 0;
	return S_ISDIR(a->attr.st_mode) ? -ENOTDIR : -EISDIR;
}

static int do_rename(struct walk *w, struct job *j, const char *from, const char *to, unsigned int flags)
{
	struct walk target;
	struct core_entry a, b;
	int rc = walk_to_parent(w, j, from);

	if (rc < 0)
		return rc;
	rc = walk_to_parent(&target, j, to);
	if (rc == 0)
		rc = lookup(w, &a);
	if (rc == 0) {
		int there = lookup(&target, &b);

		rc = there < 0 && there != -ENOENT ? there : check_rename(from, to, &a, &b, there, flags);
	}
	if (rc == 0)
		rc = job_rename(j, w->parent, w->name, target.parent, target.name, flags);
	return finish(&target, rc > 0 ? 0 : rc);
}

int path_rename(struct job *j, const char *from, const char *to, unsigned int flags)
{
	struct walk w;
	int rc;

	RETRY(do_rename(&w, j, from, to, flags));
	return rc;
}

static int do_setattr(struct walk *w, struct job *j, const char *path, const struct stat *attr, unsigned int set)
{
	struct core_entry e, now;
	int rc = walk(w, j, path, &e);

	return rc == 0 ? job_setattr(j, e.ino, attr, set, NULL, &now) : rc;
}

int path_chmod(struct job *j, const char *path, mode_t mode)
{
	struct stat attr = { .st_mode = mode };
	struct walk w;
	int rc;

	struct stat now;
	rc = path_stat(j, path, &now);
	if (rc < 0)
		return rc;
	attr.st_mode = (now.st_mode & S_IFMT) | (mode & 07777);
	RETRY(do_setattr(&w, j, path, &attr, CORE_SET_MODE));
	return rc;
}

int path_truncate(struct job *j, const char *path, off_t size)
{
	struct stat attr = { .st_size = size };
	struct walk w;
	int rc;

	RETRY(do_setattr(&w, j, path, &attr, CORE_SET_SIZE));
	return rc;
}

static int do_setxattr(struct walk *w, struct job *j, const char *path, const char *name, const char *value, int flags)
{
	struct core_entry e;
	int rc = walk(w, j, path, &e);

	return rc == 0 ? job_setxattr(j, e.ino, name, value, strlen(value), flags) : rc;
}

int path_setxattr(struct job *j, const char *path, const char *name, const char *value, int flags)
{
	struct walk w;
	int rc;

	RETRY(do_setxattr(&w, j, path, name, value, flags));
	return rc;
}

static int do_getxattr(struct walk *w, struct job *j, const char *path, const char *name, char *out, size_t cap)
{
	struct core_entry e;
	int rc = walk(w, j, path, &e);

	return rc == 0 ? (int)job_getxattr(j, e.ino, name, out, cap) : rc;
}

int path_getxattr(struct job *j, const char *path, const char *name, char *out, size_t cap)
{
	struct walk w;
	int rc;

	RETRY(do_getxattr(&w, j, path, name, out, cap));
	return rc;
}

static int do_removexattr(struct walk *w, struct job *j, const char *path, const char *name)
{
	struct core_entry e;
	int rc = walk(w, j, path, &e);

	return rc == 0 ? job_removexattr(j, e.ino, name) : rc;
}

int path_removexattr(struct job *j, const char *path, const char *name)
{
	struct walk w;
	int rc;

	RETRY(do_removexattr(&w, j, path, name));
	return rc;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_dir(struct job *j, uint64_t ino, char *out, size_t cap)
{
	static const size_t max = 4096;
	char **names = calloc(max, sizeof(*names));
	struct job_dir *dir;
	const char *name;
	uint64_t child;
	uint32_t type;
	size_t num = 0;
	int rc = job_opendir(j, ino, &dir);

	if (rc < 0) {
		free(names);
		return rc;
	}
	for (uint64_t i = 0; num < max && (rc = job_readdir(j, dir, i, &name, &child, &type)) == 0; i++)
		if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
			names[num++] = strdup(name);
	job_closedir(j, dir);
	qsort(names, num, sizeof(*names), compare_names);
	out[0] = '\0';
	for (size_t i = 0; i < num; i++) {
		size_t len = strlen(out);

		snprintf(out + len, cap - len, "%s\n", names[i]);
		free(names[i]);
	}
	free(names);
	return rc == -ENOENT ? 0 : rc;
}

static int do_list(struct walk *w, struct job *j, const char *path, char *out, size_t cap)
{
	struct core_entry e;
	int rc = walk(w, j, path, &e);

	if (rc == 0 && !S_ISDIR(e.attr.st_mode))
		rc = -ENOTDIR;
	return rc == 0 ? list_dir(j, e.ino, out, cap) : rc;
}

int path_list(struct job *j, const char *path, char *out, size_t cap)
{
	struct walk w;
	int rc;

	RETRY(do_list(&w, j, path, out, cap));
	return rc;
}
