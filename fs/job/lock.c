/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Locks of the whole job, where the applications are. A request goes to the home of its file, which answers at once, if
 * only that the request waits; the grant is told later. What other homes have granted is kept here as well, so that it can
 * be told again to a home whose daemon was restarted. A lock is in that copy from when we hear that it was granted until we
 * ask for its end, so the copy never has more than what the application may believe to hold.
 *
 * When it is not known whether the home has acted (its answer did not come in time), the application is told that there is no
 * lock, and the home, whenever it hears us again, to make it so (FIX). When the home is lost for good, so are its locks:
 * their owners get no new ones of that file before they have closed it.
 */
#include "fs/job/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>

#include "format/base/array.h"
#include "format/base/clock.h"

int64_t lock_now_usec(void)
{
	return (int64_t)clock_usec();
}

int locks_know_nodes(struct locks *l)
{
	uint32_t num = peers_count(l->j->peers);

	if (l->epochs)
		return 0;
	free(l->asked);
	free(l->told);
	free(l->unsaid);
	free(l->gone);
	l->gone = calloc(num, sizeof(*l->gone));
	l->asked = calloc(num, sizeof(*l->asked));
	l->told = calloc(num, sizeof(*l->told));
	l->unsaid = calloc(num, sizeof(*l->unsaid));
	for (uint32_t i = 0; l->unsaid && i < num; i++)
		TAILQ_INIT(&l->unsaid[i]);
	if (l->gone && l->asked && l->told && l->unsaid)
		l->epochs = calloc(num, sizeof(*l->epochs));
	return l->epochs ? 0 : -ENOMEM;
}

/* ---- operations */

static struct lock_op *find_op(struct locks *l, uint64_t id)
{
	struct lock_op *op;

	TAILQ_FOREACH(op, &l->ops, in_list)
	if (op->id == id)
		return op;
	return NULL;
}

static bool is_here(const struct locks *l, const struct lock_op *op)
{
	return op->home == peers_self(l->j->peers);
}

void op_put(struct lock_op *op)
{
	struct locks *l = op->l;

	pthread_mutex_lock(&l->lock);
	bool last = --op->refs == 0;
	pthread_mutex_unlock(&l->lock);
	if (last)
		free(op);
}

void op_end(struct locks *l, struct lock_op *op, int status)
{
	if (op->ended)
		return;
	op->ended = true;
	op->status = status;
	TAILQ_REMOVE(&l->ops, op, in_list);
	out_done(l, op);
}

void op_waits(struct locks *l, uint64_t id)
{
	struct lock_op *op = find_op(l, id);

	if (op)
		op->in_line = true;
}

/* ---- what we hold elsewhere */

struct pick { /* of it */
	struct locks *l;
	struct lock like; /* ino, owner, range; or */
	uint32_t home;
	struct lock *at; /* owned */
	size_t num, cap;
};

static int pick(struct pick *p, const struct lock *lock)
{
	if (array_room(&p->at, &p->cap, p->num, sizeof(*p->at)) < 0)
		return -ENOMEM;
	p->at[p->num++] = *lock;
	return 0;
}

static bool is_owners(const struct lock *lock, const struct lock *range)
{
	return lock->ino == range->ino && lock->owner == range->owner && lock->flock == range->flock &&
	       lock->start <= range->end && lock->end >= range->start;
}

static int pick_range(const struct lock *held, void *arg)
{
	struct pick *p = arg;
	const struct lock *like = &p->like;
	struct lock part = *held;

	if (!is_owners(held, like))
		return 0;
	if (part.start < like->start)
		part.start = like->start;
	if (part.end > like->end)
		part.end = like->end;
	return pick(p, &part);
}

static int pick_home(const struct lock *held, void *arg)
{
	struct pick *p = arg;

	return remote_home(p->l->j, held->ino) == p->home ? pick(p, held) : 0;
}

static int picked(struct pick *p, int rc, struct lock **ret, size_t *ret_num)
{
	if (rc < 0) {
		free(p->at);
		return rc;
	}
	*ret = p->at;
	*ret_num = p->num;
	return 0;
}

int mine_at(struct locks *l, uint32_t home, struct lock **ret, size_t *ret_num)
{
	struct pick p = { .l = l, .home = home };

	return picked(&p, lock_table_each(l->mine, pick_home, &p), ret, ret_num);
}

int mine_in(struct locks *l, const struct lock *range, struct lock **ret, size_t *ret_num)
{
	struct pick p = { .l = l, .like = *range };
	int rc = pick(&p, range);

	return picked(&p, rc ? rc : lock_table_each(l->mine, pick_range, &p), ret, ret_num);
}

static void drop_mine(struct locks *l, const struct lock *lock)
{
	struct lock none = *lock;

	none.type = LOCK_TYPE_NONE;
	(void)lock_table_force(l->mine, &none);
}

static struct lock_op *first_in_doubt(struct locks *l, const struct lock *range, const struct lock_op *but)
{
	struct lock_op *op;

	TAILQ_FOREACH(op, &l->ops, in_list)
	if (op != but && op->what == LOCK_ASK_SET && op->want.type != LOCK_TYPE_NONE && op->sent &&
		is_owners(&op->want, range))
		break;
	return op;
}

/* What we have not dropped from our copy of it, and has not been asked for, the home has, too. */
static bool is_unchanged(const struct lock_op *op)
{
	return op->what == LOCK_ASK_SET && op->want.type != LOCK_TYPE_NONE && !op->want.flock && !op->sent;
}

/*
 * The home may have done what was asked, and must not: it is told before the application hears of it. What the same owner has asked for in
 * the same place is in doubt, too: the word of what our copy has may come behind its grant.
 */
static void fix(struct locks *l, const struct lock_op *op)
{
	struct lock_op *other;

	if (is_here(l, op) || op->what == LOCK_ASK_GET || is_unchanged(op))
		return;
	struct lock range = word_fix(l, op->home, op->sent ? op->id : 0, &op->want);
	while ((other = first_in_doubt(l, &range, op))) {
		(void)word_fix(l, other->home, other->id, &other->want);
		op_end(l, other, -ENOLCK);
	}
}

/* ---- locks that are lost */

static struct lock_lost **find_lost(struct locks *l, const struct lock *lock)
{
	struct lock_lost **at = &l->lost;

	while (*at && ((*at)->ino != lock->ino || (*at)->owner != lock->owner || (*at)->flock != lock->flock))
		at = &(*at)->next;
	return at;
}

static void lose(struct locks *l, const struct lock *lock)
{
	struct lock_lost **at = find_lost(l, lock), *lost;

	drop_mine(l, lock);
	if (*at)
		return;
	lost = calloc(1, sizeof(*lost));
	if (!lost)
		return;
	*lost = (struct lock_lost){ .ino = lock->ino, .owner = lock->owner, .flock = lock->flock };
	*at = lost;
}

static void forgive(struct locks *l, const struct lock *lock)
{
	struct lock_lost **at = find_lost(l, lock), *lost = *at;

	if (!lost)
		return;
	*at = lost->next;
	free(lost);
}

static void log_lost(struct locks *l, uint32_t home, size_t num)
{
	char name[128];

	if (num > 0)
		job_log(l->j, true, "locks_lost", "node=\"%s\" locks=%zu",
			peers_name(l->j->peers, home, name, sizeof(name)), num);
}

/* The home of these is gone for good. */
static size_t lose_home(struct locks *l, uint32_t home)
{
	struct lock *locks = NULL;
	size_t num = 0;

	(void)mine_at(l, home, &locks, &num);
	for (size_t i = 0; i < num; i++)
		lose(l, &locks[i]);
	free(locks);
	return num;
}

/* ---- asking */

static void send_ask(struct locks *l, struct lock_op *op);

static void finish(struct locks *l, struct lock_op *op, int status, const struct lock *found)
{
	if (found)
		op->found = *found;
	if (status == 0 && op->what == LOCK_ASK_SET && op->want.type != LOCK_TYPE_NONE && !is_here(l, op) &&
		lock_table_force(l->mine, &op->want) < 0) {
		fix(l, op);
		status = -ENOLCK;
	}
	op_end(l, op, status);
}

void op_answered(struct locks *l, uint64_t id, int status, const struct lock *found)
{
	struct lock_op *op = find_op(l, id);

	if (op)
		finish(l, op, status, found);
}

/* The home's daemon was restarted, and has forgotten the request. */
static void ask_again(struct locks *l, struct lock_op *op)
{
	op->in_line = false;
	if (op->cancelled)
		op_end(l, op, -EINTR);
	else
		send_ask(l, op);
}

static void failed(struct locks *l, struct lock_op *op, int status)
{
	if (status == -ECONNRESET) {
		ask_again(l, op);
		return;
	}
	if (status != -EHOSTDOWN && status != -ESHUTDOWN)
		fix(l, op);
	op_end(l, op, op->cancelled ? -EINTR : status == -EAGAIN ? -ENOLCK : status); /* nobody else has it */
}

static void asked(int status, const struct wire_msg *reply, void *arg)
{
	struct lock_op *op = arg;
	struct locks *l = op->l;
	struct lock found;

	pthread_mutex_lock(&l->lock);
	if (op->ended)
		; /* given up, or granted since */
	else if (!reply)
		failed(l, op, status);
	else if (status < 0 || !message_get(reply, MESSAGE_LOCK_WAITS))
		finish(l, op, status, lock_get_one(reply, LOCK_ANY_NODE, &found) == 0 ? &found : NULL);
	else if (op->epoch != l->epochs[op->home])
		ask_again(l, op);
	else
		op->in_line = true;
	locks_leave(l);
	op_put(op);
}

static void send_ask(struct locks *l, struct lock_op *op)
{
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_LOCK_ASK);
	message_put(&m, MESSAGE_LOCK_WHAT, op->what);
	message_put(&m, MESSAGE_LOCK_ID, op->id);
	message_put(&m, MESSAGE_LOCK_WAITS, op->wait);
	lock_put(&m, &op->want, 1);
	op->epoch = l->epochs[op->home];
	out_call(l, op->home, &m, op, asked);
}

static void ask_here(struct locks *l, struct lock_op *op)
{
	struct lock_question *q = calloc(1, sizeof(*q));

	if (!q) {
		op_end(l, op, -ENOLCK);
		return;
	}
	*q = (struct lock_question){ .what = op->what, .want = op->want, .id = op->id, .wait = op->wait };
	home_ask(l, q);
}

/* What is given up is so from now on, whatever becomes of the message. */
static void ask(struct locks *l, struct lock_op *op)
{
	const struct lock *w = &op->want;
	bool had = true;

	if (op->what == LOCK_ASK_DROP) {
		forgive(l, w);
		had = is_here(l, op) ||
		      lock_table_drop_owner(l->mine, w->ino, w->flock, w->node, w->owner, lock_now_usec());
	} else if (op->what == LOCK_ASK_SET) {
		if (*find_lost(l, w) && w->type != LOCK_TYPE_NONE) {
			op_end(l, op, -ENOLCK);
			return;
		}
		if (w->type == LOCK_TYPE_NONE || w->flock)
			drop_mine(l, w);
	}
	if (!had)
		op_end(l, op, 0);
	else if (is_here(l, op))
		ask_here(l, op);
	else
		send_ask(l, op);
}

/* ---- giving up waiting */

static void cancelled(int status, const struct wire_msg *reply, void *arg)
{
	struct lock_op *op = arg;
	struct locks *l = op->l;

	(void)status;
	pthread_mutex_lock(&l->lock);
	if (op->ended) {
		; /* it was granted, or refused, before */
	} else if (reply && message_get(reply, MESSAGE_LOCK_WAITS)) {
		op_end(l, op, -EINTR);
	} else if (!reply) {
		fix(l, op);
		op_end(l, op, -EINTR);
	} /* else the grant is on its way */
	locks_leave(l);
	op_put(op);
}

void job_lock_cancel(struct job *j, uint64_t id)
{
	struct locks *l = j->locks;
	struct wire_msg m = { 0 };

	pthread_mutex_lock(&l->lock);
	struct lock_op *op = find_op(l, id);
	if (op && !op->cancelled) {
		op->cancelled = true;
		if (!op->asked) {
			; /* whoever begins it sees that */
		} else if (!is_here(l, op)) {
			message_init(&m, MESSAGE_LOCK_CANCEL);
			message_put(&m, MESSAGE_LOCK_ID, id);
			out_call(l, op->home, &m, op, cancelled);
		} else if (home_cancel(l, op->home, id)) {
			op_end(l, op, -EINTR);
			home_set_timer(l);
		}
	}
	locks_leave(l);
}

/* ---- beginning */

/* NULL: no memory. */
static struct lock_op *new_op(struct locks *l, enum lock_what what, const struct lock *want)
{
	struct lock_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->l = l;
	op->what = what;
	op->want = *want;
	op->refs = 1;
	return op;
}

static void begin_op(struct locks *l, struct lock_op *op, int (*begun)(uint64_t id, void *arg), void *arg)
{
	pthread_mutex_lock(&l->lock);
	int rc = l->ending ? -ESHUTDOWN : locks_know_nodes(l);
	op->id = ++l->last_id;
	op->home = remote_home(l->j, op->want.ino);
	TAILQ_INSERT_TAIL(&l->ops, op, in_list);
	if (begun && rc == 0) {
		pthread_mutex_unlock(&l->lock);
		rc = begun(op->wait ? op->id : 0, arg);
		pthread_mutex_lock(&l->lock);
		rc = op->cancelled ? -EINTR : rc;
	}
	op->asked = true;
	if (op->ended)
		; /* by shutting down */
	else if (rc < 0)
		op_end(l, op, rc);
	else
		ask(l, op);
	locks_leave(l);
}

struct wait_for {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	int status;
	struct lock found;
};

static void wake(struct lock_op *op)
{
	struct wait_for *w = op->arg;

	pthread_mutex_lock(&w->lock);
	w->status = op->status;
	w->found = op->found;
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static int ask_and_wait(struct locks *l, enum lock_what what, const struct lock *want, struct lock *ret_found)
{
	struct wait_for w = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
	struct lock_op *op = new_op(l, what, want);

	if (!op)
		return -ENOLCK;
	op->done = wake;
	op->arg = &w;
	begin_op(l, op, NULL, NULL);
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	if (ret_found)
		*ret_found = w.found;
	return w.status;
}

/* ---- what the applications call */

/* What fails between the nodes is, to the application, a lock that cannot be had; the log says more. */
static int as_errno(int rc)
{
	switch (rc) {
	case -EAGAIN:
	case -EDEADLK:
	case -EINTR:
	case 0: return rc;
	default: return -ENOLCK;
	}
}

static struct lock make_lock(struct job *j, uint64_t ino, const struct job_lock *lock)
{
	return (struct lock){
		.ino = ino,
		.owner = lock->owner,
		.start = lock->flock ? 0 : lock->start,
		.end = lock->flock ? UINT64_MAX : lock->end,
		.node = peers_self(j->peers),
		.pid = lock->pid,
		.type = lock->type == F_RDLCK   ? LOCK_TYPE_READ
			: lock->type == F_WRLCK ? LOCK_TYPE_WRITE
						: LOCK_TYPE_NONE,
		.flock = lock->flock,
	};
}

int job_getlk(struct job *j, uint64_t ino, struct job_lock *lock)
{
	struct lock found;
	int rc = job_wait_numbered(j);

	if (rc == 0) {
		struct lock want = make_lock(j, ino, lock);

		rc = ask_and_wait(j->locks, LOCK_ASK_GET, &want, &found);
	}
	if (rc < 0)
		return as_errno(rc);
	if (found.type == LOCK_TYPE_NONE) {
		lock->type = F_UNLCK;
		return 0;
	}
	lock->type = found.type == LOCK_TYPE_READ ? F_RDLCK : F_WRLCK;
	lock->start = found.start;
	lock->end = found.end;
	lock->pid = found.node == peers_self(j->peers) ? found.pid : 0;
	return 0;
}

static void call_done(struct lock_op *op)
{
	op->user_done(as_errno(op->status), op->arg);
}

void job_setlk(struct job *j, uint64_t ino, const struct job_lock *lock, bool wait,
	int (*begun)(uint64_t id, void *arg), job_lock_done done, void *arg)
{
	int rc = job_wait_numbered(j);
	struct lock want = make_lock(j, ino, lock);
	struct lock_op *op = rc == 0 ? new_op(j->locks, LOCK_ASK_SET, &want) : NULL;

	if (!op) {
		done(-ENOLCK, arg);
		return;
	}
	op->wait = wait;
	op->done = call_done;
	op->user_done = done;
	op->arg = arg;
	begin_op(j->locks, op, begun, arg);
}

int job_lock_drop(struct job *j, uint64_t ino, uint64_t owner, bool flock)
{
	if (job_alone(j) || !peers_numbered(j->peers))
		return 0;
	struct lock want = make_lock(
		j, ino, &(struct job_lock){ .owner = owner, .end = UINT64_MAX, .type = F_UNLCK, .flock = flock });
	return as_errno(ask_and_wait(j->locks, LOCK_ASK_DROP, &want, NULL));
}

/* ---- what homes say */

void lock_serve_granted(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	struct locks *l = j->locks;

	pthread_mutex_lock(&l->lock);
	op_answered(l, message_get(m, MESSAGE_LOCK_ID), -(int)message_get(m, MESSAGE_LOCK_ERRNO), NULL);
	out_reply(l, rq, 0, false, NULL);
	locks_leave(l);
}

void lock_serve_reclaim(struct job *j, struct peers_request *rq)
{
	struct locks *l = j->locks;

	pthread_mutex_lock(&l->lock);
	(void)locks_know_nodes(l);
	word_held(l, peers_from(rq));
	out_reply(l, rq, 0, false, NULL);
	locks_leave(l);
}

static int is_of_owner(const struct lock *held, void *arg)
{
	const struct lock *lost = arg;

	return held->ino == lost->ino && held->owner == lost->owner && held->flock == lost->flock &&
	       held->start <= lost->end && held->end >= lost->start;
}

/* Whose owner has it no more has lost nothing: he has closed the file while the word was under way. */
static void take_lost(const struct lock *lock, void *arg)
{
	struct lock lost = *lock;
	struct locks *l = arg;

	if (lock_table_each(l->mine, is_of_owner, &lost))
		lose(l, lock);
}

void lock_serve_lost(struct job *j, struct peers_request *rq)
{
	struct locks *l = j->locks;
	uint32_t from = peers_from(rq);

	pthread_mutex_lock(&l->lock);
	(void)lock_get(peers_msg(rq), peers_self(j->peers), take_lost, l);
	out_reply(l, rq, 0, false, NULL);
	locks_leave(l);
	log_lost(l, from, 1);
}

/* ---- what happens to nodes */

/*
 * Its daemon may be the one that was given up, and keep for us what is lost. What has been asked of it before we know that goes with it; what it
 * has granted since is told.
 */
static void home_back(struct locks *l, uint32_t node)
{
	struct wire_msg m = { 0 };
	struct lock_op *op, *next;

	l->gone[node] = false;
	for (op = TAILQ_FIRST(&l->ops); op; op = next) {
		next = TAILQ_NEXT(op, in_list);
		if (op->home == node && op->sent && op->what == LOCK_ASK_SET && op->want.type != LOCK_TYPE_NONE)
			op_end(l, op, -ENOLCK);
	}
	message_init(&m, MESSAGE_LOCK_FORGET);
	(void)out_tell(l, node, &m);
	word_held(l, node);
}

static void home_restarted(struct locks *l, uint32_t node)
{
	struct lock_op *op, *next;

	if (l->gone[node])
		home_back(l, node);
	for (op = TAILQ_FIRST(&l->ops); op; op = next) {
		next = TAILQ_NEXT(op, in_list);
		if (op->home == node && op->in_line)
			ask_again(l, op);
	}
	home_forget(l, node);
	if (l->asked[node])
		home_ask_node(l, node);
}

static size_t home_gone(struct locks *l, uint32_t node)
{
	struct lock_op *op, *next;

	for (op = TAILQ_FIRST(&l->ops); op; op = next) {
		next = TAILQ_NEXT(op, in_list);
		if (op->home == node && op->in_line)
			op_end(l, op, -EHOSTDOWN);
	}
	home_forget(l, node);
	if (l->asked[node])
		home_told(l, node);
	l->gone[node] = true;
	return lose_home(l, node);
}

static void locks_event(struct job *j, enum peers_event event, uint32_t node)
{
	struct locks *l = j->locks;
	size_t lost = 0;

	if (event != PEERS_RESTARTED && event != PEERS_GONE)
		return;
	pthread_mutex_lock(&l->lock);
	if (l->epochs) { /* else there are no locks yet */
		l->epochs[node]++;
		words_void(l, node);
		if (event == PEERS_RESTARTED)
			home_restarted(l, node);
		else
			lost = home_gone(l, node);
	}
	locks_leave(l);
	log_lost(l, node, lost);
}

/* ---- life */

static int create_tables(struct locks *l)
{
	pthread_condattr_t attr;
	int rc = lock_table_create(home_granted, l, &l->table);

	rc = rc ? rc : lock_table_create(home_granted, l, &l->mine); /* where nobody waits */
	if (rc < 0)
		return rc;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->tick, &attr);
	pthread_condattr_destroy(&attr);
	rc = -pthread_create(&l->timer, NULL, home_timer, l);
	l->has_timer = rc == 0;
	return rc;
}

static int locks_create(struct job *j, struct cistern_error *err)
{
	struct locks *l = calloc(1, sizeof(*l));

	if (!l)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	j->locks = l;
	l->j = j;
	TAILQ_INIT(&l->out);
	TAILQ_INIT(&l->ops);
	TAILQ_INIT(&l->kept);
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->idle, NULL);
	int rc = create_tables(l);
	return rc < 0 ? cistern_error_set(err, rc, "cannot begin to keep locks") : 0;
}

static void locks_shut_down(struct job *j)
{
	struct locks *l = j->locks;
	struct lock_question *q;

	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->ending = true;
	while (!TAILQ_EMPTY(&l->ops))
		op_end(l, TAILQ_FIRST(&l->ops), -ESHUTDOWN);
	while ((q = TAILQ_FIRST(&l->kept))) {
		TAILQ_REMOVE(&l->kept, q, in_list);
		if (q->rq)
			out_reply(l, q->rq, -ESHUTDOWN, false, NULL);
		free(q->list);
		free(q);
	}
	pthread_cond_signal(&l->tick);
	locks_leave(l);
}

static void locks_destroy(struct job *j)
{
	struct locks *l = j->locks;

	if (!l)
		return;
	locks_shut_down(j);
	if (l->has_timer)
		pthread_join(l->timer, NULL);
	pthread_mutex_lock(&l->lock);
	while (l->leaving)
		pthread_cond_wait(&l->idle, &l->lock);
	pthread_mutex_unlock(&l->lock);
	for (uint32_t i = 0; l->num_unsaid > 0; i++)
		words_void(l, i);
	for (struct lock_lost *lost = l->lost, *next; lost; lost = next) {
		next = lost->next;
		free(lost);
	}
	lock_table_destroy(l->table);
	lock_table_destroy(l->mine);
	free(l->epochs);
	free(l->asked);
	free(l->told);
	free(l->unsaid);
	free(l->gone);
	pthread_cond_destroy(&l->idle);
	if (l->has_timer)
		pthread_cond_destroy(&l->tick);
	pthread_mutex_destroy(&l->lock);
	free(l);
	j->locks = NULL;
}

const struct part locks_part = {
	.create = locks_create,
	.shut_down = locks_shut_down,
	.destroy = locks_destroy,
	.event = locks_event,
};
