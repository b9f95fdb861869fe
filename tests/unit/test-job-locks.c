/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Locks over the nodes of a job, in one process. Random requests from all nodes, with agents and daemons that die, against
 * the kernel's locks of open file descriptions; then waiting: exclusion, order, circles, interruption, and what
 * becomes of who waits when homes and holders go.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "format/place/place.h"
#include "tests/lib/job_world.h"
#include "tests/lib/lock_request.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tap.h"

static uint32_t random_state = 99;

static uint32_t next_random(uint32_t below)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % below;
}

/* ---- against the kernel */

#define NODES  3
#define OWNERS 6 /* owner o is on node o % NODES */
#define SPAN   16

struct model {
	char path[NODES][64];
	int fd[NODES][OWNERS];
	struct job_world *w;
	unsigned int wrong, granted, refused;
};

static void model_open(struct model *m, uint32_t file, uint32_t owner)
{
	m->fd[file][owner] = open(m->path[file], O_RDWR);
	if (m->fd[file][owner] < 0) {
		puts("Bail out! open");
		exit(1);
	}
}

static void model_start(struct model *m)
{
	*m = (struct model){ .w = job_world_start(NODES) };
	for (uint32_t f = 0; f < NODES; f++) {
		snprintf(m->path[f], sizeof(m->path[f]), "%s/lock.XXXXXX", scratch_parent());
		close(mkstemp(m->path[f]));
		for (uint32_t o = 0; o < OWNERS; o++)
			model_open(m, f, o);
	}
}

static void model_stop(struct model *m)
{
	for (uint32_t f = 0; f < NODES; f++) {
		for (uint32_t o = 0; o < OWNERS; o++)
			close(m->fd[f][o]);
		unlink(m->path[f]);
	}
	job_world_stop(m->w);
}

/* Its end closes the file: so does the job's. */
static void close_owner(struct model *m, uint32_t file, uint32_t owner)
{
	close(m->fd[file][owner]);
	model_open(m, file, owner);
}

static void random_drop(struct model *m)
{
	uint32_t file = next_random(NODES), owner = next_random(OWNERS);

	close_owner(m, file, owner);
	m->wrong += job_lock_drop(job_world_job(m->w, owner % NODES), lock_file_of(file), owner, false) != 0;
}

static void random_restart(struct model *m)
{
	uint32_t node = next_random(NODES);

	job_world_restart(m->w, node);
	for (uint32_t f = 0; f < NODES; f++)
		for (uint32_t o = node; o < OWNERS; o += NODES)
			close_owner(m, f, o);
}

static void random_agents(struct model *m)
{
	struct loopback *l = job_world_loopback(m->w);

	if (next_random(2))
		loopback_lose_at_reply(l, next_random(NODES), 0);
	else
		loopback_lose(l, LOOPBACK_ALL);
}

/* Agents that were lost are started again; but not while a daemon is. */
struct starter {
	struct loopback *l;
	pthread_mutex_t lock;
	_Atomic(bool) over;
};

static void *start_agents(void *arg)
{
	struct starter *s = arg;

	while (!s->over) {
		pthread_mutex_lock(&s->lock);
		loopback_assemble(s->l);
		pthread_mutex_unlock(&s->lock);
		usleep(5000); /* how often does not matter */
	}
	return NULL;
}

static void compare_all(struct model *m)
{
	for (uint32_t f = 0; f < NODES; f++)
		for (uint64_t at = 0; at < SPAN; at++)
			for (uint32_t o = 0; o < OWNERS; o++) {
				struct flock k = { .l_type = F_WRLCK, .l_start = (off_t)at, .l_len = 1 };
				struct job_lock lock = lock_posix(o, F_WRLCK, at, at);
				int rc = job_getlk(job_world_job(m->w, o % NODES), lock_file_of(f), &lock);

				m->wrong += fcntl(m->fd[f][o], F_OFD_GETLK, &k) != 0 || rc != 0 ||
					    (k.l_type != F_UNLCK) != (lock.type != F_UNLCK);
			}
}

static void random_request(struct model *m)
{
	static const short types[] = { F_RDLCK, F_WRLCK, F_UNLCK };
	uint32_t file = next_random(NODES), owner = next_random(OWNERS);
	uint64_t a = next_random(SPAN), b = next_random(SPAN), start = a < b ? a : b, last = a < b ? b : a;
	struct job_lock lock = lock_posix(owner, types[next_random(3)], start, last == SPAN - 1 ? UINT64_MAX : last);
	struct flock k = {
		.l_type = lock.type, .l_start = (off_t)start, .l_len = last == SPAN - 1 ? 0 : (off_t)(last - start + 1)
	};
	int expected = fcntl(m->fd[file][owner], F_OFD_SETLK, &k) ? -errno : 0;
	int got = lock_set(m->w, owner % NODES, lock_file_of(file), lock, false);

	if (got != expected && m->wrong++ < 5)
		tap_diag("file %u owner %u type %d %d-%d: %d, expected %d", file, owner, lock.type, (int)start,
			(int)last, got, expected);
	m->granted += expected == 0;
	m->refused += expected != 0;
}

static void test_as_kernel(unsigned int steps, bool trouble)
{
	struct model m;
	pthread_t thread;

	model_start(&m);
	struct starter starter = { .l = job_world_loopback(m.w), .lock = PTHREAD_MUTEX_INITIALIZER };
	if (trouble)
		pthread_create(&thread, NULL, start_agents, &starter);
	for (unsigned int i = 0; i < steps; i++) {
		if (trouble && next_random(50) == 0) {
			pthread_mutex_lock(&starter.lock);
			random_restart(&m);
			pthread_mutex_unlock(&starter.lock);
		}
		if (trouble && next_random(20) == 0)
			random_agents(&m);
		random_request(&m);
		if (next_random(10) == 0)
			random_drop(&m);
		if (i % 50 == 49)
			compare_all(&m);
	}
	starter.over = true;
	if (trouble)
		pthread_join(thread, NULL);
	ok(m.granted > steps / 10 && m.refused > steps / 10, "%u requests granted, %u refused by the kernel", m.granted,
		m.refused);
	is_u64(m.wrong, 0, trouble ? "the job says the same, though agents and daemons die" : "the job says the same");
	model_stop(&m);
}

/* ---- exclusion */

struct counter {
	struct job_world *w;
	uint64_t ino;
	bool flock;
	_Atomic(int) inside;
	_Atomic(unsigned int) intruders, failures;
	unsigned int value; /* plain: the lock guards it */
};

struct counting {
	struct counter *c;
	uint32_t node;
	uint64_t owner;
};

static void *count(void *arg)
{
	struct counting *me = arg;
	struct counter *c = me->c;

	for (unsigned int i = 0; i < 150; i++) {
		struct job_lock lock = c->flock ? lock_whole(me->owner, F_WRLCK) : lock_posix(me->owner, F_WRLCK, 3, 5);

		c->failures += lock_set(c->w, me->node, c->ino, lock, true) != 0;
		c->intruders += atomic_fetch_add(&c->inside, 1) != 0;
		unsigned int value = c->value;
		sched_yield();
		c->value = value + 1;
		atomic_fetch_sub(&c->inside, 1);
		lock.type = F_UNLCK;
		c->failures += lock_set(c->w, me->node, c->ino, lock, false) != 0;
	}
	return NULL;
}

static void test_exclusion(bool flock)
{
	struct job_world *w = job_world_start(3);
	struct counter c = { .w = w, .ino = lock_file_of(1), .flock = flock };
	struct counting me[6];
	pthread_t threads[6];

	for (uint32_t i = 0; i < 6; i++) {
		me[i] = (struct counting){ .c = &c, .node = i % 3, .owner = 100 + i };
		pthread_create(&threads[i], NULL, count, &me[i]);
	}
	for (uint32_t i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
	is_u64(c.failures, 0, "six threads on three nodes always get the lock");
	is_u64(c.intruders, 0, "never two at a time");
	is_u64(c.value, 6 * 150, "and lose no count");
	job_world_stop(w);
}

/* ---- waiting */

static void test_line(void)
{
	struct job_world *w = job_world_start(3);
	struct lock_request writer, reader;
	uint64_t ino = lock_file_of(0);
	struct job_lock lock = lock_posix(2, F_WRLCK, 0, 9), after = lock_posix(3, F_RDLCK, 0, 9);

	is_int(lock_set(w, 1, ino, lock_posix(1, F_RDLCK, 0, 9), true), 0, "a reader on one node");
	lock_begin(&writer, w, 2, ino, &lock, true);
	loopback_settle(job_world_loopback(w));
	lock_begin(&reader, w, 0, ino, &after, true);
	ok(!lock_is_done(&writer), "a writer on another one waits");
	lock_set(w, 1, ino, lock_posix(1, F_UNLCK, 0, 9), false);
	is_int(lock_end(&writer), 0, "and is next, whoever came after it");
	lock_set(w, 2, ino, lock_posix(2, F_UNLCK, 0, UINT64_MAX), false);
	is_int(lock_end(&reader), 0, "then comes the reader behind it");
	job_world_stop(w);
}

static void test_circles(void)
{
	struct job_world *w = job_world_start(3);
	struct lock_request r;
	uint64_t ino = lock_file_of(0);
	struct job_lock second = lock_posix(1, F_WRLCK, 10, 19);

	lock_set(w, 1, ino, lock_posix(1, F_WRLCK, 0, 9), true);
	lock_set(w, 2, ino, lock_posix(2, F_WRLCK, 10, 19), true);
	lock_begin(&r, w, 1, ino, &second, true);
	loopback_settle(job_world_loopback(w));
	ok(!lock_is_done(&r), "one node waits for another one's lock");
	is_int(lock_set(w, 2, ino, lock_posix(2, F_RDLCK, 5, 5), true), -EDEADLK,
		"which cannot wait for the first one's");
	is_int(job_lock_drop(job_world_job(w, 2), ino, 2, false), 0, "it closes the file");
	is_int(lock_end(&r), 0, "and the first one goes on");
	job_world_stop(w);
}

static void test_getlk(void)
{
	struct job_world *w = job_world_start(2);
	struct job_lock lock = lock_posix(7, F_RDLCK, 0, UINT64_MAX);

	lock_set(w, 1, lock_file_of(0), lock_posix(1, F_WRLCK, 100, 199), false);
	is_int(job_getlk(job_world_job(w, 0), lock_file_of(0), &lock), 0, "somebody asks who has a lock");
	ok(lock.type == F_WRLCK && lock.start == 100 && lock.end == 199 && lock.pid == 0,
		"it is a process of another node");
	lock = lock_posix(7, F_RDLCK, 0, UINT64_MAX);
	job_getlk(job_world_job(w, 1), lock_file_of(0), &lock);
	is_u64(lock.pid, 42, "on the same node it has a number");
	job_world_stop(w);
}

static void test_close(void)
{
	struct job_world *w = job_world_start(2);
	struct job *j = job_world_job(w, 1);

	lock_set(w, 1, lock_file_of(0), lock_posix(1, F_WRLCK, 0, 9), false);
	lock_set(w, 1, lock_file_of(0), lock_posix(1, F_RDLCK, 20, 29), false);
	lock_set(w, 1, lock_file_of(0), lock_posix(2, F_WRLCK, 40, 49), false);
	lock_set(w, 1, lock_file_of(0), lock_whole(1, F_WRLCK), false);
	is_int(job_lock_drop(j, lock_file_of(0), 1, false), 0, "a process closes one of its descriptors");
	is_int(lock_probe(w, 0, lock_file_of(0), 5), F_UNLCK, "its locks are gone");
	is_int(lock_probe(w, 0, lock_file_of(0), 25), F_UNLCK, "all of them");
	is_int(lock_probe(w, 0, lock_file_of(0), 45), F_WRLCK, "another process' are not");
	is_int(lock_set(w, 0, lock_file_of(0), lock_whole(5, F_RDLCK), false), -EAGAIN, "nor is an flock lock");
	is_int(job_lock_drop(j, lock_file_of(0), 1, true), 0, "whose open file is released");
	is_int(lock_set(w, 0, lock_file_of(0), lock_whole(5, F_RDLCK), false), 0, "then it is gone, too");
	job_world_stop(w);
}

static void test_interruption(uint32_t home)
{
	struct job_world *w = job_world_start(3);
	struct job *j = job_world_job(w, 1);
	unsigned int wrong = 0, got = 0;
	uint64_t ino = lock_file_of(home);
	struct job_lock lock = lock_posix(2, F_WRLCK, 0, 9);
	struct lock_request r;

	for (unsigned int i = 0; i < 200; i++) {
		wrong += lock_set(w, 2, ino, lock_posix(1, F_WRLCK, 0, 9), true) != 0;
		lock_begin(&r, w, 1, ino, &lock, true);
		if (i % 2)
			job_lock_cancel(j, r.id);
		wrong += lock_set(w, 2, ino, lock_posix(1, F_UNLCK, 0, 9), false) != 0;
		if (i % 2 == 0)
			job_lock_cancel(j, r.id);
		int rc = lock_end(&r);
		got += rc == 0;
		wrong += rc != 0 && rc != -EINTR;
		wrong += lock_probe(w, 0, ino, 5) != (rc == 0 ? F_WRLCK : F_UNLCK);
		wrong += lock_set(w, 1, ino, lock_posix(2, F_UNLCK, 0, 9), false) != 0;
	}
	is_u64(wrong, 0, "an interrupted request has the lock, or has not, and says which");
	ok(got < 200, "%u of 200 were granted before", got);
	job_world_stop(w);
}

/* ---- what becomes of it when nodes go */

static void test_holder_dies(void)
{
	struct job_world *w = job_world_start(3);
	struct job_lock lock = lock_posix(2, F_WRLCK, 0, 9);
	struct lock_request r;

	lock_set(w, 1, lock_file_of(0), lock_posix(1, F_WRLCK, 0, 9), true);
	lock_set(w, 1, lock_file_of(0), lock_whole(1, F_WRLCK), true);
	lock_begin(&r, w, 2, lock_file_of(0), &lock, true);
	loopback_settle(job_world_loopback(w));
	ok(!lock_is_done(&r), "somebody waits for a lock of another node");
	job_world_restart(w, 1);
	is_int(lock_end(&r), 0, "whose daemon dies: the lock is free");
	is_int(lock_set(w, 0, lock_file_of(0), lock_whole(5, F_WRLCK), false), 0, "and so is its other one");
	job_world_stop(w);
}

static void test_home_dies(void)
{
	struct job_world *w = job_world_start(3);
	struct job_lock lock = lock_posix(2, F_WRLCK, 0, 9);
	struct lock_request r;

	lock_set(w, 1, lock_file_of(0), lock_posix(1, F_WRLCK, 0, 9), true);
	lock_set(w, 1, lock_file_of(0), lock_posix(1, F_WRLCK, 20, 29), true);
	lock_set(w, 1, lock_file_of(0), lock_posix(1, F_UNLCK, 24, 25), true);
	lock_set(w, 2, lock_file_of(0), lock_whole(3, F_RDLCK), true);
	lock_begin(&r, w, 2, lock_file_of(0), &lock, true);
	loopback_settle(job_world_loopback(w));
	job_world_restart(w, 0);
	is_int(lock_set(w, 2, lock_file_of(0), lock_posix(4, F_RDLCK, 0, 0), false), -EAGAIN,
		"the home's next daemon knows the locks");
	is_int(lock_probe(w, 0, lock_file_of(0), 23), F_WRLCK, "that were held");
	is_int(lock_probe(w, 0, lock_file_of(0), 25), F_UNLCK, "and those that were given up");
	is_int(lock_set(w, 0, lock_file_of(0), lock_whole(9, F_WRLCK), false), -EAGAIN, "of both kinds");
	ok(!lock_is_done(&r), "who waited still waits");
	lock_set(w, 1, lock_file_of(0), lock_posix(1, F_UNLCK, 0, 9), false);
	is_int(lock_end(&r), 0, "and gets it when its time has come");
	job_world_stop(w);
}

static void test_agents_die(void)
{
	struct job_world *w = job_world_start(2);
	struct loopback *l = job_world_loopback(w);
	struct job_lock lock = lock_posix(2, F_WRLCK, 0, 9);
	struct lock_request r;

	lock_set(w, 0, lock_file_of(0), lock_posix(1, F_WRLCK, 0, 9), true);
	lock_begin(&r, w, 1, lock_file_of(0), &lock, true);
	loopback_settle(l);
	loopback_lose(l, LOOPBACK_ALL);
	is_int(lock_set(w, 0, lock_file_of(0), lock_posix(1, F_UNLCK, 0, 9), true), 0,
		"a lock is given up while there are no agents");
	loopback_settle(l);
	ok(!lock_is_done(&r), "another node cannot know");
	loopback_assemble(l);
	is_int(lock_end(&r), 0, "and gets it when they are back");
	job_world_stop(w);
}

static void test_home_ends(void)
{
	struct job_world *w = job_world_start(3);
	struct job_lock lock = lock_posix(2, F_WRLCK, 0, 9);
	struct lock_request r;

	lock_set(w, 1, lock_file_of(0), lock_posix(1, F_WRLCK, 0, 9), true);
	lock_begin(&r, w, 2, lock_file_of(0), &lock, true);
	loopback_settle(job_world_loopback(w));
	job_shut_down(job_world_job(w, 0));
	is_int(lock_end(&r), -ENOLCK, "who waits for a lock whose home has ended for good is told so");
	loopback_settle(job_world_loopback(w));
	is_int(lock_set(w, 1, lock_file_of(0), lock_posix(1, F_WRLCK, 20, 29), false), -ENOLCK,
		"who had one gets no other one");
	is_int(lock_set(w, 1, lock_file_of(1), lock_posix(1, F_WRLCK, 20, 29), false), 0,
		"of that file; of another home's it does");
	is_int(lock_set(w, 2, lock_file_of(1), lock_posix(2, F_WRLCK, 20, 29), false), -EAGAIN,
		"and that is the job's");
	job_world_stop(w);
}

static void test_unreachable(void)
{
	struct job_world_options opt = { .num = 2, .settings = "data=log,agent_timeout=3s", .timeout_usec = 3000000 };
	struct job_world *w = job_world_start_with(&opt);
	struct loopback *l = job_world_loopback(w);

	lock_set(w, 1, lock_file_of(0), lock_posix(1, F_RDLCK, 0, 9), true);
	loopback_lose(l, LOOPBACK_ALL);
	is_int(lock_set(w, 1, lock_file_of(0), lock_posix(1, F_WRLCK, 5, 9), false), -ENOLCK,
		"without agents there are no new locks");
	is_int(lock_set(w, 0, lock_file_of(0), lock_posix(5, F_WRLCK, 5, 5), false), -EAGAIN, "at the home there are");
	loopback_assemble(l);
	is_int(lock_set(w, 0, lock_file_of(0), lock_posix(5, F_RDLCK, 5, 5), true), 0,
		"what was not granted is not held");
	is_int(lock_probe(w, 0, lock_file_of(0), 7), F_RDLCK, "but what was before still is");
	job_world_stop(w);
}

int main(void)
{
	test_as_kernel(1500, false);
	test_as_kernel(600, true);
	test_exclusion(false);
	test_exclusion(true);
	test_line();
	test_circles();
	test_getlk();
	test_close();
	test_interruption(0);
	test_interruption(1);
	test_holder_dies();
	test_home_dies();
	test_agents_die();
	test_home_ends();
	test_unreachable();
	return done_testing();
}
