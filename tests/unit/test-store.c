/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The store as a whole: what it refuses to open, bytes in and out, what a sync costs, snapshots, and many threads at once. Loss of power and failing disks: tests/crash/test-power.c.
 */
#include "format/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "format/store/hosts.h"
#include "format/store/superblock.h"
#include "tests/lib/bench.h"
#include "tests/lib/no_locks.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"

#define NOBODY 65534

static char work[] = "/tmp/cistern-test-store-XXXXXX";

static const char *in_work(const char *name, char out[256])
{
	snprintf(out, 256, "%s/%s", work, name);
	return out;
}

/* ---- the hosts of a job's nodes ---- */

#define HOSTS_ALL_BYTES 256

static bool has_hosts(struct bench *b, const char *text)
{
	return io_replace(b->io, HOSTS_FILE, text, strlen(text)) == 0;
}

static void join_host(uint32_t node, const char *name, void *arg)
{
	size_t len = strlen(arg);

	snprintf((char *)arg + len, HOSTS_ALL_BYTES - len, "%u=%s ", node, name);
}

static void test_hosts(void)
{
	char text[HOSTS_NODE_BYTES], all[HOSTS_ALL_BYTES] = "", want[HOSTS_ALL_BYTES];
	char host[HOSTS_NAME_BYTES], longest[HOSTS_NAME_BYTES] = "", longer[HOSTS_NAME_BYTES + 1] = "";
	const char *names[] = { "cn17", "", longest, longer, "two words", "two\nlines" };
	struct bench b;

	memset(longest, 'x', sizeof(longest) - 1);
	memset(longer, 'x', sizeof(longer) - 1);
	if (!bench_begin(&b, 1 << 20, 0))
		return;
	is_int(hosts_find(b.s, 0, host), -ENOENT, "of a store that was never in a job no host is known");
	is_int(hosts_note(b.s, names, 6), 0, "hosts are noted");
	ok(hosts_find(b.s, 0, host) == 0 && strcmp(host, "cn17") == 0, "the first is known");
	is_int(hosts_find(b.s, 1, host), -ENOENT, "one without a name is not");
	ok(hosts_find(b.s, 2, host) == 0 && strcmp(host, longest) == 0, "the longest name fits");
	for (uint32_t i = 3; i < 6; i++)
		is_int(hosts_find(b.s, i, host), -ENOENT, "what is no name of a host is not noted");
	is_int(hosts_find(b.s, 6, host), -ENOENT, "there is no such node");
	is_str(hosts_node_text(b.s, 0, text), "node 0 (host cn17)", "messages name a node and its host");
	is_str(hosts_node_text(b.s, 1, text), "node 1", "or the node, where it is not known");
	is_int(hosts_each(b.s, join_host, all), 0, "all can be had");
	snprintf(want, sizeof(want), "0=cn17 2=%s ", longest);
	is_str(all, want, "those that are known, with their numbers");
	is_int(hosts_note(b.s, names + 2, 1), 0, "others are noted");
	ok(hosts_find(b.s, 0, host) == 0 && strcmp(host, longest) == 0, "they take their place");
	is_int(hosts_find(b.s, 1, host), -ENOENT, "of the others nothing is left");
	ok(has_hosts(&b, "cn1\ncn2") && hosts_find(b.s, 1, host) == -EBADMSG, "a line without an end is none");
	ok(has_hosts(&b, "c\033[2J\n") && hosts_find(b.s, 0, host) == -EBADMSG,
		"what a terminal might obey is refused");
	ok(has_hosts(&b, longer) && hosts_find(b.s, 0, host) == -EBADMSG, "so is a name that is too long");
	bench_end(&b);
}

/* ---- opening ---- */

static int try_open(const char *path, enum store_mode mode, const char *backing, struct cistern_error *err)
{
	struct store_options opt = { .mode = mode, .backing = backing, .journal_size = 1 << 20, .reserve = 1 << 20 };
	struct store *s = NULL;
	int r;

	*err = (struct cistern_error){ 0 };
	r = store_open(path, &opt, &s, NULL, err);
	if (r == 0)
		r = store_close(s);
	return r;
}

static void test_refusals(void)
{
	struct cistern_error err;
	char dir[256], other[256];
	int fd;

	is_int(try_open(in_work("none", dir), STORE_OPEN, NULL, &err), -ENOENT, "no directory");
	is_int(try_open(in_work("no/parent", dir), STORE_CREATE_OR_OPEN, "/b", &err), -ENOENT, "no directory above");
	in_work("full", dir);
	ok(mkdir(dir, 0755) == 0, "a directory");
	is_int(try_open(dir, STORE_OPEN, NULL, &err), -ENOENT, "empty, and no store");
	is_int(try_open(dir, STORE_CREATE_OR_OPEN, NULL, &err), -EINVAL, "a new store without a backing directory");
	fd = open(in_work("full/data", other), O_CREAT | O_WRONLY, 0600);
	close(fd);
	is_int(try_open(dir, STORE_CREATE_OR_OPEN, "/b", &err), -ENOTEMPTY, "somebody's files");
	ok(strstr(err.text, "data") != NULL, "one is named: %s", err.text);
	ok(access(in_work("full/superblock", dir), F_OK) != 0, "nothing was made there");
	is_int(try_open(other, STORE_CREATE_OR_OPEN, "/b", &err), -ENOTDIR, "a file");
}

static void test_identity(void)
{
	struct superblock sb = { 0 }, newer;
	struct cistern_error err;
	char dir[256], link[256], file[256], text[37];
	struct stat st;
	int fd;

	in_work("store", dir);
	is_int(try_open(dir, STORE_CREATE_OR_OPEN, "/proj/a", &err), 0, "a new store");
	ok(stat(dir, &st) == 0 && (st.st_mode & 07777) == 0700, "only its owner may enter");
	is_int(store_read_superblock(dir, &sb, &err), 0, "its superblock");
	is_str(sb.backing, "/proj/a", "knows the backing directory");
	store_uuid_text(sb.uuid, text);
	ok(strlen(text) == 36 && text[14] == '4', "has a UUID: %s", text);
	is_int(try_open(dir, STORE_CREATE_OR_OPEN, "/proj/a", &err), 0, "opens again");
	is_int(try_open(dir, STORE_CREATE_OR_OPEN, "/proj/b", &err), -EINVAL, "not for another backing directory");
	ok(strstr(err.text, "/proj/a") && strstr(err.text, "/proj/b"), "both are named: %s", err.text);
	ok(symlink(dir, in_work("link", link)) == 0 && try_open(link, STORE_OPEN, NULL, &err) == 0, "through a link");
	is_int(try_open(dir, STORE_READ_ONLY, NULL, &err), 0, "read-only");
	newer = sb;
	is_int(store_read_superblock(work, &newer, &err), -ENOENT, "no superblock elsewhere");

	fd = open(in_work("store/superblock", file), O_RDWR);
	ok(pwrite(fd, "\7", 1, 100) == 1, "a byte of it turns");
	is_int(try_open(dir, STORE_CREATE_OR_OPEN, "/proj/a", &err), -EBADMSG, "damage is noticed");
	ok(pwrite(fd, "\0", 1, 100) == 1 && try_open(dir, STORE_OPEN, NULL, &err) == 0, "and back");
	close(fd);
}

static void test_owner(void)
{
	struct cistern_error err;
	char dir[256];
	int status = 1;
	pid_t pid;

	if (geteuid() != 0) {
		tap_skip("another user's store: needs root");
		return;
	}
	in_work("store", dir);
	ok(chmod(work, 0755) == 0 && chmod(dir, 0755) == 0, "others may look");
	pid = fork();
	if (pid == 0)
		_exit(setuid(NOBODY) == 0 && try_open(dir, STORE_OPEN, NULL, &err) == -EPERM && strstr(err.text, "user")
				? 0
				: 1);
	ok(waitpid(pid, &status, 0) == pid && status == 0, "another user's store is refused");
	ok(chown(dir, NOBODY, NOBODY) == 0 && try_open(dir, STORE_OPEN, NULL, &err) == 0, "root may");
	ok(chown(dir, 0, 0) == 0, "given back");
}

static void test_lock(void)
{
	struct store_options opt = { .mode = STORE_OPEN, .journal_size = 1 << 20, .reserve = 1 << 20 };
	struct cistern_error err;
	struct store *s = NULL;
	char dir[256], text[32];
	bool recovers;
	pid_t pid = -1, child;
	int status = 1;

	in_work("store", dir);
	is_int(store_holder(dir, &pid, &recovers), 0, "who holds it?");
	is_int(pid, 0, "nobody");
	if (!ok(store_open(dir, &opt, &s, NULL, &err) == 0, "opened"))
		return;
	is_int(try_open(dir, STORE_OPEN, NULL, &err), -EBUSY, "a second opener in the same process");
	is_int(try_open(dir, STORE_READ_ONLY, NULL, &err), -EBUSY, "a reader without a snapshot");
	snprintf(text, sizeof(text), "process %ld", (long)getpid());
	ok(strstr(err.text, text) != NULL, "the holder is named: %s", err.text);
	ok(store_holder(dir, &pid, &recovers) == 0 && pid == getpid(), "by itself too");
	child = fork();
	if (child == 0) {
		pid_t seen = 0;

		_exit(store_holder(dir, &seen, &recovers) == 0 && seen == getppid() &&
					try_open(dir, STORE_OPEN, NULL, &err) == -EBUSY
				? 0
				: 1);
	}
	ok(waitpid(child, &status, 0) == child && status == 0, "and by another process");
	is_int(store_close(s), 0, "closed");
	ok(store_holder(dir, &pid, &recovers) == 0 && pid == 0, "nobody again");
}

/* A child of who took the lock has it for a while longer, while he is dead. */
static void test_lock_of_ending(void)
{
	const struct timespec a_while = { .tv_nsec = 300000000 };
	struct cistern_error err;
	siginfo_t ended;
	char dir[256];
	int fd = -1;
	bool recovers;
	pid_t pid = -1, holder;

	in_work("store", dir);
	for (int takes = 0; takes < 2; takes++) {
		holder = fork();
		if (holder == 0) {
			if (store_hold(dir, &fd, &err) < 0 || fork() != 0)
				_exit(0);
			(void)nanosleep(&a_while, NULL);
			_exit(0);
		}
		ok(waitid(P_PID, (id_t)holder, &ended, WEXITED | WNOWAIT) == 0, "who has the lock has died");
		if (takes)
			is_int(try_open(dir, STORE_OPEN, NULL, &err), 0, "who wants it waits until it is free");
		else
			ok(store_holder(dir, &pid, &recovers) == 0 && pid == 0, "as does who asks for its holder");
		(void)waitpid(holder, NULL, 0);
	}
}

static void test_hold(void)
{
	struct cistern_error err;
	bool recovers;
	pid_t pid = 0;
	char dir[256], file[300];
	int fd = -1, again = -1;

	in_work("store", dir);
	snprintf(file, sizeof(file), "%s/lock", dir);
	is_int(store_hold(dir, &fd, &err), 0, "held by a recovery");
	ok(store_holder(dir, &pid, &recovers) == 0 && pid == getpid() && recovers, "which is said to be one");
	is_int(store_hold(dir, &again, &err), -EBUSY, "no second one");
	ok(strstr(err.text, "a recovery (process") != NULL, "of whom it is said: %s", err.text);
	is_int(try_open(dir, STORE_OPEN, NULL, &err), -EBUSY, "no daemon");
	ok(strstr(err.text, "a recovery (process") != NULL, "to whom it is said: %s", err.text);
	is_int(try_open(dir, STORE_READ_ONLY, NULL, &err), 0, "a reader");
	close(fd);
	ok(store_holder(dir, &pid, &recovers) == 0 && pid == 0 && !recovers, "nobody again");

	no_locks = ENOSYS;
	ok(unlink(file) == 0 && store_hold(dir, &fd, &err) == 0 && fd == -1,
		"where there are no locks nobody holds it");
	ok(access(file, F_OK) != 0 && errno == ENOENT, "and no lock is left behind");
	no_locks = 0;
	ok(store_hold(dir, &fd, &err) == 0 && close(fd) == 0, "one is there");
	no_locks = ENOSYS;
	ok(store_hold(dir, &fd, &err) == 0 && fd == -1 && access(file, F_OK) == 0, "and stays");
	ok(store_holder(dir, &pid, &recovers) == 0 && pid == 0, "and is nobody's");
	no_locks = 0;
}

/* ---- bytes ---- */

static void test_bytes(void)
{
	struct record rec = { .type = RECORD_PUNCH };
	unsigned int calls = 0;
	struct inode a, small;
	struct bench b;
	char buf[64];

	if (!bench_begin(&b, 1 << 20, 0))
		return;
	a = bench_file(b.s, "a");
	is_int(bench_fill(b.s, &a, 0, 100, 'x'), 0, "a write");
	is_int(bench_fill(b.s, &a, 50, 10000, 'y'), 0, "one over it");
	is_int(bench_fill(b.s, &a, 3000000, 10, 'z'), 0, "one far behind");
	ok(bench_reads(b.s, a.ino, 0, 50, 'x') && bench_reads(b.s, a.ino, 50, 10000, 'y'), "the later one wins");
	ok(bench_reads(b.s, a.ino, 10050, 2989950, 0), "nothing in between: zeros");
	ok(bench_reads(b.s, a.ino, 3000000, 10, 'z'), "the far one");
	rec.ino = a.ino;
	rec.off = 100;
	rec.len = 200;
	is_int(store_commit(b.s, &rec), 0, "a hole");
	ok(bench_reads(b.s, a.ino, 50, 50, 'y') && bench_reads(b.s, a.ino, 100, 200, 0) &&
			bench_reads(b.s, a.ino, 300, 9750, 'y'),
		"reads as one");
	is_int(bench_fill(b.s, &a, 0, 0, 'x'), -EINVAL, "an empty write is none");
	is_int(bench_fill(b.s, &a, 0, (1 << 20) + 1, 'x'), -EINVAL, "one that is too long");
	ok(state_inode(store_state(b.s), a.ino, &small) == 0, "as if a backing file of 20 bytes were under it");
	small.ino = bench_file(b.s, "empty").ino;
	small.backing_limit = 20;
	is_int(store_read(b.s, &small, 10, 30, buf, true, bench_base, &calls, NULL), 0, "read over its end");
	ok(buf[0] == 'B' && buf[9] == 'B' && buf[10] == 0 && buf[29] == 0 && calls == 1, "its bytes, then zeros");
	is_int(store_read(b.s, &small, 10, 30, buf, true, NULL, NULL, NULL), -EOPNOTSUPP, "nobody to ask for them");
	store_abandon(b.s);
	if (bench_open(&b)) {
		ok(bench_reads(b.s, a.ino, 0, 50, 'x') && bench_reads(b.s, a.ino, 300, 9750, 'y'),
			"a killed daemon's writes are there");
		bench_end(&b);
	}
}

static int give_up(struct store *s, const struct inode *in)
{
	struct record rec = { .type = RECORD_PUNCH, .ino = in->ino, .len = 10000 };
	int r = store_commit(s, &rec);

	return r ? r : store_sync(s);
}

/* A killed daemon leaves the room of the segments that it was writing to. The newest one stays, for its number, but its room need not. */
static void test_unfinished(bool give_up_first)
{
	struct inode a;
	struct bench b;

	if (!bench_begin(&b, 1 << 20, 0))
		return;
	a = bench_file(b.s, "a");
	is_int(bench_fill(b.s, &a, 0, 10000, 'x'), 0, "a write");
	if (give_up_first)
		is_int(give_up(b.s, &a), 0, "which is given up");
	is_int(store_sync(b.s), 0, "synced");
	is_int(sim_power_cut(b.sim, 1), 0, "the daemon does not come to cut its segment");
	store_abandon(b.s);
	if (!bench_open(&b))
		return;
	ok(segment_allocated_bytes(store_segments(b.s)) >= 1 << 20, "which has room");
	if (!give_up_first)
		is_int(give_up(b.s, &a), 0, "what it has written is given up");
	is_int(store_maintain(b.s, false), 0, "what can be given back is");
	is_u64(segment_allocated_bytes(store_segments(b.s)), 0, "and that is all of it");
	is_int(bench_fill(b.s, &a, 0, 10000, 'y'), 0, "a write after that");
	ok(bench_reads(b.s, a.ino, 0, 10000, 'y'), "is somewhere else");
	bench_end(&b);
}

/* What somebody writes while room is being given back. */
static struct {
	const struct io_ops *real;
	struct io_ops ops;
	struct store *s; /* NULL: nothing */
	struct inode in;
	int result;
} meanwhile;

static int open_slow(struct io *io, const char *path, unsigned int flags, struct io_file **ret)
{
	int r = meanwhile.real->open(io, path, flags, ret);

	if (r == 0)
		(*ret)->ops = &meanwhile.ops;
	return r;
}

static int punch_slowly(struct io_file *file, uint64_t off, uint64_t len)
{
	struct store *s = meanwhile.s;

	meanwhile.s = NULL;
	if (s)
		meanwhile.result =
			bench_fill(s, &meanwhile.in, 0, 50000, 'y') | bench_fill(s, &meanwhile.in, 50000, 900000, 'z');
	return meanwhile.real->punch(file, off, len);
}

static bool no_room;

static int allocate_perhaps(struct io_file *file, uint64_t off, uint64_t len)
{
	return no_room ? -ENOSPC : meanwhile.real->allocate(file, off, len);
}

static bool begin_slow(struct bench *b)
{
	if (!bench_begin(b, 1 << 20, 0))
		return false;
	meanwhile.real = b->io->ops;
	meanwhile.ops = *b->io->ops;
	meanwhile.ops.open = open_slow;
	meanwhile.ops.punch = punch_slowly;
	meanwhile.ops.allocate = allocate_perhaps;
	meanwhile.result = 1;
	b->io->ops = &meanwhile.ops;
	return true;
}

/* A segment of which nothing lives is written to again, and is full, before its room is given back. */
static void test_dead_again_in_use(void)
{
	struct inode a, kept;
	struct bench b;

	if (!begin_slow(&b))
		return;
	a = bench_file(b.s, "a");
	kept = bench_file(b.s, "kept");
	meanwhile.in = bench_file(b.s, "b");
	is_int(bench_fill(b.s, &kept, 0, 10000, 'k') | bench_fill(b.s, &a, 0, 900000, 'x') |
			bench_fill(b.s, &a, 0, 900000, 'x'),
		0, "two segments");
	struct record rec = { .type = RECORD_PUNCH, .ino = a.ino, .len = 900000 };
	is_int(store_commit(b.s, &rec) | store_sync(b.s), 0, "nothing lives in the newer one");
	meanwhile.s = b.s;
	is_int(store_maintain(b.s, false), 0, "what can be given back is");
	is_int(meanwhile.result, 0, "meanwhile the newer one is written to until it is full");
	ok(bench_reads(b.s, kept.ino, 0, 10000, 'k') && bench_reads(b.s, meanwhile.in.ino, 0, 50000, 'y') &&
			bench_reads(b.s, meanwhile.in.ino, 50000, 900000, 'z'),
		"and all of it is there");
	b.io->ops = meanwhile.real;
	bench_end(&b);
}

/* The journal's next file has no room just when a sync is to be noted in it. */
static void test_sync_without_room(void)
{
	struct bench b;
	int r;

	if (!begin_slow(&b))
		return;
	struct inode in = bench_file(b.s, "a");
	is_int(bench_fill(b.s, &in, 0, 10000, 'x'), 0, "a write");
	no_room = true;
	do {
		struct record rec = { .type = RECORD_SYNC, .upto = 1 }; /* the smallest */

		r = store_commit(b.s, &rec);
	} while (r == 0);
	is_int(r, -ENOSPC, "the journal is full");
	is_int(store_sync(b.s), -ENOSPC, "so is it for a sync");
	no_room = false;
	is_int(store_sync(b.s), 0, "which is as ever when there is room again");
	is_int(store_maintain(b.s, true), 0, "and so is a checkpoint");
	ok(bench_reads(b.s, in.ino, 0, 10000, 'x'), "the bytes are there");
	b.io->ops = meanwhile.real;
	bench_end(&b);
}

static void test_damage(void)
{
	struct cistern_error err = { 0 };
	struct inode a;
	struct bench b;
	char buf[100];

	if (!bench_begin(&b, 1 << 20, 0))
		return;
	a = bench_file(b.s, "a");
	is_int(bench_fill(b.s, &a, 0, 100, 'x'), 0, "a write");
	is_int(sim_corrupt(b.sim, "segment/00000001.seg", 30, 1), 0, "a byte of it turns");
	(void)state_inode(store_state(b.s), a.ino, &a);
	is_int(store_read(b.s, &a, 0, 100, buf, true, NULL, NULL, &err), -EBADMSG, "it is noticed");
	ok(strstr(err.text, "segment 1") && strstr(err.text, "fsck"), "place and remedy are named: %s", err.text);
	is_int(store_read(b.s, &a, 0, 100, buf, false, NULL, NULL, NULL), 0, "not when nobody asks");
	bench_end(&b);
}

static void test_sync(void)
{
	struct inode a;
	struct bench b;
	uint64_t syncs;

	if (!bench_begin(&b, 1 << 20, 0))
		return;
	a = bench_file(b.s, "a");
	is_int(bench_fill(b.s, &a, 0, 100, 'x'), 0, "a write");
	syncs = sim_syncs(b.sim);
	is_int(store_sync(b.s), 0, "synced");
	ok(sim_syncs(b.sim) > syncs, "the device was asked");
	syncs = sim_syncs(b.sim);
	is_int(store_sync(b.s), 0, "again");
	is_int(store_maintain(b.s, false), 0, "nothing to do either");
	is_u64(sim_syncs(b.sim), syncs, "nothing new: the device is left alone");
	is_int(bench_fill(b.s, &a, 0, 100, 'y'), 0, "another write");
	sim_fail_after(b.sim, 1, EIO);
	ok(store_sync(b.s) < 0, "a sync that fails says so");
	ok(store_sync(b.s) < 0, "and is not made good by a second one");
	ok(store_close(b.s) < 0, "nor by closing");
	if (bench_open(&b)) {
		ok(bench_reads(b.s, a.ino, 0, 100, 'y'), "reopened: it is there");
		bench_end(&b);
	}
}

/* A file that is synced, and written over since. */
static bool begin_unsynced(struct bench *b, struct inode *ret)
{
	if (!bench_begin(b, 1 << 20, 0))
		return false;
	*ret = bench_file(b->s, "a");
	return bench_fill(b->s, ret, 0, 10000, 'x') == 0 && store_sync(b->s) == 0 &&
	       bench_fill(b->s, ret, 0, 10000, 'y') == 0;
}

/* Its daemon has died, and now power is lost: are its bytes the old ones or the new ones? */
static bool is_old_or_new(struct bench *b, const struct inode *in, uint64_t seed)
{
	uint8_t boot[16] = { 1 };

	if (sim_power_cut(b->sim, seed) != 0)
		abort();
	b->opt.boot_id = boot;
	if (!bench_open(b))
		return false;
	bool whole = bench_reads(b->s, in->ino, 0, 10000, 'x') || bench_reads(b->s, in->ino, 0, 10000, 'y');
	bench_end(b);
	return whole;
}

/* What cannot be synced for want of room is not durable, and an index that was made meanwhile stands for nothing. */
static bool is_whole_after_failed_sync(bool compact, uint64_t point, uint64_t seed)
{
	struct inode a;
	struct bench b;

	if (!begin_unsynced(&b, &a))
		return false;
	sim_fail_after(b.sim, point, ENOSPC);
	(void)(compact ? state_compact(store_state(b.s)) : state_checkpoint(store_state(b.s)));
	sim_fail_after(b.sim, 0, 0);
	store_abandon(b.s);
	return is_old_or_new(&b, &a, seed);
}

static void test_sync_fails_for_room(bool compact)
{
	for (uint64_t point = 1; point <= 8; point++) {
		unsigned int num_whole = 0;

		for (uint64_t seed = 0; seed < 10; seed++)
			num_whole += is_whole_after_failed_sync(compact, point, seed);
		ok(num_whole == 10, "call %llu of a %s has no room, and power is lost: %u of 10 whole",
			(unsigned long long)point, compact ? "compaction" : "checkpoint", num_whole);
	}
}

/*
 * A daemon was killed, the index is made anew from the journal, and power is lost meanwhile: the index may stand for nothing that is not on
 * the device.
 */
static bool is_whole_after_rebuild(uint64_t sync, uint64_t seed)
{
	struct inode a;
	struct bench b;

	if (!begin_unsynced(&b, &a))
		return false;
	store_abandon(b.s);
	remove_tree(b.index);
	sim_stop_at_sync(b.sim, sync);
	if (store_open(b.dir, &b.opt, &b.s, NULL, NULL) == 0)
		store_abandon(b.s);
	return is_old_or_new(&b, &a, seed);
}

static void test_rebuild_and_power_loss(void)
{
	for (uint64_t sync = 1; sync <= 15; sync++) {
		unsigned int num_whole = 0;

		for (uint64_t seed = 0; seed < 10; seed++)
			num_whole += is_whole_after_rebuild(sync, seed);
		ok(num_whole == 10, "power is lost at sync %llu of a rebuild: %u of 10 whole", (unsigned long long)sync,
			num_whole);
	}
}

/* ---- numbers ---- */

struct numbers { /* the highest ones given */
	uint64_t ino;
	uint32_t segment;
};

/* Some more of them, above those given before. */
static bool give_numbers(struct store *s, struct numbers *n)
{
	struct numbers before = *n;
	struct record rec = { .type = RECORD_CREATE, .mode = S_IFREG | 0600 };
	char *bytes = calloc(1, 700000);
	uint64_t off;
	bool good = bytes != NULL;

	for (int i = 0; good && i < 20; i++) {
		rec = (struct record){
			.type = RECORD_CREATE, .mode = S_IFREG | 0600, .ino = state_new_ino(store_state(s))
		};
		good = store_commit(s, &rec) == 0 && rec.ino > before.ino;
		n->ino = rec.ino;
	}
	for (int i = 0; good && i < 5; i++)
		good = segment_append(store_segments(s), bytes, 700000, &n->segment, &off) == 0 &&
		       n->segment > before.segment;
	free(bytes);
	return good;
}

/* What other nodes have seen of a node that loses power, twice without a sync in between, is not given again. */
static void test_numbers_after_power_loss(uint64_t seed)
{
	uint8_t boot[16] = { 1 }, job[STORE_UUID_BYTES] = { 1 };
	struct cistern_error err = { 0 };
	struct numbers given = { 0 };
	struct bench b;

	if (!bench_begin(&b, 1 << 20, 0) ||
		!ok(store_number(b.s, 1, 2, job, &err) == 0, "node 1 of a job %s", err.text))
		return;
	for (int life = 0; life < 3; life++) {
		store_abandon(b.s);
		if (sim_power_cut(b.sim, seed + (uint64_t)life) != 0)
			abort();
		boot[1]++;
		b.opt.boot_id = boot;
		if (!bench_open(&b))
			return;
		bool good = give_numbers(b.s, &given);
		ok(good, "life %d: numbers of inodes (up to %llx) and segments (up to %u) are new ones", life,
			(unsigned long long)given.ino, given.segment);
	}
	bench_end(&b);
}

/* A store of a node of a job that has given numbers out, and will again. */
static bool begin_numbered(struct bench *b, struct numbers *given)
{
	const uint8_t job[STORE_UUID_BYTES] = { 1 };
	struct cistern_error err = { 0 };

	return bench_begin(b, 1 << 20, 0) &&
	       ok(store_number(b->s, 1, 2, job, &err) == 0 && store_sync(b->s) == 0 && give_numbers(b->s, given),
		       "node 1 of a job %s", err.text);
}

/* The first opening behind a loss of power is cut short at its n-th call. Nothing is forgotten over that. */
static void test_power_loss_and_a_death(uint64_t n, int error)
{
	uint8_t boot[16] = { 2 };
	struct numbers given = { 0 };
	struct bench b;

	if (!begin_numbered(&b, &given))
		return;
	store_abandon(b.s);
	if (sim_power_cut(b.sim, n) != 0)
		abort();
	b.opt.boot_id = boot;
	sim_fail_after(b.sim, n, error);
	b.s = NULL;
	(void)store_open(b.dir, &b.opt, &b.s, NULL, NULL);
	store_abandon(b.s);
	sim_fail_after(b.sim, 0, 0);
	if (!bench_open(&b))
		return;
	ok(store_lost_power(b.s) && give_numbers(b.s, &given),
		"call %llu of the opening fails: the next one knows that power was lost, and gives new numbers",
		(unsigned long long)n);
	bench_end(&b);
}

/* That power was lost can be noted where others have left no block. */
static void test_power_loss_on_a_full_device(void)
{
	struct numbers given = { 0 };
	struct bench b;

	if (!begin_numbered(&b, &given))
		return;
	uint32_t before = given.segment;
	store_abandon(b.s);
	sim_set_capacity(b.sim, 1);
	is_int(store_note_lost_power(b.io), 0, "without a block a loss of power is noted");
	sim_set_capacity(b.sim, 0);
	for (int life = 0; life < 2; life++) {
		if (!bench_open(&b))
			return;
		ok(store_lost_power(b.s) && give_numbers(b.s, &given), "and known in life %d", life);
		if (life == 0)
			store_abandon(b.s);
	}
	ok(given.segment > before + (1 << 20) && given.segment < before + (2 << 20), "numbers are left out, once");
	is_int(store_lost_power_told(b.s), 0, "the others are told");
	bench_end(&b);
}

/* ---- snapshots ---- */

static void test_snapshots(void)
{
	struct store_options opt = { .mode = STORE_OPEN, .journal_size = 1 << 20, .reserve = 1 << 20 };
	struct store_options ro = { .mode = STORE_READ_ONLY };
	struct cistern_error err = { 0 };
	struct store *s = NULL, *reader = NULL;
	char dir[256], name[32], path[512];
	struct inode a;
	uint64_t seq;

	in_work("store", dir);
	if (!ok(store_open(dir, &opt, &s, NULL, &err) == 0, "opened %s", err.text))
		return;
	a = bench_file(s, "a");
	is_int(bench_fill(s, &a, 0, 1000, 'x'), 0, "a write");
	ok(store_snapshot(s, name, sizeof(name), &seq, &err) == 0, "a snapshot: %s %s", name, err.text);
	is_int(bench_fill(s, &a, 0, 1000, 'y'), 0, "another write");
	ro.snapshot = name;
	if (ok(store_open(dir, &ro, &reader, NULL, &err) == 0, "a reader %s", err.text)) {
		ok(bench_reads(reader, a.ino, 0, 1000, 'x'), "sees what was then");
		is_int(store_close(reader), 0, "and goes");
	}
	ok(bench_reads(s, a.ino, 0, 1000, 'y'), "the daemon sees what is now");
	is_int(store_remove_snapshot(dir, name), 0, "removed");
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	ok(access(path, F_OK) != 0, "and gone");
	is_int(store_remove_snapshot(dir, "../store"), -EINVAL, "nothing else can be removed so");
	is_int(store_remove_snapshot(dir, "snap-"), -EINVAL, "not this either");
	is_int(store_snapshot(s, name, sizeof(name), &seq, &err), 0, "another snapshot");
	store_abandon(s);
	ok(store_open(dir, &opt, &s, NULL, &err) == 0, "opened again %s", err.text);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	ok(access(path, F_OK) != 0, "a dead daemon's snapshot is gone");
	is_int(store_close(s), 0, "closed");
}

/* ---- threads ---- */

struct worker {
	struct bench *b;
	struct inode in;
	int number, error;
};

static void *work_on(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; !w->error && i < 200; i++) {
		int byte = 'a' + (i + w->number) % 26;

		w->error = bench_fill(w->b->s, &w->in, (uint64_t)(i % 7) * 5000, 5000, byte);
		if (!w->error && !bench_reads(w->b->s, w->in.ino, (uint64_t)(i % 7) * 5000, 5000, byte))
			w->error = -EBADMSG;
		if (!w->error && i % 10 == 0)
			w->error = store_sync(w->b->s);
		if (!w->error && i % 25 == w->number)
			w->error = store_maintain(w->b->s, false);
	}
	return NULL;
}

static void test_threads(void)
{
	struct worker w[4];
	pthread_t t[4];
	struct bench b;
	int error = 0;

	if (!bench_begin(&b, 1 << 20, 0))
		return;
	for (int i = 0; i < 4; i++) {
		char name[8] = { 't', (char)('0' + i), 0 };

		w[i] = (struct worker){ .b = &b, .in = bench_file(b.s, name), .number = i };
	}
	for (int i = 0; i < 4; i++)
		error |= pthread_create(&t[i], NULL, work_on, &w[i]);
	for (int i = 0; !error && i < 4; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < 4; i++)
		is_int(w[i].error, 0, "a thread that writes, reads, syncs and gives back");
	ok(bench_used(&b) < 4 << 20, "of 4 MB written again and again little is kept: %llu",
		(unsigned long long)bench_used(&b));
	bench_end(&b);
}

int main(void)
{
	if (!ok(mkdtemp(work) != NULL, "a directory"))
		return done_testing();
	test_refusals();
	test_identity();
	test_owner();
	test_hosts();
	test_lock();
	test_lock_of_ending();
	test_hold();
	test_bytes();
	test_unfinished(false);
	test_unfinished(true);
	test_dead_again_in_use();
	test_sync_without_room();
	test_damage();
	test_sync();
	test_sync_fails_for_room(false);
	test_sync_fails_for_room(true);
	test_rebuild_and_power_loss();
	for (uint64_t seed = 1; seed <= 5; seed++)
		test_numbers_after_power_loss(10 * seed);
	for (uint64_t n = 1; n <= 40; n++) {
		test_power_loss_and_a_death(n, ENOSPC);
		test_power_loss_and_a_death(n, EIO);
	}
	test_power_loss_on_a_full_device();
	test_snapshots();
	test_threads();
	remove_tree(work);
	return done_testing();
}
