/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Coverage against a model that knows each byte of a file: whose it is, whether it is there, who wrote it. Layouts and extents
 * are random; what the two say must be the same.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/classic_layout.h"
#include "format/codec/coverage.h"
#include "tests/lib/tap.h"

#define FILE_BYTES 4096u
#define NUM_WRITES 60u
#define NUM_NODES  3u

struct byte {
	size_t object; /* SIZE_MAX: none */
	uint64_t at;
	uint8_t state; /* 0: missing, 1: drained, 2 + node: logged */
	uint8_t value;
};

static uint32_t random_state = 2026;

static uint32_t roll(uint32_t sides)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 9) % sides;
}

/* ---- a file */

static void make_layout(struct layout *l)
{
	static const enum classic_type types[] = { CLASSIC_BYTE, CLASSIC_SHORT, CLASSIC_FLOAT, CLASSIC_DOUBLE };
	uint32_t dims[] = { 0, 1, 2 }, num = 1 + roll(6), records = roll(4);
	struct classic c;
	char name[16];

	classic_init(&c, 1 + roll(2));
	classic_add_dim(&c, "t", 0, NULL);
	classic_add_dim(&c, "y", 1 + roll(7), NULL);
	classic_add_dim(&c, "x", 1 + roll(9), NULL);
	for (uint32_t i = 0; i < num + records; i++) {
		bool record = i >= num;

		snprintf(name, sizeof(name), "v%u", i);
		if (classic_add_var(&c, name, types[roll(4)], record ? 3 : roll(3), record ? dims : dims + 1, NULL) < 0)
			abort();
	}
	c.num_records = records > 0 ? roll(4) : 0;
	if (classic_finish(&c, NULL) < 0 || classic_assign(&c, &(struct classic_align){ .variable = 32 }) < 0 ||
		classic_layout(&c, classic_file_bytes(&c), classic_count_begun(&c, classic_file_bytes(&c)), l) < 0)
		abort();
	classic_destroy(&c);
}

static void mark(struct byte *bytes, size_t object, uint64_t off, uint64_t len, uint64_t at)
{
	for (uint64_t i = 0; i < len; i++) {
		if (off + i >= FILE_BYTES)
			abort();
		bytes[off + i].object = object;
		bytes[off + i].at = at + i;
	}
}

static void make_file(const struct layout *l, struct byte *bytes)
{
	for (size_t i = 0; i < FILE_BYTES; i++)
		bytes[i] = (struct byte){ .object = SIZE_MAX };
	for (size_t i = 0; i < l->num_objects; i++) {
		const struct layout_object *o = &l->objects[i];

		for (uint64_t k = 0; k < o->count; k++)
			mark(bytes, i, o->begin + k * o->stride, o->len, k * o->len);
	}
	for (size_t i = 0; i < NUM_WRITES; i++) {
		uint32_t off = roll(FILE_BYTES - 1), len = 1 + roll(FILE_BYTES - off < 200 ? FILE_BYTES - off : 200);
		uint8_t state = (uint8_t)(1 + roll(NUM_NODES + 1));

		for (uint32_t k = 0; k < len; k++)
			bytes[off + k].state = state;
	}
}

/* Now and then fill values, and bytes that look like parts of one. */
static void make_values(const struct layout *l, struct byte *bytes)
{
	for (size_t i = 0; i < FILE_BYTES; i++) {
		const struct layout_object *o = bytes[i].object != SIZE_MAX ? &l->objects[bytes[i].object] : NULL;

		if (o && o->has_fill && (bytes[i].at / o->element_bytes) % 3 > 0)
			bytes[i].value = o->fill[bytes[i].at % o->element_bytes];
		else
			bytes[i].value = (uint8_t)roll(256);
	}
}

/* ---- the model's own account */

static struct coverage_object expected(const struct layout *l, const struct byte *bytes, size_t object, uint64_t *nodes)
{
	struct coverage_object e = { .gap = UINT64_MAX };
	const struct layout_object *o = object < l->num_objects ? &l->objects[object] : NULL;
	uint64_t count[4] = { 0 };

	for (size_t i = 0; i < FILE_BYTES; i++) {
		const struct byte *b = &bytes[i];

		if (b->object != (o ? object : SIZE_MAX))
			continue;
		e.defined_bytes += o != NULL;
		e.drained_bytes += b->state == 1;
		e.logged_bytes += b->state > 1;
		if (b->state > 1)
			nodes[b->state - 2]++;
		if (o && b->state == 0 && b->at < e.gap)
			e.gap = b->at;
		if (o && b->state > 0)
			count[b->at / o->len]++;
	}
	for (size_t i = 0; o && i < 4; i++)
		e.complete += count[i] == o->len;
	return e;
}

static bool same(const struct coverage_object *got, const struct coverage_object *want, const uint64_t *nodes)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < got->num_writers; i++) {
		if (got->writers[i].node >= NUM_NODES || got->writers[i].bytes != nodes[got->writers[i].node] ||
			(i > 0 && got->writers[i].bytes > got->writers[i - 1].bytes))
			return false;
		sum += got->writers[i].bytes;
	}
	return sum == want->logged_bytes && got->defined_bytes == want->defined_bytes &&
	       got->logged_bytes == want->logged_bytes && got->drained_bytes == want->drained_bytes &&
	       got->complete == want->complete && got->gap == want->gap;
}

static bool judge(const struct layout *l, const struct byte *bytes, struct coverage *c)
{
	bool good = coverage_finish(c) == 0;

	for (size_t i = 0; i <= l->num_objects; i++) {
		uint64_t nodes[NUM_NODES] = { 0 };
		struct coverage_object want = expected(l, bytes, i, nodes);
		const struct coverage_object *got = i < l->num_objects ? coverage_of(c, i) : coverage_rest(c);

		good = good && same(got, &want, nodes);
	}
	return good;
}

static void add_file(struct coverage *c, const struct byte *bytes)
{
	for (size_t i = 0, end; i < FILE_BYTES; i = end) {
		struct coverage_extent e = { .off = i, .node = bytes[i].state - 2u, .process = 7 };

		for (end = i + 1; end < FILE_BYTES && bytes[end].state == bytes[i].state && roll(50) > 0; end++)
			continue;
		e.len = end - i;
		e.state = bytes[i].state == 1 ? COVERAGE_DRAINED : COVERAGE_LOGGED;
		if (bytes[i].state > 0 && coverage_add(c, &e) < 0)
			abort();
		if (bytes[i].state > 0)
			coverage_note(c, e.off, e.len);
	}
}

static void check_random(void)
{
	static struct byte bytes[FILE_BYTES];
	bool good = true, noted = true;

	for (int round = 0; round < 400; round++) {
		struct layout l = { 0 };
		struct coverage *c;

		make_layout(&l);
		make_file(&l, bytes);
		if (coverage_create(&l, &c) < 0)
			abort();
		add_file(c, bytes);
		good = good && judge(&l, bytes, c);
		for (size_t i = 0; i < l.num_objects; i++)
			noted = noted && coverage_of(c, i)->noted_bytes ==
						 coverage_of(c, i)->logged_bytes + coverage_of(c, i)->drained_bytes;
		coverage_destroy(c);
		layout_destroy(&l);
	}
	ok(good, "400 files: bytes, gaps, complete records and writers are the model's");
	ok(noted, "notes add up");
}

static void check_fill(void)
{
	static struct byte bytes[FILE_BYTES];
	bool good = true;

	for (int round = 0; round < 200; round++) {
		struct layout l = { 0 };
		struct coverage *c;
		uint8_t raw[FILE_BYTES];
		uint64_t fill[16] = { 0 }, looked[16] = { 0 };
		uint32_t off = roll(FILE_BYTES / 2), len = roll(FILE_BYTES / 2);

		make_layout(&l);
		make_file(&l, bytes);
		make_values(&l, bytes);
		for (size_t i = 0; i < FILE_BYTES; i++)
			raw[i] = bytes[i].value;
		for (size_t i = off; i < off + len; i++) { /* elements by their first byte */
			const struct layout_object *o =
				bytes[i].object != SIZE_MAX ? &l.objects[bytes[i].object] : NULL;

			if (!o || !o->has_fill || bytes[i].at % o->element_bytes || i + o->element_bytes > off + len)
				continue;
			looked[bytes[i].object] += o->element_bytes;
			if (memcmp(raw + i, o->fill, o->element_bytes) == 0)
				fill[bytes[i].object] += o->element_bytes;
		}
		coverage_create(&l, &c);
		coverage_look(c, off, raw + off, len);
		for (size_t i = 0; i < l.num_objects; i++)
			good = good && coverage_of(c, i)->fill_bytes == fill[i] &&
			       coverage_of(c, i)->looked_bytes == looked[i];
		coverage_destroy(c);
		layout_destroy(&l);
	}
	ok(good, "200 files: elements equal to the fill value are counted");
}

/* ---- chunks */

static void check_chunks(void)
{
	struct layout l = { 0 };
	struct layout_object *o = layout_add(&l, "g/v", LAYOUT_CHUNKS);
	struct coverage *c;

	layout_add_piece(o, 1000, 100, 0);
	layout_add_piece(o, 500, 100, 2);
	layout_add_piece(o, 1550, 100, 3);
	layout_add_piece(o, 1600, 100, 1); /* overlaps: a damaged file */
	layout_add_piece(o, 1010, 20, 4);  /* inside another */
	layout_set_dims(o, 2, (uint64_t[]){ 3, 5 });
	o->chunk = calloc(2, sizeof(*o->chunk));
	o->chunk[0] = 2, o->chunk[1] = 2;
	is_u64(layout_parts(o), 2 * 3, "chunks that should be there");
	layout_sort_pieces(o);
	o = layout_add(&l, "(metadata)", LAYOUT_METADATA);
	layout_add_piece(o, 0, 96, 0);
	layout_set_dims(layout_add(&l, "unplaced", LAYOUT_VARIABLE), 1, (uint64_t[]){ 7 });
	layout_set_dims(layout_add(&l, "empty", LAYOUT_VARIABLE), 1, (uint64_t[]){ 0 });
	is_int(coverage_create(&l, &c), 0, "chunks");
	coverage_add(c, &(struct coverage_extent){ 0, 600, COVERAGE_LOGGED, 0, 5 });
	coverage_add(c, &(struct coverage_extent){ 1000, 50, COVERAGE_LOGGED, 0, 6 });
	coverage_add(c, &(struct coverage_extent){ 1050, 50, COVERAGE_DRAINED, COVERAGE_NOBODY, 0 });
	coverage_add(c, &(struct coverage_extent){ 1560, 200, COVERAGE_LOGGED, 0, 5 });
	is_int(coverage_add(c, &(struct coverage_extent){ 1700, 1, COVERAGE_LOGGED, 0, 5 }), -EINVAL, "extents rise");
	coverage_finish(c);
	is_u64(coverage_of(c, 0)->complete, 3, "two are whole, and what is left of the one that overlaps");
	is_u64(coverage_of(c, 0)->gap, 3, "the first that is not is named");
	is_u64(coverage_of(c, 0)->logged_bytes, 100 + 50 + 140, "logged bytes of chunks");
	is_u64(coverage_of(c, 0)->num_writers, 2, "two processes of a node are two writers");
	is_u64(coverage_of(c, 0)->writers[0].process, 5, "the one with more bytes first");
	is_u64(coverage_of(c, 1)->logged_bytes, 96, "metadata");
	ok(coverage_of(c, 2)->gap == 0 && coverage_of(c, 2)->complete == 0, "a variable without a place is missing");
	ok(coverage_of(c, 3)->gap == UINT64_MAX && layout_parts(&l.objects[3]) == 0, "but not one without elements");
	is_u64(coverage_rest(c)->logged_bytes, 404 + 60, "bytes that nobody owns");
	coverage_destroy(c);
	layout_destroy(&l);
}

/* 2^50 records under one extent: whoever took them one by one would not come to an end. */
static void check_many_records(void)
{
	struct layout l = { 0 };
	struct layout_object *o = layout_add(&l, "a", LAYOUT_RECORDS);
	struct coverage *c;

	o->begin = 100, o->len = 3, o->stride = 8, o->count = UINT64_C(1) << 50;
	o = layout_add(&l, "b", LAYOUT_RECORDS);
	o->begin = 104, o->len = 4, o->stride = 8, o->count = UINT64_C(1) << 50;
	is_int(coverage_create(&l, &c), 0, "2^50 records");
	coverage_note(c, 0, UINT64_C(1) << 60);
	coverage_add(c, &(struct coverage_extent){ 90, 14, COVERAGE_LOGGED, 1, 0 });
	coverage_add(
		c, &(struct coverage_extent){ 104, (UINT64_C(1) << 53) - 6, COVERAGE_DRAINED, COVERAGE_NOBODY, 0 });
	coverage_finish(c);
	is_u64(coverage_of(c, 0)->complete, UINT64_C(1) << 50, "all of one variable are complete");
	is_u64(coverage_of(c, 1)->complete, (UINT64_C(1) << 50) - 1, "one of the other is not");
	is_u64(coverage_of(c, 1)->gap, (UINT64_C(1) << 52) - 2, "the gap is in its last record");
	is_u64(coverage_of(c, 0)->noted_bytes, UINT64_C(3) << 50, "notes of them all");
	coverage_destroy(c);
	layout_destroy(&l);
}

static void tell(const struct coverage_part *part, void *arg)
{
	uint64_t *sum = arg;

	*sum = *sum * 1000 + part->off * 100 + part->at * 10 + part->len +
	       (part->object == SIZE_MAX ? 500 : part->object);
}

static void check_parts(void)
{
	struct layout l = { 0 };
	struct layout_object *o = layout_add(&l, "v", LAYOUT_VARIABLE);
	struct coverage *c;
	uint64_t sum = 0;

	o->begin = 2, o->len = 3, o->count = 1;
	o = layout_add(&l, "r", LAYOUT_RECORDS);
	o->begin = 6, o->len = 1, o->stride = 2, o->count = 1;
	is_int(coverage_create(&l, &c), 0, "a variable and a record");
	coverage_each(c, 3, 4, tell, &sum);
	/* v: off 3, at 1, len 2; nobody's: off 5, len 1; r: off 6, at 0, len 1 */
	is_u64(sum, (312 * UINT64_C(1000) + 1001) * 1000 + 602, "parts of a range, in order");
	coverage_note(c, 0, 100);
	coverage_forget_notes(c);
	is_u64(coverage_of(c, 0)->noted_bytes + coverage_rest(c)->noted_bytes, 0, "notes can be forgotten");
	coverage_destroy(c);
	layout_destroy(&l);
}

static void check_index(void)
{
	uint64_t dims[] = { 2, 3, 5 }, index[3];
	struct layout l = { 0 };
	struct layout_object *o = layout_add(&l, "v", LAYOUT_RECORDS);

	o->element_bytes = 4;
	layout_set_dims(o, 3, dims);
	coverage_index(o, 4 * (1 * 15 + 2 * 5 + 3) + 2, index);
	ok(index[0] == 1 && index[1] == 2 && index[2] == 3, "a byte's place in the dimensions");
	o->begin = 10, o->len = 60, o->stride = 40, o->count = 2;
	is_int(coverage_create(&l, &(struct coverage *){ NULL }), -EINVAL, "records longer than what is between them");
	layout_destroy(&l);
}

int main(void)
{
	check_random();
	check_fill();
	check_chunks();
	check_many_records();
	check_parts();
	check_index();
	return done_testing();
}
