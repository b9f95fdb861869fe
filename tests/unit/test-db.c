/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The index's database: what is missing is not taken for a key that is not there, and a damaged one that is removed is damaged to the end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "format/index/db.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tap.h"

/* ---- in place of the libraries', for the program's own files */

static int unlinks_left = -1; /* then they fail; -1: they do not */

int unlinkat(int dirfd, const char *name, int flags)
{
	if (unlinks_left == 0) {
		errno = EIO;
		return -1;
	}
	unlinks_left -= unlinks_left > 0;
	return (int)syscall(SYS_unlinkat, dirfd, name, flags);
}

static bool file_missing;

void rocksdb_iter_get_error(const void *iterator, char **ret_message);

/* As RocksDB says it of a table that has to be opened again. */
void rocksdb_iter_get_error(const void *iterator, char **ret_message)
{
	(void)iterator;
	*ret_message =
		file_missing
			? strdup("IO error: No such file or directory: While open a file for random read: 000009.sst")
			: NULL;
}

/* ---- */

static void test_missing_table(const char *path)
{
	struct db_batch *batch = NULL;
	struct cistern_error err = { 0 };
	struct db_walk *walk = NULL;
	struct db *db = NULL;

	is_int(db_open(path, DB_CREATE, &db, &err), 0, "a database");
	is_int(db_batch_create(&batch), 0, "a batch");
	db_batch_put(batch, "key", 3, "value", 5);
	is_int(db_write(db, batch, &err), 0, "is written");
	is_int(db_walk_begin(db, "k", 1, NULL, 0, true, &walk), 0, "a walk");
	ok(db_walk_valid(walk), "finds it");
	is_int(db_walk_end(walk), 0, "and ends");
	is_int(db_walk_begin(db, "k", 1, NULL, 0, true, &walk), 0, "another one");
	file_missing = true;
	is_int(db_walk_end(walk), -EBADMSG, "meets a table that is missing: that is damage");
	file_missing = false;
	db_batch_destroy(batch);
	db_close(db);
}

/* Its own log is off, and what was not flushed is nobody's to make durable. */
static void test_unflushed(const char *path)
{
	struct db_batch *batch = NULL;
	struct db *db = NULL;
	char *val = NULL;
	size_t len = 0;

	is_int(db_open(path, DB_CREATE, &db, NULL), 0, "a database");
	is_int(db_batch_create(&batch), 0, "a batch");
	db_batch_put(batch, "first", 5, "value", 5);
	ok(db_write(db, batch, NULL) == 0 && db_flush(db, NULL) == 0, "is written, and flushed");
	db_batch_clear(batch);
	db_batch_put(batch, "second", 6, "value", 5);
	is_int(db_write(db, batch, NULL), 0, "another one is written");
	db_batch_destroy(batch);
	db_close(db);
	db = NULL;
	is_int(db_open(path, DB_READ_WRITE, &db, NULL), 0, "opened again");
	is_int(db_get(db, "first", 5, &val, &len), 0, "what was flushed is there");
	free(val);
	is_int(db_get(db, "second", 6, &val, &len), -ENOENT, "and nothing else");
	db_close(db);
}

static void touch(const char *dir, const char *name)
{
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}

/* Killed at any moment: while there is something, the mark is. The order of a directory is anybody's, so both ends of it have been first. */
static void test_wipe(const char *path, bool mark_first)
{
	unsigned int unmarked = 0, failed = 0;
	struct cistern_error err = { 0 };
	char name[16], mark[160];
	struct stat st;
	int after = -1, r;

	snprintf(mark, sizeof(mark), "%s/" DB_DAMAGED_FILE, path);
	do {
		if (mark_first)
			touch(path, DB_DAMAGED_FILE);
		for (int i = 0; i < 8; i++) {
			snprintf(name, sizeof(name), "%06d.sst", i);
			touch(path, name);
		}
		touch(path, DB_DAMAGED_FILE);
		unlinks_left = ++after;
		r = db_wipe(path, &err);
		unlinks_left = -1;
		failed += r != 0;
		unmarked += r != 0 && stat(mark, &st) < 0;
	} while (r && after < 100);
	is_u64(failed, 9, "each file but the last is the last");
	is_u64(unmarked, 0, "what is left is marked");
	ok(stat(mark, &st) < 0 && errno == ENOENT && rmdir(path) == 0, "in the end nothing is left");
}

int main(void)
{
	char top[96], path[128];

	snprintf(top, sizeof(top), "%s/test-db.XXXXXX", scratch_parent());
	ok(mkdtemp(top) != NULL, "a directory");
	snprintf(path, sizeof(path), "%s/index", top);
	test_missing_table(path);
	test_unflushed(path);
	is_int(db_wipe(path, NULL), 0, "emptied");
	test_wipe(path, false);
	is_int(db_wipe(path, NULL), 0, "made");
	test_wipe(path, true);
	remove_tree(top);
	return done_testing();
}
