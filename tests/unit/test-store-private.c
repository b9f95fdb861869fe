/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Private segments of a store that lost power, or its daemon: what was promised is there, and what was not is said.
 */
#include "format/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/bench.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"

static char work[] = "/tmp/cistern-test-private-XXXXXX";

static struct inode make_private(struct store *s, const char *name)
{
	struct record rec = { .type = RECORD_CREATE,
		.parent = STATE_ROOT_INO,
		.mode = S_IFREG | 0644,
		.ino = state_new_ino(store_state(s)) };
	struct inode in = { 0 };

	strcpy(rec.name, name);
	ok(segment_create_private(store_segments(s), &rec.segment) == 0 && store_commit(s, &rec) == 0 &&
			state_inode(store_state(s), rec.ino, &in) == 0,
		"a private file: %s", name);
	return in;
}

static int seal(struct store *s, const struct inode *in, uint32_t bytes)
{
	struct record_range range = { .len = bytes };
	struct record rec = { .type = RECORD_SEAL,
		.ino = in->ino,
		.segment = in->private_segment,
		.size = bytes,
		.ranges = &range,
		.num_ranges = 1 };

	return store_commit(s, &rec);
}

/* Power goes, and the store is opened again. */
static bool bench_lose_power(struct bench *b, uint8_t boot[16], uint64_t seed, struct state_report *ret)
{
	struct cistern_error err = { 0 };

	store_abandon(b->s);
	if (sim_power_cut(b->sim, seed) != 0)
		abort();
	boot[1]++;
	b->opt.boot_id = boot;
	return ok(store_open(b->dir, &b->opt, &b->s, ret, &err) == 0, "the store opens %s", err.text);
}

/* Is the file as it was made, or can it be used at least, or not there at all? */
static bool usable(struct store *s, const struct inode *made, bool *ret_there)
{
	uint64_t size, allocated;
	struct inode in;
	int64_t mtime;
	int r = state_inode(store_state(s), made->ino, &in);

	*ret_there = r == 0;
	if (r)
		return r == -ENOENT;
	if (in.flags & INODE_PRIVATE)
		return segment_private_size(store_segments(s), in.private_segment, &size, &allocated, &mtime) == 0 &&
		       segment_sync_private(store_segments(s), in.private_segment) == 0;
	return bench_reads(s, in.ino, 0, in.size, 0);
}

struct named {
	struct store *s;
	uint64_t num;
	bool good;
};

static int is_usable(const char *path, const struct inode *in, void *arg)
{
	struct named *n = arg;
	struct state_name found;
	int fd = in->flags & INODE_PRIVATE ? segment_open_fd(store_segments(n->s), in->private_segment, false) : -1;

	n->num++;
	n->good = n->good && state_lookup(store_state(n->s), STATE_ROOT_INO, path, &found) == 0 &&
		  found.ino == in->ino && (fd >= 0 || !(in->flags & INODE_PRIVATE));
	if (fd >= 0)
		close(fd);
	return 0;
}

/* By who may not write: what is there can be read, and exactly those files are named of which something is lost. */
static bool readable(struct bench *b, const uint8_t *boot, const struct inode made[3], uint64_t *ret_lost)
{
	struct store_options opt = b->opt;
	struct state_report report = { 0 };
	struct cistern_error err = { 0 };
	struct named n = { .good = true };
	uint64_t size, allocated;
	struct inode in;
	int64_t mtime;

	opt.mode = STORE_READ_ONLY;
	opt.boot_id = boot;
	if (!ok(store_open(b->dir, &opt, &n.s, &report, &err) == 0, "opened to be read %s", err.text))
		return false;
	for (int i = 0; i < 3; i++) {
		if (state_inode(store_state(n.s), made[i].ino, &in) != 0)
			continue;
		n.good = n.good &&
			 (in.flags & INODE_PRIVATE ? segment_private_size(store_segments(n.s), in.private_segment,
							     &size, &allocated, &mtime) == 0 &&
							     mtime >= 0
						   : bench_reads(n.s, in.ino, 0, in.size, 0));
	}
	ok(state_each_lost(store_state(n.s), is_usable, &n) == 0 && n.num == report.lost_private,
		"%llu files of which something is lost are named", (unsigned long long)n.num);
	*ret_lost = n.num;
	store_close(n.s);
	return n.good;
}

/* The journal reaches the device before the names of private segments, which nobody had synced. */
static void test_lost_private(void)
{
	uint64_t lost = 0, kept = 0;

	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct state_report report = { 0 };
		uint8_t boot[16] = { 1 };
		struct inode in[3];
		struct bench b;
		bool there, good;

		if (!bench_begin(&b, 1 << 20, 0) || !bench_lose_power(&b, boot, seed, &report))
			return;
		ok(bench_root(b.s) == 0 && store_sync(b.s) == 0, "a root");
		in[0] = make_private(b.s, "synced");
		is_int(segment_sync_private(store_segments(b.s), in[0].private_segment) | store_sync(b.s), 0, "synced");
		in[1] = make_private(b.s, "private");
		in[2] = make_private(b.s, "sealed");
		is_int(seal(b.s, &in[2], 10000), 0, "sealed");
		store_abandon(b.s);
		b.s = NULL;
		if (sim_power_cut(b.sim, seed) != 0)
			abort();
		boot[1]++;
		uint64_t told = 0;
		ok(readable(&b, boot, in, &told), "seed %llu: each file can be read", (unsigned long long)seed);
		b.opt.boot_id = boot;
		struct cistern_error err = { 0 };
		if (!ok(store_open(b.dir, &b.opt, &b.s, &report, &err) == 0, "the store opens %s", err.text))
			return;
		is_u64(report.lost_private, told, "the same files are made anew");
		lost += report.lost_private;
		good = usable(b.s, &in[0], &there) && there;
		for (int i = 1; i < 3; i++) {
			good = good && usable(b.s, &in[i], &there);
			kept += there;
		}
		ok(good, "seed %llu: each file can be used", (unsigned long long)seed);
		if (!bench_lose_power(&b, boot, seed, &report))
			return;
		for (int i = 0; i < 3; i++)
			good = good && usable(b.s, &in[i], &there);
		ok(good, "after one more loss of power, too");
		bench_end(&b);
	}
	ok(lost > 0 && kept > 0, "segments were lost with their names: %llu", (unsigned long long)lost);
}

static bool is_missing(struct bench *b, uint32_t segment)
{
	struct io_file *file = NULL;
	char path[40];
	int r;

	snprintf(path, sizeof(path), "segment/%08u.prv", segment);
	r = io_open(b->io, path, IO_READ, &file);
	io_close(file);
	return r == -ENOENT;
}

/* A synced file whose segment is missing after a loss of power has not been lost with it: that is damage, and no empty file. */
static void test_missing_private(void)
{
	struct state_report report = { 0 };
	uint8_t boot[16] = { 1 };
	struct inode in;
	struct bench b;
	char path[40];
	bool there;

	if (!bench_begin(&b, 1 << 20, 0) || !bench_lose_power(&b, boot, 1, &report))
		return;
	ok(bench_root(b.s) == 0 && store_sync(b.s) == 0, "a root");
	in = make_private(b.s, "synced");
	is_int(segment_sync_private(store_segments(b.s), in.private_segment) | store_sync(b.s), 0, "synced");
	store_abandon(b.s);
	snprintf(path, sizeof(path), "segment/%08u.prv", in.private_segment);
	is_int(b.io->ops->unlink(b.io, path) | b.io->ops->sync_dir(b.io, "segment"), 0, "its segment goes");
	boot[1]++;
	b.opt.boot_id = boot;
	if (!ok(store_open(b.dir, &b.opt, &b.s, &report, NULL) == 0 && report.rebooted,
		    "the store opens, after a boot"))
		return;
	is_u64(report.lost_private, 0, "nothing is said to have been lost with the power");
	ok(!usable(b.s, &in, &there) && there, "and the file is not empty, but damaged");
	bench_end(&b);
}

/* The index is another store's, which shows only behind the record that tells of the segment: so the journal is read again. */
static void test_lost_private_told_once(void)
{
	uint64_t lost = 0;

	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct state_report report = { 0 };
		uint8_t boot[16] = { 1 };
		struct bench b, other;
		struct inode in, found;
		bool missing;

		if (!bench_begin(&b, 1 << 20, 0) || !bench_begin(&other, 1 << 20, 0) ||
			!bench_lose_power(&b, boot, seed, &report) || !bench_lose_power(&other, boot, seed, &report))
			return;
		bench_file(b.s, "mine");
		bench_file(other.s, "his");
		ok(store_maintain(b.s, true) == 0 && store_maintain(other.s, true) == 0 &&
				state_seq(store_state(b.s)) == state_seq(store_state(other.s)),
			"two stores of the same age");
		in = make_private(b.s, "private");
		bench_file(b.s, "his");
		store_abandon(b.s);
		store_abandon(other.s);
		b.s = other.s = NULL;
		remove_tree(b.index);
		if (rename(other.index, b.index) != 0 || sim_power_cut(b.sim, seed) != 0)
			abort();
		missing = is_missing(&b, in.private_segment);
		boot[1]++;
		b.opt.boot_id = boot;
		struct cistern_error err = { 0 };
		if (!ok(store_open(b.dir, &b.opt, &b.s, &report, &err) == 0, "the store opens %s", err.text))
			return;
		missing = missing && state_inode(store_state(b.s), in.ino, &found) == 0;
		ok(report.lost_private == missing, "seed %llu: what was lost is told%s", (unsigned long long)seed,
			report.rebuilt ? ", though the index was made anew" : "");
		lost += missing && report.rebuilt;
		bench_end(&b);
		bench_end(&other);
	}
	ok(lost > 0, "it was lost %llu times", (unsigned long long)lost);
}

/* What a replay frees by the index of another store is not given back. */
static void test_wrong_index_frees_nothing(void)
{
	struct state_report report = { 0 };
	struct cistern_error err = { 0 };
	struct bench b, other;
	struct inode full, empty;

	if (!bench_begin(&b, 1 << 20, 0) || !bench_begin(&other, 1 << 20, 0))
		return;
	full = bench_file(b.s, "full");
	empty = bench_file(b.s, "empty");
	bench_file(other.s, "his");
	ok(bench_fill(other.s, &(struct inode){ .ino = bench_file(other.s, "too").ino }, 0, 1 << 18, 'o') == 0 &&
			bench_fill(b.s, &full, 0, 1 << 18, 'f') == 0 && store_maintain(b.s, true) == 0 &&
			store_maintain(other.s, true) == 0 &&
			state_seq(store_state(b.s)) == state_seq(store_state(other.s)),
		"two stores of the same age, with the same place in use by other files");
	is_int(bench_fill(b.s, &empty, 0, 1 << 18, 'e'), 0, "by the other index that frees the place");
	bench_file(b.s, "his");
	store_abandon(b.s);
	store_abandon(other.s);
	b.s = other.s = NULL;
	remove_tree(b.index);
	if (rename(other.index, b.index) != 0)
		abort();
	if (!ok(store_open(b.dir, &b.opt, &b.s, &report, &err) == 0, "the store opens %s", err.text))
		return;
	ok(report.rebuilt, "the index was the wrong one");
	ok(store_sync(b.s) == 0 && store_maintain(b.s, true) == 0 && store_maintain(b.s, true) == 0, "maintained");
	ok(bench_reads(b.s, full.ino, 0, 1 << 18, 'f') && bench_reads(b.s, empty.ino, 0, 1 << 18, 'e'),
		"both files are whole");
	bench_end(&b);
	bench_end(&other);
}

/* A dead store of another boot, on real files: one private file was synced, of the other one the name was lost. */
static bool make_dead(const char *dir)
{
	struct store_options opt = { .mode = STORE_CREATE_OR_OPEN,
		.backing = work,
		.boot_id = (const uint8_t[16]){ 1 },
		.journal_size = 1 << 20,
		.reserve = 1 << 20 };
	struct cistern_error err = { 0 };
	struct inode kept, lost;
	char path[512];
	struct store *s;
	int fd;

	if (!ok(store_open(dir, &opt, &s, NULL, &err) == 0 && bench_root(s) == 0, "a store %s", err.text))
		return false;
	kept = make_private(s, "kept");
	fd = segment_open_fd(store_segments(s), kept.private_segment, true);
	ok(pwrite(fd, "synced", 6, 0) == 6 && close(fd) == 0 &&
			segment_sync_private(store_segments(s), kept.private_segment) == 0 && store_sync(s) == 0,
		"with a file that is synced");
	lost = make_private(s, "lost");
	store_abandon(s);
	snprintf(path, sizeof(path), "%s/segment/%08u.prv", dir, lost.private_segment);
	return ok(unlink(path) == 0, "and one that is not");
}

/* What a command says, and that it ends well. */
static bool says(const char *what, const char *command)
{
	FILE *in = popen(command, "r");
	char text[8192];
	size_t num = 0;

	if (in)
		num = fread(text, 1, sizeof(text) - 1, in);
	text[num] = '\0';
	if (in && pclose(in) == 0 && strstr(text, what))
		return true;
	tap_diag("%s: %s", command, text);
	return false;
}

static void test_lost_private_tools(void)
{
	char dir[256];

	if (!getenv("CISTERN")) {
		tap_diag("skipped: CISTERN does not say which cistern is to be run");
		return;
	}
	snprintf(dir, sizeof(dir), "%s/dead", work);
	if (!make_dead(dir))
		return;
	setenv("DEAD", dir, 1);
	ok(says("file lost: " STATE_LOST_TEXT, "$CISTERN fsck $DEAD 2>&1"), "fsck names the file, and finds no damage");
	ok(says("lost: " STATE_LOST_TEXT, "$CISTERN inspect $DEAD 2>&1"), "inspect names it");
	ok(says("lost: " STATE_LOST_TEXT, "mkdir $DEAD.to && $CISTERN recover $DEAD --to $DEAD.to 2>&1"),
		"recover names it");
	ok(says("synced", "test -f $DEAD.to/lost && test ! -s $DEAD.to/lost && cat $DEAD.to/kept"),
		"and finds the bytes of the other one");
}

int main(void)
{
	if (!mkdtemp(work))
		return 1;
	test_lost_private();
	test_missing_private();
	test_lost_private_told_once();
	test_lost_private_tools();
	test_wrong_index_frees_nothing();
	remove_tree(work);
	return done_testing();
}
