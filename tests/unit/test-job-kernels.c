/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What kernels are told when a directory is moved or removed: each forgets its name before any node's tree has the change. The one that the call
 * comes from has the directory above locked until the call returns, so it forgets all names at once.
 * And that all who have looked up a file that loses a name drop it, so that what nobody has any more is freed.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "format/index/state.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

#define NODES       3u
#define ROOT_INO    1u
#define TOLD_MAX    16u
#define PATIENCE_MS 60000

struct told {
	uint32_t node;
	char name[8]; /* "": all names */
	bool late;    /* some node had the change */
};

struct trial {
	struct job_world *w;
	pthread_mutex_t lock;
	const char *name; /* what the change will take away */
	uint64_t ino;
	unsigned int num;
	struct told told[TOLD_MAX];
};

static bool is_changed(struct trial *t)
{
	struct state_name e;
	bool changed = false;

	for (uint32_t node = 0; node < NODES; node++)
		changed |= state_lookup(store_state(job_world_store(t->w, node)), ROOT_INO, t->name, &e) < 0 ||
			   e.ino != t->ino;
	return changed;
}

static void note(struct trial *t, uint32_t node, const char *name)
{
	pthread_mutex_lock(&t->lock);
	if (t->name && t->num < TOLD_MAX) {
		struct told *told = &t->told[t->num++];

		*told = (struct told){ .node = node, .late = is_changed(t) };
		snprintf(told->name, sizeof(told->name), "%s", name);
	}
	pthread_mutex_unlock(&t->lock);
}

static void one_name(uint32_t node, uint64_t parent, const char *name, void *arg)
{
	if (parent == ROOT_INO)
		note(arg, node, name);
}

static void all_names(uint32_t node, void *arg)
{
	note(arg, node, "");
}

/* How often a node was told that in time; late ones count 100. */
static unsigned int times_told(const struct trial *t, uint32_t node, const char *name)
{
	unsigned int times = 0;

	for (unsigned int i = 0; i < t->num; i++)
		if (t->told[i].node == node && strcmp(t->told[i].name, name) == 0)
			times += t->told[i].late ? 100 : 1;
	return times;
}

static void begin(struct trial *t, const char *name)
{
	struct state_name e;

	if (state_lookup(store_state(job_world_store(t->w, 0)), ROOT_INO, name, &e) < 0)
		return; /* the rest says so */
	pthread_mutex_lock(&t->lock);
	t->name = name;
	t->ino = e.ino;
	t->num = 0;
	pthread_mutex_unlock(&t->lock);
}

/* names: one or two, "" for none. */
static void is_told(const struct trial *t, uint32_t asker, const char *first, const char *second, const char *what)
{
	bool right = true;

	for (uint32_t node = 0; node < NODES; node++) {
		right = right && times_told(t, node, "") == (node == asker);
		right = right && times_told(t, node, first) == (node != asker);
		right = right && (!*second || times_told(t, node, second) == (node != asker));
	}
	for (unsigned int i = 0; !right && i < t->num; i++)
		printf("# node %u: \"%s\"%s\n", t->told[i].node, t->told[i].name, t->told[i].late ? ", late" : "");
	ok(right, "%s", what);
}

static void run(struct trial *t, uint32_t asker)
{
	struct job *j = job_world_job(t->w, asker);

	printf("# asked for by node %u\n", asker);
	path_mkdir(j, "x", 0700);
	path_mkdir(j, "y", 0700);
	begin(t, "x");
	is_int(path_rename(j, "x", "z", 0), 0, "a directory is moved");
	is_told(t, asker, "x", "", "before that all kernels have forgotten its name, once");
	begin(t, "z");
	is_int(path_rename(j, "z", "y", RENAME_EXCHANGE), 0, "two change places");
	is_told(t, asker, "z", "y", "before that all kernels have forgotten both names");
	begin(t, "y");
	is_int(path_rename(j, "z", "y", 0), 0, "one takes the other's place");
	is_told(t, asker, "z", "y", "before that all kernels have forgotten both names");
	begin(t, "y");
	is_int(path_rmdir(j, "y"), 0, "a directory is removed");
	is_told(t, asker, "y", "", "before that all kernels have forgotten its name");
	t->name = NULL;
}

static double time_out(struct trial *t, uint32_t node, const char *name)
{
	struct job *j = job_world_job(t->w, node);
	struct core_entry e;

	if (job_lookup(j, ROOT_INO, name, &e) < 0)
		return -1;
	job_forget(j, e.ino, 1);
	return e.entry_timeout_sec;
}

static int announce(struct trial *t, pid_t pid, const char *from, const char *to)
{
	return job_announce(
		job_world_job(t->w, 1), pid, (uint64_t[2]){ ROOT_INO, ROOT_INO }, (const char *[2]){ from, to });
}

/* The kernel that a call comes from is not to have the names in the first place. */
static void run_announced(struct trial *t)
{
	struct job *j = job_world_job(t->w, 1);

	path_mkdir(j, "x", 0700);
	path_mknod(j, "f", 0600);
	ok(time_out(t, 1, "x") > 1, "the name of a directory is kept by the kernel");
	is_int(announce(t, 7, "f", "g"), 0, "who moves a file can do so at once");
	is_int(announce(t, 7, "x", "z"), -ESTALE, "who moves a directory comes twice");
	ok(time_out(t, 1, "x") == 0, "from then on the kernel keeps its name no more");
	ok(time_out(t, 2, "x") > 1, "another one does");
	is_int(announce(t, 8, "x", "z"), -ESTALE, "another thread comes twice, too");
	job_announce_end(j, 8);
	is_int(announce(t, 7, "x", "z"), 0, "the second time the call is let through");
	begin(t, "x");
	is_int(job_rename(j, ROOT_INO, "x", ROOT_INO, "z", 0), 0, "and done");
	is_int(times_told(t, 1, ""), 0, "nothing else is forgotten by that kernel");
	is_int(times_told(t, 0, "x") + times_told(t, 2, "x"), 2, "the others have forgotten the name before");
	ok(time_out(t, 1, "z") == 0, "until the call has ended");
	job_announce_end(j, 7);
	ok(time_out(t, 1, "z") > 1, "then the name is kept again");
	is_int(announce(t, 7, "z", "x"), -ESTALE, "the next call of that thread comes twice again");
	is_int(announce(t, 7, "z", ""), -ESTALE, "and what has not come again is forgotten for another one");
	is_int(announce(t, 7, "z", ""), 0, "which comes twice");
	job_announce_end(j, 7);
	is_int(announce(t, 0, "z", ""), 0, "a thread without a number cannot be known again");
	for (pid_t pid = 100; pid < 164; pid++)
		announce(t, pid, "z", "");
	is_int(announce(t, 164, "z", ""), 0, "nor one too many");
	begin(t, "z");
	is_int(job_rmdir(j, ROOT_INO, "z"), 0, "then the directory is removed at once");
	is_int(times_told(t, 1, ""), 1, "and that kernel forgets all names before");
	t->name = NULL;
}

/* ---- files */

struct drops { /* of one inode, by node */
	_Atomic(uint64_t) ino;
	_Atomic(unsigned int) at[NODES];
};
static struct drops drops;

static void drop(uint32_t node, uint64_t ino, void *arg)
{
	(void)arg;
	if (ino == drops.ino)
		drops.at[node]++;
}

/* All nodes have looked it up, and node 2 is about to take its name away. Its home is node 1. */
static uint64_t look_up_all(struct trial *t, const char *name)
{
	struct core_entry e = { 0 };

	for (uint32_t node = 0; node < NODES; node++)
		if (job_lookup(job_world_job(t->w, node), ROOT_INO, name, &e) < 0)
			tap_diag("node %u does not find %s", node, name);
	for (uint32_t node = 0; node < NODES; node++)
		drops.at[node] = 0;
	drops.ino = e.ino;
	return e.ino;
}

static void are_told(struct trial *t, const char *what)
{
	for (int i = 0; i < PATIENCE_MS && (!drops.at[0] || !drops.at[1]); i++)
		usleep(1000);
	loopback_settle(job_world_loopback(t->w));
	ok(drops.at[0] == 1 && drops.at[1] == 1 && drops.at[2] == 0, "%s: the kernels that have it drop it", what);
}

static void forget_all(struct trial *t, uint64_t ino)
{
	for (uint32_t node = 0; node < NODES; node++)
		job_forget(job_world_job(t->w, node), ino, 1);
}

static bool is_known(struct trial *t, uint64_t ino)
{
	struct inode in;

	return state_inode(store_state(job_world_store(t->w, 1)), ino, &in) == 0;
}

static bool is_freed(struct trial *t, uint64_t ino)
{
	for (int i = 0; i < PATIENCE_MS && is_known(t, ino); i++)
		usleep(1000);
	return !is_known(t, ino);
}

static void run_files(struct trial *t)
{
	struct job *home = job_world_job(t->w, 1), *asker = job_world_job(t->w, 2);

	for (int other_home = 0; other_home < 2; other_home++) {
		path_mknod(home, "old", 0600);
		uint64_t ino = look_up_all(t, "old");
		is_int(path_rename(asker, "old", "new", 0), 0, "a file is renamed");
		are_told(t, "of what is renamed");
		forget_all(t, ino);
		look_up_all(t, "new");
		path_mknod(other_home ? asker : home, "next", 0600);
		ok(path_rename(asker, "next", "new", 0) == 0, "and replaced, by a file of %s home",
			other_home ? "another" : "its");
		are_told(t, "of what is replaced");
		ok(is_known(t, ino), "its home keeps it until then");
		forget_all(t, ino);
		ok(is_freed(t, ino), "and frees it when they have");
		is_int(path_unlink(asker, "new"), 0, "removed");
	}
	path_mknod(home, "old", 0600);
	uint64_t ino = look_up_all(t, "old");
	is_int(path_unlink(asker, "old"), 0, "a file is removed");
	are_told(t, "of what is removed");
	forget_all(t, ino);
	ok(is_freed(t, ino), "and it is freed");
}

int main(void)
{
	struct trial t = { .lock = PTHREAD_MUTEX_INITIALIZER };

	t.w = job_world_start_with(&(struct job_world_options){
		.num = NODES, .invalidate_name = one_name, .invalidate_names = all_names, .drop = drop, .arg = &t });
	for (uint32_t asker = 0; asker < NODES; asker++)
		run(&t, asker);
	run_announced(&t);
	run_files(&t);
	job_world_stop(t.w);
	return done_testing();
}
