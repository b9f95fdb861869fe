/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Names of other nodes' files that are looked up in the order of a listing are asked for together (fs/job/walk.c), and are as new as if they were not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/job/quiet.h"
#include "format/base/clock.h"
#include "fs/job/share.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES      3u
#define HOME       0u
#define LOOKER     1u
#define OTHER      2u
#define FILES      200u
#define FIRST      4u /* looked up before something happens: those behind them have been asked for */
#define DELAY_USEC 2000u
#define CALM_USEC  400000u
#define LIST_CAP   8192

#define HANGING_USEC 900000u

static const struct core_cred cred = { 0 };

struct scene {
	struct job_world *w;
	uint64_t ino[FILES];
};

static struct job *node(struct scene *t, uint32_t n)
{
	return job_world_job(t->w, n);
}

static const char *name_of(unsigned int i, char out[8])
{
	snprintf(out, 8, "f%03u", i);
	return out;
}

/* The files are home's and the other's by turns; the looker has listed them. */
static void begin(struct scene *t)
{
	char name[8], names[LIST_CAP];
	struct core_entry e;

	t->w = job_world_start(NODES);
	for (unsigned int i = 0; i < FILES; i++) {
		struct job *j = node(t, i % 2 ? OTHER : HOME);

		if (job_mknod(j, 1, name_of(i, name), S_IFREG | 0600, 0, cred, &e) < 0)
			exit(1);
		t->ino[i] = e.ino;
		job_forget(j, e.ino, 1);
	}
	loopback_settle(job_world_loopback(t->w));
	usleep(CALM_USEC);
	if (path_list(node(t, LOOKER), "", names, sizeof(names)) < 0)
		exit(1);
}

/* As a kernel does that remembers what it has found. Time in us; 0: one was not as it should be. */
static uint64_t look_up_each(struct scene *t, unsigned int from, unsigned int end, unsigned int each)
{
	uint64_t at = clock_usec();
	struct core_entry e;
	char name[8];

	for (unsigned int i = from; i < end; i += each)
		if (job_lookup(node(t, LOOKER), 1, name_of(i, name), &e) < 0 || e.ino != t->ino[i])
			return 0;
	return clock_usec() - at;
}

static uint64_t look_up(struct scene *t, unsigned int from, unsigned int end)
{
	return look_up_each(t, from, end, 1);
}

static void in_order(void)
{
	struct scene t;

	begin(&t);
	loopback_set_delay(job_world_loopback(t.w), DELAY_USEC, DELAY_USEC, 1);
	uint64_t took = look_up(&t, 0, FILES);
	tap_diag("%llu us for %u names", (unsigned long long)took, FILES);
	ok(took > 0 && took < FILES * DELAY_USEC, "they cost less than one message each");
	job_world_stop(t.w);
}

/* Who asked for names ahead lets them go behind the answer to the call. */
static bool is_let_go(struct job *j, uint64_t ino)
{
	uint64_t until = clock_usec() + 20000000;

	while (remote_has(j, ino) && clock_usec() < until)
		usleep(1000);
	return !remote_has(j, ino);
}

static void changed_meanwhile(uint32_t by, const char *who)
{
	char name[8], next[8];
	struct core_entry e;
	struct scene t;

	begin(&t);
	(void)look_up(&t, 0, FIRST);
	ok(seen_has(node(&t, LOOKER), 1, name_of(FIRST, name)) &&
			seen_has(node(&t, LOOKER), 1, name_of(FIRST + 1, next)),
		"the next ones are known before they are looked up");
	ok(path_chmod(node(&t, by), name, 0644) == 0 && job_lookup(node(&t, LOOKER), 1, name, &e) == 0 &&
			(e.attr.st_mode & 07777) == 0644,
		"what is changed meanwhile %s is seen", who);
	ok(path_unlink(node(&t, by), next) == 0 && job_lookup(node(&t, LOOKER), 1, next, &e) == -ENOENT,
		"as is what is removed");
	loopback_settle(job_world_loopback(t.w));
	ok(is_let_go(node(&t, LOOKER), t.ino[FIRST + 1]), "and it is not held for a lookup that never came");
	job_world_stop(t.w);
}

static void busy(void)
{
	struct scene t;

	begin(&t);
	quiet_begin_change(node(&t, HOME));
	ok(look_up(&t, 0, FILES) > 0, "a home that is busy answers one by one");
	quiet_end_change(node(&t, HOME));
	job_world_stop(t.w);
}

/* One that does not answer is not waited for by who asks for files of others. */
static void hanging(void)
{
	struct scene t;

	begin(&t);
	struct loopback *l = job_world_loopback(t.w);
	loopback_hold_request(l, LOOKER, OTHER, MESSAGE_FILE_GET_MANY);
	uint64_t took = look_up_each(&t, 0, 2 * FIRST, 2);
	ok(took > 0 && took < HANGING_USEC, "a home that does not answer holds up nobody: %llu us",
		(unsigned long long)took);
	loopback_await_held(l, LOOKER);
	loopback_let_go(l, LOOKER);
	loopback_settle(l);
	ok(look_up(&t, 0, FILES) > 0, "and answers later");
	job_world_stop(t.w);
}

int main(void)
{
	hanging();
	in_order();
	changed_meanwhile(HOME, "at one home");
	changed_meanwhile(OTHER, "at the other");
	changed_meanwhile(LOOKER, "by who looks");
	busy();
	return done_testing();
}
