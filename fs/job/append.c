/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Appends of several nodes never overlap: the home gives each its place. What it has given is its memory. One that was restarted does not
 * know it: others may not have told it yet what they wrote, or cannot. So it asks all nodes before it gives the first one, once for all who wait
 * for a place. A node for which the home's last daemon may just have found a place does not know yet, and is asked again: it hears of the
 * new daemon by being refused, and says with its next request whom it takes the home for.
 *
 * A cut gives what lies behind it to others. So a place has a stamp, and who has not written to it when he hears of a newer cut comes before
 * that one as far as the file still reaches then, else behind it: he asks for another place. While nodes are being cut the home gives
 * none.
 * docs/design/many-nodes.md, 4.
 */
#include "fs/job/share.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "format/base/array.h"
#include "format/base/clock.h"

#define BUSY_USEC 1000u

/* ---- the home */

void append_raise_end(struct shared *s, uint64_t end)
{
	pthread_mutex_lock(&s->mutex);
	if (s->append_end < end)
		s->append_end = end;
	pthread_mutex_unlock(&s->mutex);
}

static uint64_t *slot_of(struct share *sh, uint64_t ino)
{
	return &sh->ends_known[(ino * 0x9E3779B97F4A7C15ull) >> 32 & (SHARE_ENDS_KNOWN - 1)];
}

/* What has been remembered holds until now: a place may be given next. */
void append_recall(struct job *j, struct shared *s)
{
	uint64_t *slot = slot_of(j->share, s->ino);

	s->knows_ends = (!s->is_shared && !j->share->lost_power) || *slot == s->ino;
	if (*slot == s->ino)
		*slot = 0;
}

void append_remember(struct job *j, const struct shared *s)
{
	struct inode in;

	if (s->at_home && s->knows_ends && state_inode(store_state(j->opt.store), s->ino, &in) == 0 &&
		s->append_end <= in.size)
		*slot_of(j->share, s->ino) = s->ino;
}

/* mutex is held. */
static bool is_being_cut(const struct shared *s)
{
	return s->cutting && !s->cut_done;
}

/* -EAGAIN: it is not known what was given to others; -EBUSY: the file is just being cut. size_lock is held. */
static int give_place(struct shared *s, uint64_t size, struct append *a)
{
	pthread_mutex_lock(&s->mutex);
	int rc = is_being_cut(s) ? -EBUSY : !s->knows_ends ? -EAGAIN : 0;
	if (rc == 0) {
		a->off = s->append_end > size ? s->append_end : size;
		a->stamp = registry_stamp(s);
		s->append_end = a->off + a->len;
	}
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

static int find_place(struct job *j, struct shared *s, struct append *a)
{
	struct inode in;

	pthread_mutex_lock(&s->mutex);
	bool busy = is_being_cut(s); /* size_lock would be waited for as long as that lasts */
	pthread_mutex_unlock(&s->mutex);
	if (busy)
		return -EBUSY;
	pthread_mutex_lock(&s->size_lock);
	int rc = state_inode(store_state(j->opt.store), s->ino, &in);
	if (rc == 0)
		rc = give_place(s, in.size, a);
	pthread_mutex_unlock(&s->size_lock);
	return rc;
}

static void reply_place(struct peers_request *rq, const struct append *a)
{
	struct wire_msg reply = { 0 };

	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, 0);
	message_put(&reply, MESSAGE_SHARE_OFF, a->off);
	message_put(&reply, MESSAGE_SHARE_AT_STAMP, a->stamp);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

/* ---- the home does not know what was given: it asks all nodes */

struct ends {
	struct job *j;
	struct shared *s; /* counted reference */
	uint64_t cuts;    /* s->cuts_known when it began */
	uint64_t end;     /* s->mutex: how far all nodes were given places, and have written */
	_Atomic(int) status;
	_Atomic(bool) busy; /* somebody does not know his yet */
	_Atomic(unsigned int) left;
};

static void serve_place(struct job *j, struct shared *s, struct peers_request *rq);

/* If the file was cut meanwhile some may have answered before that. size_lock is held. */
static int take_ends(struct ends *e, struct waiting *ret)
{
	struct shared *s = e->s;
	int rc = e->status ? e->status : e->busy ? -EBUSY : 0;

	pthread_mutex_lock(&s->mutex);
	if (rc == 0 && e->cuts != s->cuts_known)
		rc = -EBUSY;
	if (rc == 0 && s->append_end < e->end)
		s->append_end = e->end;
	s->knows_ends |= rc == 0;
	*ret = s->placeless;
	s->placeless = (struct waiting){ 0 };
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

/* No place for who waits no more: it would stay empty. */
static void serve_again(struct job *j, struct shared *s, struct peers_request *rq, int rc)
{
	if (rc == 0 && !peers_is_wanted(rq))
		rc = -EBUSY;
	if (rc == 0)
		serve_place(j, s, rq);
	else
		peers_reply_status(rq, rc);
}

static void end_asking(struct job *j, void *arg)
{
	struct ends *e = arg;
	struct waiting waiting;

	pthread_mutex_lock(&e->s->size_lock);
	int rc = take_ends(e, &waiting);
	pthread_mutex_unlock(&e->s->size_lock);
	for (size_t i = 0; i < waiting.num; i++)
		serve_again(j, e->s, waiting.at[i], rc);
	free(waiting.at);
	shared_put(j, e->s);
	free(e);
}

static void ends_less(struct ends *e)
{
	if (--e->left == 0 && workers_do(e->j->workers, end_asking, e) < 0)
		end_asking(e->j, e);
}

/* What a node that was given up has not committed is lost: that is no failure. Who cannot be asked now is asked again. */
static void end_answered(int status, const struct wire_msg *reply, void *arg)
{
	struct ends *e = arg;

	if (status == -ECONNRESET || status == -ETIMEDOUT || status == -EAGAIN)
		e->busy = true;
	else if (status < 0 && status != -EHOSTDOWN)
		e->status = status;
	if (status == 0 && reply) {
		uint64_t end = message_get(reply, MESSAGE_SHARE_OFF);

		pthread_mutex_lock(&e->s->mutex);
		if (e->end < end)
			e->end = end;
		pthread_mutex_unlock(&e->s->mutex);
		if (message_get(reply, MESSAGE_FLAGS))
			e->busy = true;
	}
	ends_less(e);
}

static void ask_ends(struct ends *e)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_SHARE_END_ASK);
	message_put(&m, MESSAGE_SHARE_INO, e->s->ino);
	message_put(&m, MESSAGE_LIFE, power_life(e->j));
	e->left = 1;
	for (uint32_t node = 0; node < peers_count(e->j->peers); node++) {
		e->left++;
		e->j->share->messages += node != peers_self(e->j->peers);
		int rc = peers_call_brief(e->j->peers, node, &m, end_answered, e);
		if (rc < 0)
			end_answered(rc, NULL, e);
	}
	wire_msg_free(&m);
	ends_less(e);
}

/* *ret_begins: nobody else has begun to ask. */
static int join_asking(struct shared *s, struct peers_request *rq, struct ends *e, bool *ret_begins)
{
	struct waiting *w = &s->placeless;

	pthread_mutex_lock(&s->mutex);
	int rc = array_room(&w->at, &w->cap, w->num, sizeof(struct peers_request *));
	if (rc == 0 && is_being_cut(s))
		rc = -EBUSY;
	if (rc == 0) {
		*ret_begins = w->num == 0;
		w->at[w->num++] = rq;
		e->cuts = s->cuts_known;
	}
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

static void await_ends(struct job *j, struct shared *s, struct peers_request *rq)
{
	struct ends *e = calloc(1, sizeof(*e));
	bool begins = false;
	int rc = e ? join_asking(s, rq, e, &begins) : -ENOMEM;

	if (rc < 0)
		peers_reply_status(rq, rc);
	if (!begins) {
		free(e);
		return;
	}
	e->j = j;
	e->s = shared_get(j, s->ino); /* of one that is in use: it is there */
	ask_ends(e);
}

static void serve_place(struct job *j, struct shared *s, struct peers_request *rq)
{
	struct append a = { .len = message_get(peers_msg(rq), MESSAGE_SHARE_LEN) };
	int rc = find_place(j, s, &a);

	if (rc == 0)
		reply_place(rq, &a);
	else if (rc != -EAGAIN)
		peers_reply_status(rq, rc == -ENOENT ? -ESTALE : rc);
	else if (message_get(peers_msg(rq), MESSAGE_LIFE) == power_life(j))
		await_ends(j, s, rq);
	else
		share_reply_number(rq, rc, MESSAGE_LIFE, power_life(j));
}

void append_serve_place(struct job *j, struct peers_request *rq)
{
	struct shared *s = shared_get(j, message_get(peers_msg(rq), MESSAGE_SHARE_INO));

	if (s)
		serve_place(j, s, rq);
	else
		peers_reply_status(rq, -ENOMEM);
	shared_put(j, s);
}

/* ---- who appends */

/* life: of the home's daemon, as far as we know. -EBUSY: later. */
static int call_home(struct job *j, struct shared *s, uint64_t *life, struct append *a)
{
	struct wire_msg m = { 0 }, reply = { 0 };

	message_init(&m, MESSAGE_SHARE_APPEND);
	message_put(&m, MESSAGE_SHARE_INO, s->ino);
	message_put(&m, MESSAGE_SHARE_LEN, a->len);
	message_put(&m, MESSAGE_LIFE, *life);
	j->share->messages += !s->at_home;
	int rc = peers_call(j->peers, s->home, &m, &reply);
	a->off = message_get(&reply, MESSAGE_SHARE_OFF);
	a->stamp = message_get(&reply, MESSAGE_SHARE_AT_STAMP);
	uint64_t theirs = rc == -EAGAIN ? message_get(&reply, MESSAGE_LIFE) : 0;
	if (theirs)
		*life = theirs;
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc == -ECONNRESET || (rc == -EAGAIN && !theirs) ? -EBUSY : rc; /* too much waits for it */
}

/*
 * mutex is held. With two cuts since, what is behind the first may have been given to others, and that one's end is not known any
 * more.
 */
static void trim(struct shared *s, struct append *a)
{
	a->cuts = s->cuts_known;
	if (s->cut.stamp <= a->stamp)
		return;
	uint64_t end = s->cut_before > a->stamp ? 0 : s->cut.size;
	uint64_t left = end > a->off ? end - a->off : 0;
	if (a->len > left)
		a->len = left;
}

bool append_trim(struct shared *s, struct append *a)
{
	pthread_mutex_lock(&s->mutex);
	trim(s, a);
	pthread_mutex_unlock(&s->mutex);
	return a->len > 0;
}

void append_written(struct shared *s, const struct append *a)
{
	struct append left = *a;

	pthread_mutex_lock(&s->mutex);
	trim(s, &left);
	if (left.len > 0 && s->own_end < left.off + left.len)
		s->own_end = left.off + left.len;
	pthread_mutex_unlock(&s->mutex);
}

/*
 * While it is not known here which place it is, others are told to ask again (end_serve_ask), but for the daemon that we know to be there.
 * -EBUSY: it has been cut off, or the file just is; or the home is restarted, or does not know yet what to give: later.
 */
static int ask_place(struct job *j, struct shared *s, struct append *a)
{
	struct placing p;

	pthread_mutex_lock(&s->mutex);
	p.life = s->home_life;
	LIST_INSERT_HEAD(&s->placing, &p, in_list);
	pthread_mutex_unlock(&s->mutex);
	uint64_t life = p.life;
	int rc = call_home(j, s, &life, a);
	pthread_mutex_lock(&s->mutex);
	if (rc == 0)
		trim(s, a);
	if (rc == 0 && a->len == 0)
		rc = -EBUSY;
	if (rc == 0 && !s->at_home && s->append_end < a->off + a->len)
		s->append_end = a->off + a->len;
	if (rc == -EAGAIN)
		s->home_life = life;
	LIST_REMOVE(&p, in_list);
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

static void wait_a_moment(unsigned int *usec)
{
	usleep(*usec);
	*usec = *usec < SHARE_RETRY_USEC / 2 ? *usec * 2 : SHARE_RETRY_USEC;
}

int append_place(struct job *j, struct shared *s, size_t len, struct append *ret)
{
	uint64_t until = clock_usec() + config_number(j->opt.cfg, CONFIG_AGENT_TIMEOUT);
	unsigned int usec = BUSY_USEC;
	int rc;

	do {
		*ret = (struct append){ .len = len };
		rc = ask_place(j, s, ret);
		if (rc == -EBUSY)
			wait_a_moment(&usec);
	} while ((rc == -EAGAIN || rc == -EBUSY) && clock_usec() <= until);
	return rc == -EAGAIN || rc == -EBUSY ? -ETIMEDOUT : rc;
}
