/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Node 0 takes all asks that wait together, runs the parts of a session for them over all nodes, and answers. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "format/base/drain_layout.h"
#include "fs/drain/collective_private.h"

int collective_serve_ask(struct collective *c, uint32_t from, const struct wire_msg *m)
{
	struct ask *a = calloc(1, sizeof(*a));
	uint64_t id = tag_get(m, TAG_ID);

	if (!a)
		return -ENOMEM;
	a->from = from;
	a->id = id;
	a->kind = (enum drain_kind)tag_get(m, TAG_KIND);
	a->for_room = tag_get(m, TAG_HASTE) == WIRE_HASTE_ROOM;
	collective_paths_decode(&a->paths, m);
	pthread_mutex_lock(&c->lock);
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

void collective_forget_troubles(struct collective *c)
{
	while (c->num_troubles > 0) {
		struct manifest_trouble *t = &c->troubles[--c->num_troubles];

		free(t->node);
		free(t->text);
	}
}

/* lock is held. */
static void note_trouble(struct collective *c, const char *node, const char *text)
{
	struct manifest_trouble *t = &c->troubles[c->num_troubles];

	if (c->num_troubles == TROUBLES_MAX)
		return;
	*t = (struct manifest_trouble){ .node = strdup(node), .text = strdup(text) };
	if (t->node && t->text) {
		c->num_troubles++;
	} else {
		free(t->node);
		free(t->text);
	}
}

/* lock is held. The first trouble is told; all count, and are in the manifest. */
static void note_result(struct collective *c, uint32_t node, enum cistern_exit result, const char *text)
{
	char name[128];

	if (result == CISTERN_EXIT_OK) {
		if (c->result == CISTERN_EXIT_OK && !c->text[0]) /* what is to be known all the same */
			snprintf(c->text, sizeof(c->text), "%s", text);
		return;
	}
	peers_name(c->opt.peers, node, name, sizeof(name));
	text = text[0] ? text : "not everything could be drained";
	if (c->without && result == CISTERN_EXIT_FAILED) /* what cannot be done without the lost node */
		result = CISTERN_EXIT_INCOMPLETE;
	note_trouble(c, name, text);
	if (c->result == CISTERN_EXIT_OK || (c->result == CISTERN_EXIT_INCOMPLETE && !c->text[0]))
		snprintf(c->text, sizeof(c->text), "%s: %s", name, text);
	c->result = c->result == CISTERN_EXIT_FAILED ? c->result : result;
}

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
	if ((r == -ENOSPC || r == -ENOMEM) &&
		c->part != WIRE_PART_OFFER) /* these are not known to the others: they stay dirty */
		note_result(c, 0, CISTERN_EXIT_INCOMPLETE,
			"too many shared files for one session: run cistern flush again");
}

/* lock is held. Before a part that needs that all went well before it; after a part that only names what went well. */
static void fail_shared(struct collective *c)
{
	for (size_t i = 0; i < c->shared.num; i++)
		c->shared.at[i].failed = true;
}

/* Are there files in canonical order, or of blobs? */
static bool has_shared(const struct collective *c, bool blobs)
{
	for (size_t i = 0; i < c->shared.num; i++)
		if ((c->shared.at[i].layout != DRAIN_LAYOUT_CANONICAL) == blobs)
			return true;
	return false;
}

/* lock is held. What was written to subfiles of those that are in canonical order after all does not count. */
static void forget_blobs(struct collective *c)
{
	for (size_t i = 0; i < c->shared.num; i++)
		if (c->shared.at[i].layout == DRAIN_LAYOUT_CANONICAL)
			c->shared.at[i].written = c->shared.at[i].extents = c->shared.at[i].crc_sum = 0;
}

static void drop_failed_shared(struct collective *c)
{
	struct wire_shared_list good = { 0 };

	for (size_t i = 0; i < c->shared.num; i++)
		if (!c->shared.at[i].failed && wire_shared_add(&good, &c->shared.at[i]) < 0)
			break; /* the rest is dropped with the next session */
	wire_shared_free(&c->shared);
	c->shared = good;
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
		note_result(c, from, (enum cistern_exit)tag_get(m, TAG_RESULT), text);
		pthread_cond_broadcast(&c->changed);
	}
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

/* lock is held. */
static void lose(struct collective *c, uint32_t node, const char *why)
{
	if (!c->leading || node >= c->num_members || c->members[node].state != AT_WORK)
		return;
	c->members[node].state = LOST;
	c->without = true;
	note_result(c, node, CISTERN_EXIT_INCOMPLETE, why);
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
		note_result(c, node, CISTERN_EXIT_INCOMPLETE, why);
	lose(c, node, why);
	c->broken = true;
}

void collective_event(struct collective *c, enum peers_event event, uint32_t node)
{
	pthread_mutex_lock(&c->lock);
	if (event == PEERS_RESTARTED)
		restarted(c, node);
	if (event == PEERS_GONE)
		lose(c, node, "its daemon has ended");
	if (event == PEERS_RESTARTED && node == 0)
		for (struct ask *a = c->mine; a; a = a->next)
			a->sent = false;
	if (event == PEERS_GONE && node == 0)
		for (struct ask *a = c->mine; a; a = a->next)
			a->lost = a->sent;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
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
	lose(s->c, s->node, why);
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
			lose(c, node, strerror(-r));
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

struct session_options {
	enum drain_kind kind;
	const struct paths *paths;
	bool last; /* all nodes are unmounted */
	enum wire_haste haste;
	unsigned int tries; /* sessions for the same asks before this one */
};

/* lock is held, given up meanwhile. Until nobody is at work. */
static void wait_part(struct collective *c)
{
	int64_t every = c->opt.ask_usec ? (int64_t)c->opt.ask_usec : ASK_USEC, at = collective_now_usec() + every;
	bool told = false;

	while (!all_done(c) && !c->ending) {
		if (c->stop_session && !told) {
			told = true;
			send_stop(c);
		} else if (collective_now_usec() >= at) {
			ask_workers(c);
			at = collective_now_usec() + every;
		} else {
			collective_wait_changed(c, at);
		}
	}
}

/* lock is held, given up meanwhile. True: every node that should has done it. */
static bool run_part(
	struct collective *c, unsigned int part, bool first_only, const struct session_options *opt, bool cautious)
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
		fail_shared(c); /* until its home says that it is published */
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

#define TRIES 20 /* under work without pause a file comes too late in every third session or so, seldom the same one */

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* lock is held, given up meanwhile. */
static void begin_summary(struct collective *c)
{
	uint64_t mark;

	collective_forget_troubles(c);
	c->summary = (struct manifest_session){ .session = c->session, .started_ns = now_ns() };
	pthread_mutex_unlock(&c->lock);
	mark = c->opt.mark ? c->opt.mark(c->opt.arg) : 0;
	pthread_mutex_lock(&c->lock);
	c->summary.mark = mark;
}

/* lock is held. No failure; but what a program ordered by messages alone is right only as far as the nodes' clocks are. */
static void say_overlapping(struct collective *c, uint64_t num)
{
	snprintf(c->text, sizeof(c->text),
		"%" PRIu64
		" file%s bytes that nodes wrote without having seen each other's; the later write counts, by the nodes' "
		"clocks. The manifest and 'cistern inspect --conflicts' list them",
		num, num == 1 ? " has" : "s have");
}

/* lock is held. Likewise no failure. */
static void say_noted(struct collective *c, const struct manifest_noted *noted)
{
	size_t len = strlen(c->text);

	if (noted->kept + noted->warned == 0 || len + 3 > sizeof(c->text))
		return;
	if (len > 0)
		len += (size_t)snprintf(c->text + len, sizeof(c->text) - len, "; ");
	manifest_noted_text(
		noted, "the manifest (" MANIFEST_FILE " in node 0's store)", c->text + len, sizeof(c->text) - len);
}

/* lock is held, given up meanwhile: nothing of the session changes any more. */
static void write_summary(struct collective *c)
{
	struct cistern_error err = { 0 };
	struct manifest_noted noted = { 0 };
	uint64_t overlapping = 0;
	int r;

	c->summary.ret_overlapping = &overlapping;
	c->summary.ret_noted = &noted;
	c->summary.ended_ns = now_ns();
	c->summary.result = c->result;
	c->summary.troubles = c->troubles;
	c->summary.num_troubles = c->num_troubles;
	pthread_mutex_unlock(&c->lock);
	r = c->opt.summary ? c->opt.summary(&c->summary, &err, c->opt.arg) : 0;
	pthread_mutex_lock(&c->lock);
	c->summary.ret_overlapping = NULL;
	c->summary.ret_noted = NULL;
	if (r < 0)
		note_result(c, 0, CISTERN_EXIT_FAILED, err.text);
	else if (overlapping > 0 && c->result == CISTERN_EXIT_OK)
		say_overlapping(c, overlapping);
	if (r == 0 && c->result == CISTERN_EXIT_OK)
		say_noted(c, &noted);
}

enum when {
	ALWAYS,
	LAST,      /* in the job's last session, if all went well */
	BLOBS,     /* the same, if there are files that become blobs */
	OFFERED,   /* the same, if files have been offered */
	CANONICAL, /* if files of several nodes are written in canonical order */
};

static bool is_wanted(const struct collective *c, enum when when, const struct session_options *opt, bool whole)
{
	switch (when) {
	case ALWAYS: return true;
	case LAST: return opt->last && whole;
	case OFFERED: return opt->last && whole && c->shared.num > 0;
	case BLOBS: return opt->last && whole && has_shared(c, true);
	case CANONICAL: return has_shared(c, false);
	}
	return true;
}

/* lock is held, given up meanwhile. */
static void run_parts(struct collective *c, const struct session_options *opt)
{
	static const struct {
		unsigned int part;
		bool first_only; /* node 0 alone */
		enum when when;
	} parts[] = {
		{ COLLECTIVE_COMMIT, false, ALWAYS },
		{ WIRE_PART_PARK, false, ALWAYS },
		{ WIRE_PART_DIRS, true, ALWAYS },
		{ WIRE_PART_BEGIN, false, ALWAYS },
		{ WIRE_PART_DEAL, false, BLOBS },
		{ WIRE_PART_BLOBS, false, BLOBS },
		{ WIRE_PART_DATA, false, CANONICAL },
		{ WIRE_PART_HEAD, false, CANONICAL },
		{ WIRE_PART_FILES, false, ALWAYS },
		{ COLLECTIVE_DROP, false, ALWAYS },
		{ WIRE_PART_OFFER, false, LAST },
		{ WIRE_PART_PACK, false, OFFERED },
		{ WIRE_PART_MAKE, false, OFFERED },
		{ WIRE_PART_CHECK, false, OFFERED },
		{ WIRE_PART_CONVERT, false, LAST },
		{ WIRE_PART_REMOVE, false, ALWAYS },
		{ WIRE_PART_FINISH, true, ALWAYS },
	};
	bool whole = true;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && !c->stop_session && !c->ending; i++) {
		if (!is_wanted(c, parts[i].when, opt, whole))
			continue;
		if (parts[i].part == WIRE_PART_FILES && !whole)
			fail_shared(c);
		if (parts[i].part == WIRE_PART_OFFER)
			wire_shared_free(&c->shared);
		whole = run_part(c, parts[i].part, parts[i].first_only, opt, !whole) && whole;
		/* Who could not tell all may have noted stamps of which a home that was restarted meanwhile knows nothing. */
		if (parts[i].part == COLLECTIVE_COMMIT && c->result != CISTERN_EXIT_OK)
			c->broken = true;
		whole = whole && !c->broken;
		if (parts[i].part == WIRE_PART_FILES)
			drop_failed_shared(c);
		else if (parts[i].part == WIRE_PART_BLOBS)
			forget_blobs(c);
	}
}

/* All that is written when a node has heard of the session is later, in usec, too. */
static uint64_t time_before(const struct collective *c)
{
	int64_t now = peers_time_ns(c->opt.peers);

	return now > 1000 ? (uint64_t)now / 1000 - 1 : 0;
}

/* lock is held. Nothing failed, but somebody who waits would not have all that was there when he asked. */
static bool is_late_session(const struct collective *c, const struct session_options *opt)
{
	return c->result == CISTERN_EXIT_OK && c->summary.totals.late > 0 && opt->kind != DRAIN_BACKGROUND;
}

/* lock is held, given up meanwhile. */
static void run_session(struct collective *c, const struct session_options *opt)
{
	c->session++;
	c->time_usec = time_before(c);
	c->leading = true;
	c->stop_session = c->broken = c->without = false;
	for (uint32_t i = 0; i < c->num_members; i++)
		c->members[i].away = false;
	c->background = opt->kind == DRAIN_BACKGROUND;
	c->result = CISTERN_EXIT_OK;
	c->text[0] = '\0';
	wire_shared_free(&c->shared);
	begin_summary(c);
	run_parts(c, opt);
	if (c->stop_session && c->result == CISTERN_EXIT_OK) {
		c->result = CISTERN_EXIT_INCOMPLETE;
		snprintf(c->text, sizeof(c->text), "stopped before its end; the rest is in the stores");
	}
	if (is_late_session(c, opt) && opt->tries + 1 == TRIES) {
		c->result = CISTERN_EXIT_INCOMPLETE;
		snprintf(c->text, sizeof(c->text),
			"%" PRIu64
			" file%s moved, or replaced by others, again and again while the drain ran: run cistern flush again",
			c->summary.totals.late, c->summary.totals.late == 1 ? " was" : "s were");
	}
	c->leading = false;
	write_summary(c);
}

/* lock is held, given up meanwhile. What some node came to too late, because names changed between its part and another's, is in the next one. */
static void run_sessions(struct collective *c, struct session_options *opt)
{
	do
		run_session(c, opt);
	while (is_late_session(c, opt) && ++opt->tries < TRIES && !c->ending);
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

/* lock is held. */
static bool is_mounted(const struct collective *c, uint32_t node)
{
	const struct ask *a = c->finals;

	while (a && a->from != node)
		a = a->next;
	return !a;
}

/* lock is held. Another node that has not said yet that it is done. */
static bool keeps_us(const struct collective *c, uint32_t node)
{
	return node != 0 && c->members[node].state == AT_WORK;
}

/* lock is held. The nodes of which that is so. */
static void name_nodes(
	struct collective *c, bool (*is)(const struct collective *c, uint32_t node), char *out, size_t cap)
{
	size_t n = 0;
	char name[128];

	out[0] = '\0';
	for (uint32_t i = 0; i < c->num_members && n < cap; i++)
		if (is(c, i))
			n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "",
				peers_name(c->opt.peers, i, name, sizeof(name)));
}

void collective_waits_for(struct collective *c, char *out, size_t cap)
{
	char names[CISTERN_ERROR_TEXT_BYTES / 4] = "";
	const char *doing = "at work on its part";

	pthread_mutex_lock(&c->lock);
	if (c->leading) {
		name_nodes(c, keeps_us, names, sizeof(names));
	} else if (c->finals) {
		doing = "still mounted";
		name_nodes(c, is_mounted, names, sizeof(names));
	} else if (c->mine && !c->working) {
		snprintf(names, sizeof(names), "other nodes");
		doing = "at work or still mounted; 'cistern status' on node 0 names them";
	}
	pthread_mutex_unlock(&c->lock);
	snprintf(out, cap, "%s%s%s", names, *names ? ", " : "", *names ? doing : "");
}

/* lock is held, given up meanwhile. After a session that all these had asked for. */
static void finish_finals(struct collective *c, uint64_t served)
{
	char text[CISTERN_ERROR_TEXT_BYTES], late[CISTERN_ERROR_TEXT_BYTES / 4];
	bool all = served == c->num_members;

	if (!c->finals || (!all && collective_now_usec() < c->leave_usec))
		return;
	c->leave_usec = 0;
	if (all) {
		memcpy(text, c->text, sizeof(text));
		answer_all(c, &c->finals, c->result, text);
		return;
	}
	name_nodes(c, is_mounted, late, sizeof(late));
	snprintf(text, sizeof(text),
		"still mounted when the time was over: %s; what the other nodes had is drained as far as it could be%s%.500s",
		late, c->text[0] ? "; " : "", c->text);
	answer_all(c, &c->finals, CISTERN_EXIT_INCOMPLETE, text);
}

/* lock is held, given up meanwhile. Who does not want to wait any longer. */
static void drop_cancelled(struct collective *c)
{
	struct ask *a = c->finals;

	while (a && !a->cancelled)
		a = a->next;
	if (a)
		answer(c, collective_take_ask(&c->finals, a->from, a->id), CISTERN_EXIT_INCOMPLETE,
			"stopped before its end; the rest is in the store");
}

/* lock is held. A session is due: somebody asks, or the last ones shall not wait any longer. */
static bool is_due(struct collective *c)
{
	return c->asks || collective_count(c->finals) > c->finals_served ||
	       (c->leave_usec && collective_now_usec() >= c->leave_usec);
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
static enum wire_haste haste_of(const struct collective *c, const struct ask *asks, bool last)
{
	if (!last && c->leave_usec && collective_now_usec() >= c->leave_usec)
		return WIRE_HASTE_LATE;
	for (; asks; asks = asks->next)
		if (asks->for_room)
			return WIRE_HASTE_ROOM;
	return WIRE_HASTE_NONE;
}

static void lead(struct collective *c)
{
	struct ask *asks = c->asks;
	struct paths paths;
	struct session_options opt = { .paths = &paths };
	uint64_t served = collective_count(c->finals);
	char text[CISTERN_ERROR_TEXT_BYTES];
	enum cistern_exit result;

	c->asks = NULL;
	merge(asks, &opt.kind, &paths);
	if (served > c->finals_served || !asks) {
		opt.kind = DRAIN_FLUSH;
		collective_paths_free(&paths);
	}
	if (know_nodes(c) < 0) {
		answer_all(c, &asks, CISTERN_EXIT_FAILED, "out of memory");
		return;
	}
	opt.last = served == c->num_members;
	opt.haste = haste_of(c, asks, opt.last);
	run_sessions(c, &opt);
	collective_paths_free(&paths);
	c->finals_served = served;
	result = c->result;
	memcpy(text, c->text, sizeof(text));
	answer_all(c, &asks, result, text);
	finish_finals(c, served);
	c->finals_served = c->finals ? c->finals_served : 0;
}

void *collective_leader(void *arg)
{
	struct collective *c = arg;

	pthread_mutex_lock(&c->lock);
	while (!c->ending) {
		drop_cancelled(c);
		if (is_due(c))
			lead(c);
		else
			collective_wait_changed(c, c->leave_usec ? c->leave_usec : INT64_MAX);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}
