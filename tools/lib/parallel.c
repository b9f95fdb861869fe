/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/lib/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#define THREADS_MAX 64u

struct thread {
	pthread_t id;
	void (*work)(void *task, unsigned int i);
	void *task;
	unsigned int number;
	bool runs;
};

unsigned int parallel_processors(void)
{
	cpu_set_t set;
	int num = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

	return num < 1 ? 1 : (unsigned int)num;
}

static void *run(void *arg)
{
	const struct thread *t = arg;

	t->work(t->task, t->number);
	return NULL;
}

void parallel_each(unsigned int num, void (*work)(void *task, unsigned int i), void *task)
{
	struct thread threads[THREADS_MAX];
	unsigned int started = num < THREADS_MAX ? num : THREADS_MAX;

	for (unsigned int i = 1; i < started; i++) {
		struct thread *t = &threads[i];

		*t = (struct thread){ .work = work, .task = task, .number = i };
		t->runs = pthread_create(&t->id, NULL, run, t) == 0;
	}
	if (num > 0)
		work(task, 0);
	for (unsigned int i = 1; i < num; i++) {
		if (i < started && threads[i].runs)
			pthread_join(threads[i].id, NULL);
		else
			work(task, i);
	}
}
