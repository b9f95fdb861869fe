/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Where a file ends that others are writing. What a node has not committed is nobody else's business, but who reads a span, changes
 * parts of it and writes the span back (ROMIO's data sieving, also below HDF5's collective metadata) must be given all of the span
 * that there is: of bytes that were not read, what it writes would be taken for written, and would hide those of others. So a
 * read behind the end that we know, by who may write, asks all nodes how far they have written. Their bytes are zeros until they
 * commit, as elsewhere in the file; sieve.c sees that they were not changed.
 */
#include "fs/job/share.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static void take_end(uint32_t node, const struct wire_msg *reply, void *arg)
{
	uint64_t *end = arg, theirs = reply ? message_get(reply, MESSAGE_SHARE_END) : 0;

	(void)node;
	if (*end < theirs)
		*end = theirs;
}

/* What a node that was given up has not committed is lost: that is no failure. */
static int first_error(const int *status, uint32_t num)
{
	for (uint32_t i = 0; i < num; i++)
		if (status[i] < 0 && status[i] != -EHOSTDOWN)
			return status[i];
	return 0;
}

int share_end(struct job *j, struct shared *s, uint64_t *end)
{
	uint32_t num = peers_count(j->peers);
	int *status = calloc(num, sizeof(*status));
	struct wire_msg m = { 0 };
	int rc = -ECONNRESET;

	if (!status)
		return -ENOMEM;
	message_init(&m, MESSAGE_SHARE_END_ASK);
	message_put(&m, MESSAGE_SHARE_INO, s->ino);
	for (int tries = 0; rc == -ECONNRESET && tries < SHARE_RESTART_TRIES; tries++) {
		if (tries > 0)
			usleep(SHARE_RETRY_USEC);
		j->share->messages += num;
		(void)peers_call_all(j->peers, &m, status, take_end, end);
		rc = first_error(status, num);
	}
	wire_msg_free(&m);
	free(status);
	return rc;
}

/* mutex is held. A daemon of the home before that one may just have given a place to somebody here. */
static bool may_be_given(const struct shared *s, uint64_t life)
{
	const struct placing *p;

	LIST_FOREACH(p, &s->placing, in_list)
	if (p->life != life)
		return true;
	return false;
}

/* So far reaches what our appenders were given, and our layer, which an earlier life may have written. life: of who asks. */
static uint64_t given_here(struct job *j, uint64_t ino, struct shared *s, uint64_t life, bool *ret_busy)
{
	struct inode in;
	uint64_t end = state_inode(store_state(j->opt.store), ino, &in) == 0 ? in.size : 0;

	if (!s)
		return end;
	pthread_mutex_lock(&s->mutex);
	*ret_busy = may_be_given(s, life);
	if (end < s->append_end)
		end = s->append_end;
	pthread_mutex_unlock(&s->mutex);
	return end;
}

void end_serve_ask(struct job *j, struct peers_request *rq)
{
	uint64_t ino = message_get(peers_msg(rq), MESSAGE_SHARE_INO);
	struct shared *s = shared_find(j, ino);
	struct wire_msg reply = { 0 };
	bool busy = false;
	uint64_t end = s ? shared_size(j, s) : 0;
	uint64_t given = given_here(j, ino, s, message_get(peers_msg(rq), MESSAGE_LIFE), &busy);

	shared_put(j, s);
	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, 0);
	message_put(&reply, MESSAGE_SHARE_END, end);
	message_put(&reply, MESSAGE_SHARE_OFF, given > end ? given : end);
	message_put(&reply, MESSAGE_FLAGS, busy);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}
