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
#include <time.h>

#include "fs/session/session.h"

struct entry {
	uint64_t ino;
	char *name; /* owned; an entry of directory ino; NULL: the inode itself */
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
	uint64_t queued, told;   /* entries, ever; one that joined another counts as that one */
	uint64_t covered;        /* up to that ticket there is nothing to wait for */
	pthread_cond_t progress; /* told or covered has risen; CLOCK_MONOTONIC */
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

/* Offset -1: attributes only. -ENOENT is normal: the kernel does not know the inode, or the name, any more. */
static void tell(struct notify *n, struct entry *e)
{
	if (e->name)
		fuse_lowlevel_notify_inval_entry(n->fuse, e->ino, e->name, strlen(e->name));
	else
		fuse_lowlevel_notify_inval_inode(n->fuse, e->ino, e->data ? 0 : -1, 0);
	free(e->name);
	pthread_mutex_lock(&n->lock);
	n->told++;
	pthread_cond_broadcast(&n->progress);
	pthread_mutex_unlock(&n->lock);
}

static void *notify_thread(void *arg)
{
	struct notify *n = arg;
	struct entry *entries;
	size_t num;

	while (take(n, &entries, &num)) {
		for (size_t i = 0; i < num; i++)
			tell(n, &entries[i]);
		free(entries);
	}
	for (size_t i = 0; i < num; i++)
		free(entries[i].name);
	free(entries);
	return NULL;
}

int notify_create(struct fuse_session *fuse, struct notify **ret)
{
	struct notify *n = calloc(1, sizeof(*n));
	pthread_condattr_t attr;
	int r;

	if (!n)
		return -ENOMEM;
	n->fuse = fuse;
	pthread_mutex_init(&n->lock, NULL);
	pthread_cond_init(&n->filled, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&n->progress, &attr);
	pthread_condattr_destroy(&attr);
	r = pthread_create(&n->thread, NULL, notify_thread, n);
	if (r) {
		pthread_cond_destroy(&n->progress);
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
	for (size_t i = 0; i < n->num; i++)
		free(n->queue[i].name);
	free(n->queue);
	pthread_cond_destroy(&n->progress);
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

/* lock is held. */
static bool add(struct notify *n, struct entry e)
{
	if (!has_room(n))
		return false;
	n->queue[n->num++] = e;
	n->queued++;
	pthread_cond_signal(&n->filled);
	return true;
}

uint64_t notify_inode(struct notify *n, uint64_t ino, bool data)
{
	uint64_t ticket;

	pthread_mutex_lock(&n->lock);
	if (n->num > 0 && n->queue[n->num - 1].ino == ino && !n->queue[n->num - 1].name)
		n->queue[n->num - 1].data |= data;
	else
		add(n, (struct entry){ .ino = ino, .data = data });
	ticket = n->queued;
	pthread_mutex_unlock(&n->lock);
	return ticket;
}

uint64_t notify_name(struct notify *n, uint64_t parent, const char *name)
{
	struct entry e = { .ino = parent, .name = strdup(name) };
	uint64_t ticket;

	pthread_mutex_lock(&n->lock);
	if (!e.name || !add(n, e))
		free(e.name);
	ticket = n->queued;
	pthread_mutex_unlock(&n->lock);
	return ticket;
}

/* lock is held. */
static bool is_told(const struct notify *n, uint64_t ticket)
{
	return n->told >= ticket || n->covered >= ticket;
}

bool notify_wait(struct notify *n, uint64_t ticket, uint64_t usec)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(usec % 1000000) * 1000;
	until.tv_sec += (time_t)(usec / 1000000) + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&n->lock);
	while (!is_told(n, ticket) && !n->stop && r == 0)
		r = pthread_cond_timedwait(&n->progress, &n->lock, &until);
	bool done = is_told(n, ticket);
	pthread_mutex_unlock(&n->lock);
	return done;
}

uint64_t notify_ticket(struct notify *n)
{
	pthread_mutex_lock(&n->lock);
	uint64_t ticket = n->queued;
	pthread_mutex_unlock(&n->lock);
	return ticket;
}

void notify_cover(struct notify *n, uint64_t ticket)
{
	pthread_mutex_lock(&n->lock);
	if (n->covered < ticket)
		n->covered = ticket;
	pthread_cond_broadcast(&n->progress);
	pthread_mutex_unlock(&n->lock);
}
