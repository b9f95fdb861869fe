/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What a session of a job gives back of a node's layer: what is committed, and was not written after the session had begun. */
#include "fs/job/upto.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/lib/state_fixture.h"
#include "tests/lib/tap.h"

#define KIB      UINT64_C(1024)
#define INO      2u
#define MANY     1000u                          /* writes: more than one answer of the index holds */
#define TIME(n)  (1000000 + 10 * (uint64_t)(n)) /* of the n-th write, by the job's clock */
#define STAMP(n) (100 + (uint64_t)(n))

static void must(int r)
{
	if (r == 0)
		return;
	printf("Bail out! %d\n", r);
	exit(1);
}

/* The n-th write, of one block; its seq. */
static uint64_t write_block(struct state_fixture *f, unsigned int n, unsigned int block)
{
	struct record rec = record_write(INO, block * 4 * KIB, 4 * KIB, 1, n * 4 * KIB);
	uint64_t seq;

	rec.flags = RECORD_F_TIMED;
	rec.time_ns = (int64_t)TIME(n) * 1000;
	must(commit(f, rec, &seq));
	return seq;
}

static void commit_all(struct state_fixture *f, uint64_t upto, uint64_t stamp)
{
	must(commit(f, (struct record){ .type = RECORD_COMMITTED, .ino = INO, .upto = upto, .stamp = stamp }, NULL));
}

static uint64_t before(struct state_fixture *f, uint64_t time_usec, uint64_t upto)
{
	must(upto_before(f->st, INO, time_usec, &upto));
	return upto;
}

static uint64_t committed(struct state_fixture *f, uint64_t stamp)
{
	uint64_t upto = 99;

	must(upto_committed(f->st, INO, stamp, &upto));
	return upto;
}

static uint64_t settled(struct state_fixture *f, uint64_t stamp, uint64_t upto)
{
	must(upto_settled(f->st, INO, stamp, &upto));
	return upto;
}

static void start(struct state_fixture *f)
{
	must(fixture_init(f));
	must(fixture_open(f, STATE_READ_WRITE));
	must(fixture_adopt_root(f));
	must(commit(f, record_create(INO, STATE_ROOT_INO, "f", S_IFREG | 0644), NULL));
	must(commit(f, (struct record){ .type = RECORD_SHARE, .ino = INO }, NULL));
}

static void test_few(void)
{
	struct state_fixture f;
	uint64_t first, second, third;

	start(&f);
	first = write_block(&f, 1, 0);
	second = write_block(&f, 2, 9);
	commit_all(&f, second, STAMP(1));
	third = write_block(&f, 3, 4); /* the newest lies between the others */
	commit_all(&f, third, STAMP(2));

	is_u64(committed(&f, STAMP(0)), 0, "commits behind the session's stamp cover nothing");
	is_u64(committed(&f, STAMP(1)), second, "the first one covers two writes");
	is_u64(committed(&f, UINT64_MAX), third, "both cover all");

	is_u64(settled(&f, STAMP(2), third + 1), third + 1, "with a stamp behind all commits nothing is lowered");
	is_u64(settled(&f, STAMP(1), third + 1), second, "what a later commit covers stays");
	is_u64(settled(&f, STAMP(1), first), first, "what is not given back anyway changes nothing");
	is_u64(settled(&f, STAMP(0), third), 0, "nothing is given back when all commits are later");

	is_u64(before(&f, TIME(3), third), third, "a session that began at the last write, or later, gives back all");
	is_u64(before(&f, TIME(3) - 1, third), third - 1, "one that began before it leaves it where it is");
	is_u64(before(&f, TIME(2) - 1, third), second - 1, "and what came before it in the file, too");
	is_u64(before(&f, TIME(1) - 1, third), first - 1, "down to the first write");
	is_u64(before(&f, TIME(2) - 1, first), first, "what is not given back anyway changes nothing");
	is_u64(before(&f, 0, third), third, "a part that belongs to no session lowers nothing");

	write_block(&f, 4, 9);
	is_u64(before(&f, TIME(1), third), third - 1,
		"a write that has been written over has left nothing that could be given back");
	fixture_end(&f);
}

/* The one write behind the session's begin is at the file's end: in the last portion of the answer. */
static void test_many(void)
{
	struct state_fixture f;
	uint64_t last = 0;

	start(&f);
	for (unsigned int n = 1; n <= MANY; n++)
		last = write_block(&f, n, 2 * n);
	commit_all(&f, last, STAMP(1));
	is_u64(before(&f, TIME(MANY) - 1, last), last - 1, "of many extents the last one is seen");
	is_u64(before(&f, TIME(MANY / 2), last), last - MANY / 2, "and the oldest of those that are newer counts");
	fixture_end(&f);
}

int main(void)
{
	test_few();
	test_many();
	return done_testing();
}
