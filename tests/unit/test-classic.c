/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Classic headers. Expected bytes are written out here by hand from the format's grammar (NetCDF File Format Specifications);
 * what other programs write and refuse is compared in tests/bats/classic.bats.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/classic.h"
#include "tests/lib/tap.h"

/* dimensions: t = UNLIMITED, xy = 3; variable "vv": short vv(t, xy), begin 120; one record. CDF-2. */
static const uint8_t small_2[] = "CDF\002\0\0\0\1"
				 "\0\0\0\012\0\0\0\2\0\0\0\1t\0\0\0\0\0\0\0\0\0\0\2xy\0\0\0\0\0\3"
				 "\0\0\0\0\0\0\0\0"
				 "\0\0\0\013\0\0\0\1\0\0\0\2vv\0\0\0\0\0\2\0\0\0\0\0\0\0\1"
				 "\0\0\0\014\0\0\0\1\0\0\0\1a\0\0\0\0\0\0\2\0\0\0\1u\0\0\0"
				 "\0\0\0\3\0\0\0\10\0\0\0\0\0\0\0\170";
#define SMALL_BYTES (sizeof(small_2) - 1)

static int decode(const uint8_t *bytes, size_t len, struct classic *c, struct cistern_error *err)
{
	uint8_t *exact = malloc(len > 0 ? len : 1); /* so that a sanitizer sees a read past its end */
	int r;

	memcpy(exact, bytes, len);
	r = classic_decode(exact, len, c, err);
	free(exact);
	return r;
}

static void check_small(void)
{
	struct classic c;
	struct buf out = { 0 };

	is_int(decode(small_2, SMALL_BYTES, &c, NULL), 0, "bytes by the grammar decode");
	is_u64(c.num_dims, 2, "two dimensions");
	is_u64(c.record_dim, 0, "the record dimension");
	is_str(c.vars[0].name, "vv", "a variable");
	is_u64(c.vars[0].elements, 3, "elements of a record");
	is_u64(c.vars[0].bytes, 6, "bytes of a record");
	is_u64(c.record_bytes, 6, "one record variable alone is not padded");
	is_u64(c.header_bytes, SMALL_BYTES, "the header's length");
	is_u64(classic_file_bytes(&c), 120 + 6, "the file's length");
	is_u64(classic_offset(&c, &c.vars[0], 4, 2), 120 + 4 * 6 + 2 * 2, "where an element is");
	is_u64(classic_count_records(&c, 120 + 17), 2, "how many records fit");
	ok(classic_find_att(&c, 0, "a") && classic_find_att(&c, 0, "a")->values[0] == 'u', "an attribute's value");
	is_int(classic_encode(&c, &out), 0, "it encodes");
	ok(out.len == SMALL_BYTES && memcmp(out.data, small_2, out.len) == 0 && c.exact, "to the same bytes");
	buf_free(&out);
	classic_destroy(&c);
}

/* Every shorter input is "go on", never a success, and nothing is left behind. */
static void check_cut(void)
{
	bool all = true;

	for (size_t len = 0; len < SMALL_BYTES; len++) {
		struct classic c = { 0 };

		all = all && decode(small_2, len, &c, NULL) == -ENODATA && c.vars == NULL;
	}
	ok(all, "each header that is cut short says so");
}

static const struct wrong {
	size_t at;
	uint8_t byte;
	const char *text, *name;
} wrongs[] = {
	{ 3, 4, "offset 0: expected \"CDF\"", "an unknown version" },
	{ 11, 11, "offset 8: expected the list of dimensions", "a tag of another list" },
	{ 12, 0x7f, "offset 8: the list of dimensions has", "a count that no header can hold" },
	{ 19, 0, "offset 16: a dimension's name has 0 bytes", "an empty name" },
	{ 18, 2, "offset 16: a dimension's name has 513 bytes", "a name too long" },
	{ 20, 0, "offset 20: a dimension's name has a NUL", "a NUL in a name" },
	{ 39, 0, "both have length 0", "two record dimensions" },
	{ 47, 1, "offset 40: expected a list of attributes", "entries in a list without a tag" },
	{ 71, 2, "offset 68: variable \"vv\" has dimension 2", "a dimension that is not there" },
	{ 75, 0, "record dimension as its dimension 1", "the record dimension in second place" },
	{ 107, 7, "offset 104: type 7 of \"vv\"", "a type of CDF-5 in CDF-2" },
	{ 112, 0x80, "negative begin", "a begin past 2^63" },
	{ 119, 50, "inside the header, which ends at 120", "a begin inside the header" },
};

static void check_wrong(void)
{
	for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
		uint8_t bytes[SMALL_BYTES];
		struct cistern_error err = { 0 };
		struct classic c = { 0 };
		int r;

		memcpy(bytes, small_2, SMALL_BYTES);
		bytes[wrongs[i].at] = wrongs[i].byte;
		if (wrongs[i].at == 75)
			bytes[71] = 1; /* the dimensions the other way round */
		r = decode(bytes, SMALL_BYTES, &c, &err);
		if (!ok(r == -EBADMSG && strstr(err.text, wrongs[i].text), "%s is refused", wrongs[i].name))
			tap_diag("%d: %s", r, err.text);
		classic_destroy(&c);
	}
}

static void check_padding(void)
{
	uint8_t bytes[SMALL_BYTES];
	struct classic c = { 0 };

	memcpy(bytes, small_2, SMALL_BYTES);
	bytes[21] = 0xff; /* old writers left rubbish there */
	is_int(decode(bytes, SMALL_BYTES, &c, NULL), 0, "rubbish in the padding of a name does not matter");
	ok(!c.exact, "but is told");
	classic_destroy(&c);
}

/* ---- one variable of each type */

#define NUM_TYPES 11

static void add(struct classic *c, enum classic_type type, bool record)
{
	uint32_t dims[] = { 0, 1 };
	char name[16] = "r_";

	strcat(name, classic_type_name(type));
	if (classic_add_var(c, record ? name : name + 2, type, record ? 2 : 1, record ? dims : dims + 1, NULL) < 0)
		abort();
}

static void check_types(void)
{
	/* netcdf.h's NC_FILL values */
	static const uint8_t fills[NUM_TYPES][8] = { { 0x81 }, { 0 }, { 0x80, 0x01 }, { 0x80, 0, 0, 1 },
		{ 0x7c, 0xf0, 0, 0 }, { 0x47, 0x9e, 0, 0, 0, 0, 0, 0 }, { 0xff }, { 0xff, 0xff },
		{ 0xff, 0xff, 0xff, 0xff }, { 0x80, 0, 0, 0, 0, 0, 0, 2 },
		{ 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe } };
	static const uint32_t sizes[NUM_TYPES] = { 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8 };
	static const uint64_t padded[NUM_TYPES] = { 8, 8, 12, 20, 20, 40, 8, 12, 20, 40, 40 };
	bool good = true;

	for (uint32_t t = 1; t <= NUM_TYPES; t++) {
		struct classic c, again;
		struct buf out = { 0 };
		uint8_t fill[8];

		good = good && classic_type_fill((enum classic_type)t, fill) == sizes[t - 1];
		good = good && memcmp(fill, fills[t - 1], sizes[t - 1]) == 0;
		good = good && classic_type_known(5, t) && classic_type_known(2, t) == (t <= 6);
		classic_init(&c, 5);
		good = good && classic_add_dim(&c, "t", 0, NULL) == 0 && classic_add_dim(&c, "x", 5, NULL) == 0;
		add(&c, (enum classic_type)t, true);
		add(&c, (enum classic_type)t, false);
		c.num_records = 3;
		good = good && classic_finish(&c, NULL) == 0 && classic_assign(&c, &(struct classic_align){ 0 }) == 0;
		good = good && c.record_bytes == 5 * sizes[t - 1] && c.vars[1].vsize == padded[t - 1];
		good = good && c.vars[1].begin == c.header_bytes && c.vars[0].begin == c.header_bytes + padded[t - 1];
		good = good && classic_encode(&c, &out) == 0 && out.len == c.header_bytes;
		good = good && decode(out.data, out.len, &again, NULL) == 0;
		good = good && again.vars[0].is_record && again.vars[0].type == (enum classic_type)t;
		good = good && classic_file_bytes(&again) == again.vars[0].begin + 3 * 5 * sizes[t - 1];
		add(&c, (enum classic_type)t, true); /* now there are two, and both are padded */
		good = good && classic_finish(&c, NULL) == 0 && c.record_bytes == 2 * padded[t - 1];
		ok(good, "%s: size, fill value, a fixed variable, one and two record variables",
			classic_type_name((enum classic_type)t));
		buf_free(&out);
		classic_destroy(&c);
		classic_destroy(&again);
	}
	ok(!classic_type_known(5, 0) && !classic_type_known(5, 12) && classic_type_bytes(12) == 0,
		"there are no others");
}

/* ---- sizes */

/* A CDF-2 or 5 file with a fixed variable of bytes, and behind it a scalar. */
static int large(struct classic *c, uint32_t version, uint64_t a, uint64_t b)
{
	static const uint32_t dims[] = { 0, 1 };
	int r;

	classic_init(c, version);
	if (classic_add_dim(c, "a", a, NULL) < 0 || classic_add_dim(c, "b", b, NULL) < 0)
		return -EINVAL;
	if (classic_add_var(c, "v", CLASSIC_DOUBLE, 2, dims, NULL) < 0 ||
		classic_add_var(c, "s", CLASSIC_BYTE, 0, NULL, NULL) < 0)
		abort();
	r = classic_finish(c, NULL);
	return r < 0 ? r : classic_assign(c, &(struct classic_align){ .header = 512, .variable = 512 });
}

static void check_large(void)
{
	struct classic c, again = { 0 };
	struct buf out = { 0 };

	is_int(large(&c, 2, 1u << 20, 4096), 0, "a variable of 32 GiB in CDF-2");
	is_u64(c.vars[0].vsize, 0xFFFFFFFF, "its vsize says that it does not fit");
	is_u64(c.vars[0].begin, 512, "the header is aligned");
	is_u64(c.vars[1].begin, 512 + (UINT64_C(32) << 30), "the next variable lies behind it");
	c.vars[0].vsize = 17;
	classic_encode(&c, &out);
	is_int(decode(out.data, out.len, &again, NULL), 0, "a wrong vsize is not believed");
	is_u64(again.vars[0].bytes, UINT64_C(32) << 30, "but computed");
	is_u64(again.vars[1].elements, 1, "a variable without dimensions has one element");
	is_u64(again.vars[0].vsize, 17, "and kept as it was");
	buf_free(&out);
	classic_destroy(&again);
	classic_destroy(&c);
	is_int(large(&c, 1, 1u << 20, 4096), -EOVERFLOW, "CDF-1 has no offsets for that");
	classic_destroy(&c);
	is_int(large(&c, 5, UINT64_C(1) << 40, UINT64_C(1) << 30), -EBADMSG, "more than 2^63 bytes are refused");
	classic_destroy(&c);
	is_int(large(&c, 2, UINT64_C(1) << 40, 1), -EINVAL, "a length that CDF-2 cannot say");
	classic_destroy(&c);
}

/* All counts that a record's bytes are multiplied with come from the file. */
static void check_overflow(void)
{
	struct classic c = { 0 };
	struct cistern_error err = { 0 };
	uint8_t bytes[SMALL_BYTES];

	memcpy(bytes, small_2, SMALL_BYTES);
	memset(bytes + 4, 0xff, 4);
	is_int(decode(bytes, SMALL_BYTES, &c, &err), 0, "all ones: the number of records is not known");
	ok(c.streaming && c.num_records == 0, "streaming");
	classic_destroy(&c);
	bytes[4] = 0xfe;
	is_int(decode(bytes, SMALL_BYTES, &c, &err), 0, "2^32 - 2^24 records of 6 bytes are possible");
	classic_destroy(&c);
	bytes[3] = 5;
	ok(decode(bytes, SMALL_BYTES, &c, &err) < 0, "what is CDF-2 is no CDF-5");
}

static void check_names(void)
{
	struct classic c;
	char name[CLASSIC_NAME_MAX + 2];
	bool good = true;

	classic_init(&c, 1);
	memset(name, 'n', sizeof(name));
	name[CLASSIC_NAME_MAX + 1] = '\0';
	is_int(classic_add_dim(&c, name, 1, NULL), -EINVAL, "a name too long");
	is_int(classic_add_dim(&c, "", 1, NULL), -EINVAL, "an empty name");
	for (size_t len = 1; len <= 5; len++) {
		struct buf out = { 0 };
		struct classic again = { 0 };

		name[len] = '\0';
		good = good && classic_add_dim(&c, name, len, NULL) == 0 &&
		       classic_add_text(&c, CLASSIC_NONE, name, name) == 0;
		good = good && classic_finish(&c, NULL) == 0 && classic_encode(&c, &out) == 0;
		good = good && out.len == c.header_bytes && out.len % 4 == 0 &&
		       decode(out.data, out.len, &again, NULL) == 0;
		good = good && strcmp(again.dims[len - 1].name, name) == 0 && again.atts[len - 1].num == len;
		name[len] = 'n';
		buf_free(&out);
		classic_destroy(&again);
	}
	ok(good, "names and texts of 1 to 5 bytes are padded to 4");
	is_int(classic_add_int(&c, CLASSIC_NONE, "n", 7), 0, "an attribute of the same name");
	is_u64(classic_find_att(&c, CLASSIC_NONE, "n")->type, CLASSIC_INT, "is replaced");
	is_u64(c.num_atts, 5, "and not added");
	classic_destroy(&c);
}

/* ---- from a file */

struct feed {
	const uint8_t *bytes;
	size_t len, calls;
};

static ssize_t read_source(void *buf, size_t len, uint64_t off, void *arg)
{
	struct feed *s = arg;
	size_t n = off < s->len ? s->len - (size_t)off : 0;

	s->calls++;
	n = n < len ? n : len;
	n = n < 1000 ? n : 1000; /* readers may give less */
	if (n > 0)
		memcpy(buf, s->bytes + off, n);
	return (ssize_t)n;
}

static void check_read(void)
{
	struct feed s = { small_2, SMALL_BYTES, 0 };
	struct cistern_error err = { 0 };
	struct classic c, made;
	struct buf out = { 0 };
	char name[32];

	is_int(classic_read(read_source, &s, &c, &err), 0, "a small header is read");
	classic_destroy(&c);
	s.len = 40;
	is_int(classic_read(read_source, &s, &c, &err), -EBADMSG, "a file that ends inside its header is damaged");
	ok(strstr(err.text, "ends inside the header"), "and that is said");
	classic_init(&made, 5);
	for (int i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "dimension_%d", i);
		classic_add_dim(&made, name, 1, NULL);
	}
	classic_finish(&made, NULL);
	classic_encode(&made, &out);
	s = (struct feed){ out.data, out.len, 0 };
	is_int(classic_read(read_source, &s, &c, &err), 0, "a header of 640,000 bytes is read");
	is_u64(c.num_dims, 20000, "whole");
	classic_destroy(&c);
	classic_destroy(&made);
	buf_free(&out);
}

/* As nc_rename_var() leaves a name that it has made shorter: in its old length, with NULs. */
static void check_shortened(void)
{
	uint8_t bytes[SMALL_BYTES];
	struct classic c = { 0 };
	const uint8_t *name = memmem(small_2, SMALL_BYTES, "\0\0\0\2vv", 6);
	struct buf out = { 0 };

	memcpy(bytes, small_2, SMALL_BYTES);
	bytes[name - small_2 + 5] = 0;
	is_int(decode(bytes, SMALL_BYTES, &c, NULL), 0, "a name with NULs at its end is decoded");
	is_str(c.num_vars ? c.vars[0].name : "", "v", "without them");
	is_u64(c.header_bytes, SMALL_BYTES, "its header ends where it ended");
	ok(!c.exact && classic_encode(&c, &out) == 0, "and the bytes will be others");
	buf_free(&out);
	classic_destroy(&c);
	bytes[name - small_2 + 4] = 0;
	bytes[name - small_2 + 5] = 'v';
	is_int(decode(bytes, SMALL_BYTES, &c, NULL), -EBADMSG, "a NUL inside a name is not taken");
}

/* netCDF-C writes whole words of fill values, also behind the last record of a variable that is alone and not padded. */
static void check_filled(void)
{
	struct classic c;
	uint32_t t = 0;

	classic_init(&c, 1);
	classic_add_dim(&c, "t", 0, NULL);
	classic_add_var(&c, "b", CLASSIC_BYTE, 1, &t, NULL);
	c.num_records = 2;
	classic_finish(&c, NULL);
	classic_assign(&c, &(struct classic_align){ 0 });
	is_u64(classic_count_records(&c, c.records_begin + 1), 1, "a record is missing");
	is_u64(classic_count_records(&c, c.records_begin + 5), 2, "two records and padding");
	is_u64(classic_count_records(&c, c.records_begin + 6), 6, "more than padding are records");
	classic_destroy(&c);
}

/* Variables that share bytes. */
static void check_overlap(void)
{
	struct classic c;
	uint32_t x[] = { 1 }, tx[] = { 0, 1 };
	struct cistern_error err = { 0 };

	classic_init(&c, 5);
	classic_add_dim(&c, "t", 0, NULL);
	classic_add_dim(&c, "x", 5, NULL);
	classic_add_var(&c, "a", CLASSIC_INT, 1, x, NULL);
	classic_add_var(&c, "b", CLASSIC_INT, 1, x, NULL);
	classic_add_var(&c, "r", CLASSIC_BYTE, 2, tx, NULL);
	classic_add_var(&c, "s", CLASSIC_BYTE, 2, tx, NULL);
	classic_finish(&c, NULL);
	is_int(classic_assign(&c, &(struct classic_align){ 0 }), 0, "places are given");
	is_int(classic_check_begins(&c, &err), 0, "which are good");
	c.vars[0].begin = c.vars[1].begin + 20;
	c.vars[2].begin += 40;
	c.vars[3].begin += 40;
	c.records_begin += 40;
	is_int(classic_check_begins(&c, &err), 0, "so is another order");
	c.vars[0].begin -= 1;
	is_int(classic_check_begins(&c, &err), -EBADMSG, "an overlap of fixed variables is not");
	c.vars[0].begin += 1;
	c.vars[3].begin += 4;
	is_int(classic_check_begins(&c, &err), -EBADMSG, "nor a record variable that reaches into the next record");
	ok(strstr(err.text, "\"s\""), "and it is named");
	classic_destroy(&c);
}

int main(void)
{
	check_small();
	check_cut();
	check_wrong();
	check_padding();
	check_types();
	check_large();
	check_overflow();
	check_names();
	check_read();
	check_overlap();
	check_shortened();
	check_filled();
	return done_testing();
}
