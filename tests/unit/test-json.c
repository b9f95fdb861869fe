/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Expected texts: Python's json module, with ensure_ascii where a string holds bytes that are not UTF-8. */
#include "format/base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/tap.h"

static FILE *out;
static char *text;
static size_t text_len;

static struct json begin(bool pretty)
{
	struct json j;

	out = open_memstream(&text, &text_len);
	json_init(&j, out, pretty);
	return j;
}

static void check(struct json *j, const char *expected, const char *name)
{
	is_int(json_finish(j), 0, name);
	fclose(out);
	is_str(text, expected, name);
	free(text);
}

static void string(const char *s, size_t len, const char *expected, const char *name)
{
	struct json j = begin(false);

	json_strn(&j, s, len);
	check(&j, expected, name);
}

static void test_strings(void)
{
	string("", 0, "\"\"\n", "empty");
	string("a\"b\\c/d", 7, "\"a\\\"b\\\\c/d\"\n", "quote and backslash");
	string("\b\f\n\r\t\0\x1f\x7f", 8, "\"\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\"\n", "control characters");
	string("\xc3\xa9\xe2\x82\xac\xf0\x9d\x84\x9e", 9, "\"\xc3\xa9\xe2\x82\xac\xf0\x9d\x84\x9e\"\n", "UTF-8");
	/* json.dumps(b"...".decode("utf-8", "surrogateescape")) */
	string("a\xff z", 4, "\"a\\udcff z\"\n", "a stray byte");
	string("\xc0\xaf", 2, "\"\\udcc0\\udcaf\"\n", "an overlong slash");
	string("\xed\xa0\x80", 3, "\"\\udced\\udca0\\udc80\"\n", "a surrogate");
	string("\xf4\x90\x80\x80", 4, "\"\\udcf4\\udc90\\udc80\\udc80\"\n", "past U+10FFFF");
	string("\xe2\x82", 2, "\"\\udce2\\udc82\"\n", "cut off");
	string("\xe2\x82"
	       "A\xf0\x9d\x84",
		6, "\"\\udce2\\udc82A\\udcf0\\udc9d\\udc84\"\n", "cut off by others");
	string("\xe0\x80\x80\xf0\x80\x80\x80", 7, "\"\\udce0\\udc80\\udc80\\udcf0\\udc80\\udc80\\udc80\"\n",
		"overlong, three and four");
}

static void fill(struct json *j)
{
	json_object(j);
	json_kstr(j, "name", "x");
	json_ku64(j, "size", UINT64_MAX);
	json_key(j, "list");
	json_array(j);
	json_i64(j, INT64_MIN);
	json_array(j);
	json_end_array(j);
	json_object(j);
	json_end_object(j);
	json_null(j);
	json_end_array(j);
	json_kbool(j, "t", true);
	json_key(j, "o");
	json_object(j);
	json_kbool(j, "f", false);
	json_end_object(j);
	json_end_object(j);
}

static void test_structure(void)
{
	struct json j = begin(false);

	fill(&j);
	check(&j,
		"{\"name\":\"x\",\"size\":18446744073709551615,\"list\":[-9223372036854775808,[],{},null],"
		"\"t\":true,\"o\":{\"f\":false}}\n",
		"dense, as separators=(',', ':')");
	j = begin(true);
	fill(&j);
	check(&j,
		"{\n  \"name\": \"x\",\n  \"size\": 18446744073709551615,\n  \"list\": [\n    -9223372036854775808,\n"
		"    [],\n    {},\n    null\n  ],\n  \"t\": true,\n  \"o\": {\n    \"f\": false\n  }\n}\n",
		"pretty, as indent=2");
}

static void test_numbers(void)
{
	struct json j = begin(false);

	json_array(&j);
	json_f64(&j, 0.1);
	json_f64(&j, 1.0 / 3);
	json_f64(&j, 1.5e300);
	json_f64(&j, 1.7976931348623157e308);
	json_f64(&j, -2.5);
	json_f64(&j, NAN);
	json_f64(&j, INFINITY);
	json_end_array(&j);
	check(&j, "[0.1,0.3333333333333333,1.5e+300,1.7976931348623157e+308,-2.5,null,null]\n", "floating point");
	j = begin(false);
	json_object(&j);
	json_kf64(&j, "a", 0.25);
	json_end_object(&j);
	check(&j, "{\"a\":0.25}\n", "with a key");
}

static void test_full_device(void)
{
	FILE *full = fopen("/dev/full", "w");
	struct json j;

	if (!full) {
		tap_skip("no /dev/full");
		return;
	}
	json_init(&j, full, false);
	json_u64(&j, 1);
	is_int(json_finish(&j), -ENOSPC, "a full device is noticed");
	fclose(full);
}

int main(void)
{
	test_strings();
	test_structure();
	test_numbers();
	test_full_device();
	return done_testing();
}
