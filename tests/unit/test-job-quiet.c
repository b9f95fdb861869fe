/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a node was told under a home's word (fs/job/quiet.c) it does not ask again; and it is never older than a change that has returned to
 * whoever made it, wherever that was, and whatever it changes.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

#define NODES     3u
#define HOME      0u
#define LOOKER    1u
#define OTHER     2u
#define WAIT_USEC 20000000u
#define LONG_USEC 3000000u /* longer than a word is good */
#define TURNS     12u

static const struct core_cred cred = { 0 };

struct scene {
	struct job_world *w;
	uint64_t ino;
};

static struct job *node(struct scene *t, uint32_t n)
{
	return job_world_job(t->w, n);
}

static void begin(struct scene *t)
{
	struct core_entry e;

	t->w = job_world_start(NODES);
	if (job_mknod(node(t, HOME), 1, "f", S_IFREG | 0600, 0, cred, &e) < 0)
		exit(1);
	t->ino = e.ino;
	job_forget(node(t, HOME), e.ino, 1);
}

/* The looker's kernel knows the file, and it has the home's word. */
static bool see(struct scene *t, uint32_t n, const char *name)
{
	uint64_t until = clock_usec() + WAIT_USEC;
	struct core_entry e;

	while (clock_usec() < until && !seen_attr(node(t, n), t->ino, NULL, NULL)) {
		if (job_lookup(node(t, n), 1, name, &e) < 0)
			return false;
		usleep(10000);
	}
	return seen_attr(node(t, n), t->ino, NULL, NULL);
}

static struct stat look(struct scene *t)
{
	struct core_entry e = { 0 };

	(void)job_getattr(node(t, LOOKER), t->ino, NULL, &e);
	return e.attr;
}

static bool write_at(struct scene *t, uint32_t n, const char *text)
{
	struct core_open_reply reply;
	struct job_file *f;

	if (job_open(node(t, n), t->ino, O_WRONLY, &f, &reply) < 0)
		return false;
	bool good = job_write(node(t, n), f, text, strlen(text), 0) == (ssize_t)strlen(text) &&
		    job_flush(node(t, n), f) == 0;
	job_release(node(t, n), f);
	return good;
}

static void asks_nobody(void)
{
	struct scene t;
	struct core_entry e;
	char value[8];

	begin(&t);
	ok(see(&t, LOOKER, "f"), "a home that is not busy gives its word");
	loopback_set_hanging(job_world_loopback(t.w), LOOKER, true);
	uint64_t at = clock_usec();
	ok(job_lookup(node(&t, LOOKER), 1, "f", &e) == 0 && e.ino == t.ino, "then a name is looked up");
	ok(job_getattr(node(&t, LOOKER), t.ino, NULL, &e) == 0, "and attributes are had");
	ok(job_getxattr(node(&t, LOOKER), t.ino, "security.selinux", value, sizeof(value)) == -ENODATA &&
			job_listxattr(node(&t, LOOKER), t.ino, value, sizeof(value)) == 0,
		"and that it has no extended ones");
	ok(clock_usec() - at < 500000, "without a message");
	loopback_set_hanging(job_world_loopback(t.w), LOOKER, false);
	job_world_stop(t.w);
}

/* ---- each change is seen when it has returned */

static void is_seen_at_once(uint32_t by, const char *who)
{
	struct core_entry e;
	struct scene t;
	struct stat st;
	char value[8];

	begin(&t);
	ok(see(&t, LOOKER, "f") && path_chmod(node(&t, by), "f", 0640) == 0 && (look(&t).st_mode & 07777) == 0640,
		"chmod %s", who);
	ok(see(&t, LOOKER, "f") && write_at(&t, by, "hallo") && look(&t).st_size == 5, "write and close %s", who);
	ok(see(&t, LOOKER, "f") && path_truncate(node(&t, by), "f", 2) == 0 && look(&t).st_size == 2, "truncate %s",
		who);
	ok(see(&t, LOOKER, "f") && path_setxattr(node(&t, by), "f", "user.a", "b", 0) == 0 &&
			job_getxattr(node(&t, LOOKER), t.ino, "user.a", value, sizeof(value)) == 1,
		"setxattr %s", who);
	ok(see(&t, LOOKER, "f") && path_link(node(&t, by), "f", "g") == 0 && look(&t).st_nlink == 2, "link %s", who);
	ok(see(&t, LOOKER, "f") && path_rename(node(&t, by), "f", "h", 0) == 0 &&
			job_lookup(node(&t, LOOKER), 1, "f", &e) == -ENOENT,
		"rename %s: the old name", who);
	ok(see(&t, LOOKER, "h") && path_unlink(node(&t, by), "h") == 0 &&
			job_lookup(node(&t, LOOKER), 1, "h", &e) == -ENOENT,
		"unlink %s", who);
	ok(see(&t, LOOKER, "g") && path_mknod(node(&t, by), "new", 0600) == 0 &&
			path_rename(node(&t, by), "new", "g", 0) == 0 && path_stat(node(&t, LOOKER), "g", &st) == 0 &&
			st.st_ino != t.ino,
		"rename over it %s", who);
	job_world_stop(t.w);
}

static void exchange_with_dir(void)
{
	struct scene t;
	struct stat st;

	begin(&t);
	ok(path_mkdir(node(&t, OTHER), "d", 0700) == 0 && see(&t, LOOKER, "f") &&
			path_rename(node(&t, OTHER), "d", "f", RENAME_EXCHANGE) == 0 &&
			path_stat(node(&t, LOOKER), "f", &st) == 0 && S_ISDIR(st.st_mode),
		"a directory that takes the name is seen at once");
	job_world_stop(t.w);
}

static void open_is_not_told(void)
{
	struct core_open_reply reply;
	struct core_entry e;
	struct job_file *f;
	struct scene t;

	begin(&t);
	if (job_open(node(&t, HOME), t.ino, O_WRONLY, &f, &reply) < 0)
		exit(1);
	for (int i = 0; i < 60; i++) {
		(void)job_lookup(node(&t, LOOKER), 1, "f", &e);
		usleep(10000);
	}
	ok(!seen_attr(node(&t, LOOKER), t.ino, NULL, NULL), "no word is given of a file that is open");
	job_release(node(&t, HOME), f);
	job_world_stop(t.w);
}

/* Without a look at a name, for which nodes would be asked. */
static int chmod_at_home(struct scene *t)
{
	struct stat attr = { .st_mode = S_IFREG | 0640 };
	struct core_entry e;
	int rc = core_find(job_world_core(t->w, HOME), t->ino, 0, "");

	return rc < 0 ? rc : job_setattr(node(t, HOME), t->ino, &attr, CORE_SET_MODE, NULL, &e);
}

static void *look_up(void *arg)
{
	struct scene *t = arg;
	struct core_entry e;

	return job_lookup(node(t, LOOKER), 1, "f", &e) == 0 ? t : NULL;
}

static void is_overtaken(void)
{
	pthread_t thread;
	struct scene t;
	void *found;

	begin(&t);
	usleep(400000); /* the home gives its word by then */
	loopback_hold_reply(job_world_loopback(t.w), HOME, MESSAGE_FILE_GET, 0);
	if (pthread_create(&thread, NULL, look_up, &t))
		exit(1);
	loopback_await_held(job_world_loopback(t.w), HOME);
	int rc = chmod_at_home(&t);
	loopback_let_go(job_world_loopback(t.w), HOME);
	pthread_join(thread, &found);
	ok(rc == 0 && found && !seen_attr(node(&t, LOOKER), t.ino, NULL, NULL),
		"a word that its recall has overtaken is not taken");
	job_world_stop(t.w);
}

/* ---- who does not answer */

static void hangs(void)
{
	struct scene t;

	begin(&t);
	bool sees = see(&t, LOOKER, "f");
	loopback_set_hanging(job_world_loopback(t.w), LOOKER, true);
	uint64_t at = clock_usec();
	ok(sees && path_chmod(node(&t, HOME), "f", 0640) == 0 && clock_usec() - at < LONG_USEC,
		"a node that hangs is waited for, but not for long");
	ok(!seen_attr(node(&t, LOOKER), t.ino, NULL, NULL), "and does not believe any more what it was told");
	loopback_set_hanging(job_world_loopback(t.w), LOOKER, false);
	job_world_stop(t.w);
}

static void home_begins_anew(void)
{
	struct scene t;

	begin(&t);
	uint64_t at = clock_usec();
	job_world_restart(t.w, HOME);
	loopback_hold_reply(job_world_loopback(t.w), LOOKER, MESSAGE_QUIET_RECALL, 0);
	is_int(chmod_at_home(&t), 0, "a home's next daemon changes a file");
	ok(clock_usec() - at > 900000 && clock_usec() - at < LONG_USEC,
		"when what its predecessor may have given is recalled, or over");
	loopback_let_go(job_world_loopback(t.w), LOOKER);
	job_world_stop(t.w);
}

/* ---- all at once */

struct race {
	struct scene t;
	_Atomic(unsigned int) begun, done;
	_Atomic(bool) over;
	_Atomic(unsigned int) looks, wrong;
};

static const char *name_at(unsigned int turn)
{
	return turn % 2 ? "b" : "f";
}

/* Each turn the file gets a mode that says which one it is, and its other name. */
static void *change(void *arg)
{
	struct race *r = arg;

	for (unsigned int turn = 1; turn <= TURNS; turn++) {
		struct job *j = node(&r->t, turn % NODES);

		usleep(400000); /* so words are given */
		r->begun = turn;
		if (path_chmod(j, name_at(turn - 1), 0600 + turn) < 0 ||
			path_rename(j, name_at(turn - 1), name_at(turn), 0) < 0)
			r->wrong++;
		r->done = turn;
	}
	r->over = true;
	return NULL;
}

static void look_once(struct race *r, struct job *j)
{
	unsigned int done = r->done;
	struct core_entry e;
	int rc = job_lookup(j, 1, name_at(done), &e);
	unsigned int begun = r->begun, turn = (e.attr.st_mode & 07777) - 0600;

	if (rc < 0 ? begun == done : turn < done || turn > begun)
		r->wrong++;
	rc = job_lookup(j, 1, name_at(done + 1), &e);
	if (rc == 0 && r->begun == done)
		r->wrong++;
	r->looks++;
}

static void *look_on(void *arg)
{
	struct race *r = arg;

	while (!r->over) {
		look_once(r, node(&r->t, 1 + r->looks % 2));
		usleep(100);
	}
	return NULL;
}

static void race(void)
{
	static struct race r;
	pthread_t threads[4];

	begin(&r.t);
	(void)path_chmod(node(&r.t, HOME), "f", 0600);
	loopback_set_delay(job_world_loopback(r.t.w), 0, 2000, 5);
	for (unsigned int i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, i ? look_on : change, &r))
			exit(1);
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	is_u64(r.wrong, 0, "names and modes are never older than a change that has returned");
	tap_diag("%u looks", r.looks);
	job_world_stop(r.t.w);
}

int main(void)
{
	asks_nobody();
	is_seen_at_once(HOME, "at home");
	is_seen_at_once(OTHER, "elsewhere");
	is_seen_at_once(LOOKER, "by who looks");
	exchange_with_dir();
	open_is_not_told();
	is_overtaken();
	hangs();
	home_begins_anew();
	race();
	return done_testing();
}
