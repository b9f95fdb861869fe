/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_INDEX_CACHE_H
#define FORMAT_INDEX_CACHE_H

/*
 * The index in memory: items, decoded, over the keys and values of RocksDB. Changed ones are kept until the next
 * cache_write(); unchanged ones are given up, least recently used first, at cache_trim(), and only there: item pointers
 * are good until then. The knowledge that a key does not exist goes when nothing was used less recently, and that of a key
 * that was removed when it is written.
 *
 * Not thread-safe: the state's lock is held.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/base/cursor.h"
#include "format/index/commits.h"
#include "format/index/db.h"
#include "format/index/extent.h"
#include "format/index/inode.h"
#include "format/index/key.h"
#include "format/index/share.h"
#include "format/index/writers.h"

enum item_flag {
	ITEM_DIRTY = 1,
	ITEM_ABSENT = 2,    /* the state has no such key */
	ITEM_NOT_IN_DB = 4, /* nor has RocksDB: nothing to delete there */
};

struct item {
	struct item *chain;        /* of its hash bucket */
	struct item *left, *right; /* dirty: children in the tree; clean: newer and older in the list of use */
	struct item *next_dirty;
	uint32_t hash;
	uint32_t bytes; /* as accounted */
	uint16_t key_len;
	uint8_t kind, flags;
};

/* The kinds of items; the key follows each. */
struct name_item { /* KEY_NAME, KEY_BACKING */
	struct item it;
	uint64_t ino;
	uint64_t stamp; /* KEY_NAME: 0: none */
	uint32_t type;  /* S_IFMT bits */
};
struct node_item { /* KEY_INODE */
	struct item it;
	struct node n;
};
struct page_item { /* KEY_PAGE, KEY_PART */
	struct item it;
	struct extent_page p; /* empty when it is kept in parts */
	uint64_t parts;       /* KEY_PAGE: bit i: there is a part i; 0: it is not kept in parts */
	uint32_t total;       /* KEY_PAGE in parts: extents in all of them */
};
#define PAGE_PARTS 64
struct segment_item { /* KEY_SEGMENT */
	struct item it;
	uint64_t live;   /* bytes of LOG extents */
	bool is_private; /* it is some inode's private segment */
};
struct commits_item { /* KEY_COMMITS */
	struct item it;
	struct commits c;
};
struct writers_item { /* KEY_WRITERS */
	struct item it;
	struct writers w;
};
struct share_item { /* KEY_SHARE */
	struct item it;
	struct share_head h;
};
struct share_page_item { /* KEY_SHARE_PAGE */
	struct item it;
	struct share_page p;
};
struct conflicts_item { /* KEY_CONFLICTS */
	struct item it;
	struct share_conflicts s;
};
struct blob_item { /* KEY_XATTR, KEY_TARGET, KEY_ORPHAN */
	struct item it;
	uint8_t *data; /* owned */
	uint32_t len;
};

struct cache {
	struct db *db; /* borrowed */
	struct item **buckets;
	size_t num_buckets, num_items;
	uint64_t seed;
	struct item *dirty;     /* all dirty ones, the newest first */
	struct item *sorted_to; /* from this one on they are in the tree */
	struct item *root;      /* tree of dirty items by key: a treap, the hash is the priority */
	struct item use;        /* head of the list of clean items: right = most recently used */
	size_t num_dirty;
	uint64_t bytes, dirty_bytes;
	uint64_t limit; /* bytes of clean items that cache_trim() leaves */
	struct buf scratch;
};

int cache_init(struct cache *c, struct db *db, uint64_t limit);
void cache_free(struct cache *c);
const uint8_t *item_key(const struct item *it);
static inline bool item_present(const struct item *it)
{
	return !(it->flags & ITEM_ABSENT);
}

/*
 * The item of a key, perhaps one that says it is absent. known_absent: the caller knows that neither memory nor RocksDB
 * can have it unless it is in memory; saves the question. 0, -ENOMEM, -EBADMSG, -EIO.
 */
int cache_find(struct cache *c, const struct key *key, bool known_absent, struct item **ret);
int cache_find_number(struct cache *c, enum key_kind kind, uint64_t number, bool known_absent,
	struct item **ret);                          /* of key_number() */
void cache_revive(struct item *it);                  /* an absent one becomes present, all zero; then cache_dirty() */
void cache_dirty(struct cache *c, struct item *it);  /* after every change */
void cache_remove(struct cache *c, struct item *it); /* becomes absent */
void cache_trim(struct cache *c);
void cache_sort(struct cache *c); /* every dirty item is in the tree */
struct item *cache_next_dirty(struct cache *c, const uint8_t *key, size_t len, bool or_equal); /* in order of keys */

/*
 * Everything dirty to RocksDB, and what add() puts besides; clean afterwards. atomic: as one batch; else in several, and
 * add()'s are in the last. On failure all stays dirty. Not on the device before db_flush().
 */
int cache_write(
	struct cache *c, bool atomic, int (*add)(struct db_batch *b, void *arg), void *arg, struct cistern_error *err);

/* Values. */
int item_encode(const struct item *it, struct buf *out);
int item_decode(struct item *it, const void *val, size_t len); /* into a zeroed, present item. -EBADMSG, -ENOMEM */
struct name_value {
	uint64_t ino, stamp;
	uint32_t type;
};
int name_decode(const void *val, size_t len, struct name_value *ret);
int segment_decode(const void *val, size_t len, uint64_t *ret_live, bool *ret_private);

/* A walk in the order of keys over memory and RocksDB as one. Between begin and end nothing may be changed or found. */
struct merge {
	struct cache *c;
	struct db_walk *walk;
	struct key prefix, last;
	bool or_equal;
};
struct merge_entry {
	const uint8_t *key;
	size_t key_len;
	const struct item *item; /* of memory, or NULL: then the value as in RocksDB */
	const void *val;
	size_t val_len;
};
int merge_begin(struct merge *m, struct cache *c, const struct key *prefix,
	const struct key *after);                         /* after: excluded, or NULL */
int merge_next(struct merge *m, struct merge_entry *ret); /* 1, 0 at the end, -errno; valid until the next call */
int merge_end(struct merge *m);

#endif
