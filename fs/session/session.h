/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_SESSION_SESSION_H
#define FS_SESSION_SESSION_H

/*
 * The connection to the kernel: mounting, the INIT exchange, worker threads that take requests and hand them to a
 * table of operations, backing files for kernel passthrough, invalidation, and the end. Knows nothing of what the
 * operations do.
 */

#define FUSE_USE_VERSION 35

#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "fs/session/log.h"
#include "fs/session/place.h"

struct session;
struct fuse_in_header;
struct segment_set;

#define SESSION_DATA_BYTES (1u << 20) /* largest payload of a READ or WRITE */

struct session_options {
	const char *fsname; /* shown as the device; borrowed until it is mounted, like all here but ops, context, log */
	const char *mountpoint;  /* absolute */
	struct place *place;     /* of that mount point */
	const char *mount_flags; /* "nodev,noatime": the kernel's own, comma separated; "" */
	bool read_only, allow_other, allow_root;
	bool of_many; /* requests may wait for other nodes of the job */
	unsigned int threads;
	const struct fuse_lowlevel_ops *ops; /* borrowed for the session's life */
	/* Sees a request before libfuse does; true: it was answered (session_reply_raw). For operations that libfuse is too old for. */
	bool (*raw)(struct session *s, const struct fuse_in_header *in, size_t len, void *context);
	/* May answering it take long, since somebody else is asked? Then it need not have a worker while many wait. */
	bool (*may_wait)(struct session *s, const struct fuse_in_header *in, void *context);
	void *context;                /* for the operations: session_context() */
	struct segment_set *segments; /* borrowed; its slots are the workers' memory. NULL: they use their own */
	struct log *log;
};

struct session_kernel {
	bool passthrough; /* agreed upon, and allowed to us */
	bool direct_mmap; /* direct I/O is coherent with mmap */
};

int session_create(const struct session_options *opt, struct session **ret, struct cistern_error *err);
/* Mounts and exchanges INIT. On an error nothing is mounted. */
int session_mount(struct session *s, struct cistern_error *err);
struct session_kernel session_kernel(const struct session *s); /* valid after session_mount */
/* Starts the workers: from now on requests are served. */
int session_start(struct session *s, struct cistern_error *err);
int session_end_fd(const struct session *s); /* becomes readable when the last worker has ended: unmounted or aborted */
/*
 * Asks for the end. Unmounts; while files are open, the mount goes out of sight and ends with its last user: 1. 0: it is unmounted.
 * -errno: it could not be unmounted. Call it while workers run.
 */
int session_unmount(struct session *s);
void session_abort(struct session *s);   /* severs the connection: open files get errors */
void session_join(struct session *s);    /* when the last worker has ended: what they have written can be read */
void session_destroy(struct session *s); /* workers must have ended or not been started; NULL is fine */

/* ---- for operations */
void session_want_capabilities(struct fuse_conn_info *conn); /* for the table's init */
void *session_context(fuse_req_t req);
void *session_context_of(const struct session *s);
/* The request that this worker thread is answering, as it came from the kernel; NULL outside a worker. */
const struct fuse_in_header *session_request(const struct session *s);
/*
 * SESSION_DATA_BYTES of page-aligned memory of this worker, for the reply. It overlays the request behind its first
 * 80 bytes: READ and READDIR fit before it, names and values do not.
 */
void *session_reply_buffer(const struct session *s);
/* Answers a request that raw() took: error (0 or -errno) and, without error, len bytes. -errno when the kernel did not take it. */
int session_reply_raw(struct session *s, uint64_t unique, int error, const void *body, size_t len);
struct session *session_of(fuse_req_t req);
/*
 * A request is answered through the descriptor that it came from. For an answer by another thread than the worker that got it:
 * that worker's way; and the thread takes it for its replies. Returns which it had: take that one again after the reply.
 */
void *session_way(const struct session *s);
void *session_take_way(struct session *s, void *way);

/* ---- for core's hooks; any thread */
int session_backing_open(struct session *s, int fd); /* id > 0 or -errno */
void session_backing_close(struct session *s, int backing_id);
/* Queues: attributes, and pages when data is set, of ino are stale. A thread of its own tells the kernel. */
void session_invalidate(struct session *s, uint64_t ino, bool data);
/* The same, and waits for it, a while at most; a name of a directory likewise. Not by a worker, and without locks. */
void session_invalidate_now(struct session *s, uint64_t ino, bool data);
void session_invalidate_name(struct session *s, uint64_t parent, const char *name);
/* The kernel drops an inode that it keeps in mind and that nobody uses, if it can (Linux 6.18). Takes no lock of the kernel's; any thread. */
void session_drop(struct session *s, uint64_t ino);
/* All names, if the kernel can: then what it has looked up until now it looks up again. Takes no lock of the kernel's; any thread. */
void session_invalidate_names(struct session *s);
/*
 * In this thread: attributes of ino, and its pages from off to off + len (0: all from off on), are stale; when it returns the kernel
 * has written them back and dropped them. It waits for READs of pages that are under way and for WRITEs of changed ones, so these
 * must find a worker. Without locks that they take.
 */
void session_drop_pages(struct session *s, uint64_t ino, uint64_t off, uint64_t len);
/* In this thread: ino has that byte there, and is at least so large. */
void session_put_byte(struct session *s, uint64_t ino, uint64_t off, uint8_t byte);
/*
 * The request that this thread answers is going to wait for long, or has ended to. Requests of others are served meanwhile: when too
 * few workers are left another one is started, up to a limit. Cheap.
 */
void session_will_block(struct session *s);
void session_has_blocked(struct session *s);
/* The request that this thread answers comes with a file handle, and that is held: a killed caller may be answered from here on. */
void session_answerable(struct session *s);
/* The caller of the request that this thread answers was killed, and has had EINTR in our place: what is not done yet need not be. */
bool session_is_unwanted(const struct session *s);
/*
 * The request that this thread answers is going to be done: nobody is answered in our place any more. False: somebody was. It was not, after
 * all: as before.
 */
bool session_keep(struct session *s);
void session_keep_not(struct session *s);
bool session_caller_dies(int32_t pid); /* it was killed, or ends */
/* EINTR to a request that a worker has left unanswered, in place of who else would. */
void session_interrupt(struct session *s, uint64_t unique);

#endif
