/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * From the bytes of a classic header to a struct classic. One cursor goes over the bytes; the first fault is kept with its
 * offset, and after it nothing more is read. A list is never larger in memory than a few times its bytes in the file: its
 * count is compared with the bytes that are left before anything is reserved for it, so that a lie costs nothing.
 */
#include "format/codec/classic.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TAG_DIMENSION 10u
#define TAG_VARIABLE  11u
#define TAG_ATTRIBUTE 12u

#define READ_FIRST_BYTES 65536u /* most headers are smaller */

struct decoder {
	struct cursor in;
	const uint8_t *start;
	struct classic *c;
	struct cistern_error *err;
	int r; /* 0 while nothing went wrong */
};

static uint64_t offset(const struct decoder *d)
{
	return (uint64_t)(d->in.at - d->start);
}

static bool going(const struct decoder *d)
{
	return d->r == 0;
}

#define fail(d, code, ...) ((d)->r = (d)->r < 0 ? (d)->r : cistern_error_set((d)->err, code, __VA_ARGS__))

static const uint8_t *take(struct decoder *d, uint64_t len, const char *what)
{
	const uint8_t *at = NULL;

	if (!going(d))
		return NULL;
	if (len <= cursor_left(&d->in))
		at = cursor_bytes(&d->in, (size_t)len);
	else
		fail(d, -ENODATA, "offset %" PRIu64 ": %s needs %" PRIu64 " bytes, %zu are left", offset(d), what, len,
			cursor_left(&d->in));
	return at;
}

static uint64_t big_endian(const uint8_t *p, size_t len)
{
	uint64_t v = 0;

	for (size_t i = 0; i < len; i++)
		v = v << 8 | p[i];
	return v;
}

static uint32_t get_u32(struct decoder *d, const char *what)
{
	const uint8_t *p = take(d, 4, what);

	return p ? (uint32_t)big_endian(p, 4) : 0;
}

static uint64_t get_u64(struct decoder *d, const char *what)
{
	const uint8_t *p = take(d, 8, what);

	return p ? big_endian(p, 8) : 0;
}

/* What is 4 bytes in CDF-1 and 2, and 8 in CDF-5, there never negative. */
static uint64_t get_count(struct decoder *d, const char *what)
{
	uint64_t v;

	if (d->c->version != 5)
		return get_u32(d, what);
	v = get_u64(d, what);
	if (v > INT64_MAX)
		fail(d, -EBADMSG, "offset %" PRIu64 ": %s is negative", offset(d) - 8, what);
	return going(d) ? v : 0;
}

static size_t count_bytes(const struct decoder *d)
{
	return d->c->version == 5 ? 8 : 4;
}

/* The bytes of padding that follow len bytes. */
static void get_padding(struct decoder *d, uint64_t len)
{
	size_t padding = (size_t)(-len & 3);
	const uint8_t *p = take(d, padding, "padding");

	for (size_t i = 0; p && i < padding; i++) {
		if (p[i] == 0)
			continue;
		d->c->exact = false; /* old writers left rubbish there, and readers do not mind */
		if (d->c->odd_padding == 0)
			d->c->odd_padding = offset(d) - padding + i;
	}
}

/* netCDF-C leaves the length as it was when it gives a shorter name outside of its define mode, and NULs at the end. */
static char *get_name(struct decoder *d, const char *what)
{
	uint64_t len = get_count(d, what), used = len;
	const uint8_t *p;
	char *name;

	if (going(d) && (len == 0 || len > CLASSIC_NAME_MAX))
		fail(d, -EBADMSG, "offset %" PRIu64 ": %s has %" PRIu64 " bytes; expected 1 to %d",
			offset(d) - count_bytes(d), what, len, CLASSIC_NAME_MAX);
	p = take(d, len, what);
	while (p && used > 1 && p[used - 1] == 0)
		used--;
	if (p && memchr(p, 0, (size_t)used))
		fail(d, -EBADMSG, "offset %" PRIu64 ": %s has a NUL in it", offset(d) - len, what);
	if (!p || !going(d))
		return NULL;
	name = strndup((const char *)p, (size_t)used);
	if (!name)
		fail(d, -ENOMEM, "out of memory");
	d->c->exact = d->c->exact && used == len;
	d->c->slack += ((len + 3) & ~3ull) - ((used + 3) & ~3ull);
	get_padding(d, len);
	return name;
}

static enum classic_type get_type(struct decoder *d, const char *of)
{
	uint32_t type = get_u32(d, "a type");

	if (going(d) && !classic_type_known(d->c->version, type))
		fail(d, -EBADMSG, "offset %" PRIu64 ": type %" PRIu32 " of \"%s\"; expected 1 to %d in CDF-%" PRIu32,
			offset(d) - 4, type, of, d->c->version == 5 ? CLASSIC_UINT64 : CLASSIC_DOUBLE, d->c->version);
	return going(d) ? (enum classic_type)type : CLASSIC_BYTE;
}

/* The tag and the count of a list, and memory for it: items of item_bytes that have at least min_bytes in the file. */
static void *get_list(
	struct decoder *d, uint32_t tag, const char *what, size_t min_bytes, size_t item_bytes, uint32_t *ret_num)
{
	uint64_t at = offset(d), num;
	uint32_t found = get_u32(d, what);
	void *list = NULL;

	*ret_num = 0;
	num = get_count(d, what);
	if (!going(d))
		return NULL;
	if (found != tag && (found != 0 || num > 0)) {
		fail(d, -EBADMSG,
			"offset %" PRIu64 ": expected %s: tag %" PRIu32 ", or 0 and no entries; found %" PRIu32
			" and %" PRIu64,
			at, what, tag, found, num);
		return NULL;
	}
	if (num >= UINT32_MAX || num > CLASSIC_HEADER_MAX / min_bytes) {
		fail(d, -EBADMSG, "offset %" PRIu64 ": %s has %" PRIu64 " entries, more than a header can hold", at,
			what, num);
		return NULL;
	}
	if (num > cursor_left(&d->in) / min_bytes) {
		fail(d, -ENODATA, "offset %" PRIu64 ": %s has %" PRIu64 " entries, but only %zu bytes are left", at,
			what, num, cursor_left(&d->in));
		return NULL;
	}
	d->c->exact = d->c->exact && (num > 0 || found == 0);
	if (num > 0 && !(list = calloc((size_t)num, item_bytes)))
		fail(d, -ENOMEM, "out of memory");
	*ret_num = list ? (uint32_t)num : 0;
	return list;
}

static void get_dims(struct decoder *d)
{
	struct classic *c = d->c;

	c->dims = get_list(
		d, TAG_DIMENSION, "the list of dimensions", 4 + 2 * count_bytes(d), sizeof(*c->dims), &c->num_dims);
	for (uint32_t i = 0; going(d) && i < c->num_dims; i++) {
		c->dims[i].name = get_name(d, "a dimension's name");
		c->dims[i].len = get_count(d, "a dimension's length");
	}
}

static void get_att(struct decoder *d, struct classic_att *a)
{
	uint64_t bytes;
	const uint8_t *p;

	a->name = get_name(d, "an attribute's name");
	if (!going(d))
		return;
	a->type = get_type(d, a->name);
	a->num = get_count(d, "an attribute's number of values");
	if (__builtin_mul_overflow(a->num, (uint64_t)classic_type_bytes(a->type), &bytes) || bytes > CLASSIC_HEADER_MAX)
		fail(d, -EBADMSG,
			"offset %" PRIu64 ": attribute \"%s\" has %" PRIu64 " values, more than a header can hold",
			offset(d) - count_bytes(d), a->name, a->num);
	p = take(d, bytes, "an attribute's values");
	if (p && bytes > 0) {
		a->values = malloc((size_t)bytes);
		if (a->values)
			memcpy(a->values, p, (size_t)bytes);
		else
			fail(d, -ENOMEM, "out of memory");
	}
	get_padding(d, bytes);
}

static struct classic_att *get_atts(struct decoder *d, uint32_t *ret_num)
{
	struct classic_att *atts =
		get_list(d, TAG_ATTRIBUTE, "a list of attributes", 8 + 2 * count_bytes(d), sizeof(*atts), ret_num);

	for (uint32_t i = 0; going(d) && i < *ret_num; i++)
		get_att(d, &atts[i]);
	return atts;
}

static void get_var_dims(struct decoder *d, struct classic_var *v)
{
	uint64_t num = get_count(d, "a variable's number of dimensions");

	if (going(d) && num > CLASSIC_VAR_DIMS_MAX)
		fail(d, -EBADMSG, "offset %" PRIu64 ": variable \"%s\" has %" PRIu64 " dimensions; expected at most %d",
			offset(d) - count_bytes(d), v->name, num, CLASSIC_VAR_DIMS_MAX);
	if (!going(d) || num == 0)
		return;
	v->dims = calloc((size_t)num, sizeof(*v->dims));
	if (!v->dims) {
		fail(d, -ENOMEM, "out of memory");
		return;
	}
	v->num_dims = (uint32_t)num;
	for (uint32_t i = 0; going(d) && i < num; i++) {
		uint64_t dim = get_count(d, "a dimension's number");

		if (going(d) && dim >= d->c->num_dims)
			fail(d, -EBADMSG,
				"offset %" PRIu64 ": variable \"%s\" has dimension %" PRIu64
				"; expected less than %" PRIu32,
				offset(d) - count_bytes(d), v->name, dim, d->c->num_dims);
		v->dims[i] = (uint32_t)dim;
	}
}

static void get_var(struct decoder *d, struct classic_var *v)
{
	v->name = get_name(d, "a variable's name");
	if (!going(d))
		return;
	get_var_dims(d, v);
	v->atts = get_atts(d, &v->num_atts);
	v->type = get_type(d, v->name);
	v->vsize = d->c->version == 5 ? get_u64(d, "a variable's size") : get_u32(d, "a variable's size");
	v->begin = d->c->version == 1 ? get_u32(d, "a variable's begin") : get_u64(d, "a variable's begin");
	if (going(d) && v->begin > (d->c->version == 1 ? INT32_MAX : INT64_MAX))
		fail(d, -EBADMSG, "offset %" PRIu64 ": variable \"%s\" has a negative begin",
			offset(d) - (d->c->version == 1 ? 4 : 8), v->name);
}

static void get_vars(struct decoder *d)
{
	struct classic *c = d->c;
	size_t min = 4 + 4 + 4 + 4 * count_bytes(d) + (c->version == 1 ? 4 : 8);

	c->vars = get_list(d, TAG_VARIABLE, "the list of variables", min, sizeof(*c->vars), &c->num_vars);
	for (uint32_t i = 0; going(d) && i < c->num_vars; i++)
		get_var(d, &c->vars[i]);
}

static void get_start(struct decoder *d)
{
	const uint8_t *magic = take(d, 4, "the magic number");
	uint64_t all_ones = UINT32_MAX;

	if (!magic)
		return;
	if (!classic_is(magic, 4)) {
		fail(d, -EBADMSG, "offset 0: expected \"CDF\" and 1, 2 or 5; found %02x %02x %02x %02x", magic[0],
			magic[1], magic[2], magic[3]);
		return;
	}
	d->c->version = magic[3];
	d->c->exact = true;
	if (d->c->version == 5) {
		all_ones = UINT64_MAX;
		d->c->num_records = get_u64(d, "the number of records");
	} else {
		d->c->num_records = get_u32(d, "the number of records");
	}
	d->c->streaming = d->c->num_records == all_ones;
	if (d->c->streaming)
		d->c->num_records = 0;
	if (going(d) && d->c->num_records > INT64_MAX)
		fail(d, -EBADMSG, "offset %u: the number of records is negative", CLASSIC_NUMRECS_OFF);
}

bool classic_is(const void *buf, size_t len)
{
	const uint8_t *p = buf;

	return len >= 4 && memcmp(p, "CDF", 3) == 0 && (p[3] == 1 || p[3] == 2 || p[3] == 5);
}

static int decode(const void *buf, size_t len, bool placed, struct classic *ret, struct cistern_error *err)
{
	struct classic c = { 0 };
	struct decoder d = { .in = cursor_make(buf, len), .c = &c, .err = err };

	d.start = d.in.at;
	get_start(&d);
	if (going(&d))
		get_dims(&d);
	if (going(&d))
		c.atts = get_atts(&d, &c.num_atts);
	if (going(&d))
		get_vars(&d);
	if (going(&d))
		d.r = classic_finish(&c, err);
	if (going(&d) && c.header_bytes > CLASSIC_HEADER_MAX)
		fail(&d, -EFBIG, "the header has %" PRIu64 " bytes; expected at most %u", c.header_bytes,
			CLASSIC_HEADER_MAX);
	if (going(&d) && placed)
		d.r = classic_check_begins(&c, err);
	if (d.r == -ENOMEM)
		cistern_error_set(err, -ENOMEM, "out of memory");
	if (d.r < 0)
		classic_destroy(&c);
	else
		*ret = c;
	return d.r;
}

int classic_decode(const void *buf, size_t len, struct classic *ret, struct cistern_error *err)
{
	return decode(buf, len, true, ret, err);
}

int classic_decode_definitions(const void *buf, size_t len, struct classic *ret, struct cistern_error *err)
{
	return decode(buf, len, false, ret, err);
}

/* ---- from a file */

/* Up to len bytes at off; less at the end of the file, or before what cannot be had (-ENODATA): the header may be before it. */
static ssize_t read_all(classic_read_fn read_bytes, void *arg, uint8_t *buf, size_t len, uint64_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = read_bytes(buf + done, len - done, off + done, arg);

		if (n == 0 || (n == -ENODATA && done > 0))
			break;
		if (n < 0)
			return n;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int classic_read(classic_read_fn read_bytes, void *arg, struct classic *ret, struct cistern_error *err)
{
	uint8_t *buf = NULL;
	size_t len = 0, cap = READ_FIRST_BYTES;
	int r;

	for (;; cap *= 4) {
		uint8_t *grown = realloc(buf, cap);
		ssize_t n = -ENOMEM;

		if (grown) {
			buf = grown;
			n = read_all(read_bytes, arg, buf + len, cap - len, len);
		}
		if (n < 0) {
			r = cistern_error_set(err, (int)n, "reading the header: %s", strerror((int)-n));
			break;
		}
		len += (size_t)n;
		r = classic_decode(buf, len, ret, err);
		if (r != -ENODATA)
			break;
		if (len < cap) { /* that is the whole file */
			r = err ? cistern_error_prefix(err, "the file ends inside the header") : 0;
			r = -EBADMSG;
			break;
		}
		if (cap >= CLASSIC_HEADER_MAX) {
			r = cistern_error_set(err, -EFBIG, "the header has more than %u bytes", CLASSIC_HEADER_MAX);
			break;
		}
		/* A small header that lies about a list costs its reader one look at each size up to here, no more. */
	}
	free(buf);
	return r;
}
