/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A home that cannot read what its index has of names: nobody is told that there is nothing, and nobody gets such a name, until its store is
 * mounted again and has made the index anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/job/private.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/state_fixture.h"
#include "tests/lib/tap.h"

#define NODES  3u
#define SERVER 1u
#define HOME   2u
#define TEXT   "old bytes"

/* Before all others of the root, and so in the first block; SERVER knows of it. */
static void first_name(char name[16])
{
	int i = 0;

	do
		snprintf(name, 16, "!%d", i++);
	while (place_name(STATE_ROOT_INO, name, NODES) != SERVER);
}

static void write_text(struct job *j, const char *name)
{
	struct path_file f;

	is_int(path_create(j, name, 0600, O_EXCL), 0, "a file");
	is_int(path_open(j, name, O_RDWR, &f), 0, "is opened");
	is_int(job_write(j, f.file, TEXT, strlen(TEXT), 0), (int)strlen(TEXT), "and written");
	is_int(path_close(&f), 0, "and closed");
}

static bool has_text(struct job *j, const char *name)
{
	char found[sizeof(TEXT)] = "";
	struct path_file f;

	if (path_open(j, name, O_RDONLY, &f) < 0)
		return false;
	ssize_t len = job_read(j, f.file, found, sizeof(found), 0);
	path_close(&f);
	return len == (ssize_t)strlen(TEXT) && strcmp(found, TEXT) == 0;
}

static void damage(struct job_world *w)
{
	char index[300];

	is_int(state_checkpoint(store_state(job_world_store(w, HOME))), 0, "its home's index is on the device");
	job_world_kill(w, HOME);
	snprintf(index, sizeof(index), "%s/../store%u/index", job_world_backing(w), HOME);
	ok(damage_tables(index) > 0, "and damaged");
	job_world_revive(w, HOME);
}

static void check_refused(struct job_world *w, const char *name, const char *when)
{
	struct job *others[] = { job_world_job(w, 0), job_world_job(w, HOME) };
	char list[65536];
	struct stat st;

	for (unsigned int i = 0; i < 2; i++) {
		int there = path_stat(others[i], name, &st), made = path_create(others[i], name, 0600, 0);
		int anew = path_create(others[i], name, 0600, O_EXCL);
		int listed = path_list(others[i], "", list, sizeof(list));

		ok(there == -EIO, "%s: it is not said to be gone: %d", when, there);
		ok(made == -EIO, "%s: nor made: %d", when, made);
		ok(anew == -EIO || anew == -EEXIST, "%s: nor made anew: %d", when, anew);
		ok(listed == -EIO, "%s: no listing is without it: %d", when, listed);
	}
}

/* Servers ask again, but not all the time: each answer is a walk over the home's inodes. */
static void check_seldom(struct job_world *w)
{
	struct loopback *l = job_world_loopback(w);
	struct timespec begun, now;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	loopback_hold_reply(l, HOME, MESSAGE_NAME_SEND, 15);
	loopback_await_held(l, HOME);
	clock_gettime(CLOCK_MONOTONIC, &now);
	loopback_let_go(l, HOME);
	ok(now.tv_sec - begun.tv_sec >= 3, "two servers ask less and less often: 16 times in %ld s",
		(long)(now.tv_sec - begun.tv_sec));
}

static bool soon_has_text(struct job *j, const char *name)
{
	for (unsigned int i = 0; i < 1000; i++, usleep(10000))
		if (has_text(j, name))
			return true;
	return false;
}

int main(void)
{
	struct job_world *w = job_world_start(NODES);
	char name[16], other[16];

	first_name(name);
	write_text(job_world_job(w, HOME), name);
	for (unsigned int i = 0; i < 300; i++) {
		snprintf(other, sizeof(other), "other%u", i);
		path_create(job_world_job(w, HOME), other, 0600, O_EXCL);
	}
	damage(w);
	check_refused(w, name, "damaged");
	held_doubt(job_world_job(w, 0), STATE_ROOT_INO, name);
	check_refused(w, name, "in doubt");
	job_world_restart(w, SERVER);
	check_refused(w, name, "with a server that begins");
	check_seldom(w);
	job_world_restart(w, HOME);
	ok(soon_has_text(job_world_job(w, 0), name), "when its home is mounted again it is as it was");
	ok(has_text(job_world_job(w, HOME), name), "everywhere");
	job_world_stop(w);
	return done_testing();
}
