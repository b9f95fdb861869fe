/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Runs of a blob, and the index over them. Writers sort their runs as a rule, then a range is found by halving; where they
 * have not, all chunks are looked at, which is one in 256 of the runs.
 */
#include "mpi-agent/plan/runs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static int check_run(uint64_t i, uint64_t off, uint64_t len, uint64_t elements, struct cistern_error *err)
{
	if (off > elements || len > elements - off)
		return cistern_error_set(err, -EBADMSG,
			"run %" PRIu64 ": %" PRId64 " elements from %" PRId64 " on, of %" PRIu64, i, (int64_t)len,
			(int64_t)off, elements);
	return 0;
}

static int index_runs(struct runs_index *x, uint64_t elements, struct cistern_error *err)
{
	uint64_t at = 0, end = 0;

	x->low = UINT64_MAX;
	x->sorted = true;
	for (uint64_t i = 0; i < x->runs.num; i++) {
		struct runs_chunk *c = &x->chunks[i / RUNS_CHUNK];
		uint64_t off, len;
		int r;

		runs_get(&x->runs, i, &off, &len);
		r = check_run(i, off, len, elements, err);
		if (r < 0)
			return r;
		if (i % RUNS_CHUNK == 0)
			*c = (struct runs_chunk){ .low = off, .high = off, .at = at };
		x->sorted = x->sorted && off >= end;
		end = off + len;
		c->low = off < c->low ? off : c->low;
		c->high = end > c->high ? end : c->high;
		x->low = off < x->low ? off : x->low;
		x->high = end > x->high ? end : x->high;
		at += len; /* the sum of num lengths below 2^63 each: checked against count as it grows */
		if (at > x->count)
			break;
	}
	if (at != x->count)
		return cistern_error_set(err, -EBADMSG, "its runs have %s elements than the %" PRIu64 " of the blob",
			at > x->count ? "more" : "less", x->count);
	return 0;
}

int runs_index_build(
	const struct runs *runs, uint64_t elements, uint64_t count, struct runs_index *ret, struct cistern_error *err)
{
	struct runs_index x = { .runs = *runs, .count = count };
	int r;

	x.num_chunks = (size_t)((runs->num + RUNS_CHUNK - 1) / RUNS_CHUNK);
	x.chunks = calloc(x.num_chunks + 1, sizeof(*x.chunks));
	r = x.chunks ? index_runs(&x, elements, err) : -ENOMEM;
	if (r < 0)
		runs_index_destroy(&x);
	else
		*ret = x;
	return r;
}

void runs_index_destroy(struct runs_index *x)
{
	if (!x)
		return;
	free(x->chunks);
	*x = (struct runs_index){ 0 };
}

/* ---- spans */

struct walk {
	const struct runs_index *x;
	uint64_t from, to, max;
	struct runs_span span; /* being made; none when first == last */
	int (*each)(const struct runs_span *span, void *arg);
	void *arg;
};

static int give(struct walk *w)
{
	struct runs_span span = w->span;

	w->span = (struct runs_span){ 0 };
	return span.first < span.last ? w->each(&span, w->arg) : 0;
}

static uint64_t chunk_end(const struct runs_index *x, size_t chunk)
{
	return chunk + 1 < x->num_chunks ? x->chunks[chunk + 1].at : x->count;
}

/* A span that follows the one being made directly becomes a part of it. */
static int add_span(struct walk *w, const struct runs_span *s)
{
	struct runs_span *now = &w->span;
	int r = 0;

	if (now->first < now->last && now->last == s->first && now->to == s->from && s->to - now->from <= w->max) {
		now->last = s->last;
		now->to = s->to;
		return 0;
	}
	r = give(w);
	*now = *s;
	return r;
}

/* The runs [first, last) one by one, the first of them with at elements before it. *ret holds those that meet the range. */
static void clip(const struct walk *w, uint64_t first, uint64_t last, uint64_t at, struct runs_span *ret)
{
	*ret = (struct runs_span){ 0 };
	for (uint64_t i = first; i < last; i++) {
		uint64_t off, len, low, high;

		runs_get(&w->x->runs, i, &off, &len);
		low = off > w->from ? off : w->from;
		high = off + len < w->to ? off + len : w->to;
		if (low < high) {
			if (ret->first == ret->last)
				*ret = (struct runs_span){ .first = i, .at = at, .from = at + low - off };
			ret->last = i + 1;
			ret->to = at + high - off;
		}
		at += len;
	}
}

static int add_each_run(struct walk *w, uint64_t first, uint64_t last, uint64_t at)
{
	int r = 0;

	for (uint64_t i = first; r == 0 && i < last; i++) {
		struct runs_span s;
		uint64_t off, len;

		clip(w, i, i + 1, at, &s);
		if (s.first < s.last)
			r = add_span(w, &s);
		runs_get(&w->x->runs, i, &off, &len);
		at += len;
	}
	return r;
}

static int add_chunk(struct walk *w, size_t chunk)
{
	const struct runs_chunk *c = &w->x->chunks[chunk];
	uint64_t first = chunk * (uint64_t)RUNS_CHUNK, last = first + RUNS_CHUNK;
	struct runs_span s = { .first = first, .at = c->at, .from = c->at, .to = chunk_end(w->x, chunk) };

	s.last = last = last < w->x->runs.num ? last : w->x->runs.num;
	if (c->low < w->from || c->high > w->to)
		clip(w, first, last, c->at, &s);
	if (s.first == s.last)
		return 0;
	return s.to - s.from > w->max ? add_each_run(w, first, last, c->at) : add_span(w, &s);
}

/* The first chunk that may meet the range. */
static size_t first_chunk(const struct runs_index *x, uint64_t from)
{
	size_t low = 0, high = x->num_chunks;

	if (!x->sorted)
		return 0;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (x->chunks[middle].high <= from)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int runs_spans(const struct runs_index *x, uint64_t from, uint64_t to, uint64_t max,
	int (*each)(const struct runs_span *span, void *arg), void *arg)
{
	struct walk w = { .x = x, .from = from, .to = to, .max = max, .each = each, .arg = arg };
	int r = 0;

	if (x->runs.num == 0 || x->high <= from || x->low >= to)
		return 0;
	for (size_t i = first_chunk(x, from); r == 0 && i < x->num_chunks; i++) {
		if (x->chunks[i].low < to && x->chunks[i].high > from)
			r = add_chunk(&w, i);
		else if (x->sorted && x->chunks[i].low >= to)
			break;
	}
	return r != 0 ? r : give(&w);
}
