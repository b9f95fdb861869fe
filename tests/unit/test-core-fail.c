/* SPDX-License-Identifier: GPL-3.0-or-later */
/* fs/core when the backing directory cannot be synced, and when its index cannot be read: what was said is so. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "format/index/state_private.h"
#include "fs/core/core.h"
#include "tests/lib/core_world.h"
#include "tests/lib/tap.h"

/* ---- in place of the C library's, for the program's own files */

static _Atomic int syncfs_calls, backing_syncs;
static _Atomic(bool) backing_fails;   /* whatever is in it cannot be synced */
static void (*at_backing_sync)(void); /* called once, within the next one */

static const char *name_of(int fd, char path[256])
{
	char link[64];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t len = readlink(link, path, 255);
	path[len < 0 ? 0 : len] = '\0';
	return path;
}

static bool is_in_backing(int fd)
{
	char path[256];

	return strstr(name_of(fd, path), "/backing/");
}

static void (*at_folder_sync)(void); /* of the backing directory itself */

int fsync(int fd)
{
	char path[256];
	const char *end = strstr(name_of(fd, path), "/backing");

	if (at_folder_sync && end && strcmp(end, "/backing") == 0)
		at_folder_sync();
	return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	void (*call)(void) = at_backing_sync;

	if (!is_in_backing(fd))
		return (int)syscall(SYS_fdatasync, fd);
	backing_syncs++;
	at_backing_sync = NULL;
	if (call)
		call();
	if (!backing_fails)
		return (int)syscall(SYS_fdatasync, fd);
	backing_fails = false; /* as the kernel, which says it once */
	errno = EIO;
	return -1;
}

/* For the first who asks, after anybody's error on that file system. */
int syncfs(int fd)
{
	(void)fd;
	syncfs_calls++;
	errno = EIO;
	return -1;
}

static bool quota_used_up;
static off_t quota_left; /* what it lets one call have before it is used up */

int fallocate(int fd, int mode, off_t off, off_t len)
{
	if (!quota_used_up)
		return (int)syscall(SYS_fallocate, fd, mode, off, len);
	if (quota_left && syscall(SYS_fallocate, fd, mode, off, quota_left) < 0)
		core_world_bail_out("cannot allocate");
	errno = EDQUOT;
	return -1;
}

static int index_reads = -1; /* so many succeed; -1: all */

char *rocksdb_get(void *db, const void *options, const char *key, size_t len, size_t *ret_len, char **ret_message);
char *rocksdb_get(void *db, const void *options, const char *key, size_t len, size_t *ret_len, char **ret_message)
{
	__typeof__(rocksdb_get) *real = (__typeof__(real))(uintptr_t)dlsym(RTLD_NEXT, "rocksdb_get");

	index_reads -= index_reads > 0;
	if (index_reads)
		return real(db, options, key, len, ret_len, ret_message);
	*ret_message = strdup("IO error: While pread offset 0 len 4096: 000009.sst: Input/output error");
	return NULL;
}

/* ---- */

/* A new file, of which a part has gone through to the backing directory and is not synced; it is closed. */
static uint64_t write_through(struct core_world *w, const char *name)
{
	const uint64_t mib = 1 << 20;
	char *block = calloc(1, mib);
	struct core_open_reply o;
	struct core_stats stats;
	struct core_entry e;

	if (core_create_file(w->core, 1, name, 0600, O_RDWR, core_world_cred, &e, &o) < 0)
		core_world_bail_out("cannot make a file");
	for (uint64_t i = 0; i < 12; i++)
		if (core_write(w->core, o.file, block, mib, i * mib) != (ssize_t)mib)
			core_world_bail_out("cannot write to a file");
	core_stats(w->core, &stats);
	ok(stats.through_bytes > 0, "a part of a file goes through");
	core_release(w->core, o.file);
	free(block);
	return e.ino;
}

static struct {
	struct core_world *w;
	struct core_file *file;
	pthread_t thread;
	int rc;
	_Atomic(bool) done;
	bool in_time; /* before the sync ended */
} other;

/* An application that opens the file, and syncs it. */
static void *sync_other(void *arg)
{
	uint64_t ino = core_world_look(other.w, 1, "big");

	other.rc = ino ? core_fsync(other.w->core, ino, NULL, false) : -ENOENT;
	other.done = true;
	return arg;
}

static void begin(void *(*what)(void *arg))
{
	other.done = false;
	pthread_create(&other.thread, NULL, what, NULL);
	for (int i = 0; i < 50 && !other.done; i++)
		usleep(10000);
	other.in_time = other.done;
}

static void begin_syncing(void)
{
	begin(sync_other);
}

/* What fsync promises of bytes that went through: whoever else syncs them, or has failed to. */
static void test_through_synced(void)
{
	struct core_world w;
	uint64_t ino;

	core_world_make(&w);
	core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
	core_world_close(&w);
	core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
	ino = write_through(&w, "big");
	backing_fails = true;
	is_int(core_fsync(w.core, ino, NULL, false), -EIO, "bytes that went through cannot be synced");
	is_int(core_fsync(w.core, ino, NULL, false), -EIO, "nor later: nobody knows what is left of them");
	core_world_close(&w);
	core_world_remove(&w);

	core_world_make(&w);
	core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
	ino = write_through(&w, "big");
	other.w = &w;
	backing_fails = true;
	at_backing_sync = begin_syncing;
	core_forget(w.core, ino, 1);
	pthread_join(other.thread, NULL);
	is_int(other.rc, -EIO,
		"they cannot be synced when the kernel forgets the file: so says an fsync of that moment");
	is_int(core_fsync(w.core, core_world_look(&w, 1, "big"), NULL, false), -EIO, "and one of later");
	core_world_close(&w);
	core_world_remove(&w);
}

static struct core_world *watched;
static unsigned int told_after_sync, told_before;

static void look_at_folder_sync(void)
{
	struct state_name big;
	struct inode in;

	if (state_lookup(store_state(watched->store), 1, "big", &big) < 0 ||
		state_inode(store_state(watched->store), big.ino, &in) < 0)
		return;
	told_before += in.origin_name[0] != '\0';
	told_after_sync += in.origin_name[0] == '\0';
}

/* The backing file that a new file gets before its time: a record names it when its name is durable. */
static void test_through_name(void)
{
	struct core_world w;

	core_world_make(&w);
	core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
	watched = &w;
	at_folder_sync = look_at_folder_sync;
	(void)write_through(&w, "big");
	at_folder_sync = NULL;
	ok(told_after_sync == 1 && told_before == 0, "a backing file's name is synced before it is told of");
	core_world_close(&w);
	core_world_remove(&w);
}

/* What is written through over bytes of the log takes their place: they may have been synced, and must not go before the new ones are. */
static void test_through_over_log(void)
{
	const uint64_t mib = 1 << 20;
	char *block = malloc(mib);
	struct core_open_reply o;
	struct core_world w;

	memset(block, 'n', mib);
	core_world_make(&w);
	core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
	backing_syncs = 0;
	uint64_t ino = write_through(&w, "big");
	is_int(backing_syncs, 0, "what goes through behind the end waits for its fsync");
	is_int(core_open(w.core, ino, O_RDWR, &o), 0, "the file is open");
	is_int(core_write(w.core, o.file, block, mib, 11 * mib), (int)mib, "so does what went through before");
	is_int(backing_syncs, 0, "and is written again");
	backing_fails = true;
	is_int(core_write(w.core, o.file, block, mib, 0), -EIO,
		"over what is in the log, that cannot be synced: an error");
	is_int(core_read(w.core, o.file, block, 1, 0), 1, "and");
	is_int(block[0], 0, "the old bytes are there");
	memset(block, 'n', mib);
	is_int(core_write(w.core, o.file, block, mib, 0), (int)mib, "another time");
	is_int(backing_syncs, 2, "it is synced");
	is_int(core_read(w.core, o.file, block + 1, 1, 0), 1, "and");
	is_int(block[1], 'n', "the new bytes are there");
	core_release(w.core, o.file);
	core_world_close(&w);
	core_world_remove(&w);
	free(block);
}

/* Likewise over what was cut off, and is in the backing file until the drain. */
static void test_through_over_cut(void)
{
	const uint64_t mib = 1 << 20;
	char path[200], *block = calloc(1, mib);
	struct core_open_reply o;
	struct core_entry e;
	struct core_world w;

	core_world_make(&w);
	snprintf(path, sizeof(path), "%s/old", w.backing);
	is_int(truncate(path, 4 * (off_t)mib), 0, "a backing file");
	core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
	uint64_t old = core_world_look(&w, 1, "old");
	is_int(core_setattr(w.core, old, &(struct stat){ .st_size = (off_t)mib }, CORE_SET_SIZE, NULL, &e), 0,
		"is cut");
	(void)write_through(&w, "big");
	backing_syncs = 0;
	is_int(core_open(w.core, old, O_WRONLY, &o), 0, "and open");
	is_int(core_write(w.core, o.file, block, mib, 0), (int)mib, "its bytes go through");
	is_int(backing_syncs, 0, "over those that it had");
	is_int(core_write(w.core, o.file, block, mib, mib), (int)mib, "and behind them");
	is_int(backing_syncs, 1, "where something else is: that is synced");
	core_release(w.core, o.file);
	core_world_close(&w);
	core_world_remove(&w);
	free(block);
}

static int create(struct core_world *w, const char *name)
{
	struct core_open_reply o;
	struct core_entry e;
	int rc = core_create_file(w->core, 1, name, 0644, O_RDWR, core_world_cred, &e, &o);

	if (rc == 0)
		core_release(w->core, o.file);
	return rc;
}

static int fsync_named(struct core_world *w, const char *name)
{
	uint64_t ino = core_world_look(w, 1, name);

	return ino ? core_fsync(w->core, ino, NULL, false) : -ENOENT;
}

/* A daemon that ends leaves bytes that went through as they are: the next one keeps its word, when it is asked. */
static void test_through_before(void)
{
	const char *options = "capacity=8M,reserve=1M,full_timeout=50ms,data=log";
	struct core_world w;

	core_world_make(&w);
	core_world_open(&w, options, false);
	(void)write_through(&w, "big");
	(void)create(&w, "empty");
	core_world_close(&w);
	syncfs_calls = backing_syncs = 0;
	core_world_open(&w, options, false);
	ok(syncfs_calls == 0 && backing_syncs == 0, "a mount syncs nothing of the backing directory");
	is_int(fsync_named(&w, "empty"), 0, "fsync of a file without a backing file");
	is_int(backing_syncs, 0, "has nothing to sync there");
	is_int(fsync_named(&w, "big"), 0, "fsync of the file that went through");
	is_int(backing_syncs, 1, "syncs what the daemon before may have left");
	is_int(fsync_named(&w, "big"), 0, "and the next one");
	is_int(backing_syncs, 1, "has nothing to sync");
	core_world_close(&w);
	core_world_open(&w, options, false);
	backing_fails = true;
	ok(fsync_named(&w, "big") == -EIO && fsync_named(&w, "big") == -EIO, "where that fails it is said");
	core_forget(w.core, core_world_look(&w, 1, "big"), UINT64_MAX);
	is_int(fsync_named(&w, "big"), -EIO, "as long as it is so");
	backing_fails = false;
	core_world_close(&w);
	core_world_remove(&w);
}

/* An application that has the file open, and reads. */
static void *read_other(void *arg)
{
	char byte;

	other.rc = (int)core_read(other.w->core, other.file, &byte, 1, 0);
	other.done = true;
	return arg;
}

static void begin_reading(void)
{
	begin(read_other);
}

static void test_read_while_syncing(void)
{
	struct core_open_reply o;
	struct core_world w;
	uint64_t ino;

	core_world_make(&w);
	core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
	ino = write_through(&w, "big");
	is_int(core_open(w.core, ino, O_RDONLY, &o), 0, "a file of which a part went through is open");
	other.w = &w;
	other.file = o.file;
	at_backing_sync = begin_reading;
	is_int(core_fsync(w.core, ino, NULL, false), 0, "while that is synced");
	ok(other.in_time, "it can be read");
	pthread_join(other.thread, NULL);
	is_int(other.rc, 1, "a byte");
	core_release(w.core, o.file);
	core_world_close(&w);
	core_world_remove(&w);
}

/* A file that is kept for bytes that could not be synced is let go when they are owed no more: as it is drained, or deleted. */
static void test_let_go(bool drained)
{
	struct core_world w;
	struct inode in;

	core_world_make(&w);
	core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
	uint64_t ino = write_through(&w, "big");
	backing_fails = true;
	core_forget(w.core, ino, 1);
	if (drained) {
		struct record rec = { .type = RECORD_DRAINED, .ino = ino, .size = 12 << 20 };
		core_session_begin(w.core, false);
		rec.upto = state_seq(store_state(w.store));
		is_int(core_drain_step(w.core, &rec), 0, "drained");
		core_session_end(w.core);
		is_int(fsync_named(&w, "big"), 0, "fsync owes nothing");
		core_forget(w.core, ino, UINT64_MAX);
	}
	is_int(core_unlink(w.core, 1, "big"), 0, "deleted");
	core_forget(w.core, ino, UINT64_MAX);
	is_int(state_inode(store_state(w.store), ino, &in), -ENOENT, "and gone");
	core_world_close(&w);
	core_world_remove(&w);
}

static void kill_daemon(struct core_world *w)
{
	core_destroy(w->core);
	store_abandon(w->store);
	config_destroy(w->cfg);
}

/* Another one is behind it: whatever can be given back is. */
static int create_failing(struct core_world *w, int reads)
{
	index_reads = reads;
	int rc = create(w, "new");
	index_reads = -1;
	(void)create(w, "next");
	(void)store_maintain(w->store, false);
	kill_daemon(w);
	return rc;
}

/* A read of the index fails before the record is in the journal, or when it is: the file is whole then, as its record says. */
static void test_half_created(void)
{
	unsigned int failed = 0, there = 0, wrong = 0;
	char text[128];
	int reads = 0, rc;
	struct core_world w;

	do {
		core_world_make(&w);
		core_world_open(&w, "data=private", true);
		core_world_close(&w);
		core_world_open(&w, "data=private", true);
		rc = create_failing(&w, ++reads);
		core_world_open(&w, "data=private", true);
		core_world_list(&w, 1, text, sizeof(text));
		bool is_there = strstr(text, "new");
		failed += rc != 0;
		there += rc != 0 && is_there;
		wrong += is_there ? core_world_read_text(&w, core_world_look(&w, 1, "new"), text, sizeof(text)) != 0
				  : rc == 0;
		core_world_close(&w);
		core_world_remove(&w);
	} while (rc && reads < 20);
	ok(failed > there && there > 0, "of %u creations that fail %u are in the journal", failed, there);
	is_u64(wrong, 0, "and these files have their segments");
}

/* The state has it in memory no more, and its index cannot be read. */
static int while_unreadable(struct core_world *w, int (*call)(struct core_world *w, uint64_t ino), uint64_t ino)
{
	struct state *st = store_state(w->store);
	uint64_t limit = st->cache.limit;

	st->cache.limit = 0;
	if (state_checkpoint(st) < 0)
		core_world_bail_out("no checkpoint");
	index_reads = 1;
	int rc = call(w, ino);
	index_reads = -1;
	st->cache.limit = limit;
	return rc;
}

static int sync_number(struct core_world *w, uint64_t ino)
{
	return core_fsync(w->core, ino, NULL, false);
}

/* Is it private? As long as that is not known there is nothing that could be promised of its bytes. */
static void test_unreadable_sync(void)
{
	struct core_world w;

	core_world_make(&w);
	core_world_open(&w, "data=private", true);
	is_int(create(&w, "new"), 0, "a private file");
	uint64_t ino = core_world_look(&w, 1, "new");
	ok(while_unreadable(&w, sync_number, ino) < 0, "of which the index cannot be read is not synced");
	is_int(core_fsync(w.core, ino, NULL, false), 0, "and is when it can");
	core_world_close(&w);
	core_world_remove(&w);
}

/* The store's file system has room, and its owner has used up what he may have of it. */
static void test_quota(void)
{
	struct core_open_reply o;
	struct core_stats stats;
	struct core_entry e;
	struct core_world w;

	core_world_make(&w);
	core_world_open(&w, "full_timeout=50ms,data=log", false);
	is_int(core_create_file(w.core, 1, "new", 0600, O_RDWR, core_world_cred, &e, &o), 0, "a new file");
	quota_used_up = true;
	is_int(core_write(w.core, o.file, "abc", 3, 0), 3,
		"beyond a quota of the store's file system it is written to");
	quota_used_up = false;
	core_stats(w.core, &stats);
	is_u64(stats.through_bytes, 3, "as when that is full");
	core_release(w.core, o.file);
	core_world_close(&w);
	core_world_remove(&w);
}

/* posix_fallocate() of what the store has no room for: as if it had not been called. */
static void test_fallocate_too_much(void)
{
	const uint64_t mib = 1 << 20;
	struct core_open_reply o;
	struct core_entry e;
	struct core_world w;

	core_world_make(&w);
	core_world_open(&w, "capacity=8M,reserve=1M,data=private", true);
	is_int(core_create_file(w.core, 1, "new", 0600, O_RDWR, core_world_cred, &e, &o), 0, "a private file");
	is_int(core_write(w.core, o.file, "abc", 3, 0), 3, "that is written to");
	is_int(core_fallocate(w.core, o.file, 0, 0, 64 * mib), -ENOSPC, "cannot reserve more than the store has");
	is_int(core_getattr(w.core, e.ino, NULL, &e), 0, "and");
	ok(e.attr.st_size == 3 && e.attr.st_blocks * 512 < (blkcnt_t)mib, "has taken nothing of it");
	quota_used_up = true;
	quota_left = (off_t)mib;
	is_int(core_fallocate(w.core, o.file, 0, 0, 2 * mib), -ENOSPC, "nor where it turns out to be less");
	is_int(core_fallocate(w.core, o.file, FALLOC_FL_KEEP_SIZE, mib, 2 * mib), -ENOSPC, "also behind the end");
	quota_used_up = false;
	is_int(core_getattr(w.core, e.ino, NULL, &e), 0, "which");
	ok(e.attr.st_size == 3 && e.attr.st_blocks * 512 < (blkcnt_t)mib, "is given back");
	is_int(core_fallocate(w.core, o.file, 0, 0, 2 * mib), 0, "what it has room for can be reserved");
	is_int(core_getattr(w.core, e.ino, NULL, &e), 0, "and");
	ok(e.attr.st_size == 2 * (off_t)mib && e.attr.st_blocks * 512 >= 2 * (blkcnt_t)mib, "is");
	core_release(w.core, o.file);
	core_world_close(&w);
	core_world_remove(&w);
}

/* Writes at the end until that fails; so many reads of the index succeed. *ret_through: something has gone through. */
static int write_on(struct core_world *w, int reads, bool *ret_through)
{
	const uint64_t mib = 1 << 20;
	char *block = calloc(1, mib);
	struct core_open_reply o;
	struct core_stats stats = { 0 };
	ssize_t put = core_open(w->core, core_world_look(w, 1, "big"), O_WRONLY, &o);

	index_reads = reads;
	for (uint64_t off = 0; put >= 0 && off < 12 * mib && stats.through_bytes == 0; off += mib) {
		put = core_write(w->core, o.file, block, mib, off);
		core_stats(w->core, &stats);
	}
	index_reads = -1;
	core_release(w->core, o.file);
	free(block);
	*ret_through = stats.through_bytes > 0;
	return put < 0 ? (int)put : 0;
}

/* The record of a backing file that is made before its time fails, before it is in the journal, or when it is. */
static void test_half_backed(void)
{
	unsigned int failed = 0, told = 0, missing = 0;
	bool through = false;
	struct core_world w;
	struct inode in;
	char path[400];

	for (int reads = 1; !through && reads < 40; reads++) {
		core_world_make(&w);
		core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
		(void)create(&w, "big");
		core_world_close(&w);
		core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
		failed += write_on(&w, reads, &through) < 0;
		kill_daemon(&w);
		core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
		if (state_inode(store_state(w.store), core_world_look(&w, 1, "big"), &in) == 0 && in.origin_name[0]) {
			snprintf(path, sizeof(path), "%s/%s", w.backing, in.origin_name);
			told++;
			missing += access(path, F_OK) < 0;
		}
		core_world_close(&w);
		core_world_remove(&w);
	}
	ok(through && failed > 0 && told > 1, "of %u failures %u are behind the record", failed, told - 1);
	is_u64(missing, 0, "and what it tells of is there");
}

int main(void)
{
	test_fallocate_too_much();
	test_quota();
	test_unreadable_sync();
	test_through_synced();
	test_through_before();
	test_read_while_syncing();
	test_through_name();
	test_through_over_log();
	test_through_over_cut();
	test_let_go(false);
	test_let_go(true);
	test_half_created();
	test_half_backed();
	return done_testing();
}
