/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_SESSION_PRIVATE_H
#define FS_SESSION_PRIVATE_H

/* Shared between the files of fs/session only. */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "fs/session/callers.h"
#include "fs/session/kernel.h"
#include "fs/session/notify.h"
#include "fs/session/session.h"
#include "fs/session/turn.h"

struct worker {
	struct session *session; /* borrowed */
	pthread_t thread;
	bool started;
	int fd; /* cloned from the session's, owned; or the session's own when cloning is not possible */
	bool owns_fd;
	uint8_t *memory;    /* owned, mapped: one page and SESSION_DATA_BYTES */
	uint8_t *slot;      /* a slot of opt.segments that is used in its place; NULL: none */
	uint8_t *request;   /* in memory or before the slot, placed so that a WRITE's payload begins on a page */
	size_t request_len; /* 0: between requests */
	int reply_fd;       /* where this request's answer goes: fd, or another worker's */
	/* callers.c */
	_Atomic(uint64_t) unique; /* of the request; 0: none, or nobody may be answered for it but by us */
	_Atomic(uint32_t) pid;    /* who waits for the answer; 0: nobody */
	_Atomic(bool) stuck;      /* counts as such */
	uint64_t seen;            /* by that thread alone: the request, and when that was */
	int64_t seen_nsec;
};

struct session {
	struct session_options opt; /* ops, raw, context and log are valid; of the strings only ours below */
	char *mountpoint;           /* owned */
	struct fuse_session *fuse;  /* owned */
	bool mounted;
	bool own_mount;        /* not made by libfuse */
	bool keep_dead;        /* a failure must not free the mount point: a dead mount was there */
	int mount_fd;          /* owned: made, and without a place yet; -1 */
	int fd;                /* /dev/fuse; owned by fuse */
	atomic_bool connected; /* fd may be used */
	int end_fd;            /* eventfd, owned */
	atomic_bool aborting;  /* interrupted workers end */
	uint32_t dev_minor;    /* of the mount: to know it again */

	/* INIT; written before the workers start */
	uint64_t init_unique;
	uint32_t offered, offered2; /* the kernel's flags */
	bool has_epochs;            /* it can forget all names at once */
	bool has_prune;             /* and the names of an inode */
	struct session_kernel kernel;

	pthread_key_t worker_key; /* struct worker of this thread */
	pthread_key_t way_key; /* the one whose descriptor this thread's answers go to; NULL: as its own request says */
	bool has_keys;
	struct worker *workers; /* owned, room for max_workers of them */
	atomic_uint num_workers;
	unsigned int max_workers;
	pthread_mutex_t grow; /* who adds a worker */
	atomic_uint blocked;  /* workers that wait for long */
	atomic_uint running;  /* workers that have not ended */
	struct turn turn;
	struct callers callers;
	struct notify *notify; /* owned: of inodes */
	struct notify *names;  /* owned: of names; the kernel's locks may keep it waiting */
};

#define SESSION_HEADER_BYTES  (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))
#define SESSION_REQUEST_BYTES (SESSION_HEADER_BYTES + SESSION_DATA_BYTES)

#define SESSION_SPARE_WORKERS    64u /* may be added while others wait for long */
#define SESSION_RESERVED_WORKERS 16u /* of these, for requests that need nobody else */

#define SESSION_SIGNAL SIGUSR1 /* to workers only: interrupts a read */

/* session.c */
void session_sever(struct session *s);
bool session_widen_readahead(unsigned int dev_minor); /* false: no right to (readahead.c) */

/* loop.c */
int worker_init(struct worker *w, struct session *s);
void worker_free(struct worker *w);
void worker_prepare(struct worker *w);    /* memory for the next request; may wait for the device */
ssize_t worker_receive(struct worker *w); /* length, 0: ended, or -errno */
void worker_process(struct worker *w, size_t len);
bool session_grow(struct session *s, unsigned int num); /* one worker more, unless there are num. False: no more */

/* init.c: libfuse's callbacks and the INIT exchange */
extern const struct fuse_custom_io session_custom_io;
void session_note_init(struct session *s, const struct fuse_in_header *in, size_t len);
bool session_is_admin(void); /* CAP_SYS_ADMIN, effective */

/* capture.c: what a library says on stderr meanwhile */
int capture_begin(int *ret_saved);                          /* the memory file's descriptor, or -errno */
void capture_end(int fd, int saved, char *out, size_t cap); /* its last line */

#endif
