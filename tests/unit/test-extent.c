/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Extent pages against a naive model: for each byte of the page, which byte of which segment it shows. What a page
 * says is freed must be exactly what the model lost.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"
#include "format/index/extent.h"
#include "tests/lib/tap.h"

#define SPAN    EXTENT_PAGE_SPAN
#define PAGE_NO 7u
#define BASE    ((uint64_t)PAGE_NO * SPAN)

struct cell {         /* one byte of the file */
	uint8_t kind; /* kind + 1; 0: nothing */
	uint16_t writer;
	uint32_t segment;
	uint64_t segment_off;
};

struct model {
	struct cell cells[SPAN];
	uint64_t freed_sum; /* of where the freed bytes lay, order does not matter */
	uint64_t freed_bytes;
};

struct told {
	uint64_t sum, bytes;
};

static uint32_t random_state = 12345;

static uint32_t next_random(void)
{
	random_state = random_state * 1664525u + 1013904223u;
	return random_state >> 8;
}

static uint64_t place_sum(uint32_t segment, uint64_t off, uint64_t len)
{
	return len * segment * 1000003u + len * off + len * (len - 1) / 2;
}

static void on_freed(uint32_t segment, uint64_t off, uint64_t len, void *arg)
{
	struct told *told = arg;

	told->sum += place_sum(segment, off, len);
	told->bytes += len;
}

static void model_clear(struct model *m, uint64_t off, uint64_t len)
{
	for (uint64_t i = off - BASE; i < off - BASE + len && i < SPAN; i++) {
		if (m->cells[i].kind == EXTENT_LOG + 1) {
			m->freed_sum += place_sum(m->cells[i].segment, m->cells[i].segment_off, 1);
			m->freed_bytes++;
		}
		m->cells[i] = (struct cell){ 0 };
	}
}

static void model_put(struct model *m, const struct extent *e)
{
	model_clear(m, e->off, e->len);
	for (uint32_t i = 0; i < e->len; i++) {
		struct cell *c = &m->cells[e->off - BASE + i];

		c->kind = e->kind + 1;
		if (e->kind == EXTENT_LOG) {
			c->writer = e->writer;
			c->segment = e->segment;
			c->segment_off = e->segment_off + i;
		}
	}
}

/* The payload of a segment is a function of segment and offset, so that checksums can be checked. */
static uint8_t payload_byte(uint32_t segment, uint64_t off)
{
	return (uint8_t)(segment * 31 + off * 7 + (off >> 8));
}

static uint32_t payload_crc(uint32_t segment, uint64_t off, uint32_t len)
{
	static uint8_t bytes[SPAN];

	for (uint32_t i = 0; i < len; i++)
		bytes[i] = payload_byte(segment, off + i);
	return crc32c(0, bytes, len);
}

static bool same_as_model(const struct extent_page *p, const struct model *m)
{
	uint64_t at = BASE;

	for (uint32_t i = 0; i < p->num; i++) {
		const struct extent *e = &p->ext[i];

		if (e->off < at || e->len == 0 || e->off + e->len > BASE + SPAN)
			return false;
		for (; at < e->off; at++)
			if (m->cells[at - BASE].kind)
				return false;
		for (; at < e->off + e->len; at++) {
			const struct cell *c = &m->cells[at - BASE];

			if (c->kind != e->kind + 1)
				return false;
			if (e->kind == EXTENT_LOG && (c->writer != e->writer || c->segment != e->segment ||
							     c->segment_off != e->segment_off + (at - e->off)))
				return false;
		}
	}
	for (; at < BASE + SPAN; at++)
		if (m->cells[at - BASE].kind)
			return false;
	return true;
}

static bool crcs_are_right(const struct extent_page *p)
{
	for (uint32_t i = 0; i < p->num; i++)
		if (p->ext[i].whole &&
			payload_crc(p->ext[i].segment, p->ext[i].segment_off, p->ext[i].len) != p->ext[i].crc)
			return false;
	return true;
}

static bool survives_codec(const struct extent_page *p)
{
	struct extent_page copy = { 0 };
	BUF_CLEANUP struct buf bytes = { 0 };
	bool same;

	if (extent_page_encode(p, PAGE_NO, &bytes) || extent_page_decode(bytes.data, bytes.len, PAGE_NO, &copy))
		return false;
	same = copy.num == p->num;
	for (uint32_t i = 0; same && i < p->num; i++) {
		const struct extent *a = &p->ext[i], *b = &copy.ext[i];

		same = a->off == b->off && a->len == b->len && a->kind == b->kind && a->whole == b->whole &&
		       a->seq == b->seq;
		if (same && a->kind == EXTENT_LOG)
			same = a->writer == b->writer && a->segment == b->segment && a->segment_off == b->segment_off &&
			       (!a->whole || a->crc == b->crc);
	}
	for (size_t cut = 0; same && cut < bytes.len && cut < 64; cut++) {
		struct extent_page short_page = { 0 };

		same = extent_page_decode(bytes.data, cut, PAGE_NO, &short_page) == -EBADMSG;
	}
	extent_page_free(&copy);
	return same;
}

static struct extent random_extent(uint64_t seq, uint64_t *segment_end)
{
	static const uint32_t sizes[] = { 1, 100, 4096, 4096, 4096, 47008, 70000, 300000 };
	struct extent e = { .seq = seq, .kind = next_random() % 8 ? EXTENT_LOG : 1 + next_random() % 2 };
	static uint64_t sequential;
	uint32_t grain = next_random() % 2 ? 4096 : 1;

	e.len = sizes[next_random() % 8];
	if (next_random() % 3 == 0)
		e.off = sequential;
	else
		e.off = next_random() % SPAN / grain * grain;
	if (e.off >= SPAN)
		e.off = 0;
	if (e.len > SPAN - e.off)
		e.len = (uint32_t)(SPAN - e.off);
	sequential = e.off + e.len;
	e.off += BASE;
	if (e.kind != EXTENT_LOG)
		return e;
	e.segment = 1 + (uint32_t)(seq / 500);
	e.writer = next_random() % 8 ? (uint16_t)(seq / 100) : (uint16_t)next_random();
	e.segment_off = *segment_end;
	*segment_end += e.len;
	e.whole = next_random() % 16 != 0;
	if (e.whole)
		e.crc = payload_crc(e.segment, e.segment_off, e.len);
	return e;
}

static void test_random(void)
{
	struct model *m = calloc(1, sizeof *m);
	struct extent_page p = { 0 };
	struct told told = { 0 };
	uint64_t segment_end = 0;
	bool good = true, crcs = true, codec = true, freed = true;

	for (uint64_t seq = 1; good && seq <= 1500; seq++) {
		struct extent e = random_extent(seq, &segment_end);

		if (next_random() % 6 == 0) {
			good = extent_page_clear(&p, e.off, e.len, on_freed, &told) == 0;
			model_clear(m, e.off, e.len);
		} else {
			good = extent_page_put(&p, &e, on_freed, &told) == 0;
			model_put(m, &e);
		}
		if (seq % 10 == 0) {
			good = good && same_as_model(&p, m);
			crcs = crcs && crcs_are_right(&p);
			codec = codec && survives_codec(&p);
		}
		freed = freed && told.sum == m->freed_sum && told.bytes == m->freed_bytes;
	}
	ok(good, "random operations: the page shows what the model shows");
	ok(crcs, "checksums of whole extents, merged ones too, fit their payload");
	ok(codec, "pages survive encoding, and no part of one decodes");
	ok(freed, "freed is told exactly what goes");
	extent_page_clear(&p, BASE, SPAN, NULL, NULL);
	is_u64(p.num, 0, "a cleared page is empty");
	extent_page_free(&p);
	free(m);
}

static void put_log(struct extent_page *p, uint64_t off, uint32_t len, uint64_t segment_off, uint64_t seq)
{
	struct extent e = { .off = off,
		.len = len,
		.segment = 1,
		.segment_off = segment_off,
		.seq = seq,
		.whole = true,
		.crc = payload_crc(1, segment_off, len) };

	extent_page_put(p, &e, NULL, NULL);
}

static void test_merging(void)
{
	struct extent_page p = { 0 };

	for (uint32_t i = 0; i < 256; i++)
		put_log(&p, (uint64_t)i * 4096, 4096, (uint64_t)i * 4096, i + 1);
	is_u64(p.num, 16, "small writes from front to back become extents of 64 KiB");
	ok(crcs_are_right(&p), "with the checksums of all");
	is_u64(p.ext[0].seq, 16, "and the seq of the youngest");
	extent_page_clear(&p, 0, SPAN, NULL, NULL);
	put_log(&p, 4096, 4096, 4096, 1);
	put_log(&p, 0, 4096, 0, 2);
	is_u64(p.num, 1, "merged to the right as well");
	put_log(&p, 8192, 4096, 80000, 3);
	is_u64(p.num, 2, "not when the payload is elsewhere");
	p.ext[1].writer = 2;
	put_log(&p, 12288, 4096, 84096, 4);
	is_u64(p.num, 3, "nor what another process wrote");
	extent_page_free(&p);
}

static void test_cuts(void)
{
	struct extent_page p = { 0 };
	struct extent hole = { .off = 4096, .len = 4096, .kind = EXTENT_HOLE, .seq = 2 };

	put_log(&p, 0, 65536, 1000, 1);
	extent_page_put(&p, &hole, NULL, NULL);
	is_u64(p.num, 3, "a hole in the middle leaves two ends");
	ok(!p.ext[0].whole && !p.ext[2].whole && p.ext[0].crc == 0, "that have no checksum any more");
	is_u64(p.ext[2].segment_off, 1000 + 8192, "and the right place in the segment");
	is_u64(extent_page_find(&p, 0), 0, "find: first");
	is_u64(extent_page_find(&p, 4096), 1, "find: a border belongs to the right one");
	is_u64(extent_page_find(&p, 65536), 3, "find: behind all");
	extent_page_free(&p);
}

static void test_refused(void)
{
	struct extent across = { .off = SPAN - 1, .len = 2, .segment = 1 }, empty = { .off = 5, .len = 0 };
	static const uint8_t many[] = { 0xff, 0xff, 0x3f, 0, 1, 0, 0 }, gap[] = { 1, 0x80, 0x80, 0x40, 1, 1, 2 },
			     kind[] = { 1, 0, 1, 3, 0 }, whole_hole[] = { 1, 0, 1, 0x81, 0 }, more[] = { 0, 0 },
			     hole_writer[] = { 1, 0, 1, 0x41, 0, 1 }, same_writer[] = { 1, 0, 1, 0x40, 2, 0, 2, 0 },
			     far_writer[] = { 1, 0, 1, 0x40, 2, 0x80, 0x80, 4, 2, 0 };
	struct extent_page p = { 0 };

	is_int(extent_page_put(&p, &across, NULL, NULL), -EINVAL, "an extent across the border is refused");
	is_int(extent_page_put(&p, &empty, NULL, NULL), -EINVAL, "so is an empty one");
	is_int(extent_page_decode(many, sizeof many, 0, &p), -EBADMSG, "more extents than bytes");
	is_int(extent_page_decode(gap, sizeof gap, 0, &p), -EBADMSG, "an extent behind the page");
	is_int(extent_page_decode(kind, sizeof kind, 0, &p), -EBADMSG, "a kind that is none");
	is_int(extent_page_decode(whole_hole, sizeof whole_hole, 0, &p), -EBADMSG, "a hole with a checksum");
	is_int(extent_page_decode(hole_writer, sizeof hole_writer, 0, &p), -EBADMSG, "a hole that somebody wrote");
	is_int(extent_page_decode(same_writer, sizeof same_writer, 0, &p), -EBADMSG, "another writer that is the same");
	is_int(extent_page_decode(far_writer, sizeof far_writer, 0, &p), -EBADMSG, "a writer beyond any table");
	is_int(extent_page_decode(more, sizeof more, 0, &p), -EBADMSG, "bytes behind the end");
	is_int(extent_page_decode(NULL, 0, 0, &p), -EBADMSG, "nothing at all");
	ok(p.ext == NULL, "and nothing was left behind");
}

int main(void)
{
	test_random();
	test_merging();
	test_cuts();
	test_refused();
	return done_testing();
}
