/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/window/control.h"

#include <errno.h>

#include "format/base/cursor.h"

uint8_t *control_encode(const struct control *m)
{
	struct buf b = { 0 };

	buf_u32(&b, m->kind);
	buf_u32(&b, (uint32_t)m->status);
	buf_u32(&b, m->segment);
	buf_u32(&b, 0);
	buf_u64(&b, m->at);
	buf_u64(&b, m->len);
	buf_u64(&b, m->mapping);
	if (buf_ok(&b))
		return b.data;
	buf_free(&b);
	return NULL;
}

int control_decode(const uint8_t *bytes, size_t len, struct control *ret)
{
	struct cursor c = cursor_make(bytes, len);
	struct control m = { 0 };

	m.kind = (enum control_kind)cursor_u32(&c);
	m.status = (int32_t)cursor_u32(&c);
	m.segment = cursor_u32(&c);
	cursor_u32(&c);
	m.at = cursor_u64(&c);
	m.len = cursor_u64(&c);
	m.mapping = cursor_u64(&c);
	if (!cursor_ok(&c) || cursor_left(&c) || m.kind < CONTROL_ASK || m.kind > CONTROL_END)
		return -EBADMSG;
	*ret = m;
	return 0;
}
