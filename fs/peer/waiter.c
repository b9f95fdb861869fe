/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Waiting for a done(). What waits ends when its call does; the calls have the time-outs. */
#include <errno.h>

#include "fs/peer/private.h"

int message_copy(struct wire_msg *to, const struct wire_msg *from)
{
	to->type = from->type;
	buf_bytes(&to->body, from->body.data, from->body.len);
	return buf_ok(&to->body) ? 0 : -ENOMEM;
}

void waiter_init(struct waiter *w, struct wire_msg *reply)
{
	*w = (struct waiter){ .reply = reply };
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	if (reply)
		buf_reset(&reply->body);
}

void waiter_done(int status, const struct wire_msg *reply, void *arg)
{
	struct waiter *w = arg;

	pthread_mutex_lock(&w->lock);
	w->status = status;
	if (reply && w->reply && message_copy(w->reply, reply))
		w->status = -ENOMEM;
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

int waiter_end(struct waiter *w, int started)
{
	pthread_mutex_lock(&w->lock);
	while (!started && !w->done)
		pthread_cond_wait(&w->cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->cond);
	return started ? started : w->status;
}
