/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_PRIVATE_H
#define FS_JOB_PRIVATE_H

/*
 * What the files of fs/job share. job.c: its life and its parts. front.c: which way a call goes. serve.c: requests of other
 * nodes to their handlers. worker.c: threads for handlers that work on our own store. The parts: names.c, tree.c,
 * remote.c and whoever comes later; each has its own struct and its own locks.
 */

#include "fs/job/job.h"
#include "fs/job/message.h"

struct job {
	struct job_options opt;
	struct core *core;   /* opt's, borrowed */
	struct peers *peers; /* opt's, borrowed; NULL: alone, and nothing below is there */
	struct workers *workers;
	/* one for each part, owned by it */
	struct names *names;
	struct tree *tree;
	struct remote *remote;
	struct share *share;
	struct locks *locks;
};

struct job_file {
	struct core_file *local; /* owned; NULL when nothing of it is in our store yet */
};

struct job_dir {
	struct core_dir *local; /* owned */
};

/* ---- job.c */

/*
 * A part. Any function may be NULL. create: in the order of the table, before any event or request; what it made is found in
 * struct job. shut_down: whoever waits in this part returns -ESHUTDOWN. destroy: in reverse order, after the last
 * request; also when create failed or was never reached. event: in the transport's thread, must not block (workers_do).
 */
struct part {
	int (*create)(struct job *j, struct cistern_error *err);
	void (*shut_down)(struct job *j);
	void (*destroy)(struct job *j);
	void (*event)(struct job *j, enum peers_event event, uint32_t node);
};
/* Before names or data of other nodes are asked for: the store has its number. Waits; -EIO, with a line in the log that says what is
 * missing. */
int job_wait_numbered(struct job *j);
void job_log(struct job *j, bool error, const char *event, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static inline bool job_alone(const struct job *j)
{
	return !j->peers;
}

/* ---- serve.c */

typedef void (*serve_handler)(struct job *j, struct peers_request *rq);
/* The transport's hook: finds the handler of a request in the table of serve.c, and calls it here or in a worker. */
void serve_request(struct peers_request *rq, void *arg);

/* ---- worker.c: threads that run what may wait for our own store, and never for another node */

int workers_create(struct job *j, struct workers **ret);
void workers_destroy(struct workers *w); /* what is queued is done first; NULL is fine */
/* fn(j, arg) in one of them, soon. -ENOMEM. */
int workers_do(struct workers *w, void (*fn)(struct job *j, void *arg), void *arg);
/* The same for a request; answers it with -ENOMEM when that cannot be. */
void workers_serve(struct workers *w, serve_handler fn, struct peers_request *rq);

#endif
