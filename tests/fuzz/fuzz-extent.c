/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Extent pages from anybody's bytes: what decodes keeps the page's rules, encodes again to the same extents, and takes
 * changes without breaking them. And tables of who wrote them.
 */
#include <stdint.h>
#include <stdlib.h>

#include "format/index/extent.h"
#include "format/index/writers.h"

#define PAGE_NO 3u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool condition)
{
	if (!condition)
		abort();
}

static void check_rules(const struct extent_page *p)
{
	uint64_t at = (uint64_t)PAGE_NO * EXTENT_PAGE_SPAN, end = at + EXTENT_PAGE_SPAN;

	for (uint32_t i = 0; i < p->num; i++) {
		const struct extent *e = &p->ext[i];

		demand(e->off >= at && e->len > 0 && e->len <= end - e->off && e->kind <= EXTENT_BACKING);
		at = e->off + e->len;
	}
}

static void check_round_trip(const struct extent_page *p)
{
	struct extent_page again = { 0 };
	struct buf out = { 0 };

	demand(extent_page_encode(p, PAGE_NO, &out) == 0);
	demand(extent_page_decode(out.data, out.len, PAGE_NO, &again) == 0);
	demand(again.num == p->num);
	for (uint32_t i = 0; i < p->num; i++)
		demand(again.ext[i].off == p->ext[i].off && again.ext[i].len == p->ext[i].len &&
			again.ext[i].seq == p->ext[i].seq && again.ext[i].writer == p->ext[i].writer &&
			again.ext[i].segment == p->ext[i].segment &&
			again.ext[i].segment_off == p->ext[i].segment_off && again.ext[i].crc == p->ext[i].crc);
	extent_page_free(&again);
	buf_free(&out);
}

static void check_table(const uint8_t *data, size_t size)
{
	struct writers w = { 0 };
	struct buf out = { 0 };
	uint16_t number;
	bool added;

	if (writers_decode(data, size, &w) < 0)
		return;
	demand(writers_encode(&w, &out) == 0 && out.len <= size);
	demand(writers_number(&w, w.at[0], &number, &added) == 0 && !added && number > 0 && number <= w.num);
	writers_free(&w);
	buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct extent e = { .off = (uint64_t)PAGE_NO * EXTENT_PAGE_SPAN, .segment = 1, .whole = true };
	struct extent_page p = { 0 };

	check_table(data, size);
	if (extent_page_decode(data, size, PAGE_NO, &p) < 0)
		return 0;
	check_rules(&p);
	check_round_trip(&p);
	e.off += size * 4099 % (EXTENT_PAGE_SPAN / 2);
	e.len = 1 + (uint32_t)(size * 8191 % (EXTENT_PAGE_SPAN / 2));
	demand(extent_page_put(&p, &e, NULL, NULL) == 0);
	check_rules(&p);
	demand(extent_page_clear(&p, e.off + e.len / 2, e.len, NULL, NULL) == 0);
	check_rules(&p);
	check_round_trip(&p);
	extent_page_free(&p);
	return 0;
}
