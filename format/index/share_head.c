/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What belongs to a share map as a whole: what was cut off and dropped, for commits that are still to come, or come again;
 * and what two nodes wrote without having seen each other. Bytes: docs/format/index.md.
 */
#include "format/index/share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- head */

void share_head_free(struct share_head *h)
{
	if (!h)
		return;
	free(h->cuts);
	*h = (struct share_head){ 0 };
}

bool share_head_is_empty(const struct share_head *h)
{
	return h->num_pages == 0 && h->dropped == 0 && h->num_cuts == 0;
}

static int reserve_cut(struct share_head *h)
{
	struct share_cut *cuts;
	uint32_t cap = h->cap_cuts ? 2 * h->cap_cuts : 4;

	if (h->num_cuts < h->cap_cuts)
		return 0;
	cuts = realloc(h->cuts, cap * sizeof *cuts);
	if (!cuts)
		return -ENOMEM;
	h->cuts = cuts;
	h->cap_cuts = cap;
	return 0;
}

/* Those that the cut i makes void, the ones before it with no lower size, go. */
static void drop_void(struct share_head *h, uint32_t i)
{
	uint32_t first = i;

	while (first > 0 && h->cuts[first - 1].size >= h->cuts[i].size)
		first--;
	memmove(h->cuts + first, h->cuts + i, (h->num_cuts - i) * sizeof *h->cuts);
	h->num_cuts -= i - first;
}

/* Before which it stands. */
static uint32_t place_of_cut(const struct share_head *h, uint64_t stamp)
{
	uint32_t i = h->num_cuts;

	while (i > 0 && h->cuts[i - 1].stamp >= stamp)
		i--;
	return i;
}

bool share_head_lacks(const struct share_head *h, uint64_t stamp, uint64_t size)
{
	uint32_t i = place_of_cut(h, stamp);

	if (h->dropped_usec == UINT64_MAX && stamp - 1 <= h->dropped)
		return false; /* no stamp left between */
	if (i < h->num_cuts && (h->cuts[i].size <= size || h->cuts[i].stamp == stamp))
		return h->cuts[i].size > size;
	return i > 0 || h->num_cuts < SHARE_CUTS_MAX;
}

int share_head_cut(struct share_head *h, uint64_t stamp, uint64_t size)
{
	uint32_t i = place_of_cut(h, stamp);

	if (!share_head_lacks(h, stamp, size))
		return 0;
	if (i < h->num_cuts && h->cuts[i].stamp == stamp) {
		h->cuts[i].size = size;
		drop_void(h, i);
		return 0;
	}
	if (reserve_cut(h) < 0)
		return -ENOMEM;
	memmove(h->cuts + i + 1, h->cuts + i, (h->num_cuts - i) * sizeof *h->cuts);
	h->cuts[i] = (struct share_cut){ .stamp = stamp, .size = size };
	h->num_cuts++;
	drop_void(h, i);
	if (h->num_cuts > SHARE_CUTS_MAX)
		memmove(h->cuts, h->cuts + 1, --h->num_cuts * sizeof *h->cuts);
	return 0;
}

bool share_head_is_dropped(const struct share_head *h, uint64_t stamp, uint64_t time_usec)
{
	return stamp <= h->dropped && time_usec <= h->dropped_usec;
}

/* Times rise with the stamps. What is not dropped may have a stamp up to this one, so cuts with such stamps still matter. */
void share_head_drop(struct share_head *h, uint64_t stamp, uint64_t upto_usec)
{
	uint32_t first = 0;

	if (stamp <= h->dropped)
		return;
	h->dropped = stamp;
	h->dropped_usec = upto_usec;
	if (upto_usec != UINT64_MAX)
		return;
	while (first < h->num_cuts && h->cuts[first].stamp - 1 <= stamp)
		first++;
	h->num_cuts -= first;
	if (first)
		memmove(h->cuts, h->cuts + first, h->num_cuts * sizeof *h->cuts);
}

uint64_t share_head_limit(const struct share_head *h, uint64_t stamp)
{
	for (uint32_t i = 0; i < h->num_cuts; i++)
		if (h->cuts[i].stamp > stamp)
			return h->cuts[i].size; /* sizes rise: the lowest that matters */
	return UINT64_MAX;
}

int share_head_encode(const struct share_head *h, struct buf *out)
{
	uint64_t stamp = 0, size = 0;

	buf_varint(out, h->num_pages);
	buf_varint(out, h->num_extents);
	buf_varint(out, h->dropped);
	buf_varint(out, h->num_cuts);
	for (uint32_t i = 0; i < h->num_cuts; i++) {
		buf_varint(out, h->cuts[i].stamp - stamp);
		buf_varint(out, h->cuts[i].size - size);
		stamp = h->cuts[i].stamp;
		size = h->cuts[i].size;
	}
	if (h->dropped && h->dropped_usec != UINT64_MAX)
		buf_varint(out, h->dropped_usec);
	return buf_ok(out) ? 0 : -ENOMEM;
}

static void decode_cut(struct cursor *c, const struct share_cut *before, struct share_cut *cut)
{
	uint64_t stamp = cursor_varint(c), size = cursor_varint(c);

	if (stamp == 0 || stamp > UINT64_MAX - before->stamp || size > UINT64_MAX - before->size ||
		(before->stamp && size == 0))
		cursor_fail(c);
	*cut = (struct share_cut){ .stamp = before->stamp + stamp, .size = before->size + size };
}

int share_head_decode(const void *val, size_t len, struct share_head *ret_head)
{
	struct cursor c = cursor_make(val, len);
	struct share_head h = { 0 };
	struct share_cut cut = { 0 };
	uint64_t num;

	h.num_pages = cursor_varint(&c);
	h.num_extents = cursor_varint(&c);
	h.dropped = cursor_varint(&c);
	num = cursor_varint(&c);
	if (!cursor_ok(&c) || num > SHARE_CUTS_MAX || num > cursor_left(&c) / 2)
		return -EBADMSG;
	if (num) {
		h.cuts = malloc(num * sizeof *h.cuts);
		if (!h.cuts)
			return -ENOMEM;
		h.cap_cuts = (uint32_t)num;
	}
	for (; h.num_cuts < num; h.num_cuts++) {
		decode_cut(&c, &cut, &h.cuts[h.num_cuts]);
		cut = h.cuts[h.num_cuts];
	}
	h.dropped_usec = h.dropped ? UINT64_MAX : 0;
	if (h.dropped && cursor_left(&c) > 0 && (h.dropped_usec = cursor_varint(&c)) == UINT64_MAX)
		cursor_fail(&c);
	if (!cursor_ok(&c) || cursor_left(&c) > 0) {
		share_head_free(&h);
		return -EBADMSG;
	}
	*ret_head = h;
	return 0;
}

/* ---- conflicts */

void share_conflicts_free(struct share_conflicts *s)
{
	if (!s)
		return;
	free(s->list);
	*s = (struct share_conflicts){ 0 };
}

static int compare_pair(const struct share_conflict *a, const struct share_conflict *b)
{
	if (a->node != b->node)
		return a->node < b->node ? -1 : 1;
	return (a->other > b->other) - (a->other < b->other);
}

/* Of c's pair and not before c, touching included; or of a later pair. */
static uint32_t find_conflict(const struct share_conflicts *s, const struct share_conflict *c)
{
	uint32_t low = 0, high = s->num;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		const struct share_conflict *e = &s->list[mid];
		int d = compare_pair(e, c);

		if (d < 0 || (d == 0 && e->off + e->len < c->off))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int insert_conflict(struct share_conflicts *s, uint32_t i, const struct share_conflict *c)
{
	if (s->num == s->cap) {
		uint32_t cap = s->cap ? 2 * s->cap : 8;
		struct share_conflict *list = realloc(s->list, cap * sizeof *list);

		if (!list)
			return -ENOMEM;
		s->list = list;
		s->cap = cap;
	}
	memmove(s->list + i + 1, s->list + i, (s->num - i) * sizeof *s->list);
	s->list[i] = *c;
	s->num++;
	return 0;
}

int share_conflicts_add(struct share_conflicts *s, const struct share_conflict *c, uint32_t max)
{
	uint32_t i = find_conflict(s, c), j = i;
	uint64_t off = c->off, end = c->off + c->len;

	while (j < s->num && compare_pair(&s->list[j], c) == 0 && s->list[j].off <= end) {
		off = s->list[j].off < off ? s->list[j].off : off;
		end = s->list[j].off + s->list[j].len > end ? s->list[j].off + s->list[j].len : end;
		j++;
	}
	if (i == j && s->num >= max) {
		s->more++;
		return 0;
	}
	if (i == j)
		return insert_conflict(s, i, c);
	s->list[i].off = off;
	s->list[i].len = end - off;
	memmove(s->list + i + 1, s->list + j, (s->num - j) * sizeof *s->list);
	s->num -= j - i - 1;
	return 0;
}

int share_conflicts_encode(const struct share_conflicts *s, struct buf *out)
{
	buf_varint(out, s->more);
	buf_varint(out, s->num);
	for (uint32_t i = 0; i < s->num; i++) {
		const struct share_conflict *c = &s->list[i];

		buf_varint(out, c->node);
		buf_varint(out, c->other);
		buf_varint(out, c->off);
		buf_varint(out, c->len);
	}
	return buf_ok(out) ? 0 : -ENOMEM;
}

static void decode_conflict(struct cursor *c, struct share_conflict *ret)
{
	uint64_t node = cursor_varint(c), other = cursor_varint(c);

	*ret = (struct share_conflict){ .node = (uint32_t)node, .other = (uint32_t)other };
	ret->off = cursor_varint(c);
	ret->len = cursor_varint(c);
	if (node > UINT32_MAX || other > UINT32_MAX || ret->len == 0 || ret->len > INT64_MAX ||
		ret->off > INT64_MAX - ret->len)
		cursor_fail(c);
}

int share_conflicts_decode(const void *val, size_t len, struct share_conflicts *ret_conflicts)
{
	struct cursor c = cursor_make(val, len);
	struct share_conflicts s = { .more = cursor_varint(&c) };
	uint64_t num = cursor_varint(&c);

	if (!cursor_ok(&c) || num > cursor_left(&c) / 4)
		return -EBADMSG;
	if (num) {
		s.list = malloc(num * sizeof *s.list);
		if (!s.list)
			return -ENOMEM;
		s.cap = (uint32_t)num;
	}
	for (uint64_t i = 0; i < num && cursor_ok(&c); i++) {
		decode_conflict(&c, &s.list[i]);
		s.num++;
		if (i && (compare_pair(&s.list[i - 1], &s.list[i]) > 0 ||
				 (compare_pair(&s.list[i - 1], &s.list[i]) == 0 &&
					 s.list[i - 1].off + s.list[i - 1].len >= s.list[i].off)))
			cursor_fail(&c);
	}
	if (!cursor_ok(&c) || cursor_left(&c) > 0) {
		share_conflicts_free(&s);
		return -EBADMSG;
	}
	*ret_conflicts = s;
	return 0;
}
