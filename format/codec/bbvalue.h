/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BBVALUE_H
#define FORMAT_CODEC_BBVALUE_H

/*
 * Values from a program's memory to those of a netCDF classic file, as PnetCDF converts them: C's conversion between
 * numeric types, and the variable's fill value where the result does not fit (NC_ERANGE). Text goes to text only.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/codec/bblog.h"
#include "format/codec/classic.h"

struct bbvalue {
	enum bblog_type from; /* never NATIVE */
	uint32_t from_bytes;
	bool big_endian; /* of the memory */
	bool plain;      /* the same bytes, perhaps in the other order */
	enum classic_type to;
	uint32_t to_bytes;
	uint8_t fill[CLASSIC_TYPE_BYTES]; /* as in the file */
};

/* From values of an entry of a log with header h to variable v of a file of that version. NULL, or why that cannot be. */
const char *bbvalue_plan(const struct bblog_header *h, const struct bblog_entry *e, uint32_t version,
	const struct classic_var *v, struct bbvalue *ret);
/* num values; returns how many did not fit and became the fill value. */
uint64_t bbvalue_convert(const struct bbvalue *b, const uint8_t *from, uint8_t *to, size_t num);

#endif
