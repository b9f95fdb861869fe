/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Directories that some nodes have and others do not have yet: made, or taken over from the backing directory, just now, with messages that
 * take their time. Who sees one can use it.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "format/index/state.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES    3u
#define DIRS     24
#define ROOT_INO 1u

struct trial {
	struct job_world *w;
	pthread_barrier_t begin;
	const char *prefix; /* their names begin so */
	int failed;         /* of the other node's calls, the first error */
};

static struct job *job(struct trial *t, uint32_t node)
{
	return job_world_job(t->w, node);
}

static const char *path(char out[64], const struct trial *t, int i, const char *rest)
{
	snprintf(out, 64, "%s%d%s", t->prefix, i, rest);
	return out;
}

static void *make(void *arg)
{
	struct trial *t = arg;
	char name[64];

	for (int i = 0; i < DIRS; i++) {
		pthread_barrier_wait(&t->begin);
		int rc = path_mkdir(job(t, 1), path(name, t, i, ""), 0700);
		t->failed = t->failed ? t->failed : rc;
	}
	return NULL;
}

static void *take_over(void *arg)
{
	struct trial *t = arg;
	char name[64];

	for (int i = 0; i < DIRS; i++) {
		pthread_barrier_wait(&t->begin);
		int rc = path_mknod(job(t, 1), path(name, t, i, "/other"), 0600);
		t->failed = t->failed ? t->failed : rc;
	}
	return NULL;
}

/* In node 2's tree. Not asked for by a lookup: that would wait for the other node's call. */
static bool is_there(struct trial *t, const char *name)
{
	struct state_name e;

	return state_lookup(store_state(job_world_store(t->w, 2)), ROOT_INO, name, &e) == 0;
}

/* A file of this node, and a link to one of another node, in a directory as soon as it is there. */
static int use(struct trial *t, int i)
{
	char name[64];

	pthread_barrier_wait(&t->begin);
	while (!is_there(t, path(name, t, i, "")))
		sched_yield();
	int rc = path_mknod(job(t, 2), path(name, t, i, "/own"), 0600);
	return rc ? rc : path_link(job(t, 2), "file1", path(name, t, i, "/link"));
}

static void run(struct trial *t, const char *prefix, void *(*other)(void *arg), const char *what)
{
	unsigned int wrong = 0;
	pthread_t thread;

	t->prefix = prefix;
	t->failed = 0;
	pthread_barrier_init(&t->begin, NULL, 2);
	ok(pthread_create(&thread, NULL, other, t) == 0, "the other node begins");
	for (int i = 0; i < DIRS; i++) {
		int rc = use(t, i);

		if (rc && !wrong++)
			printf("# %s %d: %s\n", prefix, i, strerror(-rc));
	}
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&t->begin);
	is_int(t->failed, 0, "the other node's calls succeed");
	ok(wrong == 0, "%s", what);
}

int main(void)
{
	struct trial t = { .w = job_world_start(NODES) };
	char name[192];

	for (int i = 0; i < DIRS; i++) {
		snprintf(name, sizeof(name), "%s/found%d", job_world_backing(t.w), i);
		if (mkdir(name, 0700) < 0)
			return 1;
	}
	path_mknod(job(&t, 1), "file1", 0600);
	loopback_set_delay(job_world_loopback(t.w), 0, 20000, 11);
	run(&t, "made", make, "a directory that is seen can be used, as soon as it is made");
	run(&t, "found", take_over, "and one that is taken over from the backing directory meanwhile");
	loopback_set_delay(job_world_loopback(t.w), 0, 0, 11);
	job_world_stop(t.w);
	return done_testing();
}
