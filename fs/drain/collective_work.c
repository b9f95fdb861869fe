/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A node carries out one part of a session at a time, and tells node 0. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/drain/collective_private.h"

static void tell_done(struct collective *c, const struct task *t, const struct collective_done *done)
{
	struct wire_msg m = { 0 };
	struct buf totals = { 0 };

	message_init(&m, (enum message_type)MESSAGE_DRAIN_PART_DONE);
	tag_put(&m, TAG_SESSION, t->session);
	tag_put(&m, TAG_PART, t->part);
	tag_put(&m, TAG_RESULT, done->result);
	wire_put_str(&m, WIRE_TEXT, done->text);
	collective_put_shared(&m, &done->shared);
	manifest_totals_encode(&done->totals, &totals);
	wire_put_bytes(&m, WIRE_TOTALS, totals.data, totals.len);
	buf_free(&totals);
	peers_call(c->opt.peers, 0, &m, NULL); /* node 0 cannot be reached: it does without us */
	wire_msg_free(&m);
}

static int tell(struct collective *c, int type, const void *bytes, size_t len)
{
	struct wire_msg m = { 0 };
	int r;

	message_init(&m, (enum message_type)type);
	wire_put_bytes(&m, WIRE_PAYLOAD, bytes, len);
	r = peers_call(c->opt.peers, 0, &m, NULL);
	wire_msg_free(&m);
	return r;
}

int collective_tell_lines(struct collective *c, const void *lines, size_t len)
{
	return tell(c, MESSAGE_DRAIN_LINES, lines, len);
}

int collective_tell_dirs(struct collective *c, const void *bytes, size_t len)
{
	return tell(c, MESSAGE_DRAIN_DIRS, bytes, len);
}

/* Nobody wants it any more, or node 0 has answered after all. */
static bool is_in_vain(struct collective *c, const struct task *t)
{
	const struct ask *a;
	bool yes;

	pthread_mutex_lock(&c->lock);
	a = t->alone ? collective_find_ask(c->mine, 0, t->ask) : NULL;
	yes = t->alone && (!a || a->cancelled || !a->sent);
	pthread_mutex_unlock(&c->lock);
	return yes;
}

static void work_on(struct collective *c, const struct task *t, struct collective_done *ret)
{
	c->opt.work(&(struct collective_work){ .kind = t->kind,
			    .session = t->session,
			    .part = t->part,
			    .cautious = t->cautious,
			    .last = t->last,
			    .again = t->again,
			    .alone = t->alone,
			    .haste = t->haste,
			    .time_usec = t->time_usec,
			    .paths = (const char *const *)t->paths.at,
			    .num_paths = t->paths.num,
			    .shared = &t->shared },
		ret, c->opt.arg);
}

static void carry_out(struct collective *c, struct task *t)
{
	struct collective_done done = { .result = CISTERN_EXIT_FAILED };

	if (!is_in_vain(c, t))
		work_on(c, t, &done);
	else
		snprintf(done.text, sizeof(done.text), "stopped before its end; the rest is in the store");
	if (t->alone)
		collective_end_alone(c, t->ask, t->what, &done);
	else
		tell_done(c, t, &done);
	wire_shared_free(&done.shared);
	collective_task_free(t);
}

void *collective_worker(void *arg)
{
	struct collective *c = arg;

	pthread_mutex_lock(&c->lock);
	while (!c->ending) {
		struct task *t = c->todo;

		if (!t) {
			collective_wait_changed(c, INT64_MAX);
			continue;
		}
		c->todo = t->next;
		c->working = true;
		c->working_on = t->session;
		c->working_part = t->part;
		c->working_ask = t->ask;
		pthread_mutex_unlock(&c->lock);
		carry_out(c, t);
		pthread_mutex_lock(&c->lock);
		c->working = false;
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* lock is held. */
static void append_task(struct collective *c, struct task *t)
{
	struct task **at = &c->todo;

	while (*at)
		at = &(*at)->next;
	*at = t;
	pthread_cond_broadcast(&c->changed);
}

/* Nothing is replaced that is not known to be ours: as in a session of which some node is lost, in which this one is late. */
int collective_work_alone(struct collective *c, const struct ask *a, const char *what)
{
	struct task *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->alone = t->cautious = true;
	t->ask = a->id;
	t->part = WIRE_PART_FILES;
	t->kind = a->kind;
	t->haste = a->for_room ? WIRE_HASTE_ROOM : WIRE_HASTE_NONE;
	snprintf(t->what, sizeof(t->what), "%s", what);
	collective_paths_copy(&t->paths, a->paths.at, a->paths.num);
	append_task(c, t);
	return 0;
}

int collective_serve_part(struct collective *c, const struct wire_msg *m)
{
	struct task *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->session = tag_get(m, TAG_SESSION);
	t->time_usec = tag_get(m, TAG_TIME);
	t->part = (unsigned int)tag_get(m, TAG_PART);
	t->kind = (enum drain_kind)tag_get(m, TAG_KIND);
	t->cautious = tag_get(m, TAG_CAUTIOUS) != 0;
	t->last = tag_get(m, TAG_LAST) != 0;
	t->again = tag_get(m, TAG_AGAIN) != 0;
	t->haste = tag_get(m, TAG_HASTE) < WIRE_HASTE_END ? (enum wire_haste)tag_get(m, TAG_HASTE) : WIRE_HASTE_NONE;
	collective_paths_decode(&t->paths, m);
	if (collective_get_shared(m, &t->shared) < 0) {
		collective_task_free(t);
		return -ENOMEM;
	}
	pthread_mutex_lock(&c->lock);
	append_task(c, t);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

/* It waits here, or is at work, or its end is on its way to node 0. */
int collective_serve_works(struct collective *c, const struct wire_msg *m)
{
	uint64_t session = tag_get(m, TAG_SESSION), part = tag_get(m, TAG_PART);
	bool here;

	pthread_mutex_lock(&c->lock);
	here = c->working && c->working_on == session && c->working_part == part;
	for (const struct task *t = c->todo; t; t = t->next)
		here = here || (t->session == session && t->part == part);
	pthread_mutex_unlock(&c->lock);
	return here ? 0 : -ENOENT;
}

void collective_serve_stop(struct collective *c, uint64_t session)
{
	bool mine;

	pthread_mutex_lock(&c->lock);
	mine = c->working && c->working_on == session;
	pthread_mutex_unlock(&c->lock);
	if (mine)
		c->opt.stop_work(c->opt.arg);
}
