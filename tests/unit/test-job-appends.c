/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Nodes of a job, in one process, that append to one file while it is cut, or its home's daemon dies. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/job/share.h"
#include "format/base/clock.h"
#include "tests/lib/job_world.h"
#include "tests/lib/opened.h"
#include "tests/lib/tap.h"

/* ---- a place is given, and the file is cut before anything is written there */

struct appending {
	struct opened f;
	const char *text;
	pthread_t thread;
};

static void *append(void *arg)
{
	struct appending *a = arg;

	return (void *)(intptr_t)opened_put(&a->f, a->text, 0);
}

struct cut_case {
	uint64_t size;     /* of the cut */
	const char *after; /* what another node appends then */
	const char *shows; /* what is in the file at the end */
};

/* Node 1 has ".........." in the file, and appends "late". */
static void test_cut_before_it_writes(const struct cut_case *c)
{
	struct job_world *w = job_world_start(3);
	struct loopback *l = job_world_loopback(w);
	struct opened f;
	struct appending late = { .text = "late" };
	uint64_t ino = opened_create(w, 0, "log", O_RDWR, &f);
	struct opened other;
	void *done;

	is_int(opened_at(w, 1, ino, O_WRONLY | O_APPEND, &late.f), 0, "opened");
	is_int(opened_at(w, 2, ino, O_WRONLY | O_APPEND, &other), 0, "by two nodes");
	is_int(opened_put(&late.f, "..........", 0), 10, "one has appended");
	is_int(job_flush(late.f.j, late.f.file), 0, "and said so");
	loopback_hold_reply(l, 0, MESSAGE_SHARE_APPEND, 0);
	pthread_create(&late.thread, NULL, append, &late);
	loopback_await_held(l, 0);
	is_int(share_truncate(other.j, ino, c->size), 0, "it is given a place, and the file is cut");
	is_int(opened_put(&other, c->after, 0), (intmax_t)strlen(c->after), "the other one appends");
	loopback_let_go(l, 0);
	pthread_join(late.thread, &done);
	is_int((intptr_t)done, 4, "then it writes");
	is_int(job_flush(late.f.j, late.f.file), 0, "said");
	is_int(job_flush(other.j, other.file), 0, "by both");
	char buf[64] = { 0 };
	is_int(job_read(f.j, f.file, buf, sizeof(buf), 0), (intmax_t)strlen(c->shows), "as long as it must be");
	is_str(buf, c->shows, "nothing hides anything else");
	is_int(opened_close(&late.f), 0, "closed");
	is_int(opened_close(&other), 0, "closed");
	is_int(opened_close(&f), 0, "closed");
	job_world_stop(w);
}

/* ---- a cut that comes to nothing takes no place away */

#define PATIENCE_USEC 1000000u

struct failing_cut {
	uint32_t by;         /* 0: the home; node 1 */
	uint64_t delay_usec; /* of what it asks the home */
};

static void test_cut_fails(const struct failing_cut *c)
{
	struct job_world *w =
		job_world_start_with(&(struct job_world_options){ .num = 3, .timeout_usec = PATIENCE_USEC });
	struct loopback *l = job_world_loopback(w);
	struct opened f, at[2];
	uint64_t ino = opened_create(w, 0, "log", O_RDWR, &f);

	for (uint32_t k = 0; k < 2; k++)
		is_int(opened_at(w, 1 + k, ino, O_RDWR | O_APPEND, &at[k]), 0, "opened elsewhere");
	is_int(opened_put(&at[1], "first", 0), 5, "a node appends, and does not say so");
	loopback_cut(l, 2);
	loopback_set_delay(l, c->delay_usec, c->delay_usec, 1);
	ok(share_truncate(job_world_job(w, c->by), ino, 0) < 0, "it cannot be reached when the file is cut");
	loopback_set_delay(l, 0, 0, 1);
	loopback_assemble(l);
	loopback_settle(l);
	is_int(opened_put(&at[0], "second", 0), 6, "another one appends");
	for (uint32_t k = 0; k < 2; k++)
		is_int(job_flush(at[k].j, at[k].file), 0, "told");
	ok(opened_shows(&at[0], 0, "firstsecond"), "both are there");
	for (uint32_t k = 0; k < 2; k++)
		is_int(opened_close(&at[k]), 0, "closed");
	is_int(opened_close(&f), 0, "closed");
	job_world_stop(w);
}

/* ---- all at once */

#define NODES   3
#define RECORD  64u
#define THREADS 2u
#define CUTS    40u

struct appender {
	struct job_world *w;
	uint32_t node;
	uint64_t ino;
	unsigned int thread_number, num;
	_Atomic(bool) *cut; /* the last time */
	int result;
	unsigned int first_kept; /* of those that began behind the last cut */
	pthread_t thread;
};

static void fill_record(const struct appender *me, unsigned int number, char *record)
{
	char text[RECORD + 1];

	snprintf(text, sizeof(text), "node %u thread %u number %-40u", me->node, me->thread_number, number);
	memcpy(record, text, RECORD);
	memset(record + strlen(text), '-', RECORD - strlen(text));
}

static void *append_on(void *arg)
{
	struct appender *me = arg;
	struct opened f;
	char record[RECORD];

	me->result = opened_at(me->w, me->node, me->ino, O_WRONLY | O_APPEND, &f);
	if (me->result)
		return NULL;
	me->first_kept = UINT32_MAX;
	for (unsigned int more = 20; me->result == 0 && more > 0; me->num++) {
		if (*me->cut && me->first_kept == UINT32_MAX)
			me->first_kept = me->num;
		more -= me->first_kept != UINT32_MAX;
		fill_record(me, me->num, record);
		me->result = job_write(f.j, f.file, record, RECORD, 0) == RECORD ? 0 : -EIO;
	}
	int rc = opened_close(&f);
	me->result = me->result ? me->result : rc;
	return NULL;
}

static unsigned int count_record(const struct appender *me, unsigned int number, const char *file, size_t len)
{
	char record[RECORD];
	unsigned int found = 0;

	fill_record(me, number, record);
	for (size_t at = 0; at + RECORD <= len; at += RECORD)
		found += memcmp(file + at, record, RECORD) == 0;
	return found;
}

/* Each is there once that began behind the last cut; and nothing is that nobody has appended. */
static void check_all(const struct appender *all, unsigned int num, const char *file, size_t len)
{
	unsigned int missing = 0;
	size_t found = 0;

	for (unsigned int i = 0; i < num; i++) {
		is_int(all[i].result, 0, "appended all the time");
		for (unsigned int k = 0; k < all[i].num; k++) {
			unsigned int times = count_record(&all[i], k, file, len);

			missing += k >= all[i].first_kept && times != 1;
			found += times;
		}
	}
	is_int(missing, 0, "what was appended behind the last cut is there, once");
	is_u64(found * RECORD, len, "and nothing else than what was appended");
}

static void test_cut_all_the_time(void)
{
	struct job_world *w = job_world_start(NODES);
	struct opened f;
	uint64_t ino = opened_create(w, 0, "log", O_RDWR, &f);
	static char file[1u << 22];
	struct appender all[NODES * THREADS];
	_Atomic(bool) cut = false;
	int failed = 0;

	opened_elsewhere(w, ino);
	loopback_set_delay(job_world_loopback(w), 0, 2000, 1);
	for (unsigned int i = 0; i < NODES * THREADS; i++) {
		all[i] = (struct appender){
			.w = w, .node = i % NODES, .thread_number = i / NODES, .ino = ino, .cut = &cut
		};
		pthread_create(&all[i].thread, NULL, append_on, &all[i]);
	}
	for (unsigned int i = 0; i < CUTS; i++) {
		usleep(20000);
		failed += share_truncate(job_world_job(w, i % NODES), ino, 0) < 0;
	}
	cut = true;
	for (unsigned int i = 0; i < NODES * THREADS; i++)
		pthread_join(all[i].thread, NULL);
	is_int(failed, 0, "cut again and again");
	ssize_t len = job_read(f.j, f.file, file, sizeof(file), 0);
	ok(len > 0, "read");
	check_all(all, NODES * THREADS, file, (size_t)len);
	is_int(opened_close(&f), 0, "closed");
	job_world_stop(w);
}

/* ---- many, and their home is restarted */

#define MANY         16u
#define MANY_THREADS 4u
#define MANY_RECORDS 12u
#define RESTARTS     3u

struct one_of_many {
	struct job_world *w;
	uint32_t node;
	uint64_t ino;
	int result;
	pthread_t thread;
};

static _Atomic(unsigned int) num_appended;
static _Atomic(uint64_t) slowest_usec;

static void note_slowest(uint64_t usec)
{
	uint64_t was = slowest_usec;

	while (usec > was && !atomic_compare_exchange_weak(&slowest_usec, &was, usec))
		;
}

static void *append_many(void *arg)
{
	struct one_of_many *me = arg;
	struct opened f;
	char record[RECORD];

	memset(record, (int)('A' + me->node), RECORD);
	me->result = opened_at(me->w, me->node, me->ino, O_WRONLY | O_APPEND, &f);
	for (unsigned int i = 0; me->result == 0 && i < MANY_RECORDS; i++) {
		uint64_t since = clock_usec();

		me->result = job_write(f.j, f.file, record, RECORD, 0) == RECORD ? 0 : -EIO;
		note_slowest(clock_usec() - since);
		num_appended++;
	}
	if (me->result == 0)
		me->result = opened_close(&f);
	return NULL;
}

static uint64_t count_messages(struct job_world *w)
{
	uint64_t sum = 0;

	for (uint32_t node = 0; node < MANY; node++) /* of the home's daemons the last */
		sum += job_world_job(w, node)->share->messages;
	return sum;
}

static bool is_one(const char *record, char byte)
{
	return record[0] == byte && memcmp(record, record + 1, RECORD - 1) == 0;
}

/* A place that nobody has heard of, since the home died just when it had given it, stays empty. */
static void check_many(struct job_world *w, uint64_t ino)
{
	static char file[2 * MANY * MANY_THREADS * MANY_RECORDS * RECORD];
	unsigned int whole = 0, empty = 0, wrong = 0;
	struct opened f;

	is_int(opened_at(w, 1, ino, O_RDONLY, &f), 0, "opened");
	ssize_t len = job_read(f.j, f.file, file, sizeof(file), 0);
	for (ssize_t at = 0; at + (ssize_t)RECORD <= len; at += RECORD) {
		bool is_empty = is_one(file + at, 0), is_whole = !is_empty && is_one(file + at, file[at]);

		whole += is_whole;
		empty += is_empty;
		wrong += !is_empty && !is_whole;
	}
	is_int(whole, (MANY - 1) * MANY_THREADS * MANY_RECORDS, "all records are there");
	is_int(wrong, 0, "and nothing else");
	ok(empty < MANY * MANY_THREADS, "few places are empty");
	is_int(opened_close(&f), 0, "closed");
}

static void test_many(void)
{
	struct job_world *w = job_world_start(MANY);
	struct opened f;
	uint64_t ino = opened_create(w, 0, "log", O_RDWR, &f);
	static struct one_of_many all[(MANY - 1) * MANY_THREADS];
	const unsigned int num = (MANY - 1) * MANY_THREADS;
	int failed = 0;

	is_int(opened_close(&f), 0, "made");
	loopback_set_delay(job_world_loopback(w), 500, 3000, 1);
	for (unsigned int i = 0; i < num; i++) {
		all[i] = (struct one_of_many){ .w = w, .node = 1 + i % (MANY - 1), .ino = ino };
		pthread_create(&all[i].thread, NULL, append_many, &all[i]);
	}
	for (unsigned int i = 1; i <= RESTARTS; i++) {
		while (num_appended < i * num * MANY_RECORDS / (RESTARTS + 1))
			usleep(1000);
		job_world_restart(w, 0);
	}
	for (unsigned int i = 0; i < num; i++) {
		pthread_join(all[i].thread, NULL);
		failed += all[i].result != 0;
	}
	is_int(failed, 0, "many append while their home is restarted");
	printf("# %ju messages, the slowest append %ju usec\n", (uintmax_t)count_messages(w), (uintmax_t)slowest_usec);
	ok(count_messages(w) < 4u * num * MANY_RECORDS, "with a few messages each");
	ok(slowest_usec < 10000000u, "and none of them waits for long");
	check_many(w, ino);
	job_world_stop(w);
}

int main(void)
{
	static const struct cut_case cases[] = {
		{ 0, "1234567890123456", "1234567890123456late" },
		{ 12, "abcd", "..........laabcd" },
		{ 14, "abcd", "..........lateabcd" },
	};
	static const struct failing_cut failing[] = {
		{ 0, 0 }, { 1, PATIENCE_USEC * 3 / 10 }, { 1, PATIENCE_USEC * 6 / 10 }, /* too late to be begun */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		test_cut_before_it_writes(&cases[i]);
	for (size_t i = 0; i < sizeof(failing) / sizeof(*failing); i++)
		test_cut_fails(&failing[i]);
	test_cut_all_the_time();
	test_many();
	return done_testing();
}
