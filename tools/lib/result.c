/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * STORE/result.json: what a daemon left at its end. It is an object that our own daemon wrote, so this reads just what is
 * wanted of it, the numbers and the text at the top, and the first errors; whatever else there is must be JSON and is
 * skipped.
 */
#include "tools/lib/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESULT_MAX_BYTES (64 << 20)
#define DEPTH_MAX        16u

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

	out[0] = '\0';
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

/* What a value is for: called with p at the value of key ("" in an array); returns what follows it, or NULL. */
typedef const char *member_fn(const char *key, const char *p, unsigned int depth, void *arg);

/* An object or array at p. */
static const char *parse_container(const char *p, unsigned int depth, member_fn *member, void *arg)
{
	bool object = *p == '{';
	char close = object ? '}' : ']', key[32] = "";

	if (depth >= DEPTH_MAX || (*p != '{' && *p != '['))
		return NULL;
	p = skip_space(p + 1);
	if (*p == close)
		return p + 1;
	for (;; p++) {
		p = skip_space(p);
		if (object && (!(p = parse_string(p, key, sizeof(key))) || *(p = skip_space(p)) != ':'))
			return NULL;
		p = member(key, skip_space(p + object), depth + 1, arg);
		if (!p || *(p = skip_space(p)) == close)
			return p ? p + 1 : NULL;
		if (*p != ',')
			return NULL;
	}
}

static const char *skip_value(const char *key, const char *p, unsigned int depth, void *arg)
{
	char text[2];
	size_t len;

	if (*p == '"')
		return parse_string(p, text, sizeof(text));
	if (*p == '{' || *p == '[')
		return parse_container(p, depth, skip_value, NULL);
	len = strspn(p, "+-.0123456789abcdefghijklmnopqrstuvwxyzE"); /* numbers, true, false, null */
	return len ? p + len : NULL;
}

static const char *parse_number(const char *p, int64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoimax(p, &end, 10);
	return end == p || errno ? NULL : end;
}

static const char *parse_error_member(const char *key, const char *p, unsigned int depth, void *arg)
{
	struct daemon_error *e = arg;

	if (strcmp(key, "path") == 0)
		return parse_string(p, e->path, sizeof(e->path));
	if (strcmp(key, "text") == 0)
		return parse_string(p, e->text, sizeof(e->text));
	return skip_value(key, p, depth, NULL);
}

static const char *parse_error(const char *key, const char *p, unsigned int depth, void *arg)
{
	struct daemon_result *ret = arg;
	struct daemon_error *e = &ret->errors[ret->num_errors];

	if (ret->num_errors == DAEMON_ERRORS_MAX)
		return skip_value(key, p, depth, NULL);
	ret->num_errors++;
	return parse_container(p, depth, parse_error_member, e);
}

struct parse {
	struct daemon_result *ret;
	unsigned int seen;
};

static const char *parse_member(const char *key, const char *p, unsigned int depth, void *arg)
{
	struct parse *parse = arg;

	if (strcmp(key, "text") == 0)
		return parse_string(p, parse->ret->text, sizeof(parse->ret->text));
	if (strcmp(key, "result") == 0) {
		parse->seen |= 1;
		return parse_number(p, &parse->ret->result);
	}
	if (strcmp(key, "dirty_files") == 0) {
		parse->seen |= 2;
		return parse_number(p, &parse->ret->dirty_files);
	}
	if (strcmp(key, "errors") == 0 && *p == '[')
		return parse_container(p, depth, parse_error, parse->ret);
	return skip_value(key, p, depth, NULL);
}

bool daemon_parse_result(const char *json, struct daemon_result *ret)
{
	struct parse parse = { .ret = ret };
	const char *p = skip_space(json);

	*ret = (struct daemon_result){ .result = CISTERN_EXIT_FAILED };
	p = *p == '{' ? parse_container(p, 0, parse_member, &parse) : NULL;
	return p && *skip_space(p) == '\0' && parse.seen == 3;
}

static int read_text(int fd, char **ret)
{
	struct stat st;
	size_t len = 0;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size > RESULT_MAX_BYTES)
		return -EFBIG;
	*ret = malloc((size_t)st.st_size + 1);
	if (!*ret)
		return -ENOMEM;
	while (len < (size_t)st.st_size && (n = read(fd, *ret + len, (size_t)st.st_size - len)) != 0) {
		if (n < 0 && errno != EINTR)
			return -errno;
		len += n > 0 ? (size_t)n : 0;
	}
	(*ret)[len] = '\0';
	return 0;
}

int daemon_read_result(const char *store, struct daemon_result *ret, struct cistern_error *err)
{
	char path[PATH_MAX], *text = NULL;
	int fd, r;

	if (snprintf(path, sizeof(path), "%s/%s", store, DAEMON_RESULT_FILE) >= (int)sizeof(path))
		return cistern_error_set(err, -ENAMETOOLONG, "%s: path too long", store);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return cistern_error_set(err, -errno, "%s: %s", path, strerror(errno));
	r = read_text(fd, &text);
	close(fd);
	if (r < 0)
		cistern_error_set(err, r, "%s: %s", path, strerror(-r));
	else if (!daemon_parse_result(text, ret))
		r = cistern_error_set(err, -EBADMSG, "%s is not what a daemon writes", path);
	free(text);
	return r;
}
