/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_NO_LOCKS_H
#define TESTS_LIB_NO_LOCKS_H

/* What the file system says to who wants, or asks for, an open-file-description lock: an errno. 0: it has some. */
extern int no_locks;

#endif
