/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Pages with many extents are kept in parts, and nobody sees it: each history is told to the state and to one plain array of
 * extents (extent.c), and the state must answer what the array holds, to the last checksum; also after it was written out, killed
 * and opened again, with little memory, and it must equal a state made from the journal alone.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/base/cursor.h"
#include "format/index/extent.h"
#include "format/index/state_private.h"
#include "tests/lib/state_fixture.h"
#include "tests/lib/tap.h"

#define INO       2u
#define STEPS     6000
#define MANY      1000
#define MAX_FOUND 20000u

struct history {
	struct state_fixture f;
	struct extent_page plain; /* bytes [0, EXTENT_PAGE_SPAN) of the file */
	uint64_t seq, segment_end, next_off;
	uint32_t random;
	uint64_t reach; /* writes lie below */
	int failed;
};

static uint32_t roll(struct history *h, uint32_t sides)
{
	h->random = h->random * 1664525u + 1013904223u;
	return (uint32_t)(((uint64_t)h->random * sides) >> 32);
}

static void check(struct history *h, int r)
{
	if (r < 0)
		h->failed++;
}

static void write_at(struct history *h, uint64_t off, uint64_t len)
{
	struct record rec = record_write(INO, off, len, 1, h->segment_end);
	struct extent e = {
		.off = off, .segment_off = h->segment_end, .len = (uint32_t)len, .segment = 1, .whole = true
	};

	rec.payload_crc = e.crc = roll(h, UINT32_MAX);
	check(h, commit(&h->f, rec, &e.seq));
	check(h, extent_page_put(&h->plain, &e, NULL, NULL));
	h->segment_end += len;
	h->next_off = off + len;
}

static uint64_t length(struct history *h)
{
	switch (roll(h, 40)) {
	case 0: return 1 + roll(h, 100000);
	case 1: return 1 + roll(h, 20000);
	default: return 1 + roll(h, 60);
	}
}

static void do_write(struct history *h)
{
	uint64_t len = length(h), off;

	if (len >= h->reach)
		len = h->reach / 2;
	off = h->next_off + len <= h->reach && roll(h, 3) == 0 ? h->next_off : roll(h, (uint32_t)(h->reach - len));
	write_at(h, off, len);
}

static void do_punch(struct history *h)
{
	struct record rec = { .type = RECORD_PUNCH, .ino = INO, .flags = RECORD_F_KEEP_SIZE, .len = length(h) };

	rec.off = roll(h, EXTENT_PAGE_SPAN - 1);
	if (rec.off + rec.len > EXTENT_PAGE_SPAN)
		rec.len = EXTENT_PAGE_SPAN - rec.off;
	check(h, commit(&h->f, rec, NULL));
	check(h, extent_page_clear(&h->plain, rec.off, rec.len, NULL, NULL));
}

static void do_truncate(struct history *h)
{
	struct record rec = { .type = RECORD_TRUNCATE, .ino = INO, .size = roll(h, EXTENT_PAGE_SPAN) };

	check(h, commit(&h->f, rec, NULL));
	check(h, extent_page_clear(&h->plain, rec.size, UINT64_MAX - rec.size, NULL, NULL));
}

static bool same(const struct extent *a, const struct extent *b)
{
	return a->off == b->off && a->len == b->len && a->kind == b->kind && a->seq == b->seq &&
	       a->segment == b->segment && a->segment_off == b->segment_off && a->whole == b->whole && a->crc == b->crc;
}

/* The array's part of [off, end) is what the state answers. */
static bool agree(struct history *h, uint64_t off, uint64_t end)
{
	static struct extent found[MAX_FOUND];
	uint32_t i = extent_page_find(&h->plain, off);
	uint64_t next;
	size_t num;

	if (state_extents(h->f.st, INO, off, end - off, found, MAX_FOUND, &num, &next) < 0 || next != end)
		return false;
	for (size_t k = 0; k < num; k++, i++) {
		struct extent want;

		if (i == h->plain.num || h->plain.ext[i].off >= end)
			return false;
		want = extent_clip(&h->plain.ext[i], off, end);
		if (!same(&found[k], &want))
			return false;
	}
	return i == h->plain.num || h->plain.ext[i].off >= end;
}

static bool is_in_parts(struct history *h)
{
	struct node_item *ni;
	struct page_item *pi;
	bool parts = false;

	query_begin(h->f.st);
	if (find_node(h->f.st, INO, &ni) == 0 && find_page(h->f.st, &ni->n, 0, &pi) == 0 && item_present(&pi->it))
		parts = pi->parts != 0;
	query_end(h->f.st, 0);
	return parts;
}

static void reopen(struct history *h)
{
	if (roll(h, 2))
		fixture_kill(&h->f);
	else
		check(h, fixture_close(&h->f));
	check(h, fixture_open(&h->f, STATE_READ_WRITE));
}

static void some_step(struct history *h)
{
	uint32_t which = roll(h, 1000);

	if (which == 0)
		do_truncate(h);
	else if (which < 20)
		do_punch(h);
	else if (which == 20)
		write_at(h, 0, EXTENT_PAGE_SPAN);
	else if (which < 25)
		check(h, state_checkpoint(h->f.st));
	else if (which < 27)
		reopen(h);
	else
		do_write(h);
}

static void begin(struct history *h, uint32_t seed)
{
	*h = (struct history){ .random = seed, .reach = EXTENT_PAGE_SPAN };
	check(h, fixture_init(&h->f));
	h->f.index_memory = 64 << 10; /* so that what is clean is forgotten */
	check(h, fixture_open(&h->f, STATE_READ_WRITE));
	check(h, fixture_adopt_root(&h->f));
	check(h, commit(&h->f, record_create(INO, STATE_ROOT_INO, "f", S_IFREG | 0644), NULL));
}

static void end(struct history *h)
{
	extent_page_free(&h->plain);
	fixture_end(&h->f);
}

static void test_random(uint32_t seed)
{
	unsigned int in_parts = 0, joined = 0, wrong = 0;
	struct history h;
	bool before = false;

	begin(&h, seed);
	for (int i = 0; i < STEPS; i++) {
		uint64_t off = roll(&h, EXTENT_PAGE_SPAN - 1), len = 1 + roll(&h, 5000);
		bool now;

		h.reach = (uint64_t)EXTENT_PAGE_SPAN >> (i / 500 % 4);
		some_step(&h);
		wrong += !agree(&h, off, off + len < EXTENT_PAGE_SPAN ? off + len : EXTENT_PAGE_SPAN);
		if (i % 50)
			continue;
		wrong += !agree(&h, 0, EXTENT_PAGE_SPAN);
		now = is_in_parts(&h);
		in_parts += now;
		joined += before && !now;
		before = now;
	}
	tap_diag("seed %u: %u extents; in parts %u times of %d, joined %u times", seed, h.plain.num, in_parts,
		STEPS / 50, joined);
	is_u64((uint64_t)h.failed, 0, "every record is taken");
	ok(in_parts > STEPS / 500 && joined > 0, "the page was kept in parts and joined again");
	is_u64(wrong, 0, "the state answers what one array holds");
	is_int(fixture_differences(&h.f), 0, "it equals one made from the journal alone");
	end(&h);
}

/* A payload that reaches over parts keeps its checksum: it is not cut. */
static void test_reach(void)
{
	struct extent found[2];
	struct history h;
	uint64_t next;
	size_t num;

	begin(&h, 7);
	write_at(&h, 500000, 100000);
	for (unsigned int i = 0; i < MANY; i++)
		write_at(&h, i * 100, 50);
	ok(is_in_parts(&h), "many extents are kept in parts");
	check(&h, state_extents(h.f.st, INO, 590000, 5, found, 2, &num, &next));
	ok(num == 1 && found[0].off == 590000 && found[0].segment_off == 90000,
		"a part far behind finds the extent that reaches into it");
	check(&h, state_extents(h.f.st, INO, 0, EXTENT_PAGE_SPAN, found, 2, &num, &next));
	ok(num == 2 && next == 200, "a short answer says where it goes on");
	check(&h, state_extents(h.f.st, INO, 500000, 100000, found, 2, &num, &next));
	ok(num == 1 && found[0].len == 100000 && found[0].whole, "it is whole");
	write_at(&h, 540000, 10);
	ok(agree(&h, 0, EXTENT_PAGE_SPAN), "a write into its middle leaves both ends");
	write_at(&h, 0, EXTENT_PAGE_SPAN);
	ok(!is_in_parts(&h) && agree(&h, 0, EXTENT_PAGE_SPAN), "one write over all makes one array of it");
	is_u64((uint64_t)h.failed, 0, "nothing failed");
	end(&h);
}

/* What older software wrote, one array however long, is read and then kept in parts. */
static void test_damage(void)
{
	struct history h;
	struct key key;
	struct db_batch *b;

	begin(&h, 9);
	for (unsigned int i = 0; i < MANY; i++)
		write_at(&h, i * 1000, 10);
	check(&h, state_checkpoint(h.f.st));
	check(&h, db_batch_create(&b));
	key_page(&key, KEY_PART, INO, 3);
	db_batch_delete(b, key.bytes, key.len);
	check(&h, db_write(h.f.st->db, b, NULL));
	db_batch_destroy(b);
	is_u64((uint64_t)h.failed, 0, "a part is taken away behind the state's back");
	for (unsigned int i = 0; i < 20; i++) /* it forgets */
		write_at(&h, 900000 + i * 1000, 10);
	check(&h, state_checkpoint(h.f.st));
	h.failed = 0;
	fixture_kill(&h.f);
	check(&h, fixture_open(&h.f, STATE_READ_WRITE));
	ok(h.failed || !agree(&h, 0, EXTENT_PAGE_SPAN), "it is missed, and not taken for a hole");
	end(&h);
}

int main(void)
{
	for (uint32_t seed = 1; seed <= 4; seed++)
		test_random(seed);
	test_reach();
	test_damage();
	return done_testing();
}
