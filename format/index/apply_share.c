/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Records of jobs of many nodes: files that several nodes write. Layers (what this node wrote) are layer.c, share maps
 * (what counts, of the bytes whose domain home this node is) are shares.c. None of these raises a version: what the mount
 * shows of the inode changes by the records of data, attributes and names.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* ---- SHARE: at the home */

int check_share(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r = find_file(st, rec, &ni);

	return r == 0 && ni->n.flags & INODE_PRIVATE ? -EBUSY : r;
}

int apply_share(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r = find_node(st, rec->ino, &ni);

	if (r < 0 || ni->n.flags & INODE_SHARED)
		return r;
	r = layer_begin(st, ni);
	return r < 0 ? r : node_set_flags(st, ni, ni->n.flags | INODE_SHARED);
}

/* ---- FOREIGN: elsewhere */

int check_foreign(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r = rec->name[0] ? check_component(rec->name) : 0;

	if (r < 0)
		return r;
	if (rec->ino == 0 || rec->ino == UINT64_MAX || rec->size > INT64_MAX || !S_ISREG(rec->mode))
		return -EINVAL;
	r = find_node(st, rec->ino, &ni);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return ni->n.flags & INODE_FOREIGN ? 0 : -EEXIST;
}

static int create_foreign(struct state *st, const struct record *rec, struct node_item **ret)
{
	struct node_item *ni;
	int r = node_create(st, rec, &ni);

	if (r < 0)
		return r;
	ni->n.nlink = 1;
	ni->n.atime_ns = ni->n.mtime_ns = ni->n.ctime_ns = ni->n.btime_ns = rec->time_ns;
	*ret = ni;
	return node_set_flags(st, ni, INODE_FOREIGN | INODE_SHARED);
}

/* The size only grows by it: it bounds what is in the layer. RECORD_TRUNCATE cuts. */
int apply_foreign(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r = find_node(st, rec->ino, &ni);

	if (r == -ENOENT)
		r = create_foreign(st, rec, &ni);
	if (r == 0)
		r = node_set_origin(&ni->n, rec->parent, rec->name, strlen(rec->name));
	if (r < 0)
		return r;
	ni->n.gen = rec->gen;
	ni->n.mode = rec->mode;
	ni->n.uid = rec->uid;
	ni->n.gid = rec->gid;
	if (rec->size > ni->n.size)
		ni->n.size = rec->size;
	node_changed(st, ni, rec->seq);
	return 0;
}

/* ---- COMMITTED */

int check_committed(struct state *st, const struct record *rec)
{
	struct commits_item *ci;
	struct node_item *ni;
	int r = find_file(st, rec, &ni);

	if (r == 0)
		r = find_commits(st, rec->ino, &ci);
	if (r < 0)
		return r;
	if (!(ni->n.flags & INODE_SHARED) || rec->stamp == 0 || rec->upto > st->seq)
		return -EINVAL;
	if (!item_present(&ci->it) || ci->c.num == 0)
		return 0;
	return rec->stamp <= ci->c.points[ci->c.num - 1].stamp ? -EALREADY : 0;
}

int apply_committed(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r = find_node(st, rec->ino, &ni);

	return r < 0 ? r : layer_commit(st, ni, rec->upto, rec->stamp);
}

/* ---- share maps */

static bool bad_piece(const struct record_piece *p)
{
	return p->len == 0 || p->off > INT64_MAX || p->len > INT64_MAX - p->off || p->kind > EXTENT_HOLE ||
	       (p->kind == EXTENT_LOG && (p->segment == 0 || p->segment_off > (uint64_t)INT64_MAX - p->len));
}

int check_share_put(struct state *st, const struct record *rec)
{
	(void)st;
	if (rec->ino == 0 || rec->base >= rec->stamp || rec->stamp == UINT64_MAX ||
		rec->num_pieces > RECORD_EXTENTS_MAX || !rec->num_pieces)
		return -EINVAL;
	for (size_t i = 0; i < rec->num_pieces; i++)
		if (bad_piece(&rec->pieces[i]))
			return -EINVAL;
	return 0;
}

int apply_share_put(struct state *st, const struct record *rec)
{
	return share_put(st, rec);
}

int check_share_cut(struct state *st, const struct record *rec)
{
	(void)st;
	return rec->ino == 0 || rec->stamp == 0 || rec->stamp == UINT64_MAX || rec->size > INT64_MAX ? -EINVAL : 0;
}

int apply_share_cut(struct state *st, const struct record *rec)
{
	return share_cut(st, rec->ino, rec->size, rec->stamp);
}

int check_share_drop(struct state *st, const struct record *rec)
{
	(void)st;
	return rec->ino == 0 || rec->stamp == 0 ? -EINVAL : 0;
}

int apply_share_drop(struct state *st, const struct record *rec)
{
	return share_drop(st, rec);
}

int check_share_lost(struct state *st, const struct record *rec)
{
	(void)st;
	return rec->ino == 0 ? -EINVAL : 0;
}

int apply_share_lost(struct state *st, const struct record *rec)
{
	return share_lost(st, rec->ino, rec->node);
}
