/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Two walks. Names: a backing name that the mount does not show, or shows for another inode, is still to be moved or
 * removed. Inodes: those with a dirty flag, and those of other nodes of which a layer is here (their homes have the
 * flags). An inode without a name has nothing to drain.
 */
#include "format/index/left.h"

#include <errno.h>

#include "format/index/beside.h"

#define DIRTY_FLAGS (INODE_DIRTY_DATA | INODE_DIRTY_META | INODE_DIRTY_XATTR | INODE_NEW | INODE_UNPUBLISHED)
#define SOME        64 /* extents at a time */

struct counting {
	struct state *st;
	struct state_left *left;
};

int state_is_misplaced(struct state *st, uint64_t parent, const char *name, uint64_t ino)
{
	struct state_name found;
	int r;

	if (parent == 0) /* the root has no name */
		return 0;
	r = state_lookup(st, parent, name, &found);
	if (r < 0 && r != -ENOENT)
		return r;
	return (r == -ENOENT || found.ino != ino) && !state_is_beside(st, parent, name, ino, NULL);
}

static int count_name(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct counting *c = arg;
	int r = state_is_misplaced(c->st, parent, name, ino);

	c->left->names += r > 0;
	c->left->beside += r == 0 && state_is_beside(c->st, parent, name, ino, NULL);
	return r < 0 ? r : 0;
}

/* The bytes and holes of a file homed elsewhere that no drain has carried. */
static int count_layer(struct counting *c, uint64_t ino)
{
	struct layer_extent e[SOME];
	uint64_t at = 0;
	bool some = false;
	size_t num;
	int r;

	do {
		r = state_layer(c->st, ino, at, UINT64_MAX - at, e, SOME, &num, &at);
		for (size_t i = 0; r == 0 && i < num; i++)
			c->left->layer_bytes += e[i].ext.len;
		some = some || (r == 0 && num > 0);
	} while (r == 0 && at < UINT64_MAX);
	c->left->layers += some;
	return r;
}

static int count_inode(const struct inode *in, void *arg)
{
	struct counting *c = arg;

	if (in->flags & INODE_FOREIGN)
		return count_layer(c, in->ino);
	c->left->special += inode_is_special(in->mode) && in->num_names > 0;
	c->left->files += in->flags & DIRTY_FLAGS && !(in->flags & INODE_ORPHAN);
	return 0;
}

int state_left(struct state *st, struct state_left *ret)
{
	struct counting c = { .st = st, .left = ret };
	struct state_totals totals;
	int r;

	state_totals(st, &totals);
	*ret = (struct state_left){ .shares = totals.share_extents };
	r = state_each_backing_name(st, count_name, &c);
	if (r == 0 && (totals.dirty_files > 0 || totals.extents > 0 || totals.special))
		r = state_each_inode(st, count_inode, &c);
	return r;
}

bool state_left_nothing(const struct state_left *left)
{
	return left->files + left->names + left->layers + left->shares == 0;
}
