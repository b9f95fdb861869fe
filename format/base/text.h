/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_TEXT_H
#define FORMAT_BASE_TEXT_H

/* Texts for people that have to fit: what is left out is marked with "...", and never what they end with, or begin with. */

#include <stddef.h>

#define TEXT_CAP_MIN 16u

/* text, or its beginning up to the end of a word. cap: bytes of out, TEXT_CAP_MIN at least. Returns out. */
const char *text_fit(char *out, size_t cap, const char *text);
/* The same, but the end of it: of a path. */
const char *text_fit_end(char *out, size_t cap, const char *text);
/* head, ": " and as much of why as there is room for, tail. why may be empty: head and tail. */
void text_join(char *out, size_t cap, const char *head, const char *why, const char *tail);

#endif
