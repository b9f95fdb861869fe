/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/peer/frame.h"

#include <errno.h>
#include <stdbool.h>

static bool carries_message(enum frame_kind kind)
{
	return kind == FRAME_REQUEST || kind == FRAME_REPLY || kind == FRAME_TELL;
}

void frame_put_head(struct buf *out, const struct frame *f, const uint64_t *acks)
{
	buf_u8(out, FRAME_VERSION);
	buf_u8(out, (uint8_t)f->kind);
	buf_u16(out, (uint16_t)f->num_acks);
	buf_u64(out, f->incarnation);
	buf_u64(out, f->to);
	buf_u64(out, (uint64_t)f->time_ns);
	buf_u64(out, f->number);
	buf_u64(out, f->previous);
	buf_u64(out, f->seen);
	buf_u64(out, f->below);
	for (uint32_t i = 0; i < f->num_acks; i++)
		buf_u64(out, acks[i]);
	if (carries_message(f->kind))
		buf_u16(out, f->type);
}

int frame_decode(const void *bytes, size_t len, struct frame *ret)
{
	struct cursor c = cursor_make(bytes, len);
	struct frame f = { 0 };
	uint8_t version = cursor_u8(&c), kind = cursor_u8(&c);

	if (cursor_ok(&c) && version != FRAME_VERSION)
		return -EPROTONOSUPPORT;
	f.num_acks = cursor_u16(&c);
	f.incarnation = cursor_u64(&c);
	f.to = cursor_u64(&c);
	f.time_ns = (int64_t)cursor_u64(&c);
	f.number = cursor_u64(&c);
	f.previous = cursor_u64(&c);
	f.seen = cursor_u64(&c);
	f.below = cursor_u64(&c);
	if (kind < FRAME_REQUEST || kind > FRAME_BYE || f.num_acks > FRAME_ACKS_MAX || f.incarnation == 0 || f.to == 0)
		cursor_fail(&c);
	f.kind = kind;
	f.acks = cursor_bytes(&c, (size_t)f.num_acks * 8);
	if (carries_message(f.kind)) {
		f.type = cursor_u16(&c);
		f.body_len = cursor_left(&c);
		f.body = cursor_bytes(&c, f.body_len);
		if (f.number == 0)
			cursor_fail(&c);
	}
	if (!cursor_ok(&c) || cursor_left(&c) > 0)
		return -EBADMSG;
	*ret = f;
	return 0;
}

uint64_t frame_ack(const struct frame *f, uint32_t i)
{
	struct cursor c = cursor_make(f->acks + (size_t)i * 8, 8);

	return cursor_u64(&c);
}
