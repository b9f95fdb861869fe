/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Chunk indexes that are arrays (specification VII.C, VII.D): the fixed array, for datasets that cannot grow, and the
 * extensible array, for those that grow in one dimension. Both are lists of entries in pages; a page that nothing was put
 * into is not there, and a bitmap says so.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct array {
	struct hdf5_walk *w;
	struct hdf5_object *o;
	uint64_t addr; /* of the head */
	unsigned int client, element_bytes;
	uint64_t num;                 /* entries that may be in use */
	uint32_t fast;                /* the dimension that counts slowest; of a fixed array: 0 */
	uint64_t grid[HDF5_RANK_MAX]; /* chunks by dimension; of the growing one: 0 */
};

/* ---- entries */

/* The place of entry number index: the growing dimension is the slowest, the others follow in their order. */
static void place_of(const struct array *a, uint64_t index, uint64_t *at)
{
	for (uint32_t i = a->o->rank; i-- > 0;)
		if (i != a->fast) {
			at[i] = index % a->grid[i];
			index /= a->grid[i];
		}
	at[a->fast] = index;
}

static int entry(const struct array *a, uint64_t index, struct cursor *c)
{
	struct hdf5_stored s = { .addr = hdf5_get_addr(a->w, c), .len = a->o->chunk_bytes };
	uint64_t at[HDF5_RANK_MAX];

	if (a->client == 1) {
		s.len = hdf5_uint(c, a->element_bytes - a->w->addr_bytes - 4);
		s.mask = cursor_u32(c);
	}
	if (s.addr == HDF5_NOWHERE || index >= a->num)
		return 0;
	place_of(a, index, at);
	return hdf5_chunk_add(a->w, a->o, at, &s);
}

static int entries(const struct array *a, uint64_t first, uint64_t num, struct cursor *c)
{
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < num; i++)
		r = entry(a, first + i, c);
	return r;
}

/* A page: num entries and a checksum. */
static int page(const struct array *a, uint64_t addr, uint64_t first, uint64_t num)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	struct cursor c;
	int r = hdf5_read_once(a->w, addr, (size_t)num * a->element_bytes + 4, "a page of a chunk index", &b);

	if (r == 0)
		r = hdf5_check(a->w, &b);
	c = cursor_make(b.data, b.len);
	return r < 0 ? r : entries(a, first, num, &c);
}

static bool bit(const uint8_t *map, uint64_t i)
{
	return map[i / 8] & 0x80u >> (i % 8);
}

struct paging {
	const uint8_t *map; /* NULL: the block has no pages */
	uint64_t from;      /* the bit of its first page */
	uint64_t num;       /* entries of a page */
};

/* num entries in pages; a page whose bit is not set is not there, but has its place. */
static int pages(const struct array *a, uint64_t addr, const struct paging *p, uint64_t first, uint64_t num)
{
	int r = 0;

	for (uint64_t i = 0; r == 0 && i * p->num < num; i++) {
		uint64_t left = num - i * p->num, here = left < p->num ? left : p->num;

		if (bit(p->map, p->from + i))
			r = page(a, addr + i * (p->num * a->element_bytes + 4), first + i * p->num, here);
	}
	return r;
}

/* ---- what all blocks begin with */

static int begin(const struct array *a, const struct hdf5_block *b, struct cursor *c, const char *letters)
{
	unsigned int version, client;
	uint64_t owner;
	int r;

	*c = cursor_make(b->data, b->len);
	r = hdf5_signature(a->w, b, c, letters);
	if (r == 0)
		r = hdf5_check(a->w, b);
	if (r < 0)
		return r;
	version = cursor_u8(c);
	client = cursor_u8(c);
	owner = hdf5_get_addr(a->w, c);
	if (version != 0 || client != a->client || owner != a->addr)
		return hdf5_fail(a->w, -EBADMSG, b->off, "a block of another chunk index");
	return 0;
}

static int check_element(const struct array *a, const struct hdf5_block *b)
{
	unsigned int plain = a->w->addr_bytes;

	if (a->client != (a->o->num_filters > 0 ? 1u : 0u) ||
		(a->client == 0 ? a->element_bytes != plain
				: a->element_bytes < plain + 5 || a->element_bytes > plain + 12))
		return hdf5_fail(a->w, -EBADMSG, b->off, "a chunk index with entries of %u bytes", a->element_bytes);
	return 0;
}

/* ---- fixed array */

static int fixed_grid(struct array *a, uint64_t *ret_num)
{
	const struct hdf5_object *o = a->o;
	uint64_t num = 1;

	for (uint32_t i = 0; i < o->rank; i++) {
		a->grid[i] = o->max_dims[i] / o->chunk[i] + (o->max_dims[i] % o->chunk[i] > 0);
		if (o->max_dims[i] == HDF5_NOWHERE || a->grid[i] == 0 || __builtin_mul_overflow(num, a->grid[i], &num))
			return hdf5_fail(
				a->w, -EBADMSG, o->addr, "a fixed array of chunks for a dataset that can grow");
	}
	*ret_num = num;
	return 0;
}

static int fixed_block(struct array *a, uint64_t addr, unsigned int page_bits)
{
	uint64_t page_num = UINT64_C(1) << page_bits, num_pages = a->num / page_num + (a->num % page_num > 0);
	size_t frame = 10 + (size_t)a->w->addr_bytes, len;
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	bool paged = a->num > page_num;
	struct cursor c;
	int r;

	if ((paged ? num_pages / 8 : a->num * a->element_bytes) > HDF5_BLOCK_MAX)
		return hdf5_fail(
			a->w, -EBADMSG, hdf5_off(a->w, addr, 0), "a chunk index of %" PRIu64 " entries", a->num);
	len = frame + (size_t)(paged ? (num_pages + 7) / 8 : a->num * a->element_bytes);
	r = hdf5_read_once(a->w, addr, len, "a chunk index", &b);
	if (r == 0)
		r = begin(a, &b, &c, "FADB");
	if (r < 0)
		return r;
	return paged ? pages(a, addr + len, &(struct paging){ c.at, 0, page_num }, 0, a->num)
		     : entries(a, 0, a->num, &c);
}

/* The index's first block, of len bytes; *c stands behind its signature. */
static int header(struct array *a, size_t len, const char *signature, struct hdf5_block *b, struct cursor *c)
{
	int r = hdf5_read_once(a->w, a->addr, len, "a chunk index", b);

	if (r < 0)
		return r;
	*c = cursor_make(b->data, b->len);
	r = hdf5_signature(a->w, b, c, signature);
	return r < 0 ? r : hdf5_check(a->w, b);
}

static int fixed(struct array *a)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	unsigned int version, page_bits;
	uint64_t addr, num = 0;
	struct cursor c;
	int r = header(a, 12 + (size_t)a->w->len_bytes + a->w->addr_bytes, "FAHD", &b, &c);

	if (r < 0)
		return r;
	version = cursor_u8(&c);
	a->client = cursor_u8(&c);
	a->element_bytes = cursor_u8(&c);
	page_bits = cursor_u8(&c);
	a->num = hdf5_get_len(a->w, &c);
	addr = hdf5_get_addr(a->w, &c);
	r = fixed_grid(a, &num);
	if (r == 0 && (version != 0 || page_bits > 24 || num != a->num))
		r = hdf5_fail(a->w, -EBADMSG, b.off, "a chunk index of %" PRIu64 " entries for %" PRIu64 " chunks",
			a->num, num);
	if (r == 0)
		r = check_element(a, &b);
	return r < 0 || addr == HDF5_NOWHERE ? r : fixed_block(a, addr, page_bits);
}

/* ---- extensible array */

struct extensible {
	struct array a;
	unsigned int bits, in_index, least, pointers, page_bits;
};

static int extensible_grid(struct array *a)
{
	const struct hdf5_object *o = a->o;
	unsigned int growing = 0;

	for (uint32_t i = 0; i < o->rank; i++) {
		if (o->max_dims[i] == HDF5_NOWHERE) {
			a->fast = i;
			growing++;
			continue;
		}
		a->grid[i] = o->max_dims[i] / o->chunk[i] + (o->max_dims[i] % o->chunk[i] > 0);
		if (a->grid[i] == 0)
			return hdf5_fail(a->w, -EBADMSG, o->addr, "an extensible array of chunks, and no room for any");
	}
	return growing == 1 ? 0
			    : hdf5_fail(a->w, -EBADMSG, o->addr,
				      "an extensible array of chunks where %u dimensions can grow", growing);
}

/* Entries of each data block of secondary block number u, and how many such blocks it has. */
static uint64_t block_entries(const struct extensible *e, unsigned int u)
{
	return (uint64_t)e->least << (u + 1) / 2;
}

static uint64_t blocks_in(unsigned int u)
{
	return UINT64_C(1) << u / 2;
}

static int data_block(const struct extensible *e, uint64_t addr, uint64_t first, uint64_t num, const struct paging *p)
{
	const struct array *a = &e->a;
	size_t len = 10 + (size_t)a->w->addr_bytes + (e->bits + 7) / 8;
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	struct cursor c;
	int r;

	if (num * a->element_bytes > HDF5_BLOCK_MAX && !p->map)
		return hdf5_fail(a->w, -EBADMSG, hdf5_off(a->w, addr, 0), "a chunk index with an impossible block");
	if (!p->map)
		len += (size_t)num * a->element_bytes;
	r = hdf5_read_once(a->w, addr, len, "a block of a chunk index", &b);
	if (r == 0)
		r = begin(a, &b, &c, "EADB");
	if (r < 0)
		return r;
	(void)hdf5_uint(&c, (e->bits + 7) / 8); /* its place, which HDF5 writes wrong for some */
	return p->map ? pages(a, addr + len, p, first, num) : entries(a, first, num, &c);
}

static int secondary_block(const struct extensible *e, uint64_t addr, unsigned int u, uint64_t first)
{
	const struct array *a = &e->a;
	uint64_t num = block_entries(e, u), per_page = UINT64_C(1) << e->page_bits;
	size_t map_bytes = num > per_page ? (size_t)((num / per_page + 7) / 8) : 0;
	size_t blocks = (size_t)blocks_in(u), place_bytes = (e->bits + 7) / 8;
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	struct paging p = { .num = per_page };
	struct cursor c;
	int r;

	if (blocks > HDF5_BLOCK_MAX || map_bytes > HDF5_BLOCK_MAX || blocks * (map_bytes + 8) > HDF5_BLOCK_MAX)
		return hdf5_fail(a->w, -EBADMSG, hdf5_off(a->w, addr, 0), "a chunk index with an impossible block");
	r = hdf5_read_once(a->w, addr, 10 + a->w->addr_bytes + place_bytes + blocks * (map_bytes + a->w->addr_bytes),
		"a block of a chunk index", &b);
	if (r == 0)
		r = begin(a, &b, &c, "EASB");
	if (r < 0)
		return r;
	(void)hdf5_uint(&c, (unsigned int)place_bytes);
	p.map = cursor_bytes(&c, blocks * map_bytes);
	if (map_bytes == 0)
		p.map = NULL;
	for (size_t i = 0; r == 0 && i < blocks; i++, first += num) {
		uint64_t child = hdf5_get_addr(a->w, &c);

		if (child != HDF5_NOWHERE)
			r = data_block(e, child, first, num, &p);
		p.from += num / per_page; /* bits of all blocks stand behind each other */
	}
	return r;
}

/* The index block: first entries, then addresses of the data blocks of the first secondary blocks, then of the others. */
static int index_block(const struct extensible *e, uint64_t addr)
{
	static const struct paging none;
	const struct array *a = &e->a;
	unsigned int own = 2 * hdf5_log2(e->pointers), all = 1 + e->bits - hdf5_log2(e->least);
	size_t addresses = 2 * ((size_t)e->pointers - 1) + (all - own);
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	uint64_t first = e->in_index;
	struct cursor c;
	int r = hdf5_read_once(a->w, addr,
		10 + a->w->addr_bytes + (size_t)e->in_index * a->element_bytes + addresses * a->w->addr_bytes,
		"the first block of a chunk index", &b);

	if (r == 0)
		r = begin(a, &b, &c, "EAIB");
	if (r == 0)
		r = entries(a, 0, e->in_index, &c);
	for (unsigned int u = 0; r == 0 && u < own; u++)
		for (uint64_t i = 0; r == 0 && i < blocks_in(u); i++, first += block_entries(e, u)) {
			uint64_t child = hdf5_get_addr(a->w, &c);

			if (child != HDF5_NOWHERE)
				r = data_block(e, child, first, block_entries(e, u), &none);
		}
	for (unsigned int u = own; r == 0 && u < all; u++) {
		uint64_t child = hdf5_get_addr(a->w, &c);

		if (child != HDF5_NOWHERE)
			r = secondary_block(e, child, u, first);
		first += blocks_in(u) * block_entries(e, u);
	}
	return r;
}

static bool is_power(unsigned int v)
{
	return v > 0 && (v & (v - 1)) == 0;
}

static int check_extensible(const struct extensible *e, const struct hdf5_block *b, unsigned int version)
{
	unsigned int own;

	if (version != 0 || e->bits == 0 || e->bits > 48 || !is_power(e->least) || !is_power(e->pointers) ||
		e->pointers < 2 || e->page_bits > 24 || hdf5_log2(e->least) > e->bits)
		return hdf5_fail(e->a.w, -EBADMSG, b->off, "an impossible chunk index");
	own = 2 * hdf5_log2(e->pointers);
	if (own > 1 + e->bits - hdf5_log2(e->least) || block_entries(e, own - 1) > UINT64_C(1) << e->page_bits)
		return hdf5_fail(e->a.w, -ENOTSUP, b->off, "a chunk index with pages in its first blocks");
	return check_element(&e->a, b);
}

static int extensible(struct extensible *e)
{
	struct array *a = &e->a;
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	unsigned int version;
	uint64_t addr;
	struct cursor c;
	int r = header(a, 16 + 6 * (size_t)a->w->len_bytes + a->w->addr_bytes, "EAHD", &b, &c);

	if (r < 0)
		return r;
	version = cursor_u8(&c);
	a->client = cursor_u8(&c);
	a->element_bytes = cursor_u8(&c);
	e->bits = cursor_u8(&c);
	e->in_index = cursor_u8(&c);
	e->least = cursor_u8(&c);
	e->pointers = cursor_u8(&c);
	e->page_bits = cursor_u8(&c);
	(void)cursor_bytes(&c, 4 * (size_t)a->w->len_bytes); /* statistics */
	a->num = hdf5_get_len(a->w, &c);
	(void)hdf5_get_len(a->w, &c);
	addr = hdf5_get_addr(a->w, &c);
	r = check_extensible(e, &b, version);
	if (r == 0)
		r = extensible_grid(a);
	return r < 0 || addr == HDF5_NOWHERE ? r : index_block(e, addr);
}

int hdf5_array_read(struct hdf5_walk *w, struct hdf5_object *o, uint64_t addr)
{
	struct extensible e = { .a = { .w = w, .o = o, .addr = addr } };

	return o->index == HDF5_INDEX_FIXED ? fixed(&e.a) : extensible(&e);
}
