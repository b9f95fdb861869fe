/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * From a struct classic to the bytes of its header, and the making of new ones. What was decoded encodes to the same bytes
 * (where classic.exact says so), because all that the bytes can say is kept, vsize and begins included.
 */
#include "format/codec/classic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TAG_DIMENSION 10u
#define TAG_VARIABLE  11u
#define TAG_ATTRIBUTE 12u

/* ---- encoding */

static void put_u32(struct buf *out, uint32_t v)
{
	buf_u32(out, __builtin_bswap32(v));
}

static void put_count(const struct classic *c, struct buf *out, uint64_t v)
{
	if (c->version == 5)
		buf_u64_be(out, v);
	else
		put_u32(out, (uint32_t)v);
}

static void put_padded(struct buf *out, const void *p, uint64_t len)
{
	buf_bytes(out, p, (size_t)len);
	buf_zeros(out, (size_t)(-len & 3));
}

static void put_name(const struct classic *c, struct buf *out, const char *name)
{
	put_count(c, out, strlen(name));
	put_padded(out, name, strlen(name));
}

static void put_list(const struct classic *c, struct buf *out, uint32_t tag, uint32_t num)
{
	put_u32(out, num > 0 ? tag : 0);
	put_count(c, out, num);
}

static void put_atts(const struct classic *c, struct buf *out, const struct classic_att *atts, uint32_t num)
{
	put_list(c, out, TAG_ATTRIBUTE, num);
	for (uint32_t i = 0; i < num; i++) {
		put_name(c, out, atts[i].name);
		put_u32(out, atts[i].type);
		put_count(c, out, atts[i].num);
		put_padded(out, atts[i].values, atts[i].num * classic_type_bytes(atts[i].type));
	}
}

static void put_var(const struct classic *c, struct buf *out, const struct classic_var *v)
{
	put_name(c, out, v->name);
	put_count(c, out, v->num_dims);
	for (uint32_t i = 0; i < v->num_dims; i++)
		put_count(c, out, v->dims[i]);
	put_atts(c, out, v->atts, v->num_atts);
	put_u32(out, v->type);
	put_count(c, out, v->vsize);
	if (c->version == 1)
		put_u32(out, (uint32_t)v->begin);
	else
		buf_u64_be(out, v->begin);
}

int classic_encode(const struct classic *c, struct buf *out)
{
	const uint8_t magic[4] = { 'C', 'D', 'F', (uint8_t)c->version };

	buf_bytes(out, magic, sizeof(magic));
	put_count(c, out, c->streaming ? UINT64_MAX : c->num_records);
	put_list(c, out, TAG_DIMENSION, c->num_dims);
	for (uint32_t i = 0; i < c->num_dims; i++) {
		put_name(c, out, c->dims[i].name);
		put_count(c, out, c->dims[i].len);
	}
	put_atts(c, out, c->atts, c->num_atts);
	put_list(c, out, TAG_VARIABLE, c->num_vars);
	for (uint32_t i = 0; i < c->num_vars; i++)
		put_var(c, out, &c->vars[i]);
	return buf_ok(out) ? 0 : -ENOMEM;
}

/* ---- making */

void classic_init(struct classic *c, uint32_t version)
{
	*c = (struct classic){ .version = version, .exact = true, .record_dim = CLASSIC_NONE };
}

/* A copy of the name, or NULL and *ret_error. */
static char *copy_name(const char *name, int *ret_error)
{
	char *copy = NULL;

	if (*name == '\0' || strlen(name) > CLASSIC_NAME_MAX)
		*ret_error = -EINVAL;
	else if (!(copy = strdup(name)))
		*ret_error = -ENOMEM;
	return copy;
}

/* Room for one more at the end of a list; NULL: no memory. */
static void *grow(void *list, uint32_t num, size_t item_bytes)
{
	return num < UINT32_MAX ? reallocarray(list, (size_t)num + 1, item_bytes) : NULL;
}

int classic_add_dim(struct classic *c, const char *name, uint64_t len, uint32_t *ret_id)
{
	struct classic_dim *grown;
	int r = 0;
	char *copy = copy_name(name, &r);

	if (copy && len > (c->version == 5 ? INT64_MAX : UINT32_MAX))
		r = -EINVAL;
	grown = r == 0 ? grow(c->dims, c->num_dims, sizeof(*grown)) : NULL;
	if (!grown) {
		free(copy);
		return r < 0 ? r : -ENOMEM;
	}
	c->dims = grown;
	grown[c->num_dims] = (struct classic_dim){ copy, len };
	if (ret_id)
		*ret_id = c->num_dims;
	c->num_dims++;
	return 0;
}

static bool dims_known(const struct classic *c, uint32_t num, const uint32_t *dims)
{
	for (uint32_t i = 0; i < num; i++)
		if (dims[i] >= c->num_dims)
			return false;
	return num <= CLASSIC_VAR_DIMS_MAX;
}

int classic_add_var(struct classic *c, const char *name, enum classic_type type, uint32_t num_dims,
	const uint32_t *dims, uint32_t *ret_id)
{
	struct classic_var v = { .type = type, .num_dims = num_dims }, *grown;
	int r = 0;

	if (!classic_type_known(c->version, type) || !dims_known(c, num_dims, dims))
		return -EINVAL;
	grown = grow(c->vars, c->num_vars, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	c->vars = grown;
	v.name = copy_name(name, &r);
	if (v.name && num_dims > 0) {
		v.dims = malloc(num_dims * sizeof(*dims));
		r = v.dims ? 0 : -ENOMEM;
	}
	if (r < 0) {
		free(v.name);
		return r;
	}
	if (num_dims > 0)
		memcpy(v.dims, dims, num_dims * sizeof(*dims));
	grown[c->num_vars] = v;
	if (ret_id)
		*ret_id = c->num_vars;
	c->num_vars++;
	return 0;
}

/* The attribute of that name, or a new one at the end; NULL and *ret_error. */
static struct classic_att *att_slot(struct classic_att **atts, uint32_t *num, const char *name, int *ret_error)
{
	struct classic_att *grown;
	char *copy;

	for (uint32_t i = 0; i < *num; i++)
		if (strcmp((*atts)[i].name, name) == 0)
			return &(*atts)[i];
	copy = copy_name(name, ret_error);
	if (!copy)
		return NULL;
	grown = grow(*atts, *num, sizeof(*grown));
	if (!grown) {
		free(copy);
		*ret_error = -ENOMEM;
		return NULL;
	}
	*atts = grown;
	grown[*num] = (struct classic_att){ .name = copy, .type = CLASSIC_CHAR };
	return &grown[(*num)++];
}

int classic_add_att(
	struct classic *c, uint32_t var, const char *name, enum classic_type type, uint64_t num, const void *values)
{
	struct classic_att *a;
	uint8_t *copy = NULL;
	uint64_t bytes;
	int r = 0;

	if (!classic_type_known(c->version, type) || (var != CLASSIC_NONE && var >= c->num_vars) ||
		__builtin_mul_overflow(num, (uint64_t)classic_type_bytes(type), &bytes) || bytes > CLASSIC_HEADER_MAX)
		return -EINVAL;
	if (bytes > 0 && !(copy = malloc((size_t)bytes)))
		return -ENOMEM;
	a = var == CLASSIC_NONE ? att_slot(&c->atts, &c->num_atts, name, &r)
				: att_slot(&c->vars[var].atts, &c->vars[var].num_atts, name, &r);
	if (!a) {
		free(copy);
		return r;
	}
	if (bytes > 0)
		memcpy(copy, values, (size_t)bytes);
	free(a->values);
	a->type = type;
	a->num = num;
	a->values = copy;
	return 0;
}

int classic_add_text(struct classic *c, uint32_t var, const char *name, const char *text)
{
	return classic_add_att(c, var, name, CLASSIC_CHAR, strlen(text), text);
}

int classic_add_int(struct classic *c, uint32_t var, const char *name, int32_t value)
{
	uint32_t big_endian = __builtin_bswap32((uint32_t)value);

	return classic_add_att(c, var, name, CLASSIC_INT, 1, &big_endian);
}

/* ---- places of variables */

void classic_set_vsizes(struct classic *c)
{
	for (uint32_t i = 0; i < c->num_vars; i++) {
		uint64_t padded = (c->vars[i].bytes + 3) & ~(uint64_t)3; /* also of the only record variable */

		c->vars[i].vsize = c->version != 5 && padded > UINT32_MAX - 3 ? CLASSIC_UNALIGNED : padded;
	}
}

/* 0 and *at, rounded up and taken; -EOVERFLOW. */
static int place_var(const struct classic *c, struct classic_var *v, uint64_t align, uint64_t *at)
{
	uint64_t max = c->version == 1 ? INT32_MAX : CLASSIC_BYTES_MAX, up = align > 1 ? align : 4;
	uint64_t begin = (*at + up - 1) / up * up;

	if (begin < *at || begin > max || v->bytes > CLASSIC_BYTES_MAX - 3 - begin)
		return -EOVERFLOW;
	v->begin = begin;
	*at = begin + classic_padded_bytes(c, v);
	return 0;
}

int classic_assign(struct classic *c, const struct classic_align *align)
{
	uint64_t at = c->header_bytes, first = align->header;
	int r = 0;

	classic_set_vsizes(c);
	for (uint32_t i = 0; r == 0 && i < c->num_vars; i++) {
		if (c->vars[i].is_record)
			continue;
		r = place_var(c, &c->vars[i], first > align->variable ? first : align->variable, &at);
		first = 0;
	}
	if (first < align->record)
		first = align->record;
	c->records_begin = 0;
	for (uint32_t i = 0; r == 0 && i < c->num_vars; i++) {
		if (!c->vars[i].is_record)
			continue;
		r = place_var(c, &c->vars[i], first, &at);
		first = 0; /* within a record all is 4 bytes apart */
		if (c->records_begin == 0)
			c->records_begin = c->vars[i].begin;
	}
	return r;
}
