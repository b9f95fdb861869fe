/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The clock by which nodes put writes in order. */
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "tests/lib/tap.h"

#define SEC     INT64_C(1000000000)
#define TIMES   20000u
#define THREADS 4u

static int64_t system_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * SEC + ts.tv_nsec;
}

static void test_heard(void)
{
	struct clock c;
	int64_t before = system_ns(), now, later;

	clock_init(&c);
	now = clock_now(&c);
	ok(now >= before - SEC && now <= system_ns() + SEC, "it is about the system's time");
	clock_heard(&c, now - 5 * SEC);
	later = clock_now(&c);
	ok(later > now && later < now + SEC * 100, "what is past does not set it");
	clock_heard(&c, later + 1000 * SEC);
	now = clock_now(&c);
	ok(now > later + 1000 * SEC, "what is to come does");
	for (struct timespec nap = { .tv_nsec = 20000000 }; nanosleep(&nap, &nap);)
		;
	ok(clock_now(&c) >= now + 20000000, "and it goes on from there");
	clock_shift(&c, -2000 * SEC);
	now = clock_now(&c);
	ok(clock_now(&c) > now, "set back it shows times that are later all the same");
}

struct reader {
	pthread_t thread;
	struct clock *clock;
	unsigned int wrong;
};

static void *read_often(void *arg)
{
	struct reader *r = arg;
	int64_t last = 0, now;

	for (unsigned int i = 0; i < TIMES; i++, last = now) {
		now = clock_now(r->clock);
		r->wrong += now <= last;
		if (i % 64 == 0)
			clock_heard(r->clock, now + 500);
	}
	return NULL;
}

static void test_threads(void)
{
	struct reader r[THREADS] = { 0 };
	struct clock c;
	unsigned int wrong = 0;

	clock_init(&c);
	for (unsigned int i = 0; i < THREADS; i++) {
		r[i].clock = &c;
		if (pthread_create(&r[i].thread, NULL, read_often, &r[i]))
			return;
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(r[i].thread, NULL);
		wrong += r[i].wrong;
	}
	is_u64(wrong, 0, "to each of several threads times rise");
}

/* As two daemons of one machine have them: programs' messages are quick there. */
static void test_alike(void)
{
	struct clock a, b;
	int64_t first, second;

	clock_init(&a);
	clock_init(&b);
	first = clock_now(&a);
	second = clock_now(&b);
	ok(second > first - 20000, "two of one machine differ by no more than a write takes");
}

/* Nanoseconds are counted up from the second below, also before 1970. */
static void test_times_of_files(void)
{
	static const int64_t ns[] = { 0, 1, -1, SEC - 1, -SEC, -SEC - 1, INT64_MAX, INT64_MIN };
	unsigned int wrong = 0;

	for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++) {
		struct timespec ts = clock_timespec(ns[i]);

		wrong += ts.tv_nsec < 0 || ts.tv_nsec >= SEC;
		wrong += ts.tv_sec > INT64_MIN / SEC && clock_ns_of(ts) != ns[i];
	}
	is_u64(wrong, 0, "times go there and back");
	is_int(clock_timespec(-1).tv_sec, -1, "the last nanosecond of 1969");
	ok(clock_ns_of((struct timespec){ .tv_sec = INT64_C(10000000000) }) == INT64_MAX,
		"the year 2286 is the last that fits");
	ok(clock_ns_of((struct timespec){ .tv_sec = INT64_C(-10000000000) }) == INT64_MIN, "and 1653 the first");
	ok(clock_wall_ns() >= system_ns() - SEC && clock_wall_ns() <= system_ns() + SEC, "the system's clock");
}

static int64_t mtime_of(FILE *f)
{
	struct stat st;

	return fstat(fileno(f), &st) < 0 ? -1 : clock_ns_of(st.st_mtim);
}

/* The kernel writes a file, we give a time, the kernel writes another: as often as not within a tick. */
static void test_kernel(void)
{
	FILE *before = tmpfile(), *after = tmpfile();
	int fd = clock_file_open();
	unsigned int early = 0, late = 0;

	if (!ok(before && after && fd >= 0, "files"))
		return;
	for (unsigned int i = 0; i < 3000; i++) {
		int64_t first, ours, second;

		if (pwrite(fileno(before), "a", 1, 0) != 1)
			early = TIMES;
		first = mtime_of(before);
		if (i % 2 && pwrite(fileno(before), "b", 1, 0) == 1) /* after a look at it: a fine time */
			first = mtime_of(before);
		ours = clock_file_ns(fd);
		if (pwrite(fileno(after), "c", 1, 0) != 1)
			late = TIMES;
		second = mtime_of(after);
		early += ours < first;
		late += ours > second;
	}
	is_u64(early, 0, "no time is before that of a file which the kernel wrote earlier");
	is_u64(late, 0, "nor behind that of one which it wrote later");
	ok(clock_file_ns(-1) >= system_ns() - SEC, "without a file it is the system's");
	close(fd);
	fclose(before);
	fclose(after);
}

int main(void)
{
	test_kernel();
	test_times_of_files();
	test_heard();
	test_threads();
	test_alike();
	return done_testing();
}
