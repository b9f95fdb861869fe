/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Appends of several nodes never overlap: the home gives each its place. What it has given is its memory. One that was restarted does not
 * know it: others may not have told it yet what they wrote, or cannot. So who wants a place asks all nodes first, and tells the home.
 *
 * A cut gives what lies behind it to others. So a place has a stamp, and who has not written to it when he hears of a newer cut comes before
 * that one as far as the file still reaches then, else behind it: he asks for another place. While nodes are being cut the home gives
 * none.
 * docs/design/many-nodes.md, 4.
 */
#include "fs/job/share.h"

#include <errno.h>
#include <unistd.h>

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

/* Who asks has asked all nodes how far they have written, since we have refused him: another daemon has given places since. */
static void note_ends(struct job *j, struct shared *s, const struct wire_msg *m)
{
	if (message_get(m, MESSAGE_LIFE) != power_life(j))
		return;
	append_raise_end(s, registry_end_told(j, s, m, MESSAGE_SHARE_END));
	pthread_mutex_lock(&s->mutex);
	s->knows_ends = true;
	pthread_mutex_unlock(&s->mutex);
}

/* -EAGAIN: it is not known what was given to others; -EBUSY: the file is just being cut. size_lock is held. */
static int give_place(struct shared *s, uint64_t size, struct append *a)
{
	pthread_mutex_lock(&s->mutex);
	int rc = !s->knows_ends ? -EAGAIN : s->cutting && !s->cut_done ? -EBUSY : 0;
	if (rc == 0) {
		a->off = s->append_end > size ? s->append_end : size;
		a->stamp = registry_stamp(s);
		s->append_end = a->off + a->len;
	}
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

static int find_place(struct job *j, struct shared *s, const struct wire_msg *m, struct append *a)
{
	struct inode in;

	pthread_mutex_lock(&s->size_lock);
	int rc = state_inode(store_state(j->opt.store), s->ino, &in);
	if (rc == 0 && message_get(m, MESSAGE_LIFE))
		note_ends(j, s, m);
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

void append_serve_place(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	struct shared *s = shared_get(j, message_get(m, MESSAGE_SHARE_INO));
	struct append a = { .len = message_get(m, MESSAGE_SHARE_LEN) };
	int rc = s ? find_place(j, s, m, &a) : -ENOMEM;

	if (rc == 0)
		reply_place(rq, &a);
	else if (rc == -EAGAIN)
		share_reply_number(rq, rc, MESSAGE_LIFE, power_life(j));
	else
		peers_reply_status(rq, rc == -ENOENT ? -ESTALE : rc);
	shared_put(j, s);
}

/* ---- who appends */

struct ends {
	uint64_t life;  /* of the home's daemon that wants to know; 0: none does */
	uint64_t end;   /* how far all nodes have written */
	uint64_t stamp; /* the newest cut that was known when they were asked */
};

static int ask_ends(struct job *j, struct shared *s, struct ends *ends)
{
	pthread_mutex_lock(&s->mutex);
	ends->stamp = s->end_cut < s->stamp ? s->stamp : s->end_cut;
	pthread_mutex_unlock(&s->mutex);
	ends->end = 0;
	return share_end_given(j, s, &ends->end);
}

/* -EAGAIN: ends has whom to tell them. */
static int call_home(struct job *j, struct shared *s, struct ends *ends, struct append *a)
{
	struct wire_msg m = { 0 }, reply = { 0 };

	message_init(&m, MESSAGE_SHARE_APPEND);
	message_put(&m, MESSAGE_SHARE_INO, s->ino);
	message_put(&m, MESSAGE_SHARE_LEN, a->len);
	if (ends->life) {
		message_put(&m, MESSAGE_LIFE, ends->life);
		message_put(&m, MESSAGE_SHARE_END, ends->end);
		message_put(&m, MESSAGE_SHARE_AT_STAMP, ends->stamp);
	}
	int rc = share_call(j, s->home, &m, &reply);
	a->off = message_get(&reply, MESSAGE_SHARE_OFF);
	a->stamp = message_get(&reply, MESSAGE_SHARE_AT_STAMP);
	if (rc == -EAGAIN)
		ends->life = message_get(&reply, MESSAGE_LIFE);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
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
 * While it is not known here which place it is, others are told to ask again (share_end_given). -EBUSY: it has been cut off, or
 * the file just is: later there is another one.
 */
static int ask_place(struct job *j, struct shared *s, struct ends *ends, struct append *a)
{
	pthread_mutex_lock(&s->mutex);
	s->num_placing++;
	pthread_mutex_unlock(&s->mutex);
	int rc = call_home(j, s, ends, a);
	pthread_mutex_lock(&s->mutex);
	if (rc == 0)
		trim(s, a);
	if (rc == 0 && a->len == 0)
		rc = -EBUSY;
	if (rc == 0 && !s->at_home && s->append_end < a->off + a->len)
		s->append_end = a->off + a->len;
	s->num_placing--;
	pthread_mutex_unlock(&s->mutex);
	return rc;
}

/* Who is just being given a place knows it soon, or that it is not known; or the home has learned meanwhile from another one. */
static void wait_a_moment(unsigned int *usec)
{
	usleep(*usec);
	*usec = *usec < SHARE_RETRY_USEC / 2 ? *usec * 2 : SHARE_RETRY_USEC;
}

/* A place, or to know what the home needs for one. -EBUSY: a moment later. */
static int try_place(struct job *j, struct shared *s, struct ends *ends, struct append *a)
{
	int rc = ask_place(j, s, ends, a);

	if (rc != -EAGAIN) /* else: restarted in between */
		return rc;
	rc = ask_ends(j, s, ends);
	if (rc == -EBUSY)
		ends->life = 0;
	return rc < 0 ? rc : -EAGAIN;
}

int append_place(struct job *j, struct shared *s, size_t len, struct append *ret)
{
	uint64_t until = share_now_usec() + config_number(j->opt.cfg, CONFIG_AGENT_TIMEOUT);
	unsigned int usec = BUSY_USEC;
	struct ends ends = { 0 };
	int rc;

	do {
		*ret = (struct append){ .len = len };
		rc = try_place(j, s, &ends, ret);
		if (rc == -EBUSY)
			wait_a_moment(&usec);
	} while ((rc == -EAGAIN || rc == -EBUSY) && share_now_usec() <= until);
	return rc == -EAGAIN || rc == -EBUSY ? -ETIMEDOUT : rc;
}
