/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/hints.h"

#include <stdio.h>
#include <string.h>

#define BLANKS "= \t"

/* A piece of text: a word of a hint. */
struct word {
	const char *at;
	size_t len;
};

/* The next word before end, as strtok(3) would have it; length 0: there is none. */
static struct word next_word(const char **at, const char *end)
{
	struct word w;

	while (*at < end && strchr(BLANKS, **at))
		++*at;
	w.at = *at;
	while (*at < end && !strchr(BLANKS, **at))
		++*at;
	w.len = (size_t)(*at - w.at);
	return w;
}

/* One part between semicolons. 1: key and value; 0: blank; -1: neither. */
static int split_part(const char *part, size_t len, struct word *key, struct word *value)
{
	const char *equals = memchr(part, '=', len), *at = part, *end = part + len;

	*key = next_word(&at, end);
	if (key->len == 0 && !equals)
		return 0;
	*value = next_word(&at, end);
	if (!equals || key->at + key->len > equals || value->len == 0 || value->at < equals)
		return -1;
	return next_word(&at, end).len == 0 ? 1 : -1;
}

static void copy(const char *from, size_t len, char *out, size_t cap)
{
	snprintf(out, cap, "%.*s", (int)len, from);
}

bool hints_find(const char *hints, const char *key, char *out, size_t cap)
{
	bool found = false;

	while (hints && *hints) {
		size_t len = strcspn(hints, ";");
		struct word k, v;

		if (split_part(hints, len, &k, &v) == 1 && k.len == strlen(key) && memcmp(k.at, key, k.len) == 0) {
			copy(v.at, v.len, out, cap);
			found = true;
		}
		hints += len + (hints[len] == ';');
	}
	return found;
}

bool hints_next_key(const char **hints, char *out, size_t cap)
{
	bool found = false;

	while (!found && *hints && **hints) {
		size_t len = strcspn(*hints, ";");
		struct word k, v;

		found = split_part(*hints, len, &k, &v) == 1;
		if (found)
			copy(k.at, k.len, out, cap);
		*hints += len + ((*hints)[len] == ';');
	}
	return found;
}

bool hints_malformed(const char *hints, char *out, size_t cap)
{
	while (hints && *hints) {
		size_t len = strcspn(hints, ";");
		struct word k, v;

		if (split_part(hints, len, &k, &v) < 0) {
			copy(hints, len, out, cap);
			return true;
		}
		hints += len + (hints[len] == ';');
	}
	return false;
}
