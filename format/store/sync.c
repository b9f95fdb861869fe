/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Group commit. Whoever wants durability notes the last seq committed and waits until that is durable; the first who
 * finds nobody syncing does it, for all. A payload is in its segment before its record is committed, so once a seq has
 * been read, a sync of the segments covers the payloads of all records up to it; only then RECORD_SYNC says so in the
 * journal. A caller who comes while a sync is under way may not be covered by it and leads, or waits for, the next.
 *
 * The journal must say so before any payload that the sync covers may be given back in part: recovery after a loss of power
 * checks what no RECORD_SYNC covers, and would take a punched payload for one that was never written.
 *
 * Nothing new, nothing done: durable_seq then equals the state's seq.
 */
#include "format/store/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

int sync_init(struct sync_group *g)
{
	int r = -pthread_mutex_init(&g->mutex, NULL);

	if (r)
		return r;
	r = -pthread_cond_init(&g->done, NULL);
	if (r)
		pthread_mutex_destroy(&g->mutex);
	return r;
}

void sync_destroy(struct sync_group *g)
{
	pthread_cond_destroy(&g->done);
	pthread_mutex_destroy(&g->mutex);
	free(g->sealed);
}

int sync_note_sealed(struct sync_group *g, uint32_t segment)
{
	int r = 0;

	pthread_mutex_lock(&g->mutex);
	if (g->num_sealed && g->sealed[g->num_sealed - 1] == segment)
		goto out; /* a further SEAL record of the same file */
	r = array_room(&g->sealed, &g->cap_sealed, g->num_sealed, sizeof(*g->sealed));
	if (r == 0)
		g->sealed[g->num_sealed++] = segment;
out:
	pthread_mutex_unlock(&g->mutex);
	return r;
}

uint64_t sync_durable_seq(struct sync_group *g)
{
	uint64_t seq;

	pthread_mutex_lock(&g->mutex);
	seq = g->durable_seq;
	pthread_mutex_unlock(&g->mutex);
	return seq;
}

/* Private segments whose bytes are log extents now. One that is gone by now is needed by nobody. */
static int sync_sealed(struct store *s, const uint32_t *sealed, size_t num)
{
	size_t i;
	int r = 0;

	for (i = 0; !r && i < num; i++) {
		r = segment_sync_private(s->segments, sealed[i]);
		if (r == -ENOENT)
			r = 0;
	}
	return r;
}

/* state_options.sync_payloads: also while the state is being opened. A failure ends all promises, as in store_sync(). */
int sync_payloads(void *arg)
{
	struct store *s = arg;
	struct sync_group *g = &s->sync;
	uint32_t *sealed;
	size_t num;
	int r;

	pthread_mutex_lock(&g->mutex);
	while (g->leader) /* it may hold sealed segments that are not synced yet */
		pthread_cond_wait(&g->done, &g->mutex);
	sealed = g->sealed;
	num = g->num_sealed;
	r = g->error;
	g->sealed = NULL;
	g->num_sealed = g->cap_sealed = 0;
	g->leader = true;
	pthread_mutex_unlock(&g->mutex);
	if (!r)
		r = sync_sealed(s, sealed, num);
	if (!r && segment_needs_sync(s->segments))
		r = segment_sync(s->segments);
	free(sealed);
	pthread_mutex_lock(&g->mutex);
	g->leader = false;
	if (r)
		g->error = r;
	pthread_cond_broadcast(&g->done);
	pthread_mutex_unlock(&g->mutex);
	return r;
}

static bool has_sealed(struct sync_group *g)
{
	pthread_mutex_lock(&g->mutex);
	bool has = g->num_sealed > 0;
	pthread_mutex_unlock(&g->mutex);
	return has;
}

/* Payloads, without the mutex. *ret_upto: those of all records up to here are durable; target, when some have come meanwhile. */
static int sync_data(struct store *s, const uint32_t *sealed, size_t num_sealed, uint64_t target, uint64_t *ret_upto)
{
	int r = sync_sealed(s, sealed, num_sealed);

	if (!r && segment_needs_sync(s->segments))
		r = segment_sync(s->segments);
	*ret_upto = state_seq(s->state); /* first; a SEAL is noted before it is committed */
	if (segment_needs_sync(s->segments) || has_sealed(&s->sync))
		*ret_upto = target;
	return r;
}

/*
 * Called with the mutex; lets go of it meanwhile. A failure of payloads ends all promises. When the device has no room for the record that says
 * what is durable, nothing has happened.
 */
static int lead(struct store *s, struct sync_group *g)
{
	uint64_t target = state_seq(s->state), upto = 0, durable = 0;
	uint32_t *sealed = g->sealed;
	size_t num_sealed = g->num_sealed;

	/* What is noted after the target was read is for the next leader. */
	g->leader = true;
	g->sealed = NULL;
	g->num_sealed = g->cap_sealed = 0;
	pthread_mutex_unlock(&g->mutex);
	int failed = sync_data(s, sealed, num_sealed, target, &upto);
	int r = failed ? failed : state_sync(s->state, upto, &durable);
	free(sealed);
	pthread_mutex_lock(&g->mutex);
	g->leader = false;
	if (failed || (r && r != -ENOSPC))
		g->error = r;
	if (!r && durable > g->durable_seq)
		g->durable_seq = durable;
	pthread_cond_broadcast(&g->done);
	return r;
}

int store_sync(struct store *s)
{
	struct sync_group *g = &s->sync;
	uint64_t want = state_seq(s->state);
	int r = 0;

	pthread_mutex_lock(&g->mutex);
	while (r == 0 && g->durable_seq < want && !g->error) {
		if (g->leader)
			pthread_cond_wait(&g->done, &g->mutex);
		else
			r = lead(s, g);
	}
	r = g->error ? g->error : r;
	pthread_mutex_unlock(&g->mutex);
	return r;
}

struct leftovers {
	struct io *io;
	const char *folder;
	struct cistern_error *err;
};

static int sync_one(const char *name, void *arg)
{
	struct leftovers *l = arg;
	struct io_file *file = NULL;
	size_t len = strlen(name);
	char path[320];
	int r;

	if (len > 4 && strcmp(name + len - 4, ".seg") == 0)
		return 0; /* the segments see to these when they find them */
	if (snprintf(path, sizeof(path), "%s/%s", l->folder, name) >= (int)sizeof(path))
		return 0;
	r = io_open(l->io, path, IO_READ, &file);
	if (r == -ENOENT)
		return 0;
	if (!r)
		r = file->ops->sync(file);
	io_close(file);
	return r ? cistern_error_set(
			   l->err, r, "%s: what an earlier daemon wrote there cannot be synced: %s", path, strerror(-r))
		 : 0;
}

/*
 * What a process that died had written is in the page cache, and may have been promised to nobody yet; from now on
 * a sync of ours must cover it too. Clean files cost next to nothing.
 */
int sync_leftovers(struct io *io, struct cistern_error *err)
{
	static const char *const folders[] = { "segment", "journal" };
	size_t i;
	int r = 0;

	for (i = 0; !r && i < sizeof(folders) / sizeof(folders[0]); i++) {
		struct cistern_error one = { 0 };
		struct leftovers l = { io, folders[i], &one };

		r = io->ops->list(io, folders[i], sync_one, &l);
		if (!r)
			r = io->ops->sync_dir(io, folders[i]);
		if (r == -ENOENT)
			r = 0;
		else if (r)
			cistern_error_set(err, r, "%s", *one.text ? one.text : folders[i]);
	}
	return r;
}
