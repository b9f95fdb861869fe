/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_INDEX_WRITERS_H
#define FORMAT_INDEX_WRITERS_H

/*
 * Which processes wrote a file: a table from small numbers, which its extents have, to processes. Number n stands in at[n - 1];
 * number 0 is a process that is not known. A table only grows; it goes when no extent of the file is left.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/base/cursor.h"

#define WRITERS_MAX UINT16_MAX /* more are not known */

struct writers {
	uint32_t *at; /* owned: processes, each once, none 0 */
	uint32_t num, cap;
};

void writers_free(struct writers *w); /* also resets; NULL is fine */
size_t writers_bytes(const struct writers *w);
/* The number of a process, which is added when it has none; 0: the table is full. *ret_added says which. 0, -ENOMEM. */
int writers_number(struct writers *w, uint32_t process, uint16_t *ret_number, bool *ret_added);
int writers_encode(const struct writers *w, struct buf *out);         /* 0, -ENOMEM */
int writers_decode(const void *val, size_t len, struct writers *ret); /* -EBADMSG, -ENOMEM */

#endif
