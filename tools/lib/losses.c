/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A checksum is of a whole payload, and a reader that wants a part of one cannot tell damage from other bytes. So payloads are looked at
 * whole, and only where there is a doubt: a read that failed, or bytes that make no sense. No extent reaches over the end of a page.
 */
#include "tools/lib/losses.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"
#include "tools/lib/content.h"

#define EXTENTS_AT_ONCE 1024u

struct look {
	struct content *c;
	uint64_t off, end;
	uint64_t first;
	uint8_t *payload; /* owned; EXTENT_PAGE_SPAN bytes */
};

const char *loss_why_name(enum loss_why why)
{
	static const char *const names[] = {
		[LOSS_NOT_GIVEN] = "store not given",
		[LOSS_GONE] = "segment missing",
		[LOSS_DAMAGED] = "checksum wrong",
	};

	return names[why];
}

static bool continues(const struct loss *a, const struct loss *b)
{
	return a->off + a->len == b->off && a->node == b->node && a->why == b->why && a->segment == b->segment;
}

static void add(struct losses *to, const struct loss *one)
{
	size_t at = 0;

	while (at < to->num && to->list[at].off + to->list[at].len <= one->off)
		at++;
	if (at < to->num && to->list[at].off < one->off + one->len)
		return; /* known */
	if (at > 0 && continues(&to->list[at - 1], one)) {
		to->list[at - 1].len += one->len;
		return;
	}
	if (to->num == LOSSES_MAX) {
		to->more = true;
		return;
	}
	memmove(&to->list[at + 1], &to->list[at], (to->num - at) * sizeof(to->list[0]));
	to->list[at] = *one;
	to->num++;
}

/* In whose store the payload is; NULL: not given. */
static struct store *store_of(const struct content *c, uint32_t node)
{
	if (!c->shared)
		return c->store;
	return node < c->stores->num_nodes ? c->stores->by_node[node] : NULL;
}

static bool can_be_had(struct look *l, const struct share_extent *e, enum loss_why *ret_why)
{
	struct store *s = store_of(l->c, e->node);

	*ret_why = LOSS_NOT_GIVEN;
	if (!s)
		return false;
	*ret_why = LOSS_GONE;
	if (segment_read(store_segments(s), e->segment, e->segment_off, l->payload, e->len) < 0)
		return false;
	*ret_why = LOSS_DAMAGED;
	return !e->whole || crc32c(0, l->payload, e->len) == e->crc;
}

static void look_at(struct look *l, const struct share_extent *e)
{
	struct loss one = { .off = e->off, .len = e->len, .node = e->node };

	if (e->kind != EXTENT_LOG || e->off >= l->end || e->off + e->len <= l->off || e->len > EXTENT_PAGE_SPAN ||
		can_be_had(l, e, &one.why))
		return;
	if (one.why != LOSS_NOT_GIVEN)
		one.segment = e->segment;
	if (e->off < l->first)
		l->first = e->off > l->off ? e->off : l->off;
	add(&l->c->losses, &one);
}

/* Of a job's file all are in the share map, of another one in the inode. */
static int next_extents(const struct content *c, uint64_t off, uint64_t end, struct share_extent *out, size_t *ret_num,
	uint64_t *ret_next)
{
	struct state *st = store_state(c->store);
	struct extent *own;
	int r;

	if (c->shared)
		return state_share_extents(st, c->in.ino, off, end - off, out, EXTENTS_AT_ONCE, ret_num, ret_next);
	own = malloc(EXTENTS_AT_ONCE * sizeof(*own));
	if (!own)
		return -ENOMEM;
	r = state_extents(st, c->in.ino, off, end - off, own, EXTENTS_AT_ONCE, ret_num, ret_next);
	for (size_t i = 0; r == 0 && i < *ret_num; i++)
		out[i] = share_extent_of(&own[i], store_superblock(c->store)->node_index);
	free(own);
	return r;
}

static int look_through(struct look *l, struct share_extent *ext)
{
	uint64_t at = l->off / EXTENT_PAGE_SPAN * EXTENT_PAGE_SPAN, next = at;
	uint64_t end = (l->end + EXTENT_PAGE_SPAN - 1) / EXTENT_PAGE_SPAN * EXTENT_PAGE_SPAN;
	size_t num;
	int r = 0;

	for (; r == 0 && at < end; at = next) {
		r = next_extents(l->c, at, end, ext, &num, &next);
		for (size_t i = 0; r == 0 && i < num; i++)
			look_at(l, &ext[i]);
		if (next <= at)
			break;
	}
	return r == -ENOENT ? 0 : r;
}

/* All of a private file is one segment. */
static void look_at_private(struct look *l)
{
	struct content *c = l->c;
	struct loss all = { .len = c->size,
		.node = store_superblock(c->store)->node_index,
		.segment = c->in.private_segment,
		.why = LOSS_GONE };

	if (c->private_fd >= 0 || c->size == 0)
		return;
	l->first = l->off;
	add(&c->losses, &all);
}

int losses_look(struct content *c, uint64_t off, uint64_t end, uint64_t *ret_first)
{
	struct look l = { .c = c, .off = off, .end = end, .first = end };
	struct share_extent *ext = malloc(EXTENTS_AT_ONCE * sizeof(*ext));
	int r = 0;

	l.payload = malloc(EXTENT_PAGE_SPAN);
	if (!ext || !l.payload)
		r = -ENOMEM;
	else if (c->in.flags & INODE_PRIVATE)
		look_at_private(&l);
	else if (off < end)
		r = look_through(&l, ext);
	free(l.payload);
	free(ext);
	if (r == 0)
		*ret_first = l.first;
	return r;
}
