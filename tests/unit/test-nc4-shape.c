/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Names, chunks and refusals of netCDF-4 files that are made of classic ones; and where the packer finds its values. */
#include "mpi-agent/nc4/shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mpi-agent/nc4/pack.h"
#include "tests/lib/tap.h"

enum { TIME, LEV, LAT, LON, NUM_DIMS };

/* T(time, lev, lat, lon), time(time), lev(lev, lat), lon(lat), scalar */
static void make_header(struct classic *c, uint64_t records, uint64_t lev, uint64_t lat, uint64_t lon)
{
	static const uint32_t all[] = { TIME, LEV, LAT, LON }, lev_lat[] = { LEV, LAT }, only_lat[] = { LAT };
	struct classic_align align = { 0 };
	struct cistern_error err;

	classic_init(c, 5);
	ok(classic_add_dim(c, "time", 0, NULL) == 0 && classic_add_dim(c, "lev", lev, NULL) == 0 &&
			classic_add_dim(c, "lat", lat, NULL) == 0 && classic_add_dim(c, "lon", lon, NULL) == 0,
		"dimensions");
	ok(classic_add_var(c, "T", CLASSIC_FLOAT, 4, all, NULL) == 0 &&
			classic_add_var(c, "time", CLASSIC_DOUBLE, 1, all, NULL) == 0 &&
			classic_add_var(c, "lev", CLASSIC_SHORT, 2, lev_lat, NULL) == 0 &&
			classic_add_var(c, "lon", CLASSIC_INT, 1, only_lat, NULL) == 0 &&
			classic_add_var(c, "scalar", CLASSIC_INT64, 0, NULL, NULL) == 0,
		"variables");
	c->num_records = records;
	ok(classic_finish(c, &err) == 0 && classic_assign(c, &align) == 0, "the header is good");
}

static void test_names(void)
{
	struct nc4_options opt = { .deflate = 1, .shuffle = true, .chunk = "" };
	struct nc4_shape s;
	struct classic c;
	struct cistern_error err;

	make_header(&c, 3, 4, 5, 6);
	if (!ok(nc4_shape_make(&c, classic_file_bytes(&c), &opt, &s, &err) == 0, "it has a shape"))
		return;
	is_u64(s.scale_of[TIME], 1, "time is the coordinate variable of time");
	is_u64(s.scale_of[LEV], 2, "lev, with two dimensions, is that of lev");
	is_u64(s.scale_of[LON], CLASSIC_NONE, "lon(lat) is not that of lon");
	is_str(s.vars[3].name, "_nc4_non_coord_lon", "and has a name of its own");
	ok(!s.strict, "int64 is not of the classic model");
	ok(s.vars[0].is_chunked && s.vars[1].is_chunked, "record variables are chunked");
	ok(!s.vars[2].is_chunked && !s.vars[4].is_chunked, "small ones and scalars are not");
	is_u64(s.vars[4].num_chunks, 1, "a scalar is one piece");
	nc4_shape_free(&s);
	classic_destroy(&c);
}

static void cut(const char *chunk, uint64_t records, const uint64_t dims[3], const uint64_t want[4])
{
	struct nc4_options opt = { .deflate = 1, .chunk = chunk };
	struct nc4_shape s;
	struct classic c;
	struct cistern_error err = { 0 };
	bool same;

	make_header(&c, records, dims[0], dims[1], dims[2]);
	if (!ok(nc4_shape_make(&c, classic_file_bytes(&c), &opt, &s, &err) == 0, "'%s' is taken: %s", chunk, err.text))
		return;
	same = memcmp(s.vars[0].chunk, want, 4 * sizeof(*want)) == 0;
	ok(same, "'%s', %d records of %dx%dx%d: %d,%d,%d,%d", chunk, (int)records, (int)dims[0], (int)dims[1],
		(int)dims[2], (int)s.vars[0].chunk[0], (int)s.vars[0].chunk[1], (int)s.vars[0].chunk[2],
		(int)s.vars[0].chunk[3]);
	nc4_shape_free(&s);
	classic_destroy(&c);
}

static void test_chunks(void)
{
	static const uint64_t small[] = { 2, 3, 4 }, middle[] = { 10, 90, 180 }, large[] = { 1, 1, 1000000 };

	/* 96 bytes a record: 682 of them in 64 KiB, 42 at least. */
	cut("", 1, small, (uint64_t[]){ 42, 2, 3, 4 });
	cut("", 100, small, (uint64_t[]){ 100, 2, 3, 4 });
	cut("", 1000, small, (uint64_t[]){ 500, 2, 3, 4 });
	cut("", 5, middle, (uint64_t[]){ 1, 10, 90, 180 });
	cut("", 5, large, (uint64_t[]){ 1, 1, 1, 250000 });
	cut("time:2", 5, middle, (uint64_t[]){ 2, 10, 90, 180 });
	cut("lat:45/lon:0", 5, middle, (uint64_t[]){ 1, 10, 45, 180 });
	cut("lat:45,T:lat:30,lat:9", 5, middle, (uint64_t[]){ 1, 10, 30, 180 });
	cut("lon:1000,other:7,U:lev:1", 5, middle, (uint64_t[]){ 1, 10, 90, 180 });
}

static void refused(struct classic *c, uint64_t bytes, const char *chunk, int code, const char *why)
{
	struct nc4_options opt = { .deflate = 1, .chunk = chunk };
	struct nc4_shape s;
	struct cistern_error err = { 0 };
	int r = nc4_shape_make(c, bytes, &opt, &s, &err);

	ok(r == code && strstr(err.text, why), "refused: %s", err.text);
	if (r == 0)
		nc4_shape_free(&s);
}

static void test_refusals(void)
{
	static const uint8_t zeros[16];
	struct cistern_error err;
	struct classic c;
	uint64_t bytes;

	make_header(&c, 3, 4, 5, 6);
	bytes = classic_file_bytes(&c);
	refused(&c, bytes - c.record_bytes, "", -EBADMSG, "values end at");
	refused(&c, bytes + c.record_bytes, "", -EBADMSG, "room for 4 records");
	refused(&c, bytes, "time", -EINVAL, "DIMENSION:NUMBER");
	refused(&c, bytes, "time:-1", -EINVAL, "DIMENSION:NUMBER");
	refused(&c, bytes, ":3", -EINVAL, "DIMENSION:NUMBER");
	refused(&c, bytes, "time:99999999999999999999", -EINVAL, "DIMENSION:NUMBER");
	refused(&c, bytes, "time:100000000", -EINVAL, "more than");
	classic_add_att(&c, 0, "_FillValue", CLASSIC_DOUBLE, 1, zeros);
	classic_finish(&c, &err);
	refused(&c, bytes, "", -EINVAL, "_FillValue");
	classic_destroy(&c);
	make_header(&c, 3, 4, 5, 6);
	classic_add_att(&c, 0, "_Netcdf4Dimid", CLASSIC_INT, 1, zeros);
	classic_finish(&c, &err);
	refused(&c, bytes, "", -EINVAL, "_Netcdf4Dimid");
	classic_destroy(&c);
}

/* Every value of T once, in its place, whatever the chunks: the file holds its own offsets. */
static void gather_all(const char *chunk)
{
	struct nc4_options opt = { .deflate = 1, .chunk = chunk };
	uint64_t start[4], count[4], at[4], seen = 0, wrong = 0;
	struct cistern_error err;
	struct nc4_shape s;
	struct classic c;
	uint8_t *file, *out;

	make_header(&c, 5, 3, 4, 7);
	file = calloc(1, classic_file_bytes(&c) + 4);
	for (uint64_t i = 0; i < classic_file_bytes(&c); i += 4) {
		file[i + 2] = (uint8_t)(i >> 8);
		file[i + 3] = (uint8_t)i;
	}
	if (nc4_shape_make(&c, classic_file_bytes(&c), &opt, &s, &err) < 0)
		return;
	out = malloc(s.max_chunk_bytes);
	for (uint64_t n = 0; n < s.vars[0].num_chunks; n++) {
		pack_gather(&s, 0, n, file, out);
		nc4_chunk_box(&s.vars[0], 4, n, start, count);
		memset(at, 0, sizeof(at));
		for (uint64_t i = 0; i < s.vars[0].chunk_bytes / 4; i++) {
			uint64_t rest = i, element = 0, want;
			bool inside = true;
			uint32_t value;

			for (int d = 4; d-- > 0;) {
				at[d] = rest % s.vars[0].chunk[d];
				rest /= s.vars[0].chunk[d];
				inside = inside && at[d] < count[d];
			}
			for (int d = 1; d < 4; d++)
				element = element * s.vars[0].dims[d] + start[d] + at[d];
			want = inside ? classic_offset(&c, &c.vars[0], start[0] + at[0], element) & 0xffff : 0x7cf00000;
			memcpy(&value, out + 4 * i, sizeof(value));
			wrong += value != want;
			seen += inside;
		}
	}
	is_u64(seen, 5 * 3 * 4 * 7, "each value once");
	is_u64(wrong, 0, chunk);
	free(out);
	free(file);
	nc4_shape_free(&s);
	classic_destroy(&c);
}

int main(void)
{
	test_names();
	test_chunks();
	test_refusals();
	gather_all("time:1");
	gather_all("time:2/lev:2/lat:3/lon:4");
	gather_all("time:5/lev:1/lat:4/lon:7");
	gather_all("time:3/lon:5");
	return done_testing();
}
