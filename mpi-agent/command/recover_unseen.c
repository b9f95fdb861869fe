/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A file of the backing directory had several links there; it was written to under one, and that was removed in the mount. By the others, which the
 * store does not know, the mount showed what was written: it counts, though no name in the store leads to it. In the backing directory what one
 * node wrote is carried before the old name goes (replay/names.c). Elsewhere there are no other links, and of what several nodes wrote a session knows
 * by a file's name only: so the file gets one, that says what it is. In the backing directory its other links have the bytes by that, too.
 */
#include "mpi-agent/command/recover_unseen.h"
#include "mpi-agent/command/say.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/base/array.h"
#include "mpi-agent/plan/names.h"

struct unseen {
	uint64_t parent, ino;
	char name[RECORD_NAME_MAX + 1];
};

struct unseen_list {
	struct state *st;
	bool shared;
	struct unseen *at; /* owned */
	size_t num, cap;
};

static bool is_unseen(const struct unseen_list *l, const struct inode *in)
{
	uint32_t dirty = INODE_DIRTY_DATA | INODE_DIRTY_META | INODE_DIRTY_XATTR | INODE_PRIVATE;

	if (l->shared && (in->flags & (INODE_SHARED | INODE_DIRTY_DATA)) != (INODE_SHARED | INODE_DIRTY_DATA))
		return false;
	return S_ISREG(in->mode) && in->nlink > 0 && in->num_names == 0 && !(in->flags & (INODE_ORPHAN | INODE_NEW)) &&
	       in->flags & dirty;
}

static int note(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct unseen_list *l = arg;
	struct inode in;
	int r = state_inode(l->st, ino, &in);

	if (r < 0 || !is_unseen(l, &in))
		return r == -ENOENT ? 0 : r;
	if (array_room(&l->at, &l->cap, l->num, sizeof(*l->at)) < 0)
		return -ENOMEM;
	l->at[l->num] = (struct unseen){ .parent = parent, .ino = ino };
	memcpy(l->at[l->num++].name, name, strlen(name) + 1);
	return 0;
}

static int give_name(struct state *st, const struct unseen *u, bool silent)
{
	struct record rec = { .type = RECORD_LINK, .ino = u->ino, .parent = u->parent, .seq = state_seq(st) + 1 };
	struct inode in, dir;
	int r = state_inode(st, u->ino, &in);

	if (r < 0 || in.num_names > 0)
		return r;
	if (state_inode(st, u->parent, &dir) < 0 || dir.flags & INODE_ORPHAN)
		rec.parent = STATE_ROOT_INO;
	r = state_inode(st, rec.parent, &dir);
	rec.time_ns = dir.mtime_ns;
	const char *known = in.origin_name[0] ? in.origin_name : u->name;
	bool ours = strncmp(known, NAMES_PARK_PREFIX, strlen(NAMES_PARK_PREFIX)) ==
		    0; /* a drain has begun to move it away */
	snprintf(rec.name, sizeof(rec.name), "%.200s%srecovered-inode-%" PRIu64, ours ? "" : known, ours ? "" : ".",
		u->ino);
	if (r == 0)
		r = state_apply(st, &rec);
	if (r == 0 && !silent)
		say_recover("%s: was removed in the mount, but is linked elsewhere in the backing directory: what "
			    "was written to it becomes %s",
			known, rec.name);
	return r;
}

int recover_unseen_name(struct state *st, bool shared, bool silent)
{
	struct unseen_list l = { .st = st, .shared = shared };
	int r = state_each_backing_name(st, note, &l);

	for (size_t i = 0; r == 0 && i < l.num; i++)
		r = give_name(st, &l.at[i], silent);
	free(l.at);
	return r;
}

static int say_links(const struct inode *in, void *arg)
{
	const bool *silent = arg;
	uint32_t dirty = INODE_DIRTY_DATA | INODE_PRIVATE, links = in->nlink - in->num_names;

	if (!S_ISREG(in->mode) || in->num_names == 0 || in->nlink <= in->num_names || *silent ||
		in->flags & (INODE_ORPHAN | INODE_FOREIGN) || !(in->flags & dirty))
		return 0;
	say_recover("inode %" PRIu64 "%s%s: %" PRIu32
		    " more link%s of it in the backing directory, which the store does not know, %s not made here",
		in->ino, in->origin_name[0] ? ", there " : "", in->origin_name, links, links == 1 ? "" : "s",
		links == 1 ? "is" : "are");
	return 0;
}

int recover_unseen_links(struct state *st, bool silent)
{
	return state_each_inode(st, say_links, &silent);
}
