/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char dots[] = "...";

/* Of a character of several bytes in UTF-8. */
static bool is_inside(char c)
{
	return ((unsigned char)c & 0xC0) == 0x80;
}

/* A cut behind most bytes of it, at a word's end, unless that leaves less than half. */
static size_t cut_at(const char *text, size_t most)
{
	size_t at = most;

	while (at > most / 2 && text[at] != ' ')
		at--;
	if (text[at] == ' ')
		return at;
	while (most > 0 && is_inside(text[most]))
		most--;
	return most;
}

const char *text_fit(char *out, size_t cap, const char *text)
{
	size_t len = strlen(text);

	if (len < cap)
		memcpy(out, text, len + 1);
	else
		snprintf(out, cap, "%.*s%s", (int)cut_at(text, cap - sizeof(dots)), text, dots);
	return out;
}

const char *text_fit_end(char *out, size_t cap, const char *text)
{
	size_t len = strlen(text), from;

	if (len < cap) {
		memcpy(out, text, len + 1);
		return out;
	}
	from = len - (cap - sizeof(dots));
	while (is_inside(text[from]))
		from++;
	snprintf(out, cap, "%s%s", dots, text + from);
	return out;
}

void text_join(char *out, size_t cap, const char *head, const char *why, const char *tail)
{
	size_t fixed = strlen(head) + strlen(": ") + strlen(tail), at;

	snprintf(out, cap, "%s", head);
	at = strlen(out);
	if (*why && fixed + TEXT_CAP_MIN <= cap) {
		at += (size_t)snprintf(out + at, cap - at, ": ");
		text_fit(out + at, cap - fixed, why);
		at += strlen(out + at);
	}
	snprintf(out + at, cap - at, "%s", tail);
}
