/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What a file's home says of it, on its way and where it arrives. The newer stamp wins, whatever arrives first. */
#include "fs/job/share.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void view_put(struct wire_msg *m, const struct view *v)
{
	message_put(m, MESSAGE_SHARE_INO, v->ino);
	message_put(m, MESSAGE_SHARE_SIZE, v->size);
	message_put(m, MESSAGE_SHARE_AT_STAMP, v->stamp);
	message_put(m, MESSAGE_SHARE_LIMIT, v->limit);
	message_put(m, MESSAGE_SHARE_DRAINED_STAMP, v->drained.stamp);
	message_put(m, MESSAGE_SHARE_DRAINED_TIME, v->drained.usec);
	message_put(m, MESSAGE_SHARE_PROMISE, v->promise_usec);
	message_put(m, MESSAGE_SHARE_DEV, v->backing_dev);
	message_put(m, MESSAGE_SHARE_BACKING_INO, v->backing_ino);
	message_put(m, MESSAGE_SHARE_PARENT, v->parent);
	message_put(m, MESSAGE_SHARE_MTIME, (uint64_t)v->mtime_ns);
	message_put(m, MESSAGE_SHARE_FILE_STAMP, v->file_stamp);
	message_put(m, MESSAGE_SHARE_FLAGS, v->flags);
	message_put(m, MESSAGE_SHARE_MODE, v->mode);
	message_put(m, MESSAGE_SHARE_UID, v->uid);
	message_put(m, MESSAGE_SHARE_GID, v->gid);
	message_put_str(m, MESSAGE_SHARE_NAME, v->name);
	message_put_str(m, MESSAGE_SHARE_PATH, v->path);
}

void view_get(const struct wire_msg *m, struct view *ret)
{
	*ret = (struct view){
		.ino = message_get(m, MESSAGE_SHARE_INO),
		.size = message_get(m, MESSAGE_SHARE_SIZE),
		.stamp = message_get(m, MESSAGE_SHARE_AT_STAMP),
		.limit = message_get(m, MESSAGE_SHARE_LIMIT),
		.drained = { message_get(m, MESSAGE_SHARE_DRAINED_STAMP), message_get(m, MESSAGE_SHARE_DRAINED_TIME) },
		.promise_usec = message_get(m, MESSAGE_SHARE_PROMISE),
		.backing_dev = message_get(m, MESSAGE_SHARE_DEV),
		.backing_ino = message_get(m, MESSAGE_SHARE_BACKING_INO),
		.parent = message_get(m, MESSAGE_SHARE_PARENT),
		.mtime_ns = (int64_t)message_get(m, MESSAGE_SHARE_MTIME),
		.file_stamp = message_get(m, MESSAGE_SHARE_FILE_STAMP),
		.flags = (uint32_t)message_get(m, MESSAGE_SHARE_FLAGS),
		.mode = (uint32_t)message_get(m, MESSAGE_SHARE_MODE),
		.uid = (uint32_t)message_get(m, MESSAGE_SHARE_UID),
		.gid = (uint32_t)message_get(m, MESSAGE_SHARE_GID),
	};
	if (!message_get_str(m, MESSAGE_SHARE_NAME, ret->name, sizeof(ret->name)))
		ret->name[0] = '\0';
	if (!message_get_str(m, MESSAGE_SHARE_PATH, ret->path, sizeof(ret->path)))
		ret->path[0] = '\0';
}

void view_reply(struct peers_request *rq, const struct view *v)
{
	struct wire_msg reply = { 0 };

	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, 0);
	view_put(&reply, v);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

/* mutex is held. The open descriptor is of the backing file that was there before. */
static void take_backing(struct shared *s, const struct view *v)
{
	bool same = s->path && strcmp(s->path, v->path) == 0 && s->backing_ino == v->backing_ino &&
		    s->backing_dev == v->backing_dev;

	if (same || !v->path[0])
		return;
	free(s->path);
	s->path = strdup(v->path); /* without it there is nothing to read from, which is said then */
	s->backing_dev = v->backing_dev;
	s->backing_ino = v->backing_ino;
	if (s->backing_fd >= 0)
		close(s->backing_fd);
	s->backing_fd = -1;
}

/* mutex is held. */
static void take_all(struct shared *s, const struct view *v)
{
	if (v->size < s->size)
		s->shapes++;
	s->size = v->size;
	s->limit = v->limit;
	s->drained = v->drained;
	s->outside = v->flags & VIEW_OUTSIDE;
	s->file_stamp = v->file_stamp;
	if (v->flags & VIEW_SHARED)
		s->is_shared = true;
	else if (v->flags & VIEW_KNOWN)
		s->is_shared = false; /* drained: it is its home's alone again */
	take_backing(s, v);
}

/* mutex is held. */
static void take_news(struct shared *s, const struct view *v)
{
	if (v->stamp >= s->stamp) {
		s->stamp = v->stamp;
		if (!s->at_home)
			take_all(s, v);
	}
	s->epoch++;
}

/* A promise that was made before something that we have been told of is used up by that, whatever arrives first. */
void shared_apply(struct shared *s, const struct view *v, uint64_t asked_usec)
{
	pthread_mutex_lock(&s->mutex);
	take_news(s, v);
	if (v->flags & VIEW_PROMISED && v->stamp > s->told_stamp) {
		s->current = true;
		if (s->asked_usec < asked_usec)
			s->asked_usec = asked_usec;
		s->promise_usec = v->promise_usec;
	}
	pthread_mutex_unlock(&s->mutex);
}

void shared_apply_told(struct shared *s, const struct view *v)
{
	pthread_mutex_lock(&s->mutex);
	if (v->stamp >= s->stamp)
		s->current = false;
	if (v->stamp > s->told_stamp)
		s->told_stamp = v->stamp;
	take_news(s, v);
	pthread_mutex_unlock(&s->mutex);
}
