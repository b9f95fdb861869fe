/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Every value is widened to one of three kinds of number (signed, unsigned, floating) and from there narrowed to the
 * type of the variable. What does not fit becomes the fill value: PnetCDF's rule in the builds that everybody uses
 * (--enable-erange-fill). Infinities do not fit into any type other than their own, as there. C leaves open what a NaN, or 2 to the
 * power of 63 or 64, is as an integer: PnetCDF passes them to the compiler, and here they become what x86-64 makes of them, so
 * that a replay gives the same bytes as the close that did not happen.
 */
#include "format/codec/bbvalue.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum number_kind { NUMBER_SIGNED, NUMBER_UNSIGNED, NUMBER_FLOAT };

struct number {
	enum number_kind kind;
	int64_t i;
	uint64_t u;
	double d;
};

/* ---- bytes */

static uint64_t load(const uint8_t *p, uint32_t bytes, bool big)
{
	uint64_t v = 0;

	for (uint32_t i = 0; i < bytes; i++)
		v |= (uint64_t)p[big ? bytes - 1 - i : i] << 8 * i;
	return v;
}

static void store_big(uint8_t *p, uint64_t v, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> 8 * (bytes - 1 - i));
}

#define REVERSE(bits)                                                            \
	static void reverse_##bits(uint8_t *to, const uint8_t *from, size_t num) \
	{                                                                        \
		for (size_t i = 0; i < num; i++) {                               \
			uint##bits##_t v;                                        \
                                                                                 \
			memcpy(&v, from + i * sizeof(v), sizeof(v));             \
			v = __builtin_bswap##bits(v);                            \
			memcpy(to + i * sizeof(v), &v, sizeof(v));               \
		}                                                                \
	}

REVERSE(16)
REVERSE(32)
REVERSE(64)

static void reverse(uint8_t *to, const uint8_t *from, uint32_t bytes, size_t num)
{
	if (bytes == 2)
		reverse_16(to, from, num);
	else if (bytes == 4)
		reverse_32(to, from, num);
	else
		reverse_64(to, from, num);
}

/* ---- from memory */

static double load_float(const uint8_t *p, uint32_t bytes, bool big)
{
	uint64_t bits = load(p, bytes, big);
	uint32_t few = (uint32_t)bits;
	float f;
	double d;

	if (bytes == 8) {
		memcpy(&d, &bits, sizeof(d));
		return d;
	}
	memcpy(&f, &few, sizeof(f));
	return (double)f;
}

static struct number get_number(const struct bbvalue *b, const uint8_t *p)
{
	struct number n = { .kind = NUMBER_SIGNED };
	unsigned int unused = 64 - 8 * b->from_bytes;

	switch (b->from) {
	case BBLOG_UCHAR:
	case BBLOG_USHORT:
	case BBLOG_UINT:
	case BBLOG_ULONGLONG:
		n.kind = NUMBER_UNSIGNED;
		n.u = load(p, b->from_bytes, b->big_endian);
		break;
	case BBLOG_FLOAT:
	case BBLOG_DOUBLE:
		n.kind = NUMBER_FLOAT;
		n.d = load_float(p, b->from_bytes, b->big_endian);
		break;
	default: n.i = (int64_t)(load(p, b->from_bytes, b->big_endian) << unused) >> unused; break;
	}
	return n;
}

/* ---- into the file */

static bool is_unsigned(enum classic_type type)
{
	return type == CLASSIC_UBYTE || type == CLASSIC_USHORT || type == CLASSIC_UINT || type == CLASSIC_UINT64;
}

/* The largest value of an integer type of the file. */
static uint64_t largest(enum classic_type type, uint32_t bytes)
{
	return UINT64_MAX >> (64 - 8 * bytes + (is_unsigned(type) ? 0 : 1));
}

/* Bits of a floating number as an integer: truncated; and for what C leaves open, what x86-64's instructions give. */
static uint64_t truncated(double d, enum classic_type type, uint32_t bytes)
{
	const double two63 = 9223372036854775808.0;
	const uint64_t indefinite = UINT64_C(1) << 63;

	if (isnan(d))
		return type == CLASSIC_INT ? UINT32_C(1) << 31 : bytes == 8 ? indefinite : 0;
	if (d < two63)
		return (uint64_t)(int64_t)d;
	if (type == CLASSIC_INT64)
		return indefinite;
	return d < 2 * two63 ? (uint64_t)(d - two63) + indefinite : 0;
}

/* false: it does not fit. */
static bool float_fits(double d, enum classic_type type, uint32_t bytes)
{
	double max = (double)largest(type, bytes), min = is_unsigned(type) ? 0 : -(double)(largest(type, bytes) + 1);

	return !(d > max) && !(d < min);
}

static bool put_integer(const struct bbvalue *b, const struct number *n, uint8_t *to)
{
	uint64_t max = largest(b->to, b->to_bytes), bits;
	int64_t min = is_unsigned(b->to) ? 0 : -(int64_t)max - 1;

	switch (n->kind) {
	case NUMBER_SIGNED:
		if (n->i < min || (n->i > 0 && (uint64_t)n->i > max))
			return false;
		bits = (uint64_t)n->i;
		break;
	case NUMBER_UNSIGNED:
		if (n->u > max)
			return false;
		bits = n->u;
		break;
	default:
		if (!float_fits(n->d, b->to, b->to_bytes))
			return false;
		bits = truncated(n->d, b->to, b->to_bytes);
	}
	store_big(to, bits, b->to_bytes);
	return true;
}

static bool put_float(const struct number *n, uint8_t *to)
{
	uint32_t bits;
	float f;

	if (n->kind == NUMBER_FLOAT && (n->d > (double)FLT_MAX || n->d < -(double)FLT_MAX))
		return false;
	f = n->kind == NUMBER_FLOAT ? (float)n->d : n->kind == NUMBER_SIGNED ? (float)n->i : (float)n->u;
	memcpy(&bits, &f, sizeof(bits));
	store_big(to, bits, 4);
	return true;
}

static bool put_double(const struct number *n, uint8_t *to)
{
	uint64_t bits;
	double d;

	if (n->kind == NUMBER_FLOAT && isinf(n->d))
		return false;
	d = n->kind == NUMBER_FLOAT ? n->d : n->kind == NUMBER_SIGNED ? (double)n->i : (double)n->u;
	memcpy(&bits, &d, sizeof(bits));
	store_big(to, bits, 8);
	return true;
}

uint64_t bbvalue_convert(const struct bbvalue *b, const uint8_t *from, uint8_t *to, size_t num)
{
	uint64_t unfit = 0;

	if (b->plain && (b->big_endian || b->to_bytes == 1)) {
		memcpy(to, from, num * b->to_bytes);
		return 0;
	}
	if (b->plain) {
		reverse(to, from, b->to_bytes, num);
		return 0;
	}
	for (size_t i = 0; i < num; i++, from += b->from_bytes, to += b->to_bytes) {
		struct number n = get_number(b, from);
		bool fits = b->to == CLASSIC_FLOAT    ? put_float(&n, to)
			    : b->to == CLASSIC_DOUBLE ? put_double(&n, to)
						      : put_integer(b, &n, to);

		if (!fits) {
			memcpy(to, b->fill, b->to_bytes);
			unfit++;
		}
	}
	return unfit;
}

/* ---- which conversion */

/* The type in memory that is the variable's own. */
static enum bblog_type own_type(enum classic_type type)
{
	static const enum bblog_type types[] = {
		[CLASSIC_BYTE] = BBLOG_SCHAR,
		[CLASSIC_CHAR] = BBLOG_TEXT,
		[CLASSIC_SHORT] = BBLOG_SHORT,
		[CLASSIC_INT] = BBLOG_INT,
		[CLASSIC_FLOAT] = BBLOG_FLOAT,
		[CLASSIC_DOUBLE] = BBLOG_DOUBLE,
		[CLASSIC_UBYTE] = BBLOG_UCHAR,
		[CLASSIC_USHORT] = BBLOG_USHORT,
		[CLASSIC_UINT] = BBLOG_UINT,
		[CLASSIC_INT64] = BBLOG_LONGLONG,
		[CLASSIC_UINT64] = BBLOG_ULONGLONG,
	};

	return types[type];
}

static bool is_plain(const struct bbvalue *b, uint32_t version)
{
	enum bblog_type own = own_type(b->to);

	if (b->to == CLASSIC_BYTE && b->from == BBLOG_UCHAR)
		return version < 5; /* there bytes are signed or not as the program likes */
	if (b->from == BBLOG_LONG)
		return b->from_bytes == b->to_bytes && (own == BBLOG_INT || own == BBLOG_LONGLONG);
	return b->from == own;
}

const char *bbvalue_plan(const struct bblog_header *h, const struct bblog_entry *e, uint32_t version,
	const struct classic_var *v, struct bbvalue *ret)
{
	struct bbvalue b = { .from = e->type,
		.from_bytes = e->elem_bytes,
		.big_endian = h->big_endian || h->external,
		.to = v->type,
		.to_bytes = classic_type_bytes(v->type) };

	if (h->external || e->type == BBLOG_NATIVE)
		b.from = own_type(v->type);
	if ((b.from == BBLOG_TEXT) != (v->type == CLASSIC_CHAR))
		return "text and numbers cannot be converted into one another (NC_ECHAR)";
	b.plain = is_plain(&b, version);
	if (b.plain && b.from_bytes != b.to_bytes && e->num_elems > 0)
		return "its values have not the size of the variable's";
	classic_var_fill(v, b.fill);
	*ret = b;
	return NULL;
}
