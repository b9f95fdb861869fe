/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Share maps. What counts is defined here once more, without any order: of all that was ever put on a byte, and neither cut
 * off nor dropped, that with the highest (time, stamp); in half of the histories there are no times. Random histories are applied in random order, with repetitions, and must
 * give that; two orders must give the same bytes. Conflicts are compared with a model that goes byte by byte.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/index/share.h"
#include "tests/lib/state_fixture.h"
#include "tests/lib/tap.h"

#define UNIT      10007u /* bytes: the borders of pages lie within units */
#define NUM_UNITS 400u   /* almost four pages */
#define NUM_NODES 5u
#define INO       (UINT64_C(3) << 40 | 17) /* another node's: the map needs no inode */
#define MAX_OPS   160u
#define MAX_PARTS 12u

struct op {
	enum record_type type;
	uint64_t stamp, base, size_units, drop_usec;
	uint32_t node, num;
	struct record_piece piece[MAX_PARTS]; /* PUT: apart from one another */
};

struct history {
	struct op op[MAX_OPS];
	uint32_t num;
	uint32_t random;
	uint64_t epoch; /* times begin here; 0: there are none */
};

#define EPOCH_USEC 100u /* so that times are met twice */

static uint32_t roll(struct history *h, uint32_t sides)
{
	h->random = h->random * 1664525u + 1013904223u;
	return (h->random >> 9) % sides;
}

/* ---- histories */

static void make_put(struct history *h, struct op *op, bool seen_all)
{
	uint32_t at = roll(h, NUM_UNITS / 2);

	op->type = RECORD_SHARE_PUT;
	op->node = roll(h, NUM_NODES);
	op->base = seen_all ? op->stamp - 1 : roll(h, (uint32_t)op->stamp);
	while (op->num < MAX_PARTS && at < NUM_UNITS) {
		uint32_t units = 1 + roll(h, roll(h, 4) ? 6 : 120);
		struct record_piece *p = &op->piece[op->num++];

		if (units > NUM_UNITS - at)
			units = NUM_UNITS - at;
		*p = (struct record_piece){ .off = (uint64_t)at * UNIT, .len = units * UNIT, .kind = roll(h, 5) == 0 };
		p->time_usec = h->epoch ? h->epoch + roll(h, EPOCH_USEC) : 0;
		if (p->kind == EXTENT_LOG) {
			p->segment = 1 + roll(h, 3);
			p->segment_off = roll(h, 1000) * 4096u;
			p->whole = roll(h, 2);
			p->crc = p->whole ? h->random : 0;
		}
		at += units + roll(h, 10);
	}
	for (uint32_t i = 0; i + 1 < op->num && roll(h, 3) == 0; i++) { /* not always rising */
		struct record_piece swap = op->piece[i];

		op->piece[i] = op->piece[op->num - 1];
		op->piece[op->num - 1] = swap;
	}
}

static void make_history(struct history *h, uint32_t seed, bool seen_all)
{
	*h = (struct history){ .random = seed * 7919, .num = 20 + seed * 13 % (MAX_OPS - 20) };
	h->epoch = seed % 2 ? UINT64_C(1700000000000000) : 0;
	for (uint32_t i = 0; i < h->num; i++) {
		struct op *op = &h->op[i];

		op->stamp = i + 1;
		if (roll(h, 12) == 0) {
			op->type = RECORD_SHARE_CUT;
			op->size_units = roll(h, NUM_UNITS);
		} else if (roll(h, 60) == 0) {
			op->type = RECORD_SHARE_DROP;
			if (h->epoch)
				op->drop_usec = h->epoch + roll(h, EPOCH_USEC);
			else
				op->stamp = 1 + roll(h, i + 1);
		} else {
			make_put(h, op, seen_all);
		}
		/* What is behind a cut or a drop was written later than what is before it. */
		if (h->epoch && op->type != RECORD_SHARE_PUT)
			h->epoch += EPOCH_USEC;
	}
}

static bool is_timed(const struct op *op)
{
	return op->drop_usec || (op->num && op->piece[0].time_usec);
}

static int apply(struct state_fixture *f, const struct op *op)
{
	struct record rec = { .type = op->type,
		.flags = is_timed(op) ? RECORD_F_TIMED : 0,
		.drop_usec = op->drop_usec,
		.ino = INO,
		.node = op->node,
		.stamp = op->stamp,
		.base = op->base,
		.size = op->size_units * UNIT,
		.pieces = op->num ? op->piece : NULL,
		.num_pieces = op->num };

	return commit(f, rec, NULL);
}

/* ---- what counts, by the definition */

static bool covers(const struct op *op, uint64_t off, const struct record_piece **ret)
{
	for (uint32_t i = 0; i < op->num; i++)
		if (off >= op->piece[i].off && off < op->piece[i].off + op->piece[i].len) {
			*ret = &op->piece[i];
			return true;
		}
	return false;
}

/* Of what was written: a put and a piece of it. */
static bool takes(const struct op *op, const struct op *put, const struct record_piece *piece, uint64_t unit)
{
	if (op->type == RECORD_SHARE_CUT)
		return op->stamp > put->stamp && op->size_units <= unit;
	return op->type == RECORD_SHARE_DROP && op->stamp >= put->stamp &&
	       (!op->drop_usec || piece->time_usec <= op->drop_usec);
}

static bool is_gone(const struct history *h, const struct op *put, const struct record_piece *piece, uint64_t unit)
{
	for (uint32_t i = 0; i < h->num; i++)
		if (takes(&h->op[i], put, piece, unit))
			return true;
	return false;
}

static bool is_later(const struct op *a, const struct record_piece *p, const struct op *b, const struct record_piece *q)
{
	return p->time_usec != q->time_usec ? p->time_usec > q->time_usec : a->stamp > b->stamp;
}

static const struct op *winner(const struct history *h, uint64_t unit, const struct record_piece **ret)
{
	const struct op *best = NULL;
	const struct record_piece *piece;

	for (uint32_t i = 0; i < h->num; i++)
		if (h->op[i].type == RECORD_SHARE_PUT && covers(&h->op[i], unit * UNIT, &piece) &&
			!is_gone(h, &h->op[i], piece, unit) && (!best || is_later(&h->op[i], piece, best, *ret))) {
			best = &h->op[i];
			*ret = piece;
		}
	return best;
}

static bool is_of(const struct share_extent *e, const struct op *op, const struct record_piece *p)
{
	return e->time_usec == p->time_usec && e->stamp == op->stamp && e->base == op->base && e->node == op->node &&
	       e->kind == p->kind && e->segment == p->segment && e->off >= p->off &&
	       e->off + e->len <= p->off + p->len &&
	       (p->kind == EXTENT_HOLE || e->segment_off == p->segment_off + (e->off - p->off)) &&
	       (e->whole ? p->whole && e->len == p->len && e->crc == p->crc : e->crc == 0);
}

static bool unit_is_right(struct state_fixture *f, const struct history *h, uint64_t unit)
{
	const struct record_piece *piece = NULL;
	const struct op *op = winner(h, unit, &piece);
	uint64_t at = unit * UNIT, end = at + UNIT, next;
	struct share_extent e[4];
	size_t num = 0;

	if (state_share_extents(f->st, INO, at, UNIT, e, 4, &num, &next) < 0 || next != end)
		return false;
	if (!op)
		return num == 0;
	for (size_t i = 0; i < num; i++) {
		if (e[i].off != at || !is_of(&e[i], op, piece))
			return false;
		at += e[i].len;
	}
	return at == end;
}

static bool map_is_right(struct state_fixture *f, const struct history *h)
{
	for (uint64_t unit = 0; unit < NUM_UNITS; unit++)
		if (!unit_is_right(f, h, unit)) {
			tap_diag("unit %lu is not what it should be", (unsigned long)unit);
			return false;
		}
	return true;
}

/* ---- conflicts: unit by unit, in the order of arrival */

struct conflict_model {
	const struct op *shown[NUM_UNITS];
	const struct record_piece *piece[NUM_UNITS]; /* of it */
	bool conflict[NUM_UNITS][NUM_NODES][NUM_NODES];
};

static bool can_be_seen(const struct history *h, const bool *applied, const struct op *put,
	const struct record_piece *piece, uint64_t unit)
{
	for (uint32_t i = 0; i < h->num; i++)
		if (applied[i] && takes(&h->op[i], put, piece, unit))
			return false;
	return true;
}

static void model_put(struct conflict_model *m, const struct op *op, const struct record_piece *piece, uint64_t unit)
{
	const struct op *old = m->shown[unit];
	bool wins = !old || !is_later(old, m->piece[unit], op, piece);
	const struct op *high = wins ? op : old, *low = wins ? old : op;

	if (old && high->node != low->node && high->stamp != low->stamp && high->base < low->stamp &&
		low->base < high->stamp)
		m->conflict[unit][high->node][low->node] = true;
	m->shown[unit] = high;
	if (wins)
		m->piece[unit] = piece;
}

static void model_apply(struct conflict_model *m, const struct history *h, bool *applied, uint32_t i)
{
	const struct op *op = &h->op[i];
	const struct record_piece *piece;
	bool any = false;

	applied[i] = true;
	for (uint64_t unit = 0; unit < NUM_UNITS; unit++) {
		if (op->type == RECORD_SHARE_PUT && covers(op, unit * UNIT, &piece) &&
			can_be_seen(h, applied, op, piece, unit))
			model_put(m, op, piece, unit);
		if (m->shown[unit] && !can_be_seen(h, applied, m->shown[unit], m->piece[unit], unit))
			m->shown[unit] = NULL;
		any = any || m->shown[unit];
	}
	if (op->type == RECORD_SHARE_DROP && !any)
		memset(m->conflict, 0, sizeof m->conflict);
}

struct found {
	bool conflict[NUM_UNITS][NUM_NODES][NUM_NODES];
	struct share_conflict last;
	bool in_order;
};

static int take_conflict(const struct share_conflict *c, void *arg)
{
	struct found *found = arg;
	bool same_pair = c->node == found->last.node && c->other == found->last.other;

	if (same_pair && found->last.off + found->last.len >= c->off)
		found->in_order = false;
	for (uint64_t unit = c->off / UNIT; unit < (c->off + c->len) / UNIT; unit++)
		found->conflict[unit][c->node][c->other] = true;
	found->last = *c;
	return 0;
}

static bool conflicts_are_right(struct state_fixture *f, const struct conflict_model *m)
{
	struct found *found = calloc(1, sizeof *found);
	uint64_t more = 1;
	bool right;

	found->in_order = true;
	found->last.node = UINT32_MAX;
	right = state_conflicts(f->st, INO, take_conflict, found, &more) == 0 && more == 0 && found->in_order &&
		memcmp(found->conflict, m->conflict, sizeof found->conflict) == 0;
	free(found);
	return right;
}

/* ---- orders */

static void shuffle(struct history *h, uint32_t *order, uint32_t num)
{
	for (uint32_t i = num; i > 1; i--) {
		uint32_t j = roll(h, i), swap = order[i - 1];

		order[i - 1] = order[j];
		order[j] = swap;
	}
}

static bool incident(struct state_fixture *f, uint32_t which)
{
	switch (which) {
	case 0: fixture_kill(f); return fixture_open(f, STATE_READ_WRITE) == 0;
	case 1: fixture_kill(f); return fixture_open(f, STATE_REBUILD) == 0;
	case 2: return state_compact(f->st) == 0;
	case 3: return state_checkpoint(f->st) == 0;
	default: return true;
	}
}

/* Every operation at least once, some twice, in an order of its own. */
static bool apply_all(
	struct state_fixture *f, struct history *h, struct conflict_model *m, uint32_t seed, bool incidents)
{
	uint32_t order[2 * MAX_OPS], num = 0;
	bool applied[MAX_OPS] = { false }, good = true;

	h->random = seed;
	for (uint32_t i = 0; i < h->num; i++) {
		order[num++] = i;
		if (roll(h, 3) == 0)
			order[num++] = i;
	}
	shuffle(h, order, num);
	for (uint32_t i = 0; i < num && good; i++) {
		good = apply(f, &h->op[order[i]]) == 0;
		if (m)
			model_apply(m, h, applied, order[i]);
		if (incidents && roll(h, 25) == 0)
			good = good && incident(f, roll(h, 5));
	}
	return good;
}

static void test_conflicts(uint32_t seed)
{
	struct conflict_model *m = calloc(1, sizeof *m);
	struct state_fixture f;
	struct history h;

	if (fixture_init(&f) || fixture_open(&f, STATE_READ_WRITE))
		ok(false, "a new store opens");
	make_history(&h, seed, false);
	ok(apply_all(&f, &h, m, seed, true), "history %u applies, in any order", seed);
	ok(map_is_right(&f, &h), "history %u: the later write, or the higher stamp, wins", seed);
	ok(conflicts_are_right(&f, m), "history %u: conflicts", seed);
	is_int(fixture_differences(&f), 0, "and as from the journal");
	fixture_end(&f);
	free(m);
}

static void test_orders(uint32_t seed)
{
	struct state_fixture f, g;
	struct history h;

	if (fixture_init(&f) || fixture_open(&f, STATE_READ_WRITE) || fixture_init(&g))
		ok(false, "new stores open");
	g.index_memory = 4096; /* hardly any: everything is read back again and again */
	if (fixture_open(&g, STATE_READ_WRITE))
		ok(false, "new stores open");
	make_history(&h, seed, true);
	ok(apply_all(&f, &h, NULL, seed, false) && apply_all(&g, &h, NULL, seed + 1000, true), "%u: two orders", seed);
	is_int(state_compare(f.st, g.st, NULL, NULL), 0, "give the same bytes");
	ok(map_is_right(&f, &h), "the right ones");
	fixture_end(&f);
	fixture_end(&g);
}

/* ---- by hand */

static struct record put(uint32_t node, uint64_t stamp, uint64_t base, const struct record_piece *p, size_t num)
{
	return (struct record){ .type = RECORD_SHARE_PUT,
		.ino = INO,
		.node = node,
		.stamp = stamp,
		.base = base,
		.pieces = p,
		.num_pieces = num };
}

static struct record of_map(enum record_type type, uint64_t stamp, uint64_t size)
{
	return (struct record){ .type = type, .ino = INO, .stamp = stamp, .size = size };
}

static int count_shared(uint64_t ino, uint64_t extents, void *arg)
{
	*(uint64_t *)arg += ino == INO ? 1000 + extents : 1000000;
	return 0;
}

static uint64_t shared(struct state_fixture *f)
{
	uint64_t sum = 0;

	return state_each_shared(f->st, count_shared, &sum) == 0 ? sum : UINT64_MAX;
}

static int stop(const struct share_conflict *c, void *arg)
{
	*(struct share_conflict *)arg = *c;
	return 7;
}

static void test_by_hand(void)
{
	struct record_piece a = { .off = 0, .len = 100, .segment = 1, .segment_off = 4096, .crc = 5, .whole = true },
			    b = { .off = 50, .len = 100, .segment = 2, .segment_off = 0, .crc = 6, .whole = true },
			    bad = { .off = 50, .len = 100 };
	struct share_conflict c = { 0 };
	struct share_extent e[4];
	struct state_totals t;
	struct state_fixture f;
	uint64_t next, more = 1;
	size_t num;

	if (fixture_init(&f) || fixture_open(&f, STATE_READ_WRITE))
		ok(false, "a new store opens");
	is_int(commit(&f, put(1, 10, 9, &a, 1), NULL), 0, "put");
	is_int(commit(&f, put(2, 8, 7, &b, 1), NULL), 0, "put what is older, later");
	is_int(state_share_extents(f.st, INO, 0, 1000, e, 4, &num, &next), 0, "ask");
	ok(num == 2 && next == 1000 && e[0].len == 100 && e[0].whole && e[0].crc == 5, "the younger one is whole");
	ok(e[1].off == 100 && e[1].len == 50 && e[1].segment_off == 50 && !e[1].whole && e[1].crc == 0,
		"the older one is what sticks out");
	is_int(state_share_extents(f.st, INO, 0, 1000, e, 1, &num, &next), 0, "ask for one");
	ok(num == 1 && next == 100, "is told where to go on");
	is_int(state_conflicts(f.st, INO, stop, &c, &more), 0, "the younger had seen the older: no conflict");
	is_int(commit(&f, put(3, 11, 9, &b, 1), NULL), 0, "one that had not seen the last");
	is_int(state_conflicts(f.st, INO, stop, &c, &more), 7, "is in conflict");
	ok(c.off == 50 && c.len == 50 && c.node == 3 && c.other == 1 && more == 0, "there, and with that one");
	state_totals(f.st, &t);
	ok(t.share_inodes == 1 && t.share_extents == 2 && t.log_bytes == 0 && t.extents == 0,
		"counted, but as no payload");
	is_u64(shared(&f), 1002, "listed");
	is_int(commit(&f, of_map(RECORD_SHARE_CUT, 12, 20), NULL), 0, "cut");
	is_int(commit(&f, put(2, 11, 3, &b, 1), NULL), 0, "what comes late stays cut");
	is_u64(shared(&f), 1001, "one extent is left");
	is_int(commit(&f, put(2, 12, 11, &b, 1), NULL), 0, "what has the cut's own stamp does not");
	is_u64(shared(&f), 1002, "be cut");
	is_int(commit(&f, of_map(RECORD_SHARE_DROP, 12, 0), NULL), 0, "drop");
	is_int(commit(&f, put(2, 12, 3, &b, 1), NULL), 0, "what comes again stays dropped");
	is_u64(shared(&f), 1000, "an empty map");
	is_int(state_conflicts(f.st, INO, stop, &c, &more), 0, "without conflicts");
	is_int(commit(&f, of_map(RECORD_SHARE_DROP, UINT64_MAX, 0), NULL), 0, "drop for good");
	is_u64(shared(&f), 0, "no map");
	is_int(commit(&f, of_map(RECORD_SHARE_DROP, UINT64_MAX, 0), NULL), 0, "twice does no harm");
	is_int(commit(&f, put(2, 5, 5, &b, 1), NULL), -EINVAL, "a base that is not older");
	is_int(commit(&f, put(2, UINT64_MAX, 5, &b, 1), NULL), -EINVAL, "the last stamp is nobody's");
	is_int(commit(&f, put(2, 5, 4, &bad, 1), NULL), -EINVAL, "a payload in no segment");
	is_int(fixture_differences(&f), 0, "and as from the journal");
	fixture_end(&f);
}

/* Whose daemon was restarted tells all it has committed again, and is told so; nobody knows any more what he had seen when he wrote it. */
static void test_told_again(void)
{
	struct record_piece a = { .off = 0, .len = 100, .segment = 1, .segment_off = 0 };
	struct record_piece b = { .off = 50, .len = 100, .segment = 2, .segment_off = 0 };
	struct share_conflict c = { 0 };
	struct state_fixture f;
	uint64_t more = 1;

	if (fixture_init(&f) || fixture_open(&f, STATE_READ_WRITE))
		ok(false, "a new store opens");
	is_int(commit(&f, put(1, 10, 0, &a, 1), NULL), 0, "put");
	is_int(commit(&f, put(2, 12, 10, &b, 1), NULL), 0, "put over it what had seen it");
	is_int(commit(&f, put(2, 12, 0, &b, 1), NULL), 0, "the later one again");
	is_int(commit(&f, put(1, 10, 0, &a, 1), NULL), 0, "and the earlier one");
	is_int(state_conflicts(f.st, INO, stop, &c, &more), 0, "no conflict");
	is_int(commit(&f, put(3, 13, 11, &a, 1), NULL), 0, "one that had seen the earlier one only");
	is_int(state_conflicts(f.st, INO, stop, &c, &more), 7, "is in conflict");
	ok(c.off == 50 && c.len == 50 && c.node == 3 && c.other == 2 && more == 0, "with the later one");
	is_int(fixture_differences(&f), 0, "and as from the journal");
	fixture_end(&f);
}

/* A node has lost power: its pieces go, and what it tells again comes back; what was cut off and dropped stays away. */
static void test_lost(void)
{
	struct record_piece a = { .off = 0, .len = 100, .segment = 1, .segment_off = 0 };
	struct record_piece b = { .off = 50, .len = 100, .segment = 2, .segment_off = 0 };
	struct record lost = of_map(RECORD_SHARE_LOST, 0, 0);
	struct share_extent e[4];
	struct state_fixture f;
	uint64_t next;
	size_t num;

	if (fixture_init(&f) || fixture_open(&f, STATE_READ_WRITE))
		ok(false, "a new store opens");
	lost.node = 2;
	is_int(commit(&f, lost, NULL), 0, "of a file that has no map");
	is_u64(shared(&f), 0, "which does not make one");
	is_int(commit(&f, put(1, 10, 5, &a, 1), NULL), 0, "node 1");
	is_int(commit(&f, put(2, 11, 10, &b, 1), NULL), 0, "node 2 over it");
	is_int(commit(&f, of_map(RECORD_SHARE_CUT, 12, 120), NULL), 0, "cut");
	is_int(commit(&f, lost, NULL), 0, "node 2 has lost power");
	is_int(state_share_extents(f.st, INO, 0, 1000, e, 4, &num, &next), 0, "ask");
	ok(num == 1 && e[0].node == 1 && e[0].len == 50, "what was under it is told by node 1");
	is_int(commit(&f, put(1, 10, 5, &a, 1), NULL), 0, "and is, again");
	is_int(commit(&f, put(2, 11, 10, &b, 1), NULL), 0, "as by node 2 what it still has");
	is_int(state_share_extents(f.st, INO, 0, 1000, e, 4, &num, &next), 0, "ask");
	ok(num == 2 && e[0].len == 50 && e[1].node == 2 && e[1].len == 70, "then all is as before, also the cut");
	lost.node = UINT32_MAX;
	is_int(commit(&f, lost, NULL), 0, "nothing is believed any more");
	is_u64(shared(&f), 1000, "the map is empty, and remembers the cut");
	is_int(fixture_differences(&f), 0, "and as from the journal");
	fixture_end(&f);
}

/* More conflicts than are kept: counted, and the store goes on. */
static void test_many_conflicts(void)
{
	struct record_piece *p = calloc(STATE_CONFLICTS_MAX + 50, sizeof *p);
	struct share_conflict c;
	struct state_fixture f;
	uint64_t more = 0;

	if (fixture_init(&f) || fixture_open(&f, STATE_READ_WRITE))
		ok(false, "a new store opens");
	for (uint32_t i = 0; i < STATE_CONFLICTS_MAX + 50; i++)
		p[i] = (struct record_piece){ .off = i * 100ull, .len = 10, .kind = EXTENT_HOLE };
	is_int(commit(&f, put(1, 1, 0, p, STATE_CONFLICTS_MAX + 50), NULL), 0, "many pieces");
	is_int(commit(&f, put(2, 2, 0, p, STATE_CONFLICTS_MAX + 50), NULL), 0, "all in conflict");
	is_int(state_conflicts(f.st, INO, stop, &c, &more), 7, "some are kept");
	is_u64(more, 50, "the rest is counted");
	is_int(fixture_close(&f), 0, "closes");
	is_int(fixture_open(&f, STATE_READ_WRITE), 0, "opens");
	is_int(state_conflicts(f.st, INO, stop, &c, &more), 7, "they are still there");
	is_u64(more, 50, "and counted");
	is_int(fixture_differences(&f), 0, "as from the journal");
	fixture_end(&f);
	free(p);
}

/* A file that grows by truncation makes a cut each time. */
static void test_many_cuts(void)
{
	struct share_head h = { 0 };
	int r = 0;

	for (uint64_t i = 1; i <= 3 * SHARE_CUTS_MAX; i++)
		r |= share_head_cut(&h, i * 10, i * 100);
	ok(r == 0 && h.num_cuts == SHARE_CUTS_MAX, "only so many are kept");
	is_u64(share_head_limit(&h, 3 * SHARE_CUTS_MAX * 10 - 1), 3 * SHARE_CUTS_MAX * 100, "the newest");
	share_head_cut(&h, UINT64_MAX, 5);
	ok(h.num_cuts == 1 && share_head_limit(&h, 1) == 5, "a younger and shorter one makes all others void");
	share_head_free(&h);
}

int main(int argc, char **argv)
{
	uint32_t first = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 1,
		 num = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : 8;

	test_by_hand();
	test_told_again();
	test_lost();
	test_many_conflicts();
	test_many_cuts();
	for (uint32_t seed = first; seed < first + num; seed++) {
		test_conflicts(seed);
		test_orders(seed);
	}
	return done_testing();
}
