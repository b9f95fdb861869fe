/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Extents come in the order of the file, so a variable (or a record of one) is met in one piece: its runs are collected in
 * the order of its elements, and when the next variable begins they are looked up among the run lists that were met before. A
 * list is kept once, however many variables share it. A further record of a variable mostly has the same list as the record
 * before; where it has not, what it has in addition joins the variable's list.
 *
 * So memory holds each distinct list, and of each variable a number.
 */
#include "mpi-agent/plan/decomp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_LIST SIZE_MAX

struct runs {
	struct decomp_run *at; /* owned */
	size_t num, cap;
};

struct list { /* one distinct list of runs of variables of one shape */
	struct runs r;
	uint64_t hash;
	uint32_t shape; /* a variable that has the shape */
};

struct decomp_work {
	struct decomp_order *order; /* owned */
	struct list *lists;         /* owned */
	size_t num_lists, cap_lists;
	size_t *var_list; /* owned: of each variable, NO_LIST: nothing yet */
	/* what is being collected */
	uint32_t var;
	uint64_t record;
	struct runs now, joined;
	size_t cap_ranges, cap_ragged;
	uint64_t end;     /* of what was added last, in the file */
	uint64_t cut_off; /* where the element begins that it ended in, if in one */
	bool is_cut;
};

/* ---- places */

struct decomp_order {
	const struct classic *header; /* borrowed */
	uint32_t *vars;               /* owned: fixed ones by begin, then record ones by begin */
	uint32_t num_fixed, num;
	uint32_t last; /* where the last answer was, in vars */
	/* the last variable that was answered: bytes of the file; to 0: none */
	struct decomp_place place;
	uint64_t from, to;
};

static int by_begin(const void *a, const void *b, void *arg)
{
	const struct classic *h = arg;
	const struct classic_var *x = &h->vars[*(const uint32_t *)a], *y = &h->vars[*(const uint32_t *)b];

	if (x->is_record != y->is_record)
		return x->is_record ? 1 : -1;
	return (x->begin > y->begin) - (x->begin < y->begin);
}

int decomp_order_create(const struct classic *header, struct decomp_order **ret)
{
	struct decomp_order *o = calloc(1, sizeof(*o));

	if (o)
		o->vars = calloc(header->num_vars ? header->num_vars : 1, sizeof(*o->vars));
	if (!o || !o->vars) {
		free(o);
		return -ENOMEM;
	}
	o->header = header;
	o->num = header->num_vars;
	for (uint32_t i = 0; i < o->num; i++) {
		o->vars[i] = i;
		o->num_fixed += !header->vars[i].is_record;
	}
	qsort_r(o->vars, o->num, sizeof(*o->vars), by_begin, (void *)header);
	*ret = o;
	return 0;
}

void decomp_order_destroy(struct decomp_order *o)
{
	if (o)
		free(o->vars);
	free(o);
}

/* The last of vars[from, to) that begins at or before off, or from when none does. Mostly that of the last question or the next. */
static uint32_t find_var(struct decomp_order *o, uint32_t from, uint32_t to, uint64_t off)
{
	const struct classic_var *vars = o->header->vars;
	uint32_t low = from, high = to;

	for (uint32_t i = o->last; i >= from && i < to && i < o->last + 2; i++)
		if (vars[o->vars[i]].begin <= off && (i + 1 == to || vars[o->vars[i + 1]].begin > off))
			return o->last = i;
	while (high - low > 1) {
		uint32_t mid = low + (high - low) / 2;

		if (vars[o->vars[mid]].begin <= off)
			low = mid;
		else
			high = mid;
	}
	return o->last = low;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* at: off as if it were in record 0. limit: behind which something else begins, of the same kind. */
static struct decomp_place place_among(
	struct decomp_order *o, uint32_t from, uint32_t to, uint64_t at, uint64_t len, uint64_t limit)
{
	const struct classic_var *vars = o->header->vars;
	uint32_t i = from < to ? find_var(o, from, to, at) : to;
	struct decomp_place p = { .var = DECOMP_NO_MAP };
	uint64_t next = limit;

	if (i == to || vars[o->vars[i]].begin > at) { /* before all of them */
		next = i == to ? limit : least(limit, vars[o->vars[i]].begin);
	} else if (at < vars[o->vars[i]].begin + vars[o->vars[i]].bytes) {
		p.var = o->vars[i];
		p.byte = at - vars[p.var].begin;
		next = vars[p.var].begin + vars[p.var].bytes;
	} else if (i + 1 < to) {
		next = least(limit, vars[o->vars[i + 1]].begin);
	}
	p.len = least(len, next - at);
	return p;
}

static struct decomp_place find_place(struct decomp_order *o, uint64_t off, uint64_t len)
{
	const struct classic *h = o->header;
	bool records = h->num_record_vars > 0 && h->record_bytes > 0;
	struct decomp_place p;
	uint64_t record;

	if (!records || off < h->records_begin)
		return place_among(o, 0, o->num_fixed, off, len, records ? h->records_begin : UINT64_MAX);
	record = (off - h->records_begin) / h->record_bytes;
	if (record >= h->num_records)
		return (struct decomp_place){ .var = DECOMP_NO_MAP, .len = len };
	p = place_among(
		o, o->num_fixed, o->num, off - record * h->record_bytes, len, h->records_begin + h->record_bytes);
	p.record = record;
	return p;
}

/* Neighbours in the file mostly lie in one variable: then two comparisons are all. */
struct decomp_place decomp_place(struct decomp_order *o, uint64_t off, uint64_t len)
{
	struct decomp_place p = o->place;

	if (off >= o->from && off < o->to) {
		p.byte = off - o->from;
		p.len = least(len, o->to - off);
		return p;
	}
	p = find_place(o, off, len);
	if (p.var != DECOMP_NO_MAP) {
		o->place = p;
		o->from = off - p.byte;
		o->to = o->from + o->header->vars[p.var].bytes;
	}
	return p;
}

/* ---- runs */

static int push_run(struct runs *r, const struct decomp_run *run)
{
	if (r->num == r->cap) {
		size_t cap = r->cap ? 2 * r->cap : 64;
		struct decomp_run *at = reallocarray(r->at, cap, sizeof(*at));

		if (!at)
			return -ENOMEM;
		r->at = at;
		r->cap = cap;
	}
	r->at[r->num++] = *run;
	return 0;
}

/* Joins the last run where it can. */
static int add_run(struct runs *r, uint64_t off, uint64_t len, uint32_t writer)
{
	struct decomp_run *last = r->num ? &r->at[r->num - 1] : NULL;
	int rc = 0;

	if (last && last->off + last->len == off && last->writer == writer && last->len <= UINT32_MAX - len) {
		last->len += (uint32_t)len;
		return 0;
	}
	while (rc == 0 && len > 0) {
		struct decomp_run run = { .off = off, .len = (uint32_t)least(len, UINT32_MAX), .writer = writer };

		rc = push_run(r, &run);
		off += run.len;
		len -= run.len;
	}
	return rc;
}

/* All of a, and what only b has. Both by off. */
static int join(const struct runs *a, const struct runs *b, struct runs *out)
{
	size_t i = 0, j = 0;
	uint64_t done = 0;
	int r = 0;

	out->num = 0;
	while (r == 0 && (i < a->num || j < b->num)) {
		const struct decomp_run *p = i < a->num ? &a->at[i] : NULL, *q = j < b->num ? &b->at[j] : NULL;
		uint64_t from = q && q->off > done ? q->off : done, end = q ? q->off + q->len : 0;

		if (q && end <= done) {
			j++;
		} else if (!p || (q && from < p->off)) {
			end = p ? least(end, p->off) : end;
			r = add_run(out, from, end - from, q->writer);
			done = end;
		} else {
			r = add_run(out, p->off, p->len, p->writer);
			done = p->off + p->len;
			i++;
		}
	}
	return r;
}

static uint64_t hash_of(const struct runs *r)
{
	uint64_t h = r->num;

	for (size_t i = 0; i < r->num; i++) {
		h = (h ^ r->at[i].off) * 0x9e3779b97f4a7c15u;
		h = (h ^ (h >> 29) ^ r->at[i].len ^ (uint64_t)r->at[i].writer << 32) * 0xbf58476d1ce4e5b9u;
	}
	return h ^ h >> 32;
}

static bool same_runs(const struct runs *a, const struct runs *b)
{
	if (a->num != b->num)
		return false;
	for (size_t i = 0; i < a->num; i++)
		if (a->at[i].off != b->at[i].off || a->at[i].len != b->at[i].len || a->at[i].writer != b->at[i].writer)
			return false;
	return true;
}

/* The next elements that are written without a gap, whoever wrote them, from run *i on. False: there are no more. */
static bool next_stretch(const struct runs *r, size_t *i, uint64_t *ret_off, uint64_t *ret_end)
{
	if (*i == r->num)
		return false;
	*ret_off = r->at[*i].off;
	*ret_end = *ret_off;
	while (*i < r->num && r->at[*i].off == *ret_end)
		*ret_end += r->at[(*i)++].len;
	return true;
}

static bool same_elements(const struct runs *a, const struct runs *b)
{
	uint64_t a_off, a_end, b_off, b_end;
	size_t i = 0, k = 0;

	while (next_stretch(a, &i, &a_off, &a_end))
		if (!next_stretch(b, &k, &b_off, &b_end) || a_off != b_off || a_end != b_end)
			return false;
	return k == b->num;
}

/* By dimensions, without the record dimension: a map can be shared. */
static bool same_shape(const struct classic *h, uint32_t a, uint32_t b)
{
	const struct classic_var *x = &h->vars[a], *y = &h->vars[b];
	uint32_t n = x->num_dims - x->is_record;

	return n == y->num_dims - y->is_record &&
	       (n == 0 || memcmp(x->dims + x->is_record, y->dims + y->is_record, n * sizeof(*x->dims)) == 0);
}

/* The number of the list that equals runs, which are copied if there is none. */
static int intern(struct decomp *d, const struct runs *runs, size_t *ret)
{
	struct decomp_work *w = d->work;
	uint64_t hash = hash_of(runs);
	struct list *l;

	for (size_t i = 0; i < w->num_lists; i++)
		if (w->lists[i].hash == hash && same_shape(d->header, w->lists[i].shape, w->var) &&
			same_runs(&w->lists[i].r, runs)) {
			*ret = i;
			return 0;
		}
	if (w->num_lists == w->cap_lists) {
		size_t cap = w->cap_lists ? 2 * w->cap_lists : 16;

		l = reallocarray(w->lists, cap, sizeof(*l));
		if (!l)
			return -ENOMEM;
		w->lists = l;
		w->cap_lists = cap;
	}
	l = &w->lists[w->num_lists];
	*l = (struct list){ .hash = hash, .shape = w->var };
	l->r.at = reallocarray(NULL, runs->num, sizeof(*l->r.at));
	if (!l->r.at)
		return -ENOMEM;
	memcpy(l->r.at, runs->at, runs->num * sizeof(*l->r.at));
	l->r.num = l->r.cap = runs->num;
	*ret = w->num_lists++;
	return 0;
}

/* What was collected belongs to its variable. */
static int settle(struct decomp *d)
{
	struct decomp_work *w = d->work;
	const struct runs *runs = &w->now;
	size_t *list = w->var == DECOMP_NO_MAP ? NULL : &w->var_list[w->var];
	int r = 0;

	if (!list || runs->num == 0)
		return 0;
	if (*list != NO_LIST && same_runs(&w->lists[*list].r, runs)) {
		w->now.num = 0;
		return 0;
	}
	if (*list == NO_LIST)
		d->vars[w->var] = (struct decomp_var){ .first_record = w->record, .any = true };
	else if (!same_elements(&w->lists[*list].r, runs))
		d->vars[w->var].mixed = true;
	if (*list != NO_LIST) {
		r = join(&w->lists[*list].r, runs, &w->joined);
		runs = &w->joined;
	}
	if (r == 0)
		r = intern(d, runs, list);
	w->now.num = 0;
	return r;
}

/* ---- in */

int decomp_create(const struct classic *header, struct decomp **ret)
{
	struct decomp *d;
	int r = -ENOMEM;

	if (header->num_vars == 0)
		return -EINVAL;
	d = calloc(1, sizeof(*d));
	if (!d)
		return r;
	d->header = header;
	d->work = calloc(1, sizeof(*d->work));
	d->var_maps = calloc(header->num_vars, sizeof(*d->var_maps));
	d->vars = calloc(header->num_vars, sizeof(*d->vars));
	if (d->work && d->var_maps && d->vars) {
		d->work->var = DECOMP_NO_MAP;
		d->work->var_list = calloc(header->num_vars, sizeof(*d->work->var_list));
		r = d->work->var_list ? decomp_order_create(header, &d->work->order) : -ENOMEM;
	}
	for (uint32_t i = 0; r == 0 && i < header->num_vars; i++)
		d->work->var_list[i] = NO_LIST;
	if (r < 0)
		decomp_destroy(d);
	else
		*ret = d;
	return r;
}

static int add_range(struct decomp *d, uint64_t off, uint64_t len)
{
	struct decomp_range *last = d->num_ranges ? &d->ranges[d->num_ranges - 1] : NULL;

	if (off < d->header->header_bytes) {
		uint64_t skip = least(len, d->header->header_bytes - off);

		off += skip;
		len -= skip;
	}
	if (len == 0)
		return 0;
	if (last && last->off + last->len == off) {
		last->len += len;
		return 0;
	}
	if (d->num_ranges == DECOMP_RANGES_MAX)
		return -E2BIG;
	if (d->num_ranges == d->work->cap_ranges) {
		size_t cap = d->work->cap_ranges ? 2 * d->work->cap_ranges : 16;
		struct decomp_range *ranges = reallocarray(d->ranges, cap, sizeof(*ranges));

		if (!ranges)
			return -ENOMEM;
		d->ranges = ranges;
		d->work->cap_ranges = cap;
	}
	d->ranges[d->num_ranges++] = (struct decomp_range){ off, len };
	return 0;
}

/* Elements that begin or go on in [byte, byte + len) and that nobody has yet. */
static int add_elements(struct decomp *d, const struct decomp_place *p, uint32_t writer)
{
	struct decomp_work *w = d->work;
	uint64_t size = classic_type_bytes(d->header->vars[p->var].type);
	uint64_t first = p->byte / size, end = (p->byte + p->len + size - 1) / size;
	const struct decomp_run *last;
	int r = 0;

	if (p->var != w->var || p->record != w->record) {
		r = settle(d);
		w->var = p->var;
		w->record = p->record;
	}
	last = w->now.num ? &w->now.at[w->now.num - 1] : NULL;
	if (last && last->off + last->len > first)
		first = last->off + last->len;
	return r < 0 || first >= end ? r : add_run(&w->now, first, end - first, writer);
}

/* ---- elements that were written in part */

static int add_ragged(struct decomp *d, uint64_t off)
{
	struct decomp_work *w = d->work;

	if (d->num_ragged == DECOMP_RAGGED_MAX) {
		d->more_ragged = true;
		return 0;
	}
	if (d->num_ragged == w->cap_ragged) {
		size_t cap = w->cap_ragged ? 2 * w->cap_ragged : 16;
		uint64_t *ragged = reallocarray(d->ragged, cap, sizeof(*ragged));

		if (!ragged)
			return -ENOMEM;
		d->ragged = ragged;
		w->cap_ragged = cap;
	}
	d->ragged[d->num_ragged++] = off;
	return 0;
}

/* What was added last is not gone on with. */
static int end_cut(struct decomp *d)
{
	bool cut = d->work->is_cut;

	d->work->is_cut = false;
	return cut ? add_ragged(d, d->work->cut_off) : 0;
}

/* Do the bytes of p, which begin at off, begin or end in an element? What goes on where the last ones ended is one with them. */
static int note_edges(struct decomp *d, const struct decomp_place *p, uint64_t off)
{
	struct decomp_work *w = d->work;
	uint64_t size = p->var == DECOMP_NO_MAP ? 1 : classic_type_bytes(d->header->vars[p->var].type);
	uint64_t before = p->byte % size, behind = (p->byte + p->len) % size;
	bool goes_on = w->end == off;
	int r = goes_on ? 0 : end_cut(d);

	if (r == 0 && before > 0 && !goes_on)
		r = add_ragged(d, off - before);
	w->end = off + p->len;
	w->is_cut = behind > 0;
	w->cut_off = w->end - behind;
	return r;
}

int decomp_add(struct decomp *d, uint64_t off, uint64_t len, uint32_t writer)
{
	int r = 0;

	while (r == 0 && len > 0) {
		struct decomp_place p = decomp_place(d->work->order, off, len);

		r = note_edges(d, &p, off);
		if (r == 0)
			r = p.var == DECOMP_NO_MAP ? add_range(d, off, p.len) : add_elements(d, &p, writer);
		off += p.len;
		len -= p.len;
	}
	return r;
}

/* ---- out */

static void work_free(struct decomp_work *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->num_lists; i++)
		free(w->lists[i].r.at);
	free(w->lists);
	free(w->var_list);
	free(w->now.at);
	free(w->joined.at);
	decomp_order_destroy(w->order);
	free(w);
}

/* One writer wrote all of it, or it has nothing that could be cut up. */
static bool is_whole(const struct classic_var *v, const struct runs *r)
{
	if (v->num_dims == v->is_record || r->num == 0)
		return true;
	return r->num == 1 && r->at[0].len == v->elements;
}

static bool is_cut_up(const struct decomp *d, uint32_t var)
{
	const struct classic_var *v = &d->header->vars[var];

	return !d->vars[var].whole || (d->cuts_whole && v->num_dims > v->is_record && v->elements > 0);
}

/* Cuts the runs at the ends of rows. */
static int make_map(struct decomp *d, const struct list *l, struct decomp_map *map)
{
	const struct classic_var *v = &d->header->vars[l->shape];
	struct runs cut = { 0 };
	uint64_t row;
	int r = 0;

	map->num_dims = v->num_dims - v->is_record;
	map->dims = v->dims + v->is_record;
	map->elements = v->elements;
	row = classic_dim_len(d->header, map->dims[map->num_dims - 1]);
	for (size_t i = 0; r == 0 && i < l->r.num; i++) {
		struct decomp_run run = l->r.at[i];

		for (uint64_t done = 0; r == 0 && done < run.len;) {
			uint64_t off = run.off + done, part = least(run.len - done, row - off % row);

			r = push_run(&cut, &(struct decomp_run){ off, (uint32_t)part, run.writer });
			done += part;
		}
	}
	map->runs = cut.at;
	map->num_runs = cut.num;
	return r;
}

int decomp_finish(struct decomp *d)
{
	struct decomp_work *w = d->work;
	uint32_t *number = NULL;
	int r = settle(d);

	if (r == 0)
		r = end_cut(d);
	if (r == 0) {
		number = calloc(w->num_lists + 1, sizeof(*number));
		d->maps = calloc(w->num_lists + 1, sizeof(*d->maps));
		r = number && d->maps ? 0 : -ENOMEM;
	}
	for (uint32_t i = 0; r == 0 && i < d->header->num_vars; i++) {
		size_t list = w->var_list[i];

		d->var_maps[i] = DECOMP_NO_MAP;
		d->vars[i].whole = list != NO_LIST && is_whole(&d->header->vars[i], &w->lists[list].r);
		if (list == NO_LIST || !is_cut_up(d, i))
			continue;
		if (number[list] == 0) {
			r = make_map(d, &w->lists[list], &d->maps[d->num_maps++]);
			number[list] = (uint32_t)d->num_maps;
		}
		d->var_maps[i] = number[list] - 1;
	}
	free(number);
	work_free(w);
	d->work = NULL;
	return r;
}

void decomp_destroy(struct decomp *d)
{
	if (!d)
		return;
	work_free(d->work);
	for (size_t i = 0; i < d->num_maps; i++)
		free(d->maps[i].runs);
	free(d->maps);
	free(d->var_maps);
	free(d->vars);
	free(d->ragged);
	free(d->ranges);
	free(d);
}
