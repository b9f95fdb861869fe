/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Memory and RocksDB as one ordered whole: at each step the smaller of the two next keys; memory wins where both have
 * one, and hides it where it says "absent". Clean items need no look: RocksDB says the same.
 */
#include "format/index/cache.h"

#include <string.h>

int merge_begin(struct merge *m, struct cache *c, const struct key *prefix, const struct key *after)
{
	*m = (struct merge){ .c = c, .prefix = *prefix, .last = after ? *after : *prefix, .or_equal = !after };
	cache_sort(c);
	return db_walk_begin(c->db, prefix->bytes, prefix->len, m->last.bytes, m->last.len, true, &m->walk);
}

static int compare(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
	int d = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return d ? d : (a_len > b_len) - (a_len < b_len);
}

/* RocksDB's next key behind the last one; NULL at the end. */
static const uint8_t *next_in_db(struct merge *m, size_t *ret_len)
{
	while (db_walk_valid(m->walk)) {
		const uint8_t *key = db_walk_key(m->walk, ret_len);
		int d = compare(key, *ret_len, m->last.bytes, m->last.len);

		if (d > 0 || (d == 0 && m->or_equal))
			return *ret_len <= KEY_MAX ? key : NULL;
		db_walk_next(m->walk);
	}
	return NULL;
}

static const struct item *next_in_memory(struct merge *m)
{
	const struct item *it = cache_next_dirty(m->c, m->last.bytes, m->last.len, m->or_equal);

	if (it && (it->key_len < m->prefix.len || memcmp(item_key(it), m->prefix.bytes, m->prefix.len) != 0))
		return NULL;
	return it;
}

static void advance(struct merge *m, const uint8_t *key, size_t len)
{
	memcpy(m->last.bytes, key, len);
	m->last.len = (uint16_t)len;
	m->or_equal = false;
}

int merge_next(struct merge *m, struct merge_entry *ret)
{
	for (;;) {
		size_t len = 0;
		const uint8_t *key = next_in_db(m, &len);
		const struct item *it = next_in_memory(m);

		if (!key && !it)
			return 0;
		if (it && key && compare(key, len, item_key(it), it->key_len) < 0)
			it = NULL;
		if (!it) {
			*ret = (struct merge_entry){ .key = key, .key_len = len };
			ret->val = db_walk_value(m->walk, &ret->val_len);
			advance(m, key, len);
			return 1;
		}
		advance(m, item_key(it), it->key_len);
		if (!item_present(it))
			continue;
		*ret = (struct merge_entry){ .key = item_key(it), .key_len = it->key_len, .item = it };
		return 1;
	}
}

int merge_end(struct merge *m)
{
	int r = db_walk_end(m->walk);

	m->walk = NULL;
	return r;
}
