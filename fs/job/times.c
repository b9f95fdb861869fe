/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Times of directories. Each node's state has those of its own changes of files in a directory, and of all changes of the
 * tree; here the nodes learn of each other's. A directory's time home (place_directory_times) is told of changes of files, is
 * asked for attributes, and tells those who asked that what they know is old.
 *
 * No operation waits for that. A node has one such message about a directory under way at a time: what changes meanwhile
 * goes with the next one, when the home has answered. So however fast files come and go, and however many nodes make them in
 * one directory, its home is told no faster than it can listen. fsync and syncfs wait (not for long) until the home has what
 * was changed before them; and the home answers when those who asked know. Who has not heard of a change believes what he knows
 * for SEEN_USEC at most.
 *
 * The newest time counts, but for utimes: that is a change of the tree, and what had been told of earlier times is void. So
 * a time goes with the number of the last change of the tree that its node had, and each directory has the number of its last utimes.
 *
 * All of it is memory. A home that has begun anew is told again what the nodes' states still have to drain; a drain brings the times
 * to node 0, whose copy goes to the backing directory.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/job/private.h"
#include "format/base/clock.h"
#include "fs/job/share.h"

#define TIMES_BUCKETS 16384u
#define TIMES_MAX     262144u /* directories that are remembered */
#define READERS       32u     /* that are told of a change; more find out by themselves */
#define HELD_UP_MAX   64u
#define SEEN_USEC     1000000
#define SETTLE_USEC   200000

struct dir_time {
	int64_t ns;     /* 0: nothing is known */
	uint64_t stamp; /* of the tree, where it was seen */
};

struct dir_times {
	struct dir_times *next; /* in its bucket */
	uint64_t ino;
	uint64_t reset;          /* stamp of its last utimes */
	struct dir_time to_tell; /* by us; ns 0: nothing */
	bool on_its_way;         /* to_tell, or an older one */
	bool is_waiting;         /* in the list: to_tell shall go, or is on its way; all under it are valid then */
	uint64_t since;          /* number of the first change that the home may not have */
	struct dir_times *before, *behind;
	struct dir_time known;     /* home: of all that was told; reader: what the home said */
	int64_t until_usec;        /* reader: known is believed; 0: not */
	uint32_t readers[READERS]; /* home */
	unsigned int num_readers;
};

struct times {
	pthread_mutex_t lock;
	pthread_cond_t arrived; /* CLOCK_MONOTONIC */
	struct dir_times *buckets[TIMES_BUCKETS];
	struct dir_times *first_waiting; /* newest first */
	uint64_t num, last_number;       /* directories; changes */
	unsigned int hand;               /* bucket to forget something of next */
	bool telling_again;
};

static int64_t now_usec(void)
{
	return (int64_t)clock_usec();
}

static uint32_t home_of(struct job *j, uint64_t ino)
{
	return place_directory_times(ino, peers_count(j->peers));
}

/* ---- the table; lock is held */

static struct dir_times **find(struct times *t, uint64_t ino)
{
	struct dir_times **at = &t->buckets[ino * 0x9E3779B97F4A7C15ull >> 50];

	while (*at && (*at)->ino != ino)
		at = &(*at)->next;
	return at;
}

/* Something that nobody waits for. What it knew is in the state of the node that made it, and told with its next change. */
static void forget_one(struct times *t)
{
	for (unsigned int tries = 0; tries < TIMES_BUCKETS; tries++) {
		struct dir_times **at = &t->buckets[t->hand++ % TIMES_BUCKETS], *d;

		while (*at && (*at)->is_waiting)
			at = &(*at)->next;
		d = *at;
		if (!d)
			continue;
		*at = d->next;
		free(d);
		t->num--;
		return;
	}
}

static struct dir_times *need(struct times *t, uint64_t ino)
{
	struct dir_times **at = find(t, ino), *d = *at;

	if (d)
		return d;
	if (t->num >= TIMES_MAX) {
		forget_one(t);
		at = find(t, ino);
	}
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->ino = ino;
	*at = d;
	t->num++;
	return d;
}

/* True: it is news. */
static bool take(struct dir_times *d, const struct dir_time *v)
{
	if (v->stamp < d->reset || v->ns <= d->known.ns)
		return false;
	d->known = *v;
	return true;
}

/* ---- telling the home */

/* lock is held. */
static void wait_for(struct times *t, struct dir_times *d)
{
	if (d->is_waiting)
		return;
	d->is_waiting = true;
	d->since = t->last_number;
	d->before = NULL;
	d->behind = t->first_waiting;
	if (d->behind)
		d->behind->before = d;
	t->first_waiting = d;
}

/* lock is held. */
static void end_wait(struct times *t, struct dir_times *d)
{
	d->is_waiting = false;
	if (d->behind)
		d->behind->before = d->before;
	if (d->before)
		d->before->behind = d->behind;
	else
		t->first_waiting = d->behind;
	pthread_cond_broadcast(&t->arrived);
}

struct sending {
	struct job *j;
	uint64_t ino, last_number; /* changes up to this one are in sent */
	struct dir_time sent;
};

static void put_time(struct wire_msg *m, uint64_t ino, const struct dir_time *v)
{
	message_put(m, MESSAGE_INO, ino);
	message_put(m, MESSAGE_TIME, (uint64_t)v->ns);
	message_put(m, MESSAGE_STAMP, v->stamp);
}

static struct dir_time get_time(const struct wire_msg *m)
{
	return (struct dir_time){ .ns = (int64_t)message_get(m, MESSAGE_TIME), .stamp = message_get(m, MESSAGE_STAMP) };
}

static void send(struct job *j, uint64_t ino);

/* lock is held. One that had no room on its way. 0: there is none. */
static uint64_t find_held_up(const struct times *t)
{
	const struct dir_times *d = t->first_waiting;

	for (unsigned int i = 0; d && i < HELD_UP_MAX; i++, d = d->behind)
		if (!d->on_its_way)
			return d->ino;
	return 0;
}

/* The home's daemon was restarted: again, there may be nobody else who knows. One that cannot be reached hears of the next change. */
static void told(int status, const struct wire_msg *reply, void *arg)
{
	struct sending *s = arg;
	struct times *t = s->j->times;
	uint64_t next = 0;

	pthread_mutex_lock(&t->lock);
	struct dir_times *d = *find(t, s->ino);
	if (d && d->is_waiting) {
		bool same = d->to_tell.ns == s->sent.ns && d->to_tell.stamp == s->sent.stamp;

		d->on_its_way = false;
		if (status == 0) {
			d->since = s->last_number + 1;
			pthread_cond_broadcast(&t->arrived);
		}
		if (!d->to_tell.ns || (status == 0 && same) ||
			(status < 0 && status != -ECONNRESET && status != -EAGAIN))
			end_wait(t, d);
		else if (status != -EAGAIN) /* then what is on its way makes room */
			next = s->ino;
	}
	if (status == 0 && !next)
		next = find_held_up(t);
	pthread_mutex_unlock(&t->lock);
	if (next)
		send(s->j, next);
	free(s);
}

/* Unless it is on its way, or there is nothing to tell. */
static void send(struct job *j, uint64_t ino)
{
	struct sending *s = calloc(1, sizeof(*s));
	struct times *t = j->times;
	struct wire_msg m = { 0 };

	if (!s)
		return; /* with the next change */
	pthread_mutex_lock(&t->lock);
	struct dir_times *d = *find(t, ino);
	if (!d || !d->is_waiting || d->on_its_way) {
		pthread_mutex_unlock(&t->lock);
		free(s);
		return;
	}
	*s = (struct sending){ .j = j, .ino = ino, .last_number = t->last_number, .sent = d->to_tell };
	d->on_its_way = true;
	pthread_mutex_unlock(&t->lock);
	message_init(&m, MESSAGE_DIR_TOLD);
	put_time(&m, ino, &s->sent);
	int rc = peers_call_async(j->peers, home_of(j, ino), &m, told, s);
	wire_msg_free(&m);
	if (rc < 0)
		told(rc, NULL, s);
}

void times_changed(struct job *j, uint64_t dir)
{
	uint64_t stamp = state_tree_stamp(j->state); /* before the time: it is no newer than that */
	struct times *t = j->times;
	struct inode in;

	if (!dir || peers_count(j->peers) < 2 || state_inode(j->state, dir, &in) < 0)
		return;
	pthread_mutex_lock(&t->lock);
	struct dir_times *d = need(t, dir);
	if (d && stamp >= d->reset) {
		t->last_number++;
		d->to_tell = (struct dir_time){ .ns = in.mtime_ns, .stamp = stamp };
		wait_for(t, d);
	}
	pthread_mutex_unlock(&t->lock);
	send(j, dir);
}

/* lock is held. */
static bool is_told(const struct times *t, uint64_t number)
{
	const struct dir_times *d = t->first_waiting;

	while (d && d->since > number)
		d = d->behind;
	return !d;
}

void times_settle(struct job *j)
{
	struct times *t = j->times;
	int64_t until = now_usec() + SETTLE_USEC;
	struct timespec at = { .tv_sec = until / 1000000, .tv_nsec = until % 1000000 * 1000 };
	int rc = 0;

	pthread_mutex_lock(&t->lock);
	uint64_t number = t->last_number;
	while (rc == 0 && !is_told(t, number))
		rc = pthread_cond_timedwait(&t->arrived, &t->lock, &at);
	pthread_mutex_unlock(&t->lock);
}

/* ---- the home */

struct telling { /* of those who asked */
	struct peers_request *rq;
	_Atomic(unsigned int) left;
};

static void reader_told(int status, const struct wire_msg *reply, void *arg)
{
	struct telling *w = arg;

	if (atomic_fetch_sub(&w->left, 1) > 1)
		return;
	peers_reply_status(w->rq, 0);
	free(w);
}

/* Answers rq when all of them have heard of it, or cannot. */
static void tell_readers(
	struct job *j, uint64_t ino, const uint32_t *readers, unsigned int num, struct peers_request *rq)
{
	struct telling *w = num ? malloc(sizeof(*w)) : NULL;
	struct wire_msg m = { 0 };

	if (!w) {
		peers_reply_status(rq, 0);
		return;
	}
	w->rq = rq;
	atomic_init(&w->left, num + 1);
	message_init(&m, MESSAGE_DIR_CHANGED);
	message_put(&m, MESSAGE_INO, ino);
	for (unsigned int i = 0; i < num; i++)
		if (peers_call_async(j->peers, readers[i], &m, reader_told, w) < 0)
			reader_told(0, NULL, w);
	wire_msg_free(&m);
	reader_told(0, NULL, w);
}

void times_serve_told(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	uint64_t ino = message_get(m, MESSAGE_INO);
	struct dir_time v = get_time(m);
	struct times *t = j->times;
	uint32_t readers[READERS];
	unsigned int num = 0;

	pthread_mutex_lock(&t->lock);
	struct dir_times *d = need(t, ino);
	if (d && take(d, &v))
		for (; d->num_readers > 0; num++)
			readers[num] = d->readers[--d->num_readers];
	pthread_mutex_unlock(&t->lock);
	tell_readers(j, ino, readers, num, rq);
}

/* lock is held. */
static void add_reader(struct dir_times *d, uint32_t node)
{
	for (unsigned int i = 0; i < d->num_readers; i++)
		if (d->readers[i] == node)
			return;
	if (d->num_readers < READERS)
		d->readers[d->num_readers++] = node;
}

void times_serve_ask(struct job *j, struct peers_request *rq)
{
	uint64_t ino = message_get(peers_msg(rq), MESSAGE_INO);
	struct wire_msg reply = { 0 };
	struct dir_time v = { 0 };
	struct times *t = j->times;

	pthread_mutex_lock(&t->lock);
	struct dir_times *d = need(t, ino);
	if (d) {
		add_reader(d, peers_from(rq));
		v = d->known;
	}
	pthread_mutex_unlock(&t->lock);
	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, 0);
	put_time(&reply, ino, &v);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

/* ---- who wants to know */

static void do_changed(struct job *j, struct peers_request *rq)
{
	uint64_t ino = message_get(peers_msg(rq), MESSAGE_INO);
	struct times *t = j->times;

	pthread_mutex_lock(&t->lock);
	struct dir_times *d = *find(t, ino);
	if (d)
		d->until_usec = 0;
	pthread_mutex_unlock(&t->lock);
	if (j->opt.invalidate)
		j->opt.invalidate(ino, false, j->opt.arg);
	peers_reply_status(rq, 0);
}

void times_serve_changed(struct job *j, struct peers_request *rq)
{
	workers_serve(j->share->tellers, do_changed, rq);
}

static bool is_present(struct job *j, uint32_t node)
{
	struct peers_node n;

	return peers_nodes(j->peers, node, &n, 1) == 1 && n.present;
}

/* lock is not held. A home that is not there is not waited for: what we know has to do. */
static void ask(struct job *j, uint64_t ino)
{
	struct wire_msg m = { 0 }, reply = { 0 };
	uint32_t home = home_of(j, ino);
	struct times *t = j->times;

	if (!is_present(j, home))
		return;
	message_init(&m, MESSAGE_DIR_ASK);
	message_put(&m, MESSAGE_INO, ino);
	/* A change that arrives at the home behind our question says so, even before the answer is here. */
	pthread_mutex_lock(&t->lock);
	struct dir_times *d = need(t, ino);
	if (d)
		d->until_usec = now_usec() + SEEN_USEC;
	pthread_mutex_unlock(&t->lock);
	int rc = peers_call(j->peers, home, &m, &reply);
	struct dir_time v = get_time(&reply);
	pthread_mutex_lock(&t->lock);
	d = *find(t, ino);
	if (d && rc == 0)
		(void)take(d, &v);
	else if (d)
		d->until_usec = 0;
	pthread_mutex_unlock(&t->lock);
	wire_msg_free(&m);
	wire_msg_free(&reply);
}

void times_fix(struct job *j, struct core_entry *e)
{
	struct times *t = j->times;
	struct dir_time v = { 0 };
	bool fresh;

	if (peers_count(j->peers) < 2 || core_is_known(j->core, e->ino) <= 0)
		return; /* nobody has changed anything in it */
	bool at_home = home_of(j, e->ino) == peers_self(j->peers);
	for (int i = 0; i < 2; i++) {
		pthread_mutex_lock(&t->lock);
		struct dir_times *d = at_home ? need(t, e->ino) : *find(t, e->ino);
		if (d && at_home)
			add_reader(d, peers_self(j->peers)); /* our own kernel believes it, too */
		fresh = at_home || (d && d->until_usec > now_usec());
		v = d ? d->known : v;
		pthread_mutex_unlock(&t->lock);
		if (fresh || i == 1)
			break;
		ask(j, e->ino);
	}
	if (v.ns > clock_ns_of(e->attr.st_mtim))
		e->attr.st_mtim = clock_timespec(v.ns);
	if (v.ns > clock_ns_of(e->attr.st_ctim))
		e->attr.st_ctim = clock_timespec(v.ns);
}

void times_reset(struct job *j, uint64_t ino, uint64_t stamp)
{
	struct times *t = j->times;

	pthread_mutex_lock(&t->lock);
	struct dir_times *d = need(t, ino);
	if (d) {
		d->reset = stamp;
		if (d->known.stamp < stamp)
			d->known.ns = 0;
		if (d->to_tell.stamp < stamp)
			d->to_tell.ns = 0; /* what is on its way is not believed any more */
	}
	pthread_mutex_unlock(&t->lock);
}

/* ---- drain */

bool times_is_void(struct job *j, uint64_t ino, uint64_t stamp)
{
	struct times *t = j->times;

	pthread_mutex_lock(&t->lock);
	struct dir_times *d = *find(t, ino);
	bool is_void = d && stamp < d->reset;
	pthread_mutex_unlock(&t->lock);
	return is_void;
}

/* ---- a home that has begun anew */

static int tell_again(const struct inode *in, void *arg)
{
	struct job *j = arg;

	if (S_ISDIR(in->mode) && in->flags & INODE_DIRTY_META && !j->ending)
		times_changed(j, in->ino);
	return 0;
}

static void tell_all_again(struct job *j, void *arg)
{
	(void)arg;
	pthread_mutex_lock(&j->times->lock);
	j->times->telling_again = false;
	pthread_mutex_unlock(&j->times->lock);
	(void)state_each_inode(j->state, tell_again, j);
}

/* Also when we have begun anew ourselves: what we had not told is in our state. */
static void times_event(struct job *j, enum peers_event event, uint32_t node)
{
	struct times *t = j->times;

	(void)node;
	if (event != PEERS_RESTARTED && event != PEERS_ASSEMBLED)
		return;
	pthread_mutex_lock(&t->lock);
	bool begin = !t->telling_again;
	t->telling_again = true;
	pthread_mutex_unlock(&t->lock);
	if (begin && workers_do(j->workers, tell_all_again, NULL) < 0)
		tell_all_again(j, NULL);
}

/* ---- life */

static int times_create(struct job *j, struct cistern_error *err)
{
	pthread_condattr_t attr;

	j->times = calloc(1, sizeof(*j->times));
	if (!j->times)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&j->times->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&j->times->arrived, &attr);
	pthread_condattr_destroy(&attr);
	return 0;
}

static void times_destroy(struct job *j)
{
	struct times *t = j->times;

	for (size_t i = 0; t && i < TIMES_BUCKETS; i++)
		for (struct dir_times *d = t->buckets[i], *next; d; d = next) {
			next = d->next;
			free(d);
		}
	if (t) {
		pthread_cond_destroy(&t->arrived);
		pthread_mutex_destroy(&t->lock);
	}
	free(t);
	j->times = NULL;
}

const struct part times_part = { .create = times_create, .destroy = times_destroy, .event = times_event };
