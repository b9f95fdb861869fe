/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Who may have to ask the backing directory, which may hang. A guess, by the state alone, for who
 * decides whether a request gets a thread at once: a wrong yes delays a request while many wait, a
 * wrong no costs a thread.
 */
#include "fs/core/private.h"

static bool content_may_ask(const struct inode *in)
{
	return in->origin_name[0] != '\0';
}

static bool attributes_may_ask(const struct inode *in)
{
	return !S_ISDIR(in->mode) && content_may_ask(in) && data_is_outside(in);
}

static bool inode_may_ask(struct core *c, uint64_t ino, bool content)
{
	struct inode in;

	if (state_inode(c->state, ino, &in) < 0)
		return true; /* an untouched one of the backing directory */
	return content ? content_may_ask(&in) || ino == STATE_ROOT_INO : attributes_may_ask(&in);
}

bool core_may_ask(struct core *c, uint64_t ino, bool content)
{
	return inode_may_ask(c, ino, content);
}

bool core_name_may_ask(struct core *c, uint64_t parent, const char *name)
{
	struct state_name found;
	uint64_t owner;

	if (state_lookup(c->state, parent, name, &found) == 0)
		return inode_may_ask(c, found.ino, false);
	if (state_backing_owner(c->state, parent, name, &owner) == 0)
		return false;
	return inode_may_ask(c, parent, true);
}
