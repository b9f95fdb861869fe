/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_ELSEWHERE_H
#define TOOLS_LIB_ELSEWHERE_H

/*
 * Variables whose elements are in other files (HDF5's external files): those files are looked for in the same mount, and what is
 * there of the elements is counted for the variable, as if they lay one behind the other in a file of their own. A relative name is looked
 * up in the folder of the file that has it; HDF5 takes its program's working directory, which nobody knows afterwards, unless it is
 * told otherwise. A variable is counted when all of its files are found, else not at all. One thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/codec/coverage.h"
#include "format/journal/record.h"
#include "tools/lib/spans.h"
#include "tools/lib/stores.h"

struct elsewhere_file {
	char *path;          /* owned; relative to the root of the mount; NULL: outside of it */
	char *opened;        /* owned; a clean file is read by this path, one of others' is seen through it; NULL */
	const char *why_not; /* it is not counted; static; NULL: it is */
	size_t last;         /* of its sources; SIZE_MAX: none */
	bool there;          /* and the next four */
	struct store *store; /* borrowed */
	struct inode in;
	uint64_t size;
	struct spans spans; /* owned */
};

struct elsewhere_source {      /* one of a variable's; counted when its variable is */
	size_t object, number; /* of the layout: which variable, which of its sources */
	size_t file, before;   /* before: another source in the same file, SIZE_MAX: none */
	uint64_t off, len;     /* in that file */
	uint64_t at;           /* in the layout here */
	uint64_t logged_bytes, drained_bytes, unseen_bytes;
	uint64_t noted_bytes, kept_bytes; /* as of coverage_object */
};

struct elsewhere {                    /* elsewhere_close; zero-initialised = none */
	const struct stores *all;     /* borrowed */
	struct elsewhere_file *files; /* owned */
	size_t num_files, cap_files;
	struct elsewhere_source *sources; /* owned; in the layout's order */
	size_t num_sources, cap_sources;
	size_t *counted; /* owned; for each object of the file's layout its number in the one here; SIZE_MAX: none */
	struct layout layout;      /* the variables that are counted, one behind the other */
	struct coverage *coverage; /* owned; of it; NULL: there is none */
	uint64_t logged_bytes;
};

#define ELSEWHERE_FILES_MAX 4096 /* further ones are not counted */

/*
 * Of the file path (relative to the root of the mount), with that layout. mounted: its path in its mount, or NULL; first: its store. *ret
 * must not move until elsewhere_close(). 0, -ENOMEM, -errno of an index.
 */
int elsewhere_open(const struct stores *all, struct store *first, const char *path, const char *mounted,
	const struct layout *l, struct elsewhere *ret);
void elsewhere_close(struct elsewhere *e);
/* What is logged is compared with fill values. A file that cannot be read: -errno. */
int elsewhere_look(struct elsewhere *e);
/* The journals, as survey_begin() and survey_note(). */
void elsewhere_keep_notes(struct elsewhere *e);
void elsewhere_note(struct elsewhere *e, const struct record *rec);
/* What there is of an object of the file's layout; NULL: it has all elements in its file, or is not counted. */
const struct coverage_object *elsewhere_of(const struct elsewhere *e, size_t object);
/* Source number of object; NULL: it is none of other files' bytes. */
const struct elsewhere_source *elsewhere_source_of(const struct elsewhere *e, size_t object, size_t number);
const struct elsewhere_file *elsewhere_file_of(const struct elsewhere *e, const struct elsewhere_source *s);
/* Written since the last drain of its file and no longer there; of all sources of object. */
uint64_t elsewhere_overwritten(const struct elsewhere *e, size_t object);
/* Of all sources of object, what is only in stores that are not given. */
uint64_t elsewhere_unseen(const struct elsewhere *e, size_t object);

#endif
