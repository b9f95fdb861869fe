/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What changes the shape of a file that several nodes have. Truncation is the home's: it gives no stamps while a cut is on
 * its way, so whatever is committed with a higher stamp was still there behind the cut on its own node, and what has a lower one
 * is cut off on all. Holes are written like bytes.
 */
#include "fs/job/carry.h"
#include "format/base/clock.h"
#include "fs/job/lease.h"
#include "fs/job/quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <unistd.h>

#define CUT_BATCH 64

/* ---- any node: what was beyond is no more */

static int cut_layer(struct job *j, const struct view *v)
{
	struct inode in;

	if (state_inode(store_state(j->opt.store), v->ino, &in) < 0 || !(in.flags & INODE_FOREIGN))
		return 0;
	int rc = core_cut(j->core, v->ino, v->size);
	return rc == -ESTALE ? 0 : rc;
}

/* mutex is held. */
static void set_cut(struct shared *s, const struct cut *cut)
{
	s->cut_before = s->cut.stamp;
	s->cut = *cut;
	s->cuts_known++;
	s->shapes++;
}

/* From here on nobody here sees what it cuts off, wherever that is still known; and no append comes behind it. */
static void expect_cut(struct shared *s, const struct cut *cut)
{
	pthread_mutex_lock(&s->mutex);
	if (cut->stamp > s->cut.stamp)
		set_cut(s, cut);
	pthread_mutex_unlock(&s->mutex);
}

uint64_t shared_cuts(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	uint64_t cuts = s->cuts;
	pthread_mutex_unlock(&s->mutex);
	return cuts;
}

/* So far reaches what has been written here since. */
static uint64_t end_since(struct job *j, const struct shared *s, const struct cut *cut)
{
	uint64_t end = shared_size_here(j, s);

	return end > cut->size ? end : cut->size;
}

/*
 * The bytes have been cut off before; the state is asked under the mutex, so that who writes either has his end looked at here or knows of the
 * cut when he notes it. everywhere: else it may still come to nothing, and what the home has given to appenders stays theirs.
 */
static void note_cut(struct job *j, struct shared *s, const struct cut *cut, bool everywhere)
{
	uint64_t size = cut->size;

	pthread_mutex_lock(&s->mutex);
	uint64_t end = end_since(j, s, cut);
	s->cuts++;
	if (s->end_cut < cut->stamp)
		s->end_cut = cut->stamp;
	if (s->own_end > end)
		s->own_end = end;
	if (s->append_end > size && (everywhere || !s->at_home))
		s->append_end = size;
	if (everywhere && cut->stamp == s->cut.stamp)
		s->cut_done = true;
	if (s->size > size || s->at_home)
		s->size = size;
	if (s->limit > size)
		s->limit = size;
	s->shapes++;
	s->epoch++;
	pthread_mutex_unlock(&s->mutex);
}

/*
 * A home gives no stamps while a cut is on its way. Where one has been given behind it, the cut came to nothing before we got to it, and what has
 * been committed since, or will be, is not its to take.
 */
static bool is_overtaken(struct job *j, const struct cut *cut, uint64_t ino)
{
	return commit_newest_stamp(j, ino) > cut->stamp;
}

/* In use or not: a commit of what an earlier daemon has left may just begin, and has to know of it. */
static int cut_shared(struct job *j, const struct view *v)
{
	struct shared *s = shared_get(j, v->ino);
	struct cut cut = { .size = v->size, .stamp = v->stamp };
	struct record rec = { .type = RECORD_SHARE_CUT, .ino = v->ino, .size = v->size, .stamp = v->stamp };

	if (!s)
		return -ENOMEM;
	expect_cut(s, &cut);
	pthread_mutex_lock(&s->layer_lock);
	int rc = store_commit(j->opt.store, &rec);
	if (rc == 0 && !is_overtaken(j, &cut, v->ino)) {
		rc = cut_layer(j, v);
		note_cut(j, s, &cut, false);
	}
	pthread_mutex_unlock(&s->layer_lock);
	s->epoch++;
	shared_put(j, s);
	return rc;
}

static void do_cut(struct job *j, struct peers_request *rq)
{
	struct view *v = malloc(sizeof(*v));
	int rc = v ? share_check_wanted(j, rq) : -ENOMEM; /* not if the home has given it up */

	if (rc == 0) {
		view_get(peers_msg(rq), v);
		rc = cut_shared(j, v);
		if (j->opt.invalidate)
			j->opt.invalidate(v->ino, true, j->opt.arg);
	}
	free(v);
	peers_reply_status(rq, rc);
}

static void count_cut(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	s->cuts++;
	pthread_mutex_unlock(&s->mutex);
}

/*
 * One that came to nothing may be known to some only. Who has committed behind it has not forgotten it, but never heard of it, and what he
 * has in his layer stays. What a home lacks of its size others tell again.
 */
static bool has_forgotten(struct job *j, const struct inode *in, const struct cut *cut)
{
	return in->flags & (INODE_SHARED | INODE_FOREIGN) && in->size > cut->size &&
	       commit_newest_stamp(j, in->ino) < cut->stamp;
}

static bool is_older(const struct layer_extent *e, const struct cut *cut)
{
	uint64_t from = e->stamp ? e->stamp : e->ext.time_usec;

	return from && from < cut->stamp;
}

/* What it takes off is there still: the map knew of it first, and power was lost before the layer, or the file, had it. */
static int has_not_done(struct job *j, const struct inode *in, const struct cut *cut, bool *ret)
{
	struct layer_extent batch[CUT_BATCH];
	size_t num;
	int rc = 0;

	*ret = false;
	for (uint64_t off = cut->size, next; rc == 0 && !*ret && off < in->size; off = next) {
		rc = state_layer(
			store_state(j->opt.store), in->ino, off, in->size - off, batch, CUT_BATCH, &num, &next);
		for (size_t i = 0; rc == 0 && i < num; i++)
			*ret |= is_older(&batch[i], cut);
	}
	return rc;
}

static int cut_forgotten(struct job *j, struct shared *s, const struct inode *in, const struct cut *cut)
{
	int rc = core_cut(j->core, in->ino, cut->size); /* first: who dies here does it again */

	if (rc == 0 && s)
		count_cut(s);
	if (rc == 0 && s && s->at_home)
		note_cut(j, s, cut, true);
	return rc == -ESTALE ? 0 : rc;
}

int cut_again(struct job *j, uint64_t ino, const struct cut *cut)
{
	struct record rec = { .type = RECORD_SHARE_CUT, .ino = ino, .size = cut->size, .stamp = cut->stamp };
	struct share_cut known = { .size = cut->size, .stamp = cut->stamp };
	struct inode in;
	bool lacks, again;
	int rc = state_share_lacks_cut(store_state(j->opt.store), ino, &known, &lacks);

	if (rc < 0)
		return rc;
	again = state_inode(store_state(j->opt.store), ino, &in) == 0 && has_forgotten(j, &in, cut);
	if (again && !lacks)
		rc = has_not_done(j, &in, cut, &again);
	if (rc < 0 || !(lacks || again))
		return rc;
	struct shared *s = shared_find(j, ino);
	if (s)
		expect_cut(s, cut);
	rc = again ? cut_forgotten(j, s, &in, cut) : 0;
	if (rc == 0 && lacks)
		rc = store_commit(j->opt.store, &rec);
	if (s)
		s->epoch++;
	shared_put(j, s);
	return rc;
}

void cut_serve_cut(struct job *j, struct peers_request *rq)
{
	workers_serve(j->share->tellers, do_cut, rq);
}

/* ---- the home */

/* *ret_before: the cut before it, for end_cut(). */
static uint64_t begin_cut(struct shared *s, uint64_t size, struct cut *ret_before)
{
	pthread_mutex_lock(&s->mutex);
	uint64_t stamp = registry_stamp(s);
	*ret_before = s->cut;
	set_cut(s, &(struct cut){ .size = size, .stamp = stamp });
	s->cutting = true;
	s->cut_done = false;
	pthread_mutex_unlock(&s->mutex);
	return stamp;
}

/* before: it has come to nothing; else NULL. */
static void end_cut(struct job *j, struct shared *s, const struct cut *before)
{
	pthread_mutex_lock(&s->mutex);
	if (before)
		set_cut(s, before);
	struct peers_request **waiting = s->waiting;
	size_t num = s->num_waiting;
	s->waiting = NULL;
	s->num_waiting = 0;
	s->cutting = false;
	pthread_mutex_unlock(&s->mutex);
	for (size_t i = 0; i < num; i++)
		registry_serve_stamp(j, waiting[i]);
	free(waiting);
}

/* A commit is told with the end that its file had: either before this, or by who knows of the cut. cut_lock is held. */
static int cut_file(struct job *j, struct shared *s, const struct cut *cut)
{
	pthread_mutex_lock(&s->size_lock);
	int rc = core_cut(j->core, s->ino, cut->size);
	if (rc == 0)
		note_cut(j, s, cut, true);
	pthread_mutex_unlock(&s->size_lock);
	return rc;
}

static int cut_everywhere(struct job *j, struct shared *s, uint64_t size, uint64_t until_usec)
{
	struct view *v = calloc(1, sizeof(*v));
	struct wire_msg m = { 0 };
	struct cut before;
	struct fan fan;

	if (!v)
		return -ENOMEM;
	v->ino = s->ino;
	v->size = size;
	v->stamp = begin_cut(s, size, &before);
	message_init(&m, MESSAGE_SHARE_CUT);
	view_put(&m, v);
	message_put(&m, MESSAGE_SHARE_UNTIL, until_usec);
	fan_init(&fan);
	for (uint32_t node = 0; node < peers_count(j->peers); node++)
		fan_call_brief(j, &fan, node, &m);
	int rc = fan_wait(&fan);
	if (rc == 0)
		rc = cut_file(j, s, &(struct cut){ .size = size, .stamp = v->stamp });
	end_cut(j, s, rc < 0 ? &before : NULL);
	wire_msg_free(&m);
	free(v);
	return rc;
}

/* rq: whose the truncation is; NULL: he waits as long as it takes. */
static uint64_t waits_until(const struct peers_request *rq)
{
	return rq ? message_get(peers_msg(rq), MESSAGE_SHARE_UNTIL) : UINT64_MAX;
}

/* What may last longer than he waits is not begun. */
static int cut_in_time(struct job *j, struct shared *s, const struct peers_request *rq, uint64_t size)
{
	int rc = -ECONNRESET;

	for (int tries = 0; rc == -ECONNRESET && tries < SHARE_RESTART_TRIES; tries++) {
		if (tries > 0)
			usleep(SHARE_RETRY_USEC);
		uint64_t until = share_clock_usec(j) + peers_brief_usec(j->peers);
		rc = until > waits_until(rq) ? -ETIMEDOUT : cut_everywhere(j, s, size, until);
	}
	return rc;
}

static int cut_alone(struct job *j, struct shared *s, const struct peers_request *rq, uint64_t size)
{
	pthread_rwlock_rdlock(&s->lock);
	pthread_mutex_lock(&s->through_lock);
	int rc = s->is_shared ? -EAGAIN : share_clock_usec(j) < waits_until(rq) ? 0 : -ETIMEDOUT;
	if (rc == 0)
		rc = cut_file(j, s, &(struct cut){ .size = size });
	pthread_mutex_unlock(&s->through_lock);
	pthread_rwlock_unlock(&s->lock);
	return rc;
}

static int cut_at_home(struct job *j, struct shared *s, const struct peers_request *rq, uint64_t size)
{
	int rc = s->is_shared ? power_wait_cuts(j) : 0; /* an older one is not to come behind it */

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&s->cut_lock);
	rc = s->is_shared ? cut_in_time(j, s, rq, size) : cut_alone(j, s, rq, size);
	/* Also of one that has come to nothing: who was told of the file meanwhile was told of the cut. */
	int told = (rc == 0 || s->is_shared) && registry_has_openers(s) ? registry_tell(j, s) : 0;
	if (rc == 0)
		rc = told;
	pthread_mutex_unlock(&s->cut_lock);
	return rc;
}

static void do_truncate(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	uint64_t ino = message_get(m, MESSAGE_SHARE_INO);
	int rc = registry_find(j, ino, m);
	struct shared *s = rc == 0 ? shared_get(j, ino) : NULL;

	if (rc < 0) {
		peers_reply_status(rq, rc);
		return;
	}
	rc = s ? 0 : -ENOMEM;
	quiet_begin_change(j);
	if (rc == 0)
		rc = cut_at_home(j, s, rq, message_get(m, MESSAGE_SHARE_SIZE));
	quiet_end_change(j);
	if (rc == 0)
		registry_reply(j, s, rq);
	else
		peers_reply_status(rq, rc == -ETIMEDOUT ? -EAGAIN : rc); /* who has the time asks again */
	if (rc == 0 && j->opt.invalidate)
		j->opt.invalidate(s->ino, true, j->opt.arg);
	core_forget(j->core, ino, 1);
	shared_put(j, s);
}

void cut_serve_truncate(struct job *j, struct peers_request *rq)
{
	workers_serve(j->share->drivers, do_truncate, rq);
}

/* ---- whoever asks for it */

static int ask_once(struct job *j, struct shared *s, uint64_t size)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	struct view *v = malloc(sizeof(*v));
	int rc = v ? 0 : -ENOMEM;

	message_init(&m, MESSAGE_SHARE_TRUNCATE);
	message_put(&m, MESSAGE_SHARE_INO, s->ino);
	message_put(&m, MESSAGE_SHARE_SIZE, size);
	share_put_until(j, &m);
	uint64_t asked_usec = clock_usec();
	if (rc == 0)
		rc = s->at_home ? share_call(j, s->home, &m, &reply) : remote_call(j, s->ino, NULL, &m, &reply, NULL);
	if (rc == 0) {
		view_get(&reply, v);
		shared_apply(s, v, asked_usec);
	}
	wire_msg_free(&m);
	wire_msg_free(&reply);
	free(v);
	return rc;
}

static int ask_truncate(struct job *j, struct shared *s, uint64_t size)
{
	uint64_t until = clock_usec() + 2 * peers_brief_usec(j->peers);
	int rc;

	do
		rc = ask_once(j, s, size);
	while (rc == -EAGAIN && clock_usec() < until);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

/*
 * What this node has written so far comes before the cut: it is committed first, or the home would not know that the file
 * had been longer.
 */
int share_truncate(struct job *j, uint64_t ino, uint64_t size)
{
	struct shared *s = shared_get(j, ino);
	int rc = s ? 0 : -ENOMEM;

	if (size > core_max_bytes(j->core))
		rc = -EFBIG;
	if (s)
		s->shapes++;
	if (rc == 0 && shared_is_home(j, s) && !s->is_shared)
		rc = cut_at_home(j, s, NULL, size);
	else if (rc == 0)
		rc = share_commit_known(j, s, false);
	if (rc == 0 && (s->is_shared || !shared_is_home(j, s)))
		rc = ask_truncate(j, s, size);
	if (s)
		s->shapes++;
	shared_put(j, s);
	return rc;
}

/* ---- holes and room */

static int grow(struct job *j, struct shared *s, uint64_t end)
{
	if (shared_size(j, s) >= end)
		return 0;
	shared_mark_dirty(j, s, clock_usec(), end);
	return share_commit(j, s, false);
}

static int fallocate_layer(struct job *j, struct job_file *file, int mode, uint64_t off, uint64_t len)
{
	struct shared *s = file->shared;
	struct core_file *layer = shared_is_home(j, s) ? file->local : s->layer;
	uint64_t since = clock_usec();
	int rc = shared_make_current(j, s);
	uint64_t size = shared_size(j, s);

	if (rc < 0)
		return rc;

	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		return -EOPNOTSUPP;
	if (off > INT64_MAX - len || (!(mode & FALLOC_FL_PUNCH_HOLE) && off + len > core_max_bytes(j->core)))
		return -EFBIG;
	uint64_t end = off + len;
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) && off < size) {
		shared_mark_dirty(j, s, since, 0);
		rc = core_fallocate(j->core, layer, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off,
			(end < size ? end : size) - off);
		shared_mark_dirty(j, s, since, 0);
	}
	return rc < 0 || mode & FALLOC_FL_KEEP_SIZE ? rc : grow(j, s, end);
}

static int fallocate_shared(struct job *j, struct job_file *file, int mode, uint64_t off, uint64_t len)
{
	struct shared *s = file->shared;
	ssize_t rc = -ESTALE;

	lease_begin_write(j, s);
	for (int tries = 0; carry_again(j, s, tries, &rc); tries++)
		rc = carry_fallocate(j, s, mode, off, len);
	if (rc == -ESTALE)
		rc = fallocate_layer(j, file, mode, off, len);
	lease_end_write(s);
	return (int)rc;
}

static bool fallocate_alone(struct job *j, struct job_file *file, int mode, uint64_t off, uint64_t len, int *ret)
{
	if (!shared_alone_begin(j, file->shared))
		return false;
	*ret = core_fallocate(j->core, file->local, mode, off, len);
	shared_alone_end(file->shared);
	return true;
}

int share_fallocate(struct job *j, struct job_file *file, int mode, uint64_t off, uint64_t len)
{
	int rc;

	if (!fallocate_alone(j, file, mode, off, len, &rc))
		rc = fallocate_shared(j, file, mode, off, len);
	if (mode & ~FALLOC_FL_KEEP_SIZE)
		file->shared->shapes++;
	return rc;
}
