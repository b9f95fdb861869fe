/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/units.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/lib/tap.h"

struct parse_case {
	const char *text;
	int result;
	uint64_t value;
};

static void check(int (*parse)(const char *, uint64_t *), const struct parse_case *cases, size_t num)
{
	for (size_t i = 0; i < num; i++) {
		uint64_t v = 4711;
		int r = parse(cases[i].text, &v);

		ok(r == cases[i].result && v == (r ? 4711 : cases[i].value), "\"%s\"", cases[i].text);
	}
}

#define CHECK(parse, cases) check(parse, cases, sizeof(cases) / sizeof((cases)[0]))

static const struct parse_case byte_cases[] = {
	{ "0", 0, 0 },
	{ "1000", 0, 1000 },
	{ "64M", 0, 67108864 },
	{ "64m", 0, 67108864 },
	{ "64MiB", 0, 67108864 },
	{ "2k", 0, 2048 },
	{ "1.5G", 0, 1610612736 },
	{ "0.3K", 0, 307 },
	{ "3T", 0, 3298534883328 },
	{ "16383P", 0, UINT64_C(16383) << 50 },
	{ "18446744073709551615", 0, UINT64_MAX },
	{ "18446744073709551616", -ERANGE, 0 },
	{ "16384P", -ERANGE, 0 },
	{ "99999999999999999999999999M", -ERANGE, 0 },
	{ "99999999999999999999999999X", -EINVAL, 0 },
	{ "", -EINVAL, 0 },
	{ "M", -EINVAL, 0 },
	{ "-1", -EINVAL, 0 },
	{ "+1", -EINVAL, 0 },
	{ " 1", -EINVAL, 0 },
	{ "64 M", -EINVAL, 0 },
	{ "64MB", -EINVAL, 0 },
	{ "64MiBs", -EINVAL, 0 },
	{ "1.5", -EINVAL, 0 },
	{ "1.M", -EINVAL, 0 },
	{ ".5M", -EINVAL, 0 },
	{ "80%", -EINVAL, 0 },
	{ "0x10", -EINVAL, 0 },
	{ "1.0000000001G", -EINVAL, 0 },
};

static const struct parse_case usec_cases[] = {
	{ "0", 0, 0 },
	{ "30", 0, 30000000 },
	{ "30s", 0, 30000000 },
	{ "0.5", 0, 500000 },
	{ "250ms", 0, 250000 },
	{ "17us", 0, 17 },
	{ "5m", 0, 300000000 },
	{ "1.5h", 0, 5400000000 },
	{ "2d", 0, 172800000000 },
	{ "5M", -EINVAL, 0 },
	{ "5min", -EINVAL, 0 },
	{ "1h 2m", -EINVAL, 0 },
	{ "1.5us", -EINVAL, 0 },
	{ "999999999999999999d", -ERANGE, 0 },
};

static const struct parse_case number_cases[] = {
	{ "7", 0, 7 },
	{ "007", 0, 7 },
	{ "", -EINVAL, 0 },
	{ "7k", -EINVAL, 0 },
	{ "18446744073709551616", -ERANGE, 0 },
};

static void test_count(void)
{
	char t[UNITS_COUNT];

	is_str(units_format_count(0, "file", t), "0 files", "none");
	is_str(units_format_count(1, "file", t), "1 file", "one");
	is_str(units_format_count(2, "file", t), "2 files", "two");
	is_str(units_format_count(1, "entry", t), "1 entry", "one that ends in y");
	is_str(units_format_count(3, "whole entry", t), "3 whole entries", "several of these");
	is_str(units_format_count(UINT64_MAX, "12345678901234567890", t), "18446744073709551615 12345678901234567890s",
		"the longest");
}

static void test_people(void)
{
	char t[UNITS_TEXT];

	is_str(units_format_bytes(0, t), "0 bytes", "0");
	is_str(units_format_bytes(1, t), "1 byte", "1");
	is_str(units_format_bytes(17, t), "17 bytes", "17");
	is_str(units_format_bytes(1023, t), "1023 bytes", "1023");
	is_str(units_format_bytes(1024, t), "1 KiB", "1024");
	is_str(units_format_bytes(1610612736, t), "1.5 GiB", "1.5 GiB");
	is_str(units_format_bytes(1048575, t), "1 MiB", "just under 1 MiB is not 1024 KiB");
	is_str(units_format_bytes(123 * 1024 + 512, t), "124 KiB", "three digits need no more");
	is_str(units_format_bytes(UINT64_MAX, t), "16 EiB", "all ones");
	is_str(units_format_usec(0, t), "0 us", "0");
	is_str(units_format_usec(250000, t), "250 ms", "250 ms");
	is_str(units_format_usec(999999, t), "1 s", "just under a second");
	is_str(units_format_usec(3400000, t), "3.4 s", "3.4 s");
	is_str(units_format_usec(59999999, t), "1 min 00 s", "just under a minute, rounded");
	is_str(units_format_usec(303000000, t), "5 min 03 s", "minutes");
	is_str(units_format_usec(3720000000, t), "1 h 02 min", "hours");
	is_str(units_format_usec(183600000000, t), "2 d 03 h", "days");
}

static void test_exact(void)
{
	char t[UNITS_TEXT];
	unsigned int bad = 0, seed = 5;

	is_str(units_exact_bytes(67108864, t), "64M", "64M");
	is_str(units_exact_bytes(1000, t), "1000", "1000");
	is_str(units_exact_bytes(0, t), "0", "0");
	is_str(units_exact_usec(30000000, t), "30s", "30s");
	is_str(units_exact_usec(300000000, t), "5m", "5m");
	is_str(units_exact_usec(1500, t), "1500us", "1500us");
	is_str(units_exact_usec(0, t), "0s", "0s");
	for (int i = 0; i < 20000; i++) {
		uint64_t v = (uint64_t)rand_r(&seed) << 32 | (uint64_t)rand_r(&seed) << 1, back = 1;

		v = v >> rand_r(&seed) % 64 << rand_r(&seed) % 20;
		bad += units_parse_bytes(units_exact_bytes(v, t), &back) || back != v;
		bad += units_parse_usec(units_exact_usec(v, t), &back) || back != v;
		units_format_bytes(v, t);
		units_format_usec(v, t);
	}
	is_u64(bad, 0, "the exact forms parse back");
}

int main(void)
{
	char t[UNITS_TEXT];

	CHECK(units_parse_bytes, byte_cases);
	CHECK(units_parse_usec, usec_cases);
	CHECK(units_parse_u64, number_cases);
	test_count();
	test_people();
	test_exact();
	units_format_usec(UINT64_MAX, t);
	is_str(t, "213503982 d 08 h", "the longest time");
	return done_testing();
}
