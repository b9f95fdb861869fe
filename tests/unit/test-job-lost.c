/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A home loses power, and with it a file, or that it is one of the job, which another node has open and has written to. fsync there does not say that
 * bytes are durable which are nowhere; and what can be saved is.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/place/place.h"
#include "fs/job/message.h"
#include "fs/job/private.h"
#include "fs/job/share.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES 3u
#define SEEDS 4u

enum when {
	EARLY,
	LATE,
	TOLD,
	WHEN_END
}; /* before others tell what they have again; behind that; and behind a commit of that time */
static const char *const when_names[] = { "early", "late", "told" };

struct scene {
	struct job_world *w;
	uint32_t home, writer, third;
	struct path_file f;
	struct shared *s;
	_Atomic(bool) flushed;
};

static void begin(struct scene *t)
{
	t->w = job_world_start_with(&(struct job_world_options){ .num = NODES, .simulated = true });
}

static void open_and_write(struct scene *t, uint32_t home)
{
	t->home = home;
	t->writer = (home + 1) % NODES;
	t->third = (home + 2) % NODES;
	struct job *j = job_world_job(t->w, t->writer);
	j->share->tell_usec = UINT64_MAX;
	if (path_open(j, "f", O_RDWR, &t->f) || job_write(j, t->f.file, "bytes", 5, 0) != 5)
		exit(1);
	t->s = t->f.file->shared;
}

static void *sync_file(void *arg)
{
	struct scene *t = arg;

	return (void *)(intptr_t)job_fsync(t->f.j, t->f.ino, t->f.file, false);
}

static void await_settled(struct scene *t)
{
	for (uint32_t n = 0; n < NODES; n++)
		while (!power_is_settled(job_world_job(t->w, n)))
			usleep(1000);
}

/* The third node holds up what the home tells; nor does the writer register again before fsync has asked the home. */
static int sync_early(struct scene *t)
{
	struct loopback *l = job_world_loopback(t->w);
	pthread_t thread;
	void *rc;

	pthread_mutex_lock(&t->s->open_lock);
	loopback_hold_reply(l, t->third, MESSAGE_POWER_LOST, 0);
	job_world_revive(t->w, t->home);
	loopback_await_held(l, t->third);
	if (pthread_create(&thread, NULL, sync_file, t))
		exit(1);
	usleep(300000);
	pthread_mutex_unlock(&t->s->open_lock);
	pthread_join(thread, &rc);
	loopback_let_go(l, t->third);
	await_settled(t);
	return (int)(intptr_t)rc;
}

static int lose_and_sync(struct scene *t, enum when when, uint64_t seed)
{
	job_world_lose_power(t->w, t->home, seed);
	if (when == EARLY)
		return sync_early(t);
	job_world_revive(t->w, t->home);
	await_settled(t);
	if (when == TOLD)
		(void)share_commit(t->f.j, t->s, false);
	return job_fsync(t->f.j, t->f.ino, t->f.file, false);
}

static bool is_there(struct scene *t)
{
	struct path_file o;
	char got[16] = "";
	int rc = path_open(job_world_job(t->w, t->third), "f", O_RDONLY, &o);

	if (rc == 0) {
		(void)job_read(o.j, o.file, got, sizeof(got) - 1, 0);
		(void)path_close(&o);
	}
	return strncmp(got, "bytes", 5) == 0;
}

/* The writer's own. Returns whether it was lost. */
static bool test_created(enum when when, uint64_t seed)
{
	struct scene t;

	begin(&t);
	is_int(path_create(job_world_job(t.w, 0), "f", 0644, 0), 0, "a file is made, and not synced");
	open_and_write(&t, 0);
	int rc = lose_and_sync(&t, when, seed), again = job_fsync(t.f.j, t.f.ino, t.f.file, false);
	bool there = is_there(&t);
	ok((rc == 0 || rc == -ESTALE) && (there || rc), "%s, seed %d: fsync says %d, the bytes are %s",
		when_names[when], (int)seed, rc, there ? "there" : "nowhere");
	is_int(again, rc, "and says so again");
	(void)path_close(&t.f);
	is_int(job_syncfs(job_world_job(t.w, t.writer)), 0, "nothing is left to be told");
	job_world_stop(t.w);
	return !there;
}

static void make_backing(struct scene *t)
{
	char path[200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/f", job_world_backing(t->w));
	if (!(f = fopen(path, "w")) || fputs("backing file", f) < 0 || fclose(f))
		exit(1);
}

/* One of the backing directory, which its home finds again. */
static void test_adopted(enum when when, uint64_t seed)
{
	struct scene t;
	struct stat st;

	begin(&t);
	make_backing(&t);
	is_int(path_stat(job_world_job(t.w, 0), "f", &st), 0, "a file of the backing directory");
	open_and_write(&t, place_ino(st.st_ino, NODES));
	int rc = lose_and_sync(&t, when, seed);
	is_int(rc, 0, "fsync behind the loss of power");
	ok(is_there(&t), "%s, seed %d: the bytes are there", when_names[when], (int)seed);
	is_int(path_close(&t.f), 0, "closed");
	job_world_stop(t.w);
}

static void *flush_file(void *arg)
{
	struct scene *t = arg;
	int rc = job_flush(t->f.j, t->f.file);

	t->flushed = true;
	return (void *)(intptr_t)rc;
}

static int make_synced(struct job *j)
{
	struct path_file o;
	int rc = path_create(j, "f", 0644, 0);

	rc = rc ? rc : path_open(j, "f", O_RDWR, &o);
	rc = rc ? rc : job_fsync(o.j, o.ino, o.file, false);
	return rc ? rc : path_close(&o);
}

/* Its home has the file, and may have forgotten that others write to it: who closes it does not go by that. */
static void test_closed(uint64_t seed)
{
	struct scene t;
	pthread_t thread;
	void *rc;

	t.flushed = false;
	begin(&t);
	is_int(make_synced(job_world_job(t.w, 0)), 0, "a file is made, and synced");
	open_and_write(&t, 0);
	job_world_lose_power(t.w, t.home, seed);
	pthread_mutex_lock(&t.s->open_lock); /* nor does the writer register again before */
	job_world_revive(t.w, t.home);
	if (pthread_create(&thread, NULL, flush_file, &t))
		exit(1);
	usleep(300000);
	ok(!t.flushed || is_there(&t), "seed %d: what is closed is there, early", (int)seed);
	pthread_mutex_unlock(&t.s->open_lock);
	pthread_join(thread, &rc);
	is_int((intptr_t)rc, 0, "closed");
	ok(is_there(&t), "then it is there");
	is_int(path_close(&t.f), 0, "closed");
	job_world_stop(t.w);
}

/* Who removes a file that he has open is told nothing of it. */
static void test_removed(void)
{
	struct scene t;

	begin(&t);
	is_int(path_create(job_world_job(t.w, 0), "f", 0644, 0), 0, "a file");
	open_and_write(&t, 0);
	is_int(path_unlink(t.f.j, "f"), 0, "is removed while it is open");
	is_int(job_fsync(t.f.j, t.f.ino, t.f.file, false), 0, "synced");
	is_int(path_close(&t.f), 0, "and closed");
	job_world_stop(t.w);
}

int main(void)
{
	unsigned int lost = 0;

	for (enum when when = 0; when < WHEN_END; when++)
		for (uint64_t seed = 1; seed <= SEEDS; seed++) {
			lost += test_created(when, seed);
			test_adopted(when, seed);
		}
	ok(lost > 0, "of the files that were made %u are lost", lost);
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		test_closed(seed);
	test_removed();
	return done_testing();
}
