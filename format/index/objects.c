/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The objects of the state and the counts that hang from them: nodes, names, backing names, small values, segments.
 * Each function keeps one thing true: totals count what is there; num_names, num_children, num_backing and num_xattrs
 * of a node count its keys; an ORPHAN key stands for each inode without names that RECORD_FREE has not reached;
 * origin is one of a node's backing names, or none when it has none.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DIRTY_FLAGS (INODE_DIRTY_DATA | INODE_DIRTY_META | INODE_DIRTY_XATTR | INODE_NEW)

/* ---- finding */

static bool in_next_range(const struct state *st, uint64_t ino)
{
	return ino >> STATE_INO_RANGE_SHIFT == st->meta.next_ino >> STATE_INO_RANGE_SHIFT;
}

static int find_node_item(struct state *st, uint64_t ino, struct node_item **ret)
{
	bool never_used = in_next_range(st, ino) && ino >= st->meta.next_ino && ino != STATE_ROOT_INO;
	struct item *it;
	int r = cache_find_number(&st->cache, KEY_INODE, ino, never_used, &it);

	if (r < 0)
		return r;
	*ret = (struct node_item *)it;
	return 0;
}

int find_any_node(struct state *st, uint64_t ino, struct node_item **ret)
{
	struct node_item *ni;
	int r;

	r = find_node_item(st, ino, &ni);
	if (r < 0)
		return r;
	if (!item_present(&ni->it))
		return -ENOENT;
	*ret = ni;
	return 0;
}

int find_node(struct state *st, uint64_t ino, struct node_item **ret)
{
	struct node_item *ni;
	int r = find_any_node(st, ino, &ni);

	if (r < 0)
		return r;
	if (node_is_remembered(&ni->n))
		return -ENOENT;
	*ret = ni;
	return 0;
}

int find_record_node(struct state *st, const struct record *rec, struct node_item **ret)
{
	int r = find_node(st, rec->ino, ret);

	if (r == 0 && rec->gen && (*ret)->n.gen != rec->gen)
		return -ESTALE;
	return r;
}

int find_own_node(struct state *st, const struct record *rec, struct node_item **ret)
{
	int r = find_record_node(st, rec, ret);

	return r == 0 && (*ret)->n.flags & INODE_FOREIGN ? -EINVAL : r;
}

int find_file(struct state *st, const struct record *rec, struct node_item **ret)
{
	int r = find_record_node(st, rec, ret);

	if (r < 0 || S_ISREG((*ret)->n.mode))
		return r;
	return S_ISDIR((*ret)->n.mode) ? -EISDIR : -EINVAL;
}

int find_dir(struct state *st, uint64_t ino, struct node_item **ret)
{
	int r = find_node(st, ino, ret);

	if (r < 0)
		return r;
	if (!S_ISDIR((*ret)->n.mode))
		return -ENOTDIR;
	return (*ret)->n.flags & INODE_ORPHAN ? -ENOENT : 0;
}

int find_name(struct state *st, enum key_kind kind, uint64_t parent, const char *name, struct name_item **ret)
{
	struct node_item *dir;
	bool known_absent;
	struct item *it;
	struct key key;
	int r;

	r = kind == KEY_NAME ? find_node(st, parent, &dir) : -ENOENT;
	if (r < 0 && r != -ENOENT)
		return r;
	known_absent = r == 0 && dir->n.num_children == 0;
	key_name(&key, kind, parent, name, strlen(name));
	r = cache_find(&st->cache, &key, known_absent, &it);
	if (r < 0)
		return r;
	*ret = (struct name_item *)it;
	return 0;
}

int find_blob(struct state *st, const struct key *key, struct blob_item **ret)
{
	struct item *it;
	int r = cache_find(&st->cache, key, false, &it);

	if (r < 0)
		return r;
	*ret = (struct blob_item *)it;
	return 0;
}

int check_component(const char *name)
{
	size_t len = strnlen(name, RECORD_NAME_MAX + 1);

	if (len > RECORD_NAME_MAX)
		return -ENAMETOOLONG;
	if (len == 0 || memchr(name, '/', len) || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -EINVAL;
	return 0;
}

/* ---- nodes */

/* The flag and the key go together: who becomes an orphan has no key yet, and RocksDB need not be asked for it. */
static int orphan_key(struct state *st, uint64_t ino, bool present)
{
	struct item *it;
	int r = cache_find_number(&st->cache, KEY_ORPHAN, ino, present, &it);

	if (r < 0 || item_present(it) == present)
		return r;
	if (!present) {
		cache_remove(&st->cache, it);
		return 0;
	}
	cache_revive(it);
	cache_dirty(&st->cache, it);
	return 0;
}

int node_set_flags(struct state *st, struct node_item *ni, uint32_t flags)
{
	uint32_t old = ni->n.flags;
	int r = 0;

	/* Of a foreign one its home knows what the backing file has not; a special one has none, and never will. */
	if (flags & INODE_FOREIGN || inode_is_special(ni->n.mode))
		flags &= ~(uint32_t)DIRTY_FLAGS;
	if (old == flags)
		return 0;
	st->meta.dirty_files += (uint64_t) !!(flags & DIRTY_FLAGS) - !!(old & DIRTY_FLAGS);
	st->meta.private_files += (uint64_t) !!(flags & INODE_PRIVATE) - !!(old & INODE_PRIVATE);
	if ((old ^ flags) & INODE_ORPHAN)
		r = orphan_key(st, ni->n.ino, flags & INODE_ORPHAN);
	ni->n.flags = flags;
	cache_dirty(&st->cache, &ni->it);
	return r;
}

void node_changed(struct state *st, struct node_item *ni, uint64_t seq)
{
	ni->n.version = seq;
	cache_dirty(&st->cache, &ni->it);
}

/*
 * Numbers count up from the highest one created. A foreign one is of another node's range, and says nothing; but where this
 * node has created none in its own range yet, next_ino is still in node 0's, and stays behind all that is in there.
 */
static void note_ino(struct state *st, const struct record *rec)
{
	if (rec->ino & STATE_BACKING_INO_BIT || rec->ino < st->meta.next_ino)
		return;
	if (rec->type != RECORD_FOREIGN || in_next_range(st, rec->ino))
		st->meta.next_ino = rec->ino + 1;
}

int node_create(struct state *st, const struct record *rec, struct node_item **ret)
{
	struct node_item *ni;
	int r;

	uint32_t num_backing = 0;

	r = find_node_item(st, rec->ino, &ni);
	if (r == 0 &&
		item_present(&ni->it)) { /* it is only remembered; the backing file system gives its number again */
		num_backing = ni->n.num_backing;
		r = node_remove(st, ni);
	}
	if (r < 0)
		return r;
	cache_revive(&ni->it);
	if (inode_is_special(rec->mode)) {
		ni->n.dev_major = rec->trailer ? rec->trailer->dev_major : 0;
		ni->n.dev_minor = rec->trailer ? rec->trailer->dev_minor : 0;
		st->meta.special = true;
	}
	ni->n.num_backing = num_backing;
	ni->n.ino = rec->ino;
	ni->n.gen = rec->gen;
	ni->n.mode = rec->mode;
	ni->n.uid = rec->uid;
	ni->n.gid = rec->gid;
	ni->n.version = ni->n.data_version = rec->seq;
	st->meta.inodes++;
	note_ino(st, rec);
	cache_dirty(&st->cache, &ni->it);
	*ret = ni;
	return 0;
}

static int target_drop(struct state *st, const struct node_item *ni)
{
	struct blob_item *b;
	struct key key;
	int r;

	if (!S_ISLNK(ni->n.mode))
		return 0;
	key_number(&key, KEY_TARGET, ni->n.ino);
	r = find_blob(st, &key, &b);
	if (r == 0 && item_present(&b->it))
		cache_remove(&st->cache, &b->it);
	return r;
}

int node_empty(struct state *st, struct node_item *ni)
{
	int r = xattrs_drop(st, ni);

	if (r == 0)
		r = target_drop(st, ni);
	if (r == 0)
		r = layer_drop(st, ni);
	if (r == 0)
		r = writers_drop(st, ni);
	return r < 0 ? r : node_set_flags(st, ni, 0);
}

int node_remove(struct state *st, struct node_item *ni)
{
	int r = node_empty(st, ni);

	if (r < 0)
		return r;
	st->meta.inodes--;
	cache_remove(&st->cache, &ni->it);
	return 0;
}

/* ---- names */

/* The name, which may not be there, and its directory. */
static int find_name_in(
	struct state *st, uint64_t parent, const char *name, struct node_item **ret_dir, struct name_item **ret)
{
	int r = find_node(st, parent, ret_dir);

	return r < 0 ? r : find_name(st, KEY_NAME, parent, name, ret);
}

/* One name more or less (-1) of ni in dir. */
static void count_name(struct state *st, struct node_item *dir, struct node_item *ni, int change)
{
	st->meta.names += (uint64_t)change;
	dir->n.num_children += (uint64_t)change;
	ni->n.num_names += (uint32_t)change;
	cache_dirty(&st->cache, &dir->it);
	cache_dirty(&st->cache, &ni->it);
}

int name_add(struct state *st, uint64_t parent, const char *name, struct node_item *ni, uint64_t stamp)
{
	struct name_item *d;
	struct node_item *dir;
	int r = find_name_in(st, parent, name, &dir, &d);

	if (r < 0)
		return r;
	if (!item_present(&d->it))
		cache_revive(&d->it);
	d->ino = ni->n.ino;
	d->stamp = stamp;
	d->type = ni->n.mode & S_IFMT;
	cache_dirty(&st->cache, &d->it);
	count_name(st, dir, ni, 1);
	return 0;
}

int name_drop(struct state *st, uint64_t parent, const char *name, struct node_item *ni)
{
	struct name_item *d;
	struct node_item *dir;
	int r = find_name_in(st, parent, name, &dir, &d);

	if (r < 0)
		return r;
	cache_remove(&st->cache, &d->it);
	count_name(st, dir, ni, -1);
	return 0;
}

/* ---- backing names */

/* Another backing name of ino, by looking at all: only for inodes that are known to have one. */
static int find_other_origin(struct state *st, struct node_item *ni)
{
	struct merge_entry e;
	struct key prefix;
	struct merge m;
	int r, end;

	key_kind(&prefix, KEY_BACKING);
	r = merge_begin(&m, &st->cache, &prefix, NULL);
	if (r < 0)
		return r;
	while ((r = merge_next(&m, &e)) > 0) {
		const struct name_item *b = (const struct name_item *)e.item;
		struct key_parts parts = { 0 };
		struct name_value v = { .ino = b ? b->ino : 0 };

		r = key_parse(e.key, e.key_len, &parts);
		if (r == 0 && !b)
			r = name_decode(e.val, e.val_len, &v);
		if (r == 0 && v.ino == ni->n.ino)
			r = node_set_origin(&ni->n, parts.id, parts.name, parts.name_len);
		if (r < 0 || v.ino == ni->n.ino)
			break;
	}
	end = merge_end(&m);
	return r < 0 ? r : end;
}

/* ino's backing name (parent, name) is no longer its own (and the key is gone or changed already). */
static int backing_lost(struct state *st, uint64_t ino, uint64_t parent, const char *name)
{
	struct node_item *ni;
	int r;

	r = find_any_node(st, ino, &ni);
	if (r < 0)
		return r == -ENOENT ? 0 : r; /* gone before its backing name */
	ni->n.num_backing--;
	if (ni->n.origin_name && ni->n.origin_parent == parent && strcmp(ni->n.origin_name, name) == 0) {
		node_set_origin(&ni->n, 0, "", 0);
		r = ni->n.num_backing ? find_other_origin(st, ni) : 0;
		if (r < 0)
			return r;
	}
	cache_dirty(&st->cache, &ni->it);
	if (ni->n.num_backing == 0 && ni->n.freed)
		return node_remove(st, ni);
	return 0;
}

int backing_set(struct state *st, uint64_t parent, const char *name, uint64_t ino, uint32_t type)
{
	struct name_item *b;
	struct node_item *ni;
	uint64_t former = 0;
	int r;

	r = find_name(st, KEY_BACKING, parent, name, &b);
	if (r < 0)
		return r;
	if (item_present(&b->it))
		former = b->ino;
	else
		cache_revive(&b->it);
	b->ino = ino;
	b->type = type;
	cache_dirty(&st->cache, &b->it);
	if (former == ino)
		return 0;
	r = former ? backing_lost(st, former, parent, name) : 0;
	if (r < 0)
		return r;
	r = find_any_node(st, ino, &ni);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	ni->n.num_backing++;
	cache_dirty(&st->cache, &ni->it);
	return 0;
}

int backing_drop(struct state *st, uint64_t parent, const char *name)
{
	struct name_item *b;
	uint64_t ino;
	int r;

	r = find_name(st, KEY_BACKING, parent, name, &b);
	if (r < 0 || !item_present(&b->it))
		return r;
	ino = b->ino;
	cache_remove(&st->cache, &b->it);
	return backing_lost(st, ino, parent, name);
}

/* ---- small values */

int blob_put(struct state *st, const struct key *key, const void *data, size_t len)
{
	struct blob_item *b;
	uint8_t *copy;
	int r;

	r = find_blob(st, key, &b);
	if (r < 0)
		return r;
	copy = malloc(len + 1);
	if (!copy)
		return -ENOMEM;
	if (len)
		memcpy(copy, data, len);
	copy[len] = 0;
	if (!item_present(&b->it))
		cache_revive(&b->it);
	free(b->data);
	b->data = copy;
	b->len = (uint32_t)len;
	cache_dirty(&st->cache, &b->it);
	return 0;
}

/* The first key with this prefix; 1, 0 when there is none. */
static int first_key(struct state *st, const struct key *prefix, struct key *ret)
{
	struct merge_entry e;
	struct merge m;
	int r, end;

	r = merge_begin(&m, &st->cache, prefix, NULL);
	if (r < 0)
		return r;
	r = merge_next(&m, &e);
	if (r > 0) {
		memcpy(ret->bytes, e.key, e.key_len);
		ret->len = (uint16_t)e.key_len;
	}
	end = merge_end(&m);
	return end < 0 ? end : r;
}

int xattrs_drop(struct state *st, struct node_item *ni)
{
	struct key prefix, key;
	struct blob_item *b;
	int r;

	key_number(&prefix, KEY_XATTR, ni->n.ino);
	while (ni->n.num_xattrs) {
		r = first_key(st, &prefix, &key);
		if (r == 0)
			return -EBADMSG; /* fewer than counted */
		if (r > 0)
			r = find_blob(st, &key, &b);
		if (r < 0)
			return r;
		cache_remove(&st->cache, &b->it);
		ni->n.num_xattrs--;
	}
	cache_dirty(&st->cache, &ni->it);
	return 0;
}

/* ---- segments */

int find_segment(struct state *st, uint32_t segment, struct segment_item **ret)
{
	struct item *it;
	int r = cache_find_number(&st->cache, KEY_SEGMENT, segment, false, &it);

	if (r < 0)
		return r;
	*ret = (struct segment_item *)it;
	return 0;
}

int segment_use_private(struct state *st, uint32_t segment)
{
	struct segment_item *s;
	int r;

	r = find_segment(st, segment, &s);
	if (r < 0)
		return r;
	if (!item_present(&s->it))
		cache_revive(&s->it);
	s->is_private = true;
	cache_dirty(&st->cache, &s->it);
	return 0;
}

int segment_release_private(struct state *st, uint32_t segment, bool freed, uint64_t seq)
{
	struct segment_item *s;
	int r;

	r = find_segment(st, segment, &s);
	if (r < 0)
		return r;
	if (item_present(&s->it)) {
		s->is_private = false;
		if (s->live == 0)
			cache_remove(&st->cache, &s->it);
		else
			cache_dirty(&st->cache, &s->it);
	}
	if (freed && st->tell_freed)
		st->opt.freed(segment, 0, UINT64_MAX, seq, st->opt.freed_arg);
	return 0;
}
