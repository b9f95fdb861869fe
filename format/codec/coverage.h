/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_COVERAGE_H
#define FORMAT_CODEC_COVERAGE_H

/*
 * Which variables of a file are there: extents of the file, as a log knows them, against a layout. Time is linear in what
 * touches: extents, and the ranges of objects under them (records that one extent covers whole count once); memory is linear in the layout, plus one entry for each writer of
 * each object. Pure; one thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/codec/layout.h"

#define COVERAGE_NOBODY UINT32_MAX

enum coverage_state {
	COVERAGE_LOGGED, /* the newest bytes are in a log */
	COVERAGE_DRAINED /* the backing file has them */
};

struct coverage_extent {
	uint64_t off, len; /* in the file */
	enum coverage_state state;
	uint32_t node, process; /* who wrote it; COVERAGE_NOBODY: not known */
};

struct coverage_writer {
	uint32_t node, process; /* process COVERAGE_NOBODY: not known */
	uint64_t bytes;         /* that are there, logged */
};

/* What elements have in a heap counts with them: the chunk, or the variable, is complete when both are there. */
struct coverage_object {                                     /* of the layout's object of the same number */
	uint64_t defined_bytes, logged_bytes, drained_bytes; /* what is neither logged nor drained is missing */
	uint64_t noted_bytes, kept_bytes;                    /* by coverage_note(); of them, to be kept */
	uint64_t looked_bytes,
		fill_bytes; /* of whole elements that coverage_look() saw, and of those equal to the fill value */
	uint64_t complete;  /* records or chunks, or 1: the whole, of which no byte is missing */
	uint64_t
		gap; /* the first byte that is missing, counted in the object; of chunks: the lowest index of one with a gap.
			 UINT64_MAX: none is */
	struct coverage_writer *writers; /* borrowed, until coverage_destroy(); most bytes first */
	size_t num_writers;
};

struct coverage;

/* The layout is borrowed and must not change. 0; -EINVAL: record objects of several strides; -ENOMEM. */
int coverage_create(const struct layout *l, struct coverage **ret);
void coverage_destroy(struct coverage *c);

/* What is there. Extents rise and do not overlap (-EINVAL). 0, -ENOMEM. */
int coverage_add(struct coverage *c, const struct coverage_extent *e);
/* Bytes that have been written, in any order and however often: they add up in noted_bytes. */
void coverage_note(struct coverage *c, uint64_t off, uint64_t len);
void coverage_forget_notes(struct coverage *c); /* back to those that were there at coverage_keep_notes(); else all */
void coverage_keep_notes(struct coverage *c);
/* The bytes of a range, to be compared with fill values. Elements that it has a part of only are not looked at. */
void coverage_look(struct coverage *c, uint64_t off, const void *bytes, size_t len);
/* Part of an object, or (object SIZE_MAX) bytes that belong to none. at: its first byte, counted in the object (of
 * pieces: in all of them, in their order). */
struct coverage_part {
	size_t object;
	uint64_t off, at, len;
};
/* Each part that [off, off + len) touches, in the order of the file, every record's apart. */
void coverage_each(struct coverage *c, uint64_t off, uint64_t len,
	void (*each)(const struct coverage_part *part, void *arg), void *arg);

/* The end of adding: fills in complete, gap and writers. 0, -ENOMEM. */
int coverage_finish(struct coverage *c);
const struct coverage_object *coverage_of(const struct coverage *c, size_t object); /* borrowed */
/* Bytes that belong to no object: padding, or not known. */
const struct coverage_object *coverage_rest(const struct coverage *c);
/* Where in the object's dimensions a byte of it is: num_dims numbers, slowest first. Not of chunks. */
void coverage_index(const struct layout_object *o, uint64_t byte, uint64_t *ret_index);

#endif
