/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * B-trees of both versions (specification III.A), walked once from left to right. A child's level is one below its parent's
 * and no node is read twice, so that a walk costs what the tree's bytes cost.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define LEVELS_MAX 32u

/* ---- version 1 */

struct tree1 {
	unsigned int type, key_bytes;
	hdf5_tree1_key_fn key;
	hdf5_tree1_fn each;
	void *arg;
	struct { /* of the node of each level that was read last; HDF5_NOWHERE: none */
		uint64_t addr, right;
	} last[LEVELS_MAX + 1];
};

static int node1(struct hdf5_walk *w, struct tree1 *t, uint64_t addr, unsigned int level, bool is_root);

/* The next key, also looked at by itself. */
static int next_key(
	struct hdf5_walk *w, const struct tree1 *t, const struct hdf5_block *b, struct cursor *c, struct cursor *ret)
{
	uint64_t off = b->off + (uint64_t)(c->at - b->data);
	struct cursor copy;

	*ret = copy = cursor_make(cursor_bytes(c, t->key_bytes), t->key_bytes);
	if (!cursor_ok(c))
		return hdf5_fail(w, -EBADMSG, b->off, "a B-tree node is cut short");
	return t->key ? t->key(w, &copy, off, t->arg) : 0;
}

static int entries1(struct hdf5_walk *w, struct tree1 *t, const struct hdf5_block *b, struct cursor *c,
	unsigned int num, unsigned int level)
{
	struct cursor key;
	int r = 0;

	for (unsigned int i = 0; r == 0 && i < num; i++) {
		uint64_t child;

		r = next_key(w, t, b, c, &key);
		if (r < 0)
			return r;
		child = hdf5_get_addr(w, c);
		if (!cursor_ok(c))
			return hdf5_fail(w, -EBADMSG, b->off, "a B-tree node is cut short");
		r = level > 0 ? node1(w, t, child, level - 1, false) : t->each(w, &key, child, t->arg);
	}
	return r < 0 || num == 0 ? r : next_key(w, t, b, c, &key);
}

/* Type, level and number of entries; two neighbours. */
static int begin1(
	struct hdf5_walk *w, const struct tree1 *t, uint64_t addr, unsigned int *ret_level, unsigned int *ret_num)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	struct cursor c;
	unsigned int type;
	int r = hdf5_read(w, addr, 8, "a B-tree node", &b);

	if (r < 0)
		return r;
	w->file->num_metadata--;
	c = cursor_make(b.data, b.len);
	r = hdf5_signature(w, &b, &c, "TREE");
	if (r < 0)
		return r;
	type = cursor_u8(&c);
	*ret_level = cursor_u8(&c);
	*ret_num = cursor_u16(&c);
	return type == t->type ? 0
			       : hdf5_fail(w, -EBADMSG, b.off, "a B-tree node of type %u and not %u", type, t->type);
}

/* Nodes of a level are a list in both directions. */
static int check_neighbours(struct hdf5_walk *w, struct tree1 *t, uint64_t addr, unsigned int level,
	const struct hdf5_block *b, struct cursor *c)
{
	uint64_t left = hdf5_get_addr(w, c), right = hdf5_get_addr(w, c);

	if (left != t->last[level].addr || (left != HDF5_NOWHERE && t->last[level].right != addr))
		return hdf5_fail(w, -EBADMSG, b->off, "a B-tree node and the one to its left do not name each other");
	t->last[level].addr = addr;
	t->last[level].right = right;
	return 0;
}

static int check_ends(struct hdf5_walk *w, const struct tree1 *t)
{
	for (unsigned int i = 0; i <= LEVELS_MAX; i++)
		if (t->last[i].right != HDF5_NOWHERE)
			return hdf5_fail(w, -EBADMSG, hdf5_off(w, t->last[i].addr, 0),
				"the last B-tree node of its level names a further one");
	return 0;
}

static int node1(struct hdf5_walk *w, struct tree1 *t, uint64_t addr, unsigned int level, bool is_root)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	size_t begin = 8 + 2 * (size_t)w->addr_bytes, len;
	unsigned int is, num;
	struct cursor c;
	int r = begin1(w, t, addr, &is, &num);

	if (r < 0)
		return r;
	if (is_root ? is > LEVELS_MAX : is != level)
		return hdf5_fail(w, -EBADMSG, hdf5_off(w, addr, 0), "a B-tree node has the impossible level %u", is);
	len = begin + num * ((size_t)t->key_bytes + w->addr_bytes) + t->key_bytes;
	r = hdf5_read_once(w, addr, len, "a B-tree node", &b);
	if (r < 0)
		return r;
	c = cursor_make(b.data, b.len);
	(void)cursor_bytes(&c, 8);
	r = check_neighbours(w, t, addr, is, &b, &c);
	return r < 0 ? r : entries1(w, t, &b, &c, num, is);
}

int hdf5_tree1(struct hdf5_walk *w, uint64_t addr, unsigned int type, unsigned int key_bytes, hdf5_tree1_key_fn key,
	hdf5_tree1_fn each, void *arg)
{
	struct tree1 t = { .type = type, .key_bytes = key_bytes, .key = key, .each = each, .arg = arg };
	int r;

	memset(t.last, 0xff, sizeof(t.last));
	r = node1(w, &t, addr, 0, true);
	return r < 0 ? r : check_ends(w, &t);
}

/* ---- version 2 */

struct level2 {
	uint64_t most;          /* records of a node */
	uint64_t most_below;    /* with all below it */
	unsigned int all_bytes; /* that hold most_below; 0 for leaves: not stored */
};

struct tree2 {
	unsigned int type, depth, num_bytes;
	uint32_t node_bytes, record_bytes;
	struct level2 levels[LEVELS_MAX + 1];
	hdf5_tree2_fn each;
	void *arg;
};

#define NODE2_FRAME 10u /* signature, version, type, checksum */

static int plan2(struct hdf5_walk *w, struct tree2 *t, uint64_t off)
{
	struct level2 *leaf = &t->levels[0];

	if (t->record_bytes == 0 || t->node_bytes < NODE2_FRAME + t->record_bytes || t->depth > LEVELS_MAX)
		return hdf5_fail(w, -EBADMSG, off, "an impossible B-tree");
	leaf->most = leaf->most_below = (t->node_bytes - NODE2_FRAME) / t->record_bytes;
	t->num_bytes = hdf5_width(leaf->most);
	for (unsigned int i = 1; i <= t->depth; i++) {
		struct level2 *l = &t->levels[i], *below = &t->levels[i - 1];
		uint32_t pointer = w->addr_bytes + t->num_bytes + below->all_bytes;

		if (t->node_bytes < NODE2_FRAME + 2 * pointer + t->record_bytes)
			return hdf5_fail(w, -EBADMSG, off, "an impossible B-tree");
		l->most = (t->node_bytes - NODE2_FRAME - pointer) / (t->record_bytes + pointer);
		if (__builtin_mul_overflow(l->most + 1, below->most_below, &l->most_below) ||
			__builtin_add_overflow(l->most_below, l->most, &l->most_below))
			l->most_below = UINT64_MAX;
		l->all_bytes = hdf5_width(l->most_below);
	}
	return 0;
}

static int node2(struct hdf5_walk *w, const struct tree2 *t, uint64_t addr, uint64_t num, unsigned int level);

static int children2(struct hdf5_walk *w, const struct tree2 *t, const struct hdf5_block *b, struct cursor c,
	uint64_t num, unsigned int level)
{
	int r = 0;

	for (uint64_t i = 0; r == 0 && i <= num; i++) {
		uint64_t child = hdf5_get_addr(w, &c), records = hdf5_uint(&c, t->num_bytes);

		(void)hdf5_uint(&c, t->levels[level - 1].all_bytes);
		if (!cursor_ok(&c))
			return hdf5_fail(w, -EBADMSG, b->off, "a B-tree node is cut short");
		r = node2(w, t, child, records, level - 1);
	}
	return r;
}

/* The bytes that a node has in use: records, pointers and checksum stand behind each other. */
static size_t used2(const struct hdf5_walk *w, const struct tree2 *t, uint64_t num, unsigned int level)
{
	size_t pointer = level > 0 ? w->addr_bytes + t->num_bytes + t->levels[level - 1].all_bytes : 0;

	return NODE2_FRAME + (size_t)num * t->record_bytes + (level > 0 ? ((size_t)num + 1) * pointer : 0);
}

static int node2(struct hdf5_walk *w, const struct tree2 *t, uint64_t addr, uint64_t num, unsigned int level)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	struct cursor c;
	unsigned int version, type;
	int r;

	if (num > t->levels[level].most)
		return hdf5_fail(w, -EBADMSG, hdf5_off(w, addr, 0), "a B-tree node of %" PRIu64 " records", num);
	r = hdf5_read_once(w, addr, used2(w, t, num, level), "a B-tree node", &b);
	if (r < 0)
		return r;
	c = cursor_make(b.data, b.len);
	r = hdf5_signature(w, &b, &c, level > 0 ? "BTIN" : "BTLF");
	if (r == 0)
		r = hdf5_check(w, &b);
	if (r < 0)
		return r;
	version = cursor_u8(&c);
	type = cursor_u8(&c);
	if (version != 0 || type != t->type)
		return hdf5_fail(w, -EBADMSG, b.off, "a B-tree node of version %u, type %u", version, type);
	for (uint64_t i = 0; r == 0 && i < num; i++) {
		uint64_t off = b.off + (uint64_t)(c.at - b.data);

		r = t->each(w, cursor_bytes(&c, t->record_bytes), t->record_bytes, off, t->arg);
	}
	return r == 0 && level > 0 ? children2(w, t, &b, c, num, level) : r;
}

int hdf5_tree2(struct hdf5_walk *w, uint64_t addr, unsigned int type, hdf5_tree2_fn each, void *arg)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	struct tree2 t = { .type = type, .each = each, .arg = arg };
	unsigned int version, is;
	uint64_t root, num;
	struct cursor c;
	int r = hdf5_read_once(w, addr, 22 + (size_t)w->addr_bytes + w->len_bytes, "the head of a B-tree", &b);

	if (r < 0)
		return r;
	c = cursor_make(b.data, b.len);
	r = hdf5_signature(w, &b, &c, "BTHD");
	if (r == 0)
		r = hdf5_check(w, &b);
	if (r < 0)
		return r;
	version = cursor_u8(&c);
	is = cursor_u8(&c);
	t.node_bytes = cursor_u32(&c);
	t.record_bytes = cursor_u16(&c);
	t.depth = cursor_u16(&c);
	(void)cursor_u16(&c); /* when nodes are split and merged */
	root = hdf5_get_addr(w, &c);
	num = cursor_u16(&c);
	if (version != 0 || is != type)
		return hdf5_fail(w, -EBADMSG, b.off, "a B-tree of version %u, type %u and not %u", version, is, type);
	if (root == HDF5_NOWHERE)
		return 0; /* empty */
	r = plan2(w, &t, b.off);
	return r < 0 ? r : node2(w, &t, root, num, t.depth);
}
