/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * fs/core without a mount: a store and a backing directory in a temporary folder, and what the overlay of the two shows. The
 * expected values are those that the same calls give on the backing directory itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "fs/core/core.h"
#include "fs/core/private.h"
#include "tests/lib/core_world.h"
#include "tests/lib/tap.h"

#define LATE_USEC 100000

struct late {
	struct core *core;
	uint64_t ino;
	char intent[200];
};

static void test_overlay(void)
{
	struct core_world w;
	struct core_entry e;
	char text[128];

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	uint64_t old = core_world_look(&w, 1, "old"), sub = core_world_look(&w, 1, "sub");
	ok(old != 0 && sub != 0, "what the backing directory has can be found");
	is_int(core_world_look(&w, 1, "nothing"), 0, "and what it does not have cannot");
	core_world_read_text(&w, old, text, sizeof(text));
	is_str(text, "from before", "an untouched file reads as it is");
	is_int(core_world_write_text(&w, old, "HERE", 5), 4, "it can be written in place");
	core_world_read_text(&w, old, text, sizeof(text));
	is_str(text, "from HEREre", "the write is seen over the old bytes");
	is_int(core_getattr(w.core, old, NULL, &e), 0, "attributes");
	is_u64((uint64_t)e.attr.st_size, 11, "the size has not changed");

	is_int(core_rename(w.core, 1, "sub", 1, "moved", 0), 0, "a backing directory is renamed");
	is_u64(core_world_look(&w, 1, "sub"), 0, "its old name is hidden");
	uint64_t inner = core_world_look(&w, core_world_look(&w, 1, "moved"), "inner");
	core_world_read_text(&w, inner, text, sizeof(text));
	is_str(text, "inside", "what is in it is found under the new name");
	is_int(core_unlink(w.core, 1, "old"), 0, "a backing file is deleted");
	core_world_list(&w, 1, text, sizeof(text));
	is_str(text, "moved", "the listing shows what is left");
	is_int(core_mkdir(w.core, 1, "sub", 0755, core_world_cred, &e), 0, "a hidden name can be used again");
	core_world_list(&w, e.ino, text, sizeof(text));
	is_str(text, "", "and is a directory of its own, empty");
	is_int(core_rmdir(w.core, 1, "moved"), -ENOTEMPTY, "a directory with backing entries is not empty");
	is_int(core_mkdir(w.core, 1, ".cistern-tmp-x", 0755, core_world_cred, &e), -EPERM,
		"the drain's names are refused");
	is_int(core_mkdir(w.core, 1, ".cistern-shared-x", 0755, core_world_cred, &e), -EPERM,
		"those of files that nodes share, too");
	is_int(core_mknod(w.core, 1, "pipe", S_IFIFO | 0600, 0, core_world_cred, &e), 0, "a FIFO is made");
	is_int(core_unlink(w.core, 1, "pipe"), 0, "and removed");
	core_world_close(&w);

	char path[200];
	snprintf(path, sizeof(path), "%s/old", w.backing);
	is_int(access(path, F_OK), 0, "the backing directory is as it was");
	core_world_open(&w, "data=log", false);
	core_world_list(&w, 1, text, sizeof(text));
	is_str(text, "moved sub", "and after reopening the overlay is too");
	core_world_close(&w);
	core_world_remove(&w);
}

static void test_private(void)
{
	struct core_world w;
	struct core_entry e;
	struct core_open_reply o;
	struct inode in;

	core_world_make(&w);
	core_world_open(&w, "data=private", true);
	is_int(core_create_file(w.core, 1, "new", 0644, O_RDWR, core_world_cred, &e, &o), 0, "a new file");
	ok(o.backing_id > 0 && !o.direct_io, "is opened in passthrough");
	is_int(core_write(w.core, o.file, "abc", 3, 0), 3, "the daemon can write it too");
	state_inode(store_state(w.store), e.ino, &in);
	ok(in.flags & INODE_PRIVATE, "it is private");

	/* A drain session that began while it was open must leave it dirty. */
	struct record rec = { .type = RECORD_DRAINED, .ino = e.ino, .size = 3 };
	core_session_begin(w.core, false);
	rec.upto = state_seq(store_state(w.store));
	is_int(core_drain_step(w.core, &rec), 0, "DRAINED while it is open");
	state_inode(store_state(w.store), e.ino, &in);
	ok(in.flags & INODE_PRIVATE && in.flags & INODE_DIRTY_DATA, "leaves it private and dirty");
	core_session_end(w.core);
	core_release(w.core, o.file);
	is_int(w.closed, 1, "the last close gives the registration back");

	core_session_begin(w.core, false);
	rec = (struct record){
		.type = RECORD_DRAINED, .ino = e.ino, .size = 3, .upto = state_seq(store_state(w.store))
	};
	is_int(core_open(w.core, e.ino, O_WRONLY, &o), 0, "opened after the session began");
	core_release(w.core, o.file);
	core_drain_step(w.core, &rec);
	state_inode(store_state(w.store), e.ino, &in);
	ok(in.flags & INODE_PRIVATE, "it could have been written since: it stays private");
	core_session_end(w.core);

	uint64_t size, allocated;
	core_session_begin(w.core, false);
	rec = (struct record){
		.type = RECORD_DRAINED, .ino = e.ino, .size = 2, .upto = state_seq(store_state(w.store))
	};
	segment_private_size(store_segments(w.store), in.private_segment, &size, &allocated, &rec.mtime_ns);
	core_drain_step(w.core, &rec);
	state_inode(store_state(w.store), e.ino, &in);
	ok(in.flags & INODE_PRIVATE, "a step that carried another size leaves it private");
	core_session_end(w.core);

	core_session_begin(w.core, false);
	rec.size = 3;
	rec.flags = 0;
	core_drain_step(w.core, &rec);
	state_inode(store_state(w.store), e.ino, &in);
	ok(!(in.flags & INODE_PRIVATE), "closed all the while: the private segment is given up");
	core_session_end(w.core);
	core_world_close(&w);
	core_world_remove(&w);
}

struct late_release {
	struct core *core;
	struct core_file *file;
};

static void *release_late(void *arg)
{
	struct late_release *late = arg;

	usleep(50000);
	core_release(late->core, late->file);
	return NULL;
}

/* A file is made, gets a layout that asks for its writers, and is opened again before its release has been heard. */
static void test_private_before_layout(bool with_data)
{
	struct core_world w;
	struct core_entry e;
	struct core_open_reply o;
	struct inode in;
	pthread_t thread;

	core_world_make(&w);
	core_world_open(&w, "data=auto,private_min_free=0", true);
	is_int(core_create_file(w.core, 1, "new", 0644, O_RDWR, core_world_cred, &e, &o), 0, "a new file");
	struct late_release late = { w.core, o.file };
	ok(o.backing_id > 0, "is opened in passthrough");
	if (with_data)
		is_int(core_write(w.core, o.file, "abc", 3, 0), 3, "it is written");
	is_int(core_setxattr(w.core, e.ino, "user.cistern.layout", "blob-process", 12, 0), 0, "it gets a layout");
	if (pthread_create(&thread, NULL, release_late, &late))
		core_world_bail_out("pthread_create");
	is_int(core_open(w.core, e.ino, O_RDWR, &o), 0, "it is opened before its release is heard");
	state_inode(store_state(w.store), e.ino, &in);
	ok(!(o.backing_id > 0) == !with_data && !(in.flags & INODE_PRIVATE) == !with_data,
		with_data ? "with data in the private segment it stays private"
			  : "the release is awaited, and the log takes it");
	pthread_join(thread, NULL);
	core_release(w.core, o.file);
	core_world_close(&w);
	core_world_remove(&w);
}

static void test_habit(void)
{
	struct core_world w;
	struct core_entry e;
	struct core_open_reply o;
	char name[32];
	bool pass = true;

	core_world_make(&w);
	core_world_open(&w, "private_min_free=1M", true);
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "small%d", i);
		if (core_create_file(w.core, 1, name, 0644, O_WRONLY, core_world_cred, &e, &o) < 0)
			core_world_bail_out("create");
		pass = o.backing_id > 0;
		if (i == 0)
			ok(pass, "the first file of a directory is private");
		core_write(w.core, o.file, "x", 1, 0);
		core_release(w.core, o.file);
	}
	ok(!pass, "after a run of small files the next one goes into the log");
	core_world_close(&w);
	core_world_remove(&w);
}

static void test_through(void)
{
	struct core_world w;
	struct core_entry e;
	struct core_open_reply o;
	char *block = malloc(1 << 20), *back = malloc(1 << 20);
	uint64_t mib = 1 << 20, num = 0;

	core_world_make(&w);
	core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
	is_int(core_create_file(w.core, 1, "big", 0600, O_RDWR, core_world_cred, &e, &o), 0,
		"a file larger than the store");
	for (; num < 24; num++) {
		memset(block, (int)('a' + num), mib);
		if (core_write(w.core, o.file, block, mib, num * mib) != (ssize_t)mib)
			break;
	}
	is_u64(num, 24, "is written whole");
	bool same = true;
	for (uint64_t i = 0; i < num; i++) {
		memset(block, (int)('a' + i), mib);
		same = same && core_read(w.core, o.file, back, mib, i * mib) == (ssize_t)mib &&
		       memcmp(block, back, mib) == 0;
	}
	ok(same, "and reads back byte for byte");
	struct core_stats stats;
	core_stats(w.core, &stats);
	ok(stats.through_bytes > 0, "part of it went through to the backing directory");
	char path[200], names[128];
	snprintf(path, sizeof(path), "%s/big", w.backing);
	ok(access(path, F_OK) < 0, "where it has no name before it is drained");
	core_world_list(&w, 1, names, sizeof(names));
	is_str(names, "big old sub", "and its temporary name is not shown");
	core_release(w.core, o.file);
	core_world_close(&w);
	core_world_remove(&w);
	free(block);
	free(back);
}

static void flip_a_byte(struct core_world *w, const char *text)
{
	char path[300], buf[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/segment/00000001.seg", w->store_path);
	fd = open(path, O_RDWR);
	ssize_t got = fd < 0 ? -1 : pread(fd, buf, sizeof(buf), 0);
	const char *at = got > 0 ? memmem(buf, (size_t)got, text, strlen(text)) : NULL;
	ok(at && pwrite(fd, "?", 1, at - buf + 2) == 1, "a byte turns in the segment");
	close(fd);
}

/* What was written comes back, or an error that says where. */
static void test_payload_damaged(void)
{
	struct core_world w;
	uint64_t ino;
	char buf[64];

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	ino = core_world_look(&w, 1, "old");
	is_int(core_world_write_text(&w, ino, "one that stays", 100), 14, "written");
	is_int(core_world_write_text(&w, ino, "another", 0), 7, "and something else");
	flip_a_byte(&w, "another");
	is_int(core_world_read_text(&w, ino, buf, sizeof(buf)), -EIO, "it cannot be read");
	ok(strstr(w.unreadable, "offset 0") && strstr(w.unreadable, "(7 bytes) is damaged: run cistern fsck"),
		"of which is said: %s", w.unreadable);
	core_world_close(&w);
	core_world_remove(&w);
}

static uint64_t now_usec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

#define CROWD     48
#define CROWD_LEN (1u << 19)

struct crowd {
	struct core *core;
	struct core_file *file;
	uint64_t begin_usec;
	_Atomic unsigned next, quick;
};

static void *crowd_writer(void *arg)
{
	struct crowd *crowd = arg;
	char *block = calloc(1, CROWD_LEN);
	uint64_t off = (uint64_t)crowd->next++ * CROWD_LEN;

	if (core_write(crowd->core, crowd->file, block, CROWD_LEN, off) != CROWD_LEN)
		core_world_bail_out("a write failed");
	crowd->quick += now_usec() - crowd->begin_usec < 200000;
	free(block);
	return NULL;
}

/* Of a crowd that writes at once, as many end before full_timeout as the store has room for: the others wait. */
static void test_patience(void)
{
	struct core_world w;
	struct core_entry e;
	struct core_open_reply o;
	pthread_t threads[CROWD];
	unsigned most = 0;

	for (int round = 0; round < 8; round++) {
		core_world_make(&w);
		core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=200ms,data=log", false);
		if (core_create_file(w.core, 1, "big", 0600, O_RDWR, core_world_cred, &e, &o) < 0)
			core_world_bail_out("a file cannot be made");
		struct crowd crowd = { .core = w.core, .file = o.file, .begin_usec = now_usec() };
		for (int i = 0; i < CROWD; i++)
			if (pthread_create(&threads[i], NULL, crowd_writer, &crowd))
				core_world_bail_out("a thread cannot be made");
		for (int i = 0; i < CROWD; i++)
			pthread_join(threads[i], NULL);
		if (crowd.quick > most)
			most = crowd.quick;
		core_release(w.core, o.file);
		core_world_close(&w);
		core_world_remove(&w);
	}
	ok(most <= 16, "of %d writers of 512 KiB, at most the 16 that find room in 8 MiB do not wait: %u", CROWD, most);
}

static void test_xattrs(void)
{
	struct core_world w;
	char value[64] = "";

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	uint64_t old = core_world_look(&w, 1, "old");
	is_int(core_setxattr(w.core, old, "user.a", "1", 1, 0), 0, "an xattr is set");
	is_int(core_getxattr(w.core, old, "user.a", value, sizeof(value)), 1, "and read");
	is_int(core_setxattr(w.core, old, "user.a", "1", 1, 1 /* XATTR_CREATE */), -EEXIST,
		"create refuses an existing one");
	is_int(core_setxattr(w.core, old, "user.b", "1", 1, 2 /* XATTR_REPLACE */), -ENODATA,
		"replace refuses a missing one");
	is_int(core_setxattr(w.core, old, "system.posix_acl_access", "1", 1, 0), -EOPNOTSUPP, "ACLs are refused");
	is_int(core_setxattr(w.core, old, "bogus.a", "1", 1, 0), -EOPNOTSUPP, "so is what no file system takes");
	is_int(core_setxattr(w.core, old, "user.", "1", 1, 0), -EINVAL, "and a name without a name");
	is_int(core_removexattr(w.core, old, "user.a"), 0, "removed");
	is_int(core_listxattr(w.core, old, value, sizeof(value)), 0, "none is left");
	core_world_close(&w);
	core_world_remove(&w);
}

/*
 * What was copied of the backing file's set for a change that was not made is not part of the set: somebody may have removed it there since.
 * Neither of one that was refused, nor of one over which the daemon was killed.
 */
static void test_xattrs_left(void)
{
	struct core_world w;
	char path[200], list[64] = "";

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	uint64_t old = core_world_look(&w, 1, "old");
	struct record copied = { .type = RECORD_SETXATTR,
		.flags = RECORD_F_COPIED,
		.ino = old,
		.key = (const uint8_t *)"user.k",
		.key_len = 6,
		.value = (const uint8_t *)"1",
		.value_len = 1 };
	snprintf(path, sizeof(path), "%s/old", w.backing);
	is_int(setxattr(path, "user.a", "1", 1, 0), 0, "a backing file has an xattr");
	is_int(core_setxattr(w.core, old, "user.a", "2", 1, XATTR_CREATE), -EEXIST, "which is not made anew");
	is_int(core_removexattr(w.core, old, "user.b"), -ENODATA, "another one is not there");
	is_int(removexattr(path, "user.a"), 0, "somebody removes it");
	is_int(store_commit(w.store, &copied), 0, "one is copied, and then the daemon is killed");
	is_int(core_setxattr(w.core, old, "user.c", "3", 1, 0), 0, "the next change");
	is_int(core_listxattr(w.core, old, list, sizeof(list)), 7, "is to the set as it is there");
	is_str(list, "user.c", "without what was removed");
	core_world_close(&w);
	core_world_remove(&w);
}

/* O_TMPFILE: no directory changes, and a kill leaves nothing. */
static void test_nameless(void)
{
	struct core_world w;
	struct core_entry before, after, e;
	struct core_open_reply o;
	struct inode in;

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	is_int(core_getattr(w.core, 1, NULL, &before), 0, "a directory");
	is_int(core_tmpfile(w.core, 1, 0600, O_RDWR, core_world_cred, &e, &o), 0,
		"a file without a name is made in it");
	is_int(core_write(w.core, o.file, "abc", 3, 0), 3, "and written to");
	is_int(core_getattr(w.core, 1, NULL, &after), 0, "the directory");
	ok(before.attr.st_mtim.tv_sec == after.attr.st_mtim.tv_sec &&
			before.attr.st_mtim.tv_nsec == after.attr.st_mtim.tv_nsec,
		"has not changed");
	core_release(w.core, o.file);
	core_destroy(w.core);
	store_abandon(w.store);
	config_destroy(w.cfg);
	core_world_open(&w, "data=log", false);
	is_int(state_inode(store_state(w.store), e.ino, &in), -ENOENT, "it is gone with the daemon that was killed");
	is_int(core_tmpfile(w.core, 1, 0600, O_RDWR, core_world_cred, &e, &o), 0, "another one");
	is_int(core_link(w.core, e.ino, 1, "named", &after), 0, "gets a name");
	core_release(w.core, o.file);
	core_world_close(&w);
	core_world_open(&w, "data=log", false);
	is_u64(core_world_look(&w, 1, "named"), e.ino, "and stays");
	core_world_close(&w);
	core_world_remove(&w);
}

/* Where 64 bits of nanoseconds end, times do, and do not begin anew at the other end. */
static void test_far_times(void)
{
	const struct timespec far[] = { { INT64_C(1) << 40, 0 }, { -(INT64_C(1) << 40), 5 },
		{ 9223372036, 999999999 } };
	struct core_world w;
	struct core_entry e;
	char path[200];

	core_world_make(&w);
	snprintf(path, sizeof(path), "%s/old", w.backing);
	is_int(utimensat(AT_FDCWD, path, (struct timespec[2]){ { 12000000000, 0 }, { 12000000000, 0 } }, 0), 0,
		"a backing file of a far future");
	core_world_open(&w, "data=log", false);
	uint64_t ino = core_world_look(&w, 1, "old");
	is_int(core_setattr(w.core, ino, &(struct stat){ .st_mode = 0600 }, CORE_SET_MODE, NULL, &e), 0,
		"is taken over");
	is_int(e.attr.st_mtim.tv_sec, 9223372036, "its time is the last that there is");
	for (size_t i = 0; i < 3; i++) {
		struct stat set = { .st_mtim = far[i], .st_atim = far[i] };

		is_int(core_setattr(w.core, ino, &set, CORE_SET_MTIME | CORE_SET_ATIME, NULL, &e), 0, "times are set");
		is_int(e.attr.st_mtim.tv_sec, far[i].tv_sec < 0 ? -9223372037 : 9223372036,
			"the nearest that there is");
	}
	core_world_close(&w);
	core_world_remove(&w);
}

/* What a drain tells, a moment after it has moved a file. */
static void *tell_late(void *arg)
{
	const struct late *l = arg;
	struct record rec = {
		.type = RECORD_PLACED,
		.flags = RECORD_F_MOVED,
		.ino = l->ino,
		.parent = 1,
		.name = "moved",
		.from_parent = 1,
		.from_name = "old",
	};

	usleep(LATE_USEC);
	int rc = core_drain_step(l->core, &rec);
	unlink(l->intent);
	return (void *)(intptr_t)rc;
}

/* As an agent that has something to tell. */
static void write_intent(const struct core_world *w, char out[200])
{
	snprintf(out, 200, "%s/drain.intent", w->store_path);
	FILE *f = fopen(out, "w");
	if (!f || fputs("intent", f) < 0 || fclose(f) != 0)
		core_world_bail_out(out);
}

/* The file is found between the move in the backing directory and the word of it. */
static void test_xattrs_in_motion(bool change)
{
	struct core_world w;
	char from[200], to[200], value[64] = "";
	pthread_t thread;
	void *told;

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	struct late late = { .core = w.core, .ino = core_world_look(&w, 1, "old") };
	snprintf(from, sizeof(from), "%s/old", w.backing);
	snprintf(to, sizeof(to), "%s/moved", w.backing);
	if (setxattr(from, "user.a", "1", 1, 0))
		core_world_bail_out("the file system of /tmp has no extended attributes");
	is_int(core_rename(w.core, 1, "old", 1, "moved", 0), 0, "a file is renamed");
	core_session_begin(w.core, false);
	write_intent(&w, late.intent);
	if (rename(from, to) || pthread_create(&thread, NULL, tell_late, &late))
		core_world_bail_out("cannot move a file late");
	if (change)
		is_int(core_setxattr(w.core, late.ino, "user.b", "2", 1, 0), 0, "while it is moved, it gets an xattr");
	is_int(core_getxattr(w.core, late.ino, "user.a", value, sizeof(value)), 1, "the one from before is there");
	is_int(core_listxattr(w.core, late.ino, value, sizeof(value)), change ? 14 : 7, "and listed");
	pthread_join(thread, &told);
	is_int((int)(intptr_t)told, 0, "the move is told");
	core_session_end(w.core);
	core_world_close(&w);
	core_world_remove(&w);
}

/* The backing directory is everybody's: others append to files in it, and rename them. */
static void test_outside(void)
{
	struct core_world w;
	struct core_entry e = { 0 };
	char path[200], other[200], text[64];

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	uint64_t old = core_world_look(&w, 1, "old");
	snprintf(path, sizeof(path), "%s/old", w.backing);
	snprintf(other, sizeof(other), "%s/new", w.backing);
	is_int(rename(path, other), 0, "somebody renames a file that we have shown");
	is_int(core_lookup(w.core, 1, "new", &e), 0, "it is found under its new name");
	is_u64(e.ino, old, "and is the same file");
	is_int(core_lookup(w.core, 1, "old", &e), -ENOENT, "but not under the old one");
	ok(e.entry_timeout_sec <= 1, "which is not believed for long");

	is_int(core_setattr(w.core, old, &(struct stat){ .st_mode = 0600 }, CORE_SET_MODE, NULL, &e), 0,
		"the store knows it now");
	core_world_put_file(w.backing, "new", "from before and after");
	is_int(core_getattr(w.core, old, NULL, &e), 0, "somebody appends to it");
	is_u64((uint64_t)e.attr.st_size, 21, "its size is that of the backing file");
	is_int(core_world_write_text(&w, old, "!", 21), 1, "we append to that");
	core_world_read_text(&w, old, text, sizeof(text));
	is_str(text, "from before and after!", "and nothing is lost");

	uint64_t sub = core_world_look(&w, 1, "sub"), inner = core_world_look(&w, sub, "inner");
	is_int(core_setxattr(w.core, inner, "user.a", "1", 1, 0), 0, "another file that the store knows");
	snprintf(path, sizeof(path), "%s/sub/inner", w.backing);
	is_int(truncate(path, 3), 0, "is cut by somebody");
	is_int(core_world_write_text(&w, inner, "X", 0), 1, "before we write to it");
	core_world_read_text(&w, inner, text, sizeof(text));
	is_str(text, "Xns", "it is as long as it was then");
	core_world_close(&w);
	core_world_remove(&w);
}

/* Somebody replaces a file, as editors do, while it is open: what is written through the old one is not for the new one. */
static void test_replaced_outside(void)
{
	struct core_world w;
	struct core_open_reply o;
	char path[200], other[200], text[64];

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	uint64_t old = core_world_look(&w, 1, "old");
	is_int(core_open(w.core, old, O_RDWR, &o), 0, "an untouched file is open");
	core_world_put_file(w.backing, "new", "from another hand");
	snprintf(path, sizeof(path), "%s/old", w.backing);
	snprintf(other, sizeof(other), "%s/new", w.backing);
	is_int(rename(other, path), 0, "somebody puts another one in its place");
	is_int(core_write(w.core, o.file, "HERE", 4, 0), -ESTALE, "the one that is open is there no more");
	core_release(w.core, o.file);
	uint64_t now = core_world_look(&w, 1, "old");
	ok(now != 0 && now != old, "the new one is another file");
	core_world_read_text(&w, now, text, sizeof(text));
	is_str(text, "from another hand", "as it was made");
	is_int(core_world_write_text(&w, now, "for", 0), 3, "which can be written to");
	core_world_close(&w);
	core_world_remove(&w);
}

static void drain_inode(struct core_world *w, uint64_t ino, const char *name, uint64_t size)
{
	struct record rec = { .type = RECORD_PLACED, .ino = ino, .parent = 1 };

	snprintf(rec.name, sizeof(rec.name), "%s", name);
	is_int(core_drain_step(w->core, &rec), 0, "PLACED");
	rec = (struct record){
		.type = RECORD_DRAINED, .ino = ino, .size = size, .upto = state_seq(store_state(w->store))
	};
	is_int(core_drain_step(w->core, &rec), 0, "DRAINED");
}

static void test_renamed_after_drain(void)
{
	struct core_world w;
	struct core_entry e = { 0 };
	struct core_open_reply o;
	char path[200], other[200], text[64];

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	is_int(core_create_file(w.core, 1, "made", 0644, O_RDWR, core_world_cred, &e, &o), 0, "a new file");
	is_int(core_write(w.core, o.file, "bytes", 5, 0), 5, "with data");
	core_release(w.core, o.file);
	core_world_put_file(w.backing, "made", "bytes");
	core_session_begin(w.core, false);
	drain_inode(&w, e.ino, "made", 5);
	core_session_end(w.core);
	snprintf(path, sizeof(path), "%s/made", w.backing);
	snprintf(other, sizeof(other), "%s/there", w.backing);
	is_int(rename(path, other), 0, "is renamed outside once it is drained");
	ok(core_world_look(&w, 1, "there") != 0, "and found");
	core_world_read_text(&w, core_world_look(&w, 1, "there"), text, sizeof(text));
	is_str(text, "bytes", "with what it holds");
	is_u64(core_world_look(&w, 1, "made"), 0, "and no longer where it was");
	core_world_close(&w);
	core_world_remove(&w);
}

/* What was deleted while a drain carried it may still be open, long after the next drain has removed the backing file. */
static void test_deleted_while_drained(void)
{
	struct core_world w;
	struct core_entry e = { 0 };
	struct core_open_reply o;
	char path[200], text[8] = "";

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	is_int(core_create_file(w.core, 1, "gone", 0644, O_RDWR, core_world_cred, &e, &o), 0, "a new file");
	is_int(core_write(w.core, o.file, "bytes", 5, 0), 5, "with data");
	core_session_begin(w.core, false);
	uint64_t upto = state_seq(store_state(w.store));
	is_int(core_unlink(w.core, 1, "gone"), 0, "is deleted while it is open and a drain is at it");
	core_world_put_file(w.backing, "gone", "bytes");
	struct record rec = { .type = RECORD_PLACED, .ino = e.ino, .parent = 1, .name = "gone" };
	(void)core_drain_step(w.core, &rec);
	rec = (struct record){ .type = RECORD_DRAINED, .ino = e.ino, .size = 5, .upto = upto };
	(void)core_drain_step(w.core, &rec);
	snprintf(path, sizeof(path), "%s/gone", w.backing);
	unlink(path);
	rec = (struct record){ .type = RECORD_REMOVED, .parent = 1, .name = "gone" };
	(void)core_drain_step(w.core, &rec);
	core_session_end(w.core);
	is_int(core_read(w.core, o.file, text, 5, 0), 5, "it can be read to the end of its days");
	is_str(text, "bytes", "as it was");
	core_release(w.core, o.file);
	core_world_close(&w);
	core_world_remove(&w);
}

/* Open, go through, sync, close; open again, read, and go through again. */
static void test_through_again(void)
{
	struct core_world w;
	struct core_entry e;
	struct core_open_reply o;
	const uint64_t mib = 1 << 20;
	char *block = calloc(1, mib);
	uint64_t num = 0;
	struct core_stats stats;

	core_world_make(&w);
	core_world_open(&w, "capacity=8M,reserve=1M,full_timeout=50ms,data=log", false);
	is_int(core_create_file(w.core, 1, "big", 0600, O_RDWR, core_world_cred, &e, &o), 0,
		"a file larger than the store");
	while (num < 12 && core_write(w.core, o.file, block, mib, num * mib) == (ssize_t)mib)
		num++;
	core_stats(w.core, &stats);
	ok(num == 12 && stats.through_bytes > 0, "is written, the rest of it through");
	is_int(core_fsync(w.core, e.ino, o.file, false), 0, "synced");
	core_release(w.core, o.file);
	is_int(core_open(w.core, e.ino, O_RDWR, &o), 0, "opened again");
	is_int(core_read(w.core, o.file, block, mib, 11 * mib), (int)mib, "read");
	is_int(core_write(w.core, o.file, block, mib, 12 * mib), (int)mib, "and written through again");
	core_release(w.core, o.file);
	core_world_close(&w);
	core_world_remove(&w);
	free(block);
}

/* As the kernel does it, past the core. */
static void write_segment(struct core_world *w, uint64_t ino, uint64_t off, size_t len)
{
	struct inode in;
	char *block = calloc(1, len);
	int fd;

	state_inode(store_state(w->store), ino, &in);
	fd = segment_open_fd(store_segments(w->store), in.private_segment, true);
	if (!block || fd < 0 || pwrite(fd, block, len, (off_t)off) != (ssize_t)len)
		core_world_bail_out("cannot write to a private segment");
	close(fd);
	free(block);
}

static uint64_t written(struct core_world *w)
{
	struct core_activity a;

	core_tick(w->core);
	core_activity(w->core, &a);
	return a.bytes;
}

/* What a drain has to make way for. */
static void test_activity(void)
{
	const size_t mib = 1u << 20;
	struct core_activity a;
	struct core_world w;
	struct core_entry e;
	struct core_open_reply o;
	uint64_t before;

	core_world_make(&w);
	core_world_open(&w, "data=private", true);
	core_create_file(w.core, 1, "new", 0644, O_RDWR, core_world_cred, &e, &o);
	write_segment(&w, e.ino, 0, mib);
	before = written(&w);
	write_segment(&w, e.ino, mib, 3 * mib);
	ok(written(&w) >= before + 3 * mib, "what the kernel writes to a private file is noticed");
	before = written(&w);
	is_u64(written(&w), before, "and when it writes nothing");
	write_segment(&w, e.ino, 0, mib);
	ok(written(&w) > before, "bytes written once more are noticed, too");
	before = written(&w);
	write_segment(&w, e.ino, 4 * mib, 1);
	ok(written(&w) < before + mib, "a byte more is next to nothing");
	core_activity(w.core, &a);
	is_u64(a.syncs, 0, "nobody has asked for a sync");
	is_int(core_fsync(w.core, e.ino, o.file, false), 0, "fsync");
	core_activity(w.core, &a);
	ok(a.syncs == 1 && !a.syncing, "is counted, and has ended");
	core_release(w.core, o.file);
	core_world_close(&w);
	core_world_remove(&w);
}

/* A drain publishes a name of its snapshot after the mount has taken it away. */
static void test_doubt(void)
{
	struct core_world w;
	struct core_entry e;
	struct core_open_reply o;
	char text[128];

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	core_create_file(w.core, 1, "gone", 0644, O_WRONLY, core_world_cred, &e, &o);
	core_release(w.core, o.file);
	uint64_t ino = e.ino;
	core_session_begin(w.core, false);
	is_int(core_unlink(w.core, 1, "gone"), 0, "a new file is deleted while a drain has it in its snapshot");
	core_world_put_file(w.backing, "gone", "late");
	is_u64(core_world_look(&w, 1, "gone"), 0, "what the drain then publishes under its name is not found");
	core_world_list(&w, 1, text, sizeof(text));
	is_str(text, "old sub", "and not listed");
	struct record rec = { .type = RECORD_PLACED, .ino = ino, .parent = 1, .name = "gone" };
	is_int(core_drain_step(w.core, &rec), 0, "the step is reported");
	core_session_end(w.core);
	is_u64(core_world_look(&w, 1, "gone"), 0, "after the session the state knows the name, and hides it");
	core_world_list(&w, 1, text, sizeof(text));
	is_str(text, "old sub", "in the listing too");
	core_world_close(&w);
	core_world_remove(&w);
}

/*
 * The snapshot has "new" where "old" is in the backing directory, and "old" elsewhere. Meanwhile the mount gives "old" its name back,
 * replacing "new" or changing places with it, and takes it away again: the drain moves "old", says so, and publishes "new".
 */
static void test_doubt_of_replaced(bool exchange)
{
	struct core_world w;
	struct core_entry e;
	struct core_open_reply o;
	char from[200], to[200];

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	is_int(core_rename(w.core, 1, "old", 1, "away", 0), 0, "a file gets another name");
	uint64_t ino = core_world_look(&w, 1, "away");
	core_create_file(w.core, 1, "old", 0644, O_WRONLY, core_world_cred, &e, &o);
	core_release(w.core, o.file);
	core_session_begin(w.core, false);
	is_int(core_rename(w.core, 1, "away", 1, "old", exchange ? RENAME_EXCHANGE : 0), 0,
		exchange ? "they change places while a drain has them in its snapshot"
			 : "it replaces another one that a drain has in its snapshot");
	is_int(core_rename(w.core, 1, "old", 1, "else", 0), 0, "and goes again");
	snprintf(from, sizeof(from), "%s/old", w.backing);
	snprintf(to, sizeof(to), "%s/away", w.backing);
	is_int(rename(from, to), 0, "the drain moves it");
	struct record rec = { .type = RECORD_PLACED,
		.flags = RECORD_F_MOVED,
		.ino = ino,
		.parent = 1,
		.name = "away",
		.from_parent = 1,
		.from_name = "old" };
	is_int(core_drain_step(w.core, &rec), 0, "and says so");
	core_world_put_file(w.backing, "old", "late");
	is_u64(core_world_look(&w, 1, "old"), 0, "what it publishes there next, and has not said yet, is not found");
	int rc = core_create_file(w.core, 1, "old", 0644, O_WRONLY | O_EXCL, core_world_cred, &e, &o);
	is_int(rc, 0, "nor in the way of a new file");
	if (rc == 0)
		core_release(w.core, o.file);
	core_session_end(w.core);
	core_world_close(&w);
	core_world_remove(&w);
}

/* Written to, all of them, twice, while a session runs: each is remembered, and found again without a look at the others. */
static void test_many_busy(void)
{
	enum { MANY = 200000 };
	clock_t begin = clock();
	struct core_world w;
	double seconds;

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	core_session_begin(w.core, false);
	for (uint64_t i = 0; i < 2 * MANY; i++)
		drain_mark_busy(w.core, 2 + i % MANY * 4096);
	seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
	ok(w.core->busy.num == MANY && !w.core->all_busy, "many files are written to during a session");
	ok(seconds < 5, "it is noted in %.1f s", seconds);
	core_session_end(w.core);
	is_u64(w.core->busy.num, 0, "and forgotten behind it");
	core_world_close(&w);
	core_world_remove(&w);
}

struct looking {
	struct core *core;
	_Atomic(bool) stop;
};

static void *look_and_forget(void *arg)
{
	struct looking *l = arg;
	struct core_entry e;

	while (!l->stop)
		if (core_lookup(l->core, 1, "old", &e) == 0)
			core_forget(l->core, e.ino, 1);
	return NULL;
}

/* Other nodes of a job still ask for files then. */
static void test_unmounted(void)
{
	struct core_world w;
	struct core_entry e;
	struct core_open_reply o;
	struct inode in;
	pthread_t thread;

	core_world_make(&w);
	core_world_open(&w, "data=log", false);
	struct looking looking = { .core = w.core };
	if (pthread_create(&thread, NULL, look_and_forget, &looking))
		core_world_bail_out("a thread cannot be made");
	for (int i = 0; i < 20; i++) {
		if (core_create_file(w.core, 1, "gone", 0600, O_RDWR, core_world_cred, &e, &o) < 0)
			core_world_bail_out("a file cannot be made");
		core_release(w.core, o.file);
		is_int(core_unlink(w.core, 1, "gone"), 0, "a file loses its name");
		is_int(state_inode(w.core->state, e.ino, &in), 0, "the kernel still knows it");
		core_unmounted(w.core);
		is_int(state_inode(w.core->state, e.ino, &in), -ENOENT, "it is freed at the unmount");
	}
	looking.stop = true;
	pthread_join(thread, NULL);
	core_world_close(&w);
	core_world_remove(&w);
}

int main(void)
{
	test_overlay();
	test_private();
	test_private_before_layout(false);
	test_private_before_layout(true);
	test_habit();
	test_through();
	test_payload_damaged();
	test_patience();
	test_xattrs();
	test_xattrs_left();
	test_nameless();
	test_far_times();
	test_xattrs_in_motion(false);
	test_xattrs_in_motion(true);
	test_activity();
	test_doubt();
	test_doubt_of_replaced(false);
	test_doubt_of_replaced(true);
	test_many_busy();
	test_outside();
	test_replaced_outside();
	test_renamed_after_drain();
	test_deleted_while_drained();
	test_through_again();
	test_unmounted();
	return done_testing();
}
