/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What nodes tell each other of locks, when a node takes no more for a while, or an answer comes too late: who waits gets his lock, what is
 * given up is free, and nothing is had by two.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/job/lock.h"
#include "format/base/clock.h"
#include "fs/job/share.h"
#include "tests/lib/lock_request.h"
#include "tests/lib/tap.h"

#define SOON_USEC    30000000u
#define TIMEOUT_USEC 3000000u /* of the worlds in which answers are late */

static bool soon(bool (*is)(struct job_world *w), struct job_world *w)
{
	uint64_t until = clock_usec() + SOON_USEC;

	while (!is(w))
		if (clock_usec() > until)
			return false;
		else
			usleep(10000);
	return true;
}

static void hang(struct job_world *w, uint32_t node, bool hangs)
{
	loopback_set_hanging(job_world_loopback(w), node, hangs);
}

static void deafen(struct job_world *w, uint32_t node, bool deaf)
{
	loopback_set_deaf(job_world_loopback(w), node, deaf);
}

/* ---- GRANTED */

static void test_granted(void)
{
	struct job_world *w = job_world_start(3);
	struct job_lock fcntl_lock = lock_posix(2, F_WRLCK, 0, 9), flock_lock = lock_whole(2, F_WRLCK);
	struct lock_request first, second;

	lock_set(w, 0, lock_file_of(0), lock_posix(1, F_WRLCK, 0, 9), true);
	lock_set(w, 0, lock_file_of(0), lock_whole(1, F_WRLCK), true);
	lock_begin(&first, w, 1, lock_file_of(0), &fcntl_lock, true);
	lock_begin(&second, w, 1, lock_file_of(0), &flock_lock, true);
	loopback_settle(job_world_loopback(w));
	hang(w, 1, true);
	job_world_fill(w, 0, 1, 0);
	is_int(lock_set(w, 0, lock_file_of(0), lock_posix(1, F_UNLCK, 0, 9), false), 0,
		"a lock is given up for which a node waits that takes no more");
	is_int(lock_set(w, 0, lock_file_of(0), lock_whole(1, F_UNLCK), false), 0, "so is an flock lock");
	hang(w, 1, false);
	is_int(lock_end(&first), 0, "it gets the one when it goes on");
	is_int(lock_end(&second), 0, "and the other");
	is_int(lock_probe(w, 2, lock_file_of(0), 5), F_WRLCK, "and has it");
	is_int(lock_set(w, 1, lock_file_of(0), lock_posix(2, F_UNLCK, 0, 9), false), 0, "until it is given up");
	is_int(lock_probe(w, 2, lock_file_of(0), 5), F_UNLCK, "from then on nobody has it");
	job_world_stop(w);
}

/* ---- FIX */

/* Node 1 gives up a lock of which it cannot tell node 0. */
static void give_up_unheard(struct job_world *w)
{
	uint64_t ino = lock_file_of(0);

	lock_set(w, 1, ino, lock_posix(1, F_WRLCK, 0, 9), true);
	lock_set(w, 1, ino, lock_posix(2, F_WRLCK, 20, 29), true);
	lock_set(w, 1, ino, lock_whole(3, F_WRLCK), true);
	lock_set(w, 1, ino, lock_posix(4, F_WRLCK, 40, 49), true);
	hang(w, 0, true);
	job_world_fill(w, 1, 0, 0);
	is_int(lock_set(w, 1, ino, lock_posix(1, F_UNLCK, 0, 4), false), -ENOLCK,
		"a lock is given up whose home takes no more");
	is_int(lock_set(w, 1, ino, lock_posix(1, F_UNLCK, 5, 9), false), -ENOLCK, "piece by piece");
	is_int(job_lock_drop(job_world_job(w, 1), ino, 2, false), -ENOLCK, "one by closing the file");
	is_int(lock_set(w, 1, ino, lock_whole(3, F_UNLCK), false), -ENOLCK, "an flock lock");
}

static void test_given_up(void)
{
	struct job_world *w = job_world_start(3);
	uint64_t ino = lock_file_of(0);

	give_up_unheard(w);
	is_int(lock_set(w, 1, ino, lock_posix(5, F_WRLCK, 60, 69), true), -ENOLCK, "a new one cannot be had");
	hang(w, 0, false);
	is_int(lock_set(w, 2, ino, lock_posix(9, F_WRLCK, 0, 9), true), 0,
		"another node gets them when the home goes on");
	is_int(lock_set(w, 2, ino, lock_posix(9, F_WRLCK, 20, 29), true), 0, "all");
	is_int(lock_set(w, 2, ino, lock_whole(9, F_WRLCK), true), 0, "of them");
	is_int(lock_set(w, 2, ino, lock_posix(9, F_WRLCK, 60, 69), false), 0, "what was refused is free");
	is_int(lock_set(w, 2, ino, lock_posix(9, F_WRLCK, 45, 45), false), -EAGAIN, "what was not given up is not");
	job_world_stop(w);
}

/* What is said late of the old lock does not take the new one away. */
static void test_taken_again(void)
{
	struct job_world *w = job_world_start(3);
	uint64_t ino = lock_file_of(0), until = clock_usec() + SOON_USEC;
	int rc;

	give_up_unheard(w);
	hang(w, 0, false);
	while ((rc = lock_set(w, 1, ino, lock_posix(1, F_WRLCK, 0, 9), true)) == -ENOLCK && clock_usec() < until)
		usleep(1000);
	is_int(rc, 0, "the same owner has it again when the home takes something");
	usleep(1500000); /* longer than until all is said again */
	loopback_settle(job_world_loopback(w));
	is_int(lock_probe(w, 2, ino, 2), F_WRLCK, "and keeps it");
	job_world_stop(w);
}

#define MANY (2 * LOCK_TOLD_MAX + 10) /* locks of an owner, one byte in ten each */

/* What has been heard of that owner's locks, and nobody answers yet. The most that came at once. */
static size_t heard(struct job_world *w, size_t *ret_most)
{
	struct locks *home = job_world_job(w, 0)->locks;
	struct lock_question *q;
	size_t num = 0;

	*ret_most = 0;
	pthread_mutex_lock(&home->lock);
	TAILQ_FOREACH(q, &home->kept, in_list)
	if (q->what == LOCK_ASK_FIX) {
		num += q->num;
		*ret_most = q->num > *ret_most ? q->num : *ret_most;
	}
	pthread_mutex_unlock(&home->lock);
	return num;
}

static bool all_heard(struct job_world *w)
{
	size_t most;

	return heard(w, &most) == MANY;
}

/* More than one message holds. */
static void test_many(void)
{
	struct job_world *w = job_world_start(3);
	struct lock all = { .ino = lock_file_of(0), .owner = 1, .end = UINT64_MAX, .node = 1, .type = LOCK_TYPE_WRITE };
	struct locks *l = job_world_job(w, 1)->locks;
	size_t most;

	lock_probe(w, 1, lock_file_of(2), 0); /* it knows the nodes */
	hang(w, 2, true);
	pthread_mutex_lock(&l->lock);
	for (uint64_t i = MANY; i-- > 0;) {
		struct lock one = all;

		one.start = one.end = i * 10;
		(void)lock_table_force(l->mine, &one);
	}
	(void)word_fix(l, 0, 0, &all);
	locks_leave(l);
	ok(soon(all_heard, w), "a home is told of more locks of an owner than a message holds");
	(void)heard(w, &most);
	ok(most <= LOCK_TOLD_MAX, "not of all at once: %zu", most);
	hang(w, 2, false);
	loopback_settle(job_world_loopback(w));
	is_int(lock_probe(w, 2, all.ino, 0), F_WRLCK, "it has the first one");
	is_int(lock_probe(w, 2, all.ino, (LOCK_TOLD_MAX - 1) * 10), F_WRLCK, "the last one of a message");
	is_int(lock_probe(w, 2, all.ino, (LOCK_TOLD_MAX - 1) * 10 + 5), F_UNLCK, "nothing in between");
	is_int(lock_probe(w, 2, all.ino, LOCK_TOLD_MAX * 10), F_WRLCK, "the first one of the next");
	is_int(lock_probe(w, 2, all.ino, (MANY - 1) * 10), F_WRLCK, "and the last one");
	job_world_stop(w);
}

static struct job_world *start_hasty(void)
{
	return job_world_start_with(&(struct job_world_options){
		.num = 3, .settings = "data=log,agent_timeout=3s", .timeout_usec = TIMEOUT_USEC });
}

/* Two of an owner's are under way; the second is answered when it is clear that the first has come to nothing. */
static void test_in_doubt(void)
{
	struct job_world *w = start_hasty();
	struct job_lock a = lock_posix(1, F_WRLCK, 0, 9), b = lock_posix(1, F_WRLCK, 0, 19);
	struct lock_request first, second;
	uint64_t ino = lock_file_of(0);

	lock_probe(w, 1, ino, 5);
	hang(w, 0, true);
	lock_begin(&first, w, 1, ino, &a, false);
	usleep(TIMEOUT_USEC * 2 / 3);
	lock_begin(&second, w, 1, ino, &b, false);
	is_int(lock_end(&first), -ENOLCK, "a request that is not answered in time has failed");
	hang(w, 0, false);
	int rc = lock_end(&second);
	loopback_settle(job_world_loopback(w));
	is_int(lock_probe(w, 2, ino, 5), rc == 0 ? F_WRLCK : F_UNLCK,
		"what its owner asks for meanwhile he has, or is told");
	is_int(lock_probe(w, 2, ino, 15), rc == 0 ? F_WRLCK : F_UNLCK, "all of it");
	job_world_stop(w);
}

/* Somebody waits for what the owner has all the time. */
static void test_kept(void)
{
	struct job_world *w = start_hasty();
	struct job_lock theirs = lock_posix(2, F_WRLCK, 0, 9);
	struct lock_request r;
	uint64_t ino = lock_file_of(0);

	lock_set(w, 1, ino, lock_posix(1, F_WRLCK, 0, 9), true);
	lock_begin(&r, w, 2, ino, &theirs, true);
	loopback_settle(job_world_loopback(w));
	hang(w, 0, true);
	is_int(lock_set(w, 1, ino, lock_posix(1, F_WRLCK, 0, 19), false), -ENOLCK,
		"an owner cannot get more than he has");
	hang(w, 0, false);
	loopback_settle(job_world_loopback(w));
	is_int(lock_probe(w, 0, ino, 15), F_UNLCK, "and has no more");
	ok(!lock_is_done(&r), "who waits for what he has does not get it");
	is_int(lock_set(w, 1, ino, lock_posix(1, F_UNLCK, 0, 19), false), 0, "until he gives it up");
	is_int(lock_end(&r), 0, "then he does");
	job_world_stop(w);
}

/* ---- RECLAIM and HELD */

static void test_reclaim(void)
{
	struct job_world *w = job_world_start(3);
	struct job_lock lock = lock_posix(1, F_WRLCK, 0, 9);
	struct lock_request r;

	job_world_restart(w, 0);
	hang(w, 1, true);
	job_world_fill(w, 0, 1, 0);
	lock_begin(&r, w, 2, lock_file_of(0), &lock, true);
	loopback_settle(job_world_loopback(w));
	ok(!lock_is_done(&r), "a home that has begun anew waits for a node that takes no more");
	hang(w, 1, false);
	is_int(lock_end(&r), 0, "and asks it when it goes on");
	job_world_stop(w);
}

/* Node 1 has locks of 100 bytes at node 0, whose next daemon asks what it has when so much waits for it that it takes no more of len bytes. */
static void test_held(unsigned int locks, size_t len)
{
	struct job_world *w = job_world_start(3);
	struct job_lock lock = lock_posix(2, F_WRLCK, 0, UINT64_MAX);
	struct lock_request r;
	unsigned int refused = 0, granted = 0;

	for (unsigned int i = 0; i < locks; i++)
		lock_set(w, 1, lock_file_of(0), lock_posix(1, F_WRLCK, 100 * i, 100 * i + 9), true);
	job_world_restart(w, 0);
	deafen(w, 0, true);
	job_world_fill(w, 1, 0, len);
	lock.start = 100 * locks;
	lock_begin(&r, w, 0, lock_file_of(0), &lock, true);
	loopback_settle(job_world_loopback(w));
	deafen(w, 0, false);
	is_int(lock_end(&r), 0, "a home that has begun anew hears what a node has");
	for (unsigned int i = 0; i < locks; i++) {
		int rc = lock_set(w, 0, lock_file_of(0), lock_posix(3, F_WRLCK, 100 * i, 100 * i), false);

		refused += rc == -EAGAIN;
		granted += rc == 0;
	}
	is_u64(granted, 0, "nobody else gets it");
	is_u64(refused, locks, "all of it");
	job_world_stop(w);
}

/* ---- LOST */

static bool is_gone(struct job_world *w)
{
	struct peers_node n;

	return peers_nodes(job_world_peers(w, 0), 1, &n, 1) == 1 && n.gone;
}

/* Node 1 is given up by its lock's home, comes back, and cannot be told that node 2 has the lock. */
static struct job_world *start_losing(uint64_t ino)
{
	struct job_world *w =
		job_world_start_with(&(struct job_world_options){ .num = 3, .node_timeout_usec = 300000 });

	lock_set(w, 1, ino, lock_posix(1, F_WRLCK, 0, 9), true);
	loopback_cut(job_world_loopback(w), 1);
	ok(soon(is_gone, w), "a node is given up that has a lock");
	is_int(lock_set(w, 2, ino, lock_posix(2, F_WRLCK, 0, 9), true), 0, "which another one gets");
	deafen(w, 0, true);
	loopback_assemble(job_world_loopback(w));
	loopback_settle(job_world_loopback(w));
	deafen(w, 1, true);
	job_world_fill(
		w, 0, 1, 1); /* by bytes: the node has answered something, which counts no more when that arrives */
	deafen(w, 0, false);
	loopback_settle(job_world_loopback(w));
	deafen(w, 1, false);
	return w;
}

/* It refuses another one without asking anybody. */
static bool has_lost(struct job_world *w)
{
	uint64_t began = clock_usec();

	hang(w, 0, true);
	int rc = lock_set(w, 1, lock_file_of(0), lock_posix(1, F_WRLCK, 20, 29), false);
	hang(w, 0, false);
	return rc == -ENOLCK && clock_usec() - began < SOON_USEC;
}

static void test_lost(void)
{
	uint64_t ino = lock_file_of(0);
	struct job_world *w = start_losing(ino);

	usleep(1500000); /* longer than until all is said again */
	loopback_settle(job_world_loopback(w));
	ok(has_lost(w), "when it is back it hears that its lock is lost");
	is_int(job_lock_drop(job_world_job(w, 1), ino, 1, false), 0, "who closes the file");
	is_int(lock_set(w, 1, ino, lock_posix(1, F_WRLCK, 20, 29), false), 0, "gets new ones");
	is_int(lock_probe(w, 0, ino, 5), F_WRLCK, "the other one has his");
	job_world_stop(w);
}

/* He does so before he could be told. */
static void test_closed(void)
{
	uint64_t ino = lock_file_of(0);
	struct job_world *w = start_losing(ino);

	is_int(job_lock_drop(job_world_job(w, 1), ino, 1, false), 0,
		"who closes the file before he hears of a lock that is lost");
	is_int(lock_set(w, 1, ino, lock_posix(1, F_WRLCK, 20, 29), false), 0, "gets new ones");
	usleep(1500000); /* longer than until all is said again */
	is_int(lock_set(w, 1, ino, lock_posix(1, F_WRLCK, 30, 39), false), 0, "and hears of the old one no more");
	is_int(job_lock_drop(job_world_job(w, 1), ino, 1, false), 0, "until he closes it again");
	is_int(lock_probe(w, 0, ino, 25), F_UNLCK, "which ends them");
	job_world_stop(w);
}

/* ---- a home that was given up comes back as it was */

static bool is_home_gone(struct job_world *w)
{
	struct peers_node n;

	return peers_nodes(job_world_peers(w, 1), 0, &n, 1) == 1 && n.gone;
}

static void test_home_is_back(void)
{
	struct job_world *w =
		job_world_start_with(&(struct job_world_options){ .num = 3, .node_timeout_usec = 300000 });
	uint64_t ino = lock_file_of(0);

	lock_set(w, 1, ino, lock_posix(1, F_WRLCK, 0, 9), true);
	lock_set(w, 1, ino, lock_whole(1, F_WRLCK), true);
	loopback_cut(job_world_loopback(w), 0);
	ok(soon(is_home_gone, w), "a home is given up");
	loopback_assemble(job_world_loopback(w));
	loopback_settle(job_world_loopback(w));
	is_int(lock_set(w, 1, ino, lock_posix(1, F_WRLCK, 20, 29), false), -ENOLCK, "who had a lock there has lost it");
	is_int(lock_set(w, 1, ino, lock_posix(3, F_WRLCK, 30, 39), false), 0, "others of that node get new ones");
	is_int(lock_set(w, 2, ino, lock_posix(2, F_WRLCK, 0, 9), true), 0,
		"when the home is back others get the lost one");
	is_int(lock_set(w, 2, ino, lock_whole(2, F_WRLCK), true), 0, "of both kinds");
	is_int(lock_set(w, 2, ino, lock_posix(2, F_WRLCK, 30, 39), false), -EAGAIN, "the new one is kept");
	job_world_stop(w);
}

int main(void)
{
	test_granted();
	test_given_up();
	test_many();
	test_taken_again();
	test_in_doubt();
	test_kept();
	test_reclaim();
	test_held(3, 0);
	test_held(4100, 128u << 10);
	test_lost();
	test_closed();
	test_home_is_back();
	return done_testing();
}
