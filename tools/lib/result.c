/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * STORE/result.json: what a daemon left at its end. It is one flat object that our own daemon wrote, so this reads
 * just that: keys of one level with numbers and strings, and nothing else.
 */
#include "tools/lib/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RESULT_MAX_BYTES 65536

static const char *skip_space(const char *p)
{
	return p + strspn(p, " \t\r\n");
}

/*
 * A string at p, its content to out (cut to fit). Returns what follows, or NULL. \uXXXX below 0x80 only; others
 * become '?'.
 */
static const char *parse_string(const char *p, char *out, size_t cap)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	size_t n = 0;

	if (*p++ != '"')
		return NULL;
	for (; *p != '"'; p++) {
		char c = *p;

		if (!c)
			return NULL;
		if (c == '\\') {
			const char *escape = *++p ? strchr(from, *p) : NULL;

			c = escape ? to[escape - from] : '?';
			if (*p == 'u' && strnlen(p, 5) == 5)
				p += 4;
			else if (!escape)
				return NULL;
		}
		if (n + 1 < cap)
			out[n++] = c;
	}
	out[n] = '\0';
	return p + 1;
}

static const char *parse_member(const char *p, struct daemon_result *ret, unsigned int *seen)
{
	char key[32], text[CISTERN_ERROR_TEXT_BYTES];
	int64_t number = 0;
	char *end;

	p = parse_string(p, key, sizeof(key));
	if (!p || *(p = skip_space(p)) != ':')
		return NULL;
	p = skip_space(p + 1);
	if (*p == '"') {
		p = parse_string(p, text, sizeof(text));
		if (p && strcmp(key, "text") == 0)
			memcpy(ret->text, text, strlen(text) + 1);
		return p;
	}
	errno = 0;
	number = strtoimax(p, &end, 10);
	if (end == p || errno)
		return NULL;
	if (strcmp(key, "result") == 0) {
		ret->result = number;
		*seen |= 1;
	} else if (strcmp(key, "dirty_files") == 0) {
		ret->dirty_files = number;
		*seen |= 2;
	}
	return end;
}

bool daemon_parse_result(const char *json, struct daemon_result *ret)
{
	const char *p = skip_space(json);
	unsigned int seen = 0;

	*ret = (struct daemon_result){ .result = CISTERN_EXIT_FAILED };
	if (*p != '{')
		return false;
	do {
		p = parse_member(skip_space(p + 1), ret, &seen);
		if (!p)
			return false;
		p = skip_space(p);
	} while (*p == ',');
	return *p == '}' && *skip_space(p + 1) == '\0' && seen == 3;
}

int daemon_read_result(const char *store, struct daemon_result *ret, struct cistern_error *err)
{
	char path[PATH_MAX], text[RESULT_MAX_BYTES];
	ssize_t n;
	int fd, r;

	if (snprintf(path, sizeof(path), "%s/%s", store, DAEMON_RESULT_FILE) >= (int)sizeof(path))
		return cistern_error_set(err, -ENAMETOOLONG, "%s: path too long", store);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return cistern_error_set(err, -errno, "%s: %s", path, strerror(errno));
	n = read(fd, text, sizeof(text) - 1);
	r = n < 0 ? -errno : 0;
	close(fd);
	if (r < 0)
		return cistern_error_set(err, r, "%s: %s", path, strerror(-r));
	text[n] = '\0';
	if (!daemon_parse_result(text, ret))
		return cistern_error_set(err, -EBADMSG, "%s is not what a daemon writes", path);
	return 0;
}
