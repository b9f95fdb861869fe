/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The table of locks against the kernel: open file descriptions of one scratch file are the owners, F_OFD_SETLK and
 * flock() say who may have what, F_OFD_GETLK what every byte's state is. Then what the kernel does not promise: the order
 * in which waiters are served, and circles, against a search of the test's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "fs/job/lock_table.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tap.h"

#define OWNERS 5
#define SPAN   24 /* bytes that random ranges lie in; the last one stands for all behind it */
#define STEPS  4000

static uint32_t random_state = 4711;

static uint32_t next_random(uint32_t below)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % below;
}

struct log { /* grants, in order */
	uint64_t ids[256];
	int status[256];
	size_t num;
};

static void on_granted(const struct lock *want, uint64_t id, int status, void *arg)
{
	struct log *log = arg;

	(void)want;
	if (log->num < 256) {
		log->ids[log->num] = id;
		log->status[log->num] = status;
	}
	log->num++;
}

static struct lock_table *new_table(struct log *log)
{
	struct lock_table *t = NULL;

	*log = (struct log){ .num = 0 };
	if (lock_table_create(on_granted, log, &t)) {
		puts("Bail out! out of memory");
		exit(1);
	}
	return t;
}

/* end SPAN - 1: all behind */
static struct lock range(uint32_t owner, uint8_t type, uint64_t start, uint64_t end)
{
	return (struct lock){ .ino = 7,
		.owner = owner,
		.start = start,
		.end = end >= SPAN - 1 ? UINT64_MAX : end,
		.node = owner % 2,
		.pid = 100 + owner,
		.type = type };
}

static struct lock whole(uint32_t owner, uint8_t type)
{
	struct lock l = range(owner, type, 0, SPAN - 1);

	l.flock = true;
	return l;
}

/* ---- against the kernel */

struct scratch {
	char path[64];
	int fd[OWNERS], prober;
};

static bool scratch_open(struct scratch *s)
{
	snprintf(s->path, sizeof(s->path), "%s/lock.XXXXXX", scratch_parent());
	s->prober = mkstemp(s->path);
	if (s->prober < 0)
		return false;
	for (unsigned int i = 0; i < OWNERS; i++)
		if ((s->fd[i] = open(s->path, O_RDWR)) < 0)
			return false;
	return true;
}

static void scratch_close(struct scratch *s)
{
	for (unsigned int i = 0; i < OWNERS; i++)
		close(s->fd[i]);
	close(s->prober);
	unlink(s->path);
}

static struct flock kernel_lock(const struct lock *l)
{
	static const short types[] = { F_UNLCK, F_RDLCK, F_WRLCK };

	return (struct flock){ .l_type = types[l->type],
		.l_whence = SEEK_SET,
		.l_start = (off_t)l->start,
		.l_len = l->end == UINT64_MAX ? 0 : (off_t)(l->end - l->start + 1) };
}

static int kernel_set(const struct scratch *s, const struct lock *l)
{
	struct flock f = kernel_lock(l);

	return fcntl(s->fd[l->owner], F_OFD_SETLK, &f) ? -errno : 0;
}

/* 0, 1, 2: what is held at a byte, in the kernel's eyes. */
static int kernel_probe(const struct scratch *s, uint64_t at)
{
	struct lock l = range(0, LOCK_TYPE_READ, at, at);
	struct flock read = kernel_lock(&l), write = read;

	write.l_type = F_WRLCK;
	if (fcntl(s->prober, F_OFD_GETLK, &read) || fcntl(s->prober, F_OFD_GETLK, &write))
		return -1;
	return read.l_type != F_UNLCK ? 2 : write.l_type != F_UNLCK;
}

static int table_probe(const struct lock_table *t, uint64_t at)
{
	struct lock read = range(99, LOCK_TYPE_READ, at, at), write = range(99, LOCK_TYPE_WRITE, at, at), found;

	return lock_table_test(t, &read, &found) ? 2 : lock_table_test(t, &write, &found);
}

/* Every owner's every byte: another's request for it tells. */
static unsigned int differences(const struct scratch *s, const struct lock_table *t)
{
	unsigned int num = 0;

	for (uint64_t at = 0; at < SPAN; at++)
		num += kernel_probe(s, at) != table_probe(t, at);
	for (uint32_t owner = 0; owner < OWNERS; owner++)
		for (uint64_t at = 0; at < SPAN; at++) {
			struct lock want = range(owner, LOCK_TYPE_WRITE, at, at), found;
			struct flock f = kernel_lock(&want);

			if (fcntl(s->fd[owner], F_OFD_GETLK, &f))
				return 1;
			num += (f.l_type != F_UNLCK) != lock_table_test(t, &want, &found);
		}
	return num;
}

static void test_ranges_as_kernel(void)
{
	unsigned int wrong_status = 0, wrong_state = 0, granted = 0, refused = 0;
	struct scratch s;
	struct log log;
	struct lock_table *t = new_table(&log);

	ok(scratch_open(&s), "a scratch file for the kernel's locks");
	for (unsigned int i = 0; i < STEPS; i++) {
		uint64_t a = next_random(SPAN), b = next_random(SPAN);
		struct lock want = range(next_random(OWNERS), (uint8_t)next_random(3), a < b ? a : b, a < b ? b : a);
		int expected = kernel_set(&s, &want), got = lock_table_set(t, &want, false, i, 0);

		wrong_status += expected != got;
		wrong_state += differences(&s, t) > 0;
		granted += expected == 0;
		refused += expected == -EAGAIN;
	}
	ok(granted > STEPS / 10 && refused > STEPS / 10, "%u requests granted, %u refused by the kernel", granted,
		refused);
	is_u64(wrong_status, 0, "the table grants and refuses what the kernel does");
	is_u64(wrong_state, 0, "and every byte has the same locks after every step");
	for (uint32_t owner = 0; owner < OWNERS; owner++)
		lock_table_drop_owner(t, 7, false, owner % 2, owner, 0);
	is_u64(lock_table_count(t), 0, "nothing is left when all owners have gone");
	scratch_close(&s);
	lock_table_destroy(t);
}

static int kernel_flock(const struct scratch *s, uint32_t owner, uint8_t type)
{
	static const int ops[] = { LOCK_UN, LOCK_SH | LOCK_NB, LOCK_EX | LOCK_NB };

	return flock(s->fd[owner], ops[type]) ? -errno : 0;
}

static void test_flock_as_kernel(void)
{
	unsigned int wrong = 0, refused = 0;
	struct scratch s;
	struct log log;
	struct lock_table *t = new_table(&log);

	ok(scratch_open(&s), "a scratch file for the kernel's locks");
	for (unsigned int i = 0; i < STEPS; i++) {
		uint32_t owner = next_random(OWNERS);
		uint8_t type =
			(uint8_t)(next_random(4) & 3) % 3; /* often given up, so that there is something to get */
		struct lock want = whole(owner, type);
		int expected = kernel_flock(&s, owner, type);

		wrong += expected != lock_table_set(t, &want, false, i, 0);
		refused += expected != 0;
	}
	ok(refused > STEPS / 10 && refused < STEPS, "%u requests refused by the kernel", refused);
	is_u64(wrong, 0, "flock locks are granted, changed, lost and refused as the kernel's");
	scratch_close(&s);
	lock_table_destroy(t);
}

static void test_kinds_apart(void)
{
	struct log log;
	struct lock_table *t = new_table(&log);
	struct lock a = range(1, LOCK_TYPE_WRITE, 0, SPAN), b = whole(2, LOCK_TYPE_WRITE);

	is_int(lock_table_set(t, &a, false, 1, 0), 0, "an fcntl lock of all");
	is_int(lock_table_set(t, &b, false, 2, 0), 0, "does not stop an flock lock");
	a.ino = 8;
	a.owner = 2;
	is_int(lock_table_set(t, &a, false, 3, 0), 0, "nor a lock of another file");
	lock_table_destroy(t);
}

/* ---- waiting */

static void test_line(void)
{
	struct log log;
	struct lock_table *t = new_table(&log);
	struct lock r1 = range(1, LOCK_TYPE_READ, 0, 9), w2 = range(2, LOCK_TYPE_WRITE, 0, 9),
		    r3 = range(3, LOCK_TYPE_READ, 5, 9), r4 = range(4, LOCK_TYPE_READ, 12, 15),
		    r1b = range(1, LOCK_TYPE_READ, 3, 4);

	is_int(lock_table_set(t, &r1, true, 1, 0), 0, "a reader");
	is_int(lock_table_set(t, &w2, true, 2, 0), LOCK_WAITS, "a writer waits for it");
	is_int(lock_table_set(t, &r3, true, 3, 0), LOCK_WAITS, "the next reader waits behind the writer");
	is_int(lock_table_set(t, &r4, true, 4, 0), 0, "a reader of other bytes does not");
	is_int(lock_table_set(t, &r1b, true, 5, 0), 0, "nor the first one, for whom the writer waits");
	r1.type = LOCK_TYPE_NONE;
	is_int(lock_table_set(t, &r1, false, 6, 10), 0, "the first reader ends");
	ok(log.num == 1 && log.ids[0] == 2, "the writer gets it");
	ok(lock_table_cancel(t, 1, 3, 20), "the waiting reader gives up");
	ok(!lock_table_cancel(t, 1, 3, 20), "once");
	w2.type = LOCK_TYPE_NONE;
	lock_table_set(t, &w2, false, 7, 30);
	is_u64(log.num, 1, "and gets nothing");
	lock_table_destroy(t);
}

static void test_patience(void)
{
	struct log log;
	struct lock_table *t = new_table(&log);
	struct lock r1 = range(1, LOCK_TYPE_READ, 0, 9), w2 = range(2, LOCK_TYPE_WRITE, 0, 9),
		    r3 = range(3, LOCK_TYPE_READ, 0, 9);
	int64_t due;

	lock_table_set(t, &r1, true, 1, 0);
	lock_table_set(t, &w2, true, 2, 0);
	is_int(lock_table_due(t), INT64_MAX, "nobody waits for a place in the line");
	lock_table_set(t, &r3, true, 3, 0);
	due = lock_table_due(t);
	is_int(due, LOCK_PATIENCE_USEC, "a reader does, and for how long is known");
	lock_table_tick(t, due - 1);
	is_u64(log.num, 0, "before that it stays there");
	lock_table_tick(t, due);
	ok(log.num == 1 && log.ids[0] == 3, "then it passes the writer: the two readers may need each other");
	is_int(lock_table_due(t), INT64_MAX, "the clock is not needed any more");
	lock_table_destroy(t);
}

static void test_steady_readers(void)
{
	struct log log;
	struct lock_table *t = new_table(&log);
	struct lock w = range(4, LOCK_TYPE_WRITE, 0, 9), r;
	int64_t now = 0;

	r = range(0, LOCK_TYPE_READ, 0, 9);
	lock_table_set(t, &r, true, 1000, now);
	lock_table_set(t, &w, true, 9, now);
	/* There is always a next reader before the last one ends. */
	for (uint32_t i = 1; i < 50 && log.num == 0; i++) {
		r = range(i % 2, LOCK_TYPE_READ, 0, 9);
		lock_table_set(t, &r, true, 1000 + i, now += 1000);
		r = range((i + 1) % 2, LOCK_TYPE_NONE, 0, 9);
		lock_table_set(t, &r, true, 0, now += 1000);
		lock_table_tick(t, now);
	}
	ok(log.num > 0 && log.ids[0] == 9, "readers that come one after the other do not starve a writer");
	lock_table_destroy(t);
}

static void test_flock_upgrade(void)
{
	struct log log;
	struct lock_table *t = new_table(&log);
	struct lock a = whole(1, LOCK_TYPE_READ), b = whole(2, LOCK_TYPE_READ);

	lock_table_set(t, &a, false, 1, 0);
	lock_table_set(t, &b, false, 2, 0);
	a.type = b.type = LOCK_TYPE_WRITE;
	is_int(lock_table_set(t, &a, true, 3, 0), LOCK_WAITS, "of two who share a file, one wants it alone");
	is_int(lock_table_set(t, &b, true, 4, 0), 0, "who gives up its share by that; so the other one gets it");
	is_u64(log.num, 0, "and the first one waits");
	lock_table_drop_node(t, 0, 0);
	ok(log.num == 1 && log.ids[0] == 3, "until the other one's node is gone");
	lock_table_destroy(t);
}

static void count_lost(const struct lock *lock, void *arg)
{
	(void)lock;
	++*(unsigned int *)arg;
}

static void test_fix(void)
{
	struct log log;
	struct lock_table *t = new_table(&log);
	struct lock all = range(0, LOCK_TYPE_WRITE, 0, 19), theirs = range(1, LOCK_TYPE_WRITE, 0, 3);
	struct lock had[] = { range(0, LOCK_TYPE_WRITE, 0, 9), range(0, LOCK_TYPE_WRITE, 15, 16) };
	struct lock other = range(2, LOCK_TYPE_WRITE, 15, 15), found;
	unsigned int num_lost = 0;

	lock_table_set(t, &all, false, 1, 0);
	lock_table_set(t, &theirs, true, 2, 0);
	lock_table_fix(t, &all, had, 2, 0, count_lost, &num_lost);
	is_u64(num_lost, 0, "an owner has what his node says");
	is_u64(log.num, 0, "who waits for it gets nothing meanwhile");
	is_u64(lock_table_count(t), 2, "and no more");
	lock_table_fix(t, &all, NULL, 0, 0, count_lost, &num_lost);
	ok(log.num == 1 && log.ids[0] == 2, "when it is nothing, who waits goes on");
	lock_table_set(t, &other, false, 3, 0);
	lock_table_fix(t, &all, had, 2, 0, count_lost, &num_lost);
	is_u64(num_lost, 2, "what others have got before is lost");
	ok(lock_table_test(t, &all, &found) && found.owner == 1 && lock_table_count(t) == 2, "and they keep it");
	lock_table_destroy(t);
}

/* ---- circles. The model: who waits for whom, by the locks that it has seen granted */

struct model {
	uint8_t held[OWNERS][SPAN]; /* enum lock_type */
	struct lock wants[OWNERS];
	bool waits[OWNERS];
};

static bool model_stops(const struct model *m, uint32_t owner, const struct lock *want)
{
	for (uint64_t at = want->start; at < SPAN && at <= want->end; at++)
		if (owner != want->owner && m->held[owner][at] &&
			(m->held[owner][at] == 2 || want->type == LOCK_TYPE_WRITE))
			return true;
	return false;
}

/* Does a chain of waiters lead from want to target? At most depth long: as many as there are owners. */
static bool model_leads(const struct model *m, const struct lock *want, uint32_t target, unsigned int depth)
{
	for (uint32_t o = 0; depth > 0 && o < OWNERS; o++) {
		if (!model_stops(m, o, want))
			continue;
		if (o == target || (m->waits[o] && model_leads(m, &m->wants[o], target, depth - 1)))
			return true;
	}
	return false;
}

static void model_apply(struct model *m, const struct lock *l)
{
	for (uint64_t at = l->start; at < SPAN && at <= l->end; at++)
		m->held[l->owner][at] = l->type;
}

/* Grants are told by id, which is the owner here: each has one request at most. */
static void model_grants(struct model *m, struct log *log, unsigned int *wrong)
{
	for (size_t i = 0; i < log->num; i++) {
		uint32_t o = (uint32_t)log->ids[i];

		*wrong += !m->waits[o];
		for (uint32_t other = 0; other < OWNERS; other++)
			*wrong += model_stops(m, other, &m->wants[o]);
		m->waits[o] = false;
		model_apply(m, &m->wants[o]);
	}
	log->num = 0;
}

static uint32_t free_owner(const struct model *m)
{
	uint32_t o = next_random(OWNERS);

	while (m->waits[o])
		o = (o + 1) % OWNERS;
	return o;
}

static unsigned int num_waiting(const struct model *m)
{
	unsigned int num = 0;

	for (uint32_t o = 0; o < OWNERS; o++)
		num += m->waits[o];
	return num;
}

/* Waiters that no lock stops. */
static unsigned int num_idle(const struct model *m)
{
	unsigned int num = 0;

	for (uint32_t o = 0; o < OWNERS; o++) {
		bool stopped = false;

		for (uint32_t other = 0; other < OWNERS; other++)
			stopped |= model_stops(m, other, &m->wants[o]);
		num += m->waits[o] && !stopped;
	}
	return num;
}

static void test_random_waiters(void)
{
	static struct model m;
	unsigned int wrong = 0, stuck = 0, deadlocks = 0, wrong_deadlocks = 0, waited = 0;
	struct log log;
	struct lock_table *t = new_table(&log);
	int64_t now = 0;

	for (unsigned int i = 0; i < 10 * STEPS; i++) {
		uint64_t a = next_random(SPAN), b = next_random(SPAN);
		struct lock want = range(free_owner(&m), (uint8_t)next_random(3), a < b ? a : b, a < b ? b : a);
		bool circle = want.type && model_leads(&m, &want, want.owner, OWNERS);
		bool stopped = false;
		int rc;

		for (uint32_t o = 0; want.type && o < OWNERS; o++)
			stopped |= model_stops(&m, o, &want);
		rc = lock_table_set(t, &want, true, want.owner, now += 1000);
		deadlocks += rc == -EDEADLK;
		wrong_deadlocks += (rc == -EDEADLK) != circle;
		wrong += rc == 0 && stopped;
		if (rc == 0)
			model_apply(&m, &want);
		if (rc == LOCK_WAITS) {
			m.waits[want.owner] = true;
			m.wants[want.owner] = want;
			waited++;
		}
		model_grants(&m, &log, &wrong);
		if (next_random(50) == 0 || num_waiting(&m) == OWNERS) {
			while (lock_table_due(t) != INT64_MAX)
				lock_table_tick(t, now += LOCK_PATIENCE_USEC);
			model_grants(&m, &log, &wrong);
			stuck += num_idle(&m);
		}
		if (num_waiting(&m) == OWNERS)
			break;
	}
	ok(num_waiting(&m) < OWNERS, "they never wait all for each other");
	ok(waited > STEPS && deadlocks > STEPS / 10, "%u requests waited, %u closed a circle", waited, deadlocks);
	is_u64(wrong, 0, "no lock was granted against another one");
	is_u64(wrong_deadlocks, 0, "EDEADLK exactly when a chain of waiters leads back");
	is_u64(stuck, 0, "nobody waits for nothing when the line's time is over");
	lock_table_destroy(t);
}

/* ---- the rest */

static int count_each(const struct lock *held, void *arg)
{
	unsigned int *num = arg;

	(void)held;
	++*num;
	return 0;
}

static void test_many_files(void)
{
	struct log log;
	struct lock_table *t = new_table(&log);
	unsigned int num = 0, missing = 0;
	struct lock l = whole(3, LOCK_TYPE_WRITE), found;

	for (l.ino = 1; l.ino <= 1000; l.ino++)
		lock_table_set(t, &l, false, l.ino, 0);
	lock_table_each(t, count_each, &num);
	is_u64(num, 1000, "locks of a thousand files");
	l.owner = 5;
	for (l.ino = 1; l.ino <= 1000; l.ino++)
		missing += !lock_table_test(t, &l, &found) || found.pid != 103;
	is_u64(missing, 0, "are all found, with their process");
	lock_table_drop_node(t, 1, 0);
	is_u64(lock_table_count(t), 0, "and go with their node");
	lock_table_destroy(t);
}

int main(void)
{
	test_ranges_as_kernel();
	test_flock_as_kernel();
	test_kinds_apart();
	test_line();
	test_patience();
	test_steady_readers();
	test_flock_upgrade();
	test_fix();
	test_random_waiters();
	test_many_files();
	return done_testing();
}
