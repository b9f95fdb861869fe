/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a store does when something of it is gone: files of its journal, payloads that a device cannot read.
 */
#include "format/store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/bench.h"
#include "tests/lib/remove_tree.h"
#include "tests/lib/tap.h"

/* ---- files of the journal ---- */

static int count_segment(uint32_t segment, bool is_private, uint64_t bytes, void *arg)
{
	unsigned int *num = arg;

	(void)segment;
	(void)is_private;
	(void)bytes;
	(*num)++;
	return 0;
}

static int count_name(const char *name, void *arg)
{
	unsigned int *num = arg;

	*num += strstr(name, ".seg") != NULL;
	return 0;
}

static unsigned int segments_on_disk(struct bench *b)
{
	unsigned int num = 0;

	(void)b->io->ops->list(b->io, "segment", count_name, &num);
	return num;
}

static int keep_highest(const char *name, void *arg)
{
	unsigned int *highest = arg, number = (unsigned int)strtoul(name, NULL, 10);

	if (strstr(name, ".jnl") && number > *highest)
		*highest = number;
	return 0;
}

/* The newest file of the journal, or all of them. */
static bool lose_journal(struct bench *b, bool all)
{
	unsigned int number = 0;
	char path[64];
	int r = b->io->ops->list(b->io, "journal", keep_highest, &number);

	for (unsigned int n = number; r == 0 && n >= (all ? 1 : number); n--) {
		snprintf(path, sizeof(path), "journal/%08u.jnl", n);
		r = b->io->ops->unlink(b->io, path);
	}
	return r == 0 && number > 1;
}

/* Three lives, of which each writes and closes. */
static bool live_thrice(struct bench *b, struct inode *ret)
{
	bool good = bench_begin(b, 1 << 20, 0);

	for (int life = 0; good && life < 3; life++) {
		if (life == 0)
			*ret = bench_file(b->s, "a");
		for (uint64_t i = 0; good && i < 4; i++)
			good = bench_fill(b->s, ret, (uint64_t)life * 4000000 + i * 1000000, 1000000, 'a' + life) == 0;
		good = good && store_close(b->s) == 0;
		b->s = NULL;
		good = good && (life == 2 || bench_open(b));
	}
	return good;
}

static void refuses(struct bench *b, enum store_mode mode, const char *word)
{
	struct cistern_error err = { 0 };
	struct store_options opt = b->opt;

	opt.mode = mode;
	is_int(store_open(b->dir, &opt, &b->s, NULL, &err), -EBADMSG,
		"a store that has lost of its journal is refused");
	ok(strstr(err.text, "lost") && strstr(err.text, word), "why, and what to do: %s", err.text);
	b->s = NULL;
}

static bool has_all(struct bench *b, const struct inode *in)
{
	bool good = true;

	for (int life = 0; good && life < 3; life++)
		good = bench_reads(b->s, in->ino, (uint64_t)life * 4000000, 1000000, 'a' + life) &&
		       bench_reads(b->s, in->ino, (uint64_t)life * 4000000 + 3000000, 1000000, 'a' + life);
	return good;
}

static void test_lost_journal(bool all)
{
	unsigned int before, after = 0;
	struct inode in;
	struct bench b;

	if (!ok(live_thrice(&b, &in) && lose_journal(&b, all), "%s", all ? "a journal is lost" : "its newest file is"))
		return;
	before = segments_on_disk(&b);
	refuses(&b, STORE_CREATE_OR_OPEN, "fsck");
	refuses(&b, STORE_READ_ONLY, "fsck");
	refuses(&b, STORE_REBUILD, "fsck");
	ok(before > 10 && segments_on_disk(&b) == before, "all its segments stay");
	b.opt.mode = STORE_INDEX_ALONE;
	if (!bench_open(&b))
		return;
	ok(has_all(&b, &in), "what the index alone has is all there");
	ok(segment_list(store_segments(b.s), count_segment, &after) == 0 && after >= before, "with its segments");
	store_abandon(b.s);
	remove_tree(b.index);
	b.opt.mode = STORE_CREATE_OR_OPEN;
	if (!bench_open(&b))
		return;
	ok(has_all(&b, &in), "and in the journal that was begun anew");
	bench_end(&b);
}

/* Neither journal nor index: only the segments tell that it is not a new store. */
static void test_nothing_but_segments(void)
{
	unsigned int before;
	struct inode in;
	struct bench b;

	if (!ok(live_thrice(&b, &in) && lose_journal(&b, true), "a journal is lost"))
		return;
	remove_tree(b.index);
	before = segments_on_disk(&b);
	refuses(&b, STORE_CREATE_OR_OPEN, "put them back");
	refuses(&b, STORE_CREATE_OR_OPEN, "put them back");
	refuses(&b, STORE_READ_ONLY, "put them back");
	is_u64(segments_on_disk(&b), before, "all its segments stay");
	sim_destroy(b.sim);
	remove_tree(b.dir);
}

/* ---- payloads that the device cannot read */

static struct {
	const struct io_ops *real;
	struct io_ops disk, segment;
	int error; /* of reads of segments */
} bad;

static ssize_t read_badly(struct io_file *file, void *buf, size_t len, uint64_t off)
{
	return bad.error ? bad.error : bad.real->pread(file, buf, len, off);
}

static int open_badly(struct io *io, const char *path, unsigned int flags, struct io_file **ret)
{
	int r = bad.real->open(io, path, flags, ret);

	if (r == 0 && strstr(path, ".seg"))
		(*ret)->ops = &bad.segment;
	return r;
}

static void break_disk(struct io *io)
{
	bad.real = io->ops;
	bad.disk = bad.segment = *io->ops;
	bad.segment.pread = read_badly;
	bad.disk.open = open_badly;
	io->ops = &bad.disk;
}

/* Synced, and written over since: then the machine is restarted. */
static void test_unreadable_payload(enum store_mode mode)
{
	uint8_t boot[16] = { 1 };
	struct state_report report = { 0 };
	struct cistern_error err = { 0 };
	struct inode in;
	struct bench b;

	if (!bench_begin(&b, 1 << 20, 0))
		return;
	in = bench_file(b.s, "a");
	ok(bench_fill(b.s, &in, 0, 10000, 'x') == 0 && store_sync(b.s) == 0 && bench_fill(b.s, &in, 0, 10000, 'y') == 0,
		"a write that is synced, and one over it");
	store_abandon(b.s);
	b.s = NULL;
	break_disk(b.io);
	b.opt.boot_id = boot;
	b.opt.mode = mode;
	bad.error = -ENOMEM;
	is_int(store_open(b.dir, &b.opt, &b.s, NULL, &err), -ENOMEM,
		"what says nothing of the payload ends the opening");
	b.s = NULL;
	bad.error = -EIO;
	is_int(store_open(b.dir, &b.opt, &b.s, &report, &err), 0, "one that cannot be read does not");
	bad.error = 0;
	ok(b.s && report.dropped_writes == 1 && report.dropped_bytes == 10000, "it is told as lost");
	ok(b.s && bench_reads(b.s, in.ino, 0, 10000, 'x'), "what was synced counts");
	b.io->ops = bad.real;
	bench_end(&b);
}

int main(void)
{
	test_lost_journal(false);
	test_lost_journal(true);
	test_nothing_but_segments();
	test_unreadable_payload(STORE_OPEN);
	test_unreadable_payload(STORE_READ_ONLY);
	return done_testing();
}
