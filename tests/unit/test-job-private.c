/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Private files of a node that others want, too. What a kernel would do to them without the daemon is done here through the descriptor
 * that it was given.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/job/private.h"
#include "fs/job/share.h"
#include "tests/lib/job_world.h"
#include "tests/lib/tap.h"

static const struct core_cred cred = { 0 };

struct open { /* an open file of a node */
	struct job *j;
	struct job_file *file;
	struct core_open_reply reply;
};

static struct job_world *world(uint32_t num)
{
	return job_world_start_with(&(struct job_world_options){
		.num = num, .settings = "data=private,private_min_free=0", .passthrough = true });
}

static uint64_t create(struct job_world *w, uint32_t node, struct open *ret)
{
	struct core_entry e = { 0 };

	ret->j = job_world_job(w, node);
	if (job_create_file(ret->j, 1, "f", 0644, O_RDWR, cred, &e, &ret->file, &ret->reply))
		exit(1);
	ok(ret->reply.backing_id > 0, "a file that the kernel writes without us");
	return e.ino;
}

static int open_at(struct job_world *w, uint32_t node, uint64_t ino, int flags, struct open *ret)
{
	ret->j = job_world_job(w, node);
	return job_open(ret->j, ino, flags, &ret->file, &ret->reply);
}

static int close_it(struct open *o)
{
	int rc = job_flush(o->j, o->file);

	job_release(o->j, o->file);
	return rc;
}

static bool put(struct open *o, const char *text, uint64_t off)
{
	return job_write(o->j, o->file, text, strlen(text), off) == (ssize_t)strlen(text);
}

static bool sync_it(struct open *o, uint64_t ino)
{
	return job_fsync(o->j, ino, o->file, false) == 0;
}

static bool shows(struct open *o, const char *text)
{
	char buf[256] = "";
	ssize_t got = job_read(o->j, o->file, buf, sizeof(buf) - 1, 0);

	if (got == (ssize_t)strlen(text) && strcmp(buf, text) == 0)
		return true;
	printf("# %zd bytes: %s, not %s\n", got, buf, text);
	return false;
}

static bool kernel_puts(struct job_world *w, const char *text, uint64_t off)
{
	return pwrite(job_world_kernel_fd(w, 0), text, strlen(text), (off_t)off) == (ssize_t)strlen(text);
}

static bool kernel_sees(struct job_world *w, const char *text)
{
	char buf[256] = "";
	ssize_t got = pread(job_world_kernel_fd(w, 0), buf, sizeof(buf) - 1, 0);

	if (got == (ssize_t)strlen(text) && strcmp(buf, text) == 0)
		return true;
	printf("# the kernel sees %s, not %s\n", buf, text);
	return false;
}

static bool is_flagged(struct job_world *w, uint64_t ino, uint32_t flag)
{
	struct inode in;

	return state_inode(store_state(job_world_store(w, 0)), ino, &in) == 0 && in.flags & flag;
}

static void test_readers(void)
{
	struct job_world *w = world(3);
	struct open a, b;
	uint64_t ino = create(w, 0, &a), off = 9;
	struct core_entry e;

	ok(kernel_puts(w, "hello", 0), "written");
	is_int(open_at(w, 1, ino, O_RDONLY, &b), 0, "opened elsewhere while it is written");
	ok(shows(&b, "hello"), "and read");
	ok(kernel_puts(w, "HELLO, you", 0) && sync_it(&a, ino), "written once more, and synced");
	ok(shows(&b, "HELLO, you"), "the open file shows it");
	is_int(job_lookup(b.j, 1, "f", &e), 0, "found elsewhere");
	is_u64((uint64_t)e.attr.st_size, 10, "and its size");
	is_int(job_lseek(b.j, b.file, 2, SEEK_DATA, &off), 0, "sought");
	is_u64(off, 2, "all of it is data");
	ok(is_flagged(w, ino, INODE_PRIVATE), "it is private still");
	is_int(close_it(&a), 0, "closed");
	ok(shows(&b, "HELLO, you"), "and read again");
	ok(!is_flagged(w, ino, INODE_PRIVATE), "then it is one of the log");
	is_int(open_at(w, 0, ino, O_RDWR, &a), 0, "opened at home again");
	ok(a.reply.backing_id == 0 && put(&a, "h", 0) && sync_it(&a, ino), "written through us");
	ok(shows(&b, "hELLO, you"), "and read elsewhere");
	is_int(close_it(&a) + close_it(&b), 0, "closed");
	job_world_stop(w);
}

static void test_writers(void)
{
	struct job_world *w = world(3);
	struct open a, b, c;
	uint64_t ino = create(w, 0, &a);

	ok(kernel_puts(w, "0000000000", 0), "written");
	is_int(open_at(w, 1, ino, O_RDWR, &b), 0, "opened for writing elsewhere");
	is_int(open_at(w, 2, ino, O_RDWR, &c), 0, "and by a third");
	ok(put(&b, "111", 2) && shows(&b, "0011100000"), "who writes sees it");
	ok(kernel_sees(w, "0011100000"), "and so does the home's kernel");
	ok(kernel_puts(w, "x", 9) && put(&c, "22", 6), "the others write");
	ok(sync_it(&b, ino) && sync_it(&c, ino) && sync_it(&a, ino), "all sync");
	ok(shows(&b, "001110220x") && shows(&c, "001110220x"), "all see all");
	ok(put(&b, "longer", 12) && sync_it(&b, ino), "written past the end");
	is_u64(shared_size(c.j, c.file->shared), 18, "the size is known to the third");
	is_int(share_truncate(c.j, ino, 4), 0, "cut");
	ok(kernel_sees(w, "0011") && shows(&b, "0011"), "everywhere");
	is_int(job_fallocate(b.j, b.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2), 0, "punched");
	ok(put(&c, "__", 0) && kernel_sees(w, "__11"), "and written");
	ok(is_flagged(w, ino, INODE_PRIVATE), "it is private still");
	is_int(close_it(&a), 0, "its home closes it");
	ok(put(&b, "b", 0), "one writes");
	ok(is_flagged(w, ino, INODE_SHARED) && !is_flagged(w, ino, INODE_PRIVATE), "now it is a shared file");
	ok(put(&c, "c", 1) && sync_it(&b, ino) && sync_it(&c, ino), "the other, too");
	ok(shows(&b, "bc11") && shows(&c, "bc11"), "both see both");
	is_int(open_at(w, 0, ino, O_RDWR, &a), 0, "opened at home again");
	ok(put(&a, "a", 3) && shows(&a, "bc1a") && sync_it(&a, ino) && shows(&c, "bc1a"), "and written there");
	is_int(close_it(&a) + close_it(&b) + close_it(&c), 0, "closed");
	job_world_stop(w);
}

/* How often the home has been asked for a file to be on its device. */
static uint64_t num_syncs(struct job_world *w)
{
	struct core_activity now;

	core_activity(job_world_core(w, 0), &now);
	return now.syncs;
}

static bool is_synced(struct job_world *w, struct open *o, uint64_t ino)
{
	uint64_t before = num_syncs(w);

	return sync_it(o, ino) && num_syncs(w) == before + 1;
}

static void *put_x(void *arg)
{
	return (void *)(uintptr_t)put(arg, "x", 0);
}

/* Whoever has told others meanwhile, and as often as that was: fsync is not done before the home's device has it. */
static void test_synced(void)
{
	struct job_world *w = world(2);
	struct loopback *l = job_world_loopback(w);
	struct open a, b, c;
	uint64_t ino = create(w, 0, &a);
	pthread_t thread;
	void *good;

	is_int(open_at(w, 1, ino, O_RDWR, &b) + open_at(w, 1, ino, O_RDWR, &c), 0, "opened elsewhere, twice");
	loopback_hold_reply(l, 0, MESSAGE_SHARE_CARRY, 0);
	pthread_create(&thread, NULL, put_x, &b);
	loopback_await_held(l, 0);
	is_int(job_flush(c.j, c.file), 0, "all is told while something is on its way");
	loopback_let_go(l, 0);
	pthread_join(thread, &good);
	ok(good, "and is written in the end");
	ok(is_synced(w, &b, ino), "fsync has the home sync it");
	ok(put(&b, "y", 0) && job_flush(c.j, c.file) == 0, "written, and told");
	ok(is_synced(w, &b, ino), "fsync has the home sync it");
	ok(put(&b, "z", 0), "written");
	is_int(close_it(&b) + close_it(&c), 0, "and closed");
	is_int(open_at(w, 1, ino, O_RDONLY, &b), 0, "opened again");
	ok(is_synced(w, &b, ino), "fsync has the home sync it");
	is_int(close_it(&a) + close_it(&b), 0, "closed");
	job_world_stop(w);
}

static void test_appends(void)
{
	struct job_world *w = world(2);
	struct open a, b;
	uint64_t ino = create(w, 0, &a);

	is_int(open_at(w, 1, ino, O_WRONLY | O_APPEND, &b), 0, "opened to append");
	ok(kernel_puts(w, "one ", 0) && put(&b, "two ", 0) && kernel_puts(w, "three ", 8) && put(&b, "four", 0),
		"appended by turns");
	ok(kernel_sees(w, "one two three four"), "nothing is lost");
	is_int(close_it(&a), 0, "closed at home");
	ok(put(&b, " five", 0), "appended");
	is_int(open_at(w, 0, ino, O_RDONLY, &a), 0, "opened");
	is_int(close_it(&b), 0, "closed");
	ok(shows(&a, "one two three four five"), "all is there");
	is_int(close_it(&a), 0, "closed");
	job_world_stop(w);
}

/* It arrives when it has failed. */
static void test_late(void)
{
	struct job_world *w = job_world_start_with(&(struct job_world_options){ .num = 2,
		.settings = "data=private,private_min_free=0",
		.passthrough = true,
		.timeout_usec = 1000000 });
	struct loopback *l = job_world_loopback(w);
	struct open a, b, c;
	uint64_t ino = create(w, 0, &a);

	is_int(open_at(w, 1, ino, O_RDWR, &b), 0, "opened elsewhere");
	is_int(open_at(w, 1, ino, O_WRONLY | O_APPEND, &c), 0, "and to append");
	ok(put(&b, "first", 0), "written there");
	loopback_hold_request(l, 1, 0, MESSAGE_SHARE_CARRY);
	is_int(job_write(b.j, b.file, "J", 1, 0), -EIO, "what does not arrive is not written");
	is_int(job_write(c.j, c.file, "J", 1, 0), -EIO, "nor appended");
	is_int(job_fallocate(b.j, b.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2), -EIO, "nor punched");
	loopback_let_go(l, 1);
	loopback_settle(l);
	ok(shows(&b, "first") && kernel_sees(w, "first"), "nor when it does");
	ok(put(&c, " last", 0) && shows(&b, "first last"), "what comes later is");
	is_int(close_it(&a) + close_it(&b) + close_it(&c), 0, "closed");
	job_world_stop(w);
}

/* The home's daemon dies, and with it its kernel's way to the file. */
static void test_home_dies(void)
{
	struct job_world *w = world(2);
	struct open a, b;
	uint64_t ino = create(w, 0, &a);

	ok(kernel_puts(w, "hello", 0), "written");
	is_int(open_at(w, 1, ino, O_RDWR, &b), 0, "opened elsewhere");
	ok(put(&b, "J", 0), "written there");
	job_release(a.j, a.file);
	job_world_restart(w, 0);
	ok(shows(&b, "Jello"), "what was carried is there when the home is another one");
	ok(put(&b, "y", 4) && sync_it(&b, ino) && shows(&b, "Jelly"), "and it can be written");
	is_int(open_at(w, 0, ino, O_RDONLY, &a), 0, "opened at home");
	ok(shows(&a, "Jelly"), "and read there");
	is_int(close_it(&a) + close_it(&b), 0, "closed");
	job_world_stop(w);
}

/* What was carried to it and not synced may have gone with its power: fsync does not say that it is there. */
static void test_home_loses_power(void)
{
	struct job_world *w = world(2);
	struct open a, b, c;
	uint64_t ino = create(w, 0, &a);

	is_int(open_at(w, 1, ino, O_RDWR, &b), 0, "opened elsewhere");
	ok(put(&b, "synced", 0) && sync_it(&b, ino), "written there, and synced");
	job_release(a.j, a.file);
	job_world_lose_power(w, 0, 1);
	job_world_revive(w, 0);
	ok(sync_it(&b, ino), "nothing of that is lost with the power of its home");
	is_int(close_it(&b), 0, "closed");
	job_world_stop(w);

	w = world(2);
	ino = create(w, 0, &a);
	is_int(open_at(w, 1, ino, O_RDWR, &b), 0, "opened elsewhere");
	ok(put(&b, "not", 0) && job_flush(b.j, b.file) == 0, "written there, and told");
	job_release(a.j, a.file);
	job_world_lose_power(w, 0, 1);
	job_world_revive(w, 0);
	for (int i = 0; i < 2; i++)
		is_int(job_fsync(b.j, ino, b.file, false), -ESTALE, "fsync says that its home has lost power since");
	is_int(open_at(w, 1, ino, O_RDWR, &c), 0, "opened anew");
	ok(put(&c, "anew", 0) && sync_it(&c, ino), "written, and synced");
	(void)close_it(&b);
	is_int(close_it(&c), 0, "closed");
	job_world_stop(w);
}

/* So may attributes that its home was asked to set. */
static void test_home_forgets_mode(bool xattr)
{
	struct job_world *w = world(2);
	struct core_entry e;
	struct open a, b;
	uint64_t ino = create(w, 0, &a);
	int rc;

	is_int(close_it(&a), 0, "closed");
	is_int(job_lookup(job_world_job(w, 1), 1, "f", &e), 0, "found elsewhere");
	is_int(open_at(w, 1, ino, O_RDWR, &b), 0, "opened there");
	ok(sync_it(&b, ino), "and synced");
	if (xattr)
		rc = job_setxattr(b.j, ino, "user.x", "1", 1, 0);
	else
		rc = job_setattr(b.j, ino, &(struct stat){ .st_mode = S_IFREG | 0600 }, CORE_SET_MODE, b.file, &e);
	is_int(rc, 0, "set there");
	job_world_lose_power(w, 0, 1);
	job_world_revive(w, 0);
	is_int(job_fsync(b.j, ino, b.file, false), -ESTALE, "fsync says that its home has lost power since");
	(void)close_it(&b);
	is_int(open_at(w, 1, ino, O_RDWR, &b), 0, "opened anew");
	is_int(job_setattr(b.j, ino, &(struct stat){ .st_mode = S_IFREG | 0640 }, CORE_SET_MODE, b.file, &e), 0, "set");
	ok(sync_it(&b, ino), "and synced");
	job_world_lose_power(w, 0, 1);
	job_world_revive(w, 0);
	ok(sync_it(&b, ino), "what was is not lost");
	is_int(close_it(&b), 0, "closed");
	job_world_stop(w);
}

/* Holes of a private file are none of its extents; and of many pieces. */
static void test_seal(void)
{
	struct job_world *w = world(2);
	struct open a, b;
	uint64_t ino = create(w, 0, &a), next;
	struct extent e[4];
	char far = 0;
	size_t num;

	ok(kernel_puts(w, "begin", 0) && kernel_puts(w, "end", 64 << 20), "a file with a hole");
	is_int(close_it(&a), 0, "closed");
	is_int(open_at(w, 1, ino, O_RDONLY, &b), 0, "opened elsewhere");
	is_int(job_read(b.j, b.file, &far, 1, (64 << 20) + 2), 1, "read");
	ok(far == 'd', "what was written");
	is_int(state_extents(store_state(job_world_store(w, 0)), ino, 0, 1 << 30, e, 4, &num, &next), 0, "extents");
	ok(num == 2 && e[1].off >= 32 << 20, "of what is there alone");
	is_int(close_it(&b), 0, "closed");
	job_world_stop(w);
}

static struct job_world *full_world(uint32_t num)
{
	return job_world_start_with(&(struct job_world_options){
		.num = num, .settings = "data=log,capacity=64M,reserve=1M,full_timeout=0s" });
}

/* A file at its home, whose store gets full of it. Returns its size. */
static uint64_t create_large(struct job_world *w, struct open *a, uint64_t *ret_ino)
{
	char *block = calloc(1, 1 << 20);
	struct core_stats stats = { 0 };
	struct core_entry e;
	uint64_t off = 0;
	bool good = true;

	a->j = job_world_job(w, 0);
	is_int(job_create_file(a->j, 1, "f", 0644, O_RDWR, cred, &e, &a->file, &a->reply), 0, "a file");
	memset(block, 'a', 1 << 20);
	for (; good && stats.through_bytes < 2 << 20 && off < 128 << 20; off += 1 << 20) {
		good = job_write(a->j, a->file, block, 1 << 20, off) == 1 << 20;
		core_stats(job_world_core(w, 0), &stats);
	}
	ok(good && stats.through_bytes > 0, "is larger than the store");
	free(block);
	*ret_ino = e.ino;
	return off;
}

/* The home's store is full, and what did not fit any more is in the backing file alone. */
static void test_full(void)
{
	struct job_world *w = full_world(2);
	struct open a, b;
	uint64_t ino, off = create_large(w, &a, &ino);
	char block[6];

	is_int(open_at(w, 1, ino, O_RDWR, &b), 0, "and opened for writing elsewhere");
	ok(put(&b, "begin", 0) && put(&b, "end", off - 3) && sync_it(&b, ino), "and written there");
	is_int(job_read(a.j, a.file, block, 6, 0), 6, "read at home");
	ok(memcmp(block, "begina", 6) == 0, "as written");
	is_int(job_read(b.j, b.file, block, 6, off - 4), 4, "read elsewhere at its end");
	ok(memcmp(block, "aend", 4) == 0, "as written");
	ok(put(&a, "AB", off - 2) && sync_it(&a, ino), "written at home");
	is_int(job_read(b.j, b.file, block, 6, off - 4), 4, "read elsewhere");
	ok(memcmp(block, "aeAB", 4) == 0, "as written");
	is_int(close_it(&a) + close_it(&b), 0, "closed");
	job_world_stop(w);
}

#define APPENDERS 3
#define RECORD    (64u << 10)
#define RECORDS   40u

/* Where its kernel takes the end to be, at home, is where it was when the file was opened. */
static void *append_records(void *arg)
{
	struct open *o = arg;
	static __thread char record[RECORD];
	bool good = true;

	memset(record, 'A' + (int)peers_self(o->j->peers), RECORD);
	for (uint32_t i = 0; good && i < RECORDS; i++)
		good = job_write(o->j, o->file, record, RECORD, 0) == RECORD;
	return (void *)(uintptr_t)good;
}

static uint32_t count_whole(struct open *o, uint64_t off, uint64_t end)
{
	static char record[RECORD];
	uint32_t whole = 0;

	for (; off < end; off += RECORD)
		if (job_read(o->j, o->file, record, RECORD, off) == RECORD && record[0] >= 'A' && record[0] <= 'C' &&
			memcmp(record, record + 1, RECORD - 1) == 0)
			whole++;
	return whole;
}

static void test_full_appends(void)
{
	struct job_world *w = full_world(APPENDERS);
	struct open a, at[APPENDERS];
	uint64_t ino, end = create_large(w, &a, &ino);
	pthread_t threads[APPENDERS];
	void *good;

	for (uint32_t n = 0; n < APPENDERS; n++)
		is_int(open_at(w, n, ino, O_WRONLY | O_APPEND, &at[n]), 0, "opened to append");
	for (uint32_t n = 0; n < APPENDERS; n++)
		pthread_create(&threads[n], NULL, append_records, &at[n]);
	for (uint32_t n = 0; n < APPENDERS; n++) {
		pthread_join(threads[n], &good);
		ok(good, "a node appends");
	}
	for (uint32_t n = 0; n < APPENDERS; n++)
		is_int(close_it(&at[n]), 0, "closed");
	is_u64(count_whole(&a, end, end + APPENDERS * RECORDS * RECORD), APPENDERS * RECORDS, "all records are there");
	is_int(close_it(&a), 0, "closed");
	job_world_stop(w);
}

int main(void)
{
	test_full();
	test_full_appends();
	test_readers();
	test_writers();
	test_synced();
	test_appends();
	test_late();
	test_home_dies();
	test_home_loses_power();
	test_home_forgets_mode(false);
	test_home_forgets_mode(true);
	test_seal();
	return done_testing();
}
