/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Sizes and times as text. One parser serves both: digits, perhaps a fraction ("1.5G", "0.5s"), a unit. It is strict
 * (no blanks, no signs, nothing left over), so that "64 M" or "64MB", of which one cannot tell what was meant, is an
 * error and not a surprise. Bytes and microseconds are whole: a fraction of one is cut off.
 */
#include "format/base/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MILLION         UINT64_C(1000000)
#define FRACTION_DIGITS 9

#define USEC_PER_MSEC UINT64_C(1000)
#define USEC_PER_SEC  UINT64_C(1000000)
#define USEC_PER_MIN  (60 * USEC_PER_SEC)
#define USEC_PER_HOUR (60 * USEC_PER_MIN)
#define USEC_PER_DAY  (24 * USEC_PER_HOUR)

struct unit {
	const char *name;
	uint64_t scale;
};

/* The largest first: the order in which the exact forms try them. */
static const struct unit byte_units[] = {
	{ "P", UINT64_C(1) << 50 },
	{ "T", UINT64_C(1) << 40 },
	{ "G", UINT64_C(1) << 30 },
	{ "M", UINT64_C(1) << 20 },
	{ "K", UINT64_C(1) << 10 },
	{ "", 1 },
};

static const struct unit usec_units[] = {
	{ "d", USEC_PER_DAY },
	{ "h", USEC_PER_HOUR },
	{ "m", USEC_PER_MIN },
	{ "s", USEC_PER_SEC },
	{ "ms", USEC_PER_MSEC },
	{ "us", 1 },
};

#define NUM_OF(a) (sizeof(a) / sizeof((a)[0]))

/* Digits at *text, moved past them. At least one is needed. */
static int parse_digits(const char **text, uint64_t *ret)
{
	const char *p = *text;
	uint64_t v = 0;
	bool over = false;

	if (!isdigit((unsigned char)*p))
		return -EINVAL;
	for (; isdigit((unsigned char)*p); p++)
		over |= __builtin_mul_overflow(v, (uint64_t)10, &v) ||
			__builtin_add_overflow(v, (uint64_t)(*p - '0'), &v);
	*text = p;
	*ret = v;
	return over ? -ERANGE : 0;
}

int units_parse_u64(const char *text, uint64_t *ret)
{
	uint64_t v;
	int r = parse_digits(&text, &v);

	if (*text || r == -EINVAL)
		return -EINVAL;
	if (r == 0)
		*ret = v;
	return r;
}

/* ".25" at *text, moved past it: *ret = 25, *ret_scale = 100. Without a point 0 and 1. */
static int parse_fraction(const char **text, uint64_t *ret, uint64_t *ret_scale)
{
	const char *p = *text;
	uint64_t v = 0, scale = 1;

	*ret = 0;
	*ret_scale = 1;
	if (*p != '.')
		return 0;
	p++;
	if (!isdigit((unsigned char)*p))
		return -EINVAL;
	for (int i = 0; isdigit((unsigned char)*p); p++, i++) {
		if (i >= FRACTION_DIGITS)
			return -EINVAL;
		v = v * 10 + (uint64_t)(*p - '0');
		scale *= 10;
	}
	*text = p;
	*ret = v;
	*ret_scale = scale;
	return 0;
}

/* whole and fraction / fraction_scale of a unit. */
static int scale_up(uint64_t whole, uint64_t fraction, uint64_t fraction_scale, uint64_t unit, uint64_t *ret)
{
	unsigned __int128 part = (unsigned __int128)fraction * unit / fraction_scale;
	uint64_t v;

	if (fraction_scale > 1 && unit == 1)
		return -EINVAL;
	if (__builtin_mul_overflow(whole, unit, &v) || __builtin_add_overflow(v, (uint64_t)part, &v))
		return -ERANGE;
	*ret = v;
	return 0;
}

/* fold: also "m" and "MiB" for "M". bare: the unit of a number without one. */
static int parse_scaled(const char *text, const struct unit *units, size_t num, bool fold, uint64_t bare, uint64_t *ret)
{
	uint64_t whole, fraction, fraction_scale;
	int over = parse_digits(&text, &whole);

	if (over == -EINVAL || parse_fraction(&text, &fraction, &fraction_scale))
		return -EINVAL;
	if (!*text)
		return over ? over : scale_up(whole, fraction, fraction_scale, bare, ret);
	for (size_t i = 0; i < num; i++) {
		size_t len = strlen(units[i].name);

		if (len == 0 || (fold ? strncasecmp(text, units[i].name, len) : strncmp(text, units[i].name, len)))
			continue;
		if (text[len] == '\0' || (fold && strcasecmp(text + len, "iB") == 0))
			return over ? over : scale_up(whole, fraction, fraction_scale, units[i].scale, ret);
	}
	return -EINVAL;
}

int units_parse_millionths(const char *text, uint64_t *ret)
{
	uint64_t whole, fraction, scale;
	int r = parse_digits(&text, &whole);

	if (r == 0)
		r = parse_fraction(&text, &fraction, &scale);
	if (r < 0 || *text)
		return r == -ERANGE ? r : -EINVAL;
	if (scale > MILLION && fraction % (scale / MILLION) != 0)
		return -EINVAL; /* more places than are kept */
	fraction = scale > MILLION ? fraction / (scale / MILLION) : fraction * (MILLION / scale);
	return scale_up(whole, 0, 1, MILLION, ret) < 0 || __builtin_add_overflow(*ret, fraction, ret) ? -ERANGE : 0;
}

int units_parse_bytes(const char *text, uint64_t *ret_bytes)
{
	return parse_scaled(text, byte_units, NUM_OF(byte_units), true, 1, ret_bytes);
}

int units_parse_usec(const char *text, uint64_t *ret_usec)
{
	return parse_scaled(text, usec_units, NUM_OF(usec_units), false, USEC_PER_SEC, ret_usec);
}

/* v / unit, rounded half up to tenths, without overflow. */
static uint64_t tenths_of(uint64_t v, uint64_t unit)
{
	return (uint64_t)(((unsigned __int128)v * 10 + unit / 2) / unit);
}

static const char *format_tenths(uint64_t tenths, const char *unit, char out[UNITS_TEXT])
{
	if (tenths % 10 == 0 || tenths >= 1000)
		snprintf(out, UNITS_TEXT, "%" PRIu64 " %s", (tenths + (tenths >= 1000 ? 5 : 0)) / 10, unit);
	else
		snprintf(out, UNITS_TEXT, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, unit);
	return out;
}

const char *units_format_bytes(uint64_t bytes, char out[UNITS_TEXT])
{
	static const char *const names[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	size_t i = 0;

	if (bytes < 1024) {
		char text[UNITS_COUNT];

		snprintf(out, UNITS_TEXT, "%s", units_format_count(bytes, "byte", text));
		return out;
	}
	/* 10235 tenths show as "1024": that is the next unit's "1" */
	while (i + 1 < NUM_OF(names) && tenths_of(bytes, UINT64_C(1) << (10 * (i + 1))) >= 10235)
		i++;
	return format_tenths(tenths_of(bytes, UINT64_C(1) << (10 * (i + 1))), names[i], out);
}

const char *units_format_usec(uint64_t usec, char out[UNITS_TEXT])
{
	if (usec < USEC_PER_MSEC)
		snprintf(out, UNITS_TEXT, "%" PRIu64 " us", usec);
	else if (tenths_of(usec, USEC_PER_MSEC) < 9995)
		format_tenths(tenths_of(usec, USEC_PER_MSEC), "ms", out);
	else if (tenths_of(usec, USEC_PER_SEC) < 600)
		format_tenths(tenths_of(usec, USEC_PER_SEC), "s", out);
	else if (usec < USEC_PER_MIN) /* 59.97 s */
		snprintf(out, UNITS_TEXT, "1 min 00 s");
	else if (usec < USEC_PER_HOUR)
		snprintf(out, UNITS_TEXT, "%" PRIu64 " min %02" PRIu64 " s", usec / USEC_PER_MIN,
			usec % USEC_PER_MIN / USEC_PER_SEC);
	else if (usec < USEC_PER_DAY)
		snprintf(out, UNITS_TEXT, "%" PRIu64 " h %02" PRIu64 " min", usec / USEC_PER_HOUR,
			usec % USEC_PER_HOUR / USEC_PER_MIN);
	else
		snprintf(out, UNITS_TEXT, "%" PRIu64 " d %02" PRIu64 " h", usec / USEC_PER_DAY,
			usec % USEC_PER_DAY / USEC_PER_HOUR);
	return out;
}

const char *units_format_count(uint64_t num, const char *noun, char out[UNITS_COUNT])
{
	size_t len = strlen(noun);
	bool ies = num != 1 && len > 0 && noun[len - 1] == 'y';

	snprintf(out, UNITS_COUNT, "%" PRIu64 " %.*s%s", num, (int)(ies ? len - 1 : len), noun,
		ies        ? "ies"
		: num == 1 ? ""
			   : "s");
	return out;
}

/* The largest unit that divides v. */
static const char *format_exact(uint64_t v, const struct unit *units, size_t num, char out[UNITS_TEXT])
{
	size_t i = 0;

	while (i + 1 < num && v % units[i].scale != 0)
		i++;
	snprintf(out, UNITS_TEXT, "%" PRIu64 "%s", v / units[i].scale, units[i].name);
	return out;
}

const char *units_exact_bytes(uint64_t bytes, char out[UNITS_TEXT])
{
	if (bytes == 0)
		return strcpy(out, "0");
	return format_exact(bytes, byte_units, NUM_OF(byte_units), out);
}

const char *units_exact_usec(uint64_t usec, char out[UNITS_TEXT])
{
	if (usec == 0)
		return strcpy(out, "0s");
	return format_exact(usec, usec_units, NUM_OF(usec_units), out);
}

const char *units_exact_millionths(uint64_t v, char out[UNITS_TEXT])
{
	int n = snprintf(out, UNITS_TEXT, "%" PRIu64 ".%06" PRIu64, v / MILLION, v % MILLION);

	while (out[n - 1] == '0')
		out[--n] = '\0';
	if (out[n - 1] == '.')
		out[--n] = '\0';
	return out;
}
