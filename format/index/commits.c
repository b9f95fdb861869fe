/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Commit points of a layer. They are kept beside the extents and not in them, so that a commit does not touch what it commits;
 * an extent's stamp is found by its seq. Bytes: varint prune_at, varint number, then varint upto and varint stamp of each, less
 * those of the one before; varint number of pages, then each as a varint, less the one before.
 */
#include "format/index/commits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

void commits_free(struct commits *c)
{
	if (!c)
		return;
	free(c->points);
	free(c->pages);
	*c = (struct commits){ 0 };
}

size_t commits_bytes(const struct commits *c)
{
	return c->cap * sizeof *c->points + c->cap_pages * sizeof *c->pages + 32;
}

int commits_add(struct commits *c, const struct commit_point *p)
{
	if (c->num == c->cap) {
		uint32_t cap = c->cap ? 2 * c->cap : 4;
		struct commit_point *points = realloc(c->points, cap * sizeof *points);

		if (!points)
			return -ENOMEM;
		c->points = points;
		c->cap = cap;
	}
	c->points[c->num++] = *p;
	return 0;
}

uint64_t commits_upto(const struct commits *c)
{
	return c && c->num ? c->points[c->num - 1].upto : 0;
}

uint32_t commits_find(const struct commits *c, uint64_t seq)
{
	uint32_t low = 0, high = c->num;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (c->points[mid].upto < seq)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

uint32_t commits_by(const struct commits *c, uint64_t stamp)
{
	uint32_t low = 0, high = c->num;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (c->points[mid].stamp <= stamp)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void commits_keep(struct commits *c, const uint8_t *needed)
{
	uint32_t num = 0;

	for (uint32_t i = 0; i < c->num; i++)
		if (needed[i] || i + 1 == c->num)
			c->points[num++] = c->points[i];
	c->num = num;
	c->prune_at = num > COMMITS_PRUNE_MIN / 2 ? 2 * num : COMMITS_PRUNE_MIN;
}

size_t commits_find_page(const struct commits *c, uint64_t page)
{
	size_t low = 0, high = c->num_pages;

	if (high && c->pages[high - 1] < page) /* files grow at their ends */
		return high;
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (c->pages[mid] < page)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

int commits_mark(struct commits *c, uint64_t page)
{
	size_t at = commits_find_page(c, page);

	if (at < c->num_pages && c->pages[at] == page)
		return 0;
	if (array_room(&c->pages, &c->cap_pages, c->num_pages, sizeof(*c->pages)) < 0)
		return -ENOMEM;
	memmove(c->pages + at + 1, c->pages + at, (c->num_pages - at) * sizeof *c->pages);
	c->pages[at] = page;
	c->num_pages++;
	return 1;
}

int commits_encode(const struct commits *c, struct buf *out)
{
	struct commit_point before = { 0 };

	buf_varint(out, c->prune_at);
	buf_varint(out, c->num);
	for (uint32_t i = 0; i < c->num; i++) {
		buf_varint(out, c->points[i].upto - before.upto);
		buf_varint(out, c->points[i].stamp - before.stamp);
		before = c->points[i];
	}
	buf_varint(out, c->num_pages);
	for (size_t i = 0; i < c->num_pages; i++)
		buf_varint(out, c->pages[i] - (i ? c->pages[i - 1] : 0));
	return buf_ok(out) ? 0 : -ENOMEM;
}

static int decode_points(struct cursor *c, uint64_t num, struct commits *ret)
{
	struct commit_point p = { 0 };

	for (uint64_t i = 0; i < num; i++) {
		uint64_t upto = cursor_varint(c), stamp = cursor_varint(c);

		if (!cursor_ok(c) || upto == 0 || stamp == 0 || upto > UINT64_MAX - p.upto ||
			stamp > UINT64_MAX - p.stamp)
			return -EBADMSG;
		p = (struct commit_point){ .upto = p.upto + upto, .stamp = p.stamp + stamp };
		if (commits_add(ret, &p) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int decode_pages(struct cursor *c, struct commits *ret)
{
	uint64_t num = cursor_varint(c), page = 0;

	if (!cursor_ok(c) || num > cursor_left(c))
		return -EBADMSG;
	for (uint64_t i = 0; i < num; i++) {
		uint64_t step = cursor_varint(c);

		if (!cursor_ok(c) || (i && step == 0) || step > UINT64_MAX - page)
			return -EBADMSG;
		page += step;
		if (commits_mark(ret, page) < 0)
			return -ENOMEM;
	}
	return cursor_left(c) ? -EBADMSG : 0;
}

int commits_decode(const void *val, size_t len, struct commits *ret_commits)
{
	struct cursor c = cursor_make(val, len);
	uint64_t prune_at = cursor_varint(&c), num = cursor_varint(&c);
	struct commits list = { .prune_at = (uint32_t)prune_at };
	int r;

	if (!cursor_ok(&c) || prune_at > UINT32_MAX || num > cursor_left(&c) / 2)
		return -EBADMSG;
	r = decode_points(&c, num, &list);
	if (r == 0)
		r = decode_pages(&c, &list);
	if (r < 0) {
		commits_free(&list);
		return r;
	}
	*ret_commits = list;
	return 0;
}
