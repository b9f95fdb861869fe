/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What header messages say (specification IV.A.2): those that tell where a dataset's bytes are and what they are. */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FILL_MAX (1u << 20)

/* ---- dataspace */

static int space_lengths(
	struct hdf5_walk *w, const struct hdf5_message *m, struct cursor *c, bool has_max, struct hdf5_space *s)
{
	uint64_t all = w->len_bytes < 8 ? (UINT64_C(1) << 8 * w->len_bytes) - 1 : UINT64_MAX;

	for (uint32_t i = 0; i < s->rank; i++)
		s->dims[i] = hdf5_get_len(w, c);
	for (uint32_t i = 0; i < s->rank; i++) {
		s->max_dims[i] = has_max ? hdf5_get_len(w, c) : s->dims[i];
		if (has_max && s->max_dims[i] == all)
			s->max_dims[i] = HDF5_NOWHERE;
	}
	if (!cursor_ok(c))
		return hdf5_fail(w, -EBADMSG, m->off, "a dataspace is cut short");
	for (uint32_t i = 0; i < s->rank; i++)
		if (s->dims[i] > s->max_dims[i])
			return hdf5_fail(w, -EBADMSG, m->off, "dimension %u is longer than it may be", i);
	return 0;
}

int hdf5_space_decode(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_space *ret)
{
	struct cursor c = cursor_make(m->data, m->len);
	unsigned int version = cursor_u8(&c), rank = cursor_u8(&c), flags = cursor_u8(&c);

	if (!cursor_ok(&c) || version < 1 || version > 2)
		return hdf5_fail(w, -ENOTSUP, m->off, "a dataspace of version %u", version);
	if (rank > HDF5_RANK_MAX)
		return hdf5_fail(w, -EBADMSG, m->off, "a dataspace of %u dimensions", rank);
	*ret = (struct hdf5_space){ .rank = rank };
	if (version == 1)
		(void)cursor_bytes(&c, 5);
	else
		ret->is_null = cursor_u8(&c) == 2;
	return space_lengths(w, m, &c, flags & 1, ret);
}

/* ---- fill value */

static int keep_fill(struct hdf5_walk *w, const struct hdf5_message *m, struct cursor *c, struct hdf5_object *o)
{
	uint32_t len = cursor_u32(c);
	const uint8_t *value = cursor_bytes(c, len);

	if (!cursor_ok(c) || len > FILL_MAX)
		return hdf5_fail(w, -EBADMSG, m->off, "a fill value is cut short");
	if (len != o->type.size)
		return 0; /* none; or converted when it is used */
	free(o->fill);
	o->fill = malloc(len);
	if (!o->fill)
		return -ENOMEM;
	memcpy(o->fill, value, len);
	o->has_fill = true;
	return 0;
}

int hdf5_fill_decode(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_object *o)
{
	struct cursor c = cursor_make(m->data, m->len);
	unsigned int version, flags;

	if (m->type == HDF5_MSG_FILL_OLD)
		return keep_fill(w, m, &c, o);
	version = cursor_u8(&c);
	if (version < 1 || version > 3)
		return hdf5_fail(w, -ENOTSUP, m->off, "a fill value of version %u", version);
	if (version == 3) {
		flags = cursor_u8(&c);
		return flags & 32 ? keep_fill(w, m, &c, o) : 0;
	}
	(void)cursor_u16(&c);
	flags = cursor_u8(&c); /* is it defined */
	return flags != 0 && cursor_left(&c) > 0 ? keep_fill(w, m, &c, o) : 0;
}

/* ---- attributes */

static size_t padded(size_t len, unsigned int version)
{
	return version == 1 ? (len + 7) / 8 * 8 : len;
}

static void cut(const struct hdf5_message *m, struct cursor *c, size_t len, unsigned int version, uint8_t flags,
	struct hdf5_message *ret)
{
	size_t at = cursor_left(c);

	ret->off = m->off + (m->len - at);
	ret->len = len;
	ret->flags = flags;
	ret->data = cursor_bytes(c, padded(len, version));
}

static int attribute_parts(
	struct hdf5_walk *w, struct hdf5_message *type, struct hdf5_message *space, struct hdf5_attribute *ret)
{
	struct hdf5_unshared u HDF5_UNSHARED_CLEANUP = { 0 };
	struct hdf5_unshared v HDF5_UNSHARED_CLEANUP = { 0 };
	int r;

	type->type = HDF5_MSG_DATATYPE;
	space->type = HDF5_MSG_DATASPACE;
	r = hdf5_unshare(w, type, &u);
	if (r == 0)
		r = hdf5_type_decode(w, &u.m, &ret->type, &ret->places);
	if (r == 0)
		r = hdf5_unshare(w, space, &v);
	return r < 0 ? r : hdf5_space_decode(w, &v.m, &ret->space);
}

int hdf5_attribute_decode(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_attribute *ret)
{
	struct cursor c = cursor_make(m->data, m->len);
	unsigned int version = cursor_u8(&c), flags = cursor_u8(&c);
	size_t name_len = cursor_u16(&c), type_len = cursor_u16(&c), space_len = cursor_u16(&c);
	struct hdf5_message name, type, space;
	int r;

	if (!cursor_ok(&c) || version < 1 || version > 3)
		return hdf5_fail(w, -ENOTSUP, m->off, "an attribute of version %u", version);
	if (version == 3)
		(void)cursor_u8(&c); /* character set */
	cut(m, &c, name_len, version, 0, &name);
	cut(m, &c, type_len, version, version > 1 && (flags & 1) ? HDF5_FLAG_SHARED : 0, &type);
	cut(m, &c, space_len, version, version > 1 && (flags & 2) ? HDF5_FLAG_SHARED : 0, &space);
	if (!cursor_ok(&c) || name_len == 0 || name.data[name_len - 1] != '\0')
		return hdf5_fail(w, -EBADMSG, m->off, "an attribute is cut short");
	ret->name = (const char *)name.data;
	r = attribute_parts(w, &type, &space, ret);
	ret->len = cursor_left(&c);
	ret->off = m->off + (m->len - ret->len);
	ret->data = cursor_bytes(&c, ret->len);
	return r;
}

/* ---- shared messages */

void hdf5_unshared_free(struct hdf5_unshared *u)
{
	hdf5_header_free(&u->header);
	free(u->copy);
	*u = (struct hdf5_unshared){ 0 };
}

/* In another object's header: a named datatype. */
static int from_header(struct hdf5_walk *w, const struct hdf5_message *m, uint64_t addr, struct hdf5_unshared *ret)
{
	const struct hdf5_message *found;
	int r = hdf5_header_read(w, addr, true, &ret->header);

	if (r < 0)
		return r;
	found = hdf5_header_find(&ret->header, m->type);
	if (!found || (found->flags & HDF5_FLAG_SHARED))
		return hdf5_fail(w, -EBADMSG, m->off, "a shared message is not where it has to be");
	ret->m = *found;
	return 0;
}

/* The address of the heap that holds messages of a type, from the table of shared messages. */
static int shared_heap_of(struct hdf5_walk *w, const struct hdf5_message *m, uint64_t *ret_heap)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	size_t one = 14 + 2 * (size_t)w->addr_bytes;
	struct cursor c;
	int r;

	/* The number of its entries is in the superblock's extension; up to 8 fit the format. */
	r = hdf5_read(w, w->shared_table, 8 + one, "the table of shared messages", &b);
	if (r < 0)
		return r;
	c = cursor_make(b.data, b.len);
	r = hdf5_signature(w, &b, &c, "SMTB");
	for (uint64_t addr = w->shared_table + 4; r == 0; addr += one) {
		unsigned int version, types;

		hdf5_block_free(&b);
		r = hdf5_read(w, addr, one, "the table of shared messages", &b);
		if (r < 0)
			return r;
		c = cursor_make(b.data, b.len);
		version = cursor_u8(&c);
		(void)cursor_u8(&c);
		types = cursor_u16(&c);
		(void)cursor_bytes(&c, 10);
		(void)hdf5_get_addr(w, &c);
		*ret_heap = hdf5_get_addr(w, &c);
		if (version != 0 || addr >= w->shared_table + 4 + 8 * one)
			break;
		if (m->type < 16 && (types & 1u << m->type))
			return 0;
	}
	return r < 0 ? r : hdf5_fail(w, -EBADMSG, m->off, "no heap of shared messages has one of type %u", m->type);
}

static int open_shared(struct hdf5_walk *w, const struct hdf5_message *m, uint64_t addr, struct hdf5_heap **ret)
{
	struct hdf5_shared_heap *new = &w->shared[w->num_shared];
	int r;

	for (unsigned int i = 0; i < w->num_shared; i++)
		if (w->shared[i].addr == addr) {
			*ret = w->shared[i].heap;
			return 0;
		}
	if (w->num_shared == sizeof(w->shared) / sizeof(w->shared[0]))
		return hdf5_fail(w, -EBADMSG, m->off, "too many heaps of shared messages");
	r = hdf5_heap_open(w, addr, &new->heap);
	if (r < 0)
		return r;
	if (hdf5_heap_id_bytes(new->heap) != 8) {
		hdf5_heap_close(new->heap);
		return hdf5_fail(w, -EBADMSG, m->off, "a heap of shared messages with impossible identifiers");
	}
	new->addr = addr;
	w->num_shared++;
	*ret = new->heap;
	return 0;
}

static int from_heap(struct hdf5_walk *w, const struct hdf5_message *m, const uint8_t *id, struct hdf5_unshared *ret)
{
	struct hdf5_heap *heap = NULL;
	const uint8_t *data = NULL;
	uint64_t addr = 0;
	size_t len = 0;
	int r;

	if (w->shared_table == HDF5_NOWHERE)
		return hdf5_fail(w, -EBADMSG, m->off, "a shared message, and there is no table of them");
	r = shared_heap_of(w, m, &addr);
	if (r == 0)
		r = open_shared(w, m, addr, &heap);
	if (r == 0)
		r = hdf5_heap_get(w, heap, id, &data, &len, &ret->m.off);
	if (r < 0)
		return r;
	ret->copy = malloc(len > 0 ? len : 1);
	if (!ret->copy)
		return -ENOMEM;
	if (len > 0)
		memcpy(ret->copy, data, len);
	ret->m.type = m->type;
	ret->m.flags = 0;
	ret->m.data = ret->copy;
	ret->m.len = len;
	return 0;
}

int hdf5_unshare(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_unshared *ret)
{
	struct cursor c = cursor_make(m->data, m->len);
	unsigned int version, type;
	const uint8_t *id;
	uint64_t addr;

	ret->m = *m;
	if (!(m->flags & HDF5_FLAG_SHARED))
		return 0;
	version = cursor_u8(&c);
	type = cursor_u8(&c);
	if (version == 3 && type == 1) {
		id = cursor_bytes(&c, 8);
		return id ? from_heap(w, m, id, ret) : hdf5_fail(w, -EBADMSG, m->off, "a shared message is cut short");
	}
	if (version == 1) /* a symbol table entry: a name, which means nothing here, and the header */
		(void)cursor_bytes(&c, 6 + (size_t)w->len_bytes);
	addr = hdf5_get_addr(w, &c);
	if (version < 1 || version > 3)
		return hdf5_fail(w, -ENOTSUP, m->off, "a shared message of version %u", version);
	return cursor_ok(&c) ? from_header(w, m, addr, ret)
			     : hdf5_fail(w, -EBADMSG, m->off, "a shared message is cut short");
}
