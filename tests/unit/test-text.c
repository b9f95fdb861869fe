/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/text.h"

#include <string.h>

#include "tests/lib/tap.h"

static void test_fit(void)
{
	char out[24];

	is_str(text_fit(out, sizeof(out), "short"), "short", "what fits is as it is");
	is_str(text_fit(out, sizeof(out), "12345678901234567890123"), "12345678901234567890123", "to the last byte");
	is_str(text_fit(out, sizeof(out), "node 1 cannot be reached"), "node 1 cannot be...", "else a word is not cut");
	is_str(text_fit(out, sizeof(out), "123456789012345678901234"), "12345678901234567890...",
		"unless it is a long one");
	is_str(text_fit(out, sizeof(out), "1234567890123456789\xC3\xA4tttt"), "1234567890123456789...",
		"nor is a letter");
	is_str(text_fit_end(out, sizeof(out), "run/out.nc"), "run/out.nc", "a path that fits");
	is_str(text_fit_end(out, sizeof(out), "a/long/path/to/run/out.nc"), "...g/path/to/run/out.nc",
		"of another one the end");
	is_str(text_fit_end(out, sizeof(out), "aaaa\xC3\xA4/234567890123456789"), ".../234567890123456789",
		"from a letter on");
}

static void test_join(void)
{
	char out[64], longer[256];

	text_join(out, sizeof(out), "not all is there", "the disk is full", "; mount it again");
	is_str(out, "not all is there: the disk is full; mount it again", "a text of three parts");
	text_join(out, sizeof(out), "not all is there", "", "; mount it again");
	is_str(out, "not all is there; mount it again", "or two");
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	longer[10] = longer[20] = ' ';
	text_join(out, sizeof(out), "not all is there", longer, "; mount it again");
	is_str(out, "not all is there: xxxxxxxxxx xxxxxxxxx...; mount it again",
		"what is too long is cut, and says so");
	text_join(out, sizeof(out), "not all is there", longer, "; mount it again, or run 'cistern recover'");
	is_str(out, "not all is there; mount it again, or run 'cistern recover'", "or left out for what is to be done");
}

int main(void)
{
	test_fit();
	test_join();
	return done_testing();
}
