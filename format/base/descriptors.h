/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_DESCRIPTORS_H
#define FORMAT_BASE_DESCRIPTORS_H

/* How many files a process may have open (RLIMIT_NOFILE), and what each of its parts may keep open of that. Any thread. */

#include <stdbool.h>
#include <stddef.h>

#define DESCRIPTORS_MIN 128u /* a daemon or an agent that may have fewer does not work */

/*
 * Opens /dev/null for whichever of the first three descriptors is missing, so that no file of ours ever gets the number of a standard
 * stream. At the start of every program. Where even that fails they stay missing.
 */
void descriptors_fill(void);
/* Raises the limit as far as an ordinary user may. Returns what it is then. */
size_t descriptors_raise(void);
/* wanted, or one in so many of all, when that is less. */
size_t descriptors_share(size_t wanted, unsigned int one_in);
/* Descriptors are given out from the lowest on: is this one among the last ones, which are left to what a process must not go without? */
bool descriptors_scarce(int fd);
/* At the start of a daemon: what was inherited goes, but for the first three and keep (-1: none). */
void descriptors_drop_inherited(int keep);

#endif
