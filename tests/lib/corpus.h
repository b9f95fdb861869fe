/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_CORPUS_H
#define TESTS_LIB_CORPUS_H

/* A fuzzer's corpus in a unit test: files whose names begin with "bad-" must be refused, the others taken. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CORPUS_FILE_BYTES 65536u /* most of a file that is read */

/* bytes: a block of its own of len > 0 bytes, borrowed for the call. Returns whether they are taken. */
typedef bool (*corpus_take_fn)(const char *name, uint8_t *bytes, size_t len);

/* One test for each file of tests/fuzz/corpus/FOLDER, and one that there were enough of both kinds. Empty files are not taken. */
void corpus_check(const char *folder, corpus_take_fn take, unsigned int least_bad, unsigned int least_good);

#endif
