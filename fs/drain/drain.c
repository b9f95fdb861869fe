/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The manager. One thread makes all decisions (which session next, when its agent is started, restarted, given up);
 * the agent's connection (attempt.c) and the triggers only leave notes under the lock and wake it. There is one
 * session at a time and one that waits: whoever asks while a session runs gets the next one, since the running one
 * carries a snapshot that is older than the request.
 *
 * A session that somebody waits for goes before the background's, which is told to stop and is resumed after it. An
 * agent that dies by a signal is started again for the same session, MAX_DEATHS times in a row.
 *
 * An agent that dies, or stops half-way, may have moved files of which it has not told us. As long as they are not where the
 * state says the session is not over: a second process takes them back first (cistern-agent undo; intent.h there).
 */
#include "fs/drain/drain.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "fs/drain/private.h"
#include "fs/drain/settle.h"

#define SEC              INT64_C(1000000)
#define MAX_DEATHS       5
#define BEGIN_USEC       (60 * SEC) /* for an agent to come */
#define EXIT_USEC        (30 * SEC) /* to go after its last word */
#define RETRY_USEC       (SEC / 5)  /* doubled with each death */
#define BACKOFF_USEC     (5 * SEC)  /* after a background session that did nothing; doubled */
#define BACKOFF_MAX_USEC (60 * SEC)
#define BREATH_USEC      SEC /* between two background sessions */

int64_t drain_now_usec(void)
{
	return (int64_t)clock_usec();
}

static void post_eventfd(int fd)
{
	const eventfd_t one = 1;

	/* Fails only when the counter is full: then it is readable, which is all that is wanted. */
	if (write(fd, &one, sizeof(one)) < 0)
		return;
}

void drain_wake(struct drain *d)
{
	post_eventfd(d->wake_fd);
}

bool drain_post(struct drain *d, enum drain_event event)
{
	return drain_machine_next(d->state, event, &d->state);
}

/* ---- the end of a session; lock held */

static void note_background(struct drain *d, enum cistern_exit result)
{
	int64_t wait = BREATH_USEC;
	bool stopped = d->cancel;

	if (stopped || (cistern_exit_is_out(result) && d->progress.done_files > 0)) {
		d->failures = 0;
	} else { /* failed, or found nothing that it could carry: again at once would be the same */
		for (unsigned int i = 0; i < d->failures && wait < BACKOFF_MAX_USEC; i++)
			wait = i == 0 ? BACKOFF_USEC * 2 : wait * 2;
		if (wait < BACKOFF_USEC)
			wait = BACKOFF_USEC;
		if (wait > BACKOFF_MAX_USEC)
			wait = BACKOFF_MAX_USEC;
		d->failures++;
	}
	d->background_usec = drain_now_usec() + wait;
	if (!cistern_exit_is_out(result) && !stopped)
		d->background = true;
}

/* Of a session of the job, the part that begins it drops the errors of the one before: the other parts' stand till then. */
static bool drops_errors(const struct drain_request *r)
{
	return r->part == WIRE_PART_WHOLE || r->part == WIRE_PART_BEGIN;
}

static void finish(struct drain *d, enum cistern_exit result, const char *text)
{
	struct drain_request *r = d->current;
	bool good = cistern_exit_is_out(result) || result == CISTERN_EXIT_INCOMPLETE;

	if (good && !d->cancel && drops_errors(r))
		drain_errors_prune(&d->errors, r->id, r->paths, r->num_paths);
	if (r->kind == DRAIN_BACKGROUND && r->part == WIRE_PART_WHOLE)
		note_background(d, result);
	log_event(d->opt.log, cistern_exit_is_out(result) || d->cancel ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING,
		"drain-end", "session=%llu result=%d files=%llu bytes=%llu errors=%zu text=\"%s\"",
		(unsigned long long)r->id, (int)result, (unsigned long long)d->progress.done_files,
		(unsigned long long)d->progress.done_bytes, d->errors.num, text);
	drain_results_put(&d->results, r->id, result, text);
	d->last_id = r->id;
	d->last_result = result;
	d->deaths = 0;
	d->current = NULL;
	drain_request_free(r);
	drain_post(d, DRAIN_EV_DONE);
	pthread_cond_broadcast(&d->changed);
	post_eventfd(d->event_fd);
}

static void agent_died(struct drain *d)
{
	char text[CISTERN_ERROR_TEXT_BYTES];
	int status = d->attempt.agent_status;

	if (!WIFSIGNALED(status)) {
		snprintf(text, sizeof(text),
			"cistern-agent ended with status %d before its work was done; see cistern.log",
			WEXITSTATUS(status));
		finish(d, CISTERN_EXIT_INCOMPLETE, text);
	} else if (d->cancel || d->stop) {
		finish(d, CISTERN_EXIT_INCOMPLETE, "stopped before its end; the rest is in the store");
	} else if (++d->deaths > MAX_DEATHS) {
		snprintf(text, sizeof(text), "cistern-agent died %u times in a row, the last time of signal %d (%s)",
			d->deaths, WTERMSIG(status), strsignal(WTERMSIG(status)));
		finish(d, CISTERN_EXIT_INCOMPLETE, text);
	} else {
		log_event(d->opt.log, LOG_LEVEL_WARNING, "agent-died", "session=%llu signal=%d deaths=%u",
			(unsigned long long)d->current->id, WTERMSIG(status), d->deaths);
		d->retry_usec = drain_now_usec() + (RETRY_USEC << (d->deaths - 1));
		drain_post(d, DRAIN_EV_RETRY);
	}
}

/* Gives the lock up meanwhile. */
static void end_attempt(struct drain *d)
{
	pthread_mutex_unlock(&d->lock);
	drain_close_attempt(d);
	pthread_mutex_lock(&d->lock);
	if (d->attempt.has_result)
		finish(d, d->attempt.result, d->attempt.text);
	else
		agent_died(d);
}

/* ---- processes; lock held, given up meanwhile where said */

static void agent_ended(int status, void *arg)
{
	struct drain *d = arg;

	pthread_mutex_lock(&d->lock);
	d->attempt.exited = true;
	d->attempt.status = status;
	drain_wake(d);
	pthread_mutex_unlock(&d->lock);
}

/* Gives the lock up while the process is started. memory_fd: what other nodes' bytes come through; -1: it asks for none. */
static int start_process(
	struct drain *d, const char *command, const char *snapshot, int memory_fd, struct cistern_error *err)
{
	struct agent_options opt = {
		.command = command,
		.snapshot = snapshot,
		.store_path = store_path(d->opt.store),
		.libexec_dir = d->opt.libexec_dir,
		.backing_fd = d->opt.backing_fd,
		.memory_fd = memory_fd,
		.output_fd = log_fd(d->opt.log),
		.ended = agent_ended,
		.arg = d,
	};
	struct agent *agent = NULL;
	int r;

	pthread_mutex_unlock(&d->lock);
	r = agent_start(&opt, &agent, err);
	pthread_mutex_lock(&d->lock);
	d->attempt.agent = agent;
	return r;
}

static void undo_failed(struct drain *d, int code, const char *why)
{
	char text[CISTERN_ERROR_TEXT_BYTES];

	snprintf(text, sizeof(text),
		"what an interrupted drain had moved could not be taken back (%.200s): files may be missing until a drain has "
		"succeeded, so run 'cistern flush'",
		why);
	log_event(d->opt.log, LOG_LEVEL_ERROR, "undo", "session=%llu errno=%d text=\"%s\"",
		(unsigned long long)d->current->id, -code, why);
	drain_errors_add(&d->errors, d->current->id, ".", code, text);
}

/* Gives the lock up meanwhile. All that the agent said is committed, so a snapshot made now tells what need not be taken back. */
static int make_undo_snapshot(struct drain *d, struct cistern_error *err)
{
	char name[sizeof(d->attempt.undo_snapshot)];
	uint64_t seq;
	int r;

	pthread_mutex_unlock(&d->lock);
	r = store_snapshot(d->opt.store, name, sizeof(name), &seq, err);
	pthread_mutex_lock(&d->lock);
	if (!r)
		memcpy(d->attempt.undo_snapshot, name, sizeof(name));
	return r;
}

static void start_undo(struct drain *d)
{
	struct cistern_error err = { 0 };
	int r = make_undo_snapshot(d, &err);

	d->attempt.exited = d->attempt.killed = false;
	d->attempt.deadline_usec = drain_now_usec() + SETTLE_USEC;
	drain_post(d, DRAIN_EV_UNDO);
	if (!r)
		r = start_process(d, "undo", d->attempt.undo_snapshot, -1, &err);
	if (!r)
		return;
	undo_failed(d, r, err.text);
	drain_remove_snapshot(d, d->attempt.undo_snapshot);
	end_attempt(d);
}

/* The agent's process is gone and all that it said is known. */
static void conclude(struct drain *d)
{
	agent_destroy(d->attempt.agent);
	d->attempt.agent = NULL;
	d->attempt.agent_status = d->attempt.status;
	if (settle_is_due(store_path(d->opt.store)))
		start_undo(d);
	else
		end_attempt(d);
}

/* So is the process that took back. */
static void conclude_undo(struct drain *d)
{
	bool good = WIFEXITED(d->attempt.status) && WEXITSTATUS(d->attempt.status) == CISTERN_EXIT_OK;

	agent_destroy(d->attempt.agent);
	d->attempt.agent = NULL;
	drain_remove_snapshot(d, d->attempt.undo_snapshot);
	if (good)
		log_event(d->opt.log, LOG_LEVEL_INFO, "undo", "session=%llu", (unsigned long long)d->current->id);
	else
		undo_failed(d, d->attempt.killed ? -ETIMEDOUT : -EIO,
			d->attempt.killed ? "cistern-agent undo did not end in time" : "cistern.log says why");
	end_attempt(d);
}

/* ---- the beginning of one */

static void start_agent(struct drain *d)
{
	struct cistern_error err = { 0 };

	d->attempt = (struct attempt){ .deadline_usec = drain_now_usec() + BEGIN_USEC };
	if (d->current->part == WIRE_PART_BEGIN || d->current->part == WIRE_PART_OFFER)
		wire_shared_free(&d->shared); /* it tells all of them */
	drain_post(d, DRAIN_EV_START);
	if (d->opt.ask.ask) {
		d->attempt.deadline_usec = INT64_MAX;
		if (d->opt.ask.ask(d->current->id, d->current->kind,
			    d->current->kind == DRAIN_BACKGROUND && d->to_low_water, d->current->paths,
			    d->current->num_paths, d->opt.ask.arg))
			finish(d, CISTERN_EXIT_FAILED, "out of memory");
		return;
	}
	if (start_process(d, "drain", NULL, d->opt.job.fetch ? d->opt.job.memory_fd : -1, &err))
		finish(d, CISTERN_EXIT_FAILED, err.text);
}

static void start_session(struct drain *d, struct drain_request *r)
{
	d->current = r;
	d->cancel = d->cancel_final;
	d->deaths = 0;
	d->progress = (struct drain_progress){ 0 };
	d->yield = (struct yield){ 0 };
	d->share_percent = 100;
	log_event(d->opt.log, LOG_LEVEL_INFO, "drain-start", "session=%llu kind=%s paths=%zu",
		(unsigned long long)r->id,
		r->kind == DRAIN_BACKGROUND ? "background"
		: r->kind == DRAIN_FLUSH    ? "flush"
					    : "final",
		r->num_paths);
	start_agent(d);
}

static bool background_may_start(struct drain *d)
{
	return d->background && !d->paused && !d->final && drain_now_usec() >= d->background_usec;
}

static void choose_session(struct drain *d)
{
	struct drain_request *r = d->pending;

	if (d->stop)
		return;
	if (r) {
		d->pending = NULL;
	} else if (background_may_start(d)) {
		r = drain_request_new(d->next_id++, DRAIN_BACKGROUND);
		d->background = false;
	}
	if (r)
		start_session(d, r);
}

/* ---- the thread */

static void kill_agent(struct drain *d, const char *why)
{
	if (d->attempt.killed || d->attempt.exited || !d->attempt.agent)
		return;
	log_event(d->opt.log, LOG_LEVEL_WARNING, "agent-kill", "pid=%d why=\"%s\"", (int)agent_pid(d->attempt.agent),
		why);
	d->attempt.killed = true;
	agent_kill(d->attempt.agent, SIGKILL);
}

/* What was asked of the job has come to its end, or shall. */
static void watch_ask(struct drain *d)
{
	if (d->state != DRAIN_STARTING)
		return;
	if (d->attempt.has_result)
		finish(d, d->attempt.result, d->attempt.text);
	else if (d->stop)
		finish(d, CISTERN_EXIT_INCOMPLETE, "stopped before its end; the rest is in the store");
	else if (d->cancel && !d->attempt.killed) {
		d->attempt.killed = true;
		d->opt.ask.cancel(d->current->id, d->opt.ask.arg);
	}
}

static void watch_agent(struct drain *d)
{
	int64_t now = drain_now_usec();

	if (d->attempt.exited && d->state == DRAIN_STARTING)
		drain_post(d, DRAIN_EV_EXIT);
	if (d->state == DRAIN_STARTING && now >= d->attempt.deadline_usec)
		kill_agent(d, "cistern-agent did not ask for its work");
	if (d->state == DRAIN_ENDING && now >= d->attempt.deadline_usec)
		kill_agent(d, "cistern-agent did not end after its work");
	if (d->state == DRAIN_UNDOING && now >= d->attempt.deadline_usec)
		kill_agent(d, "cistern-agent undo did not end in time");
	if (d->stop && d->state != DRAIN_IDLE && d->state != DRAIN_WAITING && d->state != DRAIN_UNDOING)
		kill_agent(d, "the daemon ends");
	if (d->state == DRAIN_ENDING && d->attempt.exited)
		conclude(d);
	if (d->state == DRAIN_UNDOING && d->attempt.exited)
		conclude_undo(d);
	if (d->state == DRAIN_WAITING && (d->cancel || d->stop))
		finish(d, CISTERN_EXIT_INCOMPLETE, "stopped before its end; the rest is in the store");
	else if (d->state == DRAIN_WAITING && now >= d->retry_usec)
		start_agent(d);
}

/* Until when nothing happens by itself; -1: for ever. */
static int64_t next_deadline(const struct drain *d)
{
	switch (d->state) {
	case DRAIN_STARTING:
	case DRAIN_UNDOING:
	case DRAIN_ENDING: return d->attempt.killed || d->opt.ask.ask ? -1 : d->attempt.deadline_usec;
	case DRAIN_WAITING: return d->retry_usec;
	case DRAIN_IDLE: return d->background && !d->paused && !d->final ? d->background_usec : -1;
	default: return -1;
	}
}

static void wait_for_news(struct drain *d, int64_t deadline)
{
	struct pollfd p = { .fd = d->wake_fd, .events = POLLIN };
	int64_t left = deadline < 0 ? -1 : deadline - drain_now_usec();
	eventfd_t value;

	if (deadline >= 0)
		left = left <= 0 ? 0 : left / 1000 + 1;
	if (poll(&p, 1, (int)left) > 0 && eventfd_read(d->wake_fd, &value) < 0)
		log_event(d->opt.log, LOG_LEVEL_ERROR, "drain-wake", "errno=%d", errno);
}

static void *manager_thread(void *arg)
{
	struct drain *d = arg;
	bool stop = false;

	while (!stop) {
		int64_t deadline;

		pthread_mutex_lock(&d->lock);
		if (atomic_exchange(&d->wanted, false) && !d->background) {
			d->background = true;
			d->to_low_water = true;
		}
		if (d->opt.ask.ask)
			watch_ask(d);
		else
			watch_agent(d);
		if (d->state == DRAIN_IDLE)
			choose_session(d);
		deadline = next_deadline(d);
		stop = d->stop && d->state == DRAIN_IDLE;
		pthread_mutex_unlock(&d->lock);
		if (!stop)
			wait_for_news(d, deadline);
	}
	return NULL;
}

/* ---- life */

int drain_create(const struct drain_options *opt, struct drain **ret, struct cistern_error *err)
{
	struct drain *d = calloc(1, sizeof(*d));
	pthread_condattr_t attr;
	int r;

	if (!d)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	d->opt = *opt;
	d->next_id = 1;
	d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	d->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&d->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&d->changed, &attr);
	pthread_condattr_destroy(&attr);
	r = d->wake_fd < 0 || d->event_fd < 0 ? -errno : -pthread_create(&d->thread, NULL, manager_thread, d);
	if (r) {
		d->thread = 0;
		drain_destroy(d);
		return cistern_error_set(err, r, "cannot start the drain manager: %s", strerror(-r));
	}
	*ret = d;
	return 0;
}

void drain_destroy(struct drain *d)
{
	if (!d)
		return;
	if (d->thread) {
		pthread_mutex_lock(&d->lock);
		d->stop = true;
		drain_wake(d);
		pthread_mutex_unlock(&d->lock);
		pthread_join(d->thread, NULL);
	}
	drain_request_free(d->current);
	drain_request_free(d->pending);
	drain_errors_free(&d->errors);
	wire_shared_free(&d->shared);
	if (d->wake_fd >= 0)
		close(d->wake_fd);
	if (d->event_fd >= 0)
		close(d->event_fd);
	pthread_cond_destroy(&d->changed);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

int drain_event_fd(const struct drain *d)
{
	return d->event_fd;
}

/* ---- triggers */

enum { MODE_IDLE, MODE_WATERMARK, MODE_UNMOUNT }; /* the setting drain's choices */

void drain_want(struct drain *d, bool urgent)
{
	if (config_number(d->opt.cfg, CONFIG_DRAIN) == MODE_UNMOUNT)
		return;
	if (!atomic_load_explicit(&d->wanted, memory_order_relaxed) && !atomic_exchange(&d->wanted, true))
		drain_wake(d);
}

void drain_note_idle(struct drain *d)
{
	pthread_mutex_lock(&d->lock);
	if (!d->background) {
		d->background = true;
		d->to_low_water = false;
		drain_wake(d);
	}
	pthread_mutex_unlock(&d->lock);
}

/* A background session makes way; what it leaves is wanted still. */
static void make_way(struct drain *d)
{
	if (d->current && d->current->kind == DRAIN_BACKGROUND && !d->cancel) {
		d->cancel = true;
		d->background = true;
	}
}

static uint64_t request(struct drain *d, enum drain_kind kind, const char *const *paths, size_t num)
{
	bool first = d->pending == NULL;
	uint64_t id = 0;

	if (first)
		d->pending = drain_request_new(d->next_id, kind);
	if (d->pending) {
		if (first)
			d->next_id++;
		if (kind == DRAIN_FINAL)
			d->pending->kind = kind;
		drain_request_add(d->pending, paths, num, first);
		id = d->pending->id;
	}
	make_way(d);
	drain_wake(d);
	return id;
}

uint64_t drain_request(struct drain *d, const char *const *paths, size_t num)
{
	uint64_t id;

	pthread_mutex_lock(&d->lock);
	/* The final session carries everything: whoever asks now waits for it. */
	if (d->final)
		id = d->pending ? d->pending->id : d->current ? d->current->id : d->last_id;
	else
		id = request(d, DRAIN_FLUSH, paths, num);
	pthread_mutex_unlock(&d->lock);
	return id;
}

void drain_answer(struct drain *d, uint64_t id, enum cistern_exit result, const char *text)
{
	pthread_mutex_lock(&d->lock);
	if (d->current && d->current->id == id && d->state == DRAIN_STARTING) {
		d->attempt.has_result = true;
		d->attempt.result = result;
		snprintf(d->attempt.text, sizeof(d->attempt.text), "%s", text);
		drain_wake(d);
	}
	pthread_mutex_unlock(&d->lock);
}

static int copy_shared(struct drain *d, const struct wire_shared_list *from)
{
	int r = 0;

	wire_shared_free(&d->shared);
	for (size_t i = 0; from && r == 0 && i < from->num; i++)
		r = wire_shared_add(&d->shared, &from->at[i]);
	return r;
}

uint64_t drain_request_part(struct drain *d, const struct drain_part *part)
{
	struct drain_request *r = NULL;
	uint64_t id = 0;

	pthread_mutex_lock(&d->lock);
	if (!d->pending && !d->current && copy_shared(d, part->shared) == 0)
		r = drain_request_new(d->next_id, part->kind);
	if (r) {
		r->part = part->part;
		r->cautious = part->cautious;
		r->last = part->last;
		r->haste = part->haste;
		r->since = part->since;
		r->time_usec = part->time_usec;
		snprintf(r->node_name, sizeof(r->node_name), "%s", part->node_name ? part->node_name : "");
		d->totals = (struct manifest_totals){ 0 };
		drain_request_add(r, part->paths, part->num_paths, true);
		d->pending = r;
		d->next_id++;
		d->cancel_final = false;
		id = r->id;
	}
	drain_wake(d);
	pthread_mutex_unlock(&d->lock);
	return id;
}

void drain_forget_errors(struct drain *d, const char *const *paths, size_t num)
{
	pthread_mutex_lock(&d->lock);
	drain_errors_prune(&d->errors, d->next_id, (char *const *)paths, num);
	pthread_mutex_unlock(&d->lock);
}

void drain_take_shared(struct drain *d, struct wire_shared_list *ret)
{
	pthread_mutex_lock(&d->lock);
	*ret = d->shared;
	d->shared = (struct wire_shared_list){ 0 };
	pthread_mutex_unlock(&d->lock);
}

struct manifest_totals drain_take_totals(struct drain *d)
{
	struct manifest_totals totals;

	pthread_mutex_lock(&d->lock);
	totals = d->totals;
	pthread_mutex_unlock(&d->lock);
	return totals;
}

uint64_t drain_begin_final(struct drain *d)
{
	uint64_t id;

	pthread_mutex_lock(&d->lock);
	d->final = true;
	id = request(d, DRAIN_FINAL, NULL, 0);
	if (d->state == DRAIN_PAUSED)
		drain_post(d, DRAIN_EV_RESUME);
	pthread_mutex_unlock(&d->lock);
	return id;
}

void drain_pause(struct drain *d, bool pause)
{
	pthread_mutex_lock(&d->lock);
	d->paused = pause;
	if (!pause) {
		d->background_usec = 0; /* what was held is not held any longer */
		drain_post(d, DRAIN_EV_RESUME);
	} else if (d->current && d->current->kind == DRAIN_BACKGROUND)
		drain_post(d, DRAIN_EV_PAUSE);
	drain_wake(d);
	pthread_mutex_unlock(&d->lock);
}

void drain_cancel(struct drain *d)
{
	pthread_mutex_lock(&d->lock);
	d->cancel = d->cancel_final = true;
	if (d->attempt.agent && !d->attempt.exited && d->state != DRAIN_UNDOING)
		agent_kill(d->attempt.agent, SIGTERM);
	drain_wake(d);
	pthread_mutex_unlock(&d->lock);
}

void drain_shut_down(struct drain *d)
{
	pthread_mutex_lock(&d->lock);
	d->shut_down = true;
	pthread_cond_broadcast(&d->changed);
	pthread_mutex_unlock(&d->lock);
}

/* ---- waiting */

static bool is_open(const struct drain *d, uint64_t id)
{
	return (d->current && d->current->id == id) || (d->pending && d->pending->id == id);
}

static int wait_until(struct drain *d, int64_t deadline)
{
	struct timespec at = { .tv_sec = deadline / SEC, .tv_nsec = deadline % SEC * 1000 };

	return deadline < 0 ? pthread_cond_wait(&d->changed, &d->lock)
			    : pthread_cond_timedwait(&d->changed, &d->lock, &at);
}

int drain_wait(struct drain *d, uint64_t id, uint64_t timeout_usec, enum cistern_exit *ret_exit,
	char text[CISTERN_ERROR_TEXT_BYTES])
{
	const int64_t limit = INT64_C(10000) * 24 * 3600 * SEC;
	int64_t deadline =
		timeout_usec == 0 || timeout_usec > (uint64_t)limit ? -1 : drain_now_usec() + (int64_t)timeout_usec;
	const struct drain_result *result;
	int r = 0;

	pthread_mutex_lock(&d->lock);
	if (id == 0)
		id = d->pending ? d->pending->id : d->current ? d->current->id : d->last_id;
	while (is_open(d, id) && !d->shut_down && r == 0)
		r = -wait_until(d, deadline);
	result = drain_results_find(&d->results, id);
	if (id == 0) { /* there never was one */
		*ret_exit = CISTERN_EXIT_OK;
		*text = '\0';
	} else if (result) {
		*ret_exit = result->exit;
		snprintf(text, CISTERN_ERROR_TEXT_BYTES, "%s", result->text);
		r = 0;
	} else if (r == 0) {
		r = d->shut_down ? -ESHUTDOWN : -ENOENT;
	}
	pthread_mutex_unlock(&d->lock);
	return r;
}
