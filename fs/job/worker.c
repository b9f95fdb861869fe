/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Threads for requests that may wait for our own store: its locks, its disk, the backing directory. They never wait for
 * what another node does, so they all come to an end, and a few of them do for any number of nodes; only for its transport, which answers at once or
 * is not waited for longer than a second (quiet.c). Tasks begin in the order in
 * which they came; some wait for the end of others that came before them.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "fs/job/private.h"

#define WORKER_THREADS 8

enum behind { /* the end of which tasks that came before it one waits for */
	BEHIND_NONE,
	BEHIND_TURN, /* those that do the same */
	BEHIND_ALL,
};

struct task {
	struct task *next;
	void (*fn)(struct job *j, void *arg); /* or */
	serve_handler serve;
	void *arg;
	uint64_t number;
	enum behind behind;
};

struct workers {
	struct job *j;
	pthread_mutex_t lock;
	pthread_cond_t cond, ended;
	struct task *first, **last;
	bool ending, stopped;
	uint64_t last_number;
	const struct task *running[WORKER_THREADS]; /* NULL: none */
	pthread_t threads[WORKER_THREADS];
	unsigned int num;
};

/* lock is held. */
static struct task *take_task(struct workers *w)
{
	while (!w->first && !w->ending)
		pthread_cond_wait(&w->cond, &w->lock);
	struct task *t = w->first;
	if (t) {
		w->first = t->next;
		if (!w->first)
			w->last = &w->first;
	}
	return t;
}

static const struct task **running_of(struct workers *w, const struct task *t)
{
	for (unsigned int i = 0; i < WORKER_THREADS; i++)
		if (w->running[i] == t)
			return &w->running[i];
	return NULL;
}

static bool has_to_wait(const struct workers *w, const struct task *t)
{
	for (unsigned int i = 0; t->behind && i < WORKER_THREADS; i++) {
		const struct task *r = w->running[i];

		if (r && r->number < t->number && (t->behind == BEHIND_ALL || r->behind == BEHIND_TURN))
			return true;
	}
	return false;
}

static void run_task(struct workers *w, struct task *t)
{
	if (t->serve)
		t->serve(w->j, t->arg);
	else
		t->fn(w->j, t->arg);
}

/* lock is held, but for while it runs. Tasks begin in order, so those before it have all begun. */
static void run_in_order(struct workers *w, struct task *t)
{
	*running_of(w, NULL) = t;
	while (has_to_wait(w, t))
		pthread_cond_wait(&w->ended, &w->lock);
	pthread_mutex_unlock(&w->lock);
	run_task(w, t);
	pthread_mutex_lock(&w->lock);
	*running_of(w, t) = NULL;
	pthread_cond_broadcast(&w->ended);
}

static void *worker_main(void *arg)
{
	struct workers *w = arg;

	pthread_mutex_lock(&w->lock);
	for (struct task *t; (t = take_task(w));) {
		run_in_order(w, t);
		free(t);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int workers_create(struct job *j, struct workers **ret)
{
	struct workers *w = calloc(1, sizeof(*w));
	int rc = 0;

	if (!w)
		return -ENOMEM;
	w->j = j;
	w->last = &w->first;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	pthread_cond_init(&w->ended, NULL);
	while (rc == 0 && w->num < WORKER_THREADS) {
		rc = -pthread_create(&w->threads[w->num], NULL, worker_main, w);
		w->num += rc == 0;
	}
	if (rc < 0)
		workers_destroy(w);
	else
		*ret = w;
	return rc;
}

void workers_stop(struct workers *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->ending = true;
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
	for (; w->num > 0; w->num--)
		pthread_join(w->threads[w->num - 1], NULL);
	pthread_mutex_lock(&w->lock);
	for (struct task *t; (t = take_task(w)); free(t)) { /* of who came when they were about to end */
		pthread_mutex_unlock(&w->lock);
		run_task(w, t);
		pthread_mutex_lock(&w->lock);
	}
	w->stopped = true;
	pthread_mutex_unlock(&w->lock);
}

void workers_destroy(struct workers *w)
{
	if (!w)
		return;
	workers_stop(w);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->cond);
	pthread_cond_destroy(&w->ended);
	free(w);
}

static int add_task(struct workers *w, struct task task)
{
	struct task *t = malloc(sizeof(*t));

	if (!t)
		return -ENOMEM;
	*t = task;
	t->next = NULL;
	pthread_mutex_lock(&w->lock);
	bool stopped = w->stopped;
	if (!stopped) {
		t->number = ++w->last_number;
		*w->last = t;
		w->last = &t->next;
		pthread_cond_signal(&w->cond);
	}
	pthread_mutex_unlock(&w->lock);
	if (stopped)
		free(t);
	return stopped ? -ESHUTDOWN : 0;
}

int workers_do(struct workers *w, void (*fn)(struct job *j, void *arg), void *arg)
{
	return add_task(w, (struct task){ .fn = fn, .arg = arg });
}

static void serve(struct workers *w, serve_handler fn, struct peers_request *rq, enum behind behind)
{
	int rc = add_task(w, (struct task){ .serve = fn, .arg = rq, .behind = behind });

	if (rc < 0)
		peers_reply_status(rq, rc);
}

void workers_serve(struct workers *w, serve_handler fn, struct peers_request *rq)
{
	serve(w, fn, rq, BEHIND_NONE);
}

void workers_serve_in_turn(struct workers *w, serve_handler fn, struct peers_request *rq)
{
	serve(w, fn, rq, BEHIND_TURN);
}

void workers_serve_after(struct workers *w, serve_handler fn, struct peers_request *rq)
{
	serve(w, fn, rq, BEHIND_ALL);
}
