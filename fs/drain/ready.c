/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A snapshot is taken, then its files are looked at one by one, while nodes go on with them. */
#include "fs/drain/ready.h"

#include <errno.h>

#include "fs/job/upto.h"

int ready_shared(struct job *j, struct state *st, uint64_t time_usec, struct wire_shared *f)
{
	struct inode in;
	int r = job_drain_stamp(j, f->ino, &f->stamp);

	if (r == 0)
		r = state_share_drained(st, f->ino, &f->drained_stamp, &f->drained_usec);
	if (r == 0)
		r = state_inode(st, f->ino, &in);
	if (r == 0 && in.flags & INODE_ORPHAN)
		r = -ENOENT;
	/* The stamp may be one of after a cut that the snapshot does not have whole. */
	if (r == 0 && in.backing_limit < f->limit)
		r = -EBUSY;
	if (r == 0)
		r = upto_settled(st, f->ino, f->stamp, &f->upto);
	if (r == 0)
		r = upto_before(st, f->ino, time_usec, &f->upto);
	return r == -ENOENT ? -EBUSY : r; /* removed meanwhile: not in this session, nor in any */
}
