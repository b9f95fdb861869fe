/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The processes that wrote a file. Most files have one, those of parallel programs as many as a node has cores: a list that is
 * searched from its end is enough, and the caller remembers the last answer. Bytes: varint number, then a varint for each.
 *
 * The inode says by INODE_WRITERS whether there is a table, so that files without one cost no look-up.
 */
#include "format/index/writers.h"

#include <errno.h>
#include <stdlib.h>

#include "format/index/state_private.h"

void writers_free(struct writers *w)
{
	if (!w)
		return;
	free(w->at);
	*w = (struct writers){ 0 };
}

size_t writers_bytes(const struct writers *w)
{
	return w->cap * sizeof *w->at + 16;
}

static int add(struct writers *w, uint32_t process)
{
	if (w->num == w->cap) {
		uint32_t cap = w->cap ? 2 * w->cap : 4;
		uint32_t *at = realloc(w->at, cap * sizeof *at);

		if (!at)
			return -ENOMEM;
		w->at = at;
		w->cap = cap;
	}
	w->at[w->num++] = process;
	return 0;
}

int writers_number(struct writers *w, uint32_t process, uint16_t *ret_number, bool *ret_added)
{
	uint32_t i = w->num;
	int r = 0;

	while (i > 0 && w->at[i - 1] != process)
		i--;
	*ret_added = i == 0 && w->num < WRITERS_MAX;
	if (*ret_added) {
		r = add(w, process);
		i = w->num;
	}
	if (r == 0)
		*ret_number = (uint16_t)i;
	return r;
}

int writers_encode(const struct writers *w, struct buf *out)
{
	buf_varint(out, w->num);
	for (uint32_t i = 0; i < w->num; i++)
		buf_varint(out, w->at[i]);
	return buf_ok(out) ? 0 : -ENOMEM;
}

int writers_decode(const void *val, size_t len, struct writers *ret)
{
	struct cursor c = cursor_make(val, len);
	uint64_t num = cursor_varint(&c);
	struct writers w = { 0 };
	int r = 0;

	if (!cursor_ok(&c) || num == 0 || num > WRITERS_MAX || num > cursor_left(&c))
		return -EBADMSG;
	for (uint64_t i = 0; r == 0 && i < num; i++) {
		uint64_t process = cursor_varint(&c);

		r = process && process <= UINT32_MAX && cursor_ok(&c) ? add(&w, (uint32_t)process) : -EBADMSG;
	}
	if (r == 0 && cursor_left(&c) > 0)
		r = -EBADMSG;
	if (r < 0) {
		writers_free(&w);
		return r;
	}
	*ret = w;
	return 0;
}

/* ---- in the state */

int find_writers(struct state *st, uint64_t ino, struct writers_item **ret)
{
	struct item *it;
	int r = cache_find_number(&st->cache, KEY_WRITERS, ino, false, &it);

	if (r < 0)
		return r;
	*ret = (struct writers_item *)it;
	return 0;
}

static int number_in_table(struct state *st, struct node_item *ni, uint32_t process, uint16_t *ret)
{
	struct writers_item *wi;
	bool added;
	int r = find_writers(st, ni->n.ino, &wi);

	if (r < 0)
		return r;
	if (!item_present(&wi->it))
		cache_revive(&wi->it);
	r = writers_number(&wi->w, process, ret, &added);
	if (r == 0 && added)
		cache_dirty(&st->cache, &wi->it);
	return r == 0 ? node_set_flags(st, ni, ni->n.flags | INODE_WRITERS) : r;
}

int node_writer(struct state *st, struct node_item *ni, uint32_t process, uint16_t *ret_number)
{
	int r = 0;

	if (process == 0) {
		*ret_number = 0;
		return 0;
	}
	if (process != ni->n.last_writer) {
		r = number_in_table(st, ni, process, &ni->n.last_number);
		ni->n.last_writer = r == 0 ? process : 0;
	}
	if (r == 0)
		*ret_number = ni->n.last_number;
	return r;
}

int writers_drop(struct state *st, struct node_item *ni)
{
	struct writers_item *wi;
	int r;

	if (!(ni->n.flags & INODE_WRITERS))
		return 0;
	r = find_writers(st, ni->n.ino, &wi);
	if (r < 0)
		return r;
	if (item_present(&wi->it))
		cache_remove(&st->cache, &wi->it);
	ni->n.last_writer = 0;
	return node_set_flags(st, ni, ni->n.flags & ~(uint32_t)INODE_WRITERS);
}

int state_writers(struct state *st, uint64_t ino, uint32_t *out, size_t cap, size_t *ret_num)
{
	struct writers_item *wi;
	struct node_item *ni;
	int r;

	query_begin(st);
	r = find_node(st, ino, &ni);
	*ret_num = 0;
	if (r == 0 && ni->n.flags & INODE_WRITERS)
		r = find_writers(st, ino, &wi);
	else
		return query_end(st, r);
	for (uint32_t i = 0; r == 0 && item_present(&wi->it) && i < wi->w.num; i++, (*ret_num)++)
		if (i < cap)
			out[i] = wi->w.at[i];
	return query_end(st, r);
}
