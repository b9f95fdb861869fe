/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the agent asks for. All calls for one owner come from the one thread that serves its connection, so between
 * begin and end (or gone) nothing of the attempt but the orders can change under it; core and store are called without
 * the lock. While the attempt is open, space is pinned and a snapshot exists; closing it undoes both, whatever became
 * of the agent. The manager closes it, when the agent's process is gone and what it had not reported is taken back: until
 * then core must expect files to be elsewhere than the state says.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/drain/private.h"

#define SEC            INT64_C(1000000)
#define EXIT_USEC      (30 * SEC)
#define LOST_USEC      SEC /* nobody takes its word any more, and until it is gone nothing can be taken back */
#define LOW_CHECK_USEC (SEC / 10)

void drain_grant_free(struct drain_grant *g)
{
	for (size_t i = 0; i < g->num_paths; i++)
		free(g->paths[i]);
	free(g->paths);
	buf_free(&g->shared);
	free(g->skip);
	free(g->stragglers);
	*g = (struct drain_grant){ 0 };
}

/* ---- opening and closing; no lock */

void drain_remove_snapshot(struct drain *d, const char *name)
{
	int r = *name ? store_remove_snapshot(store_path(d->opt.store), name) : 0;

	if (r)
		log_event(d->opt.log, LOG_LEVEL_WARNING, "snapshot-remove", "name=%s errno=%d", name, -r);
}

void drain_close_attempt(struct drain *d)
{
	if (!d->attempt.open)
		return;
	d->attempt.open = false;
	if (d->opt.job.fetch_end)
		d->opt.job.fetch_end(d->opt.job.arg);
	core_session_end(d->opt.core);
	store_unpin(d->opt.store);
	drain_remove_snapshot(d, d->attempt.snapshot);
}

static int open_attempt(struct drain *d, bool background, struct drain_grant *g, struct cistern_error *err)
{
	int r;

	d->attempt.open = true;
	core_session_begin(d->opt.core, background);
	g->stragglers = core_stragglers(d->opt.core, &g->num_stragglers);
	store_pin(d->opt.store);
	r = store_snapshot(d->opt.store, g->snapshot, sizeof(g->snapshot), &g->seq, err);
	if (r)
		g->snapshot[0] = '\0';
	memcpy(d->attempt.snapshot, g->snapshot, sizeof(d->attempt.snapshot));
	return r;
}

/* Files that are being written: a session that nobody waits for leaves them alone. */
static int list_busy(struct drain *d, struct drain_grant *g)
{
	size_t num = core_session_left_alone(d->opt.core, NULL, 0);

	g->skip = calloc(num + 1, sizeof(*g->skip));
	if (!g->skip)
		return -ENOMEM;
	g->num_skip = core_session_left_alone(d->opt.core, g->skip, num);
	return 0;
}

/* ---- begin */

/* Takes the session for owner and copies what it is. */
static int take(struct drain *d, const void *owner, struct drain_grant *g, bool *ret_background)
{
	int r = 0;

	pthread_mutex_lock(&d->lock);
	if (d->state != DRAIN_STARTING || d->attempt.owner) {
		r = -EBUSY;
	} else {
		g->session = d->current->id;
		g->part = d->current->part;
		g->cautious = d->current->cautious;
		g->convert = (d->current->kind == DRAIN_FINAL && g->part == WIRE_PART_WHOLE) ||
			     (d->current->last && !g->cautious);
		g->haste = d->current->haste;
		g->since = d->current->since;
		memcpy(g->node_name, d->current->node_name, sizeof(g->node_name));
		if (g->part != WIRE_PART_BEGIN)
			wire_shared_encode(&d->shared, &g->shared);
		g->num_paths = d->current->num_paths;
		g->paths = drain_request_copy_paths(d->current);
		if (!g->paths) {
			g->num_paths = 0;
			r = -ENOMEM;
		}
	}
	if (!r) {
		d->attempt.owner = owner;
		*ret_background = d->current->kind == DRAIN_BACKGROUND;
		if (*ret_background && d->to_low_water)
			g->haste = WIRE_HASTE_ROOM;
		drain_post(d, DRAIN_EV_BEGIN);
		if (*ret_background && d->paused)
			drain_post(d, DRAIN_EV_PAUSE);
		drain_wake(d);
	}
	pthread_mutex_unlock(&d->lock);
	return r;
}

/* lock not held. What is left is its process. */
static void leave(struct drain *d, enum drain_event event, const enum cistern_exit *result, const char *text)
{
	pthread_mutex_lock(&d->lock);
	d->attempt.owner = NULL;
	d->attempt.deadline_usec = drain_now_usec() + (event == DRAIN_EV_LOST ? LOST_USEC : EXIT_USEC);
	if (result) {
		d->attempt.has_result = true;
		d->attempt.result = *result;
		snprintf(d->attempt.text, sizeof(d->attempt.text), "%s", text);
	}
	drain_post(d, event);
	drain_wake(d);
	pthread_mutex_unlock(&d->lock);
}

int drain_agent_begin(struct drain *d, const void *owner, struct drain_grant *ret, struct cistern_error *err)
{
	const enum cistern_exit failed = CISTERN_EXIT_FAILED;
	struct cistern_error local = { 0 };
	bool background = false;
	int r = take(d, owner, ret, &background);

	if (r == -EBUSY)
		cistern_error_set(err, r, "no drain waits for an agent; 'cistern flush' starts one");
	else if (r)
		cistern_error_set(err, r, "out of memory");
	if (r) {
		drain_grant_free(ret);
		return r;
	}
	r = open_attempt(d, background, ret, &local);
	if (!r && background) {
		r = list_busy(d, ret);
		if (r)
			cistern_error_set(&local, r, "out of memory");
	}
	if (r) {
		leave(d, DRAIN_EV_END, &failed, local.text);
		drain_grant_free(ret);
		if (err)
			*err = local;
	}
	return r;
}

/* ---- during it */

static bool owns(struct drain *d, const void *owner)
{
	bool yes;

	pthread_mutex_lock(&d->lock);
	yes = d->attempt.owner == owner && (d->state == DRAIN_RUNNING || d->state == DRAIN_PAUSED);
	pthread_mutex_unlock(&d->lock);
	return yes;
}

static bool is_low(struct drain *d)
{
	struct store_space space;

	if (store_space(d->opt.store, &space) || space.capacity_bytes == 0)
		return false;
	return space.used_bytes <= space.capacity_bytes / 100 * config_number(d->opt.cfg, CONFIG_LOW_WATER);
}

/* A session that the high-water mark started has done enough at the low one. */
static void check_low_water(struct drain *d)
{
	bool due;

	pthread_mutex_lock(&d->lock);
	due = d->current && d->current->kind == DRAIN_BACKGROUND && d->to_low_water && !d->cancel &&
	      drain_now_usec() - d->low_check_usec >= LOW_CHECK_USEC;
	if (due)
		d->low_check_usec = drain_now_usec();
	pthread_mutex_unlock(&d->lock);
	if (!due || !is_low(d))
		return;
	pthread_mutex_lock(&d->lock);
	if (d->current && d->current->kind == DRAIN_BACKGROUND)
		d->cancel = true;
	pthread_mutex_unlock(&d->lock);
}

/*
 * Of a job, where all nodes have the directories; but a file, whose place a directory wants, only its home. What is not known any more was
 * one, unless it is about to get its name.
 */
static bool is_of_tree(struct drain *d, const struct record *rec)
{
	struct inode in;
	bool yes;
	int r = state_inode(store_state(d->opt.store), rec->ino, &in);

	if (r == 0 ? !S_ISDIR(in.mode) : rec->type == RECORD_REMOVED)
		return false;

	pthread_mutex_lock(&d->lock);
	yes = d->current && (d->current->part == WIRE_PART_DIRS || d->current->part == WIRE_PART_FINISH);
	pthread_mutex_unlock(&d->lock);
	return yes && d->opt.job.tree_step;
}

/* lock is held. Not when it was deleted meanwhile: then the stores' bytes are needed as long as it is open. */
static void note_published(struct drain *d, const struct record *rec)
{
	struct wire_shared *f = rec->type == RECORD_DRAINED ? wire_shared_find(&d->shared, rec->ino) : NULL;
	struct inode in;

	if (f && state_inode(store_state(d->opt.store), rec->ino, &in) == 0 && !(in.flags & (INODE_ORPHAN | INODE_NEW)))
		f->published = true;
}

static bool is_step(enum record_type type)
{
	return type == RECORD_PLACED || type == RECORD_REMOVED || type == RECORD_DRAINED || type == RECORD_FORGET;
}

/*
 * Of a file that nodes write to: what of it they need not tell any more. The agent knows the stamp; this and the file's new limit are one record, so
 * that none of them is forgotten without the other.
 */
static void set_session_time(struct drain *d, struct record *rec)
{
	uint64_t time_usec;

	pthread_mutex_lock(&d->lock);
	time_usec = d->current ? d->current->time_usec : 0;
	pthread_mutex_unlock(&d->lock);
	if (rec->type != RECORD_DRAINED || !rec->stamp || !time_usec)
		return;
	rec->flags |= RECORD_F_TIMED;
	rec->drop_usec = time_usec;
}

int drain_agent_step(struct drain *d, const void *owner, struct record *rec, struct cistern_error *err)
{
	int r;

	if (!owns(d, owner))
		return cistern_error_set(err, -ESTALE, "this connection has no drain session");
	if (!is_step(rec->type))
		return cistern_error_set(err, -EINVAL, "a drain does not report '%s'", record_type_name(rec->type));
	if (is_of_tree(d, rec)) {
		r = d->opt.job.tree_step(rec, d->opt.job.arg);
	} else {
		set_session_time(d, rec);
		r = core_drain_step(d->opt.core, rec);
	}
	if (r == 0 && rec->type == RECORD_DRAINED && d->opt.job.drained)
		d->opt.job.drained(rec->ino, d->opt.job.arg);
	if (r)
		return cistern_error_set(err, r, "%s of inode %llu '%s': %s", record_type_name(rec->type),
			(unsigned long long)rec->ino, rec->name, strerror(-r));
	pthread_mutex_lock(&d->lock);
	d->deaths = 0;
	note_published(d, rec);
	pthread_mutex_unlock(&d->lock);
	check_low_water(d);
	return 0;
}

int drain_agent_progress(struct drain *d, const void *owner, const struct drain_progress *p)
{
	if (!owns(d, owner))
		return -ESTALE;
	pthread_mutex_lock(&d->lock);
	d->progress = *p;
	pthread_mutex_unlock(&d->lock);
	check_low_water(d);
	return 0;
}

int drain_agent_error(struct drain *d, const void *owner, const char *path, int code, const char *text)
{
	if (!owns(d, owner))
		return -ESTALE;
	pthread_mutex_lock(&d->lock);
	drain_errors_add(&d->errors, d->current->id, path, code, text);
	pthread_mutex_unlock(&d->lock);
	log_event(d->opt.log, LOG_LEVEL_WARNING, "drain-error", "path=\"%s\" errno=%d text=\"%s\"", path, -code, text);
	return 0;
}

/* What is told again, by an agent that was started for the same part, counts once. */
static void note_written(struct wire_shared *known, const struct wire_shared *f, int status)
{
	known->written = f->written;
	known->extents = f->extents;
	known->crc_sum = f->crc_sum;
	known->layout = f->layout;
	known->failed = status < 0;
	known->failed_errno = status < 0 ? (uint32_t)-status : 0;
	known->told = true;
}

int drain_agent_shared(struct drain *d, const void *owner, const struct wire_shared *f, int status)
{
	struct wire_shared copy = *f, *known;
	bool begins, offers;
	int r = 0;

	if (!owns(d, owner))
		return -ESTALE;
	pthread_mutex_lock(&d->lock);
	begins = d->current->part == WIRE_PART_BEGIN;
	offers = d->current->part == WIRE_PART_OFFER;
	pthread_mutex_unlock(&d->lock);
	if (begins)
		r = d->opt.job.begin_shared ? d->opt.job.begin_shared(&copy, d->opt.job.arg) : -EBUSY;
	if (r < 0)
		return r;
	pthread_mutex_lock(&d->lock);
	known = wire_shared_find(&d->shared, f->ino);
	if (begins || (offers && !known))
		r = wire_shared_add(&d->shared, &copy);
	else if (known && !offers)
		note_written(known, f, status);
	pthread_mutex_unlock(&d->lock);
	return r == -ENOSPC ? -EBUSY : r; /* the list is full: in the next session */
}

int drain_agent_fetch(struct drain *d, const void *owner, uint64_t slot, const struct peers_get *ranges, size_t num)
{
	if (!owns(d, owner))
		return -ESTALE;
	return d->opt.job.fetch ? d->opt.job.fetch(slot, ranges, num, d->opt.job.arg) : -EOPNOTSUPP;
}

int drain_agent_fetched(struct drain *d, const void *owner, uint64_t slot, uint64_t *ret_off)
{
	if (!owns(d, owner))
		return -ESTALE;
	return d->opt.job.fetched ? d->opt.job.fetched(slot, ret_off, d->opt.job.arg) : -EOPNOTSUPP;
}

int drain_agent_occupied(struct drain *d, const void *owner, const struct record *rec)
{
	if (!owns(d, owner))
		return -ESTALE;
	return d->opt.job.occupied ? d->opt.job.occupied(rec, d->opt.job.arg) : -EOPNOTSUPP;
}

/* What the share depends on but for the session. An unknown store is taken for an empty one. */
static void look_around(struct drain *d, struct yield_view *ret, struct core_activity *ret_activity)
{
	struct store_space space;

	*ret = (struct yield_view){
		.share_percent = (unsigned int)config_number(d->opt.cfg, CONFIG_DRAIN_SHARE),
		.high_water_percent = (unsigned int)config_number(d->opt.cfg, CONFIG_HIGH_WATER),
	};
	if (store_space(d->opt.store, &space) == 0) {
		ret->used_bytes = space.used_bytes;
		ret->capacity_bytes = space.capacity_bytes;
	}
	core_activity(d->opt.core, ret_activity);
}

int drain_agent_places(struct drain *d, const void *owner, uint64_t ino, uint64_t off, uint64_t len,
	struct share_extent *out, size_t cap, size_t *ret_num, uint64_t *ret_next, struct share_cut *ret_cut)
{
	struct state *st = store_state(d->opt.store);
	int r;

	if (!owns(d, owner))
		return -ESTALE;
	if (len == 0 || off + len < off)
		return -EINVAL;
	r = state_share_extents(st, ino, off, len, out, cap, ret_num, ret_next);
	return r < 0 ? r : state_share_newest_cut(st, ino, &ret_cut->size, &ret_cut->stamp);
}

struct drain_orders drain_orders(struct drain *d)
{
	struct core_activity activity;
	struct drain_orders orders;
	struct yield_view view;
	bool background;

	look_around(d, &view, &activity);
	pthread_mutex_lock(&d->lock);
	background = d->current && d->current->kind == DRAIN_BACKGROUND;
	orders.cancel = d->cancel || d->stop;
	orders.paused = d->state == DRAIN_PAUSED && !orders.cancel;
	view.kind = d->current ? d->current->kind : DRAIN_BACKGROUND;
	view.busy = yield_note(&d->yield, &activity, drain_now_usec());
	orders.share_percent = d->share_percent = yield_share(&view);
	pthread_mutex_unlock(&d->lock);
	orders.rate = background ? config_number(d->opt.cfg, CONFIG_DRAIN_RATE) : 0; /* who waits has no fixed limit */
	return orders;
}

/* ---- its end */

int drain_agent_end(struct drain *d, const void *owner, enum cistern_exit result, const char *text,
	const struct manifest_totals *totals)
{
	if (!owns(d, owner))
		return -ESTALE;
	pthread_mutex_lock(&d->lock);
	manifest_totals_add(&d->totals, totals);
	pthread_mutex_unlock(&d->lock);
	leave(d, DRAIN_EV_END, &result, text);
	return 0;
}

void drain_agent_gone(struct drain *d, const void *owner)
{
	if (!owns(d, owner))
		return;
	leave(d, DRAIN_EV_LOST, NULL, NULL);
}
