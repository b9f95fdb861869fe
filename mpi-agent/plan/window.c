/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * From extents to windows. The state is asked for some thousand extents at a time, so that a file of 10^8 extents costs
 * no more memory than a small one. Ranges between extents are the backing file's below backing_limit and zeros from there
 * on; a new file simply leaves those out.
 *
 * Invariant of a window: pieces rise in the file, and what lies side by side in the file lies side by side in the
 * buffer, so one write carries as much as the file is contiguous.
 */
#include "mpi-agent/plan/window.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/index/extent.h"
#include "format/place/place.h"
#include "format/wire/wire.h"

#define EXTENTS_AT_ONCE 4096

struct window_plan {
	struct window_plan_options opt;
	union {
		struct extent own[EXTENTS_AT_ONCE];
		struct share_extent shared[EXTENTS_AT_ONCE];
	} ext;
	size_t num, at;       /* extents not yet used: ext[at..num) */
	uint64_t next;        /* the state is to be asked from here on */
	uint64_t pos;         /* bytes before are planned */
	struct piece waiting; /* did not fit any more; len 0: none */
};

void window_free(struct window *w)
{
	free(w->pieces);
	*w = (struct window){ 0 };
}

void window_reset(struct window *w)
{
	w->num = 0;
	w->bytes = 0;
}

/* What lies in a log is fetched from other nodes piece by piece. */
static_assert(EXTENT_PAGE_SPAN <= WIRE_FETCH_BYTES, "an extent is fetched at once");

static bool continues(const struct piece *a, const struct piece *b)
{
	if (a->source != b->source || a->whole || b->whole || a->off + a->len != b->off || b->len > UINT32_MAX - a->len)
		return false;
	return a->source != PIECE_LOG || (a->len + b->len <= EXTENT_PAGE_SPAN && a->node == b->node &&
						 a->segment == b->segment && a->segment_off + a->len == b->segment_off);
}

int window_add(struct window *w, const struct piece *p)
{
	struct piece *last = w->num > 0 ? &w->pieces[w->num - 1] : NULL;

	if (last && continues(last, p)) {
		last->len += p->len;
	} else {
		if (w->num == w->cap) {
			uint32_t cap = w->cap ? 2 * w->cap : 64;
			struct piece *grown = reallocarray(w->pieces, cap, sizeof(*grown));

			if (!grown)
				return -ENOMEM;
			w->pieces = grown;
			w->cap = cap;
		}
		w->pieces[w->num] = *p;
		w->pieces[w->num++].at = w->bytes;
	}
	if (p->source != PIECE_HOLE)
		w->bytes += p->len;
	return 0;
}

int window_plan_create(const struct window_plan_options *opt, struct window_plan **ret)
{
	struct window_plan *plan = malloc(sizeof(*plan));

	if (!plan)
		return -ENOMEM;
	plan->opt = *opt;
	plan->num = plan->at = 0;
	plan->next = plan->pos = opt->from;
	plan->waiting = (struct piece){ 0 };
	*ret = plan;
	return 0;
}

void window_plan_destroy(struct window_plan *plan)
{
	free(plan);
}

/* A node's map has more than its domains: what others told it as a witness. */
static void keep_own_domains(struct window_plan *plan)
{
	const struct window_plan_options *o = &plan->opt;
	struct share_extent *ext = plan->ext.shared;
	size_t kept = 0;

	for (size_t i = 0; i < plan->num; i++)
		if (place_domain(o->ino, ext[i].off, o->domain_size, o->num_nodes) == o->node)
			ext[kept++] = ext[i];
	plan->num = kept;
}

static int ask_shared(struct window_plan *plan, uint64_t len)
{
	const struct window_plan_options *o = &plan->opt;
	int r = state_share_extents(
		o->st, o->ino, plan->next, len, plan->ext.shared, EXTENTS_AT_ONCE, &plan->num, &plan->next);

	if (r == 0 && o->num_nodes > 0)
		keep_own_domains(plan);
	return r;
}

/* Fills plan->ext. */
static int ask_state(struct window_plan *plan)
{
	const struct window_plan_options *o = &plan->opt;
	uint64_t len = o->to - plan->next;

	plan->at = 0;
	if (o->shared)
		return ask_shared(plan, len);
	return state_extents(o->st, o->ino, plan->next, len, plan->ext.own, EXTENTS_AT_ONCE, &plan->num, &plan->next);
}

/* The extent that comes next, and whose; false in *ret_any: there is none. */
static int peek_extent(struct window_plan *plan, struct extent *ret, uint32_t *ret_node, bool *ret_any)
{
	const struct share_extent *e;
	int r;

	while (plan->at == plan->num && plan->next < plan->opt.to) {
		r = ask_state(plan);
		if (r < 0)
			return r;
	}
	*ret_any = plan->at < plan->num;
	*ret_node = plan->opt.node;
	if (!*ret_any)
		return 0;
	if (!plan->opt.shared) {
		*ret = plan->ext.own[plan->at];
		return 0;
	}
	e = &plan->ext.shared[plan->at];
	*ret = (struct extent){ .off = e->off,
		.segment_off = e->segment_off,
		.len = e->len,
		.segment = e->segment,
		.crc = e->crc,
		.kind = e->kind,
		.whole = e->whole };
	*ret_node = e->node;
	return 0;
}

/* A piece of the backing file from pos on: within one page, up to the next extent. False: none is wanted there. */
static bool base_piece(struct window_plan *plan, uint64_t gap_end, struct piece *ret)
{
	uint64_t limit = plan->opt.backing_limit < gap_end ? plan->opt.backing_limit : gap_end;
	uint64_t page_end = (plan->pos / EXTENT_PAGE_SPAN + 1) * EXTENT_PAGE_SPAN;

	if (!plan->opt.base || plan->pos >= limit) {
		plan->pos = gap_end;
		return false;
	}
	if (page_end < limit)
		limit = page_end;
	*ret = (struct piece){ .source = PIECE_BASE, .off = plan->pos, .len = (uint32_t)(limit - plan->pos) };
	plan->pos = limit;
	return true;
}

static bool extent_piece(struct window_plan *plan, const struct extent *e, uint32_t node, struct piece *ret)
{
	*ret = (struct piece){ .off = e->off,
		.len = e->len,
		.segment = e->segment,
		.node = node,
		.segment_off = e->segment_off,
		.crc = e->crc,
		.whole = e->whole && e->kind == EXTENT_LOG };
	plan->pos = e->off + e->len;
	switch (e->kind) {
	case EXTENT_LOG: ret->source = PIECE_LOG; return true;
	case EXTENT_HOLE: ret->source = PIECE_HOLE; return plan->opt.holes;
	default: ret->source = PIECE_BASE; return plan->opt.base;
	}
}

/* The next piece of the file; len 0 at the end. */
static int next_piece(struct window_plan *plan, struct piece *ret)
{
	struct extent e;
	uint32_t node;
	bool any;
	int r;

	for (;;) {
		r = peek_extent(plan, &e, &node, &any);
		if (r < 0)
			return r;
		if (plan->pos < (any ? e.off : plan->opt.to)) {
			if (base_piece(plan, any ? e.off : plan->opt.to, ret))
				return 0;
			continue;
		}
		if (!any) {
			*ret = (struct piece){ 0 };
			return 0;
		}
		plan->at++;
		if (extent_piece(plan, &e, node, ret))
			return 0;
	}
}

/* Does p begin a page that might not find room whole? */
static bool is_full(const struct window *w, const struct piece *p, size_t cap_bytes)
{
	const struct piece *last;
	size_t len = p->source == PIECE_HOLE ? 0 : p->len;

	if (w->num == 0)
		return false;
	last = &w->pieces[w->num - 1];
	if (w->num >= WINDOW_PIECES_MAX || w->bytes + len > cap_bytes)
		return true;
	return (last->off + last->len - 1) / EXTENT_PAGE_SPAN != p->off / EXTENT_PAGE_SPAN &&
	       w->bytes + EXTENT_PAGE_SPAN > cap_bytes;
}

int window_plan_next(struct window_plan *plan, size_t cap_bytes, struct window *w, bool *ret_last)
{
	struct piece p = plan->waiting;
	int r = 0;

	window_reset(w);
	if (p.len == 0)
		r = next_piece(plan, &p);
	while (r == 0 && p.len > 0 && !is_full(w, &p, cap_bytes)) {
		r = window_add(w, &p);
		if (r == 0)
			r = next_piece(plan, &p);
	}
	if (r < 0)
		return r;
	plan->waiting = p;
	*ret_last = p.len == 0;
	return 0;
}

static int compare_places(const void *a, const void *b, void *arg)
{
	const struct piece *pieces = arg;
	const struct piece *x = &pieces[*(const uint32_t *)a], *y = &pieces[*(const uint32_t *)b];

	if (x->node != y->node)
		return x->node < y->node ? -1 : 1;
	if (x->segment != y->segment)
		return x->segment < y->segment ? -1 : 1;
	return (x->segment_off > y->segment_off) - (x->segment_off < y->segment_off);
}

void window_read_order(const struct window *w, uint32_t *order, uint32_t *ret_num)
{
	bool sorted = true;
	uint32_t num = 0;

	for (uint32_t i = 0; i < w->num; i++) {
		if (w->pieces[i].source != PIECE_LOG)
			continue;
		order[num++] = i;
		if (num > 1 && compare_places(&order[num - 2], &order[num - 1], w->pieces) > 0)
			sorted = false;
	}
	if (!sorted)
		qsort_r(order, num, sizeof(*order), compare_places, w->pieces);
	*ret_num = num;
}

uint32_t window_read_run(const struct window *w, const uint32_t *order, uint32_t num, uint32_t at, uint32_t max)
{
	uint32_t n = 1;

	while (at + n < num && n < max) {
		const struct piece *a = &w->pieces[order[at + n - 1]], *b = &w->pieces[order[at + n]];

		if (a->node != b->node || a->segment != b->segment || a->segment_off + a->len != b->segment_off)
			break;
		n++;
	}
	return n;
}

static bool has_bytes(const struct piece *p)
{
	return p->source == PIECE_LOG || p->source == PIECE_BASE;
}

uint32_t window_write_run(const struct window *w, uint32_t at, uint64_t *ret_bytes)
{
	const struct piece *p = w->pieces;
	uint32_t n = 1;

	*ret_bytes = p[at].len;
	if (!has_bytes(&p[at]))
		return 1;
	while (at + n < w->num && has_bytes(&p[at + n]) && p[at + n - 1].off + p[at + n - 1].len == p[at + n].off) {
		*ret_bytes += p[at + n].len;
		n++;
	}
	return n;
}

/* Calls each for every extent of [from, to) in order. */
static int each_extent(struct state *st, uint64_t ino, uint64_t from, uint64_t to,
	int (*each)(const struct extent *e, void *arg), void *arg)
{
	struct extent *ext = malloc(EXTENTS_AT_ONCE * sizeof(*ext));
	size_t num;
	int r = ext ? 0 : -ENOMEM;

	while (r == 0 && from < to) {
		r = state_extents(st, ino, from, to - from, ext, EXTENTS_AT_ONCE, &num, &from);
		for (size_t i = 0; r == 0 && i < num; i++)
			r = each(&ext[i], arg);
	}
	free(ext);
	return r;
}

struct stale {
	struct gap *gaps;
	size_t num, cap;
	size_t good;   /* gaps below the last EXTENT_BACKING */
	uint64_t pos;  /* end of the last extent */
	uint64_t tail; /* end of the last EXTENT_BACKING */
};

static int add_stale(const struct extent *e, void *arg)
{
	struct stale *s = arg;

	if (e->off > s->pos) {
		if (array_room(&s->gaps, &s->cap, s->num, sizeof(*s->gaps)) < 0)
			return -ENOMEM;
		s->gaps[s->num++] = (struct gap){ s->pos, e->off - s->pos };
	}
	s->pos = e->off + e->len;
	if (e->kind == EXTENT_BACKING) {
		s->tail = s->pos;
		s->good = s->num;
	}
	return 0;
}

int window_stale_ranges(struct state *st, uint64_t ino, uint64_t limit, uint64_t end, struct gap **ret, size_t *ret_num,
	uint64_t *ret_tail)
{
	struct stale s = { .pos = limit, .tail = limit };
	int r = limit < end ? each_extent(st, ino, limit, end, add_stale, &s) : 0;

	if (r < 0) {
		free(s.gaps);
		return r;
	}
	*ret = s.gaps;
	*ret_num = s.good;
	*ret_tail = s.tail;
	return 0;
}

static int is_carried(const struct extent *e, void *arg)
{
	(void)arg;
	return e->kind == EXTENT_BACKING;
}

int window_has_carried(struct state *st, uint64_t ino)
{
	return each_extent(st, ino, 0, INT64_MAX, is_carried, NULL);
}

struct count {
	uint64_t bytes, extents;
};

static int count_extent(const struct extent *e, void *arg)
{
	struct count *c = arg;

	c->bytes += e->kind == EXTENT_LOG ? e->len : 0;
	c->extents += e->kind != EXTENT_BACKING;
	return 0;
}

int window_count(struct state *st, uint64_t ino, uint64_t size, uint64_t *ret_bytes, uint64_t *ret_extents)
{
	struct count c = { 0 };
	int r = size > 0 ? each_extent(st, ino, 0, size, count_extent, &c) : 0;

	if (r < 0)
		return r;
	*ret_bytes = c.bytes;
	*ret_extents = c.extents;
	return 0;
}
