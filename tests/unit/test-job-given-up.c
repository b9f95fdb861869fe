/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The home of a domain is given up, and a node's commits cannot be told to it: that one does not try again and again, nor is anything else held up by it.
 * When it is back, it is told. Nor does a directory go that may have a file of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/place/place.h"
#include "format/base/clock.h"
#include "fs/job/private.h"
#include "fs/job/lease.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/opened.h"
#include "tests/lib/tap.h"

#define NODES      3u
#define OTHER      0u
#define WRITER     1u /* and home of the file */
#define DEAD       2u
#define GONE_USEC  300000u
#define WAIT_USEC  30000000u
#define READS      20u
#define ROUNDS     3u  /* of the thread that catches up: seconds */
#define FEW        10u /* messages */
#define FIRST_TEXT "first"
#define LATER_TEXT "later"

struct scene {
	struct job_world *w;
	uint64_t ino, alive_off, dead_off; /* offsets in domains of those nodes */
};

static uint64_t offset_of(uint64_t ino, uint32_t node)
{
	uint64_t off = 0;

	while (place_domain(ino, off, PLACE_DOMAIN_SIZE, NODES) != node)
		off += PLACE_DOMAIN_SIZE;
	return off;
}

static bool knows_gone(struct job_world *w, uint32_t node)
{
	struct peers_node n = { 0 };

	return peers_nodes(job_world_peers(w, node), DEAD, &n, 1) == 1 && n.gone;
}

static void await_gone(struct job_world *w)
{
	uint64_t until = clock_usec() + WAIT_USEC;

	while (!(knows_gone(w, OTHER) && knows_gone(w, WRITER)) && clock_usec() < until)
		usleep(10000);
	ok(knows_gone(w, OTHER) && knows_gone(w, WRITER), "a node is given up");
}

static int write_once(struct scene *t, uint32_t node, const char *text, uint64_t off)
{
	struct opened f;

	if (opened_at(t->w, node, t->ino, O_RDWR, &f) || opened_put(&f, text, off) != (ssize_t)strlen(text))
		exit(1);
	return opened_close(&f);
}

/* It has something of both domains, and what is of the dead node's only by then. */
static void begin(struct scene *t)
{
	struct opened f;

	t->w = job_world_start_with(&(struct job_world_options){ .num = NODES, .node_timeout_usec = GONE_USEC });
	t->ino = opened_create(t->w, WRITER, "f", O_RDWR, &f);
	is_int(opened_close(&f), 0, "a file is made");
	t->alive_off = offset_of(t->ino, OTHER);
	t->dead_off = offset_of(t->ino, DEAD);
	is_int(write_once(t, OTHER, "o", t->alive_off + 100), 0, "another node writes to it");
	is_int(write_once(t, WRITER, FIRST_TEXT, t->alive_off), 0, "its home, too");
	is_int(write_once(t, WRITER, FIRST_TEXT, t->dead_off), 0, "also in another one's domain");
	job_world_kill(t->w, DEAD);
	await_gone(t->w);
	is_int(write_once(t, WRITER, LATER_TEXT, t->dead_off), -EIO, "what cannot be told is said to who closes");
}

static bool is_parked(struct scene *t)
{
	struct shared *s = shared_find(job_world_job(t->w, WRITER), t->ino);

	if (!s)
		return false;
	pthread_mutex_lock(&s->mutex);
	bool parked = s->resend && s->parked;
	pthread_mutex_unlock(&s->mutex);
	shared_put(job_world_job(t->w, WRITER), s);
	return parked;
}

static void await_parked(struct scene *t, bool parked)
{
	uint64_t until = clock_usec() + WAIT_USEC;

	while (is_parked(t) != parked && clock_usec() < until)
		usleep(10000);
	ok(is_parked(t) == parked, parked ? "its pieces wait for its return" : "they wait no more");
}

/* What a process reads that may write, which asks all writers to commit. */
static bool shows(struct opened *f, uint64_t off, const char *text)
{
	struct job_bytes where;
	char buf[32] = "";
	ssize_t got = job_read_bytes(f->j, f->file, true, buf, strlen(text), off, &where);
	bool same = got == (ssize_t)strlen(text) && memcmp(where.at, text, strlen(text)) == 0;

	if (!same)
		tap_diag("%zd bytes: %.*s", got, got > 0 ? (int)got : 0, got > 0 ? (const char *)where.at : "");
	job_bytes_end(&where);
	return same;
}

static bool shows_soon(struct opened *f, uint64_t off, const char *text)
{
	uint64_t until = clock_usec() + WAIT_USEC;

	while (!shows(f, off, text) && clock_usec() < until)
		usleep(50000);
	return shows(f, off, text);
}

static void stays_quiet(struct scene *t, struct opened *f)
{
	struct share *sh = job_world_job(t->w, WRITER)->share;
	uint64_t before = sh->messages;
	unsigned int wrong = 0;

	for (unsigned int i = 0; i < READS; i++)
		wrong += !shows(f, t->alive_off, FIRST_TEXT);
	is_int(wrong, 0, "what the others have is read");
	usleep(ROUNDS * 1000000u);
	uint64_t sent = sh->messages - before;
	ok(sent <= FEW, "meanwhile %llu messages are sent", (unsigned long long)sent);
	ok(!lease_is_good(f->file->shared), "but nobody is told that there is nothing to be told");
}

static void test_given_up(bool restarted)
{
	struct scene t;
	struct opened f;

	tap_diag(restarted ? "the writer is restarted" : "the writer goes on");
	begin(&t);
	if (restarted)
		job_world_restart(t.w, WRITER);
	await_parked(&t, true);
	is_int(opened_at(t.w, OTHER, t.ino, O_RDWR, &f), 0, "another node can open the file to write to it");
	stays_quiet(&t, &f);
	is_u64(job_world_job(t.w, WRITER)->share->hold_usec, 0, "and nothing is given back");
	is_int(opened_put(&f, "new", t.alive_off + 10), 3, "and write");
	is_int(job_fsync(f.j, t.ino, f.file, false), 0, "and sync");
	is_int(job_syncfs(job_world_job(t.w, WRITER)), -EHOSTDOWN, "a drain would hear that something is missing");
	ok(is_parked(&t), "that changes nothing");
	job_world_revive(t.w, DEAD);
	ok(shows_soon(&f, t.dead_off, LATER_TEXT), "when the node is back it is told");
	await_parked(&t, false);
	is_int(job_syncfs(job_world_job(t.w, WRITER)), 0, "nothing is missing any more");
	is_u64(job_world_job(t.w, WRITER)->share->hold_usec, UINT64_MAX, "so what was freed may be given back");
	is_int(opened_close(&f), 0, "closed");
	job_world_stop(t.w);
}

/* The next name, behind text, that this node serves. */
static void served_name(char text[2], uint64_t dir, uint32_t node)
{
	do
		text[0]++;
	while (place_name(dir, text, NODES) != node);
}

/* The only ones that know the file are its home and its name's server: the same node. */
static void test_directory(void)
{
	struct job_world *w =
		job_world_start_with(&(struct job_world_options){ .num = NODES, .node_timeout_usec = GONE_USEC });
	char full[] = "`", empty[] = "`", young[] = "`", file[] = "`", path[8];
	struct job *j = job_world_job(w, OTHER);
	struct stat st;
	int rc;

	served_name(full, STATE_ROOT_INO, WRITER);
	empty[0] = young[0] = full[0];
	served_name(empty, STATE_ROOT_INO, WRITER);
	young[0] = empty[0];
	served_name(young, STATE_ROOT_INO, WRITER);
	is_int(path_mkdir(j, full, 0700) | path_mkdir(j, empty, 0700), 0, "two directories");
	is_int(path_stat(j, full, &st), 0, "one of them");
	served_name(file, st.st_ino, DEAD);
	snprintf(path, sizeof(path), "%s/%s", full, file);
	is_int(path_create(job_world_job(w, DEAD), path, 0600, O_EXCL), 0, "with a file");
	job_world_kill(w, DEAD);
	await_gone(w);
	is_int(path_rmdir(j, full), -EIO, "a directory that may have its files does not go");
	is_int(path_rename(job_world_job(w, WRITER), empty, full, 0), -EIO, "nor for another one");
	is_int(path_mkdir(j, young, 0700), 0, "another one is made now");
	is_int(path_rename(j, empty, young, 0), 0, "of which it knows nothing");
	is_int(path_mkdir(j, empty, 0700) | path_rmdir(j, empty), 0, "so it can go");
	job_world_revive(w, DEAD);
	uint64_t until = clock_usec() + WAIT_USEC;
	while ((rc = path_rmdir(j, full)) == -EIO && clock_usec() < until)
		usleep(10000);
	is_int(rc, -ENOTEMPTY, "when the node is back it says so");
	is_int(path_stat(j, path, &st), 0, "and has the file");
	is_int(path_unlink(j, path) | path_rmdir(j, full), 0, "with which the directory goes");
	job_world_stop(w);
}

/* Of several nodes' errors that of one which is not there hides no other. */
static void test_fan(int first, int second, int expected)
{
	struct fan f;

	fan_init(&f);
	fan_begin(&f);
	fan_begin(&f);
	fan_done(first, NULL, &f);
	fan_done(second, NULL, &f);
	is_int(fan_wait(&f), expected, "the error that counts");
}

int main(void)
{
	test_fan(-EHOSTDOWN, 0, -EHOSTDOWN);
	test_fan(-EHOSTDOWN, -ENOSPC, -ENOSPC);
	test_fan(-EIO, -EHOSTDOWN, -EIO);
	test_directory();
	test_given_up(true);
	test_given_up(false);
	return done_testing();
}
