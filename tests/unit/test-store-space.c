/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Space: when it is given back, and how much there is.
 */
#include "format/store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/bench.h"
#include "tests/lib/tap.h"

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
	a = bench_file(b.s, "a");
	c = bench_file(b.s, "c");
	is_int(bench_fill(b.s, &a, 0, 1 << 20, 'x'), 0, "one MiB, a whole segment");
	is_int(bench_fill(b.s, &c, 0, 1 << 19, 'c'), 0, "half of another");
	is_int(store_sync(b.s), 0, "synced");
	full = bench_used(&b);
	is_int(bench_fill(b.s, &a, 0, 1 << 18, 'y'), 0, "a quarter written anew");
	is_int(store_maintain(b.s, false), 0, "maintained");
	is_u64(bench_used(&b), full + (1 << 18), "not durable yet: nothing is given back");
	is_int(store_sync(b.s), 0, "synced");
	is_int(store_maintain(b.s, false), 0, "maintained");
	is_u64(bench_used(&b), full, "the old quarter is given back");
	ok(bench_reads(b.s, a.ino, 0, 1 << 18, 'y') && bench_reads(b.s, a.ino, 1 << 18, 3 << 18, 'x'),
		"the rest is untouched");

	store_pin(b.s);
	is_int(bench_fill(b.s, &c, 0, 1 << 18, 'd'), 0, "pinned: written anew");
	ok(store_sync(b.s) == 0 && store_maintain(b.s, false) == 0, "synced and maintained");
	is_u64(bench_used(&b), full + (1 << 18), "the old bytes stay for who pinned them");
	ok(place(b.s, a.ino, "a") == 0 && drain(b.s, a.ino) == 0, "a is drained meanwhile");
	ok(store_sync(b.s) == 0 && store_maintain(b.s, false) == 0, "synced and maintained");
	is_u64(bench_used(&b), 3 << 18, "all of a is given back, pinned or not");
	store_unpin(b.s);
	is_int(store_maintain(b.s, false), 0, "unpinned, maintained");
	is_u64(bench_used(&b), 1 << 19, "and the rest");
	ok(bench_reads(b.s, a.ino, 0, 1 << 20, 'B'), "a is the backing file's now");
	ok(bench_reads(b.s, c.ino, 0, 1 << 18, 'd') && bench_reads(b.s, c.ino, 1 << 18, 1 << 18, 'c'), "c is whole");
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
	a = bench_file(b.s, "a");
	kept = bench_file(b.s, "kept");
	for (uint64_t i = 0; !r && i < 4; i++)
		r = bench_fill(b.s, &a, i << 18, 1 << 18, 'x');
	ok(r == 0 && bench_fill(b.s, &kept, 0, 1 << 18, 'k') == 0 && store_sync(b.s) == 0,
		"a segment, and a piece of another");
	full = bench_used(&b);
	store_pin(b.s);
	for (size_t i = 0; !r && i < 4; i++) {
		struct record rec = { .type = RECORD_PUNCH, .ino = a.ino, .off = parts[i], .len = 1 << 18 };

		r = store_commit(b.s, &rec);
	}
	ok(r == 0 && store_sync(b.s) == 0 && store_maintain(b.s, false) == 0, "pinned: all of it freed in four parts");
	is_u64(bench_used(&b), full, "it stays");
	store_unpin(b.s);
	store_pin(b.s);
	ok(bench_fill(b.s, &kept, 0, 1 << 17, 'l') == 0 && store_sync(b.s) == 0 && store_maintain(b.s, false) == 0,
		"a later pin does not count: it may go");
	is_int(segment_read(store_segments(b.s), 1, 0, &byte, 1), -ENOENT, "all of it, what was forgotten, too");
	is_u64(bench_used(&b), (1 << 18) + (1 << 17), "but what was freed since");
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
	a = bench_file(b.s, "a");
	kept = bench_file(b.s, "kept");
	ok(bench_fill(b.s, &a, 0, 1 << 19, 'x') == 0 && bench_fill(b.s, &kept, 0, 1 << 19, 'x') == 0 &&
			bench_fill(b.s, &a, 1 << 19, 1 << 19, 'x') == 0 && store_sync(b.s) == 0,
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
	a = bench_file(b.s, "a");
	is_int(bench_fill(b.s, &a, 0, 1 << 20, 'x'), 0, "one MiB");
	ok(store_sync(b.s) == 0, "synced");
	full = bench_used(&b);
	store_set_grace(b.s, 1);
	store_hold_freed(b.s, 0);
	is_int(bench_fill(b.s, &a, 0, 1 << 18, 'y'), 0, "a quarter written anew");
	ok(store_sync(b.s) == 0 && store_maintain(b.s, false) == 0, "synced and maintained");
	is_u64(bench_used(&b), full + (1 << 18), "held: nothing is given back");
	store_set_grace(b.s, UINT64_MAX);
	store_hold_freed(b.s, UINT64_MAX);
	ok(store_maintain(b.s, false) == 0, "maintained");
	is_u64(bench_used(&b), full + (1 << 18), "not held any more, but its grace has only begun");
	store_set_grace(b.s, 1);
	usleep(2);
	ok(store_maintain(b.s, false) == 0, "maintained after the grace");
	is_u64(bench_used(&b), full, "the old quarter is given back");
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
	a = bench_file(b.s, "a");
	for (int i = 0; !r && i < 64; i++)
		r = bench_fill(b.s, &a, (uint64_t)i * 8192, 1024, 'x');
	is_int(r, 0, "64 writes of 1 KiB, packed");
	is_int(bench_fill(b.s, &a, 1 << 20, 4096, 'z'), 0, "a block behind them");
	is_int(store_sync(b.s), 0, "synced");
	full = bench_used(&b);
	for (int i = 0; !r && i < 64; i++)
		r = bench_fill(b.s, &a, (uint64_t)i * 8192, 1024, 'y');
	ok(r == 0 && store_sync(b.s) == 0 && store_maintain(b.s, false) == 0, "all written anew");
	is_u64(bench_used(&b), full, "smaller than a block each, they are given back together");
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
	a = bench_file(b.s, "a");
	ok(store_space(b.s, &space) == 0 && space.capacity_bytes == 16 << 20, "capacity as set");
	before = space.free_bytes;
	for (; !r && written < 32 << 20; written += r ? 0 : 1 << 18)
		r = bench_fill(b.s, &a, written, 1 << 18, 'x');
	is_int(r, -ENOSPC, "it fills up");
	ok(written <= before && written + (2 << 20) > before, "at what was said to be free: %llu of %llu",
		(unsigned long long)written, (unsigned long long)before);
	ok(store_space(b.s, &space) == 0 && space.free_bytes < 1 << 18, "next to nothing is left");
	ok(space.used_bytes <= space.capacity_bytes, "and not more used than there is");
	ok(bench_reads(b.s, a.ino, 0, written, 'x'), "all is there that was taken");
	ok(place(b.s, a.ino, "a") == 0 && drain(b.s, a.ino) == 0 && store_sync(b.s) == 0 &&
			store_maintain(b.s, false) == 0,
		"drained");
	usleep(60000); /* as long as the figures may be old */
	ok(store_space(b.s, &space) == 0 && space.free_bytes + (2 << 20) > before, "free again");
	is_int(bench_fill(b.s, &a, 0, 1 << 18, 'y'), 0, "and can be written");
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
	is_int(store_open(b.dir, &b.opt, &s, NULL, &err), -ENOSPC, "too small for a new store");
	ok(strstr(err.text, "reserve") != NULL, "what to do: %s", err.text);
	sim_destroy(b.sim);
}

static int take_number(uint32_t segment, bool is_private, uint64_t bytes, void *arg)
{
	(void)is_private;
	(void)bytes;
	*(uint32_t *)arg = segment; /* they come in order */
	return 0;
}

/* A private segment whose record is refused has a number, too, and that of what was dead before is not given again. */
static void test_refused_private(void)
{
	struct record rec = { .type = RECORD_CREATE, .parent = STATE_ROOT_INO, .mode = S_IFREG | 0644, .name = "c" };
	uint32_t first = 0, highest = 0, next = 0;
	struct inode a;
	struct bench b;

	if (!bench_begin(&b, 1 << 20, 0))
		return;
	a = bench_file(b.s, "a");
	(void)bench_file(b.s, "c");
	is_int(bench_fill(b.s, &a, 0, 100, 'x'), 0, "bytes");
	is_int(segment_list(store_segments(b.s), take_number, &first), 0, "their segment");
	is_int(place(b.s, a.ino, "a") | drain(b.s, a.ino) | store_sync(b.s) | store_maintain(b.s, false), 0,
		"is dead, for they are drained");
	rec.ino = state_new_ino(store_state(b.s));
	is_int(segment_create_private(store_segments(b.s), &rec.segment), 0, "a private segment");
	is_int(store_commit(b.s, &rec), -EEXIST, "is refused");
	store_drop_private(b.s, rec.segment);
	is_int(store_maintain(b.s, false) | store_maintain(b.s, false), 0, "room is given back");
	is_int(segment_list(store_segments(b.s), take_number, &highest), 0, "listed");
	ok(highest >= rec.segment && rec.segment > first, "the highest number is kept");
	store_abandon(b.s);
	if (!bench_open(&b))
		return;
	is_int(segment_create_private(store_segments(b.s), &next), 0, "killed and opened: another private segment");
	ok(next > rec.segment, "has a new number");
	is_int(segment_remove(store_segments(b.s), next), 0, "removed");
	bench_end(&b);
}

/* 0: there is none. */
static uint64_t file_bytes(struct io *io, const char *path)
{
	struct io_file *file = NULL;
	uint64_t bytes = 0;

	if (io_open(io, path, IO_READ, &file) == 0 && file->ops->size(file, &bytes) != 0)
		bytes = 0;
	io_close(file);
	return bytes;
}

static int fill_disk(struct io *io)
{
	struct io_file *file = NULL;
	int r = io_open(io, "filler", IO_WRITE | IO_CREATE, &file);

	for (uint64_t off = 0; r == 0; off += 4096)
		r = file->ops->allocate(file, off, 4096);
	io_close(file);
	return r;
}

static int change_name(struct store *s, enum record_type type, uint64_t ino, unsigned int number)
{
	struct record rec = { .type = type, .ino = ino, .parent = STATE_ROOT_INO, .mode = S_IFREG | 0600 };

	snprintf(rec.name, sizeof(rec.name), "%u", number);
	return store_commit(s, &rec);
}

/* Somebody else fills the disk: who makes files until the journal is full finds no more room, and who removes some does. */
static void test_ballast(void)
{
	unsigned int num = 0, removed = 0;
	uint64_t first;
	struct bench b;
	int r;

	if (!bench_begin(&b, 1 << 20, 0))
		return;
	is_int(bench_root(b.s), 0, "a root");
	is_int(store_close(b.s), 0, "closed");
	sim_set_capacity(b.sim, 32 << 20);
	b.opt.ballast = true;
	if (!bench_open(&b))
		return;
	ok(file_bytes(b.io, "ballast") >= 1 << 20, "a daemon holds room");
	is_int(fill_disk(b.io), -ENOSPC, "what it does not hold is filled by somebody");
	first = state_new_ino(store_state(b.s));
	while ((r = change_name(b.s, RECORD_CREATE, first + num, num)) == 0)
		num++;
	ok(r == -ENOSPC, "%u files, and there is no room for the next one", num);
	ok(file_bytes(b.io, "ballast") > 0, "for that nothing is given");
	while (r == -ENOSPC || (r == 0 && removed < num && file_bytes(b.io, "ballast"))) {
		r = change_name(b.s, RECORD_UNLINK, first + removed, removed);
		removed++;
	}
	ok(r == 0, "%u are removed", removed);
	is_u64(file_bytes(b.io, "ballast"), 0, "the journal goes on where it was");
	is_int(b.io->ops->unlink(b.io, "filler"), 0, "there is room again");
	is_int(store_maintain(b.s, false), 0, "maintained");
	ok(file_bytes(b.io, "ballast") >= 1 << 20, "and held");
	is_int(fill_disk(b.io), -ENOSPC, "filled");
	is_int(store_maintain(b.s, true), 0, "a checkpoint");
	is_u64(file_bytes(b.io, "ballast"), 0, "has all the room there is");
	store_abandon(b.s);
	(void)b.io->ops->unlink(b.io, "filler");
	if (!bench_open(&b))
		return;
	is_int(store_close(b.s), 0, "closed in good order");
	is_u64(file_bytes(b.io, "ballast"), 0, "it holds nothing");
	b.opt.ballast = false;
	if (bench_open(&b))
		bench_end(&b);
}

int main(void)
{
	test_freed();
	test_forgotten();
	test_forgotten_held();
	test_grace();
	test_small_neighbours();
	test_full();
	test_small_disk();
	test_refused_private();
	test_ballast();
	return done_testing();
}
