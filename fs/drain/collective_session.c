/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A session on node 0: which parts it has, in which order, and what is said of it at its end. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/drain_layout.h"
#include "format/base/clock.h"
#include "fs/drain/collective_private.h"

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

void collective_note_result(struct collective *c, uint32_t node, enum cistern_exit result, const char *text)
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

void collective_fail_shared(struct collective *c)
{
	for (size_t i = 0; i < c->shared.num; i++)
		c->shared.at[i].failed = true;
}

/* Is there a file that has such a part? */
static bool has_part(const struct collective *c, enum wire_part part)
{
	for (size_t i = 0; i < c->shared.num; i++)
		if (wire_shared_has_part(&c->shared.at[i], part))
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
	c->published = good.num > 0;
}

#define TRIES 20 /* under work without pause a file comes too late in every third session or so, seldom the same one */
#define FILLS 1000 /* each of some thousand files that several nodes wrote */

/* lock is held, given up meanwhile. */
static void begin_summary(struct collective *c)
{
	uint64_t mark;

	collective_forget_troubles(c);
	c->summary = (struct manifest_session){ .session = ++c->num_sessions, .started_ns = clock_wall_ns() };
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

	if (noted->kept + noted->warned + noted->beside == 0 || len + 3 > sizeof(c->text))
		return;
	if (len > 0)
		len += (size_t)snprintf(c->text + len, sizeof(c->text) - len, "; ");
	manifest_noted_text(
		noted, "the manifest (" MANIFEST_FILE " in node 0's store)", c->text + len, sizeof(c->text) - len);
}

/* lock is held. Has it come to all that is to be carried? When anything went wrong, nobody knows how far each node has come. */
static bool is_whole(const struct collective *c, const struct collective_session_options *opt)
{
	return c->result == CISTERN_EXIT_OK && !c->ending && !c->stop_session && opt->kind != DRAIN_BACKGROUND &&
	       opt->paths->num == 0 && c->summary.totals.late == 0 && !c->list_full;
}

/* lock is held, given up meanwhile: nothing of the session changes any more. */
static void write_summary(struct collective *c, const struct collective_session_options *opt)
{
	struct cistern_error err = { 0 };
	struct manifest_noted noted = { 0 };
	uint64_t overlapping = 0;
	int r;

	c->summary.ret_overlapping = &overlapping;
	c->summary.ret_noted = &noted;
	c->summary.ended_ns = clock_wall_ns();
	c->summary.result = c->result;
	c->summary.whole = is_whole(c, opt);
	c->summary.troubles = c->troubles;
	c->summary.num_troubles = c->num_troubles;
	pthread_mutex_unlock(&c->lock);
	r = c->opt.summary ? c->opt.summary(&c->summary, &err, c->opt.arg) : 0;
	pthread_mutex_lock(&c->lock);
	c->summary.ret_overlapping = NULL;
	c->summary.ret_noted = NULL;
	if (r < 0)
		collective_note_result(c, 0, CISTERN_EXIT_FAILED, err.text);
	else if (overlapping > 0 && c->result == CISTERN_EXIT_OK)
		say_overlapping(c, overlapping);
	if (r == 0 && c->result == CISTERN_EXIT_OK)
		say_noted(c, &noted);
	if (r == 0)
		c->result = (enum cistern_exit)manifest_noted_result((int)c->result, &noted);
}

enum when {
	ALWAYS,
	LAST,      /* in the job's last session, if all went well */
	BLOBS,     /* the same, if there are files that become blobs */
	OFFERED,   /* the same, if files have been offered */
	CANONICAL, /* if files of several nodes are written in canonical order */
	IN_PLACE,  /* if some of them were there before */
};

static bool is_wanted(
	const struct collective *c, enum when when, const struct collective_session_options *opt, bool whole)
{
	switch (when) {
	case ALWAYS: return true;
	case LAST: return opt->last && whole;
	case OFFERED: return opt->last && whole && c->shared.num > 0;
	case BLOBS: return opt->last && whole && has_part(c, WIRE_PART_BLOBS);
	case CANONICAL: return has_part(c, WIRE_PART_DATA);
	case IN_PLACE: return has_part(c, WIRE_PART_HEAD);
	}
	return true;
}

/* lock is held, given up meanwhile. */
static void run_parts(struct collective *c, const struct collective_session_options *opt)
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
		{ WIRE_PART_HEAD, false, IN_PLACE },
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
	bool whole = true, published = false;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && !c->ending; i++) {
		/* What is published already is given up: nobody else would come to it before these files are drained again. */
		if (c->stop_session && !(published && parts[i].part == COLLECTIVE_DROP))
			continue;
		if (!is_wanted(c, parts[i].when, opt, whole))
			continue;
		if (parts[i].part == WIRE_PART_FILES && !whole)
			collective_fail_shared(c);
		if (parts[i].part == WIRE_PART_OFFER)
			wire_shared_free(&c->shared);
		whole = collective_run_part(c, parts[i].part, parts[i].first_only, opt, !whole) && whole;
		/* Who could not tell all may have noted stamps of which a home that was restarted meanwhile knows nothing. */
		if (parts[i].part == COLLECTIVE_COMMIT && c->result != CISTERN_EXIT_OK)
			c->broken = true;
		whole = whole && !c->broken;
		published = published || parts[i].part == WIRE_PART_FILES;
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
static bool is_late_session(const struct collective *c)
{
	return cistern_exit_is_out(c->result) && (c->summary.totals.late > 0 || c->list_full);
}

static bool is_fill(const struct collective *c)
{
	return c->list_full && c->published;
}

/* lock is held. */
static bool is_last_try(const struct collective *c, const struct collective_session_options *opt)
{
	return opt->kind == DRAIN_BACKGROUND ||
	       (is_fill(c) ? opt->fills + 1 == FILLS : opt->tries - opt->fills + 1 == TRIES);
}

/* lock is held. A background session that is late has done its work: there will be another one. */
static void say_late(struct collective *c, const struct collective_session_options *opt)
{
	uint64_t num = c->summary.totals.late;

	if (opt->kind == DRAIN_BACKGROUND && !c->list_full)
		return;
	c->result = CISTERN_EXIT_INCOMPLETE;
	if (c->list_full)
		snprintf(c->text, sizeof(c->text),
			"too many files that several nodes wrote for one session: run cistern flush again");
	else
		snprintf(c->text, sizeof(c->text),
			"%" PRIu64
			" file%s moved, or replaced by others, again and again while the drain ran: run cistern flush again",
			num, num == 1 ? " was" : "s were");
}

/* lock is held, given up meanwhile. */
static void run_session(struct collective *c, const struct collective_session_options *opt)
{
	c->session = (c->session ? c->session : collective_life(c, 0)) + 1;
	c->time_usec = time_before(c);
	c->leading = true;
	c->stop_session = c->broken = c->restarted = c->without = c->list_full = c->published = false;
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
	if (is_late_session(c) && is_last_try(c, opt))
		say_late(c, opt);
	c->leading = false;
	write_summary(c, opt);
}

/* What some node came to too late, because names changed between its part and another's, or what was too much, is in the next one. */
void collective_run_sessions(struct collective *c, struct collective_session_options *opt)
{
	bool again;

	do {
		run_session(c, opt);
		again = is_late_session(c) && !is_last_try(c, opt) && !c->ending;
		opt->tries++;
		opt->fills += is_fill(c);
	} while (again);
}
