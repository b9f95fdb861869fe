/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The namespace of a job, over several nodes in one process: each call is made on a node drawn at random and, as a system call,
 * in a real directory; both must say the same. From time to time everything is compared, as every node shows it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "format/index/state.h"
#include "format/place/place.h"
#include "format/store/store.h"
#include "fs/job/private.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define PATH_BYTES 512
#define LIST_BYTES 65536

static _Noreturn void bail_out(const char *why)
{
	printf("Bail out! %s: %s\n", why, strerror(errno));
	exit(1);
}

struct pair { /* a job and the directory that it is to be like */
	struct job_world *w;
	uint32_t num;
	char model[128];
	uint64_t random;
	unsigned int wrong;
	uint32_t node; /* of the operation in hand */
};

static unsigned int below(struct pair *p, unsigned int n)
{
	p->random ^= p->random << 13;
	p->random ^= p->random >> 7;
	p->random ^= p->random << 17;
	return (unsigned int)(p->random >> 20) % n;
}

static void at(char out[PATH_BYTES], const char *dir, const char *path)
{
	if (snprintf(out, PATH_BYTES, "%s/%s", dir, path) >= PATH_BYTES)
		abort();
}

/* ---- the same call in the model: 0 or -errno */

static int result(int r)
{
	return r < 0 ? -errno : r;
}

static void say(struct pair *p, const char *what, const char *a, const char *b, int got, int expected)
{
	if (getenv("JOB_NAMES_TRACE"))
		tap_diag("node %u: %s %s %s: %d", p->node, what, a, b, got);
	if (got == expected)
		return;
	if (++p->wrong <= 5)
		tap_diag("node %u: %s %s %s: %d (%s), expected %d (%s)", p->node, what, a, b, got, strerror(abs(got)),
			expected, strerror(abs(expected)));
}

static const char *const names[] = { "a", "b", "c", "d" };

/* Mostly short paths, so that operations meet. */
static void draw(struct pair *p, char out[PATH_BYTES])
{
	unsigned int depth = below(p, 6);

	depth = depth < 2 ? 1 : depth < 5 ? 2 : 3;
	out[0] = '\0';
	for (unsigned int i = 0; i < depth; i++) {
		size_t len = strlen(out);

		snprintf(out + len, PATH_BYTES - len, "%s%s", i ? "/" : "", names[below(p, 4)]);
	}
}

struct op {
	struct pair *p;
	struct job *j;
	char a[PATH_BYTES], b[PATH_BYTES];   /* in the job */
	char ma[PATH_BYTES], mb[PATH_BYTES]; /* in the model */
};

static void op_mkdir(struct op *o)
{
	say(o->p, "mkdir", o->a, "", path_mkdir(o->j, o->a, 0750), result(mkdir(o->ma, 0750)));
}

static int model_create(const char *path, int flags)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | flags, 0640);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static void op_create(struct op *o)
{
	int flags = below(o->p, 2) ? O_EXCL : 0;

	say(o->p, "create", o->a, flags ? "excl" : "", path_create(o->j, o->a, 0640, flags),
		model_create(o->ma, flags));
}

static void op_mknod(struct op *o)
{
	say(o->p, "mknod", o->a, "", path_mknod(o->j, o->a, S_IFREG | 0600), result(mknod(o->ma, S_IFREG | 0600, 0)));
}

static void op_symlink(struct op *o)
{
	say(o->p, "symlink", o->a, "", path_symlink(o->j, "nowhere", o->a), result(symlink("nowhere", o->ma)));
}

static void op_unlink(struct op *o)
{
	say(o->p, "unlink", o->a, "", path_unlink(o->j, o->a), result(unlink(o->ma)));
}

static void op_rmdir(struct op *o)
{
	int expected = result(rmdir(o->ma));

	say(o->p, "rmdir", o->a, "", path_rmdir(o->j, o->a), expected == -EEXIST ? -ENOTEMPTY : expected);
}

static void op_link(struct op *o)
{
	say(o->p, "link", o->a, o->b, path_link(o->j, o->a, o->b), result(link(o->ma, o->mb)));
}

static void op_rename(struct op *o)
{
	static const unsigned int flags[] = { 0, 0, 0, RENAME_EXCHANGE, RENAME_EXCHANGE, RENAME_NOREPLACE };
	unsigned int f = flags[below(o->p, 6)];
	int expected = result(renameat2(AT_FDCWD, o->ma, AT_FDCWD, o->mb, f));

	say(o->p,
		f == RENAME_EXCHANGE ? "exchange"
		: f                  ? "rename-noreplace"
				     : "rename",
		o->a, o->b, path_rename(o->j, o->a, o->b, f), expected == -EEXIST && f == 0 ? -ENOTEMPTY : expected);
}

static bool is_link(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

static void op_chmod(struct op *o)
{
	mode_t mode = 0700 | (mode_t)below(o->p, 64);

	if (!is_link(o->ma))
		say(o->p, "chmod", o->a, "", path_chmod(o->j, o->a, mode), result(chmod(o->ma, mode)));
}

static void op_truncate(struct op *o)
{
	off_t size = (off_t)below(o->p, 100000);
	struct stat st;

	if (lstat(o->ma, &st) == 0 && S_ISREG(st.st_mode))
		say(o->p, "truncate", o->a, "", path_truncate(o->j, o->a, size), result(truncate(o->ma, size)));
}

static void op_setxattr(struct op *o)
{
	static const int flags[] = { 0, XATTR_CREATE, XATTR_REPLACE };
	int f = flags[below(o->p, 3)];
	char value[16];

	snprintf(value, sizeof(value), "%u", below(o->p, 1000));
	if (!is_link(o->ma))
		say(o->p, "setxattr", o->a, "", path_setxattr(o->j, o->a, "user.t", value, f),
			result(lsetxattr(o->ma, "user.t", value, strlen(value), f)));
}

static void op_removexattr(struct op *o)
{
	if (!is_link(o->ma))
		say(o->p, "removexattr", o->a, "", path_removexattr(o->j, o->a, "user.t"),
			result(lremovexattr(o->ma, "user.t")));
}

static void run_op(struct pair *p)
{
	static void (*const ops[])(struct op *) = { op_mkdir, op_mkdir, op_create, op_create, op_create, op_mknod,
		op_symlink, op_unlink, op_unlink, op_rmdir, op_rmdir, op_link, op_link, op_rename, op_rename, op_rename,
		op_rename, op_chmod, op_truncate, op_setxattr, op_removexattr };
	struct op o = { .p = p };

	p->node = below(p, p->num);
	o.j = job_world_job(p->w, p->node);
	draw(p, o.a);
	draw(p, o.b);
	at(o.ma, p->model, o.a);
	at(o.mb, p->model, o.b);
	ops[below(p, sizeof(ops) / sizeof(ops[0]))](&o);
}

/* ---- everything, as a node shows it */

static void model_list(const char *path, char *out, size_t cap)
{
	struct dirent **found;
	int num = scandir(path, &found, NULL, alphasort);

	out[0] = '\0';
	for (int i = 0; i < num; i++) {
		size_t len = strlen(out);

		if (strcmp(found[i]->d_name, ".") != 0 && strcmp(found[i]->d_name, "..") != 0)
			snprintf(out + len, cap - len, "%s\n", found[i]->d_name);
		free(found[i]);
	}
	free(found);
}

static void compare_file(struct pair *p, struct job *j, const char *path, const struct stat *st, uint64_t *ret_ino)
{
	char model[PATH_BYTES], got[256], expected[256];
	struct stat mine = { 0 };
	int rc = path_stat(j, path, &mine);

	at(model, p->model, path);
	say(p, "stat", path, "", rc, 0);
	say(p, "mode of", path, "", (int)mine.st_mode, (int)st->st_mode);
	if (!S_ISDIR(st->st_mode)) {
		say(p, "links of", path, "", (int)mine.st_nlink, (int)st->st_nlink);
		say(p, "size of", path, "", (int)mine.st_size, (int)st->st_size);
	}
	if (S_ISLNK(st->st_mode)) {
		ssize_t len = readlink(model, expected, sizeof(expected) - 1);

		expected[len < 0 ? 0 : len] = '\0';
		say(p, "readlink", path, "", path_readlink(j, path, got, sizeof(got)), 0);
		say(p, "target of", path, got, strcmp(got, expected), 0);
		return;
	}
	ssize_t len = lgetxattr(model, "user.t", expected, sizeof(expected));
	rc = path_getxattr(j, path, "user.t", got, sizeof(got));
	say(p, "getxattr", path, "", rc, len < 0 ? -errno : (int)len);
	if (rc > 0 && len > 0)
		say(p, "value of", path, "", memcmp(got, expected, (size_t)len), 0);
	if (*ret_ino == 0)
		*ret_ino = mine.st_ino;
	say(p, "number of", path, "", mine.st_ino == *ret_ino ? 0 : 1, 0);
}

static void compare_dir(struct pair *p, const char *path)
{
	static char expected[LIST_BYTES], got[LIST_BYTES];
	char model[PATH_BYTES], copy[LIST_BYTES], *save = NULL;

	at(model, p->model, path);
	model_list(model, expected, sizeof(expected));
	snprintf(copy, sizeof(copy), "%s", expected);
	for (p->node = 0; p->node < p->num; p->node++) {
		say(p, "list", path, "", path_list(job_world_job(p->w, p->node), path, got, sizeof(got)), 0);
		say(p, "listing of", path, got, strcmp(got, expected), 0);
	}
	for (char *name = strtok_r(copy, "\n", &save); name; name = strtok_r(NULL, "\n", &save)) {
		char child[PATH_BYTES];
		struct stat st;
		uint64_t ino = 0;

		snprintf(child, sizeof(child), "%.400s%s%s", path, path[0] ? "/" : "", name);
		at(model, p->model, child);
		if (lstat(model, &st))
			bail_out(model);
		for (p->node = 0; p->node < p->num; p->node++)
			compare_file(p, job_world_job(p->w, p->node), child, &st, &ino);
		if (S_ISDIR(st.st_mode))
			compare_dir(p, child);
	}
}

/* ---- worlds */

static void run(const char *command)
{
	if (system(command) != 0)
		bail_out(command);
}

/* Something of each kind, in the backing directory and so in the model. */
static void furnish(struct pair *p)
{
	char command[1024];
	const char *b = job_world_backing(p->w);

	snprintf(command, sizeof(command),
		"cd '%s' && mkdir -p a/b/c b/c d && echo text > a/a && echo more > a/b/d && ln a/a c && ln -s to/d b/d && "
		"echo deep > a/b/c/a && setfattr -n user.t -v base a/a && setfattr -n user.t -v dir d && chmod 751 b && "
		"cp -a '%s' '%s'",
		b, b, p->model);
	run(command);
}

static void pair_start(struct pair *p, uint32_t num, uint64_t seed)
{
	*p = (struct pair){ .num = num, .random = seed * 0x9e3779b97f4a7c15ull + 88172645463325252ull };
	p->w = job_world_start(num);
	snprintf(p->model, sizeof(p->model), "%s-model", job_world_backing(p->w));
	furnish(p);
}

static void pair_stop(struct pair *p)
{
	job_world_stop(p->w);
}

/* restarts: now and then a daemon is killed, and another one takes over. */
static void test_like_one(uint32_t num, uint64_t seed, unsigned int ops, bool restarts)
{
	struct pair p;

	pair_start(&p, num, seed);
	compare_dir(&p, "");
	ok(p.wrong == 0, "%u nodes show the backing directory", num);
	for (unsigned int i = 0; i < ops && p.wrong == 0; i++) {
		run_op(&p);
		if (restarts && i % 20 == 19)
			job_world_restart(p.w, below(&p, num));
		if (i % 50 == 49)
			compare_dir(&p, "");
		if (p.wrong)
			tap_diag("after %u operations of seed %llu", i + 1, (unsigned long long)seed);
	}
	ok(p.wrong == 0, "%u nodes do as one file system does%s, seed %llu", num, restarts ? ", with restarts" : "",
		(unsigned long long)seed);
	pair_stop(&p);
}

/*
 * What is removed has been removed when the call returns, also for who is told of it late: messages between two nodes keep their order, but
 * node 0 and the names' servers hear of it from each other, too.
 */
static void test_just_emptied(void)
{
	const uint32_t num = 3, node = 1; /* which serves the directory's name, node 2 the file's */
	struct job_world *w = job_world_start(num);
	unsigned int removed = 0, tries = 120;
	char dir[] = "a", path[] = "./a", *file = path + 2;
	struct stat st;

	while (place_name(1, dir, num) != node)
		dir[0]++;

	path[0] = dir[0];
	path[1] = '/';
	loopback_set_delay(job_world_loopback(w), 0, 3000, 7);
	for (unsigned int i = 0; i < tries; i++) {
		struct job *j = job_world_job(w, node);

		int rc = path_mkdir(j, dir, 0700);
		if (rc == 0)
			rc = path_stat(j, dir, &st);
		for (*file = 'a'; place_name(st.st_ino, file, num) != 2;)
			++*file;
		if (rc == 0)
			rc = path_create(j, path, 0600, O_EXCL);
		if (rc == 0)
			rc = path_unlink(j, path);
		if (rc == 0)
			rc = path_rmdir(j, dir);
		if (rc < 0)
			tap_diag("%s, the %u. time: %s", path, i, strerror(-rc));
		removed += rc == 0;
		if (rc == -ENOTEMPTY && path_rmdir(j, dir) < 0)
			break;
	}
	ok(removed == tries, "a directory that has just become empty can be removed");
	job_world_stop(w);
}

/* ---- a directory that goes takes with it what was known of its names */

#define GONE_NAMES 200

static size_t known_names(struct job_world *w, uint32_t num)
{
	size_t known = 0;

	loopback_settle(job_world_loopback(w));
	for (uint32_t i = 0; i < num; i++)
		known += names_known(job_world_job(w, i)->names);
	return known;
}

static void test_gone_with_its_names(void)
{
	const uint32_t num = 2;
	struct job_world *w = job_world_start(num);
	unsigned int removed = 0;
	char text[512];

	snprintf(text, sizeof(text), "cd '%s' && mkdir old && cd old && seq %d | xargs touch", job_world_backing(w),
		GONE_NAMES);
	run(text);
	for (unsigned int i = 1; i <= GONE_NAMES; i++) {
		snprintf(text, sizeof(text), "old/%u", i);
		removed += path_unlink(job_world_job(w, i % num), text) == 0;
	}
	is_u64(removed, GONE_NAMES, "files that the backing directory has are removed");
	ok(known_names(w, num) >= GONE_NAMES, "the servers of their names know that those are hidden");
	is_int(path_rmdir(job_world_job(w, 0), "old"), 0, "their directory is removed, too");
	ok(known_names(w, num) < 5, "and nobody keeps them in mind");
	job_world_stop(w);
}

/* ---- a server of names that begins, and has not heard a part of what it is told */

#define LATE_NAMES 1500 /* two pages of an answer */

static void long_name(char name[RECORD_NAME_MAX + 1], unsigned int i)
{
	memset(name, 'n', RECORD_NAME_MAX);
	snprintf(name + RECORD_NAME_MAX - 8, 9, "%08u", i);
}

/* The next one from i on that a node serves. */
static unsigned int served_name(char name[RECORD_NAME_MAX + 1], uint32_t node, uint32_t num, unsigned int i)
{
	for (long_name(name, i); place_name(STATE_ROOT_INO, name, num) != node; long_name(name, ++i))
		;
	return i;
}

static void test_late_page(void)
{
	const uint32_t num = 3, server = 1, home = 2;
	const struct job_world_options opt = { .num = num, .timeout_usec = 3000000 };
	struct job_world *w = job_world_start_with(&opt);
	struct loopback *l = job_world_loopback(w);
	unsigned int made = 0, there = 0, at = 0;
	char name[RECORD_NAME_MAX + 1];
	struct stat st;

	for (unsigned int i = 0; i < LATE_NAMES; i++, at++) {
		at = served_name(name, server, num, at);
		made += path_create(job_world_job(w, home), name, 0600, O_EXCL) == 0;
	}
	is_u64(made, LATE_NAMES, "made");
	loopback_hold_reply(l, home, MESSAGE_NAME_SEND, 1);
	job_world_restart(w, server);
	loopback_await_held(l, home);
	usleep((useconds_t)opt.timeout_usec + 500000);
	loopback_let_go(l, home);
	at = 0;
	for (unsigned int i = 0; i < LATE_NAMES; i++, at++) {
		at = served_name(name, server, num, at);
		there += path_stat(job_world_job(w, 0), name, &st) == 0;
	}
	is_u64(there, LATE_NAMES, "a page of names whose answer came too late is told again");
	job_world_stop(w);
}

static bool is_given_up(struct job_world *w, uint32_t by, uint32_t node)
{
	struct peers_node n;

	return peers_nodes(job_world_peers(w, by), node, &n, 1) == 1 && n.gone;
}

/* A server that begins while a home is given up does not hear of its names; the home is back later. */
static void test_home_back_later(void)
{
	const uint32_t num = 3, server = 1, home = 2;
	struct job_world *w =
		job_world_start_with(&(struct job_world_options){ .num = num, .node_timeout_usec = 200000 });
	struct job *other = job_world_job(w, 0);
	char name[RECORD_NAME_MAX + 1], dir[RECORD_NAME_MAX + 1], path[2 * RECORD_NAME_MAX + 2];
	struct stat st, now;
	struct pointer at;
	int rc = -EIO;

	served_name(dir, server, num, 1000);
	is_int(path_mkdir(other, dir, 0700), 0, "a directory");
	is_int(path_stat(other, dir, &st), 0, "it is there");
	for (unsigned int i = 0, by = UINT32_MAX; by != server; i++) {
		long_name(name, i);
		by = place_name(st.st_ino, name, num);
	}
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	is_int(path_create(job_world_job(w, home), path, 0600, O_EXCL), 0, "with a file");
	served_name(name, server, num, 0);
	is_int(path_create(job_world_job(w, home), name, 0600, O_EXCL), 0, "a file");
	job_world_kill(w, home);
	while (!is_given_up(w, 0, home))
		usleep(10000);
	job_world_restart(w, server);
	while (!is_given_up(w, server, home))
		usleep(10000);
	is_int(path_stat(other, name, &now), -EIO, "its home is given up, and the server of its name begins anew");
	is_int(path_create(other, name, 0600, 0), -EIO, "so nobody gets the name");
	is_int(names_close_dir(job_world_job(w, server)->names, st.st_ino), -EIO,
		"nor does a directory go that may have a file there");
	is_int(held_lookup(other, STATE_ROOT_INO, dir, &at), 0, "but what is a directory is known to be one");
	job_world_revive(w, home);
	for (unsigned int i = 0; rc == -EIO && i < 1000; i++) {
		rc = path_stat(other, name, &st);
		usleep(10000);
	}
	is_int(rc, 0, "when the home is back its name is");
	is_int(path_create(other, name, 0600, O_EXCL), -EEXIST, "and nobody else gets it");
	served_name(name, server, num, 100);
	rc = -EIO;
	for (unsigned int i = 0; rc == -EIO && i < 1000; i++) {
		rc = path_create(other, name, 0600, O_EXCL);
		usleep(10000);
	}
	is_int(rc, 0, "what nobody has is free again");
	job_world_stop(w);
}

/* A name is in doubt while its home is given up: what cannot be removed there is there. */
static void test_home_given_up(void)
{
	const uint32_t num = 3, server = 1, home = 2;
	struct job_world *w =
		job_world_start_with(&(struct job_world_options){ .num = num, .node_timeout_usec = 200000 });
	struct job *other = job_world_job(w, 0);
	char name[RECORD_NAME_MAX + 1];
	struct stat st;
	int rc = -EIO;

	served_name(name, server, num, 0);
	is_int(path_create(job_world_job(w, home), name, 0600, O_EXCL), 0, "a file");
	job_world_kill(w, home);
	while (!is_given_up(w, 0, home) || !is_given_up(w, server, home))
		usleep(10000);
	is_int(path_stat(other, name, &st), -EIO, "its home is given up");
	is_int(path_unlink(other, name), -EIO, "it cannot be removed");
	is_int(path_stat(other, name, &st), -EIO, "so it is not gone");
	is_int(path_create(other, name, 0600, 0), -EIO, "nor is there another one");
	names_doubt(job_world_job(w, server)->names, STATE_ROOT_INO, name);
	is_int(path_stat(other, name, &st), -EIO, "nor when all are asked for it");
	is_int(path_create(other, name, 0600, 0), -EIO, "who are there");
	job_world_revive(w, home);
	for (unsigned int i = 0; rc == -EIO && i < 1000; i++) {
		rc = path_stat(other, name, &st);
		usleep(10000);
	}
	is_int(rc, 0, "when the home is back it is there");
	is_int(path_unlink(other, name), 0, "and can be removed");
	job_world_stop(w);
}

/* A server that has begun asks node 0 first; meanwhile another node is restarted, and asked, too. */
static void test_restarted_before_asked(void)
{
	const uint32_t num = 3, server = 1, other = 2;
	struct job_world *w = job_world_start_with(&(struct job_world_options){ .num = num, .timeout_usec = 5000000 });
	struct loopback *l = job_world_loopback(w);
	char name[RECORD_NAME_MAX + 1];

	served_name(name, server, num, 0);
	loopback_hold_reply(l, 0, MESSAGE_NAME_SEND, 0);
	job_world_restart(w, server);
	loopback_await_held(l, 0);
	loopback_set_deaf(l, other, true);
	job_world_restart(w, other);
	usleep(100000); /* it is being asked once more */
	loopback_let_go(l, 0);
	usleep(100000); /* and ought to be for the first time */
	loopback_set_deaf(l, other, false);
	is_int(path_create(job_world_job(w, 0), name, 0600, O_EXCL), 0,
		"a node that is restarted before a server asks it the first time does not hold that up");
	job_world_stop(w);
}

struct making {
	struct job *j;
	const char *name;
	int rc;
};

static void *make_name(void *arg)
{
	struct making *m = arg;

	m->rc = path_create(m->j, m->name, 0600, O_EXCL);
	return NULL;
}

/* The server of a name has given it, and is cut off until it is given up; it is back as it was. */
static void test_server_back(void)
{
	const uint32_t num = 3, server = 1;
	struct job_world *w = job_world_start_with(
		&(struct job_world_options){ .num = num, .timeout_usec = 5000000, .node_timeout_usec = 200000 });
	struct loopback *l = job_world_loopback(w);
	char name[RECORD_NAME_MAX + 1];
	struct making m = { job_world_job(w, 0), name, 0 };
	pthread_t thread;

	served_name(name, server, num, 0);
	loopback_hold_reply(l, server, MESSAGE_NAME_LOCK, 0);
	pthread_create(&thread, NULL, make_name, &m);
	loopback_await_held(l, server);
	loopback_cut(l, server);
	pthread_join(thread, NULL);
	ok(m.rc < 0, "the server of a name has given it, and is given up before that is heard: %s", strerror(-m.rc));
	loopback_let_go(l, server);
	loopback_assemble(l);
	loopback_settle(l);
	is_int(path_create(job_world_job(w, 2), name, 0600, O_EXCL), 0, "when it is back others get the name");
	job_world_stop(w);
}

/* ---- an exchange that its node does not live to finish */

#define PATIENCE_S 20

struct exchange {
	struct job *j;
	const char *from, *to;
	int rc;
};

static void *exchange(void *arg)
{
	struct exchange *e = arg;

	e->rc = job_rename(e->j, STATE_ROOT_INO, e->from, STATE_ROOT_INO, e->to, RENAME_EXCHANGE);
	return NULL;
}

static uint64_t ino_of(struct job_world *w, uint32_t node, const char *name)
{
	struct stat st;

	return path_stat(job_world_job(w, node), name, &st) == 0 ? st.st_ino : 0;
}

static bool has_link(struct job_world *w, uint32_t node, const char *name, uint64_t ino)
{
	struct state_name there;

	return state_lookup(store_state(job_world_store(w, node)), STATE_ROOT_INO, name, &there) == 0 &&
	       there.ino == ino;
}

/* Two names that node serves. */
static void names_of(uint32_t node, uint32_t num, char a[2], char b[2])
{
	for (a[0] = 'a'; place_name(STATE_ROOT_INO, a, num) != node;)
		a[0]++;
	for (b[0] = (char)(a[0] + 1); place_name(STATE_ROOT_INO, b, num) != node;)
		b[0]++;
}

/* From node 1, whose daemon dies when node 0 has linked its file under the other name: what node 0 says of that gets lost. */
static void die_exchanging(struct job_world *w, const char *from, const char *to, uint64_t other)
{
	struct loopback *l = job_world_loopback(w);
	struct exchange e = { .j = job_world_job(w, 1), .from = from, .to = to };
	pthread_t thread;

	loopback_settle(l);
	loopback_lose_at_reply(l, 0, MESSAGE_FILE_LINK);
	if (pthread_create(&thread, NULL, exchange, &e))
		bail_out("pthread_create");
	for (int i = 0; i < PATIENCE_S * 1000 && !has_link(w, 0, from, other); i++)
		usleep(1000);
	ok(has_link(w, 0, from, other), "it was half done");
	loopback_await_loss(l, 0);
	loopback_kill(l, 1);
	job_shut_down(job_world_job(w, 1));
	pthread_join(thread, NULL);
	ok(e.rc < 0, "and then its daemon died");
	job_world_kill(w, 1);
	job_world_revive(w, 1);
}

static void count_down(int status, const struct wire_msg *reply, void *arg)
{
	(void)status, (void)reply;
	atomic_fetch_sub((_Atomic(int) *)arg, 1);
}

/* Requests to a node that is not reached, until no more are taken. */
static void fill_up(struct peers *p, uint32_t node, _Atomic(int) *waiting)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_NAME_WHO);
	do
		atomic_fetch_add(waiting, 1);
	while (peers_call_async(p, node, &m, count_down, waiting) == 0);
	atomic_fetch_sub(waiting, 1);
	wire_msg_free(&m);
}

/* A name is in doubt while its home cannot be asked, since too much waits for that already. */
static void test_full(void)
{
	struct job_world *w = job_world_start(2);
	struct loopback *l = job_world_loopback(w);
	_Atomic(int) waiting = 0;
	char a[] = "a", b[] = "b";
	uint64_t ino;

	names_of(0, 2, a, b);
	ok(path_create(job_world_job(w, 1), a, 0600, O_EXCL) == 0 && (ino = ino_of(w, 0, a)),
		"a file of node 1, of whose name node 0 knows");
	loopback_settle(l);
	loopback_lose(l, LOOPBACK_ALL);
	fill_up(job_world_peers(w, 0), 1, &waiting);
	ok(waiting > 0, "%d requests wait, and there is no room for more", (int)waiting);
	held_doubt(job_world_job(w, 0), STATE_ROOT_INO, a);
	usleep(50000);
	loopback_assemble(l);
	ok(ino_of(w, 0, a) == ino && ino_of(w, 1, a) == ino, "its home is asked when there is room again");
	while (waiting)
		usleep(1000);
	job_world_stop(w);
}

static int make(struct job *j, const char *name, bool link)
{
	return link ? path_symlink(j, "somewhere", name) : path_create(j, name, 0600, O_EXCL);
}

static void test_half_exchanged(bool links)
{
	struct job_world *w = job_world_start(2);
	char a[] = "a", b[] = "b";
	uint64_t first, second;

	names_of(1, 2, a, b);
	ok(make(job_world_job(w, 0), a, links) == 0 && make(job_world_job(w, 1), b, links) == 0, "one of each node");
	first = ino_of(w, 0, a);
	second = ino_of(w, 0, b);
	ok(path_rename(job_world_job(w, 1), a, b, RENAME_EXCHANGE) == 0, "they change places");
	ok(ino_of(w, 0, a) == second && ino_of(w, 1, b) == first, "as both see it");
	die_exchanging(w, a, b, first);
	for (uint32_t node = 0; node < 2; node++) {
		uint64_t at_a = ino_of(w, node, a), at_b = ino_of(w, node, b);

		ok((at_a == second && at_b == first) || (at_a == first && at_b == second),
			"both files are there, each under one name");
		tap_diag("node %u: %" PRIx64 " and %" PRIx64 "; before %" PRIx64 " and %" PRIx64, node, at_a, at_b,
			second, first);
	}
	job_world_stop(w);
}

/* Two homes have a name when its server begins, and an operation that has nothing to do with it holds its lock. */
static void test_told_twice_while_locked(void)
{
	struct job_world *w = job_world_start(2);
	const struct core_how how = { .free = true };
	char a[] = "a", b[] = "b";
	struct core_entry e;

	names_of(1, 2, a, b);
	ok(make(job_world_job(w, 1), a, false) == 0 && make(job_world_job(w, 0), b, false) == 0, "one of each node");
	uint64_t first = ino_of(w, 0, a), second = ino_of(w, 0, b);
	is_int(core_link_at(job_world_core(w, 0), second, STATE_ROOT_INO, a, &how, &e), 0,
		"that of node 0 has the name of the other as well, below it");
	core_forget(job_world_core(w, 0), second, 1);
	struct name_ref ref = { .dir = STATE_ROOT_INO, .name = a };
	is_int(held_lock(job_world_job(w, 0), &ref, 1), 0, "which is locked");
	job_world_restart(w, 1);
	ok(ino_of(w, 0, b) == second, "its server has begun anew, and knows");
	held_unlock(job_world_job(w, 0), &ref);
	for (int i = 0; i < PATIENCE_S * 100 && has_link(w, 0, a, second); i++)
		usleep(10000);
	ok(!has_link(w, 0, a, second), "when the lock ends, one of them gives it up");
	ok(ino_of(w, 0, a) == first && ino_of(w, 0, b) == second, "and both are there");
	job_world_stop(w);
}

/* What a name leads to has lost it, and a file of another home has it: those two are exchanged then. */
static void test_stale_exchanged(void)
{
	struct job_world *w = job_world_start(2);
	const struct core_how how = { .free = true };
	char a[] = "a", b[] = "b";
	struct core_entry e;

	names_of(1, 2, a, b);
	ok(make(job_world_job(w, 0), a, false) == 0 && make(job_world_job(w, 1), b, false) == 0 &&
			make(job_world_job(w, 1), "other", false) == 0,
		"three files");
	uint64_t second = ino_of(w, 0, b), other = ino_of(w, 0, "other");
	is_int(core_remove_at(job_world_core(w, 0), STATE_ROOT_INO, a, false, &(struct core_how){ 0 }), 0,
		"one loses its name");
	is_int(core_link_at(job_world_core(w, 1), other, STATE_ROOT_INO, a, &how, &e), 0, "another one has it");
	core_forget(job_world_core(w, 1), other, 1);
	is_int(job_rename(job_world_job(w, 0), STATE_ROOT_INO, a, STATE_ROOT_INO, b, RENAME_EXCHANGE), 0,
		"which is found when it is to change places");
	ok(ino_of(w, 0, a) == second && ino_of(w, 1, b) == other, "and does");
	job_world_stop(w);
}

int main(void)
{
	/* More seeds, and each operation said, when somebody looks for trouble: JOB_NAMES_SEEDS=40 JOB_NAMES_TRACE=1. */
	const char *num = getenv("JOB_NAMES_SEEDS");
	uint64_t seeds = num ? strtoull(num, NULL, 10) : 3;

	test_just_emptied();
	test_gone_with_its_names();
	test_late_page();
	test_home_back_later();
	test_home_given_up();
	test_restarted_before_asked();
	test_server_back();
	test_full();
	test_told_twice_while_locked();
	test_stale_exchanged();
	test_half_exchanged(false);
	test_half_exchanged(true);
	for (uint64_t seed = 1; seed <= seeds; seed++)
		for (uint32_t nodes = 2; nodes <= 4; nodes++) {
			test_like_one(nodes, seed, 400, false);
			if (seed == 1 || num)
				test_like_one(nodes, seed + 1000, 200, true);
		}
	return done_testing();
}
