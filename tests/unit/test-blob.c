/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Headers of blob subfiles: what is made has E3SM-IO's names, types and order (those are listed here from its BLOB_IO.md), and
 * what is read gives back the canonical file. Where data_blob's parts are: a data_blob is put together here as E3SM-IO's
 * document describes it.
 */
#include "format/codec/blob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/hdf5.h"
#include "tests/lib/tap.h"

#define BLOBS 3u

/* time unlimited, lev 2, ncol 5: double fixed(ncol), double T(time, lev, ncol), int date(time), char name(ncol). */
static void canonical_make(struct classic *c)
{
	static const uint32_t ncol[] = { 2 }, cube[] = { 0, 1, 2 }, time[] = { 0 };
	static const struct classic_align align = { 4, 4, 4 };
	int r = 0;

	classic_init(c, 5);
	r |= classic_add_dim(c, "time", 0, NULL);
	r |= classic_add_dim(c, "lev", 2, NULL);
	r |= classic_add_dim(c, "ncol", 5, NULL);
	r |= classic_add_text(c, CLASSIC_NONE, "title", "a test");
	r |= classic_add_var(c, "fixed", CLASSIC_DOUBLE, 1, ncol, NULL);
	r |= classic_add_var(c, "T", CLASSIC_DOUBLE, 3, cube, NULL);
	r |= classic_add_text(c, 1, "units", "K");
	r |= classic_add_var(c, "date", CLASSIC_INT, 1, time, NULL);
	r |= classic_add_var(c, "name", CLASSIC_CHAR, 1, ncol, NULL);
	c->num_records = 2;
	r |= classic_finish(c, NULL);
	r |= classic_assign(c, &align);
	is_int(r, 0, "the canonical header is made");
}

static const uint32_t dims_1[] = { 2 }, dims_2[] = { 1, 2 };
static const struct blob_make_map maps[] = { { 1, dims_1, 5, 2 }, { 2, dims_2, 10, 4 } };
static const uint32_t var_maps[] = { 0, 1, BLOB_NO_MAP, BLOB_NO_MAP };

static struct blob_make make_of(const struct classic *c)
{
	return (struct blob_make){ .canonical = c,
		.global_nprocs = BLOBS,
		.num_subfiles = 1,
		.nblobs = BLOBS,
		.num_maps = 2,
		.maps = maps,
		.var_maps = var_maps };
}

static void is_dim(const struct classic *c, uint32_t id, const char *name, uint64_t len)
{
	ok(id < c->num_dims && strcmp(c->dims[id].name, name) == 0 && c->dims[id].len == len, "dimension %u is %s", id,
		name);
}

static void is_var(const struct classic *c, uint32_t id, const char *name, enum classic_type type, uint32_t num_dims,
	uint32_t dim_0, uint32_t dim_1)
{
	const struct classic_var *v = &c->vars[id];

	ok(id < c->num_vars && strcmp(v->name, name) == 0 && v->type == type && v->num_dims == num_dims &&
			(num_dims < 1 || v->dims[0] == dim_0) && (num_dims < 2 || v->dims[1] == dim_1),
		"variable %u is %s", id, name);
}

static int32_t int_att(const struct classic *c, uint32_t var, const char *name, uint32_t i)
{
	const struct classic_att *a = classic_find_att(c, var, name);

	if (!a || a->type != CLASSIC_INT || i >= a->num)
		return -1;
	return a->values[4 * i + 3]; /* all are small here */
}

static void test_make(void)
{
	struct classic CLASSIC_CLEANUP c = { 0 }, CLASSIC_CLEANUP s = { 0 };
	struct cistern_error err = { 0 };
	struct blob_make m = make_of(&c);

	canonical_make(&c);
	if (!is_int(blob_make_header(&m, &s, &err), 0, "the subfile's header is made"))
		return;
	is_u64(s.version, 5, "it is CDF-5");
	is_u64(s.num_dims, 8, "three dimensions and five");
	is_dim(&s, 3, "nblobs", 3);
	is_dim(&s, 4, "D1.nelems", 5);
	is_dim(&s, 5, "D2.nelems", 10);
	is_dim(&s, 6, "D1.max_nreqs", 2);
	is_dim(&s, 7, "D2.max_nreqs", 4);
	is_u64(s.num_vars, 14, "five variables for each map, and the canonical ones");
	is_var(&s, 0, "D1.nreqs", CLASSIC_INT, 1, 3, 0);
	is_var(&s, 1, "D1.blob_start", CLASSIC_INT64, 1, 3, 0);
	is_var(&s, 2, "D1.blob_count", CLASSIC_INT64, 1, 3, 0);
	is_var(&s, 3, "D1.offsets", CLASSIC_INT, 2, 3, 6);
	is_var(&s, 4, "D1.lengths", CLASSIC_INT, 2, 3, 6);
	is_var(&s, 8, "D2.offsets", CLASSIC_INT, 2, 3, 7);
	is_var(&s, 10, "fixed", CLASSIC_DOUBLE, 1, 4, 0);
	is_var(&s, 11, "T", CLASSIC_DOUBLE, 2, 0, 5);
	is_var(&s, 12, "date", CLASSIC_INT, 1, 0, 0);
	is_var(&s, 13, "name", CLASSIC_CHAR, 1, 2, 0);
	is_int(int_att(&s, CLASSIC_NONE, "global_nprocs", 0), 3, "global_nprocs");
	is_int(int_att(&s, CLASSIC_NONE, "num_decompositions", 0), 2, "num_decompositions");
	is_int(int_att(&s, CLASSIC_NONE, "num_subfiles", 0), 1, "num_subfiles");
	is_int(int_att(&s, 11, "decomposition_ID", 0), 2, "decomposition_ID counts from 1");
	is_int(int_att(&s, 11, "global_dimids", 2), 2, "global_dimids are the canonical ones");
	is_int(int_att(&s, 5, "global_dimids", 0), 1, "those of a map, without the record dimension");
	ok(classic_find_att(&s, 11, "units"), "attributes stay");
	is_u64(s.vars[0].begin, (s.header_bytes + 511) / 512 * 512, "the first variable is aligned");
}

/* ---- what is made is read */

static int redecode(const struct classic *s, struct blob_head *ret, struct cistern_error *err)
{
	struct buf out BUF_CLEANUP = { 0 };
	struct classic c;
	int r = classic_encode(s, &out);

	if (r == 0)
		r = classic_decode_definitions(out.data, out.len, &c, err);
	return r < 0 ? r : blob_head_decode(&c, ret, err);
}

static void is_same_file(const struct classic *a, const struct classic *b, const char *what)
{
	struct buf x BUF_CLEANUP = { 0 }, y BUF_CLEANUP = { 0 };

	classic_encode(a, &x);
	classic_encode(b, &y);
	ok(x.len == y.len && memcmp(x.data, y.data, x.len) == 0, "%s", what);
}

static void test_read(void)
{
	static const struct classic_align align = { 4, 4, 4 };
	struct classic CLASSIC_CLEANUP c = { 0 }, CLASSIC_CLEANUP s = { 0 };
	struct blob_head BLOB_HEAD_CLEANUP h = { 0 };
	struct cistern_error err = { 0 };
	struct blob_make m = make_of(&c);

	canonical_make(&c);
	if (!is_int(blob_make_header(&m, &s, &err), 0, "made") || !is_int(redecode(&s, &h, &err), 0, "read"))
		return;
	ok(!h.is_exact && !h.little_endian, "without what only ours say");
	is_u64(h.nblobs, BLOBS, "blobs");
	is_u64(h.num_maps, 2, "maps");
	is_u64(h.maps[1].elements, 10, "elements of a map");
	is_u64(h.maps[1].max_nreqs, 4, "most requests of a map");
	is_u64(h.vars[1].map, 1, "the map of a variable");
	is_u64(h.vars[2].map, BLOB_NO_MAP, "and of one without");
	is_u64(h.vars[1].var, 11, "where it is in the subfile");
	is_int(classic_assign(&h.canonical, &align), 0, "begins of the canonical file");
	is_same_file(&h.canonical, &c, "the canonical header is the same to the byte");
}

static void test_exact(void)
{
	static const uint8_t pad[] = { 1, 2, 3 };
	struct classic CLASSIC_CLEANUP c = { 0 }, CLASSIC_CLEANUP s = { 0 };
	struct buf header BUF_CLEANUP = { 0 }, residue BUF_CLEANUP = { 0 };
	struct blob_head BLOB_HEAD_CLEANUP h = { 0 };
	struct blob_exact exact = { .set = { 7 }, .subfile = 0, .file_bytes = 4096 };
	struct cistern_error err = { 0 };
	struct blob_make m = make_of(&c);
	struct blob_residue got;
	struct cursor cur;

	canonical_make(&c);
	c.vars[0].begin += 100; /* as nothing would place it */
	classic_encode(&c, &header);
	blob_add_residue(&residue, &(struct blob_residue){ 1000, 50, 3, sizeof(pad), pad });
	exact.header = header.data;
	exact.header_bytes = header.len;
	exact.residue = residue.data;
	exact.residue_bytes = residue.len;
	m.exact = &exact;
	c.vars[0].begin -= 100;
	is_int(blob_make_header(&m, &s, &err), -EINVAL, "a header whose variables overlap is refused");
	ok(strstr(err.text, "it cannot be kept"), "that is said: %s", err.text);
	c.vars[0].begin += 100;
	c.num_records = 2;
	for (uint32_t i = 0; i < c.num_vars; i++)
		c.vars[i].begin += i == 0 ? 0 : 100;
	buf_reset(&header);
	classic_encode(&c, &header);
	exact.header = header.data;
	is_int(blob_make_header(&m, &s, &err), 0, "made with another");
	if (!is_int(redecode(&s, &h, &err), 0, "read"))
		return;
	ok(h.is_exact, "it is exact");
	is_same_file(&h.canonical, &c, "the kept header comes back");
	is_u64(h.exact.file_bytes, 4096, "the size is kept");
	cur = cursor_make(h.exact.residue, (size_t)h.exact.residue_bytes);
	is_int(blob_next_residue(&cur, &got), 1, "there is a residue");
	ok(got.off == 1000 && got.stride == 50 && got.count == 3 && got.len == 3 && memcmp(got.bytes, pad, 3) == 0,
		"it is what was put");
	is_int(blob_next_residue(&cur, &got), 0, "and no other");
}

/* ---- what is kept of the canonical header */

/* The subfile of a header, which may be other than c's. */
static void make_kept(const struct classic *c, const struct buf *header, struct classic *ret)
{
	struct blob_exact exact = { .file_bytes = 4096, .header = header->data, .header_bytes = header->len };
	struct blob_make m = make_of(c);
	struct cistern_error err = { 0 };

	m.exact = &exact;
	is_int(blob_make_header(&m, ret, &err), 0, "made");
}

/* at: of the subfile's attributes, 0: there is none of that name. */
static uint64_t kept_bytes(const struct classic *s, const char *name)
{
	const struct classic_att *a = classic_find_att(s, 0, name);

	return a ? a->num : 0;
}

static void comes_back(const struct classic *s, const struct buf *header, const char *what)
{
	struct blob_head BLOB_HEAD_CLEANUP h = { 0 };
	struct cistern_error err = { 0 };

	if (is_int(redecode(s, &h, &err), 0, what))
		ok(h.exact.header_bytes == header->len && memcmp(h.exact.header, header->data, 4) == 0 &&
				memcmp(h.exact.header + 12, header->data + 12, header->len - 12) == 0,
			"%s: to the byte", what);
}

static void test_kept(void)
{
	struct classic CLASSIC_CLEANUP c = { 0 }, CLASSIC_CLEANUP s = { 0 };
	struct buf header BUF_CLEANUP = { 0 };

	canonical_make(&c);
	classic_encode(&c, &header);
	make_kept(&c, &header, &s);
	ok(kept_bytes(&s, "cistern_header") == 0 && kept_bytes(&s, "cistern_layout") == 8,
		"of a header as libraries write it nothing is kept but version and checksum");
	comes_back(&s, &header, "it");

	/* Dimension 1 is "lev": its name is behind magic, count, list, the first dimension's 16 + 8 bytes, and its length. */
	classic_destroy(&s);
	header.data[4 + 8 + 12 + 8 + 4 + 8 + 8 + 3] = 'x';
	make_kept(&c, &header, &s);
	is_u64(kept_bytes(&s, "cistern_layout"), 8 + 3, "rubbish in a name's padding is kept");
	comes_back(&s, &header, "a header with rubbish");
	header.data[4 + 8 + 12 + 8 + 4 + 8 + 8 + 3] = 0;

	classic_destroy(&s);
	memset(header.data + 4, 0xff, 8);
	make_kept(&c, &header, &s);
	comes_back(&s, &header, "a header without a number of records");
}

/* A name may end in NULs, which count. Nobody would write the header so long again: all of it is kept. */
static void test_kept_whole(void)
{
	static const size_t name = 4 + 8 + 12; /* of dimension 0: "time" */
	struct classic CLASSIC_CLEANUP c = { 0 }, CLASSIC_CLEANUP s = { 0 };
	struct buf header BUF_CLEANUP = { 0 }, odd BUF_CLEANUP = { 0 };

	canonical_make(&c);
	for (uint32_t i = 0; i < c.num_vars; i++)
		c.vars[i].begin += 4;
	classic_encode(&c, &header);
	buf_bytes(&odd, header.data, name);
	buf_u64_be(&odd, 8);
	buf_bytes(&odd, "time\0\0\0", 8);
	buf_bytes(&odd, header.data + name + 12, header.len - name - 12);
	make_kept(&c, &odd, &s);
	is_u64(kept_bytes(&s, "cistern_header"), odd.len, "the whole header is kept");
	comes_back(&s, &odd, "it");
}

/* As subfiles were before what is kept was made small. */
static void test_kept_before(void)
{
	static const uint8_t set[BLOB_SET_BYTES] = { 1 }, size[8] = { 0, 0, 0, 0, 0, 0, 16, 0 };
	struct classic CLASSIC_CLEANUP c = { 0 }, CLASSIC_CLEANUP s = { 0 };
	struct buf header BUF_CLEANUP = { 0 };
	struct cistern_error err = { 0 };
	struct blob_make m = make_of(&c);

	canonical_make(&c);
	classic_encode(&c, &header);
	is_int(blob_make_header(&m, &s, &err), 0, "made");
	is_int(classic_add_att(&s, 0, "cistern_set", CLASSIC_UBYTE, BLOB_SET_BYTES, set) |
			classic_add_int(&s, 0, "cistern_subfile", 0) |
			classic_add_att(&s, 0, "cistern_file_bytes", CLASSIC_INT64, 1, size) |
			classic_add_att(&s, 0, "cistern_header", CLASSIC_UBYTE, header.len, header.data),
		0, "its attributes");
	comes_back(&s, &header, "a header kept as it is");
}

/* Global attributes of ours are left out when a subfile is read. */
static void test_lost(void)
{
	struct classic CLASSIC_CLEANUP c = { 0 }, CLASSIC_CLEANUP s = { 0 };
	struct blob_exact exact = { .file_bytes = 4096 };
	struct buf header BUF_CLEANUP = { 0 };
	struct cistern_error err = { 0 };
	struct blob_make m = make_of(&c);

	canonical_make(&c);
	is_int(classic_add_int(&c, CLASSIC_NONE, "cistern_of_mine", 1), 0, "an attribute");
	for (uint32_t i = 0; i < c.num_vars; i++)
		c.vars[i].begin += 1000;
	is_int(classic_finish(&c, NULL), 0, "defined");
	classic_encode(&c, &header);
	exact.header = header.data;
	exact.header_bytes = header.len;
	m.exact = &exact;
	is_int(blob_make_header(&m, &s, &err), -EINVAL, "what would be lost is refused");
	ok(strstr(err.text, "names of their own"), "that is said: %s", err.text);
}

/* ---- what cannot be */

static void is_refused(const struct classic *s, const char *what)
{
	struct blob_head BLOB_HEAD_CLEANUP h = { 0 };
	struct cistern_error err = { 0 };

	is_int(redecode(s, &h, &err), -EBADMSG, what);
	ok(err.text[0] != '\0', "and it is said why: %s", err.text);
}

static void made(struct classic *s)
{
	struct classic CLASSIC_CLEANUP c = { 0 };
	struct blob_make m = make_of(&c);

	canonical_make(&c);
	is_int(blob_make_header(&m, s, NULL), 0, "made");
}

#define REFUSED(change, what)                             \
	do {                                              \
		struct classic CLASSIC_CLEANUP s = { 0 }; \
		made(&s);                                 \
		change;                                   \
		is_refused(&s, what);                     \
	} while (0)

static void test_refused(void)
{
	REFUSED(s.atts[0].name[0] = 'G', "without global_nprocs");
	REFUSED(s.atts[1].values[3] = 3, "more maps said than there are");
	REFUSED(s.atts[0].values[3] = 2, "more blobs than processes");
	REFUSED(s.dims[3].name[0] = 'N', "without nblobs");
	REFUSED(s.dims[4].name[1] = '9', "without D1.nelems");
	REFUSED(s.vars[3].name[3] = 'O', "without D1.offsets");
	REFUSED(s.vars[3].type = CLASSIC_FLOAT, "offsets that are float");
	REFUSED(s.vars[11].atts[0].values[3] = 1, "a variable with another map than its dimension says");
	REFUSED(s.vars[11].atts[0].values[3] = 9, "a variable with a map that is not there");
	REFUSED(s.vars[11].atts[1].values[11] = 1, "a variable that has not as many elements as its map");
	REFUSED(s.vars[11].atts[1].values[3] = 4, "a variable with a dimension that describes blobs");
	REFUSED(s.vars[5].atts[1].values[3] = 0, "a map of the record dimension");
}

static void test_cannot_make(void)
{
	static const uint32_t wrong[] = { 1, 1, BLOB_NO_MAP, BLOB_NO_MAP };
	struct classic CLASSIC_CLEANUP c = { 0 }, CLASSIC_CLEANUP s = { 0 }, CLASSIC_CLEANUP again = { 0 };
	struct cistern_error err = { 0 };
	struct blob_make m = make_of(&c);

	canonical_make(&c);
	m.var_maps = wrong;
	is_int(blob_make_header(&m, &s, &err), -EINVAL, "a map of other dimensions than its variable's");
	m.var_maps = var_maps;
	is_int(blob_make_header(&m, &s, &err), 0, "made");
	m.canonical = &s;
	is_int(blob_make_header(&m, &again, &err), -EINVAL, "a subfile of a subfile");
}

static void test_shares(void)
{
	struct blob_share shares[BLOBS] = { { 2, 0, 2 }, { 0, 2, 0 }, { 1, 2, 3 } };
	struct blob_head BLOB_HEAD_CLEANUP h = { 0 };
	struct classic CLASSIC_CLEANUP s = { 0 };

	made(&s);
	is_int(redecode(&s, &h, NULL), 0, "read");
	is_int(blob_check_shares(&h, 0, shares, NULL), 0, "shares that fit");
	shares[2].count = 2;
	is_int(blob_check_shares(&h, 0, shares, NULL), -EBADMSG, "elements are missing");
	shares[2].count = 4;
	is_int(blob_check_shares(&h, 0, shares, NULL), -EBADMSG, "there are too many");
	shares[2].count = 3;
	shares[2].start = 1;
	is_int(blob_check_shares(&h, 0, shares, NULL), -EBADMSG, "blobs overlap");
	shares[2].start = 2;
	shares[2].num = 3;
	is_int(blob_check_shares(&h, 0, shares, NULL), -EBADMSG, "more runs than there is room for");
}

/* ---- process-centric */

struct bytes {
	uint8_t data[1024];
	size_t len;
};

static ssize_t read_bytes(void *buf, size_t len, uint64_t off, void *arg)
{
	const struct bytes *b = arg;

	if (off >= b->len)
		return 0;
	len = len < b->len - off ? len : b->len - off;
	memcpy(buf, b->data + off, len);
	return (ssize_t)len;
}

static void put(struct bytes *b, uint64_t value, size_t size)
{
	for (size_t i = 0; i < size; i++)
		b->data[b->len++] = (uint8_t)(value >> 8 * i);
}

/* One process's maps: how many requests and elements, for D1 and D2; the requests themselves say nothing here. */
static void put_process(struct bytes *b, const unsigned int num[2], const unsigned int start[2],
	const unsigned int count[2], bool first)
{
	for (int i = 0; i < 2; i++) {
		put(b, num[i], 4);
		put(b, start[i], 8);
		put(b, count[i], 8);
		b->len += 8 * num[i];
	}
	b->len += 8 * count[0];     /* fixed */
	b->len += 2 * 8 * count[1]; /* T, two records */
	if (first)
		b->len += 2 * 4 + 5; /* date, two records; name */
}

/* As E3SM-IO on a small-endian machine. */
static void make_little(struct classic *s)
{
	made(s);
	for (uint32_t i = 0; i < s->num_atts; i++)
		if (s->atts[i].type == CLASSIC_INT)
			*(uint32_t *)s->atts[i].values = __builtin_bswap32(*(uint32_t *)s->atts[i].values);
	for (uint32_t i = 0; i < s->num_vars; i++) {
		s->vars[i].begin = 0;
		for (uint32_t k = 0; k < s->vars[i].num_atts; k++)
			for (uint32_t n = 0; s->vars[i].atts[k].type == CLASSIC_INT && n < s->vars[i].atts[k].num; n++)
				((uint32_t *)s->vars[i].atts[k].values)[n] =
					__builtin_bswap32(((uint32_t *)s->vars[i].atts[k].values)[n]);
	}
}

static void fill_data(struct bytes *b)
{
	put_process(b, (unsigned int[]){ 2, 4 }, (unsigned int[]){ 0, 0 }, (unsigned int[]){ 2, 5 }, true);
	put_process(b, (unsigned int[]){ 1, 0 }, (unsigned int[]){ 2, 5 }, (unsigned int[]){ 1, 0 }, false);
	put_process(b, (unsigned int[]){ 2, 1 }, (unsigned int[]){ 3, 5 }, (unsigned int[]){ 2, 5 }, false);
}

static const struct blob_entry *find_entry(const struct blob_table *t, uint32_t blob, uint32_t var)
{
	for (size_t i = 0; i < t->num; i++)
		if (t->entries[i].blob == blob && t->entries[i].var == var)
			return &t->entries[i];
	return NULL;
}

static void is_entry(const struct blob_table *t, uint32_t blob, uint32_t var, uint64_t off, uint64_t len)
{
	const struct blob_entry *e = find_entry(t, blob, var);

	ok(e && e->off == off && e->len == len, "blob %u, variable %u: %llu bytes at %llu", blob, var,
		e ? (unsigned long long)e->len : 0, e ? (unsigned long long)e->off : 0);
}

static void test_sum(void)
{
	struct blob_table BLOB_TABLE_CLEANUP t = { 0 };
	struct blob_head BLOB_HEAD_CLEANUP h = { 0 };
	struct classic CLASSIC_CLEANUP s = { 0 };
	struct cistern_error err = { 0 };
	struct bytes b = { { 0 }, 0 };

	make_little(&s);
	if (!is_int(redecode(&s, &h, &err), 0, "attributes the other way round are read"))
		return;
	ok(h.little_endian, "and it is known");
	fill_data(&b);
	if (!is_int(blob_table_sum(&h, b.len, read_bytes, &b, &t, &err), 0, "sizes add up"))
		return;
	ok(t.little_endian, "data are so, too");
	is_entry(&t, 0, 3, 20, 8);    /* D1.offsets: behind nreqs, blob_start, blob_count */
	is_entry(&t, 0, 10, 88, 16);  /* fixed: behind 20 + 16 and 20 + 32 bytes of maps */
	is_entry(&t, 0, 11, 104, 80); /* T */
	is_entry(&t, 0, 12, 184, 8);  /* date */
	is_entry(&t, 0, 13, 192, 5);  /* name */
	is_entry(&t, 1, 10, 197 + 48, 8);
	ok(!find_entry(&t, 1, 11) && !find_entry(&t, 1, 12), "nothing where nothing was put");
	is_entry(&t, 2, 10, 197 + 56 + 64, 16);
	is_u64(find_entry(&t, 2, 11)->num_records, 2, "two records");
	blob_table_destroy(&t);
	is_int(blob_table_sum(&h, b.len - 1, read_bytes, &b, &t, &err), -EBADMSG, "a data_blob that is too short");
	is_int(blob_table_sum(&h, b.len + 1, read_bytes, &b, &t, &err), -EBADMSG, "and one that is too long");
	memset(b.data, 0xff, 4);
	is_int(blob_table_sum(&h, b.len, read_bytes, &b, &t, &err), -EBADMSG, "a negative number of requests");
}

static void test_table(void)
{
	static const uint8_t head[32] = { 'C', 'B', 'L', 'T', 1, 0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0,
		0, 1 };
	struct blob_table BLOB_TABLE_CLEANUP t = {
		.little_endian = true, .num_blobs = 2, .num_vars = 3, .data_bytes = 100
	};
	struct blob_table BLOB_TABLE_CLEANUP got = { 0 };
	struct buf out BUF_CLEANUP = { 0 };
	struct cistern_error err = { 0 };

	is_int(blob_table_add(&t, &(struct blob_entry){ 1, 2, 5, 4, 60, 40 }), 0, "an entry");
	blob_table_encode(&t, &out);
	is_u64(out.len, 32 + 40 + 4, "has 40 bytes");
	ok(memcmp(out.data, head, sizeof(head)) == 0, "the head is as documented");
	ok(out.data[32] == 1 && out.data[36] == 2 && out.data[40] == 5 && out.data[48] == 4 && out.data[56] == 60 &&
			out.data[64] == 40,
		"so is the entry");
	if (is_int(blob_table_decode(out.data, out.len, &got, &err), 0, "it is read"))
		ok(got.num == 1 && got.entries[0].off == 60 && got.entries[0].num_records == 4, "as it was");
	for (size_t i = 0; i < out.len; i++) {
		struct blob_table none = { 0 };

		out.data[i] ^= 0x10;
		if (blob_table_decode(out.data, out.len, &none, NULL) != -EBADMSG)
			ok(false, "a change of byte %zu is noticed", i);
		out.data[i] ^= 0x10;
		if (blob_table_decode(out.data, i, &none, NULL) != -EBADMSG)
			ok(false, "the end at %zu is noticed", i);
	}
	blob_table_destroy(&got);
	t.entries[0].len = 44;
	buf_reset(&out);
	blob_table_encode(&t, &out);
	is_int(blob_table_decode(out.data, out.len, &got, &err), -EBADMSG, "an entry that reaches out of data_blob");
}

/* ---- the HDF5 file around it */

static ssize_t read_buf(void *out, size_t len, uint64_t off, void *arg)
{
	const struct buf *b = arg;

	if (off >= b->len)
		return 0;
	len = len < b->len - (size_t)off ? len : b->len - (size_t)off;
	memcpy(out, b->data + off, len);
	return (ssize_t)len;
}

/* Our walk knows the specification's rules; that HDF5's own tools read such files, tests/bats/blob.bats shows. */
static void is_set(const struct hdf5 *h, const char *name, const struct buf *file, const char *bytes)
{
	for (size_t i = 0; i < h->num_objects; i++) {
		const struct hdf5_object *o = &h->objects[i];

		if (strcmp(o->path, name) != 0)
			continue;
		ok(o->storage == HDF5_CONTIGUOUS && o->rank == 1 && o->type.size == 1 &&
				o->data_bytes == strlen(bytes) && o->data_off + o->data_bytes <= file->len &&
				memcmp(file->data + o->data_off, bytes, strlen(bytes)) == 0,
			"%s", name);
		return;
	}
	ok(false, "%s is there", name);
}

static void test_hdf5(void)
{
	struct buf file BUF_CLEANUP = { 0 };
	struct blob_hdf5 parts = { "header", "a table", 6, 7, 5 };
	struct hdf5 h = { 0 };

	blob_hdf5_encode(&parts, &file);
	is_u64(file.len % 512, 0, "data_blob is aligned");
	buf_bytes(&file, "blobs", 5);
	if (!is_int(hdf5_walk(read_buf, &file, file.len, &h, NULL), 0, "it is an HDF5 file"))
		return;
	is_u64(h.end, file.len, "its end is said");
	is_u64(h.num_problems, 0, "nothing is wrong with it");
	is_u64(h.num_objects, 4, "the root and three data sets");
	is_set(&h, "header_blob", &file, "header");
	is_set(&h, "table_blob", &file, "a table");
	is_set(&h, "data_blob", &file, "blobs");
	hdf5_destroy(&h);
}

int main(void)
{
	test_make();
	test_read();
	test_exact();
	test_kept();
	test_kept_whole();
	test_kept_before();
	test_lost();
	test_refused();
	test_cannot_make();
	test_shares();
	test_sum();
	test_table();
	test_hdf5();
	return done_testing();
}
