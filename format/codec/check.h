/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_CHECK_H
#define FORMAT_CODEC_CHECK_H

/*
 * Of which format is a file, is it what it claims to be, and what are its bytes? Recognises formats by their first bytes, reads
 * headers and metadata, no data. Pure but for the caller's reader; any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cistern/error.h"
#include "format/codec/layout.h"
#include "format/codec/source.h"

enum check_format { CHECK_OTHER, CHECK_CLASSIC, CHECK_HDF5 };

enum check_verdict {
	CHECK_SOUND,
	CHECK_DOUBTFUL, /* opens, but a reader may see less than there is, or parts could not be checked */
	CHECK_SHORT,    /* opens, and more than a small share of what it defines is not there: readers see zeros */
	CHECK_BROKEN,   /* does not open as what it claims to be, or names bytes that it does not have */
};

#define CHECK_TEXT_BYTES 256

struct check {
	enum check_format format;
	enum check_verdict verdict;
	char text[CHECK_TEXT_BYTES]; /* one line: which object, which offset; "" when sound */
	/* classic */
	bool stale;     /* the header counts fewer records than the file has */
	bool streaming; /* it does not count them at all: the file's size does */
	bool reserved;  /* behind them are zeros alone, with room for room_records */
	uint64_t told_records, seen_records, room_records;
	unsigned int numrecs_bytes; /* width of the count, at CLASSIC_NUMRECS_OFF: 4 or 8 */
};

const char *check_format_name(enum check_format format); /* static: "netCDF classic" */

/* 0 and *ret; -ENOMEM, errors of read_bytes. Of CHECK_OTHER nothing is known, and it is sound. */
int check_file(const struct source *s, struct check *ret);

/*
 * What the bytes of a file are. 0; -ENOMSG: of no format that is known, or not (yet) to be understood; -ENOMEM, errors of
 * read_bytes: *err says why. *ret (= { 0 }) is written on success only; the caller destroys it.
 */
int check_layout(const struct source *s, struct layout *ret, struct cistern_error *err);

#endif
