/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Programs that write a file together read in it what others of them have just written, and order that by messages alone: PnetCDF moves
 * variables, HDF5 changes chunks and metadata that another rank has written. So before a process reads what it may also write, all nodes that
 * have the file open for writing commit. The home asks them: once for all who read meanwhile, those that come while it asks are the next round's.
 * A home whose daemon has begun since does not know who they are: it asks all nodes, and who writes has the home know him first.
 * Also under a lock: not all who wrote there took one. It is as good as the nodes answer: one that does not is waited for as long as a brief
 * call lasts, and the read goes on with what is known.
 * docs/design/many-nodes.md, 4.
 */
#include "fs/job/share.h"

#include <errno.h>
#include <stdlib.h>

#include "format/base/array.h"

/* ---- a node that has written */

static bool has_unsaid(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool has = s->dirty_usec || s->telling_usec;
	pthread_mutex_unlock(&s->mutex);
	return has;
}

/* The home does not know that we write. */
static bool is_unknown(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool is = !s->at_home && s->writers > 0 && !s->registered;
	pthread_mutex_unlock(&s->mutex);
	return is;
}

static void commit_for(struct job *j, struct peers_request *rq)
{
	struct shared *s = shared_find(j, message_get(peers_msg(rq), MESSAGE_SHARE_INO));
	int rc = s && is_unknown(s) ? shared_register(j, s) : 0;

	if (s && rc == 0)
		rc = share_commit(j, s, false);
	shared_put(j, s);
	peers_reply_status(rq, rc);
}

void show_serve_now(struct job *j, struct peers_request *rq)
{
	struct shared *s = shared_find(j, message_get(peers_msg(rq), MESSAGE_SHARE_INO));
	bool has = s && (has_unsaid(s) || is_unknown(s));

	shared_put(j, s);
	if (has)
		workers_serve(j->share->showers, commit_for, rq);
	else
		peers_reply_status(rq, 0);
}

/* ---- the home */

struct round {
	struct job *j;
	struct shared *s;          /* counted reference */
	struct peers_request **rq; /* owned: who waits for it */
	size_t num;
	bool asks_all; /* nodes, not only those that are known to write */
	uint64_t doubts;
	_Atomic(bool) failed; /* somebody has not answered */
	_Atomic(unsigned int) left;
};

static void begin_round(struct job *j, void *arg /* struct shared, the reference */);

void show_doubt(struct shared *s)
{
	s->shows.knows_writers = false;
	s->shows.doubts++;
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

static void round_less(struct round *r)
{
	if (--r->left > 0)
		return;
	trust(r);
	for (size_t i = 0; i < r->num; i++)
		peers_reply_status(r->rq[i], 0);
	next_round(r->j, r->s);
	free(r->rq);
	free(r);
}

static void shown(int status, const struct wire_msg *reply, void *arg)
{
	struct round *r = arg;

	(void)reply;
	r->failed = r->failed || (status < 0 && status != -EHOSTDOWN);
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
	for (size_t i = 0; i < num; i++) {
		r->left++;
		r->j->share->messages++;
		int rc = peers_call_brief(r->j->peers, nodes[i], &m, shown, r);
		if (rc < 0)
			shown(rc, NULL, r);
	}
	wire_msg_free(&m);
}

/* But for one. NULL: no memory. */
static uint32_t *list_writers(struct job *j, struct shared *s, uint32_t but, size_t *ret_num)
{
	size_t num = 0;

	pthread_mutex_lock(&s->mutex);
	uint32_t *nodes = calloc(s->num_openers + 1, sizeof(*nodes));
	for (size_t i = 0; nodes && i < s->num_openers; i++) {
		const struct opener *o = &s->openers[i];

		if (o->writers > 0 && o->node != but && !peers_is_silent(j->peers, o->node))
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
	if (!r->asks_all)
		return list_writers(r->j, r->s, reader, ret_num);
	uint32_t *nodes = list_nodes(r->j, ret_num, &silent);
	r->failed = silent || !nodes;
	return nodes;
}

static void ask_all(struct round *r)
{
	uint32_t reader = only_reader(r);
	size_t num = 0;
	uint32_t *nodes = list_asked(r, reader, &num);

	r->left = 1;
	if (nodes)
		ask_writers(r, nodes, num);
	if (reader != peers_self(r->j->peers) && has_unsaid(r->s)) {
		r->left++;
		if (workers_do(r->j->share->showers, commit_here, r) < 0)
			round_less(r);
	}
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

void show_to(struct job *j, const struct job_file *file)
{
	struct wire_msg m = { 0 };
	struct fan f;

	if (!is_needed(j, file))
		return;
	message_init(&m, MESSAGE_SHARE_SHOW);
	message_put(&m, MESSAGE_SHARE_INO, file->shared->ino);
	fan_init(&f);
	fan_call_brief(j, &f, file->shared->home, &m);
	(void)fan_wait(&f);
	wire_msg_free(&m);
}
