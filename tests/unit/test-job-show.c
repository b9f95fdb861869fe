/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Who may write a file reads in it what the others have written by then, though nobody has closed or synced it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/job/lease.h"
#include "format/base/clock.h"
#include "fs/job/private.h"
#include "fs/job/share.h"
#include "tests/lib/job_world.h"
#include "tests/lib/opened.h"
#include "tests/lib/tap.h"

#define NODES        4u
#define TIMEOUT_USEC 4000000u
#define READS        50u
#define CALM_READS   12 /* more than it takes until there is a lease */

struct scene {
	struct job_world *w;
	uint64_t ino;
	struct opened at[NODES]; /* node 0 is its home */
};

static void begin_with(struct scene *t, const struct job_world_options *opt)
{
	*t = (struct scene){ .w = job_world_start_with(opt) };
	t->ino = opened_create(t->w, 0, "f", O_RDWR, &t->at[0]);
	for (uint32_t n = 0; n < NODES; n++) {
		job_world_job(t->w, n)->share->tell_usec = UINT64_MAX;
		if (n > 0)
			is_int(opened_at(t->w, n, t->ino, n == 3 ? O_RDONLY : O_RDWR, &t->at[n]), 0, "opened");
	}
}

static void begin(struct scene *t, const char *settings)
{
	begin_with(t, &(struct job_world_options){ .num = NODES, .settings = settings, .timeout_usec = TIMEOUT_USEC });
}

static void end(struct scene *t)
{
	for (uint32_t n = 0; n < NODES; n++)
		if (t->at[n].file)
			is_int(opened_close(&t->at[n]), 0, "closed");
	job_world_stop(t->w);
}

/* What a process of that node reads there, or the kernel for its pages. */
static bool reads(struct scene *t, uint32_t node, bool process, uint64_t off, const char *text)
{
	struct job_bytes where;
	char buf[64];
	ssize_t got = job_read_bytes(t->at[node].j, t->at[node].file, process, buf, strlen(text), off, &where);
	bool same = got == (ssize_t)strlen(text) && memcmp(where.at, text, strlen(text)) == 0;

	job_bytes_end(&where);
	return same;
}

static void test_shown(void)
{
	struct scene t;

	begin(&t, "data=log");
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	ok(!reads(&t, 3, true, 0, "one"), "who may only read does not see it yet");
	ok(!reads(&t, 2, false, 0, "one"), "nor does a page of a mapping");
	ok(reads(&t, 2, true, 0, "one"), "a process that may write does");
	is_int(opened_put(&t.at[2], "TWO", 1), 3, "it changes that");
	ok(reads(&t, 1, true, 0, "oTWO"), "which is seen in the same way");
	is_int(opened_put(&t.at[0], "home", 10), 4, "the home writes");
	ok(reads(&t, 2, true, 10, "home"), "which others see");
	is_int(opened_put(&t.at[2], "HOME", 10), 4, "one changes that");
	ok(reads(&t, 0, true, 10, "HOME"), "which the home sees");
	uint64_t before = t.at[2].j->share->messages;
	ok(reads(&t, 2, true, 10, "HOME") && t.at[2].j->share->messages - before <= 2,
		"when there is no news that takes one message, or two: %u",
		(unsigned int)(t.at[2].j->share->messages - before));
	end(&t);
}

static void test_sought(void)
{
	struct scene t;
	uint64_t at = 0;

	begin(&t, "data=log");
	is_int(opened_put(&t.at[1], "one", 100), 3, "a node writes behind a hole");
	is_int(job_lseek(t.at[3].j, t.at[3].file, 0, SEEK_DATA, &at), -ENXIO, "who may only read finds nothing yet");
	is_int(job_lseek(t.at[2].j, t.at[2].file, 0, SEEK_DATA, &at), 0, "a process that may write does");
	is_u64(at, 100, "where it is");
	end(&t);
}

static void test_copied(void)
{
	struct scene t;
	struct opened to;
	struct job_bytes where;
	char buf[4] = "";

	begin(&t, "data=log");
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	ok(opened_create(t.w, 2, "g", O_RDWR, &to) != 0, "another one makes a file");
	is_int(job_copy_range(t.at[2].j, t.at[2].file, 0, to.file, 0, 3), 3, "and copies that");
	is_int(job_read_bytes(to.j, to.file, true, buf, 3, 0, &where), 3, "what it has then");
	ok(memcmp(where.at, "one", 3) == 0, "is what was written");
	job_bytes_end(&where);
	is_int(opened_close(&to), 0, "closed");
	end(&t);
}

static void *read_late(void *arg)
{
	return (void *)(intptr_t)reads(arg, 2, true, 0, "one");
}

/* A home that has just begun does not know who writes. */
static void test_home_restarted(void)
{
	struct scene t;
	pthread_t thread;
	void *seen = NULL;

	begin(&t, "data=log");
	is_int(opened_close(&t.at[0]), 0, "the home's daemon has nothing open");
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	loopback_set_hanging(job_world_loopback(t.w), 1, true);
	job_world_restart(t.w, 0);
	pthread_create(&thread, NULL, read_late, &t);
	usleep(200000); /* only too little could be read by now */
	loopback_set_hanging(job_world_loopback(t.w), 1, false);
	pthread_join(thread, &seen);
	ok(seen, "the home is restarted: another one reads it all the same");
	loopback_settle(job_world_loopback(t.w));
	is_int(opened_put(&t.at[1], "two", 0), 3, "it goes on");
	ok(reads(&t, 2, true, 0, "two"), "which is read");
	uint64_t before = job_world_job(t.w, 0)->share->messages;
	ok(reads(&t, 2, true, 0, "two"), "again");
	ok(job_world_job(t.w, 0)->share->messages - before <= 1, "and the home knows whom to ask: %u messages",
		(unsigned int)(job_world_job(t.w, 0)->share->messages - before));
	is_int(opened_at(t.w, 0, t.ino, O_RDWR, &t.at[0]), 0, "opened at home");
	end(&t);
}

static void test_not_wanted(void)
{
	struct scene t;

	begin(&t, "data=log,visible=close");
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	ok(!reads(&t, 2, true, 0, "one"), "with visible=close that is not asked for");
	end(&t);
}

static void test_visible_anyway(void)
{
	struct scene t;

	begin(&t, "data=log,visible=write");
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes what is seen at once");
	ok(reads(&t, 2, true, 0, "one"), "it is seen");
	uint64_t before = t.at[2].j->share->messages;
	ok(reads(&t, 2, true, 0, "one"), "again");
	is_u64(t.at[2].j->share->messages, before, "which nobody has to be asked for");
	end(&t);
}

static void *sync_one(void *arg)
{
	struct scene *t = arg;

	return (void *)(intptr_t)job_fsync(t->at[1].j, t->ino, t->at[1].file, false);
}

/* What takes the place of what is just being committed is not committed yet; nor is the other one any more, by itself. */
static void test_written_over(void)
{
	struct scene t;
	pthread_t thread;
	void *rc;

	begin(&t, "data=log,visible=close");
	struct loopback *l = job_world_loopback(t.w);
	is_int(opened_put(&t.at[1], "old", 0), 3, "a node writes");
	is_int(job_fsync(t.at[1].j, t.ino, t.at[1].file, false), 0, "and syncs");
	is_int(opened_put(&t.at[1], "one", 0), 3, "writes again");
	loopback_hold_reply(l, 0, MESSAGE_SHARE_STAMP, 0);
	pthread_create(&thread, NULL, sync_one, &t);
	loopback_await_held(l, 0);
	is_int(opened_put(&t.at[1], "two", 0), 3, "and over that, while it is synced");
	loopback_let_go(l, 0);
	pthread_join(thread, &rc);
	is_int((int)(intptr_t)rc, 0, "that is done");
	ok(reads(&t, 2, true, 0, "one") || reads(&t, 2, true, 0, "two"),
		"and others see what was synced, or what came after it");
	is_int(job_fsync(t.at[1].j, t.ino, t.at[1].file, false), 0, "the rest is synced");
	ok(reads(&t, 2, true, 0, "two"), "and seen");
	end(&t);
}

static int count_conflict(const struct share_conflict *c, void *arg)
{
	(void)c;
	++*(unsigned int *)arg;
	return 0;
}

static unsigned int conflicts(struct scene *t)
{
	unsigned int num = 0;

	for (uint32_t n = 0; n < NODES; n++)
		(void)state_conflicts(store_state(job_world_store(t->w, n)), t->ino, count_conflict, &num, NULL);
	return num;
}

/* A stamp is given, and held up; meanwhile another node commits, and the one that waits has read that. */
static void begin_behind(struct scene *t, pthread_t *thread)
{
	struct loopback *l;

	begin(t, "data=log,visible=close");
	l = job_world_loopback(t->w);
	is_int(opened_put(&t->at[1], "one", 0), 3, "a node writes");
	loopback_hold_reply(l, 0, MESSAGE_SHARE_STAMP, 0);
	pthread_create(thread, NULL, sync_one, t);
	loopback_await_held(l, 0);
	is_int(opened_put(&t->at[2], "two", 10), 3, "while it syncs, another one writes");
	is_int(job_fsync(t->at[2].j, t->ino, t->at[2].file, false), 0, "and syncs");
	ok(reads(t, 1, true, 10, "two"), "the first one reads that");
}

/* What a commit finds of what was written behind its beginning has a base of its own. */
static void test_read_meanwhile(void)
{
	struct scene t;
	pthread_t thread;
	void *rc;

	begin_behind(&t, &thread);
	is_int(opened_put(&t.at[1], "new", 10), 3, "and writes over it");
	is_int(share_truncate(t.at[0].j, t.ino, 100), 0, "the file is cut: it lists again what it commits");
	loopback_let_go(job_world_loopback(t.w), 0);
	pthread_join(thread, &rc);
	is_int((int)(intptr_t)rc, 0, "that is done");
	ok(reads(&t, 2, true, 10, "new"), "what it wrote over the other's is seen");
	is_u64(conflicts(&t), 0, "and is in no conflict with it");
	end(&t);
}

/* A commit that has failed leaves what it was to commit as it was. */
static void test_failed_meanwhile(void)
{
	struct scene t;
	pthread_t thread;
	void *rc;

	begin_behind(&t, &thread);
	is_int(opened_put(&t.at[2], "his", 0), 3, "what the first one has written is written over without being known");
	is_int(job_fsync(t.at[2].j, t.ino, t.at[2].file, false), 0, "and that is synced");
	ok(reads(&t, 1, true, 10, "two"), "the first one reads on");
	is_int(opened_put(&t.at[1], "own", 20), 3, "and writes elsewhere");
	pthread_join(thread, &rc);
	is_int((int)(intptr_t)rc, -EIO, "its commit fails");
	loopback_let_go(job_world_loopback(t.w), 0);
	is_int(job_fsync(t.at[1].j, t.ino, t.at[1].file, false), 0, "the next one does not");
	ok(conflicts(&t) > 0, "that neither knew of the other's bytes is found");
	end(&t);
}

struct turn {
	struct scene *t;
	uint32_t node;
	pthread_barrier_t *barrier;
	unsigned int wrong;
};

/* Messages alone order what each writes and the other reads. */
static void *write_and_read(void *arg)
{
	struct turn *me = arg;
	uint32_t other = 3 - me->node;

	for (unsigned int i = 0; i < READS; i++) {
		char text[3] = { (char)('a' + i % 26), (char)('0' + me->node), '\0' };
		char theirs[3] = { text[0], (char)('0' + other), '\0' };

		me->wrong += opened_put(&me->t->at[me->node], text, me->node * 100) != 2;
		pthread_barrier_wait(me->barrier);
		me->wrong += !reads(me->t, me->node, true, other * 100, theirs);
		pthread_barrier_wait(me->barrier);
	}
	return NULL;
}

static void test_at_the_same_time(void)
{
	struct turn turns[2];
	pthread_t threads[2];
	pthread_barrier_t barrier;
	struct scene t;

	begin(&t, "data=log");
	pthread_barrier_init(&barrier, NULL, 2);
	for (uint32_t i = 0; i < 2; i++) {
		turns[i] = (struct turn){ .t = &t, .node = 1 + i, .barrier = &barrier };
		pthread_create(&threads[i], NULL, write_and_read, &turns[i]);
	}
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);
	is_int(turns[0].wrong + turns[1].wrong, 0, "two nodes that read at once what the other one has just written");
	end(&t);
}

static void test_hanging(void)
{
	struct scene t;

	begin(&t, "data=log");
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	is_int(opened_put(&t.at[2], "two", 10), 3, "and another one");
	loopback_set_hanging(job_world_loopback(t.w), 1, true);
	uint64_t begun = clock_usec();
	ok(reads(&t, 0, true, 10, "two"), "the first hangs: what the other one has is read");
	ok(clock_usec() - begun < TIMEOUT_USEC, "in time");
	loopback_set_hanging(job_world_loopback(t.w), 1, false);
	ok(reads(&t, 2, true, 10, "two"), "it goes on");
	for (int tries = 0; tries < 100 && !reads(&t, 2, true, 0, "one"); tries++)
		usleep(50000);
	ok(reads(&t, 2, true, 0, "one"), "and is heard");
	end(&t);
}

/* ---- what an earlier daemon has left */

/* Which does not look for it by itself. */
static void does_not_sweep(uint32_t node, struct job *j, void *arg)
{
	(void)node, (void)arg;
	pthread_mutex_lock(&j->share->wake);
	j->share->sweep = false;
	pthread_mutex_unlock(&j->share->wake);
}

static void release(struct scene *t, uint32_t node)
{
	job_release(t->at[node].j, t->at[node].file);
	t->at[node].file = NULL;
}

static bool is_leased(struct scene *t, uint32_t node)
{
	return lease_is_good(t->at[node].file->shared);
}

/* Longer than it takes until there is a lease. */
static bool reads_on(struct scene *t, uint32_t node, uint64_t off, const char *text)
{
	bool right = true;

	for (int i = 0; right && i < 2 * CALM_READS; i++)
		right = reads(t, node, true, off, text);
	return right;
}

static void restarts(uint32_t node)
{
	struct scene t;

	begin_with(
		&t, &(struct job_world_options){ .num = NODES, .timeout_usec = TIMEOUT_USEC, .begun = does_not_sweep });
	ok(opened_put(&t.at[node], "one", 0) == 3, "node %u writes", node);
	release(&t, node);
	job_world_restart(t.w, node);
	ok(!job_world_job(t.w, node)->share->swept, "its daemon is restarted, and has not looked for what it has left");
	ok(reads_on(&t, 1, 0, "one"), "which is read all the same, over and over");
	is_int(opened_at(t.w, node, t.ino, O_RDWR, &t.at[node]), 0, "opened again");
	end(&t);
}

static void test_left(void)
{
	restarts(2);
	restarts(0);
}

/* Node 2's daemon has noted a commit, and not told it. Where. */
static uint64_t leave_untold(struct scene *t)
{
	uint64_t off = 0;

	begin_with(t,
		&(struct job_world_options){ .num = NODES, .timeout_usec = TIMEOUT_USEC / 4, .begun = does_not_sweep });
	struct loopback *l = job_world_loopback(t->w);
	while (place_domain(t->ino, off, PLACE_DOMAIN_SIZE, NODES) != 3)
		off += PLACE_DOMAIN_SIZE;
	is_int(opened_put(&t->at[2], "one", off), 3, "a node writes");
	loopback_set_hanging(l, 3, true);
	ok(job_fsync(t->at[2].j, t->ino, t->at[2].file, false) < 0, "the home of the domain hangs, so it cannot sync");
	release(t, 2);
	job_world_kill(t->w, 2);
	loopback_lose(l, 3);
	loopback_set_hanging(l, 3, false);
	job_world_revive(t->w, 2);
	return off;
}

static void test_left_untold(void)
{
	struct scene t;
	uint64_t off = leave_untold(&t);

	ok(reads_on(&t, 1, off, "one"), "its daemon is restarted: it is read all the same");
	end(&t);
}

static void *sync_it(void *arg)
{
	struct opened *o = arg;

	return job_fsync(o->j, o->file->shared->ino, o->file, false) == 0 ? o : NULL;
}

static void *read_it(void *arg)
{
	(void)reads(arg, 1, true, 0, "any");
	return NULL;
}

/* That is found out while the next daemon commits what else it has written: the end of that commit is not its. */
static void test_left_found_meanwhile(void)
{
	struct scene t;
	uint64_t off = leave_untold(&t);
	struct loopback *l = job_world_loopback(t.w);
	pthread_t syncs, looks;
	void *synced;

	is_int(opened_at(t.w, 2, t.ino, O_RDWR, &t.at[2]), 0, "the next daemon has the file opened");
	is_int(opened_put(&t.at[2], "two", off + 100), 3, "and writes");
	loopback_hold_reply(l, 0, MESSAGE_SHARE_STAMP, 0);
	pthread_create(&syncs, NULL, sync_it, &t.at[2]);
	loopback_await_held(l, 0);
	pthread_create(&looks, NULL, read_it, &t);
	usleep(100000);
	loopback_let_go(l, 0);
	pthread_join(syncs, &synced);
	pthread_join(looks, NULL);
	ok(synced != NULL, "it commits that");
	ok(reads_on(&t, 1, off, "one"), "what the one before it had written is read");
	end(&t);
}

/* It may not be told before it is known what has been cut off. */
static void test_left_without_power(void)
{
	struct scene t;

	begin_with(&t, &(struct job_world_options){ .num = NODES, .timeout_usec = TIMEOUT_USEC, .simulated = true });
	struct loopback *l = job_world_loopback(t.w);
	is_int(opened_put(&t.at[2], "one", 0), 3, "a node writes");
	is_int(store_sync(job_world_store(t.w, 2)), 0, "which is on its device");
	release(&t, 2);
	job_world_lose_power(t.w, 2, 1);
	loopback_hold_reply(l, 3, MESSAGE_POWER_CUTS, 0);
	job_world_revive(t.w, 2);
	loopback_await_held(l, 3);
	ok(!job_world_job(t.w, 2)->share->swept, "it loses power, and does not know what has been cut off");
	uint64_t begun = clock_usec();
	for (int i = 0; i < 2 * CALM_READS; i++)
		(void)reads(&t, 1, true, 0, "one");
	ok(clock_usec() - begun < TIMEOUT_USEC * 3 / 4, "nobody waits for that");
	ok(!is_leased(&t, 1), "nor is there a lease");
	loopback_let_go(l, 3);
	bool seen = false;
	for (int tries = 0; !seen && tries < 100; tries++) {
		seen = reads(&t, 1, true, 0, "one");
		usleep(seen ? 0 : 50000);
	}
	ok(seen, "when it does, that is read");
	end(&t);
}

int main(void)
{
	test_shown();
	test_sought();
	test_copied();
	test_home_restarted();
	test_not_wanted();
	test_visible_anyway();
	test_at_the_same_time();
	test_hanging();
	test_written_over();
	test_read_meanwhile();
	test_failed_meanwhile();
	test_left();
	test_left_untold();
	test_left_found_meanwhile();
	test_left_without_power();
	return done_testing();
}
