/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_OPS_PRIVATE_H
#define FS_OPS_PRIVATE_H

/* Shared between the families of operations only. */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "fs/ops/ops.h"
#include "fs/ops/outside.h"
#include "fs/session/kernel.h"

/* An open file or directory; fi->fh points to it. In a list, because a severed connection never releases. */
struct handle {
	struct handle *prev, *next; /* under ops.lock */
	atomic_uint refs;           /* the kernel's, until its RELEASE, and those of requests under way */
	struct job_file *file;      /* owned; NULL for a directory */
	struct job_dir *dir;        /* owned; NULL for a file */
	struct outside *outside;    /* file: owned; NULL: others cannot change what the kernel's pages are of */
	bool direct;                /* file: reads and writes go past the kernel's pages */
	uint64_t ino;
	uint64_t *owners; /* owned, under ops.lock: lock.c */
	size_t num_owners;
	pthread_mutex_t listing;    /* dir: one at a time reads; the names that core gives are its own */
	bool listed;                /* dir, under listing: entries were read, so offset 0 means anew */
	bool caps_killed;           /* file: security.capability was looked after */
	_Atomic(bool) writer_known; /* file: who writes has been asked */
};

struct known_thread {
	pid_t tid;        /* 0: none */
	uint32_t process; /* 0: not found */
	int64_t asked_sec;
};
#define OPS_THREADS 256u

struct ops {
	struct ops_options opt;
	pthread_mutex_t lock;
	struct handle open; /* head of the list */
	struct fuse_lowlevel_ops table;
	struct outside_table *outside;            /* owned */
	struct known_thread threads[OPS_THREADS]; /* under lock; by tid */
};

/* handle.c */
struct handle *handle_new(struct ops *o, uint64_t ino); /* NULL: no memory */
void handle_put(struct ops *o, struct handle *h);       /* the last one closes what it holds */
void handle_free(struct ops *o, struct handle *h);      /* whoever has it: there are no requests any more */
/*
 * What a request works on. A killed caller is answered in our place and closes the file meanwhile: so each request holds its handle, and only then
 * may it be answered so. HANDLE_CLEANUP drops it.
 */
struct handle_ref {
	struct ops *o;
	struct handle *h; /* NULL: the request came without one */
};
struct handle_ref handle_take(fuse_req_t req, const struct fuse_file_info *fi);
struct handle_ref handle_hold(fuse_req_t req, const struct fuse_file_info *fi); /* of two: not the last to be held */
void handle_ref_cleanup(struct handle_ref *r);
#define HANDLE_CLEANUP __attribute__((cleanup(handle_ref_cleanup)))

static inline struct ops *ops_of(fuse_req_t req)
{
	return session_context(req);
}

static inline struct job *job_of(fuse_req_t req)
{
	return ops_of(req)->opt.job;
}

static inline struct handle *handle_of(const struct fuse_file_info *fi)
{
	return fi ? (struct handle *)(uintptr_t)fi->fh : NULL;
}

static inline struct job_file *file_of(struct handle_ref r)
{
	return r.h ? r.h->file : NULL;
}

static inline struct core_cred cred_of(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct core_cred){ .uid = ctx->uid, .gid = ctx->gid, .pid = ctx->pid };
}

/* reply.c: each replies once. r: 0 or -errno. */
void reply_status(fuse_req_t req, int r);
/* These two look at e first: outside_look(). An entry counts as a lookup; when the kernel does not take the reply, it is given back. */
void reply_entry(fuse_req_t req, int r, struct core_entry *e);
void reply_attr(fuse_req_t req, int r, struct core_entry *e);
void reply_sized(fuse_req_t req, const struct core_entry *e); /* to a SETATTR that has set a size: outside_sized() */
void reply_count(fuse_req_t req, ssize_t n);
/* The raw forms of OPEN's and CREATE's answers: libfuse's own do not know backing ids. */
struct kernel_create_out {
	struct fuse_entry_out entry;
	struct kernel_open_out open;
};
/* h is of the inode that was opened; what the kernel has of it from before is seen to. */
struct kernel_open_out reply_make_open(
	const struct ops *o, struct session *s, struct handle *h, struct core_open_reply *open);
struct fuse_entry_out reply_make_entry(const struct core_entry *e);
struct fuse_entry_param reply_make_param(const struct core_entry *e);

/* priv.c: setuid, setgid and capabilities go when somebody else writes (FUSE_HANDLE_KILLPRIV_V2) */
/* The mode without the bits that a write or chown by this caller takes away. */
mode_t priv_killed(fuse_req_t req, const struct stat *st);
void priv_kill_bits(fuse_req_t req, uint64_t ino);
void priv_before_write(fuse_req_t req, struct handle *h);

/* writer.c */
uint32_t writer_of_thread(struct ops *o, pid_t tid); /* its process; 0: not known */
void writer_note(fuse_req_t req, struct handle *h);  /* before a write that a process makes: h's file knows who */

/* attr.c */
void ops_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi);
void ops_statfs(fuse_req_t req, fuse_ino_t ino);

/* name.c */
void ops_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void ops_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void ops_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void ops_readlink(fuse_req_t req, fuse_ino_t ino);
void ops_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void ops_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void ops_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void ops_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void ops_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void ops_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void ops_rename(fuse_req_t req, fuse_ino_t from_parent, const char *from, fuse_ino_t parent, const char *name,
	unsigned int flags);

/* open.c */
void ops_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_create_file(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void ops_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

/* file.c */
void ops_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ops_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi);
void ops_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi);
void ops_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi);
void ops_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void ops_copy_file_range(fuse_req_t req, fuse_ino_t from_ino, off_t from_off, struct fuse_file_info *from_fi,
	fuse_ino_t to_ino, off_t to_off, struct fuse_file_info *to_fi, size_t len, int flags);
void ops_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg, struct fuse_file_info *fi,
	unsigned int flags, const void *in_buf, size_t in_len, size_t out_len);

/* lock.c */
void ops_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock);
void ops_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep);
void ops_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op);
void lock_flushed(struct ops *o, struct handle *h, uint64_t owner); /* a descriptor of the owner's was closed */
void lock_released(struct ops *o, struct handle *h, const struct fuse_file_info *fi); /* all were */

/* dir.c */
void ops_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ops_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ops_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi);

/* xattr.c */
void ops_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void ops_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void ops_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags);
void ops_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

#endif
