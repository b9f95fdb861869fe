/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A node has lost power, and with it that bytes of shared files were cut off: its maps and layers have them again, of which others believe that they
 * are gone. All nodes know of all cuts (cut.c), so it learns them again from all, before anybody writes to such a file here. That is for nothing
 * as long as nobody loses power; and whatever one of them remembers is so for all, synced or not.
 */
#include "fs/job/share.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define AGAIN_USEC  10000u
#define ENTRY_BYTES 24u          /* inode, stamp, size */
#define REPLY_BYTES (256u << 10) /* and the cuts of one file more */

/* ---- who is asked */

struct listing_cuts {
	struct state *st;
	uint64_t after, last;
	struct share_cut *cuts; /* owned: SHARE_CUTS_MAX */
	struct buf body;
};

/* 1: that is enough for one answer. */
static int put_cuts(uint64_t ino, uint64_t extents, void *arg)
{
	struct listing_cuts *l = arg;
	size_t num;

	(void)extents;
	if (ino <= l->after)
		return 0;
	if (l->body.len >= REPLY_BYTES)
		return 1;
	int rc = state_share_cuts(l->st, ino, l->cuts, &num);
	for (size_t i = 0; rc == 0 && i < num; i++) {
		buf_u64(&l->body, ino);
		buf_u64(&l->body, l->cuts[i].stamp);
		buf_u64(&l->body, l->cuts[i].size);
	}
	l->last = ino;
	return rc;
}

void relearn_serve_cuts(struct job *j, struct peers_request *rq)
{
	struct listing_cuts l = { .st = j->state, .after = message_get(peers_msg(rq), MESSAGE_COUNT) };
	struct wire_msg reply = { 0 };

	l.cuts = calloc(SHARE_CUTS_MAX, sizeof(*l.cuts));
	int rc = l.cuts ? state_each_shared(j->state, put_cuts, &l) : -ENOMEM;
	if (rc >= 0 && !buf_ok(&l.body))
		rc = -ENOMEM;
	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, rc < 0 ? rc : 0);
	message_put(&reply, MESSAGE_COUNT, rc > 0 ? l.last : 0);
	message_put_bytes(&reply, MESSAGE_SHARE_PIECES, l.body.data, l.body.len);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
	buf_free(&l.body);
	free(l.cuts);
}

/* ---- who asks */

static int take_cuts(struct job *j, const struct wire_msg *reply)
{
	const uint8_t *bytes;
	size_t len;
	int rc = 0;

	if (!message_get_bytes(reply, MESSAGE_SHARE_PIECES, 0, &bytes, &len))
		return -EBADMSG;
	struct cursor c = cursor_make(bytes, len);
	for (size_t i = 0; rc == 0 && i < len / ENTRY_BYTES; i++) {
		uint64_t ino = cursor_u64(&c), stamp = cursor_u64(&c);

		rc = cut_again(j, ino, &(struct cut){ .size = cursor_u64(&c), .stamp = stamp });
	}
	return rc;
}

static int ask(struct job *j, uint32_t node, uint64_t *after)
{
	struct wire_msg m = { 0 }, reply = { 0 };

	message_init(&m, MESSAGE_POWER_CUTS);
	message_put(&m, MESSAGE_COUNT, *after);
	int rc = peers_call(j->peers, node, &m, &reply);
	if (rc == 0)
		rc = take_cuts(j, &reply);
	if (rc == 0)
		*after = message_get(&reply, MESSAGE_COUNT);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
}

static bool may_pass(int rc)
{
	return rc == -ECONNRESET || rc == -ETIMEDOUT || rc == -EAGAIN;
}

/* Another daemon of that node may know less than the one that we have heard a part of, and not more. */
static int learn_from(struct job *j, uint32_t node)
{
	uint64_t after = 0;
	int rc;

	do {
		rc = ask(j, node, &after);
		if (may_pass(rc))
			usleep(AGAIN_USEC);
	} while ((may_pass(rc) || (rc == 0 && after)) && !j->ending);
	return rc == -EHOSTDOWN || rc == -ESHUTDOWN ? 0 : rc;
}

int relearn_cuts(struct job *j)
{
	uint32_t num = peers_count(j->peers), self = peers_self(j->peers);
	int rc = 0;

	for (uint32_t node = 0; node < num && rc == 0 && !j->ending; node++)
		if (node != self)
			rc = learn_from(j, node);
	return rc;
}
