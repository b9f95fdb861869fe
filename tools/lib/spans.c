/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One store's file is a walk over its ranges. A job's is the share map, in which all is that the stores know (content_open), with the names
 * of processes from the layers, over the backing file, which shows where that has nothing. Neighbours of one writer whose records follow each other become one, so that a file that was written from its
 * first byte to its last is one span.
 */
#include "tools/lib/spans.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "format/base/array.h"
#include "format/codec/coverage.h"
#include "tools/lib/ranges.h"

#define EXTENTS_AT_ONCE 16384

void spans_free(struct spans *s)
{
	free(s->list);
	*s = (struct spans){ 0 };
}

static int join(struct span *last, const struct span *next)
{
	if (last->off + last->len != next->off || last->state != next->state || last->node != next->node ||
		last->process != next->process || (last->last_seq != next->seq && last->last_seq + 1 != next->seq))
		return 0;
	last->len += next->len;
	last->last_seq = next->last_seq;
	return 1;
}

static int add(struct spans *s, const struct span *span)
{
	if (span->len == 0 || (s->num > 0 && join(&s->list[s->num - 1], span)))
		return 0;
	if (array_room(&s->list, &s->cap, s->num, sizeof(*s->list)) < 0)
		return -ENOMEM;
	s->list[s->num++] = *span;
	return 0;
}

/* ---- processes */

struct writers {             /* of a file in a store */
	uint32_t *processes; /* owned; by number - 1 */
	size_t num;
};

static int writers_read(struct state *st, uint64_t ino, struct writers *ret)
{
	size_t num;
	int r = state_writers(st, ino, NULL, 0, &num);

	*ret = (struct writers){ 0 };
	if (r < 0 || num == 0)
		return r == -ENOENT ? 0 : r;
	ret->processes = malloc(num * sizeof(*ret->processes));
	if (!ret->processes)
		return -ENOMEM;
	ret->num = num;
	return state_writers(st, ino, ret->processes, num, &num);
}

static void writers_free(struct writers *w)
{
	free(w->processes);
}

static uint32_t process_of(const struct writers *w, uint32_t number)
{
	return number > 0 && number <= w->num ? w->processes[number - 1] : COVERAGE_NOBODY;
}

/* ---- one store */

struct gathering {
	const struct content *c;
	struct spans *spans;
	const struct writers *writers;
	uint32_t node;
};

static int add_data(uint64_t off, uint64_t len, void *arg, enum span_state state)
{
	const struct gathering *g = arg;
	struct span s = { .off = off, .len = len, .node = COVERAGE_NOBODY, .process = COVERAGE_NOBODY, .state = state };

	if (state == SPAN_LOGGED)
		s.node = g->node;
	return add(g->spans, &s);
}

static int add_backed(uint64_t off, uint64_t len, void *arg)
{
	return add_data(off, len, arg, SPAN_DRAINED);
}

static int add_private(uint64_t off, uint64_t len, void *arg)
{
	return add_data(off, len, arg, SPAN_LOGGED);
}

static int add_range(const struct range *r, void *arg)
{
	struct gathering *g = arg;
	struct span s = { .off = r->off, .len = r->len, .node = g->node, .process = COVERAGE_NOBODY };

	switch (r->kind) {
	case RANGE_LOG:
		s.seq = s.last_seq = r->ext->seq;
		s.process = process_of(g->writers, r->ext->writer);
		return add(g->spans, &s);
	case RANGE_PRIVATE: return content_each_private(g->c, add_private, g);
	case RANGE_BACKING: return content_each_backed(g->c, r->off, r->len, add_backed, g);
	default: return 0;
	}
}

/* ---- a job's file */

/* All of a share map. */
static int add_shared(struct state *st, uint64_t ino, struct spans *spans)
{
	struct share_extent *ext = malloc(EXTENTS_AT_ONCE * sizeof(*ext));
	uint64_t off = 0, next = 0;
	size_t num;
	int r = ext ? 0 : -ENOMEM;

	for (; r == 0 && off < INT64_MAX; off = next) {
		r = state_share_extents(st, ino, off, INT64_MAX - off, ext, EXTENTS_AT_ONCE, &num, &next);
		for (size_t i = 0; r == 0 && i < num; i++) {
			struct span s = {
				.off = ext[i].off, .len = ext[i].len, .node = ext[i].node, .process = COVERAGE_NOBODY
			};

			s.state = ext[i].kind == EXTENT_LOG ? SPAN_LOGGED : SPAN_HOLE;
			r = add(spans, &s);
		}
		if (next <= off)
			break;
	}
	free(ext);
	return r == -ENOENT ? 0 : r;
}

static int add_layer(struct state *st, uint64_t ino, uint32_t node, struct spans *spans)
{
	struct extent *ext = malloc(EXTENTS_AT_ONCE * sizeof(*ext));
	struct writers writers = { 0 };
	uint64_t off = 0, next = 0;
	size_t num;
	int r = ext ? writers_read(st, ino, &writers) : -ENOMEM;

	for (; r == 0 && off < INT64_MAX; off = next) {
		r = state_extents(st, ino, off, INT64_MAX - off, ext, EXTENTS_AT_ONCE, &num, &next);
		for (size_t i = 0; r == 0 && i < num; i++) {
			struct span s = { .off = ext[i].off, .len = ext[i].len, .node = node };

			s.seq = s.last_seq = ext[i].seq;
			s.process = process_of(&writers, ext[i].writer);
			s.state = ext[i].kind == EXTENT_LOG ? SPAN_LOGGED : SPAN_HOLE;
			if (ext[i].kind != EXTENT_BACKING)
				r = add(spans, &s);
		}
		if (next <= off)
			break;
	}
	writers_free(&writers);
	free(ext);
	return r == -ENOENT ? 0 : r;
}

/*
 * A share map does not say which process of a node wrote; that node's layer does. Spans of that node in map are cut along it.
 */
static int name_processes(const struct spans *map, const struct spans *layer, uint32_t node, struct spans *ret)
{
	size_t k = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < map->num; i++) {
		struct span s = map->list[i];
		uint64_t end = s.off + s.len;

		if (s.node != node || s.state != SPAN_LOGGED) {
			r = add(ret, &s);
			continue;
		}
		while (k < layer->num && layer->list[k].off + layer->list[k].len <= s.off)
			k++;
		for (size_t n = k; r == 0 && s.off < end; n++) {
			bool over = n >= layer->num || layer->list[n].off >= end;
			uint64_t from = over ? end : layer->list[n].off, to = over ? end : from + layer->list[n].len;

			s.process = COVERAGE_NOBODY;
			s.len = from > s.off ? from - s.off : 0;
			r = add(ret, &s);
			s.off += s.len;
			s.len = (to < end ? to : end) - s.off;
			if (!over)
				s.process = layer->list[n].process;
			if (r == 0)
				r = add(ret, &s);
			s.off += s.len;
		}
	}
	return r;
}

/* What of low no span of top covers, and all of top. */
static int merge_under(const struct spans *top, const struct spans *low, struct spans *ret)
{
	size_t i = 0;
	int r = 0;

	for (size_t k = 0; r == 0 && k < low->num; k++) {
		struct span s = low->list[k];
		uint64_t end = s.off + s.len;

		for (; r == 0 && i < top->num && top->list[i].off + top->list[i].len <= s.off; i++)
			r = add(ret, &top->list[i]);
		while (r == 0 && i < top->num && top->list[i].off < end) {
			if (top->list[i].off > s.off) {
				s.len = top->list[i].off - s.off;
				r = add(ret, &s);
			}
			s.off = top->list[i].off + top->list[i].len;
			if (s.off >= end)
				break;
			if (r == 0)
				r = add(ret, &top->list[i++]);
		}
		s.len = s.off < end ? end - s.off : 0;
		if (r == 0)
			r = add(ret, &s);
	}
	for (; r == 0 && i < top->num; i++)
		r = add(ret, &top->list[i]);
	return r;
}

/* Puts low under what is there; low is used up. */
static int put_under(struct spans *pile, struct spans *low)
{
	struct spans merged = { 0 };
	int r = merge_under(pile, low, &merged);

	spans_free(low);
	if (r < 0) {
		spans_free(&merged);
		return r;
	}
	spans_free(pile);
	*pile = merged;
	return 0;
}

/* The map learns from each layer what its processes are. */
static int name_all(const struct content *c, struct spans *map)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < c->stores->num; i++) {
		struct store *s = c->stores->list[i].store;
		struct spans layer = { 0 }, named = { 0 };
		uint32_t node = store_superblock(s)->node_index;

		r = add_layer(store_state(s), c->in.ino, node, &layer);
		if (r == 0)
			r = name_processes(map, &layer, node, &named);
		if (r == 0) {
			spans_free(map);
			*map = named;
			named = (struct spans){ 0 };
		}
		spans_free(&named);
		spans_free(&layer);
	}
	return r;
}

static int gather_job(const struct content *c, struct spans *ret)
{
	struct spans low = { 0 };
	struct gathering g = { .c = c, .spans = &low };
	int r = add_shared(store_state(c->store), c->in.ino, ret);

	if (r == 0)
		r = name_all(c, ret);
	if (r == 0 && c->size > 0)
		r = content_each_backed(c, 0, c->size, add_backed, &g);
	if (r == 0)
		r = put_under(ret, &low);
	spans_free(&low);
	return r;
}

static int gather_one(const struct content *c, struct spans *ret)
{
	struct writers writers;
	struct gathering g = { c, ret, &writers, store_superblock(c->store)->node_index };
	int r;

	if (c->in.ino == 0)
		return content_each_backed(c, 0, c->size, add_backed, &g);
	r = writers_read(store_state(c->store), c->in.ino, &writers);
	if (r == 0)
		r = ranges_each(store_state(c->store), &c->in, c->size, add_range, &g);
	writers_free(&writers);
	return r;
}

/* Holes and what lies behind the end go. */
static void tidy(struct spans *s, uint64_t size)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->num; i++) {
		struct span span = s->list[i];

		if (span.state == SPAN_HOLE || span.off >= size)
			continue;
		if (span.len > size - span.off)
			span.len = size - span.off;
		s->list[kept++] = span;
	}
	s->num = kept;
}

int spans_gather(const struct content *c, struct spans *ret)
{
	struct spans spans = { 0 };
	int r = c->shared ? gather_job(c, &spans) : gather_one(c, &spans);

	if (r < 0) {
		spans_free(&spans);
		return r;
	}
	tidy(&spans, c->size);
	*ret = spans;
	return 0;
}
