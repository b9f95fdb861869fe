/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_READY_H
#define FS_DRAIN_READY_H

/* Whether a shared file whose home this node is can be drained now, as the agent found it in its snapshot, and what of it will be carried. */

#include <stdint.h>

#include "format/index/state.h"
#include "format/wire/shared.h"
#include "fs/job/job.h"

/*
 * f: ino, size, limit, upto as the agent knows them. Sets stamp: commits up to it can be carried, and lowers upto to what they cover; time_usec as
 * upto_before() has it. -EBUSY: not in this session, since it was removed or is being cut, or has been since the snapshot: what was
 * cut off would show again.
 */
int ready_shared(struct job *j, struct state *st, uint64_t time_usec, struct wire_shared *f);

#endif
