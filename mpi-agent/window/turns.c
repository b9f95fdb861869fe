/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/window/turns.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

struct rank {
	TAILQ_ENTRY(rank) in_line; /* while something waits */
	struct turn *head, **tail;
	uint32_t under_way;
};

struct turns {
	struct rank *ranks;
	TAILQ_HEAD(, rank) line; /* whose turn it is stands first */
	uint32_t left;           /* may begin */
};

int turns_create(uint32_t num_ranks, uint32_t most, struct turns **ret)
{
	struct turns *t = calloc(1, sizeof(*t));

	if (t)
		t->ranks = calloc(num_ranks ? num_ranks : 1, sizeof(*t->ranks));
	if (!t || !t->ranks) {
		free(t);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < num_ranks; i++)
		t->ranks[i].tail = &t->ranks[i].head;
	TAILQ_INIT(&t->line);
	t->left = most;
	*ret = t;
	return 0;
}

void turns_destroy(struct turns *t)
{
	if (!t)
		return;
	free(t->ranks);
	free(t);
}

void turns_push(struct turns *t, uint32_t rank, struct turn *waits)
{
	struct rank *r = &t->ranks[rank];

	if (!r->head)
		TAILQ_INSERT_TAIL(&t->line, r, in_line);
	*waits = (struct turn){ .rank = rank };
	*r->tail = waits;
	r->tail = &waits->next;
}

static struct turn *begin(struct turns *t, struct rank *r)
{
	struct turn *turn = r->head;

	r->head = turn->next;
	TAILQ_REMOVE(&t->line, r, in_line);
	if (r->head)
		TAILQ_INSERT_TAIL(&t->line, r, in_line);
	else
		r->tail = &r->head;
	r->under_way++;
	t->left--;
	return turn;
}

struct turn *turns_next(struct turns *t)
{
	struct rank *r;

	if (t->left == 0)
		return NULL;
	TAILQ_FOREACH(r, &t->line, in_line)
	if (r->under_way < t->left || r->under_way == 0)
		return begin(t, r);
	return NULL;
}

void turns_ended(struct turns *t, uint32_t rank)
{
	t->ranks[rank].under_way--;
	t->left++;
}

struct turn *turns_take(struct turns *t, uint32_t rank)
{
	struct rank *r = &t->ranks[rank];
	struct turn *all = r->head;

	if (all)
		TAILQ_REMOVE(&t->line, r, in_line);
	r->head = NULL;
	r->tail = &r->head;
	return all;
}
