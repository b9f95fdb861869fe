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

#include "fs/core/core.h"
#include "tests/lib/core_world.h"
#include "tests/lib/tap.h"

/* ---- in place of the C library's, for the program's own files */

static _Atomic int syncfs_calls;
static _Atomic(bool) backing_fails;   /* whatever is in it cannot be synced */
static void (*at_backing_sync)(void); /* called once, within the next one */

static bool is_in_backing(int fd)
{
	char link[64], path[256] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "/backing/");
}

int fdatasync(int fd)
{
	void (*call)(void) = at_backing_sync;

	if (!is_in_backing(fd))
		return (int)syscall(SYS_fdatasync, fd);
	at_backing_sync = NULL;
	if (call)
		call();
	if (!backing_fails)
		return (int)syscall(SYS_fdatasync, fd);
	backing_fails = false; /* as the kernel, which says it once */
	errno = EIO;
	return -1;
}

int syncfs(int fd)
{
	syncfs_calls++;
	return (int)syscall(SYS_syncfs, fd);
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
	uint64_t ino;
	pthread_t thread;
	int rc;
	_Atomic(bool) done;
} other;

/* An application that opens the file, and syncs it. */
static void *sync_other(void *arg)
{
	uint64_t ino = core_world_look(other.w, 1, "big");

	other.rc = ino ? core_fsync(other.w->core, ino, NULL, false) : -ENOENT;
	other.done = true;
	return arg;
}

static void begin_other(void)
{
	pthread_create(&other.thread, NULL, sync_other, NULL);
	for (int i = 0; i < 50 && !other.done; i++)
		usleep(10000);
}

/* What fsync promises of bytes that went through: whoever else syncs them, or has failed to. */
static void test_through_synced(void)
{
	struct core_world w;
	uint64_t ino;

	core_world_make(&w);
	core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
	core_world_close(&w);
	syncfs_calls = 0;
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
	at_backing_sync = begin_other;
	core_forget(w.core, ino, 1);
	pthread_join(other.thread, NULL);
	is_int(other.rc, -EIO,
		"they cannot be synced when the kernel forgets the file: so says an fsync of that moment");
	is_int(core_fsync(w.core, core_world_look(&w, 1, "big"), NULL, false), -EIO, "and one of later");
	is_int(syncfs_calls, 0, "a daemon behind one in whose life nothing went through has nothing to sync");
	core_world_close(&w);
	core_world_open(&w, "capacity=8M,reserve=1M", false);
	is_int(syncfs_calls, 1, "the next one syncs what its predecessor may have left");
	core_world_close(&w);
	core_world_remove(&w);
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

/* Another one is behind it: whatever can be given back is. */
static int create_failing(struct core_world *w, int reads)
{
	index_reads = reads;
	int rc = create(w, "new");
	index_reads = -1;
	(void)create(w, "next");
	(void)store_maintain(w->store, false);
	core_destroy(w->core);
	store_abandon(w->store);
	config_destroy(w->cfg);
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

int main(void)
{
	test_through_synced();
	test_half_created();
	return done_testing();
}
