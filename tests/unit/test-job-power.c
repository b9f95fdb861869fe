/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A node of a job loses power (docs/design/power-loss.md): one promise after the other, on simulated disks, which keep some of what was not
 * synced, as the seed has it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "format/place/place.h"
#include "format/store/store.h"
#include "tests/lib/job_drain.h"
#include "tests/lib/job_path.h"
#include "tests/lib/job_world.h"
#include "tests/lib/sim.h"
#include "tests/lib/tap.h"

#define NODES          3u
#define SEEDS          2u
#define ORDERS         8u   /* in which messages arrive */
#define PATIENCE       6000 /* times 10 ms */
#define MANY_CHANGES   1100 /* of the tree: more than are kept in memory */
#define LONG_TIMEOUT_S 120u

static struct job_world *begin(void)
{
	return job_world_start_with(&(struct job_world_options){ .num = NODES, .simulated = true });
}

static void lose_power(struct job_world *w, uint32_t node, uint64_t seed)
{
	job_world_lose_power(w, node, seed);
	job_world_revive(w, node);
}

static int sync_dir(struct job_world *w, uint32_t node)
{
	return job_fsync(job_world_job(w, node), 1, NULL, false);
}

enum how { CLOSED, SYNCED };

static int put(struct job_world *w, uint32_t node, const char *name, uint64_t off, const char *text, enum how how)
{
	struct path_file o;
	int rc = path_open(job_world_job(w, node), name, O_RDWR, &o);

	if (rc)
		return rc;
	ssize_t n = job_write(o.j, o.file, text, strlen(text), off);
	rc = n < 0 ? (int)n : n != (ssize_t)strlen(text) ? -EIO : 0;
	if (rc == 0 && how == SYNCED)
		rc = job_fsync(o.j, o.ino, o.file, false);
	int closed = path_close(&o);
	return rc ? rc : closed;
}

/* The bytes of a file, as a text, "." for zeros; "(-errno)" instead of what cannot be had. */
static const char *get(struct job_world *w, uint32_t node, const char *name)
{
	static char text[100];
	struct path_file o;
	ssize_t n = 0;
	int rc = path_open(job_world_job(w, node), name, O_RDONLY, &o);

	if (rc == 0) {
		n = job_read(o.j, o.file, text, sizeof(text) - 1, 0);
		rc = path_close(&o);
		rc = n < 0 ? (int)n : rc;
	}
	if (rc) {
		snprintf(text, sizeof(text), "(%d)", rc);
		return text;
	}
	size_t len = n > 0 ? (size_t)n : 0;
	for (size_t i = 0; i < len; i++)
		text[i] = text[i] ? text[i] : '.';
	text[len] = '\0';
	return text;
}

static void shows(struct job_world *w, const char *name, const char *expected)
{
	for (uint32_t n = 0; n < NODES; n++)
		is_str(get(w, n, name), expected, name);
}

/* Of a file whose home did nothing to make it durable. */
static void test_fsync_elsewhere(uint64_t seed)
{
	struct job_world *w = begin();

	is_int(path_create(job_world_job(w, 0), "a", 0644, 0), 0, "node 0 makes a file");
	is_int(put(w, 1, "a", 0, "from 1", SYNCED), 0, "node 1 writes and syncs it");
	lose_power(w, 0, seed);
	shows(w, "a", "from 1");
	is_int(path_create(job_world_job(w, 2), "b", 0644, 0), 0, "node 2 makes a file");
	is_int(put(w, 2, "b", 0, "from 2", CLOSED), 0, "and writes it");
	is_int(sync_dir(w, 1), 0, "node 1 syncs the directory");
	lose_power(w, 2, seed);
	is_int(strcmp(get(w, 0, "b"), "(-2)") != 0, 1, "the name is there");
	job_world_stop(w);
}

/* As by fsync. */
static void test_written_synced(uint64_t seed)
{
	struct job_world *w = begin();
	struct path_file o;

	is_int(path_create(job_world_job(w, 0), "a", 0644, 0), 0, "node 0 makes a file");
	is_int(path_open(job_world_job(w, 1), "a", O_RDWR | O_SYNC, &o), 0, "node 1 opens it with O_SYNC");
	is_int(job_write(o.j, o.file, "from 1", 6, 0), 6, "and writes it");
	lose_power(w, 0, seed);
	is_int(path_close(&o), 0, "closed");
	shows(w, "a", "from 1");
	job_world_stop(w);
}

/* Over a file of another home: the name has always one of the two. */
static void test_rename(uint64_t seed)
{
	struct job_world *w = begin();
	for (uint32_t n = 0; n < 2; n++) {
		is_int(path_create(job_world_job(w, n), n ? "b" : "a", 0644, 0), 0, "a file");
		is_int(put(w, n, n ? "b" : "a", 0, n ? "bb" : "aa", SYNCED), 0, "and syncs it");
	}
	is_int(path_rename(job_world_job(w, 2), "a", "b", 0), 0, "node 2 renames one over the other");
	is_int(store_sync(job_world_store(w, 1)), 0, "node 1 has it on its device that its file is replaced");
	lose_power(w, 0, seed);
	shows(w, "b", "aa");
	job_world_stop(w);
}

/* One of these two, and the same everywhere. */
static void shows_one(struct job_world *w, const char *name, const char *a, const char *b)
{
	char first[100];

	snprintf(first, sizeof(first), "%s", get(w, 0, name));
	ok(strcmp(first, a) == 0 || strcmp(first, b) == 0, "%s: %s", name, first);
	shows(w, name, first);
}

/* What was told and not synced: below it lies what counted before. */
static void test_lost_payload(uint64_t seed, uint32_t home, uint32_t other)
{
	struct job_world *w = begin();

	is_int(path_create(job_world_job(w, home), "f", 0644, 0), 0, "a file");
	is_int(put(w, home, "f", 0, "11111111", SYNCED), 0, "its home writes and syncs it");
	is_int(put(w, other, "f", 2, "2222", CLOSED), 0, "another node writes over that");
	shows(w, "f", "11222211");
	is_int(put(w, home, "f", 6, "33", SYNCED), 0, "the home behind that");
	shows(w, "f", "11222233");
	lose_power(w, other, seed);
	shows_one(w, "f", "11222233", "11111133");
	is_int(put(w, other, "f", 3, "44", SYNCED), 0, "the other node writes again, and syncs");
	lose_power(w, home, seed);
	shows_one(w, "f", "11244233", "11144133");
	job_world_stop(w);
}

static struct job_world *syncs_at_cuts; /* NULL: none does */

int __real_core_cut(struct core *c, uint64_t ino, uint64_t size);
int __wrap_core_cut(struct core *c, uint64_t ino, uint64_t size);

/* What a node has of a cut before its file, or layer, is cut is on its device then. */
int __wrap_core_cut(struct core *c, uint64_t ino, uint64_t size)
{
	for (uint32_t n = 0; syncs_at_cuts && n < NODES; n++)
		if (job_world_core(syncs_at_cuts, n) == c && store_sync(job_world_store(syncs_at_cuts, n)) < 0)
			abort(); /* in any thread: nothing is reported here */
	return __real_core_cut(c, ino, size);
}

/* What was cut off does not come back on a node that has forgotten it, also where the file's own home has; and what was written behind that stays. */
static void test_cut(uint64_t seed, uint32_t home, uint32_t loser, enum how how, bool syncs)
{
	struct job_world *w = begin();
	uint32_t cutter = (loser + 1) % NODES;

	syncs_at_cuts = syncs ? w : NULL;

	is_int(path_create(job_world_job(w, home), "f", 0644, 0), 0, "a file");
	for (uint32_t n = 0; n < NODES; n++)
		is_int(put(w, n, "f", 4 * n, (const char *[]){ "0000", "1111", "2222" }[n], SYNCED), 0, "part of it");
	is_int(path_truncate(job_world_job(w, cutter), "f", 2), 0, "it is cut");
	is_int(put(w, cutter, "f", 1, "x", how), 0, "written by who cut it");
	lose_power(w, loser, seed);
	is_int(path_truncate(job_world_job(w, cutter), "f", 11), 0, "made longer");
	shows(w, "f", "0x.........");
	is_int(put(w, loser, "f", 3, "y", SYNCED), 0, "and written behind that");
	is_int(path_truncate(job_world_job(w, cutter), "f", 3), 0, "cut again");
	is_int(put(w, cutter, "f", 2, "zz", SYNCED), 0, "written");
	lose_power(w, loser, seed + 1);
	shows(w, "f", "0xzz");
	is_int(path_truncate(job_world_job(w, cutter), "f", 8), 0, "made longer");
	shows(w, "f", "0xzz....");
	syncs_at_cuts = NULL;
	job_world_stop(w);
}

/* Do all nodes list the same, and find that, and nothing else? */
static bool agree_now(struct job_world *w)
{
	char list[200], first[200];
	bool same = true;

	for (uint32_t n = 0; same && n < NODES; n++) {
		same = path_list(job_world_job(w, n), "", list, sizeof(list)) == 0;
		if (n == 0)
			strcpy(first, list);
		same = same && strcmp(list, first) == 0;
		for (const char *name = "abcd"; same && *name; name++) {
			struct stat st;
			int rc = path_stat(job_world_job(w, n), (char[]){ *name, 0 }, &st);

			same = rc == (strchr(list, *name) ? 0 : -ENOENT);
		}
	}
	return same;
}

/* A moment after the node has come back. */
static bool agree(struct job_world *w)
{
	bool same = false;

	for (unsigned int i = 0; !same && i < PATIENCE; i++) {
		same = agree_now(w);
		if (!same)
			usleep(10000);
	}
	return same;
}

/* Of names that were not synced: what a node has forgotten was not done, for nobody. */
static void test_forgotten(uint64_t seed)
{
	struct job_world *w = begin();
	char list[200];

	is_int(path_create(job_world_job(w, 1), "a", 0644, 0), 0, "a file");
	is_int(path_create(job_world_job(w, 1), "b", 0644, 0), 0, "another one");
	is_int(sync_dir(w, 0), 0, "synced");
	is_int(path_rename(job_world_job(w, 0), "a", "c", 0), 0, "renamed");
	is_int(path_unlink(job_world_job(w, 2), "b"), 0, "removed");
	is_int(path_create(job_world_job(w, 1), "d", 0644, 0), 0, "made");
	lose_power(w, 1, seed);
	ok(agree(w), "what a node has forgotten is forgotten by all");
	for (const char *name = "abcd"; *name; name++)
		is_int(path_create(job_world_job(w, 2), (char[]){ *name, 0 }, 0644, 0), 0, "all can be opened or made");
	is_int(path_list(job_world_job(w, 0), "", list, sizeof(list)), 0, "listed");
	is_str(list, "a\nb\nc\nd\n", "and are there once");
	job_world_stop(w);
}

static void make_synced(struct job_world *w, uint32_t node, const char *name, const char *text)
{
	is_int(path_create(job_world_job(w, node), name, 0644, 0), 0, name);
	is_int(put(w, node, name, 0, text, SYNCED), 0, "written and synced");
}

enum taken { TAKEN_BY_CREATE, TAKEN_BY_RENAME, TAKEN_BY_LINK, TAKEN_BY_MKDIR, TAKEN_END };

static int take(struct job_world *w, enum taken how)
{
	struct job *j = job_world_job(w, 1);

	switch (how) {
	case TAKEN_BY_CREATE: return path_create(j, "a", 0644, O_EXCL);
	case TAKEN_BY_RENAME: return path_rename(j, "b", "a", RENAME_NOREPLACE);
	case TAKEN_BY_LINK: return path_link(j, "b", "a");
	default: return path_mkdir(j, "a", 0755);
	}
}

/* A file that was synced has a name, though another one, which lasts, got its old name while it was on its way to a new one. */
static void test_moved(uint64_t seed, enum taken how, bool by_link)
{
	struct job_world *w = begin();
	struct job *j = job_world_job(w, 0);

	make_synced(w, 2, "a", "moved");
	make_synced(w, 1, "b", "other");
	if (by_link) {
		is_int(path_link(j, "a", "c"), 0, "a second name");
		is_int(path_unlink(j, "a"), 0, "the first one goes");
	} else {
		is_int(path_rename(j, "a", "c", 0), 0, "renamed");
	}
	is_int(take(w, how), 0, "another one gets its name");
	for (uint32_t n = 0; n < 2; n++)
		is_int(store_sync(job_world_store(w, n)), 0,
			"which is on all devices but that of the first one's home");
	lose_power(w, 2, seed);
	ok(agree(w), "all agree on what there is");
	shows(w, "c", "moved");
	job_world_stop(w);
}

/* Each of two files that were synced has one name, whichever of them has changed places with the other. */
static void test_exchanged(uint64_t seed, uint32_t loser)
{
	struct job_world *w = begin();
	char list[200], a[20];

	make_synced(w, 1, "a", "one");
	make_synced(w, 2, "b", "two");
	is_int(path_rename(job_world_job(w, 0), "a", "b", RENAME_EXCHANGE), 0, "exchanged");
	for (uint32_t n = 0; n < NODES; n++)
		if (n != loser)
			is_int(store_sync(job_world_store(w, n)), 0, "synced");
	lose_power(w, loser, seed);
	ok(agree(w), "all agree on what there is");
	is_int(path_list(job_world_job(w, 0), "", list, sizeof(list)), 0, "listed");
	is_str(list, "a\nb\n", "both names are there");
	snprintf(a, sizeof(a), "%s", get(w, 0, "a"));
	ok(strcmp(a, "one") == 0 || strcmp(a, "two") == 0, "one is %s", a);
	shows(w, "b", strcmp(a, "one") == 0 ? "two" : "one");
	job_world_stop(w);
}

/* Does that node have a layer of a file of another one, or any place of one? */
static int note_kept(const struct inode *in, void *arg)
{
	*(bool *)arg |= in->flags & INODE_FOREIGN;
	return 0;
}

static bool keeps_nothing(struct job_world *w, uint32_t node)
{
	bool keeps = false;

	for (unsigned int i = 0; i < PATIENCE; i++, keeps = false) {
		if (state_each_inode(store_state(job_world_store(w, node)), note_kept, &keeps) == 0 && !keeps)
			return true;
		usleep(10000);
	}
	return false;
}

static int note_pieces(uint64_t ino, uint64_t extents, void *arg)
{
	(void)ino;
	*(uint64_t *)arg += extents;
	return 0;
}

static bool knows_no_place(struct job_world *w)
{
	for (unsigned int i = 0; i < PATIENCE; i++) {
		uint64_t pieces = 0;

		for (uint32_t n = 0; n < NODES; n++)
			if (state_each_shared(store_state(job_world_store(w, n)), note_pieces, &pieces) < 0)
				return false;
		if (pieces == 0)
			return true;
		usleep(10000);
	}
	return false;
}

/* A file that is back was never removed, for nobody: what others wrote to it is there. */
static void test_removed(uint64_t seed)
{
	struct job_world *w = begin();
	struct core_entry e;

	is_int(path_create(job_world_job(w, 0), "a", 0644, 0), 0, "node 0 makes a file");
	is_int(put(w, 0, "a", 0, "....", SYNCED), 0, "and writes it");
	is_int(put(w, 1, "a", 4, "tail", SYNCED), 0, "node 1, too; both sync");
	is_int(path_unlink(job_world_job(w, 2), "a"), 0, "it is removed");
	loopback_settle(job_world_loopback(w));
	is_int(store_sync(job_world_store(w, 1)), 0, "node 1 has on its device all that it knows");
	lose_power(w, 0, seed);
	ok(agree(w), "all agree on what there is");
	if (job_lookup(job_world_job(w, 2), 1, "a", &e) == 0) {
		job_forget(job_world_job(w, 2), e.ino, 1);
		shows(w, "a", "....tail");
		is_int(path_unlink(job_world_job(w, 2), "a"), 0, "it is removed again");
	}
	ok(keeps_nothing(w, 1), "nobody keeps what he wrote to it");
	ok(knows_no_place(w), "and no place of it is known");
	job_world_stop(w);
}

/* ---- the tree */

static int sync_node(struct job_world *w, uint32_t node)
{
	loopback_settle(job_world_loopback(w));
	return store_sync(job_world_store(w, node));
}

static bool all_see(struct job_world *w, const char *dir)
{
	struct core_entry e;

	for (uint32_t n = 0; n < NODES; n++) {
		if (job_lookup(job_world_job(w, n), 1, dir, &e))
			return false;
		job_forget(job_world_job(w, n), e.ino, 1);
	}
	return true;
}

/* Node 0 forgets what others have on their devices; with restarted, those others know it only from their journals, too. */
static void test_forgotten_tree(uint64_t seed, bool restarted)
{
	struct job_world *w = begin();
	char name[20];

	is_int(path_mkdir(job_world_job(w, 0), "first", 0755), 0, "node 0 makes a directory");
	is_int(store_sync(job_world_store(w, 0)), 0, "which is on its device");
	for (int i = 0; i < 5; i++) {
		snprintf(name, sizeof(name), "dir%d", i);
		is_int(path_mkdir(job_world_job(w, (uint32_t)i % NODES), name, 0755), 0, "one more");
		if (i == 2)
			is_int(sync_node(w, 2), 0, "node 2 has this one");
	}
	is_int(path_rename(job_world_job(w, 1), "dir0", "moved", 0), 0, "one is renamed");
	is_int(sync_node(w, 1), 0, "node 1 has all on its device");
	if (restarted)
		job_world_restart(w, 1);
	lose_power(w, 0, seed);
	is_int(path_mkdir(job_world_job(w, 2), "later", 0755), 0, "and one more is made behind that");
	ok(all_see(w, "later"), "all see it");
	for (int i = 1; i < 5; i++) {
		snprintf(name, sizeof(name), "dir%d", i);
		ok(all_see(w, name), "and those from before: %s", name);
	}
	ok(all_see(w, "moved"), "under their names");
	is_int(path_create(job_world_job(w, 1), "dir4/f", 0644, 0), 0, "a file is made in one of them");
	is_int(path_unlink(job_world_job(w, 0), "dir4/f"), 0, "node 0 removes it");
	is_int(path_rmdir(job_world_job(w, 2), "dir4"), 0, "and then it can be removed");
	job_world_stop(w);
}

static bool has_changes(struct job_world *w, uint32_t node, uint64_t upto)
{
	for (unsigned int i = 0; i < PATIENCE; i++) {
		if (state_tree_stamp(store_state(job_world_store(w, node))) >= upto)
			return true;
		usleep(10000);
	}
	return false;
}

/* More than is kept in memory: it is read in journals. */
static void test_long_forgotten_tree(void)
{
	struct job_world *w = begin();
	struct core_entry e;
	char name[20];
	int bad = 0;

	for (int i = 0; i < MANY_CHANGES; i++) {
		snprintf(name, sizeof(name), "dir%d", i);
		bad += path_mkdir(job_world_job(w, 1), name, 0755) != 0;
	}
	is_int(bad, 0, "node 1 makes many directories");
	is_int(sync_node(w, 1), 0, "which are on its device");
	lose_power(w, 0, 1);
	ok(has_changes(w, 0, state_tree_stamp(store_state(job_world_store(w, 1)))), "node 0 learns all of them again");
	bad = 0;
	for (int i = 0; i < MANY_CHANGES; i++) {
		snprintf(name, sizeof(name), "dir%d", i);
		bad += job_lookup(job_world_job(w, 0), 1, name, &e) != 0;
	}
	is_int(bad, 0, "and finds them");
	is_int(path_rmdir(job_world_job(w, 2), "dir0"), 0, "it goes on");
	job_world_stop(w);
}

static bool serves_no_names(struct job_world *w, uint32_t node)
{
	struct core_entry e;

	for (unsigned int i = 0; i < PATIENCE; i++) {
		int rc = job_lookup(job_world_job(w, node), 1, "dir", &e);

		if (rc == -EIO)
			return true;
		if (rc == 0)
			job_forget(job_world_job(w, node), e.ino, 1);
		usleep(10000);
	}
	return false;
}

static int64_t now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* Of this node 1 is, or has been, the server, or was asked by who is: it says nothing, or says that it does not. */
static void others_go_on(struct job_world *w, const char *round)
{
	int64_t begun = now_s();
	int made = 0, refused = 0;
	struct core_entry e;
	char name[20];

	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "%s%d", round, i);
		int rc = path_mkdir(job_world_job(w, 2), name, 0755);

		made += rc == 0;
		refused += rc == -EIO;
	}
	ok(made > 0 && refused > 0 && made + refused == 20, "others go on, but for names that wait for it: %d of 20",
		made);
	ok(now_s() - begun < LONG_TIMEOUT_S, "which are refused, and do not wait");
	is_int(job_lookup(job_world_job(w, 1), 1, "dir", &e), -EIO, "it serves no names for all that");
}

/* Until then lookups wait for nodes 0 and 1. */
static void await_servers(struct job_world *w)
{
	char name[20];
	struct stat st;

	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "any%d", i);
		is_int(path_stat(job_world_job(w, 2), name, &st), -ENOENT, name);
	}
}

/* Node 0 makes files that node 2 is the server of, and may forget them. */
static void use_doubtful(struct job_world *w, bool made)
{
	int64_t begun = now_s();
	char name[20];
	struct stat st;

	for (int i = 0, num = 0; num < 8; i++) {
		snprintf(name, sizeof(name), "file%d", i);
		if (place_name(STATE_ROOT_INO, name, NODES) != 2)
			continue;
		num++;
		int rc = made ? path_stat(job_world_job(w, 2), name, &st)
			      : path_create(job_world_job(w, 0), name, 0644, 0);
		ok(rc == 0 || (made && rc == -EIO), "%s: %d", name, rc);
	}
	ok(now_s() - begun < LONG_TIMEOUT_S, "nobody waits for a name in doubt that node 1 may have");
}

/*
 * A change that node 0 has lost, and that cannot be had from who has it: that node serves no names, however many changes there have been since,
 * and whichever of the two daemons is another one.
 */
static void test_unlearnable_tree(void)
{
	struct job_world *w = job_world_start_with(&(struct job_world_options){
		.num = NODES, .simulated = true, .timeout_usec = LONG_TIMEOUT_S * 1000000u });
	struct record rec = {
		.type = RECORD_DRAINED, .flags = RECORD_F_TREE | RECORD_F_META_ONLY, .ino = STATE_ROOT_INO
	};

	is_int(path_mkdir(job_world_job(w, 1), "dir", 0755), 0, "node 1 makes a directory");
	await_servers(w);
	use_doubtful(w, false);
	loopback_settle(job_world_loopback(w));
	rec.stamp = state_tree_stamp(store_state(job_world_store(w, 1))) + 3;
	is_int(store_commit(job_world_store(w, 1), &rec), 0, "node 1 has a change, and not those before it");
	lose_power(w, 0, 1);
	ok(serves_no_names(w, 1), "it serves no names");
	use_doubtful(w, true);
	others_go_on(w, "first");
	job_world_restart(w, 1);
	ok(serves_no_names(w, 1), "nor does its next daemon");
	others_go_on(w, "second");
	job_world_restart(w, 0);
	others_go_on(w, "third");
	job_world_stop(w);
}

/* Whose daemon dies before it has told. Whether the next one has lost power may be known before or behind that it has no such file. */
static void test_removed_untold(uint64_t seed, bool open)
{
	struct job_world *w = begin();
	struct path_file o;

	is_int(path_create(job_world_job(w, 0), "a", 0644, 0), 0, "node 0 makes a file");
	is_int(put(w, 1, "a", 0, "layer", CLOSED), 0, "node 1 writes it");
	if (open)
		is_int(path_open(job_world_job(w, 1), "a", O_RDWR, &o), 0, "node 1 has it open");
	is_int(path_unlink(job_world_job(w, 0), "a"), 0, "it is removed");
	loopback_set_delay(job_world_loopback(w), 0, 20000, seed);
	job_world_kill(w, 0);
	job_world_lose_power(w, 2, seed);
	job_world_revive(w, 0);
	job_world_revive(w, 2);
	if (open)
		(void)path_close(&o);
	ok(keeps_nothing(w, 1), "node 1 finds that its layer is of no use");
	ok(knows_no_place(w), "and no place of it is known");
	job_world_stop(w);
}

struct said {
	char text[1024];
};

static void take_text(const char *text, void *arg)
{
	struct said *s = arg;

	strncat(s->text, text, sizeof(s->text) - strlen(s->text) - 1);
}

/* What a node says that somebody has to look after becomes that, or, with "", nothing. */
static bool complains(struct job_world *w, uint32_t node, const char *of)
{
	struct said s;

	for (unsigned int i = 0; i < PATIENCE; i++) {
		s.text[0] = '\0';
		job_troubles(job_world_job(w, node), take_text, &s);
		if (*of ? strstr(s.text, of) != NULL : s.text[0] == '\0')
			return true;
		usleep(10000);
	}
	tap_diag("node %u says: %s", node, s.text);
	return false;
}

/* A device fails, and its node cannot take what another one has lost: who waits for that says so, and goes on when it is mended. */
static void test_sick_witness(void)
{
	struct job_world *w = begin();

	is_int(path_create(job_world_job(w, 0), "a", 0644, 0), 0, "node 0 makes a file");
	is_int(put(w, 1, "a", 0, "from 1", SYNCED), 0, "node 1 writes and syncs it");
	is_int(put(w, 2, "a", 6, ", from 2", SYNCED), 0, "node 2, too");
	sim_stop_at_sync(job_world_sim(w, 1), 1);
	is_int(put(w, 1, "a", 0, "from 1", SYNCED), -EIO, "its device fails");
	lose_power(w, 0, 1);
	ok(complains(w, 0, "node 1"), "node 0 says that node 1 does not take what it has lost");
	ok(complains(w, 0, "look after the device"), "and what to do");
	lose_power(w, 1, 1);
	ok(complains(w, 0, ""), "there is nothing to complain of when its device works again");
	shows(w, "a", "from 1, from 2");
	job_world_stop(w);
}

/* A directory whose name node 0 serves, also while node 1 is not there. Waits until nobody waits for that. */
static int make_dir(struct job_world *w, uint32_t node, const char *prefix, char name[20])
{
	static unsigned int number;
	int rc = -EIO;

	do
		snprintf(name, 20, "%s%u", prefix, number++);
	while (place_name(STATE_ROOT_INO, name, NODES) != 0);
	for (unsigned int i = 0; i < PATIENCE && rc != 0 && rc != -EEXIST; i++) {
		rc = path_mkdir(job_world_job(w, node), name, 0755);
		usleep(rc ? 10000 : 0);
	}
	return rc == -EEXIST ? 0 : rc;
}

/* Needs no name that only a node may have that is not there. */
static int change_dir(struct job_world *w, uint32_t node, const char *name)
{
	static unsigned int number;
	int rc = -EIO;

	number++;
	for (unsigned int i = 0; i < PATIENCE && rc != 0; i++) {
		rc = path_chmod(job_world_job(w, node), name, 0700 | number % 0100);
		usleep(rc ? 10000 : 0);
	}
	return rc;
}

static uint64_t tree_of(struct job_world *w, uint32_t node)
{
	return state_tree_stamp(store_state(job_world_store(w, node)));
}

#define LOST 3u /* changes */

/* Nodes 0 and 2 lose the last changes with their power, and node 1, which has them, is not there. What is kept, and what the last one has made. */
static struct job_world *lose_tree(char kept[20], char last[20], uint64_t *ret_had)
{
	struct job_world *w = job_world_start_with(
		&(struct job_world_options){ .num = NODES, .simulated = true, .node_timeout_usec = 300000 });

	is_int(make_dir(w, 1, "dir", kept), 0, "a directory");
	for (uint32_t n = 0; n < NODES; n++)
		is_int(sync_node(w, n), 0, "is on all devices");
	for (unsigned int i = 0; i < LOST; i++)
		is_int(make_dir(w, 1, "lost", last), 0, "node 1 makes another one");
	*ret_had = tree_of(w, 1);
	is_int(sync_node(w, 1), 0, "which is on its device");
	job_world_kill(w, 1);
	job_world_lose_power(w, 2, 1);
	lose_power(w, 0, 1);
	job_world_revive(w, 2);
	ok(tree_of(w, 0) + 1 < *ret_had, "others have lost it");
	return w;
}

/*
 * So they make others of the same numbers. Node 1 is back with fewer of them than node 0 has by then, with as many, or with more: its tree is
 * another one, also for its next daemon and node 0's.
 */
static void test_other_tree(int more)
{
	struct state_name there;
	char lost[20], kept[20];
	uint64_t had;
	struct job_world *w = lose_tree(kept, lost, &had);

	while (tree_of(w, 0) < had + (uint64_t)(int64_t)more)
		if (change_dir(w, 2, kept) < 0)
			abort();
	job_world_revive(w, 1);
	ok(serves_no_names(w, 1), "node 1 has another tree, so it serves no names");
	ok(complains(w, 0, "which node 0 has lost with its power"), "node 0 says why");
	job_world_kill(w, 1);
	job_world_kill(w, 0);
	job_world_revive(w, 0);
	job_world_revive(w, 1);
	ok(serves_no_names(w, 1), "nor does its next daemon, when node 0's is another one, too");
	job_world_kill(w, 1); /* who has just begun to serve names needs its answer, or that it is given up */
	is_int(change_dir(w, 2, kept), 0, "the others go on without it");
	is_int(state_lookup(store_state(job_world_store(w, 0)), STATE_ROOT_INO, lost, &there), -ENOENT,
		"and have nothing of the other tree");
	job_world_stop(w);
}

/* ---- drains */

enum miss { MISS_BY_POWER, MISS_BY_DEATH, MISS_SYNC, MISS_END };

static uint64_t ino_of(struct job_world *w, const char *name)
{
	struct stat st = { 0 };

	is_int(path_stat(job_world_job(w, 0), name, &st), 0, name);
	return st.st_ino;
}

/* What the others drop, and the loser does not, or forgets. If that is the home, nobody hears that it has published the file. */
static void drop(struct job_world *w, const struct job_drain *d, uint32_t loser, enum miss miss, uint64_t seed)
{
	bool heard = loser != d->home || miss == MISS_SYNC;

	if (miss != MISS_SYNC)
		job_world_kill(w, loser);
	for (uint32_t n = 0; n < NODES; n++)
		if (heard && (n != loser || miss == MISS_SYNC))
			is_int(job_drain_drop(d, n), 0, "what was carried is dropped");
	if (miss == MISS_SYNC)
		job_world_kill(w, loser);
	if (miss != MISS_BY_DEATH)
		job_world_lose_power(w, loser, seed);
	job_world_revive(w, loser);
}

/*
 * What a node wrote, and another one over that; both are drained. The first one has not dropped its part when its daemon dies, or forgets that with its
 * power: it must not come back over the other's, for nobody, nor with the next drain.
 */
static void test_dropped(uint64_t seed, uint32_t home, uint32_t loser, enum miss miss)
{
	struct job_world *w = begin();
	uint32_t other = loser == 2 ? 1 : 2;
	struct job_drain d;

	tap_diag("seed %llu, home %u, node %u misses it, %d", (unsigned long long)seed, home, loser, (int)miss);
	make_synced(w, home, "f", "00000000");
	is_int(put(w, loser, "f", 0, "11111111", seed % 2 ? SYNCED : CLOSED), 0, "a node writes");
	is_int(put(w, other, "f", 2, "2222", SYNCED), 0, "another one over that");
	is_int(job_drain_carry(w, NODES, ino_of(w, "f"), &d), 0, "it is drained");
	is_int(job_drain_publish(&d), 0, "and published");
	drop(w, &d, loser, miss, seed);
	shows(w, "f", "11222211");
	is_int(put(w, other, "f", 7, "33", SYNCED), 0, "more is written");
	shows(w, "f", "112222133");
	is_int(job_drain_carry(w, NODES, ino_of(w, "f"), &d), 0, "it is drained again");
	is_int(job_drain_publish(&d), 0, "and published");
	for (uint32_t n = 0; n < NODES; n++)
		is_int(job_drain_drop(&d, n), 0, "and dropped");
	shows(w, "f", "112222133");
	lose_power(w, loser, seed + 1);
	shows(w, "f", "112222133");
	job_world_stop(w);
}

int main(void)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		for (enum miss miss = 0; miss < MISS_END; miss++)
			for (uint32_t home = 0; home < NODES; home++)
				for (uint32_t loser = 0; loser < NODES; loser++)
					test_dropped(seed, home, loser, miss);
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		test_fsync_elsewhere(seed);
		test_written_synced(seed);
		test_rename(seed);
		test_lost_payload(seed, 0, 1);
		test_lost_payload(seed, 1, 2);
		for (uint32_t n = 0; n < NODES; n++)
			for (int syncs = 0; syncs < 2; syncs++)
				test_cut(seed, 0, n, n || syncs ? CLOSED : SYNCED, syncs);
		test_forgotten(seed);
		test_removed(seed);
		test_forgotten_tree(seed, false);
		test_forgotten_tree(seed, true);
		for (enum taken how = 0; how < TAKEN_END; how++)
			test_moved(seed, how, seed == 1);
		for (uint32_t loser = 1; loser < NODES; loser++)
			test_exchanged(seed, loser);
	}
	for (uint64_t seed = 1; seed <= ORDERS; seed++)
		test_removed_untold(seed, seed % 2 == 0);
	test_long_forgotten_tree();
	test_unlearnable_tree();
	test_sick_witness();
	for (int more = -1; more <= 1; more++)
		test_other_tree(more);
	return done_testing();
}
