/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A node whose store cannot take a change of the tree (it is full, or its device fails), or that has been away for so long that node 0 has
 * not kept what it lacks; or whose tree has changes that node 0 has lost and cannot learn. What the others have is another tree: so nothing that
 * this node would say of names can be believed.
 * It says -EIO to its own applications and to the others, whom nothing else is refused: open files are read and written, commits, locks and
 * drains go on, and all that it has acknowledged stays in its store. What asks which file has a name waits (rebuild.c), unless that may be for
 * ever: then it is refused as well, and asked again.
 *
 * Node 0 decides when it begins (sequence.c): before that nobody has been told that the change is done, so until then this node is as right as
 * any that has not heard of it yet. It ends with what node 0 sends again and again; but not for who is ahead: from there on numbers of changes mean
 * other ones here than there, so it takes none.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/job/private.h"

struct later { /* a request for when we have everything, or that change */
	struct later *next;
	uint64_t stamp; /* 0: everything */
	serve_handler fn;
	struct peers_request *rq;
};

struct lag {
	pthread_mutex_t lock;
	pthread_cond_t grown;    /* the tree; or it lags, or ends */
	_Atomic(uint64_t) lacks; /* number of the change that our tree should have had; 0: it has all */
	int status;              /* why not */
	bool ending;
	struct later *first, **last;
};

bool lag_is(struct job *j)
{
	return atomic_load(&j->lag->lacks) != 0;
}

int lag_gate(struct job *j)
{
	return lag_is(j) ? -EIO : 0;
}

bool lag_is_ahead(struct job *j)
{
	pthread_mutex_lock(&j->lag->lock);
	bool is = lag_is(j) && j->lag->status == LAG_AHEAD;
	pthread_mutex_unlock(&j->lag->lock);
	return is;
}

/* Nobody can say that it will end. */
static bool may_last(int status)
{
	return status == -EILSEQ || status == LAG_AHEAD;
}

const char *lag_reason(int status)
{
	switch (status) {
	case -EILSEQ: return "no node has it any more";
	case LAG_AHEAD: return "it has others, which node 0 has lost with its power";
	default: return strerror(-status);
	}
}

const char *lag_remedy(int status)
{
	switch (status) {
	case -ENOSPC: return "make room on the file system of its store, and it goes on";
	case -ENOMEM: return "it goes on when its daemon gets memory";
	case -EILSEQ: return "it was away for too long: end the job; what its store has is drained, or recovered";
	case LAG_AHEAD: return "end the job; what its store has is drained, or recovered";
	default: return "look after the device of its store, then unmount it and mount it again";
	}
}

/* In lag->lock. */
static void put_text(const struct lag *l, char *out, size_t cap)
{
	if (l->status == LAG_AHEAD)
		snprintf(out, cap,
			"the store has changes of the directory tree that node 0 has lost with its power: %s",
			lag_remedy(l->status));
	else
		snprintf(out, cap, "the store has not taken change %llu of the directory tree (%s): %s",
			(unsigned long long)l->lacks, lag_reason(l->status), lag_remedy(l->status));
}

/* What has waited is served, by whoever they are; not what nobody waits for any more, whose names others may have by now. */
static void serve_kept(struct job *j, struct later *kept, int status)
{
	for (struct later *next; kept; kept = next) {
		next = kept->next;
		if (status < 0 || !peers_is_wanted(kept->rq))
			peers_reply_status(kept->rq, status < 0 ? status : -ECONNRESET);
		else
			kept->fn(j, kept->rq);
		free(kept);
	}
}

/* Those with stamps from there to there. In lag->lock. */
static struct later *take_kept(struct lag *l, uint64_t from, uint64_t upto)
{
	struct later *kept = NULL, **last = &kept, **at = &l->first;

	while (*at) {
		struct later *k = *at;

		if (k->stamp < from || k->stamp > upto) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		k->next = NULL;
		*last = k;
		last = &k->next;
	}
	l->last = at;
	return kept;
}

bool lag_begin(struct job *j, uint64_t stamp, int status)
{
	struct lag *l = j->lag;
	char text[256];

	pthread_mutex_lock(&l->lock);
	bool news = !l->lacks || l->status != status;
	l->status = status;
	atomic_store(&l->lacks, stamp ? stamp : 1);
	put_text(l, text, sizeof(text));
	struct later *kept = may_last(status) ? take_kept(l, 0, 0) : NULL;
	pthread_cond_broadcast(&l->grown);
	pthread_mutex_unlock(&l->lock);
	serve_kept(j, kept, -EIO);
	if (news)
		job_log(j, true, "names_not_served", "status=%d text=\"%s\"", status, text);
	return news;
}

void lag_end(struct job *j)
{
	struct lag *l = j->lag;

	if (!lag_is(j))
		return;
	pthread_mutex_lock(&l->lock);
	atomic_store(&l->lacks, 0);
	struct later *kept = take_kept(l, 0, 0);
	pthread_mutex_unlock(&l->lock);
	job_log_self(j, "names_served_again");
	serve_kept(j, kept, 0);
}

/* In lag->lock; it is let go. */
static bool keep(struct job *j, bool wanted, const struct later *what)
{
	struct lag *l = j->lag;
	struct later *k = wanted && !l->ending ? malloc(sizeof(*k)) : NULL;

	wanted = wanted && !l->ending;
	if (k) {
		*k = *what;
		*l->last = k;
		l->last = &k->next;
	}
	pthread_mutex_unlock(&l->lock);
	if (wanted && !k)
		peers_reply_status(what->rq, -ENOMEM);
	return wanted;
}

bool lag_keeps(struct job *j, serve_handler fn, struct peers_request *rq)
{
	if (!lag_is(j))
		return false;
	pthread_mutex_lock(&j->lag->lock);
	bool refused = j->lag->lacks && may_last(j->lag->status);
	bool kept = keep(j, j->lag->lacks && !refused, &(struct later){ .fn = fn, .rq = rq });
	if (refused)
		peers_reply_status(rq, -EIO);
	return refused || kept;
}

bool lag_keeps_until(struct job *j, uint64_t stamp, serve_handler fn, struct peers_request *rq)
{
	if (state_tree_stamp(j->state) >= stamp)
		return false;
	pthread_mutex_lock(&j->lag->lock);
	return keep(j, state_tree_stamp(j->state) < stamp, &(struct later){ .stamp = stamp, .fn = fn, .rq = rq });
}

void lag_tree_grown(struct job *j)
{
	struct lag *l = j->lag;

	pthread_mutex_lock(&l->lock);
	struct later *kept = l->first ? take_kept(l, 1, state_tree_stamp(j->state)) : NULL;
	pthread_cond_broadcast(&l->grown);
	pthread_mutex_unlock(&l->lock);
	serve_kept(j, kept, 0);
}

int lag_wait(struct job *j, uint64_t stamp)
{
	uint64_t for_usec = config_number(j->opt.cfg, CONFIG_AGENT_TIMEOUT);
	struct lag *l = j->lag;
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(for_usec % 1000000u) * 1000;
	until.tv_sec += (time_t)(for_usec / 1000000u) + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&l->lock);
	while (rc == 0 && !l->lacks && !l->ending && state_tree_stamp(j->state) < stamp)
		rc = pthread_cond_clockwait(&l->grown, &l->lock, CLOCK_MONOTONIC, &until);
	bool here = !l->lacks && state_tree_stamp(j->state) >= stamp;
	pthread_mutex_unlock(&l->lock);
	return here ? 0 : -EILSEQ;
}

void job_troubles(struct job *j, void (*say)(const char *text, void *arg), void *arg)
{
	char text[256] = "";

	if (job_alone(j))
		return;
	pthread_mutex_lock(&j->lag->lock);
	if (j->lag->lacks)
		put_text(j->lag, text, sizeof(text));
	pthread_mutex_unlock(&j->lag->lock);
	if (*text)
		say(text, arg);
	job_unassembled_trouble(j, say, arg);
	sequence_troubles(j, say, arg);
	power_troubles(j, say, arg);
}

/* ---- life */

static int lag_create(struct job *j, struct cistern_error *err)
{
	j->lag = calloc(1, sizeof(*j->lag));
	if (!j->lag)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&j->lag->lock, NULL);
	pthread_cond_init(&j->lag->grown, NULL);
	j->lag->last = &j->lag->first;
	return 0;
}

static void lag_shut_down(struct job *j)
{
	if (!j->lag)
		return;
	pthread_mutex_lock(&j->lag->lock);
	j->lag->ending = true;
	pthread_cond_broadcast(&j->lag->grown);
	struct later *kept = take_kept(j->lag, 0, UINT64_MAX);
	pthread_mutex_unlock(&j->lag->lock);
	serve_kept(j, kept, -ESHUTDOWN);
}

static void lag_destroy(struct job *j)
{
	if (!j->lag)
		return;
	lag_shut_down(j);
	pthread_cond_destroy(&j->lag->grown);
	pthread_mutex_destroy(&j->lag->lock);
	free(j->lag);
	j->lag = NULL;
}

const struct part lag_part = { .create = lag_create, .shut_down = lag_shut_down, .destroy = lag_destroy };
