/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The tree of directories, which all stores of a job have: each commits what the one that orders the changes has committed
 * (docs/design/many-nodes.md, 3). What a record means there it does not quite mean here, since each store knows its own node's files alone.
 */
#include <errno.h>
#include <sys/stat.h>

#include "format/index/state.h"

bool state_tree_is_gone(struct state *st, const struct record *rec)
{
	struct inode in;

	return rec->type == RECORD_PLACED && state_inode(st, rec->ino, &in) == -ENOENT;
}

/*
 * A directory that is renamed may change places with a file, which only the store of the file's home knows: there the two do, and
 * everywhere else the directory just goes.
 */
static void settle_exchange(struct state *st, struct record *rec)
{
	struct state_name there;
	struct inode other;

	if (rec->type != RECORD_RENAME)
		return;
	if (rec->flags & RECORD_F_EXCHANGE && (state_inode(st, rec->other_ino, &other) == -ENOENT ||
						      other.flags & INODE_FOREIGN)) { /* without a name here */
		rec->other_ino = 0;
		rec->flags &= ~(uint32_t)RECORD_F_EXCHANGE;
	}
	if (rec->other_ino || state_lookup(st, rec->parent, rec->name, &there) < 0 || there.type == S_IFDIR)
		return;
	rec->other_ino = there.ino;
	rec->flags |= RECORD_F_EXCHANGE;
}

/*
 * A step of a drain about a directory that was removed: who does not use it any more has freed it, while node 0, which does, still knows it. There
 * is nothing to be done for it here, but the change has its number.
 */
static struct record no_step(const struct record *rec)
{
	return (struct record){ .type = RECORD_DRAINED,
		.flags = RECORD_F_TREE | RECORD_F_META_ONLY,
		.ino = STATE_ROOT_INO,
		.stamp = rec->stamp };
}

int state_tree_follow(struct state *st, struct record *rec, int (*commit)(struct record *rec, void *arg), void *arg)
{
	uint64_t last = state_tree_stamp(st);

	if (rec->stamp <= last)
		return 0;
	if (rec->stamp > last + 1)
		return -EILSEQ;
	if (rec->type == RECORD_DRAINED) /* node 0 means what it had then; here that is all there was before this */
		rec->upto = state_seq(st);
	settle_exchange(st, rec);
	int rc = state_tree_is_gone(st, rec) ? -ENOENT : commit(rec, arg);
	if (rc == -ENOENT && (rec->type == RECORD_PLACED || rec->type == RECORD_REMOVED)) {
		struct record none = no_step(rec);

		rc = commit(&none, arg);
	}
	return rc == -EALREADY ? 0 : rc;
}
