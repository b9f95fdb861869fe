/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Values of the index as bytes; others have their own codecs (inode.c, extent.c, writers.c, commits.c, share.c, share_head.c).
 *
 *   NAME, BACKING   varint ino, u8 type (S_IFMT bits >> 12), varint stamp unless 0
 *   PAGE            of one that is kept in parts: varint 0, u64 which parts there are, varint extents in them
 *   SEGMENT         varint live bytes, u8 1 when it is a private segment in use
 *   XATTR, TARGET   the bytes themselves
 *   ORPHAN          nothing
 */
#include "format/index/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int name_decode(const void *val, size_t len, struct name_value *ret)
{
	struct cursor c = cursor_make(val, len);
	struct name_value v = { .ino = cursor_varint(&c) };
	uint32_t type = cursor_u8(&c);

	if (cursor_left(&c) > 0) {
		v.stamp = cursor_varint(&c);
		if (v.stamp == 0)
			cursor_fail(&c);
	}
	if (!cursor_ok(&c) || cursor_left(&c) > 0 || type > 15)
		return -EBADMSG;
	v.type = type << 12;
	*ret = v;
	return 0;
}

static int decode_name_item(const void *val, size_t len, struct name_item *d)
{
	struct name_value v = { 0 };
	int r = name_decode(val, len, &v);

	d->ino = v.ino;
	d->stamp = v.stamp;
	d->type = v.type;
	return r;
}

static void encode_name_item(const struct name_item *d, struct buf *out)
{
	buf_varint(out, d->ino);
	buf_u8(out, (uint8_t)(d->type >> 12));
	if (d->stamp)
		buf_varint(out, d->stamp);
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

static int encode_page_item(const struct page_item *pi, struct buf *out)
{
	if (!pi->parts)
		return extent_page_encode(&pi->p, page_number(&pi->it), out);
	buf_varint(out, 0);
	buf_u64(out, pi->parts);
	buf_varint(out, pi->total);
	return buf_ok(out) ? 0 : -ENOMEM;
}

static int decode_page_item(struct page_item *pi, const void *val, size_t len)
{
	struct cursor c = cursor_make(val, len);
	uint64_t total;

	if (cursor_varint(&c) != 0 || cursor_left(&c) == 0)
		return extent_page_decode(val, len, page_number(&pi->it), &pi->p);
	pi->parts = cursor_u64(&c);
	total = cursor_varint(&c);
	if (!cursor_ok(&c) || cursor_left(&c) > 0 || !pi->parts || !total || total > EXTENT_PAGE_SPAN)
		return -EBADMSG;
	pi->total = (uint32_t)total;
	return 0;
}

int item_encode(const struct item *it, struct buf *out)
{
	switch (it->kind) {
	case KEY_NAME:
	case KEY_BACKING: encode_name_item((const struct name_item *)it, out); break;
	case KEY_INODE: return node_encode(&((const struct node_item *)it)->n, out);
	case KEY_PAGE: return encode_page_item((const struct page_item *)it, out);
	case KEY_PART: return extent_page_encode(&((const struct page_item *)it)->p, page_number(it) / PAGE_PARTS, out);
	case KEY_COMMITS: return commits_encode(&((const struct commits_item *)it)->c, out);
	case KEY_WRITERS: return writers_encode(&((const struct writers_item *)it)->w, out);
	case KEY_SHARE: return share_head_encode(&((const struct share_item *)it)->h, out);
	case KEY_SHARE_PAGE: return share_page_encode(&((const struct share_page_item *)it)->p, page_number(it), out);
	case KEY_CONFLICTS: return share_conflicts_encode(&((const struct conflicts_item *)it)->s, out);
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
	case KEY_BACKING: return decode_name_item(val, len, (struct name_item *)it);
	case KEY_INODE: return node_decode(val, len, &((struct node_item *)it)->n);
	case KEY_PAGE: return decode_page_item((struct page_item *)it, val, len);
	case KEY_PART: return extent_page_decode(val, len, page_number(it) / PAGE_PARTS, &((struct page_item *)it)->p);
	case KEY_COMMITS: return commits_decode(val, len, &((struct commits_item *)it)->c);
	case KEY_WRITERS: return writers_decode(val, len, &((struct writers_item *)it)->w);
	case KEY_SHARE: return share_head_decode(val, len, &((struct share_item *)it)->h);
	case KEY_SHARE_PAGE: return share_page_decode(val, len, page_number(it), &((struct share_page_item *)it)->p);
	case KEY_CONFLICTS: return share_conflicts_decode(val, len, &((struct conflicts_item *)it)->s);
	case KEY_SEGMENT:
		return segment_decode(
			val, len, &((struct segment_item *)it)->live, &((struct segment_item *)it)->is_private);
	default: return blob_decode((struct blob_item *)it, val, len);
	}
}
