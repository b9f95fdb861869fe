// SPDX-License-Identifier: GPL-3.0-or-later
/* What a drain of the job asks of it. */
#include <errno.h>

#include "fs/job/private.h"

int job_drain_stamp(struct job *j, uint64_t ino, uint64_t *ret_stamp)
{
	return -EBUSY;
}

int job_tree_record(struct job *j, struct record *rec)
{
	return core_drain_step(j->core, rec);
}
