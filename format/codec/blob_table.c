/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Where in data_blob what is. Our process-centric subfiles keep a table of it, so that records can be added behind what is
 * there, and one variable be read without all the others. E3SM-IO keeps none: there the order in which each process put its
 * variables, and the sizes that the maps tell, say it.
 */
#include "format/codec/blob.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"

#define TABLE_MAGIC      0x544C4243u /* "CBLT" */
#define TABLE_VERSION    1u
#define TABLE_HEAD_BYTES 32u
#define LITTLE           1u
#define BIG              2u

int blob_table_add(struct blob_table *t, const struct blob_entry *e)
{
	if (t->num == t->cap) {
		size_t cap = t->cap ? 2 * t->cap : 64;
		struct blob_entry *grown = reallocarray(t->entries, cap, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		t->entries = grown;
		t->cap = cap;
	}
	t->entries[t->num++] = *e;
	return 0;
}

void blob_table_destroy(struct blob_table *t)
{
	if (!t)
		return;
	free(t->entries);
	*t = (struct blob_table){ 0 };
}

/* ---- as E3SM-IO's processes put things */

static int lay(struct blob_table *t, uint32_t blob, uint32_t var, uint64_t records, uint64_t record_bytes)
{
	struct blob_entry e = { .blob = blob, .var = var, .num_records = records, .off = t->data_bytes };

	e.len = records * record_bytes;
	t->data_bytes += e.len;
	return e.len > 0 ? blob_table_add(t, &e) : 0;
}

static int lay_maps(const struct blob_lay *l, uint32_t blob, struct blob_table *t)
{
	int r = 0;

	for (uint32_t i = 0; i < l->num_maps; i++)
		for (uint32_t k = 0; r == 0 && k < BLOB_MAP_VARS; k++) {
			uint32_t var = i * BLOB_MAP_VARS + k;
			uint64_t num = k < BLOB_OFFSETS ? 1 : l->shares[(size_t)i * l->num_blobs + blob].num;

			r = lay(t, blob, var, 1, num * classic_type_bytes(l->header->vars[var].type));
		}
	return r;
}

static int lay_var(const struct blob_lay *l, uint32_t blob, uint32_t i, struct blob_table *t)
{
	uint32_t map = l->var_maps[i], var = l->num_maps * BLOB_MAP_VARS + i;
	const struct classic_var *v = &l->header->vars[var];
	uint64_t bytes = blob == 0 ? v->bytes : 0, records = v->is_record ? l->header->num_records : 1;

	if (map != BLOB_NO_MAP)
		bytes = l->shares[(size_t)map * l->num_blobs + blob].count * classic_type_bytes(v->type);
	return lay(t, blob, var, records, bytes);
}

int blob_table_lay(const struct blob_lay *l, struct blob_table *ret)
{
	struct blob_table BLOB_TABLE_CLEANUP t = { .num_blobs = l->num_blobs, .num_vars = l->header->num_vars };
	int r = 0;

	for (uint32_t b = 0; r == 0 && b < l->num_blobs; b++) {
		r = lay_maps(l, b, &t);
		for (uint32_t i = 0; r == 0 && i < t.num_vars - l->num_maps * BLOB_MAP_VARS; i++)
			r = lay_var(l, b, i, &t);
	}
	if (r < 0)
		return r;
	*ret = t;
	t = (struct blob_table){ 0 };
	return 0;
}

/* ---- table_blob */

void blob_table_encode(const struct blob_table *t, struct buf *out)
{
	size_t from = out->len;

	buf_u32(out, TABLE_MAGIC);
	buf_u16(out, TABLE_VERSION);
	buf_u16(out, t->little_endian ? LITTLE : BIG);
	buf_u32(out, t->num_blobs);
	buf_u32(out, t->num_vars);
	buf_u64(out, t->data_bytes);
	buf_u64(out, t->num);
	for (size_t i = 0; i < t->num; i++) {
		const struct blob_entry *e = &t->entries[i];

		buf_u32(out, e->blob);
		buf_u32(out, e->var);
		buf_u64(out, e->record);
		buf_u64(out, e->num_records);
		buf_u64(out, e->off);
		buf_u64(out, e->len);
	}
	if (buf_ok(out))
		buf_u32(out, crc32c(0, out->data + from, out->len - from));
}

static int check_entry(const struct blob_table *t, const struct blob_entry *e, struct cistern_error *err)
{
	if (e->blob >= t->num_blobs || e->var >= t->num_vars || e->off > t->data_bytes ||
		e->len > t->data_bytes - e->off || e->num_records == 0 || e->len % e->num_records != 0 ||
		e->record > UINT64_MAX - e->num_records)
		return cistern_error_set(err, -EBADMSG,
			"entry of blob %" PRIu32 ", variable %" PRIu32 ": %" PRIu64 " bytes at %" PRIu64 " for %" PRIu64
			" records; there are %" PRIu32 " blobs, %" PRIu32 " variables, %" PRIu64 " bytes",
			e->blob, e->var, e->len, e->off, e->num_records, t->num_blobs, t->num_vars, t->data_bytes);
	return 0;
}

static int decode_entries(struct cursor *c, uint64_t num, struct blob_table *t, struct cistern_error *err)
{
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < num; i++) {
		struct blob_entry e;

		e.blob = cursor_u32(c);
		e.var = cursor_u32(c);
		e.record = cursor_u64(c);
		e.num_records = cursor_u64(c);
		e.off = cursor_u64(c);
		e.len = cursor_u64(c);
		r = check_entry(t, &e, err);
		if (r == 0)
			r = blob_table_add(t, &e);
	}
	return r;
}

static int check_frame(const uint8_t *buf, size_t len, struct cursor *c, uint16_t *ret_order, struct cistern_error *err)
{
	struct cursor tail;
	uint32_t magic, crc;
	uint16_t version;

	if (len < TABLE_HEAD_BYTES + 4)
		return cistern_error_set(err, -EBADMSG, "table_blob has %zu bytes", len);
	tail = cursor_make(buf + len - 4, 4);
	crc = cursor_u32(&tail);
	magic = cursor_u32(c);
	version = cursor_u16(c);
	*ret_order = cursor_u16(c);
	if (magic != TABLE_MAGIC || version != TABLE_VERSION || (*ret_order != LITTLE && *ret_order != BIG))
		return cistern_error_set(
			err, -EBADMSG, "table_blob begins with %08" PRIx32 ", version %u", magic, version);
	if (crc != crc32c(0, buf, len - 4))
		return cistern_error_set(err, -EBADMSG, "table_blob's checksum is wrong");
	return 0;
}

int blob_table_decode(const void *buf, size_t len, struct blob_table *ret, struct cistern_error *err)
{
	struct blob_table BLOB_TABLE_CLEANUP t = { 0 };
	struct cursor c = cursor_make(buf, len);
	uint16_t order = 0;
	uint64_t num;
	int r = check_frame(buf, len, &c, &order, err);

	if (r < 0)
		return r;
	t.little_endian = order == LITTLE;
	t.num_blobs = cursor_u32(&c);
	t.num_vars = cursor_u32(&c);
	t.data_bytes = cursor_u64(&c);
	num = cursor_u64(&c);
	if (num != (len - TABLE_HEAD_BYTES - 4) / BLOB_TABLE_ENTRY_BYTES ||
		(len - TABLE_HEAD_BYTES - 4) % BLOB_TABLE_ENTRY_BYTES != 0)
		return cistern_error_set(err, -EBADMSG, "table_blob has %zu bytes, for %" PRIu64 " entries", len, num);
	r = decode_entries(&c, num, &t, err);
	if (r == -ENOMEM)
		cistern_error_set(err, r, "out of memory");
	if (r < 0)
		return r;
	*ret = t;
	t = (struct blob_table){ 0 };
	return 0;
}

/* ---- without a table */

struct sum {
	const struct blob_head *h;
	classic_read_fn read_bytes;
	void *arg;
	uint32_t blob;
	uint64_t at;      /* bytes of data_blob that are accounted for */
	uint64_t *counts; /* owned; for each map the elements of the blob at hand */
	struct blob_table t;
	struct cistern_error *err;
};

static int too_short(const struct sum *s)
{
	return cistern_error_set(s->err, -EBADMSG,
		"data_blob has %" PRIu64 " bytes, which end in the blob of process %" PRIu32 " of %" PRIu32,
		s->t.data_bytes, s->blob, s->h->nblobs);
}

/* The next len bytes belong to records of a variable of the subfile. */
static int take(struct sum *s, uint32_t var, uint64_t num_records, uint64_t record_bytes)
{
	struct blob_entry e = { .blob = s->blob, .var = var, .num_records = num_records, .off = s->at };

	if (__builtin_mul_overflow(record_bytes, num_records, &e.len) || e.len > s->t.data_bytes - s->at)
		return too_short(s);
	s->at += e.len;
	return e.len > 0 ? blob_table_add(&s->t, &e) : 0;
}

/* One integer of the type of a variable that describes a map, which is the next. */
static int take_number(struct sum *s, uint32_t var, uint64_t *ret)
{
	size_t bytes = classic_type_bytes(s->h->header.vars[var].type);
	uint8_t raw[CLASSIC_TYPE_BYTES];
	uint64_t off = s->at, value = 0;
	ssize_t n;
	int r = take(s, var, 1, bytes);

	if (r < 0)
		return r;
	n = s->read_bytes(raw, bytes, off, s->arg);
	if (n != (ssize_t)bytes)
		return n < 0 ? cistern_error_set(s->err, (int)n, "reading data_blob: %s", strerror((int)-n))
			     : too_short(s);
	for (size_t i = 0; i < bytes; i++)
		value = value << 8 | raw[s->h->little_endian ? bytes - 1 - i : i];
	if (value > s->t.data_bytes) /* a negative one, too */
		return cistern_error_set(s->err, -EBADMSG,
			"%s of process %" PRIu32 ", at %" PRIu64 " of data_blob, is %" PRId64,
			s->h->header.vars[var].name, s->blob, off, (int64_t)value);
	*ret = value;
	return 0;
}

static int take_map(struct sum *s, uint32_t map)
{
	const struct blob_map *m = &s->h->maps[map];
	uint64_t num, start;
	int r = take_number(s, m->vars[BLOB_NREQS], &num);

	if (r == 0)
		r = take_number(s, m->vars[BLOB_START], &start);
	if (r == 0)
		r = take_number(s, m->vars[BLOB_COUNT], &s->counts[map]);
	for (uint32_t i = BLOB_OFFSETS; r == 0 && i <= BLOB_LENGTHS; i++)
		r = take(s, m->vars[i], 1, num * classic_type_bytes(s->h->header.vars[m->vars[i]].type));
	return r;
}

static int take_var(struct sum *s, uint32_t i)
{
	const struct blob_var *bv = &s->h->vars[i];
	const struct classic_var *v = &s->h->header.vars[bv->var];
	uint64_t elements = v->elements, bytes;

	if (bv->map != BLOB_NO_MAP)
		elements = s->counts[bv->map];
	else if (s->blob > 0)
		return 0;
	if (__builtin_mul_overflow(elements, (uint64_t)classic_type_bytes(v->type), &bytes))
		return too_short(s);
	return take(s, bv->var, v->is_record ? s->h->header.num_records : 1, bytes);
}

static int sum_blobs(struct sum *s)
{
	int r = 0;

	for (s->blob = 0; r == 0 && s->blob < s->h->nblobs; s->blob++) {
		for (uint32_t i = 0; r == 0 && i < s->h->num_maps; i++)
			r = take_map(s, i);
		for (uint32_t i = 0; r == 0 && i < s->h->canonical.num_vars; i++)
			r = take_var(s, i);
	}
	if (r == 0 && s->at != s->t.data_bytes)
		r = cistern_error_set(s->err, -EBADMSG,
			"data_blob has %" PRIu64 " bytes; the blobs of %" PRIu32 " processes end at %" PRIu64,
			s->t.data_bytes, s->h->nblobs, s->at);
	return r;
}

int blob_table_sum(const struct blob_head *h, uint64_t data_bytes, classic_read_fn read_bytes, void *arg,
	struct blob_table *ret, struct cistern_error *err)
{
	struct sum s = { .h = h, .read_bytes = read_bytes, .arg = arg, .err = err };
	int r;

	s.t = (struct blob_table){ .little_endian = h->little_endian,
		.num_blobs = h->nblobs,
		.num_vars = h->header.num_vars,
		.data_bytes = data_bytes };
	s.counts = calloc(h->num_maps + 1, sizeof(*s.counts));
	r = s.counts ? sum_blobs(&s) : -ENOMEM;
	free(s.counts);
	if (r == -ENOMEM)
		cistern_error_set(err, r, "out of memory");
	if (r < 0)
		blob_table_destroy(&s.t);
	else
		*ret = s.t;
	return r;
}
