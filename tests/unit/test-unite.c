/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What nodes tell each other of a file that becomes blobs, and what they make of it together. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi-agent/plan/deal.h"
#include "mpi-agent/plan/unite.h"
#include "tests/lib/tap.h"

enum { FIXED, TIME, A, B, C, NUM_VARS };
#define NODES 3u

/* fixed(col) double; time(time) int; a, b, c(time, col) float */
static void make_header(struct classic *c)
{
	static const struct classic_align align = { .header = 512 };
	static const uint32_t both[] = { 0, 1 };

	classic_init(c, 5);
	classic_add_dim(c, "time", 0, NULL);
	classic_add_dim(c, "col", 10, NULL);
	classic_add_var(c, "fixed", CLASSIC_DOUBLE, 1, both + 1, NULL);
	classic_add_var(c, "time", CLASSIC_INT, 1, both, NULL);
	classic_add_var(c, "a", CLASSIC_FLOAT, 2, both, NULL);
	classic_add_var(c, "b", CLASSIC_FLOAT, 2, both, NULL);
	classic_add_var(c, "c", CLASSIC_FLOAT, 2, both, NULL);
	c->num_records = 2;
	ok(classic_finish(c, NULL) == 0 && classic_assign(c, &align) == 0, "a header");
}

/* Of each node a stream more than of the one before; node 0 wrote the header and what is not cut up. */
static void make_deals(struct deal *deals)
{
	for (uint32_t n = 0; n < NODES; n++) {
		struct deal *d = &deals[n];

		*d = (struct deal){ .node = n, .num_streams = n, .has_header = n == 0, .num_vars = NUM_VARS };
		deal_sum_add(&d->own, 100 * n, 50);
		d->vars = calloc(NUM_VARS, sizeof(*d->vars));
		d->seen = calloc(2, sizeof(*d->seen));
		d->ragged = calloc(2, sizeof(*d->ragged));
		for (uint32_t v = A; d->vars && v < NUM_VARS && n > 0; v++)
			d->vars[v] = (struct deal_var){ .kind = DEAL_RUNS, .list = 7 * n };
	}
	/* Domain homes are others than those who wrote. */
	deals[2].num_seen = 2;
	deals[2].seen[0] = (struct deal_seen){ 0, deals[0].own };
	deals[2].seen[1].node = 1;
	deal_sum_add(&deals[2].seen[1].sum, 100, 20);
	deals[0].num_seen = 2;
	deals[0].seen[0].node = 1;
	deal_sum_add(&deals[0].seen[0].sum, 120, 30);
	deals[0].seen[1] = (struct deal_seen){ 2, deals[2].own };
	deals[0].vars[FIXED].kind = deals[0].vars[TIME].kind = DEAL_VALUES;
	for (uint32_t record = 0; record < 2; record++)
		deal_add_value(&deals[0], &(struct deal_value){ TIME, record, 4, (const uint8_t *)"abcd" });
}

static void free_deals(struct deal *deals)
{
	for (uint32_t n = 0; n < NODES; n++)
		deal_free(&deals[n]);
}

/* ---- together */

static void test_agreed(const struct classic *header)
{
	struct deal deals[NODES];
	struct unite_plan p;
	char why[DEAL_WHY] = "";

	make_deals(deals);
	deals[2].vars[C].list = 15; /* another one, on node 2 alone */
	is_int(unite(deals, NODES, header, 1, &p, why), 0, "deals that fit");
	is_u64(p.num_streams, 3, "streams of all nodes");
	is_u64(p.num_subfiles, 2, "a subfile for each node that wrote parts");
	ok(p.first_subfile[0] == 0 && p.first_subfile[1] == 0 && p.first_subfile[2] == 1 && p.first_subfile[3] == 2,
		"in the order of nodes");
	is_u64(p.num_maps, 2, "maps are shared by what is alike on all nodes");
	ok(p.var_maps[FIXED] == UNITE_NO_MAP && p.var_maps[TIME] == UNITE_NO_MAP && p.var_maps[A] == 0 &&
			p.var_maps[B] == 0 && p.var_maps[C] == 1 && p.map_vars[0] == A && p.map_vars[1] == C,
		"and numbered as their variables come");
	unite_free(&p);
	is_int(unite(deals, NODES, header, 3, &p, why), 0, "more subfiles");
	is_u64(p.num_subfiles, 3, "are as many for each node, but not more than it has streams");
	unite_free(&p);
	free_deals(deals);
}

/* ---- what cannot be */

struct refusal {
	const char *what, *why;
	void (*spoil)(struct deal *deals);
};

static void say_why(struct deal *d)
{
	snprintf(d[1].why, sizeof(d[1].why), "node 1 says no");
}

static void other_file(struct deal *d)
{
	d[1].num_vars--;
}

static void two_headers(struct deal *d)
{
	d[2].has_header = true;
}

static void hide(struct deal *d)
{
	deal_sum_add(&d[1].own, 1000, 4);
}

static void hide_elsewhere(struct deal *d) /* as many bytes, at other places */
{
	d[1].own = (struct deal_sum){ 0 };
	deal_sum_add(&d[1].own, 101, 50);
}

static void no_node(struct deal *d)
{
	d[2].seen[0].node = NODES;
}

static void split_element(struct deal *d)
{
	d[0].num_ragged = d[2].num_ragged = 2;
	d[0].ragged[0] = 512;
	d[0].ragged[1] = d[2].ragged[0] = 520;
	d[2].ragged[1] = 528;
}

static void too_ragged(struct deal *d)
{
	d[0].more_ragged = true;
}

static void same_record(struct deal *d)
{
	d[1].vars[TIME].kind = DEAL_VALUES;
	deal_add_value(&d[1], &(struct deal_value){ TIME, 1, 4, (const uint8_t *)"efgh" });
}

static void whole_and_part(struct deal *d)
{
	d[1].vars[FIXED].kind = DEAL_RUNS;
}

static void mixed(struct deal *d)
{
	d[1].vars[B].mixed = true;
}

static void apart(struct deal *d)
{
	d[1].vars[B].first_record = 1;
}

static void long_scalar(struct deal *d)
{
	d[0].vars[TIME].kind = DEAL_RUNS;
}

static void one_stream(struct deal *d)
{
	d[2].num_streams = 0;
}

static void test_refused(const struct classic *header)
{
	static const struct refusal refusals[] = { { "a node that says why", "node 1 says no", say_why },
		{ "another header", "node 1 says of it is of another file", other_file },
		{ "a header of two nodes", "several nodes wrote its header", two_headers },
		{ "hidden bytes", "node 1 wrote were overwritten", hide },
		{ "as many bytes elsewhere", "node 1 wrote were overwritten", hide_elsewhere },
		{ "an unknown node", "node 3, which the job does not have", no_node },
		{ "an element of two nodes", "the element at 520", split_element },
		{ "too many split elements", "in part only", too_ragged },
		{ "a record of two nodes", "record 1 of variable time", same_record },
		{ "a variable whole and in part", "wrote variable fixed whole", whole_and_part },
		{ "other parts in other records", "variable b is divided", mixed },
		{ "other records", "wrote variable b began with", apart },
		{ "too many values", "variable time is too large", long_scalar },
		{ "one process", "several processes", one_stream } };
	struct deal deals[NODES];
	struct unite_plan p;

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		char why[DEAL_WHY] = "";

		make_deals(deals);
		refusals[i].spoil(deals);
		ok(unite(deals, NODES, header, 1, &p, why) == -EOPNOTSUPP && strstr(why, refusals[i].why),
			"%s is refused: %s", refusals[i].what, why);
		free_deals(deals);
	}
}

/* Alone, a node may do as it likes from record to record. */
static void test_alone(const struct classic *header)
{
	struct deal deals[NODES];
	struct unite_plan p;
	char why[DEAL_WHY] = "";

	make_deals(deals);
	deals[1].num_streams = 2;
	deals[1].vars[B].mixed = true;
	deals[1].vars[B].first_record = 1;
	deals[2].vars[B].kind = DEAL_NOTHING;
	is_int(unite(deals, NODES, header, 1, &p, why), 0, "a variable of one node");
	is_u64(p.num_maps, 2, "has a map of its own");
	unite_free(&p);
	free_deals(deals);
}

/* ---- sums */

static void test_sums(void)
{
	struct deal_sum whole = { 0 }, parts = { 0 }, slow = { 0 };
	const uint64_t at = 0x1234567890u, len = 0xfffffu;

	deal_sum_add(&whole, at, len);
	deal_sum_add(&parts, at + 7, len - 7);
	deal_sum_add(&parts, at, 7);
	deal_sum_add(&parts, at, 0);
	for (uint64_t i = at; i < at + len; i++) {
		slow.bytes++;
		slow.places += i;
		slow.squares += i * i;
	}
	ok(memcmp(&whole, &parts, sizeof(whole)) == 0, "sums do not depend on how bytes are cut");
	ok(memcmp(&whole, &slow, sizeof(whole)) == 0, "and are what they are said to be");
}

/* ---- bytes */

static bool same(const struct deal *a, const struct deal *b)
{
	return strcmp(a->why, b->why) == 0 && a->node == b->node && a->num_streams == b->num_streams &&
	       a->has_header == b->has_header && a->more_ragged == b->more_ragged &&
	       memcmp(&a->own, &b->own, sizeof(a->own)) == 0 && a->num_seen == b->num_seen &&
	       a->seen[1].node == b->seen[1].node &&
	       memcmp(&a->seen[1].sum, &b->seen[1].sum, sizeof(a->seen->sum)) == 0 && a->num_vars == b->num_vars &&
	       a->vars[FIXED].kind == b->vars[FIXED].kind && a->num_ragged == b->num_ragged &&
	       a->ragged[1] == b->ragged[1] && a->values.len == b->values.len &&
	       memcmp(a->values.data, b->values.data, a->values.len) == 0 && a->residue.len == b->residue.len;
}

static void test_bytes(void)
{
	struct deal deals[NODES], again = { 0 };
	struct buf out = { 0 };
	size_t taken = 0;

	make_deals(deals);
	deals[0].num_ragged = 2;
	deals[0].ragged[1] = 99;
	buf_zeros(&deals[0].residue, 5);
	snprintf(deals[0].why, sizeof(deals[0].why), "because");
	is_int(deal_encode(&deals[0], &out), 0, "a deal as bytes");
	ok(deal_decode(out.data, out.len, &again) == 0 && same(&deals[0], &again), "and back");
	deal_free(&again);
	for (size_t len = 0; len < out.len; len++)
		taken += deal_decode(out.data, len, &again) == 0;
	for (size_t i = 0; i < out.len; i++) {
		out.data[i] ^= 4;
		taken += deal_decode(out.data, out.len, &again) == 0;
		out.data[i] ^= 4;
	}
	is_u64(taken, 0, "cut or changed anywhere it is refused");
	buf_free(&out);
	free_deals(deals);
}

int main(void)
{
	struct classic header;

	make_header(&header);
	test_sums();
	test_bytes();
	test_agreed(&header);
	test_refused(&header);
	test_alone(&header);
	classic_destroy(&header);
	return done_testing();
}
