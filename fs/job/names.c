/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The server of names (docs/design/many-nodes.md, 3): for each name that hashes to this node, which file it is, and who is
 * just changing it. It lives in memory. Truth is what the homes' states say; here it is made sure that a name is in
 * one hand at a time, and that nobody sees it while it changes.
 *
 * A lock ends with what is there then; or, when that is not known or its owner is gone, the entry (names_table.h) becomes our own until the
 * homes have said it (rebuild.c). A daemon that has just begun answers nobody before all nodes have told their names and locks.
 *
 * A node that was given up may have a name that nobody else has: what it has not told, or could not be asked for, is neither there nor free until
 * it is back, and who asks gets EIO.
 *
 * A name that a file has left for another one (POINTER left) is known as such until its home has that on its device: an entry stays for it.
 * When there are many, and when nothing is known yet, all homes are asked to sync.
 *
 * One lock for all of it; it is a leaf but for the state's, and never held while somebody is answered.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/job/names_table.h"
#include "fs/job/private.h"

#define NAMES_LEFT_MAX   16384u /* names that are kept for what has left them */
#define NAMES_AGAIN_USEC 10000u
#define NAMES_OWN_ID     1u /* lock id of ours, for names in doubt; those of operations are higher */

struct early { /* an UNLOCK that came before we were ready */
	struct early *next;
	struct peers_request *rq;
};

struct names {
	struct job *j;
	pthread_mutex_t lock;
	bool ready;
	bool refused; /* it is not, and a node does not tell */
	bool lacks;   /* a node that was given up has not told: what nobody else has may be its */
	uint64_t stamp;
	uint64_t round;  /* of sweeps; who sweeps reads it without the lock, since it stays until he ends */
	size_t in_doubt; /* entries that are being asked for */
	bool sweeping;
	bool unsure; /* what was left before we began is not known */
	bool ahead;  /* somebody waits for a directory that our tree does not have yet */
	struct early *early;
	struct names_table table;
};

/* ---- who waits; lock is held. Those that are answered go to done */

static void answer(struct name_entry *e, struct names_waiter **at, int status, struct names_waiter ***done)
{
	struct names_waiter *w = *at;

	*at = w->next;
	if (!*at)
		e->last = at;
	w->status = status;
	w->at = e->at;
	w->next = NULL;
	**done = w;
	*done = &w->next;
}

static bool is_same_lock(const struct name_entry *e, const struct names_waiter *w)
{
	return e->id && w->what == NAMES_LOCK && e->node == w->node && e->id == w->id;
}

/* A node that was given up may have it. Not what is a directory, which we would know. */
static bool may_be_elsewhere(struct names *n, const struct name_entry *e)
{
	struct state_name there;

	return !e->at.ino && (n->lacks || e->lacking) &&
	       !(state_lookup(n->j->state, e->dir->ino, e->name, &there) == 0 && there.type == S_IFDIR);
}

/* May it have its answer? 1: yes; 0: it waits; else the error that it gets. */
static int admit(struct names *n, struct name_entry *e, struct names_waiter *w)
{
	if (!n->ready || e->refused)
		return -EIO;
	if (is_same_lock(e, w)) /* asked again: the first answer was lost, or it takes long */
		return 1;
	if (w->renews)
		return -ECANCELED;
	if (e->id)
		return 0;
	if (may_be_elsewhere(n, e))
		return -EIO;
	if (w->what == NAMES_LOOKUP)
		return 1;
	if (e->dir->closed)
		return 0;
	bool ahead = w->tree > state_tree_stamp(n->j->state); /* first: it may be here just now */
	int known = core_is_known(n->j->core, e->dir->ino);
	if (known == 0) {
		n->ahead |= ahead;
		return ahead ? 0 : -ENOENT;
	}
	if (known < 0)
		return -EIO;
	name_entry_set_owner(e, w->node, w->id);
	return 1;
}

/* Who has it may be given up node_timeout after he was there last, and so before the end of that (late.c), if he is missing. */
static uint64_t lock_end_usec(struct names *n, uint32_t node, uint64_t now_usec)
{
	uint64_t timeout_usec = peers_missing_usec(n->j->peers);
	struct peers_node owner = { 0 };

	(void)peers_nodes(n->j->peers, node, &owner, 1);
	return now_usec + timeout_usec / 2 - (owner.gone ? timeout_usec : owner.missing_usec);
}

/* What is known of the name, and what is not. */
static void complete_lock(struct names *n, const struct name_entry *e, struct names_waiter *w)
{
	uint64_t now = (uint64_t)clock_now(state_clock(n->j->state));

	if (n->stamp <= e->at.stamp)
		n->stamp = e->at.stamp;
	n->stamp = now > n->stamp ? now : n->stamp + 1;
	w->stamp = n->stamp;
	w->until_usec = lock_end_usec(n, w->node, now / 1000);
}

static void serve_waiters(struct names *n, struct name_entry *e, struct names_waiter ***done)
{
	struct names_waiter **at = &e->first;

	while ((n->ready || n->refused) && *at) {
		struct names_waiter *w = *at;
		int verdict = admit(n, e, w);

		if (verdict == 0) { /* first come, first served; but who has the lock may ask again */
			at = &(*at)->next;
			continue;
		}
		if (verdict > 0 && w->what == NAMES_LOCK)
			complete_lock(n, e, w);
		answer(e, at, verdict < 0 ? verdict : 0, done);
		if (n->unsure && !w->at.left)
			w->at.left = POINTER_LEFT_ANY;
		at = &e->first;
		if (!e->id || verdict < 0)
			continue;
		while (*at && !is_same_lock(e, *at))
			at = &(*at)->next;
	}
}

static void run_done(struct names_waiter *w)
{
	while (w) {
		struct names_waiter *next = w->next;

		w->done(w);
		w = next;
	}
}

void names_ask(struct names *n, uint64_t dir, const char *name, struct names_waiter *w)
{
	struct names_waiter *done = NULL, **last = &done;

	pthread_mutex_lock(&n->lock);
	struct name_entry *e = names_table_make(&n->table, dir, name);
	w->next = NULL;
	if (e) {
		bool waits = n->ready && !e->refused && e->id && !is_same_lock(e, w) && !w->renews;

		*e->last = w;
		e->last = &w->next;
		if (!waits) /* else those before it do so, too */
			serve_waiters(n, e, &last);
		names_table_drop(&n->table, e);
	} else {
		w->status = -ENOMEM;
		done = w;
	}
	pthread_mutex_unlock(&n->lock);
	run_done(done);
}

uint64_t names_peek(struct names *n, uint64_t dir, const char *name)
{
	pthread_mutex_lock(&n->lock);
	const struct name_entry *e = n->ready ? names_table_find(&n->table, dir, name) : NULL;
	uint64_t ino = e && !e->id && !e->refused ? e->at.ino : 0;
	pthread_mutex_unlock(&n->lock);
	return ino;
}

/* The lock of e ends. lock is held. */
static void free_lock(struct names *n, struct name_entry *e, const struct pointer *at, struct names_waiter ***done)
{
	e->left_round = n->round;
	name_entry_set_pointer(&n->table, e, at);
	name_entry_set_owner(e, 0, 0);
	serve_waiters(n, e, done);
	names_table_drop(&n->table, e);
}

/* A lock that was given up before it was given. */
static void withdraw(struct names *n, struct name_entry *e, uint32_t node, uint64_t id, struct names_waiter ***done)
{
	for (struct names_waiter **at = &e->first; *at;)
		if ((*at)->what == NAMES_LOCK && (*at)->node == node && (*at)->id == id)
			answer(e, at, -ECANCELED, done);
		else
			at = &(*at)->next;
	names_table_drop(&n->table, e);
}

/* e becomes ours until the homes have said what it is. lock is held; rebuild_name is to be called without it. */
static bool take_over(struct names *n, struct name_entry *e)
{
	bool news = !e->doubted;

	name_entry_set_owner(e, peers_self(n->j->peers), NAMES_OWN_ID);
	e->doubted = true;
	n->in_doubt += news;
	return news;
}

/* ---- what has left its name is made durable, so that this need not be known any more */

struct sweep {
	struct names *n;
	pthread_mutex_t lock;
	uint32_t missing;
	bool failed;
	uint64_t round;
};

static void sweep(struct job *j, void *arg);

/* lock is held. */
static bool begins_sweep(struct names *n, bool wanted)
{
	bool begins = wanted && !n->sweeping;

	if (begins) {
		n->sweeping = true;
		n->round++;
	}
	return begins;
}

static void clear_left(struct names *n, uint64_t before)
{
	for (size_t i = 0; i < NAMES_BUCKETS; i++)
		for (struct name_entry *e = n->table.entries[i], *next; e; e = next) {
			struct pointer now = e->at;

			next = e->next;
			if (!now.left || e->left_round >= before)
				continue;
			now.left = 0;
			name_entry_set_pointer(&n->table, e, &now);
			names_table_drop(&n->table, e);
		}
}

static void sweep_end(struct job *j, struct sweep *s)
{
	struct names *n = s->n;

	pthread_mutex_lock(&n->lock);
	if (!s->failed) {
		n->unsure = false;
		clear_left(n, s->round);
	}
	n->sweeping = false;
	bool again = begins_sweep(n, n->unsure && !j->ending);
	pthread_mutex_unlock(&n->lock);
	pthread_mutex_destroy(&s->lock);
	free(s);
	if (again && workers_do(j->workers, sweep, NULL) < 0)
		job_log(j, true, "names_unsure", "text=\"out of memory\"");
}

/* A device that fails will not make it durable, however often it is asked. */
static bool comes_to_nothing(int status)
{
	return status == -ECONNRESET || status == -ETIMEDOUT || status == -EAGAIN || status == -ENOMEM;
}

static void sweep_done(int status, const struct wire_msg *reply, void *arg)
{
	struct sweep *s = arg;

	(void)reply;
	pthread_mutex_lock(&s->lock);
	s->failed |= comes_to_nothing(status);
	bool last = --s->missing == 0;
	pthread_mutex_unlock(&s->lock);
	if (last)
		sweep_end(s->n->j, s);
}

/* All homes; begins_sweep() has said so. */
static void sweep_all(struct job *j)
{
	struct sweep *s = calloc(1, sizeof(*s));
	uint32_t num = peers_count(j->peers);
	struct wire_msg m = { 0 };

	if (!s) {
		pthread_mutex_lock(&j->names->lock);
		j->names->sweeping = false;
		pthread_mutex_unlock(&j->names->lock);
		job_log(j, true, "names_unsure", "text=\"out of memory\"");
		return;
	}
	*s = (struct sweep){ .n = j->names, .missing = num, .round = j->names->round };
	pthread_mutex_init(&s->lock, NULL);
	message_init(&m, MESSAGE_SYNC);
	for (uint32_t node = 0; node < num; node++) {
		int rc = peers_call_async(j->peers, node, &m, sweep_done, s);

		if (rc < 0)
			sweep_done(rc, NULL, s);
	}
	wire_msg_free(&m);
}

/* Again, in a worker. */
static void sweep(struct job *j, void *arg)
{
	(void)arg;
	usleep(NAMES_AGAIN_USEC);
	sweep_all(j);
}

void names_release(
	struct names *n, uint32_t node, uint64_t id, uint64_t dir, const char *name, const struct pointer *at)
{
	struct names_waiter *done = NULL, **last = &done;
	bool ask = false;

	pthread_mutex_lock(&n->lock);
	struct name_entry *e = names_table_find(&n->table, dir, name);
	if (e && (e->id != id || e->node != node))
		withdraw(n, e, node, id, &last);
	else if (e && at && !e->over)
		free_lock(n, e, at, &last);
	else if (e)
		ask = take_over(n, e);
	uint32_t late = ask ? e->late : 0;
	bool full = begins_sweep(n, n->table.lefts > NAMES_LEFT_MAX);
	pthread_mutex_unlock(&n->lock);
	run_done(done);
	if (ask)
		rebuild_name(n->j, dir, name, late);
	if (full)
		sweep_all(n->j);
}

void names_doubt(struct names *n, uint64_t dir, const char *name)
{
	pthread_mutex_lock(&n->lock);
	struct name_entry *e = n->ready ? names_table_find(&n->table, dir, name) : NULL;
	bool ask = e && !e->id && take_over(n, e);
	uint32_t late = ask ? e->late : 0;
	pthread_mutex_unlock(&n->lock);
	if (ask)
		rebuild_name(n->j, dir, name, late);
}

/* Of several that tell the same name. lock is held; not ready. */
static void note_told(struct names *n, struct name_entry *e, const struct pointer *at)
{
	struct pointer now = *at;
	bool other = e->at.ino && (!now.ino || now.stamp < e->at.stamp);

	if (e->at.ino && now.ino && e->at.ino != now.ino)
		e->doubted = true; /* two homes have it: names_told_all asks them */
	if (other) {
		now.ino = e->at.ino;
		now.stamp = e->at.stamp;
	}
	now.hidden |= e->at.hidden;
	name_entry_set_pointer(&n->table, e, &now);
	if (n->stamp < now.stamp)
		n->stamp = now.stamp;
}

/* What a home has that we know otherwise. That it hides the backing name of its own file it says when the name goes. */
static bool differs(const struct names *n, const struct name_entry *e, uint32_t home, const struct pointer *claim)
{
	if (claim->ino)
		return e->at.ino != claim->ino || e->at.stamp != claim->stamp;
	return claim->hidden && !e->at.hidden && !(e->at.ino && place_ino(e->at.ino, peers_count(n->j->peers)) == home);
}

void names_claim(struct names *n, uint32_t home, uint64_t dir, const char *name, const struct pointer *claim)
{
	bool ask = false;

	pthread_mutex_lock(&n->lock);
	struct name_entry *e = names_table_make(&n->table, dir, name);
	if (e && !n->ready)
		note_told(n, e, claim);
	else if (e && e->id)
		e->over |= !e->doubted || differs(n, e, home, claim); /* asked for when the lock, or the doubt, ends */
	else if (e && differs(n, e, home, claim))
		ask = take_over(n, e);
	uint32_t late = ask ? e->late : 0;
	pthread_mutex_unlock(&n->lock);
	if (ask)
		rebuild_name(n->j, dir, name, late);
}

size_t names_in_doubt(struct names *n)
{
	pthread_mutex_lock(&n->lock);
	size_t num = n->in_doubt;
	pthread_mutex_unlock(&n->lock);
	return num;
}

void names_settled(struct names *n, uint64_t dir, const char *name, const struct pointer *at, bool lacking)
{
	struct names_waiter *done = NULL, **last = &done;

	pthread_mutex_lock(&n->lock);
	struct name_entry *e = names_table_find(&n->table, dir, name);
	bool again = e && e->doubted && e->over;
	uint32_t late = again ? e->late : 0;
	if (again) {
		e->over = false;
	} else if (e && e->doubted) {
		struct pointer now = *at;

		now.hidden |= e->at.hidden;
		now.left = POINTER_LEFT_ANY; /* what its last owner did is not known */
		e->doubted = e->refused = false;
		e->late = 0;
		n->in_doubt--;
		name_entry_set_lacking(&n->table, e, lacking && !now.ino);
		free_lock(n, e, &now, &last);
	}
	pthread_mutex_unlock(&n->lock);
	run_done(done);
	if (again)
		rebuild_name(n->j, dir, name, late);
}

static void serve_all(struct names *n, struct names_waiter ***done);

void names_refused(struct names *n, uint64_t dir, const char *name)
{
	struct names_waiter *done = NULL, **last = &done;

	pthread_mutex_lock(&n->lock);
	struct name_entry *e = name ? names_table_find(&n->table, dir, name) : NULL;
	if (e && e->doubted) {
		e->refused = true;
		serve_waiters(n, e, &last);
	}
	if (!name && !n->ready) {
		n->refused = true;
		serve_all(n, &last);
	}
	pthread_mutex_unlock(&n->lock);
	run_done(done);
}

/* ---- directories that go */

int names_close_dir(struct names *n, uint64_t dir)
{
	int rc = 0;

	pthread_mutex_lock(&n->lock);
	struct name_dir *d = names_table_dir(&n->table, dir, true);
	if (!n->ready)
		rc = n->refused ? -EIO : -EBUSY;
	else if (!d)
		rc = -ENOMEM;
	else if (d->files)
		rc = -ENOTEMPTY;
	else if (n->lacks || d->lacking)
		rc = -EIO;
	else if (d->locked)
		rc = -EBUSY;
	else
		names_table_close_dir(&n->table, d);
	if (rc < 0 && d)
		names_table_drop_dir(&n->table, d);
	pthread_mutex_unlock(&n->lock);
	return rc;
}

/* lock is held. */
static void serve_all(struct names *n, struct names_waiter ***done)
{
	for (size_t i = 0; i < NAMES_BUCKETS; i++)
		for (struct name_entry *e = n->table.entries[i], *next; e; e = next) {
			next = e->next;
			if (e->first) {
				serve_waiters(n, e, done);
				names_table_drop(&n->table, e);
			}
		}
}

/* It is gone: what was hidden in it is not there to be seen, and what has left it does not come back to it. lock is held. */
static void forget_name(struct names *n, struct name_entry *e)
{
	if (!e->id)
		name_entry_set_pointer(&n->table, e, &(struct pointer){ .ino = e->at.ino, .stamp = e->at.stamp });
}

static void open_dir(struct names *n, struct name_dir *d, struct names_waiter ***done)
{
	bool gone = d->entries && core_is_known(n->j->core, d->ino) == 0;

	if (!d->entries)
		names_table_drop_dir(&n->table, d);
	else
		for (struct name_entry *e = d->first, *next; e; e = next) {
			next = e->in_dir;
			if (gone)
				forget_name(n, e);
			serve_waiters(n, e, done);
			names_table_drop(&n->table, e);
		}
}

void names_open_dirs(struct names *n)
{
	struct names_waiter *done = NULL, **last = &done;
	struct name_dir *d;

	pthread_mutex_lock(&n->lock);
	while ((d = names_table_open_dir(&n->table)))
		open_dir(n, d, &last);
	pthread_mutex_unlock(&n->lock);
	run_done(done);
}

size_t names_known(struct names *n)
{
	pthread_mutex_lock(&n->lock);
	size_t num = n->table.num;
	pthread_mutex_unlock(&n->lock);
	return num;
}

void names_tree_grown(struct names *n)
{
	struct names_waiter *done = NULL, **last = &done;

	pthread_mutex_lock(&n->lock);
	bool ahead = n->ahead;
	n->ahead = false;
	if (ahead)
		serve_all(n, &last);
	pthread_mutex_unlock(&n->lock);
	run_done(done);
}

/* ---- beginning: the nodes tell */

void names_told(struct names *n, uint64_t dir, const char *name, const struct pointer *at)
{
	pthread_mutex_lock(&n->lock);
	struct name_entry *e = n->ready ? NULL : names_table_make(&n->table, dir, name);
	if (e)
		note_told(n, e, at);
	pthread_mutex_unlock(&n->lock);
}

void names_told_lock(struct names *n, uint64_t dir, const char *name, uint32_t node, const struct told_lock *l)
{
	pthread_mutex_lock(&n->lock);
	struct name_entry *e = n->ready ? NULL : names_table_make(&n->table, dir, name);
	bool better =
		e && (!e->id || (l->needed && !e->needed) || (l->needed == e->needed && l->stamp > e->lock_stamp));
	if (better) {
		name_entry_set_owner(e, node, l->id);
		e->needed = l->needed;
		e->over = !l->needed;
		e->lock_stamp = l->stamp;
	}
	if (n->stamp < l->stamp)
		n->stamp = l->stamp;
	pthread_mutex_unlock(&n->lock);
}

struct told { /* a name that homes are to be asked for, without the lock */
	struct told *next;
	uint64_t dir;
	uint32_t late;
	char name[RECORD_NAME_MAX + 1];
};

static void told_add(struct told **list, const struct name_entry *e)
{
	struct told *t = malloc(sizeof(*t));

	if (!t)
		return; /* the entry stays locked: asked for when its owner asks again */
	t->dir = e->dir->ino;
	t->late = e->late;
	strcpy(t->name, e->name);
	t->next = *list;
	*list = t;
}

static void ask_told(struct names *n, struct told *list)
{
	while (list) {
		struct told *next = list->next;

		rebuild_name(n->j, list->dir, list->name, list->late);
		free(list);
		list = next;
	}
}

void names_told_all(struct names *n)
{
	struct names_waiter *done = NULL, **last = &done;
	struct told *ask = NULL;

	pthread_mutex_lock(&n->lock);
	n->ready = true;
	struct early *early = n->early;
	n->early = NULL;
	for (size_t i = 0; i < NAMES_BUCKETS; i++)
		for (struct name_entry *e = n->table.entries[i]; e; e = e->next) {
			bool twice = e->doubted && !e->id;

			e->over |= e->doubted && e->id; /* asked for when the lock ends */
			e->doubted = false;
			if (twice && take_over(n, e))
				told_add(&ask, e);
		}
	serve_all(n, &last);
	bool sweeps = begins_sweep(n, true);
	pthread_mutex_unlock(&n->lock);
	run_done(done);
	ask_told(n, ask);
	if (sweeps)
		sweep_all(n->j);
	while (early) {
		struct early *next = early->next;

		names_serve_unlock(n->j, early->rq);
		free(early);
		early = next;
	}
}

void names_told_by(struct names *n, bool all)
{
	struct told *ask = NULL;

	pthread_mutex_lock(&n->lock);
	n->lacks = n->lacks && !all;
	for (size_t i = 0; i < NAMES_BUCKETS && (n->table.lacking || n->in_doubt); i++)
		for (struct name_entry *e = n->table.entries[i]; e; e = e->next) {
			if (e->id && (e->lacking || e->doubted))
				e->over = true; /* asked for when the lock, or the doubt, ends */
			else if (e->lacking && take_over(n, e))
				told_add(&ask, e);
		}
	pthread_mutex_unlock(&n->lock);
	ask_told(n, ask);
}

/* A node's daemon is another one, or has gone: what it held is in doubt, and whom it asked for needs no answer. */
static void owner_gone(struct names *n, uint32_t node)
{
	struct names_waiter *done = NULL, **last = &done;
	struct told *ask = NULL;

	pthread_mutex_lock(&n->lock);
	for (size_t i = 0; i < NAMES_BUCKETS; i++)
		for (struct name_entry *e = n->table.entries[i], *next; e; e = next) {
			next = e->next;
			bool owned = e->id && e->node == node && (!n->ready || !e->doubted); /* in doubt it is ours */
			if (owned)
				e->late = node + 1;
			if (owned && n->ready && take_over(n, e))
				told_add(&ask, e);
			if (owned && !n->ready) { /* names_told_all asks */
				name_entry_set_owner(e, 0, 0);
				e->doubted = true;
			}
			for (struct names_waiter **at = &e->first; *at;)
				if ((*at)->node == node)
					answer(e, at, -ECONNRESET, &last);
				else
					at = &(*at)->next;
			names_table_drop(&n->table, e);
		}
	pthread_mutex_unlock(&n->lock);
	run_done(done);
	ask_told(n, ask);
}

/* At once, as LOCK and UNLOCK are served: so it comes between the requests of the two daemons. */
static void names_event(struct job *j, enum peers_event event, uint32_t node)
{
	if (event == PEERS_RESTARTED || event == PEERS_GONE)
		owner_gone(j->names, node);
}

/* ---- the end of a lock, as a message */

/* Kept until we are ready; false: we are. */
static bool is_early(struct names *n, struct peers_request *rq)
{
	struct early *e = NULL;

	pthread_mutex_lock(&n->lock);
	bool early = !n->ready;
	if (early && (e = malloc(sizeof(*e)))) {
		*e = (struct early){ n->early, rq };
		n->early = e;
	}
	pthread_mutex_unlock(&n->lock);
	if (early && !e)
		peers_reply_status(rq, -ECONNRESET); /* say it again */
	return early;
}

void names_serve_unlock(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	bool known = message_get(m, MESSAGE_FLAGS);
	char name[RECORD_NAME_MAX + 1];
	struct pointer at;

	if (is_early(j->names, rq))
		return;
	pointer_get(m, &at);
	if (message_get_str(m, MESSAGE_NAME, name, sizeof(name)))
		names_release(j->names, peers_from(rq), message_get(m, MESSAGE_COUNT), message_get(m, MESSAGE_DIR),
			name, known ? &at : NULL);
	peers_reply_status(rq, 0);
}

/* ---- life */

static int names_create(struct job *j, struct cistern_error *err)
{
	j->names = calloc(1, sizeof(*j->names));
	if (!j->names)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	j->names->j = j;
	j->names->unsure = j->names->lacks = true;
	pthread_mutex_init(&j->names->lock, NULL);
	return 0;
}

static void names_destroy(struct job *j)
{
	struct names *n = j->names;

	if (!n)
		return;
	for (size_t i = 0; i < NAMES_BUCKETS; i++)
		for (struct name_entry *e = n->table.entries[i]; e; e = e->next)
			for (struct names_waiter *w = e->first, *after; w; w = after) {
				after = w->next;
				w->status = -ESHUTDOWN;
				w->done(w);
			}
	names_table_free(&n->table);
	pthread_mutex_destroy(&n->lock);
	free(n);
	j->names = NULL;
}

const struct part names_part = { .create = names_create, .destroy = names_destroy, .event = names_event };
