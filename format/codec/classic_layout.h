/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_CLASSIC_LAYOUT_H
#define FORMAT_CODEC_CLASSIC_LAYOUT_H

/* What a classic header says of a file's bytes, as a layout. */

#include "format/codec/classic.h"
#include "format/codec/layout.h"

#define CLASSIC_HEADER_OBJECT 0u /* number of the header among the objects; variable v is object v + 1 */

/*
 * Fills *ret (= { 0 }) for a file of size bytes. Records are counted up to the header's number, or as far as the file reaches if
 * that is more (a writer tells their number late, and a streaming header never), a last one that is not whole too; the note says
 * so. 0, -ENOMEM (nothing to destroy).
 */
int classic_layout(const struct classic *c, uint64_t size, struct layout *ret);

#endif
