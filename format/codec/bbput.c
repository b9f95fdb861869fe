/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * For a window the logs are gone through in their order, and in each the groups that reach into it; within an entry, whole dimensions
 * that lie outside are skipped. Later puts cover earlier ones. Values go from the log's bytes straight to their place in the window,
 * unless an earlier rank wrote there: then they are compared.
 *
 * Groups that lie in the window as a whole, one behind the other, are read without looking for their ends: the streams are told how far.
 */
#include "format/codec/bbput.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_VALUES 4096u

int bbput_init(struct bbput *p, const struct bbscan *scans, size_t num, const struct bbreplay_ops *ops,
	const struct classic *nc, size_t len)
{
	int r;

	p->scans = scans;
	p->num_scans = num;
	p->ops = ops;
	r = bbsums_init(&p->sums, nc->num_vars);
	if (r == 0)
		r = bbwindow_create(len, &p->window);
	if (r == 0)
		r = bblog_reader(&p->meta);
	p->box = calloc(1, sizeof(*p->box));
	if (!p->box)
		return -ENOMEM;
	p->box->nc = nc;
	return r;
}

void bbput_free(struct bbput *p)
{
	bbsums_free(&p->sums);
	bbwindow_destroy(p->window);
	bblog_close(p->meta);
	bbstream_free(&p->data);
	free(p->box);
}

/* ---- an entry */

/* num whole values that lie at off; the part of them that is in the window goes there. */
static void put_part(struct bbput *p, uint64_t off, const uint8_t *bytes, uint64_t num, uint64_t unfit)
{
	uint64_t end = off + num * p->box->value.to_bytes, begin = off;

	if (begin < p->begin)
		begin = p->begin;
	if (end > p->end)
		end = p->end;
	if (off >= p->begin) /* else the window before this one has counted */
		p->range_values += unfit;
	p->conflict_bytes +=
		bbwindow_put(p->window, begin, bytes + (begin - off), (size_t)(end - begin), &p->sums.stats.own_bytes);
}

/* The same by way of other memory, where it must be compared or cut. */
static void put_aside(struct bbput *p, uint64_t off, const uint8_t *memory, uint64_t num)
{
	const struct bbvalue *value = &p->box->value;
	uint8_t values[CHUNK_VALUES * CLASSIC_TYPE_BYTES];

	while (num > 0) {
		uint64_t n = num < CHUNK_VALUES ? num : CHUNK_VALUES;

		put_part(p, off, values, n, bbvalue_convert(value, memory, values, n));
		off += n * value->to_bytes;
		memory += n * value->from_bytes;
		num -= n;
	}
}

/* num values as they were in memory, to off. */
static void put_values(struct bbput *p, uint64_t off, const uint8_t *memory, uint64_t num)
{
	const struct bbvalue *value = &p->box->value;
	uint64_t len = num * value->to_bytes;
	uint8_t *to = NULL;

	if (off >= p->begin && off + len <= p->end)
		to = bbwindow_take(p->window, off, (size_t)len, &p->sums.stats.own_bytes);
	if (to)
		p->range_values += bbvalue_convert(value, memory, to, num);
	else
		put_aside(p, off, memory, num);
}

/* A run of num values at off of the file, the first of which is value number index of the request. */
static void put_run(struct bbput *p, uint64_t off, uint64_t num, uint64_t index)
{
	uint32_t to = p->box->value.to_bytes, from = p->box->value.from_bytes;
	uint64_t first = off < p->begin ? (p->begin - off) / to : 0, last = num;

	if (off + num * to > p->end)
		last = (p->end - off + to - 1) / to;
	while (first < last && p->error == 0) {
		uint64_t n = last - first, got;
		const uint8_t *memory;

		/* one value by itself where it straddles the window's edge: so that each is counted once */
		if (off + first * to < p->begin)
			n = 1;
		p->error = bbstream_some(&p->data, p->data_off + (index + first) * from, from, n * from, &memory, &got);
		if (p->error < 0)
			return;
		put_values(p, off + first * to, memory, got / from);
		first += got / from;
	}
}

/* The part of the box from dimension d on that begins at off; index: number of its first value in the request. */
static void put_box(struct bbput *p, uint32_t d, uint64_t off, uint64_t index)
{
	const struct bbbox *x = p->box;
	uint64_t step, first = 0, n;

	if (d == x->num_outer) {
		put_run(p, off, x->inner[d], index);
		return;
	}
	n = bbbox_count(x, d);
	step = x->pitch[d] * bbbox_stride(x, d);
	if (off + x->span[d + 1] <= p->begin)
		first = (p->begin - off - x->span[d + 1]) / step + 1;
	for (uint64_t i = first; i < n && off + i * step < p->end && p->error == 0; i++)
		put_box(p, d + 1, off + i * step, index + i * x->inner[d + 1]);
}

static void begin_entry(struct bbput *p, const struct bblog_entry *e)
{
	p->data_off = e->data_off;
	p->range_values = p->conflict_bytes = 0;
	p->error = 0;
}

/* What was found in it is counted. 0, or what failed. */
static int end_entry(struct bbput *p, size_t log, const struct bblog_entry *e)
{
	if (p->conflict_bytes)
		bbsums_conflict(&p->sums, log, e, p->conflict_bytes);
	if (p->error == 0 && p->range_values)
		p->error = bbsums_range(&p->sums, log, e, p->range_values);
	return p->error;
}

/* All requests of an entry that is to be replayed. */
static int put_entry(struct bbput *p, size_t log, const struct bblog_entry *e)
{
	struct bbbox *x = p->box;

	begin_entry(p, e);
	for (uint64_t i = 0; i < e->num && p->error == 0; i++) {
		bbbox_request(x, e, i);
		if (x->span[0] == 0)
			continue;
		if (x->begin < p->end && x->begin + x->span[0] > p->begin)
			put_box(p, 0, x->begin, 0);
		p->data_off += x->inner[0] * e->elem_bytes;
	}
	return end_entry(p, log, e);
}

/* ---- a log */

static bool reaches(const struct bbput *p, uint64_t begin, uint64_t end)
{
	return begin < p->end && end > p->begin;
}

/* Whether the entry is replayed, and may reach into the window. */
static bool is_wanted(
	const struct bbput *p, const struct bbscan *s, const struct bbscan_group *g, const struct bblog_entry *e)
{
	struct bbbox_reach reach = { 0 };
	const char *why;

	if (g->sound)
		return !bbbox_prepare(p->box, bblog_header(s->log->meta), e);
	return bbscan_judge(s, p->box, e, &reach, &why) == BBSCAN_REPLAYED && reach.begin < p->end &&
	       reach.end > p->begin;
}

static int values_error(const struct bbput *p, const struct bblog_entry *e, int r, struct cistern_error *err)
{
	return r == 0 ? 0
		      : cistern_error_set(err, r, "rank %" PRIu64 ", entry %" PRIu64 ": reading its values: %s",
				bblog_header(p->meta)->rank, e->seq, strerror(-r));
}

/* Values from run number i on lie in the window one behind the other: the stream is told how far. data_off: of run i. */
static void expect_runs(
	struct bbput *p, const struct bbscan *s, const struct bbscan_group *g, uint32_t i, uint64_t data_off)
{
	const struct bbruns_run *runs = s->runs.runs + g->first_run;
	uint32_t to = p->box->value.to_bytes;

	for (; i < g->num; i++) {
		uint64_t off = g->base + (uint64_t)(int64_t)runs[i].at;

		if (off < p->begin || off + (uint64_t)runs[i].num * to > p->end)
			break;
		data_off += (uint64_t)runs[i].num * g->elem_bytes;
	}
	bbstream_expect(&p->data, data_off);
}

/* The same of a group that is kept: without a look at the log of its entries. */
static int put_kept(struct bbput *p, const struct bbscan *s, const struct bbscan_group *g, struct cistern_error *err)
{
	struct bblog_entry e = { .varid = g->varid,
		.ndims = p->box->nc->vars[g->varid].num_dims,
		.type = g->type,
		.elem_bytes = g->elem_bytes,
		.num_elems = 1,
		.data_off = g->first.data_off };
	const struct bbruns_run *runs = s->runs.runs + g->first_run;
	const char *wrong = bbbox_prepare(p->box, bblog_header(p->meta), &e);
	uint32_t to;
	int r = 0;

	if (wrong) /* it was not in the first pass */
		return cistern_error_set(err, -EBADMSG, "entry %" PRIu64 ": %s", g->first.seq, wrong);
	to = p->box->value.to_bytes;
	for (uint32_t i = 0; i < g->num && r == 0; i++) {
		uint64_t off = g->base + (uint64_t)(int64_t)runs[i].at;

		if (reaches(p, off, off + (uint64_t)runs[i].num * to)) {
			if (!bbstream_is_expected(&p->data, e.data_off))
				expect_runs(p, s, g, i, e.data_off);
			e.seq = g->first.seq + i;
			begin_entry(p, &e);
			put_run(p, off, runs[i].num, 0);
			r = end_entry(p, s->number, &e);
		}
		e.data_off += (uint64_t)runs[i].num * e.elem_bytes;
	}
	return values_error(p, &e, r, err);
}

/* The entries of a group that reach into the window. */
static int put_group(struct bbput *p, const struct bbscan *s, const struct bbscan_group *g, struct cistern_error *err)
{
	struct bblog_entry e;

	bblog_seek(p->meta, &g->first);
	for (uint32_t i = 0; i < g->num; i++) {
		int r = bblog_next(p->meta, &e, err);

		if (r <= 0)
			return r < 0 ? r : cistern_error_set(err, -EBADMSG, "the log changed while it was read");
		if (!is_wanted(p, s, g, &e))
			continue;
		r = put_entry(p, s->number, &e);
		if (r < 0)
			return values_error(p, &e, r, err);
	}
	return 0;
}

static bool is_within(const struct bbput *p, const struct bbscan_group *g)
{
	return g->sound && g->begin >= p->begin && g->end <= p->end;
}

/* From group number i on: how many lie in the window as a whole, one behind the other. The streams are told. */
static size_t expect_groups(struct bbput *p, const struct bbscan *s, size_t i)
{
	size_t end = i;

	while (end < s->num && is_within(p, &s->groups[end]))
		end++;
	if (end > i) {
		bblog_expect(p->meta, &s->groups[end - 1].behind);
		bbstream_expect(&p->data, s->groups[end - 1].behind.data_off);
	}
	return end;
}

static int put_log(struct bbput *p, const struct bbscan *s, struct cistern_error *err)
{
	size_t expected = 0;
	int r = 0;

	bblog_follow(p->meta, s->log->meta);
	bbstream_follow(&p->data, &s->log->data, s->log->channel, s->log->num_channels);
	for (size_t i = 0; i < s->num && r == 0; i++) {
		if (!reaches(p, s->groups[i].begin, s->groups[i].end))
			continue;
		if (i >= expected)
			expected = expect_groups(p, s, i);
		r = s->groups[i].kept ? put_kept(p, s, &s->groups[i], err) : put_group(p, s, &s->groups[i], err);
	}
	return r;
}

/* ---- a window */

int bbput_window(struct bbput *p, uint64_t begin, struct cistern_error *err)
{
	bool first = true;
	int r = 0;

	p->begin = begin;
	p->end = begin + bbwindow_len(p->window);
	bbwindow_begin(p->window, begin);
	for (size_t i = 0; i < p->num_scans && r == 0; i++) {
		if (!reaches(p, p->scans[i].begin, p->scans[i].end))
			continue;
		if (!first)
			bbwindow_next_rank(p->window);
		first = false;
		r = put_log(p, &p->scans[i], err);
	}
	if (r < 0)
		return r;
	r = bbwindow_end(p->window, p->ops, &p->sums.stats);
	return r < 0 ? cistern_error_set(err, r, "bytes %" PRIu64 " to %" PRIu64 " of the netCDF file: %s", p->begin,
			       p->end, strerror(-r))
		     : 0;
}
