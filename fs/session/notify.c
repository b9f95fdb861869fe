/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Invalidation needs a thread of its own: to drop pages the kernel waits for reads of them that are under way, and
 * those wait for a worker; a worker that told the kernel itself could wait for itself. The queue holds what has not
 * been told; entries that follow one another for the same inode are one.
 */
#include "fs/session/notify.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fs/session/session.h"

struct entry {
	uint64_t ino;
	char *name; /* owned; of an entry of the directory ino; NULL: the inode itself */
	bool data;
};

struct notify {
	struct fuse_session *fuse; /* borrowed */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t filled;
	/* under lock */
	struct entry *queue; /* owned */
	size_t num, cap;
	bool stop;
};

/* Takes all that is queued; false at the end. */
static bool take(struct notify *n, struct entry **ret, size_t *ret_num)
{
	pthread_mutex_lock(&n->lock);
	while (n->num == 0 && !n->stop)
		pthread_cond_wait(&n->filled, &n->lock);
	*ret = n->queue;
	*ret_num = n->num;
	n->queue = NULL;
	n->num = n->cap = 0;
	bool more = !n->stop;
	pthread_mutex_unlock(&n->lock);
	return more;
}

/* Offset -1: attributes only. -ENOENT is normal: the kernel does not know the inode any more. */
static void tell(struct notify *n, const struct entry *e)
{
	if (e->name)
		fuse_lowlevel_notify_inval_entry(n->fuse, e->ino, e->name, strlen(e->name));
	else
		fuse_lowlevel_notify_inval_inode(n->fuse, e->ino, e->data ? 0 : -1, 0);
}

static void free_entries(struct entry *entries, size_t num)
{
	for (size_t i = 0; i < num; i++)
		free(entries[i].name);
	free(entries);
}

static void *notify_thread(void *arg)
{
	struct notify *n = arg;
	struct entry *entries;
	size_t num;

	while (take(n, &entries, &num)) {
		for (size_t i = 0; i < num; i++)
			tell(n, &entries[i]);
		free_entries(entries, num);
	}
	free_entries(entries, num);
	return NULL;
}

int notify_create(struct fuse_session *fuse, struct notify **ret)
{
	struct notify *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return -ENOMEM;
	n->fuse = fuse;
	pthread_mutex_init(&n->lock, NULL);
	pthread_cond_init(&n->filled, NULL);
	r = pthread_create(&n->thread, NULL, notify_thread, n);
	if (r) {
		pthread_cond_destroy(&n->filled);
		pthread_mutex_destroy(&n->lock);
		free(n);
		return -r;
	}
	*ret = n;
	return 0;
}

void notify_destroy(struct notify *n)
{
	if (!n)
		return;
	pthread_mutex_lock(&n->lock);
	n->stop = true;
	pthread_cond_signal(&n->filled);
	pthread_mutex_unlock(&n->lock);
	pthread_join(n->thread, NULL);
	free_entries(n->queue, n->num);
	pthread_cond_destroy(&n->filled);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

static bool has_room(struct notify *n)
{
	size_t cap = n->cap ? n->cap * 2 : 64;
	struct entry *queue;

	if (n->num < n->cap)
		return true;
	queue = reallocarray(n->queue, cap, sizeof(*queue));
	if (!queue)
		return false;
	n->queue = queue;
	n->cap = cap;
	return true;
}

void notify_inode(struct notify *n, uint64_t ino, bool data)
{
	pthread_mutex_lock(&n->lock);
	if (n->num > 0 && n->queue[n->num - 1].ino == ino && !n->queue[n->num - 1].name) {
		n->queue[n->num - 1].data |= data;
	} else if (has_room(n)) {
		n->queue[n->num++] = (struct entry){ .ino = ino, .data = data };
		pthread_cond_signal(&n->filled);
	}
	pthread_mutex_unlock(&n->lock);
}

void notify_name(struct notify *n, uint64_t parent, const char *name)
{
	char *copy = strdup(name);

	pthread_mutex_lock(&n->lock);
	if (copy && has_room(n)) {
		n->queue[n->num++] = (struct entry){ .ino = parent, .name = copy };
		pthread_cond_signal(&n->filled);
		copy = NULL;
	}
	pthread_mutex_unlock(&n->lock);
	free(copy);
}
