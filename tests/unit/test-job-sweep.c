/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A daemon that begins looks for what the one before has not committed; its store fails just then: it looks again. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

#include "fs/job/share.h"
#include "format/base/clock.h"
#include "tests/lib/job_world.h"
#include "tests/lib/opened.h"
#include "tests/lib/tap.h"

#define WAIT_USEC 30000000u

int __real_state_uncommitted(struct state *st, uint64_t ino, uint64_t off, struct extent *out, size_t cap,
	size_t *ret_num, uint64_t *ret_next);
int __wrap_state_uncommitted(struct state *st, uint64_t ino, uint64_t off, struct extent *out, size_t cap,
	size_t *ret_num, uint64_t *ret_next);

static _Atomic(unsigned int) failures; /* to come, of who asks whether there is any */

int __wrap_state_uncommitted(struct state *st, uint64_t ino, uint64_t off, struct extent *out, size_t cap,
	size_t *ret_num, uint64_t *ret_next)
{
	if (cap == 1 && failures > 0) {
		failures--;
		return -EIO;
	}
	return __real_state_uncommitted(st, ino, off, out, cap, ret_num, ret_next);
}

static bool shows_soon(struct job_world *w, uint64_t ino, const char *text)
{
	uint64_t until = clock_usec() + WAIT_USEC;
	bool same = false;
	struct opened o;

	if (opened_at(w, 0, ino, O_RDONLY, &o))
		return false;
	while (!(same = opened_shows(&o, 0, text)) && clock_usec() < until)
		usleep(100000);
	return opened_close(&o) == 0 && same;
}

int main(void)
{
	struct job_world *w = job_world_start(2);
	struct opened o;
	uint64_t ino = opened_create(w, 0, "f", O_RDWR, &o);

	is_int(opened_close(&o), 0, "a file");
	job_world_job(w, 1)->share->tell_usec = UINT64_MAX;
	is_int(opened_at(w, 1, ino, O_RDWR, &o), 0, "opened elsewhere");
	is_int(opened_put(&o, "bytes", 0), 5, "written, and not committed");
	job_release(o.j, o.file);
	job_world_kill(w, 1);
	failures = 1;
	job_world_revive(w, 1);
	ok(shows_soon(w, ino, "bytes"), "they are found, and told");
	is_int(failures, 0, "though the first look has failed");
	job_world_stop(w);
	return done_testing();
}
