/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A node asks for sessions of the job, and hears of their ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/drain/collective_private.h"

int collective_ask(
	struct collective *c, uint64_t id, enum drain_kind kind, bool for_room, char *const *paths, size_t num)
{
	struct ask *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->id = id;
	a->kind = kind;
	a->for_room = for_room;
	collective_paths_copy(&a->paths, paths, num);
	pthread_mutex_lock(&c->lock);
	collective_append(&c->mine, a);
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

void collective_cancel(struct collective *c, uint64_t id)
{
	struct wire_msg m = { 0 };

	message_init(&m, (enum message_type)MESSAGE_DRAIN_CANCEL);
	tag_put(&m, TAG_ID, id);
	peers_tell(c->opt.peers, 0, &m);
	wire_msg_free(&m);
}

/* lock is held, given up meanwhile. what: has become of node 0. */
static void give_up_ask(struct collective *c, uint64_t id, const char *what)
{
	char name[128], why[CISTERN_ERROR_TEXT_BYTES];

	collective_ask_free(collective_take_ask(&c->mine, 0, id));
	pthread_mutex_unlock(&c->lock);
	snprintf(why, sizeof(why), "%s, which leads drains, %s: without it nothing is drained",
		peers_name(c->opt.peers, 0, name, sizeof(name)), what);
	c->opt.answer(id, CISTERN_EXIT_INCOMPLETE, why, c->opt.arg);
	pthread_mutex_lock(&c->lock);
}

/* lock is held, given up meanwhile. */
static void send_ask(struct collective *c, struct ask *a)
{
	struct wire_msg m = { 0 };
	uint64_t id = a->id;
	int r;

	message_init(&m, (enum message_type)MESSAGE_DRAIN_ASK);
	tag_put(&m, TAG_ID, a->id);
	tag_put(&m, TAG_KIND, a->kind);
	tag_put(&m, TAG_HASTE, a->for_room ? WIRE_HASTE_ROOM : WIRE_HASTE_NONE);
	collective_paths_encode(&m, &a->paths);
	a->sent = true;
	pthread_mutex_unlock(&c->lock);
	r = peers_call(c->opt.peers, 0, &m, NULL);
	wire_msg_free(&m);
	pthread_mutex_lock(&c->lock);
	a = r < 0 && r != -ESHUTDOWN ? collective_find_ask(c->mine, 0, id) : NULL;
	if (a && r == -ECONNRESET) {
		a->sent = false; /* another daemon leads now: once more */
	} else if (a) {
		give_up_ask(c, id, "cannot be reached");
	}
}

void *collective_asker(void *arg)
{
	struct collective *c = arg;

	pthread_mutex_lock(&c->lock);
	while (!c->ending) {
		struct ask *a = c->mine;

		while (a && a->sent && !a->lost)
			a = a->next;
		if (a && a->lost)
			give_up_ask(c, a->id, "has ended");
		else if (a)
			send_ask(c, a);
		else
			collective_wait_changed(c, INT64_MAX);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

void collective_serve_answer(struct collective *c, const struct wire_msg *m)
{
	uint64_t id = tag_get(m, TAG_ID);
	char text[CISTERN_ERROR_TEXT_BYTES] = "";
	struct ask *a;

	wire_get_str(m, WIRE_TEXT, 0, text, sizeof(text));
	pthread_mutex_lock(&c->lock);
	a = collective_take_ask(&c->mine, 0, id);
	pthread_mutex_unlock(&c->lock);
	if (!a)
		return;
	collective_ask_free(a);
	c->opt.answer(id, (enum cistern_exit)tag_get(m, TAG_RESULT), text, c->opt.arg);
}
