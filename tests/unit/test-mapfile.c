/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Decompositions and runs: what maps say comes out as it is documented, whatever the order in which they say it; and what a
 * range meets of a blob's runs is what going through all of its elements finds.
 */
#include "format/codec/mapfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mpi-agent/plan/runs.h"
#include "tests/lib/tap.h"

static bool has_runs(const struct mapfile_map *m, uint32_t proc, size_t num, const uint64_t *pairs)
{
	if (m->first[proc + 1] - m->first[proc] != num)
		return false;
	for (size_t i = 0; i < num; i++) {
		const struct mapfile_run *r = &m->runs[m->first[proc] + i];

		if (r->off != pairs[2 * i] || r->len != pairs[2 * i + 1])
			return false;
	}
	return true;
}

#define HAS_RUNS(m, proc, num, ...) \
	ok(has_runs(m, proc, num, (const uint64_t[]){ __VA_ARGS__ }), "runs of process %d", proc)

static void test_even(void)
{
	struct mapfile_map m;
	uint64_t dims[] = { 3, 4 }, none[] = { 3, 0 };

	is_int(mapfile_even(2, dims, 5, &m), 0, "an even split");
	HAS_RUNS(&m, 0, 1, 0, 3);
	HAS_RUNS(&m, 1, 2, 3, 1, 4, 2); /* rows end at 4 and 8 */
	HAS_RUNS(&m, 2, 1, 6, 2);
	HAS_RUNS(&m, 4, 1, 10, 2);
	mapfile_map_destroy(&m);
	is_int(mapfile_even(2, none, 5, &m), -EINVAL, "nothing cannot be split");
}

static void decode(const char *text, struct mapfile *ret)
{
	struct cistern_error err = { 0 };

	if (!is_int(mapfile_decode(text, strlen(text), ret, &err), 0, "a text is read"))
		tap_diag("%s", err.text);
}

static void test_text(void)
{
	/* Two rows of three; process 1 has an element twice and one that process 0 has. */
	struct mapfile MAPFILE_CLEANUP d = { 0 };
	struct mapfile_map m;
	uint64_t added = 9;

	decode("version 2001 npes 3 ndims 2\n3 2\n0 2\n1 0\n1 4\n5 4 5 1\n2 0\n\n", &d);
	is_u64(d.num_procs, 3, "processes");
	ok(d.maps[0].dims[0] == 2 && d.maps[0].dims[1] == 3, "the fastest dimension comes first");
	HAS_RUNS(&d.maps[0], 1, 3, 4, 1, 3, 2, 0, 1);
	is_int(mapfile_regroup(&d.maps[0], 3, &m, &added), 0, "put in order");
	HAS_RUNS(&m, 0, 1, 0, 1);
	HAS_RUNS(&m, 1, 2, 0, 1, 3, 2);
	HAS_RUNS(&m, 2, 2, 1, 2, 5, 1);
	is_u64(added, 3, "what nobody had");
	mapfile_map_destroy(&m);
	is_int(mapfile_regroup(&d.maps[0], 2, &m, &added), 0, "for less processes");
	HAS_RUNS(&m, 0, 1, 0, 1);
	HAS_RUNS(&m, 1, 2, 0, 3, 3, 3);
	mapfile_map_destroy(&m);
	is_int(mapfile_regroup(&d.maps[0], 4, &m, &added), -EINVAL, "not for more");
}

static void test_bad_text(void)
{
	static const char *const bad[] = {
		"",
		"version",
		"version 1 npes 0 ndims 1\n5\n",
		"version 1 npes 1 ndims 0\n",
		"version 1 npes 1 ndims 1\n0\n0 0\n",
		"version 1 npes 1 ndims 17\n1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n0 0\n",
		"version 1 npes 2 ndims 1\n5\n0 1\n1\n",
		"version 1 npes 1 ndims 1\n5\n1 1\n1\n",
		"version 1 npes 1 ndims 1\n5\n0 1\n6\n",
		"version 1 npes 1 ndims 1\n5\n0 2\n6\n",
		"version 1 npes 1 ndims 1\n5\n0 99999999999999999999\n",
		"version 1 npes 16777216 ndims 1\n5\n0 1\n1\n",
		"\211HDF\r\n",
		"CDF\5",
		"version 1 npes 1 ndims 3\n4294967296 4294967296 4294967296\n0 0\n",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct cistern_error err = { 0 };
		struct mapfile MAPFILE_CLEANUP d = { 0 };

		ok(mapfile_decode(bad[i], strlen(bad[i]), &d, &err) == -EBADMSG && err.text[0], "refused: %s",
			err.text);
	}
}

/* ---- runs */

#define ELEMENTS 5000u
#define RUNS     900u

static uint64_t next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

struct made {
	uint8_t offsets[RUNS * 8], lengths[RUNS * 8];
	uint32_t at[RUNS * 8]; /* where each element of the blob belongs */
	uint64_t count;
};

static void put(uint8_t *at, uint64_t value, uint8_t bytes, bool little)
{
	for (uint8_t i = 0; i < bytes; i++)
		at[little ? i : bytes - 1 - i] = (uint8_t)(value >> (8 * i));
}

static struct runs make_runs(struct made *m, uint64_t *seed, bool sorted, uint8_t bytes, bool little)
{
	struct runs r = { m->offsets, m->lengths, RUNS, bytes, 4, little };
	uint64_t off = 0;

	m->count = 0;
	for (uint32_t i = 0; i < RUNS; i++) {
		uint64_t len = next(seed) % 4;

		off = sorted ? off + next(seed) % 2 : next(seed) % (ELEMENTS - 4);
		put(m->offsets + i * bytes, off, bytes, little);
		put(m->lengths + i * 4, len, 4, little);
		for (uint64_t k = 0; k < len; k++)
			m->at[m->count++] = (uint32_t)(off + k);
		off += sorted ? len : 0;
	}
	return r;
}

struct got {
	const struct runs_index *x;
	uint64_t from, to, max;
	uint32_t *seen; /* for each element of the blob */
	uint64_t last_first, longest;
	bool bad;
};

static int on_span(const struct runs_span *s, void *arg)
{
	struct got *g = arg;
	uint64_t at = s->at;

	g->bad = g->bad || s->first < g->last_first || s->first >= s->last || s->from >= s->to;
	g->last_first = s->first;
	g->longest = s->to - s->from > g->longest ? s->to - s->from : g->longest;
	for (uint64_t i = s->first; i < s->last; i++) {
		uint64_t off, len;

		runs_get(&g->x->runs, i, &off, &len);
		for (uint64_t k = 0; k < len; k++, at++)
			if (off + k >= g->from && off + k < g->to) {
				g->bad = g->bad || at < s->from || at >= s->to;
				g->seen[at]++;
			}
	}
	return 0;
}

static bool spans_are_right(const struct made *m, const struct runs_index *x, uint64_t from, uint64_t to, uint64_t max)
{
	struct got g = { .x = x, .from = from, .to = to, .seen = calloc(m->count + 1, sizeof(*g.seen)) };

	g.bad = !g.seen || runs_spans(x, from, to, max, on_span, &g) != 0;
	for (uint64_t i = 0; !g.bad && i < m->count; i++)
		g.bad = g.seen[i] != (m->at[i] >= from && m->at[i] < to);
	free(g.seen);
	return !g.bad && (g.longest <= max || g.longest <= 3);
}

static void test_runs(void)
{
	struct made *m = malloc(sizeof(*m));
	uint64_t seed = 7;
	unsigned int wrong = 0;

	for (int trial = 0; m && trial < 24; trial++) {
		struct runs r = make_runs(m, &seed, trial % 3 > 0, trial % 2 ? 8 : 4, trial % 4 > 1);
		struct cistern_error err = { 0 };
		struct runs_index x;

		if (!is_int(runs_index_build(&r, ELEMENTS, m->count, &x, &err), 0, "runs are indexed"))
			continue;
		ok(x.sorted == (trial % 3 > 0), "it is known whether they ascend");
		for (int i = 0; i < 100; i++) {
			uint64_t from = next(&seed) % ELEMENTS, to = from + next(&seed) % 400 + 1;

			wrong += !spans_are_right(m, &x, from, to, i % 2 ? 50 : UINT64_MAX);
		}
		runs_index_destroy(&x);
		ok(runs_index_build(&r, ELEMENTS, m->count + 1, &x, &err) == -EBADMSG, "too few elements: %s",
			err.text);
		ok(runs_index_build(&r, ELEMENTS, m->count - 1, &x, &err) == -EBADMSG, "too many: %s", err.text);
		ok(runs_index_build(&r, 900, m->count, &x, &err) == -EBADMSG, "out of the array: %s", err.text);
	}
	is_u64(wrong, 0, "ranges meet what they should");
	free(m);
}

int main(void)
{
	test_even();
	test_text();
	test_bad_text();
	test_runs();
	return done_testing();
}
