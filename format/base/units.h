/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_UNITS_H
#define FORMAT_BASE_UNITS_H

/* Sizes read "64M" (powers of 1024: K M G T P, optional "iB"; "80%" only where a setting allows it), times "30s"
 * (ms s m h d; a bare number is seconds). */

#include <stddef.h>
#include <stdint.h>

int units_parse_bytes(const char *text, uint64_t *ret_bytes); /* -EINVAL, -ERANGE */
int units_parse_usec(const char *text, uint64_t *ret_usec);   /* -EINVAL, -ERANGE */
int units_parse_u64(const char *text, uint64_t *ret);         /* decimal only; -EINVAL, -ERANGE */
int units_parse_millionths(const char *text, uint64_t *ret);  /* "0.25": 250000; up to six places; -EINVAL, -ERANGE */

#define UNITS_TEXT 24 /* bytes that every formatted size or time fits in, NUL included */
const char *units_format_bytes(uint64_t bytes, char out[UNITS_TEXT]); /* "1.5 GiB", "17 bytes"; for people */
const char *units_format_usec(uint64_t usec, char out[UNITS_TEXT]);   /* "1 h 02 min", "3.4 s", "250 ms"; for people */
#define UNITS_COUNT 48 /* the same for a number of things, whose noun has at most 20 bytes */
/* "1 file", "3 files", "0 entries"; for people. noun: of one. */
const char *units_format_count(uint64_t num, const char *noun, char out[UNITS_COUNT]);
const char *units_exact_bytes(uint64_t bytes, char out[UNITS_TEXT]);  /* "64M", "1000": parses back to the same value */
const char *units_exact_millionths(uint64_t v, char out[UNITS_TEXT]); /* "0.25": parses back to the same value */
const char *units_exact_usec(uint64_t usec, char out[UNITS_TEXT]);    /* "30s", "5m": parses back to the same value */

#endif
