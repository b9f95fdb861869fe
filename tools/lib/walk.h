/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_WALK_H
#define TOOLS_LIB_WALK_H

/* Names of a store, as its mount would show them. Paths are relative to the mount's root. */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "format/index/state.h"

/*
 * Everything that has a name, directories before what is in them, sorted bytewise; not the root. each() non-zero
 * stops and is returned. A path of PATH_MAX bytes or more is told as "(inode N, its path is too long)".
 */
int walk_names(struct state *st, int (*each)(const char *path, const struct inode *in, void *arg), void *arg);
/* path: relative to the root ("." = it), or with a leading slash. -ENOENT, -ENOTDIR. */
int walk_find(struct state *st, const char *path, struct inode *ret);
/* One path of ino, by looking through all names; "(inode N, without a name)" when there is none. Returns out. */
const char *walk_path_of(struct state *st, uint64_t ino, char out[PATH_MAX]);
/* What another node than its home remembers as the path of the file in; false: nothing, or more than cap bytes. */
bool walk_remembered(struct state *st, const struct inode *in, char *out, size_t cap);

#endif
