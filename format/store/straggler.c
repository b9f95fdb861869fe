/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which private segments may have stragglers. The list is empty but behind a daemon that ended while
 * files were open, so asking costs nothing. It only shrinks between two looks at all segments: a
 * connection that is gone gives nobody a new descriptor.
 *
 * Where the kernel cannot tell (a file system without leases), it counts as written to, until the
 * machine is restarted or an earlier daemon has closed the store in good order.
 */
#include "format/store/straggler.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/array.h"
#include "format/base/lease.h"
#include "format/base/text.h"
#include "format/store/internal.h"
#include "format/store/superblock.h"

int straggler_init(struct straggler_set *g)
{
	return -pthread_mutex_init(&g->mutex, NULL);
}

void straggler_destroy(struct straggler_set *g)
{
	pthread_mutex_destroy(&g->mutex);
	free(g->at);
}

bool straggler_can_be_found(struct store *s)
{
	int fd = s->dirfd < 0 ? -1 : openat(s->dirfd, SUPERBLOCK_FILE, O_RDONLY | O_CLOEXEC);
	bool can = s->dirfd < 0 || (fd >= 0 && lease_find_writer(fd) == 0);

	if (fd >= 0)
		close(fd);
	return can;
}

/* mutex is held. NULL: there is none. */
static struct straggler *find(struct straggler_set *g, uint32_t segment)
{
	for (size_t i = 0; i < g->num; i++)
		if (g->at[i].segment == segment)
			return &g->at[i];
	return NULL;
}

static int put(struct straggler_set *g, const struct straggler *new)
{
	int r = 0;

	pthread_mutex_lock(&g->mutex);
	if (!find(g, new->segment)) {
		r = array_room(&g->at, &g->cap, g->num, sizeof(*g->at));
		if (r == 0)
			g->at[g->num++] = *new;
	}
	g->any = g->num > 0;
	pthread_mutex_unlock(&g->mutex);
	return r;
}

/* mutex is held. */
static void drop(struct straggler_set *g, struct straggler *gone)
{
	*gone = g->at[--g->num];
	g->any = g->num > 0;
}

static int look_at(uint32_t segment, bool is_private, uint64_t bytes, void *arg)
{
	struct store *s = arg;
	int r = is_private ? segment_find_writer(s->segments, segment) : 0;

	(void)bytes;
	if (r == 0 || r == -ENOENT)
		return 0;
	return put(&s->stragglers, &(struct straggler){ .segment = segment, .unknown = r < 0 ? r : 0 });
}

/* Of an inode: is its segment one of these? */
static int note_inode(const struct inode *in, void *arg)
{
	struct straggler_set *g = arg;
	struct straggler *at;

	if (!(in->flags & INODE_PRIVATE))
		return 0;
	pthread_mutex_lock(&g->mutex);
	at = find(g, in->private_segment);
	if (at)
		at->ino = in->ino;
	pthread_mutex_unlock(&g->mutex);
	return 0;
}

/* What is not in use any more nobody can lose. */
static void keep(struct straggler_set *g, bool (*is_kept)(const struct straggler *at))
{
	pthread_mutex_lock(&g->mutex);
	for (size_t i = g->num; i-- > 0;)
		if (!is_kept(&g->at[i]))
			drop(g, &g->at[i]);
	pthread_mutex_unlock(&g->mutex);
}

static bool is_of_inode(const struct straggler *at)
{
	return at->ino != 0;
}

static bool is_sure(const struct straggler *at)
{
	return at->unknown == 0;
}

static bool is_none(const struct straggler *at)
{
	(void)at;
	return false;
}

int straggler_look_early(struct store *s)
{
	return segment_list(s->segments, look_at, s);
}

int straggler_settle(struct store *s, const struct state_report *report)
{
	struct straggler_set *g = &s->stragglers;
	int r;

	if (report && report->rebooted)
		keep(g, is_none);
	else if (report && report->clean)
		keep(g, is_sure);
	if (!g->any)
		return 0;
	r = state_each_inode(s->state, note_inode, g);
	if (r == 0)
		keep(g, is_of_inode);
	return r;
}

int straggler_look(struct store *s)
{
	int r = straggler_look_early(s);

	return r ? r : straggler_settle(s, NULL);
}

bool straggler_is_known(struct store *s, uint32_t segment)
{
	struct straggler_set *g = &s->stragglers;
	bool known;

	if (!g->any)
		return false;
	pthread_mutex_lock(&g->mutex);
	known = find(g, segment);
	pthread_mutex_unlock(&g->mutex);
	return known;
}

bool straggler_is_there(struct store *s, uint32_t segment)
{
	struct straggler_set *g = &s->stragglers;
	struct straggler *at;
	int r;

	if (!straggler_is_known(s, segment) || g->told)
		return straggler_is_known(s, segment);
	r = segment_find_writer(s->segments, segment);
	pthread_mutex_lock(&g->mutex);
	at = find(g, segment);
	if (at && r == 0)
		drop(g, at);
	pthread_mutex_unlock(&g->mutex);
	return r != 0;
}

int straggler_add(struct store *s, uint32_t segment, const char *who)
{
	struct straggler new = { .segment = segment };

	s->stragglers.told = true;
	snprintf(new.who, sizeof(new.who), "%s", who);
	return put(&s->stragglers, &new);
}

size_t straggler_list(struct store *s, struct straggler *out, size_t cap)
{
	struct straggler_set *g = &s->stragglers;
	size_t num;

	pthread_mutex_lock(&g->mutex);
	num = g->num;
	for (size_t i = 0; i < num && i < cap; i++)
		out[i] = g->at[i];
	pthread_mutex_unlock(&g->mutex);
	return num;
}

const char *straggler_text(const struct straggler *g, char out[STRAGGLER_TEXT])
{
	if (g->unknown)
		snprintf(out, STRAGGLER_TEXT,
			"whether a process still writes to it that had it open when its mount lost its daemon cannot be found out "
			"here (%s): its data stay in the store until the machine has been restarted",
			strerror(-g->unknown));
	else
		snprintf(out, STRAGGLER_TEXT,
			"still open for writing since before its mount lost its daemon, by %s: what is written there stays in the "
			"store; close the file or end the process, then drain again (cistern flush, or mount the store again)",
			g->who[0] ? g->who : "a process that cannot be seen from here (in another container?)");
	return out;
}

const char *straggler_line(const struct straggler *g, char *out, size_t cap)
{
	char path[STRAGGLER_PATH / 4], text[STRAGGLER_TEXT];

	snprintf(out, cap, "%s: %s", g->path[0] ? text_fit_end(path, sizeof(path), g->path) : "a file without a name",
		straggler_text(g, text));
	return out;
}

const char *straggler_say(struct store *s, uint32_t segment, char out[STRAGGLER_TEXT])
{
	struct straggler_set *g = &s->stragglers;
	struct straggler one = { .segment = segment };

	pthread_mutex_lock(&g->mutex);
	if (find(g, segment))
		one = *find(g, segment);
	pthread_mutex_unlock(&g->mutex);
	if (!g->told)
		straggler_name(s->state, &one, 1, NULL);
	return straggler_text(&one, out);
}
