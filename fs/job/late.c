/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What one node has asked another for may arrive when a third one has settled what came of it: messages keep their order between two nodes
 * only (docs/design/many-nodes.md, 3). Two things make sure that nothing is done then.
 *
 * Who gives up waiting asks all nodes once more, and says that he has given up when they have answered: each answers behind what came of him before,
 * and keeps nothing that he does not wait for any more.
 *
 * Who finds that a daemon has ended says so to whom he asks, and that takes nothing of it from there on. Of one that has ended without another in
 * its place, who may be back, the asked one answers when he knows that himself: until then -EBUSY, and he is asked again.
 *
 * Who is given up, or gives up, and goes on as he was is told by the clock: a lock is nobody else's for node_timeout from when its server last said
 * that it is there, and what is asked for under it says until when it may be done, which is earlier.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/job/private.h"
#include "fs/job/share.h"

#define FULL_USEC 2000u

/* ---- awaiting what was asked */

struct awaited { /* a node */
	struct await *a;
	uint32_t node;
	bool full; /* too much waits for it already */
};

struct await {
	struct job *j;
	void (*then)(struct job *j, void *arg);
	void *arg;
	_Atomic(uint32_t) missing;
	_Atomic(bool) in_vain; /* we end */
	struct awaited nodes[];
};

static void ask(struct job *j, void *arg);

static void node_done(struct await *a)
{
	if (atomic_fetch_sub(&a->missing, 1) > 1)
		return;
	if (!a->in_vain && workers_do(a->j->workers, a->then, a->arg) < 0)
		a->then(a->j, a->arg);
	free(a);
}

/* Another daemon there, or one that is given up, does nothing of it any more. */
static void answered(int status, const struct wire_msg *reply, void *arg)
{
	struct awaited *n = arg;
	struct await *a = n->a;

	(void)reply;
	n->full = status == -EAGAIN || status == -ENOMEM;
	bool again = n->full || status == -ETIMEDOUT;
	if (again && !a->j->ending && workers_do(a->j->workers, ask, n) == 0)
		return;
	if (again || a->j->ending)
		a->in_vain = true;
	node_done(a);
}

static void ask(struct job *j, void *arg)
{
	struct awaited *n = arg;
	struct wire_msg m = { 0 };

	if (n->full)
		usleep(FULL_USEC);
	message_init(&m, MESSAGE_NAME_AWAIT);
	int rc = peers_call_async(j->peers, n->node, &m, answered, n);
	wire_msg_free(&m);
	if (rc < 0)
		answered(rc, NULL, n);
}

int late_await(struct job *j, void (*then)(struct job *j, void *arg), void *arg)
{
	uint32_t num = peers_count(j->peers);
	struct await *a = calloc(1, sizeof(*a) + num * sizeof(a->nodes[0]));

	if (!a)
		return -ENOMEM;
	a->j = j;
	a->then = then;
	a->arg = arg;
	a->missing = num + 1;
	for (uint32_t i = 0; i < num; i++) {
		a->nodes[i] = (struct awaited){ .a = a, .node = i };
		ask(j, &a->nodes[i]);
	}
	node_done(a);
	return 0;
}

void late_serve_await(struct job *j, struct peers_request *rq)
{
	(void)j;
	peers_reply_status(rq, 0);
}

bool late_is_over(struct job *j, const struct wire_msg *m)
{
	uint64_t until = message_get(m, MESSAGE_SHARE_UNTIL);

	return until && share_clock_usec(j) >= until;
}

/* ---- daemons that are over: u32 node, u64 incarnation: none before it is there; u8: 1: nor is that one */

static void put(struct buf *out, const struct peers_node *n)
{
	buf_u32(out, n->node);
	buf_u64(out, n->incarnation);
	buf_u8(out, n->gone);
}

static void put_nodes(struct job *j, struct wire_msg *m, uint32_t first, uint32_t num)
{
	struct buf lives BUF_CLEANUP = { 0 };
	struct peers_node n;

	for (uint32_t i = first; i < first + num; i++)
		if (peers_nodes(j->peers, i, &n, 1) == 1)
			put(&lives, &n);
	message_put_bytes(m, MESSAGE_LIVES, lives.data, lives.len);
}

void late_put_node(struct job *j, struct wire_msg *m, uint32_t node)
{
	put_nodes(j, m, node, 1);
}

void late_put_all(struct job *j, struct wire_msg *m)
{
	put_nodes(j, m, 0, peers_count(j->peers));
}

uint64_t late_life(struct job *j, uint32_t node)
{
	struct peers_node n;

	if (peers_nodes(j->peers, node, &n, 1) == 0)
		return 0;
	return n.incarnation << 1 | n.gone;
}

/* Does nothing come any more of what is over? */
static bool hear(struct job *j, const struct peers_node *said)
{
	struct peers_node n;

	if (said->node == peers_self(j->peers))
		return true;
	if (!said->gone)
		return peers_heard_of(j->peers, said->node, said->incarnation) == 0;
	return peers_nodes(j->peers, said->node, &n, 1) == 1 && (n.gone || n.incarnation > said->incarnation);
}

static bool hear_all(struct job *j, const struct wire_msg *m)
{
	const uint8_t *bytes;
	size_t len;
	bool over = true;

	if (!message_get_bytes(m, MESSAGE_LIVES, 0, &bytes, &len))
		return true;
	struct cursor c = cursor_make(bytes, len);
	while (over && cursor_left(&c) > 0) {
		struct peers_node said = { .node = cursor_u32(&c) };

		said.incarnation = cursor_u64(&c);
		said.gone = cursor_u8(&c);
		over = cursor_ok(&c) && hear(j, &said);
	}
	return over;
}

void late_serve_question(struct job *j, struct peers_request *rq)
{
	if (peers_from(rq) == peers_self(j->peers) || hear_all(j, peers_msg(rq)))
		sequence_serve(j, rq);
	else
		peers_reply_status(rq, -EBUSY);
}
