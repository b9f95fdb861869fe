/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The kernel lets a killed program go only when its request is answered. A worker may be unable to:
 * it waits for another node, for room, or in the kernel for a backing directory that hangs. So a
 * thread of its own looks at the requests that take long, and answers EINTR in the worker's place
 * when the caller is dying. The kernel takes one answer to a request: the worker's own is refused
 * then, which it takes as it always has: what the kernel was not told of is given back.
 *
 * `unique` of a worker says whose request it is. Whoever changes it from that number decides: the
 * thread sets the lowest bit, which the kernel's numbers do not have, before it answers; a worker
 * that must not be answered for any more sets 0.
 *
 * The same thread replaces workers that wait for long, so that there are always some for requests
 * that need nobody. Their number has a limit. Near it requests that may wait too are put aside,
 * without a worker, until one has come back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fs/session/private.h"

#define LOOK_NSEC   250000000
#define QUICK_NSEC  20000000  /* while nobody receives requests */
#define STUCK_NSEC  200000000 /* from when it was first seen */
#define ANSWERED    1u
#define ASIDE_BYTES (64u << 20)

static int64_t now_nsec(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/*
 * Somebody waits for its answer. Pages that are written back belong to nobody: a failure would lose
 * them.
 */
static bool has_caller(const struct fuse_in_header *in)
{
	const struct fuse_write_in *write = (const void *)(in + 1);

	switch (in->opcode) {
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_INTERRUPT:
	case FUSE_INIT:
	case FUSE_DESTROY: return false;
	case FUSE_WRITE: return in->pid && !(write->write_flags & FUSE_WRITE_CACHE);
	default: return in->pid;
	}
}

/* It works on what the kernel closes once it is answered. */
static bool has_handle(const struct fuse_in_header *in)
{
	switch (in->opcode) {
	case FUSE_READ:
	case FUSE_WRITE:
	case FUSE_FLUSH:
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case FUSE_FALLOCATE:
	case FUSE_LSEEK:
	case FUSE_COPY_FILE_RANGE:
	case FUSE_GETATTR:
	case FUSE_SETATTR:
	case FUSE_GETLK:
	case FUSE_SETLK:
	case FUSE_SETLKW:
	case FUSE_IOCTL: return true;
	default: return false;
	}
}

static bool answer(int fd, uint64_t unique)
{
	struct fuse_out_header out = { .len = sizeof(out), .error = -EINTR, .unique = unique };

	return write(fd, &out, sizeof(out)) == (ssize_t)sizeof(out);
}

/* ---- workers */

static void wake(struct callers *c, bool interrupted)
{
	pthread_mutex_lock(&c->lock);
	c->woken = true;
	c->interrupted |= interrupted;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
}

void callers_begin(struct worker *w, const struct fuse_in_header *in)
{
	struct callers *c = &w->session->callers;

	atomic_store_explicit(&w->pid, has_caller(in) && !has_handle(in) ? in->pid : 0, memory_order_relaxed);
	atomic_store(&w->unique, in->unique);
	if (atomic_load(&c->asleep))
		wake(c, false);
}

void callers_finish(struct worker *w)
{
	atomic_store(&w->unique, 0);
	if (atomic_load(&w->stuck) && atomic_exchange(&w->stuck, false))
		atomic_fetch_sub(&w->session->callers.stuck, 1);
}

void callers_interrupted(struct session *s)
{
	wake(&s->callers, true);
}

void session_answerable(struct session *s)
{
	struct worker *w = pthread_getspecific(s->worker_key);
	const struct fuse_in_header *in = (const void *)w->request;

	atomic_store(&w->pid, has_caller(in) ? in->pid : 0);
}

bool session_caller_dies(int32_t pid)
{
	return caller_is_dying((pid_t)pid);
}

/* Only the descriptor that it came from takes the answer. */
void session_interrupt(struct session *s, uint64_t unique)
{
	unsigned int n = atomic_load(&s->num_workers);

	for (unsigned int i = 0; i < n && !answer(s->workers[i].fd, unique); i++)
		continue;
}

bool session_is_unwanted(const struct session *s)
{
	const struct worker *w = pthread_getspecific(s->worker_key);

	return w && atomic_load(&w->unique) & ANSWERED;
}

bool session_keep(struct session *s)
{
	struct worker *w = pthread_getspecific(s->worker_key);
	uint64_t unique = w ? atomic_load(&w->unique) : 0;

	if (unique & ANSWERED)
		return false;
	return unique == 0 || atomic_compare_exchange_strong(&w->unique, &unique, 0);
}

void session_keep_not(struct session *s)
{
	struct worker *w = pthread_getspecific(s->worker_key);

	if (w && w->request_len && atomic_load(&w->unique) == 0)
		atomic_store(&w->unique, ((const struct fuse_in_header *)w->request)->unique);
}

/* ---- put aside */

static unsigned int num_waiting(const struct session *s)
{
	unsigned int blocked = atomic_load(&s->blocked), stuck = atomic_load(&s->callers.stuck);

	return blocked > stuck ? blocked : stuck;
}

static bool is_crowded(const struct session *s)
{
	return num_waiting(s) + SESSION_RESERVED_WORKERS >= s->max_workers;
}

bool callers_put_aside(struct worker *w, size_t len)
{
	struct session *s = w->session;
	struct callers *c = &s->callers;
	const struct fuse_in_header *in = (const void *)w->request;
	struct aside *a;
	bool fits;

	if (!is_crowded(s) || !s->opt.may_wait || !s->opt.may_wait(s, in, s->opt.context))
		return false;
	a = malloc(sizeof(*a) + len);
	if (!a)
		return false;
	a->fd = w->fd;
	a->len = len;
	memcpy(a->request, w->request, len);
	pthread_mutex_lock(&c->lock);
	fits = !c->ended && c->aside_bytes + len <= ASIDE_BYTES;
	if (fits) {
		TAILQ_INSERT_TAIL(&c->aside, a, in_list);
		c->aside_bytes += len;
		atomic_fetch_add(&c->num_aside, 1);
	}
	pthread_mutex_unlock(&c->lock);
	if (!fits)
		free(a);
	else if (atomic_load(&c->asleep))
		wake(c, false);
	return fits;
}

/* The lock is held. */
static void unlist(struct callers *c, struct aside *a)
{
	TAILQ_REMOVE(&c->aside, a, in_list);
	c->aside_bytes -= a->len;
	atomic_fetch_sub(&c->num_aside, 1);
}

size_t callers_take_aside(struct worker *w)
{
	struct callers *c = &w->session->callers;
	struct aside *a;
	size_t len;

	if (atomic_load(&c->num_aside) == 0 || is_crowded(w->session))
		return 0;
	pthread_mutex_lock(&c->lock);
	a = TAILQ_FIRST(&c->aside);
	if (a)
		unlist(c, a);
	pthread_mutex_unlock(&c->lock);
	if (!a)
		return 0;
	len = a->len;
	memcpy(w->request, a->request, len);
	w->reply_fd = a->fd;
	free(a);
	return len;
}

/*
 * Of callers that are dying. The lock is held, which nobody waits for but who is aside, or puts
 * somebody there.
 */
static void drop_aside(struct callers *c)
{
	struct aside *a, *next;

	for (a = TAILQ_FIRST(&c->aside); a; a = next) {
		const struct fuse_in_header *in = (const void *)a->request;

		next = TAILQ_NEXT(a, in_list);
		if (!has_caller(in) || !caller_is_dying((pid_t)in->pid))
			continue;
		unlist(c, a);
		answer(a->fd, in->unique);
		free(a);
	}
}

/* ---- the thread */

/* The worker counts as stuck, unless it has ended meanwhile. */
static void note_stuck(struct session *s, struct worker *w, uint64_t unique)
{
	if (atomic_load(&w->stuck))
		return;
	atomic_fetch_add(&s->callers.stuck, 1);
	atomic_store(&w->stuck, true);
	if (atomic_load(&w->unique) != unique && atomic_exchange(&w->stuck, false))
		atomic_fetch_sub(&s->callers.stuck, 1);
}

static void answer_for(struct worker *w, uint64_t unique)
{
	pid_t pid = (pid_t)atomic_load(&w->pid);

	if (pid == 0 || unique & ANSWERED || !caller_is_dying(pid))
		return;
	/* It is that request's pid: what a worker has now, another number came before it. */
	if (atomic_compare_exchange_strong(&w->unique, &unique, unique | ANSWERED))
		answer(w->reply_fd, unique);
}

/* Is anybody busy? */
static bool look_at_workers(struct session *s, bool interrupted)
{
	unsigned int n = atomic_load(&s->num_workers);
	int64_t now = now_nsec();
	bool busy = false;

	for (unsigned int i = 0; i < n; i++) {
		struct worker *w = &s->workers[i];
		uint64_t unique = atomic_load(&w->unique);

		if (unique == 0)
			continue;
		busy = true;
		if ((w->seen ^ unique) & ~(uint64_t)ANSWERED) {
			w->seen = unique;
			w->seen_nsec = now;
		}
		if (now - w->seen_nsec >= STUCK_NSEC)
			note_stuck(s, w, unique);
		if (interrupted || now - w->seen_nsec >= STUCK_NSEC)
			answer_for(w, unique);
	}
	return busy;
}

/* There are workers beside those that wait. True: nobody receives requests. */
static bool replace(struct session *s, uint64_t *taken)
{
	uint64_t now = atomic_load(&s->turn.taken);
	bool nobody = atomic_load(&s->turn.readers) == 0 && atomic_load(&s->turn.parked) == 0;
	unsigned int want = atomic_load(&s->callers.stuck) + s->opt.threads;

	while (atomic_load(&s->num_workers) < want && session_grow(s, want))
		continue;
	if (nobody && now == *taken)
		session_grow(s, atomic_load(&s->num_workers) + 1);
	*taken = now;
	return nobody;
}

/* The lock is held. */
static void wait_for(struct callers *c, int64_t nsec)
{
	int64_t at = now_nsec() + nsec;
	struct timespec until = { .tv_sec = at / 1000000000, .tv_nsec = at % 1000000000 };

	while (!c->woken && !c->ended && pthread_cond_timedwait(&c->wake, &c->lock, &until) == 0)
		continue;
}

/*
 * The lock is held. Until a request comes. Who begins one from here on sees the flag; one begun
 * just before is seen here.
 */
static void sleep_on(struct session *s, struct callers *c)
{
	atomic_store(&c->asleep, true);
	if (!look_at_workers(s, false))
		while (!c->woken && !c->ended)
			pthread_cond_wait(&c->wake, &c->lock);
	atomic_store(&c->asleep, false);
}

static void *callers_thread(void *arg)
{
	struct session *s = arg;
	struct callers *c = &s->callers;
	uint64_t taken = 0, before = 0;

	pthread_mutex_lock(&c->lock);
	while (!c->ended) {
		bool interrupted = c->interrupted, busy, nobody;

		c->woken = c->interrupted = false;
		drop_aside(c);
		pthread_mutex_unlock(&c->lock);
		busy = look_at_workers(s, interrupted);
		nobody = replace(s, &taken);
		pthread_mutex_lock(&c->lock);
		if (busy || taken != before || !TAILQ_EMPTY(&c->aside))
			wait_for(c, nobody ? QUICK_NSEC : LOOK_NSEC);
		else
			sleep_on(s, c);
		before = taken;
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* ---- life */

void callers_init(struct callers *c)
{
	pthread_condattr_t attr;

	*c = (struct callers){ 0 };
	TAILQ_INIT(&c->aside);
	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->wake, &attr);
	pthread_condattr_destroy(&attr);
}

void callers_destroy(struct callers *c)
{
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lock);
}

int callers_start(struct session *s)
{
	struct callers *c = &s->callers;
	int r = -pthread_create(&c->thread, NULL, callers_thread, s);

	c->started = r == 0;
	return r;
}

void callers_end(struct session *s)
{
	struct callers *c = &s->callers;
	struct aside *a;

	pthread_mutex_lock(&c->lock);
	c->ended = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
	if (c->started)
		pthread_join(c->thread, NULL);
	c->started = false;
	while ((a = TAILQ_FIRST(&c->aside))) {
		unlist(c, a);
		free(a);
	}
}
