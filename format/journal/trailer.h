/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_JOURNAL_TRAILER_H
#define FORMAT_JOURNAL_TRAILER_H

/* A record's trailer to bytes and back, for record.c. Bytes: docs/format/store.md. */

#include <stdbool.h>

#include "format/base/cursor.h"
#include "format/journal/record.h"

/* rec's trailer when it says anything; else NULL. */
const struct record_trailer *trailer_of(const struct record *rec);
/* Does it fit the record's type and what its body says? Also of a record without one, where the type asks for one. */
bool trailer_ok(const struct record *rec);
/* Appends trailer_of(rec), which must not be NULL and is trailer_ok(). Out of memory is sticky in out. */
void trailer_encode(const struct record *rec, struct buf *out);
/*
 * Reads what stands at c, behind the body of rec, up to the padding; sets rec->trailer, in scratch. What the fields mean for the record
 * is left to trailer_ok(). 0; -EBADMSG: no trailer; -EPROTONOSUPPORT: it has a required field, or a flag, that is not known;
 * -ENOMEM.
 */
int trailer_decode(struct cursor *c, struct record_scratch *scratch, struct record *rec);

#endif
