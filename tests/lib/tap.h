/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_TAP_H
#define TESTS_LIB_TAP_H

/*
 * Unit tests that speak the Test Anything Protocol, version 13. A program calls ok() and its relatives, in any
 * number, and ends with "return done_testing();", which prints the plan: a program that dies on its way has none and
 * so fails as well. All of them print where they stand when they fail, and return whether they passed. From one
 * thread only.
 */

#include <stdbool.h>
#include <stdint.h>

#define ok(cond, ...)               tap_ok((cond), __FILE__, __LINE__, #cond, __VA_ARGS__)
#define is_u64(got, expected, name) tap_is_u64((got), (expected), __FILE__, __LINE__, #got, name)
#define is_int(got, expected, name) tap_is_int((got), (expected), __FILE__, __LINE__, #got, name)
#define is_str(got, expected, name) tap_is_str((got), (expected), __FILE__, __LINE__, #got, name)

bool tap_ok(bool passed, const char *file, int line, const char *what, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
bool tap_is_u64(uint64_t got, uint64_t expected, const char *file, int line, const char *what, const char *name);
bool tap_is_int(int64_t got, int64_t expected, const char *file, int line, const char *what, const char *name);
bool tap_is_str(const char *got, const char *expected, const char *file, int line, const char *what, const char *name);

/* One passed test that says aloud what could not be tested, and why. */
void tap_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A line of diagnostics. */
void tap_diag(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Prints the plan; the exit status of the program: 0 when all passed and there was at least one. */
int done_testing(void);

#endif
