/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_JOB_DRAIN_H
#define TESTS_LIB_JOB_DRAIN_H

/*
 * A drain of one file that nodes of a job in one process share (job_world.h), part by part, so that something can happen between any two. It
 * carries what the file's home reads. Its name in the backing directory is "drained-" and the inode's number.
 */

#include "tests/lib/job_world.h"

struct job_drain {
	struct job_world *w;
	uint32_t num, home;
	uint64_t ino, stamp, time_usec, upto, size;
	bool is_new;
	uint64_t backing_dev, backing_ino;
};

/*
 * Parts commit, begin and data. 0; -ENOENT: it is no file that nodes share, or it has no name; -errno: it cannot be drained now. *ret is to be used
 * with the same world only.
 */
int job_drain_carry(struct job_world *w, uint32_t num, uint64_t ino, struct job_drain *ret);
int job_drain_publish(struct job_drain *d);                   /* part files: durable at the home */
int job_drain_drop(const struct job_drain *d, uint32_t node); /* part drop, of one node, but for its sync */

#endif
