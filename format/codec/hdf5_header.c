/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Object headers (specification IV.A.1): version 1 without and version 2 with signature and checksum, each in a first block
 * and continuation blocks. What comes out is a list of messages whose bytes stay in the blocks.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

#define PREFIX_BYTES  16u   /* of version 1, to its first message */
#define BLOCKS_MAX    1024u /* of one header */
#define MESSAGES_MAX  65536u
#define SIZE_BITS     3u /* flags of version 2 */
#define ORDER_TRACKED 4u
#define PHASES_STORED 16u
#define TIMES_STORED  32u

#define TYPE_BOGUS       9u /* of tests of HDF5 alone */
#define TYPE_REFERENCES  22u
#define TYPE_LAST        24u
#define FLAG_NOT_SHARED  0x04u /* of messages */
#define FLAG_NO_WRITING  0x08u /* when the type is not known: do not open the object to write, */
#define FLAG_MARK        0x10u /* say so in the next one when it was opened nevertheless, */
#define FLAG_WAS_UNKNOWN 0x20u
#define FLAG_NO_OPENING  0x80u /* do not open it at all */

void hdf5_header_free(struct hdf5_header *h)
{
	for (size_t i = 0; i < h->num_blocks; i++)
		hdf5_block_free(&h->blocks[i]);
	free(h->blocks);
	free(h->messages);
	*h = (struct hdf5_header){ 0 };
}

const struct hdf5_message *hdf5_header_find(const struct hdf5_header *h, uint16_t type)
{
	for (size_t i = 0; i < h->num; i++)
		if (h->messages[i].type == type)
			return &h->messages[i];
	return NULL;
}

/* Whether HDF5 would open an object with such a message: what its flags may say, and what they forbid of unknown types. */
static int check_flags(struct hdf5_walk *w, const struct hdf5_message *m, unsigned int version)
{
	bool unknown = m->type > TYPE_LAST || m->type == TYPE_BOGUS;

	if ((m->flags & HDF5_FLAG_SHARED && m->flags & FLAG_NOT_SHARED) ||
		(m->flags & FLAG_WAS_UNKNOWN && (m->flags & FLAG_NO_WRITING || !(m->flags & FLAG_MARK))))
		return hdf5_fail(w, -EBADMSG, m->off, "a message with flags that exclude each other (%#x)", m->flags);
	if (m->type == TYPE_REFERENCES && version == 1)
		return hdf5_fail(w, -EBADMSG, m->off, "a count of references, which this version of headers has not");
	if (unknown && m->flags & FLAG_NO_OPENING)
		return hdf5_fail(w, -ENOTSUP, m->off,
			"a message of the unknown type %u that forbids to open its object: HDF5 1.x refuses it",
			m->type);
	return 0;
}

static int add_message(struct hdf5_walk *w, struct hdf5_header *h, const struct hdf5_message *m)
{
	if (array_room(&h->messages, &h->cap, h->num, sizeof(*h->messages)) < 0)
		return -ENOMEM;
	if (h->num == MESSAGES_MAX)
		return hdf5_fail(w, -EBADMSG, m->off, "a header of more than %u messages", MESSAGES_MAX);
	h->messages[h->num++] = *m;
	return 0;
}

/* The block becomes the header's. */
static int add_block(struct hdf5_walk *w, struct hdf5_header *h, struct hdf5_block *b)
{
	struct hdf5_block *grown;

	if (h->num_blocks == BLOCKS_MAX)
		return hdf5_fail(w, -EBADMSG, b->off, "a header of more than %u blocks", BLOCKS_MAX);
	grown = reallocarray(h->blocks, h->num_blocks + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	h->blocks = grown;
	h->blocks[h->num_blocks++] = *b;
	*b = (struct hdf5_block){ 0 };
	return 0;
}

struct shape { /* how messages of a header begin */
	unsigned int version;
	bool has_order, again;
	uint64_t left; /* version 1: messages that are still to come */
};

/* All messages between the cursor and end, which are in the header's last block. */
static int read_messages(struct hdf5_walk *w, struct hdf5_header *h, struct shape *s, struct cursor c)
{
	const struct hdf5_block *b = &h->blocks[h->num_blocks - 1];
	size_t begin_bytes = s->version == 1 ? 8 : s->has_order ? 6 : 4;
	int r = 0;

	while (r == 0 && cursor_left(&c) >= begin_bytes && (s->version != 1 || s->left > 0)) {
		struct hdf5_message m;

		m.type = s->version == 1 ? cursor_u16(&c) : cursor_u8(&c);
		m.len = cursor_u16(&c);
		m.flags = cursor_u8(&c);
		(void)cursor_bytes(&c, begin_bytes - (s->version == 1 ? 5 : 4));
		m.off = b->off + (uint64_t)(c.at - b->data);
		m.data = cursor_bytes(&c, m.len);
		if (!m.data)
			return hdf5_fail(w, -EBADMSG, m.off, "a message of %zu bytes is longer than its block", m.len);
		if (s->version == 1 && m.len % 8 != 0)
			return hdf5_fail(
				w, -EBADMSG, m.off, "a message of %zu bytes, which is no multiple of 8", m.len);
		s->left--;
		if (m.type == HDF5_MSG_NIL)
			continue;
		r = check_flags(w, &m, s->version);
		if (r == 0)
			r = add_message(w, h, &m);
	}
	return r;
}

/* A block of version 2 from its first message on, without checksum. */
static struct cursor inside(const struct hdf5_block *b, size_t from, unsigned int version)
{
	size_t tail = version == 1 ? 0 : 4;

	return b->len >= from + tail ? cursor_make(b->data + from, b->len - from - tail) : cursor_make(NULL, 0);
}

static int read_continuation(struct hdf5_walk *w, struct hdf5_header *h, struct shape *s, const struct hdf5_message *m)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	struct cursor c = cursor_make(m->data, m->len);
	uint64_t addr = hdf5_get_addr(w, &c), len = hdf5_get_len(w, &c);
	int r;

	if (!cursor_ok(&c) || len > HDF5_BLOCK_MAX)
		return hdf5_fail(w, -EBADMSG, m->off, "an impossible continuation of a header");
	r = (s->again ? hdf5_read : hdf5_read_once)(w, addr, (size_t)len, "the continuation of a header", &b);
	if (r == 0 && s->version == 2) {
		c = cursor_make(b.data, b.len);
		r = hdf5_signature(w, &b, &c, "OCHK");
		if (r == 0)
			r = hdf5_check(w, &b);
	}
	if (r == 0)
		r = add_block(w, h, &b);
	return r < 0 ? r
		     : read_messages(
			       w, h, s, inside(&h->blocks[h->num_blocks - 1], s->version == 2 ? 4 : 0, s->version));
}

/* Messages of continuation blocks may name further ones. */
static int read_continuations(struct hdf5_walk *w, struct hdf5_header *h, struct shape *s)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < h->num; i++)
		if (h->messages[i].type == HDF5_MSG_CONTINUATION) {
			struct hdf5_message m = h->messages[i]; /* the list may move */

			r = read_continuation(w, h, s, &m);
		}
	return r;
}

struct opening { /* what the first bytes say */
	struct shape shape;
	size_t from;    /* of the first message in the first block */
	uint64_t bytes; /* of the first block */
};

static int open1(struct hdf5_walk *w, const struct hdf5_block *b, struct cursor *c, struct opening *o)
{
	(void)cursor_u8(c);
	(void)cursor_u8(c);
	o->shape = (struct shape){ .version = 1, .left = cursor_u16(c) };
	(void)cursor_u32(c); /* how many links lead here */
	o->from = PREFIX_BYTES;
	o->bytes = PREFIX_BYTES + (uint64_t)cursor_u32(c);
	return cursor_ok(c) ? 0 : hdf5_fail(w, -EBADMSG, b->off, "a header is cut short");
}

static int open2(struct hdf5_walk *w, const struct hdf5_block *b, struct cursor *c, struct opening *o)
{
	unsigned int version, flags;

	(void)cursor_u32(c);
	version = cursor_u8(c);
	flags = cursor_u8(c);
	if (version != 2)
		return hdf5_fail(w, -ENOTSUP, b->off, "an object header of version %u", version);
	(void)cursor_bytes(c, (flags & TIMES_STORED ? 16 : 0) + (flags & PHASES_STORED ? 4 : 0));
	o->shape = (struct shape){ .version = 2, .has_order = flags & ORDER_TRACKED };
	o->bytes = hdf5_uint(c, 1u << (flags & SIZE_BITS));
	o->from = (size_t)(c->at - b->data);
	if (!cursor_ok(c) || o->bytes > HDF5_BLOCK_MAX)
		return hdf5_fail(w, -EBADMSG, b->off, "a header of an impossible size");
	o->bytes += o->from + 4;
	return 0;
}

/* Looks at as much as there is of the longest possible beginning. */
static int look(struct hdf5_walk *w, uint64_t addr, struct opening *o)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	uint64_t off = hdf5_off(w, addr, 0);
	size_t most = 34;
	struct cursor c;
	int r;

	if (off != HDF5_NOWHERE && w->size - off < most)
		most = w->size - off > PREFIX_BYTES ? (size_t)(w->size - off) : PREFIX_BYTES;
	r = hdf5_read(w, addr, most, "an object header", &b);
	if (r < 0)
		return r;
	w->file->num_metadata--; /* it is noted as a whole */
	c = cursor_make(b.data, b.len);
	if (b.data[0] == 1 && b.data[1] == 0)
		return open1(w, &b, &c, o);
	r = hdf5_signature(w, &b, &c, "OHDR");
	c = cursor_make(b.data, b.len);
	return r < 0 ? r : open2(w, &b, &c, o);
}

static int read_first(struct hdf5_walk *w, uint64_t addr, bool again, struct hdf5_header *h, struct shape *s)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	struct opening o = { 0 };
	int r = look(w, addr, &o);

	if (r < 0)
		return r;
	r = (again ? hdf5_read : hdf5_read_once)(w, addr, (size_t)o.bytes, "an object header", &b);
	if (r == 0 && o.shape.version == 2)
		r = hdf5_check(w, &b);
	if (r == 0)
		r = add_block(w, h, &b);
	*s = o.shape;
	s->again = again;
	return r < 0 ? r : read_messages(w, h, s, inside(&h->blocks[0], o.from, s->version));
}

int hdf5_header_read(struct hdf5_walk *w, uint64_t addr, bool again, struct hdf5_header *ret)
{
	struct hdf5_header h = { 0 };
	struct shape s = { 0 };
	int r = read_first(w, addr, again, &h, &s);

	if (r == 0)
		r = read_continuations(w, &h, &s);
	if (r < 0)
		hdf5_header_free(&h);
	else
		*ret = h;
	return r;
}
