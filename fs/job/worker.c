/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Threads for requests that may wait for our own store: its locks, its disk, the backing directory. They never wait for
 * another node, so they all come to an end, and a few of them do for any number of nodes. Tasks begin in the order in
 * which they came.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "fs/job/private.h"

#define WORKER_THREADS 8

struct task {
	struct task *next;
	void (*fn)(struct job *j, void *arg); /* or */
	serve_handler serve;
	void *arg;
	uint64_t number;
	bool after_earlier;
};

struct workers {
	struct job *j;
	pthread_mutex_t lock;
	pthread_cond_t cond, ended;
	struct task *first, **last;
	bool ending;
	uint64_t last_number;
	uint64_t running[WORKER_THREADS]; /* numbers of tasks; 0: none */
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

static uint64_t *running_of(struct workers *w, uint64_t number)
{
	for (unsigned int i = 0; i < WORKER_THREADS; i++)
		if (w->running[i] == number)
			return &w->running[i];
	return NULL;
}

static bool has_earlier(const struct workers *w, uint64_t number)
{
	for (unsigned int i = 0; i < WORKER_THREADS; i++)
		if (w->running[i] && w->running[i] < number)
			return true;
	return false;
}

static void run_task(struct workers *w, struct task *t)
{
	if (t->serve)
		t->serve(w->j, t->arg);
	else
		t->fn(w->j, t->arg);
}

/* Tasks begin in order, so those before it have all begun. */
static void run_after_earlier(struct workers *w, struct task *t)
{
	if (t->after_earlier) {
		pthread_mutex_lock(&w->lock);
		while (has_earlier(w, t->number))
			pthread_cond_wait(&w->ended, &w->lock);
		pthread_mutex_unlock(&w->lock);
	}
	run_task(w, t);
}

static void *worker_main(void *arg)
{
	struct workers *w = arg;

	pthread_mutex_lock(&w->lock);
	for (struct task *t; (t = take_task(w));) {
		*running_of(w, 0) = t->number;
		pthread_mutex_unlock(&w->lock);
		run_after_earlier(w, t);
		pthread_mutex_lock(&w->lock);
		*running_of(w, t->number) = 0;
		pthread_cond_broadcast(&w->ended);
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

void workers_destroy(struct workers *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->ending = true;
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
	for (unsigned int i = 0; i < w->num; i++)
		pthread_join(w->threads[i], NULL);
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
	t->number = ++w->last_number;
	*w->last = t;
	w->last = &t->next;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
	return 0;
}

int workers_do(struct workers *w, void (*fn)(struct job *j, void *arg), void *arg)
{
	return add_task(w, (struct task){ .fn = fn, .arg = arg });
}

static void serve(struct workers *w, serve_handler fn, struct peers_request *rq, bool after_earlier)
{
	if (add_task(w, (struct task){ .serve = fn, .arg = rq, .after_earlier = after_earlier }) < 0)
		peers_reply_status(rq, -ENOMEM);
}

void workers_serve(struct workers *w, serve_handler fn, struct peers_request *rq)
{
	serve(w, fn, rq, false);
}

void workers_serve_after(struct workers *w, serve_handler fn, struct peers_request *rq)
{
	serve(w, fn, rq, true);
}
