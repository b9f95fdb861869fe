/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The sink that keeps nothing: names, sizes and attributes live in memory until it is destroyed, data are counted and
 * dropped, and what is read back is zeros. It is there to be copied (docs/adding-a-format.md): each function says what a real
 * sink owes here. It also drains as fast as a drain can be without a destination.
 *
 * The invariant: every name but "." has a parent that is a directory; a name's file lives as long as it has a name or is open.
 * Looking for a name is linear, which a real sink leaves to its file system.
 */
#include "mpi-agent/sink/sink_null.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/base/clock.h"

#define NO_NAME SIZE_MAX

struct null_inode {
	struct stat st;     /* what stat() shows */
	unsigned int users; /* open files; st_nlink counts names */
};

struct null_name {
	char *path;            /* owned; relative to the root, which is "." */
	struct null_inode *in; /* counted by its st_nlink */
};

/* The first member is the table's struct, so that one is the other. */
struct sink_null {
	struct sink sink;
	struct null_name *names; /* owned */
	size_t num, cap;
	uint64_t next_ino;
	_Atomic uint64_t changes, bytes; /* files may be written to by another thread than that of names */
};

struct sink_null_file {
	struct sink_file file;
	struct sink_null *sink;
	struct null_inode *in; /* counted by its users */
};

static struct sink_null *sink_of(struct sink *s)
{
	return (struct sink_null *)s;
}

static struct sink_null_file *file_of(struct sink_file *f)
{
	return (struct sink_null_file *)f;
}

/* ---- names */

static size_t find(const struct sink_null *s, const char *path)
{
	for (size_t i = 0; i < s->num; i++)
		if (strcmp(s->names[i].path, path) == 0)
			return i;
	return NO_NAME;
}

/* Does path lie right in directory? *ret_name: its last component. */
static bool is_in(const char *path, const char *directory, const char **ret_name)
{
	const char *slash = strrchr(path, '/');

	*ret_name = slash ? slash + 1 : path;
	if (strcmp(path, ".") == 0)
		return false;
	if (strcmp(directory, ".") == 0)
		return !slash;
	return slash && strlen(directory) == (size_t)(slash - path) && strncmp(path, directory, strlen(directory)) == 0;
}

static bool has_members(const struct sink_null *s, const char *directory)
{
	const char *name;

	for (size_t i = 0; i < s->num; i++)
		if (is_in(s->names[i].path, directory, &name))
			return true;
	return false;
}

/* -ENOENT, -ENOTDIR: the directory that path would be in is none. */
static int check_parent(const struct sink_null *s, const char *path)
{
	const char *slash = strrchr(path, '/');
	char *parent = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	size_t at = parent ? find(s, parent) : NO_NAME;

	free(parent);
	if (at == NO_NAME)
		return -ENOENT;
	return S_ISDIR(s->names[at].in->st.st_mode) ? 0 : -ENOTDIR;
}

static void release(struct null_inode *in)
{
	if (in->st.st_nlink == 0 && in->users == 0)
		free(in);
}

static int add_name(struct sink_null *s, const char *path, struct null_inode *in)
{
	char *copy = strdup(path);

	if (!copy || array_room(&s->names, &s->cap, s->num, sizeof(*s->names)) < 0) {
		free(copy);
		return -ENOMEM;
	}
	s->names[s->num++] = (struct null_name){ copy, in };
	in->st.st_nlink++;
	atomic_fetch_add(&s->changes, 1);
	return 0;
}

static void remove_name(struct sink_null *s, size_t at)
{
	struct null_inode *in = s->names[at].in;

	free(s->names[at].path);
	s->names[at] = s->names[--s->num];
	in->st.st_nlink--;
	release(in);
	atomic_fetch_add(&s->changes, 1);
}

static int make(struct sink_null *s, const char *path, mode_t mode)
{
	struct null_inode *in;
	int r = strcmp(path, ".") == 0 ? 0 : check_parent(s, path);

	if (r < 0)
		return r;
	if (find(s, path) != NO_NAME)
		return -EEXIST;
	in = calloc(1, sizeof(*in));
	if (!in)
		return -ENOMEM;
	in->st.st_mode = mode;
	in->st.st_ino = ++s->next_ino;
	r = add_name(s, path, in);
	if (r < 0)
		free(in);
	return r;
}

/* A real sink fills all of struct stat that it has. st_ino must tell files apart, and stay the same under rename. */
static int null_stat(struct sink *sink, const char *path, struct stat *ret)
{
	struct sink_null *s = sink_of(sink);
	size_t at = find(s, path);

	if (at == NO_NAME)
		return -ENOENT;
	*ret = s->names[at].in->st;
	return 0;
}

/* each() may remove what it is told of. */
static int null_list(struct sink *sink, const char *path, int (*each)(const char *name, void *arg), void *arg)
{
	struct sink_null *s = sink_of(sink);
	const char *name;
	int r = 0;

	if (find(s, path) == NO_NAME)
		return -ENOENT;
	for (size_t i = s->num; r == 0 && i-- > 0;)
		if (i < s->num && is_in(s->names[i].path, path, &name)) {
			char *copy = strdup(name);

			r = copy ? each(copy, arg) : -ENOMEM;
			free(copy);
		}
	return r;
}

/* Shown to people when something does not fit. */
static int null_space(struct sink *sink, uint64_t *ret_free_bytes)
{
	(void)sink;
	*ret_free_bytes = UINT64_MAX;
	return 0;
}

static int null_mkdir(struct sink *sink, const char *path)
{
	return make(sink_of(sink), path, S_IFDIR | 0700);
}

static int null_symlink(struct sink *sink, const char *target, const char *path)
{
	int r = make(sink_of(sink), path, S_IFLNK | 0777);

	if (r == 0)
		sink_of(sink)->names[find(sink_of(sink), path)].in->st.st_size = (off_t)strlen(target);
	return r;
}

static int null_link(struct sink *sink, const char *from, const char *to)
{
	struct sink_null *s = sink_of(sink);
	size_t at = find(s, from);
	int r = check_parent(s, to);

	if (r < 0 || at == NO_NAME)
		return r < 0 ? r : -ENOENT;
	if (S_ISDIR(s->names[at].in->st.st_mode))
		return -EPERM;
	return find(s, to) == NO_NAME ? add_name(s, to, s->names[at].in) : -EEXIST;
}

/* What is under a directory moves with it. */
static int move_members(struct sink_null *s, const char *from, const char *to)
{
	size_t len = strlen(from);

	for (size_t i = 0; i < s->num; i++) {
		char *path = s->names[i].path, *moved;

		if (strncmp(path, from, len) != 0 || path[len] != '/')
			continue;
		if (asprintf(&moved, "%s%s", to, path + len) < 0)
			return -ENOMEM;
		free(path);
		s->names[i].path = moved;
	}
	return 0;
}

/* In a real sink this is the moment at which a new file appears: it must be atomic, and replace what is there. */
static int null_rename(struct sink *sink, const char *from, const char *to, bool is_dir)
{
	struct sink_null *s = sink_of(sink);
	size_t at = find(s, from), there;
	char *path;
	int r = check_parent(s, to);

	if (r < 0 || at == NO_NAME)
		return r < 0 ? r : -ENOENT;
	there = find(s, to);
	if (there != NO_NAME && has_members(s, to))
		return -ENOTEMPTY;
	path = strdup(to);
	if (!path)
		return -ENOMEM;
	if (is_dir)
		r = move_members(s, from, to);
	if (r < 0) {
		free(path);
		return r;
	}
	free(s->names[at].path);
	s->names[at].path = path;
	if (there != NO_NAME && there != at)
		remove_name(s, there);
	atomic_fetch_add(&s->changes, 1);
	return 0;
}

static int null_rename_new(struct sink *sink, const char *from, const char *to)
{
	return find(sink_of(sink), to) == NO_NAME ? null_rename(sink, from, to, false) : -EEXIST;
}

static int null_exchange(struct sink *sink, const char *one, const char *other)
{
	(void)sink, (void)one, (void)other;
	return -EOPNOTSUPP;
}

static int null_remove(struct sink *sink, const char *path, bool is_dir)
{
	struct sink_null *s = sink_of(sink);
	size_t at = find(s, path);

	if (at == NO_NAME)
		return -ENOENT;
	if (S_ISDIR(s->names[at].in->st.st_mode) != is_dir)
		return is_dir ? -ENOTDIR : -EISDIR;
	if (is_dir && has_members(s, path))
		return -ENOTEMPTY;
	remove_name(s, at);
	return 0;
}

static int null_mark(struct sink *sink, const char *path)
{
	(void)sink;
	(void)path;
	return 0;
}

/* A real sink returns 0 only when every name that was made, moved or removed so far survives the loss of power. */
static int null_sync_names(struct sink *sink)
{
	(void)sink;
	return 0;
}

static int null_open(struct sink *sink, const char *path, enum sink_open how, struct sink_file **ret)
{
	struct sink_null *s = sink_of(sink);
	int r = how == SINK_CREATE ? make(s, path, S_IFREG | 0600) : 0;
	size_t at = r == 0 ? find(s, path) : NO_NAME;
	struct sink_null_file *f;

	if (r < 0 || at == NO_NAME)
		return r < 0 ? r : -ENOENT;
	if (how != SINK_ATTR && !S_ISREG(s->names[at].in->st.st_mode))
		return S_ISLNK(s->names[at].in->st.st_mode) ? -ELOOP : -EISDIR;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	*f = (struct sink_null_file){ .file.ops = sink->ops, .sink = s, .in = s->names[at].in };
	f->in->users++;
	*ret = &f->file;
	return 0;
}

/* ---- open files: one thread at a time for each, but perhaps another one than that of names */

static void null_close(struct sink_file *file)
{
	struct sink_null_file *f = file_of(file);

	f->in->users--;
	release(f->in);
	free(f);
}

static void grow(struct sink_null_file *f, uint64_t end)
{
	if ((uint64_t)f->in->st.st_size < end)
		f->in->st.st_size = (off_t)end;
	atomic_fetch_add(&f->sink->changes, 1);
}

/* All of it or -errno. Ranges come in the order of the file, as large as they can be; the head of an existing file comes last. */
static int null_pwrite(struct sink_file *file, const void *buf, size_t len, uint64_t off)
{
	(void)buf; /* dropped */
	atomic_fetch_add(&file_of(file)->sink->bytes, len);
	grow(file_of(file), off + len);
	return 0;
}

/* For verify=read and format: a sink that cannot read back refuses (-ENOTSUP), and such drains fail. This one gives zeros. */
static ssize_t null_pread(struct sink_file *file, void *buf, size_t len, uint64_t off)
{
	uint64_t size = (uint64_t)file_of(file)->in->st.st_size;

	if (off >= size)
		return 0;
	if (len > size - off)
		len = (size_t)(size - off);
	memset(buf, 0, len);
	return (ssize_t)len;
}

static int null_zero(struct sink_file *file, uint64_t off, uint64_t len)
{
	(void)off;
	(void)len;
	grow(file_of(file), 0);
	return 0;
}

static int null_truncate(struct sink_file *file, uint64_t size)
{
	file_of(file)->in->st.st_size = (off_t)size;
	grow(file_of(file), 0);
	return 0;
}

static void null_write_out(struct sink_file *file, uint64_t off, uint64_t len)
{
	(void)file;
	(void)off;
	(void)len;
}

static int null_write_wait(struct sink_file *file, uint64_t off, uint64_t len)
{
	(void)file;
	(void)off;
	(void)len;
	return 0;
}

static void null_drop_cache(struct sink_file *file)
{
	(void)file;
}

static int null_next_data(struct sink_file *file, uint64_t off, uint64_t *ret)
{
	(void)file;
	*ret = off;
	return 0;
}

/* A real sink returns 0 only when data (and unless data_only size and attributes) survive the loss of power: after it the log
 * gives its copy up. */
static int null_sync(struct sink_file *file, bool data_only)
{
	(void)file;
	(void)data_only;
	return 0;
}

static int null_fstat(struct sink_file *file, struct stat *ret)
{
	*ret = file_of(file)->in->st;
	return 0;
}

static int null_descriptor(struct sink_file *file)
{
	(void)file;
	return -1;
}

/* What cannot be set though the rest was (a foreign owner) is a warning, not a failure. */
static int null_set_attr(struct sink_file *file, const struct sink_attr *attr, const char **ret_warning)
{
	struct stat *st = &file_of(file)->in->st;

	*ret_warning = NULL;
	if (!attr->times_only) {
		st->st_mode = (st->st_mode & S_IFMT) | (attr->mode & 07777);
		st->st_uid = attr->uid;
		st->st_gid = attr->gid;
	}
	st->st_atim = clock_timespec(attr->atime_ns);
	st->st_mtim = clock_timespec(attr->mtime_ns);
	grow(file_of(file), 0);
	return 0;
}

/* -EOPNOTSUPP: the file's entry in the manifest says that the destination does not take them. */
static int null_set_xattr(struct sink_file *file, const char *name, const void *val, size_t len)
{
	(void)file;
	(void)name;
	(void)val;
	(void)len;
	return -EOPNOTSUPP;
}

static ssize_t null_get_xattr(struct sink_file *file, const char *name, void *val, size_t cap)
{
	(void)file;
	(void)name;
	(void)val;
	(void)cap;
	return -ENODATA;
}

static int null_remove_xattr(struct sink_file *file, const char *name)
{
	(void)file;
	(void)name;
	return -ENODATA;
}

static int null_list_xattrs(struct sink_file *file, int (*each)(const char *name, void *arg), void *arg)
{
	(void)file;
	(void)each;
	(void)arg;
	return 0;
}

/* ---- the sink */

static void null_destroy(struct sink *sink)
{
	struct sink_null *s = sink_of(sink);

	while (s->num > 0)
		remove_name(s, s->num - 1);
	free(s->names);
	free(s);
}

static uint64_t null_changes(const struct sink *sink)
{
	return atomic_load(&((const struct sink_null *)sink)->changes);
}

static const struct sink_ops null_ops = {
	.destroy = null_destroy,
	.changes = null_changes,
	.stat = null_stat,
	.list = null_list,
	.space = null_space,
	.mkdir = null_mkdir,
	.symlink = null_symlink,
	.link = null_link,
	.rename = null_rename,
	.rename_new = null_rename_new,
	.exchange = null_exchange,
	.remove = null_remove,
	.mark = null_mark,
	.sync_names = null_sync_names,
	.open = null_open,
	.close = null_close,
	.pwrite = null_pwrite,
	.pwrite_past = null_pwrite,
	.pread = null_pread,
	.zero = null_zero,
	.truncate = null_truncate,
	.write_out = null_write_out,
	.write_wait = null_write_wait,
	.drop_cache = null_drop_cache,
	.next_data = null_next_data,
	.sync = null_sync,
	.fstat = null_fstat,
	.descriptor = null_descriptor,
	.set_attr = null_set_attr,
	.set_xattr = null_set_xattr,
	.get_xattr = null_get_xattr,
	.remove_xattr = null_remove_xattr,
	.list_xattrs = null_list_xattrs,
};

int sink_null_create(struct sink **ret)
{
	struct sink_null *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->sink.ops = &null_ops;
	r = make(s, ".", S_IFDIR | 0755);
	if (r < 0)
		null_destroy(&s->sink);
	else
		*ret = &s->sink;
	return r;
}

uint64_t sink_null_bytes(const struct sink *s)
{
	return atomic_load(&((const struct sink_null *)s)->bytes);
}
