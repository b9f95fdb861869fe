/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_SINK_SINK_H
#define MPI_AGENT_SINK_SINK_H

/*
 * A sink is where drained data go: the only code that touches the destination directory. Paths are relative to its
 * root ("." is the root itself), components are never followed through symbolic links. All functions return 0 (or
 * what is said) or -errno. Modes stop nobody who owns what they are of: rights that are missing are taken and given back.
 * Names are one thread's; functions on an open file may run beside them in another thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct sink;
struct sink_file;

enum sink_open {
	SINK_CREATE, /* a new regular file, 0600; -EEXIST when the name is taken */
	SINK_UPDATE, /* an existing regular file, to be changed in place */
	SINK_READ,   /* an existing regular file */
	SINK_ATTR,   /* anything that exists, for its attributes only (a symbolic link: itself) */
};

struct sink_attr {
	uint32_t mode, uid, gid;
	int64_t atime_ns, mtime_ns;
	bool times_only;
};

struct sink_ops {
	void (*destroy)(struct sink *s);
	uint64_t (*changes)(const struct sink *s); /* calls so far that changed something */
	int (*stat)(struct sink *s, const char *path, struct stat *ret);
	/* each(name, arg) for every entry but "." and ".."; stops when it returns non-zero and returns that. */
	int (*list)(struct sink *s, const char *path, int (*each)(const char *name, void *arg), void *arg);
	int (*space)(struct sink *s, uint64_t *ret_free_bytes);
	int (*mkdir)(struct sink *s, const char *path); /* 0700 until its attributes are set */
	int (*symlink)(struct sink *s, const char *target, const char *path);
	int (*link)(struct sink *s, const char *from, const char *to);
	int (*rename)(struct sink *s, const char *from, const char *to, bool is_dir);
	/* Of what is no directory: what is at to stays, -EEXIST. -EOPNOTSUPP: that cannot be had here in one step. */
	int (*rename_new)(struct sink *s, const char *from, const char *to);
	/* Both are there, neither is a directory, and they change places. -EOPNOTSUPP: likewise. */
	int (*exchange)(struct sink *s, const char *one, const char *other);
	int (*remove)(struct sink *s, const char *path, bool is_dir);
	/* Counts the directory of path as changed: what was found there is to be durable, too. */
	int (*mark)(struct sink *s, const char *path);
	/* Every change of names made before is durable when it returns 0; an error is one for good. */
	int (*sync_names)(struct sink *s);
	int (*open)(struct sink *s, const char *path, enum sink_open how, struct sink_file **ret);

	void (*close)(struct sink_file *f);
	int (*pwrite)(struct sink_file *f, const void *buf, size_t len, uint64_t off); /* all of it */
	/* As pwrite, without a copy in the page cache where that can be: for much that nobody reads back soon. */
	int (*pwrite_past)(struct sink_file *f, const void *buf, size_t len, uint64_t off);
	ssize_t (*pread)(struct sink_file *f, void *buf, size_t len, uint64_t off); /* short only at the end */
	int (*zero)(
		struct sink_file *f, uint64_t off, uint64_t len); /* a hole where there can be one; size unchanged */
	int (*truncate)(struct sink_file *f, uint64_t size);
	void (*write_out)(
		struct sink_file *f, uint64_t off, uint64_t len); /* begin writing to the device; no promise */
	/* Everything in that range is on the device, as far as data go, or its error is told here and not by sync. */
	int (*write_wait)(struct sink_file *f, uint64_t off, uint64_t len);
	void (*drop_cache)(struct sink_file *f);
	/* *ret: where data begin at or behind off, or the file's end; off itself where holes cannot be told from data. */
	int (*next_data)(struct sink_file *f, uint64_t off, uint64_t *ret);
	int (*sync)(struct sink_file *f, bool data_only);
	int (*fstat)(struct sink_file *f, struct stat *ret);
	/* A descriptor for programs that work on the file themselves; borrowed. -1: there is none. */
	int (*descriptor)(struct sink_file *f);
	/* *ret_warning (a static text, else NULL): what could not be set though all else was. */
	int (*set_attr)(struct sink_file *f, const struct sink_attr *attr, const char **ret_warning);
	/* -E2BIG: more than the destination takes of a file's attributes. */
	int (*set_xattr)(struct sink_file *f, const char *name, const void *val, size_t len);
	ssize_t (*get_xattr)(struct sink_file *f, const char *name, void *val, size_t cap); /* length */
	int (*remove_xattr)(struct sink_file *f, const char *name);
	int (*list_xattrs)(struct sink_file *f, int (*each)(const char *name, void *arg), void *arg);
};

struct sink {
	const struct sink_ops *ops;
};

struct sink_file {
	const struct sink_ops *ops;
};

/*
 * A directory of this machine's file systems. For tests of crashes: with CISTERN_AGENT_ABORT_AFTER=N in the environment
 * the process ends, as by SIGKILL, right after the N-th call that changed the directory.
 */
int sink_posix_create(int dirfd, struct sink **ret); /* dirfd is duplicated */
/* The same for who only reads: what its owner may not, it does not either, and no mode is changed for that. */
int sink_posix_create_to_read(int dirfd, struct sink **ret);

void sink_destroy(struct sink *s);         /* NULL is fine */
void sink_file_close(struct sink_file *f); /* NULL is fine */

#endif
