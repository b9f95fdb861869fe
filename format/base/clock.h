/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_CLOCK_H
#define FORMAT_BASE_CLOCK_H

/*
 * The clock by which the nodes of a job put writes in order (docs/design/write-times.md): the node's own clock, never behind any
 * time that the node has given or has heard of. So what is written behind a message has a later time than what was written
 * before it, whatever the nodes' own clocks show; otherwise times are as good as these.
 *
 * Any function may be called from any thread.
 */

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

/* ns since 1970. What 64 bits do not hold (before 1677, after 2262) is the nearest that they do. */
int64_t clock_ns_of(struct timespec ts);
struct timespec clock_timespec(int64_t ns);
int64_t clock_wall_ns(void); /* what the system's clock shows */
uint64_t clock_usec(void);   /* CLOCK_MONOTONIC */

/*
 * The time that the kernel would give to a file that it changes now. No clock of user space is that one: the kernel goes by its tick, and,
 * where somebody has looked at a file's times in between, by a finer clock. So times that are to be compared with those of files that
 * the kernel writes by itself come from a file of our own whose times it sets: 1 us. clock_file_open(): such a file, or -errno.
 * clock_file_ns(): -1 for it, or a failure: clock_wall_ns().
 */
int clock_file_open(void);
int64_t clock_file_ns(int fd);

struct clock {
	_Atomic(int64_t) ahead_ns; /* of CLOCK_MONOTONIC */
	_Atomic(int64_t) last_ns;  /* the newest time that was given or heard of */
};

void clock_init(struct clock *c); /* as the system's clock; it is not set back and forth with that later */
/* Later than all times before; ns since 1970. */
int64_t clock_now(struct clock *c);
/* A time that another clock has shown, or that is known from before: all times from now on are later. */
void clock_heard(struct clock *c, int64_t time_ns);
void clock_shift(struct clock *c, int64_t by_ns); /* from now on it shows so much more, or less: tests */

#endif
