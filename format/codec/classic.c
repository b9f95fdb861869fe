/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a classic header means: sizes of types, shapes of variables, where which element lies. classic_finish() is the one
 * place where numbers from a header meet arithmetic: after it, no product or sum of them overflows 63 bits, so that the
 * functions behind it need not look again. Decoding and encoding are in their own files.
 */
#include "format/codec/classic.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- types */

/* Fill values as netcdf.h has them (NC_FILL_BYTE ...), as bits: of float 0x1.ep+122, of double 0x1.ep+122. */
static const struct type_facts {
	const char *name;
	uint32_t bytes, since; /* the first version that has it */
	uint64_t fill;
} type_facts[] = {
	[CLASSIC_BYTE] = { "byte", 1, 1, 0x81 },
	[CLASSIC_CHAR] = { "char", 1, 1, 0 },
	[CLASSIC_SHORT] = { "short", 2, 1, 0x8001 },
	[CLASSIC_INT] = { "int", 4, 1, 0x80000001 },
	[CLASSIC_FLOAT] = { "float", 4, 1, 0x7CF00000 },
	[CLASSIC_DOUBLE] = { "double", 8, 1, 0x479E000000000000 },
	[CLASSIC_UBYTE] = { "ubyte", 1, 5, 0xFF },
	[CLASSIC_USHORT] = { "ushort", 2, 5, 0xFFFF },
	[CLASSIC_UINT] = { "uint", 4, 5, 0xFFFFFFFF },
	[CLASSIC_INT64] = { "int64", 8, 5, 0x8000000000000002 },
	[CLASSIC_UINT64] = { "uint64", 8, 5, 0xFFFFFFFFFFFFFFFE },
};

#define NUM_TYPES (sizeof(type_facts) / sizeof(type_facts[0]))

uint32_t classic_type_bytes(enum classic_type type)
{
	return (size_t)type < NUM_TYPES ? type_facts[type].bytes : 0;
}

const char *classic_type_name(enum classic_type type)
{
	return classic_type_bytes(type) > 0 ? type_facts[type].name : "?";
}

bool classic_type_known(uint32_t version, uint32_t type)
{
	return type < NUM_TYPES && type_facts[type].bytes > 0 && version >= type_facts[type].since;
}

uint32_t classic_type_fill(enum classic_type type, uint8_t out[CLASSIC_TYPE_BYTES])
{
	uint32_t bytes = classic_type_bytes(type);

	for (uint32_t i = 0; i < bytes; i++)
		out[i] = (uint8_t)(type_facts[type].fill >> (8 * (bytes - 1 - i)));
	return bytes;
}

static const struct classic_att *find_att(const struct classic_att *atts, uint32_t num, const char *name)
{
	for (uint32_t i = 0; i < num; i++)
		if (strcmp(atts[i].name, name) == 0)
			return &atts[i];
	return NULL;
}

uint32_t classic_var_fill(const struct classic_var *v, uint8_t out[CLASSIC_TYPE_BYTES])
{
	const struct classic_att *own = find_att(v->atts, v->num_atts, "_FillValue");
	uint32_t bytes = classic_type_fill(v->type, out);

	if (own && own->type == v->type && own->num == 1)
		memcpy(out, own->values, bytes);
	return bytes;
}

/* ---- names */

uint32_t classic_find_dim(const struct classic *c, const char *name)
{
	for (uint32_t i = 0; i < c->num_dims; i++)
		if (strcmp(c->dims[i].name, name) == 0)
			return i;
	return CLASSIC_NONE;
}

uint32_t classic_find_var(const struct classic *c, const char *name)
{
	for (uint32_t i = 0; i < c->num_vars; i++)
		if (strcmp(c->vars[i].name, name) == 0)
			return i;
	return CLASSIC_NONE;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *twice(const char **names, uint32_t num)
{
	if (num > 1)
		qsort(names, num, sizeof(*names), by_text);
	for (uint32_t i = 1; i < num; i++)
		if (strcmp(names[i], names[i - 1]) == 0)
			return names[i];
	return NULL;
}

int classic_find_duplicate(const struct classic *c, const char **ret_name)
{
	uint32_t most = c->num_vars > c->num_dims ? c->num_vars : c->num_dims;
	const char **names = calloc((size_t)most + 1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->num_vars; i++)
		names[i] = c->vars[i].name;
	*ret_name = twice(names, c->num_vars);
	for (uint32_t i = 0; i < c->num_dims; i++)
		names[i] = c->dims[i].name;
	if (!*ret_name)
		*ret_name = twice(names, c->num_dims);
	free(names);
	return 0;
}

const struct classic_var *classic_find_oversized(const struct classic *c)
{
	uint64_t most = c->version == 1 ? INT32_MAX - 3u : UINT32_MAX - 3u;
	uint32_t last_of[2] = { CLASSIC_NONE, CLASSIC_NONE }; /* fixed, records */

	if (c->version == 5)
		return NULL;
	for (uint32_t i = 0; i < c->num_vars; i++)
		last_of[c->vars[i].is_record] = i;
	for (uint32_t i = 0; i < c->num_vars; i++) {
		const struct classic_var *v = &c->vars[i];

		if (v->bytes > most && (i != last_of[v->is_record] || (!v->is_record && c->num_record_vars > 0)))
			return v;
	}
	return NULL;
}

const struct classic_att *classic_find_att(const struct classic *c, uint32_t var, const char *name)
{
	if (var == CLASSIC_NONE)
		return find_att(c->atts, c->num_atts, name);
	return find_att(c->vars[var].atts, c->vars[var].num_atts, name);
}

/* ---- shapes */

static uint64_t round_up_4(uint64_t bytes)
{
	return (bytes + 3) & ~(uint64_t)3;
}

static int find_record_dim(struct classic *c, struct cistern_error *err)
{
	c->record_dim = CLASSIC_NONE;
	for (uint32_t i = 0; i < c->num_dims; i++) {
		if (c->dims[i].len > 0)
			continue;
		if (c->record_dim != CLASSIC_NONE)
			return cistern_error_set(err, -EBADMSG,
				"dimensions \"%s\" and \"%s\" both have length 0; expected one record dimension at most",
				c->dims[c->record_dim].name, c->dims[i].name);
		c->record_dim = i;
	}
	return 0;
}

static int shape_var(const struct classic *c, struct classic_var *v, struct cistern_error *err)
{
	uint64_t elements = 1, bytes;

	v->is_record = v->num_dims > 0 && v->dims[0] == c->record_dim;
	for (uint32_t i = v->is_record ? 1 : 0; i < v->num_dims; i++) {
		if (v->dims[i] >= c->num_dims)
			return cistern_error_set(err, -EBADMSG, "variable \"%s\" has dimension %" PRIu32 " of %" PRIu32,
				v->name, v->dims[i], c->num_dims);
		if (v->dims[i] == c->record_dim)
			return cistern_error_set(err, -EBADMSG,
				"variable \"%s\" has the record dimension as its dimension %" PRIu32
				"; expected it first or not at all",
				v->name, i);
		if (__builtin_mul_overflow(elements, c->dims[v->dims[i]].len, &elements))
			goto too_large;
	}
	if (__builtin_mul_overflow(elements, (uint64_t)classic_type_bytes(v->type), &bytes) ||
		bytes > CLASSIC_BYTES_MAX - 3)
		goto too_large;
	v->elements = elements;
	v->bytes = bytes;
	return 0;
too_large:
	return cistern_error_set(err, -EBADMSG, "variable \"%s\" would have more than 2^63 bytes", v->name);
}

uint64_t classic_padded_bytes(const struct classic *c, const struct classic_var *v)
{
	return v->is_record && c->num_record_vars == 1 ? v->bytes : round_up_4(v->bytes);
}

static int sum_records(struct classic *c, struct cistern_error *err)
{
	uint64_t all;

	c->num_record_vars = 0;
	c->record_bytes = 0;
	for (uint32_t i = 0; i < c->num_vars; i++)
		c->num_record_vars += c->vars[i].is_record;
	for (uint32_t i = 0; i < c->num_vars; i++) {
		if (!c->vars[i].is_record)
			continue;
		c->record_bytes += classic_padded_bytes(c, &c->vars[i]); /* two times less than 2^63 */
		if (c->record_bytes > CLASSIC_BYTES_MAX)
			return cistern_error_set(err, -EBADMSG, "a record would have more than 2^63 bytes");
	}
	if (__builtin_mul_overflow(c->record_bytes, c->num_records, &all) || all > CLASSIC_BYTES_MAX)
		return cistern_error_set(err, -EBADMSG,
			"offset %u: %" PRIu64 " records of %" PRIu64 " bytes each are more than 2^63 bytes",
			CLASSIC_NUMRECS_OFF, c->num_records, c->record_bytes);
	return 0;
}

static uint64_t name_bytes(const struct classic *c, const char *name)
{
	return (c->version == 5 ? 8 : 4) + round_up_4(strlen(name));
}

static uint64_t atts_bytes(const struct classic *c, const struct classic_att *atts, uint32_t num)
{
	uint64_t count = c->version == 5 ? 8 : 4, sum = 4 + count;

	for (uint32_t i = 0; i < num; i++)
		sum += name_bytes(c, atts[i].name) + 4 + count +
		       round_up_4(atts[i].num * classic_type_bytes(atts[i].type));
	return sum;
}

static uint64_t header_bytes(const struct classic *c)
{
	uint64_t count = c->version == 5 ? 8 : 4, begin = c->version == 1 ? 4 : 8;
	uint64_t sum = 4 + count + 2 * (4 + count) + atts_bytes(c, c->atts, c->num_atts);

	for (uint32_t i = 0; i < c->num_dims; i++)
		sum += name_bytes(c, c->dims[i].name) + count;
	for (uint32_t i = 0; i < c->num_vars; i++) {
		const struct classic_var *v = &c->vars[i];

		sum += name_bytes(c, v->name) + count + v->num_dims * count + atts_bytes(c, v->atts, v->num_atts) + 4 +
		       count + begin;
	}
	return sum;
}

int classic_finish(struct classic *c, struct cistern_error *err)
{
	int r = find_record_dim(c, err);

	for (uint32_t i = 0; r == 0 && i < c->num_vars; i++)
		r = shape_var(c, &c->vars[i], err);
	if (r == 0)
		r = sum_records(c, err);
	if (r < 0)
		return r;
	c->records_begin = 0;
	for (uint32_t i = 0; i < c->num_vars; i++)
		if (c->vars[i].is_record && (c->records_begin == 0 || c->vars[i].begin < c->records_begin))
			c->records_begin = c->vars[i].begin;
	c->header_bytes = header_bytes(c) + c->slack;
	return 0;
}

/* ---- where variables lie */

struct place {
	uint64_t begin, bytes;
	const struct classic_var *v;
};

static int by_begin(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->v->is_record != y->v->is_record ? x->v->is_record - y->v->is_record
						  : (x->begin > y->begin) - (x->begin < y->begin);
}

static int check_end(const struct classic *c, const struct classic_var *v, struct cistern_error *err)
{
	uint64_t span = v->is_record ? c->record_bytes * c->num_records : v->bytes;

	if (v->begin < c->header_bytes)
		return cistern_error_set(err, -EBADMSG,
			"variable \"%s\" begins at offset %" PRIu64 ", inside the header, which ends at %" PRIu64,
			v->name, v->begin, c->header_bytes);
	if (v->begin > CLASSIC_BYTES_MAX - span || v->begin + span > CLASSIC_BYTES_MAX - v->bytes)
		return cistern_error_set(
			err, -EBADMSG, "variable \"%s\" at offset %" PRIu64 " ends behind 2^63", v->name, v->begin);
	return 0;
}

/* places: sorted, fixed variables before record variables. */
static int check_places(const struct classic *c, const struct place *places, struct cistern_error *err)
{
	for (uint32_t i = 1; i < c->num_vars; i++) {
		const struct place *p = &places[i - 1], *q = &places[i];

		if (q->begin < p->begin || q->begin - p->begin < p->bytes)
			return cistern_error_set(err, -EBADMSG,
				"variable \"%s\" begins at offset %" PRIu64 ", inside \"%s\" (%" PRIu64
				" bytes at %" PRIu64 ")",
				q->v->name, q->begin, p->v->name, p->bytes, p->begin);
	}
	if (c->num_record_vars > 0) {
		const struct place *last = &places[c->num_vars - 1];

		if (last->begin - c->records_begin > c->record_bytes - last->bytes)
			return cistern_error_set(err, -EBADMSG,
				"variable \"%s\" begins at offset %" PRIu64
				"; expected all of the first record in the %" PRIu64 " bytes at %" PRIu64,
				last->v->name, last->begin, c->record_bytes, c->records_begin);
	}
	return 0;
}

int classic_check_begins(const struct classic *c, struct cistern_error *err)
{
	struct place *places = malloc((c->num_vars + 1) * sizeof(*places));
	int r = places ? 0 : -ENOMEM;

	for (uint32_t i = 0; r == 0 && i < c->num_vars; i++) {
		places[i] = (struct place){ c->vars[i].begin, c->vars[i].bytes, &c->vars[i] };
		r = check_end(c, &c->vars[i], err);
	}
	if (r == 0 && c->num_vars > 0) {
		qsort(places, c->num_vars, sizeof(*places), by_begin);
		r = check_places(c, places, err);
	}
	free(places);
	return r;
}

uint64_t classic_offset(const struct classic *c, const struct classic_var *v, uint64_t record, uint64_t element)
{
	return v->begin + (v->is_record ? record * c->record_bytes : 0) + element * classic_type_bytes(v->type);
}

uint64_t classic_dim_len(const struct classic *c, uint32_t dim)
{
	return dim == c->record_dim ? c->num_records : c->dims[dim].len;
}

uint64_t classic_file_bytes(const struct classic *c)
{
	uint64_t end = c->header_bytes;

	if (c->num_record_vars > 0 && c->num_records > 0)
		return c->records_begin + c->num_records * c->record_bytes;
	for (uint32_t i = 0; i < c->num_vars; i++) {
		const struct classic_var *v = &c->vars[i];

		if (!v->is_record && v->begin + round_up_4(v->bytes) > end)
			end = v->begin + round_up_4(v->bytes);
	}
	return end;
}

/* ---- the end */

static void free_atts(struct classic_att *atts, uint32_t num)
{
	for (uint32_t i = 0; i < num; i++) {
		free(atts[i].name);
		free(atts[i].values);
	}
	free(atts);
}

void classic_destroy(struct classic *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->num_dims; i++)
		free(c->dims[i].name);
	for (uint32_t i = 0; i < c->num_vars; i++) {
		free(c->vars[i].name);
		free(c->vars[i].dims);
		free_atts(c->vars[i].atts, c->vars[i].num_atts);
	}
	free_atts(c->atts, c->num_atts);
	free(c->dims);
	free(c->vars);
	*c = (struct classic){ 0 };
}
