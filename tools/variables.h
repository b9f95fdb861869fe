/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_VARIABLES_H
#define TOOLS_VARIABLES_H

/* A survey in words: cistern inspect STORE FILE. */

#include <stdbool.h>
#include <stdio.h>

#include "format/base/json.h"
#include "tools/lib/survey.h"

/* What the format is, a table of its variables, and its headers; of a raw file why it is that. complete: the history is. */
void variables_print(const struct survey *s, bool complete);
/* The same as fields of the object that is open in j. */
void variables_json(const struct survey *s, bool complete, struct json *j);
/*
 * A line for each variable: where its bytes are, from its first to its last, and, in colour, whose. terminal: how many characters a
 * line may have; 0: not known. 0 or -ENOMEM.
 */
int variables_map(const struct survey *s, unsigned int terminal, bool colour);

#endif
