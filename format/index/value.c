/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Values of the index as bytes; inodes and pages have their own codecs (inode.c, extent.c).
 *
 *   NAME, BACKING   varint ino, u8 type (S_IFMT bits >> 12)
 *   SEGMENT         varint live bytes, u8 1 when it is a private segment in use
 *   XATTR, TARGET   the bytes themselves
 *   ORPHAN          nothing
 */
#include "format/index/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int name_decode(const void *val, size_t len, uint64_t *ret_ino, uint32_t *ret_type)
{
	struct cursor c = cursor_make(val, len);
	uint64_t ino = cursor_varint(&c);
	uint32_t type = cursor_u8(&c);

	if (!cursor_ok(&c) || cursor_left(&c) > 0 || type > 15)
		return -EBADMSG;
	*ret_ino = ino;
	*ret_type = type << 12;
	return 0;
}

int segment_decode(const void *val, size_t len, uint64_t *ret_live, bool *ret_private)
{
	struct cursor c = cursor_make(val, len);
	uint64_t live = cursor_varint(&c);
	uint8_t is_private = cursor_u8(&c);

	if (!cursor_ok(&c) || cursor_left(&c) > 0 || is_private > 1)
		return -EBADMSG;
	*ret_live = live;
	*ret_private = is_private;
	return 0;
}

static int blob_decode(struct blob_item *b, const void *val, size_t len)
{
	if (len > RECORD_VALUE_MAX)
		return -EBADMSG;
	b->data = malloc(len + 1);
	if (!b->data)
		return -ENOMEM;
	if (len)
		memcpy(b->data, val, len);
	b->data[len] = 0;
	b->len = (uint32_t)len;
	return 0;
}

static uint64_t page_number(const struct item *it)
{
	struct key_parts parts = { 0 };

	if (key_parse(item_key(it), it->key_len, &parts) < 0)
		return UINT64_MAX;
	return parts.page;
}

int item_encode(const struct item *it, struct buf *out)
{
	switch (it->kind) {
	case KEY_NAME:
	case KEY_BACKING:
		buf_varint(out, ((const struct name_item *)it)->ino);
		buf_u8(out, (uint8_t)(((const struct name_item *)it)->type >> 12));
		break;
	case KEY_INODE: return node_encode(&((const struct node_item *)it)->n, out);
	case KEY_PAGE: return extent_page_encode(&((const struct page_item *)it)->p, page_number(it), out);
	case KEY_SEGMENT:
		buf_varint(out, ((const struct segment_item *)it)->live);
		buf_u8(out, ((const struct segment_item *)it)->is_private);
		break;
	default: buf_bytes(out, ((const struct blob_item *)it)->data, ((const struct blob_item *)it)->len);
	}
	return buf_ok(out) ? 0 : -ENOMEM;
}

int item_decode(struct item *it, const void *val, size_t len)
{
	switch (it->kind) {
	case KEY_NAME:
	case KEY_BACKING: return name_decode(val, len, &((struct name_item *)it)->ino, &((struct name_item *)it)->type);
	case KEY_INODE: return node_decode(val, len, &((struct node_item *)it)->n);
	case KEY_PAGE: return extent_page_decode(val, len, page_number(it), &((struct page_item *)it)->p);
	case KEY_SEGMENT:
		return segment_decode(
			val, len, &((struct segment_item *)it)->live, &((struct segment_item *)it)->is_private);
	default: return blob_decode((struct blob_item *)it, val, len);
	}
}
