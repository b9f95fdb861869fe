/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files in motion. A drain renames in the backing directory first and tells us afterwards. In between, the path that the state gives
 * for a file leads nowhere, or to another file. So whatever a path gives then, an error or a file that is not the one, is not believed
 * before it is certain that nothing was moving: the agent writes down in STORE/drain.intent what it is about to do, and empties that
 * when all of it has been told. A look is believed when the intents were empty before and after it and no step was told meanwhile.
 *
 * A step needs the locks of core, so nobody waits for one under a lock: a look that is not to be believed is -CORE_MOVING, which goes up to
 * where no lock is held; there the call waits for the next step, and is made again from its beginning.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "format/base/clock.h"
#include "format/store/steps.h"
#include "fs/core/private.h"

#define PATIENCE_USEC 30000000u /* longer than what a killed agent leaves takes to be taken back (fs/drain/settle.h) */
#define SLICE_NSEC    2000000   /* that the intents are empty is no step */

bool motion_has_intents(struct core *c)
{
	char path[STORE_PATH_MAX + sizeof(INTENT_FILE) + 1];
	struct stat st;

	snprintf(path, sizeof(path), "%s/" INTENT_FILE, store_path(c->store));
	return stat(path, &st) == 0 && st.st_size > 0;
}

void motion_told(struct core *c)
{
	pthread_mutex_lock(&c->session);
	c->told++;
	pthread_cond_broadcast(&c->told_cond);
	pthread_mutex_unlock(&c->session);
}

bool motion_is_possible(struct core *c, const struct motion_look *look)
{
	return c->told != look->told || drain_is_running(c);
}

enum motion_verdict motion_judge(struct core *c, struct motion_look *look)
{
	uint64_t before = c->told;
	bool intents = motion_has_intents(c), same = c->told == look->told;

	if (same && !drain_is_running(c))
		return MOTION_NONE;
	if (intents && drain_is_running(c))
		return MOTION_GOES_ON;
	if (same && look->calm)
		return MOTION_NONE;
	*look = (struct motion_look){ .told = before, .calm = !intents };
	return MOTION_TOLD;
}

/* session is held. */
static void wait_slice(struct core *c)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += SLICE_NSEC;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_cond_clockwait(&c->told_cond, &c->session, CLOCK_MONOTONIC, &until);
}

bool motion_again(struct core *c, struct motion *m, ssize_t rc)
{
	if (rc != -CORE_MOVING)
		return false;
	if (!m->until_usec)
		m->until_usec = clock_usec() + PATIENCE_USEC;
	if (clock_usec() >= m->until_usec)
		return false;
	pthread_mutex_lock(&c->session);
	wait_slice(c);
	pthread_mutex_unlock(&c->session);
	return true;
}
