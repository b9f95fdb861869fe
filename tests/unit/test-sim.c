/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What the simulated disk promises to those who test on it. (That it behaves as a disk is in test-io.c.) */
#include "tests/lib/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/tap.h"

#define SEEDS 300

static struct sim *sim;
static struct io *io;

static void start(void)
{
	if (sim_create(&sim, &io))
		abort();
}

/* Failures inside the many-seeds loops are counted, not reported one by one. */
static struct io_file *open_quietly(const char *path, unsigned int flags)
{
	struct io_file *file = NULL;

	return io_open(io, path, flags, &file) ? NULL : file;
}

static struct io_file *make(const char *path)
{
	struct io_file *file = open_quietly(path, IO_READ | IO_WRITE | IO_CREATE);

	if (!file)
		abort();
	return file;
}

static bool exists(const char *path)
{
	struct io_file *file = open_quietly(path, IO_READ);

	io_close(file);
	return file != NULL;
}

static int size_of(const char *path)
{
	struct io_file *file = open_quietly(path, IO_READ);
	uint64_t size = 0;

	if (!file)
		return -1;
	file->ops->size(file, &size);
	io_close(file);
	return (int)size;
}

/* 'o': the sector is the old one, 'n': the new one, 't': torn, '?': nonsense. */
static char look(struct io_file *file, uint64_t sector, char old, char new)
{
	char buf[SIM_SECTOR_BYTES];
	int num_old = 0, num_new = 0;

	if (io_read_exact(file, buf, sizeof(buf), sector * sizeof(buf)))
		return '?';
	for (size_t i = 0; i < sizeof(buf); i++) {
		num_old += buf[i] == old;
		num_new += buf[i] == new;
	}
	if (num_old + num_new != sizeof(buf))
		return '?';
	return num_new == 0 ? 'o' : num_old == 0 ? 'n' : num_old == num_new ? 't' : '?';
}

/* Sixteen sectors of 'a' are durable, then the even ones are overwritten by 'b', through the handle or a mapping. */
static void overwrite(struct io_file *file, bool mapped, void **ret_map)
{
	char buf[16 * SIM_SECTOR_BYTES];
	void *map = NULL;

	memset(buf, 'a', sizeof(buf));
	io_write(file, buf, sizeof(buf), 0);
	file->ops->sync(file);
	io->ops->sync_dir(io, ".");
	memset(buf, 'b', sizeof(buf));
	if (mapped && file->ops->map(file, sizeof(buf), true, &map))
		abort();
	for (size_t off = 0; off < sizeof(buf); off += 2 * SIM_SECTOR_BYTES) {
		if (mapped)
			memcpy((char *)map + off, buf, SIM_SECTOR_BYTES);
		else
			io_write(file, buf, SIM_SECTOR_BYTES, off);
	}
	*ret_map = map;
}

static void test_sectors(bool mapped)
{
	unsigned int old = 0, new = 0, torn = 0, bad = 0, all = 0, none = 0, stale = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct io_file *file, *after;
		unsigned int num_new = 0;
		void *map;

		start();
		file = make("f");
		overwrite(file, mapped, &map);
		bad += sim_power_cut(sim, seed) != 0;
		if (map)
			memset(map, 'z', 4096); /* a dead program's threads */
		stale += file->ops->sync(file) == -EIO && io_write(file, "z", 1, 0) == -EIO;
		after = open_quietly("f", IO_READ);
		for (uint64_t s = 0; after && s < 16; s++) {
			char c = look(after, s, 'a', 'b');

			bad += c == '?' || (s % 2 && c != 'o');
			old += c == 'o';
			num_new += c == 'n';
			torn += c == 't';
		}
		bad += !after;
		new += num_new;
		all += num_new == 8;
		none += num_new == 0;
		if (map)
			file->ops->unmap(file, map, 16 * SIM_SECTOR_BYTES);
		io_close(file);
		io_close(after);
		sim_destroy(sim);
	}
	is_u64(bad, 0, "every sector is old, new, or half of each; untouched ones are old");
	is_u64(stale, SEEDS, "old handles are stale");
	ok(old > SEEDS && new > SEEDS, "many are kept (%u), many dropped (%u)", new, old);
	ok(torn > 0 && torn < SEEDS, "some are torn (%u)", torn);
	ok(all > 10 && none > 10, "now and then all (%u) or nothing (%u) is written", all, none);
}

static void test_synced(bool mapped)
{
	unsigned int bad = 0;

	for (uint64_t seed = 0; seed < 50; seed++) {
		struct io_file *file, *after;
		void *map;

		start();
		file = make("f");
		overwrite(file, mapped, &map);
		if (map && seed % 2) {
			file->ops->unmap(file, map, 16 * SIM_SECTOR_BYTES);
			map = NULL;
		}
		bad += file->ops->sync(file) != 0;
		sim_power_cut(sim, seed);
		after = open_quietly("f", IO_READ);
		for (uint64_t s = 0; after && s < 16; s++)
			bad += look(after, s, 'a', 'b') != (s % 2 ? 'o' : 'n');
		bad += !after;
		sim_destroy(sim); /* with all that is open and mapped */
	}
	is_u64(bad, 0, "what was synced is there");
}

static void test_sizes(void)
{
	unsigned int bad = 0, small = 0, large = 0, between = 0, uncut = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct io_file *file;
		char byte = 0;
		int size;

		start();
		file = make("f");
		io_write(file, "0123456789", 10, 0);
		file->ops->sync(file);
		io_write(file, "x", 1, 99999);
		sim_power_cut(sim, seed);
		size = size_of("f");
		small += size == 10;
		large += size == 100000;
		between += size > 10 && size < 100000;
		bad += size < 10 || size > 100000;
		io_close(file);
		file = open_quietly("f", IO_READ | IO_WRITE);
		file->ops->truncate(file, 10);
		file->ops->sync(file);
		file->ops->truncate(file, 3);
		sim_power_cut(sim, seed);
		size = size_of("f");
		bad += size != 3 && size != 10;
		io_close(file);
		file = open_quietly("f", IO_READ | IO_WRITE);
		if (size == 10) {
			bad += io_read_exact(file, &byte, 1, 9) || byte != '9';
			uncut++;
		}
		file->ops->truncate(file, 100);
		bad += io_read_exact(file, &byte, 1, 50) || byte != 0;
		io_close(file);
		sim_destroy(sim);
	}
	is_u64(bad, 0, "sizes are the old, the new, or between, and the rest is zero");
	ok(small && large && between && uncut, "all of them happen (%u, %u, %u, %u)", small, large, between, uncut);
}

static void test_names(void)
{
	unsigned int bad = 0, counts[5] = { 0 };

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		unsigned int num = 0;

		start();
		io_close(make("old"));
		io->ops->sync_dir(io, "");
		io_close(make("a"));
		io->ops->mkdir(io, "d");
		io->ops->rename(io, "a", "d/b");
		io->ops->unlink(io, "old");
		sim_power_cut(sim, seed);
		num += exists("a") || exists("d/b");
		num += io->ops->mkdir(io, "d") == -EEXIST;
		num += exists("d/b");
		num += !exists("old");
		bad += exists("a") && exists("d/b");
		bad += exists("d/b") && num < 3;
		bad += !exists("old") && num < 4;
		counts[num]++;
		sim_destroy(sim);
	}
	is_u64(bad, 0, "what happened to names is kept in its order");
	ok(counts[0] && counts[1] && counts[2] && counts[3] && counts[4], "up to any point (%u, %u, %u, %u, %u)",
		counts[0], counts[1], counts[2], counts[3], counts[4]);
}

static void test_durable_names(void)
{
	unsigned int bad = 0, renamed = 0;

	for (uint64_t seed = 0; seed < 100; seed++) {
		struct io_file *file;

		start();
		io->ops->mkdir(io, "d");
		file = make("d/tmp");
		io_write(file, "data", 4, 0);
		file->ops->sync(file);
		io_close(file);
		if (seed % 2)
			io->ops->rename(io, "d/tmp", "d/new");
		else
			io_close(make("other"));
		sim_power_cut(sim, seed);
		renamed += size_of("d/new") == 4;
		bad += size_of("d/tmp") != 4 && size_of("d/new") != 4;
		io_close(make("d/x"));
		io->ops->sync_dir(io, "d");
		io->ops->unlink(io, "d/x");
		io->ops->sync_dir(io, "d");
		sim_power_cut(sim, seed);
		bad += exists("d/x");
		bad += io_replace(io, "d/y", "1", 1) || io_replace(io, "d/y", "22", 2);
		sim_power_cut(sim, seed);
		bad += size_of("d/y") != 2;
		sim_destroy(sim);
	}
	is_u64(bad, 0, "a file's sync makes it durable, sync_dir all names");
	ok(renamed > 10 && renamed < 45, "but a file's sync does not make its later renaming durable (%u)", renamed);
}

/* The whole of io_replace under loss of power at each of its syncs. */
static void test_stop(void)
{
	unsigned int bad = 0, old = 0, new = 0, rounds = 0;

	for (uint64_t k = 1; k <= 2; k++) {
		for (uint64_t seed = 0; seed < 100; seed++, rounds++) {
			void *buf = NULL;
			size_t len;

			start();
			bad += io_replace(io, "f", "old", 3) != 0;
			bad += sim_syncs(sim) != 2;
			sim_stop_at_sync(sim, k);
			bad += io_replace(io, "f", "new", 3) != -EIO;
			bad += exists("f") || sim_syncs(sim) != 2 + k;
			sim_power_cut(sim, seed);
			bad += io_read_all(io, "f", 3, &buf, &len) != 0;
			old += buf && strcmp(buf, "old") == 0;
			new += buf &&strcmp(buf, "new") == 0;
			bad += k == 1 && buf && strcmp(buf, "new") == 0;
			free(buf);
			sim_destroy(sim);
		}
	}
	is_u64(bad, 0, "a stop at a sync");
	is_u64(old + new, rounds, "the old file or the new one, whole");
	ok(new > 10 && new < 90, "a renaming that was not synced may be there (%u)", new);
}

static void test_stop_mapped(void)
{
	unsigned int bad = 0;

	for (uint64_t seed = 0; seed < 50; seed++) {
		struct io_file *file, *after;
		void *map;
		char buf[4096];

		start();
		file = make("f");
		overwrite(file, true, &map);
		sim_stop_at_sync(sim, 1);
		bad += file->ops->sync(file) != -EIO;
		memset(map, 'z', 8192);
		bad += file->ops->sync(file) != -EIO;
		file->ops->unmap(file, map, 8192);
		io_close(file);
		sim_power_cut(sim, seed);
		after = open_quietly("f", IO_READ);
		bad += !after || io_read_exact(after, buf, sizeof(buf), 0) || memchr(buf, 'z', sizeof(buf));
		io_close(after);
		sim_destroy(sim);
	}
	is_u64(bad, 0, "what is stored after the stop does not reach the disk");
}

static void test_failures(void)
{
	struct io_file *file;
	unsigned int made = 0;
	char buf[5] = "";

	start();
	file = make("f");
	is_u64(sim_calls(sim), 1, "making a file is one change");
	sim_fail_after(sim, 2, EIO);
	is_int(io_write(file, "abcd", 4, 0), 0, "the first");
	is_int(io_write(file, "efgh", 4, 0), -EIO, "the second fails");
	is_int(io_read_exact(file, buf, 4, 0), 0, "read");
	is_str(buf, "efcd", "half-way");
	is_int(io_write(file, "efgh", 4, 0), 0, "once");
	is_u64(sim_calls(sim), 4, "failed ones count");
	sim_fail_after(sim, 1, ENOSPC);
	is_int(file->ops->sync(file), -ENOSPC, "a sync fails");
	is_int(file->ops->sync(file), 0, "once");
	io_close(file);
	is_int(io_replace(io, "g", "old", 3), 0, "replace");
	for (uint64_t n = 1; n < 20; n++) {
		void *all = NULL;
		size_t len;
		int r;

		sim_fail_after(sim, n, EIO);
		r = io_replace(io, "g", "new", 3);
		sim_fail_after(sim, 0, 0);
		if (r == 0)
			break;
		made += io_read_all(io, "g", 3, &all, &len) == 0 && len == 3;
		free(all);
	}
	is_u64(made, 5, "replacing is five changes, and no failure of one leaves half a file");
	is_int(exists("g.tmp"), 0, "nor a temporary one");
	sim_destroy(sim);
}

static void test_capacity(void)
{
	uint64_t total, free_bytes;
	struct io_file *file;
	char buf[8192] = "";

	start();
	sim_set_capacity(sim, 65536);
	file = make("f");
	is_int(file->ops->allocate(file, 0, 40000), 0, "allocate");
	is_int(io->ops->space(io, &total, &free_bytes), 0, "space");
	ok(total == 65536 && free_bytes == 24576, "blocks are counted");
	is_int(io_write(file, buf, 8192, 0), 0, "write into what is allocated");
	is_int(io_write(file, buf, 8192, 60000), 0, "write elsewhere");
	is_int(file->ops->allocate(file, 100000, 20000), -ENOSPC, "full");
	is_int(io_write(file, buf, 8192, 200000), 0, "the last but one");
	is_int(io_write(file, buf, 8192, 300000), -ENOSPC, "full");
	is_int(file->ops->punch(file, 0, 16384), 0, "punch");
	is_int(io_write(file, buf, 8192, 300000), 0, "and there is room");
	is_int(io->ops->unlink(io, "f"), 0, "unlink");
	is_int(io->ops->space(io, &total, &free_bytes), 0, "space");
	ok(free_bytes < 65536, "an open file takes room");
	io_close(file);
	is_int(io->ops->space(io, &total, &free_bytes), 0, "space");
	is_u64(free_bytes, 65536, "a closed one does not");
	sim_set_file_limit(sim, 1 << 20);
	file = make("g");
	is_int(file->ops->truncate(file, (1 << 20) + 1), -EFBIG, "larger than a file can be");
	sim_destroy(sim);
}

static void test_corrupt(void)
{
	struct io_file *file;
	char buf[4] = "";

	start();
	file = make("f");
	io_write(file, "abc", 3, 0);
	file->ops->sync(file);
	is_int(sim_corrupt(sim, "f", 1, 0x20), 0, "corrupt");
	is_int(sim_corrupt(sim, "f", 3, 0x20), -EINVAL, "past the end");
	is_int(sim_corrupt(sim, "g", 0, 0x20), -ENOENT, "not there");
	is_int(io_read_exact(file, buf, 3, 0), 0, "read");
	is_str(buf, "aBc", "seen");
	io_close(file);
	sim_power_cut(sim, 1);
	file = open_quietly("f", IO_READ);
	is_int(io_read_exact(file, buf, 3, 0), 0, "read");
	is_str(buf, "aBc", "and on the disk");
	io_close(file);
	sim_destroy(sim);
}

static void test_same_seed(void)
{
	char images[2][16 * SIM_SECTOR_BYTES];

	for (int i = 0; i < 2; i++) {
		struct io_file *file;
		void *map;

		start();
		file = make("f");
		overwrite(file, false, &map);
		sim_power_cut(sim, 4711);
		io_close(file);
		file = open_quietly("f", IO_READ);
		io_read_exact(file, images[i], sizeof(images[i]), 0);
		io_close(file);
		sim_destroy(sim);
	}
	ok(memcmp(images[0], images[1], sizeof(images[0])) == 0, "the same seed gives the same disk");
	sim_destroy(NULL);
}

int main(void)
{
	test_sectors(false);
	test_sectors(true);
	test_synced(false);
	test_synced(true);
	test_sizes();
	test_names();
	test_durable_names();
	test_stop();
	test_stop_mapped();
	test_failures();
	test_capacity();
	test_corrupt();
	test_same_seed();
	return done_testing();
}
