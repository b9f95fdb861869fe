/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Streaming JSON. All state is: how deep we are, whether the container at hand is still empty, and whether a key
 * waits for its value. Stacks are not needed: a container that just ended makes its parent a non-empty one.
 */
#include "format/base/json.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void json_init(struct json *j, FILE *out, bool pretty)
{
	*j = (struct json){ .out = out, .first = true, .pretty = pretty };
}

static void newline(struct json *j)
{
	if (!j->pretty)
		return;
	putc('\n', j->out);
	for (int i = 0; i < j->depth; i++)
		fputs("  ", j->out);
}

/* What stands between the last thing and the next value or key. */
static void separate(struct json *j)
{
	if (j->in_key) {
		j->in_key = false;
		return;
	}
	if (!j->first)
		putc(',', j->out);
	if (j->depth > 0)
		newline(j);
	j->first = false;
}

static void begin(struct json *j, char bracket)
{
	separate(j);
	putc(bracket, j->out);
	j->depth++;
	j->first = true;
}

static void end(struct json *j, char bracket)
{
	assert(j->depth > 0 && !j->in_key);
	j->depth--;
	if (!j->first)
		newline(j);
	j->first = false;
	putc(bracket, j->out);
}

void json_object(struct json *j)
{
	begin(j, '{');
}

void json_array(struct json *j)
{
	begin(j, '[');
}

void json_end_object(struct json *j)
{
	end(j, '}');
}

void json_end_array(struct json *j)
{
	end(j, ']');
}

/*
 * Bytes of the UTF-8 character at s (RFC 3629: no overlong forms, no surrogates, nothing past U+10FFFF), or 0.
 */
static size_t utf8_len(const uint8_t *s, size_t left)
{
	size_t len = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;

	if (len == 0 || len > left)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
		(s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

static void escape(FILE *out, uint8_t byte)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *p = byte ? strchr(from, byte) : NULL;

	if (p)
		fprintf(out, "\\%c", to[p - from]);
	else
		fprintf(out, "\\u%s%02x", byte < 0x80 ? "00" : "dc", byte);
}

static void quote(FILE *out, const uint8_t *s, size_t len)
{
	size_t plain = 0; /* begin of the run not yet written */

	putc('"', out);
	for (size_t i = 0; i < len;) {
		size_t n = utf8_len(s + i, len - i);

		if (n > 0 && s[i] >= 0x20 && s[i] != '"' && s[i] != '\\') {
			i += n;
			continue;
		}
		fwrite(s + plain, 1, i - plain, out);
		escape(out, s[i]);
		plain = ++i;
	}
	fwrite(s + plain, 1, len - plain, out);
	putc('"', out);
}

void json_strn(struct json *j, const char *s, size_t len)
{
	separate(j);
	quote(j->out, (const uint8_t *)s, len);
}

void json_str(struct json *j, const char *s)
{
	json_strn(j, s, strlen(s));
}

void json_key(struct json *j, const char *key)
{
	assert(j->depth > 0 && !j->in_key);
	json_str(j, key);
	fputs(j->pretty ? ": " : ":", j->out);
	j->in_key = true;
}

void json_u64(struct json *j, uint64_t v)
{
	separate(j);
	fprintf(j->out, "%" PRIu64, v);
}

void json_i64(struct json *j, int64_t v)
{
	separate(j);
	fprintf(j->out, "%" PRId64, v);
}

/* The shortest text that reads back as v; with a '.' whatever the locale says. */
void json_f64(struct json *j, double v)
{
	char text[40], *comma;

	if (!isfinite(v)) {
		json_null(j);
		return;
	}
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	comma = strchr(text, ',');
	if (comma)
		*comma = '.';
	separate(j);
	fputs(text, j->out);
}

void json_bool(struct json *j, bool v)
{
	separate(j);
	fputs(v ? "true" : "false", j->out);
}

void json_null(struct json *j)
{
	separate(j);
	fputs("null", j->out);
}

void json_kstr(struct json *j, const char *key, const char *v)
{
	json_key(j, key);
	json_str(j, v);
}

void json_ku64(struct json *j, const char *key, uint64_t v)
{
	json_key(j, key);
	json_u64(j, v);
}

void json_kf64(struct json *j, const char *key, double v)
{
	json_key(j, key);
	json_f64(j, v);
}

void json_kbool(struct json *j, const char *key, bool v)
{
	json_key(j, key);
	json_bool(j, v);
}

/* stdio keeps that an earlier write failed, but not why. */
int json_finish(struct json *j)
{
	putc('\n', j->out);
	if (fflush(j->out) != 0)
		return errno ? -errno : -EIO;
	return ferror(j->out) ? -EIO : 0;
}
