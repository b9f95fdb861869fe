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

/*
 * Values are taken in batches that stay in the nearest cache, by loops with a fixed number of rounds and without branches, which compilers
 * turn into vector instructions; all is compiled twice, for processors with AVX2 and for others.
 */
#define BATCH  32u
#define INLINE static inline __attribute__((always_inline))

enum number_kind { NUMBER_SIGNED, NUMBER_UNSIGNED, NUMBER_FLOAT };

union numbers {
	int64_t i[BATCH];
	uint64_t u[BATCH];
	double d[BATCH];
};

/* ---- bytes */

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define HOST_BIG  true
#define big_16(v) (v)
#define big_32(v) (v)
#define big_64(v) (v)
#else
#define HOST_BIG  false
#define big_16(v) __builtin_bswap16(v)
#define big_32(v) __builtin_bswap32(v)
#define big_64(v) __builtin_bswap64(v)
#endif

static uint64_t load_big(const uint8_t *p, uint32_t bytes)
{
	uint64_t v = 0;

	for (uint32_t i = 0; i < bytes; i++)
		v = v << 8 | p[i];
	return v;
}

/* to and from do not overlap. */
#define REVERSE(bits)                                                                                 \
	INLINE void reverse_some_##bits(uint8_t *restrict to, const uint8_t *restrict from, size_t n) \
	{                                                                                             \
		for (size_t i = 0; i < n; i++) {                                                      \
			uint##bits##_t v;                                                             \
                                                                                                      \
			memcpy(&v, from + i * sizeof(v), sizeof(v));                                  \
			v = __builtin_bswap##bits(v);                                                 \
			memcpy(to + i * sizeof(v), &v, sizeof(v));                                    \
		}                                                                                     \
	}                                                                                             \
                                                                                                      \
	INLINE void reverse_##bits(uint8_t *to, const uint8_t *from, size_t num)                      \
	{                                                                                             \
		const size_t step = BATCH * (size_t)bits / 8;                                         \
                                                                                                      \
		for (; num >= BATCH; num -= BATCH, to += step, from += step)                          \
			reverse_some_##bits(to, from, BATCH);                                         \
		reverse_some_##bits(to, from, num);                                                   \
	}

REVERSE(16)
REVERSE(32)
REVERSE(64)

INLINE void reverse(uint8_t *to, const uint8_t *from, uint32_t bytes, size_t num)
{
	if (bytes == 2)
		reverse_16(to, from, num);
	else if (bytes == 4)
		reverse_32(to, from, num);
	else
		reverse_64(to, from, num);
}

/* ---- from memory */

/* A batch of numbers as this machine has them, made wide. */
#define WIDEN(name, type, field)                                          \
	INLINE void widen_##name(const uint8_t *from, union numbers *ret) \
	{                                                                 \
		for (size_t i = 0; i < BATCH; i++) {                      \
			type v;                                           \
                                                                          \
			memcpy(&v, from + i * sizeof(v), sizeof(v));      \
			ret->field[i] = v;                                \
		}                                                         \
	}

WIDEN(int8, int8_t, i)
WIDEN(int16, int16_t, i)
WIDEN(int32, int32_t, i)
WIDEN(int64, int64_t, i)
WIDEN(uint8, uint8_t, u)
WIDEN(uint16, uint16_t, u)
WIDEN(uint32, uint32_t, u)
WIDEN(uint64, uint64_t, u)
WIDEN(float, float, d)
WIDEN(double, double, d)

static enum number_kind kind_of(enum bblog_type type)
{
	switch (type) {
	case BBLOG_UCHAR:
	case BBLOG_USHORT:
	case BBLOG_UINT:
	case BBLOG_ULONGLONG: return NUMBER_UNSIGNED;
	case BBLOG_FLOAT:
	case BBLOG_DOUBLE: return NUMBER_FLOAT;
	default: return NUMBER_SIGNED;
	}
}

INLINE void widen_native(enum number_kind kind, uint32_t bytes, const uint8_t *from, union numbers *ret)
{
	switch ((unsigned int)kind << 4 | bytes) {
	case NUMBER_SIGNED << 4 | 1: widen_int8(from, ret); break;
	case NUMBER_SIGNED << 4 | 2: widen_int16(from, ret); break;
	case NUMBER_SIGNED << 4 | 4: widen_int32(from, ret); break;
	case NUMBER_SIGNED << 4 | 8: widen_int64(from, ret); break;
	case NUMBER_UNSIGNED << 4 | 1: widen_uint8(from, ret); break;
	case NUMBER_UNSIGNED << 4 | 2: widen_uint16(from, ret); break;
	case NUMBER_UNSIGNED << 4 | 4: widen_uint32(from, ret); break;
	case NUMBER_UNSIGNED << 4 | 8: widen_uint64(from, ret); break;
	case NUMBER_FLOAT << 4 | 4: widen_float(from, ret); break;
	default: widen_double(from, ret); break;
	}
}

/* BATCH values. */
INLINE void widen(const struct bbvalue *b, const uint8_t *from, union numbers *ret)
{
	uint8_t native[BATCH * sizeof(uint64_t)];

	if (b->big_endian != HOST_BIG && b->from_bytes > 1) {
		reverse(native, from, b->from_bytes, BATCH);
		from = native;
	}
	widen_native(kind_of(b->from), b->from_bytes, from, ret);
}

/* ---- into the file */

/* A batch as the file has it, but in this machine's order of bytes. */
union values {
	uint8_t b8[BATCH];
	uint16_t b16[BATCH];
	uint32_t b32[BATCH];
	uint64_t b64[BATCH];
	float f[BATCH];
	double d[BATCH];
};

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

/*
 * Each of these narrows a batch, the first num of which count; what does not fit becomes fill, and is counted. Mostly all do, so
 * those are sought only where one did not.
 */
INLINE uint64_t narrow_signed(const struct bbvalue *b, const int64_t *n, size_t num, uint64_t fill, uint64_t *bits)
{
	uint64_t most = largest(b->to, b->to_bytes), unfit = 0;
	int64_t max = most > INT64_MAX ? INT64_MAX : (int64_t)most, min = is_unsigned(b->to) ? 0 : -max - 1;

	for (size_t i = 0; i < BATCH; i++)
		bits[i] = n[i] >= min && n[i] <= max ? (uint64_t)n[i] : fill;
	for (size_t i = 0; i < num; i++)
		unfit += n[i] < min || n[i] > max;
	return unfit;
}

INLINE uint64_t narrow_unsigned(const struct bbvalue *b, const uint64_t *n, size_t num, uint64_t fill, uint64_t *bits)
{
	uint64_t max = largest(b->to, b->to_bytes), unfit = 0;

	for (size_t i = 0; i < BATCH; i++)
		bits[i] = n[i] <= max ? n[i] : fill;
	for (size_t i = 0; i < num; i++)
		unfit += n[i] > max;
	return unfit;
}

static uint64_t narrow_float(const struct bbvalue *b, const double *n, size_t num, uint64_t fill, uint64_t *bits)
{
	uint64_t unfit = 0;

	for (size_t i = 0; i < num; i++) {
		bool fits = float_fits(n[i], b->to, b->to_bytes);

		bits[i] = fits ? truncated(n[i], b->to, b->to_bytes) : fill;
		unfit += !fits;
	}
	return unfit;
}

INLINE void pack(uint32_t bytes, const uint64_t *bits, union values *ret)
{
	for (size_t i = 0; i < BATCH && bytes == 1; i++)
		ret->b8[i] = (uint8_t)bits[i];
	for (size_t i = 0; i < BATCH && bytes == 2; i++)
		ret->b16[i] = (uint16_t)bits[i];
	for (size_t i = 0; i < BATCH && bytes == 4; i++)
		ret->b32[i] = (uint32_t)bits[i];
	for (size_t i = 0; i < BATCH && bytes == 8; i++)
		ret->b64[i] = bits[i];
}

INLINE uint64_t to_integers(
	const struct bbvalue *b, const union numbers *n, size_t num, uint64_t fill, union values *ret)
{
	uint64_t bits[BATCH] = { 0 }, unfit;

	switch (kind_of(b->from)) {
	case NUMBER_SIGNED: unfit = narrow_signed(b, n->i, num, fill, bits); break;
	case NUMBER_UNSIGNED: unfit = narrow_unsigned(b, n->u, num, fill, bits); break;
	default: unfit = narrow_float(b, n->d, num, fill, bits);
	}
	pack(b->to_bytes, bits, ret);
	return unfit;
}

INLINE uint64_t floats_to_floats(const double *n, size_t num, uint64_t fill, union values *ret)
{
	const double max = (double)FLT_MAX;
	uint64_t unfit = 0;
	uint64_t bad = 0;

	for (size_t i = 0; i < BATCH; i++)
		ret->f[i] = (float)n[i];
	for (size_t i = 0; i < BATCH; i++)
		bad |= fabs(n[i]) > max;
	for (size_t i = 0; i < num && bad; i++)
		if (n[i] > max || n[i] < -max) {
			ret->b32[i] = (uint32_t)fill;
			unfit++;
		}
	return unfit;
}

INLINE uint64_t to_floats(const struct bbvalue *b, const union numbers *n, size_t num, uint64_t fill, union values *ret)
{
	enum number_kind kind = kind_of(b->from);

	for (size_t i = 0; i < BATCH && kind == NUMBER_SIGNED; i++)
		ret->f[i] = (float)n->i[i];
	for (size_t i = 0; i < BATCH && kind == NUMBER_UNSIGNED; i++)
		ret->f[i] = (float)n->u[i];
	return kind == NUMBER_FLOAT ? floats_to_floats(n->d, num, fill, ret) : 0;
}

INLINE uint64_t to_doubles(
	const struct bbvalue *b, const union numbers *n, size_t num, uint64_t fill, union values *ret)
{
	enum number_kind kind = kind_of(b->from);
	uint64_t unfit = 0;

	for (size_t i = 0; i < BATCH && kind == NUMBER_SIGNED; i++)
		ret->d[i] = (double)n->i[i];
	for (size_t i = 0; i < BATCH && kind == NUMBER_UNSIGNED; i++)
		ret->d[i] = (double)n->u[i];
	for (size_t i = 0; i < num && kind == NUMBER_FLOAT; i++) {
		bool fits = !isinf(n->d[i]);

		ret->b64[i] = fill;
		if (fits)
			ret->d[i] = n->d[i];
		unfit += !fits;
	}
	return unfit;
}

/* num values, at most BATCH; from has BATCH. */
INLINE uint64_t convert_batch(const struct bbvalue *b, const uint8_t *from, uint8_t *to, size_t num, uint64_t fill)
{
	union numbers n;
	union values v;
	uint64_t unfit;

	widen(b, from, &n);
	if (b->to == CLASSIC_FLOAT)
		unfit = to_floats(b, &n, num, fill, &v);
	else if (b->to == CLASSIC_DOUBLE)
		unfit = to_doubles(b, &n, num, fill, &v);
	else
		unfit = to_integers(b, &n, num, fill, &v);
	if (HOST_BIG || b->to_bytes == 1)
		memcpy(to, v.b8, num * b->to_bytes);
	else
		reverse(to, v.b8, b->to_bytes, num);
	return unfit;
}

INLINE uint64_t convert(const struct bbvalue *b, const uint8_t *from, uint8_t *to, size_t num)
{
	uint64_t fill = load_big(b->fill, b->to_bytes), unfit = 0;
	uint8_t last[BATCH * sizeof(uint64_t)] = { 0 };

	if (b->plain) {
		reverse(to, from, b->to_bytes, num);
		return 0;
	}
	for (; num >= BATCH; num -= BATCH, from += (size_t)BATCH * b->from_bytes, to += (size_t)BATCH * b->to_bytes)
		unfit += convert_batch(b, from, to, BATCH, fill);
	if (num > 0) {
		memcpy(last, from, num * b->from_bytes);
		unfit += convert_batch(b, last, to, num, fill);
	}
	return unfit;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t convert_avx2(
	const struct bbvalue *b, const uint8_t *from, uint8_t *to, size_t num)
{
	return convert(b, from, to, num);
}
#endif

static uint64_t convert_any(const struct bbvalue *b, const uint8_t *from, uint8_t *to, size_t num)
{
	return convert(b, from, to, num);
}

uint64_t bbvalue_convert(const struct bbvalue *b, const uint8_t *from, uint8_t *to, size_t num)
{
	if (b->plain && (b->big_endian || b->to_bytes == 1)) {
		memcpy(to, from, num * b->to_bytes);
		return 0;
	}
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2"))
		return convert_avx2(b, from, to, num);
#endif
	return convert_any(b, from, to, num);
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
