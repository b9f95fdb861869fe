/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Locks of names, as the node has them whose operation it is. A lock is remembered from before it is asked for until its server
 * has confirmed its end: so a server that begins anew can be told of all of them (rebuild.c), and an end that got
 * lost is said again. Of a name that two say to hold, one has ended its lock, and only does not know yet that the server
 * has heard of it: the other counts; or the one whose stamp is higher.
 *
 * The end of one of whose operation it is not known what became of it is said when no home can do it any more (late.c).
 *
 * A server that is given up may come back as it was: the end of what it may have given us is said when it does.
 *
 * Two locks are taken in the order of (server, directory, name), the same on every node.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/job/private.h"
#include "format/base/clock.h"
#include "fs/job/share.h"

#define FULL_USEC 2000u

struct hold {
	struct hold *next, *prev;
	struct job *j;
	uint64_t dir, id;
	uint32_t server;
	struct pointer at; /* at its end */
	bool known;
	bool full;     /* too much waits for the server already */
	bool sent;     /* the server may have heard of it */
	bool parked;   /* held->lock: its end is said when the server is back */
	bool granted;  /* held->lock: the server has given it */
	bool ended;    /* held->lock: it is to know that we do not need it any more */
	bool answered; /* held->lock: the server has said something */
	int status;
	uint64_t stamp;      /* that came with it */
	uint64_t until_usec; /* held_put_until */
	char name[RECORD_NAME_MAX + 1];
};

struct held {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct hold all; /* a ring */
	uint64_t last_id;
};

static void remember(struct job *j, struct hold *h)
{
	struct held *held = j->held;

	pthread_mutex_lock(&held->lock);
	h->id = ++held->last_id;
	h->next = held->all.next;
	h->prev = &held->all;
	h->next->prev = h->prev->next = h;
	pthread_mutex_unlock(&held->lock);
}

static void forget(struct hold *h)
{
	struct held *held = h->j->held;

	pthread_mutex_lock(&held->lock);
	h->next->prev = h->prev;
	h->prev->next = h->next;
	pthread_mutex_unlock(&held->lock);
	free(h);
}

void held_each(struct job *j, uint32_t server, held_cb *cb, void *arg)
{
	pthread_mutex_lock(&j->held->lock);
	for (struct hold *h = j->held->all.next; h != &j->held->all; h = h->next)
		if (h->server == server && h->granted)
			cb(h->dir, h->name, &(struct told_lock){ h->id, h->stamp, !h->ended }, arg);
	pthread_mutex_unlock(&j->held->lock);
}

static void put_name(struct wire_msg *m, enum message_type type, uint64_t dir, const char *name)
{
	message_init(m, type);
	message_put(m, MESSAGE_DIR, dir);
	message_put_str(m, MESSAGE_NAME, name);
}

/* ---- the end of a lock, until it is confirmed */

static void send_unlock(struct job *j, void *arg);

static bool is_given_up(struct job *j, uint32_t node)
{
	struct peers_node n;

	return peers_nodes(j->peers, node, &n, 1) == 1 && n.gone;
}

/* True: until held_event. */
static bool park(struct hold *h)
{
	struct held *held = h->j->held;

	pthread_mutex_lock(&held->lock);
	h->parked = h->sent && is_given_up(h->j, h->server);
	bool parked = h->parked;
	pthread_mutex_unlock(&held->lock);
	return parked;
}

static void unlock_done(int status, const struct wire_msg *reply, void *arg)
{
	struct hold *h = arg;

	(void)reply;
	h->full = status == -EAGAIN || status == -ENOMEM;
	bool again = h->full || status == -ETIMEDOUT || status == -ECONNRESET || (status == -EHOSTDOWN && h->sent);
	if (status == -EHOSTDOWN && !h->j->ending && park(h))
		return;
	if (!again || h->j->ending || workers_do(h->j->workers, send_unlock, h) < 0)
		forget(h);
}

static void send_unlock(struct job *j, void *arg)
{
	struct hold *h = arg;
	struct wire_msg m = { 0 };

	if (h->full)
		usleep(FULL_USEC);
	put_name(&m, MESSAGE_NAME_UNLOCK, h->dir, h->name);
	message_put(&m, MESSAGE_COUNT, h->id);
	message_put(&m, MESSAGE_FLAGS, h->known);
	pointer_put(&m, &h->at);
	int rc = peers_call_async(j->peers, h->server, &m, unlock_done, h);
	wire_msg_free(&m);
	if (rc < 0)
		unlock_done(rc, NULL, h);
}

/* What was asked of homes under the lock may be under way: nobody is to hear that it is over before it is. */
static void await_asked(struct job *j, void *arg)
{
	if (late_await(j, send_unlock, arg) == 0 || j->ending)
		return;
	usleep(FULL_USEC);
	if (workers_do(j->workers, await_asked, arg) < 0)
		forget(arg); /* the name stays locked */
}

static void end_hold(struct job *j, struct name_ref *ref, bool known, bool asked)
{
	struct hold *h = ref->held;

	if (!h)
		return;
	ref->held = NULL;
	pthread_mutex_lock(&j->held->lock);
	h->at = ref->at;
	h->known = known;
	h->ended = true;
	pthread_mutex_unlock(&j->held->lock);
	if (asked)
		await_asked(j, h);
	else
		send_unlock(j, h);
}

void held_unlock(struct job *j, struct name_ref *ref)
{
	end_hold(j, ref, true, false);
}

void held_unlock_unknown(struct job *j, struct name_ref *ref)
{
	end_hold(j, ref, false, true);
}

/* ---- locking */

/*
 * In the order of what happens to the server: when another daemon of it asks for our locks, this one is known to be given, or it
 * never was.
 */
static void lock_done(int status, const struct wire_msg *reply, void *arg)
{
	struct hold *h = arg;
	struct held *held = h->j->held;

	pthread_mutex_lock(&held->lock);
	h->status = status;
	if (status == 0 && reply) {
		h->granted = true;
		pointer_get(reply, &h->at);
		h->stamp = message_get(reply, MESSAGE_STAMP);
		h->until_usec = message_get(reply, MESSAGE_SHARE_UNTIL);
	}
	h->answered = true;
	pthread_cond_broadcast(&held->cond);
	pthread_mutex_unlock(&held->lock);
}

static int send_lock(struct job *j, struct hold *h, const struct wire_msg *m)
{
	uint64_t until = clock_usec() + config_number(j->opt.cfg, CONFIG_AGENT_TIMEOUT);
	int rc;

	while ((rc = peers_call_async(j->peers, h->server, m, lock_done, h)) == -EAGAIN && clock_usec() < until)
		usleep(FULL_USEC); /* so much waits for that server already */
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

static int ask_lock(struct job *j, struct hold *h, const struct wire_msg *m)
{
	struct held *held = j->held;

	h->answered = false;
	int rc = send_lock(j, h, m);
	if (rc < 0)
		return rc;
	h->sent = true;
	pthread_mutex_lock(&held->lock);
	while (!h->answered)
		pthread_cond_wait(&held->cond, &held->lock);
	rc = h->status;
	pthread_mutex_unlock(&held->lock);
	return rc;
}

/* ---- for how long */

void held_put_until(struct wire_msg *m, const struct name_ref *a, const struct name_ref *b)
{
	uint64_t until = a->held->until_usec;

	message_put(m, MESSAGE_SHARE_UNTIL, b && b->held->until_usec < until ? b->held->until_usec : until);
}

int held_renew(struct job *j, const struct name_ref *ref)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	struct hold *h = ref->held;
	int rc;

	put_name(&m, MESSAGE_NAME_LOCK, h->dir, h->name);
	message_put(&m, MESSAGE_COUNT, h->id);
	message_put(&m, MESSAGE_FLAGS, true);
	do
		rc = peers_call(j->peers, h->server, &m, &reply);
	while (rc == -ECONNRESET);
	if (rc == 0)
		h->until_usec = message_get(&reply, MESSAGE_SHARE_UNTIL);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc < 0 ? -EIO : 0;
}

int held_keep(struct job *j, const struct name_ref *ref)
{
	return share_clock_usec(j) < ref->held->until_usec ? 0 : held_renew(j, ref);
}

static int lock_one(struct job *j, struct name_ref *ref)
{
	struct hold *h = calloc(1, sizeof(*h));
	struct wire_msg m = { 0 };
	int rc;

	if (!h)
		return -ENOMEM;
	h->j = j;
	h->dir = ref->dir;
	strcpy(h->name, ref->name);
	h->server = place_name(ref->dir, ref->name, peers_count(j->peers));
	remember(j, h);
	put_name(&m, MESSAGE_NAME_LOCK, h->dir, h->name);
	message_put(&m, MESSAGE_COUNT, h->id);
	message_put(&m, MESSAGE_TREE, state_tree_stamp(j->state));
	do
		rc = ask_lock(j, h, &m);
	while (rc == -ECONNRESET); /* another server now, which knows nothing of us */
	ref->held = h;
	if (rc == 0) {
		ref->at = h->at;
		ref->stamp = h->stamp;
	} else if (rc == -EIO ||
		   !h->sent) { /* refused: the server may keep nothing that it is told; or it was told nothing */
		ref->held = NULL;
		forget(h);
	} else {
		end_hold(j, ref, false, false); /* it may still be given; no home was asked for anything */
	}
	wire_msg_free(&m);
	return rc;
}

static bool comes_first(struct job *j, const struct name_ref *a, const struct name_ref *b)
{
	uint32_t num = peers_count(j->peers);
	uint32_t sa = place_name(a->dir, a->name, num), sb = place_name(b->dir, b->name, num);

	if (sa != sb)
		return sa < sb;
	if (a->dir != b->dir)
		return a->dir < b->dir;
	return strcmp(a->name, b->name) < 0;
}

int held_lock(struct job *j, struct name_ref *refs, unsigned int num)
{
	unsigned int first = num == 2 && comes_first(j, &refs[1], &refs[0]);
	int rc = lock_one(j, &refs[first]);

	if (rc == 0 && num == 2) {
		rc = lock_one(j, &refs[!first]);
		if (rc < 0)
			held_unlock(j, &refs[first]);
	}
	if (rc == 0 && job_is_unwanted(j)) { /* nothing is begun yet, and others may have changed the name since */
		for (unsigned int i = 0; i < num; i++)
			held_unlock(j, &refs[i]);
		rc = -EINTR;
	}
	return rc;
}

int held_lookup(struct job *j, uint64_t dir, const char *name, struct pointer *ret)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	int rc;

	put_name(&m, MESSAGE_NAME_LOOKUP, dir, name);
	do
		rc = peers_call(j->peers, place_name(dir, name, peers_count(j->peers)), &m, &reply);
	while (rc == -ECONNRESET);
	if (rc == 0)
		pointer_get(&reply, ret);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
}

void held_doubt(struct job *j, uint64_t dir, const char *name)
{
	struct wire_msg m = { 0 };

	put_name(&m, MESSAGE_NAME_DOUBT, dir, name);
	(void)peers_call(j->peers, place_name(dir, name, peers_count(j->peers)), &m, NULL);
	wire_msg_free(&m);
}

/* ---- life */

static int held_create(struct job *j, struct cistern_error *err)
{
	j->held = calloc(1, sizeof(*j->held));
	if (!j->held)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&j->held->lock, NULL);
	pthread_cond_init(&j->held->cond, NULL);
	j->held->all.next = j->held->all.prev = &j->held->all;
	/* Never one that an earlier daemon of ours had; 1 is the servers' own. */
	j->held->last_id = (uint64_t)clock_now(state_clock(j->state));
	return 0;
}

static void held_destroy(struct job *j)
{
	if (!j->held)
		return;
	while (j->held->all.next != &j->held->all)
		forget(j->held->all.next);
	pthread_cond_destroy(&j->held->cond);
	pthread_mutex_destroy(&j->held->lock);
	free(j->held);
	j->held = NULL;
}

/* One that is parked and whose server is back. */
static struct hold *unpark(struct held *held, uint32_t server)
{
	pthread_mutex_lock(&held->lock);
	struct hold *h = held->all.next;
	while (h != &held->all && !(h->parked && h->server == server))
		h = h->next;
	bool found = h != &held->all;
	if (found)
		h->parked = false;
	pthread_mutex_unlock(&held->lock);
	return found ? h : NULL;
}

static void held_event(struct job *j, enum peers_event event, uint32_t node)
{
	struct hold *h;

	while (event == PEERS_RESTARTED && (h = unpark(j->held, node)))
		if (workers_do(j->workers, send_unlock, h) < 0)
			forget(h);
}

const struct part held_part = { .create = held_create, .destroy = held_destroy, .event = held_event };
