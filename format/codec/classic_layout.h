/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_CLASSIC_LAYOUT_H
#define FORMAT_CODEC_CLASSIC_LAYOUT_H

/* What a classic header says of a file's bytes, as a layout. */

#include "format/codec/classic.h"
#include "format/codec/layout.h"

#define CLASSIC_HEADER_OBJECT 0u /* number of the header among the objects; variable v is object v + 1 */

/*
 * Fills *ret (= { 0 }) for a file of size bytes that has begun so many records (classic_find_records(); by its size alone
 * classic_count_begun()). Where that is more than the header's number, it is what counts (a writer tells their number late, and a
 * streaming header never), a last one that is not whole too; the note says so. 0, -ENOMEM (nothing to destroy).
 */
int classic_layout(const struct classic *c, uint64_t size, uint64_t begun, struct layout *ret);

#endif
