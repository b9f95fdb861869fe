/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The parts that move, remove and make names (mpi-agent/replay/names.c) begin with what the state says, and mostly it says
 * that everything is in its place: each backing name shows the same inode in the mount, and each directory has one. So do those that
 * carry files: none is dirty, of none the state knows less than all (a private segment), and each name is one in the backing directory, too.
 * What a killed agent has left is for an agent.
 */
#include "fs/drain/idle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/drain/settle.h"

#define NAMES_AT_ONCE 64

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

/* What others have written of it is begun by its home, and so is what was left of that. */
static int is_written_by_many(const struct inode *in, void *arg)
{
	(void)arg;
	return in->flags & INODE_SHARED && in->flags & (INODE_NEW | INODE_DIRTY_DATA);
}

static bool has_names_to_give(struct state *st, uint64_t dir)
{
	struct state_name *names = malloc(NAMES_AT_ONCE * sizeof(*names));
	char after[RECORD_NAME_MAX + 1] = "";
	size_t num = NAMES_AT_ONCE;
	bool all = names;

	while (all && num == NAMES_AT_ONCE) {
		all = state_list_names(st, dir, after, names, NAMES_AT_ONCE, &num) == 0;
		for (size_t i = 0; all && i < num; i++) {
			uint64_t owner;

			all = names[i].type == S_IFDIR ||
			      (state_backing_owner(st, dir, names[i].name, &owner) == 0 && owner == names[i].ino);
		}
		if (all && num > 0)
			memcpy(after, names[num - 1].name, sizeof(after));
	}
	free(names);
	return !all;
}

/* A file of this node that is to be carried, or a directory in which one is to get a further name. */
static int has_files_to_carry(const struct inode *in, void *arg)
{
	const uint32_t carried =
		INODE_NEW | INODE_DIRTY_DATA | INODE_DIRTY_META | INODE_DIRTY_XATTR | INODE_PRIVATE | INODE_UNPUBLISHED;

	return S_ISDIR(in->mode) ? has_names_to_give(arg, in->ino) : (in->flags & carried) != 0;
}

static bool is_about_names(enum wire_part part)
{
	return part == WIRE_PART_DIRS || part == WIRE_PART_PARK || part == WIRE_PART_REMOVE;
}

bool idle_part(struct store *store, enum wire_part part)
{
	struct state *st = store_state(store);

	if (!is_about_names(part) && part != WIRE_PART_BEGIN && part != WIRE_PART_FILES)
		return false;
	if (part != WIRE_PART_DIRS && part != WIRE_PART_PARK && settle_has_temps(store_path(store)))
		return false;
	if (settle_is_due(store_path(store)))
		return false;
	if (part == WIRE_PART_BEGIN)
		return state_each_inode(st, is_written_by_many, NULL) == 0;
	if (state_each_backing_name(st, is_moved, st) != 0)
		return false;
	if (part == WIRE_PART_FILES)
		return state_each_inode(st, has_files_to_carry, st) == 0;
	return part != WIRE_PART_DIRS || state_each_inode(st, is_unplaced_dir, NULL) == 0;
}
