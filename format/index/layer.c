/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What of a shared file's extents here (this node's layer) has been committed. Two things are kept beside the extents:
 *
 * Commit points. An extent belongs to the first point whose upto is not below its seq. A point is added only when something
 * became committed by it, so a file has no more points than commits that wrote; and when their number has doubled since the
 * last look, the extents are walked once and points that none of them needs go. So their number stays below twice that of
 * the commits whose bytes are still there (or COMMITS_PRUNE_MIN), and the walks cost little for each commit.
 *
 * Marks: which pages may have extents behind the last point. Writing sets them, a commit looks at marked pages only. They are
 * one list and not keys: a commit would leave as many deleted keys, for each later one to walk over. A mark may be too many (its extents were cut off), never too few.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <stdlib.h>

#define LIST_PAGES 256

int find_commits(struct state *st, uint64_t ino, struct commits_item **ret)
{
	struct item *it;
	int r = cache_find_number(&st->cache, KEY_COMMITS, ino, false, &it);

	if (r < 0)
		return r;
	*ret = (struct commits_item *)it;
	return 0;
}

/* ---- marks */

int layer_mark(struct state *st, uint64_t ino, uint64_t page)
{
	struct commits_item *ci;
	int r = find_commits(st, ino, &ci);

	if (r < 0)
		return r;
	if (!item_present(&ci->it)) {
		cache_revive(&ci->it);
		ci->c.prune_at = COMMITS_PRUNE_MIN;
	}
	r = commits_mark(&ci->c, page);
	if (r > 0)
		cache_dirty(&st->cache, &ci->it);
	return r < 0 ? r : 0;
}

/* Calls step() for each page of extents. */
static int each_page(struct state *st, struct node_item *ni,
	int (*step)(struct state *st, struct node_item *ni, uint64_t page, void *arg), void *arg)
{
	uint64_t page[LIST_PAGES], first = 0;
	size_t num;
	int r;

	do {
		r = pages_list(st, &ni->n, first, UINT64_MAX, page, LIST_PAGES, &num);
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
	return each_page(st, ni, mark_page, NULL);
}

int layer_drop(struct state *st, struct node_item *ni)
{
	struct commits_item *ci;
	int r;

	if (!(ni->n.flags & INODE_SHARED))
		return 0;
	r = find_commits(st, ni->n.ino, &ci);
	if (r == 0 && item_present(&ci->it))
		cache_remove(&st->cache, &ci->it);
	return r;
}

/* ---- commits */

struct commit {
	uint64_t from, upto; /* what is committed: seqs behind from, up to upto */
	bool any;
	bool later; /* of the last page looked at: something is not */
};

static void look_at_extents(const struct extent_page *p, struct commit *c)
{
	for (uint32_t i = 0; i < p->num; i++) {
		const struct extent *e = &p->ext[i];

		if (e->kind == EXTENT_BACKING || e->seq <= c->from)
			continue;
		if (e->seq > c->upto)
			c->later = true;
		else
			c->any = true;
	}
}

static int look_at_page(struct state *st, struct node_item *ni, uint64_t page, struct commit *c)
{
	struct leaves leaves;
	int r = page_leaves(st, &ni->n, page, 0, UINT64_MAX, &leaves);

	c->later = false;
	for (unsigned int i = 0; r == 0 && i < leaves.num; i++)
		look_at_extents(leaves.leaf[i], c);
	return r;
}

/* The marks that are still needed stay. */
static int look_at_marked(struct state *st, struct node_item *ni, struct commits *marks, struct commit *c)
{
	size_t num = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < marks->num_pages; i++) {
		r = look_at_page(st, ni, marks->pages[i], c);
		if (r == 0 && c->later)
			marks->pages[num++] = marks->pages[i];
	}
	if (r == 0)
		marks->num_pages = num;
	return r;
}

struct need {
	const struct commits *c;
	uint8_t *needed;
};

static void note_needed_by(const struct extent_page *p, struct need *need)
{
	for (uint32_t i = 0; i < p->num; i++) {
		uint32_t at = commits_find(need->c, p->ext[i].seq);

		if (at < need->c->num)
			need->needed[at] = 1;
	}
}

static int note_needed(struct state *st, struct node_item *ni, uint64_t page, void *arg)
{
	struct leaves leaves;
	int r = page_leaves(st, &ni->n, page, 0, UINT64_MAX, &leaves);

	for (unsigned int i = 0; r == 0 && i < leaves.num; i++)
		note_needed_by(leaves.leaf[i], arg);
	return r;
}

static int prune(struct state *st, struct node_item *ni, struct commits_item *ci)
{
	struct need need = { .c = &ci->c, .needed = calloc(ci->c.num, 1) };
	int r = need.needed ? each_page(st, ni, note_needed, &need) : -ENOMEM;

	if (r == 0)
		commits_keep(&ci->c, need.needed);
	free(need.needed);
	return r;
}

int layer_commit(struct state *st, struct node_item *ni, uint64_t upto, uint64_t stamp)
{
	struct commit_point p = { .upto = upto, .stamp = stamp };
	struct commit c = { .upto = upto };
	struct commits_item *ci;
	int r = find_commits(st, ni->n.ino, &ci);

	if (r < 0 || !item_present(&ci->it) || ci->c.num_pages == 0)
		return r;
	c.from = commits_upto(&ci->c);
	r = look_at_marked(st, ni, &ci->c, &c);
	if (r == 0 && c.any)
		r = commits_add(&ci->c, &p);
	if (r == 0 && ci->c.num >= ci->c.prune_at)
		r = prune(st, ni, ci);
	cache_dirty(&st->cache, &ci->it);
	return r;
}
