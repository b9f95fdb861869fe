/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One page of a share map: a sorted array. The invariant, before and after every function: extents are sorted, do not
 * overlap, are not empty and lie within one page of EXTENT_PAGE_SPAN bytes.
 *
 * Commits come as long sorted lists, and from many nodes in turn. So a change is not an insertion but one pass over two
 * sorted lists, the new extents and those that lie between their ends; wherever two overlap the higher (time, stamp, node)
 * stays, and the other keeps what sticks out. The outcome for a byte depends on what was ever put there, not on the
 * order. Of one commit's own parts the later one counts; a commit that is told again must be told whole.
 *
 * Bytes of an encoded page (varints are LEB128, svarints zigzag): varint number; then for each extent
 *   varint gap      from the end of the one before, or from the start of the page
 *   varint len
 *   u8     kind | 0x80 when whole | 0x40 when node, stamp and base are those of the one before
 *          | 0x20 when the time is not that of the one before (0 for the first)
 *   unless 0x40: varint node, varint stamp, varint stamp less base
 *   with 0x20: svarint time less the time of the one before
 *   LOG only: svarint segment less the segment of the last LOG extent; svarint segment_off less its end; u32 crc when whole
 */
#include "format/index/share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/index/extent.h"

#define WHOLE_BIT         0x80u
#define SAME_BIT          0x40u
#define TIME_BIT          0x20u
#define MIN_ENCODED_BYTES 3 /* gap, len, kind */

static uint64_t end_of(const struct share_extent *e)
{
	return e->off + e->len;
}

void share_page_free(struct share_page *p)
{
	if (!p)
		return;
	free(p->ext);
	*p = (struct share_page){ 0 };
}

uint32_t share_page_find(const struct share_page *p, uint64_t off)
{
	uint32_t low = 0, high = p->num;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (end_of(&p->ext[mid]) <= off)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct share_extent share_extent_clip(const struct share_extent *e, uint64_t off, uint64_t end)
{
	uint64_t from = e->off > off ? e->off : off, to = end_of(e) < end ? end_of(e) : end;
	struct share_extent part = *e;

	if (to - from == e->len)
		return part;
	if (e->kind == EXTENT_LOG)
		part.segment_off += from - e->off;
	part.off = from;
	part.len = (uint32_t)(to - from);
	part.whole = false;
	part.crc = 0;
	return part;
}

static int reserve(struct share_page *p, size_t num)
{
	struct share_extent *ext;
	size_t cap = p->cap + p->cap / 2 + 2;

	if (num <= p->cap)
		return 0;
	if (cap < num)
		cap = num;
	if (cap > UINT32_MAX)
		return -ENOMEM;
	ext = realloc(p->ext, cap * sizeof *ext);
	if (!ext)
		return -ENOMEM;
	p->ext = ext;
	p->cap = (uint32_t)cap;
	return 0;
}

/* ---- merging */

/*
 * What a node commits at once does not overlap. So two of one commit are the same bytes: as a witness was told of them, joined to runs, and
 * as they are, which recovery puts in behind that.
 */
bool share_extent_wins(const struct share_extent *a, const struct share_extent *over)
{
	if (a->node == over->node && a->stamp == over->stamp)
		return true;
	if (a->time_usec != over->time_usec)
		return a->time_usec > over->time_usec;
	return a->stamp != over->stamp ? a->stamp > over->stamp : a->node > over->node;
}

static bool conflict(const struct share_extent *winner, const struct share_extent *loser)
{
	return winner->node != loser->node && winner->stamp != loser->stamp && winner->base < loser->stamp &&
	       loser->base < winner->stamp;
}

/* One of the two lists, and what is left of its first extent. */
struct source {
	const struct share_extent *next, *last;
	struct share_extent now;
	bool more;
};

static void advance(struct source *s)
{
	s->more = s->next < s->last;
	if (s->more)
		s->now = *s->next++;
}

struct merging {
	struct source old, new;
	struct share_extent *out;
	size_t num;
	int (*met)(const struct share_conflict *c, void *arg);
	void *arg;
};

static int tell(const struct merging *m, const struct share_extent *winner, const struct share_extent *loser)
{
	uint64_t from = winner->off > loser->off ? winner->off : loser->off;
	uint64_t to = end_of(winner) < end_of(loser) ? end_of(winner) : end_of(loser);
	struct share_conflict c = { .off = from, .len = to - from, .node = winner->node, .other = loser->node };

	return m->met && conflict(winner, loser) ? m->met(&c, m->arg) : 0;
}

/*
 * Nobody keeps the base of what he has written: when a daemon has been restarted, all tell what they have committed again, with 0. Of bytes that are
 * here already the base is known.
 */
static void keep_base(struct share_extent *winner, const struct share_extent *loser)
{
	if (winner->node == loser->node && winner->stamp == loser->stamp && winner->base < loser->base)
		winner->base = loser->base;
}

/* The two overlap. The loser's part before the winner is done; its part behind is left, or its next extent is looked at. */
static int resolve(struct merging *m, struct source *winner, struct source *loser)
{
	uint64_t end = end_of(&winner->now);
	int r = tell(m, &winner->now, &loser->now);

	if (r < 0)
		return r;
	keep_base(&winner->now, &loser->now);
	if (loser->now.off < winner->now.off)
		m->out[m->num++] = share_extent_clip(&loser->now, 0, winner->now.off);
	if (end_of(&loser->now) > end)
		loser->now = share_extent_clip(&loser->now, end, UINT64_MAX);
	else
		advance(loser);
	return 0;
}

static void emit(struct merging *m, struct source *s)
{
	m->out[m->num++] = s->now;
	advance(s);
}

static int merge(struct merging *m)
{
	struct source *old = &m->old, *new = &m->new;
	int r = 0;

	advance(old);
	advance(new);
	while (r == 0 && (old->more || new->more)) {
		if (!new->more || (old->more && end_of(&old->now) <= new->now.off))
			emit(m, old);
		else if (!old->more || end_of(&new->now) <= old->now.off)
			emit(m, new);
		else if (share_extent_wins(&new->now, &old->now))
			r = resolve(m, new, old);
		else
			r = resolve(m, old, new);
	}
	return r;
}

/* Instead of the extents i to j - 1. */
static int splice(struct share_page *p, uint32_t i, uint32_t j, const struct share_extent *ext, size_t num)
{
	int r = reserve(p, p->num - (j - i) + num);

	if (r < 0)
		return r;
	if (j < p->num && j - i != num)
		memmove(p->ext + i + num, p->ext + j, (p->num - j) * sizeof *p->ext);
	memcpy(p->ext + i, ext, num * sizeof *ext);
	p->num = (uint32_t)(p->num - (j - i) + num);
	return 0;
}

int share_page_put(struct share_page *p, const struct share_extent *ext, size_t num,
	int (*met)(const struct share_conflict *c, void *arg), void *arg)
{
	struct merging m = { .met = met, .arg = arg };
	uint32_t i, j;
	int r;

	if (num == 0)
		return 0;
	i = share_page_find(p, ext[0].off);
	j = share_page_find(p, end_of(&ext[num - 1]));
	if (j < p->num && p->ext[j].off < end_of(&ext[num - 1]))
		j++;
	if (i == j)
		return splice(p, i, j, ext, num);
	m.old = (struct source){ .next = p->ext + i, .last = p->ext + j };
	m.new = (struct source){ .next = ext, .last = ext + num };
	m.out = malloc(2 * (num + (j - i)) * sizeof *m.out); /* each begins or ends where one of them did */
	if (!m.out)
		return -ENOMEM;
	r = merge(&m);
	if (r == 0)
		r = splice(p, i, j, m.out, m.num);
	free(m.out);
	return r;
}

void share_page_lose(struct share_page *p, uint32_t node)
{
	uint32_t num = 0;

	for (uint32_t i = 0; i < p->num; i++)
		if (p->ext[i].node != node && node != SHARE_ALL_NODES)
			p->ext[num++] = p->ext[i];
	p->num = num;
}

void share_page_cut(struct share_page *p, uint64_t off, uint64_t stamp, uint64_t upto_usec)
{
	uint32_t i = share_page_find(p, off), num = i;

	for (; i < p->num; i++) {
		const struct share_extent *e = &p->ext[i];

		if (e->stamp >= stamp || e->time_usec > upto_usec)
			p->ext[num++] = *e;
		else if (e->off < off)
			p->ext[num++] = share_extent_clip(e, 0, off);
	}
	p->num = num;
}

/* ---- bytes */

static bool same_commit(const struct share_extent *a, const struct share_extent *b)
{
	return a->node == b->node && a->stamp == b->stamp && a->base == b->base;
}

int share_page_encode(const struct share_page *p, uint64_t page_no, struct buf *out)
{
	uint64_t end = page_no * EXTENT_PAGE_SPAN, segment_end = 0, time = 0;
	uint32_t segment = 0;

	buf_varint(out, p->num);
	for (uint32_t i = 0; i < p->num; i++) {
		const struct share_extent *e = &p->ext[i];
		bool same = i > 0 && same_commit(e, e - 1);

		buf_varint(out, e->off - end);
		buf_varint(out, e->len);
		buf_u8(out, (uint8_t)(e->kind | (e->whole ? WHOLE_BIT : 0) | (same ? SAME_BIT : 0) |
				      (e->time_usec != time ? TIME_BIT : 0)));
		end = end_of(e);
		if (!same) {
			buf_varint(out, e->node);
			buf_varint(out, e->stamp);
			buf_varint(out, e->stamp - e->base);
		}
		if (e->time_usec != time)
			buf_svarint(out, (int64_t)(e->time_usec - time));
		time = e->time_usec;
		if (e->kind != EXTENT_LOG)
			continue;
		buf_svarint(out, (int64_t)e->segment - (int64_t)segment);
		buf_svarint(out, (int64_t)(e->segment_off - segment_end));
		if (e->whole)
			buf_u32(out, e->crc);
		segment = e->segment;
		segment_end = e->segment_off + e->len;
	}
	return buf_ok(out) ? 0 : -ENOMEM;
}

/* What one extent's bytes are relative to. */
struct decoding {
	uint64_t end, time, segment_end, limit;
	uint32_t segment;
	const struct share_extent *before; /* NULL: the first */
};

static void decode_commit(struct cursor *c, const struct decoding *d, bool same, struct share_extent *e)
{
	uint64_t node, age;

	if (same && !d->before)
		cursor_fail(c);
	if (same && d->before) {
		e->node = d->before->node;
		e->stamp = d->before->stamp;
		e->base = d->before->base;
		return;
	}
	node = cursor_varint(c);
	e->node = (uint32_t)node;
	e->stamp = cursor_varint(c);
	age = cursor_varint(c);
	e->base = e->stamp - age;
	if (node > UINT32_MAX || age == 0 || age > e->stamp)
		cursor_fail(c);
}

static void decode_time(struct cursor *c, struct decoding *d)
{
	int64_t later = cursor_svarint(c);

	if (later == 0)
		cursor_fail(c);
	d->time += (uint64_t)later;
}

static void decode_place(struct cursor *c, struct decoding *d, struct share_extent *e)
{
	int64_t segment = (int64_t)((uint64_t)d->segment + (uint64_t)cursor_svarint(c));

	e->segment_off = d->segment_end + (uint64_t)cursor_svarint(c);
	if (segment <= 0 || segment > UINT32_MAX || e->segment_off > UINT64_MAX - e->len)
		cursor_fail(c);
	e->segment = (uint32_t)segment;
	if (e->whole)
		e->crc = cursor_u32(c);
	d->segment = e->segment;
	d->segment_end = e->segment_off + e->len;
}

static void decode_extent(struct cursor *c, struct decoding *d, struct share_extent *e)
{
	uint64_t gap = cursor_varint(c), len = cursor_varint(c);
	uint8_t kind = cursor_u8(c);

	*e = (struct share_extent){ .kind = kind & (uint8_t) ~(WHOLE_BIT | SAME_BIT | TIME_BIT),
		.whole = kind & WHOLE_BIT };
	decode_commit(c, d, kind & SAME_BIT, e);
	if (kind & TIME_BIT)
		decode_time(c, d);
	e->time_usec = d->time;
	if (gap > d->limit - d->end || len == 0 || len > d->limit - d->end - gap || e->kind > EXTENT_HOLE ||
		(e->whole && e->kind != EXTENT_LOG)) {
		cursor_fail(c);
		return;
	}
	e->off = d->end + gap;
	e->len = (uint32_t)len;
	d->end = end_of(e);
	d->before = e;
	if (e->kind == EXTENT_LOG)
		decode_place(c, d, e);
}

int share_page_decode(const void *val, size_t len, uint64_t page_no, struct share_page *ret_page)
{
	struct cursor c = cursor_make(val, len);
	struct share_page p = { 0 };
	struct decoding d = { 0 };
	uint64_t num = cursor_varint(&c);
	int r;

	if (!cursor_ok(&c) || page_no > UINT64_MAX / EXTENT_PAGE_SPAN - 1 ||
		num > cursor_left(&c) / MIN_ENCODED_BYTES || num > EXTENT_PAGE_SPAN)
		return -EBADMSG;
	d.end = page_no * EXTENT_PAGE_SPAN;
	d.limit = d.end + EXTENT_PAGE_SPAN;
	r = reserve(&p, num);
	if (r < 0)
		return r;
	for (uint64_t i = 0; i < num && cursor_ok(&c); i++)
		decode_extent(&c, &d, &p.ext[p.num++]);
	if (!cursor_ok(&c) || cursor_left(&c) > 0) {
		share_page_free(&p);
		return -EBADMSG;
	}
	*ret_page = p;
	return 0;
}
