/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Nodes of a job, in one process, that write to one file at the same time: appends, blocks, ROMIO's data sieving, pages of mappings. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/place/place.h"
#include "fs/job/share.h"
#include "tests/lib/job_world.h"
#include "tests/lib/opened.h"
#include "tests/lib/tap.h"

#define NODES   4
#define BLOCK   5000u
#define BLOCKS  40u
#define RECORD  100u
#define RECORDS 60u

struct worker {
	struct job_world *w;
	uint32_t node, num;
	uint64_t ino, base, stride;
	int flags;
	int (*run)(struct worker *me, struct opened *f);
	int result;
	pthread_barrier_t *barrier;
	pthread_t thread;
};

static void *work(void *arg)
{
	struct worker *me = arg;
	struct opened f;

	me->result = opened_at(me->w, me->node, me->ino, me->flags, &f);
	if (me->result)
		return NULL;
	me->result = me->run(me, &f);
	int rc = opened_close(&f);
	me->result = me->result ? me->result : rc;
	return NULL;
}

static int run_all(struct job_world *w, uint32_t num, uint64_t ino, int flags, uint64_t stride,
	int (*run)(struct worker *, struct opened *))
{
	struct worker all[NODES] = { { 0 } };
	pthread_barrier_t barrier;
	int rc = 0;

	pthread_barrier_init(&barrier, NULL, num);
	for (uint32_t i = 0; i < num; i++) {
		all[i] = (struct worker){
			.w = w, .node = i, .num = num, .ino = ino, .flags = flags, .run = run, .barrier = &barrier
		};
		all[i].base = stride ? 0 : PLACE_DOMAIN_SIZE - 50000;
		all[i].stride = stride ? stride : BLOCK;
		pthread_create(&all[i].thread, NULL, work, &all[i]);
	}
	for (uint32_t i = 0; i < num; i++) {
		pthread_join(all[i].thread, NULL);
		rc = rc ? rc : all[i].result;
	}
	pthread_barrier_destroy(&barrier);
	return rc;
}

static int append_records(struct worker *me, struct opened *f)
{
	char record[RECORD];

	for (uint32_t i = 0; i < RECORDS; i++) {
		memset(record, (int)('A' + me->node), RECORD);
		if (job_write(f->j, f->file, record, RECORD, 0) != RECORD)
			return -EIO;
	}
	return 0;
}

static void test_appends(void)
{
	struct job_world *w = job_world_start(3);
	struct opened f;
	uint64_t ino = opened_create(w, 0, "log", O_RDWR, &f);
	static char all[NODES * RECORDS * RECORD + 1];
	unsigned int whole = 0, of[3] = { 0 };

	opened_elsewhere(w, ino); /* a home alone appends where its kernel says */
	is_int(run_all(w, 3, ino, O_WRONLY | O_APPEND, 0, append_records), 0, "three nodes append");
	ssize_t got = job_read(f.j, f.file, all, sizeof(all), 0);
	is_int(got, 3 * RECORDS * RECORD, "all records are there");
	for (ssize_t at = 0; at + (ssize_t)RECORD <= got; at += RECORD) {
		char first = all[at];
		size_t same = 0;

		while (same < RECORD && all[at + (ssize_t)same] == first)
			same++;
		whole += same == RECORD;
		if (first >= 'A' && first < 'D')
			of[first - 'A']++;
	}
	is_int(whole, 3 * RECORDS, "and whole");
	ok(of[0] == RECORDS && of[1] == RECORDS && of[2] == RECORDS, "each as often as written");
	is_int(opened_close(&f), 0, "closed");
	job_world_stop(w);
}

static void *append_a(void *arg)
{
	struct opened *f = arg;

	return (void *)(intptr_t)opened_put(f, "a", 0);
}

/* Of two that have appended one byte each, "b" first. */
static void end_both(struct opened at[2])
{
	for (uint32_t k = 0; k < 2; k++)
		is_int(job_flush(at[k].j, at[k].file), 0, "told");
	for (uint32_t k = 0; k < 2; k++)
		ok(opened_shows(&at[k], 0, "ba"), "both are there");
	for (uint32_t k = 0; k < 2; k++)
		is_int(opened_close(&at[k]), 0, "closed");
}

/* What a node was given by the home's last daemon, and cannot tell the next one yet, is nobody else's. */
static void test_append_to_restarted(void)
{
	struct job_world *w = job_world_start(3);
	struct opened f, at[2];
	uint64_t ino = opened_create(w, 0, "log", O_RDWR, &f);
	pthread_t thread;
	void *done = NULL;

	is_int(opened_close(&f), 0, "made");
	for (uint32_t k = 0; k < 2; k++)
		is_int(opened_at(w, 1 + k, ino, O_RDWR | O_APPEND, &at[k]), 0, "opened elsewhere");
	is_int(opened_put(&at[0], "b", 0), 1, "one appends, and does not say so");
	loopback_set_hanging(job_world_loopback(w), 1, true);
	job_world_restart(w, 0);
	pthread_create(&thread, NULL, append_a, &at[1]);
	usleep(100000); /* only a wrong place could be had by now */
	loopback_set_hanging(job_world_loopback(w), 1, false);
	pthread_join(thread, &done);
	is_int((intptr_t)done, 1, "the home is restarted, another one appends");
	end_both(at);
	job_world_stop(w);
}

/* The home asks all how far they have written, and is restarted meanwhile: the next one asks again. */
static void test_append_asked_again(void)
{
	struct job_world *w = job_world_start(4);
	struct loopback *l = job_world_loopback(w);
	struct opened f, at[2];
	uint64_t ino = opened_create(w, 0, "log", O_RDWR, &f);
	pthread_t thread;
	void *done = NULL;

	is_int(opened_close(&f), 0, "made");
	for (uint32_t k = 0; k < 2; k++)
		is_int(opened_at(w, 1 + k, ino, O_RDWR | O_APPEND, &at[k]), 0, "opened elsewhere");
	is_int(opened_put(&at[1], "b", 0), 1, "one appends, and does not say so");
	job_world_restart(w, 0);
	loopback_hold_reply(l, 3, MESSAGE_SHARE_END_ASK, 0);
	pthread_create(&thread, NULL, append_a, &at[0]);
	loopback_await_held(l, 3);
	loopback_set_hanging(l, 2, true);
	job_world_restart(w, 0);
	loopback_let_go(l, 3);
	usleep(100000); /* only a wrong place could be had by now */
	loopback_set_hanging(l, 2, false);
	pthread_join(thread, &done);
	is_int((intptr_t)done, 1, "another one appends, for which all nodes are asked, by two daemons of the home");
	end_both(at);
	job_world_stop(w);
}

/* Nobody uses the file there any more, or is at work with it. */
static void await_let_go(struct job *j, uint64_t ino)
{
	struct shared *s;

	while ((s = shared_find(j, ino))) {
		shared_put(j, s);
		usleep(1000);
	}
}

/* What it remembers of a file holds until a place is given again: the file may be let go before that one is told. */
static void test_append_remembered_once(void)
{
	struct job_world *w = job_world_start(3);
	struct opened f;
	uint64_t ino = opened_create(w, 0, "log", O_RDWR, &f);
	struct job *home = job_world_job(w, 0);

	is_int(opened_close(&f), 0, "made");
	is_int(opened_at(w, 1, ino, O_WRONLY | O_APPEND, &f), 0, "opened");
	is_int(opened_put(&f, "a", 0), 1, "appended");
	is_int(opened_close(&f), 0, "closed");
	loopback_settle(job_world_loopback(w));
	struct shared *s = shared_get(home, ino);
	ok(s->knows_ends, "the home knows that all is told");
	append_raise_end(s, 100);
	shared_put(home, s);
	await_let_go(home, ino);
	s = shared_get(home, ino);
	ok(!s->knows_ends, "not after a place that was not told");
	shared_put(home, s);
	job_world_stop(w);
}

static int restart_home(struct job_world *w)
{
	for (unsigned int i = 0; i < 5; i++) {
		usleep(30000);
		job_world_restart(w, 0);
	}
	return 0;
}

static void *restart_thread(void *arg)
{
	return (void *)(intptr_t)restart_home(arg);
}

/* All want a place at the same time, again and again, and the home forgets what it has given. */
static void test_appends_to_restarted(void)
{
	struct job_world *w = job_world_start(4);
	struct opened f;
	uint64_t ino = opened_create(w, 0, "log", O_RDWR, &f);
	static struct worker all[3];
	static char text[3 * RECORDS * RECORD + 1];
	unsigned int whole = 0;
	pthread_t thread;

	is_int(opened_close(&f), 0, "made");
	is_int(opened_at(w, 1, ino, O_RDWR, &f), 0, "opened elsewhere");
	for (uint32_t i = 0; i < 3; i++) {
		all[i] = (struct worker){
			.w = w, .node = 1 + i, .ino = ino, .flags = O_WRONLY | O_APPEND, .run = append_records
		};
		pthread_create(&all[i].thread, NULL, work, &all[i]);
	}
	pthread_create(&thread, NULL, restart_thread, w);
	for (uint32_t i = 0; i < 3; i++) {
		pthread_join(all[i].thread, NULL);
		is_int(all[i].result, 0, "a node appends while the home is restarted");
	}
	pthread_join(thread, NULL);
	ssize_t got = job_read(f.j, f.file, text, sizeof(text), 0);
	for (ssize_t at = 0; at + (ssize_t)RECORD <= got; at += RECORD)
		whole += memcmp(text + at, text + at + 1, RECORD - 1) == 0;
	is_int(got, 3 * RECORDS * RECORD, "all records are there");
	is_int(whole, 3 * RECORDS, "and whole");
	is_int(opened_close(&f), 0, "closed");
	job_world_stop(w);
}

/* A home that has told all apart from a restart asks nobody. */
static void test_append_again(void)
{
	struct job_world *w = job_world_start(3);
	struct opened f;
	uint64_t ino = opened_create(w, 0, "log", O_RDWR, &f);

	is_int(opened_close(&f), 0, "made");
	for (uint32_t round = 0; round < 3; round++) {
		is_int(opened_at(w, 1, ino, O_WRONLY | O_APPEND, &f), 0, "opened");
		uint64_t before = f.j->share->messages;
		is_int(opened_put(&f, "a", 0), 1, "appended");
		/* And one before it, since this daemon has just begun, and does not know whether an earlier one has given leases. */
		ok(f.j->share->messages - before <= 2, "with one message");
		is_int(opened_close(&f), 0, "closed");
		loopback_settle(job_world_loopback(w));
	}
	job_world_stop(w);
}

static uint8_t byte_of(uint32_t writer, uint32_t round, uint64_t off)
{
	return (uint8_t)(1 + (writer * 31 + round * 7 + off / BLOCK) % 250);
}

static int check_blocks(struct worker *me, struct opened *f, uint32_t round)
{
	uint8_t buf[BLOCK];

	for (uint64_t b = 0; b < BLOCKS * me->num; b++) {
		uint64_t off = me->base + b * me->stride;
		uint8_t expected = byte_of((uint32_t)((b + round) % me->num), round, off);

		if (job_read(f->j, f->file, buf, BLOCK, off) != BLOCK)
			return -ENODATA;
		for (size_t i = 0; i < BLOCK; i++)
			if (buf[i] != expected)
				return -EILSEQ;
	}
	return 0;
}

/* Interleaved blocks over the border of a domain; sync, barrier, sync. Each round another node writes a block. */
static int write_blocks(struct worker *me, struct opened *f)
{
	uint8_t buf[BLOCK];
	int rc = 0;

	for (uint32_t round = 0; round < 6; round++) {
		for (uint64_t b = 0; rc == 0 && b < BLOCKS * me->num; b++) {
			uint64_t off = me->base + b * me->stride;

			if ((b + round) % me->num != me->node)
				continue;
			memset(buf, byte_of(me->node, round, off), BLOCK);
			if (job_write(f->j, f->file, buf, BLOCK, off) != BLOCK)
				rc = -EIO;
		}
		rc = rc ? rc : job_fsync(f->j, me->ino, f->file, false);
		pthread_barrier_wait(me->barrier);
		rc = rc ? rc : check_blocks(me, f, round);
		pthread_barrier_wait(me->barrier);
	}
	return rc;
}

struct chaos {
	struct job_world *w;
	uint32_t num;
	_Atomic(bool) stop;
};

static void *lose_agents(void *arg)
{
	struct chaos *c = arg;

	for (uint32_t i = 0; !c->stop; i++) {
		loopback_lose(job_world_loopback(c->w), i % c->num);
		usleep(1000);
		loopback_assemble(job_world_loopback(c->w));
		usleep(20000);
	}
	return NULL;
}

static void *restart_last(void *arg)
{
	struct chaos *c = arg;

	for (int i = 0; !c->stop && i < 5; i++) {
		job_world_restart(c->w, c->num - 1);
		usleep(20000);
	}
	return NULL;
}

/* The last node has the file not open, but is home of domains of it. */
static void test_domain_home_dies(void)
{
	struct job_world *w = job_world_start(3);
	struct chaos c = { .w = w, .num = 3 };
	pthread_t thread;
	struct opened f;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &f);

	pthread_create(&thread, NULL, restart_last, &c);
	is_int(run_all(w, 2, ino, O_RDWR, 1 << 20, write_blocks), 0, "blocks of two nodes while a third one dies");
	c.stop = true;
	pthread_join(thread, NULL);
	is_int(opened_close(&f), 0, "closed");
	job_world_stop(w);
}

static void test_blocks(uint32_t num, bool chaos)
{
	struct job_world *w = job_world_start(num);
	struct chaos c = { .w = w, .num = num };
	pthread_t thread;
	struct opened f;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &f);

	if (chaos)
		pthread_create(&thread, NULL, lose_agents, &c);
	is_int(run_all(w, num, ino, O_RDWR, 0, write_blocks), 0,
		chaos ? "blocks while agents die" : "blocks of all nodes");
	c.stop = true;
	if (chaos)
		pthread_join(thread, NULL);
	is_int(opened_close(&f), 0, "closed");
	job_world_stop(w);
}

/* As ROMIO does it: read a span, change every num-th piece of it, write the span. No locks. */
#define SPAN  40000u
#define PIECE 50u

static int sieve_spans(struct worker *me, struct opened *f)
{
	static __thread uint8_t buf[SPAN];
	int rc = 0;

	for (uint64_t off = 0; rc == 0 && off < 10 * SPAN; off += SPAN) {
		if (job_read(f->j, f->file, buf, SPAN, off) != SPAN)
			rc = -ENODATA;
		pthread_barrier_wait(me->barrier);
		for (size_t at = me->node * PIECE; at < SPAN; at += me->num * PIECE)
			memset(buf + at, (int)('a' + me->node), PIECE);
		if (rc == 0 && job_write(f->j, f->file, buf, SPAN, off) != SPAN)
			rc = -EIO;
	}
	return rc ? rc : job_fsync(f->j, me->ino, f->file, false);
}

/* ROMIO has no eye for a file that ends in the span: what it has not read it writes all the same. */
static void test_sieve_at_end(void)
{
	struct job_world *w = job_world_start(3);
	static uint8_t buf[SPAN], seen[2 * SPAN];
	struct opened a, b, c;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a);

	is_int(opened_at(w, 1, ino, O_RDWR, &b), 0, "opened by another node");
	is_int(opened_at(w, 2, ino, O_RDWR, &c), 0, "and by a third");
	memset(buf, 'a', SPAN / 2);
	is_int(job_write(a.j, a.file, buf, SPAN / 2, SPAN / 2), SPAN / 2, "the first one writes, and commits nothing");
	memset(buf, 'x', SPAN);
	is_int(job_read(b.j, b.file, buf, SPAN, 0), SPAN, "the second one can read as far");
	is_int(job_read(c.j, c.file, seen, 2 * SPAN, 0), SPAN, "the third one not further");
	memset(buf + PIECE, 'b', PIECE);
	is_int(job_write(b.j, b.file, buf, SPAN, 0), SPAN, "and writes the span back, with a piece of its own");
	is_int(opened_close(&a) + opened_close(&b), 0, "closed");
	is_int(job_read(c.j, c.file, seen, SPAN, 0), SPAN, "read");
	ok(seen[0] == 0 && seen[PIECE] == 'b' && seen[2 * PIECE] == 0 && seen[SPAN / 2 - 1] == 0, "the piece is there");
	ok(seen[SPAN / 2] == 'a' && seen[SPAN - 1] == 'a', "and what the first one wrote");
	is_int(opened_close(&c), 0, "closed");
	job_world_stop(w);
}

/* The span of the last rank goes beyond the end of the file: it has read all but its own last bytes. */
static void test_sieve_beyond_end(void)
{
	struct job_world *w = job_world_start(2);
	static uint8_t buf[SPAN], seen[SPAN + 1];
	const size_t end = SPAN - PIECE;
	struct opened a, b;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a);

	memset(buf, 'a', SPAN);
	is_int(job_write(a.j, a.file, buf, end, 0), (int)end, "written");
	is_int(job_fsync(a.j, ino, a.file, false), 0, "synced");
	is_int(opened_at(w, 1, ino, O_RDWR, &b), 0, "opened by another node");
	is_int(job_read(b.j, b.file, buf, SPAN, 0), (int)end, "which reads a span that the file ends in");
	is_int(opened_put(&a, "first", 3 * PIECE), 5, "the first one writes to it");
	is_int(job_fsync(a.j, ino, a.file, false), 0, "synced");
	memset(buf + PIECE, 'b', PIECE);
	memset(buf + end, 'b', PIECE);
	is_int(job_write(b.j, b.file, buf, SPAN, 0), SPAN,
		"the other one writes the span back, with pieces of its own");
	is_int(opened_close(&b), 0, "closed");
	is_int(job_read(a.j, a.file, seen, SPAN + 1, 0), SPAN, "the file is longer now");
	ok(seen[PIECE - 1] == 'a' && seen[PIECE] == 'b' && seen[2 * PIECE] == 'a' && seen[end - 1] == 'a' &&
			seen[end] == 'b' && seen[SPAN - 1] == 'b',
		"the pieces are there");
	ok(memcmp(seen + 3 * PIECE, "first", 5) == 0, "and what the first one wrote");
	is_int(opened_close(&a), 0, "closed");
	job_world_stop(w);
}

static bool is_later(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/* A rank that writes what was there has changed nothing, either. */
static void test_sieve_unchanged(void)
{
	struct job_world *w = job_world_start(2);
	uint8_t buf[10];
	struct core_entry before, after;
	struct opened a, b;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a);

	is_int(opened_at(w, 1, ino, O_RDWR, &b), 0, "opened by another node");
	is_int(opened_put(&a, "0123456789", 0), 10, "written");
	is_int(job_fsync(a.j, ino, a.file, false), 0, "synced");
	is_int(job_read(b.j, b.file, buf, sizeof(buf), 0), sizeof(buf), "the other one reads");
	is_int(opened_put(&a, "abc", 2), 3, "the first one changes some of it");
	is_int(opened_close(&a), 0, "closed");
	is_int(job_write(b.j, b.file, buf, sizeof(buf), 0), sizeof(buf), "the other one writes back what it has read");
	is_int(job_getattr(a.j, ino, NULL, &before) + job_fsync(b.j, ino, b.file, false), 0, "synced");
	is_int(job_getattr(a.j, ino, NULL, &after), 0, "looked at");
	ok(opened_shows(&b, 0, "01abc56789"), "the change is there");
	ok(is_later(&after.attr.st_mtim, &before.attr.st_mtim), "the file's time is that of the last write");
	is_int(opened_close(&b), 0, "closed");
	job_world_stop(w);
}

static bool reads_digits(struct opened *b)
{
	char buf[100];

	return job_read(b->j, b->file, buf, sizeof(buf), 0) == 10 && memcmp(buf, "0123456789", 10) == 0;
}

static bool both_show(struct opened *b, struct opened *a, uint64_t ino, const char *text)
{
	return opened_shows(b, 0, text) && job_fsync(b->j, ino, b->file, false) == 0 && opened_shows(a, 0, text);
}

/* What its own process has done to the span since: all that it writes back counts. */
static void test_sieve_own(void)
{
	static const char text[] = "0123456789";
	struct job_world *w = job_world_start(2);
	struct opened a, b, other;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a);

	is_int(opened_at(w, 1, ino, O_RDWR, &b), 0, "opened by another node");
	is_int(opened_at(w, 1, ino, O_RDWR, &other), 0, "twice");
	is_int(opened_put(&b, text, 0), 10, "which writes");
	ok(reads_digits(&b) && opened_put(&b, "abc", 2) == 3, "reads, changes some of it");
	is_int(opened_put(&b, text, 0), 10, "and changes it back");
	ok(both_show(&b, &a, ino, text), "it is as it was");
	ok(reads_digits(&b) && share_truncate(b.j, ino, 0) == 0, "reads, truncates");
	is_int(opened_put(&b, text, 0), 10, "and writes the same");
	ok(both_show(&b, &a, ino, text), "all of it is there");
	ok(reads_digits(&b) && share_truncate(a.j, ino, 0) == 0, "reads, another node truncates");
	is_int(opened_put(&b, text, 0), 10, "and it writes the same");
	ok(both_show(&b, &a, ino, text), "all of it is there");
	ok(reads_digits(&b) &&
			job_fallocate(other.j, other.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 3, 4) == 0,
		"reads, punches a hole through another open file");
	is_int(opened_put(&b, text, 0), 10, "and writes the same");
	ok(both_show(&b, &a, ino, text), "all of it is there");
	is_int(opened_close(&a) + opened_close(&b) + opened_close(&other), 0, "closed");
	job_world_stop(w);
}

/* Ranks of one node have open files of their own, and write to each other's holes. */
static void test_sieve_ranks(void)
{
	struct job_world *w = job_world_start(2);
	uint8_t buf[10];
	struct opened a, b, c;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &a);

	is_int(opened_at(w, 1, ino, O_RDWR, &b), 0, "opened by another node");
	is_int(opened_at(w, 1, ino, O_RDWR, &c), 0, "twice");
	is_int(opened_put(&a, "0123456789", 0), 10, "written");
	is_int(job_fsync(a.j, ino, a.file, false), 0, "synced");
	is_int(job_read(b.j, b.file, buf, sizeof(buf), 0), sizeof(buf), "a rank of the other node reads");
	is_int(opened_put(&c, "abc", 2), 3, "another one writes some of it");
	memcpy(buf + 6, "xyz", 3);
	is_int(job_write(b.j, b.file, buf, sizeof(buf), 0), sizeof(buf), "the first one writes back, with its own");
	ok(both_show(&b, &a, ino, "01abc5xyz9"), "both are there");
	is_int(opened_close(&a) + opened_close(&b) + opened_close(&c), 0, "closed");
	job_world_stop(w);
}

static int change_pages(struct worker *me, struct opened *f)
{
	static __thread uint8_t buf[4096];
	int rc = 0;

	for (uint64_t off = 0; rc == 0 && off < 20 * 4096; off += 4096) {
		if (job_read(f->j, f->file, buf, 4096, off) != 4096)
			rc = -ENODATA;
		for (size_t at = me->node * 64; at < 4096; at += me->num * 64)
			memset(buf + at, (int)('a' + me->node), 64);
		if (rc == 0 && job_write_page(f->j, f->file, buf, 4096, off) != 4096)
			rc = -EIO;
	}
	pthread_barrier_wait(me->barrier);
	return rc ? rc : job_fsync(f->j, me->ino, f->file, false);
}

static void test_exact(const char *what, size_t size, size_t piece, int (*run)(struct worker *, struct opened *))
{
	struct job_world *w = job_world_start(3);
	uint8_t *all = calloc(1, size);
	struct opened f;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &f);
	size_t wrong = 0;

	memset(all, '.', size);
	is_int(job_write(f.j, f.file, all, size, 0), (int64_t)size, "a file");
	opened_elsewhere(w, ino); /* as after a collective open */
	is_int(run_all(w, 3, ino, O_RDWR, 0, run), 0, what);
	is_int(job_read(f.j, f.file, all, size, 0), (int64_t)size, "read");
	for (size_t i = 0; i < size; i++)
		wrong += all[i] != 'a' + i % (piece == PIECE ? SPAN : 4096) / piece % 3;
	is_u64(wrong, 0, "each node's pieces are there");
	is_int(opened_close(&f), 0, "closed");
	free(all);
	job_world_stop(w);
}

int main(void)
{
	test_appends();
	test_append_to_restarted();
	test_append_asked_again();
	test_append_remembered_once();
	test_appends_to_restarted();
	test_append_again();
	test_blocks(2, false);
	test_blocks(4, false);
	test_blocks(3, true);
	test_domain_home_dies();
	test_sieve_at_end();
	test_sieve_beyond_end();
	test_sieve_unchanged();
	test_sieve_own();
	test_sieve_ranks();
	test_exact("three nodes sieve", 10 * SPAN, PIECE, sieve_spans);
	test_exact("three nodes change pages", 20 * 4096, 64, change_pages);
	return done_testing();
}
