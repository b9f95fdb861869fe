/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The part that knows whose bytes of a file count, when several nodes have it open (docs/design/many-nodes.md, 4): its
 * life; the table of files in use; and the thread that looks, once a second and when it is poked, what is to be done that
 * nobody waits for (catch_up.c).
 */
#include "fs/job/lease.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "format/base/clock.h"
#include "fs/job/ahead.h"

#define BUCKETS    4096u
#define ROUND_USEC 1000000u
#define BUSY_USEC  1000u

/* ---- the table */

static struct shared **bucket_of(struct share *sh, uint64_t ino)
{
	return &sh->buckets[(ino * 0x9E3779B97F4A7C15ull) >> 48 & (BUCKETS - 1)];
}

static struct shared *shared_new(struct job *j, uint64_t ino)
{
	struct shared *s = calloc(1, sizeof(*s));
	struct inode in;

	if (!s)
		return NULL;
	s->ino = ino;
	s->clock = state_clock(j->state);
	s->home = place_ino(ino, peers_count(j->peers));
	s->backing_fd = -1;
	s->refs = 1;
	pthread_mutex_init(&s->open_lock, NULL);
	pthread_mutex_init(&s->commit_lock, NULL);
	pthread_mutex_init(&s->layer_lock, NULL);
	pthread_mutex_init(&s->cut_lock, NULL);
	pthread_mutex_init(&s->through_lock, NULL);
	pthread_mutex_init(&s->size_lock, NULL);
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->answered, NULL);
	pthread_rwlock_init(&s->lock, NULL);
	s->at_home = s->home == peers_self(j->peers);
	if (s->at_home && state_inode(store_state(j->opt.store), ino, &in) == 0) {
		s->is_shared = in.flags & INODE_SHARED;
		s->size = in.size;
	}
	if (s->at_home)
		append_recall(j, s);
	s->shows.knows_writers = !s->is_shared; /* else perhaps since an earlier daemon */
	s->leases.inherited = s->is_shared;
	return s;
}

static void shared_free(struct shared *s)
{
	shared_drop_maps(s);
	pages_destroy(s->pages);
	if (s->backing_fd >= 0)
		close(s->backing_fd);
	pthread_mutex_destroy(&s->open_lock);
	pthread_mutex_destroy(&s->commit_lock);
	pthread_mutex_destroy(&s->layer_lock);
	pthread_mutex_destroy(&s->cut_lock);
	pthread_mutex_destroy(&s->through_lock);
	pthread_mutex_destroy(&s->size_lock);
	pthread_mutex_destroy(&s->mutex);
	pthread_cond_destroy(&s->answered);
	pthread_rwlock_destroy(&s->lock);
	free(s->path);
	free(s->openers);
	free(s->closings);
	free(s->waiting);
	free(s->pending);
	free(s->shows.at);
	free(s->placeless.at);
	free(s->leases.waiting);
	free(s);
}

/* table is held. */
static struct shared *table_find(struct share *sh, uint64_t ino)
{
	for (struct shared *s = *bucket_of(sh, ino); s; s = s->next)
		if (s->ino == ino) {
			s->refs++;
			return s;
		}
	return NULL;
}

struct shared *shared_find(struct job *j, uint64_t ino)
{
	pthread_mutex_lock(&j->share->table);
	struct shared *s = table_find(j->share, ino);
	pthread_mutex_unlock(&j->share->table);
	return s;
}

struct shared *shared_get(struct job *j, uint64_t ino)
{
	struct share *sh = j->share;

	pthread_mutex_lock(&sh->table);
	struct shared *s = table_find(sh, ino);
	if (!s && (s = shared_new(j, ino))) {
		s->next = *bucket_of(sh, ino);
		*bucket_of(sh, ino) = s;
	}
	pthread_mutex_unlock(&sh->table);
	return s;
}

/* It may go when nobody uses it, nobody needs to be told of it, and nobody has a commit of it on its way. */
static bool is_idle(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	bool idle = s->num_openers == 0 && s->num_pending == 0 && !s->anchor && s->dirty_usec == 0 &&
		    s->telling_usec == 0 && !s->resend;
	pthread_mutex_unlock(&s->mutex);
	return idle;
}

static void table_remove(struct share *sh, struct shared *gone)
{
	struct shared **at = bucket_of(sh, gone->ino);

	while (*at != gone)
		at = &(*at)->next;
	*at = gone->next;
}

void shared_put(struct job *j, struct shared *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&j->share->table);
	bool last = --s->refs == 0 && is_idle(s);
	if (last) {
		append_remember(j, s);
		table_remove(j->share, s);
	}
	pthread_mutex_unlock(&j->share->table);
	if (last)
		shared_free(s);
}

static struct shared *next_of(struct job *j, struct shared *s, size_t *bucket)
{
	struct share *sh = j->share;

	pthread_mutex_lock(&sh->table);
	struct shared *next = s ? s->next : NULL;
	while (!next && *bucket < BUCKETS)
		next = sh->buckets[(*bucket)++];
	if (next)
		next->refs++;
	pthread_mutex_unlock(&sh->table);
	shared_put(j, s);
	return next;
}

void shared_each(struct job *j, void (*fn)(struct job *j, struct shared *s, void *arg), void *arg)
{
	size_t bucket = 0;

	for (struct shared *s = next_of(j, NULL, &bucket); s; s = next_of(j, s, &bucket))
		fn(j, s, arg);
}

bool shared_alone_begin(struct job *j, struct shared *s)
{
	if (!shared_is_home(j, s))
		return false;
	pthread_rwlock_rdlock(&s->lock);
	bool alone = !s->is_shared;
	if (!alone)
		pthread_rwlock_unlock(&s->lock);
	return alone;
}

void shared_alone_end(struct shared *s)
{
	pthread_rwlock_unlock(&s->lock);
}

/* ---- what may not be given back */

uint64_t shared_oldest(struct shared *s)
{
	pthread_mutex_lock(&s->mutex);
	uint64_t oldest = UINT64_MAX;
	if (s->dirty_usec)
		oldest = s->dirty_usec;
	if (s->telling_usec && s->telling_usec < oldest)
		oldest = s->telling_usec;
	if (s->resend)
		oldest = 0;
	pthread_mutex_unlock(&s->mutex);
	return oldest;
}

void share_update_hold(struct job *j)
{
	struct share *sh = j->share;
	uint64_t hold = UINT64_MAX;

	pthread_mutex_lock(&sh->hold_lock);
	sh->hold_is_old = false;
	pthread_mutex_lock(&sh->table);
	if (!sh->swept)
		hold = 0;
	for (size_t i = 0; i < BUCKETS && hold; i++)
		for (struct shared *s = sh->buckets[i]; s && hold; s = s->next) {
			uint64_t oldest = shared_oldest(s);

			hold = oldest < hold ? oldest : hold;
		}
	pthread_mutex_unlock(&sh->table);
	if (hold != sh->hold_usec) {
		sh->hold_usec = hold;
		store_hold_freed(j->opt.store, hold);
	}
	pthread_mutex_unlock(&sh->hold_lock);
}

/* ---- calls */

int share_call(struct job *j, uint32_t node, const struct wire_msg *request, struct wire_msg *reply)
{
	int rc = -ECONNRESET;

	for (int tries = 0; rc == -ECONNRESET && tries < SHARE_RESTART_TRIES && !j->share->ending; tries++) {
		j->share->messages += node != peers_self(j->peers);
		rc = peers_call(j->peers, node, request, reply);
		if (rc == -ECONNRESET)
			usleep(SHARE_RETRY_USEC);
	}
	return rc;
}

/* ---- who asks is told in time how it ends, and what he takes for failed does nothing any more */

uint64_t share_clock_usec(struct job *j)
{
	return (uint64_t)clock_now(state_clock(j->state)) / 1000;
}

void share_put_until(struct job *j, struct wire_msg *m)
{
	message_put(m, MESSAGE_SHARE_UNTIL, share_clock_usec(j) + 2 * peers_brief_usec(j->peers));
}

int share_check_wanted(struct job *j, const struct peers_request *rq)
{
	if (!peers_is_wanted(rq))
		return -ECONNRESET;
	return share_clock_usec(j) < message_get(peers_msg(rq), MESSAGE_SHARE_UNTIL) ? 0 : -ETIMEDOUT;
}

/* ---- a call whose answer is waited for as long as one likes */

struct asking {
	struct job *j;
	struct shared *s; /* counted reference */
	share_took took;
	uint64_t asked_usec;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned int refs;
	bool done;
	int status;
};

static void asking_put(struct asking *a)
{
	pthread_mutex_lock(&a->lock);
	bool last = --a->refs == 0;
	pthread_mutex_unlock(&a->lock);
	if (!last)
		return;
	shared_put(a->j, a->s);
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->cond);
	free(a);
}

static void home_answered(int status, const struct wire_msg *reply, void *arg)
{
	struct asking *a = arg;

	if (status == 0 && reply && a->took)
		status = a->took(a->s, reply, a->asked_usec);
	pthread_mutex_lock(&a->lock);
	a->done = true;
	a->status = status;
	pthread_cond_signal(&a->cond);
	pthread_mutex_unlock(&a->lock);
	asking_put(a);
}

static int wait_answer(struct asking *a, uint64_t until_usec)
{
	struct timespec until = { .tv_sec = (time_t)(until_usec / 1000000u),
		.tv_nsec = (long)(until_usec % 1000000u) * 1000 };
	int rc = 0;

	pthread_mutex_lock(&a->lock);
	while (!a->done && rc == 0)
		rc = pthread_cond_clockwait(&a->cond, &a->lock, CLOCK_MONOTONIC, &until);
	rc = a->done ? a->status : -ETIMEDOUT;
	pthread_mutex_unlock(&a->lock);
	return rc;
}

int share_ask_home(struct job *j, struct shared *s, const struct wire_msg *m, uint64_t until_usec, share_took took)
{
	struct asking *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	*a = (struct asking){ .j = j, .s = shared_get(j, s->ino), .took = took, .asked_usec = clock_usec(), .refs = 2 };
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->cond, NULL);
	j->share->messages++;
	int rc = peers_call_async(j->peers, s->home, m, home_answered, a);
	if (rc < 0)
		home_answered(rc, NULL, a);
	else
		rc = wait_answer(a, until_usec);
	asking_put(a);
	return rc;
}

void share_reply_number(struct peers_request *rq, int status, enum message_tag tag, uint64_t v)
{
	struct wire_msg reply = { 0 };

	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, status);
	message_put(&reply, tag, v);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

void fan_init(struct fan *f)
{
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->cond, NULL);
	f->left = 0;
	f->status = 0;
}

void fan_begin(struct fan *f)
{
	pthread_mutex_lock(&f->lock);
	f->left++;
	pthread_mutex_unlock(&f->lock);
}

void fan_done(int status, const struct wire_msg *reply, void *arg)
{
	struct fan *f = arg;

	(void)reply;
	pthread_mutex_lock(&f->lock);
	if (status < 0 && (f->status == 0 || f->status == -EHOSTDOWN))
		f->status = status;
	f->left--;
	pthread_cond_signal(&f->cond);
	pthread_mutex_unlock(&f->lock);
}

typedef int (*call_fn)(struct peers *p, uint32_t node, const struct wire_msg *request, peers_done done, void *arg);

struct fan_request {
	uint32_t node;
	const struct wire_msg *m;
	call_fn call;
	uint64_t for_usec; /* so long at the most until it is sent */
	peers_done done;   /* ends with fan_done() */
	void *arg;
};

static void fan_add(struct job *j, struct fan *f, const struct fan_request *r)
{
	fan_begin(f);
	j->share->messages += r->node != peers_self(j->peers);
	uint64_t until = clock_usec() + r->for_usec;
	int rc;
	while ((rc = r->call(j->peers, r->node, r->m, r->done, r->arg)) == -EAGAIN && clock_usec() < until)
		usleep(BUSY_USEC); /* so many wait for that node already */
	rc = rc == -EAGAIN ? -ETIMEDOUT : rc;
	if (rc < 0)
		r->done(rc, NULL, r->arg);
}

void fan_call(struct job *j, struct fan *f, uint32_t node, const struct wire_msg *request)
{
	uint64_t for_usec = config_number(j->opt.cfg, CONFIG_AGENT_TIMEOUT);

	fan_add(j, f, &(struct fan_request){ node, request, peers_call_async, for_usec, fan_done, f });
}

void fan_ask_brief(
	struct job *j, struct fan *f, uint32_t node, const struct wire_msg *request, peers_done done, void *arg)
{
	fan_add(j, f, &(struct fan_request){ node, request, peers_call_brief, peers_brief_usec(j->peers), done, arg });
}

void fan_call_brief(struct job *j, struct fan *f, uint32_t node, const struct wire_msg *request)
{
	fan_ask_brief(j, f, node, request, fan_done, f);
}

int fan_wait(struct fan *f)
{
	pthread_mutex_lock(&f->lock);
	while (f->left)
		pthread_cond_wait(&f->cond, &f->lock);
	pthread_mutex_unlock(&f->lock);
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->cond);
	return f->status;
}

/* ---- the thread */

/* wake is held. True: sweep. */
static bool wait_round(struct share *sh)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ROUND_USEC / 1000000u;
	if (!sh->ending && !sh->poked)
		pthread_cond_clockwait(&sh->wake_cond, &sh->wake, CLOCK_MONOTONIC, &until);
	sh->poked = false;
	bool sweep = sh->sweep && peers_numbered(sh->j->peers) && sh->j->knows_cuts;
	if (sweep)
		sh->sweep = false;
	return sweep;
}

static void *share_main(void *arg)
{
	struct share *sh = arg;

	pthread_mutex_lock(&sh->wake);
	while (!sh->ending) {
		bool sweep = wait_round(sh);

		if (sh->ending)
			break;
		pthread_mutex_unlock(&sh->wake);
		if (sweep)
			(void)sweep_all(sh->j);
		if (peers_numbered(sh->j->peers))
			catch_up_round(sh->catch_up);
		registry_tell_gone(sh->j);
		untold_round(sh->j);
		closings_round(sh->j);
		if (sh->hold_is_old)
			share_update_hold(sh->j);
		pthread_mutex_lock(&sh->wake);
	}
	pthread_mutex_unlock(&sh->wake);
	return NULL;
}

void share_poke(struct job *j)
{
	pthread_mutex_lock(&j->share->wake);
	j->share->poked = true;
	pthread_cond_signal(&j->share->wake_cond);
	pthread_mutex_unlock(&j->share->wake);
}

/* ---- events */

static void note_restart(struct job *j, struct shared *s, void *arg)
{
	const uint32_t *node = arg;

	(void)j;
	pthread_mutex_lock(&s->mutex);
	if (s->home == *node) {
		s->registered = s->current = false;
		lease_end(s);
	}
	s->epoch++; /* places of its payload may be no more, if it has lost power */
	if (s->parked)
		shared_resend(s);
	pthread_mutex_unlock(&s->mutex);
}

/* Its home may have given up telling us, and has not got to know that we are back. */
static void disbelieve(struct job *j, struct shared *s, void *arg)
{
	(void)arg;
	if (!shared_is_home(j, s))
		shared_doubt(s);
}

static void drop_pages(struct job *j, struct shared *s, void *arg)
{
	(void)arg;
	if (j->opt.invalidate)
		j->opt.invalidate(s->ino, true, j->opt.arg);
}

void share_drop_pages(struct job *j, void *arg)
{
	(void)arg;
	shared_each(j, drop_pages, NULL);
}

static void share_event(struct job *j, enum peers_event event, uint32_t node)
{
	struct share *sh = j->share;

	if (event == PEERS_ASSEMBLED) {
		shared_each(j, disbelieve, NULL);
		if (workers_do(sh->tellers, share_drop_pages, NULL) < 0)
			job_log(j, true, "pages_kept", "text=\"out of memory\"");
	}
	if (event == PEERS_RESTARTED)
		shared_each(j, note_restart, &node);
	if (event == PEERS_RESTARTED || event == PEERS_GONE)
		registry_forget_node(j, node);
	pthread_mutex_lock(&sh->wake);
	sh->sweep |= event == PEERS_RESTARTED;
	pthread_mutex_unlock(&sh->wake);
	share_poke(j);
}

/* ---- life */

static int share_create(struct job *j, struct cistern_error *err)
{
	struct share *sh = calloc(1, sizeof(*sh));

	if (!sh)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	j->share = sh;
	sh->j = j;
	sh->sweep = true;
	sh->begun_usec = clock_usec();
	sh->lost_power = store_lost_power(j->opt.store);
	sh->tell_usec = SHARE_TELL_USEC;
	STAILQ_INIT(&sh->closings);
	pthread_mutex_init(&sh->table, NULL);
	pthread_mutex_init(&sh->hold_lock, NULL);
	pthread_mutex_init(&sh->wake, NULL);
	pthread_cond_init(&sh->wake_cond, NULL);
	sh->buckets = calloc(BUCKETS, sizeof(struct shared *));
	int rc = sh->buckets ? workers_create(j, &sh->tellers) : -ENOMEM;
	rc = rc ? rc : workers_create(j, &sh->showers);
	rc = rc ? rc : workers_create(j, &sh->drivers);
	rc = rc ? rc : ahead_create(j, &sh->ahead);
	rc = rc ? rc : catch_up_create(j, &sh->catch_up);
	if (rc < 0)
		return cistern_error_set(err, rc, "cannot start threads: out of memory");
	store_set_grace(j->opt.store, PLACE_GRACE_USEC);
	store_hold_freed(j->opt.store, 0); /* until all layers have been told */
	core_set_job(j->core, registry_gone, j);
	rc = -pthread_create(&sh->thread, NULL, share_main, sh);
	if (rc < 0)
		return cistern_error_set(err, rc, "cannot start a thread");
	sh->has_thread = true;
	return 0;
}

static void share_shut_down(struct job *j)
{
	struct share *sh = j->share;

	if (!sh)
		return;
	pthread_mutex_lock(&sh->wake);
	sh->ending = true;
	pthread_cond_broadcast(&sh->wake_cond);
	pthread_mutex_unlock(&sh->wake);
}

static void share_destroy(struct job *j)
{
	struct share *sh = j->share;

	if (!sh)
		return;
	share_shut_down(j);
	if (sh->has_thread)
		pthread_join(sh->thread, NULL);
	catch_up_destroy(sh->catch_up);
	workers_destroy(sh->drivers);
	workers_destroy(sh->showers);
	workers_destroy(sh->tellers);
	ahead_destroy(sh->ahead);
	closings_drop(j);
	for (size_t i = 0; sh->buckets && i < BUCKETS; i++)
		while (sh->buckets[i]) {
			struct shared *s = sh->buckets[i];

			sh->buckets[i] = s->next;
			if (s->layer)
				core_release(j->core, s->layer);
			if (s->anchor)
				core_release(j->core, s->anchor);
			shared_free(s);
		}
	free(sh->buckets);
	core_set_job(j->core, NULL, NULL);
	free(sh->gone);
	pthread_mutex_destroy(&sh->table);
	pthread_mutex_destroy(&sh->hold_lock);
	pthread_mutex_destroy(&sh->wake);
	pthread_cond_destroy(&sh->wake_cond);
	free(sh);
	j->share = NULL;
}

const struct part share_part = {
	.create = share_create, .shut_down = share_shut_down, .destroy = share_destroy, .event = share_event
};
