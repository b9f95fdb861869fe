/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Records of the drain: what now is in the backing directory. They raise no version, so that a later look can tell what
 * has changed since the drain's snapshot. An inode may have been freed while the drain carried it: its backing
 * name is recorded all the same, so that it will be removed.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* ---- PLACED */

int check_placed(struct state *st, const struct record *rec)
{
	struct node_item *dir, *ni;
	int r;

	r = check_component(rec->name);
	if (r == 0 && rec->flags & RECORD_F_MOVED)
		r = check_component(rec->from_name);
	if (r < 0)
		return r;
	if (rec->ino == 0 || rec->ino == STATE_ROOT_INO)
		return -EINVAL;
	r = find_node(st, rec->ino, &ni);
	if (r == 0 && ni->n.flags & INODE_FOREIGN)
		return -EINVAL;
	r = find_node(st, rec->parent, &dir);
	return r == 0 && !S_ISDIR(dir->n.mode) ? -ENOTDIR : r;
}

static bool origin_is(const struct node *n, uint64_t parent, const char *name)
{
	return n->origin_name && n->origin_parent == parent && strcmp(n->origin_name, name) == 0;
}

static int drop_from(struct state *st, const struct record *rec)
{
	struct name_item *b;
	int r;

	if (!(rec->flags & RECORD_F_MOVED) ||
		(rec->from_parent == rec->parent && strcmp(rec->from_name, rec->name) == 0))
		return 0;
	r = find_name(st, KEY_BACKING, rec->from_parent, rec->from_name, &b);
	if (r < 0 || !item_present(&b->it) || b->ino != rec->ino)
		return r;
	return backing_drop(st, rec->from_parent, rec->from_name);
}

/* An inode that was freed before its backing file had the name: which one that is is remembered until the name goes. */
static int remember(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r = rec->backing_ino ? find_any_node(st, rec->ino, &ni) : 0;

	if (r == -ENOENT) {
		r = node_create(st, rec, &ni);
		if (r == 0) {
			ni->n.mode = S_IFREG; /* or a symbolic link: it does not matter any more */
			ni->n.flags = INODE_ORPHAN;
			ni->n.freed = true;
			ni->n.backing_dev = rec->backing_dev;
			ni->n.backing_ino = rec->backing_ino;
		}
	}
	return r;
}

int apply_placed(struct state *st, const struct record *rec)
{
	struct node_item *ni = NULL;
	bool to_origin = false;
	int r;

	r = find_node(st, rec->ino, &ni);
	if (r == -ENOENT) {
		ni = NULL;
		r = remember(st, rec);
	}
	if (r < 0)
		return r;
	if (ni)
		to_origin = !ni->n.origin_name || ni->n.flags & INODE_UNPUBLISHED ||
			    (rec->flags & RECORD_F_MOVED && origin_is(&ni->n, rec->from_parent, rec->from_name));
	/* The new one first: without any a freed directory would go, and another origin would be searched for. */
	r = backing_set(st, rec->parent, rec->name, rec->ino, ni ? ni->n.mode & S_IFMT : rec->mode & S_IFMT);
	if (r == 0 && to_origin)
		r = node_set_origin(&ni->n, rec->parent, rec->name, strlen(rec->name));
	if (r == 0)
		r = drop_from(st, rec);
	if (r < 0 || !ni)
		return r;
	if (rec->backing_ino) {
		ni->n.backing_dev = rec->backing_dev;
		ni->n.backing_ino = rec->backing_ino;
	}
	cache_dirty(&st->cache, &ni->it);
	return node_set_flags(st, ni,
		(ni->n.flags & ~(uint32_t)(INODE_NEW | INODE_UNPUBLISHED)) |
			(rec->flags & RECORD_F_UNPUBLISHED ? INODE_UNPUBLISHED : 0));
}

/* ---- REMOVED */

int check_removed(struct state *st, const struct record *rec)
{
	struct name_item *b;
	int r;

	r = check_component(rec->name);
	if (r == 0)
		r = find_name(st, KEY_BACKING, rec->parent, rec->name, &b);
	if (r < 0)
		return r;
	return item_present(&b->it) ? 0 : -ENOENT;
}

int apply_removed(struct state *st, const struct record *rec)
{
	return backing_drop(st, rec->parent, rec->name);
}

/* ---- DRAINED */

int check_drained(struct state *st, const struct record *rec)
{
	struct node_item *ni;

	return rec->size > INT64_MAX ? -EINVAL : find_record_node(st, rec, &ni);
}

static int private_drained(struct state *st, struct node_item *ni, const struct record *rec)
{
	int r = segment_release_private(st, ni->n.private_segment, true, rec->seq);

	if (r < 0)
		return r;
	st->meta.written_bytes += rec->size;
	st->meta.drained_bytes += rec->size;
	ni->n.private_segment = 0;
	ni->n.size = rec->size;
	ni->n.mtime_ns = rec->mtime_ns;
	return node_set_flags(st, ni, ni->n.flags & ~(uint32_t)INODE_PRIVATE);
}

/* The backing file holds all of the file. */
static int wholly_drained(struct state *st, struct node_item *ni, const struct record *rec)
{
	int r;

	if (ni->n.flags & INODE_PRIVATE)
		r = private_drained(st, ni, rec);
	else
		r = pages_clear(st, ni, 0, UINT64_MAX, rec->seq, &st->meta.drained_bytes);
	if (r < 0)
		return r;
	r = writers_drop(st, ni);
	if (r < 0)
		return r;
	ni->n.backing_limit = rec->size < ni->n.size ? rec->size : ni->n.size;
	st->meta.drained_files++;
	return node_set_flags(st, ni, ni->n.flags & ~(uint32_t)INODE_DIRTY_DATA);
}

/*
 * All that any node had committed up to the stamp is in the backing file, and leaves maps and layers: there it is found from now on.
 * What was cut off since is not.
 */
static int shared_drained(struct state *st, struct node_item *ni, const struct record *rec)
{
	uint64_t limit = rec->size < ni->n.size ? rec->size : ni->n.size, kept = UINT64_MAX;
	struct share_item *si;
	int r = find_share(st, ni->n.ino, &si);

	if (r == 0 && item_present(&si->it))
		kept = share_head_limit(&si->h, rec->stamp);
	limit = limit < kept ? limit : kept;
	if (r == 0 && ni->n.backing_limit < limit)
		ni->n.backing_limit = limit;
	return r;
}

/* At a shared file's home, as is its limit: what others keep of it, and have not heard this yet, is not needed any more (docs/design/power-loss.md). */
static int note_drained(struct state *st, const struct node_item *ni, const struct record *rec)
{
	if (!rec->stamp || !(rec->flags & RECORD_F_TIMED) ||
		(ni->n.flags & (INODE_SHARED | INODE_FOREIGN)) != INODE_SHARED)
		return 0;
	return share_note_drained(st, ni->n.ino, rec->stamp, rec->drop_usec);
}

static int data_drained(struct state *st, struct node_item *ni, const struct record *rec)
{
	int r = 0;

	if (ni->n.flags & INODE_PRIVATE && (rec->flags & RECORD_F_KEEP_PRIVATE || ni->n.data_version > rec->upto))
		return 0;
	r = note_drained(st, ni, rec);
	if (r < 0)
		return r;
	if (ni->n.data_version <= rec->upto && !(ni->n.flags & INODE_FOREIGN))
		return wholly_drained(st, ni, rec);
	if (rec->stamp && (ni->n.flags & (INODE_SHARED | INODE_FOREIGN)) == INODE_SHARED)
		r = shared_drained(st, ni, rec);
	return r < 0 ? r : pages_drained(st, ni, rec->upto, rec->seq);
}

static int attributes_drained(struct state *st, struct node_item *ni)
{
	int r = ni->n.flags & INODE_NEW ? 0 : xattrs_drop(st, ni);

	return r < 0 ? r : node_set_flags(st, ni, ni->n.flags & ~(uint32_t)(INODE_DIRTY_META | INODE_DIRTY_XATTR));
}

int apply_drained(struct state *st, const struct record *rec)
{
	struct node_item *ni;
	int r;

	r = find_node(st, rec->ino, &ni);
	if (r == 0 && !(rec->flags & RECORD_F_META_ONLY) && S_ISREG(ni->n.mode))
		r = data_drained(st, ni, rec);
	if (r == 0 && ni->n.version <= rec->upto)
		r = attributes_drained(st, ni);
	if (r < 0)
		return r;
	if (rec->backing_ino) {
		ni->n.backing_dev = rec->backing_dev;
		ni->n.backing_ino = rec->backing_ino;
	}
	cache_dirty(&st->cache, &ni->it);
	return 0;
}
