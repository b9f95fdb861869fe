/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "format/base/tagged.h"

#include <errno.h>

#define REQUIRED 1u

int tagged_next(struct cursor *c, struct tagged *f)
{
	uint64_t tag, len;
	uint8_t flags;
	const uint8_t *bytes;

	if (cursor_left(c) == 0 || *c->at == 0)
		return cursor_ok(c) ? 0 : -EBADMSG;
	tag = cursor_varint(c);
	flags = cursor_u8(c);
	len = cursor_varint(c);
	if (tag <= f->tag || tag > TAGGED_TAG_MAX || len > cursor_left(c))
		cursor_fail(c);
	bytes = cursor_bytes(c, (size_t)len);
	if (!cursor_ok(c))
		return -EBADMSG;
	f->tag = (uint32_t)tag;
	f->required = flags & REQUIRED;
	f->bytes = cursor_make(bytes, (size_t)len);
	if (!(flags & ~REQUIRED))
		return 1;
	cursor_fail(c);
	return -EPROTONOSUPPORT;
}

void tagged_put(struct buf *out, uint32_t tag, bool required, const void *bytes, size_t len)
{
	buf_varint(out, tag);
	buf_u8(out, required ? REQUIRED : 0);
	buf_varint(out, len);
	buf_bytes(out, bytes, len);
}
