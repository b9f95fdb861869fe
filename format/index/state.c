/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The state: commits, syncs, its end. A commit is check, append, apply under one lock. Before the append nothing has
 * changed, so a refusal leaves no trace; after it the application cannot be refused, only fail for want of memory or
 * because the index cannot be read; then what is in memory is no state that has been, and nothing may be built on it: the
 * state has failed, and a remount makes it anew from the journal.
 *
 * Opening is in open.c, RocksDB in checkpoint.c, what records mean in apply*.c, questions in query.c.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/clock.h"

static bool sync_path(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);
	bool synced = fd >= 0 && fsync(fd) == 0;

	if (fd >= 0)
		close(fd);
	return synced;
}

/*
 * The next open shall not trust these files, also behind a loss of power: they may stand for more than the journal does, which would be
 * taken for one that has lost files. What keeps a sync from being made may keep the mark away, too: then it is tried again.
 */
static void mark_damaged(struct state *st)
{
	char *path = NULL;

	if (!st->damaged || st->marked || asprintf(&path, "%s/%s", st->index_path, STATE_DAMAGED_FILE) < 0)
		return;
	st->marked = sync_path(path, O_WRONLY | O_CREAT) && sync_path(st->index_path, O_RDONLY | O_DIRECTORY);
	free(path);
}

void state_fail(struct state *st, int error)
{
	st->damaged = st->damaged || (error == -EBADMSG && st->journal);
	mark_damaged(st);
	st->failed = -EIO;
}

int state_step(struct state *st, const struct record *rec)
{
	int r;

	if (rec->seq <= st->seq)
		return -EINVAL;
	r = apply_check(st, rec);
	if (r < 0)
		return r;
	r = apply_record(st, rec);
	if (r < 0) {
		state_fail(st, r);
		return r;
	}
	return 0;
}

static int commit_checked(struct state *st, struct record *rec)
{
	int r;

	r = journal_append(st->journal, rec);
	if (r < 0) {
		if (r == -EIO)
			state_fail(st, r);
		return r;
	}
	r = apply_record(st, rec);
	if (r < 0) {
		state_fail(st, r);
		return -EIO;
	}
	return 0;
}

/* What is written to a shared file is put in order by the job's clock: here, where the order of the node's own writes is made. */
static void set_time(struct state *st, struct record *rec)
{
	struct node_item *ni;

	if ((rec->type == RECORD_WRITE || rec->type == RECORD_EXTENTS || rec->type == RECORD_PUNCH) &&
		!(rec->flags & RECORD_F_TIMED) && find_node(st, rec->ino, &ni) == 0 && ni->n.flags & INODE_SHARED) {
		rec->flags |= RECORD_F_TIMED;
		rec->time_ns = clock_now(&st->clock);
	}
	if (st->meta.private_files)
		st->by_kernel = true;
	if (rec->time_ns == 0)
		rec->time_ns = state_time_ns(st);
}

int state_commit_locked(struct state *st, struct record *rec)
{
	int r;

	if (st->failed)
		return st->failed;
	if (!st->journal)
		return -EROFS;
	set_time(st, rec);
	r = apply_check(st, rec);
	if (r == -EBADMSG || r == -EIO) { /* the index cannot be read */
		state_fail(st, r);
		return -EIO;
	}
	if (r == 0)
		r = commit_checked(st, rec);
	cache_trim(&st->cache);
	return r;
}

/* Memory is full of changes: whoever is to make checkpoints does not keep up. So make one, however long it takes. */
static int relieve(struct state *st)
{
	bool full;

	pthread_mutex_lock(&st->lock);
	full = st->journal && !st->failed && st->cache.dirty_bytes > st->cache.limit;
	pthread_mutex_unlock(&st->lock);
	return full ? state_checkpoint(st) : 0;
}

int state_commit(struct state *st, struct record *rec)
{
	int r;

	r = relieve(st);
	if (r < 0)
		return r;
	pthread_mutex_lock(&st->lock);
	r = state_commit_locked(st, rec);
	pthread_mutex_unlock(&st->lock);
	return r;
}

int state_apply(struct state *st, const struct record *rec)
{
	struct record numbered;
	int r;

	pthread_mutex_lock(&st->lock);
	if (rec->seq == 0) {
		numbered = *rec;
		numbered.seq = st->seq + 1;
		rec = &numbered;
	}
	r = st->failed ? st->failed : state_step(st, rec);
	cache_trim(&st->cache);
	pthread_mutex_unlock(&st->lock);
	return r;
}

/*
 * *ret_seq: of the record; 0: none is needed. While the journal holds records that were dropped, which it would cover, there is none.
 */
static int commit_sync(struct state *st, uint64_t payload_seq, uint64_t *ret_seq)
{
	struct record rec = { .type = RECORD_SYNC, .upto = payload_seq };
	int r;

	pthread_mutex_lock(&st->lock);
	r = st->failed;
	if (r == 0 && payload_seq > st->meta.sync_upto && st->payload_seq > st->meta.sync_upto && !st->must_compact)
		r = state_commit_locked(st, &rec);
	pthread_mutex_unlock(&st->lock);
	*ret_seq = rec.seq;
	return r;
}

int state_sync(struct state *st, uint64_t payload_seq, uint64_t *ret_seq)
{
	uint64_t record = 0;
	int r;

	if (!st->journal)
		return -EROFS;
	r = commit_sync(st, payload_seq, &record);
	if (r == 0)
		r = journal_sync(st->journal, NULL);
	if (r < 0) {
		pthread_mutex_lock(&st->lock);
		if (r != -ENOSPC)
			state_fail(st, r);
		pthread_mutex_unlock(&st->lock);
		return r;
	}
	/* What was committed between the two is durable, but the record does not say so of its payloads. */
	if (ret_seq)
		*ret_seq = payload_seq + (record == payload_seq + 1);
	return 0;
}

int64_t state_time_ns(struct state *st)
{
	return st->by_kernel ? clock_file_ns(st->clock_file) : clock_wall_ns();
}

void state_let_kernel_write(struct state *st)
{
	st->by_kernel = true;
}

struct clock *state_clock(struct state *st)
{
	return &st->clock;
}

uint64_t state_seq(struct state *st)
{
	uint64_t seq;

	pthread_mutex_lock(&st->lock);
	seq = st->seq;
	pthread_mutex_unlock(&st->lock);
	return seq;
}

uint64_t state_new_ino(struct state *st)
{
	uint64_t ino;

	pthread_mutex_lock(&st->lock);
	if (st->handed_ino < st->meta.next_ino)
		st->handed_ino = st->meta.next_ino;
	ino = st->handed_ino++;
	pthread_mutex_unlock(&st->lock);
	return ino;
}

void state_reserve_inos(struct state *st, uint64_t first)
{
	pthread_mutex_lock(&st->lock);
	if (st->handed_ino < first)
		st->handed_ino = first;
	pthread_mutex_unlock(&st->lock);
}

void state_join(struct state *st)
{
	pthread_mutex_lock(&st->lock);
	st->opt.job = true;
	pthread_mutex_unlock(&st->lock);
}

uint64_t state_tree_stamp(struct state *st)
{
	uint64_t stamp;

	pthread_mutex_lock(&st->lock);
	stamp = st->meta.tree_stamp;
	pthread_mutex_unlock(&st->lock);
	return stamp;
}

uint64_t state_tree_time(struct state *st, uint64_t stamp)
{
	uint64_t time_ns;

	pthread_mutex_lock(&st->lock);
	time_ns = stamp == st->meta.tree_stamp ? st->meta.tree_time_ns : 0;
	pthread_mutex_unlock(&st->lock);
	return time_ns;
}

void state_destroy(struct state *st)
{
	if (!st)
		return;
	if (st->clock_file >= 0)
		close(st->clock_file);
	journal_destroy(st->journal);
	cache_free(&st->cache);
	mark_damaged(st);
	db_close(st->db);
	if (st->scratch) {
		db_wipe(st->scratch, NULL);
		rmdir(st->scratch);
	}
	free(st->scratch);
	free(st->index_path);
	free(st->lost);
	pthread_mutex_destroy(&st->checkpoint_lock);
	pthread_mutex_destroy(&st->lock);
	free(st);
}

/* Payloads first, so that UNMOUNT is the last record and a checkpoint stands for it. */
static int unmount(struct state *st)
{
	struct record rec = { .type = RECORD_UNMOUNT };
	uint64_t upto = state_seq(st);
	int r = st->opt.sync_payloads ? st->opt.sync_payloads(st->opt.arg) : 0;

	if (r == 0)
		r = state_sync(st, upto, NULL);
	if (r == 0)
		r = state_commit(st, &rec);
	return r < 0 ? r : state_checkpoint(st);
}

int state_close(struct state *st)
{
	int r = st->journal ? unmount(st) : 0;

	state_destroy(st);
	return r;
}
