/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Stores that are read without a get: only those that are surely the ones whose agents spoke of them. */
#include "mpi-agent/window/near.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"

static char dir[] = "/tmp/test-near.XXXXXX";

static void must(bool good, const char *what)
{
	if (good)
		return;
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

static const char *path_of(const char *store, const char *below)
{
	static char path[200];

	snprintf(path, sizeof(path), "%s/%s%s", dir, store, below);
	return path;
}

static void make_store(const char *store)
{
	must(mkdir(path_of(store, ""), 0700) == 0, "a store");
	must(mkdir(path_of(store, "/segment"), 0700) == 0, "its folder of segments");
}

static void make_file(const char *store, const char *name, const char *text)
{
	int fd;

	must((fd = open(path_of(store, name), O_WRONLY | O_CREAT, 0600)) >= 0, "a segment");
	must(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "a segment");
	close(fd);
}

static void holds(struct near *n, uint32_t segment, const char *text, const char *name)
{
	char buf[16] = "";
	int fd = near_open(n, 1, segment);

	ok(fd >= 0 && read(fd, buf, sizeof(buf) - 1) >= 0 && strcmp(buf, text) == 0, "%s", name);
	near_close(n, fd);
}

static void test_found(const struct identity_folder *a)
{
	struct near *n = NULL;

	must(near_create(3, &n) == 0, "near_create");
	is_int(near_open(n, 1, 1), -ENOENT, "a rank that nobody spoke of");
	near_add(n, 1, path_of("a", ""), a);
	holds(n, 1, "log", "a segment of the log");
	holds(n, 2, "private", "a private one");
	is_int(near_open(n, 1, 3), -ENOENT, "one that is not there");
	is_int(near_open(n, 2, 1), -ENOENT, "a rank of another host");
	is_int(near_open(n, 7, 1), -ENOENT, "no rank");
	near_destroy(n);
}

static void test_refused(const struct identity_folder *a)
{
	struct identity_folder other = { a->dev, a->ino + 1 }, none = { 0 };
	struct near *n = NULL;

	must(near_create(6, &n) == 0, "near_create");
	near_add(n, 1, path_of("b", ""), a);
	is_int(near_open(n, 1, 1), -ENOENT, "a copy of the store at its path");
	near_add(n, 2, path_of("a", ""), &other);
	is_int(near_open(n, 2, 1), -ENOENT, "another folder than its agent has");
	near_add(n, 3, path_of("a", ""), &none);
	is_int(near_open(n, 3, 1), -ENOENT, "a folder that its agent could not tell");
	near_add(n, 4, path_of("gone", ""), a);
	is_int(near_open(n, 4, 1), -ENOENT, "a path that is not here");
	must(chdir(dir) == 0, "chdir");
	near_add(n, 5, "a", a);
	is_int(near_open(n, 5, 1), -ENOENT, "a path that means something else to everybody");
	near_destroy(n);
}

static void test_limit(const struct identity_folder *a)
{
	struct near *n = NULL;
	int fds[2000], num = 0, last = -1;

	must(near_create(2, &n) == 0, "near_create");
	near_add(n, 1, path_of("a", ""), a);
	while (num < 2000 && (last = near_open(n, 1, 1)) >= 0)
		fds[num++] = last;
	ok(num >= 64 && num < 1000 && last == -EMFILE, "files are open in a number that a process may have (%d)", num);
	near_close(n, fds[--num]);
	holds(n, 1, "log", "one was closed: one more may be opened");
	while (num > 0)
		near_close(n, fds[--num]);
	near_destroy(n);
}

int main(void)
{
	struct identity_folder a, b, none;

	must(mkdtemp(dir) != NULL, "mkdtemp");
	make_store("a");
	make_store("b");
	make_file("a", "/segment/00000001.seg", "log");
	make_file("a", "/segment/00000002.prv", "private");
	make_file("b", "/segment/00000001.seg", "copy");
	near_look(path_of("a", ""), &a);
	near_look(path_of("b", ""), &b);
	near_look(path_of("gone", ""), &none);
	ok(a.ino != 0 && (a.ino != b.ino || a.dev != b.dev), "folders are told apart");
	ok(none.ino == 0 && none.dev == 0, "no store, no folder");
	test_found(&a);
	test_refused(&a);
	test_limit(&a);
	remove_tree(dir);
	return done_testing();
}
