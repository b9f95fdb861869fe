/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Layers of an earlier life: what a daemon that died has written and not committed, or has noted as committed and not told to all. They are looked
 * for once after the start, when what was cut off is known; until then a file is looked at when somebody asks what has been written to it (show.c).
 * And layers that the home of a domain may have lost, after its restart.
 */
#include <errno.h>

#include "fs/job/share.h"

static bool is_layer(const struct inode *in)
{
	return in->flags & (INODE_SHARED | INODE_FOREIGN);
}

/* 1, 0 or an error. */
static int has_uncommitted(struct job *j, uint64_t ino)
{
	struct extent first;
	uint64_t next;
	size_t num;

	int rc = state_uncommitted(store_state(j->opt.store), ino, 0, &first, 1, &num, &next);

	return rc == -ENOENT ? 0 : rc < 0 ? rc : num > 0;
}

/* mutex is held. */
static void mark_left(struct shared *s, const struct inode *in, bool uncommitted)
{
	s->left = s->left_marked = true;
	if (uncommitted && !s->dirty_usec)
		s->dirty_usec = 1; /* since long ago */
	if (uncommitted && s->own_end < in->size)
		s->own_end = in->size;
}

static int mark(const struct inode *in, void *arg)
{
	struct job *j = arg;
	bool first = !j->share->swept;

	if (!is_layer(in))
		return 0;
	int uncommitted = first ? has_uncommitted(j, in->ino) : 0;
	if (uncommitted < 0)
		return uncommitted;
	struct shared *s = shared_get(j, in->ino);
	if (!s)
		return -ENOMEM;
	pthread_mutex_lock(&s->mutex);
	shared_resend(s);
	if (first)
		mark_left(s, in, uncommitted);
	pthread_mutex_unlock(&s->mutex);
	shared_put(j, s);
	return 0;
}

int sweep_all(struct job *j)
{
	struct share *sh = j->share;
	int rc = state_each_inode(store_state(j->opt.store), mark, j);

	sh->swept = rc == 0;
	if (rc < 0) {
		pthread_mutex_lock(&sh->wake);
		sh->sweep = true;
		pthread_mutex_unlock(&sh->wake);
	}
	share_update_hold(j);
	return rc;
}

static bool is_marked(struct job *j, uint64_t ino)
{
	struct shared *s = shared_find(j, ino);
	bool is = false;

	if (s) {
		pthread_mutex_lock(&s->mutex);
		is = s->left_marked;
		pthread_mutex_unlock(&s->mutex);
	}
	shared_put(j, s);
	return is;
}

int sweep_file(struct job *j, uint64_t ino)
{
	struct inode in;

	if (j->share->swept || is_marked(j, ino))
		return 0;
	int rc = state_inode(store_state(j->opt.store), ino, &in);
	if (rc < 0 || !is_layer(&in))
		return rc == -ENOENT ? 0 : rc;
	return j->knows_cuts ? mark(&in, j) : -EAGAIN;
}
