/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Layers of shared files, foreign inodes, stamps of names and of the directory tree. Random histories go against a model that
 * knows for each block by which record it was written, and under which stamp that was committed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/base/tagged.h"
#include "format/index/state_private.h"
#include "tests/lib/state_fixture.h"
#include "tests/lib/tap.h"

#define BLOCK      (16u << 10)
#define NUM_BLOCKS 224u /* 3.5 pages of extents */
#define FILE_MODE  (S_IFREG | 0644)
#define DIR_MODE   (S_IFDIR | 0755)
#define HOME_INO   2u
#define FOREIGN    (UINT64_C(5) << 40 | 9)
#define STEPS      700

enum shows { GAP, HOLE, LOG };

struct block {
	enum shows shows;
	uint64_t seq, stamp, segment_off;
};

struct file {
	uint64_t ino, stamp, committed; /* the last commit: its stamp, its upto */
	bool shared;
	struct block block[NUM_BLOCKS];
};

struct model {
	struct state_fixture *f;
	struct file file[2];
	uint64_t segment_end, last_seq;
	uint32_t random;
	int refused;
};

static uint32_t roll(struct model *m, uint32_t sides)
{
	m->random = m->random * 1664525u + 1013904223u;
	return (m->random >> 9) % sides;
}

static bool done(struct model *m, struct record rec)
{
	int r = commit(m->f, rec, &m->last_seq);

	if (r < 0) {
		tap_diag("record type %d inode %lu: %d", rec.type, (unsigned long)rec.ino, r);
		m->refused++;
	}
	return r == 0;
}

static struct record foreign(uint64_t ino, const char *name, uint64_t size)
{
	struct record rec = record_name(RECORD_FOREIGN, ino, STATE_ROOT_INO, name);

	rec.mode = FILE_MODE;
	rec.uid = 7;
	rec.size = size;
	return rec;
}

/* ---- histories */

static void do_write(struct model *m, struct file *file)
{
	uint32_t from = roll(m, NUM_BLOCKS), num = 1 + roll(m, 8);

	if (from + num > NUM_BLOCKS)
		num = NUM_BLOCKS - from;
	if (!done(m, record_write(file->ino, (uint64_t)from * BLOCK, (uint64_t)num * BLOCK, 1, m->segment_end)))
		return;
	for (uint32_t i = from; i < from + num; i++, m->segment_end += BLOCK)
		file->block[i] = (struct block){ .shows = LOG, .seq = m->last_seq, .segment_off = m->segment_end };
}

/* One behind the other in file and segment: what an unshared file would merge. */
static void do_appends(struct model *m, struct file *file)
{
	uint32_t at = roll(m, NUM_BLOCKS);

	for (uint32_t i = at; i < at + 4 && i < NUM_BLOCKS; i++, m->segment_end += BLOCK) {
		if (!done(m, record_write(file->ino, (uint64_t)i * BLOCK, BLOCK, 1, m->segment_end)))
			return;
		file->block[i] = (struct block){ .shows = LOG, .seq = m->last_seq, .segment_off = m->segment_end };
	}
}

static void do_extents(struct model *m, struct file *file)
{
	struct record_range range[3];
	struct record rec = { .type = RECORD_EXTENTS,
		.ino = file->ino,
		.segment = 1,
		.segment_off = m->segment_end,
		.ranges = range,
		.num_ranges = 3 };

	for (int i = 0; i < 3; i++)
		range[i] = (struct record_range){ .off = (uint64_t)roll(m, NUM_BLOCKS) * BLOCK, .len = BLOCK };
	if (!done(m, rec))
		return;
	for (int i = 0; i < 3; i++, m->segment_end += BLOCK)
		file->block[range[i].off / BLOCK] =
			(struct block){ .shows = LOG, .seq = m->last_seq, .segment_off = m->segment_end };
}

static void do_punch(struct model *m, struct file *file)
{
	uint32_t from = roll(m, NUM_BLOCKS), num = 1 + roll(m, 12);
	struct record rec = { .type = RECORD_PUNCH, .ino = file->ino, .off = (uint64_t)from * BLOCK };

	if (!file->shared)
		return;
	if (from + num > NUM_BLOCKS)
		num = NUM_BLOCKS - from;
	rec.len = (uint64_t)num * BLOCK;
	if (!done(m, rec))
		return;
	for (uint32_t i = from; i < from + num; i++)
		file->block[i] = (struct block){ .shows = HOLE, .seq = m->last_seq };
}

static void do_truncate(struct model *m, struct file *file)
{
	uint32_t size = roll(m, NUM_BLOCKS + 20);
	struct record rec = { .type = RECORD_TRUNCATE, .ino = file->ino, .size = (uint64_t)size * BLOCK };

	if (!done(m, rec))
		return;
	for (uint32_t i = size; i < NUM_BLOCKS; i++)
		file->block[i] = (struct block){ .shows = GAP };
}

static void do_commit(struct model *m, struct file *file)
{
	uint64_t behind = roll(m, 3) ? 0 : roll(m, 6);
	struct record rec = { .type = RECORD_COMMITTED, .ino = file->ino, .stamp = file->stamp + 1 + roll(m, 5) };

	if (!file->shared)
		return;
	rec.upto = state_seq(m->f->st) - behind;
	if (!done(m, rec))
		return;
	file->stamp = rec.stamp;
	for (uint32_t i = 0; i < NUM_BLOCKS; i++)
		if (!file->block[i].stamp && file->block[i].seq <= rec.upto && file->block[i].shows != GAP)
			file->block[i].stamp = rec.stamp;
}

static void do_drain(struct model *m, struct file *file)
{
	struct record rec = { .type = RECORD_DRAINED, .ino = file->ino, .upto = m->last_seq - roll(m, 50), .size = 0 };

	if (file->ino != FOREIGN || m->last_seq < 100 || !done(m, rec))
		return;
	for (uint32_t i = 0; i < NUM_BLOCKS; i++)
		if (file->block[i].seq <= rec.upto)
			file->block[i] = (struct block){ .shows = GAP };
}

static void do_share(struct model *m, struct file *file)
{
	if (roll(m, 4) == 0 && done(m, (struct record){ .type = RECORD_SHARE, .ino = file->ino }))
		file->shared = true;
}

static void do_free(struct model *m, struct file *file)
{
	if (file->ino != FOREIGN || roll(m, 8) || !done(m, record_name(RECORD_FREE, FOREIGN, 0, "")))
		return;
	*file = (struct file){ .ino = FOREIGN, .shared = true };
	done(m, foreign(FOREIGN, "again", 0));
}

/* ---- comparison */

static bool unit_is_right(const struct layer_extent *e, size_t num, const struct block *b, uint64_t off)
{
	uint64_t at = off;

	if (b->shows == GAP)
		return num == 0;
	for (size_t i = 0; i < num; i++) {
		bool is_log = e[i].ext.kind == EXTENT_LOG;

		if (e[i].ext.off != at || is_log != (b->shows == LOG) || e[i].stamp != b->stamp)
			return false;
		if (is_log && e[i].ext.segment_off != b->segment_off + (at - off))
			return false;
		at += e[i].ext.len;
	}
	return at == off + BLOCK;
}

static bool layer_is_right(struct model *m, const struct file *file)
{
	struct layer_extent e[8];
	uint64_t next;
	size_t num;

	for (uint32_t i = 0; i < NUM_BLOCKS; i++) {
		uint64_t off = (uint64_t)i * BLOCK;

		if (state_layer(m->f->st, file->ino, off, BLOCK, e, 8, &num, &next) < 0 || next != off + BLOCK)
			return false;
		if (!unit_is_right(e, num, &file->block[i], off)) {
			tap_diag("inode %lx block %u: model %d stamp %lu, state %zu extents, stamp %lu",
				(unsigned long)file->ino, i, file->block[i].shows, (unsigned long)file->block[i].stamp,
				num, num ? (unsigned long)e[0].stamp : 0);
			return false;
		}
	}
	return true;
}

/* In steps of 3 extents. */
static bool uncommitted_is_right(struct model *m, const struct file *file)
{
	uint64_t bytes[NUM_BLOCKS] = { 0 }, at = 0, last = 0;
	struct extent e[3];
	size_t num;

	while (at != UINT64_MAX) {
		if (state_uncommitted(m->f->st, file->ino, at, e, 3, &num, &at) < 0 || (at != UINT64_MAX && num != 3))
			return false;
		for (size_t i = 0; i < num; i++) {
			if (e[i].off < last)
				return false;
			last = e[i].off + e[i].len;
			for (uint64_t off = e[i].off; off < last; off += BLOCK)
				bytes[off / BLOCK] += BLOCK;
		}
	}
	for (uint32_t i = 0; i < NUM_BLOCKS; i++) {
		const struct block *b = &file->block[i];

		if (bytes[i] != (file->shared && b->shows != GAP && !b->stamp ? BLOCK : 0))
			return false;
	}
	return true;
}

static bool same_as_model(struct model *m)
{
	struct state_totals t;
	uint64_t live = 0;
	bool same = true;

	for (int i = 0; i < 2; i++) {
		same = same && layer_is_right(m, &m->file[i]) && uncommitted_is_right(m, &m->file[i]);
		for (uint32_t b = 0; b < NUM_BLOCKS; b++)
			live += m->file[i].block[b].shows == LOG ? BLOCK : 0;
	}
	state_totals(m->f->st, &t);
	return same && t.log_bytes == live && t.dirty_files == 2; /* the home's, and its directory */
}

static bool incident(struct model *m)
{
	switch (roll(m, 6)) {
	case 0: fixture_kill(m->f); return fixture_open(m->f, STATE_READ_WRITE) == 0;
	case 1: return fixture_close(m->f) == 0 && fixture_open(m->f, STATE_READ_WRITE) == 0;
	case 2: fixture_kill(m->f); return fixture_open(m->f, STATE_REBUILD) == 0;
	case 3: return state_compact(m->f->st) == 0;
	case 4: return fixture_differences(m->f) == 0;
	default: return state_checkpoint(m->f->st) == 0;
	}
}

static void begin(struct state_fixture *f, uint64_t index_memory)
{
	if (fixture_init(f))
		ok(false, "a new store is made");
	f->index_memory = index_memory;
	if (fixture_open(f, STATE_READ_WRITE) || fixture_adopt_root(f))
		ok(false, "a new store opens");
}

static void test_history(uint32_t seed)
{
	static void (*const operations[])(struct model * m, struct file * file) = { do_write, do_write, do_write,
		do_appends, do_extents, do_punch, do_truncate, do_commit, do_commit, do_drain, do_share, do_free };
	struct model m = { .random = seed * 7919, .file = { { .ino = HOME_INO }, { .ino = FOREIGN, .shared = true } } };
	struct state_fixture f;
	bool same = true, survived = true;

	m.f = &f;
	begin(&f, seed % 2 ? 4096 : 0);
	done(&m, record_create(HOME_INO, 1, "shared", FILE_MODE));
	done(&m, foreign(FOREIGN, "there", 100));
	for (int i = 0; i < STEPS && same && survived && !m.refused; i++) {
		operations[roll(&m, sizeof operations / sizeof operations[0])](&m, &m.file[roll(&m, 2)]);
		if (i % 10 == 0)
			same = same_as_model(&m);
		if (roll(&m, 60) == 0)
			survived = incident(&m);
	}
	is_int(m.refused, 0, "nothing that makes sense was refused");
	ok(same && same_as_model(&m), "history %u: extents and stamps are the model's", seed);
	ok(survived, "through kills, closes, rebuilds, compactions");
	is_int(fixture_differences(&f), 0, "and as from the journal");
	fixture_end(&f);
}

/* From the last one back; 0: an error, too. */
static size_t num_commits(struct state *st)
{
	struct commit_point p = { .stamp = 0 };
	uint64_t stamp = UINT64_MAX;
	size_t num = 0;

	while (stamp > 0 && state_commit_by(st, FOREIGN, stamp, &p, NULL) == 0 && p.upto) {
		stamp = p.stamp - 1;
		num++;
	}
	return num;
}

/* Points that no extent needs go. */
static void test_pruning(void)
{
	struct record rec = { .type = RECORD_COMMITTED, .ino = FOREIGN };
	struct commit_point p, later;
	struct layer_extent e[8];
	bool is_later = true;
	struct state_fixture f;
	uint64_t next, most = 0;
	size_t num;
	int r = 0;

	begin(&f, 0);
	commit(&f, foreign(FOREIGN, "f", 0), NULL);
	is_int(state_commit_by(f.st, FOREIGN, UINT64_MAX, &p, &is_later), 0, "commits of a new one");
	ok(p.upto == 0 && p.stamp == 0 && !is_later, "none");
	for (uint64_t i = 1; i <= 1000; i++) {
		/* A file of 8 blocks; each commit brings one of 4 blocks, and one block that stays. */
		r |= commit(&f,
			record_write(FOREIGN, i <= 4 ? i * BLOCK : i % 4 * BLOCK + 4 * BLOCK, BLOCK, 1, i * BLOCK),
			NULL);
		rec.upto = state_seq(f.st);
		rec.stamp = 10 * i;
		r |= commit(&f, rec, NULL);
		num = num_commits(f.st);
		most = num > most ? num : most;
	}
	is_int(r, 0, "a thousand commits");
	ok(most > 0 && most <= COMMITS_PRUNE_MIN, "never more than %d points", COMMITS_PRUNE_MIN);
	is_int(state_commit_by(f.st, FOREIGN, 19, &p, NULL) | state_commit_by(f.st, FOREIGN, 20, &later, &is_later), 0,
		"the oldest");
	ok(p.stamp == 10 && later.stamp == 20 && p.upto < later.upto && is_later, "are still needed");
	is_int(state_commit_by(f.st, FOREIGN, 9, &p, &is_later), 0, "before it");
	ok(p.upto == 0 && is_later, "there was none");
	is_int(state_commit_by(f.st, FOREIGN, UINT64_MAX, &p, &is_later), 0, "the last one");
	ok(p.stamp == 10000 && !is_later, "is there, and none later");
	is_int(state_layer(f.st, FOREIGN, 0, INT64_MAX, e, 8, &num, &next), 0, "the layer");
	ok(num == 7 && e[0].stamp == 10 && e[1].stamp == 20 && e[2].stamp == 30,
		"with its stamps"); /* 4 is written again */
	rec.upto = state_seq(f.st);
	rec.stamp = 10000;
	is_int(commit(&f, rec, NULL), -EALREADY, "a stamp comes once");
	rec.stamp++;
	rec.upto = state_seq(f.st) + 1;
	is_int(commit(&f, rec, NULL), -EINVAL, "the future cannot be committed");
	rec.upto--;
	is_int(commit(&f, rec, NULL), 0, "a commit of nothing");
	is_u64(fixture_differences(&f) == 0, true, "as from the journal");
	fixture_end(&f);
}

static void test_foreign(void)
{
	struct record rec = foreign(FOREIGN, "name", 5000), fetch = record_write(FOREIGN, 0, 8192, 1, 0);
	struct state_fixture f;
	struct state_totals t;
	struct state_name d;
	struct extent e;
	struct inode in;
	uint64_t next;
	size_t num;

	begin(&f, 0);
	is_int(commit(&f, rec, NULL), 0, "a foreign inode");
	is_int(state_inode(f.st, FOREIGN, &in), 0, "is there");
	ok(in.flags == (INODE_FOREIGN | INODE_SHARED) && in.nlink == 1 && in.uid == 7 && in.size == 5000, "as told");
	ok(in.origin_parent == 1 && strcmp(in.origin_name, "name") == 0, "with the name that it has elsewhere");
	is_int(state_lookup(f.st, 1, "name", &d), -ENOENT, "but not here");
	is_int(commit(&f, fetch, NULL), 0, "it takes bytes");
	rec.size = 10;
	rec.uid = 8;
	strcpy(rec.name, "renamed");
	is_int(commit(&f, rec, NULL), 0, "told again");
	state_inode(f.st, FOREIGN, &in);
	ok(in.size == 8192 && in.uid == 8 && strcmp(in.origin_name, "renamed") == 0, "it takes all but a lower size");
	state_totals(f.st, &t);
	ok(t.dirty_files == 0 && t.inodes == 2 && t.names == 0 && t.log_bytes == 8192, "never dirty");
	is_int(commit(&f, record_create(FOREIGN, 1, "x", FILE_MODE), NULL), -EEXIST, "cannot be created");
	is_int(commit(&f, record_name(RECORD_LINK, FOREIGN, 1, "x"), NULL), -EINVAL, "nor named");
	is_int(commit(&f, record_name(RECORD_PLACED, FOREIGN, 1, "x"), NULL), -EINVAL, "nor placed");
	is_int(commit(&f, (struct record){ .type = RECORD_SETATTR, .ino = FOREIGN, .mask = 1 }, NULL), -EINVAL,
		"nor changed");
	is_int(commit(&f, (struct record){ .type = RECORD_THROUGH, .ino = FOREIGN, .len = 1 }, NULL), -EINVAL,
		"nor written through");
	is_int(commit(&f, (struct record){ .type = RECORD_PRIVATE, .ino = FOREIGN, .segment = 1 }, NULL), -EINVAL,
		"nor private");
	commit(&f, record_create(2, 1, "own", FILE_MODE), NULL);
	is_int(commit(&f, foreign(2, "own", 0), NULL), -EEXIST, "an own one is not foreign");
	is_int(commit(&f, (struct record){ .type = RECORD_COMMITTED, .ino = 2, .stamp = 1 }, NULL), -EINVAL,
		"what is not shared is not committed");
	is_int(state_uncommitted(f.st, 2, 0, &e, 1, &num, &next), 0, "nor has it anything to commit");
	is_u64(num, 0, "nothing");
	fixture_kill(&f);
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "opens again");
	is_u64(f.report.orphans, 0, "it is no orphan");
	is_int(state_uncommitted(f.st, FOREIGN, 0, &e, 1, &num, &next), 0, "ask what is to commit");
	ok(num == 1 && e.len == 8192 && next == UINT64_MAX, "still all of it");
	rec = (struct record){ .type = RECORD_DRAINED, .ino = FOREIGN, .upto = state_seq(f.st) };
	is_int(commit(&f, record_write(FOREIGN, 8192, 4096, 1, 8192), NULL), 0, "more bytes");
	is_int(commit(&f, rec, NULL), 0, "the first are drained");
	is_int(state_extents(f.st, FOREIGN, 0, INT64_MAX, &e, 1, &num, &next), 0, "what is left");
	ok(num == 1 && e.kind == EXTENT_LOG && e.off == 8192, "is the others, and no file below");
	f.freed_bytes = 0;
	is_int(commit(&f, record_name(RECORD_FREE, FOREIGN, 0, ""), NULL), 0, "freed while in use");
	is_u64(f.freed_bytes, 4096, "with its payload");
	is_int(state_inode(f.st, FOREIGN, &in), -ENOENT, "gone");
	is_int(fixture_differences(&f), 0, "as from the journal");
	fixture_end(&f);
}

/* At the home: below the layer there is the backing file, which a hole hides wherever it is. */
static void test_home(void)
{
	struct record rec = record_name(RECORD_ADOPT, STATE_BACKING_INO_BIT | 7, 1, "f");
	struct layer_extent e[8];
	struct state_fixture f;
	struct inode in;
	uint64_t next;
	size_t num;

	begin(&f, 0);
	rec.mode = FILE_MODE;
	rec.size = 100;
	rec.nlink = 1;
	commit(&f, rec, NULL);
	is_int(commit(&f, record_write(rec.ino, 10, 10, 1, 0), NULL), 0, "written by its home alone");
	is_int(commit(&f, (struct record){ .type = RECORD_SHARE, .ino = rec.ino }, NULL), 0, "then shared");
	is_int(commit(&f, (struct record){ .type = RECORD_SHARE, .ino = rec.ino }, NULL), 0, "twice does no harm");
	is_int(commit(&f,
		       (struct record){ .type = RECORD_PUNCH,
			       .ino = rec.ino,
			       .off = 50,
			       .len = 100,
			       .flags = RECORD_F_KEEP_SIZE },
		       NULL),
		0, "punched to behind its end");
	is_int(state_layer(f.st, rec.ino, 0, 1000, e, 8, &num, &next), 0, "its layer");
	ok(num == 2 && e[0].ext.off == 10 && e[1].ext.kind == EXTENT_HOLE && e[1].ext.off == 50 && e[1].ext.len == 50,
		"is what was written, and a hole up to its end");
	state_inode(f.st, rec.ino, &in);
	ok(in.size == 100 && in.backing_limit == 100 && in.flags == (INODE_SHARED | INODE_DIRTY_DATA),
		"size and limit stay");
	rec = record_create(2, 1, "p", FILE_MODE);
	rec.segment = 9;
	commit(&f, rec, NULL);
	is_int(commit(&f, (struct record){ .type = RECORD_SHARE, .ino = 2 }, NULL), -EBUSY,
		"a private one is sealed first");
	is_int(fixture_differences(&f), 0, "as from the journal");
	fixture_end(&f);
}

/* ---- inode numbers */

static void test_numbers(void)
{
	uint64_t first = UINT64_C(5) << 40;
	struct state_fixture f;
	struct inode in;

	begin(&f, 0);
	state_reserve_inos(f.st, first);
	is_int(commit(&f, record_create(30, 1, "dir", DIR_MODE), NULL), 0, "a directory, numbered by node 0");
	is_u64(state_new_ino(f.st), first, "does not disturb the own numbers");
	is_int(commit(&f, foreign(1000, "of node 0", 0), NULL), 0, "nor a foreign inode of node 0");
	is_int(commit(&f, foreign(UINT64_C(9) << 40 | 1, "of node 9", 0), NULL), 0, "nor of a higher node");
	is_u64(state_new_ino(f.st), first + 1, "nor these");
	is_int(fixture_close(&f), 0, "closes: all is in RocksDB");
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "opens");
	is_int(state_inode(f.st, 1000, &in), 0, "the one is found");
	is_int(state_inode(f.st, UINT64_C(9) << 40 | 1, &in), 0, "and the other");
	state_reserve_inos(f.st, first);
	state_reserve_inos(f.st, 5);
	is_u64(state_new_ino(f.st), first, "numbers that nothing was created with are given again");
	is_int(commit(&f, record_create(first, 1, "f", FILE_MODE), NULL), 0, "create with the first");
	is_int(commit(&f, record_create(31, 1, "dir2", DIR_MODE), NULL), 0, "another directory");
	is_int(fixture_close(&f), 0, "closes");
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "opens");
	is_u64(state_new_ino(f.st), first + 1, "the range is known without being told");
	is_int(state_inode(f.st, 31, &in), 0, "the directory is found");
	is_int(fixture_differences(&f), 0, "as from the journal");
	fixture_end(&f);
}

/* ---- stamps */

static struct record stamped(struct record rec, uint64_t stamp, uint32_t flags)
{
	rec.stamp = stamp;
	rec.flags |= flags;
	return rec;
}

static uint64_t stamp_at(struct state_fixture *f, const char *name)
{
	struct state_name d = { .stamp = 999 }, list[1];
	size_t num;

	if (state_lookup(f->st, 1, name, &d) < 0 || state_list_names(f->st, 1, "", list, 1, &num) < 0)
		return 888;
	return num == 1 && (strcmp(list[0].name, name) != 0 || list[0].stamp == d.stamp) ? d.stamp : 777;
}

static void check_stamps(struct state_fixture *f, const char *when)
{
	ok(stamp_at(f, "a") == 12 && stamp_at(f, "b") == 12 && stamp_at(f, "c") == 0 && stamp_at(f, "d") == 0,
		"stamps %s", when);
	is_u64(state_tree_stamp(f->st), 4, "and the tree's");
}

static void test_stamps(void)
{
	struct state_fixture f;

	begin(&f, 0);
	is_u64(state_tree_stamp(f.st), 0, "a new tree");
	is_int(commit(&f, stamped(record_create(2, 1, "x", FILE_MODE), 5, 0), NULL), 0, "create with a stamp");
	is_u64(stamp_at(&f, "x"), 5, "the entry keeps it");
	is_int(commit(&f, stamped(record_rename(2, 1, "x", 1, "a", 0), 7, 0), NULL), 0, "rename");
	is_u64(stamp_at(&f, "a"), 7, "the new one counts");
	is_int(commit(&f, stamped(record_name(RECORD_LINK, 2, 1, "b"), UINT64_MAX, 0), NULL), 0, "link");
	is_u64(stamp_at(&f, "b"), UINT64_MAX, "a further one");
	commit(&f, record_create(3, 1, "y", FILE_MODE), NULL);
	is_int(commit(&f, stamped(record_rename(3, 1, "y", 1, "b", 2), 8, 0), NULL), 0, "rename over it");
	is_int(commit(&f, stamped(record_rename(3, 1, "b", 1, "a", 2), 12, RECORD_F_EXCHANGE), NULL), 0, "exchange");
	is_int(commit(&f, stamped(record_create(4, 1, "d", DIR_MODE), 3, RECORD_F_TREE), NULL), 0,
		"a change of the tree");
	is_int(commit(&f, stamped(record_create(5, 1, "e", DIR_MODE), 3, RECORD_F_TREE), NULL), -EALREADY,
		"comes once");
	is_int(commit(&f, stamped(record_create(5, 1, "e", DIR_MODE), 2, RECORD_F_TREE), NULL), -EALREADY,
		"and in order");
	is_int(commit(&f, stamped(record_create(4, 1, "e", DIR_MODE), 9, RECORD_F_TREE), NULL), -EEXIST,
		"a refused one");
	is_u64(state_tree_stamp(f.st), 3, "does not count");
	is_int(commit(&f, stamped(record_create(4, 1, "e", DIR_MODE), 0, RECORD_F_TREE), NULL), -EINVAL,
		"one without number");
	is_int(commit(&f, stamped((struct record){ .type = RECORD_SETATTR, .ino = 4, .mask = 2 }, 4, RECORD_F_TREE),
		       NULL),
		0, "attributes are changes, too");
	commit(&f, record_create(6, 1, "c", FILE_MODE), NULL);
	check_stamps(&f, "at once");
	fixture_kill(&f);
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "killed, and opened");
	check_stamps(&f, "after the death of the process");
	is_int(state_compact(f.st), 0, "compacted");
	is_int(fixture_close(&f), 0, "closed");
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "and opened");
	check_stamps(&f, "as RocksDB has them");
	fixture_kill(&f);
	is_int(fixture_open(&f, STATE_REBUILD), 0, "rebuilt");
	check_stamps(&f, "as the checkpoint file has them");
	is_int(fixture_differences(&f), 0, "as from the journal");
	fixture_end(&f);
}

/* What one node alone writes is of version 1, which older readers know. */
static void test_version(void)
{
	struct meta m = { .next_ino = 2, .clean = true }, got;
	BUF_CLEANUP struct buf out = { 0 };

	is_int(meta_encode(&m, &out), 0, "numbers of one node alone");
	ok(out.len == 1 + 13 + 16 + 1 && out.data[0] == 1, "version 1, and no byte more than before");
	buf_reset(&out);
	m.job = true;
	m.tree_stamp = 300;
	is_int(meta_encode(&m, &out), 0, "numbers of a job's node");
	ok(out.len == 1 + 13 + 16 + 1 + 4 && out.data[0] == 2, "version 2");
	ok(meta_decode(out.data, out.len, &got) == 0 && got.job && got.tree_stamp == 300, "come back");
	is_int(meta_decode(out.data, out.len - 1, &got), -EBADMSG, "only whole");
	m.writers = true;
	m.job = false;
	buf_reset(&out);
	ok(meta_encode(&m, &out) == 0 && out.data[0] == 3 && meta_decode(out.data, out.len, &got) == 0 && got.writers &&
			!got.job,
		"version 3, of no job");
	m.parts = true;
	buf_reset(&out);
	ok(meta_encode(&m, &out) == 0 && out.data[0] == 4 && meta_decode(out.data, out.len, &got) == 0 && got.parts &&
			got.writers && !got.job,
		"version 4, with pages in parts");
	m.timed = true;
	m.parts = false;
	m.clock_ns = 1700000000123456789;
	buf_reset(&out);
	ok(meta_encode(&m, &out) == 0 && out.data[0] == 5 && meta_decode(out.data, out.len, &got) == 0 && got.timed &&
			!got.parts && got.writers && !got.job && got.clock_ns == m.clock_ns,
		"version 5, with write times");
	is_int(meta_decode(out.data, out.len - 1, &got), -EBADMSG, "only whole");
	m.times_set = true;
	buf_reset(&out);
	ok(meta_encode(&m, &out) == 0 && out.data[0] == 6 && meta_decode(out.data, out.len, &got) == 0 &&
			got.times_set && got.timed && got.clock_ns == m.clock_ns,
		"version 6, with times that were set");
	m.tree_time_ns = 1700000000123456788;
	buf_reset(&out);
	ok(meta_encode(&m, &out) == 0 && out.data[0] == 7 && meta_decode(out.data, out.len, &got) == 0 &&
			got.tree_time_ns == m.tree_time_ns && got.times_set && got.timed && got.clock_ns == m.clock_ns,
		"version 7, with the time of the tree's last change");
	is_int(meta_decode(out.data, out.len - 1, &got), -EBADMSG, "only whole");
	m.timed = m.times_set = false;
	buf_reset(&out);
	ok(meta_encode(&m, &out) == 0 && out.data[0] == 7 && meta_decode(out.data, out.len, &got) == 0 &&
			got.tree_time_ns == m.tree_time_ns && !got.times_set && !got.timed,
		"version 7, without write times");
	m.special = true;
	buf_reset(&out);
	ok(meta_encode(&m, &out) == 0 && out.data[0] == 8 && meta_decode(out.data, out.len, &got) == 0 && got.special &&
			got.tree_time_ns == m.tree_time_ns && !got.timed,
		"version 8, with special files");
	tagged_put(&out, 2, false, "later", 5);
	ok(meta_decode(out.data, out.len, &got) == 0 && got.special,
		"an optional field that is not known is stepped over");
	tagged_put(&out, 3, true, "later", 5);
	is_int(meta_decode(out.data, out.len, &got), -EPROTONOSUPPORT, "a required one is of the future");
	out.data[0] = 9;
	is_int(meta_decode(out.data, out.len, &got), -EPROTONOSUPPORT, "and so is version 9");
}

int main(int argc, char **argv)
{
	uint32_t first = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 1,
		 num = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : 8;

	test_stamps();
	test_numbers();
	test_version();
	test_foreign();
	test_home();
	test_pruning();
	for (uint32_t seed = first; seed < first + num; seed++)
		test_history(seed);
	return done_testing();
}
