/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_NULL_H
#define FORMAT_CODEC_NULL_H

/*
 * The null format: the smallest that has a header, a variable and records. It is there to be copied (docs/adding-a-format.md).
 *
 *   offset  bytes
 *        0      8  "CISTNULL"
 *        8      4  version, 1
 *       12      4  bytes of an element, 1 to 4096
 *       16      8  number of elements
 *       24      2  length of the variable's name, 1 to 255
 *       26         the name, without end; the elements follow at once
 *
 * Integers are little-endian.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cistern/error.h"
#include "format/codec/layout.h"

#define NULL_NAME_MAX   255u
#define NULL_HEADER_MAX (26u + NULL_NAME_MAX)

struct null_header { /* plain data; nothing is owned */
	uint32_t element_bytes;
	uint64_t elements;
	char name[NULL_NAME_MAX + 1];
	uint64_t begin; /* offset of the first element */
};

/* Whether these first bytes of a file (8 are enough) are of this format. */
bool null_is(const void *first, size_t len);
/*
 * Decode a header. 0; -ENODATA: it goes on behind len bytes; -EBADMSG: damaged; *err (may be NULL) says at which offset what
 * was expected. *ret is written on success only.
 */
int null_decode(const void *buf, size_t len, struct null_header *ret, struct cistern_error *err);
/* Fills *ret (layout_destroy()) for a file of size bytes with that header. 0, -ENOMEM. */
int null_layout(const struct null_header *h, uint64_t size, struct layout *ret);

#endif
