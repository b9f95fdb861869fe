/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_JOB_H
#define FS_JOB_JOB_H

/*
 * The mount as one of the mounts of a job: what fs/ops calls. Alone (one node), every function is core's of the same
 * name (fs/core/core.h says what it does). With other nodes it finds the homes of what a call concerns, asks them, and
 * uses core for what is at home here. docs/design/many-nodes.md.
 *
 * front.c decides which way a call goes; names.c, tree.c, file.c, share.c, lock.c are the parts.
 */

#include "fs/core/core.h"
#include "fs/peer/peer.h"

struct job;
struct job_file; /* an open file */
struct job_dir;  /* an open directory */

struct job_options {
	struct core *core; /* all borrowed */
	struct store *store;
	const struct config *cfg;
	struct peers *peers; /* NULL: one node alone */
	/* Tell the kernel; as core's hooks of the same purpose. Without locks. */
	void (*invalidate)(uint64_t ino, bool data, void *arg);
	void (*invalidate_name)(uint64_t parent, const char *name, void *arg);
	/* All names, also of directories that the caller's own calls have locked in the kernel; does not wait. May be NULL. */
	void (*invalidate_names)(void *arg);
	/* A file has lost a name: the kernel drops the inode, unless somebody uses it. Does not wait. May be NULL. */
	void (*drop)(uint64_t ino, void *arg);
	/* Who has asked this thread for something has died, and was told that it is not done; as core's. May be NULL. */
	bool (*unwanted)(void *arg);
	/* A request of MESSAGE_DRAIN_FIRST to MESSAGE_DRAIN_LAST, and what happens to nodes: for the drain. Do not block; may be NULL. */
	void (*drain_request)(struct peers_request *rq, void *arg);
	void (*event)(enum peers_event event, uint32_t node, void *arg);
	/* One line for the log, "key=value ...". */
	void (*log)(bool error, const char *event, const char *facts, void *arg);
	void *arg;
};

int job_create(const struct job_options *opt, struct job **ret, struct cistern_error *err);
void job_shut_down(struct job *j); /* calls that wait for other nodes return -ESHUTDOWN */
void job_destroy(struct job *j);   /* no file may be open; NULL is fine */
/* What is wrong with the directory tree on this node or, at node 0, on others: one line each, with what to do. */
void job_troubles(struct job *j, void (*say)(const char *text, void *arg), void *arg);
/* Calls of applications that have failed because the agents of the job had not assembled. */
uint64_t job_failed_calls(const struct job *j);
bool job_is_alone(const struct job *j); /* one node: nothing here adds anything to core */

/* Names, attributes, data: as core's. */
int job_lookup(struct job *j, uint64_t parent, const char *name, struct core_entry *ret);
void job_forget(struct job *j, uint64_t ino, uint64_t nlookup);
int job_getattr(struct job *j, uint64_t ino, struct job_file *file, struct core_entry *ret);
int job_setattr(struct job *j, uint64_t ino, const struct stat *attr, unsigned int to_set, struct job_file *file,
	struct core_entry *ret);
int job_readlink(struct job *j, uint64_t ino, char *out, size_t cap);
int job_mkdir(
	struct job *j, uint64_t parent, const char *name, mode_t mode, struct core_cred cred, struct core_entry *ret);
int job_symlink(struct job *j, uint64_t parent, const char *name, const char *target, struct core_cred cred,
	struct core_entry *ret);
int job_mknod(struct job *j, uint64_t parent, const char *name, mode_t mode, dev_t rdev, struct core_cred cred,
	struct core_entry *ret);
int job_link(struct job *j, uint64_t ino, uint64_t parent, const char *name, struct core_entry *ret);
int job_unlink(struct job *j, uint64_t parent, const char *name);
/*
 * Before job_rename and job_rmdir by thread pid, of names (name[1] may be ""): -ESTALE: the call is to be sent back with that, and comes again.
 * Else it is to be followed by them and job_announce_end.
 */
int job_announce(struct job *j, pid_t pid, const uint64_t dir[2], const char *const name[2]);
void job_announce_end(struct job *j, pid_t pid);
int job_rmdir(struct job *j, uint64_t parent, const char *name);
int job_rename(
	struct job *j, uint64_t from_parent, const char *from, uint64_t parent, const char *name, unsigned int flags);
int job_peek(struct job *j, uint64_t ino, uint64_t off,
	uint8_t *ret); /* one byte of an open file. -ENODATA: it is not so long */
uint64_t job_backing_timeout_usec(const struct job *j);
ssize_t job_read(struct job *j, struct job_file *file, void *buf, size_t len, uint64_t off);
struct job_bytes { /* what was read */
	const void *at;
	struct chunk *lent; /* job_bytes_end() must be told; NULL: it is in the reader's own memory */
	size_t len;         /* when it is lent */
};
/* The same, but the bytes may be somewhere else than in buf. process: one reads; else pages of the kernel are filled. */
ssize_t job_read_bytes(struct job *j, struct job_file *file, bool process, void *buf, size_t len, uint64_t off,
	struct job_bytes *ret_where);
void job_bytes_end(struct job_bytes *b);
/* Of len bytes that were read, got came: they are the kernel's pages, which may come back changed (job_write_page). */
void job_pages_given(struct job *j, struct job_file *file, const void *buf, size_t got, size_t len, uint64_t off);
ssize_t job_write(struct job *j, struct job_file *file, const void *buf, size_t len, uint64_t off);
/* What is written through file from now on was written by that process; pages of mappings are nobody's. */
void job_set_writer(struct job_file *file, uint32_t writer);
/* Pages that were changed through a mapping (FUSE_WRITE_CACHE). */
ssize_t job_write_page(struct job *j, struct job_file *file, const void *buf, size_t len, uint64_t off);
int job_flush(struct job *j, struct job_file *file); /* close(2): other nodes see what was written. Not when alone */
int job_fsync(struct job *j, uint64_t ino, struct job_file *file, bool data_only);
int job_syncfs(struct job *j);
int job_fallocate(struct job *j, struct job_file *file, int mode, uint64_t off, uint64_t len);
int job_lseek(struct job *j, struct job_file *file, int64_t off, int whence, uint64_t *ret_off);
/* Does not wait for other nodes: they are asked by the first job_readdir, which may fail for want of them, and by job_rewinddir. */
int job_opendir(struct job *j, uint64_t ino, struct job_dir **ret);
void job_closedir(struct job *j, struct job_dir *dir);
int job_readdir(struct job *j, struct job_dir *dir, uint64_t index, const char **ret_name, uint64_t *ret_ino,
	uint32_t *ret_type);
int job_rewinddir(struct job *j, struct job_dir *dir);
ssize_t job_getxattr(struct job *j, uint64_t ino, const char *name, void *out, size_t cap);
ssize_t job_listxattr(struct job *j, uint64_t ino, char *out, size_t cap);
int job_setxattr(struct job *j, uint64_t ino, const char *name, const void *value, size_t len, int flags);
int job_removexattr(struct job *j, uint64_t ino, const char *name);
/* May others have to be asked, the backing directory alone when there are no other nodes? As core's; name NULL: of ino itself. A guess. */
bool job_may_ask(struct job *j, uint64_t ino, const char *name, bool content);
int job_statfs(struct job *j, struct statvfs *ret);

int job_create_file(struct job *j, uint64_t parent, const char *name, mode_t mode, int flags, struct core_cred cred,
	struct core_entry *ret, struct job_file **ret_file, struct core_open_reply *ret_open);
int job_tmpfile(struct job *j, uint64_t parent, mode_t mode, int flags, struct core_cred cred, struct core_entry *ret,
	struct job_file **ret_file, struct core_open_reply *ret_open);
/* ret_open->file is not for the caller. */
int job_open(struct job *j, uint64_t ino, int flags, struct job_file **ret_file, struct core_open_reply *ret_open);
void job_release(struct job *j, struct job_file *file);
/* Drain, at a file's home. Commits up to *ret_stamp of a shared file can be carried now. -EBUSY: none. */
int job_drain_stamp(struct job *j, uint64_t ino, uint64_t *ret_stamp);
/*
 * What has the name of rec (PLACED) in the backing directory, which rec's backing_ino is, is not ours. 0: a node says that it was its own, and that
 * no name leads there any more; -EEXIST: a node needs it; -EBUSY: a node does not say; -ENOENT: no node knows it.
 */
int job_drain_occupied(struct job *j, const struct record *rec);
/* A file's bytes are in the backing directory now: who has it open elsewhere is told. Waits for them. */
void job_drained(struct job *j, uint64_t ino);
struct drained { /* all of a shared file that was committed up to stamp, and written up to time_usec of the job's clock (0: whenever) */
	uint64_t ino, stamp, time_usec;
};
/* It is published, and its home will not forget that: what maps and layers have of that here goes. Until the next sync not for good. */
int job_drop_drained(struct job *j, const struct drained *d);
/* That was some sessions ago, and our map may have missed it: no drain takes it from there again. */
int job_know_drained(struct job *j, const struct drained *d);
/* For node 0, which carries the attributes of directories: our copy of this one had this time when our tree had that stamp. */
void job_put_dir_time(struct buf *out, uint64_t ino, int64_t mtime_ns, uint64_t tree_stamp);
/* Node 0: a node has put such times into WIRE_PAYLOAD. Answered when our copies are no older than that, in our journal. Does not block. */
void job_take_dir_times(struct job *j, struct peers_request *rq);
/* PLACED, REMOVED or DRAINED of a directory: on all nodes. */
int job_tree_record(struct job *j, const struct record *rec);
ssize_t job_copy_range(
	struct job *j, struct job_file *from, uint64_t from_off, struct job_file *to, uint64_t to_off, size_t len);

/* ---- locks, of the whole job. Not when alone: then the kernel's own do. flock(2)'s are of the whole file. */

struct job_lock {
	uint64_t owner;      /* as the kernel numbers them, apart for the two kinds */
	uint64_t start, end; /* bytes, end included; UINT64_MAX: all behind */
	uint32_t pid;        /* getlk: 0: a process of another node */
	short type;          /* F_RDLCK, F_WRLCK, F_UNLCK */
	bool flock;
};
/* What is in the way of lock: its type becomes F_UNLCK, or it becomes that. Waits for the home. -ENOLCK: it cannot be asked. */
int job_getlk(struct job *j, uint64_t ino, struct job_lock *lock);
/*
 * Takes, changes or gives up a lock. done is called once, from any thread, perhaps before this returns: 0, -EAGAIN: somebody
 * else has it (without wait), -EDEADLK, -EINTR: by job_lock_cancel(), -ENOLCK: the file's home cannot be reached, has lost
 * what this owner had before, or has no room. It must not wait for other nodes. begun is called before anything else, with the
 * number to cancel the request by (0: it has none, since it does not wait for a lock); -errno: nobody wants the lock any more.
 */
typedef void (*job_lock_done)(int status, void *arg);
void job_setlk(struct job *j, uint64_t ino, const struct job_lock *lock, bool wait,
	int (*begun)(uint64_t id, void *arg) /* or NULL */, job_lock_done done, void *arg);
/* Who waits shall not any longer. Any number, at any time; does not wait. */
void job_lock_cancel(struct job *j, uint64_t id);
/* The owner has closed the file, which ends all its locks of that kind. Waits for the home, if there are any elsewhere. */
int job_lock_drop(struct job *j, uint64_t ino, uint64_t owner, bool flock);

#endif
