/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * map EXTENTS: how long it takes to say which of EXTENTS extents belong to which variables of a file like those of E3SM's
 * atmosphere model (its F case: 400 variables, most of them with a record dimension, of three shapes; requests of some 28
 * bytes from many processes), from the bytes of the header on. Checks that the answer is right; prints seconds and the
 * highest resident memory in bytes, which the extents themselves are no part of.
 */
#include <sys/resource.h>

#include "format/codec/classic_layout.h"
#include "format/codec/coverage.h"
#include "tests/bench/bench.h"

#define NUM_VARS      400u
#define NUM_FIXED     13u
#define NUM_COLUMNS   866u /* of the small F case */
#define NUM_LEVELS    72u
#define NUM_PROCESSES 16u
#define REQUEST_BYTES 28u

static void check(const char *what, int r)
{
	errno = -r;
	if (r < 0)
		bench_die(what, "map");
}

/* As many records as EXTENTS requests cover. */
static void make_header(struct classic *c, uint64_t extents)
{
	uint32_t dims[] = { 0, 1, 2 }, flat[] = { 0, 2 };
	char name[32];

	classic_init(c, 5);
	check("dim", classic_add_dim(c, "time", 0, NULL));
	check("dim", classic_add_dim(c, "lev", NUM_LEVELS, NULL));
	check("dim", classic_add_dim(c, "ncol", NUM_COLUMNS, NULL));
	for (uint32_t i = 0; i < NUM_VARS; i++) {
		bool fixed = i < NUM_FIXED;

		snprintf(name, sizeof(name), "VARIABLE_%03u", i);
		if (fixed)
			check("var", classic_add_var(c, name, CLASSIC_DOUBLE, 1, &dims[2], NULL));
		else if (i % 4 == 0)
			check("var", classic_add_var(c, name, CLASSIC_FLOAT, 3, dims, NULL));
		else
			check("var", classic_add_var(c, name, CLASSIC_FLOAT, 2, flat, NULL));
		check("att", classic_add_text(c, i, "units", "kg/m2/s"));
		check("att", classic_add_text(c, i, "long_name", "a quantity that the model knows of"));
	}
	check("finish", classic_finish(c, NULL));
	c->num_records = extents * REQUEST_BYTES / c->record_bytes + 1;
	check("finish", classic_finish(c, NULL));
	check("assign", classic_assign(c, &(struct classic_align){ .header = 512, .variable = 512 }));
}

/* Whether all variables together have what was added. */
static void check_answer(const struct layout *l, const struct coverage *c, uint64_t bytes)
{
	uint64_t sum = coverage_rest(c)->logged_bytes;

	for (size_t i = 0; i < l->num_objects; i++) {
		const struct coverage_object *o = coverage_of(c, i);

		sum += o->logged_bytes;
		if (o->num_writers > NUM_PROCESSES || (o->logged_bytes == o->defined_bytes) != (o->gap == UINT64_MAX))
			sum = UINT64_MAX / 2;
	}
	if (sum != bytes) {
		fprintf(stderr, "map: %llu bytes came out of %llu\n", (unsigned long long)sum,
			(unsigned long long)bytes);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	uint64_t extents, off = 0;
	struct classic made, c;
	struct layout l = { 0 };
	struct coverage *cov;
	struct buf header = { 0 };
	struct rusage usage;
	double begun;

	bench_usage(argc, 1, "map EXTENTS");
	extents = bench_number(argv[1], 1);
	make_header(&made, extents);
	check("encode", classic_encode(&made, &header));
	begun = bench_now();
	check("decode", classic_decode(header.data, header.len, &c, NULL));
	check("layout", classic_layout(&c, c.header_bytes + extents * REQUEST_BYTES,
				classic_count_begun(&c, c.header_bytes + extents * REQUEST_BYTES), &l));
	check("create", coverage_create(&l, &cov));
	for (uint64_t i = 0; i < extents; i++) {
		struct coverage_extent e = {
			.off = off, .len = REQUEST_BYTES, .process = (uint32_t)(i % NUM_PROCESSES)
		};

		check("add", coverage_add(cov, &e));
		off += REQUEST_BYTES;
	}
	check("finish", coverage_finish(cov));
	begun = bench_now() - begun;
	check_answer(&l, cov, off);
	getrusage(RUSAGE_SELF, &usage);
	printf("{\"seconds\": %.6f, \"rss\": %llu}\n", begun, (unsigned long long)usage.ru_maxrss * 1024);
	coverage_destroy(cov);
	layout_destroy(&l);
	classic_destroy(&c);
	classic_destroy(&made);
	buf_free(&header);
	return 0;
}
