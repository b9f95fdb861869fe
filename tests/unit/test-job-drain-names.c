/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names of a job while a drain carries them, whose steps are done here by hand so that something can happen between any two: what was
 * removed is not listed, wherever the drain is with its file; and steps about directories that were removed do not part the nodes' trees.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/job/private.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES    3u
#define HOME     1u /* of the files */
#define ROUNDS   60
#define LOOKERS  4u
#define LIST_CAP 8192

static void backing_path(struct job_world *w, const char *name, char *out, size_t cap)
{
	snprintf(out, cap, "%s/%s", job_world_backing(w), name);
}

/* What an agent has made under a name; the step that it has not reported yet. */
static struct record made(struct job_world *w, const char *name, uint64_t ino)
{
	struct record placed = { .type = RECORD_PLACED, .ino = ino, .parent = 1 };
	char path[4096 + 8];
	struct stat st;

	backing_path(w, name, path, sizeof(path));
	if (mknod(path, S_IFREG | 0600, 0) < 0 || stat(path, &st) < 0)
		exit(1);
	snprintf(placed.name, sizeof(placed.name), "%s", name);
	placed.backing_dev = st.st_dev;
	placed.backing_ino = st.st_ino;
	return placed;
}

static struct record removed(struct job_world *w, const char *name, uint64_t ino)
{
	struct record rec = { .type = RECORD_REMOVED, .ino = ino, .parent = 1 };
	char path[4096 + 8];

	backing_path(w, name, path, sizeof(path));
	if (unlink(path) < 0)
		exit(1);
	snprintf(rec.name, sizeof(rec.name), "%s", name);
	return rec;
}

static int step(struct job_world *w, struct record rec)
{
	return core_drain_step(job_world_core(w, HOME), &rec);
}

static uint64_t create(struct job_world *w, const char *name)
{
	struct stat st;

	if (path_create(job_world_job(w, HOME), name, 0600, 0) < 0 || path_stat(job_world_job(w, HOME), name, &st) < 0)
		exit(1);
	return st.st_ino;
}

static bool lists(struct job_world *w, uint32_t node, const char *name)
{
	char names[LIST_CAP] = "\n", line[32];

	if (path_list(job_world_job(w, node), "", names + 1, sizeof(names) - 1) < 0)
		return true;
	snprintf(line, sizeof(line), "\n%s\n", name);
	return strstr(names, line) != NULL;
}

static unsigned int listers(struct job_world *w, const char *name)
{
	unsigned int num = 0;

	for (uint32_t n = 0; n < NODES; n++)
		num += lists(w, n, name);
	return num;
}

/* ---- removed while the agent publishes it */

static void test_removed_meanwhile(struct job_world *w)
{
	uint64_t ino = create(w, "y");

	core_session_begin(job_world_core(w, HOME), false);
	is_int(path_unlink(job_world_job(w, 0), "y"), 0, "a file is removed while a drain carries it");
	struct record placed = made(w, "y", ino);
	ok(listers(w, "y") == 0, "no node lists it before the drain has said that it has published it");
	is_int(step(w, placed), 0, "the drain says so");
	ok(listers(w, "y") == 0, "nor afterwards");
	core_session_end(job_world_core(w, HOME));
	ok(listers(w, "y") == 0, "nor at the end of the drain");
	is_int(step(w, removed(w, "y", ino)), 0, "it goes");
}

/* ---- listed while the agent removes it */

struct looking {
	struct job_world *w;
	_Atomic(uint32_t) lookers;
	_Atomic(unsigned int) round, wrong; /* an odd round: it has been removed */
	_Atomic(bool) over;
};

static void *look(void *arg)
{
	struct looking *l = arg;
	uint32_t node = l->lookers++ % NODES;

	while (!l->over) {
		unsigned int round = l->round;
		bool found = lists(l->w, node, "x");

		l->wrong += found && round % 2 == 1 && round == l->round;
	}
	return NULL;
}

static void *come_and_go(void *arg)
{
	struct looking *l = arg;

	for (unsigned int i = 0; i < ROUNDS; i++) {
		uint64_t ino = create(l->w, "x");

		step(l->w, made(l->w, "x", ino));
		if (path_unlink(job_world_job(l->w, HOME), "x") < 0)
			exit(1);
		l->round++;
		usleep(5000);
		step(l->w, removed(l->w, "x", ino));
		usleep(5000);
		l->round++;
	}
	l->over = true;
	return NULL;
}

static void test_listed_meanwhile(struct job_world *w)
{
	struct looking l = { .w = w };
	pthread_t thread[LOOKERS];

	loopback_set_delay(job_world_loopback(w), 0, 3000, 11);
	for (unsigned int i = 0; i < LOOKERS; i++)
		if (pthread_create(&thread[i], NULL, look, &l))
			exit(1);
	come_and_go(&l);
	for (unsigned int i = 0; i < LOOKERS; i++)
		pthread_join(thread[i], NULL);
	loopback_set_delay(job_world_loopback(w), 0, 0, 11);
	is_int(l.wrong, 0, "what was removed is not listed while the drain takes it away");
}

/* ---- steps about directories that have gone */

static uint64_t make_dir(struct job_world *w, const char *path)
{
	struct stat st;

	if (path_mkdir(job_world_job(w, 0), path, 0700) < 0 || path_stat(job_world_job(w, 0), path, &st) < 0)
		exit(1);
	return st.st_ino;
}

/* Nothing shows in it, though the agent has just put there what was removed meanwhile. */
static void test_emptied_dir(struct job_world *w)
{
	uint64_t dir = make_dir(w, "d"), ino = create(w, "d/y");
	struct record placed = { .type = RECORD_PLACED, .ino = dir, .parent = 1, .name = "d" };
	char path[4096 + 8];
	struct stat st;

	backing_path(w, "d", path, sizeof(path));
	if (mkdir(path, 0700) < 0 || stat(path, &st) < 0)
		exit(1);
	placed.backing_dev = st.st_dev;
	placed.backing_ino = st.st_ino;
	is_int(job_tree_record(job_world_job(w, 0), &placed), 0, "a drain makes a directory");
	core_session_begin(job_world_core(w, HOME), false);
	is_int(path_unlink(job_world_job(w, 0), "d/y"), 0, "a file in it is removed while a drain carries it");
	made(w, "d/y", ino);
	is_int(path_rmdir(job_world_job(w, 2), "d"), 0,
		"so is the directory, before the drain has said that it has published the file");
	core_session_end(job_world_core(w, HOME));
}

/* A directory goes that an agent has just made, and has not told of. */
static void test_dir_removed_meanwhile(struct job_world *w)
{
	char path[4096 + 8];
	struct stat st;

	make_dir(w, "e");
	core_session_begin(job_world_core(w, 0), false);
	is_int(path_rmdir(job_world_job(w, 1), "e"), 0, "a directory is removed while a drain makes it");
	backing_path(w, "e", path, sizeof(path));
	if (mkdir(path, 0700) < 0)
		exit(1);
	for (uint32_t n = 0; n < NODES; n++)
		is_int(path_stat(job_world_job(w, n), "e", &st), -ENOENT,
			"no node sees it before the drain has said that it has made it");
	ok(listers(w, "e") == 0, "nor lists it");
	if (rmdir(path) < 0)
		exit(1);
	core_session_end(job_world_core(w, 0));
	is_int(path_create(job_world_job(w, 2), "e", 0600, 0), 0, "a file can have its name");
	is_int(path_unlink(job_world_job(w, 2), "e"), 0, "...");
}

/* An agent has moved away what had the name in the backing directory. Of it; the step that it has not reported yet. */
static struct record parked(struct job_world *w, const char *name, uint64_t ino)
{
	struct record moved = {
		.type = RECORD_PLACED, .flags = RECORD_F_MOVED, .ino = ino, .parent = 1, .from_parent = 1
	};
	char from[4096 + 8], to[4096 + 8];
	struct stat st;

	snprintf(moved.name, sizeof(moved.name), ".cistern-park-%llu", (unsigned long long)ino);
	snprintf(moved.from_name, sizeof(moved.from_name), "%s", name);
	backing_path(w, name, from, sizeof(from));
	backing_path(w, moved.name, to, sizeof(to));
	if (rename(from, to) < 0 || stat(to, &st) < 0)
		exit(1);
	moved.backing_dev = st.st_dev;
	moved.backing_ino = st.st_ino;
	return moved;
}

/* As test_removed_meanwhile(), but another file had the name in the backing directory, and leaves it first. */
static void test_successor_removed(struct job_world *w)
{
	uint64_t first = create(w, "v"), second;

	is_int(step(w, made(w, "v", first)), 0, "a file is published");
	is_int(path_rename(job_world_job(w, 0), "v", "u", 0), 0, "it gets another name");
	second = create(w, "v");
	core_session_begin(job_world_core(w, HOME), false);
	is_int(path_unlink(job_world_job(w, 0), "v"), 0, "its successor is removed while a drain carries it");
	is_int(step(w, parked(w, "v", first)), 0, "the drain moves the first one away");
	struct record placed = made(w, "v", second);
	ok(listers(w, "v") == 0, "no node lists the name before the drain has said that it has published the second");
	is_int(step(w, placed), 0, "the drain says so");
	core_session_end(job_world_core(w, HOME));
	ok(listers(w, "v") == 0, "nor afterwards");
	is_int(step(w, removed(w, "v", second)), 0, "it goes");
}

/* The same of directories. */
static void test_successor_dir_removed(struct job_world *w)
{
	uint64_t first = make_dir(w, "r");
	struct record placed = { .type = RECORD_PLACED, .ino = first, .parent = 1, .name = "r" };
	char path[4096 + 8];
	struct stat st;

	backing_path(w, "r", path, sizeof(path));
	if (mkdir(path, 0700) < 0 || stat(path, &st) < 0)
		exit(1);
	placed.backing_dev = st.st_dev;
	placed.backing_ino = st.st_ino;
	is_int(job_tree_record(job_world_job(w, 0), &placed), 0, "a drain makes a directory");
	is_int(path_rename(job_world_job(w, 1), "r", "s", 0), 0, "it gets another name");
	make_dir(w, "r");
	core_session_begin(job_world_core(w, 0), false);
	is_int(path_rmdir(job_world_job(w, 1), "r"), 0, "its successor is removed while a drain makes it");
	struct record moved = parked(w, "r", first);
	is_int(job_tree_record(job_world_job(w, 0), &moved), 0, "the drain moves the first one away");
	if (mkdir(path, 0700) < 0)
		exit(1);
	for (uint32_t n = 0; n < NODES; n++)
		is_int(path_stat(job_world_job(w, n), "r", &st), -ENOENT,
			"no node sees the second before the drain has said that it has made it");
	ok(listers(w, "r") == 0, "nor lists it");
	if (rmdir(path) < 0)
		exit(1);
	core_session_end(job_world_core(w, 0));
}

/* What has a name in the backing directory, of whatever node: may another node's file replace it? */
static void test_occupied(struct job_world *w)
{
	uint64_t ino = create(w, "o");
	struct record placed = made(w, "o", ino), asked = placed;
	struct job *j = job_world_job(w, 2);

	asked.ino = ino + 1;
	is_int(job_drain_occupied(j, &asked), -ENOENT,
		"what no node has told of is somebody else's, or about to be told of");
	is_int(step(w, placed), 0, "a file is published");
	is_int(job_drain_occupied(j, &asked), -EEXIST, "what has its name is not replaced");
	is_int(path_rename(job_world_job(w, 0), "o", "p", 0), 0, "it gets another name");
	is_int(job_drain_occupied(j, &asked), -EEXIST, "nor is that, of which it is the only copy");
	is_int(path_unlink(job_world_job(w, 0), "p"), 0, "it is removed");
	is_int(job_drain_occupied(j, &asked), 0, "it may be replaced then");
	asked.backing_ino++;
	is_int(job_drain_occupied(j, &asked), -ENOENT, "but not another file in its place");
}

/* A file without a name that is in use is still known to its home; a home that cannot be asked may know anything. */
static void test_occupied_in_use(struct job_world *w)
{
	uint64_t ino = create(w, "u");
	struct record placed = made(w, "u", ino), asked = placed;
	struct job *j = job_world_job(w, 2);

	asked.ino = ino + 1;
	is_int(step(w, placed), 0, "a file is published");
	is_int(core_hold(job_world_core(w, HOME), ino), 0, "it is in use");
	is_int(path_unlink(job_world_job(w, HOME), "u"), 0, "and is removed");
	is_int(job_drain_occupied(j, &asked), 0, "it may be replaced, though somebody reads it");
	core_forget(job_world_core(w, HOME), ino, 1);
	is_int(job_drain_occupied(j, &asked), 0, "and when nobody does");
	loopback_end(job_world_loopback(w), 0);
	is_int(job_drain_occupied(j, &asked), -EBUSY, "but not when a node cannot say whether it has it");
}

/* ---- a name that is there when it is locked, and whose file is not when it is opened */

struct refusing {
	struct job *home;
	_Atomic(unsigned int) num;
};

static void refuse_openings(struct peers_request *rq, void *arg)
{
	struct refusing *r = arg;

	if (peers_msg(rq)->type != MESSAGE_SHARE_REGISTER) {
		serve_request(rq, r->home);
		return;
	}
	r->num++;
	peers_reply_status(rq, -ESTALE);
}

static void test_create_refused(void)
{
	struct job_world *w = job_world_start(NODES);
	struct refusing r = { .home = job_world_job(w, HOME) };
	struct job_file *file = NULL;
	struct core_open_reply reply;
	struct core_entry e;

	create(w, "f");
	peers_set_hooks(
		job_world_peers(w, HOME), &(struct peers_hooks){ .handle = refuse_openings,
						  .arg = &r,
						  .clock = state_clock(store_state(job_world_store(w, HOME))) });
	is_int(job_create_file(
		       job_world_job(w, 2), 1, "f", 0600, O_RDWR | O_CREAT, (struct core_cred){ 0 }, &e, &file, &reply),
		-ESTALE, "a file that is there and cannot be opened: who would have made it is told, each time");
	ok(r.num >= 8, "it was tried again and again: %u", r.num);
	job_world_stop(w);
}

/* Node 0 uses them still, as a process does whose working directory was removed; the others have forgotten them. */
static void test_gone_dirs(struct job_world *w)
{
	uint64_t outer = make_dir(w, "outer"), inner = make_dir(w, "outer/inner");
	struct record placed = { .type = RECORD_PLACED, .ino = outer, .parent = 1, .name = "outer", .backing_ino = 77 };
	struct record below = {
		.type = RECORD_PLACED, .ino = inner, .parent = outer, .name = "inner", .backing_ino = 78
	};
	struct record gone = { .type = RECORD_REMOVED, .ino = inner, .parent = outer, .name = "inner" };

	is_int(core_hold(job_world_core(w, 0), outer), 0, "a directory is in use");
	is_int(core_hold(job_world_core(w, 0), inner), 0, "so is one in it");
	is_int(path_rmdir(job_world_job(w, 2), "outer/inner"), 0, "both are removed by another node");
	is_int(path_rmdir(job_world_job(w, 2), "outer"), 0, "...");
	is_int(job_tree_record(job_world_job(w, 0), &placed), 0, "a drain that had made them says so: of one");
	is_int(job_tree_record(job_world_job(w, 0), &below), 0, "and of the other");
	is_int(job_tree_record(job_world_job(w, 0), &gone), 0, "it has gone");
	gone = (struct record){ .type = RECORD_REMOVED, .ino = outer, .parent = 1, .name = "outer" };
	is_int(job_tree_record(job_world_job(w, 0), &gone), 0, "both have");
	for (uint32_t n = 0; n < NODES; n++)
		ok(!lag_is(job_world_job(w, n)), "node %u serves names", n);
	make_dir(w, "after");
	ok(listers(w, "after") == NODES, "a directory is made, and all nodes have it");
	core_forget(job_world_core(w, 0), outer, 1);
	core_forget(job_world_core(w, 0), inner, 1);
}

static unsigned int owners(struct job_world *w, const char *name)
{
	unsigned int num = 0;

	for (uint32_t n = 0; n < NODES; n++)
		num += core_owns_backing(job_world_core(w, n), 1, name);
	return num;
}

/* A drain has made a directory that was removed since: whoever uses it still, no node keeps a name of it that no drain comes to remove. */
static void test_made_when_gone(struct job_world *w, uint32_t user)
{
	uint64_t dir = make_dir(w, "k");
	struct record placed = { .type = RECORD_PLACED, .ino = dir, .parent = 1, .name = "k", .backing_ino = 79 };
	struct record gone = { .type = RECORD_REMOVED, .ino = dir, .parent = 1, .name = "k" };

	is_int(core_hold(job_world_core(w, user), dir), 0, "a directory is in use");
	is_int(path_rmdir(job_world_job(w, 1), "k"), 0, "it is removed");
	is_int(job_tree_record(job_world_job(w, 0), &placed), user ? -ENOENT : 0,
		"node 0 decides whether the drain has made it for nothing");
	is_u64(owners(w, "k"), user ? 0 : 1, "none but node 0 has a name to be removed");
	if (!user)
		is_int(job_tree_record(job_world_job(w, 0), &gone), 0, "which it does");
	is_u64(owners(w, "k"), 0, "then none has");
	core_forget(job_world_core(w, user), dir, 1);
	for (uint32_t n = 0; n < NODES; n++)
		ok(!lag_is(job_world_job(w, n)), "node %u serves names", n);
}

int main(void)
{
	struct job_world *w = job_world_start(NODES);

	create(w, "first"); /* the root is in the tree */
	test_removed_meanwhile(w);
	test_listed_meanwhile(w);
	test_emptied_dir(w);
	test_dir_removed_meanwhile(w);
	test_successor_removed(w);
	test_successor_dir_removed(w);
	test_occupied(w);
	test_gone_dirs(w);
	test_made_when_gone(w, 0);
	test_made_when_gone(w, 2);
	test_occupied_in_use(w); /* the last: node 0 ends */
	job_world_stop(w);
	test_create_refused();
	return done_testing();
}
