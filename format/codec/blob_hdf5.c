/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The HDF5 file around the parts of a process-centric subfile: a root group with three one-dimensional data sets of bytes, each in
 * one piece, after the "HDF5 File Format Specification, Version 3.0". Its few hundred bytes are the same for all such files but for
 * lengths and places; so no library is needed to write one, and the writer knows of every byte where it will lie. Superblock 2 and
 * object headers 2: HDF5 1.8 and later read them.
 */
#include "format/codec/blob.h"

#include <string.h>

#include "format/codec/hdf5_private.h"

#define PARTS             3u
#define DATA_ALIGN        512u
#define FILL_AT_ONCE      1u        /* room is there from the beginning, ... */
#define FILL_NEVER        (1u << 2) /* ... and nothing is put there */
#define MSG_GROUP_INFO    10u
#define LAYOUT_CONTIGUOUS 1u

struct part {
	const char *name;
	const void *bytes;
	uint64_t len, header_off, off;
};

static void put_sum(struct buf *out, size_t from)
{
	if (buf_ok(out))
		buf_u32(out, hdf5_checksum(out->data + from, out->len - from));
}

static void put_address(struct buf *out, const struct part *p)
{
	buf_u64(out, p->len > 0 ? p->off : UINT64_MAX);
}

static void put_superblock(struct buf *out, uint64_t end, uint64_t root)
{
	static const uint8_t start[12] = { 0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n', 2, 8, 8, 0 };
	size_t from = out->len;

	buf_bytes(out, start, sizeof(start));
	buf_u64(out, 0);          /* the file begins at 0, ... */
	buf_u64(out, UINT64_MAX); /* ... has no extension of this block, ... */
	buf_u64(out, end);
	buf_u64(out, root);
	put_sum(out, from);
}

/* ---- object headers */

static void put_message(struct buf *out, uint8_t type, const struct buf *body)
{
	buf_u8(out, type);
	buf_u16(out, (uint16_t)body->len);
	buf_u8(out, 0);
	buf_bytes(out, body->data, body->len);
}

static void put_object(struct buf *out, const struct buf *messages)
{
	size_t from = out->len;

	buf_bytes(out, "OHDR", 4);
	buf_u8(out, 2);
	buf_u8(out, 0); /* the length of the messages has one byte; no times */
	buf_u8(out, (uint8_t)messages->len);
	buf_bytes(out, messages->data, messages->len);
	put_sum(out, from);
}

static void put_root(struct buf *out, const struct part *parts)
{
	struct buf BUF_CLEANUP messages = { 0 }, BUF_CLEANUP body = { 0 };

	buf_u16(&body, 0); /* version, flags */
	buf_u64(&body, UINT64_MAX);
	buf_u64(&body, UINT64_MAX); /* no heap and no tree: the links are here */
	put_message(&messages, HDF5_MSG_LINK_INFO, &body);
	buf_reset(&body);
	buf_u16(&body, 0);
	put_message(&messages, MSG_GROUP_INFO, &body);
	for (unsigned int i = 0; i < PARTS; i++) {
		buf_reset(&body);
		buf_u8(&body, 1); /* version */
		buf_u8(&body, 0); /* a hard link; the length of its name has one byte */
		buf_u8(&body, (uint8_t)strlen(parts[i].name));
		buf_bytes(&body, parts[i].name, strlen(parts[i].name));
		buf_u64(&body, parts[i].header_off);
		put_message(&messages, HDF5_MSG_LINK, &body);
	}
	put_object(out, &messages);
}

static void put_dataset(struct buf *out, const struct part *p)
{
	static const uint8_t space[4] = { 2, 1, 0, 1 };   /* version 2, one dimension, that cannot grow, simple */
	static const uint8_t type[4] = { 0x10, 0, 0, 0 }; /* version 1, an integer without sign, smallest byte first */
	static const uint8_t fill[2] = { 3, FILL_AT_ONCE | FILL_NEVER };
	static const uint8_t layout[2] = { 3, LAYOUT_CONTIGUOUS };
	struct buf BUF_CLEANUP messages = { 0 }, BUF_CLEANUP body = { 0 };

	buf_bytes(&body, space, sizeof(space));
	buf_u64(&body, p->len);
	put_message(&messages, HDF5_MSG_DATASPACE, &body);
	buf_reset(&body);
	buf_bytes(&body, type, sizeof(type));
	buf_u32(&body, 1); /* byte, ... */
	buf_u16(&body, 0);
	buf_u16(&body, 8); /* ... of 8 bits, from bit 0 on */
	put_message(&messages, HDF5_MSG_DATATYPE, &body);
	buf_reset(&body);
	buf_bytes(&body, fill, sizeof(fill));
	put_message(&messages, HDF5_MSG_FILL, &body);
	buf_reset(&body);
	buf_bytes(&body, layout, sizeof(layout));
	put_address(&body, p);
	buf_u64(&body, p->len);
	put_message(&messages, HDF5_MSG_LAYOUT, &body);
	put_object(out, &messages);
}

/* ---- all of it */

/* What lies before the parts; the second time it is right. */
static void put_all(struct buf *out, struct part *parts, uint64_t end, uint64_t *root)
{
	put_superblock(out, end, *root);
	*root = out->len;
	put_root(out, parts);
	for (unsigned int i = 0; i < PARTS; i++) {
		parts[i].header_off = out->len;
		put_dataset(out, &parts[i]);
	}
}

void blob_hdf5_encode(const struct blob_hdf5 *h, struct buf *out)
{
	struct part parts[PARTS] = { { "header_blob", h->header, h->header_bytes, 0, 0 },
		{ "table_blob", h->table, h->table_bytes, 0, 0 }, { "data_blob", NULL, h->data_bytes, 0, 0 } };
	struct buf BUF_CLEANUP head = { 0 };
	uint64_t root = 0, end;

	put_all(&head, parts, 0, &root);
	parts[0].off = head.len;
	parts[1].off = parts[0].off + parts[0].len;
	parts[2].off = (parts[1].off + parts[1].len + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
	end = parts[2].off + parts[2].len;
	buf_reset(&head);
	put_all(&head, parts, end, &root);
	if (!buf_ok(&head))
		out->bad = true;
	buf_bytes(out, head.data, head.len);
	buf_bytes(out, h->header, h->header_bytes);
	buf_bytes(out, h->table, h->table_bytes);
	buf_zeros(out, (size_t)(parts[2].off - parts[1].off - parts[1].len));
}
