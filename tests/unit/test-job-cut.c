/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What is taken from a layer beside its commits: a cut that comes too late takes nothing that was committed behind it, and a layer that went
 * with its file holds up nobody; nor does a cut take what was written long behind it, whatever the system's clock shows.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fs/job/message.h"
#include "fs/job/private.h"
#include "fs/job/share.h"
#include "tests/lib/job_world.h"
#include "tests/lib/opened.h"
#include "tests/lib/tap.h"

#define ROUNDS 300

static _Atomic(int) system_clock_sec; /* it has been set by so much */

int clock_gettime(clockid_t id, struct timespec *ret)
{
	int rc = (int)syscall(SYS_clock_gettime, id, ret);

	if (id == CLOCK_REALTIME)
		ret->tv_sec += system_clock_sec;
	return rc;
}

static void tell_late(struct job_world *w)
{
	for (uint32_t n = 0; n < 2; n++)
		job_world_job(w, n)->share->tell_usec = UINT64_MAX;
}

static uint64_t stamp_of(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	uint64_t stamp = s->stamp;
	pthread_mutex_unlock(&s->mutex);
	return stamp;
}

/* As if it had waited there all the time. until: the home has waited for it. */
static int cut_late(struct job_world *w, uint64_t ino, uint64_t stamp, uint64_t until)
{
	struct view v = { .ino = ino, .stamp = stamp };
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_SHARE_CUT);
	message_put(&m, MESSAGE_SHARE_UNTIL, until);
	view_put(&m, &v);
	int rc = peers_call(job_world_peers(w, 0), 1, &m, NULL);
	wire_msg_free(&m);
	return rc;
}

static void test_late(void)
{
	struct job_world *w = job_world_start(2);
	struct opened a, b;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a), stamp;

	is_int(opened_at(w, 1, ino, O_RDWR, &b), 0, "opened elsewhere");
	is_int(opened_put(&b, "sooner", 0), 6, "written there");
	is_int(job_fsync(b.j, ino, b.file, false), 0, "committed");
	stamp = stamp_of(a.file->shared) + 1;
	for (int i = 0; i < 3; i++)
		is_int(opened_put(&b, "later!", 0) - 6 + job_fsync(b.j, ino, b.file, false), 0,
			"written and committed");
	ok(stamp_of(a.file->shared) > stamp, "with higher stamps");
	tell_late(w);
	is_int(opened_put(&b, " or not", 6), 7, "written, not committed");
	is_int(cut_late(w, ino, stamp, UINT64_MAX), 0, "a cut from before that comes now");
	ok(opened_shows(&b, 0, "later! or not"), "takes nothing of it");
	is_int(cut_late(w, ino, stamp_of(a.file->shared) + 1, stamp), -ETIMEDOUT,
		"nor does a later one that has failed");
	ok(opened_shows(&b, 0, "later! or not"), "also of what is not committed");
	is_int(job_fsync(b.j, ino, b.file, false), 0, "committed");
	ok(opened_shows(&a, 0, "later! or not"), "nor from others");
	is_int(opened_close(&a) + opened_close(&b), 0, "closed");
	job_world_stop(w);
}

/* What others have of a file goes when it is no more: not if its number has been given again before they are told. */
static void test_given_again(void)
{
	struct job_world *w = job_world_start(2);
	struct inode in;
	struct opened o;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &o);

	is_int(opened_close(&o), 0, "a file");
	is_int(opened_at(w, 1, ino, O_RDWR, &o), 0, "opened elsewhere");
	is_int(opened_put(&o, "bytes", 0) - 5 + opened_close(&o), 0, "written");
	registry_gone(ino, job_world_job(w, 0)); /* of its number's last bearer */
	registry_tell_gone(job_world_job(w, 0));
	loopback_settle(job_world_loopback(w));
	is_int(state_inode(store_state(job_world_store(w, 1)), ino, &in), 0, "the layer is there");
	is_int(opened_at(w, 0, ino, O_RDONLY, &o), 0, "opened at home");
	ok(opened_shows(&o, 0, "bytes"), "and the bytes");
	is_int(opened_close(&o), 0, "closed");
	job_world_stop(w);
}

static bool is_gone(struct job_world *w, uint32_t node, uint64_t ino)
{
	struct inode in;

	for (int i = 0; i < 500; i++) {
		registry_tell_gone(job_world_job(w, 0));
		loopback_settle(job_world_loopback(w));
		if (state_inode(store_state(job_world_store(w, node)), ino, &in) == -ENOENT)
			return true;
		usleep(10000);
	}
	return false;
}

/* Nothing is committed by a release alone: a mapping's pages come like that. */
static void test_dropped(uint32_t writer)
{
	struct job_world *w = job_world_start(2);
	struct opened o[2];
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &o[0]);

	is_int(opened_at(w, 1, ino, O_RDWR, &o[1]), 0, "opened elsewhere");
	is_int(opened_put(&o[1], "all", 0) + job_fsync(o[1].j, ino, o[1].file, false), 3, "it is shared");
	is_int(job_syncfs(o[0].j) + job_syncfs(o[1].j), 0, "all is committed");
	tell_late(w);
	is_int(opened_put(&o[writer], "hello", 0), 5, "one of them writes");
	for (uint32_t n = 0; n < 2; n++)
		job_release(o[n].j, o[n].file);
	is_int(job_unlink(job_world_job(w, 0), 1, "f"), 0, "removed at home");
	job_forget(job_world_job(w, 0), ino, 1);
	ok(is_gone(w, 0, ino) && is_gone(w, 1, ino), "it is gone everywhere");
	for (uint32_t n = 0; n < 2; n++) {
		is_int(job_syncfs(job_world_job(w, n)), 0, "it has nothing to commit");
		is_u64(job_world_job(w, n)->share->hold_usec, UINT64_MAX, "and may give back what it has freed");
	}
	job_world_stop(w);
}

/* Nobody uses the file there any more. */
static void await_let_go(struct job *j, uint64_t ino)
{
	struct shared *s;

	while ((s = shared_find(j, ino))) {
		shared_put(j, s);
		usleep(1000);
	}
}

static uint64_t make_cut(struct job_world *w)
{
	struct opened a, b;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a);

	is_int(opened_at(w, 1, ino, O_RDWR, &b), 0, "opened elsewhere");
	is_int(opened_put(&b, "all", 0) + job_fsync(b.j, ino, b.file, false), 3, "written there");
	usleep(1000000); /* so far an earlier time would bring the next daemons */
	is_int(share_truncate(a.j, ino, 0), 0, "cut");
	is_int(opened_close(&a) + opened_close(&b), 0, "closed");
	for (uint32_t n = 0; n < 2; n++)
		await_let_go(job_world_job(w, n), ino);
	return ino;
}

static void write_again(struct job_world *w, uint64_t ino)
{
	struct opened a, b;

	is_int(opened_at(w, 1, ino, O_RDWR, &b), 0, "opened elsewhere");
	is_int(opened_put(&b, "text", 0) + job_fsync(b.j, ino, b.file, false), 4, "written and synced");
	is_int(opened_close(&b), 0, "closed");
	is_int(opened_at(w, 0, ino, O_RDONLY, &a), 0, "opened at home");
	ok(opened_shows(&a, 0, "text"), "it is there");
	is_int(opened_close(&a), 0, "closed");
}

static void test_clock_put_back(void)
{
	struct job_world *w = job_world_start(2);
	uint64_t ino = make_cut(w);

	system_clock_sec = -60;
	write_again(w, ino);
	system_clock_sec = 0;
	job_world_stop(w);
}

static bool comes_to_show(struct opened *o, const char *text)
{
	char buf[16];

	for (int i = 0; i < 2000; i++) {
		if (job_read(o->j, o->file, buf, sizeof(buf), 0) == (ssize_t)strlen(text) &&
			memcmp(buf, text, strlen(text)) == 0)
			return true;
		usleep(10000);
	}
	return false;
}

/* What nobody waits for is not put off. */
static void test_told_in_time(void)
{
	struct job_world *w = job_world_start(2);
	struct opened a, b;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a);

	is_int(opened_at(w, 1, ino, O_RDWR, &b), 0, "opened elsewhere");
	system_clock_sec = 60;
	usleep(2000000); /* a wait that has begun by then is measured by that */
	system_clock_sec = 0;
	is_int(opened_put(&b, "text", 0), 4, "written there");
	ok(comes_to_show(&a, "text"), "and seen in some seconds, though the clock has been put back");
	is_int(opened_close(&a) + opened_close(&b), 0, "closed");
	job_world_stop(w);
}

/* The daemons' own clock goes on meanwhile; the next ones know of it by what it has given. */
static void test_all_restarted(void)
{
	struct job_world *w = job_world_start(2);

	system_clock_sec = -60;
	uint64_t ino = make_cut(w);
	for (uint32_t n = 0; n < 2; n++)
		job_world_kill(w, n);
	for (uint32_t n = 0; n < 2; n++)
		job_world_revive(w, n);
	write_again(w, ino);
	system_clock_sec = 0;
	job_world_stop(w);
}

struct race {
	struct opened writer;
	pthread_barrier_t barrier;
	unsigned int round;
};

static void *write_behind(void *arg)
{
	struct race *r = arg;

	pthread_barrier_wait(&r->barrier);
	for (unsigned int i = 0; i < r->round % 64; i++)
		sched_yield();
	return (void *)(intptr_t)opened_put(&r->writer, "0123456789", 100);
}

/* The write comes before the cut, or behind it. */
static bool is_one_of_both(struct job_world *w, struct opened *o, uint64_t ino)
{
	struct core_entry e;

	if (job_getattr(job_world_job(w, 0), ino, NULL, &e))
		return false;
	if (e.attr.st_size == 50)
		return true;
	return e.attr.st_size == 110 && opened_shows(o, 100, "0123456789");
}

static bool run_race(struct job_world *w, struct race *r, struct opened *other, uint64_t ino)
{
	pthread_t thread;
	void *done = NULL;

	pthread_create(&thread, NULL, write_behind, r);
	pthread_barrier_wait(&r->barrier);
	int rc = share_truncate(other->j, ino, 50);
	pthread_join(thread, &done);
	return rc == 0 && (intptr_t)done == 10 && job_fsync(r->writer.j, ino, r->writer.file, false) == 0 &&
	       is_one_of_both(w, other, ino) && share_truncate(other->j, ino, 0) == 0;
}

static void test_at_once(uint32_t writer)
{
	struct job_world *w = job_world_start(2);
	struct opened o[2];
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &o[0]);
	struct race r = { 0 };
	bool good = true;

	is_int(opened_at(w, 1, ino, O_RDWR, &o[1]), 0, "opened elsewhere");
	r.writer = o[writer];
	pthread_barrier_init(&r.barrier, NULL, 2);
	for (; good && r.round < ROUNDS; r.round++)
		good = run_race(w, &r, &o[1 - writer], ino);
	ok(good, "a write and a cut at once, one behind the other");
	pthread_barrier_destroy(&r.barrier);
	is_int(opened_close(&o[0]) + opened_close(&o[1]), 0, "closed");
	job_world_stop(w);
}

int main(void)
{
	test_at_once(1);
	test_at_once(0);
	test_clock_put_back();
	test_all_restarted();
	test_told_in_time();
	test_late();
	test_dropped(1);
	test_dropped(0);
	test_given_again();
	return done_testing();
}
