/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Staging: what is acknowledged in shared memory is read back while it is on its way, after its writer was killed, by
 * readers that may not change anything, and when the device fails. "--bench [DIR [REGION-DIR]]" measures
 * instead.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "format/base/crc32c.h"
#include "format/segment/segment.h"
#include "format/store/store.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"

#define MIB        (1u << 20)
#define SLOTS      4u
#define LONG_USEC  20000 /* what has not happened by then does not happen */
#define HEADER     4096u
#define KILLS      14
#define THREADS    3
#define WRITES_MAX 400u

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

static void fill(uint8_t *at, size_t len, uint32_t seed)
{
	uint64_t x = seed * 2654435761u + 88172645463325252u;

	for (size_t i = 0; i < len; i++) {
		if (i % 8 == 0) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
		}
		at[i] = (uint8_t)(x >> (8 * (i % 8)));
	}
}

static bool is_filled(const uint8_t *at, size_t from, size_t len, const struct payload *p)
{
	uint8_t *want = malloc(p->len);
	bool same;

	fill(want, p->len, p->seed);
	same = memcmp(at, want + from, len) == 0;
	free(want);
	return same;
}

static int stage(struct segment_set *set, void *slot, uint32_t len, uint32_t seed, struct payload *ret)
{
	*ret = (struct payload){ .len = len, .seed = seed };
	fill(slot, len, seed);
	return segment_append_crc(set, slot, len, crc32c(0, slot, len), &ret->segment, &ret->off);
}

static bool reads_back(struct segment_set *set, const struct payload *p)
{
	uint8_t *buf = malloc(p->len);
	bool good = segment_read(set, p->segment, p->off, buf, p->len) == 0 && is_filled(buf, 0, p->len, p);

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
	good = fd >= 0 && pread(fd, buf, p->len, (off_t)p->off) == (ssize_t)p->len && is_filled(buf, 0, p->len, p);
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
	ok(is_filled(buf, MIB - 1000, 1000, &p[0]) && is_filled(buf + 1000, 0, 2000, &p[1]), "both parts");
	ok(segment_needs_sync(set), "a sync is needed");
	begin(&sync, set, call_sync);
	ok(!atomic_load(&sync.done), "it waits for them");
	gate_set(false, 0);
	pthread_join(sync.thread, NULL);
	is_int(sync.result, 0, "and ends with them");
	ok(file_has(&p[0]) && file_has(&p[1]) && file_has(&p[2]), "they are in the file");
	ok(!segment_needs_sync(set), "no sync is needed");
	ok(is_filled(slot[0], 0, MIB, &p[0]), "a slot keeps its bytes until it is given back");
	fill(buf, plain.len, plain.seed);
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
	bool good = pread(fd, buf, p->len, (off_t)p->off) == (ssize_t)p->len && is_filled(buf, 0, p->len, p);

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

/* ---- a store whose writers are killed at any moment */

struct acked { /* shared with the child */
	_Atomic uint64_t ino[THREADS];
	atomic_uint num[THREADS];
};

struct job {
	pthread_t thread;
	struct store *s;
	struct acked *acked;
	unsigned int index, kill_after;
	uint32_t gen;
};

static uint32_t len_of(unsigned int thread, unsigned int n)
{
	static const uint32_t lens[] = { MIB, 65536, 100001, MIB, 4096, 999999, 131072 };

	return lens[(thread + n) % (sizeof(lens) / sizeof(lens[0]))];
}

static void *job_main(void *arg)
{
	struct job *j = arg;
	uint64_t ino = atomic_load(&j->acked->ino[j->index]);
	void *slot = segment_slot_get(store_segments(j->s), true);

	for (unsigned int n = 0; n < WRITES_MAX && slot; n++) {
		uint32_t len = len_of(j->index, n);

		fill(slot, len, j->index * 100000 + n);
		if (store_write(j->s, ino, j->gen, (uint64_t)n * MIB, slot, len))
			_exit(3);
		atomic_store(&j->acked->num[j->index], n + 1);
		if (n + 1 == j->kill_after)
			kill(getpid(), SIGKILL);
		if (n % 16 == 5 && store_sync(j->s))
			_exit(4);
		if (segment_slot_taken(store_segments(j->s), slot)) {
			segment_slot_put(store_segments(j->s), slot);
			slot = segment_slot_get(store_segments(j->s), true);
		}
	}
	return NULL;
}

static struct store *open_store(enum store_mode mode)
{
	struct store_options opt = { .mode = mode,
		.backing = "/backing",
		.segment_size = 8 * MIB,
		.journal_size = MIB,
		.reserve = MIB,
		.staging = mode == STORE_READ_ONLY ? 0 : 8 * MIB,
		.staging_dir = work };
	char path[256];
	struct cistern_error err = { 0 };
	struct store *s = NULL;

	strcpy(path, in_work("store"));
	if (store_open(path, &opt, &s, NULL, &err))
		tap_diag("%s", err.text);
	return s;
}

static uint64_t new_file(struct store *s, unsigned int i, uint32_t *ret_gen)
{
	struct record root = {
		.type = RECORD_ADOPT, .ino = STATE_ROOT_INO, .name = ".", .mode = S_IFDIR | 0755, .nlink = 2
	};
	struct record rec = { .type = RECORD_CREATE,
		.parent = STATE_ROOT_INO,
		.mode = S_IFREG | 0644,
		.ino = state_new_ino(store_state(s)) };
	struct inode in;

	snprintf(rec.name, sizeof(rec.name), "f%u", i);
	if (state_inode(store_state(s), STATE_ROOT_INO, &in) && store_commit(s, &root))
		_exit(5);
	if (store_commit(s, &rec) || state_inode(store_state(s), rec.ino, &in))
		_exit(6);
	*ret_gen = in.gen;
	return rec.ino;
}

static int child_main(struct acked *acked, unsigned int kill_after)
{
	struct job jobs[THREADS];
	struct store *s = open_store(STORE_CREATE_OR_OPEN);

	if (!s)
		_exit(2);
	for (unsigned int i = 0; i < THREADS; i++) {
		jobs[i] = (struct job){ .s = s, .acked = acked, .index = i, .kill_after = i == 0 ? kill_after : 0 };
		atomic_store(&acked->ino[i], new_file(s, i, &jobs[i].gen));
	}
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_create(&jobs[i].thread, NULL, job_main, &jobs[i]);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(jobs[i].thread, NULL);
	kill(getpid(), SIGKILL);
	return 0;
}

static unsigned int count_wrong(struct store *s, struct acked *acked)
{
	uint8_t *buf = malloc(MIB);
	unsigned int wrong = 0;

	for (unsigned int i = 0; i < THREADS; i++)
		for (unsigned int n = 0; n < atomic_load(&acked->num[i]); n++) {
			struct payload p = { .len = len_of(i, n), .seed = i * 100000 + n };
			struct cistern_error err = { 0 };
			struct inode in;

			if (state_inode(store_state(s), atomic_load(&acked->ino[i]), &in) ||
				store_read(s, &in, (uint64_t)n * MIB, p.len, buf, true, NULL, NULL, &err) ||
				!is_filled(buf, 0, p.len, &p)) {
				if (wrong++ < 3)
					tap_diag("file %u write %u: %s", i, n, err.text);
			}
		}
	free(buf);
	return wrong;
}

static struct acked *map_acked(void)
{
	int fd = open(in_work("acked"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *at = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, 4096) == 0)
		at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		abort();
	close(fd);
	return at;
}

/* A program of its own: RocksDB's threads do not survive a fork. */
static pid_t start_child(unsigned int kill_after)
{
	pid_t pid = fork();
	char number[16];

	if (pid == 0) {
		snprintf(number, sizeof(number), "%u", kill_after);
		execl("/proc/self/exe", "test-staging", "--child", work, number, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void test_kills(void)
{
	struct acked *acked = map_acked();
	unsigned int round = 0, total = 0, wrong = 0, regions = 0, failed = 0;
	uint64_t found = 0;

	srand(1);
	for (; round < KILLS || (regions == 0 && round < 20 * KILLS); round++) {
		struct store *s;
		pid_t pid;
		int status = 0;

		remove_tree(in_work("store"));
		memset(acked, 0, 4096);
		pid = start_child(round % 2 ? 1 + (unsigned int)rand() % 40 : 0);
		if (round % 2 == 0) {
			while (atomic_load(&acked->num[THREADS - 1]) == 0 && waitpid(pid, &status, WNOHANG) == 0)
				usleep(200);
			usleep((unsigned int)rand() % 30000);
			kill(pid, SIGKILL);
		}
		if (waitpid(pid, &status, 0) == pid && !WIFSIGNALED(status))
			failed++;
		for (unsigned int i = 0; i < THREADS; i++)
			total += atomic_load(&acked->num[i]);
		s = open_store(STORE_READ_ONLY);
		wrong += s ? count_wrong(s, acked) : 1;
		found += s ? segment_found_staged(store_segments(s)) : 0;
		regions += s && segment_found_staged(store_segments(s)) > 0;
		store_close(s);
		s = open_store(STORE_CREATE_OR_OPEN);
		wrong += s ? count_wrong(s, acked) : 1;
		failed += store_close(s) != 0;
	}
	tap_diag("%u writes acknowledged; %" PRIu64 " found staged, in %u of %u rounds", total, found, regions, round);
	is_u64(failed, 0, "children and stores end as they should");
	ok(total > KILLS && regions > 0, "some were killed with payloads staged");
	is_u64(wrong, 0, "nothing that was acknowledged is lost");
	remove_tree(in_work("store"));
	munmap(acked, 4096);
}

/* ---- measuring */

#define BENCH_NUM 512u

static const char *bench_dir; /* of the region */

static double now_sec(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int bench_one(struct segment_set *set, const uint8_t *from, uint8_t *own, bool staged)
{
	uint8_t *at = staged ? segment_slot_get(set, true) : own;
	uint32_t segment;
	uint64_t off;
	int r;

	memcpy(at, from, MIB); /* what the kernel does */
	r = segment_append_crc(set, at, MIB, crc32c(0, at, MIB), &segment, &off);
	if (staged)
		segment_slot_put(set, at);
	return r;
}

static void bench_set(const char *name, bool staged, const uint8_t *from, uint8_t *own)
{
	struct segment_options opt = { .segment_bytes = 64 * MIB,
		.write_out = true,
		.staging = { .uuid = uuid, .owner = geteuid(), .bytes = 32 * MIB, .dir = bench_dir } };
	struct io *io = open_io(false);
	struct segment_set *set = NULL;
	double begin_sec, acked_sec;
	int r;

	if (segment_set_open(io, &opt, &set, NULL))
		abort();
	begin_sec = now_sec();
	r = 0;
	for (unsigned int i = 0; i < BENCH_NUM && !r; i++)
		r = bench_one(set, from, own, staged);
	acked_sec = now_sec();
	r = r ? r : segment_sync(set);
	printf("%-8s acknowledged %7.1f MiB/s, synced %7.1f MiB/s%s\n", name, BENCH_NUM / (acked_sec - begin_sec),
		BENCH_NUM / (now_sec() - begin_sec), r ? " FAILED" : "");
	segment_set_destroy(set);
	io_destroy(io);
	remove_tree(in_work("segment"));
}

static void bench_raw(const uint8_t *from)
{
	int fd = open(in_work("raw"), O_CREAT | O_RDWR | O_DIRECT, 0600);
	double begin_sec;

	if (fd < 0 || posix_fallocate(fd, 0, (off_t)BENCH_NUM * MIB))
		abort();
	begin_sec = now_sec();
	for (unsigned int i = 0; i < BENCH_NUM; i++)
		if (pwrite(fd, from, MIB, (off_t)i * MIB) != MIB)
			abort();
	fdatasync(fd);
	printf("%-8s synced %7.1f MiB/s (O_DIRECT, one at a time)\n", "raw", BENCH_NUM / (now_sec() - begin_sec));
	close(fd);
	unlink(in_work("raw"));
}

static int bench(void)
{
	uint8_t *from = aligned_alloc(4096, MIB), *own = aligned_alloc(4096, MIB);

	fill(from, MIB, 1);
	for (int i = 0; i < 3; i++) {
		bench_raw(from);
		bench_set("append", false, from, own);
		bench_set("staged", true, from, own);
	}
	free(from);
	free(own);
	return 0;
}

int main(int argc, char **argv)
{
	bool measure = argc > 1 && strcmp(argv[1], "--bench") == 0;
	int r;

	if (measure && argc > 2)
		snprintf(work, sizeof(work), "%.30s/cistern-staging-XXXXXX", argv[2]);
	bench_dir = measure && argc > 3 ? argv[3] : NULL;
	if (argc == 4 && strcmp(argv[1], "--child") == 0) {
		snprintf(work, sizeof(work), "%s", argv[2]);
		return child_main(map_acked(), (unsigned int)atoi(argv[3]));
	}
	if (!mkdtemp(work))
		return 99;
	if (measure) {
		r = bench();
	} else {
		test_in_flight();
		test_back_pressure();
		test_failure();
		remove_tree(in_work("segment"));
		test_left();
		test_damaged();
		test_sweep();
		test_lost_region();
		test_kills();
		r = done_testing();
	}
	remove_tree(work);
	return r;
}
