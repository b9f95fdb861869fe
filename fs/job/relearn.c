/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A node has lost power, and with it that bytes of shared files were cut off: its maps and layers have them again, of which others believe that they
 * are gone. All nodes know of all cuts (cut.c), so it learns them again from all, and does those that it knows of and has not done, before anybody writes to such a file here. That is for nothing
 * as long as nobody loses power; and whatever one of them remembers is so for all, synced or not.
 *
 * In the same way, what a drain has carried: in layer and map it would lie over what others have drained since, or in the same session. The file's
 * home does not forget that; the others may, or may not have heard of it, since their daemon was another one then. So each new daemon asks for it, and is
 * asked, before places of its payload, or places that it knows, are believed.
 */
#include "fs/job/share.h"

#include "format/base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define AGAIN_USEC  10000u
#define ENTRY_BYTES 24u          /* inode, stamp, size of a cut, or time of what was carried */
#define REPLY_BYTES (256u << 10) /* and the cuts of one file more */

/* ---- who is asked */

struct listing {
	struct job *j;
	uint64_t after, last;
	struct share_cut *cuts; /* owned: SHARE_CUTS_MAX */
	struct buf body, drained;
	bool ours; /* we are the home of what was drained */
};

static void put_entry(struct buf *out, uint64_t ino, uint64_t stamp, uint64_t value)
{
	buf_u64(out, ino);
	buf_u64(out, stamp);
	buf_u64(out, value);
}

static int put_cuts(struct listing *l, uint64_t ino)
{
	size_t num;
	int rc = state_share_cuts(l->j->state, ino, l->cuts, &num);

	for (size_t i = 0; rc == 0 && i < num; i++)
		put_entry(&l->body, ino, l->cuts[i].stamp, l->cuts[i].size);
	return rc;
}

static int put_drained(struct listing *l, uint64_t ino)
{
	uint64_t stamp, usec;
	int rc = state_share_drained(l->j->state, ino, &stamp, &usec);

	if (rc < 0 || stamp == 0)
		return rc;
	put_entry(&l->drained, ino, stamp, usec == UINT64_MAX ? 0 : usec);
	l->ours |= place_ino(ino, peers_count(l->j->peers)) == peers_self(l->j->peers);
	return 0;
}

/* 1: that is enough for one answer. */
static int put_file(uint64_t ino, uint64_t extents, void *arg)
{
	struct listing *l = arg;

	(void)extents;
	if (ino <= l->after)
		return 0;
	if (l->body.len + l->drained.len >= REPLY_BYTES)
		return 1;
	int rc = put_cuts(l, ino);
	if (rc == 0)
		rc = put_drained(l, ino);
	l->last = ino;
	return rc;
}

/* Others give up what has been carried: we must not forget it ourselves. */
static int keep_drained(struct listing *l)
{
	return l->ours ? store_sync(l->j->opt.store) : 0;
}

void relearn_serve(struct job *j, struct peers_request *rq)
{
	struct listing l = { .j = j, .after = message_get(peers_msg(rq), MESSAGE_COUNT) };
	struct wire_msg reply = { 0 };

	l.cuts = calloc(SHARE_CUTS_MAX, sizeof(*l.cuts));
	int rc = l.cuts ? state_each_shared(j->state, put_file, &l) : -ENOMEM;
	if (rc >= 0 && !(buf_ok(&l.body) && buf_ok(&l.drained)))
		rc = -ENOMEM;
	int kept = rc < 0 ? rc : keep_drained(&l);
	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, kept);
	message_put(&reply, MESSAGE_COUNT, rc > 0 ? l.last : 0);
	message_put_bytes(&reply, MESSAGE_SHARE_PIECES, l.body.data, l.body.len);
	message_put_bytes(&reply, MESSAGE_SHARE_DRAINED, l.drained.data, l.drained.len);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
	buf_free(&l.body);
	buf_free(&l.drained);
	free(l.cuts);
}

/* ---- who asks */

struct lesson {
	struct job *j;
	bool forgotten;          /* we have lost power */
	bool patient;            /* whoever is not there is waited for */
	struct drained *drained; /* owned: of each file the newest, as far as compact() has come */
	size_t num, cap;
};

static int take_cuts(struct job *j, const struct wire_msg *reply)
{
	const uint8_t *bytes;
	size_t len;
	int rc = 0;

	if (!message_get_bytes(reply, MESSAGE_SHARE_PIECES, 0, &bytes, &len))
		return -EBADMSG;
	struct cursor c = cursor_make(bytes, len);
	for (size_t i = 0; rc == 0 && i < len / ENTRY_BYTES; i++) {
		uint64_t ino = cursor_u64(&c), stamp = cursor_u64(&c);

		rc = cut_again(j, ino, &(struct cut){ .size = cursor_u64(&c), .stamp = stamp });
	}
	return rc;
}

static int add_drained(struct lesson *l, const struct drained *d)
{
	if (array_room(&l->drained, &l->cap, l->num, sizeof(*l->drained)) < 0)
		return -ENOMEM;
	l->drained[l->num++] = *d;
	return 0;
}

static int take_drained(struct lesson *l, const struct wire_msg *reply)
{
	const uint8_t *bytes;
	size_t len;
	int rc = 0;

	if (!message_get_bytes(reply, MESSAGE_SHARE_DRAINED, 0, &bytes, &len))
		return -EBADMSG;
	struct cursor c = cursor_make(bytes, len);
	for (size_t i = 0; rc == 0 && i < len / ENTRY_BYTES; i++) {
		struct drained d = { .ino = cursor_u64(&c) };

		d.stamp = cursor_u64(&c);
		d.time_usec = cursor_u64(&c);
		rc = add_drained(l, &d);
	}
	return rc;
}

/* The newest of a file first. */
static int compare_drained(const void *a, const void *b)
{
	const struct drained *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return (x->stamp < y->stamp) - (x->stamp > y->stamp);
}

static void compact(struct lesson *l)
{
	size_t num = 0;

	if (l->num > 1)
		qsort(l->drained, l->num, sizeof(*l->drained), compare_drained);
	for (size_t i = 0; i < l->num; i++)
		if (num == 0 || l->drained[num - 1].ino != l->drained[i].ino)
			l->drained[num++] = l->drained[i];
	l->num = num;
}

/* What we know ourselves may have come into the journal without what follows from it. */
static int note_own(uint64_t ino, uint64_t extents, void *arg)
{
	struct drained d = { .ino = ino };
	struct lesson *l = arg;
	int rc = state_share_drained(l->j->state, ino, &d.stamp, &d.time_usec);

	(void)extents;
	if (d.time_usec == UINT64_MAX)
		d.time_usec = 0;
	return rc < 0 || d.stamp == 0 ? rc : add_drained(l, &d);
}

/* Who has the file open here asks for its limit before the next read: what goes from map and layer is to be found in the backing file then. */
static void doubt(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	s->current = false;
	s->epoch++;
	pthread_mutex_unlock(&s->mutex);
}

static int drop(struct lesson *l, const struct drained *d)
{
	struct shared *s = shared_find(l->j, d->ino);

	if (s)
		doubt(s);
	int rc = drain_drop_again(l->j, d, l->forgotten);
	if (s)
		doubt(s);
	shared_put(l->j, s);
	return rc == -ESTALE ? 0 : rc;
}

static int drop_all(struct lesson *l)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < l->num && !l->j->ending; i++)
		rc = drop(l, &l->drained[i]);
	return rc;
}

static int ask(struct lesson *l, uint32_t node, uint64_t *after)
{
	struct wire_msg m = { 0 }, reply = { 0 };

	message_init(&m, MESSAGE_POWER_CUTS);
	message_put(&m, MESSAGE_COUNT, *after);
	int rc = peers_call(l->j->peers, node, &m, &reply);
	if (rc == 0 && l->forgotten)
		rc = take_cuts(l->j, &reply);
	if (rc == 0)
		rc = take_drained(l, &reply);
	if (rc == 0)
		*after = message_get(&reply, MESSAGE_COUNT);
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
}

static bool may_pass(int rc)
{
	return rc == -ECONNRESET || rc == -ETIMEDOUT || rc == -EAGAIN;
}

/* Another daemon of that node may know less than the one that we have heard a part of, and not more. */
static int learn_from(struct lesson *l, uint32_t node)
{
	uint64_t after = 0;
	int rc;

	do {
		rc = ask(l, node, &after);
		if (may_pass(rc) && l->patient)
			usleep(AGAIN_USEC);
	} while (((may_pass(rc) && l->patient) || (rc == 0 && after)) && !l->j->ending);
	compact(l);
	return rc == -EHOSTDOWN || rc == -ESHUTDOWN ? 0 : rc;
}

static int end(struct lesson *l, int rc)
{
	if (rc == 0)
		rc = drop_all(l);
	free(l->drained);
	return rc;
}

int relearn_all(struct job *j)
{
	uint32_t num = peers_count(j->peers), self = peers_self(j->peers);
	struct lesson l = { .j = j, .forgotten = !j->knows_cuts, .patient = true };
	int rc = state_each_shared(j->state, note_own, &l);

	for (uint32_t node = 0; node < num && rc == 0 && !j->ending; node++)
		if (node != self || l.forgotten) /* what we know of need not be done */
			rc = learn_from(&l, node);
	return end(&l, rc);
}

int relearn_drained(struct job *j, uint32_t node)
{
	struct lesson l = { .j = j };
	int rc = node == peers_self(j->peers) ? 0 : learn_from(&l, node);

	return end(&l, rc);
}
