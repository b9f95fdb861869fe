/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Random histories. A model of plain arrays keeps names, links and, for each block of each file, what it shows: nothing,
 * the backing file, a place in a segment. It shares no code with the state. The state is killed, closed, compacted,
 * snapshotted and rebuilt on the way, and must show what the model shows, and equal a state made from the journal alone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/state_fixture.h"
#include "tests/lib/tap.h"

#define BLOCK      (64u << 10)
#define NUM_BLOCKS 56u /* 3.5 pages of extents */
#define NUM_INOS   40u
#define NUM_NAMES  6u
#define STEPS      1000

enum shows { GAP, BACKING, HOLE, LOG };

struct block {
	enum shows shows;
	uint32_t segment;
	uint64_t segment_off, seq;
};

struct file {
	bool exists, is_dir, orphan, is_private, dirty, fresh;
	uint32_t links, segment;
	uint64_t size_blocks, limit_blocks, data_seq;
	struct block block[NUM_BLOCKS];
};

struct model {
	struct state_fixture *f;
	struct file file[NUM_INOS];         /* by inode number; 1 is the root */
	uint64_t name[NUM_INOS][NUM_NAMES]; /* [directory][name]: inode or 0 */
	uint64_t segment_end[8];
	uint32_t next_private;
	uint64_t next_ino, last_seq;
	uint32_t random;
	int refused;
};

static uint32_t roll(struct model *m, uint32_t sides)
{
	m->random = m->random * 1664525u + 1013904223u;
	return (m->random >> 9) % sides;
}

static const char *const names[NUM_NAMES] = { "a", "b", "cc", "ddd", "e", "a longer name" };

/* A record that the model says is right: the state must take it. */
static bool done(struct model *m, struct record rec)
{
	int r = commit(m->f, rec, &m->last_seq);

	if (r < 0) {
		tap_diag("record type %d inode %lu: %d", rec.type, (unsigned long)rec.ino, r);
		m->refused++;
	}
	return r == 0;
}

static uint64_t some_dir(struct model *m)
{
	for (;;) {
		uint64_t ino = 1 + roll(m, NUM_INOS - 1);

		if (m->file[ino].exists && m->file[ino].is_dir && !m->file[ino].orphan)
			return ino;
	}
}

static uint64_t some_file(struct model *m)
{
	for (int tries = 0; tries < 100; tries++) {
		uint64_t ino = 2 + roll(m, NUM_INOS - 2);

		if (m->file[ino].exists && !m->file[ino].is_dir)
			return ino;
	}
	return 0;
}

static bool is_empty(const struct model *m, uint64_t dir)
{
	for (uint32_t i = 0; i < NUM_NAMES; i++)
		if (m->name[dir][i])
			return false;
	return true;
}

static uint64_t parent_of(const struct model *m, uint64_t dir)
{
	for (uint64_t p = 1; p < NUM_INOS; p++)
		for (uint32_t i = 0; i < NUM_NAMES; i++)
			if (m->name[p][i] == dir)
				return p;
	return 0;
}

static bool is_below(const struct model *m, uint64_t dir, uint64_t ancestor)
{
	for (; dir; dir = parent_of(m, dir))
		if (dir == ancestor)
			return true;
	return false;
}

/* ---- names */

static void lose_name(struct model *m, uint64_t dir, uint32_t i)
{
	struct file *file = &m->file[m->name[dir][i]];

	m->name[dir][i] = 0;
	if (file->is_dir) {
		file->links = 0;
		m->file[dir].links--;
	} else {
		file->links--;
	}
	file->orphan = file->links == 0;
}

static void do_create(struct model *m)
{
	uint64_t dir = some_dir(m), ino = m->next_ino;
	uint32_t i = roll(m, NUM_NAMES);
	bool is_dir = roll(m, 3) == 0, is_private = !is_dir && roll(m, 4) == 0;
	struct record rec;

	if (ino >= NUM_INOS || m->name[dir][i])
		return;
	rec = record_create(ino, dir, names[i], is_dir ? S_IFDIR | 0755 : S_IFREG | 0644);
	if (is_private)
		rec.segment = m->next_private++;
	if (!done(m, rec))
		return;
	m->next_ino++;
	m->file[ino] = (struct file){ .exists = true,
		.is_dir = is_dir,
		.links = is_dir ? 2 : 1,
		.is_private = is_private,
		.segment = rec.segment,
		.data_seq = m->last_seq,
		.dirty = !is_dir,
		.fresh = true };
	m->name[dir][i] = ino;
	m->file[dir].links += is_dir;
}

static void do_adopt(struct model *m)
{
	uint64_t dir = some_dir(m), ino = m->next_ino, owner;
	uint32_t i = roll(m, NUM_NAMES);
	struct record rec = record_name(RECORD_ADOPT, ino, dir, names[i]);

	if (ino >= NUM_INOS || m->name[dir][i] || state_backing_owner(m->f->st, dir, names[i], &owner) == 0)
		return;
	rec.mode = S_IFREG | 0600;
	rec.size = (uint64_t)roll(m, NUM_BLOCKS) * BLOCK;
	rec.nlink = 1;
	if (!done(m, rec))
		return;
	m->next_ino++;
	m->file[ino] = (struct file){ .exists = true,
		.links = 1,
		.size_blocks = rec.size / BLOCK,
		.limit_blocks = rec.size / BLOCK,
		.data_seq = m->last_seq };
	for (uint64_t b = 0; b < rec.size / BLOCK; b++)
		m->file[ino].block[b].shows = BACKING;
	m->name[dir][i] = ino;
}

static void do_link(struct model *m)
{
	uint64_t ino = some_file(m), dir = some_dir(m);
	uint32_t i = roll(m, NUM_NAMES);

	if (!ino || m->file[ino].orphan || m->name[dir][i] || !done(m, record_name(RECORD_LINK, ino, dir, names[i])))
		return;
	m->name[dir][i] = ino;
	m->file[ino].links++;
}

static void do_unlink(struct model *m)
{
	uint64_t dir = some_dir(m);
	uint32_t i = roll(m, NUM_NAMES);
	uint64_t ino = m->name[dir][i];

	if (!ino)
		return;
	if (m->file[ino].is_dir && !is_empty(m, ino)) {
		is_int(commit(m->f, record_name(RECORD_UNLINK, ino, dir, names[i]), NULL), -ENOTEMPTY,
			"a full directory stays");
		return;
	}
	if (done(m, record_name(RECORD_UNLINK, ino, dir, names[i])))
		lose_name(m, dir, i);
}

static void do_rename(struct model *m)
{
	uint64_t from = some_dir(m), to = some_dir(m), ino, other;
	uint32_t i = roll(m, NUM_NAMES), j = roll(m, NUM_NAMES);
	bool exchange = roll(m, 3) == 0;
	struct record rec;

	ino = m->name[from][i];
	other = m->name[to][j];
	if (!ino || ino == other || (from == to && i == j) || is_below(m, to, ino) ||
		(other && is_below(m, from, other)))
		return;
	exchange = exchange && other;
	if (other && !exchange && (m->file[ino].is_dir != m->file[other].is_dir || !is_empty(m, other)))
		return;
	rec = record_rename(ino, from, names[i], to, names[j], other);
	rec.flags = exchange ? RECORD_F_EXCHANGE : 0;
	if (!done(m, rec))
		return;
	if (other && !exchange)
		lose_name(m, to, j);
	m->file[from].links -= m->file[ino].is_dir;
	m->file[to].links += m->file[ino].is_dir;
	if (exchange) {
		m->file[to].links -= m->file[other].is_dir;
		m->file[from].links += m->file[other].is_dir;
	}
	m->name[to][j] = ino;
	m->name[from][i] = exchange ? other : 0;
}

static void do_free(struct model *m)
{
	uint64_t ino = 2 + roll(m, NUM_INOS - 2);

	if (m->file[ino].exists && m->file[ino].orphan && done(m, record_name(RECORD_FREE, ino, 0, "")))
		m->file[ino].exists = false;
}

/* ---- data */

static void put_blocks(struct file *file, uint64_t from, uint64_t to, struct block b)
{
	for (uint64_t i = from; i < to; i++) {
		file->block[i] = b;
		b.segment_off += BLOCK;
	}
	if (to > file->size_blocks)
		file->size_blocks = to;
}

static void data_changed(struct model *m, struct file *file)
{
	file->data_seq = m->last_seq;
	file->dirty = true;
}

static void do_write(struct model *m)
{
	uint64_t ino = some_file(m), from = roll(m, NUM_BLOCKS), num = 1 + roll(m, 12);
	uint32_t segment = 1 + roll(m, 7);
	struct file *file = &m->file[ino];

	if (!ino || file->is_private || from + num > NUM_BLOCKS)
		return;
	if (!done(m, record_write(ino, from * BLOCK, num * BLOCK, segment, m->segment_end[segment])))
		return;
	put_blocks(file, from, from + num,
		(struct block){
			.shows = LOG, .segment = segment, .segment_off = m->segment_end[segment], .seq = m->last_seq });
	m->segment_end[segment] += num * BLOCK + (roll(m, 2) ? 0 : 4096);
	data_changed(m, file);
}

static void do_extents(struct model *m)
{
	struct record_range ranges[4];
	struct record rec = { .type = RECORD_EXTENTS,
		.ino = some_file(m),
		.segment = 1 + roll(m, 7),
		.ranges = ranges,
		.num_ranges = 4 };
	struct file *file = &m->file[rec.ino];
	uint64_t off = m->segment_end[rec.segment];

	if (!rec.ino || file->is_private)
		return;
	for (int i = 0; i < 4; i++)
		ranges[i] = (struct record_range){
			.off = (uint64_t)roll(m, NUM_BLOCKS) * BLOCK, .len = BLOCK, .crc = (uint32_t)i
		};
	rec.segment_off = off;
	if (!done(m, rec))
		return;
	for (int i = 0; i < 4; i++, off += BLOCK)
		put_blocks(file, ranges[i].off / BLOCK, ranges[i].off / BLOCK + 1,
			(struct block){ .shows = LOG, .segment = rec.segment, .segment_off = off, .seq = m->last_seq });
	m->segment_end[rec.segment] = off;
	data_changed(m, file);
}

static void do_truncate(struct model *m)
{
	struct record rec = {
		.type = RECORD_TRUNCATE, .ino = some_file(m), .size = (uint64_t)roll(m, NUM_BLOCKS) * BLOCK
	};
	struct file *file = &m->file[rec.ino];

	if (!rec.ino || file->is_private || !done(m, rec))
		return;
	for (uint64_t i = rec.size / BLOCK; i < NUM_BLOCKS; i++)
		file->block[i] = (struct block){ 0 };
	file->size_blocks = rec.size / BLOCK;
	if (file->limit_blocks > file->size_blocks)
		file->limit_blocks = file->size_blocks;
	data_changed(m, file);
}

static void do_punch(struct model *m)
{
	uint64_t ino = some_file(m), from = roll(m, NUM_BLOCKS), to = from + 1 + roll(m, 20), size;
	struct record rec = { .type = RECORD_PUNCH,
		.ino = ino,
		.off = from * BLOCK,
		.len = (to - from) * BLOCK,
		.flags = roll(m, 2) ? RECORD_F_KEEP_SIZE : 0 };
	struct file *file = &m->file[ino];

	if (!ino || file->is_private || to > NUM_BLOCKS || !done(m, rec))
		return;
	size = file->size_blocks;
	for (uint64_t i = from; i < to; i++)
		file->block[i] = (struct block){ .shows = i < file->limit_blocks ? HOLE : GAP, .seq = m->last_seq };
	if (to >= file->limit_blocks && from < file->limit_blocks) {
		file->limit_blocks = from;
		for (uint64_t i = from; i < to; i++)
			file->block[i].shows = GAP;
	}
	file->size_blocks = rec.flags || size > to ? size : to;
	data_changed(m, file);
}

static void do_through(struct model *m)
{
	uint64_t ino = some_file(m), from = roll(m, NUM_BLOCKS), to = from + 1 + roll(m, 20);
	struct record rec = { .type = RECORD_THROUGH, .ino = ino, .off = from * BLOCK, .len = (to - from) * BLOCK };
	struct file *file = &m->file[ino];

	if (!ino || file->is_private || to > NUM_BLOCKS || !done(m, rec))
		return;
	put_blocks(file, from, to, (struct block){ .shows = BACKING });
	data_changed(m, file);
}

static void do_seal(struct model *m)
{
	struct record_range ranges[2] = { { .off = BLOCK, .len = 3 * BLOCK },
		{ .off = 10 * BLOCK, .len = 20 * BLOCK } };
	struct record rec = {
		.type = RECORD_SEAL, .ino = some_file(m), .size = 40 * BLOCK, .ranges = ranges, .num_ranges = 2
	};
	struct file *file = &m->file[rec.ino];

	rec.segment = file->segment;
	if (!rec.ino || !file->is_private || !done(m, rec))
		return;
	for (int i = 0; i < 2; i++)
		put_blocks(file, ranges[i].off / BLOCK, (ranges[i].off + ranges[i].len) / BLOCK,
			(struct block){ .shows = LOG,
				.segment = rec.segment,
				.segment_off = ranges[i].off,
				.seq = m->last_seq });
	file->size_blocks = 40;
	file->is_private = false;
	data_changed(m, file);
}

/* Up to some version: now, or a while ago. */
static void do_drain(struct model *m)
{
	uint64_t ino = some_file(m);
	struct file *file = &m->file[ino];
	struct record rec = { .type = RECORD_DRAINED,
		.ino = ino,
		.upto = m->last_seq - roll(m, 2) * roll(m, 300),
		.size = file->size_blocks * BLOCK,
		.mtime_ns = 5,
		.backing_ino = ino };

	if (!ino || m->last_seq < 400 || !done(m, rec))
		return;
	if (file->data_seq <= rec.upto) {
		for (uint64_t i = 0; i < file->size_blocks; i++)
			file->block[i] = (struct block){ .shows = BACKING };
		file->limit_blocks = file->size_blocks;
		file->dirty = file->is_private = false;
	}
	for (uint64_t i = 0; i < file->size_blocks && file->data_seq > rec.upto && !file->is_private; i++)
		if (file->block[i].shows >= HOLE && file->block[i].seq <= rec.upto)
			file->block[i] = (struct block){ .shows = BACKING };
}

static void do_placed(struct model *m)
{
	uint64_t dir = some_dir(m);
	uint32_t i = roll(m, NUM_NAMES);
	uint64_t ino = m->name[dir][i], owner;

	if (roll(m, 3) == 0 && state_backing_owner(m->f->st, dir, names[i], &owner) == 0 && !ino)
		done(m, record_name(RECORD_REMOVED, 0, dir, names[i]));
	else if (ino && done(m, record_name(RECORD_PLACED, ino, dir, names[i])))
		m->file[ino].fresh = false;
}

static void do_attributes(struct model *m)
{
	uint64_t ino = some_file(m);
	struct record set = { .type = RECORD_SETATTR, .ino = ino, .mask = RECORD_ATTR_UID, .uid = roll(m, 100) };
	struct record attr = { .type = RECORD_SETXATTR,
		.ino = ino,
		.key = (const uint8_t *)names[roll(m, NUM_NAMES)],
		.value = (const uint8_t *)"0123456789",
		.value_len = roll(m, 10) };

	if (!ino)
		return;
	attr.key_len = strlen((const char *)attr.key);
	done(m, roll(m, 2) ? set : attr);
}

/* ---- comparison */

static bool same_names(struct model *m)
{
	struct state_name list[NUM_NAMES + 1];
	bool same = true;

	for (uint64_t dir = 1; dir < NUM_INOS; dir++) {
		size_t num = 0, expected = 0;

		if (!m->file[dir].exists || !m->file[dir].is_dir)
			continue;
		for (uint32_t i = 0; i < NUM_NAMES; i++) {
			struct state_name d = { .ino = 0 };

			if (state_lookup(m->f->st, dir, names[i], &d) < 0)
				d.ino = 0;
			same = same && d.ino == m->name[dir][i];
			expected += m->name[dir][i] != 0;
		}
		same = same && state_list_names(m->f->st, dir, "", list, NUM_NAMES + 1, &num) == 0 && num == expected;
		same = same && state_dir_is_empty(m->f->st, dir) == (expected == 0);
	}
	return same;
}

static bool same_attributes(struct model *m)
{
	bool same = true;

	for (uint64_t ino = 1; ino < m->next_ino; ino++) {
		const struct file *file = &m->file[ino];
		struct inode in;
		int r = state_inode(m->f->st, ino, &in);

		if (!file->exists) {
			same = same && (r == -ENOENT || (r == 0 && in.flags == INODE_ORPHAN && S_ISDIR(in.mode)));
			continue;
		}
		same = same && r == 0 && in.nlink == file->links && !(in.flags & INODE_ORPHAN) == !file->orphan &&
		       !(in.flags & INODE_PRIVATE) == !file->is_private;
		if (!file->is_dir && !file->is_private)
			same = same && in.size == file->size_blocks * BLOCK &&
			       in.backing_limit == file->limit_blocks * BLOCK &&
			       !(in.flags & INODE_DIRTY_DATA) == !file->dirty;
	}
	return same;
}

static bool same_block(const struct block *b, const struct extent *e, uint64_t off, bool below_limit)
{
	if (!e)
		return b->shows == (below_limit ? BACKING : GAP);
	if (e->kind != EXTENT_LOG)
		return e->kind == EXTENT_BACKING ? b->shows == BACKING : b->shows == HOLE || b->shows == GAP;
	return b->shows == LOG && b->segment == e->segment && b->segment_off == e->segment_off + (off - e->off);
}

static bool same_data(struct model *m)
{
	bool same = true;

	for (uint64_t ino = 2; same && ino < m->next_ino; ino++) {
		const struct file *file = &m->file[ino];
		struct extent e[NUM_BLOCKS * 2];
		uint64_t next;
		size_t num = 0, at = 0;

		if (!file->exists || file->is_dir || file->is_private)
			continue;
		same = state_extents(m->f->st, ino, 0, UINT64_MAX, e, NUM_BLOCKS * 2, &num, &next) == 0;
		for (uint64_t i = 0; same && i < file->size_blocks; i++) {
			uint64_t off = i * BLOCK;

			while (at < num && e[at].off + e[at].len <= off)
				at++;
			same = same_block(&file->block[i], at < num && e[at].off <= off ? &e[at] : NULL, off,
				i < file->limit_blocks);
			if (!same)
				tap_diag("inode %lu block %lu: model %d, limit %lu", (unsigned long)ino,
					(unsigned long)i, file->block[i].shows, (unsigned long)file->limit_blocks);
		}
	}
	return same;
}

struct live {
	uint64_t expected[256], total;
	bool same;
};

static int check_segment(uint32_t segment, uint64_t bytes, void *arg)
{
	struct live *live = arg;

	if (bytes == STATE_SEGMENT_PRIVATE)
		return 0;
	live->same = live->same && segment < 256 && live->expected[segment] == bytes && bytes > 0;
	live->total += bytes;
	return 0;
}

/* Live bytes: freed directories apart, what the model's blocks refer to. */
static bool same_segments(struct model *m)
{
	struct live live = { .same = true };
	struct state_totals t;
	uint64_t sum = 0;

	for (uint64_t ino = 2; ino < m->next_ino; ino++)
		for (uint64_t i = 0; m->file[ino].exists && i < NUM_BLOCKS; i++)
			if (m->file[ino].block[i].shows == LOG) {
				live.expected[m->file[ino].block[i].segment] += BLOCK;
				sum += BLOCK;
			}
	state_each_segment(m->f->st, check_segment, &live);
	state_totals(m->f->st, &t);
	return live.same && live.total == sum && t.log_bytes == sum;
}

static bool same_as_model(struct model *m)
{
	bool n = same_names(m), a = same_attributes(m), d = same_data(m), s = same_segments(m);

	if (!n || !a || !d || !s)
		tap_diag("after record %lu: names %d attributes %d data %d segments %d", (unsigned long)m->last_seq, n,
			a, d, s);
	return n && a && d && s;
}

/* ---- what happens to the store */

static bool reopen(struct model *m, enum state_mode mode)
{
	if (fixture_open(m->f, mode))
		return false;
	for (uint64_t ino = 2; ino < NUM_INOS; ino++) /* opening frees what nobody can have open any more */
		if (m->file[ino].exists && m->file[ino].orphan)
			m->file[ino].exists = false;
	return true;
}

static bool incident(struct model *m)
{
	switch (roll(m, 7)) {
	case 0: fixture_kill(m->f); return reopen(m, STATE_READ_WRITE);
	case 1: return fixture_close(m->f) == 0 && reopen(m, STATE_READ_WRITE);
	case 2: fixture_kill(m->f); return reopen(m, STATE_REBUILD);
	case 3: return state_compact(m->f->st) == 0;
	case 4: return fixture_differences(m->f) == 0;
	default: return state_checkpoint(m->f->st) == 0;
	}
}

static void step(struct model *m)
{
	static void (*const operations[])(struct model * m) = {
		do_create,
		do_adopt,
		do_link,
		do_unlink,
		do_rename,
		do_free,
		do_write,
		do_write,
		do_write,
		do_extents,
		do_truncate,
		do_punch,
		do_through,
		do_seal,
		do_drain,
		do_drain,
		do_placed,
		do_attributes,
	};

	operations[roll(m, sizeof operations / sizeof operations[0])](m);
}

static void test_history(uint32_t seed)
{
	struct model *m = calloc(1, sizeof *m);
	struct state_fixture f;
	bool same = true, survived = true;

	m->f = &f;
	m->random = seed * 7919;
	m->next_ino = 2;
	m->next_private = 100;
	m->file[1] = (struct file){ .exists = true, .is_dir = true, .links = 2 };
	if (fixture_init(&f) || fixture_open(&f, STATE_READ_WRITE) || fixture_adopt_root(&f))
		ok(false, "a new store opens");
	f.index_memory = seed % 2 ? 16u << 10 : 0; /* hardly any: everything is read back again and again */
	fixture_kill(&f);
	survived = fixture_open(&f, STATE_READ_WRITE) == 0;
	for (int i = 0; i < STEPS && same && survived && !m->refused; i++) {
		step(m);
		if (i % 25 == 0)
			same = same_as_model(m);
		if (roll(m, 60) == 0)
			survived = incident(m);
	}
	is_int(m->refused, 0, "nothing that makes sense was refused");
	ok(same && same_as_model(m), "history %u: names, attributes, data and segments are the model's", seed);
	ok(survived, "through kills, closes, rebuilds, compactions");
	is_int(fixture_differences(&f), 0, "and as from the journal");
	fixture_end(&f);
	free(m);
}

int main(int argc, char **argv)
{
	uint32_t first = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 1,
		 num = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : 8;

	for (uint32_t seed = first; seed < first + num; seed++)
		test_history(seed);
	return done_testing();
}
