/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/descriptors.h"

#include <sys/resource.h>

#include "tests/lib/tap.h"

static void limit_to(rlim_t soft)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = soft;
	is_int(setrlimit(RLIMIT_NOFILE, &limit), 0, "a soft limit");
}

int main(void)
{
	struct rlimit limit;

	limit_to(100);
	is_u64(descriptors_share(256, 4), 25, "a fourth");
	is_u64(descriptors_share(20, 4), 20, "what is wanted, when it is less");
	ok(!descriptors_scarce(-1) && !descriptors_scarce(74), "there are more");
	ok(descriptors_scarce(75), "the last fourth is left to others");
	getrlimit(RLIMIT_NOFILE, &limit);
	is_u64(descriptors_raise(), limit.rlim_max, "raised as far as may be");
	getrlimit(RLIMIT_NOFILE, &limit);
	is_u64(limit.rlim_cur, limit.rlim_max, "that holds");
	limit_to(1024);
	ok(!descriptors_scarce(959) && descriptors_scarce(960), "or the last 64");
	return done_testing();
}
