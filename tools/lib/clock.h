/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_CLOCK_H
#define TOOLS_LIB_CLOCK_H

/* Time that only goes forward, and deadlines in it. */

#include <stdint.h>
#include <time.h>

#define CLOCK_NO_DEADLINE  UINT64_MAX
#define CLOCK_USEC_PER_SEC 1000000u

static inline uint64_t clock_usec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail with a clock that exists */
	return (uint64_t)ts.tv_sec * CLOCK_USEC_PER_SEC + (uint64_t)ts.tv_nsec / 1000;
}

/* The moment timeout_usec from now; timeout_usec 0: never. */
static inline uint64_t clock_deadline(uint64_t timeout_usec)
{
	uint64_t at;

	if (timeout_usec == 0 || __builtin_add_overflow(clock_usec(), timeout_usec, &at))
		return CLOCK_NO_DEADLINE;
	return at;
}

/* Microseconds left until the deadline, at most limit_usec; 0 when it has passed. */
static inline uint64_t clock_left(uint64_t deadline, uint64_t limit_usec)
{
	uint64_t now = clock_usec();

	if (deadline <= now)
		return 0;
	return deadline - now < limit_usec ? deadline - now : limit_usec;
}

#endif
