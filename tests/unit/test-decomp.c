/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Decompositions, found again in extents that were made from them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi-agent/plan/decomp.h"
#include "tests/lib/tap.h"

#define ROWS    6u
#define COLUMNS 20u
#define RECORDS 3u

enum { FIXED, SCALAR, PLAIN, LEVELS, SAME, ODD, NUM_VARS };

/* fixed(col) double; scalar(time) int; plain(time, col) short; levels, same(time, row, col) float; odd(time, row, col) char */
static void make_header(struct classic *c)
{
	static const struct classic_align align = { .header = 512 };
	static const uint32_t dims[] = { 0, 1, 2 };
	uint32_t plain[] = { 0, 2 };

	classic_init(c, 5);
	classic_add_dim(c, "time", 0, NULL);
	classic_add_dim(c, "row", ROWS, NULL);
	classic_add_dim(c, "col", COLUMNS, NULL);
	classic_add_var(c, "fixed", CLASSIC_DOUBLE, 1, dims + 2, NULL);
	classic_add_var(c, "scalar", CLASSIC_INT, 1, dims, NULL);
	classic_add_var(c, "plain", CLASSIC_SHORT, 2, plain, NULL);
	classic_add_var(c, "levels", CLASSIC_FLOAT, 3, dims, NULL);
	classic_add_var(c, "same", CLASSIC_FLOAT, 3, dims, NULL);
	classic_add_var(c, "odd", CLASSIC_CHAR, 3, dims, NULL);
	c->num_records = RECORDS;
	ok(classic_finish(c, NULL) == 0 && classic_assign(c, &align) == 0, "a header");
}

/* ---- places */

static void test_places(const struct classic *c)
{
	struct decomp_order *o;
	bool right = true;

	ok(decomp_order_create(c, &o) == 0, "variables in order");
	for (uint32_t v = 0; v < NUM_VARS; v++)
		for (uint64_t r = 0; r < (c->vars[v].is_record ? RECORDS : 1); r++)
			for (uint64_t e = 0; e < c->vars[v].elements; e++) {
				struct decomp_place p = decomp_place(o, classic_offset(c, &c->vars[v], r, e), 1 << 20);

				right = right && p.var == v && p.record == r &&
					p.byte == e * classic_type_bytes(c->vars[v].type) &&
					p.len == c->vars[v].bytes - p.byte;
			}
	ok(right, "each element is found in its variable");
	is_u64(decomp_place(o, 0, 10).var, DECOMP_NO_MAP, "the header is in none");
	is_u64(decomp_place(o, 500, 1000).len, c->vars[FIXED].begin - 500, "up to the first variable");
	is_u64(decomp_place(o, c->records_begin + RECORDS * c->record_bytes, 7).var, DECOMP_NO_MAP,
		"nor what is behind all records");
	decomp_order_destroy(o);
}

/* ---- maps */

/* Who owns an element of the maps that are used below; 9: nobody. */
static uint32_t owner(uint32_t var, uint64_t element)
{
	uint64_t row = element / COLUMNS, col = element % COLUMNS;

	switch (var) {
	case FIXED: return col < 7 ? 1 : 2;
	case SCALAR: return 3;
	case PLAIN: return 1 + (uint32_t)(col % 3);
	case ODD: return row == 2 ? 9 : 2 + (uint32_t)(row % 2);
	default: return 1 + (uint32_t)((col / 5 + row) % 2);
	}
}

static int add_var(struct decomp *d, const struct classic *c, uint32_t var, uint64_t record)
{
	uint64_t size = classic_type_bytes(c->vars[var].type);
	int r = 0;

	for (uint64_t e = 0; r == 0 && e < c->vars[var].elements; e++)
		if (owner(var, e) != 9)
			r = decomp_add(d, classic_offset(c, &c->vars[var], record, e), size, owner(var, e));
	return r;
}

static bool map_is_right(const struct decomp *d, uint32_t var)
{
	const struct decomp_map *m = &d->maps[d->var_maps[var]];
	uint64_t at = 0;

	for (size_t i = 0; i < m->num_runs; i++) {
		const struct decomp_run *run = &m->runs[i];

		for (; at < run->off; at++)
			if (owner(var, at) != 9)
				return false;
		if (run->off / COLUMNS != (run->off + run->len - 1) / COLUMNS)
			return false;
		for (; at < run->off + run->len; at++)
			if (owner(var, at) != run->writer)
				return false;
	}
	return true;
}

static void test_maps(const struct classic *c)
{
	static const uint32_t order[] = { SCALAR, PLAIN, LEVELS, SAME, ODD };
	struct decomp *d;
	int r = decomp_create(c, &d);

	if (r == 0)
		r = decomp_add(d, 0, 300, 1);
	if (r == 0)
		r = add_var(d, c, FIXED, 0);
	for (uint64_t record = 0; record < RECORDS; record++)
		for (size_t i = 0; r == 0 && i < 5; i++)
			r = add_var(d, c, order[i], record);
	is_int(r, 0, "extents");
	is_int(decomp_finish(d), 0, "are understood");
	is_u64(d->num_maps, 4, "four maps");
	ok(d->var_maps[FIXED] == 0 && d->var_maps[PLAIN] == 1 && d->var_maps[LEVELS] == 2 && d->var_maps[SAME] == 2 &&
			d->var_maps[ODD] == 3,
		"numbered as they come, and shared by what was dealt out alike");
	is_u64(d->var_maps[SCALAR], DECOMP_NO_MAP, "what one wrote has none");
	ok(map_is_right(d, FIXED) && map_is_right(d, PLAIN) && map_is_right(d, LEVELS) && map_is_right(d, ODD),
		"each element is its owner's, and no run crosses a row");
	ok(d->maps[2].num_dims == 2 && d->maps[2].dims[0] == 1 && d->maps[2].elements == ROWS * COLUMNS,
		"without time");
	ok(d->num_ranges == 0, "nothing is left");
	decomp_destroy(d);
}

static void test_odd_ends(const struct classic *c)
{
	const uint64_t plain = c->vars[PLAIN].begin, fixed = c->vars[FIXED].begin,
		       end = c->records_begin + RECORDS * c->record_bytes;
	struct decomp *d;

	ok(decomp_create(c, &d) == 0, "writes that keep to no border");
	decomp_add(d, c->header_bytes - 4, 8, 1);
	decomp_add(d, fixed, 13, 1); /* ends within the second element, */
	decomp_add(d, fixed + 13, 8 * COLUMNS - 13, 2);
	decomp_add(d, plain, 10, 1);
	decomp_add(d, plain + 30, 10, 2);
	decomp_add(d, plain + c->record_bytes + 6, 20, 2); /* the second record has more of it */
	decomp_add(d, end - 1, 3, 2);
	is_int(decomp_finish(d), 0, "are understood");
	const struct decomp_map *m = &d->maps[d->var_maps[FIXED]];
	ok(m->num_runs == 2 && m->runs[0].len == 2 && m->runs[1].off == 2, "an element is its first byte's writer's");
	m = &d->maps[d->var_maps[PLAIN]];
	ok(m->num_runs == 3 && m->runs[0].off == 0 && m->runs[0].len == 5 && m->runs[0].writer == 1 &&
			m->runs[1].off == 5 && m->runs[1].len == 8 && m->runs[1].writer == 2 && m->runs[2].off == 15 &&
			m->runs[2].len == 5,
		"what a further record has in addition joins the map");
	ok(d->num_ranges == 2 && d->ranges[0].off == c->header_bytes && d->ranges[0].len == 4 &&
			d->ranges[1].off >= end - 1,
		"what is in no variable is listed, but for the header");
	decomp_destroy(d);
}

/* Elements [from, to) of a record of a variable, by a writer. */
static int add_part(struct decomp *d, const struct classic *c, uint32_t var, uint64_t record, uint32_t from,
	uint32_t to, uint32_t writer)
{
	uint64_t size = classic_type_bytes(c->vars[var].type);

	return decomp_add(d, classic_offset(c, &c->vars[var], record, from), (to - from) * size, writer);
}

/* Other writers of the same elements are no matter; other elements are. */
static void test_mixed(const struct classic *c)
{
	struct decomp *d;

	ok(decomp_create(c, &d) == 0, "records by other processes");
	add_part(d, c, PLAIN, 0, 2, 6, 1);
	add_part(d, c, PLAIN, 0, 6, 9, 2);
	add_part(d, c, PLAIN, 0, 15, 18, 2);
	add_part(d, c, LEVELS, 0, 0, 4, 1);
	add_part(d, c, SAME, 0, 0, 4, 1);
	add_part(d, c, PLAIN, 1, 2, 5, 3);
	add_part(d, c, PLAIN, 1, 5, 9, 4);
	add_part(d, c, PLAIN, 1, 15, 18, 3);
	add_part(d, c, LEVELS, 1, 0, 5, 1);
	add_part(d, c, SAME, 1, 0, 3, 1);
	add_part(d, c, PLAIN, 2, 2, 9, 1);
	add_part(d, c, PLAIN, 2, 15, 18, 1);
	is_int(decomp_finish(d), 0, "are understood");
	ok(!d->vars[PLAIN].mixed, "the same elements by others are divided alike");
	ok(d->vars[LEVELS].mixed && d->vars[SAME].mixed, "more or fewer elements are not");
	const struct decomp_map *m = &d->maps[d->var_maps[PLAIN]];
	ok(m->num_runs == 3 && m->runs[0].writer == 1 && m->runs[0].len == 4 && m->runs[1].writer == 2,
		"and the first record's writers have them");
	decomp_destroy(d);
}

static void test_limits(const struct classic *c)
{
	uint64_t behind = c->records_begin + RECORDS * c->record_bytes;
	struct classic none = { 0 };
	struct decomp *d;
	int r = 0;

	is_int(decomp_create(&none, &d), -EINVAL, "no variables");
	ok(decomp_create(c, &d) == 0, "too many places");
	for (uint64_t i = 0; r == 0 && i <= DECOMP_RANGES_MAX; i++)
		r = decomp_add(d, behind + 2 * i, 1, 1);
	is_int(r, -E2BIG, "of no variable are refused");
	decomp_destroy(d);
	ok(decomp_create(c, &d) == 0 && decomp_finish(d) == 0 && d->num_maps == 0, "nothing was written: no maps");
	decomp_destroy(d);
}

int main(void)
{
	struct classic header;

	make_header(&header);
	test_places(&header);
	test_maps(&header);
	test_odd_ends(&header);
	test_mixed(&header);
	test_limits(&header);
	classic_destroy(&header);
	return done_testing();
}
