/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Node 0 has all nodes do one part of a session, and hears what came of it, or that somebody is lost. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/drain_layout.h"
#include "fs/drain/collective_private.h"

/* lock is held. */
static void add_written(struct wire_shared *known, const struct wire_shared *said, uint32_t from)
{
	known->written += said->written;
	known->extents += said->extents;
	known->crc_sum ^= said->crc_sum;
	if (said->layout == DRAIN_LAYOUT_CANONICAL)
		known->layout = DRAIN_LAYOUT_CANONICAL; /* one that cannot make subfiles is enough */
	if (said->failed && !known->failed) {
		known->failed = true;
		known->failed_node = from;
		known->failed_errno = said->failed_errno;
	}
}

/* lock is held. What a node's part says of shared files. */
static void take_shared(struct collective *c, uint32_t from, const struct wire_msg *m)
{
	struct wire_shared_list said = { 0 };
	bool begins = c->part == WIRE_PART_BEGIN || c->part == WIRE_PART_OFFER;
	int r = collective_get_shared(m, begins ? &c->shared : &said);

	for (size_t i = 0; i < said.num; i++) {
		struct wire_shared *known = wire_shared_find(&c->shared, said.at[i].ino);

		if (known && c->part == WIRE_PART_FILES)
			known->failed = false; /* it is published */
		else if (known)
			add_written(known, &said.at[i], from);
	}
	wire_shared_free(&said);
	if (c->part == WIRE_PART_OFFER)
		return;
	if (r == -ENOSPC) /* these are not known to the others: they are carried by another session */
		c->list_full = true;
	else if (r == -ENOMEM)
		collective_note_result(
			c, 0, CISTERN_EXIT_INCOMPLETE, "no memory for all shared files: run cistern flush again");
}

void collective_serve_part_done(struct collective *c, uint32_t from, const struct wire_msg *m)
{
	char text[CISTERN_ERROR_TEXT_BYTES] = "";
	struct manifest_totals totals;
	const uint8_t *bytes;
	size_t len;

	wire_get_str(m, WIRE_TEXT, 0, text, sizeof(text));
	pthread_mutex_lock(&c->lock);
	if (c->leading && tag_get(m, TAG_SESSION) == c->session && tag_get(m, TAG_PART) == c->part &&
		from < c->num_members && c->members[from].state == AT_WORK) {
		c->members[from].state = DONE;
		take_shared(c, from, m);
		/* What it did not come to say of shared files is not known. */
		c->broken = c->broken || tag_get(m, TAG_RESULT) == CISTERN_EXIT_FAILED;
		if (wire_get_bytes(m, WIRE_TOTALS, 0, &bytes, &len) && manifest_totals_decode(bytes, len, &totals) == 0)
			manifest_totals_add(&c->summary.totals, &totals);
		collective_note_result(c, from, (enum cistern_exit)tag_get(m, TAG_RESULT), text);
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
}

static const char gone[] = "its daemon has ended, or was given up";

/* lock is held. */
static void lose(struct collective *c, uint32_t node, const char *why)
{
	if (!c->leading || node >= c->num_members || c->members[node].state != AT_WORK)
		return;
	c->members[node].state = LOST;
	c->without = true;
	collective_note_result(c, node, CISTERN_EXIT_INCOMPLETE, why);
	pthread_cond_broadcast(&c->changed);
}

/*
 * lock is held. Also between its parts: what it knew of commits on their way to shared files is forgotten, so none of these files
 * is complete for certain.
 */
static void restarted(struct collective *c, uint32_t node)
{
	static const char why[] = "its daemon was restarted during the drain";

	if (c->leading && node < c->num_members && c->members[node].state != AT_WORK)
		collective_note_result(c, node, CISTERN_EXIT_INCOMPLETE, why);
	lose(c, node, why);
	c->broken = c->restarted = true;
}

void collective_event(struct collective *c, enum peers_event event, uint32_t node)
{
	pthread_mutex_lock(&c->lock);
	c->some_mounted = 0;
	if (event == PEERS_RESTARTED)
		restarted(c, node);
	collective_forget_asks(c, node);
	if (event == PEERS_GONE)
		lose(c, node, gone);
	if (event == PEERS_RESTARTED && node == 0)
		for (struct ask *a = c->mine; a; a = a->next)
			a->sent = a->lost = false;
	if (event == PEERS_GONE && node == 0)
		for (struct ask *a = c->mine; a; a = a->next)
			a->lost = a->sent && !a->alone;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	if (event == PEERS_RESTARTED && peers_self(c->opt.peers) == 0)
		collective_tell_paused(c, node);
	else if (event == PEERS_RESTARTED && node == 0 && c->opt.paused)
		c->opt.paused(false, c->opt.arg); /* its new daemon holds nothing */
}

struct sending { /* of what a part's nodes are asked */
	struct collective *c;
	uint64_t session;
	unsigned int part;
	uint32_t node;
};

/* lock is held. Its part is over. */
static bool is_late(const struct sending *s)
{
	return !s->c->leading || s->c->session != s->session || s->c->part != s->part || s->node >= s->c->num_members;
}

/* lock is held. */
static void lose_unreachable(const struct sending *s, int status)
{
	char why[CISTERN_ERROR_TEXT_BYTES];

	if (is_late(s) || s->c->members[s->node].state != AT_WORK)
		return;
	s->c->members[s->node].away = status == -ETIMEDOUT;
	snprintf(why, sizeof(why), "cannot be reached (%s)", strerror(-status));
	lose(s->c, s->node, status == -EHOSTDOWN ? gone : why);
}

static void part_sent(int status, const struct wire_msg *reply, void *arg)
{
	struct sending *s = arg;

	(void)reply;
	pthread_mutex_lock(&s->c->lock);
	if (status)
		lose_unreachable(s, status);
	pthread_mutex_unlock(&s->c->lock);
	free(s);
}

/* Who is gone, or another one, is told by events. */
static void asked(int status, const struct wire_msg *reply, void *arg)
{
	struct sending *s = arg;

	(void)reply;
	pthread_mutex_lock(&s->c->lock);
	if (s->node < s->c->num_members)
		s->c->members[s->node].asked = false;
	if (status == -ETIMEDOUT)
		lose_unreachable(s, status);
	else if (status == -ENOENT && !is_late(s))
		lose(s->c, s->node, "does not know of its part any more");
	pthread_mutex_unlock(&s->c->lock);
	free(s);
}

/* Without the lock. */
static void send_to(struct collective *c, uint32_t node, const struct wire_msg *m, peers_done done)
{
	struct sending *s = malloc(sizeof(*s));
	int r = s ? 0 : -ENOMEM;

	if (s) {
		*s = (struct sending){ c, tag_get(m, TAG_SESSION), (unsigned int)tag_get(m, TAG_PART), node };
		r = peers_call_async(c->opt.peers, node, m, done, s);
	}
	if (r < 0) {
		free(s);
		pthread_mutex_lock(&c->lock);
		c->members[node].asked = false;
		if (done == part_sent)
			lose(c, node, r == -EHOSTDOWN ? gone : strerror(-r));
		pthread_mutex_unlock(&c->lock);
	}
}

/* lock is held, given up meanwhile. */
static void ask_workers(struct collective *c)
{
	struct wire_msg m = { 0 };

	message_init(&m, (enum message_type)MESSAGE_DRAIN_WORKS);
	tag_put(&m, TAG_SESSION, c->session);
	tag_put(&m, TAG_PART, c->part);
	for (uint32_t i = 1; i < c->num_members; i++) {
		if (c->members[i].state != AT_WORK || c->members[i].asked)
			continue;
		c->members[i].asked = true;
		pthread_mutex_unlock(&c->lock);
		send_to(c, i, &m, asked);
		pthread_mutex_lock(&c->lock);
	}
	wire_msg_free(&m);
}

/* lock is held, given up meanwhile. Who is not at work takes no notice. */
static void send_stop(struct collective *c)
{
	struct wire_msg m = { 0 };

	message_init(&m, (enum message_type)MESSAGE_DRAIN_STOP);
	tag_put(&m, TAG_SESSION, c->session);
	pthread_mutex_unlock(&c->lock);
	for (uint32_t i = 0; i < c->num_members; i++)
		peers_tell(c->opt.peers, i, &m);
	wire_msg_free(&m);
	pthread_mutex_lock(&c->lock);
}

static bool all_done(const struct collective *c)
{
	for (uint32_t i = 0; i < c->num_members; i++)
		if (c->members[i].state == AT_WORK)
			return false;
	return true;
}

/*
 * lock is held, given up meanwhile. Until nobody is at work. Who had no room for the word to stop, or heard it before it was at work, hears it
 * again.
 */
static void wait_part(struct collective *c)
{
	int64_t every = collective_ask_usec(c), at = collective_now_usec() + every;
	bool told = false;

	while (!all_done(c) && !c->ending) {
		bool due = collective_now_usec() >= at;
		bool stop = c->stop_session && c->part != COLLECTIVE_DROP && (due || !told);

		told |= stop;
		if (stop)
			send_stop(c);
		if (due) {
			ask_workers(c);
			at = collective_now_usec() + every;
		}
		if (!stop && !due)
			collective_wait_changed(c, at);
	}
}

bool collective_run_part(struct collective *c, unsigned int part, bool first_only,
	const struct collective_session_options *opt, bool cautious)
{
	uint32_t num = first_only ? 1 : c->num_members;
	struct wire_msg m = { 0 };
	bool whole = true;

	message_init(&m, (enum message_type)MESSAGE_DRAIN_PART);
	tag_put(&m, TAG_SESSION, c->session);
	tag_put(&m, TAG_PART, part);
	tag_put(&m, TAG_KIND, opt->kind);
	tag_put(&m, TAG_CAUTIOUS, cautious);
	tag_put(&m, TAG_LAST, opt->last);
	tag_put(&m, TAG_AGAIN, opt->tries > 0);
	tag_put(&m, TAG_HASTE, opt->haste);
	tag_put(&m, TAG_TIME, c->time_usec);
	collective_paths_encode(&m, opt->paths);
	collective_put_shared(&m, &c->shared);
	if (part == WIRE_PART_FILES)
		collective_fail_shared(c); /* until its home says that it is published */
	c->part = part;
	for (uint32_t i = 0; i < c->num_members; i++)
		c->members[i].state = i >= num ? DONE : c->members[i].away ? LOST : AT_WORK;
	for (uint32_t i = 0; i < num; i++) {
		if (c->members[i].away)
			continue;
		pthread_mutex_unlock(&c->lock);
		send_to(c, i, &m, part_sent);
		pthread_mutex_lock(&c->lock);
	}
	wire_msg_free(&m);
	wait_part(c);
	for (uint32_t i = 0; i < num; i++)
		whole = whole && c->members[i].state == DONE;
	return whole && !c->ending;
}
