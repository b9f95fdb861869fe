/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A node asks for sessions of the job, and hears of their ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/text.h"
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
	struct ask *a;
	bool here;

	pthread_mutex_lock(&c->lock);
	a = collective_find_ask(c->mine, 0, id);
	if (a)
		a->cancelled = true;
	here = c->working && c->working_ask == id;
	pthread_mutex_unlock(&c->lock);
	if (here)
		c->opt.stop_work(c->opt.arg);
	message_init(&m, (enum message_type)MESSAGE_DRAIN_CANCEL);
	tag_put(&m, TAG_ID, id);
	peers_tell(c->opt.peers, 0, &m);
	wire_msg_free(&m);
}

int collective_pause(struct collective *c, bool pause)
{
	struct wire_msg m = { 0 };

	message_init(&m, (enum message_type)MESSAGE_DRAIN_PAUSE);
	tag_put(&m, TAG_PAUSED, pause);
	int r = peers_call(c->opt.peers, 0, &m, NULL);
	wire_msg_free(&m);
	return r;
}

/* From the worker. Should node 0's daemon be there again meanwhile, it has not been asked yet. */
void collective_end_alone(struct collective *c, uint64_t id, const char *what, const struct collective_done *done)
{
	char name[128], text[CISTERN_ERROR_TEXT_BYTES], said[CISTERN_ERROR_TEXT_BYTES / 2];
	struct ask *a;

	pthread_mutex_lock(&c->lock);
	a = collective_find_ask(c->mine, 0, id);
	if (a && !a->sent && !a->cancelled) {
		a->alone = false;
		a = NULL;
		pthread_cond_broadcast(&c->changed);
	} else if (a) {
		collective_ask_free(collective_take_ask(&c->mine, 0, id));
	}
	pthread_mutex_unlock(&c->lock);
	if (!a)
		return;
	snprintf(text, sizeof(text),
		"%s, which leads drains, %s: only what this node alone has written is drained, into directories that are there; the "
		"rest stays in the stores%s%s",
		peers_name(c->opt.peers, 0, name, sizeof(name)), what, done->text[0] ? "; " : "",
		text_fit(said, sizeof(said), done->text));
	c->opt.answer(id, done->result == CISTERN_EXIT_OK ? CISTERN_EXIT_INCOMPLETE : done->result, text, c->opt.arg);
}

/*
 * lock is held, given up meanwhile. Node 0 leads, so without it there is no session; but what this node alone has written needs no other
 * one. what: has become of node 0.
 */
static void go_alone(struct collective *c, struct ask *a, const char *what)
{
	struct collective_done none = { .result = CISTERN_EXIT_FAILED, .text = "out of memory" };
	uint64_t id = a->id;

	a->sent = a->alone = true;
	a->lost = false;
	if (collective_work_alone(c, a, what) == 0)
		return;
	pthread_mutex_unlock(&c->lock);
	collective_end_alone(c, id, what, &none);
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
	a = r != -ESHUTDOWN ? collective_find_ask(c->mine, 0, id) : NULL;
	if (!a)
		return;
	a->heard_usec = collective_now_usec();
	if (r == -ECONNRESET)
		a->sent = false; /* another daemon leads now: once more */
	else if (r < 0)
		go_alone(c, a, "cannot be reached");
}

/* Who is unmounted waits as long for node 0 as that waits for the nodes that are not: the agents may come back. */
static int64_t patience(const struct collective *c, const struct ask *a)
{
	return a->kind == DRAIN_FINAL ? (int64_t)c->opt.leave_timeout_usec : 0;
}

/*
 * lock is held, given up meanwhile. Node 0 may be lost without a word, and with it what it has been asked. An answer under way is here by the
 * time we ask again.
 */
static void ask_whether_awaited(struct collective *c, uint64_t id)
{
	struct wire_msg m = { 0 };
	struct ask *a;
	int r;

	message_init(&m, (enum message_type)MESSAGE_DRAIN_WAITS);
	tag_put(&m, TAG_ID, id);
	pthread_mutex_unlock(&c->lock);
	r = peers_call(c->opt.peers, 0, &m, NULL);
	wire_msg_free(&m);
	pthread_mutex_lock(&c->lock);
	a = collective_find_ask(c->mine, 0, id);
	if (!a || !a->sent || a->alone || r == -ESHUTDOWN)
		return;
	if (r == -ETIMEDOUT || r == -EHOSTDOWN) {
		if (r == -EHOSTDOWN || collective_now_usec() - a->heard_usec >= patience(c, a))
			go_alone(c, a, "cannot be reached");
		return;
	}
	a->heard_usec = collective_now_usec();
	a->sent = r != -ENOENT || !a->unknown;
	a->unknown = r == -ENOENT && a->sent;
}

/* lock is held. One that is to be sent, or that is lost; else one that is under way. NULL: none of them. */
static struct ask *next_ask(struct collective *c, bool sent)
{
	struct ask *a = c->mine;

	while (a && (a->alone || (a->sent && !a->lost) != sent))
		a = a->next;
	return a;
}

void *collective_asker(void *arg)
{
	struct collective *c = arg;
	int64_t at = INT64_MAX;

	pthread_mutex_lock(&c->lock);
	while (!c->ending) {
		struct ask *a = next_ask(c, false), *sent = next_ask(c, true);
		bool due = !a && sent && collective_now_usec() >= at;

		if (a && a->lost)
			go_alone(c, a, "has ended");
		else if (a)
			send_ask(c, a);
		else if (due)
			ask_whether_awaited(c, sent->id);
		if (a || due)
			at = collective_now_usec() + WAITS * collective_ask_usec(c);
		else
			collective_wait_changed(c, sent ? at : INT64_MAX);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* An answer that has waited for us may be for the daemon before us, whose asks had the same numbers. */
void collective_serve_answer(struct collective *c, const struct wire_msg *m)
{
	uint64_t id = tag_get(m, TAG_ID);
	char text[CISTERN_ERROR_TEXT_BYTES] = "";
	struct ask *a;

	if (tag_get(m, TAG_LIFE) != collective_life(c, peers_self(c->opt.peers)))
		return;
	wire_get_str(m, WIRE_TEXT, 0, text, sizeof(text));
	pthread_mutex_lock(&c->lock);
	a = collective_take_ask(&c->mine, 0, id);
	pthread_mutex_unlock(&c->lock);
	if (!a)
		return;
	collective_ask_free(a);
	c->opt.answer(id, (enum cistern_exit)tag_get(m, TAG_RESULT), text, c->opt.arg);
}
