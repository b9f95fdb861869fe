/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_TAGGED_H
#define FORMAT_BASE_TAGGED_H

/*
 * Tagged fields: what a later program adds to a value, so that an earlier one can step over it, or knows that it must not.
 * Each is a varint tag (1 to 65535, rising), u8 flags (1: required), a varint length and so many bytes. A reader skips an
 * optional field that it does not know; a required one means that it cannot understand the whole value.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/base/cursor.h"

#define TAGGED_TAG_MAX 65535u

struct tagged { /* zero-initialise before the first; tagged_next() goes by the tag before */
	uint32_t tag;
	bool required;
	struct cursor bytes; /* borrowed: of this field alone */
};

/*
 * The next field of c. 1: there is one; 0: the end, at the last byte or at a byte 0, which is left; -EBADMSG: what stands
 * there is none, or its tag is not above the one before; -EPROTONOSUPPORT: it has a flag that is not known. c is bad after
 * an error.
 */
int tagged_next(struct cursor *c, struct tagged *f);
/* Appends a field. Out of memory is sticky in out. */
void tagged_put(struct buf *out, uint32_t tag, bool required, const void *bytes, size_t len);

#endif
