/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Nobody here knows runs of other nodes; that no element lies in blobs of two nodes follows from what the deals say
 * (docs/design/blob-layouts.md): no byte was written by two, no element was in part by each of two, and who has runs of a
 * record variable has the same ones in all records and began with the same record as the others.
 */
#include "mpi-agent/plan/unite.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct work {
	const struct deal *deals;
	uint32_t num;
	const struct classic *header;
	char *why;
};

static int __attribute__((format(printf, 2, 3))) refuse(const struct work *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->why, DEAL_WHY, fmt, ap);
	va_end(ap);
	return -EOPNOTSUPP;
}

/* ---- whose bytes */

static int check_deals(const struct work *w)
{
	uint32_t headers = 0;

	for (uint32_t n = 0; n < w->num; n++) {
		const struct deal *d = &w->deals[n];

		if (d->why[0])
			return refuse(w, "%s", d->why);
		if (d->node != n || d->num_vars != w->header->num_vars)
			return refuse(w, "what node %" PRIu32 " says of it is of another file", n);
		headers += d->has_header;
	}
	return headers > 1 ? refuse(w, "processes of several nodes wrote its header") : 0;
}

/* What counts of a node's bytes is among what it wrote: where the sums agree it is all of it. */
static int check_sums(const struct work *w)
{
	struct deal_sum *seen = calloc(w->num, sizeof(*seen));
	int r = seen ? 0 : -ENOMEM;

	for (uint32_t n = 0; r == 0 && n < w->num; n++)
		for (uint32_t i = 0; r == 0 && i < w->deals[n].num_seen; i++) {
			const struct deal_seen *s = &w->deals[n].seen[i];

			if (s->node >= w->num) {
				r = refuse(w, "it has bytes of node %" PRIu32 ", which the job does not have", s->node);
				break;
			}
			seen[s->node].bytes += s->sum.bytes;
			seen[s->node].places += s->sum.places;
			seen[s->node].squares += s->sum.squares;
		}
	for (uint32_t n = 0; r == 0 && n < w->num; n++)
		if (memcmp(&seen[n], &w->deals[n].own, sizeof(*seen)) != 0)
			r = refuse(w, "bytes that processes of node %" PRIu32 " wrote were overwritten on another node",
				n);
	free(seen);
	return r;
}

struct edge {
	uint64_t off;
	uint32_t node;
};

static int by_off(const void *a, const void *b)
{
	const struct edge *x = a, *y = b;

	return x->off != y->off ? (x->off > y->off) - (x->off < y->off) : (x->node > y->node) - (x->node < y->node);
}

static int check_ragged(const struct work *w)
{
	struct edge *edges;
	size_t num = 0;
	int r = 0;

	for (uint32_t n = 0; n < w->num; n++)
		num += w->deals[n].num_ragged;
	edges = calloc(num + 1, sizeof(*edges));
	num = 0;
	for (uint32_t n = 0; edges && n < w->num; n++)
		for (uint32_t i = 0; i < w->deals[n].num_ragged; i++)
			edges[num++] = (struct edge){ w->deals[n].ragged[i], n };
	if (!edges)
		return -ENOMEM;
	qsort(edges, num, sizeof(*edges), by_off);
	for (size_t i = 1; r == 0 && i < num; i++)
		if (edges[i].off == edges[i - 1].off && edges[i].node != edges[i - 1].node)
			r = refuse(w, "two nodes wrote parts of the element at %" PRIu64, edges[i].off);
	for (uint32_t n = 0; r == 0 && n < w->num; n++)
		if (w->deals[n].more_ragged)
			r = refuse(w, "more than %u elements were written in part only", DEAL_RAGGED_MAX);
	free(edges);
	return r;
}

/* ---- variables */

struct value_at {
	uint64_t record;
	uint32_t var, node;
};

static int by_place(const void *a, const void *b)
{
	const struct value_at *x = a, *y = b;

	return x->var != y->var ? (x->var > y->var) - (x->var < y->var)
				: (x->record > y->record) - (x->record < y->record);
}

static size_t list_values(const struct work *w, struct value_at *out)
{
	struct deal_value v;
	size_t num = 0;

	for (uint32_t n = 0; n < w->num; n++) {
		struct cursor c = cursor_make(w->deals[n].values.data, w->deals[n].values.len);

		while (deal_next_value(&c, &v)) {
			if (out)
				out[num] = (struct value_at){ v.record, v.var, n };
			num++;
		}
	}
	return num;
}

static int check_values(const struct work *w)
{
	size_t num = list_values(w, NULL);
	struct value_at *at = calloc(num + 1, sizeof(*at));
	int r = at ? 0 : -ENOMEM;

	if (at) {
		list_values(w, at);
		qsort(at, num, sizeof(*at), by_place);
	}
	for (size_t i = 1; r == 0 && i < num; i++)
		if (by_place(&at[i - 1], &at[i]) == 0)
			r = refuse(w, "two nodes wrote record %" PRIu64 " of variable %s", at[i].record,
				w->header->vars[at[i].var].name);
	free(at);
	return r;
}

/* Is it cut up? 1, 0, or -EOPNOTSUPP. */
static int judge(const struct work *w, uint32_t v)
{
	const struct classic_var *var = &w->header->vars[v];
	uint32_t runs = 0, values = 0;
	bool mixed = false, apart = false;
	uint64_t first = 0;

	for (uint32_t n = 0; n < w->num; n++) {
		const struct deal_var *d = &w->deals[n].vars[v];

		values += d->kind == DEAL_VALUES;
		if (d->kind != DEAL_RUNS)
			continue;
		mixed |= d->mixed;
		apart |= runs > 0 && d->first_record != first;
		first = d->first_record;
		runs++;
	}
	if (runs > 0 && values > 0)
		return refuse(w, "one node wrote variable %s whole, and another parts of it", var->name);
	if (runs > 1 && mixed)
		return refuse(w, "variable %s is divided over the processes of several nodes otherwise in some records",
			var->name);
	if (runs > 1 && apart)
		return refuse(w, "not all nodes that wrote variable %s began with the same record", var->name);
	if (runs > 0 && var->num_dims == var->is_record)
		return refuse(w, "variable %s is too large to be in every subfile", var->name);
	return runs > 0;
}

/* ---- maps: classes of variables that have the same lists everywhere */

struct classed {
	uint32_t class, list, var;
};

static int by_class(const void *a, const void *b)
{
	const struct classed *x = a, *y = b;

	if (x->class != y->class)
		return (x->class > y->class) - (x->class < y->class);
	if (x->list != y->list)
		return (x->list > y->list) - (x->list < y->list);
	return (x->var > y->var) - (x->var < y->var);
}

/* Divides the classes by the lists of one node. */
static void divide(const struct deal *d, struct classed *c, size_t num)
{
	uint32_t class = 0, before = 0, list = 0;

	for (size_t i = 0; i < num; i++)
		c[i].list = d->vars[c[i].var].kind == DEAL_RUNS ? d->vars[c[i].var].list : UINT32_MAX;
	qsort(c, num, sizeof(*c), by_class);
	for (size_t i = 0; i < num; i++) {
		if (i > 0 && (c[i].class != before || c[i].list != list))
			class ++;
		before = c[i].class;
		list = c[i].list;
		c[i].class = class;
	}
}

static int by_var(const void *a, const void *b)
{
	const struct classed *x = a, *y = b;

	return (x->var > y->var) - (x->var < y->var);
}

/* Numbers by first variables. */
static int number_maps(struct classed *c, size_t num, struct unite_plan *ret)
{
	uint32_t *map_of = calloc(num + 1, sizeof(*map_of));

	ret->map_vars = calloc(num + 1, sizeof(*ret->map_vars));
	if (!map_of || !ret->map_vars) {
		free(map_of);
		return -ENOMEM;
	}
	qsort(c, num, sizeof(*c), by_var);
	for (size_t i = 0; i < num; i++) {
		if (map_of[c[i].class] == 0) {
			ret->map_vars[ret->num_maps] = c[i].var;
			map_of[c[i].class] = ++ret->num_maps;
		}
		ret->var_maps[c[i].var] = map_of[c[i].class] - 1;
	}
	free(map_of);
	return 0;
}

static int find_maps(const struct work *w, struct unite_plan *ret)
{
	struct classed *c = calloc((size_t)w->header->num_vars + 1, sizeof(*c));
	size_t num = 0;
	int r = 0;

	ret->var_maps = calloc((size_t)w->header->num_vars + 1, sizeof(*ret->var_maps));
	if (!c || !ret->var_maps)
		r = -ENOMEM;
	for (uint32_t v = 0; r >= 0 && v < w->header->num_vars; v++) {
		ret->var_maps[v] = UNITE_NO_MAP;
		r = judge(w, v);
		if (r > 0)
			c[num++] = (struct classed){ .var = v };
	}
	for (uint32_t n = 0; r >= 0 && n < w->num; n++)
		divide(&w->deals[n], c, num);
	if (r >= 0)
		r = number_maps(c, num, ret);
	free(c);
	return r;
}

/* ---- subfiles */

static int deal_out(const struct work *w, uint32_t wanted, struct unite_plan *ret)
{
	uint64_t streams = 0, subfiles = 0;
	uint32_t writers = 0, each;

	for (uint32_t n = 0; n < w->num; n++) {
		streams += w->deals[n].num_streams;
		writers += w->deals[n].num_streams > 0;
	}
	if (streams < 2)
		return refuse(w, "no variable has parts of several processes");
	ret->first_subfile = calloc((size_t)w->num + 1, sizeof(*ret->first_subfile));
	if (!ret->first_subfile)
		return -ENOMEM;
	each = wanted / writers + (wanted % writers != 0);
	each = each < 1 ? 1 : each;
	for (uint32_t n = 0; n < w->num; n++) {
		ret->first_subfile[n] = (uint32_t)subfiles;
		subfiles += w->deals[n].num_streams < each ? w->deals[n].num_streams : each;
	}
	if (streams > INT32_MAX || subfiles > INT32_MAX)
		return refuse(w, "too many processes wrote it");
	ret->first_subfile[w->num] = ret->num_subfiles = (uint32_t)subfiles;
	ret->num_streams = (uint32_t)streams;
	return 0;
}

/* ---- all of it */

int unite(const struct deal *deals, uint32_t num, const struct classic *header, uint32_t num_subfiles,
	struct unite_plan *ret, char why[DEAL_WHY])
{
	struct work w = { deals, num, header, why };
	int r = check_deals(&w);

	*ret = (struct unite_plan){ 0 };
	if (r == 0)
		r = check_sums(&w);
	if (r == 0)
		r = check_ragged(&w);
	if (r == 0)
		r = check_values(&w);
	if (r == 0)
		r = find_maps(&w, ret);
	if (r == 0)
		r = deal_out(&w, num_subfiles, ret);
	if (r < 0)
		unite_free(ret);
	return r;
}

void unite_free(struct unite_plan *p)
{
	if (!p)
		return;
	free(p->var_maps);
	free(p->map_vars);
	free(p->first_subfile);
	*p = (struct unite_plan){ 0 };
}
