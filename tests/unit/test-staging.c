/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Staging: what is acknowledged in shared memory is read back while it is on its way, after its writer was killed, by
 * readers that may not change anything, and when the device fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "format/base/crc32c.h"
#include "format/segment/segment.h"
#include "tests/lib/payload.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"

#define MIB       (1u << 20)
#define SLOTS     4u
#define LONG_USEC 20000 /* what has not happened by then does not happen */
#define HEADER    4096u

static char work[64] = "/tmp/cistern-test-staging-XXXXXX";
static const uint8_t uuid[16] = { 0xab, 0xcd, 1, 2, 3 };
#define REGION_NAME "cistern-abcd0102-0300-0000-0000-000000000000"

static char *in_work(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", work, name);
	return path;
}

/* ---- a directory whose writes can be held up, or fail */

static struct gate {
	pthread_mutex_t lock;
	pthread_cond_t opened;
	bool closed;
	int error;
	unsigned int writes; /* begun */
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER };

static const struct io_ops *real_ops;
static struct io_ops gated_ops;
static struct io_ops gated_dir_ops;

static ssize_t gated_pwrite(struct io_file *file, const void *buf, size_t len, uint64_t off)
{
	int error;

	pthread_mutex_lock(&gate.lock);
	gate.writes++;
	while (gate.closed)
		pthread_cond_wait(&gate.opened, &gate.lock);
	error = gate.error;
	pthread_mutex_unlock(&gate.lock);
	return error ? error : real_ops->pwrite(file, buf, len, off);
}

static int gated_fd(struct io_file *file)
{
	(void)file;
	return -ENOTSUP; /* so that nothing goes past the gate */
}

static int gated_open(struct io *io, const char *path, unsigned int flags, struct io_file **ret)
{
	int r = real_ops->open(io, path, flags, ret);

	if (!r) {
		gated_ops = *(*ret)->ops;
		gated_ops.pwrite = gated_pwrite;
		gated_ops.fd = gated_fd;
		(*ret)->ops = &gated_ops;
	}
	return r;
}

static void gate_set(bool closed, int error)
{
	pthread_mutex_lock(&gate.lock);
	gate.closed = closed;
	gate.error = error;
	pthread_cond_broadcast(&gate.opened);
	pthread_mutex_unlock(&gate.lock);
}

static struct io *open_io(bool gated)
{
	int fd = open(work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct io *io = NULL;

	if (fd < 0 || io_posix_create(fd, &io))
		abort();
	close(fd);
	if (gated) {
		real_ops = io->ops;
		gated_dir_ops = *io->ops;
		gated_dir_ops.open = gated_open;
		io->ops = &gated_dir_ops;
	}
	return io;
}

static struct segment_set *open_set(struct io *io, bool read_only)
{
	struct segment_options opt = { .segment_bytes = 8 * MIB,
		.read_only = read_only,
		.staging = { .uuid = uuid, .owner = geteuid(), .bytes = SLOTS * MIB, .dir = work } };
	struct cistern_error err = { 0 };
	struct segment_set *set = NULL;

	if (segment_set_open(io, &opt, &set, &err))
		tap_diag("%s", err.text);
	return set;
}

/* ---- payloads */

struct payload {
	uint32_t segment, len, seed;
	uint64_t off;
};

static int stage(struct segment_set *set, void *slot, uint32_t len, uint32_t seed, struct payload *ret)
{
	*ret = (struct payload){ .len = len, .seed = seed };
	payload_fill(slot, len, seed);
	return segment_append_crc(set, slot, len, crc32c(0, slot, len), &ret->segment, &ret->off);
}

static bool reads_back(struct segment_set *set, const struct payload *p)
{
	uint8_t *buf = malloc(p->len);
	bool good =
		segment_read(set, p->segment, p->off, buf, p->len) == 0 && payload_is(buf, 0, p->len, p->len, p->seed);

	free(buf);
	return good;
}

static bool file_has(const struct payload *p)
{
	uint8_t *buf = malloc(p->len);
	char name[32];
	int fd;
	bool good;

	snprintf(name, sizeof(name), "segment/%08u.seg", p->segment);
	fd = open(in_work(name), O_RDONLY);
	good = fd >= 0 && pread(fd, buf, p->len, (off_t)p->off) == (ssize_t)p->len &&
	       payload_is(buf, 0, p->len, p->len, p->seed);
	close(fd);
	free(buf);
	return good;
}

static bool region_exists(void)
{
	return access(in_work(REGION_NAME), F_OK) == 0;
}

/* ---- on its way */

struct waiter {
	pthread_t thread;
	struct segment_set *set;
	int (*call)(struct segment_set *set, struct waiter *w);
	void *slot;
	int result;
	atomic_bool done;
};

static void *waiter_main(void *arg)
{
	struct waiter *w = arg;

	w->result = w->call(w->set, w);
	atomic_store(&w->done, true);
	return NULL;
}

static int call_sync(struct segment_set *set, struct waiter *w)
{
	(void)w;
	return segment_sync(set);
}

static int call_get(struct segment_set *set, struct waiter *w)
{
	w->slot = segment_slot_get(set, true);
	return w->slot ? 0 : -ENOBUFS;
}

static void begin(struct waiter *w, struct segment_set *set, int (*call)(struct segment_set *, struct waiter *))
{
	*w = (struct waiter){ .set = set, .call = call };
	if (pthread_create(&w->thread, NULL, waiter_main, w))
		abort();
	usleep(LONG_USEC);
}

static void test_in_flight(void)
{
	struct io *io = open_io(true);
	struct segment_set *set = open_set(io, false);
	struct payload p[3], plain = { .len = 5000, .seed = 77 };
	uint8_t buf[2 * MIB];
	void *slot[3];
	struct waiter sync;
	bool good = true;

	is_u64(segment_slots(set), SLOTS, "slots");
	gate_set(true, 0);
	for (unsigned int i = 0; i < 3; i++) {
		slot[i] = segment_slot_get(set, false);
		good = good && slot[i] && (uintptr_t)slot[i] % 4096 == 0 && !segment_slot_taken(set, slot[i]);
		good = good && stage(set, slot[i], i == 1 ? 100001 : MIB, i, &p[i]) == 0;
		good = good && segment_slot_taken(set, slot[i]);
	}
	ok(good, "three payloads are staged");
	ok(p[0].off == 0 && p[1].off == MIB && p[2].off == MIB + 102400, "one behind the other, in whole blocks");
	ok(reads_back(set, &p[0]) && reads_back(set, &p[1]) && reads_back(set, &p[2]), "read while on their way");
	ok(!file_has(&p[0]), "not in the file yet");
	is_int(segment_read(set, p[0].segment, MIB - 1000, buf, 3000), 0, "across two of them");
	ok(payload_is(buf, MIB - 1000, 1000, p[0].len, p[0].seed) &&
			payload_is(buf + 1000, 0, 2000, p[1].len, p[1].seed),
		"both parts");
	ok(segment_needs_sync(set), "a sync is needed");
	begin(&sync, set, call_sync);
	ok(!atomic_load(&sync.done), "it waits for them");
	gate_set(false, 0);
	pthread_join(sync.thread, NULL);
	is_int(sync.result, 0, "and ends with them");
	ok(file_has(&p[0]) && file_has(&p[1]) && file_has(&p[2]), "they are in the file");
	ok(!segment_needs_sync(set), "no sync is needed");
	ok(payload_is(slot[0], 0, MIB, p[0].len, p[0].seed), "a slot keeps its bytes until it is given back");
	payload_fill(buf, plain.len, plain.seed);
	is_int(segment_append_crc(set, buf, plain.len, crc32c(0, buf, plain.len), &plain.segment, &plain.off), 0,
		"a copy");
	ok(plain.segment != p[0].segment && reads_back(set, &plain), "copied payloads have other segments");
	is_int(segment_append(set, slot[0], 100, &plain.segment, &plain.off), 0, "a small one");
	for (unsigned int i = 0; i < 3; i++)
		segment_slot_put(set, slot[i]);
	ok(region_exists(), "there is a region");
	segment_set_destroy(set);
	ok(!region_exists(), "and it goes in the end");
	io_destroy(io);
}

static void test_back_pressure(void)
{
	struct io *io = open_io(true);
	struct segment_set *set = open_set(io, false);
	void *slot[SLOTS];
	struct payload p[SLOTS];
	struct waiter get;
	bool good = true;

	for (unsigned int i = 0; i < SLOTS; i++)
		slot[i] = segment_slot_get(set, true);
	ok(!segment_slot_get(set, false) && !segment_slot_get(set, true), "none is free, and none is coming");
	gate_set(true, 0);
	for (unsigned int i = 0; i < SLOTS; i++)
		good = good && stage(set, slot[i], MIB, 10 + i, &p[i]) == 0;
	for (unsigned int i = 0; i < SLOTS; i++)
		segment_slot_put(set, slot[i]);
	ok(good && !segment_slot_get(set, false), "all are on their way");
	begin(&get, set, call_get);
	ok(!atomic_load(&get.done), "one who waits for a slot");
	gate_set(false, 0);
	pthread_join(get.thread, NULL);
	ok(get.slot && !segment_slot_taken(set, get.slot), "gets one");
	segment_slot_put(set, get.slot);
	for (unsigned int i = 0; i < SLOTS; i++)
		good = good && reads_back(set, &p[i]);
	ok(good, "nothing was written over");
	is_int(segment_remove(set, p[0].segment), 0, "their segment is removed");
	is_int(segment_read(set, p[0].segment, 0, &good, 1), -ENOENT, "and gone");
	segment_set_destroy(set);
	io_destroy(io);
}

static void test_failure(void)
{
	struct io *io = open_io(true);
	struct segment_set *set = open_set(io, false);
	void *slot = segment_slot_get(set, false);
	struct payload p, other;
	uint8_t byte = 1;

	gate_set(false, -EIO);
	is_int(stage(set, slot, 300000, 5, &p), 0, "acknowledged before the device fails");
	segment_slot_put(set, slot);
	is_int(segment_sync(set), -EIO, "sync fails");
	gate_set(false, 0);
	is_int(segment_sync(set), -EIO, "for ever");
	is_int(segment_settle(set), -EIO, "nobody is told that others can read it");
	is_int(segment_append(set, &byte, 1, &other.segment, &other.off), -EIO, "nothing more is appended");
	ok(reads_back(set, &p), "it is read from where it is");
	segment_set_destroy(set);
	ok(region_exists(), "where it stays");
	set = open_set(io, false);
	is_u64(segment_found_staged(set), 1, "the next one finds it");
	ok(file_has(&p) && reads_back(set, &p), "and writes it");
	segment_set_destroy(set);
	ok(!region_exists(), "the region has gone");
	io_destroy(io);
}

/* ---- left by the dead */

/* A child stages num payloads of which none gets to its file, and dies. */
static void die_staged(struct payload *shared, unsigned int num)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct segment_set *set;

		gate_set(true, 0);
		set = open_set(open_io(true), false);
		for (unsigned int i = 0; i < num; i++)
			if (stage(set, segment_slot_get(set, false), 70000 + 100000 * i, 20 + i, &shared[i]))
				_exit(1);
		kill(getpid(), SIGKILL);
	}
	ok(pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), "a writer is killed");
}

static bool fd_has(int fd, const struct payload *p)
{
	uint8_t *buf = malloc(p->len);
	bool good =
		pread(fd, buf, p->len, (off_t)p->off) == (ssize_t)p->len && payload_is(buf, 0, p->len, p->len, p->seed);

	free(buf);
	return good;
}

static void test_left(void)
{
	struct payload *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct io *io = open_io(false);
	struct segment_set *set;
	struct stat before, after;
	bool good = true;
	int fd;

	die_staged(p, 3);
	ok(region_exists() && !file_has(&p[0]), "its payloads are in shared memory only");
	stat(in_work(REGION_NAME), &before);
	set = open_set(io, true);
	is_u64(segment_found_staged(set), 3, "a reader sees them");
	for (unsigned int i = 0; i < 3; i++)
		good = good && reads_back(set, &p[i]);
	ok(good, "and reads them");
	fd = segment_open_fd(set, p[0].segment, false);
	ok(fd >= 0 && fd_has(fd, &p[0]) && fd_has(fd, &p[2]), "by descriptor as well");
	close(fd);
	fd = segment_open_fd(set, p[0].segment, false);
	ok(fd >= 0 && fd_has(fd, &p[1]), "twice");
	close(fd);
	segment_set_destroy(set);
	stat(in_work(REGION_NAME), &after);
	ok(!file_has(&p[0]) && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec, "without changing anything");
	unlink(in_work("segment/00000000.seg"));
	set = open_set(io, false);
	is_u64(segment_found_staged(set), 3, "the next writer finds them");
	ok(file_has(&p[0]) && file_has(&p[1]) && file_has(&p[2]), "and puts them in place");
	segment_set_destroy(set);
	ok(!region_exists(), "nothing stays behind");
	io_destroy(io);
	munmap(p, 4096);
}

static void *let_go(void *arg)
{
	usleep(200000);
	close(*(int *)arg);
	return NULL;
}

/* The store's lock went a moment before the region's. */
static void test_dying(void)
{
	struct payload *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct io *io = open_io(false);

	die_staged(p, 2);
	for (int read_only = 1; read_only >= 0; read_only--) {
		int fd = open(in_work(REGION_NAME), O_RDWR);
		struct segment_set *set;
		pthread_t thread;

		ok(fd >= 0 && fcntl(fd, F_OFD_SETLK, &whole) == 0 && pthread_create(&thread, NULL, let_go, &fd) == 0,
			"its memory is still in use");
		set = open_set(io, read_only);
		is_u64(segment_found_staged(set), 2, "what it had staged is found");
		ok(reads_back(set, &p[0]) && reads_back(set, &p[1]), "and read");
		pthread_join(thread, NULL);
		segment_set_destroy(set);
	}
	io_destroy(io);
	munmap(p, 4096);
}

/* Flips a byte of the region; recovery must pass over that slot, or refuse the whole. */
static void flip(off_t at)
{
	int fd = open(in_work(REGION_NAME), O_RDWR);
	uint8_t byte;

	if (fd < 0 || pread(fd, &byte, 1, at) != 1)
		abort();
	byte ^= 0x40;
	if (pwrite(fd, &byte, 1, at) != 1)
		abort();
	close(fd);
}

static int try_open(struct io *io)
{
	struct segment_options opt = { .segment_bytes = 8 * MIB,
		.staging = { .uuid = uuid, .owner = geteuid(), .dir = work } };
	struct cistern_error err = { 0 };
	struct segment_set *set = NULL;
	int r = segment_set_open(io, &opt, &set, &err);

	if (r && !strstr(err.text, "remove"))
		tap_diag("no remedy in: %s", err.text);
	segment_set_destroy(set);
	return r;
}

static void test_damaged(void)
{
	struct payload *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct io *io = open_io(false);
	struct segment_set *set, *other;
	int fd;

	die_staged(p, 3);
	flip(HEADER + 20);                                   /* the first slot's place */
	flip(HEADER + (off_t)(HEADER + MIB) + HEADER + 500); /* the second one's payload */
	set = open_set(io, false);
	is_u64(segment_found_staged(set), 1, "what is not whole is not used");
	ok(!file_has(&p[0]) && !file_has(&p[1]) && file_has(&p[2]), "the rest is");
	other = open_set(io, true);
	is_u64(segment_found_staged(other), 0, "that of a living process is left alone");
	segment_set_destroy(other);
	segment_set_destroy(set);
	die_staged(p, 1);
	flip(20);
	is_int(try_open(io), -EBADMSG, "a region that is not understood is refused");
	flip(20);
	is_int(try_open(io), 0, "and taken when it is");
	ok(file_has(&p[0]) && !region_exists(), "also without staging of one's own");
	fd = open(in_work(REGION_NAME), O_CREAT | O_EXCL | O_RDWR, 0600);
	ok(fd >= 0 && ftruncate(fd, 8192) == 0 && close(fd) == 0, "one that was never finished");
	set = open_set(io, false);
	ok(segment_slots(set) == SLOTS, "is replaced");
	segment_set_destroy(set);
	ok(symlink("/etc/passwd", in_work(REGION_NAME)) == 0, "a link in its place");
	set = open_set(io, false);
	ok(set && segment_slots(set) == 0 && !segment_slot_get(set, true), "is not followed: no staging then");
	segment_set_destroy(set);
	unlink(in_work(REGION_NAME));
	io_destroy(io);
	munmap(p, 4096);
}

/* Of a store that nobody opens again: it goes when there is nothing in it. */
static void test_sweep(void)
{
	struct payload *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	static const char other[] = "cistern-abcd0102-0300-0000-0000-0000000000ff";
	struct io *io = open_io(false);
	char from[256];

	for (unsigned int staged = 0; staged < 2; staged++) {
		struct segment_set *set;
		uint8_t uuid_byte = 0xff;
		int fd;

		die_staged(p, staged);
		strcpy(from, in_work(REGION_NAME));
		ok(rename(from, in_work(other)) == 0, "another store's region, %u staged", staged);
		set = open_set(io, false);
		ok((access(in_work(other), F_OK) == 0) == staged, "is %s", staged ? "kept" : "removed");
		segment_set_destroy(set);
		fd = open(in_work(other), O_RDWR);
		ok(staged == 0 || (fd >= 0 && pwrite(fd, &uuid_byte, 1, 31) == 1), "damaged");
		close(fd);
		set = open_set(io, false);
		ok((access(in_work(other), F_OK) == 0) == staged, "the same");
		segment_set_destroy(set);
		unlink(in_work(other));
	}
	io_destroy(io);
	munmap(p, 4096);
}

static void test_lost_region(void)
{
	struct io *io = open_io(false);
	struct segment_set *set = open_set(io, false);
	void *slot = segment_slot_get(set, false);
	struct payload p;

	unlink(in_work(REGION_NAME));
	ok(stage(set, slot, MIB, 3, &p) == 0 && !segment_slot_taken(set, slot),
		"without its file a slot promises nothing");
	ok(file_has(&p), "the payload is copied");
	segment_set_destroy(set);
	io_destroy(io);
}

int main(void)
{
	if (!mkdtemp(work))
		return 99;
	test_in_flight();
	test_back_pressure();
	test_failure();
	remove_tree(in_work("segment"));
	test_left();
	test_dying();
	test_damaged();
	test_sweep();
	test_lost_region();
	remove_tree(work);
	return done_testing();
}
