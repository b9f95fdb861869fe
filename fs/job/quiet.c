/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names and attributes of a file are its home's to say, and who asks needs them for one call. So that a walk through a directory need not ask for
 * each file again and again, a home gives with its answer its word: nothing of that changes before you have heard of it. The word is for all files at
 * home there that nobody has open. It is recalled before any of them is changed, and it is over after QUIET_USEC by itself, so nobody waits longer than
 * that for a node that does not answer. A home that is busy gives none: not before CALM_USEC after a change.
 *
 * Whoever changes a file at its home does it between quiet_begin_change and quiet_end_change. What is made new has told nobody anything; but it may be
 * seen before it is known to be open. A home that has begun anew does not know what its predecessor gave: it recalls that
 * from everybody.
 *
 * Who has a word numbers them: what he was told under one that was recalled, or ran out, is worth nothing, nor is a word that he asked for before
 * that. docs/design/many-nodes.md, 3.
 */
#include "fs/job/quiet.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "format/base/clock.h"
#include "fs/job/lease.h"
#include "fs/job/share.h"

#define QUIET_USEC 1000000u
#define CALM_USEC  300000u

struct word {
	uint64_t given_usec; /* home: it has been given to that node until then; 0: it has not */
	bool recalled;       /* and is recalled */
	uint64_t number;     /* of the one that we have been given by that node, or the last */
	uint64_t until_usec; /* it is good until then; 0: it is not */
};

struct quiet {
	struct job *j;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* CLOCK_MONOTONIC */
	struct word *words;     /* owned; one for each node; NULL: none yet */
	uint32_t num;
	uint64_t inherited_usec; /* until there are words: until then what a predecessor gave may be good */
	uint64_t last_usec;      /* until then what we gave may be */
	uint64_t calm_usec;      /* none is given before */
	unsigned int changes;
	bool ending;
};

static uint64_t word_usec(const struct job *j)
{
	uint64_t lease = lease_usec(j);

	return lease < QUIET_USEC ? lease : QUIET_USEC;
}

/* lock is held. As if all had been given by us what a predecessor may have given to some. */
static void inherit(struct quiet *q)
{
	for (uint32_t i = 0; i < q->num; i++)
		q->words[i].given_usec = i == peers_self(q->j->peers) ? 0 : q->inherited_usec;
	q->last_usec = q->inherited_usec;
	q->inherited_usec = 0;
}

/* lock is held. NULL: no memory, or no numbers yet. */
static struct word *word_of(struct quiet *q, uint32_t node)
{
	uint32_t num = peers_count(q->j->peers);

	if (!q->words && num > 1 && (q->words = calloc(num, sizeof(*q->words)))) {
		q->num = num;
		inherit(q);
	}
	return node < q->num ? &q->words[node] : NULL;
}

/* ---- the home: giving */

/* lock is held. */
static bool is_calm(const struct quiet *q, uint64_t now)
{
	return q->changes == 0 && now >= q->calm_usec && !q->j->moving[0] && !q->j->moving[1];
}

uint64_t quiet_give(struct job *j, uint32_t node)
{
	struct quiet *q = j->quiet;
	uint64_t usec = 0;

	pthread_mutex_lock(&q->lock);
	uint64_t now = clock_usec();
	struct word *w = word_of(q, node);
	if (w && is_calm(q, now)) {
		usec = word_usec(j);
		w->given_usec = now + usec;
		q->last_usec = now + usec > q->last_usec ? now + usec : q->last_usec;
		w->recalled = false;
	}
	pthread_mutex_unlock(&q->lock);
	return usec;
}

/* ---- the home: recalling */

/* lock is held. Until when what was given may be taken for true; 0: it is not any more. */
static uint64_t given_until(const struct quiet *q)
{
	uint64_t now = clock_usec(), until = now < q->inherited_usec ? q->inherited_usec : 0;

	for (uint32_t i = 0; i < q->num && now < q->last_usec; i++)
		if (q->words[i].given_usec > now && q->words[i].given_usec > until)
			until = q->words[i].given_usec;
	return until;
}

struct recall {
	struct quiet *q;
	uint32_t node;
	uint64_t given_usec;
};

static void recalled(int status, const struct wire_msg *reply, void *arg)
{
	struct recall *r = arg;
	struct quiet *q = r->q;

	(void)reply;
	pthread_mutex_lock(&q->lock);
	if (status == 0 && q->words[r->node].given_usec == r->given_usec) {
		q->words[r->node].given_usec = 0;
		pthread_cond_broadcast(&q->changed);
	}
	pthread_mutex_unlock(&q->lock);
	free(r);
}

static void send_recall(struct quiet *q, uint32_t node, uint64_t given_usec)
{
	struct recall *r = malloc(sizeof(*r));
	struct wire_msg m = { 0 };

	if (!r)
		return; /* it ends by itself */
	*r = (struct recall){ q, node, given_usec };
	message_init(&m, MESSAGE_QUIET_RECALL);
	if (peers_call_brief(q->j->peers, node, &m, recalled, r) < 0)
		free(r);
	wire_msg_free(&m);
}

/* lock is held, but not all the time. */
static void recall_all(struct quiet *q)
{
	uint64_t now = clock_usec();

	(void)word_of(q, 0);
	for (uint32_t i = 0; i < q->num && now < q->last_usec; i++) {
		uint64_t given = q->words[i].given_usec;

		if (given <= now || q->words[i].recalled)
			continue;
		q->words[i].recalled = true;
		pthread_mutex_unlock(&q->lock);
		send_recall(q, i, given);
		pthread_mutex_lock(&q->lock);
	}
}

/* lock is held, and changes counts us. Waits for the transports of other nodes alone, which wait for nobody. */
static void await_recalled(struct quiet *q)
{
	uint64_t until;

	recall_all(q);
	while (!q->ending && (until = given_until(q))) {
		struct timespec at = { .tv_sec = (time_t)(until / 1000000u),
			.tv_nsec = (long)(until % 1000000u * 1000u) + 999 };

		(void)pthread_cond_timedwait(&q->changed, &q->lock, &at);
	}
}

void quiet_begin_change(struct job *j)
{
	struct quiet *q = j->quiet;

	if (!q)
		return;
	pthread_mutex_lock(&q->lock);
	q->changes++;
	await_recalled(q);
	pthread_mutex_unlock(&q->lock);
}

void quiet_end_change(struct job *j)
{
	struct quiet *q = j->quiet;

	if (!q)
		return;
	pthread_mutex_lock(&q->lock);
	q->changes--;
	q->calm_usec = clock_usec() + CALM_USEC;
	pthread_mutex_unlock(&q->lock);
}

void quiet_begin_birth(struct job *j)
{
	struct quiet *q = j->quiet;

	if (!q)
		return;
	pthread_mutex_lock(&q->lock);
	q->changes++;
	pthread_mutex_unlock(&q->lock);
}

void quiet_end_birth(struct job *j)
{
	struct quiet *q = j->quiet;

	if (!q)
		return;
	pthread_mutex_lock(&q->lock);
	q->changes--;
	pthread_mutex_unlock(&q->lock);
}

/* ---- who was given it */

struct quiet_ask quiet_ask(struct job *j, uint32_t home)
{
	struct quiet_ask ask = { .home = home, .asked_usec = clock_usec() };

	pthread_mutex_lock(&j->quiet->lock);
	struct word *w = word_of(j->quiet, home);
	ask.number = w ? w->number : 0;
	pthread_mutex_unlock(&j->quiet->lock);
	return ask;
}

uint64_t quiet_take(struct job *j, const struct quiet_ask *ask, uint64_t usec)
{
	uint64_t now = clock_usec(), until = ask->asked_usec + usec, number = 0;

	if (usec == 0 || until <= now)
		return 0;
	pthread_mutex_lock(&j->quiet->lock);
	struct word *w = word_of(j->quiet, ask->home);
	if (w && w->number == ask->number) {
		if (w->until_usec <= now)
			w->number++;
		if (w->until_usec < until)
			w->until_usec = until;
		number = w->number;
	}
	pthread_mutex_unlock(&j->quiet->lock);
	return number;
}

bool quiet_holds(struct job *j, uint32_t home, uint64_t number)
{
	pthread_mutex_lock(&j->quiet->lock);
	struct word *w = word_of(j->quiet, home);
	bool holds = w && number && w->number == number && clock_usec() < w->until_usec;
	pthread_mutex_unlock(&j->quiet->lock);
	return holds;
}

static void forget_word(struct quiet *q, uint32_t home)
{
	pthread_mutex_lock(&q->lock);
	struct word *w = word_of(q, home);
	if (w) {
		w->number++;
		w->until_usec = 0;
	}
	pthread_mutex_unlock(&q->lock);
}

void quiet_serve_recall(struct job *j, struct peers_request *rq)
{
	forget_word(j->quiet, peers_from(rq));
	peers_reply_status(rq, 0);
}

/* ---- life */

static void quiet_event(struct job *j, enum peers_event event, uint32_t node)
{
	if (event == PEERS_RESTARTED || event == PEERS_GONE)
		forget_word(j->quiet, node);
}

static int quiet_create(struct job *j, struct cistern_error *err)
{
	struct quiet *q = calloc(1, sizeof(*q));
	pthread_condattr_t attr;

	if (!q)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	j->quiet = q;
	q->j = j;
	q->inherited_usec = state_seq(j->state) ? clock_usec() + QUIET_USEC : 0;
	pthread_mutex_init(&q->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&q->changed, &attr);
	pthread_condattr_destroy(&attr);
	return 0;
}

static void quiet_shut_down(struct job *j)
{
	struct quiet *q = j->quiet;

	if (!q)
		return;
	pthread_mutex_lock(&q->lock);
	q->ending = true;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
}

static void quiet_destroy(struct job *j)
{
	struct quiet *q = j->quiet;

	if (!q)
		return;
	pthread_cond_destroy(&q->changed);
	pthread_mutex_destroy(&q->lock);
	free(q->words);
	free(q);
	j->quiet = NULL;
}

const struct part quiet_part = {
	.create = quiet_create, .shut_down = quiet_shut_down, .destroy = quiet_destroy, .event = quiet_event
};
