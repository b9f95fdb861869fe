/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Members of a group, in the three ways that they are kept: symbol tables (a B-tree of nodes whose names are in a local
 * heap), link messages in the header, and links in a fractal heap under a B-tree of names.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define CACHED_LINK    2u /* of a symbol table entry: what it has besides the address; the last kind */
#define LINK_SIZE_BITS 3u /* flags of a link message */
#define LINK_ORDERED   4u
#define LINK_TYPED     8u
#define LINK_CHARSET   16u

struct members {
	hdf5_member_fn each;
	void *arg;
	const struct hdf5_block *names; /* symbol tables: the local heap */
	const char *last;               /* in it: the name before; NULL */
	struct hdf5_heap *heap;         /* dense links */
};

/* ---- symbol tables */

static int name_at(
	struct hdf5_walk *w, const struct members *m, uint64_t name, uint64_t off, const char **ret, size_t *ret_len)
{
	if (name >= m->names->len)
		return hdf5_fail(w, -EBADMSG, off, "a name at %" PRIu64 ", behind the end of the names", name);
	*ret = (const char *)m->names->data + name;
	*ret_len = strnlen(*ret, m->names->len - (size_t)name);
	if (*ret_len == m->names->len - name)
		return hdf5_fail(w, -EBADMSG, m->names->off + name, "a name without end");
	return 0;
}

static int symbol(struct hdf5_walk *w, const struct hdf5_block *b, struct cursor *c, struct members *m)
{
	uint64_t name = hdf5_get_len(w, c), target = hdf5_get_addr(w, c);
	uint32_t cache = cursor_u32(c);
	const char *text;
	size_t len;
	int r;

	(void)cursor_bytes(c, 20);
	if (!cursor_ok(c))
		return hdf5_fail(w, -EBADMSG, b->off, "a symbol table node is cut short");
	if (cache > CACHED_LINK)
		return hdf5_fail(w, -EBADMSG, b->off, "a symbol table entry of kind %" PRIu32, cache);
	r = name_at(w, m, name, b->off, &text, &len);
	if (r < 0)
		return r;
	if (m->last && strcmp(m->last, text) >= 0)
		return hdf5_fail(w, -EBADMSG, m->names->off + name, "a name that does not sort behind the one before");
	m->last = text;
	if (cache == CACHED_LINK)
		return 0; /* a symbolic one */
	return m->each(w, text, len, target, m->arg);
}

/* A key of the B-tree: a name that those to its left do not sort behind, and those to its right do. */
static int symbol_key(struct hdf5_walk *w, struct cursor *key, uint64_t off, void *arg)
{
	struct members *m = arg;
	uint64_t name = hdf5_get_len(w, key);
	const char *text;
	size_t len;
	int r = name_at(w, m, name, off, &text, &len);

	if (r == 0 && m->last && strcmp(m->last, text) > 0)
		r = hdf5_fail(w, -EBADMSG, off, "a key of names, and a name to its left that sorts behind it");
	if (r == 0)
		m->last = text;
	return r;
}

static int symbol_node(struct hdf5_walk *w, struct cursor *key __attribute__((unused)), uint64_t addr, void *arg)
{
	struct members *m = arg;
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	unsigned int version, num;
	struct cursor c;
	int r = hdf5_read(w, addr, 8, "a symbol table node", &b);

	if (r < 0)
		return r;
	w->file->num_metadata--;
	c = cursor_make(b.data, b.len);
	r = hdf5_signature(w, &b, &c, "SNOD");
	if (r < 0)
		return r;
	version = cursor_u8(&c);
	(void)cursor_u8(&c);
	num = cursor_u16(&c);
	if (version != 1)
		return hdf5_fail(w, -ENOTSUP, b.off, "a symbol table node of version %u", version);
	hdf5_block_free(&b);
	r = hdf5_read_once(w, addr, 8 + num * (24 + (size_t)w->len_bytes + w->addr_bytes), "a symbol table node", &b);
	if (r < 0)
		return r;
	c = cursor_make(b.data, b.len);
	(void)cursor_bytes(&c, 8);
	for (unsigned int i = 0; r == 0 && i < num; i++)
		r = symbol(w, &b, &c, m);
	return r;
}

static int symbol_table(struct hdf5_walk *w, const struct hdf5_message *msg, struct members *m)
{
	struct hdf5_block names HDF5_BLOCK_CLEANUP = { 0 };
	struct cursor c = cursor_make(msg->data, msg->len);
	uint64_t tree = hdf5_get_addr(w, &c), heap = hdf5_get_addr(w, &c);
	int r;

	if (!cursor_ok(&c))
		return hdf5_fail(w, -EBADMSG, msg->off, "a symbol table is cut short");
	r = hdf5_local_heap(w, heap, &names);
	m->names = &names;
	return r < 0 ? r : hdf5_tree1(w, tree, 0, w->len_bytes, symbol_key, symbol_node, m);
}

/* ---- links */

static int link_decode(struct hdf5_walk *w, const uint8_t *data, size_t len, uint64_t off, const struct members *m)
{
	struct cursor c = cursor_make(data, len);
	unsigned int version = cursor_u8(&c), flags = cursor_u8(&c), type;
	const uint8_t *name;
	uint64_t name_len;

	if (!cursor_ok(&c) || version != 1)
		return hdf5_fail(w, -ENOTSUP, off, "a link of version %u", version);
	type = flags & LINK_TYPED ? cursor_u8(&c) : 0;
	(void)cursor_bytes(&c, (flags & LINK_ORDERED ? 8 : 0) + (flags & LINK_CHARSET ? 1 : 0));
	name_len = hdf5_uint(&c, 1u << (flags & LINK_SIZE_BITS));
	name = name_len <= len ? cursor_bytes(&c, (size_t)name_len) : NULL;
	if (!name || name_len == 0)
		return hdf5_fail(w, -EBADMSG, off, "a link is cut short");
	if (type != 0)
		return 0; /* symbolic, external, or an application's own */
	if (cursor_left(&c) < w->addr_bytes)
		return hdf5_fail(w, -EBADMSG, off, "a link is cut short");
	return m->each(w, (const char *)name, (size_t)name_len, hdf5_get_addr(w, &c), m->arg);
}

/* A record of the B-tree of names: a hash, and where in the heap the link is. */
static int dense_link(struct hdf5_walk *w, const uint8_t *record, size_t len, uint64_t off, void *arg)
{
	const struct members *m = arg;
	const uint8_t *data;
	uint64_t at;
	size_t bytes;
	int r;

	if (len != 4 + hdf5_heap_id_bytes(m->heap))
		return hdf5_fail(w, -EBADMSG, off, "a link's record of %zu bytes", len);
	r = hdf5_heap_get(w, m->heap, record + 4, &data, &bytes, &at);
	return r < 0 ? r : link_decode(w, data, bytes, at, m);
}

static int dense_links(struct hdf5_walk *w, const struct hdf5_message *msg, struct members *m)
{
	struct cursor c = cursor_make(msg->data, msg->len);
	unsigned int version = cursor_u8(&c), flags = cursor_u8(&c);
	uint64_t heap, names;
	int r;

	(void)cursor_bytes(&c, flags & 1 ? 8 : 0);
	heap = hdf5_get_addr(w, &c);
	names = hdf5_get_addr(w, &c);
	if (!cursor_ok(&c) || version != 0)
		return hdf5_fail(w, -ENOTSUP, msg->off, "link information of version %u", version);
	if (heap == HDF5_NOWHERE)
		return 0;
	r = hdf5_heap_open(w, heap, &m->heap);
	if (r == 0)
		r = hdf5_tree2(w, names, 5, dense_link, m);
	hdf5_heap_close(m->heap);
	m->heap = NULL;
	return r;
}

int hdf5_group_read(struct hdf5_walk *w, const struct hdf5_header *h, hdf5_member_fn each, void *arg)
{
	struct members m = { .each = each, .arg = arg };
	int r = 0;

	if (!hdf5_header_find(h, HDF5_MSG_SYMBOL_TABLE) && !hdf5_header_find(h, HDF5_MSG_LINK_INFO))
		return hdf5_fail(w, -EBADMSG, h->blocks[0].off, "the header of neither a group nor anything else");
	for (size_t i = 0; r == 0 && i < h->num; i++) {
		const struct hdf5_message *msg = &h->messages[i];

		if (msg->type == HDF5_MSG_SYMBOL_TABLE)
			r = symbol_table(w, msg, &m);
		else if (msg->type == HDF5_MSG_LINK)
			r = link_decode(w, msg->data, msg->len, msg->off, &m);
		else if (msg->type == HDF5_MSG_LINK_INFO)
			r = dense_links(w, msg, &m);
	}
	return r;
}
