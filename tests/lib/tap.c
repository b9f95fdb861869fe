/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The counters are the one piece of state that a test program has about itself, so they are static here instead of
 * being handed through every helper of every test. Output is flushed line by line: a crash loses nothing.
 */
#include "tests/lib/tap.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static unsigned int num_run, num_failed;

/* The begin of a result's line. '#' in a name would begin a directive, so it is written as '.'. */
static void print_result(bool passed, const char *name)
{
	if (num_run == 0)
		puts("TAP version 13");
	num_run++;
	num_failed += !passed;
	printf("%sok %u - ", passed ? "" : "not ", num_run);
	for (; *name; name++)
		putchar(*name == '#' || *name == '\n' ? '.' : *name);
}

static bool report(bool passed, const char *file, int line, const char *what, const char *name)
{
	print_result(passed, name);
	putchar('\n');
	if (!passed)
		printf("#   failed at %s:%d: %s\n", file, line, what);
	fflush(stdout);
	return passed;
}

bool tap_ok(bool passed, const char *file, int line, const char *what, const char *fmt, ...)
{
	char name[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	return report(passed, file, line, what, name);
}

bool tap_is_u64(uint64_t got, uint64_t expected, const char *file, int line, const char *what, const char *name)
{
	if (report(got == expected, file, line, what, name))
		return true;
	tap_diag("  got      %" PRIu64 " (0x%" PRIx64 ")", got, got);
	tap_diag("  expected %" PRIu64 " (0x%" PRIx64 ")", expected, expected);
	return false;
}

bool tap_is_int(int64_t got, int64_t expected, const char *file, int line, const char *what, const char *name)
{
	if (report(got == expected, file, line, what, name))
		return true;
	tap_diag("  got      %" PRId64, got);
	tap_diag("  expected %" PRId64, expected);
	return false;
}

bool tap_is_str(const char *got, const char *expected, const char *file, int line, const char *what, const char *name)
{
	bool same = got && expected ? strcmp(got, expected) == 0 : got == expected;

	if (report(same, file, line, what, name))
		return true;
	tap_diag("  got      %s%s", got ? "" : "NULL", got ? got : "");
	tap_diag("  expected %s%s", expected ? "" : "NULL", expected ? expected : "");
	return false;
}

void tap_skip(const char *fmt, ...)
{
	char reason[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	print_result(true, "");
	printf("# SKIP %s\n", reason);
	fflush(stdout);
}

void tap_diag(const char *fmt, ...)
{
	va_list ap;

	printf("# ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

int done_testing(void)
{
	printf("1..%u\n", num_run);
	if (num_failed)
		printf("# %u of %u failed\n", num_failed, num_run);
	return fflush(stdout) || num_failed || num_run == 0;
}
