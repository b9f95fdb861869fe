/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_PAYLOAD_H
#define TESTS_LIB_PAYLOAD_H

/* Bytes that a seed determines: written by one process, known again by another. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void payload_fill(uint8_t *at, size_t len, uint32_t seed);

/* Whether at[0, len) is the part from `from` on of what payload_fill(., whole, seed) makes; from + len <= whole. */
bool payload_is(const uint8_t *at, size_t from, size_t len, size_t whole, uint32_t seed);

#endif
