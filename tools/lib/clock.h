/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_CLOCK_H
#define TOOLS_LIB_CLOCK_H

/* Deadlines, by the clock that only goes forward. */

#include <stdint.h>

#include "format/base/clock.h"

#define CLOCK_NO_DEADLINE UINT64_MAX

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
