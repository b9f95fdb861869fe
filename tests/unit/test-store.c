/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The store as a whole: what it refuses to open, bytes in and out, what a sync costs, when space is given back, how
 * much there is, snapshots, and many threads at once. Loss of power and failing disks: tests/crash/test-power.c.
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
#include "tests/lib/sim.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"

#define NOBODY 65534

static char work[] = "/tmp/cistern-test-store-XXXXXX";

static const char *in_work(const char *name, char out[256])
{
	snprintf(out, 256, "%s/%s", work, name);
	return out;
}

/* A store on a simulated disk. */
struct bench {
	struct sim *sim;
	struct io *io;
	struct store *s;
	struct store_options opt;
	char index[256];
};

static bool bench_open(struct bench *b)
{
	struct cistern_error err = { 0 };

	b->opt.io = b->io;
	b->opt.index_path = b->index;
	b->opt.backing = "/backing";
	return ok(store_open(work, &b->opt, &b->s, NULL, &err) == 0, "the store opens %s", err.text);
}

static bool bench_begin(struct bench *b, uint64_t segment_size, uint64_t capacity)
{
	*b = (struct bench){ .opt = { .mode = STORE_CREATE_OR_OPEN,
				     .segment_size = segment_size,
				     .journal_size = 1 << 20,
				     .capacity = capacity,
				     .reserve = 1 << 20 } };
	in_work("index", b->index);
	remove_tree(b->index);
	return ok(sim_create(&b->sim, &b->io) == 0, "a disk") && bench_open(b);
}

static void bench_end(struct bench *b)
{
	is_int(store_close(b->s), 0, "the store closes");
	sim_destroy(b->sim);
}

/* The first change of a store's life, as the daemon makes it. */
static int adopt_root(struct store *s)
{
	struct record rec = {
		.type = RECORD_ADOPT, .ino = STATE_ROOT_INO, .name = ".", .mode = S_IFDIR | 0755, .nlink = 2
	};
	struct inode in;

	return state_inode(store_state(s), STATE_ROOT_INO, &in) == 0 ? 0 : store_commit(s, &rec);
}

static struct inode make_file(struct store *s, const char *name)
{
	struct record rec = { .type = RECORD_CREATE,
		.parent = STATE_ROOT_INO,
		.mode = S_IFREG | 0644,
		.ino = state_new_ino(store_state(s)) };
	struct inode in = { 0 };

	strcpy(rec.name, name);
	ok(adopt_root(s) == 0 && store_commit(s, &rec) == 0 && state_inode(store_state(s), rec.ino, &in) == 0,
		"a file: %s", name);
	return in;
}

static int fill(struct store *s, const struct inode *in, uint64_t off, size_t len, int byte)
{
	char *buf = malloc(len);
	int r;

	if (!buf)
		return -ENOMEM;
	memset(buf, byte, len);
	r = store_write(s, in->ino, in->gen, off, buf, len);
	free(buf);
	return r;
}

static int base_bytes(uint64_t off, size_t len, void *buf, void *arg)
{
	unsigned int *calls = arg;

	(void)off;
	memset(buf, 'B', len);
	(*calls)++;
	return 0;
}

/* Does [off, off + len) read as this byte all over? */
static bool reads(struct store *s, uint64_t ino, uint64_t off, size_t len, int byte)
{
	unsigned int calls = 0;
	struct inode in;
	char *buf = malloc(len);
	bool same = buf && state_inode(store_state(s), ino, &in) == 0 &&
		    store_read(s, &in, off, len, buf, true, base_bytes, &calls, NULL) == 0;

	for (size_t i = 0; same && i < len; i++)
		same = buf[i] == byte;
	free(buf);
	return same;
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
	pid_t pid = -1, child;
	int status = 1;

	in_work("store", dir);
	is_int(store_holder(dir, &pid), 0, "who holds it?");
	is_int(pid, 0, "nobody");
	if (!ok(store_open(dir, &opt, &s, NULL, &err) == 0, "opened"))
		return;
	is_int(try_open(dir, STORE_OPEN, NULL, &err), -EBUSY, "a second opener in the same process");
	is_int(try_open(dir, STORE_READ_ONLY, NULL, &err), -EBUSY, "a reader without a snapshot");
	snprintf(text, sizeof(text), "process %ld", (long)getpid());
	ok(strstr(err.text, text) != NULL, "the holder is named: %s", err.text);
	ok(store_holder(dir, &pid) == 0 && pid == getpid(), "by itself too");
	child = fork();
	if (child == 0) {
		pid_t seen = 0;

		_exit(store_holder(dir, &seen) == 0 && seen == getppid() &&
					try_open(dir, STORE_OPEN, NULL, &err) == -EBUSY
				? 0
				: 1);
	}
	ok(waitpid(child, &status, 0) == child && status == 0, "and by another process");
	is_int(store_close(s), 0, "closed");
	ok(store_holder(dir, &pid) == 0 && pid == 0, "nobody again");
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
	a = make_file(b.s, "a");
	is_int(fill(b.s, &a, 0, 100, 'x'), 0, "a write");
	is_int(fill(b.s, &a, 50, 10000, 'y'), 0, "one over it");
	is_int(fill(b.s, &a, 3000000, 10, 'z'), 0, "one far behind");
	ok(reads(b.s, a.ino, 0, 50, 'x') && reads(b.s, a.ino, 50, 10000, 'y'), "the later one wins");
	ok(reads(b.s, a.ino, 10050, 2989950, 0), "nothing in between: zeros");
	ok(reads(b.s, a.ino, 3000000, 10, 'z'), "the far one");
	rec.ino = a.ino;
	rec.off = 100;
	rec.len = 200;
	is_int(store_commit(b.s, &rec), 0, "a hole");
	ok(reads(b.s, a.ino, 50, 50, 'y') && reads(b.s, a.ino, 100, 200, 0) && reads(b.s, a.ino, 300, 9750, 'y'),
		"reads as one");
	is_int(fill(b.s, &a, 0, 0, 'x'), -EINVAL, "an empty write is none");
	is_int(fill(b.s, &a, 0, (1 << 20) + 1, 'x'), -EINVAL, "one that is too long");
	ok(state_inode(store_state(b.s), a.ino, &small) == 0, "as if a backing file of 20 bytes were under it");
	small.ino = make_file(b.s, "empty").ino;
	small.backing_limit = 20;
	is_int(store_read(b.s, &small, 10, 30, buf, true, base_bytes, &calls, NULL), 0, "read over its end");
	ok(buf[0] == 'B' && buf[9] == 'B' && buf[10] == 0 && buf[29] == 0 && calls == 1, "its bytes, then zeros");
	is_int(store_read(b.s, &small, 10, 30, buf, true, NULL, NULL, NULL), -EOPNOTSUPP, "nobody to ask for them");
	store_abandon(b.s);
	if (bench_open(&b)) {
		ok(reads(b.s, a.ino, 0, 50, 'x') && reads(b.s, a.ino, 300, 9750, 'y'),
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
	a = make_file(b.s, "a");
	is_int(fill(b.s, &a, 0, 10000, 'x'), 0, "a write");
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
	is_int(fill(b.s, &a, 0, 10000, 'y'), 0, "a write after that");
	ok(reads(b.s, a.ino, 0, 10000, 'y'), "is somewhere else");
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
		meanwhile.result = fill(s, &meanwhile.in, 0, 50000, 'y') | fill(s, &meanwhile.in, 50000, 900000, 'z');
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
	a = make_file(b.s, "a");
	kept = make_file(b.s, "kept");
	meanwhile.in = make_file(b.s, "b");
	is_int(fill(b.s, &kept, 0, 10000, 'k') | fill(b.s, &a, 0, 900000, 'x') | fill(b.s, &a, 0, 900000, 'x'), 0,
		"two segments");
	struct record rec = { .type = RECORD_PUNCH, .ino = a.ino, .len = 900000 };
	is_int(store_commit(b.s, &rec) | store_sync(b.s), 0, "nothing lives in the newer one");
	meanwhile.s = b.s;
	is_int(store_maintain(b.s, false), 0, "what can be given back is");
	is_int(meanwhile.result, 0, "meanwhile the newer one is written to until it is full");
	ok(reads(b.s, kept.ino, 0, 10000, 'k') && reads(b.s, meanwhile.in.ino, 0, 50000, 'y') &&
			reads(b.s, meanwhile.in.ino, 50000, 900000, 'z'),
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
	struct inode in = make_file(b.s, "a");
	is_int(fill(b.s, &in, 0, 10000, 'x'), 0, "a write");
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
	ok(reads(b.s, in.ino, 0, 10000, 'x'), "the bytes are there");
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
	a = make_file(b.s, "a");
	is_int(fill(b.s, &a, 0, 100, 'x'), 0, "a write");
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
	a = make_file(b.s, "a");
	is_int(fill(b.s, &a, 0, 100, 'x'), 0, "a write");
	syncs = sim_syncs(b.sim);
	is_int(store_sync(b.s), 0, "synced");
	ok(sim_syncs(b.sim) > syncs, "the device was asked");
	syncs = sim_syncs(b.sim);
	is_int(store_sync(b.s), 0, "again");
	is_int(store_maintain(b.s, false), 0, "nothing to do either");
	is_u64(sim_syncs(b.sim), syncs, "nothing new: the device is left alone");
	is_int(fill(b.s, &a, 0, 100, 'y'), 0, "another write");
	sim_fail_after(b.sim, 1, EIO);
	ok(store_sync(b.s) < 0, "a sync that fails says so");
	ok(store_sync(b.s) < 0, "and is not made good by a second one");
	ok(store_close(b.s) < 0, "nor by closing");
	if (bench_open(&b)) {
		ok(reads(b.s, a.ino, 0, 100, 'y'), "reopened: it is there");
		bench_end(&b);
	}
}

/* ---- space ---- */

static uint64_t used(struct bench *b)
{
	return segment_allocated_bytes(store_segments(b->s)) - segment_free_in_open(store_segments(b->s));
}

static int drain(struct store *s, uint64_t ino)
{
	struct record rec = { .type = RECORD_DRAINED, .ino = ino, .backing_dev = 1, .backing_ino = ino };
	struct inode in;
	int r = state_inode(store_state(s), ino, &in);

	rec.upto = state_seq(store_state(s));
	rec.size = in.size;
	rec.mtime_ns = in.mtime_ns;
	return r ? r : store_commit(s, &rec);
}

static int place(struct store *s, uint64_t ino, const char *name)
{
	struct record rec = {
		.type = RECORD_PLACED, .ino = ino, .parent = STATE_ROOT_INO, .backing_dev = 1, .backing_ino = ino
	};

	strcpy(rec.name, name);
	return store_commit(s, &rec);
}

static void test_freed(void)
{
	struct inode a, c;
	struct bench b;
	uint64_t full;

	if (!bench_begin(&b, 1 << 20, 0))
		return;
	a = make_file(b.s, "a");
	c = make_file(b.s, "c");
	is_int(fill(b.s, &a, 0, 1 << 20, 'x'), 0, "one MiB, a whole segment");
	is_int(fill(b.s, &c, 0, 1 << 19, 'c'), 0, "half of another");
	is_int(store_sync(b.s), 0, "synced");
	full = used(&b);
	is_int(fill(b.s, &a, 0, 1 << 18, 'y'), 0, "a quarter written anew");
	is_int(store_maintain(b.s, false), 0, "maintained");
	is_u64(used(&b), full + (1 << 18), "not durable yet: nothing is given back");
	is_int(store_sync(b.s), 0, "synced");
	is_int(store_maintain(b.s, false), 0, "maintained");
	is_u64(used(&b), full, "the old quarter is given back");
	ok(reads(b.s, a.ino, 0, 1 << 18, 'y') && reads(b.s, a.ino, 1 << 18, 3 << 18, 'x'), "the rest is untouched");

	store_pin(b.s);
	is_int(fill(b.s, &c, 0, 1 << 18, 'd'), 0, "pinned: written anew");
	ok(store_sync(b.s) == 0 && store_maintain(b.s, false) == 0, "synced and maintained");
	is_u64(used(&b), full + (1 << 18), "the old bytes stay for who pinned them");
	ok(place(b.s, a.ino, "a") == 0 && drain(b.s, a.ino) == 0, "a is drained meanwhile");
	ok(store_sync(b.s) == 0 && store_maintain(b.s, false) == 0, "synced and maintained");
	is_u64(used(&b), 3 << 18, "all of a is given back, pinned or not");
	store_unpin(b.s);
	is_int(store_maintain(b.s, false), 0, "unpinned, maintained");
	is_u64(used(&b), 1 << 19, "and the rest");
	ok(reads(b.s, a.ino, 0, 1 << 20, 'B'), "a is the backing file's now");
	ok(reads(b.s, c.ino, 0, 1 << 18, 'd') && reads(b.s, c.ino, 1 << 18, 1 << 18, 'c'), "c is whole");
	is_int(segment_read(store_segments(b.s), 1, 0, &full, 1), -ENOENT, "the first segment has gone");
	bench_end(&b);
}

/* What there was no room to remember stays for who pinned it, and goes with its segment. */
static void test_forgotten(void)
{
	static const uint64_t parts[] = { 1 << 19, 0, 3 << 18, 1 << 18 }; /* none continues the one before */
	struct inode a, kept;
	struct bench b;
	uint64_t full;
	char byte = 0;
	int r = 0;

	if (!bench_begin(&b, 1 << 20, 0))
		return;
	is_int(store_close(b.s), 0, "closed");
	b.opt.freed_max = 2;
	if (!bench_open(&b))
		return;
	a = make_file(b.s, "a");
	kept = make_file(b.s, "kept");
	for (uint64_t i = 0; !r && i < 4; i++)
		r = fill(b.s, &a, i << 18, 1 << 18, 'x');
	ok(r == 0 && fill(b.s, &kept, 0, 1 << 18, 'k') == 0 && store_sync(b.s) == 0,
		"a segment, and a piece of another");
	full = used(&b);
	store_pin(b.s);
	for (size_t i = 0; !r && i < 4; i++) {
		struct record rec = { .type = RECORD_PUNCH, .ino = a.ino, .off = parts[i], .len = 1 << 18 };

		r = store_commit(b.s, &rec);
	}
	ok(r == 0 && store_sync(b.s) == 0 && store_maintain(b.s, false) == 0, "pinned: all of it freed in four parts");
	is_u64(used(&b), full, "it stays");
	store_unpin(b.s);
	store_pin(b.s);
	ok(fill(b.s, &kept, 0, 1 << 17, 'l') == 0 && store_sync(b.s) == 0 && store_maintain(b.s, false) == 0,
		"a later pin does not count: it may go");
	is_int(segment_read(store_segments(b.s), 1, 0, &byte, 1), -ENOENT, "all of it, what was forgotten, too");
	is_u64(used(&b), (1 << 18) + (1 << 17), "but what was freed since");
	store_unpin(b.s);
	bench_end(&b);
}

/* What was freed first may go, and what is forgotten may not: then the segment must stay. */
static void test_forgotten_held(void)
{
	struct inode a, kept;
	struct bench b;
	char byte = 0;

	if (!bench_begin(&b, 1 << 20, 0))
		return;
	is_int(store_close(b.s), 0, "closed");
	b.opt.freed_max = 1;
	if (!bench_open(&b))
		return;
	a = make_file(b.s, "a");
	kept = make_file(b.s, "kept");
	ok(fill(b.s, &a, 0, 1 << 19, 'x') == 0 && fill(b.s, &kept, 0, 1 << 19, 'x') == 0 &&
			fill(b.s, &a, 1 << 19, 1 << 19, 'x') == 0 && store_sync(b.s) == 0,
		"two segments");
	struct record first = { .type = RECORD_PUNCH, .ino = kept.ino, .len = 1 << 18 };
	struct record second = { .type = RECORD_PUNCH, .ino = a.ino, .len = 1 << 19 };
	struct record third = { .type = RECORD_PUNCH, .ino = kept.ino, .off = 1 << 18, .len = 1 << 18 };
	is_int(store_commit(b.s, &first), 0, "a part is freed");
	store_pin(b.s);
	ok(store_commit(b.s, &second) == 0 && store_commit(b.s, &third) == 0, "pinned: the rest, and forgotten");
	ok(store_sync(b.s) == 0 && store_maintain(b.s, false) == 0, "what may be given back is");
	is_int(segment_read(store_segments(b.s), 1, 0, &byte, 1) | byte, 'x', "what is pinned is there");
	store_unpin(b.s);
	is_int(store_maintain(b.s, false), 0, "not pinned any more");
	is_int(segment_read(store_segments(b.s), 1, 0, &byte, 1), -ENOENT, "it goes");
	bench_end(&b);
}

/* In a job, others read what they were told a moment ago. */
static void test_grace(void)
{
	struct inode a;
	struct bench b;
	uint64_t full;

	if (!bench_begin(&b, 1 << 20, 0))
		return;
	a = make_file(b.s, "a");
	is_int(fill(b.s, &a, 0, 1 << 20, 'x'), 0, "one MiB");
	ok(store_sync(b.s) == 0, "synced");
	full = used(&b);
	store_set_grace(b.s, 1);
	store_hold_freed(b.s, 0);
	is_int(fill(b.s, &a, 0, 1 << 18, 'y'), 0, "a quarter written anew");
	ok(store_sync(b.s) == 0 && store_maintain(b.s, false) == 0, "synced and maintained");
	is_u64(used(&b), full + (1 << 18), "held: nothing is given back");
	store_set_grace(b.s, UINT64_MAX);
	store_hold_freed(b.s, UINT64_MAX);
	ok(store_maintain(b.s, false) == 0, "maintained");
	is_u64(used(&b), full + (1 << 18), "not held any more, but its grace has only begun");
	store_set_grace(b.s, 1);
	usleep(2);
	ok(store_maintain(b.s, false) == 0, "maintained after the grace");
	is_u64(used(&b), full, "the old quarter is given back");
	bench_end(&b);
}

static void test_small_neighbours(void)
{
	struct inode a;
	struct bench b;
	uint64_t full;
	int r = 0;

	if (!bench_begin(&b, 1 << 20, 0))
		return;
	a = make_file(b.s, "a");
	for (int i = 0; !r && i < 64; i++)
		r = fill(b.s, &a, (uint64_t)i * 8192, 1024, 'x');
	is_int(r, 0, "64 writes of 1 KiB, packed");
	is_int(fill(b.s, &a, 1 << 20, 4096, 'z'), 0, "a block behind them");
	is_int(store_sync(b.s), 0, "synced");
	full = used(&b);
	for (int i = 0; !r && i < 64; i++)
		r = fill(b.s, &a, (uint64_t)i * 8192, 1024, 'y');
	ok(r == 0 && store_sync(b.s) == 0 && store_maintain(b.s, false) == 0, "all written anew");
	is_u64(used(&b), full, "smaller than a block each, they are given back together");
	bench_end(&b);
}

static void test_full(void)
{
	struct store_space space = { 0 };
	uint64_t before, written = 0;
	struct inode a;
	struct bench b;
	int r = 0;

	if (!bench_begin(&b, 1 << 20, 16 << 20))
		return;
	a = make_file(b.s, "a");
	ok(store_space(b.s, &space) == 0 && space.capacity_bytes == 16 << 20, "capacity as set");
	before = space.free_bytes;
	for (; !r && written < 32 << 20; written += r ? 0 : 1 << 18)
		r = fill(b.s, &a, written, 1 << 18, 'x');
	is_int(r, -ENOSPC, "it fills up");
	ok(written <= before && written + (2 << 20) > before, "at what was said to be free: %llu of %llu",
		(unsigned long long)written, (unsigned long long)before);
	ok(store_space(b.s, &space) == 0 && space.free_bytes < 1 << 18, "next to nothing is left");
	ok(space.used_bytes <= space.capacity_bytes, "and not more used than there is");
	ok(reads(b.s, a.ino, 0, written, 'x'), "all is there that was taken");
	ok(place(b.s, a.ino, "a") == 0 && drain(b.s, a.ino) == 0 && store_sync(b.s) == 0 &&
			store_maintain(b.s, false) == 0,
		"drained");
	usleep(60000); /* as long as the figures may be old */
	ok(store_space(b.s, &space) == 0 && space.free_bytes + (2 << 20) > before, "free again");
	is_int(fill(b.s, &a, 0, 1 << 18, 'y'), 0, "and can be written");
	bench_end(&b);
}

static void test_small_disk(void)
{
	struct cistern_error err = { 0 };
	struct store *s = NULL;
	struct bench b;

	if (!bench_begin(&b, 0, 0))
		return;
	bench_end(&b);
	if (!ok(sim_create(&b.sim, &b.io) == 0, "a disk"))
		return;
	sim_set_capacity(b.sim, 4 << 20);
	b.opt.io = b.io;
	is_int(store_open(work, &b.opt, &s, NULL, &err), -ENOSPC, "too small for a new store");
	ok(strstr(err.text, "reserve") != NULL, "what to do: %s", err.text);
	sim_destroy(b.sim);
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
	a = make_file(s, "a");
	is_int(fill(s, &a, 0, 1000, 'x'), 0, "a write");
	ok(store_snapshot(s, name, sizeof(name), &seq, &err) == 0, "a snapshot: %s %s", name, err.text);
	is_int(fill(s, &a, 0, 1000, 'y'), 0, "another write");
	ro.snapshot = name;
	if (ok(store_open(dir, &ro, &reader, NULL, &err) == 0, "a reader %s", err.text)) {
		ok(reads(reader, a.ino, 0, 1000, 'x'), "sees what was then");
		is_int(store_close(reader), 0, "and goes");
	}
	ok(reads(s, a.ino, 0, 1000, 'y'), "the daemon sees what is now");
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

		w->error = fill(w->b->s, &w->in, (uint64_t)(i % 7) * 5000, 5000, byte);
		if (!w->error && !reads(w->b->s, w->in.ino, (uint64_t)(i % 7) * 5000, 5000, byte))
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

		w[i] = (struct worker){ .b = &b, .in = make_file(b.s, name), .number = i };
	}
	for (int i = 0; i < 4; i++)
		error |= pthread_create(&t[i], NULL, work_on, &w[i]);
	for (int i = 0; !error && i < 4; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < 4; i++)
		is_int(w[i].error, 0, "a thread that writes, reads, syncs and gives back");
	ok(used(&b) < 4 << 20, "of 4 MB written again and again little is kept: %llu", (unsigned long long)used(&b));
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
	test_bytes();
	test_unfinished(false);
	test_unfinished(true);
	test_dead_again_in_use();
	test_sync_without_room();
	test_damage();
	test_sync();
	test_freed();
	test_forgotten();
	test_forgotten_held();
	test_grace();
	test_small_neighbours();
	test_full();
	test_small_disk();
	for (uint64_t seed = 1; seed <= 5; seed++)
		test_numbers_after_power_loss(10 * seed);
	test_snapshots();
	test_threads();
	remove_tree(work);
	return done_testing();
}
