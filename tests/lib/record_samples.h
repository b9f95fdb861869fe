/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_RECORD_SAMPLES_H
#define TESTS_LIB_RECORD_SAMPLES_H

/* Records of every type, with every field used, for tests of their bytes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "format/journal/record.h"

size_t record_samples(const struct record **ret); /* static; seq = 0 */
/* Equal in all that their type stores, seq included. */
bool record_equal(const struct record *a, const struct record *b);
/* One line of JSON with all that its type stores, the fields in the order of their bytes. */
void record_print_json(FILE *out, const struct record *rec);

#endif
