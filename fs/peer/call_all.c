/* SPDX-License-Identifier: GPL-3.0-or-later */
/* One question to all nodes. Replies are queued and looked at by who asks, so that each() runs in that thread alone. */
#include <errno.h>
#include <stdlib.h>

#include "fs/peer/private.h"

struct answer {
	struct all *all;
	struct answer *next;
	struct wire_msg reply;
	uint32_t node;
	int status;
	bool came; /* reply is one */
};

struct all {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct answer *first, **last;
};

static void push(struct answer *a, int status)
{
	struct all *all = a->all;

	pthread_mutex_lock(&all->lock);
	a->status = status;
	a->next = NULL;
	*all->last = a;
	all->last = &a->next;
	pthread_cond_signal(&all->cond);
	pthread_mutex_unlock(&all->lock);
}

static void answer_done(int status, const struct wire_msg *reply, void *arg)
{
	struct answer *a = arg;

	if (reply) {
		a->came = message_copy(&a->reply, reply) == 0;
		if (!a->came)
			status = -ENOMEM;
	}
	push(a, status);
}

static struct answer *pop(struct all *all, bool wait)
{
	struct answer *a;

	pthread_mutex_lock(&all->lock);
	while (wait && !all->first)
		pthread_cond_wait(&all->cond, &all->lock);
	a = all->first;
	if (a)
		all->first = a->next;
	if (!all->first)
		all->last = &all->first;
	pthread_mutex_unlock(&all->lock);
	return a;
}

struct sum {
	int first_error;
	uint32_t left;
};

static void take(struct answer *a, int *status, void (*each)(uint32_t, const struct wire_msg *, void *), void *arg,
	struct sum *sum)
{
	if (status)
		status[a->node] = a->status;
	if (a->status && !sum->first_error)
		sum->first_error = a->status;
	if (each && a->came)
		each(a->node, &a->reply, arg);
	wire_msg_free(&a->reply);
	sum->left--;
}

int peers_call_all(struct peers *p, const struct wire_msg *request, int *status,
	void (*each)(uint32_t node, const struct wire_msg *reply, void *arg), void *arg)
{
	struct all all = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &all.first };
	uint32_t count = peers_count(p);
	struct answer *answers = calloc(count, sizeof(*answers)), *a;
	struct sum sum = { 0, count };

	if (!answers)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		int r;

		answers[i].all = &all;
		answers[i].node = i;
		r = peers_call_async_wait(p, i, request, answer_done, &answers[i]);
		if (r)
			push(&answers[i], r);
		while ((a = pop(&all, false)))
			take(a, status, each, arg, &sum);
	}
	while (sum.left)
		take(pop(&all, true), status, each, arg, &sum);
	free(answers);
	pthread_mutex_destroy(&all.lock);
	pthread_cond_destroy(&all.cond);
	return sum.first_error;
}
