/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The index in memory.
 *
 * Finding is one hash look-up; a miss asks RocksDB and remembers the answer, also a "no". Order is needed only by
 * walks (listings, the pages of a file), so a changed item goes into the ordered tree when the next walk wants it, not
 * when it changes: the way of a write has no ordered structure on it. The tree is never taken from: between two
 * cache_write() items only become dirty, and after it the tree is empty.
 *
 * Nothing dirty reaches RocksDB but through cache_write(): what RocksDB holds is always a state that has been.
 */
#include "format/index/cache.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define FIRST_BUCKETS 1024
#define ITEM_OVERHEAD 24 /* of the allocator, and the bucket */
#define BATCH_BYTES   (4u << 20)

static size_t item_size(uint8_t kind)
{
	switch (kind) {
	case KEY_NAME:
	case KEY_BACKING: return sizeof(struct name_item);
	case KEY_INODE: return sizeof(struct node_item);
	case KEY_PAGE:
	case KEY_PART: return sizeof(struct page_item);
	case KEY_SEGMENT: return sizeof(struct segment_item);
	case KEY_COMMITS: return sizeof(struct commits_item);
	case KEY_WRITERS: return sizeof(struct writers_item);
	case KEY_SHARE: return sizeof(struct share_item);
	case KEY_SHARE_PAGE: return sizeof(struct share_page_item);
	case KEY_CONFLICTS: return sizeof(struct conflicts_item);
	default: return sizeof(struct blob_item);
	}
}

const uint8_t *item_key(const struct item *it)
{
	return (const uint8_t *)it + item_size(it->kind);
}

/* Memory that hangs from an item. */
static size_t owned_bytes(const struct item *it)
{
	switch (it->kind) {
	case KEY_INODE: return ((const struct node_item *)it)->n.origin_name ? 48 : 0;
	case KEY_PAGE:
	case KEY_PART: return ((const struct page_item *)it)->p.cap * sizeof(struct extent) + 16;
	case KEY_COMMITS: return commits_bytes(&((const struct commits_item *)it)->c);
	case KEY_WRITERS: return writers_bytes(&((const struct writers_item *)it)->w);
	case KEY_SHARE: return ((const struct share_item *)it)->h.cap_cuts * sizeof(struct share_cut) + 16;
	case KEY_SHARE_PAGE: return ((const struct share_page_item *)it)->p.cap * sizeof(struct share_extent) + 16;
	case KEY_CONFLICTS: return ((const struct conflicts_item *)it)->s.cap * sizeof(struct share_conflict) + 16;
	case KEY_XATTR:
	case KEY_TARGET: return ((const struct blob_item *)it)->len + 16;
	default: return 0;
	}
}

static void free_owned(struct item *it)
{
	switch (it->kind) {
	case KEY_INODE: node_free(&((struct node_item *)it)->n); break;
	case KEY_PAGE:
	case KEY_PART: extent_page_free(&((struct page_item *)it)->p); break;
	case KEY_COMMITS: commits_free(&((struct commits_item *)it)->c); break;
	case KEY_WRITERS: writers_free(&((struct writers_item *)it)->w); break;
	case KEY_SHARE: share_head_free(&((struct share_item *)it)->h); break;
	case KEY_SHARE_PAGE: share_page_free(&((struct share_page_item *)it)->p); break;
	case KEY_CONFLICTS: share_conflicts_free(&((struct conflicts_item *)it)->s); break;
	case KEY_XATTR:
	case KEY_TARGET:
	case KEY_ORPHAN:
		free(((struct blob_item *)it)->data);
		((struct blob_item *)it)->data = NULL;
		((struct blob_item *)it)->len = 0;
		break;
	default: break;
	}
}

static void account(struct cache *c, struct item *it)
{
	uint32_t bytes = (uint32_t)(item_size(it->kind) + it->key_len + ITEM_OVERHEAD + owned_bytes(it));

	c->bytes += (uint64_t)bytes - it->bytes;
	if (it->flags & ITEM_DIRTY)
		c->dirty_bytes += (uint64_t)bytes - it->bytes;
	it->bytes = bytes;
}

static uint32_t hash_of(const struct cache *c, const uint8_t *p, size_t len)
{
	uint64_t h = c->seed ^ len, v;

	for (; len >= 8; p += 8, len -= 8) {
		memcpy(&v, p, 8);
		h = (h ^ v) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 29;
	}
	v = 0;
	memcpy(&v, p, len);
	h = (h ^ v) * 0xbf58476d1ce4e5b9ull;
	h ^= h >> 32;
	h *= 0x94d049bb133111ebull;
	return (uint32_t)(h >> 32);
}

int cache_init(struct cache *c, struct db *db, uint64_t limit)
{
	*c = (struct cache){ .db = db, .limit = limit, .num_buckets = FIRST_BUCKETS };
	c->use.left = c->use.right = &c->use;
	if (getrandom(&c->seed, sizeof c->seed, GRND_NONBLOCK) < 0)
		c->seed = (uint64_t)(uintptr_t)c; /* only there to make collisions hard to aim at */
	c->buckets = calloc(c->num_buckets, sizeof(struct item *));
	return c->buckets ? 0 : -ENOMEM;
}

void cache_free(struct cache *c)
{
	for (size_t i = 0; c->buckets && i < c->num_buckets; i++) {
		for (struct item *it = c->buckets[i], *next; it; it = next) {
			next = it->chain;
			free_owned(it);
			free(it);
		}
	}
	free(c->buckets);
	buf_free(&c->scratch);
	*c = (struct cache){ 0 };
}

/* ---- list of use */

static void use_unlink(struct item *it)
{
	it->left->right = it->right;
	it->right->left = it->left;
}

static void use_first(struct cache *c, struct item *it)
{
	it->left = &c->use;
	it->right = c->use.right;
	c->use.right->left = it;
	c->use.right = it;
}

/* What has been removed is hardly asked for again: a number not at all. So it is the next to go. */
static void use_last(struct cache *c, struct item *it)
{
	it->right = &c->use;
	it->left = c->use.left;
	c->use.left->right = it;
	c->use.left = it;
}

/* ---- hash */

static void grow(struct cache *c)
{
	size_t num = c->num_buckets * 2;
	struct item **buckets = calloc(num, sizeof(struct item *));

	if (!buckets)
		return; /* longer chains, no harm */
	for (size_t i = 0; i < c->num_buckets; i++) {
		for (struct item *it = c->buckets[i], *next; it; it = next) {
			next = it->chain;
			it->chain = buckets[it->hash & (num - 1)];
			buckets[it->hash & (num - 1)] = it;
		}
	}
	free(c->buckets);
	c->buckets = buckets;
	c->num_buckets = num;
}

static int load(struct cache *c, const struct key *key, struct item *it)
{
	size_t len;
	char *val;
	int r;

	r = db_get(c->db, key->bytes, key->len, &val, &len);
	if (r == -ENOENT) {
		it->flags = ITEM_ABSENT | ITEM_NOT_IN_DB;
		return 0;
	}
	if (r < 0)
		return r;
	r = item_decode(it, val, len);
	free(val);
	return r;
}

static int add(struct cache *c, const struct key *key, uint32_t hash, bool known_absent, struct item **ret)
{
	size_t size = item_size(key->bytes[0]);
	struct item *it = calloc(1, size + key->len);
	int r;

	if (!it)
		return -ENOMEM;
	it->kind = key->bytes[0];
	it->hash = hash;
	it->key_len = key->len;
	memcpy((uint8_t *)it + size, key->bytes, key->len);
	if (known_absent)
		it->flags = ITEM_ABSENT | ITEM_NOT_IN_DB;
	r = known_absent ? 0 : load(c, key, it);
	if (r < 0) {
		free_owned(it);
		free(it);
		return r;
	}
	if (++c->num_items > c->num_buckets)
		grow(c);
	it->chain = c->buckets[hash & (c->num_buckets - 1)];
	c->buckets[hash & (c->num_buckets - 1)] = it;
	use_first(c, it);
	account(c, it);
	*ret = it;
	return 0;
}

int cache_find(struct cache *c, const struct key *key, bool known_absent, struct item **ret)
{
	uint32_t hash = hash_of(c, key->bytes, key->len);

	for (struct item *it = c->buckets[hash & (c->num_buckets - 1)]; it; it = it->chain) {
		if (it->hash != hash || it->key_len != key->len || memcmp(item_key(it), key->bytes, key->len) != 0)
			continue;
		if (!(it->flags & ITEM_DIRTY) && c->use.right != it) {
			use_unlink(it);
			use_first(c, it);
		}
		*ret = it;
		return 0;
	}
	return add(c, key, hash, known_absent, ret);
}

int cache_find_number(struct cache *c, enum key_kind kind, uint64_t number, bool known_absent, struct item **ret)
{
	struct key key;

	key_number(&key, kind, number);
	return cache_find(c, &key, known_absent, ret);
}

void cache_revive(struct item *it)
{
	assert(!item_present(it));
	memset((uint8_t *)it + sizeof *it, 0, item_size(it->kind) - sizeof *it);
	it->flags &= (uint8_t)~ITEM_ABSENT;
}

void cache_dirty(struct cache *c, struct item *it)
{
	if (!(it->flags & ITEM_DIRTY)) {
		use_unlink(it);
		it->left = it->right = NULL;
		it->next_dirty = c->dirty;
		c->dirty = it;
		c->num_dirty++;
		c->dirty_bytes += it->bytes;
		it->flags |= ITEM_DIRTY;
	}
	account(c, it);
}

void cache_remove(struct cache *c, struct item *it)
{
	free_owned(it);
	it->flags |= ITEM_ABSENT;
	cache_dirty(c, it);
}

static void drop(struct cache *c, struct item *it)
{
	struct item **at = &c->buckets[it->hash & (c->num_buckets - 1)];

	while (*at != it)
		at = &(*at)->chain;
	*at = it->chain;
	use_unlink(it);
	c->num_items--;
	c->bytes -= it->bytes;
	free_owned(it);
	free(it);
}

void cache_trim(struct cache *c)
{
	while (c->use.left != &c->use && (c->bytes - c->dirty_bytes > c->limit || !item_present(c->use.left)))
		drop(c, c->use.left);
}

/* ---- order */

static int compare(const struct item *it, const uint8_t *key, size_t len)
{
	int d = memcmp(item_key(it), key, it->key_len < len ? it->key_len : len);

	return d ? d : (it->key_len > len) - (it->key_len < len);
}

/* Sort the tree t into what is before it and what is behind: its children. */
static void split(struct item *t, struct item *it)
{
	struct item **left = &it->left, **right = &it->right;

	while (t) {
		if (compare(t, item_key(it), it->key_len) < 0) {
			*left = t;
			left = &t->right;
			t = t->right;
		} else {
			*right = t;
			right = &t->left;
			t = t->left;
		}
	}
	*left = *right = NULL;
}

static void insert(struct cache *c, struct item *it)
{
	struct item **at = &c->root;

	while (*at && (*at)->hash >= it->hash)
		at = compare(*at, item_key(it), it->key_len) < 0 ? &(*at)->right : &(*at)->left;
	split(*at, it);
	*at = it;
}

void cache_sort(struct cache *c)
{
	for (struct item *it = c->dirty; it != c->sorted_to; it = it->next_dirty)
		insert(c, it);
	c->sorted_to = c->dirty;
}

struct item *cache_next_dirty(struct cache *c, const uint8_t *key, size_t len, bool or_equal)
{
	struct item *t = c->root, *best = NULL;

	while (t) {
		int d = compare(t, key, len);

		if (d > 0 || (d == 0 && or_equal)) {
			best = t;
			t = t->left;
		} else {
			t = t->right;
		}
	}
	return best;
}

/* ---- to RocksDB */

static int write_item(struct cache *c, struct item *it, struct db_batch *b)
{
	int r;

	if (!item_present(it)) {
		if (!(it->flags & ITEM_NOT_IN_DB))
			db_batch_delete(b, item_key(it), it->key_len);
		return 0;
	}
	buf_reset(&c->scratch);
	r = item_encode(it, &c->scratch);
	if (r < 0)
		return r;
	db_batch_put(b, item_key(it), it->key_len, c->scratch.data, c->scratch.len);
	return 0;
}

static void all_clean(struct cache *c)
{
	for (struct item *it = c->dirty, *next; it; it = next) {
		next = it->next_dirty;
		it->next_dirty = NULL;
		it->flags &= (uint8_t) ~(ITEM_DIRTY | ITEM_NOT_IN_DB);
		if (item_present(it)) {
			use_first(c, it);
			continue;
		}
		it->flags |= ITEM_NOT_IN_DB;
		use_last(c, it);
	}
	c->dirty = c->sorted_to = c->root = NULL;
	c->num_dirty = 0;
	c->dirty_bytes = 0;
}

/* What an item's key begins with, kept beside it, so that sorting seldom looks at the key itself. */
struct order {
	uint64_t id, tail;
	struct item *it;
};

static struct order order_of(struct item *it)
{
	const uint8_t *key = item_key(it);
	struct order o = { .it = it };
	size_t rest = it->key_len > 9 ? it->key_len - 9u : 0;

	memcpy(&o.id, key + 1, it->key_len > 9 ? 8 : it->key_len - 1u);
	memcpy(&o.tail, key + 9, rest < 8 ? rest : 8);
	o.id = be64toh(o.id);
	o.tail = be64toh(o.tail);
	return o;
}

static int by_key(const void *left, const void *right)
{
	const struct order *a = left, *b = right;

	if (a->it->kind != b->it->kind)
		return a->it->kind < b->it->kind ? -1 : 1;
	if (a->id != b->id)
		return a->id < b->id ? -1 : 1;
	if (a->tail != b->tail)
		return a->tail < b->tail ? -1 : 1;
	return compare(a->it, item_key(b->it), b->it->key_len);
}

static struct order *sorted_dirty(const struct cache *c)
{
	struct order *order = malloc((c->num_dirty + 1) * sizeof *order);
	size_t num = 0;

	if (!order)
		return NULL;
	for (struct item *it = c->dirty; it; it = it->next_dirty)
		order[num++] = order_of(it);
	qsort(order, num, sizeof *order, by_key);
	return order;
}

/* In the order of keys: RocksDB's memtable takes that several times faster than any other. */
static int write_dirty(struct cache *c, struct db_batch *b, bool atomic, struct cistern_error *err)
{
	struct order *order = sorted_dirty(c);
	int r = order ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < c->num_dirty; i++) {
		r = write_item(c, order[i].it, b);
		if (r == 0 && !atomic && db_batch_bytes(b) > BATCH_BYTES) {
			r = db_write(c->db, b, err);
			db_batch_clear(b);
		}
	}
	free(order);
	return r;
}

int cache_write(struct cache *c, bool atomic, int (*add_more)(struct db_batch *b, void *arg), void *arg,
	struct cistern_error *err)
{
	struct db_batch *b;
	int r;

	r = db_batch_create(&b);
	if (r < 0)
		return r;
	r = write_dirty(c, b, atomic, err);
	if (r == 0 && add_more)
		r = add_more(b, arg);
	if (r == 0)
		r = db_write(c->db, b, err);
	db_batch_destroy(b);
	if (r == 0)
		all_clean(c);
	return r;
}
