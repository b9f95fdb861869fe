/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_PEER_FRAME_H
#define FS_PEER_FRAME_H

/*
 * What one daemon sends to another, as bytes (WIRE_PAYLOAD of WIRE_PEER_SEND and _RECEIVED). Little-endian: u8 version, u8
 * kind, u16 number of acks, u64 incarnation of the sender, u64 of the receiver, i64 the sender's clock, u64 number, u64 previous, u64 seen, u64 below, u64 of each ack; then, for
 * requests, replies and tells, u16 type and the body of the message to the end.
 */

#include <stddef.h>
#include <stdint.h>

#include "format/base/cursor.h"

#define FRAME_VERSION  3u
#define FRAME_ACKS_MAX 64u

enum frame_kind {
	FRAME_REQUEST = 1,
	FRAME_REPLY,
	FRAME_TELL,
	FRAME_ACK, /* nothing but what the head says */
	FRAME_BYE, /* the sender ends for good */
};

struct frame {
	enum frame_kind kind;
	uint64_t incarnation; /* of the sender; not 0 */
	uint64_t to;          /* of the receiver that it is meant for; not 0 */
	int64_t time_ns;      /* what the sender's clock showed (format/base/clock.h); 0: it has none */
	uint64_t number;      /* of the request or tell; a reply: of what it answers */
	uint64_t previous;    /* of requests and tells: the last one before it that waits still; 0: none does */
	uint64_t seen;        /* highest number of the receiver's that has reached the sender */
	uint64_t below;       /* all requests below are answered or given up: forget what was answered */
	uint32_t num_acks;    /* requests above it that are answered, too; at most FRAME_ACKS_MAX */
	const uint8_t *acks;  /* u64 each; borrowed */
	uint16_t type;        /* of the message */
	const uint8_t *body;  /* borrowed */
	size_t body_len;
};

/* All but the body; acks are taken from the array, not from f. */
void frame_put_head(struct buf *out, const struct frame *f, const uint64_t *acks);
/* 0, or -EBADMSG: not a frame; -EPROTONOSUPPORT: of another version. */
int frame_decode(const void *bytes, size_t len, struct frame *ret);
uint64_t frame_ack(const struct frame *f, uint32_t i);

#endif
