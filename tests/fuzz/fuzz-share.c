/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Values of share maps and commit points from anybody's bytes: what decodes keeps its rules and encodes to the same again,
 * and a page takes changes without breaking them.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/index/commits.h"
#include "format/index/extent.h"
#include "format/index/share.h"

#define PAGE_NO 3u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool condition)
{
	if (!condition)
		abort();
}

static void demand_same(const struct buf *a, const struct buf *b)
{
	demand(a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0));
}

static void check_rules(const struct share_page *p)
{
	uint64_t at = (uint64_t)PAGE_NO * EXTENT_PAGE_SPAN, end = at + EXTENT_PAGE_SPAN;

	for (uint32_t i = 0; i < p->num; i++) {
		const struct share_extent *e = &p->ext[i];

		demand(e->off >= at && e->len > 0 && e->len <= end - e->off && e->kind <= EXTENT_HOLE);
		demand(e->base < e->stamp && (e->kind == EXTENT_HOLE || e->segment));
		at = e->off + e->len;
	}
}

static void round_trip(const struct share_page *p)
{
	struct buf first = { 0 }, second = { 0 };
	struct share_page again = { 0 };

	demand(share_page_encode(p, PAGE_NO, &first) == 0);
	demand(share_page_decode(first.data, first.len, PAGE_NO, &again) == 0);
	demand(share_page_encode(&again, PAGE_NO, &second) == 0);
	demand_same(&first, &second);
	share_page_free(&again);
	buf_free(&first);
	buf_free(&second);
}

static int on_conflict(const struct share_conflict *c, void *arg)
{
	(void)arg;
	demand(c->len > 0 && c->node != c->other);
	return 0;
}

static void try_page(const uint8_t *data, size_t size)
{
	struct share_extent e[2] = { { .off = (uint64_t)PAGE_NO * EXTENT_PAGE_SPAN,
					     .stamp = 5,
					     .base = 2,
					     .node = 1,
					     .segment = 1,
					     .whole = true },
		{ .stamp = 5, .base = 2, .node = 1, .kind = EXTENT_HOLE } };
	struct share_page p = { 0 };

	if (share_page_decode(data, size, PAGE_NO, &p) < 0)
		return;
	check_rules(&p);
	round_trip(&p);
	e[0].off += size * 4099 % (EXTENT_PAGE_SPAN / 4);
	e[0].len = 1 + (uint32_t)(size * 8191 % (EXTENT_PAGE_SPAN / 4));
	e[1].off = e[0].off + e[0].len + size % 3;
	e[1].len = EXTENT_PAGE_SPAN / 4;
	e[0].time_usec = size % 5;
	e[1].time_usec = UINT64_MAX - size;
	demand(share_page_put(&p, e, 2, on_conflict, NULL) == 0);
	check_rules(&p);
	share_page_cut(&p, e[0].off + e[0].len / 2, 4, UINT64_MAX);
	check_rules(&p);
	round_trip(&p);
	share_page_free(&p);
}

static void try_head(const uint8_t *data, size_t size)
{
	struct share_head h = { 0 }, again = { 0 };
	struct buf out = { 0 }, second = { 0 };

	if (share_head_decode(data, size, &h) < 0)
		return;
	demand(share_head_encode(&h, &out) == 0);
	demand(share_head_decode(out.data, out.len, &again) == 0);
	demand(share_head_encode(&again, &second) == 0);
	demand_same(&out, &second);
	demand(share_head_cut(&h, size, size * 100) == 0);
	share_head_drop(&h, size / 2, size % 2 ? size : UINT64_MAX);
	for (uint32_t i = 1; i < h.num_cuts; i++)
		demand(h.cuts[i].stamp > h.cuts[i - 1].stamp && h.cuts[i].size > h.cuts[i - 1].size);
	share_head_free(&h);
	share_head_free(&again);
	buf_free(&out);
	buf_free(&second);
}

static void try_conflicts(const uint8_t *data, size_t size)
{
	struct share_conflict c = { .off = size, .len = 100, .node = 1 };
	struct share_conflicts s = { 0 }, again = { 0 };
	struct buf out = { 0 };

	if (share_conflicts_decode(data, size, &s) < 0)
		return;
	demand(share_conflicts_add(&s, &c, 1000) == 0);
	demand(share_conflicts_encode(&s, &out) == 0);
	demand(share_conflicts_decode(out.data, out.len, &again) == 0); /* still sorted, and apart */
	share_conflicts_free(&s);
	share_conflicts_free(&again);
	buf_free(&out);
}

static void try_commits(const uint8_t *data, size_t size)
{
	struct buf out = { 0 }, second = { 0 };
	struct commits c = { 0 }, again = { 0 };

	if (commits_decode(data, size, &c) < 0)
		return;
	demand(commits_encode(&c, &out) == 0);
	demand(commits_decode(out.data, out.len, &again) == 0);
	demand(commits_encode(&again, &second) == 0);
	demand_same(&out, &second);
	for (uint32_t i = 0; i < c.num; i++)
		demand(commits_find(&c, c.points[i].upto) == i);
	demand(c.num == 0 || commits_find(&c, commits_upto(&c) + 1) == c.num || commits_upto(&c) == UINT64_MAX);
	for (size_t i = 0; i < c.num_pages; i++)
		demand(commits_find_page(&c, c.pages[i]) == i && commits_mark(&c, c.pages[i]) == 0);
	commits_free(&c);
	commits_free(&again);
	buf_free(&out);
	buf_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_page(data, size);
	try_head(data, size);
	try_conflicts(data, size);
	try_commits(data, size);
	return 0;
}
