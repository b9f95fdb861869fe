/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_SURVEY_H
#define TOOLS_LIB_SURVEY_H

/*
 * All that can be known of one file in a store: where its bytes are and whose, what they mean when the format is known, which
 * writes and headers the journal tells of. Gathered once; printed and drawn by others. One thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/codec/coverage.h"
#include "tools/lib/content.h"
#include "tools/lib/elsewhere.h"
#include "tools/lib/generations.h"
#include "tools/lib/spans.h"

struct survey_write { /* a write that the journal still tells of */
	uint64_t off, len;
	uint64_t seq;
	int64_t time_ns;
	uint32_t node, process; /* process COVERAGE_NOBODY: not known */
};

struct survey_options {
	const char *path;    /* of the file, relative to the root of the mount */
	const char *mounted; /* the file's path in its mount; NULL */
	bool look;           /* read all logged payload and compare with fill values; else only where that is little */
	bool writes;         /* keep each write, for a picture */
};

#define SURVEY_UNSEEN_MAX 1000 /* ranges that are listed */

struct survey { /* survey_close */
	struct content content;
	struct spans spans; /* where all bytes are */
	bool mapped;        /* the format is known, and so the next two */
	struct layout layout;
	struct coverage *coverage; /* owned; survey_object() has what of it counts */
	struct elsewhere elsewhere;
	struct cistern_error why; /* not mapped: the reason */
	bool looked;              /* fill values were looked for */
	struct generations generations;
	bool has_generations;        /* of a format whose headers are known that way */
	bool only_since_drain;       /* coverage's notes, of a file that has been drained: since then */
	struct survey_write *writes; /* owned; in the journal's order */
	size_t num_writes, cap_writes;
	bool want_writes;
	bool many_nodes; /* spans or writes are of more than one */
	/* What is only in stores that are not given: of all, of each object of the layout (owned), and the first ranges (owned). */
	uint64_t unseen_bytes, num_unseen, *unseen_of;
	struct span *unseen;
	struct store *noting; /* borrowed: whose journal is being read */
	int error;            /* -ENOMEM while noting */
};

/*
 * Of a file of s, one of the stores in all. *ret must not move until survey_close(). 0 or -errno; a file that cannot be mapped is no
 * failure.
 */
int survey_open(const struct stores *all, struct store *s, const struct inode *in, uint64_t size,
	const struct survey_options *opt, struct survey *ret, struct cistern_error *err);
void survey_close(struct survey *s);
/* The journals: of each store survey_begin(), then history_read() with survey_note(); behind all of them survey_finish(). */
void survey_begin(struct survey *s, struct store *store);
int survey_note(const struct record *rec, void *arg); /* a record; arg is the struct survey */
void survey_finish(struct survey *s);
/* What to tell writers apart by in a picture: the node where there are several, else the process (0: not known). */
uint32_t survey_colour(const struct survey *s, uint32_t node, uint32_t process);
/* Whether there are few enough parts (records of variables, chunks) to look at each for a picture. */
bool survey_drawable(const struct survey *s);
/* Whether the journal of a store that does not have the file may tell of its elements in other files. */
bool survey_reaches_elsewhere(const struct survey *s);
/* What there is of object (of the layout), in this file or in others. */
const struct coverage_object *survey_object(const struct survey *s, size_t object);
/* Written since the last drain and no longer there: written over, cut off or punched. */
uint64_t survey_overwritten(const struct survey *s, size_t object);
/* Only in stores that are not given. */
uint64_t survey_unseen(const struct survey *s, size_t object);

#endif
