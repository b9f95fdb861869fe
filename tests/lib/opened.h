/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_OPENED_H
#define TESTS_LIB_OPENED_H

/* Open files of a job in one process (job_world.h), in its root. */

#include "tests/lib/job_world.h"

struct opened {
	struct job *j;
	struct job_file *file;
};

/* On that node; its number, or 0. */
uint64_t opened_create(struct job_world *w, uint32_t node, const char *name, int flags, struct opened *ret);
int opened_at(struct job_world *w, uint32_t node, uint64_t ino, int flags, struct opened *ret); /* 0 or -errno */
int opened_close(struct opened *o);                                                             /* what close(2) says */
ssize_t opened_put(struct opened *o, const char *text, uint64_t off);
/* Is that text there? A diagnostic if not. */
bool opened_shows(struct opened *o, uint64_t off, const char *text);
/* Node 1 opens the file to write to it, and closes it: from then on it is one that nodes share. Two tests. */
void opened_elsewhere(struct job_world *w, uint64_t ino);

#endif
