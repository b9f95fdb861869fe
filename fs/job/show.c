/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Programs that write a file together read in it what others of them have just written, and order that by messages alone: PnetCDF moves
 * variables, HDF5 changes chunks and metadata that another rank has written. So before a process reads what it may also write, all nodes that
 * have the file open for writing commit. The home asks them: once for all who read meanwhile, those that come while it asks are the next round's.
 * A home whose daemon has begun since does not know who they are: it asks all nodes, and who writes has the home know him first.
 * Also under a lock: not all who wrote there took one. It is as good as the nodes answer: one that does not is waited for as long as a brief
 * call lasts, and the read goes on with what is known. Who reads on while nobody writes gets a lease, and asks no more (lease.c).
 * docs/design/many-nodes.md, 4.
 */
#include "fs/job/lease.h"

#include <errno.h>
#include <stdlib.h>

#include "format/base/array.h"
#include "format/base/clock.h"

enum show_flag {           /* MESSAGE_SHARE_FLAGS */
	SHOW_REGISTER = 1, /* the home does not know who writes */
	SHOW_WRITTEN = 1,  /* in the answer: something was written, or is just being */
};

/* ---- a node that has written */

/* The home does not know that we write; perhaps without our knowing, when it has given us up meanwhile. */
static bool is_unknown(struct shared *s, bool asks)
{
	pthread_mutex_lock(&s->mutex);
	bool is = !s->at_home && s->writers > 0 && (asks || !s->registered);
	pthread_mutex_unlock(&s->mutex);
	return is;
}

static void commit_for(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	struct shared *s = shared_find(j, message_get(m, MESSAGE_SHARE_INO));
	int rc = 0;

	if (s && is_unknown(s, message_get(m, MESSAGE_SHARE_FLAGS) & SHOW_REGISTER))
		rc = shared_register(j, s);
	if (s && rc == 0)
		rc = share_commit(j, s, false);
	shared_put(j, s);
	share_reply_number(rq, rc, MESSAGE_SHARE_FLAGS, SHOW_WRITTEN);
}

/* Who does not have the file open hears that it is bound when it opens it. */
static void say(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	struct shared *s = shared_find(j, message_get(m, MESSAGE_SHARE_INO));
	enum lease_said said = s ? lease_ask(s, message_get(m, MESSAGE_SHARE_PROMISE)) : LEASE_CALM;

	if (s && is_unknown(s, message_get(m, MESSAGE_SHARE_FLAGS) & SHOW_REGISTER))
		said = LEASE_UNCOMMITTED;
	shared_put(j, s);
	if (said == LEASE_UNCOMMITTED)
		workers_serve(j->share->showers, commit_for, rq);
	else
		share_reply_number(rq, 0, MESSAGE_SHARE_FLAGS, said == LEASE_CALM ? 0 : SHOW_WRITTEN);
}

static void sweep_and_say(struct job *j, struct peers_request *rq)
{
	int rc = sweep_file(j, message_get(peers_msg(rq), MESSAGE_SHARE_INO));

	if (rc < 0)
		peers_reply_status(rq, rc);
	else
		say(j, rq);
}

void show_serve_now(struct job *j, struct peers_request *rq)
{
	if (j->share->swept)
		say(j, rq);
	else
		workers_serve(j->share->showers, sweep_and_say, rq);
}

/* ---- the home */

struct round {
	struct job *j;
	struct shared *s;          /* counted reference */
	struct peers_request **rq; /* owned: who waits for it */
	size_t num;
	bool asks_all; /* nodes, not only those that are known to write */
	uint64_t doubts;
	bool binds;           /* who is asked, and may give leases */
	uint64_t writes;      /* s->leases.writes when it began */
	_Atomic(bool) failed; /* somebody has not answered */
	_Atomic(bool) busy;   /* somebody has written, or was writing */
	_Atomic(unsigned int) left;
};

static void begin_round(struct job *j, void *arg /* struct shared, the reference */);

void show_doubt(struct shared *s)
{
	s->shows.knows_writers = false;
	s->shows.doubts++;
	lease_no_more(s);
}

static bool knows_writers(struct shared *s, uint64_t *ret_doubts)
{
	pthread_mutex_lock(&s->mutex);
	bool knows = s->shows.knows_writers;
	*ret_doubts = s->shows.doubts;
	pthread_mutex_unlock(&s->mutex);
	return knows;
}

/* All have answered, and so are known if they write. */
static void trust(const struct round *r)
{
	struct shared *s = r->s;

	if (!r->asks_all || r->failed)
		return;
	pthread_mutex_lock(&s->mutex);
	s->shows.knows_writers |= s->shows.doubts == r->doubts;
	pthread_mutex_unlock(&s->mutex);
}

/* True: another one. */
static bool goes_on(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool more = s->shows.num > 0;
	s->shows.running = more;
	pthread_mutex_unlock(&s->mutex);
	return more;
}

/* Not when we end: the workers do so before those who commit. */
static int begin_later(struct job *j, struct shared *s)
{
	struct share *sh = j->share;

	pthread_mutex_lock(&sh->wake);
	int rc = sh->ending ? -ESHUTDOWN : workers_do(j->workers, begin_round, s);
	pthread_mutex_unlock(&sh->wake);
	return rc;
}

static void next_round(struct job *j, struct shared *s)
{
	if (!goes_on(s))
		shared_put(j, s);
	else if (begin_later(j, s) < 0)
		begin_round(j, s);
}

/* With a lease, if the round is good for one. */
static void reply_shown(struct round *r, struct peers_request *rq)
{
	bool gives = r->binds && !r->failed && !r->busy;
	uint64_t stamp = gives ? lease_give(r->j, r->s, peers_from(rq), r->writes) : 0;
	struct wire_msg reply = { 0 };

	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, 0);
	if (stamp) {
		message_put(&reply, MESSAGE_SHARE_AT_STAMP, stamp);
		message_put(&reply, MESSAGE_SHARE_PROMISE, lease_usec(r->j));
	}
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

static void round_less(struct round *r)
{
	if (--r->left > 0)
		return;
	trust(r);
	lease_note_round(r->s, !r->failed && !r->busy);
	for (size_t i = 0; i < r->num; i++)
		reply_shown(r, r->rq[i]);
	next_round(r->j, r->s);
	free(r->rq);
	free(r);
}

static void shown(int status, const struct wire_msg *reply, void *arg)
{
	struct round *r = arg;

	if (status < 0 && status != -EHOSTDOWN)
		r->failed = true;
	if (reply && message_get(reply, MESSAGE_SHARE_FLAGS) & SHOW_WRITTEN)
		r->busy = true;
	round_less(r);
}

static void commit_here(struct job *j, void *arg)
{
	struct round *r = arg;

	(void)share_commit(j, r->s, false);
	round_less(r);
}

/* A node that alone waits knows what it has written. NOBODY: several do. */
static uint32_t only_reader(const struct round *r)
{
	for (size_t i = 1; i < r->num; i++)
		if (peers_from(r->rq[i]) != peers_from(r->rq[0]))
			return NOBODY;
	return peers_from(r->rq[0]);
}

static void ask_writers(struct round *r, const uint32_t *nodes, size_t num)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_SHARE_SHOW_NOW);
	message_put(&m, MESSAGE_SHARE_INO, r->s->ino);
	if (r->binds)
		message_put(&m, MESSAGE_SHARE_PROMISE, lease_usec(r->j));
	if (r->asks_all)
		message_put(&m, MESSAGE_SHARE_FLAGS, SHOW_REGISTER);
	for (size_t i = 0; i < num; i++) {
		r->left++;
		r->j->share->messages++;
		int rc = peers_call_brief(r->j->peers, nodes[i], &m, shown, r);
		if (rc < 0)
			shown(rc, NULL, r);
	}
	wire_msg_free(&m);
}

/* But for one. *ret_silent: one is not asked. NULL: no memory. */
static uint32_t *list_writers(struct job *j, struct shared *s, uint32_t but, size_t *ret_num, bool *ret_silent)
{
	size_t num = 0;

	pthread_mutex_lock(&s->mutex);
	uint32_t *nodes = calloc(s->num_openers + 1, sizeof(*nodes));
	for (size_t i = 0; nodes && i < s->num_openers; i++) {
		const struct opener *o = &s->openers[i];

		if (o->writers == 0 || o->node == but)
			continue;
		if (peers_is_silent(j->peers, o->node))
			*ret_silent = true;
		else
			nodes[num++] = o->node;
	}
	pthread_mutex_unlock(&s->mutex);
	*ret_num = num;
	return nodes;
}

/* All but us and those that have gone, which have nothing open. *ret_silent: one is not asked. NULL: no memory. */
static uint32_t *list_nodes(struct job *j, size_t *ret_num, bool *ret_silent)
{
	uint32_t *nodes = calloc(peers_count(j->peers), sizeof(*nodes)), self = peers_self(j->peers);
	struct peers_node n;
	size_t num = 0;

	for (uint32_t i = 0; nodes && peers_nodes(j->peers, i, &n, 1) == 1; i++) {
		if (i == self || n.gone)
			continue;
		*ret_silent |= n.silent;
		if (!n.silent)
			nodes[num++] = i;
	}
	*ret_num = num;
	return nodes;
}

static uint32_t *list_asked(struct round *r, uint32_t reader, size_t *ret_num)
{
	bool silent = false;

	r->asks_all = !knows_writers(r->s, &r->doubts);
	uint32_t *nodes =
		r->asks_all ? list_nodes(r->j, ret_num, &silent) : list_writers(r->j, r->s, reader, ret_num, &silent);
	r->failed = silent || !nodes;
	return nodes;
}

static void ask_here(struct round *r)
{
	if (sweep_file(r->j, r->s->ino) < 0)
		r->failed = true;
	enum lease_said said = lease_ask(r->s, r->binds ? lease_usec(r->j) : 0);

	if (said != LEASE_CALM)
		r->busy = true;
	if (said != LEASE_UNCOMMITTED)
		return;
	r->left++;
	if (workers_do(r->j->share->showers, commit_here, r) < 0)
		round_less(r);
}

static void ask_all(struct round *r)
{
	uint32_t reader = only_reader(r);
	size_t num = 0;

	r->binds = lease_is_due(r->s, &r->writes);
	uint32_t *nodes = list_asked(r, reader, &num);
	r->left = 1;
	if (nodes)
		ask_writers(r, nodes, num);
	if (reader != peers_self(r->j->peers))
		ask_here(r);
	free(nodes);
	round_less(r);
}

static void begin_round(struct job *j, void *arg)
{
	struct shared *s = arg;
	struct round *r = calloc(1, sizeof(*r));

	pthread_mutex_lock(&s->mutex);
	struct shows waiting = s->shows;
	s->shows.at = NULL;
	s->shows.num = s->shows.cap = 0;
	pthread_mutex_unlock(&s->mutex);
	if (r) {
		*r = (struct round){ .j = j, .s = s, .rq = waiting.at, .num = waiting.num };
		ask_all(r);
		return;
	}
	for (size_t i = 0; i < waiting.num; i++)
		peers_reply_status(waiting.at[i], -ENOMEM);
	free(waiting.at);
	next_round(j, s);
}

/* *ret_begins: nobody else begins the round. */
static int join_round(struct shared *s, struct peers_request *rq, bool *ret_begins)
{
	pthread_mutex_lock(&s->mutex);
	int rc = array_room(&s->shows.at, &s->shows.cap, s->shows.num, sizeof(struct peers_request *));
	if (rc == 0) {
		s->shows.at[s->shows.num++] = rq;
		*ret_begins = !s->shows.running;
		s->shows.running = true;
	}
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

void show_serve(struct job *j, struct peers_request *rq)
{
	struct shared *s = shared_get(j, message_get(peers_msg(rq), MESSAGE_SHARE_INO));
	bool begins = false;
	int rc = s ? join_round(s, rq, &begins) : -ENOMEM;

	if (rc < 0)
		peers_reply_status(rq, rc);
	if (begins)
		begin_round(j, s);
	else
		shared_put(j, s);
}

/* ---- who reads */

/* At home. */
static bool others_may_write(struct shared *s)
{
	uint64_t doubts;

	return registry_has_openers(s) || !knows_writers(s, &doubts);
}

/* At home it is known whether there is anybody to be asked. */
static bool is_needed(struct job *j, const struct job_file *file)
{
	struct shared *s = file->shared;

	return file->sieve && s->is_shared && config_number(j->opt.cfg, CONFIG_VISIBLE) == VISIBLE_READ &&
	       (!shared_is_home(j, s) || others_may_write(s));
}

struct showing {
	struct fan fan;
	uint64_t stamp, good_usec; /* of a lease; 0: none */
};

static void answered(int status, const struct wire_msg *reply, void *arg)
{
	struct showing *a = arg;

	if (status == 0 && reply) {
		a->stamp = message_get(reply, MESSAGE_SHARE_AT_STAMP);
		a->good_usec = message_get(reply, MESSAGE_SHARE_PROMISE);
	}
	fan_done(status, reply, &a->fan);
}

void show_to(struct job *j, const struct job_file *file)
{
	struct shared *s = file->shared;
	struct wire_msg m = { 0 };
	struct showing a = { 0 };

	if (!is_needed(j, file) || lease_is_good(s))
		return;
	uint64_t asked_usec = clock_usec();
	message_init(&m, MESSAGE_SHARE_SHOW);
	message_put(&m, MESSAGE_SHARE_INO, s->ino);
	fan_init(&a.fan);
	fan_ask_brief(j, &a.fan, s->home, &m, answered, &a);
	(void)fan_wait(&a.fan);
	wire_msg_free(&m);
	if (a.stamp)
		lease_take(s, a.stamp, asked_usec + a.good_usec);
}
