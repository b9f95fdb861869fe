/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_DRAINED_H
#define TOOLS_LIB_DRAINED_H

/* Is everything of a store on its backing directory? */

#include <stddef.h>

#include "format/index/left.h"
#include "tools/lib/daemon.h"

#define DRAINED_LEFT_TEXT 256

/*
 * result: what the last daemon of the store left word of; NULL: none. When it says that all of its job is out, bytes and
 * ranges of other nodes' files that are still here are of files that were removed, and count no more.
 */
void drained_settle(struct state_left *left, const struct daemon_result *result);
/* "2 files, 1 name deleted or moved, 60 KB of another node's file": what is only in the store. Returns out. */
const char *drained_left_text(const struct state_left *left, char *out, size_t cap);

/*
 * Of a store without a daemon: says what the last daemon left word of, and what is left in the store, and what can be done.
 * backing: for the advice; NULL: the one recorded in the store. noted: what is said of a drain that went well when its last
 * session had nothing to carry, and so nothing to say; NULL. CISTERN_EXIT_OK only if all is drained;
 * CISTERN_EXIT_BESIDE: it is, but something is under another name;
 * CISTERN_EXIT_INCOMPLETE: something is still in the store.
 */
int drained_verdict(const char *store, const char *backing, const char *noted);

#endif
