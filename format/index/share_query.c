/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Questions about layers and share maps. As in query.c: each takes the lock and answers with copies. */
#include "format/index/state_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGES_CHUNK  64
#define SHARES_CHUNK 64

/* [off, end), and where the answer ended: end, or what did not fit. */
struct range_query {
	uint64_t off, end, next;
	size_t num, cap;
};

static struct range_query range_query(uint64_t off, uint64_t len, size_t cap)
{
	struct range_query q = { .off = off, .end = len > UINT64_MAX - off ? UINT64_MAX : off + len, .cap = cap };

	q.next = q.end;
	return q;
}

/* There is room for what begins at off; else the answer ends there. */
static bool has_room(struct range_query *q, uint64_t off)
{
	if (q->num < q->cap)
		return true;
	q->next = off > q->off ? off : q->off;
	return false;
}

/* ---- layers */

/* Stamps of commits, for as long as the lock is held. NULL: nothing was committed. */
static int get_commits(struct state *st, uint64_t ino, const struct commits **ret)
{
	struct commits_item *ci;
	int r = find_commits(st, ino, &ci);

	if (r == 0)
		*ret = item_present(&ci->it) ? &ci->c : NULL;
	return r;
}

static uint64_t stamp_of(const struct commits *c, const struct extent *e)
{
	uint32_t i = c ? commits_find(c, e->seq) : 0;

	return c && i < c->num ? c->points[i].stamp : 0;
}

struct layer_query {
	struct range_query q;
	const struct commits *commits;
	struct layer_extent *out;
};

static void page_layer(struct layer_query *l, const struct extent_page *p)
{
	for (uint32_t i = extent_page_find(p, l->q.off); i < p->num && p->ext[i].off < l->q.end; i++) {
		const struct extent *e = &p->ext[i];

		if (e->kind == EXTENT_BACKING)
			continue;
		if (!has_room(&l->q, e->off))
			return;
		l->out[l->q.num++] = (struct layer_extent){ .ext = extent_clip(e, l->q.off, l->q.end),
			.stamp = stamp_of(l->commits, e) };
	}
}

static int range_layer(struct state *st, const struct node *n, struct layer_query *l)
{
	uint64_t page[PAGES_CHUNK], first = l->q.off / EXTENT_PAGE_SPAN;
	struct leaves leaves;
	size_t num;
	int r;

	do {
		r = pages_list(st, n, first, (l->q.end - 1) / EXTENT_PAGE_SPAN, page, PAGES_CHUNK, &num);
		for (size_t i = 0; r == 0 && i < num && l->q.next == l->q.end; i++) {
			r = page_leaves(st, n, page[i], l->q.off, l->q.end, &leaves);
			for (unsigned int k = 0; r == 0 && k < leaves.num && l->q.next == l->q.end; k++)
				page_layer(l, leaves.leaf[k]);
		}
		if (num)
			first = page[num - 1] + 1;
	} while (r == 0 && num == PAGES_CHUNK && l->q.next == l->q.end);
	return r;
}

int state_layer(struct state *st, uint64_t ino, uint64_t off, uint64_t len, struct layer_extent *out, size_t cap,
	size_t *ret_num, uint64_t *ret_next)
{
	struct layer_query l = { .q = range_query(off, len, cap), .out = out };
	struct node_item *ni;
	int r;

	query_begin(st);
	r = find_node(st, ino, &ni);
	if (r == 0)
		r = get_commits(st, ino, &l.commits);
	if (r == 0 && len > 0)
		r = range_layer(st, &ni->n, &l);
	r = query_end(st, r);
	if (r < 0)
		return r;
	*ret_num = l.q.num;
	*ret_next = l.q.next;
	return 0;
}

static void page_uncommitted(struct range_query *q, const struct extent_page *p, uint64_t upto, struct extent *out)
{
	for (uint32_t i = extent_page_find(p, q->off); i < p->num; i++) {
		const struct extent *e = &p->ext[i];

		if (e->seq <= upto || e->kind == EXTENT_BACKING)
			continue;
		if (!has_room(q, e->off))
			return;
		out[q->num++] = extent_clip(e, q->off, q->end);
	}
}

static int range_uncommitted(
	struct state *st, const struct node *n, const struct commits *c, struct range_query *q, struct extent *out)
{
	struct leaves leaves;
	int r = 0;

	for (size_t i = commits_find_page(c, q->off / EXTENT_PAGE_SPAN); i < c->num_pages && q->next == q->end; i++) {
		r = page_leaves(st, n, c->pages[i], q->off, q->end, &leaves);
		if (r < 0)
			break;
		for (unsigned int k = 0; k < leaves.num && q->next == q->end; k++)
			page_uncommitted(q, leaves.leaf[k], commits_upto(c), out);
	}
	return r;
}

int state_uncommitted(struct state *st, uint64_t ino, uint64_t off, struct extent *out, size_t cap, size_t *ret_num,
	uint64_t *ret_next)
{
	struct range_query q = range_query(off, UINT64_MAX, cap);
	const struct commits *c = NULL;
	struct node_item *ni;
	int r;

	query_begin(st);
	r = find_node(st, ino, &ni);
	if (r == 0)
		r = get_commits(st, ino, &c);
	if (r == 0 && c)
		r = range_uncommitted(st, &ni->n, c, &q, out);
	r = query_end(st, r);
	if (r < 0)
		return r;
	*ret_num = q.num;
	*ret_next = q.next;
	return 0;
}

int state_commit_by(struct state *st, uint64_t ino, uint64_t stamp, struct commit_point *ret, bool *ret_later)
{
	const struct commits *c = NULL;
	uint32_t num = 0;
	int r;

	*ret = (struct commit_point){ 0 };
	query_begin(st);
	r = get_commits(st, ino, &c);
	if (r == 0 && c)
		num = commits_by(c, stamp);
	if (num > 0)
		*ret = c->points[num - 1];
	if (r == 0 && ret_later)
		*ret_later = c && num < c->num;
	return query_end(st, r);
}

/* ---- share maps */

static void page_share(struct range_query *q, const struct share_page *p, struct share_extent *out)
{
	for (uint32_t i = share_page_find(p, q->off); i < p->num && p->ext[i].off < q->end; i++) {
		if (!has_room(q, p->ext[i].off))
			return;
		out[q->num++] = share_extent_clip(&p->ext[i], q->off, q->end);
	}
}

static int range_share(
	struct state *st, const struct share_head *h, uint64_t ino, struct range_query *q, struct share_extent *out)
{
	uint64_t page[PAGES_CHUNK], first = q->off / EXTENT_PAGE_SPAN;
	struct share_page_item *pi;
	size_t num;
	int r;

	do {
		r = share_pages_list(st, h, ino, first, (q->end - 1) / EXTENT_PAGE_SPAN, page, PAGES_CHUNK, &num);
		for (size_t i = 0; r == 0 && i < num && q->next == q->end; i++) {
			r = find_share_page(st, h, ino, page[i], &pi);
			if (r == 0)
				page_share(q, &pi->p, out);
		}
		if (num)
			first = page[num - 1] + 1;
	} while (r == 0 && num == PAGES_CHUNK && q->next == q->end);
	return r;
}

int state_share_extents(struct state *st, uint64_t ino, uint64_t off, uint64_t len, struct share_extent *out,
	size_t cap, size_t *ret_num, uint64_t *ret_next)
{
	struct range_query q = range_query(off, len, cap);
	struct share_item *si;
	int r;

	query_begin(st);
	r = find_share(st, ino, &si);
	if (r == 0 && item_present(&si->it) && len > 0)
		r = range_share(st, &si->h, ino, &q, out);
	r = query_end(st, r);
	if (r < 0)
		return r;
	*ret_num = q.num;
	*ret_next = q.next;
	return 0;
}

int state_share_newest_cut(struct state *st, uint64_t ino, uint64_t *ret_size, uint64_t *ret_stamp)
{
	struct share_cut cut = { 0 };
	struct share_item *si;
	int r;

	query_begin(st);
	r = find_share(st, ino, &si);
	if (r == 0 && item_present(&si->it) && si->h.num_cuts)
		cut = si->h.cuts[si->h.num_cuts - 1];
	r = query_end(st, r);
	if (r < 0)
		return r;
	*ret_size = cut.size;
	*ret_stamp = cut.stamp;
	return 0;
}

int state_share_cuts(struct state *st, uint64_t ino, struct share_cut *out, size_t *ret_num)
{
	struct share_item *si;
	size_t num = 0;
	int r;

	query_begin(st);
	r = find_share(st, ino, &si);
	for (; r == 0 && item_present(&si->it) && num < si->h.num_cuts; num++)
		out[num] = si->h.cuts[num];
	*ret_num = num;
	return query_end(st, r);
}

int state_share_lacks_cut(struct state *st, uint64_t ino, const struct share_cut *cut, bool *ret)
{
	const struct share_head none = { 0 };
	struct share_item *si;
	int r;

	query_begin(st);
	r = find_share(st, ino, &si);
	if (r == 0)
		*ret = share_head_lacks(item_present(&si->it) ? &si->h : &none, cut->stamp, cut->size);
	return query_end(st, r);
}

int state_share_drained(struct state *st, uint64_t ino, uint64_t *ret_stamp, uint64_t *ret_usec)
{
	uint64_t stamp = 0, usec = 0;
	struct share_item *si;
	int r;

	query_begin(st);
	r = find_share(st, ino, &si);
	if (r == 0 && item_present(&si->it)) {
		stamp = si->h.dropped;
		usec = si->h.dropped_usec;
	}
	r = query_end(st, r);
	if (r < 0)
		return r;
	*ret_stamp = stamp;
	*ret_usec = usec;
	return 0;
}

struct shared {
	uint64_t ino, extents;
};

static int take_shared(const struct merge_entry *e, struct shared *out)
{
	const struct share_item *si = (const struct share_item *)e->item;
	struct share_head h = { 0 };
	struct key_parts parts;
	int r = key_parse(e->key, e->key_len, &parts);

	if (r == 0 && !si)
		r = share_head_decode(e->val, e->val_len, &h);
	if (r == 0)
		*out = (struct shared){ .ino = parts.id, .extents = si ? si->h.num_extents : h.num_extents };
	share_head_free(&h);
	return r;
}

/* Up to SHARES_CHUNK inodes behind after. */
static int list_shared(struct state *st, uint64_t after, struct shared *out, size_t *ret_num)
{
	struct merge_entry e;
	struct key prefix, key;
	struct merge m;
	size_t num = 0;
	int r, end;

	key_kind(&prefix, KEY_SHARE);
	key_number(&key, KEY_SHARE, after);
	query_begin(st);
	r = merge_begin(&m, &st->cache, &prefix, &key);
	while (r >= 0 && num < SHARES_CHUNK && (r = merge_next(&m, &e)) > 0) {
		r = take_shared(&e, &out[num]);
		if (r < 0)
			break;
		num++;
	}
	end = m.walk ? merge_end(&m) : 0;
	*ret_num = num;
	return query_end(st, r < 0 ? r : end);
}

int state_each_shared(struct state *st, int (*cb)(uint64_t ino, uint64_t extents, void *arg), void *arg)
{
	struct shared list[SHARES_CHUNK];
	uint64_t after = 0;
	size_t num;
	int r;

	do {
		r = list_shared(st, after, list, &num);
		for (size_t i = 0; r == 0 && i < num; i++)
			r = cb(list[i].ino, list[i].extents, arg);
		if (num)
			after = list[num - 1].ino;
	} while (r == 0 && num == SHARES_CHUNK);
	return r;
}

static int copy_conflicts(
	struct state *st, uint64_t ino, struct share_conflict **ret, size_t *ret_num, uint64_t *ret_more)
{
	struct conflicts_item *ci;
	int r;

	query_begin(st);
	r = find_conflicts(st, ino, &ci);
	if (r == 0 && item_present(&ci->it)) {
		*ret = malloc(ci->s.num * sizeof **ret);
		if (*ret)
			memcpy(*ret, ci->s.list, ci->s.num * sizeof **ret);
		else
			r = -ENOMEM;
		*ret_num = ci->s.num;
		*ret_more = ci->s.more;
	}
	return query_end(st, r);
}

int state_conflicts(struct state *st, uint64_t ino, int (*cb)(const struct share_conflict *c, void *arg), void *arg,
	uint64_t *ret_more)
{
	struct share_conflict *list = NULL;
	uint64_t more = 0;
	size_t num = 0;
	int r = copy_conflicts(st, ino, &list, &num, &more);

	if (r == 0 && ret_more)
		*ret_more = more;
	for (size_t i = 0; r == 0 && i < num; i++)
		r = cb(&list[i], arg);
	free(list);
	return r;
}
