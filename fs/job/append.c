/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Appends of several nodes never overlap: the home gives each its place. What it has given is its memory. One that was restarted does not
 * know it: others may not have told it yet what they wrote, or cannot. So who wants a place asks all nodes first, and tells the home.
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

/* -EAGAIN: it is not known what was given to others. */
static int give_place(struct shared *s, uint64_t size, uint64_t len, uint64_t *ret_off)
{
	pthread_mutex_lock(&s->mutex);
	bool knows = s->knows_ends;
	if (knows) {
		*ret_off = s->append_end > size ? s->append_end : size;
		s->append_end = *ret_off + len;
	}
	pthread_mutex_unlock(&s->mutex);
	return knows ? 0 : -EAGAIN;
}

void append_serve_place(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	struct shared *s = shared_get(j, message_get(m, MESSAGE_SHARE_INO));
	struct inode in;
	uint64_t off = 0;
	int rc = s ? state_inode(store_state(j->opt.store), s->ino, &in) : -ENOMEM;

	if (rc == 0 && message_get(m, MESSAGE_LIFE))
		note_ends(j, s, m);
	if (rc == 0)
		rc = give_place(s, in.size, message_get(m, MESSAGE_SHARE_LEN), &off);
	if (rc == 0)
		share_reply_number(rq, 0, MESSAGE_SHARE_OFF, off);
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
static int call_home(struct job *j, struct shared *s, size_t len, struct ends *ends, uint64_t *ret_off)
{
	struct wire_msg m = { 0 }, reply = { 0 };

	message_init(&m, MESSAGE_SHARE_APPEND);
	message_put(&m, MESSAGE_SHARE_INO, s->ino);
	message_put(&m, MESSAGE_SHARE_LEN, len);
	if (ends->life) {
		message_put(&m, MESSAGE_LIFE, ends->life);
		message_put(&m, MESSAGE_SHARE_END, ends->end);
		message_put(&m, MESSAGE_SHARE_AT_STAMP, ends->stamp);
	}
	int rc = share_call(j, s->home, &m, &reply);
	if (rc == 0)
		*ret_off = message_get(&reply, MESSAGE_SHARE_OFF);
	else if (rc == -EAGAIN)
		ends->life = message_get(&reply, MESSAGE_LIFE);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
}

/* While it is not known here which place it is, others are told to ask again (share_end_given). */
static int ask_place(struct job *j, struct shared *s, size_t len, struct ends *ends, uint64_t *ret_off)
{
	pthread_mutex_lock(&s->mutex);
	s->num_placing++;
	pthread_mutex_unlock(&s->mutex);
	int rc = call_home(j, s, len, ends, ret_off);
	pthread_mutex_lock(&s->mutex);
	if (rc == 0 && !s->at_home && s->append_end < *ret_off + len)
		s->append_end = *ret_off + len;
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

int append_place(struct job *j, struct shared *s, size_t len, uint64_t *ret_off)
{
	uint64_t until = share_now_usec() + config_number(j->opt.cfg, CONFIG_AGENT_TIMEOUT);
	unsigned int usec = BUSY_USEC;
	struct ends ends = { 0 };
	int rc;

	while ((rc = ask_place(j, s, len, &ends, ret_off)) == -EAGAIN) { /* again: restarted in between */
		rc = ask_ends(j, s, &ends);
		if (rc < 0 && rc != -EBUSY)
			break;
		if (share_now_usec() > until)
			return -ETIMEDOUT;
		if (rc == -EBUSY) {
			ends.life = 0;
			wait_a_moment(&usec);
		}
	}
	return rc;
}
