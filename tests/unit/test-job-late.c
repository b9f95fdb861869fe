/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A request that changes names is stuck on its way between two nodes, whoever made it gives up or dies, and the request arrives when the names'
 * server has asked all. Messages from the asker to the home are held, those to the server are not.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/place/place.h"
#include "format/store/store.h"
#include "fs/job/private.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES         4u
#define PATIENCE_MSEC 15000
#define TEXT          "what was acknowledged"

enum { SERVER = 1, HOME, ASKER };

struct scene {
	struct job_world *w;
	struct loopback *l;
	char a[2], b[2]; /* names that SERVER serves; a is HOME's */
	uint64_t ino;    /* of the file that is a */
	pthread_t thread;
	struct job *j; /* ASKER's */
	bool is_dir;   /* it makes a directory b; else it renames a to b */
	int rc;
};

static void put_text(struct job *j, const char *name, const char *text)
{
	struct path_file f;

	if (path_create(j, name, 0600, O_EXCL) < 0 || path_open(j, name, O_RDWR, &f) < 0)
		tap_diag("cannot make %s", name);
	else if (job_write(j, f.file, text, strlen(text), 0) != (ssize_t)strlen(text) || path_close(&f) < 0)
		tap_diag("cannot write %s", name);
}

static bool has_text(struct job *j, const char *name, const char *text)
{
	char found[64] = "";
	struct path_file f;
	int rc = path_open(j, name, O_RDONLY, &f);

	if (rc < 0)
		return false;
	ssize_t len = job_read(j, f.file, found, sizeof(found), 0);
	(void)path_close(&f);
	return len == (ssize_t)strlen(text) && memcmp(found, text, (size_t)len) == 0;
}

static void begin(struct scene *t, uint64_t node_timeout_usec)
{
	*t = (struct scene){ .a = "a", .b = "b" };
	t->w = job_world_start_with(&(struct job_world_options){
		.num = NODES, .timeout_usec = 2000000, .node_timeout_usec = node_timeout_usec });
	t->l = job_world_loopback(t->w);
	while (place_name(STATE_ROOT_INO, t->a, NODES) != SERVER)
		t->a[0]++;
	for (t->b[0] = (char)(t->a[0] + 1); place_name(STATE_ROOT_INO, t->b, NODES) != SERVER;)
		t->b[0]++;
	put_text(job_world_job(t->w, HOME), t->a, TEXT);
	struct stat st;
	t->ino = path_stat(job_world_job(t->w, 0), t->a, &st) == 0 ? st.st_ino : 0;
	t->j = job_world_job(t->w, ASKER);
	loopback_settle(t->l);
}

static void *change(void *arg)
{
	struct scene *t = arg;
	struct core_entry e;

	if (t->is_dir)
		t->rc = job_mkdir(t->j, STATE_ROOT_INO, t->b, 0700, (struct core_cred){ 0 }, &e);
	else
		t->rc = job_rename(t->j, STATE_ROOT_INO, t->a, STATE_ROOT_INO, t->b, 0);
	return NULL;
}

static void stick(struct scene *t)
{
	if (t->is_dir)
		loopback_hold_request(t->l, ASKER, 0, MESSAGE_TREE_CHANGE);
	else
		loopback_hold_request(t->l, ASKER, HOME, MESSAGE_FILE_RENAME);
	pthread_create(&t->thread, NULL, change, t);
	loopback_await_held(t->l, ASKER);
}

static void time_out(struct scene *t)
{
	pthread_join(t->thread, NULL);
	ok(t->rc == -ETIMEDOUT || t->rc == -EIO, "who asked gives up: %s", strerror(-t->rc));
}

static void die(struct scene *t)
{
	loopback_kill(t->l, ASKER);
	job_shut_down(t->j);
	pthread_join(t->thread, NULL);
	ok(t->rc < 0, "who asked dies");
	job_world_kill(t->w, ASKER);
}

/* -EAGAIN: nobody says now. */
static int look(struct scene *t, uint32_t node, const char *name, uint64_t *ret_ino)
{
	struct stat st;
	int rc = path_stat(job_world_job(t->w, node), name, &st);

	*ret_ino = rc == 0 ? st.st_ino : 0;
	return rc == 0 || rc == -ENOENT ? rc : -EAGAIN;
}

/* One of the two is the file, for each node, and the other one is free. */
static bool is_found(struct scene *t, const char **ret_name)
{
	unsigned int as_a = 0, as_b = 0;

	for (uint32_t node = 0; node < NODES; node++) {
		uint64_t a, b;
		int rc = look(t, node, t->a, &a), rc_b = look(t, node, t->b, &b);

		if (rc == -EAGAIN || rc_b == -EAGAIN)
			return false;
		as_a += a == t->ino && b == 0;
		as_b += b == t->ino && a == 0;
	}
	*ret_name = as_a ? t->a : t->b;
	return as_a == NODES || as_b == NODES;
}

/* What it was, under one of the names; somebody takes the other one; and so it stays. */
static void check(struct scene *t)
{
	const char *name = t->a;
	bool found = false;
	int rc = -EIO;

	for (int i = 0; i < PATIENCE_MSEC / 100 && !(found = is_found(t, &name)); i++)
		usleep(100000);
	ok(found, "all nodes find the file under one of its names");
	for (int i = 0; i < PATIENCE_MSEC / 100 && rc != 0; i++, usleep(100000))
		rc = path_create(job_world_job(t->w, 0), name == t->a ? t->b : t->a, 0600, O_EXCL);
	is_int(rc, 0, "the other one is free for somebody else");
	ok(has_text(job_world_job(t->w, 0), name, TEXT), "what was acknowledged is in the file");
	job_world_restart(t->w, SERVER);
	job_world_restart(t->w, HOME);
	bool there = false;
	for (int i = 0; i < PATIENCE_MSEC / 100 && !there; i++, usleep(100000))
		there = has_text(job_world_job(t->w, 0), name, TEXT);
	ok(there, "also when the server of its name and its home have begun anew");
}

static void let_go(struct scene *t)
{
	loopback_let_go(t->l, ASKER);
	loopback_settle(t->l);
}

static void test_timed_out(void)
{
	struct scene t;

	begin(&t, 0);
	stick(&t);
	time_out(&t);
	usleep(1000000); /* for a server that would ask now */
	let_go(&t);
	check(&t);
	job_world_stop(t.w);
}

static bool is_found_soon(struct scene *t, uint32_t node)
{
	uint64_t ino = 0;

	for (int i = 0; i < PATIENCE_MSEC / 100 && ino != t->ino; i++, usleep(100000))
		(void)look(t, node, t->a, &ino);
	return ino == t->ino;
}

static void test_restarted(void)
{
	struct scene t;

	begin(&t, 0);
	stick(&t);
	die(&t);
	job_world_revive(t.w, ASKER);
	ok(is_found_soon(&t, 0),
		"its home hears from the server that another daemon is there, and does not wait for what comes from it");
	let_go(&t);
	check(&t);
	job_world_stop(t.w);
}

/* The server of the names begins while who asked is away. */
static void test_all_restarted(void)
{
	struct scene t;

	begin(&t, 0);
	stick(&t);
	die(&t);
	job_world_restart(t.w, SERVER);
	job_world_revive(t.w, ASKER);
	ok(is_found_soon(&t, 0), "a server that has begun since says so, too");
	let_go(&t);
	check(&t);
	job_world_stop(t.w);
}

/* It is given up, and the home does not hear yet that it has left; nor that it is back. */
static void test_given_up(void)
{
	uint64_t ino;
	struct scene t;

	begin(&t, 300000);
	stick(&t);
	die(&t);
	usleep(1500000);
	is_int(look(&t, 0, t.b, &ino), -EAGAIN, "what may still come is not told to be nothing");
	job_world_revive(t.w, ASKER);
	ok(is_found_soon(&t, 0), "until another daemon is there");
	let_go(&t);
	check(&t);
	job_world_stop(t.w);
}

static bool is_given_up(struct scene *t)
{
	struct peers_node n;

	return peers_nodes(job_world_peers(t->w, SERVER), ASKER, &n, 1) == 1 && n.gone;
}

static void await_given_up(struct scene *t)
{
	for (int i = 0; i < PATIENCE_MSEC && !is_given_up(t); i++)
		usleep(1000);
	ok(is_given_up(t), "who asked is given up");
}

/* It is given up, and goes on as it was, but that the way to the home is slow. (Node 0 waits for what comes behind a change of the tree.) */
static void test_goes_on(void)
{
	struct scene t;
	struct stat st;
	int rc = -EIO;

	begin(&t, 300000);
	stick(&t);
	loopback_cut(t.l, ASKER);
	await_given_up(&t);
	loopback_hold_request(t.l, ASKER, HOME, MESSAGE_FILE_RENAME); /* which it sends again */
	loopback_assemble(t.l);
	loopback_await_held(t.l, ASKER);
	for (int i = 0; i < PATIENCE_MSEC / 10 && rc != 0; i++, usleep(10000))
		rc = path_create(job_world_job(t.w, SERVER), t.b, 0600, O_EXCL);
	is_int(rc, 0, "it is back, and the name is somebody else's");
	let_go(&t);
	time_out(&t);
	loopback_settle(t.l);
	bool there = false;
	for (int i = 0; i < PATIENCE_MSEC / 100 && !there; i++, usleep(100000))
		there = has_text(job_world_job(t.w, 0), t.a, TEXT);
	ok(there && has_text(job_world_job(t.w, HOME), t.a, TEXT), "what it asked for is not done any more");
	ok(path_stat(job_world_job(t.w, HOME), t.b, &st) == 0 && S_ISREG(st.st_mode), "nor to the other name");
	job_world_stop(t.w);
}

/* It waits for a name, and gets it when it is missing, but not given up yet; when it hears of that, it is back, and the name is free. */
static void test_given_while_missing(void)
{
	struct scene t;
	int rc = -EIO;

	begin(&t, 800000);
	struct scene before = t, after = t;
	before.j = job_world_job(t.w, 0);
	memcpy(after.a, t.b, sizeof(after.a));
	memcpy(after.b, t.a, sizeof(after.b));
	loopback_hold_request(t.l, 0, HOME, MESSAGE_FILE_RENAME);
	pthread_create(&before.thread, NULL, change, &before);
	loopback_await_held(t.l, 0);
	loopback_hold_request(t.l, ASKER, SERVER, MESSAGE_NAME_LOCK);
	pthread_create(&after.thread, NULL, change, &after);
	loopback_await_held(t.l, ASKER);
	let_go(&t);
	loopback_cut(t.l, ASKER);
	usleep(650000);
	loopback_let_go(t.l, 0);
	pthread_join(before.thread, NULL);
	is_int(before.rc, 0, "who has the name is done with it");
	await_given_up(&t);
	loopback_hold_request(t.l, ASKER, HOME, MESSAGE_FILE_RENAME);
	loopback_assemble(t.l);
	loopback_await_held(t.l, ASKER);
	for (int i = 0; i < PATIENCE_MSEC / 10 && rc != 0; i++, usleep(10000))
		rc = path_create(job_world_job(t.w, SERVER), t.a, 0600, O_EXCL);
	is_int(rc, 0, "the name is somebody else's");
	let_go(&t);
	time_out(&after);
	loopback_settle(t.l);
	ok(has_text(job_world_job(t.w, 0), t.b, TEXT), "the file is still where it was");
	ok(has_text(job_world_job(t.w, HOME), t.a, ""), "and the other one has the name");
	job_world_stop(t.w);
}

/* The home takes longer than a lock is good for without a word of its server: it still is. */
static void test_slow(void)
{
	uint64_t ino = 0;
	struct scene t;

	begin(&t, 300000);
	stick(&t);
	usleep(600000);
	let_go(&t);
	pthread_join(t.thread, NULL);
	is_int(t.rc, 0, "what takes long is done all the same");
	is_int(look(&t, 0, t.b, &ino), 0, "and seen");
	ok(ino == t.ino, "by its new name");
	job_world_stop(t.w);
}

static mode_t mode_of(struct scene *t, const char *name)
{
	struct stat st = { 0 };

	(void)path_stat(job_world_job(t->w, 0), name, &st);
	return st.st_mode & 07777;
}

/* No name's lock says until when, but who waits for it does. */
static void test_attributes(void)
{
	struct scene t;

	begin(&t, 0);
	is_int(path_mkdir(job_world_job(t.w, 0), t.b, 0700), 0, "a directory");
	loopback_hold_request(t.l, ASKER, HOME, MESSAGE_FILE_SET);
	is_int(job_errno(path_chmod(t.j, t.a, 0644)), -EIO, "a file's mode cannot be changed");
	let_go(&t);
	is_int(mode_of(&t, t.a), 0600, "nor is it later");
	is_int(path_chmod(t.j, t.a, 0640), 0, "by who has been told");
	is_int(mode_of(&t, t.a), 0640, "and may do it again");
	loopback_hold_request(t.l, ASKER, 0, MESSAGE_TREE_CHANGE);
	is_int(job_errno(path_chmod(t.j, t.b, 0755)), -EIO, "nor a directory's");
	let_go(&t);
	is_int(path_mkdir(job_world_job(t.w, 0), "later", 0700), 0, "node 0 goes on");
	is_int(mode_of(&t, t.b), 0700, "without that one");
	job_world_stop(t.w);
}

static void test_tree_change(void)
{
	struct scene t;
	int rc = -EIO;

	begin(&t, 0);
	t.is_dir = true;
	stick(&t);
	time_out(&t);
	for (int i = 0; i < 2 && rc != 0; i++)
		rc = path_create(job_world_job(t.w, HOME), t.b, 0600, O_EXCL);
	ok(rc < 0, "a name that may become a directory is nobody's");
	let_go(&t);
	unsigned int dirs = 0;
	for (int i = 0; i < PATIENCE_MSEC / 100 && dirs < NODES; i++, usleep(100000)) {
		dirs = 0;
		for (uint32_t node = 0; node < NODES; node++) {
			struct stat st;

			dirs += path_stat(job_world_job(t.w, node), t.b, &st) == 0 && S_ISDIR(st.st_mode);
		}
	}
	is_u64(dirs, NODES, "and then it is one");
	job_world_stop(t.w);
}

/* The one that asked ends, and nothing holds it up. */
static void test_ends(void)
{
	struct scene t;

	begin(&t, 0);
	stick(&t);
	time_out(&t);
	job_world_close(t.w);
	ok(true, "a daemon that would still say it is over ends");
	job_world_stop(t.w);
}

int main(void)
{
	test_timed_out();
	test_restarted();
	test_all_restarted();
	test_given_up();
	test_goes_on();
	test_given_while_missing();
	test_slow();
	test_attributes();
	test_tree_change();
	test_ends();
	return done_testing();
}
