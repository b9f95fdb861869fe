/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_COMPARE_TREES_H
#define TESTS_LIB_COMPARE_TREES_H

#include <stdbool.h>

/*
 * Compares two directory trees: names, types, modes, mtimes, contents, symlink targets, who shares an inode with whom, and
 * the extended attributes user.t and user.u. Says the first differences as TAP comments, and returns how many there are.
 * part: "got" need not have all that is expected, so its directories may have other mtimes. From one thread only.
 */
unsigned int compare_trees(const char *got, const char *expected, bool part);

#endif
