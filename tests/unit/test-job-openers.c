/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Nodes of a job, in one process: who has a file open, as its home knows it, when a daemon dies that is just saying so. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "format/place/place.h"
#include "fs/job/share.h"
#include "tests/lib/job_world.h"
#include "tests/lib/opened.h"
#include "tests/lib/tap.h"

#define OPENER 1u
#define OTHER  2u
#define NODES  3u

static void ignore(int status, const struct wire_msg *reply, void *arg)
{
	(void)status, (void)reply, (void)arg;
}

static int64_t now(struct job_world *w)
{
	return clock_now(state_clock(job_world_job(w, OPENER)->state));
}

/* OPENER's daemon has had the file open for writing so often at that time. */
static void init_counts(struct wire_msg *m, uint64_t ino, uint64_t writers, int64_t at)
{
	message_init(m, MESSAGE_SHARE_REGISTER);
	message_put(m, MESSAGE_INO, ino);
	message_put(m, MESSAGE_SHARE_INO, ino);
	message_put(m, MESSAGE_SHARE_WRITERS, writers);
	message_put(m, MESSAGE_SHARE_TIME, (uint64_t)at);
}

/* It says so, and does not wait. */
static void say_open(struct job_world *w, uint64_t ino)
{
	struct wire_msg m = { 0 };

	init_counts(&m, ino, 1, now(w));
	is_int(peers_call_async(job_world_peers(w, OPENER), 0, &m, ignore, NULL), 0,
		"a node says that it writes to a file");
	wire_msg_free(&m);
}

static void say_writers(struct job_world *w, uint64_t ino, uint64_t writers, int64_t at)
{
	struct wire_msg m = { 0 };

	init_counts(&m, ino, writers, at);
	is_int(peers_call(job_world_peers(w, OPENER), 0, &m, NULL), 0, "a node says whether it writes to a file");
	wire_msg_free(&m);
}

static uint32_t refs_of(struct job *j, struct shared *s)
{
	pthread_mutex_lock(&j->share->table);
	uint32_t refs = s->refs;
	pthread_mutex_unlock(&j->share->table);
	return refs;
}

/* At home nobody works on what arrived for the file: the one reference is ours. */
static void await_served(struct job_world *w, struct shared *s)
{
	loopback_settle(job_world_loopback(w));
	while (refs_of(job_world_job(w, 0), s) > 1)
		usleep(1000);
}

static void test_dies_before(void)
{
	struct job_world *w = job_world_start(NODES);
	struct job *home = job_world_job(w, 0);
	struct opened f;
	uint64_t ino = opened_create(w, 0, "file", O_RDWR, &f);

	is_int(opened_close(&f), 0, "made");
	struct shared *s = shared_get(home, ino);
	pthread_mutex_lock(&s->cut_lock); /* as while the file is cut */
	say_open(w, ino);
	loopback_settle(job_world_loopback(w));
	while (refs_of(home, s) < 2)
		usleep(1000);
	job_world_restart(w, OPENER);
	pthread_mutex_unlock(&s->cut_lock);
	await_served(w, s);
	ok(!registry_has_openers(s), "its daemon has died before that was looked at: nobody has it open");
	shared_put(home, s);
	job_world_stop(w);
}

/* In that node's domain something has been committed. */
static void fill_domain(struct opened *f, uint64_t ino, uint32_t node)
{
	uint64_t off = 0;

	while (place_domain(ino, off, PLACE_DOMAIN_SIZE, NODES) != node)
		off += PLACE_DOMAIN_SIZE;
	is_int(opened_put(f, "data", off), 4, "written");
	is_int(opened_close(f), 0, "and committed");
}

/* What it had open before is not put back when the new word comes to nothing. */
static void test_dies_while_it_fails(void)
{
	struct job_world *w =
		job_world_start_with(&(struct job_world_options){ .num = NODES, .timeout_usec = 1500000 });
	struct loopback *l = job_world_loopback(w);
	struct opened f;
	uint64_t ino = opened_create(w, 0, "file", O_RDWR, &f);
	struct shared *s = shared_get(f.j, ino);

	say_open(w, ino);
	loopback_settle(l);
	while (!s->is_shared)
		usleep(1000);
	fill_domain(&f, ino, OTHER);
	await_served(w, s);
	ok(registry_has_openers(s), "it has it open");
	loopback_set_hanging(l, OTHER, true);
	pthread_mutex_lock(&s->mutex);
	s->resend = true; /* so the home has to tell first what it has committed */
	pthread_mutex_unlock(&s->mutex);
	say_open(w, ino);
	usleep(100000);
	job_world_restart(w, OPENER);
	ok(!registry_has_openers(s), "its daemon dies while the home tells a node that does not answer");
	await_served(w, s);
	loopback_set_hanging(l, OTHER, false);
	ok(!registry_has_openers(s), "still nobody has it open");
	shared_put(job_world_job(w, 0), s);
	job_world_stop(w);
}

/* An opening that has waited for its turn, and was given up meanwhile. */
static void test_closed_before(void)
{
	struct job_world *w = job_world_start(NODES);
	struct opened f;
	uint64_t ino = opened_create(w, 0, "file", O_RDWR, &f);
	struct shared *s = shared_get(f.j, ino);

	is_int(opened_close(&f), 0, "made");
	int64_t early = now(w), late = now(w) + 1;
	say_writers(w, ino, 0, late);
	say_writers(w, ino, 1, early);
	ok(!registry_has_openers(s), "what was said before it closed the file comes behind that: nobody has it open");
	say_writers(w, ino, 1, late + 1);
	ok(registry_has_openers(s), "it opens it again");
	say_writers(w, ino, 0, late + 3);
	say_writers(w, ino, 1, late + 2);
	ok(!registry_has_openers(s), "the same of that opening");
	job_world_restart(w, OPENER);
	say_writers(w, ino, 1, early);
	ok(registry_has_openers(s), "another daemon's clock may be behind that");
	shared_put(job_world_job(w, 0), s);
	job_world_stop(w);
}

int main(void)
{
	test_dies_before();
	test_closed_before();
	test_dies_while_it_fails();
	return done_testing();
}
