/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The parts that move, remove and make names (mpi-agent/replay/names.c) begin with what the state says, and mostly it says
 * that everything is in its place: each backing name shows the same inode in the mount, and each directory has one. What a killed
 * agent has left is for an agent.
 */
#include "fs/drain/idle.h"

#include <errno.h>
#include <sys/stat.h>

#include "fs/drain/settle.h"

/* Stops at the first that is not in its place. */
static int is_moved(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct state_name at;
	int r = state_lookup(arg, parent, name, &at);

	return r == 0 && at.ino == ino ? 0 : 1;
}

static int is_unplaced_dir(const struct inode *in, void *arg)
{
	(void)arg;
	return S_ISDIR(in->mode) && in->ino != STATE_ROOT_INO && (in->flags & INODE_NEW || in->origin_parent == 0);
}

bool idle_part(struct store *store, enum wire_part part)
{
	struct state *st = store_state(store);

	if (part != WIRE_PART_DIRS && part != WIRE_PART_PARK && part != WIRE_PART_REMOVE)
		return false;
	if (part == WIRE_PART_REMOVE && settle_has_temps(store_path(store)))
		return false;
	if (settle_is_due(store_path(store)) || state_each_backing_name(st, is_moved, st) != 0)
		return false;
	return part != WIRE_PART_DIRS || state_each_inode(st, is_unplaced_dir, NULL) == 0;
}
