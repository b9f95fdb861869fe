/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What other nodes, and this one, ask the server of names (names.c), as messages. The ends of locks are its own, since it may keep them. */
#include <errno.h>
#include <stdlib.h>

#include "fs/job/private.h"

void pointer_put(struct wire_msg *m, const struct pointer *at)
{
	message_put(m, MESSAGE_INO, at->ino);
	message_put(m, MESSAGE_POINTER, at->hidden);
	message_put(m, MESSAGE_OTHER, at->stamp);
	message_put(m, MESSAGE_LEFT, at->left);
	message_put(m, MESSAGE_LIFE, at->left_life);
}

void pointer_get(const struct wire_msg *m, struct pointer *ret)
{
	ret->ino = message_get(m, MESSAGE_INO);
	ret->hidden = message_get(m, MESSAGE_POINTER);
	ret->stamp = message_get(m, MESSAGE_OTHER);
	ret->left = (uint32_t)message_get(m, MESSAGE_LEFT);
	ret->left_life = message_get(m, MESSAGE_LIFE);
}

static void reply_waiter(struct names_waiter *w)
{
	struct wire_msg reply = { 0 };

	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, w->status);
	if (w->status == 0) {
		pointer_put(&reply, &w->at);
		message_put(&reply, MESSAGE_STAMP, w->stamp);
		message_put(&reply, MESSAGE_SHARE_UNTIL, w->until_usec);
	}
	peers_reply(w->rq, &reply);
	wire_msg_free(&reply);
	free(w);
}

void names_serve_claim(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	char name[RECORD_NAME_MAX + 1];
	struct pointer claim;

	pointer_get(m, &claim);
	if (message_get_str(m, MESSAGE_NAME, name, sizeof(name)))
		names_claim(j->names, peers_from(rq), message_get(m, MESSAGE_DIR), name, &claim);
	peers_reply_status(rq, 0);
}

static void serve_waiter(struct job *j, struct peers_request *rq, enum names_event what)
{
	const struct wire_msg *m = peers_msg(rq);
	struct names_waiter *w = calloc(1, sizeof(*w));
	char name[RECORD_NAME_MAX + 1];

	if (!w || !message_get_str(m, MESSAGE_NAME, name, sizeof(name))) {
		peers_reply_status(rq, w ? -EBADMSG : -ENOMEM);
		free(w);
		return;
	}
	w->what = what;
	w->node = peers_from(rq);
	w->id = message_get(m, MESSAGE_COUNT);
	w->tree = message_get(m, MESSAGE_TREE);
	w->renews = what == NAMES_LOCK && message_get(m, MESSAGE_FLAGS);
	w->done = reply_waiter;
	w->rq = rq;
	names_ask(j->names, message_get(m, MESSAGE_DIR), name, w);
}

void names_serve_lock(struct job *j, struct peers_request *rq)
{
	serve_waiter(j, rq, NAMES_LOCK);
}

void names_serve_lookup(struct job *j, struct peers_request *rq)
{
	serve_waiter(j, rq, NAMES_LOOKUP);
}

void names_serve_doubt(struct job *j, struct peers_request *rq)
{
	char name[RECORD_NAME_MAX + 1];

	if (message_get_str(peers_msg(rq), MESSAGE_NAME, name, sizeof(name)))
		names_doubt(j->names, message_get(peers_msg(rq), MESSAGE_DIR), name);
	peers_reply_status(rq, 0);
}
