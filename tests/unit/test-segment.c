/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The data log: payloads come back from where they were put, after kills and lost power, from many threads. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "format/segment/segment.h"
#include "tests/lib/sim.h"
#include "tests/lib/tap.h"

#define MIB (1u << 20)

struct payload {
	uint32_t segment, len;
	uint64_t off;
	uint8_t fill;
};

static struct segment_set *open_set(struct io *io, uint64_t bytes)
{
	struct segment_options opt = { .segment_bytes = bytes, .write_out = true };
	struct cistern_error err = { 0 };
	struct segment_set *set = NULL;

	if (segment_set_open(io, &opt, &set, &err))
		tap_diag("%s", err.text);
	return set;
}

static int put(struct segment_set *set, uint32_t len, uint8_t fill, struct payload *ret)
{
	uint8_t *buf = malloc(len);
	int r;

	memset(buf, fill, len);
	r = segment_append(set, buf, len, &ret->segment, &ret->off);
	free(buf);
	ret->len = len;
	ret->fill = fill;
	return r;
}

static bool is_there(struct segment_set *set, const struct payload *p)
{
	uint8_t *buf = malloc(p->len);
	bool good = segment_read(set, p->segment, p->off, buf, p->len) == 0;

	for (uint32_t i = 0; i < p->len && good; i++)
		good = buf[i] == p->fill;
	free(buf);
	return good;
}

static void appending(void)
{
	struct payload p[64];
	struct segment_set *set;
	struct sim *sim;
	struct io *io;
	uint64_t wrong = 0, end = 0;
	uint32_t segment = 0;
	uint8_t byte;
	int r = 0;

	sim_create(&sim, &io);
	set = open_set(io, MIB);
	is_int(segment_append(set, "x", 0, &segment, &end), -EINVAL, "nothing cannot be appended");
	for (int i = 0; i < 64; i++) {
		r |= put(set, i % 3 == 0 ? 50000 : (uint32_t)(17 + i), (uint8_t)(i + 1), &p[i]);
		wrong += p[i].len >= SEGMENT_ALIGN_FROM && p[i].off % SEGMENT_BLOCK;
		wrong += i > 0 && p[i].segment == p[i - 1].segment && p[i].off < p[i - 1].off + p[i - 1].len;
		wrong += i > 0 && p[i].len < SEGMENT_ALIGN_FROM && p[i].segment == p[i - 1].segment &&
			 p[i].off != p[i - 1].off + p[i - 1].len;
	}
	is_int(r, 0, "appended");
	is_u64(wrong, 0, "large ones are aligned, small ones follow each other, none overlap");
	ok(p[0].segment == 1 && p[63].segment == 2, "over two segments");
	ok(!segment_is_open_for_append(set, 1) && segment_is_open_for_append(set, 2), "the second one is open");
	ok(segment_free_in_open(set) == MIB - (p[63].off + p[63].len), "what is free in it is known");
	wrong = 0;
	for (int i = 0; i < 64; i++)
		wrong += !is_there(set, &p[i]);
	is_u64(wrong, 0, "all are read");
	is_int(segment_read(set, 1, MIB, &byte, 1), -ENODATA, "past the end");
	is_int(segment_read(set, 9, 0, &byte, 1), -ENOENT, "no such segment");
	ok(put(set, 5 * MIB, 3, &p[0]) == 0 && is_there(set, &p[0]), "one larger than a segment gets its own size");
	segment_set_destroy(set);
	set = open_set(io, MIB);
	ok(put(set, 5, 9, &p[2]) == 0 && p[2].segment == p[0].segment + 1, "the next process begins a new segment");
	ok(is_there(set, &p[0]) && is_there(set, &p[1]) && is_there(set, &p[2]), "and reads all");
	segment_set_destroy(set);
	sim_destroy(sim);
}

static void no_room(void)
{
	struct segment_set *set;
	struct payload p, last = { 0 };
	struct sim *sim;
	struct io *io;
	uint64_t num = 0;
	int r;

	sim_create(&sim, &io);
	sim_set_capacity(sim, 11 * MIB);
	set = open_set(io, 8 * MIB);
	while (!(r = put(set, 100000, 7, &p))) {
		last = p;
		num++;
	}
	is_int(r, -ENOSPC, "the disk fills up");
	ok(num * 100000 > 9 * MIB, "a smaller second segment is tried first: %" PRIu64 " payloads", num);
	ok(is_there(set, &last), "what was taken is there");
	ok(segment_allocated_bytes(set) <= 11 * MIB && segment_allocated_bytes(set) > 9 * MIB, "allocated %" PRIu64,
		segment_allocated_bytes(set));
	is_int(segment_remove(set, 1), 0, "a segment is removed");
	is_int(put(set, 100000, 8, &p), 0, "and there is room");
	is_int(segment_remove(set, p.segment), 0, "the open one is removed");
	ok(!segment_is_open_for_append(set, p.segment), "it is no longer open");
	is_int(segment_remove(set, p.segment), -ENOENT, "and has gone");
	sim_fail_after(sim, 3, EIO); /* open, allocate, write */
	is_int(put(set, 10, 8, &p), -EIO, "a failing write");
	ok(put(set, 10, 8, &p) == 0 && is_there(set, &p), "is the writer's alone");
	segment_set_destroy(set);
	sim_destroy(sim);
}

struct listing {
	uint64_t num, num_private, bytes, previous, wrong;
};

static int list_one(uint32_t segment, bool is_private, uint64_t bytes, void *arg)
{
	struct listing *l = arg;

	l->wrong += segment <= l->previous;
	l->previous = segment;
	l->num++;
	l->num_private += is_private;
	l->bytes += bytes;
	return 0;
}

static void space(void)
{
	struct listing l = { 0 };
	struct segment_set *set;
	struct payload p;
	struct sim *sim;
	struct io *io;
	uint32_t segment;
	uint64_t before;
	uint8_t buf[SEGMENT_BLOCK];

	sim_create(&sim, &io);
	set = open_set(io, 4 * MIB);
	is_u64(segment_allocated_bytes(set), 0, "nothing yet");
	put(set, 100000, 7, &p);
	is_u64(segment_allocated_bytes(set), 4 * MIB, "a segment is allocated in full");
	is_int(segment_punch(set, 1, 100, 8192 + 4000), 0, "a range is given back");
	is_u64(segment_allocated_bytes(set), 4 * MIB - 2 * SEGMENT_BLOCK, "its whole blocks are");
	ok(segment_read(set, 1, 4096, buf, sizeof(buf)) == 0 && !buf[0] && !buf[4095], "they read as zeros");
	ok(segment_read(set, 1, 0, buf, sizeof(buf)) == 0 && buf[0] == 7 && buf[4095] == 7,
		"their neighbours as before");
	ok(segment_punch(set, 1, 5000, 100) == 0 && segment_allocated_bytes(set) == 4 * MIB - 2 * SEGMENT_BLOCK,
		"less than a block gives nothing");
	is_int(segment_punch(set, 7, 0, 1), -ENOENT, "no such segment");
	is_int(segment_punch(set, 1, UINT64_MAX, 2), -EINVAL, "no such range");
	is_int(segment_create_private(set, &segment), 0, "a private segment");
	is_u64(segment, 2, "takes the next number");
	segment_reserve_ids(set, 77);
	segment_reserve_ids(set, 5);
	is_int(segment_create_private(set, &segment), 0, "another one");
	is_u64(segment, 77, "takes the reserved number");
	ok(segment_list(set, list_one, &l) == 0 && l.num == 3 && l.num_private == 2 && l.bytes == 100000 && !l.wrong,
		"listed");
	before = segment_allocated_bytes(set);
	segment_set_destroy(set);
	set = open_set(io, 4 * MIB);
	ok(segment_allocated_bytes(set) < before && segment_allocated_bytes(set) >= 100000 - 8192,
		"the unused rest was given back");
	segment_set_destroy(set);
	sim_destroy(sim);
}

static const struct io_ops *real_ops;

/* A directory in which a file is still listed and has gone when it is looked at, as another process deletes it. */
static int list_with_gone(struct io *io, const char *path, int (*each)(const char *name, void *arg), void *arg)
{
	int r = each("00009998.prv", arg);

	if (r == 0)
		r = each("00009999.seg", arg);
	return r ? r : real_ops->list(io, path, each, arg);
}

static void read_only_beside_a_daemon(void)
{
	struct segment_options opt = { .read_only = true };
	struct cistern_error err = { 0 };
	struct segment_set *set;
	struct io_ops ops;
	struct payload p;
	struct sim *sim;
	struct io *io;

	sim_create(&sim, &io);
	set = open_set(io, MIB);
	is_int(put(set, 5000, 7, &p), 0, "a payload");
	is_int(segment_settle(set), 0, "that others can read");
	segment_set_destroy(set);
	real_ops = io->ops;
	ops = *real_ops;
	ops.list = list_with_gone;
	io->ops = &ops;
	is_int(segment_set_open(io, &opt, &set, &err), 0, "segments that go while they are listed are no error");
	ok(is_there(set, &p), "and the others are all there");
	segment_set_destroy(set);
	io->ops = real_ops;
	sim_destroy(sim);
}

/* A drain reads what its daemon has appended since it began, too. */
static void read_only_behind_a_daemon(void)
{
	struct segment_options opt = { .read_only = true };
	struct cistern_error err = { 0 };
	struct segment_set *set, *reader;
	struct payload p;
	struct sim *sim;
	struct io *io;
	char byte;

	sim_create(&sim, &io);
	set = open_set(io, MIB);
	is_int(segment_set_open(io, &opt, &reader, &err), 0, "a reader beside a writer");
	is_int(put(set, 5000, 7, &p), 0, "a payload in a segment of later");
	is_int(segment_settle(set), 0, "that others can read");
	ok(is_there(reader, &p), "is there for the reader");
	is_int(segment_read(reader, 9999, 0, &byte, 1), -ENOENT, "one that does not exist is not");
	segment_set_destroy(reader);
	segment_set_destroy(set);
	sim_destroy(sim);
}

static void read_only(void)
{
	struct segment_options opt = { .read_only = true };
	struct segment_set *set = NULL;
	struct payload p;
	struct sim *sim;
	struct io *io;
	uint64_t calls;

	sim_create(&sim, &io);
	is_int(segment_set_open(io, &opt, &set, NULL), 0, "read-only without a folder");
	segment_set_destroy(set);
	set = open_set(io, MIB);
	put(set, 5000, 6, &p);
	segment_set_destroy(set);
	calls = sim_calls(sim);
	is_int(segment_set_open(io, &opt, &set, NULL), 0, "read-only");
	ok(is_there(set, &p), "reads");
	is_int(segment_punch(set, 1, 0, 5000), -EROFS, "does not punch");
	is_int(segment_remove(set, 1), -EROFS, "does not remove");
	is_int(put(set, 1, 1, &p), -EROFS, "does not append");
	is_int(segment_sync(set), 0, "has nothing to sync");
	is_u64(sim_calls(sim), calls, "and changes nothing");
	segment_set_destroy(set);
	sim_destroy(sim);
}

/* Appends, with a sync in the middle, twice; then the power goes. What was synced must be there. */
static bool survive(uint64_t seed)
{
	struct payload p[60];
	struct segment_set *set = NULL;
	struct sim *sim;
	struct io *io;
	bool good = true;

	sim_create(&sim, &io);
	for (int i = 0; i < 60 && good; i++) {
		if (i == 20) /* a process dies: the next one's sync covers what it left */
			segment_set_destroy(set);
		if (i % 20 == 0 && i < 40)
			set = open_set(io, MIB);
		good = put(set, (uint32_t)(1 + (seed * 7919 + (uint64_t)i * 104729) % 90000), (uint8_t)(i + 1),
			       &p[i]) == 0;
		if (i == 40)
			good = good && segment_needs_sync(set) && segment_sync(set) == 0 && !segment_needs_sync(set);
	}
	sim_power_cut(sim, seed);
	segment_set_destroy(set);
	set = open_set(io, MIB);
	for (int i = 0; i <= 40 && good; i++)
		good = is_there(set, &p[i]);
	segment_set_destroy(set);
	sim_destroy(sim);
	return good;
}

static void power_cuts(void)
{
	struct segment_set *set;
	struct payload p;
	struct sim *sim;
	struct io *io;
	uint64_t lost = 0;
	uint32_t segment = 0, other = 0;

	for (uint64_t seed = 1; seed <= 40; seed++)
		lost += !survive(seed);
	is_u64(lost, 0, "disks that lost a synced payload");
	sim_create(&sim, &io);
	set = open_set(io, MIB);
	put(set, 10, 1, &p);
	sim_fail_after(sim, 1, EIO);
	is_int(segment_sync(set), -EIO, "a sync fails");
	is_int(segment_sync(set), -EIO, "for good");
	is_int(segment_create_private(set, &segment), 0, "a private segment");
	is_int(segment_create_private(set, &other), 0, "and another one");
	sim_fail_after(sim, 1, EIO);
	is_int(segment_sync_private(set, segment), -EIO, "cannot be synced");
	is_int(segment_sync_private(set, segment), -EIO, "and not later");
	is_int(segment_sync_private(set, other), 0, "the other one can");
	segment_set_destroy(set);
	sim_destroy(sim);
}

static void private_survives(void)
{
	struct segment_set *set;
	uint64_t size, allocated, lost = 0;
	struct sim *sim;
	struct io *io;
	uint32_t segment;
	int64_t mtime;

	for (uint64_t seed = 1; seed < 10; seed++) {
		sim_create(&sim, &io);
		set = open_set(io, MIB);
		lost += segment_create_private(set, &segment) || segment_sync_private(set, segment);
		sim_power_cut(sim, seed);
		segment_set_destroy(set);
		set = open_set(io, MIB);
		lost += segment_private_size(set, segment, &size, &allocated, &mtime) || size || allocated;
		segment_set_destroy(set);
		sim_destroy(sim);
	}
	is_u64(lost, 0, "synced private segments that power loss took");
}

/* ---- threads */

struct worker {
	struct segment_set *set;
	struct payload p[300];
	uint8_t fill;
	int r;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < 300 && !w->r; i++) {
		w->r = put(w->set, (uint32_t)(1 + (i * 7919) % 20000), w->fill, &w->p[i]);
		if (!w->r && i % 50 == w->fill)
			w->r = segment_sync(w->set);
	}
	return NULL;
}

static void threads(void)
{
	static struct worker w[4];
	pthread_t thread[4];
	struct sim *sim;
	struct io *io;
	struct segment_set *set;
	uint64_t wrong = 0;

	sim_create(&sim, &io);
	set = open_set(io, 2 * MIB);
	for (int i = 0; i < 4; i++) {
		w[i] = (struct worker){ .set = set, .fill = (uint8_t)(i + 1) };
		pthread_create(&thread[i], NULL, work, &w[i]);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		wrong += w[i].r != 0;
	}
	for (int i = 0; i < 1200; i++)
		wrong += !is_there(set, &w[i % 4].p[i / 4]);
	is_u64(wrong, 0, "payloads of four threads that are not there");
	segment_set_destroy(set);
	sim_destroy(sim);
}

/* ---- a large folder, listed in no order */

#define LISTED 600000u

static uint32_t extra_private; /* one more, with that number */

static int list_backwards(struct io *io, const char *path, int (*each)(const char *name, void *arg), void *arg)
{
	char name[40];
	int r = 0;

	(void)io;
	(void)path;
	for (uint32_t id = LISTED; id > 0 && !r; id--) {
		snprintf(name, sizeof(name), "%08" PRIu32 ".seg", id);
		r = each(name, arg);
	}
	snprintf(name, sizeof(name), "%08" PRIu32 ".prv", extra_private);
	return r ? r : each(name, arg);
}

static int open_empty(struct io *io, const char *path, unsigned int flags, struct io_file **ret)
{
	(void)path;
	return real_ops->open(io, "empty", flags | IO_CREATE, ret);
}

static void large_folder(void)
{
	struct segment_options opt = { .read_only = true };
	struct cistern_error err = { 0 };
	struct segment_set *set = NULL;
	struct listing l = { 0 };
	struct io_ops ops;
	struct sim *sim;
	struct io *io;
	clock_t begin;
	double seconds;

	sim_create(&sim, &io);
	real_ops = io->ops;
	ops = *real_ops;
	ops.list = list_backwards;
	ops.open = open_empty;
	io->ops = &ops;
	begin = clock();
	extra_private = LISTED + 1;
	is_int(segment_set_open(io, &opt, &set, &err), 0, "a folder of many segments");
	seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
	ok(seconds < 60, "is listed in %.1f s", seconds); /* that looks through all for each takes hours */
	ok(segment_list(set, list_one, &l) == 0 && l.num == LISTED + 1 && !l.wrong, "in order");
	segment_set_destroy(set);
	extra_private = 7;
	is_int(segment_set_open(io, &opt, &set, &err), -EEXIST, "two of one number are refused");
	io->ops = real_ops;
	sim_destroy(sim);
}

/* ---- on real files */

static unsigned int open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int num = 0;

	while (dir && readdir(dir))
		num++;
	if (dir)
		closedir(dir);
	return num;
}

static void real_private(struct segment_set *set)
{
	uint64_t size = 0, allocated = 0;
	uint32_t segment;
	int64_t mtime = 0;
	int fd;

	is_int(segment_create_private(set, &segment), 0, "a private segment");
	fd = segment_open_fd(set, segment, true);
	ok(fd >= 0, "its descriptor");
	ok(pwrite(fd, "hello", 5, 1 << 20) == 5, "is written to behind our back");
	is_int(segment_sync_private(set, segment), 0, "is synced");
	is_int(segment_private_size(set, segment, &size, &allocated, &mtime), 0, "its size");
	ok(size == (1 << 20) + 5 && allocated > 0 && allocated < 65536 && mtime > 1600000000ll * 1000000000,
		"is known");
	is_int(segment_remove(set, segment), 0, "it is removed");
	ok(pwrite(fd, "hello", 5, 0) == 5 && close(fd) == 0, "the descriptor stays usable");
}

static void many_files(struct segment_set *set)
{
	unsigned int before = open_descriptors(), wrong = 0;
	uint32_t segments[300];
	uint64_t size, allocated;
	int64_t mtime;

	for (int i = 0; i < 300; i++)
		wrong += segment_create_private(set, &segments[i]) != 0;
	ok(open_descriptors() < before + 140, "not all files stay open");
	for (int i = 0; i < 300; i++)
		wrong += segment_private_size(set, segments[i], &size, &allocated, &mtime) != 0;
	for (int i = 0; i < 300; i++)
		wrong += segment_remove(set, segments[i]) != 0;
	is_u64(wrong, 0, "300 private segments");
}

/* What an earlier process has left is synced by one that may have fewer files open than that. */
static void few_descriptors(struct io *io)
{
	struct segment_set *set = open_set(io, SEGMENT_BLOCK);
	struct rlimit limit, few;
	struct payload p[100];
	uint64_t wrong = 0;

	for (int i = 0; i < 100; i++)
		wrong += put(set, SEGMENT_BLOCK, (uint8_t)(i + 1), &p[i]) != 0;
	segment_set_destroy(set);
	is_u64(wrong, 0, "100 segments");
	getrlimit(RLIMIT_NOFILE, &limit);
	few = (struct rlimit){ 64, limit.rlim_max };
	setrlimit(RLIMIT_NOFILE, &few);
	set = open_set(io, SEGMENT_BLOCK);
	is_int(set ? segment_sync(set) : -EIO, 0, "are synced by who may have 64 files open");
	setrlimit(RLIMIT_NOFILE, &limit);
	for (int i = 0; i < 100 && set; i++)
		wrong += !is_there(set, &p[i]) || segment_remove(set, p[i].segment) != 0;
	is_u64(wrong, 0, "are there");
	segment_set_destroy(set);
}

static uint64_t device_bytes(int dirfd, uint32_t segment)
{
	char path[40];
	struct stat st = { 0 };

	snprintf(path, sizeof(path), "segment/%08" PRIu32 ".seg", segment);
	return fstatat(dirfd, path, &st, 0) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

/* A restarted daemon gives back once more what the journal's tail had freed. */
static void real_punched(struct segment_set *set, int dirfd)
{
	uint64_t before = segment_allocated_bytes(set);
	struct payload p = { 0 };

	is_int(put(set, 1 * MIB, 5, &p), 0, "a segment that is appended to");
	is_u64(segment_allocated_bytes(set) - before, device_bytes(dirfd, p.segment), "is counted as it is");
	for (int i = 0; i < 3; i++)
		is_int(segment_punch(set, p.segment, p.off, 512 << 10), 0, "a half of it is given back");
	is_int(segment_punch(set, p.segment, p.off + (256 << 10), 512 << 10), 0, "and a part, overlapping that");
	is_u64(segment_allocated_bytes(set) - before, device_bytes(dirfd, p.segment), "it is counted as it is now");
	is_int(segment_remove(set, p.segment), 0, "removed");
	is_u64(segment_allocated_bytes(set), before, "nothing of it is left");
}

/* ---- a file system that does not show what it has reserved */

static struct io_ops sparse_ops, sparse_dir_ops;

static int sparse_allocate(struct io_file *file, uint64_t off, uint64_t len)
{
	return real_ops->truncate(file, off + len);
}

static int sparse_open(struct io *io, const char *path, unsigned int flags, struct io_file **ret)
{
	int r = real_ops->open(io, path, flags, ret);

	if (!r) {
		sparse_ops = *(*ret)->ops;
		sparse_ops.allocate = sparse_allocate;
		(*ret)->ops = &sparse_ops;
	}
	return r;
}

static void unseen_reserve(struct io *io)
{
	const struct io_ops *ops = io->ops;
	struct segment_set *set;
	struct payload p = { 0 };
	uint64_t before, free_bytes;

	real_ops = ops;
	sparse_dir_ops = *ops;
	sparse_dir_ops.open = sparse_open;
	io->ops = &sparse_dir_ops;
	set = open_set(io, 4 * MIB);
	before = segment_allocated_bytes(set);
	is_int(put(set, 1 * MIB, 5, &p), 0, "a segment, of which only what is written is seen");
	is_int(segment_sync(set), 0, "on the device");
	is_int(segment_punch(set, p.segment, p.off, 512 << 10), 0, "a half is given back");
	is_int(segment_punch(set, p.segment, p.off, 512 << 10), 0, "twice");
	free_bytes = segment_free_in_open(set);
	is_u64(free_bytes, 3 * MIB, "the rest of it is free");
	is_u64(segment_allocated_bytes(set) - before, free_bytes + (512 << 10), "and counts as taken from the device");
	is_int(segment_remove(set, p.segment), 0, "removed");
	segment_set_destroy(set);
	io->ops = ops;
}

static void real_files(void)
{
	char path[] = "/tmp/test-segment-XXXXXX", command[64];
	struct segment_set *set = NULL;
	struct payload p;
	struct io *io = NULL;
	struct stat st;
	int dirfd = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY) : -1;

	if (dirfd < 0 || io_posix_create(dirfd, &io) || !(set = open_set(io, 4 * MIB))) {
		ok(false, "a set in %s", path);
		return;
	}
	real_private(set);
	many_files(set);
	real_punched(set, dirfd);
	ok(put(set, 3 * MIB, 5, &p) == 0 && segment_sync(set) == 0 && is_there(set, &p), "an append");
	segment_set_destroy(set);
	set = open_set(io, 4 * MIB);
	ok(fstatat(dirfd, "segment", &st, 0) == 0 && (st.st_mode & 0777) == 0700, "the folder is the owner's alone");
	ok(segment_allocated_bytes(set) >= 3 * MIB && segment_allocated_bytes(set) < 3 * MIB + 65536,
		"what it occupies is seen: %" PRIu64, segment_allocated_bytes(set));
	segment_set_destroy(set);
	few_descriptors(io);
	unseen_reserve(io);
	io_destroy(io);
	close(dirfd);
	snprintf(command, sizeof(command), "rm -r %s", path);
	ok(system(command) == 0, "tidied up");
}

int main(void)
{
	appending();
	no_room();
	space();
	read_only();
	read_only_beside_a_daemon();
	read_only_behind_a_daemon();
	power_cuts();
	private_survives();
	threads();
	large_folder();
	real_files();
	return done_testing();
}
