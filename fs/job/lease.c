/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Who may write a file and reads it asks before each read what others have written (show.c). When several rounds of that have brought nothing,
 * the next one binds the nodes that write: each tells the home before it writes again. With that the home can give those who ask a
 * lease: they need not ask. Who is about to write waits until the leases of all others have been recalled.
 *
 * Both end by themselves, and soon: a lease a while after it was asked for, and who is bound is so for as long from when he was asked, which is
 * later. So a node that does not answer keeps nobody from writing for longer than that, nor does a home that has forgotten its leases.
 * docs/design/many-nodes.md, 4.
 */
#include "fs/job/lease.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "format/base/array.h"
#include "format/base/clock.h"

#define CALM_ROUNDS 8u /* so a recall costs a small part of what has been asked before it */
#define LEASE_USEC \
	2000000u /* a round in so long renews it; so long at the most does a write wait for who does not answer */

static uint64_t min_usec(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Of a node that is given up the home knows no lease any more: it is over well before that. */
uint64_t lease_usec(const struct job *j)
{
	return min_usec(LEASE_USEC, min_usec(peers_brief_usec(j->peers), peers_missing_usec(j->peers) / 2));
}

/* ---- who reads */

bool lease_is_good(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool good = clock_usec() < s->lease.until_usec;
	pthread_mutex_unlock(&s->mutex);
	return good;
}

void lease_end(struct shared *s)
{
	s->lease.until_usec = 0;
}

void lease_take(struct shared *s, uint64_t stamp, uint64_t until_usec)
{
	pthread_mutex_lock(&s->mutex);
	if (stamp > s->lease.recall_stamp && (s->at_home || s->writers > 0))
		s->lease.until_usec = until_usec;
	pthread_mutex_unlock(&s->mutex);
}

/* mutex is held. One with a lower stamp that is still on its way counts no more either. */
static void give_up(struct shared *s, uint64_t stamp)
{
	lease_end(s);
	if (s->lease.recall_stamp < stamp)
		s->lease.recall_stamp = stamp;
}

void lease_serve_recall(struct job *j, struct peers_request *rq)
{
	struct shared *s = shared_find(j, message_get(peers_msg(rq), MESSAGE_SHARE_INO));

	if (s) {
		pthread_mutex_lock(&s->mutex);
		give_up(s, message_get(peers_msg(rq), MESSAGE_SHARE_AT_STAMP));
		pthread_mutex_unlock(&s->mutex);
	}
	peers_reply_status(rq, 0);
	shared_put(j, s);
}

/* ---- who writes */

enum lease_said lease_ask(struct shared *s, uint64_t bind_usec)
{
	enum lease_said said = LEASE_CALM;

	pthread_mutex_lock(&s->mutex);
	if (s->dirty_usec || s->telling_usec || s->left)
		said = LEASE_UNCOMMITTED;
	else if (s->lease.num_writing || s->parked)
		said = LEASE_WRITING;
	else if (bind_usec)
		s->lease.bound_usec = clock_usec() + bind_usec;
	pthread_mutex_unlock(&s->mutex);
	return said;
}

void lease_bind(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	s->lease.bound_usec = clock_usec() + LEASE_USEC; /* no home gives longer ones */
	pthread_mutex_unlock(&s->mutex);
}

/* mutex is held. Until when we must tell the home before we write; 0: we need not. */
static uint64_t bound_until(struct job *j, const struct shared *s)
{
	uint64_t until = s->lease.bound_usec;

	return clock_usec() < until && !j->share->ending ? until : 0;
}

static int tell_home(struct job *j, struct shared *s, uint64_t until_usec)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_SHARE_WRITES);
	message_put(&m, MESSAGE_SHARE_INO, s->ino);
	int rc = share_ask_home(j, s, &m, until_usec, NULL);
	wire_msg_free(&m);
	if (rc < 0 && rc != -ETIMEDOUT)
		usleep(SHARE_RETRY_USEC / 10);
	return rc;
}

void lease_begin_write(struct job *j, struct shared *s)
{
	uint64_t until;

	pthread_mutex_lock(&s->mutex);
	s->lease.num_writing++;
	while ((until = bound_until(j, s))) {
		pthread_mutex_unlock(&s->mutex);
		int rc = tell_home(j, s, until);
		pthread_mutex_lock(&s->mutex);
		if (rc == 0 && s->lease.bound_usec == until)
			s->lease.bound_usec = 0;
	}
	pthread_mutex_unlock(&s->mutex);
}

void lease_end_write(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	s->lease.num_writing--;
	pthread_mutex_unlock(&s->mutex);
}

/* ---- the home: giving */

void lease_stir(struct shared *s)
{
	s->leases.calm = 0;
}

void lease_no_more(struct shared *s)
{
	lease_stir(s);
	s->leases.writes++;
}

bool lease_is_due(struct shared *s, uint64_t *ret_writes)
{
	pthread_mutex_lock(&s->mutex);
	bool due = s->leases.calm >= CALM_ROUNDS && s->shows.knows_writers;
	*ret_writes = s->leases.writes;
	pthread_mutex_unlock(&s->mutex);
	return due;
}

void lease_note_round(struct shared *s, bool calm)
{
	pthread_mutex_lock(&s->mutex);
	if (!calm)
		lease_stir(s);
	else if (s->leases.calm < CALM_ROUNDS)
		s->leases.calm++;
	pthread_mutex_unlock(&s->mutex);
}

/* mutex is held. Until when a node has one; NULL: it is not known to have the file open. */
static uint64_t *lease_of(struct job *j, struct shared *s, uint32_t node)
{
	if (node == peers_self(j->peers))
		return &s->leases.here_usec;
	for (size_t i = 0; i < s->num_openers; i++)
		if (s->openers[i].node == node)
			return s->openers[i].writers > 0 ? &s->openers[i].leased_usec : NULL;
	return NULL;
}

uint64_t lease_give(struct job *j, struct shared *s, uint32_t node, uint64_t writes)
{
	uint64_t stamp = 0;

	pthread_mutex_lock(&s->mutex);
	uint64_t *leased = s->leases.writes == writes ? lease_of(j, s, node) : NULL;
	if (leased) {
		*leased = clock_usec() + lease_usec(j); /* longer than by the node's clock: it has asked earlier */
		stamp = registry_stamp(s);
	}
	pthread_mutex_unlock(&s->mutex);
	return stamp;
}

/* ---- the home: recalling */

struct recall { /* of the leases that nodes had at one time */
	struct job *j;
	struct shared *s; /* counted reference */
	uint64_t stamp, over_usec;
	unsigned int batch;
	uint32_t *nodes; /* owned; who had one */
	size_t num;
	_Atomic(bool) failed; /* somebody may believe in it until over_usec */
	_Atomic(unsigned int) left;
};

/* mutex is held. An earlier daemon may have given leases that are not over. */
static bool is_young(const struct job *j, const struct shared *s)
{
	return s->leases.inherited && clock_usec() - j->share->begun_usec < LEASE_USEC &&
	       config_number(j->opt.cfg, CONFIG_VISIBLE) == VISIBLE_READ;
}

/* mutex is held. */
static bool is_leased(struct job *j, const struct shared *s, uint32_t but)
{
	uint64_t now = clock_usec();
	bool leased = now < s->leases.here_usec && but != peers_self(j->peers);

	for (size_t i = 0; !leased && i < s->num_openers; i++)
		leased = now < s->openers[i].leased_usec && s->openers[i].node != but;
	return leased;
}

bool lease_must_tell(struct job *j, struct shared *s, uint32_t node)
{
	pthread_mutex_lock(&s->mutex);
	bool must = clock_usec() < s->leases.over_usec || is_leased(j, s, node) || is_young(j, s);
	pthread_mutex_unlock(&s->mutex);
	return must;
}

/* mutex is held. It is not known which nodes have got one from an earlier daemon. */
static void list_all_nodes(struct job *j, uint32_t but, struct recall *r)
{
	for (uint32_t node = 0; node < peers_count(j->peers); node++)
		if (node != but && node != peers_self(j->peers))
			r->nodes[r->num++] = node;
	r->over_usec = j->share->begun_usec + LEASE_USEC;
}

/* mutex is held. */
static void list_leased(struct shared *s, uint32_t but, struct recall *r)
{
	uint64_t now = clock_usec();

	for (size_t i = 0; i < s->num_openers; i++) {
		struct opener *o = &s->openers[i];

		if (now >= o->leased_usec || o->node == but)
			continue;
		r->over_usec = r->over_usec < o->leased_usec ? o->leased_usec : r->over_usec;
		r->nodes[r->num++] = o->node;
	}
}

/* mutex is held. Nobody has one any more but that node. */
static void take_back(struct job *j, struct shared *s, uint32_t but, struct recall *r)
{
	r->stamp = registry_stamp(s);
	if (is_young(j, s))
		list_all_nodes(j, but, r);
	else
		list_leased(s, but, r);
	for (size_t i = 0; i < s->num_openers; i++)
		if (s->openers[i].node != but)
			s->openers[i].leased_usec = 0;
	if (but != peers_self(j->peers)) {
		s->leases.here_usec = 0;
		give_up(s, r->stamp);
	}
}

struct answer {                    /* to those who waited for recalls */
	struct peers_request **rq; /* owned */
	size_t num;
	int rc; /* < 0: they ask again, or wait until they are bound no more */
};

/* mutex is held, as since no recall is under way: who comes later waits for one of his own. */
static struct answer take_waiting(struct leases *l)
{
	struct answer a = { l->waiting, l->num_waiting, clock_usec() < l->stuck_usec ? -EAGAIN : 0 };

	l->waiting = NULL;
	l->num_waiting = l->cap_waiting = 0;
	return a;
}

/* Nobody is answered but when it was the last one that is waited for. */
static struct answer batch_less(struct recall *r)
{
	struct leases *l = &r->s->leases;
	struct answer a = { 0 };

	pthread_mutex_lock(&r->s->mutex);
	bool counts = r->batch == l->batch;
	if (counts && r->failed && l->stuck_usec < r->over_usec)
		l->stuck_usec = r->over_usec;
	if (counts && --l->num_recalls == 0)
		a = take_waiting(l);
	pthread_mutex_unlock(&r->s->mutex);
	return a;
}

static void recall_less(struct recall *r)
{
	if (--r->left > 0)
		return;
	struct answer a = batch_less(r);
	for (size_t i = 0; i < a.num; i++)
		peers_reply_status(a.rq[i], a.rc);
	free(a.rq);
	shared_put(r->j, r->s);
	free(r->nodes);
	free(r);
}

static void recall_answered(int status, const struct wire_msg *reply, void *arg)
{
	struct recall *r = arg;

	(void)reply;
	if (status < 0 && status != -ECONNRESET &&
		status != -EHOSTDOWN) /* another daemon has none, nor who was given up */
		r->failed = true;
	recall_less(r);
}

static void send_recall(struct recall *r)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_SHARE_RECALL);
	message_put(&m, MESSAGE_SHARE_INO, r->s->ino);
	message_put(&m, MESSAGE_SHARE_AT_STAMP, r->stamp);
	r->left = 1;
	for (size_t i = 0; i < r->num; i++) {
		r->left++;
		r->j->share->messages++;
		int rc = peers_call_brief(r->j->peers, r->nodes[i], &m, recall_answered, r);
		if (rc < 0)
			recall_answered(rc, NULL, r);
	}
	wire_msg_free(&m);
	recall_less(r);
}

/* mutex is held. Those that have not been answered are of leases that are over: nobody waits for them any more. */
static void begin_batch(struct leases *l, struct recall *r)
{
	if (clock_usec() >= l->over_usec) {
		l->batch++;
		l->num_recalls = 0;
	}
	l->num_recalls++;
	r->batch = l->batch;
	if (l->over_usec < r->over_usec)
		l->over_usec = r->over_usec;
}

/* mutex is held. rq waits for all that are under way; NULL: nobody waits. */
static int recall_begin(struct job *j, struct shared *s, uint32_t but, struct peers_request *rq, struct recall *r)
{
	struct leases *l = &s->leases;
	int rc = array_room(&l->waiting, &l->cap_waiting, l->num_waiting, sizeof(struct peers_request *));

	lease_no_more(s);
	r->nodes = rc == 0 ? calloc(s->num_openers + peers_count(j->peers), sizeof(*r->nodes)) : NULL;
	if (!r->nodes)
		return -ENOMEM;
	if (clock_usec() < l->stuck_usec) {
		free(r->nodes);
		return -EAGAIN;
	}
	take_back(j, s, but, r);
	begin_batch(l, r);
	if (rq)
		l->waiting[l->num_waiting++] = rq;
	return 0;
}

static int recall(struct job *j, struct shared *s, uint32_t but, struct peers_request *rq)
{
	struct recall *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->j = j;
	r->s = shared_get(j, s->ino); /* of one that is in use: it is there */
	pthread_mutex_lock(&s->mutex);
	int rc = recall_begin(j, s, but, rq, r);
	pthread_mutex_unlock(&s->mutex);
	if (rc == 0) {
		send_recall(r);
		return 0;
	}
	shared_put(j, r->s);
	free(r);
	return rc;
}

void lease_recall_all(struct job *j, struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool leased = is_leased(j, s, NOBODY);
	pthread_mutex_unlock(&s->mutex);
	if (leased)
		(void)recall(j, s, NOBODY, NULL); /* else they end by themselves */
}

void lease_serve_writes(struct job *j, struct peers_request *rq)
{
	struct shared *s = shared_get(j, message_get(peers_msg(rq), MESSAGE_SHARE_INO));
	int rc = s ? recall(j, s, peers_from(rq), rq) : -ENOMEM;

	if (rc < 0)
		peers_reply_status(rq, rc);
	shared_put(j, s);
}
