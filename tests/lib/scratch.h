/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_SCRATCH_H
#define TESTS_LIB_SCRATCH_H

#define SCRATCH_PARENT_MAX 40

/*
 * Where tests make their directories: $TMPDIR, or /tmp, also when the former is longer than SCRATCH_PARENT_MAX bytes: a socket's path has 107, and
 * buffers for what lies below are as large as they need be for that.
 */
const char *scratch_parent(void);

#endif
