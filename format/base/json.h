/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_JSON_H
#define FORMAT_BASE_JSON_H

/*
 * Streaming JSON output (RFC 8259). Our own and not a library's, because file names may hold any byte and lists may
 * hold 10^8 extents: bytes that are not UTF-8 are written as \udcXX (the low surrogate of the byte, as Python's
 * "surrogateescape" reads them back), and nothing is kept in memory.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
	FILE *out; /* borrowed */
	int depth;
	bool first, pretty;
	bool in_key;
};

void json_init(struct json *j, FILE *out, bool pretty);
void json_object(struct json *j); /* { */
void json_array(struct json *j);  /* [ */
void json_end_object(struct json *j);
void json_end_array(struct json *j);
void json_key(struct json *j, const char *key); /* then exactly one value */
void json_str(struct json *j, const char *s);
void json_strn(struct json *j, const char *s, size_t len);
void json_u64(struct json *j, uint64_t v);
void json_i64(struct json *j, int64_t v);
void json_f64(struct json *j, double v); /* null when not finite */
void json_bool(struct json *j, bool v);
void json_null(struct json *j);
/* key and value at once */
void json_kstr(struct json *j, const char *key, const char *v);
void json_ku64(struct json *j, const char *key, uint64_t v);
void json_kf64(struct json *j, const char *key, double v);
void json_kbool(struct json *j, const char *key, bool v);
int json_finish(struct json *j); /* newline, flush; 0 or -errno of the stream */

#endif
