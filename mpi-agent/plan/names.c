/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One name at a time. Directories are visited top-down, so the directory of the name is at its final place, and with it all
 * directories above; hence nothing that is moved into it can contain it, and any permutation of names ends: every name
 * is placed once, and an inode is parked at most once for each name that it loses.
 */
#include "mpi-agent/plan/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "format/index/beside.h"

bool names_is_needed(const struct inode *in)
{
	return S_ISDIR(in->mode) || (in->nlink > 0 && !(in->flags & INODE_ORPHAN));
}

void names_park_name(uint64_t ino, char out[RECORD_NAME_MAX + 1])
{
	snprintf(out, RECORD_NAME_MAX + 1, NAMES_PARK_PREFIX "%" PRIu64, ino);
}

bool names_make_room(struct state *st, uint64_t dir, const char *name, struct record *ret)
{
	struct inode in;
	uint64_t owner;

	if (state_backing_owner(st, dir, name, &owner) < 0 || state_inode(st, owner, &in) < 0 || S_ISDIR(in.mode) ||
		!names_is_needed(&in) || in.origin_parent != dir || strcmp(in.origin_name, name) != 0)
		return false;
	*ret = (struct record){ .type = RECORD_PLACED,
		.flags = RECORD_F_MOVED | (in.flags & INODE_UNPUBLISHED ? RECORD_F_UNPUBLISHED : 0),
		.ino = owner,
		.gen = in.gen,
		.parent = dir,
		.from_parent = dir,
		.backing_dev = in.backing_dev,
		.backing_ino = in.backing_ino };
	names_park_name(owner, ret->name);
	snprintf(ret->from_name, sizeof(ret->from_name), "%s", name);
	return true;
}

void names_aside_name(const char *name, uint64_t backing_ino, char out[RECORD_NAME_MAX + 1])
{
	uint64_t ino = STATE_BACKING_INO_BIT | backing_ino;

	snprintf(out, RECORD_NAME_MAX + 1, "%.200s%srecovered-inode-%" PRIu64, name, name[0] ? "." : "", ino);
}

bool names_is_known(struct state *st, uint64_t dir, const char *name, uint64_t backing_ino)
{
	struct inode in;
	uint64_t owner;

	return state_backing_owner(st, dir, name, &owner) == 0 &&
	       (state_inode(st, owner, &in) == 0 || state_remembered(st, owner, &in) == 0) &&
	       in.backing_ino == backing_ino;
}

/*
 * Another inode has the place. True: it has to leave first (*ret says how). A file with several backing names is parked
 * only when it would lose the one that the state remembers.
 */
static int occupant_step(
	struct state *st, uint64_t dir, const char *name, uint64_t owner, bool over_it, struct names_step *ret)
{
	struct inode in;
	int r = state_inode(st, owner, &in);

	if (r < 0 && r != -ENOENT)
		return r;
	ret->ino = owner;
	ret->mode = r == 0 ? in.mode : 0;
	if (r == 0 && names_is_needed(&in) && in.origin_parent == dir && strcmp(in.origin_name, name) == 0) {
		ret->action = NAMES_PARK;
		ret->from_parent = dir;
		snprintf(ret->from_name, sizeof(ret->from_name), "%s", name);
		names_park_name(owner, ret->park_name);
		return 1;
	}
	if (over_it)
		return 0;
	ret->action = NAMES_CLEAR;
	return 1;
}

/* Is the inode's backing name one of its names, or beside another one than this? Then it must stay there. */
static int origin_is_wanted(struct state *st, const struct inode *in, uint64_t dir, const char *name)
{
	struct state_name at;

	if (in->origin_parent == dir && beside_is_of(in->origin_name, name, in->ino))
		return 0;
	if (state_is_beside(st, in->origin_parent, in->origin_name, in->ino, NULL))
		return 1;
	int r = state_lookup(st, in->origin_parent, in->origin_name, &at);

	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : at.ino == in->ino;
}

static int place_step(struct state *st, uint64_t dir, const char *name, const struct inode *in, struct names_step *ret)
{
	int r;

	ret->ino = in->ino;
	ret->mode = in->mode;
	if (inode_is_special(in->mode))
		return 0; /* the name that was in its way is out of it */
	if (in->origin_name[0] && !(in->flags & INODE_NEW)) {
		r = origin_is_wanted(st, in, dir, name);
		if (r < 0)
			return r;
		ret->action = r ? NAMES_LINK : NAMES_MOVE;
		ret->from_parent = in->origin_parent;
		memcpy(ret->from_name, in->origin_name, sizeof(ret->from_name));
	} else if (S_ISDIR(in->mode)) {
		ret->action = NAMES_MKDIR;
	} else if (S_ISLNK(in->mode)) {
		ret->action = NAMES_SYMLINK;
	} else {
		ret->action = NAMES_DATA;
	}
	return 0;
}

int names_next_step(
	struct state *st, uint64_t dir, const char *name, uint64_t ino, struct inode *ret_in, struct names_step *ret)
{
	bool has_data_to_come;
	uint64_t owner;
	int r = state_inode(st, ino, ret_in);

	if (r < 0)
		return r;
	*ret = (struct names_step){ .action = NAMES_DONE, .ino = ino, .mode = ret_in->mode };
	r = state_backing_owner(st, dir, name, &owner);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0 && owner == ino)
		return 0;
	has_data_to_come = S_ISREG(ret_in->mode) && (ret_in->flags & (INODE_NEW | INODE_UNPUBLISHED));
	if (r == 0) {
		r = occupant_step(st, dir, name, owner, !S_ISDIR(ret_in->mode), ret);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	if (has_data_to_come) {
		ret->action = NAMES_DATA;
		ret->ino = ino;
		ret->mode = ret_in->mode;
		return 0;
	}
	return place_step(st, dir, name, ret_in, ret);
}
