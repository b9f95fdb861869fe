/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Who has a file open believes what its home has said of it, until the home says that it is so no more: once. Who is told
 * asks the home before he reads or writes the next time, and has its promise again. So a commit is told to those alone who
 * have looked since the last one, and N nodes which commit to a file that all have open cost N messages, not N * N.
 * Before a commit ends, all who have been told have answered: their kernels have dropped what they had of the file; or so long
 * has passed that they do not believe it any more by themselves.
 */
#include "fs/job/share.h"

#include <errno.h>
#include <stdlib.h>

#include "format/base/clock.h"

#define LOOK_USEC 1000000u /* so long at the most does a write wait for what it need not know */

/* ---- the home */

struct telling {
	struct job *j;
	struct shared *s;         /* counted reference */
	struct peers_request *rq; /* is answered at the end; or */
	struct fan *fan;          /* borrowed: somebody waits */
	struct view view;
	_Atomic(unsigned int) left;
};

struct told {
	struct job *j;
	struct shared *s; /* counted reference */
	uint32_t node;
	uint64_t stamp;
	struct telling *t; /* that waits; NULL: nobody does */
};

static void told_less(struct telling *t)
{
	if (--t->left > 0)
		return;
	if (t->rq)
		view_reply(t->rq, &t->view);
	shared_put(t->j, t->s);
	if (t->fan)
		fan_done(0, NULL, t->fan);
	free(t);
}

/*
 * A node that has not answered does not believe any more what it was promised: for so long it was waited for. It is told again when it is heard,
 * for its kernel's pages.
 */
static void told_one(int status, const struct wire_msg *reply, void *arg)
{
	struct told *to = arg;
	bool slow = status == -ETIMEDOUT && !peers_is_silent(to->j->peers, to->node);

	(void)reply;
	registry_told(to->s, to->node, to->stamp, status == 0, slow);
	if (to->t)
		told_less(to->t);
	shared_put(to->j, to->s);
	free(to);
}

static void send_one(
	struct job *j, struct shared *s, uint32_t node, const struct wire_msg *m, uint64_t stamp, struct telling *t)
{
	struct told *to = malloc(sizeof(*to));

	if (!to) {
		registry_told(s, node, stamp, false, false);
		return;
	}
	*to = (struct told){ j, shared_get(j, s->ino), node, stamp, t };
	if (t)
		t->left++;
	j->share->messages++;
	int rc = peers_call_brief(j->peers, node, m, told_one, to);
	if (rc < 0)
		told_one(rc, NULL, to);
}

/* What a silent node was promised is over already; it finds the word when it goes on. */
static void send_unheard(struct telling *t, const struct listener *to, const struct wire_msg *m)
{
	registry_told(t->s, to->node, t->view.stamp, false, false);
	if (to->promised)
		send_one(t->j, t->s, to->node, m, t->view.stamp, NULL);
}

static void send_told(struct telling *t, const struct audience *a)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_SHARE_TOLD);
	view_put(&m, &t->view);
	t->left = 1;
	for (size_t i = 0; i < a->num; i++)
		if (peers_is_silent(t->j->peers, a->at[i].node))
			send_unheard(t, &a->at[i], &m);
		else
			send_one(t->j, t->s, a->at[i].node, &m, t->view.stamp, t);
	wire_msg_free(&m);
	told_less(t);
}

/* rq: whose change it is; NULL: ours. */
static int tell(struct job *j, struct shared *s, struct peers_request *rq, struct fan *fan)
{
	uint32_t by = rq ? peers_from(rq) : peers_self(j->peers);
	struct view *v = malloc(sizeof(*v));
	struct audience a = { 0 };
	int rc = v ? registry_change(j, s, by, v, &a) : -ENOMEM;
	struct telling *t = rc == 0 ? calloc(1, sizeof(*t)) : NULL;

	if (rc == 0 && !t)
		rc = -ENOMEM;
	for (size_t i = 0; rc < 0 && i < a.num; i++)
		if (a.at[i].promised)
			registry_promise(s, a.at[i].node);
	if (rc == 0) {
		*t = (struct telling){ .j = j, .s = shared_get(j, s->ino), .rq = rq, .fan = fan, .view = *v };
		if (rq) {
			shared_apply(s, v, 0);
			if (by != peers_self(j->peers) && j->opt.invalidate)
				j->opt.invalidate(s->ino, true, j->opt.arg);
		}
		send_told(t, &a);
	}
	free(a.at);
	free(v);
	return rc;
}

void registry_tell_again(struct job *j, struct shared *s)
{
	struct audience a;
	int rc = registry_untold(j, s, &a);
	struct view *v = a.num ? malloc(sizeof(*v)) : NULL;
	struct wire_msg m = { 0 };

	if (rc < 0 || a.num == 0) {
		free(a.at);
		return;
	}
	rc = v ? registry_view(j, s, NOBODY, v) : -ENOMEM;
	message_init(&m, MESSAGE_SHARE_TOLD);
	if (rc == 0)
		view_put(&m, v);
	for (size_t i = 0; i < a.num; i++)
		if (rc == 0)
			send_one(j, s, a.at[i].node, &m, v->stamp, NULL);
		else
			registry_told(s, a.at[i].node, 0, false, false);
	wire_msg_free(&m);
	free(a.at);
	free(v);
}

void tell_and_reply(struct job *j, struct shared *s, struct peers_request *rq)
{
	int rc = tell(j, s, rq, NULL);

	if (rc < 0)
		peers_reply_status(rq, rc);
}

int registry_tell(struct job *j, struct shared *s)
{
	struct fan fan;

	fan_init(&fan);
	fan_begin(&fan);
	int rc = tell(j, s, NULL, &fan);
	if (rc < 0)
		fan_done(0, NULL, &fan);
	(void)fan_wait(&fan);
	return rc;
}

/* ---- elsewhere */

static void do_told(struct job *j, struct peers_request *rq)
{
	struct view *v = malloc(sizeof(*v));
	struct shared *s = NULL;

	if (v) {
		view_get(peers_msg(rq), v);
		s = shared_find(j, v->ino);
	}
	if (s) {
		shared_apply_told(s, v);
		if (j->opt.invalidate)
			j->opt.invalidate(s->ino, true, j->opt.arg);
	}
	peers_reply_status(rq, v ? 0 : -ENOMEM);
	shared_put(j, s);
	free(v);
}

void tell_serve_told(struct job *j, struct peers_request *rq)
{
	workers_serve(j->share->tellers, do_told, rq);
}

static void init_look(struct wire_msg *m, const struct shared *s)
{
	message_init(m, MESSAGE_SHARE_LOOK);
	message_put(m, MESSAGE_SHARE_INO, s->ino);
}

int shared_apply_reply(struct shared *s, const struct wire_msg *reply, uint64_t asked_usec)
{
	struct view *v = malloc(sizeof(*v));

	if (!v)
		return -ENOMEM;
	view_get(reply, v);
	shared_apply(s, v, asked_usec);
	free(v);
	return 0;
}

/*
 * While the home is not there, it cannot be asked, and we go on with what we know, as it goes on without us. Of a file that lies in the backing
 * directory also while it hangs: its bytes do not depend on any node.
 */
bool shared_is_lapsed(struct job *j, struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool lapsed = s->current && clock_usec() - s->asked_usec >= s->promise_usec;
	bool outside = s->outside && !s->is_shared;
	pthread_mutex_unlock(&s->mutex);
	return lapsed && peers_is_present(j->peers, s->home) && !(outside && peers_is_silent(j->peers, s->home));
}

void shared_doubt(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	s->epoch++;
	s->current = false;
	pthread_mutex_unlock(&s->mutex);
}

static void get_belief(struct shared *s, bool *ret_registered, bool *ret_current)
{
	pthread_mutex_lock(&s->mutex);
	*ret_registered = s->registered;
	*ret_current = s->current;
	pthread_mutex_unlock(&s->mutex);
}

/* A read that the home's tellers may be waiting for must not wait for an opening there: so it does not register again. */
int shared_make_current(struct job *j, struct shared *s)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	bool registered, current;

	if (shared_is_home(j, s))
		return 0;
	get_belief(s, &registered, &current);
	if (!registered)
		return shared_register(j, s);
	if (current && !shared_is_lapsed(j, s))
		return 0;
	uint64_t asked_usec = clock_usec();
	init_look(&m, s);
	int rc = share_call(j, s->home, &m, &reply);
	if (rc == 0)
		rc = shared_apply_reply(s, &reply, asked_usec);
	else if (rc == -ESTALE)
		rc = shared_register(j, s);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
}

/* ---- a look that a write does not depend on */

static void look(struct job *j, struct shared *s)
{
	struct wire_msg m = { 0 };

	init_look(&m, s);
	(void)share_ask_home(j, s, &m, clock_usec() + LOOK_USEC, shared_apply_reply);
	wire_msg_free(&m);
}

void shared_look(struct job *j, struct shared *s)
{
	uint64_t now = clock_usec();

	if (shared_is_home(j, s))
		return;
	bool lapsed = shared_is_lapsed(j, s);
	pthread_mutex_lock(&s->mutex);
	bool wants = s->registered && (!s->current || lapsed) && now - s->looked_usec >= LOOK_USEC;
	pthread_mutex_unlock(&s->mutex);
	if (!wants)
		return;
	look(j, s);
	lapsed = shared_is_lapsed(j, s);
	pthread_mutex_lock(&s->mutex);
	s->looked_usec = s->current && !lapsed ? 0 : clock_usec();
	pthread_mutex_unlock(&s->mutex);
}
