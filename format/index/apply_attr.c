/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Records that change attributes and extended attributes of an inode. */
#include "format/index/state_private.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

int check_setattr(struct state *st, const struct record *rec)
{
	struct node_item *ni;

	return find_own_node(st, rec, &ni);
}

/* With a stamp: when that was, by the job's clock. */
static void note_times_set(struct state *st, struct node *n, const struct record *rec)
{
	if (!(rec->mask & RECORD_ATTR_MTIME) || !rec->stamp || rec->stamp > INT64_MAX || !(n->flags & INODE_SHARED))
		return;
	n->times_set_ns = (int64_t)rec->stamp;
	st->meta.times_set = st->meta.timed = st->meta.job = true;
	if (st->meta.clock_ns < rec->stamp)
		st->meta.clock_ns = rec->stamp;
}

int apply_setattr(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r = find_node(st, rec->ino, &ni);

	if (r < 0)
		return r;
	if (rec->mask & RECORD_ATTR_MODE)
		ni->n.mode = (ni->n.mode & S_IFMT) | (rec->mode & ~(uint32_t)S_IFMT);
	if (rec->mask & RECORD_ATTR_UID)
		ni->n.uid = rec->uid;
	if (rec->mask & RECORD_ATTR_GID)
		ni->n.gid = rec->gid;
	if (rec->mask & RECORD_ATTR_ATIME)
		ni->n.atime_ns = rec->atime_ns;
	if (rec->mask & RECORD_ATTR_MTIME)
		ni->n.mtime_ns = rec->mtime_ns;
	note_times_set(st, &ni->n, rec);
	ni->n.ctime_ns = rec->mask & RECORD_ATTR_CTIME ? rec->ctime_ns : rec->time_ns;
	node_changed(st, ni, rec->seq);
	return node_set_flags(st, ni, ni->n.flags | INODE_DIRTY_META);
}

static int find_xattr(struct state *st, const struct record *rec, struct key *key, struct blob_item **ret)
{
	if (!rec->key || rec->key_len == 0 || rec->key_len > RECORD_NAME_MAX || memchr(rec->key, 0, rec->key_len))
		return -EINVAL;
	key_name(key, KEY_XATTR, rec->ino, (const char *)rec->key, rec->key_len);
	return find_blob(st, key, ret);
}

int check_setxattr(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	struct blob_item *b;
	struct key key;
	int r;

	r = find_own_node(st, rec, &ni);
	if (r < 0)
		return r;
	if (rec->value_len > RECORD_VALUE_MAX || (rec->value_len && !rec->value))
		return -E2BIG;
	return find_xattr(st, rec, &key, &b);
}

int check_removexattr(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	struct blob_item *b;
	struct key key;
	int r;

	r = find_record_node(st, rec, &ni);
	if (r == 0)
		r = find_xattr(st, rec, &key, &b);
	if (r < 0)
		return r;
	return item_present(&b->it) ? 0 : -ENODATA;
}

static int xattrs_changed(struct state *st, struct node_item *ni, const struct record *rec)
{
	ni->n.ctime_ns = rec->time_ns;
	node_changed(st, ni, rec->seq);
	return node_set_flags(st, ni, ni->n.flags | INODE_DIRTY_META | INODE_DIRTY_XATTR);
}

/* The inode and its xattr, which may not be there. */
static int find_xattr_of(struct state *st, const struct record *rec, struct node_item **ret, struct key *key,
	struct blob_item **ret_xattr)
{
	int r = find_node(st, rec->ino, ret);

	return r < 0 ? r : find_xattr(st, rec, key, ret_xattr);
}

int apply_setxattr(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	struct blob_item *b;
	struct key key;
	int r = find_xattr_of(st, rec, &ni, &key, &b);

	if (r < 0)
		return r;
	ni->n.num_xattrs += !item_present(&b->it);
	r = blob_put(st, &key, rec->value, rec->value_len);
	if (r == 0 && rec->flags & RECORD_F_COPIED) {
		cache_dirty(&st->cache, &ni->it); /* their number */
		return 0;
	}
	return r < 0 ? r : xattrs_changed(st, ni, rec);
}

int apply_removexattr(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	struct blob_item *b;
	struct key key;
	int r = find_xattr_of(st, rec, &ni, &key, &b);

	if (r < 0)
		return r;
	cache_remove(&st->cache, &b->it);
	ni->n.num_xattrs--;
	return xattrs_changed(st, ni, rec);
}
