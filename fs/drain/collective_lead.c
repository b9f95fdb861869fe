/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Node 0 takes all asks that wait together, runs sessions for them (collective_session.c), and answers. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/text.h"
#include "fs/drain/collective_private.h"

#define ANEW_MAX 5u /* sessions on end, for daemons that die again and again */

/* lock is held. The caller's from then on. */
static struct ask *take_final(struct collective *c, const struct ask *a)
{
	struct ask *taken = collective_take_ask(&c->finals, a->from, a->id);

	c->some_mounted = 0;
	c->finals_served -= c->finals_served > 0;
	if (!c->finals)
		c->leave_usec = 0;
	return taken;
}

static struct ask *find_old(struct ask *list, uint32_t from, uint64_t incarnation)
{
	while (list && (list->from != from || list->incarnation == incarnation))
		list = list->next;
	return list;
}

void collective_forget_asks(struct collective *c, uint32_t from)
{
	uint64_t now = collective_life(c, from);
	struct ask *a;

	while ((a = find_old(c->asks, from, now)))
		collective_ask_free(collective_take_ask(&c->asks, a->from, a->id));
	while ((a = find_old(c->finals, from, now)))
		collective_ask_free(take_final(c, a));
}

int collective_serve_ask(struct collective *c, uint32_t from, const struct wire_msg *m)
{
	struct ask *a = calloc(1, sizeof(*a));
	uint64_t id = tag_get(m, TAG_ID);

	if (!a)
		return -ENOMEM;
	a->from = from;
	a->id = id;
	a->incarnation = collective_life(c, from);
	a->kind = (enum drain_kind)tag_get(m, TAG_KIND);
	a->for_room = tag_get(m, TAG_HASTE) == WIRE_HASTE_ROOM;
	collective_paths_decode(&a->paths, m);
	pthread_mutex_lock(&c->lock);
	collective_forget_asks(c, from);
	if (collective_find_ask(c->asks, from, id) || collective_find_ask(c->finals, from, id)) {
		collective_ask_free(a); /* asked again */
	} else {
		collective_append(a->kind == DRAIN_FINAL ? &c->finals : &c->asks, a);
		if (c->leading && c->background && a->kind != DRAIN_BACKGROUND)
			c->stop_session = true; /* nobody waits for that one */
		if (a->kind == DRAIN_FINAL && !c->leave_usec)
			c->leave_usec = collective_now_usec() + (int64_t)c->opt.leave_timeout_usec;
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
	return 0;
}

/* Those of the running session too: its asks are answered at its end. */
int collective_serve_waits(struct collective *c, uint32_t from, const struct wire_msg *m)
{
	uint64_t id = tag_get(m, TAG_ID);
	bool here;

	pthread_mutex_lock(&c->lock);
	here = collective_find_ask(c->asks, from, id) || collective_find_ask(c->served, from, id) ||
	       collective_find_ask(c->finals, from, id);
	pthread_mutex_unlock(&c->lock);
	return here ? 0 : -ENOENT;
}

void collective_serve_cancel(struct collective *c, uint32_t from, uint64_t id)
{
	struct ask *a;

	pthread_mutex_lock(&c->lock);
	a = collective_find_ask(c->asks, from, id);
	a = a ? a : collective_find_ask(c->finals, from, id);
	if (a)
		a->cancelled = true;
	/* A running session serves several: it goes on unless nobody but the background wants it. */
	if (c->leading && c->background)
		c->stop_session = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

int collective_serve_lines(struct collective *c, const struct wire_msg *m)
{
	const uint8_t *bytes;
	size_t len;

	if (!c->opt.append || !wire_get_bytes(m, WIRE_PAYLOAD, 0, &bytes, &len))
		return -EINVAL;
	return c->opt.append(bytes, len, c->opt.arg);
}

static void tell_paused(struct collective *c, uint32_t node, bool paused)
{
	struct wire_msg m = { 0 };

	message_init(&m, (enum message_type)MESSAGE_DRAIN_PAUSED);
	tag_put(&m, TAG_PAUSED, paused);
	(void)peers_tell(c->opt.peers, node, &m); /* who does not hear of it asks in vain */
	wire_msg_free(&m);
}

void collective_serve_pause(struct collective *c, bool pause)
{
	uint32_t num = peers_count(c->opt.peers);

	pthread_mutex_lock(&c->lock);
	c->paused = pause;
	if (pause && c->leading && c->background)
		c->stop_session = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	for (uint32_t node = 0; node < num; node++)
		tell_paused(c, node, pause);
}

void collective_tell_paused(struct collective *c, uint32_t node)
{
	pthread_mutex_lock(&c->lock);
	bool paused = c->paused;
	pthread_mutex_unlock(&c->lock);
	if (paused)
		tell_paused(c, node, true);
}

struct answering { /* who asked, and could not be reached yet */
	struct collective *c;
	uint32_t node;
	struct wire_msg msg; /* owned */
};

static void answered(int status, const struct wire_msg *reply, void *arg)
{
	struct answering *a = arg;

	(void)reply;
	if (status == -ETIMEDOUT && peers_call_async(a->c->opt.peers, a->node, &a->msg, answered, a) == 0)
		return;
	wire_msg_free(&a->msg);
	free(a);
}

/* Again and again, as long as its daemon is not known to be gone: it waits. Takes the message over. */
static void keep_answering(struct collective *c, uint32_t node, struct wire_msg *m)
{
	struct answering *a = malloc(sizeof(*a));

	if (!a) {
		wire_msg_free(m);
		return;
	}
	*a = (struct answering){ c, node, *m };
	answered(-ETIMEDOUT, NULL, a);
}

/* lock is held, given up meanwhile; a is freed. */
static void answer(struct collective *c, struct ask *a, enum cistern_exit result, const char *text)
{
	struct wire_msg m = { 0 };

	message_init(&m, (enum message_type)MESSAGE_DRAIN_ANSWER);
	tag_put(&m, TAG_ID, a->id);
	tag_put(&m, TAG_LIFE, a->incarnation);
	tag_put(&m, TAG_RESULT, result);
	wire_put_str(&m, WIRE_TEXT, text);
	pthread_mutex_unlock(&c->lock);
	if (peers_call(c->opt.peers, a->from, &m, NULL) == -ETIMEDOUT)
		keep_answering(c, a->from, &m);
	else
		wire_msg_free(&m); /* a node that has gone needs no answer */
	collective_ask_free(a);
	pthread_mutex_lock(&c->lock);
}

/* Our own last: with the answer to a final one this daemon ends, and the others must have theirs by then. */
static void answer_all(struct collective *c, struct ask **list, enum cistern_exit result, const char *text)
{
	struct ask *own = NULL;

	while (*list) {
		struct ask *a = *list;

		*list = a->next;
		if (a->from == 0)
			collective_append(&own, a);
		else
			answer(c, a, result, text);
	}
	while (own) {
		struct ask *a = own;

		own = a->next;
		answer(c, a, result, text);
	}
}

/* What all of them want together. */
static void merge(const struct ask *list, enum drain_kind *ret_kind, struct paths *ret)
{
	*ret = (struct paths){ 0 };
	*ret_kind = DRAIN_BACKGROUND;
	for (const struct ask *a = list; a; a = a->next)
		if (a->kind != DRAIN_BACKGROUND)
			*ret_kind = DRAIN_FLUSH;
	for (const struct ask *a = list; a; a = a->next) {
		bool good = a->paths.num > 0;

		for (size_t i = 0; good && i < a->paths.num; i++)
			good = ret->num < DRAIN_PATHS_MAX && collective_paths_add(ret, a->paths.at[i]);
		if (!good) {
			collective_paths_free(ret);
			return;
		}
	}
}

/* Its daemon has ended, or it was given up. */
static bool is_gone(const struct collective *c, uint32_t node)
{
	struct peers_node n;

	return peers_nodes(c->opt.peers, node, &n, 1) == 1 && n.gone;
}

/* lock is held. */
static bool is_mounted(const struct collective *c, uint32_t node)
{
	const struct ask *a = c->finals;

	while (a && a->from != node)
		a = a->next;
	return !a && !is_gone(c, node);
}

enum reach { SILENT, MISSING, AWAY, HERE, ANYWHERE };

static enum reach reach_of(const struct collective *c, uint32_t node)
{
	struct peers_node n;

	if (peers_nodes(c->opt.peers, node, &n, 1) != 1)
		return AWAY;
	if (!n.present)
		return n.missing_usec ? MISSING : AWAY;
	return n.silent ? SILENT : HERE;
}

/* lock is held. */
static bool is_any_mounted(struct collective *c)
{
	while (c->some_mounted < c->num_members && !is_mounted(c, c->some_mounted))
		c->some_mounted++;
	return c->some_mounted < c->num_members;
}

/* lock is held. Some nodes are unmounted, and wait no longer for the others: in vain so far, or because these will not come. */
static bool is_over(struct collective *c)
{
	return c->finals && c->num_members > 0 && collective_count(c->finals) < c->num_members &&
	       (collective_now_usec() >= c->leave_usec || !is_any_mounted(c));
}

/* lock is held. Another node that has not said yet that it is done. */
static bool keeps_us(const struct collective *c, uint32_t node)
{
	return node != 0 && c->members[node].state == AT_WORK;
}

typedef bool (*is_waited)(const struct collective *c, uint32_t node);

/* lock is held. The nodes of which that is so; those that there is no room for are counted. */
static void name_nodes(struct collective *c, is_waited is, enum reach reach, char *out, size_t cap)
{
	static const char more[] = " and 4294967295 more"; /* at most */
	char name[128];
	uint32_t unnamed = 0;
	size_t n = 0;

	out[0] = '\0';
	for (uint32_t i = 0; i < c->num_members; i++) {
		if (!is(c, i) || (reach != ANYWHERE && reach_of(c, i) != reach))
			continue;
		peers_name(c->opt.peers, i, name, sizeof(name));
		if (unnamed || n + strlen(", ") + strlen(name) + sizeof(more) > cap)
			unnamed++;
		else
			n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "", name);
	}
	if (unnamed)
		snprintf(out + n, cap - n, " and %" PRIu32 " more", unnamed);
}

/* What is wrong with them, and what to do. */
static const char *const trouble[] = {
	[SILENT] =
		"without an answer: if it hangs, this goes on when it does, or node_timeout after its daemon was killed",
	[MISSING] = "its daemon is missing: mount its store again, or this goes on without it after node_timeout",
	[AWAY] = "out of reach, mounted or not: where its agent has gone, start the agents again (cistern agent)",
};

/* lock is held. here: what those do with whom all is well. */
static void name_waited(struct collective *c, is_waited is, const char *here, char *out, size_t cap)
{
	char names[CISTERN_ERROR_TEXT_BYTES / 4];
	size_t n = 0;

	out[0] = '\0';
	for (enum reach reach = SILENT; reach <= HERE && n < cap; reach++) {
		name_nodes(c, is, reach, names, sizeof(names));
		if (*names)
			n += (size_t)snprintf(out + n, cap - n, "%s%s, %s", n ? "; " : "", names,
				reach == HERE ? here : trouble[reach]);
	}
}

static bool has_final(const struct ask *a)
{
	while (a && a->kind != DRAIN_FINAL)
		a = a->next;
	return a;
}

/* lock is held. This node has asked node 0, and does nothing itself. */
static void name_leader(struct collective *c, char *out, size_t cap)
{
	enum reach reach = reach_of(c, 0);
	char leader[128];

	peers_name(c->opt.peers, 0, leader, sizeof(leader));
	if (reach == HERE)
		snprintf(out, cap, "other nodes, at work%s; 'cistern status' on %s names them",
			has_final(c->mine) ? " or still mounted" : "", leader);
	else
		snprintf(out, cap, "%s, which leads drains, %s", leader, trouble[reach]);
}

void collective_waits_for(struct collective *c, char *out, size_t cap)
{
	out[0] = '\0';
	pthread_mutex_lock(&c->lock);
	if (c->leading)
		name_waited(c, keeps_us, "at work on its part", out, cap);
	else if (c->finals)
		name_waited(c, is_mounted, "still mounted", out, cap);
	else if (c->mine && !c->working && peers_self(c->opt.peers) != 0)
		name_leader(c, out, cap);
	pthread_mutex_unlock(&c->lock);
}

/* lock is held, given up meanwhile. After a session that all these had asked for. */
static void finish_finals(struct collective *c, uint64_t served)
{
	char text[CISTERN_ERROR_TEXT_BYTES], late[CISTERN_ERROR_TEXT_BYTES / 4], said[CISTERN_ERROR_TEXT_BYTES / 2];

	if (c->finals && served == c->num_members) {
		c->leave_usec = 0;
		memcpy(text, c->text, sizeof(text));
		answer_all(c, &c->finals, c->result, text);
	} else if (is_over(c) && served == collective_count(c->finals)) {
		c->leave_usec = 0;
		name_nodes(c, is_mounted, ANYWHERE, late, sizeof(late));
		snprintf(text, sizeof(text), "%s%s%swhat the other nodes had is drained as far as it could be%s%s",
			*late ? "still mounted, or out of reach, when the time was over: " : "", late,
			*late ? "; " : "", c->text[0] ? "; " : "", text_fit(said, sizeof(said), c->text));
		answer_all(c, &c->finals, CISTERN_EXIT_INCOMPLETE, text);
	}
}

/* lock is held, given up meanwhile. Who does not want to wait any longer. */
static void drop_cancelled(struct collective *c)
{
	struct ask *a = c->finals;

	while (a && !a->cancelled)
		a = a->next;
	if (a)
		answer(c, take_final(c, a), CISTERN_EXIT_INCOMPLETE,
			"stopped before its end; the rest is in the store");
}

/* lock is held, given up meanwhile. Nobody waits for these; but their nodes ask for nothing else before they are answered. */
static void refuse_paused(struct collective *c)
{
	struct ask *held = NULL, **at = &c->asks;

	while (c->paused && *at) {
		struct ask *a = *at;

		if (a->kind != DRAIN_BACKGROUND) {
			at = &a->next;
			continue;
		}
		*at = a->next;
		collective_append(&held, a);
	}
	answer_all(c, &held, CISTERN_EXIT_INCOMPLETE, "the background drain of the job is paused");
}

/* lock is held. A session is due: somebody asks, or the last ones shall not wait any longer. */
static bool is_due(struct collective *c)
{
	return c->asks || collective_count(c->finals) > c->finals_served || is_over(c);
}

static int know_nodes(struct collective *c)
{
	uint32_t num = peers_count(c->opt.peers);

	if (c->num_members == num)
		return 0;
	free(c->members);
	c->members = calloc(num, sizeof(*c->members));
	c->num_members = c->members ? num : 0;
	return c->members ? 0 : -ENOMEM;
}

/* lock is held. */
static enum wire_haste haste_of(struct collective *c, const struct ask *asks, bool last)
{
	if (!last && is_over(c))
		return WIRE_HASTE_LATE;
	for (; asks; asks = asks->next)
		if (asks->for_room)
			return WIRE_HASTE_ROOM;
	return WIRE_HASTE_NONE;
}

/*
 * lock is held. Of a session in which a daemon was restarted nothing is whole, though that daemon may be there again, and all the others: who waits
 * gets another one.
 */
static bool is_to_begin_anew(struct collective *c)
{
	c->num_anew = c->restarted ? c->num_anew + 1 : 0;
	return c->restarted && !c->background && !c->ending && c->num_anew <= ANEW_MAX;
}

/* lock is held. Before what was asked meanwhile. */
static void begin_anew(struct collective *c)
{
	struct ask **end = &c->served;

	while (*end)
		end = &(*end)->next;
	*end = c->asks;
	c->asks = c->served;
	c->served = NULL;
	c->finals_served = 0;
	for (uint32_t node = 0; node < c->num_members; node++)
		collective_forget_asks(c, node);
}

static void lead(struct collective *c)
{
	struct paths paths;
	struct collective_session_options opt = { .paths = &paths };
	uint64_t served = collective_count(c->finals);
	char text[CISTERN_ERROR_TEXT_BYTES];
	enum cistern_exit result;

	c->served = c->asks;
	c->asks = NULL;
	merge(c->served, &opt.kind, &paths);
	if (served > c->finals_served || !c->served) {
		opt.kind = DRAIN_FLUSH;
		collective_paths_free(&paths);
	}
	if (know_nodes(c) < 0) {
		answer_all(c, &c->served, CISTERN_EXIT_FAILED, "out of memory");
		return;
	}
	opt.last = served == c->num_members;
	opt.haste = haste_of(c, c->served, opt.last);
	collective_run_sessions(c, &opt);
	collective_paths_free(&paths);
	if (is_to_begin_anew(c)) {
		begin_anew(c);
		return;
	}
	c->finals_served = served;
	result = c->result;
	memcpy(text, c->text, sizeof(text));
	answer_all(c, &c->served, result, text);
	finish_finals(c, served);
	c->finals_served = c->finals ? c->finals_served : 0;
}

void *collective_leader(void *arg)
{
	struct collective *c = arg;

	pthread_mutex_lock(&c->lock);
	while (!c->ending) {
		drop_cancelled(c);
		refuse_paused(c);
		if (is_due(c))
			lead(c);
		else
			collective_wait_changed(c, c->leave_usec ? c->leave_usec : INT64_MAX);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}
