/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Who hears of a time that he has not reached yet goes on from there: his clock is set forward for good, not only his next time.
 * So clocks that differ are as far apart, after a message from the one that is ahead, as that message was on its way.
 */
#include "format/base/clock.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define READINGS   16
#define NS_PER_SEC INT64_C(1000000000)

int64_t clock_ns_of(struct timespec ts)
{
	if (ts.tv_sec >= INT64_MAX / NS_PER_SEC)
		return INT64_MAX;
	if (ts.tv_sec < INT64_MIN / NS_PER_SEC)
		return INT64_MIN;
	return ts.tv_sec * NS_PER_SEC + ts.tv_nsec;
}

struct timespec clock_timespec(int64_t ns)
{
	struct timespec ts = { .tv_sec = ns / NS_PER_SEC, .tv_nsec = ns % NS_PER_SEC };

	if (ts.tv_nsec < 0) {
		ts.tv_nsec += NS_PER_SEC;
		ts.tv_sec--;
	}
	return ts;
}

static int64_t read_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return clock_ns_of(ts);
}

int64_t clock_wall_ns(void)
{
	return read_ns(CLOCK_REALTIME);
}

int clock_file_open(void)
{
	int fd = memfd_create("cistern-clock", MFD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* That the times are looked at makes the next one a fine one, later than all that the kernel has given before. */
int64_t clock_file_ns(int fd)
{
	static const struct timespec now[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
	struct stat st;

	return fd < 0 || futimens(fd, now) < 0 || fstat(fd, &st) < 0 ? clock_wall_ns() : clock_ns_of(st.st_mtim);
}

uint64_t clock_usec(void)
{
	return (uint64_t)read_ns(CLOCK_MONOTONIC) / 1000;
}

/* What the one clock is ahead of the other: read in between two readings of the other that lie close together. */
static int64_t read_ahead_ns(void)
{
	int64_t ahead = 0, best = INT64_MAX;

	for (int i = 0; i < READINGS; i++) {
		int64_t before = read_ns(CLOCK_MONOTONIC), now = read_ns(CLOCK_REALTIME);
		int64_t took = read_ns(CLOCK_MONOTONIC) - before;

		if (took < best) {
			best = took;
			ahead = now - before - took / 2;
		}
	}
	return ahead;
}

void clock_init(struct clock *c)
{
	c->ahead_ns = read_ahead_ns();
	c->last_ns = 0;
}

int64_t clock_now(struct clock *c)
{
	int64_t last = atomic_load(&c->last_ns), now;

	do {
		now = read_ns(CLOCK_MONOTONIC) + atomic_load(&c->ahead_ns);
		now = now > last ? now : last + 1;
	} while (!atomic_compare_exchange_weak(&c->last_ns, &last, now));
	return now;
}

static void raise_to(_Atomic(int64_t) *v, int64_t to)
{
	int64_t was = atomic_load(v);

	while (was < to && !atomic_compare_exchange_weak(v, &was, to))
		;
}

void clock_heard(struct clock *c, int64_t time_ns)
{
	raise_to(&c->last_ns, time_ns);
	raise_to(&c->ahead_ns, time_ns - read_ns(CLOCK_MONOTONIC));
}

void clock_shift(struct clock *c, int64_t by_ns)
{
	atomic_fetch_add(&c->ahead_ns, by_ns);
}
