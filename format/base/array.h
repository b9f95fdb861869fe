/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_ARRAY_H
#define FORMAT_BASE_ARRAY_H

#include <stddef.h>

/*
 * Room for one more item in an array that grows by doubling. at: address of the pointer to its items (NULL: none yet), which may
 * move; cap: how many it can hold; num: how many it holds; size: bytes of one. 0, or -ENOMEM: everything is as it was.
 */
int array_room(void *at, size_t *cap, size_t num, size_t size);

#endif
