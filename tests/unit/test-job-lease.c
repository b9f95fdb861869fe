/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Who reads a file that nobody writes any more asks nobody, and sees the next byte that is written all the same. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/job/lease.h"
#include "format/base/clock.h"
#include "fs/job/private.h"
#include "tests/lib/job_world.h"
#include "tests/lib/opened.h"
#include "tests/lib/tap.h"

#define NODES             4u
#define TIMEOUT_USEC      8000000u /* so that a slow machine is told from a wait that is too long */
#define LEASE_USEC        (TIMEOUT_USEC / 2)
#define MOST_USEC         (LEASE_USEC * 3 / 2)
#define SHORT_USEC        2000000u
#define NODE_TIMEOUT_USEC 4000000u
#define CALM_READS        12 /* more than it takes until there is a lease */
#define ROUNDS            400u
#define FREE_USEC         2000000u

struct scene {
	struct job_world *w;
	uint64_t ino;
	struct opened at[NODES]; /* node 0 is its home */
};

static void begin_in(struct scene *t, const struct job_world_options *opt, uint32_t num_open)
{
	*t = (struct scene){ .w = job_world_start_with(opt) };
	t->ino = opened_create(t->w, 0, "f", O_RDWR, &t->at[0]);
	for (uint32_t n = 0; n < NODES; n++) {
		job_world_job(t->w, n)->share->tell_usec = UINT64_MAX;
		if (n > 0 && n < num_open)
			is_int(opened_at(t->w, n, t->ino, O_RDWR, &t->at[n]), 0, "opened");
	}
}

static void begin_with(struct scene *t, uint64_t timeout_usec, uint32_t num_open)
{
	begin_in(t, &(struct job_world_options){ .num = NODES, .timeout_usec = timeout_usec }, num_open);
}

static void end(struct scene *t)
{
	for (uint32_t n = 0; n < NODES; n++)
		if (t->at[n].file)
			is_int(opened_close(&t->at[n]), 0, "closed");
	job_world_stop(t->w);
}

/* What a process of that node reads there. */
static bool reads(struct scene *t, uint32_t node, uint64_t off, const char *text)
{
	struct job_bytes where;
	char buf[64];
	ssize_t got = job_read_bytes(t->at[node].j, t->at[node].file, true, buf, strlen(text), off, &where);
	bool same = got == (ssize_t)strlen(text) && memcmp(where.at, text, strlen(text)) == 0;

	job_bytes_end(&where);
	return same;
}

static bool is_leased(struct scene *t, uint32_t node)
{
	return lease_is_good(t->at[node].file->shared);
}

static uint64_t messages(struct scene *t)
{
	uint64_t sum = 0;

	for (uint32_t n = 0; n < NODES; n++)
		sum += job_world_job(t->w, n)->share->messages;
	return sum;
}

/* Until it has a lease. */
static bool reads_on(struct scene *t, uint32_t node, uint64_t off, const char *text)
{
	bool right = true;

	for (int i = 0; right && i < CALM_READS; i++)
		right = reads(t, node, off, text);
	return right && is_leased(t, node);
}

static void test_asks_nobody(void)
{
	struct scene t;

	begin_with(&t, 0, NODES);
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	ok(reads_on(&t, 2, 0, "one") && reads_on(&t, 3, 0, "one") && reads_on(&t, 0, 0, "one"),
		"others read that, over and over, the home too");
	uint64_t before = messages(&t);
	ok(reads(&t, 2, 0, "one") && reads(&t, 3, 0, "one") && reads(&t, 0, 0, "one"), "and once more");
	is_u64(messages(&t), before, "which takes no message any more");
	end(&t);
}

static void test_written_again(void)
{
	struct scene t;

	begin_with(&t, 0, NODES);
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	for (uint32_t n = 0; n < NODES; n++)
		ok(reads_on(&t, n, 0, "one"), "node %u reads until it has a lease", n);
	for (uint32_t n = 0; n < NODES; n++) {
		char text[] = { (char)('a' + n), 'x', '\0' };
		bool seen = true;

		ok(opened_put(&t.at[n], text, 0) == 2, "node %u writes", n);
		for (uint32_t to = 0; to < NODES; to++)
			seen = seen && reads(&t, to, 0, text);
		ok(seen, "all see it at once");
		for (uint32_t to = 0; to < NODES; to++)
			seen = seen && reads_on(&t, to, 0, text);
		ok(seen, "and have leases again");
	}
	is_int(job_fallocate(t.at[2].j, t.at[2].file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1), 0,
		"a hole is punched");
	char hole = 'x';
	struct job_bytes where;
	is_int(job_read_bytes(t.at[1].j, t.at[1].file, true, &hole, 1, 0, &where), 1, "another node reads");
	is_int(*(const char *)where.at, 0, "the hole");
	job_bytes_end(&where);
	end(&t);
}

/* Who writes without anybody reading is not asked to say so. */
static void test_writes_on(void)
{
	struct scene t;

	begin_with(&t, 0, NODES);
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	ok(reads_on(&t, 2, 0, "one"), "another one has a lease");
	is_int(opened_put(&t.at[1], "two", 0), 3, "the first one writes");
	uint64_t before = messages(&t);
	for (int i = 0; i < 100; i++)
		(void)opened_put(&t.at[1], "two", 0);
	is_u64(messages(&t), before, "and once it has said so it goes on without a message");
	ok(reads(&t, 2, 0, "two"), "which is read");
	is_int(opened_put(&t.at[2], "own", 0), 3, "who has read writes");
	ok(reads_on(&t, 2, 0, "own") && is_leased(&t, 2), "and has a lease");
	is_int(opened_put(&t.at[2], "OWN", 0), 3, "what it writes then");
	ok(reads(&t, 2, 0, "OWN") && is_leased(&t, 2), "does not end its own");
	end(&t);
}

static void test_opened_later(void)
{
	struct scene t;

	begin_with(&t, 0, 3);
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	ok(reads_on(&t, 2, 0, "one"), "another one has a lease");
	is_int(opened_at(t.w, 3, t.ino, O_RDWR, &t.at[3]), 0, "a third one opens it");
	ok(is_leased(&t, 2), "which changes nothing");
	is_int(opened_put(&t.at[3], "two", 0), 3, "it writes");
	ok(reads(&t, 2, 0, "two"), "which is seen");
	ok(reads_on(&t, 2, 0, "two"), "there is a lease");
	is_int(opened_close(&t.at[2]), 0, "who has it closes the file");
	is_int(opened_put(&t.at[1], "new", 0), 3, "another one writes");
	is_int(opened_at(t.w, 2, t.ino, O_RDWR, &t.at[2]), 0, "it is opened again");
	ok(reads(&t, 2, 0, "new"), "and what has been written is seen");
	end(&t);
}

static void test_home_restarted(void)
{
	struct scene t;

	begin_with(&t, 0, NODES);
	is_int(opened_close(&t.at[0]), 0, "the home has nothing open");
	t.at[0].file = NULL;
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	ok(reads_on(&t, 2, 0, "one") && reads_on(&t, 3, 0, "one"), "two others have leases");
	job_world_kill(t.w, 0);
	job_world_revive(t.w, 0);
	is_int(opened_put(&t.at[1], "two", 0), 3, "the home is restarted: a node writes");
	ok(reads(&t, 2, 0, "two") && reads(&t, 3, 0, "two"), "which is seen");
	ok(reads_on(&t, 3, 0, "two"), "there are leases again");
	is_int(opened_put(&t.at[2], "new", 0), 3, "and who writes");
	ok(reads(&t, 3, 0, "new") && reads(&t, 1, 0, "new"), "is seen");
	end(&t);
}

static uint64_t writes_for(struct scene *t, uint32_t node, const char *text)
{
	uint64_t begun = clock_usec();

	ok(opened_put(&t->at[node], text, 0) == (ssize_t)strlen(text), "node %u writes", node);
	return clock_usec() - begun;
}

static void test_hanging(void)
{
	struct scene t;

	begin_with(&t, TIMEOUT_USEC, NODES);
	struct loopback *l = job_world_loopback(t.w);
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	ok(reads_on(&t, 2, 0, "one"), "another one has a lease");
	loopback_set_hanging(l, 2, true);
	uint64_t took = writes_for(&t, 1, "two");
	ok(took < MOST_USEC, "who has a lease hangs: a write waits until that is over, at the most: %llu ms",
		(unsigned long long)took / 1000);
	ok(!is_leased(&t, 2), "it is over");
	loopback_set_hanging(l, 2, false);
	bool seen = false;
	for (int tries = 0; !seen && tries < 100; tries++) {
		seen = reads(&t, 2, 0, "two");
		usleep(seen ? 0 : 50000);
	}
	ok(seen, "it goes on, and sees what was written");

	ok(reads_on(&t, 3, 0, "two"), "another one has a lease");
	loopback_set_hanging(l, 0, true);
	took = writes_for(&t, 1, "new"); /* a second is for its look */
	ok(took < MOST_USEC + 1000000u, "the home hangs: so does a write wait: %llu ms",
		(unsigned long long)took / 1000);
	ok(!is_leased(&t, 3), "the lease is over");
	took = writes_for(&t, 1, "NEW");
	ok(took < MOST_USEC, "the next one waits no longer: %llu ms", (unsigned long long)took / 1000);
	loopback_set_hanging(l, 0, false);
	loopback_settle(l);
	for (int tries = 0; tries < 100 && !reads(&t, 3, 0, "NEW"); tries++)
		usleep(50000);
	ok(reads(&t, 3, 0, "NEW"), "it goes on, and what was written is seen");
	end(&t);
}

/* ---- two that begin to write at the same time */

static struct shared *_Atomic watched; /* at its home; NULL: none */

/*
 * The linker puts this in the place of pthread_mutex_unlock (Makemodule.am): where all recalls are done, and those who wait for them have not been
 * taken along, another one comes in between.
 */
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

static bool is_recalling(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool is = s->leases.num_recalls > 0;
	__real_pthread_mutex_unlock(&s->mutex);
	return is;
}

static uint64_t num_writes(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	uint64_t num = s->leases.writes;
	__real_pthread_mutex_unlock(&s->mutex);
	return num;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	struct shared *s = watched;
	bool open = s && mutex == &s->mutex && s->leases.num_recalls == 0 && s->leases.num_waiting > 0;
	int rc = __real_pthread_mutex_unlock(mutex);

	for (int tries = 0; open && tries < 1000 && !is_recalling(s); tries++)
		usleep(1000);
	return rc;
}

static void *write_two(void *arg)
{
	struct scene *t = arg;

	return (void *)(intptr_t)opened_put(&t->at[1], "two", 0);
}

/* The recall that the first one waits for is done: the other one waits for his own. */
static void test_two_at_once(void)
{
	struct scene t;
	pthread_t thread;
	void *put;

	begin_with(&t, TIMEOUT_USEC, NODES);
	struct shared *home = t.at[0].file->shared;
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	ok(reads_on(&t, 1, 0, "one") && reads_on(&t, 0, 0, "one"),
		"it reads until it has a lease, and so does the home");
	uint64_t before = num_writes(home);
	watched = home;
	loopback_set_deaf(job_world_loopback(t.w), 1, true);
	pthread_create(&thread, NULL, write_two, &t);
	while (num_writes(home) == before || is_recalling(home))
		usleep(1000);
	ok(is_leased(&t, 1), "it is about to write: the home gives its lease back");
	ok(opened_put(&t.at[2], "new", 10) == 3, "another one writes");
	ok(!is_leased(&t, 1), "not before the first one's lease is over");
	watched = NULL;
	loopback_set_deaf(job_world_loopback(t.w), 1, false);
	pthread_join(thread, &put);
	is_int((int)(intptr_t)put, 3, "both have written");
	ok(reads(&t, 1, 10, "new") && reads(&t, 2, 0, "two"), "and read what the other one has");
	end(&t);
}

static void test_over_by_itself(void)
{
	struct scene t;

	begin_with(&t, SHORT_USEC, NODES);
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	ok(reads_on(&t, 2, 0, "one"), "another one has a lease");
	usleep(SHORT_USEC / 2 + 50000);
	ok(!is_leased(&t, 2), "after a while it is over");
	uint64_t before = job_world_job(t.w, 1)->share->messages;
	is_int(opened_put(&t.at[1], "two", 0), 3, "so a node that writes");
	ok(job_world_job(t.w, 1)->share->messages - before <= 1, "says so to nobody");
	ok(reads(&t, 2, 0, "two"), "and is seen");
	end(&t);
}

static bool is_gone(struct scene *t, uint32_t node)
{
	struct peers_node n;

	return peers_nodes(job_world_peers(t->w, 0), node, &n, 1) == 1 && n.gone;
}

/* Its home forgets a node that it gives up, which may read on. */
static void test_given_up(void)
{
	struct scene t;

	begin_in(&t, &(struct job_world_options){ .num = NODES, .node_timeout_usec = NODE_TIMEOUT_USEC }, NODES);
	is_int(opened_put(&t.at[1], "one", 0), 3, "a node writes");
	ok(reads_on(&t, 2, 0, "one"), "another one has a lease");
	loopback_cut(job_world_loopback(t.w), 2);
	ok(is_leased(&t, 2), "its link is cut");
	for (int tries = 0; tries < 6000 && !is_gone(&t, 2); tries++)
		usleep(10000);
	ok(is_gone(&t, 2), "it is given up");
	is_int(opened_put(&t.at[1], "two", 0), 3, "the first one writes");
	ok(!is_leased(&t, 2), "the lease was over by then");
	job_release(t.at[2].j, t.at[2].file);
	t.at[2].file = NULL;
	end(&t);
}

/* ---- at random */

struct crowd {
	struct scene t;
	pthread_barrier_t barrier;
	_Atomic(unsigned int) wrong, leased;
	uint64_t seed;
};

struct member {
	struct crowd *c;
	uint32_t node;
};

static uint64_t draw(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

static void text_of(uint32_t node, unsigned int round, char *text)
{
	text[0] = (char)('A' + node);
	for (int i = 1; i < 4; i++, round /= 26)
		text[i] = (char)('a' + round % 26);
	text[4] = '\0';
}

/* Who writes in which round is the same to all, and so what there is to be read in it. */
static void *one_of_many(void *arg)
{
	struct member *me = arg;
	struct crowd *c = me->c;
	uint64_t common = c->seed, own = c->seed ^ (me->node + 1) * 0x9E3779B97F4A7C15u;
	unsigned int last[NODES] = { 0 };
	char text[5];

	for (unsigned int round = 1; round <= ROUNDS; round++) {
		uint64_t who = draw(&common) % 3 ? 0 : draw(&common) % (1u << NODES);

		if (who >> me->node & 1) {
			text_of(me->node, round, text);
			c->wrong += opened_put(&c->t.at[me->node], text, me->node * 10) != 4;
		}
		for (uint32_t n = 0; n < NODES; n++)
			last[n] = who >> n & 1 ? round : last[n];
		pthread_barrier_wait(&c->barrier);
		for (uint64_t k = draw(&own) % 8; k < 8; k++) {
			uint32_t n = (uint32_t)(draw(&own) % NODES);

			text_of(n, last[n], text);
			c->wrong += last[n] && !reads(&c->t, me->node, n * 10, text);
		}
		c->leased += is_leased(&c->t, me->node);
		pthread_barrier_wait(&c->barrier);
	}
	return NULL;
}

static void test_crowd(uint64_t seed)
{
	struct member members[NODES];
	pthread_t threads[NODES];
	struct crowd c = { .seed = seed };

	begin_with(&c.t, 0, NODES);
	loopback_set_delay(job_world_loopback(c.t.w), 0, 200, seed);
	pthread_barrier_init(&c.barrier, NULL, NODES);
	for (uint32_t n = 0; n < NODES; n++) {
		members[n] = (struct member){ &c, n };
		pthread_create(&threads[n], NULL, one_of_many, &members[n]);
	}
	for (uint32_t n = 0; n < NODES; n++)
		pthread_join(threads[n], NULL);
	pthread_barrier_destroy(&c.barrier);
	ok(c.wrong == 0, "what %u nodes write now and then is seen by all who read on, seed %llu", NODES,
		(unsigned long long)seed);
	ok(c.leased > ROUNDS / 4, "often without asking: %u times", (unsigned int)c.leased);
	end(&c.t);
}

/* ---- at random, and nobody waits for anybody */

struct free_crowd {
	struct scene t;
	_Atomic(unsigned int) written[NODES]; /* the number that each has written last, when that has returned */
	_Atomic(unsigned int) wrong, leased, reads;
	_Atomic(bool) stop;
	uint64_t seed;
};

struct free_member {
	struct free_crowd *c;
	uint32_t node;
};

static void write_number(struct free_crowd *c, uint32_t node)
{
	unsigned int number = c->written[node] + 1;
	char text[9];

	snprintf(text, sizeof(text), "%08u", number);
	c->wrong += opened_put(&c->t.at[node], text, node * 8) != 8;
	c->written[node] = number;
}

static void read_number(struct free_crowd *c, uint32_t node, uint32_t of)
{
	unsigned int least = c->written[of];
	struct job_bytes where;
	char buf[9] = "";

	c->leased += is_leased(&c->t, node);
	c->reads++;
	ssize_t got = job_read_bytes(c->t.at[node].j, c->t.at[node].file, true, buf, 8, of * 8, &where);
	if (got > 0)
		memmove(buf, where.at, (size_t)got);
	job_bytes_end(&where);
	unsigned int seen = got == 8 ? (unsigned int)strtoul(buf, NULL, 10) : 0;
	if (seen < least)
		tap_diag("node %u: %u of node %u, which has written %u", node, seen, of, least);
	c->wrong += seen < least;
}

static void *one_that_is_free(void *arg)
{
	struct free_member *me = arg;
	struct free_crowd *c = me->c;
	uint64_t own = c->seed ^ (me->node + 1) * 0x9E3779B97F4A7C15u;

	while (!c->stop)
		if (draw(&own) % 40 == 0)
			write_number(c, me->node);
		else
			read_number(c, me->node, (uint32_t)(draw(&own) % NODES));
	return NULL;
}

static void *one_that_reads(void *arg)
{
	struct free_member *me = arg;
	uint64_t own = me->c->seed ^ me->node;

	while (!me->c->stop)
		read_number(me->c, me->node, (uint32_t)(draw(&own) % NODES));
	return NULL;
}

/* Two threads of each node: one writes now and then. */
static void test_free_crowd(uint64_t seed, uint64_t max_delay_usec)
{
	struct free_member members[2 * NODES];
	pthread_t threads[2 * NODES];
	struct free_crowd c = { .seed = seed };

	begin_with(&c.t, 0, NODES);
	loopback_set_delay(job_world_loopback(c.t.w), 0, max_delay_usec, seed);
	for (uint32_t n = 0; n < NODES; n++)
		write_number(&c, n);
	for (uint32_t i = 0; i < 2 * NODES; i++) {
		members[i] = (struct free_member){ &c, i % NODES };
		pthread_create(&threads[i], NULL, i < NODES ? one_that_is_free : one_that_reads, &members[i]);
	}
	usleep(FREE_USEC);
	c.stop = true;
	for (uint32_t i = 0; i < 2 * NODES; i++)
		pthread_join(threads[i], NULL);
	ok(c.wrong == 0,
		"what has been written is seen by whoever reads afterwards, seed %llu: %u of %u reads by a lease",
		(unsigned long long)seed, (unsigned int)c.leased, (unsigned int)c.reads);
	ok(c.leased > 0, "leases have been given");
	end(&c.t);
}

int main(void)
{
	test_asks_nobody();
	test_written_again();
	test_writes_on();
	test_opened_later();
	test_home_restarted();
	test_hanging();
	test_two_at_once();
	test_over_by_itself();
	test_given_up();
	for (uint64_t seed = 1; seed <= 3; seed++)
		test_crowd(seed);
	test_free_crowd(1, 0);
	test_free_crowd(2, 100);
	test_free_crowd(3, 1000);
	return done_testing();
}
