/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Records that change names: what the mount shows. Backing names are untouched by all but ADOPT and FORGET: what the
 * mount renames or deletes stays where it is in the backing directory until the drain moves it and says so.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* ---- shared parts */

static void touch_dir(struct state *st, struct node_item *dir, const struct record *rec)
{
	dir->n.mtime_ns = dir->n.ctime_ns = rec->time_ns;
	node_changed(st, dir, rec->seq);
	node_set_flags(st, dir, dir->n.flags | INODE_DIRTY_META); /* no ORPHAN: cannot fail */
}

/* What the entry keeps that the record makes. Of a change of the tree the stamp is its number, no entry's. */
static uint64_t entry_stamp(const struct record *rec)
{
	return rec->flags & RECORD_F_TREE ? 0 : rec->stamp;
}

/* Names change in this directory. */
static int touch_parent(struct state *st, uint64_t parent, const struct record *rec, int32_t nlink)
{
	struct node_item *dir;
	int r = find_node(st, parent, &dir);

	if (r < 0)
		return r;
	dir->n.nlink += (uint32_t)nlink;
	touch_dir(st, dir, rec);
	return 0;
}

/* parent is a directory that is there and name is free in it. */
static int check_free_name(struct state *st, uint64_t parent, const char *name)
{
	struct name_item *d;
	struct node_item *dir;
	int r;

	r = check_component(name);
	if (r == 0)
		r = find_dir(st, parent, &dir);
	if (r == 0)
		r = find_name(st, KEY_NAME, parent, name, &d);
	if (r < 0)
		return r;
	return item_present(&d->it) ? -EEXIST : 0;
}

/* (parent, name) leads to ino, which is *ret. */
static int check_name_of(struct state *st, uint64_t parent, const char *name, uint64_t ino, struct node_item **ret)
{
	struct name_item *d;
	int r;

	r = check_component(name);
	if (r == 0)
		r = find_name(st, KEY_NAME, parent, name, &d);
	if (r < 0)
		return r;
	if (!item_present(&d->it))
		return -ENOENT;
	if (d->ino != ino)
		return -ESTALE;
	return find_node(st, ino, ret);
}

/* One name less. A directory has only one; a file that has names left keeps a link for each. */
static int lose_link(struct state *st, struct node_item *ni, const struct record *rec)
{
	ni->n.nlink = S_ISDIR(ni->n.mode) || ni->n.nlink == 0 ? 0 : ni->n.nlink - 1;
	if (ni->n.nlink < ni->n.num_names)
		ni->n.nlink = ni->n.num_names;
	ni->n.ctime_ns = rec->time_ns;
	node_changed(st, ni, rec->seq);
	return ni->n.nlink ? 0 : node_set_flags(st, ni, ni->n.flags | INODE_ORPHAN);
}

static int put_target(struct state *st, const struct record *rec)
{
	struct key key;

	key_number(&key, KEY_TARGET, rec->ino);
	return blob_put(st, &key, rec->target, rec->target_len);
}

/* A new inode's number, type and target make sense. */
static int check_new_node(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r;

	if (rec->ino == 0 || rec->ino == UINT64_MAX || rec->size > INT64_MAX)
		return -EINVAL;
	if (!S_ISREG(rec->mode) && !S_ISDIR(rec->mode) && !S_ISLNK(rec->mode) &&
		!(inode_is_special(rec->mode) && rec->type == RECORD_CREATE))
		return -EINVAL;
	if (S_ISLNK(rec->mode) && (!rec->target || rec->target_len == 0 || rec->target_len > RECORD_TARGET_MAX))
		return -EINVAL;
	r = find_node(st, rec->ino, &ni);
	return r == 0 ? -EEXIST : r == -ENOENT ? 0 : r;
}

/* ---- CREATE: without a name (parent 0) it is a temporary file, an orphan that LINK may name */

int check_create(struct state *st, const struct record *rec)
{
	int r = check_new_node(st, rec);

	if (r < 0)
		return r;
	if (rec->segment && !S_ISREG(rec->mode))
		return -EINVAL;
	if (rec->parent == 0)
		return S_ISREG(rec->mode) && !rec->name[0] ? 0 : -EINVAL;
	return check_free_name(st, rec->parent, rec->name);
}

static int make_private(struct state *st, struct node_item *ni, uint32_t segment)
{
	int r = segment_use_private(st, segment);

	if (r < 0)
		return r;
	ni->n.private_segment = segment;
	return node_set_flags(st, ni, ni->n.flags | INODE_PRIVATE);
}

int apply_create(struct state *st, const struct record *rec)
{
	uint32_t flags = INODE_NEW | INODE_DIRTY_META;
	bool is_dir = S_ISDIR(rec->mode);
	struct node_item *ni;
	int r;

	r = node_create(st, rec, &ni);
	if (r < 0)
		return r;
	ni->n.atime_ns = ni->n.mtime_ns = ni->n.ctime_ns = ni->n.btime_ns = rec->time_ns;
	ni->n.nlink = is_dir ? 2 : rec->parent ? 1 : 0;
	if (S_ISREG(rec->mode))
		flags |= INODE_DIRTY_DATA;
	if (!ni->n.nlink)
		flags |= INODE_ORPHAN;
	if (S_ISLNK(rec->mode)) {
		ni->n.size = rec->target_len;
		r = put_target(st, rec);
	}
	if (r == 0)
		r = node_set_flags(st, ni, flags);
	if (r == 0 && rec->segment)
		r = make_private(st, ni, rec->segment);
	if (r == 0 && rec->parent)
		r = name_add(st, rec->parent, rec->name, ni, entry_stamp(rec));
	if (r == 0 && rec->parent)
		r = touch_parent(st, rec->parent, rec, is_dir);
	return r;
}

/* ---- ADOPT */

static bool is_root(const struct record *rec)
{
	return rec->ino == STATE_ROOT_INO && rec->parent == 0;
}

/* The two names of an adopted file: neither is known, or both are and lead to it. For a stamp its name will do. */
static int check_adopted_names(struct state *st, const struct record *rec)
{
	struct name_item *d, *b;
	struct node_item *dir;
	int r;

	r = check_component(rec->name);
	if (r == 0)
		r = find_dir(st, rec->parent, &dir);
	if (r == 0)
		r = find_name(st, KEY_NAME, rec->parent, rec->name, &d);
	if (r == 0)
		r = find_name(st, KEY_BACKING, rec->parent, rec->name, &b);
	if (r < 0)
		return r;
	if (!item_present(&d->it) && !item_present(&b->it))
		return 0;
	if (!item_present(&d->it) || d->ino != rec->ino)
		return -EEXIST;
	return entry_stamp(rec) || (item_present(&b->it) && b->ino == rec->ino) ? 0 : -EEXIST;
}

int check_adopt(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r;

	r = check_new_node(st, rec);
	if (r == -EEXIST) {
		r = find_node(st, rec->ino, &ni);
		if (r == 0 &&
			((ni->n.mode & S_IFMT) != (rec->mode & S_IFMT) || ni->n.flags & (INODE_ORPHAN | INODE_FOREIGN)))
			r = -ESTALE;
		if (r == 0 && S_ISDIR(ni->n.mode) && ni->n.num_names && !is_root(rec)) /* a directory has one name */
			return check_name_of(st, rec->parent, rec->name, rec->ino, &ni) < 0 ? -EEXIST : 0;
	}
	if (r < 0)
		return r;
	if (rec->parent == 0)
		return is_root(rec) && S_ISDIR(rec->mode) ? 0 : -EINVAL;
	return check_adopted_names(st, rec);
}

static int adopt_node(struct state *st, const struct record *rec, struct node_item **ret)
{
	struct node_item *ni;
	int r;

	r = node_create(st, rec, &ni);
	if (r < 0)
		return r;
	ni->n.nlink = rec->nlink ? rec->nlink : S_ISDIR(rec->mode) ? 2 : 1;
	ni->n.size = rec->size;
	ni->n.atime_ns = rec->atime_ns;
	ni->n.mtime_ns = rec->mtime_ns;
	ni->n.ctime_ns = ni->n.btime_ns = rec->ctime_ns;
	ni->n.backing_dev = rec->backing_dev;
	ni->n.backing_ino = rec->backing_ino;
	if (S_ISREG(rec->mode))
		ni->n.backing_limit = rec->size;
	r = node_set_origin(&ni->n, rec->parent, rec->parent ? rec->name : ".", rec->parent ? strlen(rec->name) : 1);
	if (r == 0 && S_ISLNK(rec->mode))
		r = put_target(st, rec);
	cache_dirty(&st->cache, &ni->it);
	*ret = ni;
	return r;
}

int apply_adopt(struct state *st, const struct record *rec)
{
	struct name_item *d;
	struct node_item *ni;
	int r;

	r = find_node(st, rec->ino, &ni);
	if (r == -ENOENT)
		r = adopt_node(st, rec, &ni);
	if (r < 0 || rec->parent == 0)
		return r;
	r = find_name(st, KEY_NAME, rec->parent, rec->name, &d);
	if (r < 0)
		return r;
	if (item_present(&d->it)) {
		d->stamp = entry_stamp(rec) > d->stamp ? entry_stamp(rec) : d->stamp;
		cache_dirty(&st->cache, &d->it);
		return 0;
	}
	r = name_add(st, rec->parent, rec->name, ni, entry_stamp(rec));
	if (r == 0)
		r = backing_set(st, rec->parent, rec->name, rec->ino, ni->n.mode & S_IFMT);
	if (r == 0 && !ni->n.origin_name)
		r = node_set_origin(&ni->n, rec->parent, rec->name, strlen(rec->name));
	if (ni->n.nlink < ni->n.num_names)
		ni->n.nlink = ni->n.num_names;
	return r;
}

/* ---- LINK, UNLINK */

int check_link(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r;

	r = find_own_node(st, rec, &ni);
	if (r < 0)
		return r;
	if (S_ISDIR(ni->n.mode))
		return -EPERM;
	return check_free_name(st, rec->parent, rec->name);
}

int apply_link(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r;

	r = find_node(st, rec->ino, &ni);
	if (r == 0)
		r = name_add(st, rec->parent, rec->name, ni, entry_stamp(rec));
	if (r < 0)
		return r;
	ni->n.nlink++;
	ni->n.ctime_ns = rec->time_ns;
	node_changed(st, ni, rec->seq);
	r = node_set_flags(st, ni, ni->n.flags & ~(uint32_t)INODE_ORPHAN);
	return r < 0 ? r : touch_parent(st, rec->parent, rec, 0);
}

int check_unlink(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r;

	r = check_name_of(st, rec->parent, rec->name, rec->ino, &ni);
	if (r < 0)
		return r;
	return S_ISDIR(ni->n.mode) && ni->n.num_children ? -ENOTEMPTY : 0;
}

int apply_unlink(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r;

	r = find_node(st, rec->ino, &ni);
	if (r == 0)
		r = name_drop(st, rec->parent, rec->name, ni);
	if (r == 0)
		r = lose_link(st, ni, rec);
	return r < 0 ? r : touch_parent(st, rec->parent, rec, S_ISDIR(ni->n.mode) ? -1 : 0);
}

/* ---- RENAME */

static int check_replaced(struct state *st, const struct record *rec, const struct node_item *moved)
{
	struct node_item *other;
	int r;

	if (rec->other_ino == 0)
		return rec->flags & RECORD_F_EXCHANGE ? -EINVAL : check_free_name(st, rec->parent, rec->name);
	r = check_name_of(st, rec->parent, rec->name, rec->other_ino, &other);
	if (r < 0 || rec->flags & RECORD_F_EXCHANGE)
		return r;
	if (S_ISDIR(moved->n.mode) != S_ISDIR(other->n.mode))
		return S_ISDIR(moved->n.mode) ? -ENOTDIR : -EISDIR;
	return other->n.num_children ? -ENOTEMPTY : 0;
}

int check_rename(struct state *st, const struct record *rec)
{
	struct node_item *ni, *dir;
	int r;

	if (rec->other_ino == rec->ino || rec->parent == rec->ino || rec->from_parent == rec->other_ino)
		return -EINVAL;
	r = check_name_of(st, rec->from_parent, rec->from_name, rec->ino, &ni);
	if (r == 0)
		r = find_dir(st, rec->parent, &dir);
	return r < 0 ? r : check_replaced(st, rec, ni);
}

static int move_name(struct state *st, const struct record *rec, struct node_item *ni)
{
	int r = name_drop(st, rec->from_parent, rec->from_name, ni);

	return r < 0 ? r : name_add(st, rec->parent, rec->name, ni, entry_stamp(rec));
}

static int replace_name(struct state *st, const struct record *rec, struct node_item *ni, struct node_item *other)
{
	int r = 0;

	if (other)
		r = name_drop(st, rec->parent, rec->name, other);
	if (other && r == 0)
		r = lose_link(st, other, rec);
	return r < 0 ? r : move_name(st, rec, ni);
}

static int exchange_names(struct state *st, const struct record *rec, struct node_item *ni, struct node_item *other)
{
	int r;

	r = name_drop(st, rec->from_parent, rec->from_name, ni);
	if (r == 0)
		r = name_drop(st, rec->parent, rec->name, other);
	if (r == 0)
		r = name_add(st, rec->parent, rec->name, ni, entry_stamp(rec));
	if (r == 0)
		r = name_add(st, rec->from_parent, rec->from_name, other, entry_stamp(rec));
	other->n.ctime_ns = rec->time_ns;
	node_changed(st, other, rec->seq);
	return r;
}

int apply_rename(struct state *st, const struct record *rec)
{
	bool exchange = rec->flags & RECORD_F_EXCHANGE;
	struct node_item *ni, *other = NULL;
	int32_t from_links, to_links;
	int r;

	r = find_node(st, rec->ino, &ni);
	if (r == 0 && rec->other_ino)
		r = find_node(st, rec->other_ino, &other);
	if (r < 0)
		return r;
	to_links = S_ISDIR(ni->n.mode) ? 1 : 0;
	from_links = -to_links;
	if (other && S_ISDIR(other->n.mode)) {
		to_links--;
		from_links += exchange;
	}
	r = exchange ? exchange_names(st, rec, ni, other) : replace_name(st, rec, ni, other);
	if (r < 0)
		return r;
	ni->n.ctime_ns = rec->time_ns;
	node_changed(st, ni, rec->seq);
	r = touch_parent(st, rec->from_parent, rec, from_links);
	return r < 0 ? r : touch_parent(st, rec->parent, rec, to_links);
}

/* ---- FREE, FORGET */

int check_free(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r = find_record_node(st, rec, &ni);

	if (r < 0)
		return r;
	return ni->n.flags & (INODE_ORPHAN | INODE_FOREIGN) ? 0 : -EBUSY;
}

/* What the inode occupies: extents, private segment. */
static int free_data(struct state *st, struct node_item *ni, const struct record *rec)
{
	int r = pages_clear(st, ni, 0, UINT64_MAX, rec->seq, &st->meta.saved_bytes);

	if (r < 0 || !(ni->n.flags & INODE_PRIVATE))
		return r;
	st->meta.written_bytes += ni->n.size;
	st->meta.saved_bytes += ni->n.size;
	return segment_release_private(st, ni->n.private_segment, true, rec->seq);
}

/*
 * A directory that the names below it are found by stays, and a file whose backing file is still to be removed or replaced: what is
 * found under its name then must be known to be it.
 */
static bool must_stay(const struct node *n)
{
	return n->num_backing > 0 && (S_ISDIR(n->mode) || n->backing_ino);
}

int apply_free(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r;

	r = find_node(st, rec->ino, &ni);
	if (r < 0 || ni->n.freed)
		return r;
	r = free_data(st, ni, rec);
	if (r < 0)
		return r;
	if (!must_stay(&ni->n))
		return node_remove(st, ni);
	r = node_empty(st, ni); /* an orphan still, but nobody waits for it */
	if (r < 0)
		return r;
	ni->n.flags = INODE_ORPHAN;
	ni->n.freed = true;
	cache_dirty(&st->cache, &ni->it);
	return 0;
}

int check_forget(struct state *st, const struct record *rec)
{
	struct name_item *b;
	struct node_item *ni;
	int r;

	r = check_name_of(st, rec->parent, rec->name, rec->ino, &ni);
	if (r == 0)
		r = find_name(st, KEY_BACKING, rec->parent, rec->name, &b);
	if (r < 0)
		return r;
	if (!item_present(&b->it))
		return -ENOENT;
	if (ni->n.num_children)
		return -ENOTEMPTY;
	return ni->n.flags & (INODE_DIRTY_DATA | INODE_NEW | INODE_PRIVATE) ? -EBUSY : 0;
}

int apply_forget(struct state *st, const struct record *rec)
{
	struct node_item *ni, *dir;
	int r;

	r = find_node(st, rec->ino, &ni);
	if (r == 0)
		r = name_drop(st, rec->parent, rec->name, ni);
	if (r == 0)
		r = backing_drop(st, rec->parent, rec->name);
	if (r == 0)
		r = find_node(st, rec->parent, &dir);
	if (r < 0)
		return r;
	if (S_ISDIR(ni->n.mode)) {
		dir->n.nlink--;
		cache_dirty(&st->cache, &dir->it);
	}
	ni->n.nlink = S_ISDIR(ni->n.mode) || ni->n.nlink == 0 ? 0 : ni->n.nlink - 1;
	if (ni->n.nlink < ni->n.num_names)
		ni->n.nlink = ni->n.num_names;
	cache_dirty(&st->cache, &ni->it);
	if (ni->n.nlink)
		return 0;
	r = pages_clear(st, ni, 0, UINT64_MAX, rec->seq, &st->meta.saved_bytes);
	return r < 0 ? r : node_remove(st, ni);
}
