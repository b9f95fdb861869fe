/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_PARALLEL_H
#define TOOLS_LIB_PARALLEL_H

/* The same work by several threads. */

unsigned int parallel_processors(void); /* that this process may use, at least 1 */
/*
 * work(task, i) for each i below num, each in a thread of its own as far as there are threads to be had; returns when all have
 * returned. What no thread was to be had for is done here, afterwards.
 */
void parallel_each(unsigned int num, void (*work)(void *task, unsigned int i), void *task);

#endif
