/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A node whose store does not take a change of the directory tree, for a moment, for longer, or for ever; and one that was away. Whatever it
 * has not got it does not hide: it says what all say, or EIO. Its files are read and written all the time.
 *
 * The fault: the store's directory takes no new files, so that the journal ends with the one that it has.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "format/place/place.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES      3u
#define SICK       1u /* the node */
#define OTHER      2u
#define VALUE      60000u /* bytes of a record that soon fills a journal file */
#define PATIENCE_S 60

static const struct core_cred cred = { .uid = 0, .gid = 0, .pid = 1 };

/* ---- a directory that takes no new files */

struct sick_io {
	struct io io;
	struct io *real; /* owned */
};

static _Atomic(int) sickness; /* 0, or the error */

static struct io *real_of(struct io *io)
{
	return ((struct sick_io *)io)->real;
}

static int sick_open(struct io *io, const char *path, unsigned int flags, struct io_file **ret)
{
	int error = flags & IO_CREATE ? sickness : 0;

	return error ? error : real_of(io)->ops->open(real_of(io), path, flags, ret);
}

static void sick_destroy(struct io *io)
{
	io_destroy(real_of(io));
	free(io);
}

static int sick_unlink(struct io *io, const char *path)
{
	return real_of(io)->ops->unlink(real_of(io), path);
}

static int sick_rename(struct io *io, const char *from, const char *to)
{
	return real_of(io)->ops->rename(real_of(io), from, to);
}

static int sick_mkdir(struct io *io, const char *path)
{
	return real_of(io)->ops->mkdir(real_of(io), path);
}

static int sick_sync_dir(struct io *io, const char *path)
{
	return real_of(io)->ops->sync_dir(real_of(io), path);
}

static int sick_list(struct io *io, const char *path, int (*each)(const char *name, void *arg), void *arg)
{
	return real_of(io)->ops->list(real_of(io), path, each, arg);
}

static int sick_space(struct io *io, uint64_t *ret_total, uint64_t *ret_free)
{
	return real_of(io)->ops->space(real_of(io), ret_total, ret_free);
}

static struct io *make_sick(uint32_t node, struct io *real, void *arg)
{
	static const struct io_ops ops = { .open = sick_open,
		.destroy = sick_destroy,
		.unlink = sick_unlink,
		.rename = sick_rename,
		.mkdir = sick_mkdir,
		.sync_dir = sick_sync_dir,
		.list = sick_list,
		.space = sick_space };
	struct sick_io *s = node == SICK ? calloc(1, sizeof(*s)) : NULL;

	(void)arg;
	if (!s)
		return real;
	s->io.ops = &ops;
	s->real = real;
	return &s->io;
}

/* ---- what is done */

static struct job_world *start_with(uint64_t timeout_usec)
{
	struct job_world *w = job_world_start_with(&(struct job_world_options){ .num = NODES,
		.settings = "data=log,capacity=16M",
		.timeout_usec = timeout_usec,
		.node_timeout_usec = 300000,
		.store_io = make_sick });

	sickness = 0;
	path_mkdir(job_world_job(w, 0), "d", 0700);
	return w;
}

static struct job_world *start(void)
{
	return start_with(0);
}

/* Sets it again and again, from another node, until no journal can have had room for all of it. */
static int fill(struct job_world *w, char value[VALUE + 1])
{
	int rc = 0;

	for (char c = 'a'; rc == 0 && c < 'p'; c++) {
		memset(value, c, VALUE);
		value[VALUE] = '\0';
		rc = path_setxattr(job_world_job(w, OTHER), "d", "user.big", value, 0);
	}
	return rc;
}

static bool shows(struct job_world *w, uint32_t node, const char *value)
{
	char found[VALUE + 1] = "";
	int len = path_getxattr(job_world_job(w, node), "d", "user.big", found, sizeof(found));

	return len == (int)VALUE && memcmp(found, value, VALUE) == 0;
}

static bool soon(struct job_world *w, bool (*test)(struct job_world *w, const void *arg), const void *arg)
{
	for (int i = 0; i < PATIENCE_S * 100; i++) {
		if (test(w, arg))
			return true;
		usleep(10000);
	}
	return false;
}

static bool can_mkdir(struct job_world *w, const void *name)
{
	int rc = path_mkdir(job_world_job(w, OTHER), name, 0700);

	return rc == 0 || rc == -EEXIST;
}

struct said {
	char text[1024];
};

static void take_text(const char *text, void *arg)
{
	struct said *s = arg;

	strncat(s->text, text, sizeof(s->text) - strlen(s->text) - 1);
}

static bool says(struct job_world *w, uint32_t node, const char *what)
{
	struct said s = { "" };

	job_troubles(job_world_job(w, node), take_text, &s);
	if (!strstr(s.text, what))
		tap_diag("node %u says: %s", node, s.text);
	return strstr(s.text, what) != NULL;
}

static bool has_no_trouble(struct job_world *w, const void *arg)
{
	struct said s = { "" };

	(void)arg;
	for (uint32_t i = 0; i < NODES; i++)
		job_troubles(job_world_job(w, i), take_text, &s);
	return s.text[0] == '\0';
}

static bool says_lost(struct job_world *w, const void *arg)
{
	struct said s = { "" };

	(void)arg;
	job_troubles(job_world_job(w, SICK), take_text, &s);
	return strstr(s.text, "away for too long") != NULL;
}

static bool sees(struct job_world *w, const void *name)
{
	struct stat st;

	return path_stat(job_world_job(w, SICK), name, &st) == 0;
}

/* ---- the tests */

static void *recover_soon(void *arg)
{
	(void)arg;
	usleep(300000);
	sickness = 0;
	return NULL;
}

static void test_a_moment(void)
{
	struct job_world *w = start();
	char value[VALUE + 1];
	pthread_t thread;

	sickness = -ENOSPC;
	if (pthread_create(&thread, NULL, recover_soon, NULL))
		exit(1);
	int rc = fill(w, value);
	pthread_join(thread, NULL);
	ok(rc == 0, "a store that is full for a moment is waited for");
	ok(shows(w, SICK, value) && shows(w, OTHER, value), "and has the changes");
	ok(has_no_trouble(w, NULL), "there is nothing to complain of");
	job_world_stop(w);
}

/* A file of the sick node, open all the time. */
struct kept_open {
	struct job_file *file;
	uint64_t ino;
};

static bool write_and_read(struct job_world *w, struct kept_open *k, const char *text)
{
	struct job *j = job_world_job(w, SICK);
	char found[64] = "";
	size_t len = strlen(text);

	return job_write(j, k->file, text, len, 0) == (ssize_t)len &&
	       job_read(j, k->file, found, len, 0) == (ssize_t)len && memcmp(found, text, len) == 0;
}

static void open_kept(struct job_world *w, struct kept_open *k)
{
	struct core_open_reply open;
	struct core_entry e;

	if (job_create_file(job_world_job(w, SICK), 1, "kept", 0600, O_RDWR | O_CREAT, cred, &e, &k->file, &open)) {
		printf("Bail out! cannot create\n");
		exit(1);
	}
	k->ino = e.ino;
}

static void close_kept(struct job_world *w, struct kept_open *k)
{
	job_release(job_world_job(w, SICK), k->file);
	job_forget(job_world_job(w, SICK), k->ino, 1);
}

/* What all nodes say of names while one of them is behind. */
static void check_refusals(struct job_world *w)
{
	struct job *sick = job_world_job(w, SICK), *other = job_world_job(w, OTHER);
	unsigned int made = 0, refused = 0, else_ = 0;
	char list[4096], name[16];
	struct stat st;

	ok(path_stat(sick, "d", &st) == -EIO, "it does not say what it does not know: a directory");
	ok(path_stat(sick, "kept", &st) == -EIO, "a file");
	ok(path_list(sick, "", list, sizeof(list)) == -EIO, "a listing");
	ok(path_create(sick, "new", 0600, O_EXCL) == -EIO, "and makes nothing");
	ok(path_mkdir(other, "late", 0700) == -EIO, "no directory is made anywhere");
	for (int i = 0; i < 30; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		int rc = path_create(other, name, 0600, O_EXCL);
		made += rc == 0;
		refused += rc == -EIO;
		else_ += rc != 0 && rc != -EIO;
	}
	ok(made && refused && !else_, "other nodes make files whose names others serve: %u of 30", made);
}

static void test_longer(void)
{
	struct job_world *w = start();
	struct kept_open kept;
	char value[VALUE + 1];

	open_kept(w, &kept);
	sickness = -ENOSPC;
	ok(fill(w, value) == -EIO, "a store that stays full holds up the tree, and the caller is told");
	check_refusals(w);
	ok(write_and_read(w, &kept, "while full"), "an open file is written and read");
	ok(says(w, SICK, "make room") && says(w, 0, "node 1"), "both say what is wrong, and what to do");
	sickness = 0;
	ok(soon(w, can_mkdir, "then"), "directories are made again when there is room");
	ok(soon(w, sees, "then") && soon(w, sees, "kept"), "and it serves names again");
	ok(soon(w, has_no_trouble, NULL), "there is nothing to complain of any more");
	close_kept(w, &kept);
	job_world_stop(w);
}

static void test_until_restart(void)
{
	struct job_world *w = start();
	char value[VALUE + 1];
	struct stat st;

	path_create(job_world_job(w, SICK), "f", 0600, O_EXCL);
	sickness = -EIO;
	ok(fill(w, value) == -EIO, "a store that fails holds up the tree, and the caller is told");
	ok(path_stat(job_world_job(w, SICK), "d", &st) == -EIO, "it serves no names");
	ok(says(w, SICK, "mount it again") && says(w, 0, "node 1"), "both say what is wrong, and what to do");
	sickness = 0;
	job_world_restart(w, SICK);
	ok(soon(w, can_mkdir, "then"), "directories are made again when its daemon was started again");
	ok(soon(w, sees, "then") && sees(w, "f"), "and it has everything");
	ok(soon(w, has_no_trouble, NULL), "there is nothing to complain of any more");
	job_world_stop(w);
}

/* times: how many changes it misses. */
static void test_away(unsigned int times, bool found)
{
	struct job_world *w = start();
	struct stat st;
	int rc = 0;

	job_world_kill(w, SICK);
	ok(soon(w, can_mkdir, "while-away"), "a node that is gone is given up");
	for (unsigned int i = 0; i < times && rc == 0; i++)
		rc = path_chmod(job_world_job(w, OTHER), "d", 0700 + i % 8);
	ok(rc == 0, "the others go on");
	job_world_revive(w, SICK);
	if (found) {
		ok(soon(w, sees, "while-away"), "when it is back it has what it missed, without another change");
	} else {
		ok(soon(w, says_lost, NULL), "what has missed too much says so");
		ok(path_stat(job_world_job(w, SICK), "d", &st) == -EIO, "it serves no names");
		ok(path_mkdir(job_world_job(w, OTHER), "on", 0700) == 0, "and holds up nobody");
	}
	job_world_stop(w);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void name_of_server(uint32_t server, char name[16])
{
	for (int i = 0; i == 0 || place_name(1, name, NODES) != server; i++)
		snprintf(name, 16, "n%d", i);
}

static bool is_there(struct job_world *w, const void *name)
{
	struct stat st;

	return path_stat(job_world_job(w, OTHER), name, &st) == 0;
}

/* A server of names that has begun anew, and cannot be told by a node that lags for good, refuses: nobody waits for what may never come. */
static void test_server_untold(void)
{
	struct job_world *w = start_with((uint64_t)PATIENCE_S * 2000000);
	char name[16];
	struct stat st;
	int rc = 0;

	name_of_server(0, name);
	path_create(job_world_job(w, OTHER), name, 0600, O_EXCL);
	job_world_kill(w, SICK);
	ok(soon(w, can_mkdir, "while-away"), "a node that is gone is given up");
	for (unsigned int i = 0; i < 1100 && rc == 0; i++)
		rc = path_chmod(job_world_job(w, OTHER), "d", 0700 + i % 8);
	job_world_revive(w, SICK);
	ok(rc == 0 && soon(w, says_lost, NULL), "it has missed too much");
	ok(is_there(w, name), "what others know of names is known");
	job_world_restart(w, 0);
	uint64_t begun = now_ms();
	ok(path_stat(job_world_job(w, OTHER), name, &st) == -EIO, "but not by a server that has not been told by all");
	ok(path_create(job_world_job(w, OTHER), name, 0600, O_EXCL) == -EIO, "which gives no name away");
	ok(now_ms() - begun < PATIENCE_S * 1000, "and lets nobody wait");
	job_world_kill(w, SICK);
	ok(soon(w, is_there, name), "until that node is given up");
	job_world_stop(w);
}

/* ---- a file is replaced whose home's store is full */

/* Whatever it says with so many bytes does not fit any more. */
static void fill_store(struct job *sick, unsigned int bytes)
{
	char value[VALUE + 1];

	for (char c = 'a'; c < 'p'; c++) {
		memset(value, c, bytes);
		value[bytes] = '\0';
		if (path_setxattr(sick, "big", "user.big", value, 0) < 0)
			return;
	}
}

static void fill_store_up(struct job *sick)
{
	char name[16];
	int rc = 0;

	fill_store(sick, VALUE);
	for (unsigned int bytes = VALUE / 10; bytes > 1; bytes /= 4)
		fill_store(sick, bytes);
	for (int i = 0; rc == 0 && i < 200; i++) {
		snprintf(name, sizeof(name), "spare%d", i);
		rc = path_unlink(sick, name);
	}
	ok(rc == -ENOSPC, "a store is full: %s", strerror(-rc));
}

static bool is_listed(struct job_world *w, uint32_t node, const char *line)
{
	char list[65536] = "\n";

	return path_list(job_world_job(w, node), "", list + 1, sizeof(list) - 1) != 0 || strstr(list, line);
}

static void test_replaced_in_full_store(void)
{
	struct job_world *w = start();
	struct job *sick = job_world_job(w, SICK), *other = job_world_job(w, OTHER);
	struct stat st, now;
	char name[16];

	path_create(sick, "big", 0600, O_EXCL);
	path_create(sick, "b", 0600, O_EXCL);
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "spare%d", i);
		path_create(sick, name, 0600, O_EXCL);
	}
	ok(path_create(other, "a", 0600, O_EXCL) == 0 && path_stat(other, "a", &st) == 0, "a file of another node");
	sickness = -ENOSPC;
	fill_store_up(sick);
	ok(path_rename(other, "a", "b", 0) == 0, "replaces one of the full one");
	ok(path_stat(other, "b", &now) == -EIO, "which keeps its name, so nobody is told what is there");
	sickness = 0;
	ok(soon(w, is_there, "b"), "until there is room");
	ok(path_stat(other, "b", &now) == 0 && now.st_ino == st.st_ino, "it is the new one");
	ok(path_unlink(other, "b") == 0, "that can be removed");
	for (uint32_t i = 0; i < NODES; i++)
		ok(!is_listed(w, i, "\nb\n"), "and then there is none");
	job_world_stop(w);
}

int main(void)
{
	test_replaced_in_full_store();
	test_a_moment();
	test_longer();
	test_until_restart();
	test_away(3, true);
	test_away(1100, false);
	test_server_untold();
	return done_testing();
}
