/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_INSPECT_H
#define TOOLS_INSPECT_H

/* The parts of cistern inspect: what is known of a file in a store (inspect_facts.c), the list of files (inspect_list.c), one file (inspect_file.c). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/base/json.h"
#include "tools/lib/history.h"
#include "tools/lib/stores.h"

struct inspect_options {
	bool json, conflicts, ranges, map, look;
	const char *svg;   /* where the picture goes; NULL: nowhere */
	const char **with; /* owned; further stores, num_with of them */
	size_t num_with;
};

struct inspect {
	const struct inspect_options *opt; /* borrowed */
	const char *mounted;               /* the file's path in its mount; NULL: not named by it. Borrowed */
	struct stores all;                 /* that were named */
	struct store *first;               /* of all */
	struct store *store;               /* of all: what is shown is in it */
	struct history *history;           /* owned; of store; NULL: not known */
	struct history_file of_all;        /* of one file: of all stores, when several have written it */
	bool complete;                     /* the history is */
	bool want_json;
	struct json j;
	uint64_t num_listed, log_bytes, private_bytes, overwritten_bytes;
};

struct file_facts {
	uint64_t size;
	uint64_t log_bytes, log_extents, private_bytes;
	uint64_t first_seq, last_seq;       /* of what is in the log now; 0: nothing is */
	const struct history_file *history; /* NULL: no writes known. Borrowed */
};

/* inspect_facts.c */
int inspect_gather(struct inspect *in, const struct inode *node, struct file_facts *ret); /* -errno of an index */
bool inspect_is_of_many(const struct inode *node); /* several nodes of a job write it */
/* Bytes written since the last drain, and no longer there: written over, cut off or punched. */
uint64_t inspect_overwritten(const struct file_facts *f);
/* The journal of s, into in->history; each (may be NULL) gets every record. What cannot be read is said. */
void inspect_read_history(
	struct inspect *in, struct store *s, int (*each)(const struct record *rec, void *arg), void *arg);
const char *inspect_state(const struct inode *in); /* "new", "modified" ... */
const char *inspect_type(const struct inode *in);  /* "file" ... */
void inspect_print_path(const char *path);
void inspect_store_json(struct inspect *in);
/* An object of the list, or the one file's, that is not ended yet. */
void inspect_file_json(struct json *j, const char *path, const struct inode *node, const struct file_facts *f);

int inspect_list(struct inspect *in); /* inspect_list.c. -errno of an index */
/* inspect_file.c: path as the user gave it. -ENOENT, -errno: text. */
int inspect_file(struct inspect *in, const char *path, struct cistern_error *err);

#endif
