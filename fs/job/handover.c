/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names that files at home here have just lost to files of other homes, by a rename over them or an exchange. The name is somebody's all
 * the time, but a listing asks the homes one after the other: the new one perhaps before it has the name, the old one when it has it
 * no more. So the old one says what it handed over since the listing began, and the listing looks such a name up (list.c).
 *
 * By the job's clock: whoever drops a name has heard of the rename before it, and that home of the listing, if it answered before.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fs/job/private.h"

#define HANDOVER_MAX 1024u /* listings that began before the oldest of them begin again */

struct handed {
	int64_t time; /* at the latest when the name went */
	uint64_t dir;
	char *name; /* owned; NULL: none */
};

struct handover {
	pthread_mutex_t lock;
	struct handed *at; /* HANDOVER_MAX, owned: a ring */
	size_t next;
	int64_t known_from; /* what went before that time is not known (any more) */
};

void handover_note(struct job *j, uint64_t dir, const char *name)
{
	struct handover *h = j->handover;
	char *copy = strdup(name);

	pthread_mutex_lock(&h->lock);
	struct handed *e = &h->at[h->next];
	if (e->name)
		h->known_from = e->time + 1;
	free(e->name);
	*e = (struct handed){ clock_now(state_clock(j->state)), dir, copy };
	if (!copy)
		h->known_from = e->time + 1;
	h->next = (h->next + 1) % HANDOVER_MAX;
	pthread_mutex_unlock(&h->lock);
}

bool handover_each(struct job *j, uint64_t dir, int64_t since, void (*each)(const char *name, void *arg), void *arg)
{
	struct handover *h = j->handover;

	pthread_mutex_lock(&h->lock);
	bool known = since >= h->known_from;
	for (size_t i = 0; i < HANDOVER_MAX; i++)
		if (h->at[i].name && h->at[i].dir == dir && h->at[i].time >= since)
			each(h->at[i].name, arg);
	pthread_mutex_unlock(&h->lock);
	return known;
}

static int handover_create(struct job *j, struct cistern_error *err)
{
	j->handover = calloc(1, sizeof(*j->handover));
	if (!j->handover)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&j->handover->lock, NULL);
	j->handover->known_from = clock_now(state_clock(j->state));
	j->handover->at = calloc(HANDOVER_MAX, sizeof(*j->handover->at));
	return j->handover->at ? 0 : cistern_error_set(err, -ENOMEM, "out of memory");
}

static void handover_destroy(struct job *j)
{
	if (!j->handover)
		return;
	for (size_t i = 0; j->handover->at && i < HANDOVER_MAX; i++)
		free(j->handover->at[i].name);
	pthread_mutex_destroy(&j->handover->lock);
	free(j->handover->at);
	free(j->handover);
	j->handover = NULL;
}

const struct part handover_part = { .create = handover_create, .destroy = handover_destroy };
