/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Share maps in the state: a head, pages, conflicts. They stand beside the inodes: a domain home need not know the file.
 * The head counts pages and extents and goes with the last thing that it has to say; conflicts go when a drop has left
 * no extent.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <stdlib.h>

#include "format/base/array.h"

#define LIST_PAGES  256
#define PROBE_PAGES 32 /* so many pages are asked for one by one; more by a walk */

/* ---- finding */

int find_share(struct state *st, uint64_t ino, struct share_item **ret)
{
	struct item *it;
	int r = cache_find_number(&st->cache, KEY_SHARE, ino, false, &it);

	if (r < 0)
		return r;
	*ret = (struct share_item *)it;
	return 0;
}

int find_conflicts(struct state *st, uint64_t ino, struct conflicts_item **ret)
{
	struct item *it;
	int r = cache_find_number(&st->cache, KEY_CONFLICTS, ino, false, &it);

	if (r < 0)
		return r;
	*ret = (struct conflicts_item *)it;
	return 0;
}

int find_share_page(
	struct state *st, const struct share_head *h, uint64_t ino, uint64_t page, struct share_page_item **ret)
{
	struct item *it;
	struct key key;
	int r;

	key_page(&key, KEY_SHARE_PAGE, ino, page);
	r = cache_find(&st->cache, &key, h->num_pages == 0, &it);
	if (r < 0)
		return r;
	*ret = (struct share_page_item *)it;
	return 0;
}

static int probe(struct state *st, const struct share_head *h, uint64_t ino, uint64_t first, uint64_t last,
	uint64_t *out, size_t cap, size_t *ret_num)
{
	struct share_page_item *pi;
	size_t num = 0;

	for (uint64_t page = first; page <= last && num < cap; page++) {
		int r = find_share_page(st, h, ino, page, &pi);

		if (r < 0)
			return r;
		if (item_present(&pi->it))
			out[num++] = page;
	}
	*ret_num = num;
	return 0;
}

int share_pages_list(struct state *st, const struct share_head *h, uint64_t ino, uint64_t first, uint64_t last,
	uint64_t *out, size_t cap, size_t *ret_num)
{
	*ret_num = 0;
	if (h->num_pages == 0 || first > last)
		return 0;
	if (last - first < PROBE_PAGES)
		return probe(st, h, ino, first, last, out, cap, ret_num);
	return keys_list(st, KEY_SHARE_PAGE, ino, first, last, out, cap, ret_num);
}

/* ---- head */

static int need_share(struct state *st, uint64_t ino, struct share_item **ret)
{
	int r = find_share(st, ino, ret);

	if (r < 0 || item_present(&(*ret)->it))
		return r;
	cache_revive(&(*ret)->it);
	cache_dirty(&st->cache, &(*ret)->it);
	st->meta.share_inodes++;
	return 0;
}

static void share_changed(struct state *st, struct share_item *si)
{
	if (!share_head_is_empty(&si->h)) {
		cache_dirty(&st->cache, &si->it);
		return;
	}
	cache_remove(&st->cache, &si->it);
	st->meta.share_inodes--;
}

static void page_changed(struct state *st, struct share_item *si, struct share_page_item *pi, uint32_t before)
{
	uint64_t more = (uint64_t)pi->p.num - before;

	si->h.num_extents += more;
	st->meta.share_extents += more;
	if (pi->p.num) {
		cache_dirty(&st->cache, &pi->it);
		return;
	}
	cache_remove(&st->cache, &pi->it);
	si->h.num_pages--;
}

/* ---- PUT */

struct putting {
	struct state *st;
	const struct record *rec;
	struct share_item *si;
	struct share_extent *run; /* rising, within one page */
	size_t num, cap;
};

static int on_conflict(const struct share_conflict *c, void *arg)
{
	struct putting *p = arg;
	struct conflicts_item *ci;
	int r = find_conflicts(p->st, p->rec->ino, &ci);

	if (r < 0)
		return r;
	if (!item_present(&ci->it))
		cache_revive(&ci->it);
	r = share_conflicts_add(&ci->s, c, STATE_CONFLICTS_MAX);
	cache_dirty(&p->st->cache, &ci->it);
	return r;
}

static int put_run(struct putting *p)
{
	struct share_page_item *pi;
	uint32_t before;
	int r;

	if (p->num == 0)
		return 0;
	r = find_share_page(p->st, &p->si->h, p->rec->ino, p->run[0].off / EXTENT_PAGE_SPAN, &pi);
	if (r < 0)
		return r;
	if (!item_present(&pi->it)) {
		cache_revive(&pi->it);
		p->si->h.num_pages++;
	}
	before = pi->p.num;
	r = share_page_put(&pi->p, p->run, p->num, on_conflict, p);
	if (r == 0)
		page_changed(p->st, p->si, pi, before);
	p->num = 0;
	return r;
}

static int add_to_run(struct putting *p, const struct share_extent *e)
{
	const struct share_extent *last = p->num ? &p->run[p->num - 1] : NULL;
	int r = 0;

	if (last && (e->off < last->off + last->len || e->off / EXTENT_PAGE_SPAN != last->off / EXTENT_PAGE_SPAN))
		r = put_run(p);
	if (r == 0)
		r = array_room(&p->run, &p->cap, p->num, sizeof(*p->run));
	if (r == 0)
		p->run[p->num++] = *e;
	return r;
}

/* Up to limit, and cut at the borders of pages. */
static int put_piece(struct putting *p, const struct record_piece *piece, uint64_t limit)
{
	struct share_extent e = { .off = piece->off,
		.segment_off = piece->segment_off,
		.time_usec = piece->time_usec,
		.stamp = p->rec->stamp,
		.base = p->rec->base,
		.len = piece->len,
		.node = p->rec->node,
		.segment = piece->segment,
		.crc = piece->crc,
		.kind = piece->kind,
		.whole = piece->whole };
	uint64_t end = piece->off + piece->len < limit ? piece->off + piece->len : limit, off = piece->off, border;
	int r = 0;

	for (; r == 0 && off < end; off = border) {
		struct share_extent part;

		border = (off / EXTENT_PAGE_SPAN + 1) * EXTENT_PAGE_SPAN;
		part = share_extent_clip(&e, off, border < end ? border : end);
		r = add_to_run(p, &part);
	}
	return r;
}

int share_put(struct state *st, const struct record *rec)
{
	struct putting p = { .st = st, .rec = rec };
	int r = need_share(st, rec->ino, &p.si);

	if (r < 0)
		return r;
	uint64_t limit = share_head_limit(&p.si->h, rec->stamp);
	for (size_t i = 0; r == 0 && i < rec->num_pieces; i++)
		if (!share_head_is_dropped(&p.si->h, rec->stamp, rec->pieces[i].time_usec))
			r = put_piece(&p, &rec->pieces[i], limit);
	if (r == 0)
		r = put_run(&p);
	free(p.run);
	if (r == 0)
		share_changed(st, p.si);
	return r;
}

/* ---- CUT, DROP, LOST */

struct taking { /* what goes: */
	uint64_t off, stamp,
		upto_usec; /* at or behind off, with a stamp below this one, written up to then; stamp 0: */
	uint32_t node;     /* all of this node */
};

/* In all pages from off's on. */
static int take_away(struct state *st, struct share_item *si, uint64_t ino, const struct taking *t)
{
	uint64_t page[LIST_PAGES], first = t->off / EXTENT_PAGE_SPAN;
	struct share_page_item *pi;
	size_t num;
	int r;

	do {
		r = share_pages_list(st, &si->h, ino, first, UINT64_MAX, page, LIST_PAGES, &num);
		for (size_t i = 0; r == 0 && i < num; i++) {
			uint32_t before;

			r = find_share_page(st, &si->h, ino, page[i], &pi);
			if (r < 0)
				break;
			before = pi->p.num;
			if (t->stamp)
				share_page_cut(&pi->p, t->off, t->stamp, t->upto_usec);
			else
				share_page_lose(&pi->p, t->node);
			page_changed(st, si, pi, before);
		}
		if (num)
			first = page[num - 1] + 1;
	} while (r == 0 && num == LIST_PAGES);
	return r;
}

int share_cut(struct state *st, uint64_t ino, uint64_t size, uint64_t stamp)
{
	struct share_item *si;
	int r = need_share(st, ino, &si);

	if (r == 0)
		r = take_away(st, si, ino, &(struct taking){ .off = size, .stamp = stamp, .upto_usec = UINT64_MAX });
	if (r == 0)
		r = share_head_cut(&si->h, stamp, size);
	if (r == 0)
		share_changed(st, si);
	return r;
}

static int drop_conflicts(struct state *st, uint64_t ino)
{
	struct conflicts_item *ci;
	int r = find_conflicts(st, ino, &ci);

	if (r == 0 && item_present(&ci->it))
		cache_remove(&st->cache, &ci->it);
	return r;
}

/* The stamp UINT64_MAX is no commit's: with it the map ends, and so does what it remembers. */
int share_drop(struct state *st, const struct record *rec)
{
	uint64_t upto_usec = rec->flags & RECORD_F_TIMED ? rec->drop_usec : UINT64_MAX, ino = rec->ino;
	bool all = rec->stamp == UINT64_MAX;
	struct share_item *si;
	int r = all ? find_share(st, ino, &si) : need_share(st, ino, &si);

	if (r < 0 || !item_present(&si->it))
		return r;
	r = take_away(
		st, si, ino, &(struct taking){ .stamp = all ? UINT64_MAX : rec->stamp + 1, .upto_usec = upto_usec });
	if (r == 0 && si->h.num_pages == 0)
		r = drop_conflicts(st, ino);
	if (r < 0)
		return r;
	share_head_drop(&si->h, rec->stamp, upto_usec);
	if (all)
		si->h.dropped = si->h.dropped_usec = 0;
	share_changed(st, si);
	return 0;
}

int share_note_drained(struct state *st, uint64_t ino, uint64_t stamp, uint64_t upto_usec)
{
	struct share_item *si;
	int r = need_share(st, ino, &si);

	if (r == 0)
		share_head_drop(&si->h, stamp, upto_usec);
	if (r == 0)
		share_changed(st, si);
	return r;
}

int share_lost(struct state *st, uint64_t ino, uint32_t node)
{
	struct share_item *si;
	int r = find_share(st, ino, &si);

	if (r < 0 || !item_present(&si->it))
		return r;
	r = take_away(st, si, ino, &(struct taking){ .node = node });
	if (r == 0)
		share_changed(st, si);
	return r;
}
