/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A private file that its application fills while it is drained, into the backing directory and, from then on, in place: what was
 * carried is read back, and is not damaged because the file has more by now. It stays dirty, and the last drain has all of it. What
 * the destination does not keep is damage all the same, and so is what the node's device has lost.
 *
 * The application writes at the syncs of the destination, between the copy and the reading back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "format/store/store.h"
#include "mpi-agent/replay/drain.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tap.h"
#include "tests/lib/world.h"

#define KIB        1024u
#define PIECE      (64u * KIB)
#define FILE_BYTES (2048u * KIB)

static struct {
	bool armed; /* a session is running: its next sync is the moment */
	bool wanted, in_destination;
	int segment; /* the application's descriptor */
	uint64_t off;
} writer;

static void write_piece(int fd, uint64_t off, int byte)
{
	static uint8_t bytes[PIECE];

	memset(bytes, byte, sizeof(bytes));
	world_must(pwrite(fd, bytes, sizeof(bytes), (off_t)off) == (ssize_t)sizeof(bytes) ? 0 : -EIO, "pwrite");
}

/* In place of the C library's, for the program's own files. */
int fsync(int fd)
{
	if (writer.armed && writer.wanted) {
		writer.wanted = false;
		write_piece(writer.in_destination ? fd : writer.segment, writer.off, 'w');
	}
	return (int)syscall(SYS_fsync, fd);
}

static bool loses; /* the device, what the kernel writes out by itself: which is told once */

int sync_file_range(int fd, off64_t from, off64_t bytes, unsigned int flags)
{
	if (loses && flags == SYNC_FILE_RANGE_WAIT_BEFORE) {
		loses = false;
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_sync_file_range, fd, from, bytes, flags);
}

/* ---- a world with one private file */

struct fixture {
	char top[96], backing[128], store_dir[128];
	struct store *store;
	int segment; /* the application's descriptor */
	char error[512];
};

static void commit(struct fixture *f, struct record rec)
{
	world_must(store_commit(f->store, &rec), record_type_name(rec.type));
}

static void fixture_open(struct fixture *f)
{
	struct store_options opt = { .mode = STORE_CREATE_OR_OPEN, .backing = f->backing };
	struct record root = { .type = RECORD_ADOPT, .ino = STATE_ROOT_INO, .nlink = 2 };
	struct record file = {
		.type = RECORD_CREATE, .ino = 2, .parent = STATE_ROOT_INO, .name = "f", .mode = S_IFREG | 0644
	};
	struct record private = { .type = RECORD_PRIVATE, .ino = 2 };
	struct cistern_error err = { 0 };
	struct state_report report;
	struct stat st;

	*f = (struct fixture){ 0 };
	snprintf(f->top, sizeof(f->top), "%s/test-drain-private.XXXXXX", scratch_parent());
	if (!mkdtemp(f->top))
		world_die(f->top, errno);
	snprintf(f->backing, sizeof(f->backing), "%s/backing", f->top);
	snprintf(f->store_dir, sizeof(f->store_dir), "%s/store", f->top);
	world_must(mkdir(f->backing, 0755), f->backing);
	world_must(stat(f->backing, &st), f->backing);
	if (store_open(f->store_dir, &opt, &f->store, &report, &err) < 0)
		world_die(err.text, err.code);
	root.mode = st.st_mode;
	root.backing_dev = st.st_dev;
	root.backing_ino = st.st_ino;
	commit(f, root);
	commit(f, file);
	world_must(segment_create_private(store_segments(f->store), &private.segment), "segment_create_private");
	commit(f, private);
	f->segment = segment_open_fd(store_segments(f->store), private.segment, true);
	world_must(f->segment, "segment_open_fd");
	world_must(ftruncate(f->segment, FILE_BYTES), "ftruncate");
	write_piece(f->segment, 0, 'a');
	write_piece(f->segment, FILE_BYTES - PIECE, 'b');
}

static void fixture_close(struct fixture *f)
{
	close(f->segment);
	world_must(store_close(f->store), "store_close");
	remove_tree(f->top);
}

/* ---- drains */

static void on_error(const char *path, int code, const char *text, void *arg)
{
	struct fixture *f = arg;

	(void)code;
	snprintf(f->error, sizeof(f->error), "%s: %s", path, text);
}

static int on_step(const struct record *rec, void *arg)
{
	struct fixture *f = arg;
	struct record copy = *rec;

	copy.seq = 0;
	copy.time_ns = 1;
	return store_commit(f->store, &copy);
}

/* One session, as of a living daemon. How many files it could not carry. */
static uint64_t drain(struct fixture *f)
{
	struct store_options snapshot = { .mode = STORE_READ_ONLY };
	struct drain_options opt = { .base_dirfd = -1,
		.in_place = true,
		.verify = DRAIN_VERIFY_READ,
		.buffer_bytes = 1024u * KIB,
		.watcher = { .error = on_error, .step = on_step, .arg = f } };
	struct cistern_error err = { 0 };
	struct state_report report;
	struct drain_result res;
	char name[64], intent[160];

	f->error[0] = '\0';
	snprintf(intent, sizeof(intent), "%s/drain.intent", f->store_dir);
	opt.intent_path = intent;
	world_must(store_sync(f->store), "store_sync");
	if (store_snapshot(f->store, name, sizeof(name), &opt.upto, &err) < 0)
		world_die(err.text, err.code);
	snapshot.snapshot = name;
	if (store_open(f->store_dir, &snapshot, &opt.store, &report, &err) < 0)
		world_die(err.text, err.code);
	opt.to_dirfd = open(f->backing, O_RDONLY | O_DIRECTORY);
	world_must(opt.to_dirfd, f->backing);
	writer.armed = true;
	if (drain_run(&opt, &res, &err) < 0)
		world_die(err.text, err.code);
	writer.armed = false;
	close(opt.to_dirfd);
	store_abandon(opt.store);
	return res.totals.failed;
}

static bool is_private(struct fixture *f)
{
	struct inode in;

	world_must(state_inode(store_state(f->store), 2, &in), "state_inode");
	return in.flags & INODE_PRIVATE;
}

static int drained_byte(struct fixture *f, uint64_t off)
{
	char path[160];
	uint8_t byte = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/f", f->backing);
	fd = open(path, O_RDONLY);
	world_must(fd, path);
	world_must(pread(fd, &byte, 1, (off_t)off) == 1 ? 0 : -EIO, path);
	close(fd);
	return byte;
}

static bool is_there(struct fixture *f)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/f", f->backing);
	return access(path, F_OK) == 0;
}

static void write_at_next_sync(struct fixture *f, bool in_destination, uint64_t off)
{
	writer.segment = f->segment;
	writer.off = off;
	writer.in_destination = in_destination;
	writer.wanted = true;
}

static void test_filled_meanwhile(void)
{
	struct fixture f;

	fixture_open(&f);
	write_at_next_sync(&f, false, 256 * KIB);
	is_u64(drain(&f), 0, "a new file is filled while it is drained");
	is_str(f.error, "", "nothing is wrong with it");
	ok(is_private(&f), "it stays private and dirty");

	write_at_next_sync(&f, false, 1024 * KIB);
	is_u64(drain(&f), 0, "a hole of it is filled while it is drained in place");
	is_str(f.error, "", "nothing is wrong with it");
	ok(is_private(&f), "it stays private and dirty");

	is_u64(drain(&f), 0, "left alone, it is drained");
	ok(!is_private(&f), "all of it");
	is_int(drained_byte(&f, 256 * KIB), 'w', "with what came during the first drain");
	is_int(drained_byte(&f, 1024 * KIB), 'w', "and during the second");
	is_int(drained_byte(&f, FILE_BYTES - 1), 'b', "and what was there before");
	fixture_close(&f);
}

static void test_damaged(void)
{
	struct fixture f;

	fixture_open(&f);
	write_at_next_sync(&f, false, 256 * KIB);
	is_u64(drain(&f), 0, "a file that is drained in place from now on");
	write_at_next_sync(&f, true, 0);
	is_u64(drain(&f), 1, "the destination changes what was written to it, and the application nothing");
	ok(strstr(f.error, "verification failed: checksum"), "that is damage: %s", f.error);
	ok(is_private(&f), "and nothing is given up");
	fixture_close(&f);
}

static void test_lost(void)
{
	struct fixture f;

	fixture_open(&f);
	loses = true;
	is_u64(drain(&f), 1, "a file of which the node's device has lost bytes is not drained");
	ok(strstr(f.error, "the node's device has lost bytes of it"), "that is said: %s", f.error);
	is_u64(drain(&f), 1, "nor is it later");
	ok(is_private(&f) && !is_there(&f), "it is where it was, and nowhere else");
	is_int(fremovexattr(f.segment, "user.cistern.failed"), 0, "who wants what is left says so");
	is_u64(drain(&f), 0, "and has it drained");
	is_int(drained_byte(&f, 0), 'a', "all of it");
	fixture_close(&f);
}

int main(void)
{
	test_filled_meanwhile();
	test_lost();
	test_damaged();
	return done_testing();
}
