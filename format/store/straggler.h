/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_STORE_STRAGGLER_H
#define FORMAT_STORE_STRAGGLER_H

/*
 * Stragglers: processes that have a private segment open for writing, or mapped so, through a mount
 * that has no daemon any more. The kernel lets them go on, and tells nobody
 * (docs/design/stragglers.md). An open store knows which segments may have some; any thread may ask.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STRAGGLER_WHO  160
#define STRAGGLER_PATH 1024
#define STRAGGLER_TEXT 640

struct state;
struct store;

struct straggler {
	uint32_t segment;
	int unknown;               /* 0: somebody writes; else -errno: that could not be found out */
	uint64_t ino;              /* whose segment it is */
	char who[STRAGGLER_WHO];   /* "process 12 (bash)"; "": not asked for, or not found */
	char path[STRAGGLER_PATH]; /* in the mount; "": not asked for, or it has no name */
};

/* Does the store's file system tell? Else nothing may be written past the daemon. */
bool straggler_can_be_found(struct store *s);
/*
 * Looks at all private segments; what is known stays so. Done by store_open. A daemon does it again
 * where its connection ends while files are open, and its own descriptors for writing are closed. 0, -ENOMEM, the state's errors.
 */
int straggler_look(struct store *s);
/* When it was last looked at, the segment had some. Looks at nothing. */
bool straggler_is_known(struct store *s, uint32_t segment);
/*
 * The same, now: one that has gone does not come back. The caller has no descriptor of the segment
 * for writing. Of a snapshot: what straggler_add said.
 */
bool straggler_is_there(struct store *s, uint32_t segment);
/* A snapshot's reader is told by the daemon. 0, -ENOMEM. */
int straggler_add(struct store *s, uint32_t segment, const char *who);
/* Copies at most cap; how many there are. */
size_t straggler_list(struct store *s, struct straggler *out, size_t cap);
/*
 * Fills in who and path, by a look at all processes that we may look at. live: where the store is
 * mounted now, so whoever has a file open by that is none; NULL: it is not.
 */
void straggler_name(struct state *st, struct straggler *at, size_t num, const char *live);
/* What is so, and what to do. Returns out. */
const char *straggler_text(const struct straggler *g, char out[STRAGGLER_TEXT]);
/* The same behind the file's path. Returns out. */
const char *straggler_line(const struct straggler *g, char *out, size_t cap);
/* The same by the segment, of a store that is not mounted, or of a snapshot. */
const char *straggler_say(struct store *s, uint32_t segment, char out[STRAGGLER_TEXT]);

#endif
