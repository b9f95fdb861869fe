/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * flock and fcntl locks of a job of several nodes; in the table of operations only then (ops.c). Who waits for a lock is
 * answered by whoever grants it, so that no worker waits, and can be interrupted. Who gives a lock up has what it wrote
 * committed first: the next owner, on whatever node, sees it.
 *
 * Locks of open file descriptions (F_OFD_SETLK) look like those of a process whose number is never flushed. So a handle
 * remembers who has locked through it and has not been flushed since; at its release these have ended.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>

#include "fs/ops/private.h"

struct waiting { /* a request, until its lock is granted or refused */
	fuse_req_t req;
	void *way;
	int status; /* of what was done before */
};

/* ---- owners of a handle */

static bool has_owner(const struct handle *h, uint64_t owner)
{
	for (size_t i = 0; i < h->num_owners; i++)
		if (h->owners[i] == owner)
			return true;
	return false;
}

static int note_owner(struct ops *o, struct handle *h, uint64_t owner)
{
	int r = 0;

	pthread_mutex_lock(&o->lock);
	if (!has_owner(h, owner)) {
		uint64_t *owners = realloc(h->owners, (h->num_owners + 1) * sizeof(*owners));

		r = owners ? 0 : -ENOLCK;
		if (owners) {
			h->owners = owners;
			owners[h->num_owners++] = owner;
		}
	}
	pthread_mutex_unlock(&o->lock);
	return r;
}

/* What is ignored: the home is told when it can be reached. */
void lock_flushed(struct ops *o, struct handle *h, uint64_t owner)
{
	pthread_mutex_lock(&o->lock);
	for (size_t i = 0; i < h->num_owners; i++)
		if (h->owners[i] == owner)
			h->owners[i--] = h->owners[--h->num_owners];
	pthread_mutex_unlock(&o->lock);
	(void)job_lock_drop(o->opt.job, h->ino, owner, false);
}

void lock_released(struct ops *o, struct handle *h, const struct fuse_file_info *fi)
{
	while (h->num_owners > 0)
		lock_flushed(o, h, h->owners[0]);
	if (fi->flock_release)
		(void)job_lock_drop(o->opt.job, h->ino, fi->lock_owner, true);
}

/* ---- asking */

/* Called for the request that interrupts, or for its own when that came before. */
static uint64_t interrupted_unique(const struct fuse_in_header *in)
{
	const struct fuse_interrupt_in *arg = (const void *)(in + 1);

	return in->opcode == FUSE_INTERRUPT ? arg->unique : in->unique;
}

/* A killed caller does not wait for the home's word. Whatever it is, closing the file gives the lock up. */
static void interrupted(fuse_req_t req, void *data)
{
	struct session *s = session_of(req);

	job_lock_cancel(job_of(req), (uintptr_t)data);
	if (session_caller_dies(fuse_req_ctx(req)->pid))
		session_interrupt(s, interrupted_unique(session_request(s)));
}

/* From here on no worker has the request. A caller that was killed before may have closed the file already: nobody would give the lock up. */
static int on_begun(uint64_t id, void *arg)
{
	struct waiting *w = arg;

	if (!session_keep(session_of(w->req)))
		return -EINTR;
	fuse_req_interrupt_func(w->req, interrupted, (void *)(uintptr_t)id);
	return 0;
}

static void on_done(int status, void *arg)
{
	struct waiting *w = arg;
	struct session *s = session_of(w->req);
	void *own = session_take_way(s, w->way);

	reply_status(w->req, status ? status : w->status);
	(void)session_take_way(s, own);
	free(w);
}

static void ask(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, const struct job_lock *lock, bool wait)
{
	struct handle_ref at HANDLE_CLEANUP = handle_take(req, fi);
	struct waiting *w = calloc(1, sizeof(*w));
	bool gives_up = lock->type == F_UNLCK;
	int r = w ? 0 : -ENOLCK;

	if (!r && lock->type != F_WRLCK)
		r = job_flush(job_of(req), file_of(at));
	if (w && r && gives_up) { /* it does so all the same, and hears of it */
		w->status = r;
		r = 0;
	}
	if (!r && !lock->flock && !gives_up)
		r = note_owner(ops_of(req), at.h, lock->owner);
	if (r) {
		free(w);
		reply_status(req, r);
		return;
	}
	w->req = req;
	w->way = session_way(session_of(req));
	job_setlk(job_of(req), ino, lock, wait, on_begun, on_done, w);
}

/* ---- the operations */

static struct job_lock make_lock(const struct fuse_file_info *fi, const struct flock *lock)
{
	return (struct job_lock){
		.owner = fi->lock_owner,
		.start = (uint64_t)lock->l_start,
		.end = lock->l_len ? (uint64_t)(lock->l_start + lock->l_len - 1) : UINT64_MAX,
		.pid = (uint32_t)lock->l_pid,
		.type = lock->l_type,
	};
}

void ops_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock)
{
	struct handle_ref at HANDLE_CLEANUP = handle_take(req, fi);
	struct job_lock found = make_lock(fi, lock);
	int r = job_getlk(job_of(req), ino, &found);

	if (r) {
		reply_status(req, r);
		return;
	}
	lock->l_type = found.type;
	lock->l_whence = SEEK_SET;
	lock->l_start = (off_t)found.start;
	lock->l_len = found.end == UINT64_MAX ? 0 : (off_t)(found.end - found.start + 1);
	lock->l_pid = (pid_t)found.pid;
	fuse_reply_lock(req, lock);
}

void ops_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep)
{
	struct job_lock want = make_lock(fi, lock);

	ask(req, ino, fi, &want, sleep != 0);
}

void ops_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
	struct job_lock want = { .owner = fi->lock_owner, .end = UINT64_MAX, .flock = true };

	want.type = op & LOCK_EX ? F_WRLCK : op & LOCK_SH ? F_RDLCK : F_UNLCK;
	ask(req, ino, fi, &want, !(op & LOCK_NB));
}
