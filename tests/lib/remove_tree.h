/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_REMOVE_TREE_H
#define TESTS_LIB_REMOVE_TREE_H

/* Removes a file, or a directory with all that is in it, if it is there. */
void remove_tree(const char *path);

#endif
