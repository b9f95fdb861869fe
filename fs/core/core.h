/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_CORE_CORE_H
#define FS_CORE_CORE_H

/*
 * The file system behind the door: an overlay of a store over a backing directory, as plain functions on inode
 * numbers. Knows no FUSE; fs/ops unpacks requests, calls these and replies. Every function returns 0 (or a count) or
 * -errno, is atomic towards the others, and may be called from any thread. Permissions are the kernel's business
 * (default_permissions); the caller's uid and gid only say who owns what is created.
 */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "cistern/error.h"
#include "format/base/config.h"
#include "format/store/store.h"
#include "format/store/straggler.h"

struct core;
struct core_file; /* an open file */
struct core_dir;  /* an open directory */

/* What the kernel can do; found out by fs/session when the connection is set up. */
struct core_kernel {
	bool passthrough; /* FUSE_PASSTHROUGH and the right to use it */
	bool direct_mmap; /* FUSE_DIRECT_IO_ALLOW_MMAP: direct I/O is coherent with mmap and the page cache */
};

struct core_hooks { /* called without locks held unless said; arg is handed back */
	/* Register fd as a backing file of the FUSE connection: id > 0 or -errno; and give it back. May be called under a node's lock. */
	int (*backing_open)(int fd, void *arg);
	void (*backing_close)(int backing_id, void *arg);
	/* The store fills (used >= high water) or a writer waits for room: drain soon. Cheap, never blocks, under locks. */
	void (*want_drain)(bool urgent, void *arg);
	/* This thread begins, or has ended, to wait for room, perhaps for long. Without locks. */
	void (*waits)(bool begins, void *arg);
	/* core_tick has something to look at again. Cheap, never blocks, under locks. */
	void (*wake)(void *arg);
	/* The kernel's cached attributes and pages (data true) of ino are out of date. Without locks. */
	void (*invalidate)(uint64_t ino, bool data, void *arg);
	/* A read fails, since the log does not give back what was written: text says of what and where. Under locks. */
	void (*unreadable)(const char *text, void *arg);
	/*
	 * Who has asked this thread for something has died, and was told that it is not done. And:
	 * this thread does now what it was asked for, and nobody is told so any more; false: somebody
	 * was. With begins false: it has done so, or not after all. Cheap, under locks; may be NULL.
	 */
	bool (*unwanted)(void *arg);
	bool (*commits)(bool begins, void *arg);
	void *arg;
};

struct core_entry {
	uint64_t ino;
	uint64_t gen;
	struct stat attr;
	double entry_timeout_sec, attr_timeout_sec;
	uint64_t stamp; /* of the backing file that has all of a file's bytes; never 1. 0: there is none */
};

struct core_cred {
	uid_t uid;
	gid_t gid;
	pid_t pid;
};

/* How the kernel shall treat an open file (the FOPEN_* choice). */
struct core_open_reply {
	struct core_file *file;
	bool direct_io; /* FOPEN_DIRECT_IO (and PARALLEL_DIRECT_WRITES when parallel) */
	bool parallel;
	bool keep_cache; /* FOPEN_KEEP_CACHE */
	uint64_t stamp;  /* as in core_entry */
	bool had_pages;  /* the kernel may have some of it, from before */
	int backing_id;  /* > 0: FOPEN_PASSTHROUGH with this id */
};

/*
 * store and cfg are borrowed for the core's life; backing_fd: O_PATH|O_DIRECTORY or better (dup'd). Root is looked up and stays.
 */
int core_create(struct store *store, const struct config *cfg, int backing_fd, const struct core_hooks *hooks,
	struct core **ret, struct cistern_error *err);
void core_set_kernel(struct core *c, const struct core_kernel *k);
const struct core_kernel *core_kernel(const struct core *c); /* as it was set */
/* The mount is gone: files without a name that the kernel still knew are freed. Before the final drain. */
void core_unmounted(struct core *c);
/* That a file may have, since one in the backing directory may. Any thread. */
uint64_t core_max_bytes(const struct core *c);
uint64_t core_backing_timeout_usec(const struct core *c); /* the setting */
/* Where the backing directory is now, which may have been renamed since the mount; else as the store has it. Any thread. */
void core_backing_path(struct core *c, char out[PATH_MAX]);
void core_destroy(struct core *c); /* no file may be open; does not close the store */

/* Names. parent and ino are numbers that a lookup gave and that were not forgotten since. */
int core_lookup(struct core *c, uint64_t parent, const char *name,
	struct core_entry *ret); /* -ENOENT fills ret->entry_timeout_sec */
void core_forget(struct core *c, uint64_t ino, uint64_t nlookup);
int core_getattr(struct core *c, uint64_t ino, struct core_file *file /* or NULL */, struct core_entry *ret);
/* to_set: CORE_SET_* bits. atime/mtime in attr->st_atim/st_mtim. */
enum core_set {
	CORE_SET_MODE = 1,
	CORE_SET_UID = 2,
	CORE_SET_GID = 4,
	CORE_SET_SIZE = 8,
	CORE_SET_ATIME = 16,
	CORE_SET_MTIME = 32,
	CORE_SET_ATIME_NOW = 64,
	CORE_SET_MTIME_NOW = 128,
	CORE_SET_CTIME = 256
};
int core_setattr(struct core *c, uint64_t ino, const struct stat *attr, unsigned int to_set, struct core_file *file,
	struct core_entry *ret);
int core_readlink(struct core *c, uint64_t ino, char *out, size_t cap); /* NUL-terminated */
int core_mkdir(
	struct core *c, uint64_t parent, const char *name, mode_t mode, struct core_cred cred, struct core_entry *ret);
int core_symlink(struct core *c, uint64_t parent, const char *name, const char *target, struct core_cred cred,
	struct core_entry *ret);
/* Regular files; FIFOs, sockets and device nodes, which are kept in the store alone and never drained. */
int core_mknod(struct core *c, uint64_t parent, const char *name, mode_t mode, dev_t rdev, struct core_cred cred,
	struct core_entry *ret);
int core_link(struct core *c, uint64_t ino, uint64_t parent, const char *name, struct core_entry *ret);
int core_unlink(struct core *c, uint64_t parent, const char *name);
int core_rmdir(struct core *c, uint64_t parent, const char *name);
int core_rename(struct core *c, uint64_t from_parent, const char *from, uint64_t parent, const char *name,
	unsigned int flags); /* RENAME_* */
/* Are these, as far as is known here, where no name of one can be a name of the other: on different file systems of the backing directory? */
bool core_crosses(struct core *c, uint64_t one, uint64_t other);

/* Files. flags: open(2)'s. */
int core_create_file(struct core *c, uint64_t parent, const char *name, mode_t mode, int flags, struct core_cred cred,
	struct core_entry *ret,
	struct core_open_reply *ret_open); /* O_EXCL was checked by the kernel's lookup and is again here */
int core_tmpfile(struct core *c, uint64_t parent, mode_t mode, int flags, struct core_cred cred, struct core_entry *ret,
	struct core_open_reply *ret_open);
int core_open(struct core *c, uint64_t ino, int flags, struct core_open_reply *ret_open);
void core_release(struct core *c, struct core_file *file);
/* Up to len bytes at off into buf; 0 at end of file. */
ssize_t core_read(struct core *c, struct core_file *file, void *buf, size_t len, uint64_t off);
/* One byte of a file by its number. -ENODATA: it is not so long. */
int core_peek(struct core *c, uint64_t ino, uint64_t off, uint8_t *ret);
/* writer: the process that writes; 0, and core_write: not known. */
ssize_t core_write_as(
	struct core *c, uint32_t writer, struct core_file *file, const void *buf, size_t len, uint64_t off);
/* The same of what counts only while *at is that, which is looked at under the lock that core_cut() takes: -ECANCELED. */
struct core_guard {
	const _Atomic(uint64_t) *at; /* borrowed */
	uint64_t is;
};
ssize_t core_write_while(struct core *c, uint32_t writer, struct core_file *file, const void *buf, size_t len,
	uint64_t off, const struct core_guard *guard /* or NULL */);
ssize_t core_write(struct core *c, struct core_file *file, const void *buf, size_t len, uint64_t off);
int core_fsync(struct core *c, uint64_t ino, struct core_file *file /* or NULL */, bool data_only);
int core_syncfs(struct core *c);
int core_fallocate(struct core *c, struct core_file *file, int mode, uint64_t off, uint64_t len);
int core_lseek(
	struct core *c, struct core_file *file, int64_t off, int whence, uint64_t *ret_off); /* SEEK_DATA, SEEK_HOLE */
/* Bytes copied; may be fewer than len. */
ssize_t core_copy_range(
	struct core *c, struct core_file *from, uint64_t from_off, struct core_file *to, uint64_t to_off, size_t len);

/* Directories: a snapshot of the merged listing, taken at the first read and anew at rewinddir. */
int core_opendir(struct core *c, uint64_t ino, struct core_dir **ret);
void core_closedir(struct core *c, struct core_dir *dir);
/* Entry number index (0, 1, ...: also "." and ".."): 0 and name (borrowed until closedir), ino, type (S_IFMT bits); -ENOENT past the end. */
int core_readdir(struct core *c, struct core_dir *dir, uint64_t index, const char **ret_name, uint64_t *ret_ino,
	uint32_t *ret_type);
int core_rewinddir(struct core *c, struct core_dir *dir);

/* Extended attributes: sizes as the system calls have them (cap 0 asks for the size). */
ssize_t core_getxattr(struct core *c, uint64_t ino, const char *name, void *out, size_t cap);
ssize_t core_listxattr(struct core *c, uint64_t ino, char *out, size_t cap);
bool core_is_bare(
	struct core *c, uint64_t ino); /* it has none, and the backing file is not asked; false: it may have some */
int core_setxattr(struct core *c, uint64_t ino, const char *name, const void *value, size_t len,
	int flags); /* XATTR_CREATE, XATTR_REPLACE */
int core_removexattr(struct core *c, uint64_t ino, const char *name);
int core_statfs(struct core *c, struct statvfs *ret);
/* May the backing directory have to be asked for an inode's attributes, for its content (of a directory: what is in it), for a name? A guess. */
bool core_may_ask(struct core *c, uint64_t ino, bool content);
bool core_name_may_ask(struct core *c, uint64_t parent, const char *name);

/*
 * As one node of a job (fs/job, docs/design/many-nodes.md, 3). From core_join on nodes are found by their number, whether the
 * kernel knows them or not; and directories are changed by tree changes alone: what would change one returns -EREMCHG,
 * also what would need an untouched directory to be adopted first, unless it is between core_tree_begin and
 * core_tree_end in the same thread.
 */
void core_join(struct core *c);
/* What holds the lock of a name knows of it, which may be more than our state and the backing directory say. */
struct core_how {
	uint64_t stamp; /* for the entry that is made; 0: none */
	uint64_t ino; /* remove, rename: the (old) name leads to this inode, else -ESTALE; 0: to whatever it leads to */
	dev_t rdev;   /* make: of a device node */
	bool free;    /* the new name is free, whatever the backing directory has there */
	bool empty;   /* the directory that goes shows nothing on any node */
};
int core_make_at(struct core *c, uint64_t parent, const char *name, mode_t mode, const char *target /* or NULL */,
	struct core_cred cred, const struct core_how *how, struct core_entry *ret); /* mkdir, mknod, symlink, by mode */
int core_create_file_at(struct core *c, uint64_t parent, const char *name, mode_t mode, int flags,
	struct core_cred cred, const struct core_how *how, struct core_entry *ret,
	struct core_open_reply *ret_open); /* -EEXIST also without O_EXCL */
int core_link_at(struct core *c, uint64_t ino, uint64_t parent, const char *name, const struct core_how *how,
	struct core_entry *ret);
int core_remove_at(struct core *c, uint64_t parent, const char *name, bool is_dir, const struct core_how *how);
int core_rename_at(struct core *c, uint64_t from_parent, const char *from, uint64_t parent, const char *name,
	unsigned int flags, const struct core_how *how);
uint32_t core_type(struct core *c, uint64_t ino); /* S_IFMT bits of what the kernel or the state knows; 0: neither */
/* Of these, 1: so it is; 0: it is not. Negative: the state cannot be read. */
int core_is_known(struct core *c, uint64_t ino); /* the state has it, and it has a name */
/* Has the state taken this name of the backing directory over? Then the backing directory does not show it. */
int core_owns_backing(struct core *c, uint64_t parent, const char *name);
/* So it is, or a drain under way may put it there, of a file that has lost the name since the drain began. */
int core_hides_backing(struct core *c, uint64_t parent, const char *name);
bool core_doubts(struct core *c, uint64_t parent, const char *name); /* the latter alone */
/* Calls each(name) for those of the latter in a directory; under a lock: it calls nobody. */
void core_each_doubt(struct core *c, uint64_t parent, void (*each)(const char *name, void *arg), void *arg);
int core_hold(struct core *c, uint64_t ino); /* as a lookup by the kernel: core_forget ends it. -ESTALE */
/* A directory of the tree by its name: counts a lookup. -ENOENT: no directory, or not in the tree. */
int core_tree_lookup(struct core *c, uint64_t parent, const char *name, struct core_entry *ret);
/*
 * What the backing directory has under a name that the tree says nothing of: -ENOENT, or 0. A directory: counts a lookup.
 * Anything else: only its number and type; nothing is held.
 */
int core_backing_lookup(struct core *c, uint64_t parent, const char *name, struct core_entry *ret);
/*
 * Where an untouched file or directory is, for another node: a directory of the tree and a path from there. name NULL: of
 * parent itself, "" when it is in the tree. -ENAMETOOLONG.
 */
int core_hint(struct core *c, uint64_t parent, const char *name, uint64_t *ret_dir, char *out, size_t cap);
/* The inode that was found there, with a lookup counted. -ESTALE: it is there no more, or something else is. Else the state cannot be read. */
int core_find(struct core *c, uint64_t ino, uint64_t dir, const char *path);
/* Bring what is at path below dir into the tree, and all directories on the way. Within a tree change. */
int core_adopt_path(struct core *c, uint64_t dir, const char *path);
/*
 * parent/name leads to ino: both, and that it does, are in the state afterwards, with a stamp that is no lower than this one. -ENOENT:
 * it leads elsewhere.
 */
int core_adopt_name(struct core *c, uint64_t parent, const char *name, uint64_t ino, uint64_t stamp);
/* Names of a directory, of files (not directories) alone or all. cb non-zero stops. */
typedef int core_name_cb(const char *name, uint64_t ino, uint32_t type, void *arg);
int core_each_name(struct core *c, uint64_t ino, core_name_cb *cb, void *arg); /* in the state */
int core_each_backing_owned(
	struct core *c, uint64_t ino, core_name_cb *cb, void *arg); /* taken over from the backing directory */
int core_each_backing(struct core *c, uint64_t ino, core_name_cb *cb, void *arg); /* the backing directory itself */
/* This thread changes the tree until core_tree_end: note gets each record, with its stamp, once it is committed here. */
void core_tree_begin(struct core *c, void (*note)(const struct record *rec, void *arg), void *arg);
void core_tree_end(struct core *c);
/*
 * Commit a record of another node's tree change. 0 also when it was done before. -EILSEQ: records before it are missing. A directory
 * that takes the name of a file of ours gives it its own (RENAME: they change places).
 */
int core_tree_apply(struct core *c, struct record *rec);
bool core_is_below(struct core *c, uint64_t ino, uint64_t dir); /* in the tree: ino is dir or somewhere below it */

/* Drain: the daemon's drain manager calls these around a session and for each step that the agent reports. */
/* Files that may change from now on are marked. leave_open: this session leaves alone what is open for writing now. */
void core_session_begin(struct core *c, bool leave_open);
/* Commits PLACED, REMOVED or DRAINED, and, when the mount is gone, FORGET of a file that is elsewhere now; adds KEEP_PRIVATE to a DRAINED whose file was or could be written since the session began;
 * wakes writers that wait for room; tells the kernel through hooks.invalidate where needed. */
int core_drain_step(struct core *c, struct record *rec);
void core_session_end(struct core *c);
/*
 * What processes still write to through a mount that is dead (format/store/straggler.h), looked at
 * now, with their names. The caller frees it; NULL: *ret_num is 0.
 */
struct straggler *core_stragglers(struct core *c, size_t *ret_num);
/* The connection has ended, and what is open will now be closed in the applications' stead. */
void core_severed(struct core *c);
/* The inodes that this session leaves alone. Fills at most cap; returns how many there are. */
size_t core_session_left_alone(struct core *c, uint64_t *out, size_t cap);

/* Many nodes (docs/design/many-nodes.md): what fs/job needs of files that other nodes use, too. */
/*
 * This is one of a job's nodes: nothing tells which files stay private, so only data=private makes them so. gone: a shared
 * file's inode has been freed, its layers elsewhere are of no use; under no locks but a node's last reference; cheap, never blocks.
 */
void core_set_job(struct core *c, void (*gone)(uint64_t ino, void *arg), void *arg);
/* core_open() of an inode of the state, whether the kernel knows it or not: layers of files of other nodes, too. The kernel does not
 * know of this opening, so it neither chooses nor forbids how the kernel's own reach the data. */
int core_open_number(struct core *c, uint64_t ino, int flags, struct core_open_reply *ret_open);
/* The state knows the file afterwards, as it is in the backing directory. -EREMCHG: as of what changes names. */
int core_adopt(struct core *c, uint64_t ino);
/* Other nodes will write the file: it is adopted, sealed if it was private, and becomes INODE_SHARED. -EBUSY: the kernel may write to it
 * without us, or it is in part in the backing file without having been there before. */
int core_share(struct core *c, struct core_file *file);
/* A private file's data become extents of the log. -EBUSY: the kernel may write to it without us. 0 also if it is not private. */
int core_seal(struct core *c, uint64_t ino);
/* It is private, and the kernel reads and writes it without us. */
bool core_is_kernels(struct core *c, struct core_file *file);
/* To the end of such a file, in one piece, whoever else appends. -ESTALE: it is none. */
int core_append(struct core *c, struct core_file *file, const void *buf, size_t len);
/* Another node has committed bytes: the file is at least size long and was changed at mtime_ns, unless its times were set later. -ESTALE: it is gone. */
int core_grow(struct core *c, uint64_t ino, uint64_t size, int64_t mtime_ns);
/* ftruncate() of an inode of the state; a layer of another node's file only becomes shorter. -ESTALE: there is none. */
int core_cut(struct core *c, uint64_t ino, uint64_t size);
/* A file's part of the backing directory, for other nodes. known false: only its name, which they have found themselves. */
struct core_where {
	bool known;    /* the state has the inode: in is valid, size is the file's */
	bool outside;  /* the backing file has all of its data */
	bool has_path; /* path: of the backing file, relative to the backing directory */
	uint64_t size;
	int64_t mtime_ns;
	uint64_t file_stamp; /* as in core_entry */
	struct inode in;
	char path[4096];
};
int core_where(struct core *c, uint64_t ino, struct core_where *ret);
/*
 * To read: a file of the backing directory by a relative path; the one that another node's inode is, or -ESTALE: an untouched file has its
 * number from there. And an inode's backing file, as this node knows it. fd or -errno.
 */
int core_open_backing(struct core *c, const char *path);
int core_open_found(struct core *c, const char *path, uint64_t ino);
int core_open_origin(struct core *c, uint64_t ino);

struct core_stats {
	uint64_t open_files, written_bytes /* through us; passthrough not counted */, read_bytes, through_bytes,
		private_bytes /* allocated */;
	uint64_t last_write_usec; /* CLOCK_MONOTONIC of the last change that we saw (private files: polled) */
};
void core_stats(struct core *c, struct core_stats *ret);

/* What applications do now, for who has to make way for them. Counts from the mount on; cheap. */
struct core_activity {
	uint64_t bytes; /* written; private files: estimated from what core_tick saw of them */
	uint64_t syncs; /* that were asked for */
	bool syncing;   /* somebody waits for one */
};
void core_activity(struct core *c, struct core_activity *ret);
/* Called by the daemon's maintenance thread: looks at private files' growth, starts their write-out early, checks the water
 * marks. Returns after how many usec it wants to be called again; 0: not until a file is opened (hooks.wake is called then). */
uint64_t core_tick(struct core *c);

#endif
