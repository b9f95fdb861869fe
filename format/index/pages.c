/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The extents of files, page by page, and the live bytes of segments that follow from them. All extents of a file lie
 * below its size (and backing_limit does not exceed it), so a file's last page is known; num_pages of a node counts its
 * pages, so a file without extents costs no search.
 *
 * A payload that crosses the border of a page is kept in parts; the checksum of the whole is no checksum of a part.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <stdlib.h>

#define PROBE_PAGES 32 /* so many pages are asked for one by one; more by a walk */
#define LIST_PAGES  256

uint64_t pages_last(const struct node *n)
{
	uint64_t end = n->size > n->backing_limit ? n->size : n->backing_limit;

	return end ? (end - 1) / EXTENT_PAGE_SPAN : 0;
}

int find_page(struct state *st, const struct node *n, uint64_t page, struct page_item **ret)
{
	struct item *it;
	struct key key;
	int r;

	key_page(&key, KEY_PAGE, n->ino, page);
	r = cache_find(&st->cache, &key, n->num_pages == 0, &it);
	if (r < 0)
		return r;
	*ret = (struct page_item *)it;
	return 0;
}

static int probe(struct state *st, const struct node *n, uint64_t first, uint64_t last, uint64_t *out, size_t cap,
	size_t *ret_num)
{
	struct page_item *pi;
	size_t num = 0;

	for (uint64_t page = first; page <= last && num < cap; page++) {
		int r = find_page(st, n, page, &pi);

		if (r < 0)
			return r;
		if (item_present(&pi->it))
			out[num++] = page;
	}
	*ret_num = num;
	return 0;
}

int keys_list(struct state *st, enum key_kind kind, uint64_t ino, uint64_t first, uint64_t last, uint64_t *out,
	size_t cap, size_t *ret_num)
{
	struct key prefix, after;
	struct merge_entry e;
	struct merge m;
	size_t num = 0;
	int r, end;

	*ret_num = 0;
	key_number(&prefix, kind, ino);
	if (first)
		key_page(&after, kind, ino, first - 1);
	r = merge_begin(&m, &st->cache, &prefix, first ? &after : NULL);
	if (r < 0)
		return r;
	while (num < cap && (r = merge_next(&m, &e)) > 0) {
		struct key_parts parts;

		r = key_parse(e.key, e.key_len, &parts);
		if (r < 0 || parts.page > last)
			break;
		out[num++] = parts.page;
	}
	end = merge_end(&m);
	if (r >= 0)
		r = end;
	if (r == 0)
		*ret_num = num;
	return r;
}

int pages_list(struct state *st, const struct node *n, uint64_t first, uint64_t last, uint64_t *out, size_t cap,
	size_t *ret_num)
{
	*ret_num = 0;
	if (last > pages_last(n))
		last = pages_last(n);
	if (n->num_pages == 0 || first > last)
		return 0;
	if (last - first < PROBE_PAGES)
		return probe(st, n, first, last, out, cap, ret_num);
	return keys_list(st, KEY_PAGE, n->ino, first, last, out, cap, ret_num);
}

/* ---- live bytes */

struct sink { /* where freed payload is counted */
	struct state *st;
	uint64_t seq;
	uint64_t *counter;
	int error;
};

static int segment_change(struct state *st, uint32_t segment, uint64_t plus, uint64_t minus)
{
	struct segment_item *s;
	int r = find_segment(st, segment, &s);

	if (r < 0)
		return r;
	if (!item_present(&s->it))
		cache_revive(&s->it);
	s->live += plus - minus;
	st->meta.log_bytes += plus - minus;
	if (s->live == 0 && !s->is_private)
		cache_remove(&st->cache, &s->it);
	else
		cache_dirty(&st->cache, &s->it);
	return 0;
}

static void on_freed(uint32_t segment, uint64_t off, uint64_t len, void *arg)
{
	struct sink *sink = arg;
	int r = segment_change(sink->st, segment, 0, len);

	if (r < 0)
		sink->error = r;
	*sink->counter += len;
	if (sink->st->tell_freed)
		sink->st->opt.freed(segment, off, len, sink->seq, sink->st->opt.freed_arg);
}

/* ---- changes */

static void page_changed(struct state *st, struct node_item *ni, struct page_item *pi, uint32_t before)
{
	st->meta.extents += (uint64_t)page_count(pi) - before;
	if (page_count(pi)) {
		cache_dirty(&st->cache, &pi->it);
		return;
	}
	cache_remove(&st->cache, &pi->it);
	ni->n.num_pages--;
	cache_dirty(&st->cache, &ni->it);
}

/* Over what is there. In a shared file each byte keeps its seq, and the page is known to have something to commit. */
static int put_extent(
	struct state *st, const struct node *n, struct page_item *pi, const struct extent *e, struct sink *sink)
{
	bool shared = n->flags & INODE_SHARED;
	int r = page_put(st, n, pi, e, shared, on_freed, sink);

	return r == 0 && shared && e->kind != EXTENT_BACKING ? layer_mark(st, n->ino, e->off / EXTENT_PAGE_SPAN) : r;
}

static int put_part(struct state *st, struct node_item *ni, const struct extent *e, uint64_t *counter)
{
	struct sink sink = { .st = st, .seq = e->seq, .counter = counter };
	struct page_item *pi;
	uint32_t before;
	int r;

	r = find_page(st, &ni->n, e->off / EXTENT_PAGE_SPAN, &pi);
	if (r < 0)
		return r;
	if (!item_present(&pi->it)) {
		cache_revive(&pi->it);
		ni->n.num_pages++;
	}
	before = page_count(pi);
	if (e->kind == EXTENT_LOG)
		r = segment_change(st, e->segment, e->len, 0);
	if (r == 0)
		r = put_extent(st, &ni->n, pi, e, &sink);
	if (r < 0)
		return r;
	page_changed(st, ni, pi, before);
	return sink.error;
}

int pages_put(struct state *st, struct node_item *ni, const struct extent *e, uint64_t len, uint64_t *counter)
{
	struct extent part = *e;
	bool split = e->off / EXTENT_PAGE_SPAN != (e->off + len - 1) / EXTENT_PAGE_SPAN;
	int r = 0;

	if (split) {
		part.whole = false;
		part.crc = 0;
	}
	for (uint64_t done = 0; r == 0 && done < len; done += part.len) {
		uint64_t room = EXTENT_PAGE_SPAN - (e->off + done) % EXTENT_PAGE_SPAN;

		part.off = e->off + done;
		part.len = (uint32_t)(room < len - done ? room : len - done);
		if (part.kind == EXTENT_LOG)
			part.segment_off = e->segment_off + done;
		r = put_part(st, ni, &part, counter);
	}
	return r;
}

static int clear_page(
	struct state *st, struct node_item *ni, uint64_t page, uint64_t off, uint64_t end, struct sink *sink)
{
	struct page_item *pi;
	uint32_t before;
	int r;

	r = find_page(st, &ni->n, page, &pi);
	if (r < 0 || !item_present(&pi->it))
		return r;
	before = page_count(pi);
	r = page_clear(st, &ni->n, pi, off, end, on_freed, sink);
	if (r < 0)
		return r;
	page_changed(st, ni, pi, before);
	return sink->error;
}

int pages_clear(struct state *st, struct node_item *ni, uint64_t off, uint64_t end, uint64_t seq, uint64_t *counter)
{
	struct sink sink = { .st = st, .seq = seq, .counter = counter };
	uint64_t page[LIST_PAGES], first = off / EXTENT_PAGE_SPAN;
	size_t num;
	int r;

	if (off >= end)
		return 0;
	do {
		r = pages_list(st, &ni->n, first, (end - 1) / EXTENT_PAGE_SPAN, page, LIST_PAGES, &num);
		for (size_t i = 0; r == 0 && i < num; i++)
			r = clear_page(st, ni, page[i], off, end, &sink);
		if (num)
			first = page[num - 1] + 1;
	} while (r == 0 && num == LIST_PAGES);
	return r;
}

int pages_put_backing(
	struct state *st, struct node_item *ni, uint64_t off, uint64_t len, uint64_t seq, uint64_t *counter)
{
	uint64_t end = off + len, limit = ni->n.backing_limit;
	struct extent e = { .kind = EXTENT_BACKING, .seq = seq };
	int r = 0;

	if (ni->n.flags & INODE_FOREIGN) /* no file lies below its layer */
		return pages_clear(st, ni, off, end, seq, counter);
	if (off < limit)
		r = pages_clear(st, ni, off, end < limit ? end : limit, seq, counter);
	if (r < 0 || end <= limit)
		return r;
	e.off = off > limit ? off : limit;
	return pages_put(st, ni, &e, end - e.off, counter);
}

static int page_drained(struct state *st, struct node_item *ni, uint64_t page, uint64_t upto, uint64_t seq)
{
	struct leaves leaves;
	struct extent *copy;
	uint32_t num = 0;
	int r;

	r = page_leaves(st, &ni->n, page, 0, UINT64_MAX, &leaves);
	if (r < 0 || leaves.num == 0)
		return r;
	for (unsigned int i = 0; i < leaves.num; i++)
		num += leaves.leaf[i]->num;
	copy = malloc(num * sizeof *copy); /* the page changes under the loop */
	if (!copy)
		return -ENOMEM;
	num = 0;
	for (unsigned int i = 0; i < leaves.num; i++)
		for (uint32_t k = 0; k < leaves.leaf[i]->num; k++)
			copy[num++] = leaves.leaf[i]->ext[k];
	for (uint32_t i = 0; r == 0 && i < num; i++)
		if (copy[i].kind != EXTENT_BACKING && copy[i].seq <= upto)
			r = pages_put_backing(st, ni, copy[i].off, copy[i].len, seq, &st->meta.drained_bytes);
	free(copy);
	return r;
}

int pages_drained(struct state *st, struct node_item *ni, uint64_t upto, uint64_t seq)
{
	uint64_t page[LIST_PAGES], first = 0;
	size_t num;
	int r;

	do {
		r = pages_list(st, &ni->n, first, UINT64_MAX, page, LIST_PAGES, &num);
		for (size_t i = 0; r == 0 && i < num; i++)
			r = page_drained(st, ni, page[i], upto, seq);
		if (num)
			first = page[num - 1] + 1;
	} while (r == 0 && num == LIST_PAGES);
	return r;
}
