/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What of a shared file's extents here (this node's layer) has been committed. Two things are kept beside the extents:
 *
 * Commit points. An extent belongs to the first point whose upto is not below its seq. A point is added only when something
 * became committed by it, so a file has no more points than commits that wrote; and when their number has doubled since the
 * last look, the extents are walked once and points that none of them needs go. So their number stays below twice that of
 * the commits whose bytes are still there (or COMMITS_PRUNE_MIN), and the walks cost little for each commit.
 *
 * Marks: a key for each page that may have extents behind the last point. Writing sets them, a commit looks at marked
 * pages only. A mark may be too many (its extents were cut off), never too few.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <stdlib.h>

#define LIST_PAGES 256

int find_commits(struct state *st, uint64_t ino, struct commits_item **ret)
{
	struct item *it;
	struct key key;
	int r;

	key_number(&key, KEY_COMMITS, ino);
	r = cache_find(&st->cache, &key, false, &it);
	if (r < 0)
		return r;
	*ret = (struct commits_item *)it;
	return 0;
}

/* ---- marks */

static int find_mark(struct state *st, uint64_t ino, uint64_t page, struct blob_item **ret)
{
	struct key key;

	key_page(&key, KEY_UNCOMMITTED, ino, page);
	return find_blob(st, &key, ret);
}

int layer_mark(struct state *st, uint64_t ino, uint64_t page)
{
	struct blob_item *mark;
	int r = find_mark(st, ino, page, &mark);

	if (r < 0 || item_present(&mark->it))
		return r;
	cache_revive(&mark->it);
	cache_dirty(&st->cache, &mark->it);
	return 0;
}

static int unmark(struct state *st, uint64_t ino, uint64_t page)
{
	struct blob_item *mark;
	int r = find_mark(st, ino, page, &mark);

	if (r == 0 && item_present(&mark->it))
		cache_remove(&st->cache, &mark->it);
	return r;
}

/* Calls step() for each page of the inode that has a key of this kind. */
static int each_page(struct state *st, enum key_kind kind, struct node_item *ni,
	int (*step)(struct state *st, struct node_item *ni, uint64_t page, void *arg), void *arg)
{
	uint64_t page[LIST_PAGES], first = 0;
	size_t num;
	int r;

	do {
		r = keys_list(st, kind, ni->n.ino, first, UINT64_MAX, page, LIST_PAGES, &num);
		for (size_t i = 0; r == 0 && i < num; i++)
			r = step(st, ni, page[i], arg);
		if (num)
			first = page[num - 1] + 1;
	} while (r == 0 && num == LIST_PAGES);
	return r;
}

/* ---- begin and end of a layer */

static int mark_page(struct state *st, struct node_item *ni, uint64_t page, void *arg)
{
	(void)arg;
	return layer_mark(st, ni->n.ino, page);
}

int layer_begin(struct state *st, struct node_item *ni)
{
	return ni->n.num_pages ? each_page(st, KEY_PAGE, ni, mark_page, NULL) : 0;
}

static int unmark_page(struct state *st, struct node_item *ni, uint64_t page, void *arg)
{
	(void)arg;
	return unmark(st, ni->n.ino, page);
}

int layer_drop(struct state *st, struct node_item *ni)
{
	struct commits_item *ci;
	int r;

	if (!(ni->n.flags & INODE_SHARED))
		return 0;
	r = each_page(st, KEY_UNCOMMITTED, ni, unmark_page, NULL);
	if (r == 0)
		r = find_commits(st, ni->n.ino, &ci);
	if (r == 0 && item_present(&ci->it))
		cache_remove(&st->cache, &ci->it);
	return r;
}

/* ---- commits */

struct commit {
	uint64_t from, upto; /* what is committed: seqs behind from, up to upto */
	bool any;
};

static int commit_page(struct state *st, struct node_item *ni, uint64_t page, void *arg)
{
	struct commit *c = arg;
	struct page_item *pi;
	bool later = false;
	int r = find_page(st, &ni->n, page, &pi);

	if (r < 0)
		return r;
	for (uint32_t i = 0; item_present(&pi->it) && i < pi->p.num; i++) {
		const struct extent *e = &pi->p.ext[i];

		if (e->kind == EXTENT_BACKING || e->seq <= c->from)
			continue;
		if (e->seq > c->upto)
			later = true;
		else
			c->any = true;
	}
	return later ? 0 : unmark(st, ni->n.ino, page);
}

struct need {
	const struct commits *c;
	uint8_t *needed;
};

static int note_needed(struct state *st, struct node_item *ni, uint64_t page, void *arg)
{
	struct need *need = arg;
	struct page_item *pi;
	int r = find_page(st, &ni->n, page, &pi);

	for (uint32_t i = 0; r == 0 && item_present(&pi->it) && i < pi->p.num; i++) {
		uint32_t at = commits_find(need->c, pi->p.ext[i].seq);

		if (at < need->c->num)
			need->needed[at] = 1;
	}
	return r;
}

static int prune(struct state *st, struct node_item *ni, struct commits_item *ci)
{
	struct need need = { .c = &ci->c, .needed = calloc(ci->c.num, 1) };
	int r = need.needed ? each_page(st, KEY_PAGE, ni, note_needed, &need) : -ENOMEM;

	if (r == 0)
		commits_keep(&ci->c, need.needed);
	free(need.needed);
	return r;
}

static int add_point(struct state *st, struct node_item *ni, struct commits_item *ci, const struct commit_point *p)
{
	int r;

	if (!item_present(&ci->it)) {
		cache_revive(&ci->it);
		ci->c.prune_at = COMMITS_PRUNE_MIN;
	}
	r = commits_add(&ci->c, p);
	if (r == 0 && ci->c.num >= ci->c.prune_at)
		r = prune(st, ni, ci);
	cache_dirty(&st->cache, &ci->it);
	return r;
}

int layer_commit(struct state *st, struct node_item *ni, uint64_t upto, uint64_t stamp)
{
	struct commit_point p = { .upto = upto, .stamp = stamp };
	struct commit c = { .upto = upto };
	struct commits_item *ci;
	int r = find_commits(st, ni->n.ino, &ci);

	if (r < 0)
		return r;
	c.from = item_present(&ci->it) ? commits_upto(&ci->c) : 0;
	r = each_page(st, KEY_UNCOMMITTED, ni, commit_page, &c);
	return r < 0 || !c.any ? r : add_point(st, ni, ci, &p);
}
