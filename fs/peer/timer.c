/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The clock: one thread that ends calls whose time is over, gives up nodes that stay away, and tells the log whom everybody
 * waits for. Lists are in the order in which their members began to wait and all of one wait equally long, so only their heads are
 * looked at. While nothing waits, the thread sleeps.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "fs/peer/private.h"

#define SEC               1000000
#define LOG_INTERVAL_USEC (10 * SEC)

struct line { /* for the log, when the lock is free; empty: none */
	bool warning;
	const char *event;
	char text[256];
};

void timer_poke(struct peers *p, int64_t due_usec)
{
	if (due_usec >= p->timer_at_usec)
		return;
	p->timer_at_usec = due_usec; /* once is enough */
	pthread_cond_signal(&p->tick);
}

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* ---- what is over */

/* Nothing has come of that node since the call began. */
static bool is_unheard(struct peers *p, const struct call *c)
{
	return call_node(p, c)->heard_usec < c->started_usec;
}

static void expire(struct peers *p, struct call_list *list, int64_t now, struct call_list *out)
{
	struct call *c;

	while ((c = TAILQ_FIRST(list)) && call_due(p, c) <= now) {
		call_node(p, c)->silent |= is_unheard(p, c);
		call_take(p, c, -ETIMEDOUT, out);
	}
}

static void expire_gets(struct peers *p, int64_t now, struct get_list *out)
{
	struct get *g;

	while ((g = TAILQ_FIRST(&p->gets)) && g->started_usec + (int64_t)p->opt.timeout_usec <= now)
		get_take(p, g, -ETIMEDOUT, out);
}

/* A node that has been missing for too long; UINT32_MAX: none. */
static uint32_t overdue(const struct peers *p, int64_t now)
{
	for (uint32_t i = 0; p->nodes && i < p->count; i++)
		if (p->nodes[i].missing_since_usec &&
			p->nodes[i].missing_since_usec + (int64_t)p->opt.node_timeout_usec <= now)
			return i;
	return UINT32_MAX;
}

/* ---- the log */

static const char *why(const struct peers *p, uint32_t node)
{
	if (!p->was_connected && !p->connected)
		return "the agents of the job have not assembled yet";
	if (!p->connected)
		return "the agent of this node has not come back";
	return p->nodes[node].present ? "it has not answered yet" : "its daemon has not come back";
}

static void describe_timeout(struct peers *p, const struct call *c, int64_t now, struct line *line)
{
	char name[NAME_BYTES + 32];

	if (now - p->told_timeout_usec < LOG_INTERVAL_USEC)
		return;
	p->told_timeout_usec = now;
	line->warning = true;
	line->event = "peer-timeout";
	snprintf(line->text, sizeof(line->text), "gave up waiting for %s after %" PRIu64 " s: %s",
		node_name(p, c->entry.node, name, sizeof(name)), p->opt.timeout_usec / SEC, why(p, c->entry.node));
}

/* The call to another node that has waited longest; NULL: none waits. */
static const struct call *oldest(const struct peers *p)
{
	const struct call *c = TAILQ_FIRST(&p->waiting), *brief = TAILQ_FIRST(&p->waiting_brief);

	return !c || (brief && brief->started_usec < c->started_usec) ? brief : c;
}

/* Of several at once the first. */
static void describe_silent(struct peers *p, int64_t now, struct line *line)
{
	const struct call *c = TAILQ_FIRST(&p->waiting_brief);
	char name[NAME_BYTES + 32];

	if (!c || call_due(p, c) > now || call_node(p, c)->silent || !is_unheard(p, c))
		return;
	line->warning = true;
	line->event = "peer-silent";
	snprintf(line->text, sizeof(line->text),
		"nothing was heard of %s for %" PRIu64 " s: what can go on without it does, until it is heard again",
		node_name(p, c->entry.node, name, sizeof(name)), peers_brief_usec(p) / SEC);
}

static void describe_waiting(struct peers *p, int64_t now, struct line *line)
{
	const struct call *c = oldest(p);
	bool waiting = c && now - c->started_usec >= (int64_t)p->opt.patience_usec;
	char name[NAME_BYTES + 32];

	if (!waiting && p->told_waiting) {
		p->told_waiting = false;
		line->warning = false;
		line->event = "peer-waited";
		snprintf(line->text, sizeof(line->text), "no call waits for other nodes any more");
	} else if (waiting && !p->told_waiting && now - p->told_usec >= LOG_INTERVAL_USEC) {
		p->told_waiting = true;
		p->told_usec = now;
		line->warning = true;
		line->event = "peer-waiting";
		snprintf(line->text, sizeof(line->text), "waiting for %s: %s",
			node_name(p, c->entry.node, name, sizeof(name)), why(p, c->entry.node));
	}
}

/* ---- the thread */

static int64_t due(const struct peers *p, const struct call_list *list)
{
	const struct call *c = TAILQ_FIRST(list);

	return c ? call_due(p, c) : INT64_MAX;
}

/* When to look again, at the latest; INT64_MAX: nothing waits. */
static int64_t next_look(const struct peers *p, int64_t now)
{
	const struct call *c = oldest(p);
	const struct get *g = TAILQ_FIRST(&p->gets);
	int64_t at = c ? c->started_usec + (int64_t)p->opt.patience_usec : INT64_MAX;

	if (at <= now || p->told_waiting) /* it is late already, and told or to be told */
		at = now + SEC;
	at = min64(at, due(p, &p->waiting));
	at = min64(at, due(p, &p->waiting_brief));
	at = min64(at, due(p, &p->waiting_self));
	if (g)
		at = min64(at, g->started_usec + (int64_t)p->opt.timeout_usec);
	for (uint32_t i = 0; p->nodes && i < p->count; i++)
		if (p->nodes[i].missing_since_usec)
			at = min64(at, p->nodes[i].missing_since_usec + (int64_t)p->opt.node_timeout_usec);
	return at;
}

/* Under the lock, which is let go meanwhile when there is something to do. */
static void look(struct peers *p)
{
	struct call_list out = TAILQ_HEAD_INITIALIZER(out);
	struct get_list unfetched = TAILQ_HEAD_INITIALIZER(unfetched);
	struct line lines[3] = { { 0 } };
	int64_t now = peers_now();
	uint32_t missing = overdue(p, now);
	int64_t since = missing == UINT32_MAX ? 0 : p->nodes[missing].missing_since_usec;

	expire(p, &p->waiting, now, &out);
	if (!TAILQ_EMPTY(&out))
		describe_timeout(p, TAILQ_FIRST(&out), now, &lines[0]);
	describe_silent(p, now, &lines[2]);
	expire(p, &p->waiting_brief, now, &out);
	expire(p, &p->waiting_self, now, &out);
	expire_gets(p, now, &unfetched);
	describe_waiting(p, now, &lines[1]);
	upcall_begin(p);
	pthread_mutex_unlock(&p->lock);
	finish_calls(&out);
	finish_gets(&unfetched);
	for (size_t i = 0; i < 3; i++)
		if (lines[i].event)
			peers_log(p, lines[i].warning, lines[i].event, lines[i].text);
	if (missing != UINT32_MAX)
		peers_give_up(p, missing, since);
	upcall_end(p);
	pthread_mutex_lock(&p->lock);
}

void *timer_thread(void *arg)
{
	struct peers *p = arg;

	pthread_mutex_lock(&p->lock);
	while (!p->stop_timer) {
		int64_t at = next_look(p, peers_now());
		struct timespec until = { .tv_sec = at / SEC, .tv_nsec = at % SEC * 1000 };

		p->timer_at_usec = at;
		if (at == INT64_MAX)
			pthread_cond_wait(&p->tick, &p->lock);
		else
			pthread_cond_timedwait(&p->tick, &p->lock, &until);
		p->timer_at_usec = INT64_MIN;
		if (!p->ended)
			look(p);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}
