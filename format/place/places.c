/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/place/places.h"

#define F_WHOLE 0x100u /* beside the kind */

void places_put(struct buf *b, const struct share_extent *e)
{
	buf_u64(b, e->off);
	buf_u64(b, e->segment_off);
	buf_u64(b, e->time_usec);
	buf_u64(b, e->stamp);
	buf_u32(b, e->len);
	buf_u32(b, e->node);
	buf_u32(b, e->segment);
	buf_u32(b, e->crc);
	buf_u32(b, e->kind | (e->whole ? F_WHOLE : 0));
}

bool places_get(struct cursor *c, struct share_extent *ret)
{
	struct share_extent e = { .off = cursor_u64(c) };

	e.segment_off = cursor_u64(c);
	e.time_usec = cursor_u64(c);
	e.stamp = cursor_u64(c);
	e.len = cursor_u32(c);
	e.node = cursor_u32(c);
	e.segment = cursor_u32(c);
	e.crc = cursor_u32(c);
	uint32_t kind = cursor_u32(c);
	e.kind = kind & 0xff;
	e.whole = kind & F_WHOLE;
	if (!cursor_ok(c) || e.len == 0 || e.kind > EXTENT_BACKING)
		return false;
	*ret = e;
	return true;
}
