/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_DRAINED_H
#define TOOLS_LIB_DRAINED_H

/*
 * Is everything of a store without a daemon on its backing directory? Says what the last daemon left word of, or looks
 * into the store if it left none, and what can be done. backing: for the advice, NULL: from the store.
 * CISTERN_EXIT_OK only if all is drained; CISTERN_EXIT_INCOMPLETE: something is still in the store.
 */
int drained_verdict(const char *store, const char *backing);

#endif
