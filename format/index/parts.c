/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A page with many extents is kept in parts.
 *
 * A change costs what the array that it falls into costs to move and, sooner or later, to write: with tens of thousands of small
 * extents in one page that would be a megabyte for each of them. So a page that outgrows SPLIT_ABOVE becomes PAGE_PARTS arrays,
 * each an item of its own, and its item only says which there are. An extent belongs to the part in which it begins and may
 * reach over its end, so nothing is cut and no checksum is lost. When JOIN_BELOW are left they are one array again.
 *
 * Invariant: what a page holds does not depend on whether, or since when, it is kept in parts. So neighbours are joined across
 * parts just as within an array, and in the same order: what comes behind first.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <stdlib.h>

#define PART_SPAN   (EXTENT_PAGE_SPAN / PAGE_PARTS)
#define SPLIT_ABOVE 512
#define JOIN_BELOW  128

/* A page that is kept in parts, at work. */
struct parts {
	struct state *st;
	struct page_item *pi;
	uint64_t ino, page;
	page_freed freed;
	void *arg;
};

static unsigned int part_of(uint64_t off)
{
	return (unsigned int)(off % EXTENT_PAGE_SPAN / PART_SPAN);
}

static uint64_t bit(unsigned int part)
{
	return (uint64_t)1 << part;
}

uint32_t page_count(const struct page_item *pi)
{
	return pi->parts ? pi->total : pi->p.num;
}

/* The item of a part, perhaps one that is absent. -EBADMSG: the page says that it is there. */
static int find_part(struct parts *w, unsigned int part, struct page_item **ret)
{
	bool there = w->pi->parts & bit(part);
	struct item *it;
	struct key key;
	int r;

	key_page(&key, KEY_PART, w->ino, w->page * PAGE_PARTS + part);
	r = cache_find(&w->st->cache, &key, !there, &it);
	if (r < 0)
		return r;
	if (there && !item_present(it))
		return -EBADMSG;
	*ret = (struct page_item *)it;
	return 0;
}

/* After every change of a part that had before extents. */
static void part_changed(struct parts *w, unsigned int part, struct page_item *leaf, uint32_t before)
{
	w->pi->total += leaf->p.num - before;
	if (leaf->p.num) {
		w->pi->parts |= bit(part);
		cache_dirty(&w->st->cache, &leaf->it);
		return;
	}
	w->pi->parts &= ~bit(part);
	cache_remove(&w->st->cache, &leaf->it);
}

/* e goes where no extent is. */
static int insert(struct parts *w, const struct extent *e, struct page_item **ret_leaf, uint32_t *ret_index)
{
	unsigned int part = part_of(e->off);
	int r = find_part(w, part, ret_leaf);

	if (r < 0)
		return r;
	if (!item_present(&(*ret_leaf)->it))
		cache_revive(&(*ret_leaf)->it);
	r = extent_page_insert(&(*ret_leaf)->p, e, ret_index);
	if (r == 0)
		part_changed(w, part, *ret_leaf, (*ret_leaf)->p.num - 1);
	return r;
}

/* ---- one array and parts */

static int split(struct parts *w)
{
	struct extent_page all = w->pi->p;
	struct page_item *leaf;
	uint32_t at;
	int r = 0;

	w->pi->p = (struct extent_page){ 0 };
	w->pi->total = 0;
	for (uint32_t i = 0; r == 0 && i < all.num; i++)
		r = insert(w, &all.ext[i], &leaf, &at);
	extent_page_free(&all);
	w->st->meta.parts = true;
	return r;
}

static int join(struct parts *w)
{
	struct extent_page all = { 0 };
	uint32_t at;
	int r = 0;

	for (unsigned int part = 0; r == 0 && part < PAGE_PARTS; part++) {
		struct page_item *leaf;
		uint32_t before;

		if (!(w->pi->parts & bit(part)))
			continue;
		r = find_part(w, part, &leaf);
		before = r == 0 ? leaf->p.num : 0;
		for (uint32_t i = 0; r == 0 && i < before; i++)
			r = extent_page_insert(&all, &leaf->p.ext[i], &at);
		if (r < 0)
			break;
		leaf->p.num = 0;
		part_changed(w, part, leaf, before);
	}
	w->pi->p = all;
	return r;
}

/* ---- making room */

/* The last extent of leaf begins in another part now: it goes there. */
static int move_last(struct parts *w, unsigned int part, struct page_item *leaf)
{
	struct extent e = leaf->p.ext[leaf->p.num - 1];
	struct page_item *other;
	uint32_t at;

	extent_page_remove(&leaf->p, leaf->p.num - 1);
	part_changed(w, part, leaf, leaf->p.num + 1);
	return insert(w, &e, &other, &at);
}

static int clear_part(struct parts *w, unsigned int part, uint64_t off, uint64_t end)
{
	struct page_item *leaf;
	uint32_t before, at;
	int r = find_part(w, part, &leaf);

	if (r < 0)
		return r;
	at = extent_page_find(&leaf->p, off);
	if (at == leaf->p.num || leaf->p.ext[at].off >= end)
		return 0;
	before = leaf->p.num;
	r = extent_page_clear(&leaf->p, off, end - off, w->freed, w->arg);
	if (r < 0)
		return r;
	part_changed(w, part, leaf, before);
	if (leaf->p.num && part_of(leaf->p.ext[leaf->p.num - 1].off) != part)
		return move_last(w, part, leaf);
	return 0;
}

/* The last part before this one that has extents; -1: none has. */
static int part_before(uint64_t parts, unsigned int part)
{
	uint64_t below = parts & (bit(part) - 1);

	return below ? 63 - __builtin_clzll(below) : -1;
}

static int part_behind(uint64_t parts, unsigned int part)
{
	uint64_t above = part + 1 < PAGE_PARTS ? parts & ~(bit(part + 1) - 1) : 0;

	return above ? __builtin_ctzll(above) : -1;
}

/* The parts that may have extents in [off, end), which begins before the page's end; an extent may reach over from one more. */
static uint64_t parts_of(uint64_t parts, uint64_t page, uint64_t off, uint64_t end)
{
	uint64_t begin = page * EXTENT_PAGE_SPAN, mask = UINT64_MAX;

	if (off > begin) {
		int before = part_before(parts, part_of(off));

		mask &= ~(bit(part_of(off)) - 1);
		if (before >= 0)
			mask |= bit((unsigned int)before);
	}
	if (end - begin < EXTENT_PAGE_SPAN)
		mask &= bit(part_of(end - 1)) | (bit(part_of(end - 1)) - 1);
	return parts & mask;
}

static int clear(struct parts *w, uint64_t off, uint64_t end)
{
	uint64_t left = parts_of(w->pi->parts, w->page, off, end);
	int r = 0;

	for (; r == 0 && left; left &= left - 1)
		r = clear_part(w, (unsigned int)__builtin_ctzll(left), off, end);
	return r;
}

/* ---- neighbours */

/* The extent behind number i of leaf: its page and number. NULL: there is none. */
static int next_of(struct parts *w, unsigned int part, struct page_item *leaf, uint32_t i, unsigned int *ret_part,
	struct page_item **ret, uint32_t *ret_index)
{
	int behind = i + 1 < leaf->p.num ? (int)part : part_behind(w->pi->parts, part);

	*ret = NULL;
	if (behind < 0)
		return 0;
	*ret_part = (unsigned int)behind;
	*ret_index = i + 1 < leaf->p.num ? i + 1 : 0;
	return find_part(w, (unsigned int)behind, ret);
}

/* Make one of extent i of leaf and the one behind it if they continue each other. */
static int join_next(struct parts *w, unsigned int part, struct page_item *leaf, uint32_t i, bool apart)
{
	struct page_item *other;
	unsigned int other_part;
	uint32_t at;
	int r = next_of(w, part, leaf, i, &other_part, &other, &at);

	if (r < 0 || !other || !extent_join(&leaf->p.ext[i], &other->p.ext[at], apart))
		return r;
	extent_page_remove(&other->p, at);
	part_changed(w, other_part, other, other->p.num + 1);
	cache_dirty(&w->st->cache, &leaf->it);
	return 0;
}

static int join_previous(struct parts *w, unsigned int part, struct page_item *leaf, uint32_t i, bool apart)
{
	struct page_item *before;
	int at, r;

	if (i > 0)
		return join_next(w, part, leaf, i - 1, apart);
	at = part_before(w->pi->parts, part);
	if (at < 0)
		return 0;
	r = find_part(w, (unsigned int)at, &before);
	return r < 0 ? r : join_next(w, (unsigned int)at, before, before->p.num - 1, apart);
}

static int put(struct parts *w, const struct extent *e, bool apart)
{
	unsigned int part = part_of(e->off);
	struct page_item *leaf;
	uint32_t i;
	int r = clear(w, e->off, e->off + e->len);

	if (r == 0)
		r = insert(w, e, &leaf, &i);
	if (r == 0)
		r = join_next(w, part, leaf, i, apart);
	if (r == 0)
		r = join_previous(w, part, leaf, i, apart);
	return r;
}

/* ---- the page as a whole */

static struct parts parts_make(
	struct state *st, const struct node *n, struct page_item *pi, uint64_t off, page_freed freed, void *arg)
{
	return (struct parts){
		.st = st, .pi = pi, .ino = n->ino, .page = off / EXTENT_PAGE_SPAN, .freed = freed, .arg = arg
	};
}

int page_put(struct state *st, const struct node *n, struct page_item *pi, const struct extent *e, bool apart,
	page_freed freed, void *arg)
{
	struct parts w = parts_make(st, n, pi, e->off, freed, arg);
	int r;

	if (pi->parts) {
		r = put(&w, e, apart);
		return r == 0 && pi->total <= JOIN_BELOW ? join(&w) : r;
	}
	r = apart ? extent_page_put_apart(&pi->p, e, freed, arg) : extent_page_put(&pi->p, e, freed, arg);
	return r == 0 && pi->p.num > SPLIT_ABOVE ? split(&w) : r;
}

int page_clear(struct state *st, const struct node *n, struct page_item *pi, uint64_t off, uint64_t end,
	page_freed freed, void *arg)
{
	struct key_parts key = { 0 };
	struct parts w;
	int r;

	if (!pi->parts)
		return extent_page_clear(&pi->p, off, end - off, freed, arg);
	r = key_parse(item_key(&pi->it), pi->it.key_len, &key);
	if (r < 0)
		return r;
	w = parts_make(st, n, pi, key.page * EXTENT_PAGE_SPAN, freed, arg);
	r = clear(&w, off, end);
	return r == 0 && pi->parts && pi->total <= JOIN_BELOW ? join(&w) : r;
}

int page_leaves(struct state *st, const struct node *n, uint64_t page, uint64_t off, uint64_t end, struct leaves *ret)
{
	struct page_item *pi, *leaf;
	struct parts w;
	uint64_t left;
	int r = find_page(st, n, page, &pi);

	ret->num = 0;
	if (r < 0 || !item_present(&pi->it))
		return r;
	if (!pi->parts) {
		ret->leaf[ret->num++] = &pi->p;
		return 0;
	}
	w = parts_make(st, n, pi, page * EXTENT_PAGE_SPAN, NULL, NULL);
	for (left = parts_of(pi->parts, page, off, end); left; left &= left - 1) {
		r = find_part(&w, (unsigned int)__builtin_ctzll(left), &leaf);
		if (r < 0)
			return r;
		ret->leaf[ret->num++] = &leaf->p;
	}
	return 0;
}
