/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Listings while a directory and a file change places, which one node does before the other, with messages that take their time: both
 * names are there all along.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES    3u
#define CHANGES  60
#define LIST_CAP 8192

struct trial {
	struct job_world *w;
	_Atomic(bool) over;
	int failed; /* of the changes, the first error */
};

static struct job_world *start(void)
{
	struct job_world *w = job_world_start(NODES);

	path_mkdir(job_world_job(w, 1), "d", 0700);
	path_create(job_world_job(w, 1), "f", 0600, 0);
	loopback_set_delay(job_world_loopback(w), 0, 3000, 11);
	return w;
}

static bool has(const char *list, const char *name)
{
	char line[32];

	snprintf(line, sizeof(line), "\n%s\n", name);
	return strstr(list, line) != NULL;
}

/* Names, each between two newlines. */
static bool list(struct trial *t, uint32_t node, char out[LIST_CAP])
{
	out[0] = '\n';
	return path_list(job_world_job(t->w, node), "", out + 1, LIST_CAP - 1) == 0;
}

/* changes in a thread of its own; look, again and again, until it ends. 0, or how often look said no. */
static unsigned int run(struct trial *t, void *(*changes)(void *arg), bool (*look)(struct trial *t, unsigned int i))
{
	unsigned int wrong = 0;
	pthread_t thread;

	t->over = false;
	if (pthread_create(&thread, NULL, changes, t))
		return 1;
	for (unsigned int i = 0; !t->over; i++)
		wrong += !look(t, i);
	pthread_join(thread, NULL);
	return wrong;
}

static void *exchange(void *arg)
{
	struct trial *t = arg;

	for (int i = 0; i < CHANGES && t->failed == 0; i++)
		t->failed = path_rename(job_world_job(t->w, 1), "d", "f", RENAME_EXCHANGE);
	t->over = true;
	return NULL;
}

static bool both_are_there(struct trial *t, unsigned int i)
{
	char names[LIST_CAP];

	return list(t, i % NODES, names) && has(names, "d") && has(names, "f");
}

int main(void)
{
	struct trial t = { .w = start() };

	ok(run(&t, exchange, both_are_there) == 0, "a directory and a file that change places are listed all the time");
	ok(t.failed == 0, "they change places");
	job_world_stop(t.w);
	return done_testing();
}
