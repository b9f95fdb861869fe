/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Requests in the file. Numbers come from logs, which may be anybody's: every product and sum is checked once, by bbbox_check();
 * whoever goes through the same entries again need not.
 */
#include "format/codec/bbbox.h"

#define RECORDS_MAX_32 UINT32_C(0xFFFFFFFE)

/* Bytes from one index of each dimension to the next. */
static void set_pitches(struct bbbox *x, const struct classic_var *v)
{
	uint64_t bytes = classic_type_bytes(v->type);

	for (uint32_t d = v->num_dims; d-- > 0;) {
		bool record = v->is_record && d == 0;

		x->pitch[d] = record ? x->nc->record_bytes : bytes;
		if (!record)
			bytes *= x->nc->dims[v->dims[d]].len;
	}
}

/* NULL, or why the request does not fit its variable. *ret_records grows to how many records the file must have. */
static const char *check_bounds(const struct bbbox *x, uint64_t *ret_records)
{
	uint64_t record_max = x->nc->version == 5 ? INT64_MAX : RECORDS_MAX_32;

	for (uint32_t d = 0; d < x->num_dims; d++) {
		bool record = x->v->is_record && d == 0;
		uint64_t len = record ? record_max : x->nc->dims[x->v->dims[d]].len, last;

		if (bbbox_count(x, d) == 0)
			return NULL;
		if (__builtin_mul_overflow(bbbox_count(x, d) - 1, bbbox_stride(x, d), &last) ||
			__builtin_add_overflow(last, (uint64_t)x->start[d], &last) || last >= len)
			return "it reaches beyond the bounds of its variable";
		if (record && last + 1 > *ret_records)
			*ret_records = last + 1;
	}
	return NULL;
}

/* begin, span, inner; false: beyond the end of what a file can be. Nothing is written for a count of 0: span[0] is 0. */
static bool set_spans(struct bbbox *x)
{
	uint32_t d = x->num_dims;
	uint64_t end;

	x->begin = x->v->begin;
	x->span[d] = x->value.to_bytes;
	x->inner[d] = 1;
	x->num_outer = d;
	while (d-- > 0) {
		uint64_t n = bbbox_count(x, d), step, off;

		if (n == 0) {
			x->span[0] = 0;
			return true;
		}
		if (__builtin_mul_overflow(x->pitch[d], bbbox_stride(x, d), &step) ||
			__builtin_mul_overflow(n - 1, step, &off) ||
			__builtin_add_overflow(off, x->span[d + 1], &x->span[d]) ||
			__builtin_mul_overflow((uint64_t)x->start[d], x->pitch[d], &off) ||
			__builtin_add_overflow(x->begin, off, &x->begin))
			return false;
		x->inner[d] = n * x->inner[d + 1]; /* not more than the entry's num_elems */
		if (x->num_outer == d + 1 && (n == 1 || step == x->span[d + 1]))
			x->num_outer = d; /* goes on in the run behind it */
	}
	return !__builtin_add_overflow(x->begin, x->span[0], &end) && end <= CLASSIC_BYTES_MAX;
}

static void set_request(struct bbbox *x, const struct bblog_entry *e, uint64_t i)
{
	uint64_t first = i * e->ndims;

	x->start = e->start + first;
	x->count = e->count ? e->count + first : NULL;
	x->stride = e->stride;
	x->num_dims = e->ndims;
}

/* Mostly the entry before was of the same variable and type, and nothing is to be done. */
const char *bbbox_prepare(struct bbbox *x, const struct bblog_header *h, const struct bblog_entry *e)
{
	const struct classic_var *v;
	const char *wrong;

	if (e->wrong)
		return e->wrong;
	if (e->varid >= x->nc->num_vars)
		return "the netCDF file has no such variable";
	v = &x->nc->vars[e->varid];
	if (v->num_dims != e->ndims)
		return "its variable has another number of dimensions";
	if (x->v == v && x->h == h && x->type == e->type && x->elem_bytes == e->elem_bytes)
		return NULL;
	x->v = NULL;
	wrong = bbvalue_plan(h, e, x->nc->version, v, &x->value);
	if (wrong)
		return wrong;
	x->h = h;
	x->type = e->type;
	x->elem_bytes = e->elem_bytes;
	x->v = v;
	set_pitches(x, v);
	return NULL;
}

const char *bbbox_check(
	struct bbbox *x, const struct bblog_header *h, const struct bblog_entry *e, struct bbbox_reach *ret)
{
	const char *wrong = bbbox_prepare(x, h, e);
	struct bbbox_reach reach = { .begin = UINT64_MAX };

	for (uint64_t i = 0; !wrong && i < e->num; i++) {
		uint64_t end;

		set_request(x, e, i);
		wrong = check_bounds(x, &reach.records);
		if (!wrong && !set_spans(x))
			wrong = "it lies beyond what a file can hold";
		if (wrong || x->span[0] == 0)
			continue;
		end = x->begin + x->span[0];
		reach.begin = x->begin < reach.begin ? x->begin : reach.begin;
		reach.end = end > reach.end ? end : reach.end;
	}
	if (!wrong)
		*ret = reach;
	return wrong;
}

void bbbox_request(struct bbbox *x, const struct bblog_entry *e, uint64_t i)
{
	set_request(x, e, i);
	set_spans(x);
}
