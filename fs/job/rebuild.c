/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Pointers from what the homes' states say. When this daemon has begun, it asks every node for the names that it serves
 * and that the node's state has or hides, and for the locks that the node's operations hold; then it is ready. And when
 * nobody knows what has become of one name, it asks every node for that one; of two homes the higher stamp wins, and
 * the other is told to unlink. Until its store takes that, who asks for the name gets -EIO.
 *
 * A node that was given up has told nothing, and what it would have said of names in doubt is not waited for: names.c is told so. And each node whose daemon is another
 * one, or is back, is asked again; what it says of a name that differs from what we know is a claim: all are asked for that one.
 *
 * Nothing here waits: answers come back to where the next question is asked. A node that lags, perhaps for ever, refuses to answer (lag.c). It is
 * asked now and then, and until it answers, or is given up, who asks us is refused as well: what is not known to be there may be there. So does a
 * node that cannot read what its state has.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/array.h"
#include "fs/job/private.h"

#define PAGE_BYTES (256u << 10) /* of an answer to NAME_SEND, about */
#define LIST_BATCH 256

#define FULL_USEC    2000u /* until it is tried again when too many requests wait for a node */
#define REFUSED_USEC 100000u
#define TURNS_MAX \
	20u /* of that, between two questions for all names of a node: to it, each is a walk over its inodes */
#define DOUBTS_MAX 256u /* names that are asked for at once because of what a node that is back has told */

enum { TOLD_POINTER = 1, TOLD_LOCK };

/* What could not be sent for want of room or memory is sent later: its node is there, or will be given up. */
static bool is_full(int rc)
{
	return rc == -EAGAIN || rc == -ENOMEM;
}

struct refused { /* what is to be asked again */
	struct refused *next;
	void (*ask)(struct job *j, void *arg);
	void *arg;
	unsigned int turns; /* of REFUSED_USEC, until then */
};

struct asked {      /* a node, for its names */
	bool now;   /* it is telling them */
	bool first; /* when it has told them, it is asked for the first time */
	bool again; /* or once more */
	bool told;  /* it has told them all, once */
};

struct rebuild {
	struct job *j;
	pthread_mutex_t lock;
	struct refused *refused; /* somebody will ask */
	uint32_t missing;        /* nodes that have neither told all nor been given up since they were asked */
	uint32_t untold;         /* nodes that have not told all */
	uint64_t *lives;         /* owned; by node: late_life() when they were asked for the first time */
	struct asked *asked;     /* owned; by node; NULL: not begun */
	struct sending *sending; /* to whom we are telling */
};

/* ---- refused */

static void ask_refused(struct job *j, void *arg);

/* Whose turn it is. lock is held. */
static struct refused *take_due(struct rebuild *r)
{
	struct refused *due = NULL, **at = &r->refused;

	while (*at) {
		struct refused *what = *at;

		if (what->turns > 1 && !r->j->ending) {
			what->turns--;
			at = &what->next;
			continue;
		}
		*at = what->next;
		what->next = due;
		due = what;
	}
	if (r->refused && workers_do(r->j->workers, ask_refused, r) < 0) { /* all the same */
		*at = due;
		due = r->refused;
		r->refused = NULL;
	}
	return due;
}

static void ask_refused(struct job *j, void *arg)
{
	struct rebuild *r = arg;

	usleep(REFUSED_USEC);
	pthread_mutex_lock(&r->lock);
	struct refused *all = take_due(r);
	pthread_mutex_unlock(&r->lock);
	for (struct refused *next; all; all = next) {
		next = all->next;
		all->ask(j, all->arg);
	}
}

/* False: it cannot be. */
static bool ask_later(struct job *j, struct refused *what)
{
	struct rebuild *r = j->rebuild;

	if (j->ending)
		return false;
	pthread_mutex_lock(&r->lock);
	bool ok = r->refused || workers_do(j->workers, ask_refused, r) == 0;
	if (ok) {
		what->next = r->refused;
		r->refused = what;
	}
	pthread_mutex_unlock(&r->lock);
	return ok;
}

/* ---- asking, as a server that has begun */

struct pull {
	struct refused again;
	struct rebuild *r;
	uint32_t node;
	uint64_t page;
	bool asked;    /* the page has been sent for */
	bool is_again; /* we are ready, or will be without it */
	int status;
	unsigned int turns; /* it waits when it is refused */
	struct buf names;   /* owned */
	size_t taken;       /* of these */
	bool more;
};

static void pull_next(struct job *j, void *arg);
static void pull_from(struct rebuild *r, uint32_t node, bool is_again);

/* It has said so before, or its last daemon has: what it holds now it has asked us for. */
static void take_again(
	struct job *j, uint32_t node, uint8_t kind, uint64_t dir, const char *name, const struct pointer *at)
{
	if (kind == TOLD_POINTER)
		names_claim(j->names, node, dir, name, at);
}

static void take_first(
	struct job *j, uint32_t node, uint8_t kind, uint64_t dir, const char *name, const struct pointer *at)
{
	if (kind == TOLD_LOCK)
		names_told_lock(j->names, dir, name, node, &(struct told_lock){ at->ino, at->stamp, at->hidden });
	else
		names_told(j->names, dir, name, at);
}

/* The rest of a page, as far as it may be taken now; false: later more. */
static bool take_names(struct job *j, struct pull *p)
{
	struct cursor c = cursor_make(p->names.data + p->taken, p->names.len - p->taken);
	char name[RECORD_NAME_MAX + 1];

	while (cursor_left(&c) > 0) {
		if (p->is_again && names_in_doubt(j->names) >= DOUBTS_MAX)
			return false;
		uint8_t kind = cursor_u8(&c);
		uint64_t dir = cursor_u64(&c);
		struct pointer at = { .ino = cursor_u64(&c) };
		at.stamp = cursor_u64(&c);
		at.hidden = cursor_u8(&c);
		cursor_str(&c, name, sizeof(name));
		if (!cursor_ok(&c))
			return true;
		p->taken = p->names.len - cursor_left(&c);
		if (p->is_again)
			take_again(j, p->node, kind, dir, name, &at);
		else
			take_first(j, p->node, kind, dir, name, &at);
	}
	return true;
}

static void note_told(struct rebuild *r, uint32_t node)
{
	pthread_mutex_lock(&r->lock);
	r->untold -= !r->asked[node].told;
	r->asked[node].told = true;
	bool all = r->untold == 0;
	pthread_mutex_unlock(&r->lock);
	names_told_by(r->j->names, all);
}

static void log_lacking(struct rebuild *r)
{
	char name[128];

	for (uint32_t i = 0; !r->j->ending && i < peers_count(r->j->peers); i++)
		if (!r->asked[i].told)
			job_log(r->j, true, "names_lacking",
				"node=\"%s\" text=\"it was given up and has not told its names: what nobody else has may be there, and is an "
				"I/O error until its store is mounted again\"",
				peers_name(r->j->peers, i, name, sizeof(name)));
}

/* lock is held. Has a daemon ended since all were asked? What it had asked others for came behind their answers, perhaps. */
static bool take_lives(struct rebuild *r)
{
	uint32_t num = peers_count(r->j->peers);
	bool news = false;

	for (uint32_t i = 0; i < num; i++) {
		uint64_t life = late_life(r->j, i);

		news |= r->lives[i] != life;
		r->lives[i] = life;
	}
	if (news)
		r->missing = num;
	return news;
}

/* It was the first time. */
static void told_all(struct rebuild *r, uint32_t node)
{
	uint32_t num = node == 0 ? peers_count(r->j->peers) : 0;

	for (uint32_t i = 1; i < num; i++)
		pull_from(r, i, false);
	pthread_mutex_lock(&r->lock);
	bool last = --r->missing == 0;
	bool again = last && !r->j->ending && take_lives(r);
	pthread_mutex_unlock(&r->lock);
	if (again) {
		pull_from(r, 0, false);
	} else if (last) {
		names_told_all(r->j->names);
		job_log_self(r->j, "names_known");
		log_lacking(r);
	}
}

static void pull_end(struct pull *p)
{
	struct rebuild *r = p->r;

	pthread_mutex_lock(&r->lock);
	struct asked next = r->asked[p->node];
	r->asked[p->node] = (struct asked){ .told = next.told };
	pthread_mutex_unlock(&r->lock);
	if (p->status == 0)
		note_told(r, p->node);
	if (!p->is_again)
		told_all(r, p->node);
	if (next.first)
		pull_from(r, p->node, false);
	else if (next.again && !r->j->ending)
		pull_from(r, p->node, true);
	buf_free(&p->names);
	free(p);
}

/* An answer has come, in a worker. */
static void pull_answered(struct job *j, void *arg)
{
	struct pull *p = arg;

	if (p->status == 0 && !j->ending && !take_names(j, p)) {
		usleep(FULL_USEC);
		if (workers_do(j->workers, pull_answered, p) == 0)
			return;
	}
	p->turns = p->status != -EIO ? 0 : p->turns == 0 ? 1 : 2 * p->turns < TURNS_MAX ? 2 * p->turns : TURNS_MAX;
	if (p->status == -EIO || p->status == -EBUSY) {
		if (!p->is_again && p->status == -EIO)
			names_refused(j->names, 0, NULL);
		p->again = (struct refused){ .ask = pull_next, .arg = p, .turns = p->turns };
		if (ask_later(j, &p->again))
			return;
	}
	if (p->status < 0 && p->asked)
		p->page = 0; /* a page whose answer is lost is not to be had again */
	if (p->status == -ESHUTDOWN || j->ending)
		p->more = false;
	else if (p->status < 0 && p->status != -EHOSTDOWN)
		p->more = true;
	if (p->more) {
		pull_next(j, p);
		return;
	}
	pull_end(p);
}

static void pull_done(int status, const struct wire_msg *reply, void *arg)
{
	struct pull *p = arg;
	const uint8_t *names;
	size_t len;

	p->status = status;
	p->more = false;
	p->taken = 0;
	buf_reset(&p->names);
	if (reply && status == 0) {
		if (message_get_bytes(reply, MESSAGE_NAMES, 0, &names, &len))
			buf_bytes(&p->names, names, len);
		p->page = message_get(reply, MESSAGE_COUNT);
		p->more = p->page != 0;
	}
	if (workers_do(p->r->j->workers, pull_answered, p) < 0)
		pull_answered(p->r->j, p);
}

static void pull_next(struct job *j, void *arg)
{
	struct pull *p = arg;
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_NAME_SEND);
	message_put(&m, MESSAGE_COUNT, p->page);
	if (p->page == 0)
		late_put_all(j, &m);
	p->asked = true;
	int rc = peers_call_async(j->peers, p->node, &m, pull_done, p);
	wire_msg_free(&m);
	if (is_full(rc))
		usleep(FULL_USEC);
	if (rc < 0) {
		p->asked = false;
		pull_done(rc, NULL, p);
	}
}

/* lock is held. Its daemon is another one, or it is back. */
static void hasten_pull(struct rebuild *r, uint32_t node)
{
	for (struct refused *what = r->refused; what; what = what->next) {
		struct pull *p = what->ask == pull_next ? what->arg : NULL;

		if (p && p->node == node)
			what->turns = p->turns = 0;
	}
}

/* One at a time of each node, which knows one page that comes next. */
static bool begins_pull(struct rebuild *r, uint32_t node, bool is_again)
{
	pthread_mutex_lock(&r->lock);
	struct asked *a = r->asked ? &r->asked[node] : NULL;
	bool begins = a && !a->now;
	if (begins)
		a->now = true;
	else if (a && is_again)
		a->again = true;
	else if (a)
		a->first = true;
	if (!begins)
		hasten_pull(r, node);
	pthread_mutex_unlock(&r->lock);
	return begins;
}

static void pull_from(struct rebuild *r, uint32_t node, bool is_again)
{
	struct pull *p = calloc(1, sizeof(*p));

	if (!p || !begins_pull(r, node, is_again)) {
		free(p);
		return; /* of no memory, the first time: never ready, so names wait, and time out */
	}
	p->r = r;
	p->node = node;
	p->is_again = is_again;
	pull_next(r->j, p);
}

/* From node 0 first: when it answers, we have all changes of the tree that were on their way to the daemon before us. */
static void begin(struct job *j, void *arg)
{
	struct rebuild *r = arg;

	pthread_mutex_lock(&r->lock);
	bool first = !r->asked && (r->lives || (r->lives = calloc(peers_count(j->peers), sizeof(*r->lives)))) &&
		     (r->asked = calloc(peers_count(j->peers), sizeof(*r->asked)));
	if (first) {
		(void)take_lives(r);
		r->missing = r->untold = peers_count(j->peers);
	}
	pthread_mutex_unlock(&r->lock);
	if (first)
		pull_from(r, 0, false);
}

struct back { /* a node */
	struct rebuild *r;
	uint32_t node;
};

static void pull_back(struct job *j, void *arg)
{
	struct back *b = arg;

	(void)j;
	pull_from(b->r, b->node, true);
	free(b);
}

/* What it has said before is known, and must be told once more: it may have been given up since, or said nothing. */
static void is_back(struct rebuild *r, uint32_t node)
{
	struct back *b = malloc(sizeof(*b));

	if (!b)
		return;
	*b = (struct back){ r, node };
	if (workers_do(r->j->workers, pull_back, b) < 0)
		free(b);
}

/* ---- telling a server that has begun: pages of our directories */

struct sending {
	struct sending *next;
	uint32_t node;
	uint64_t *dirs; /* owned: those that were there when it asked */
	size_t num, cap;
	char after[RECORD_NAME_MAX + 1]; /* in dirs[at] */
	size_t at;
	bool hidden;   /* its backing names, after its names */
	uint64_t page; /* the next one: what comes then begins at at */
};

static int collect_dir(const struct inode *in, void *arg)
{
	struct sending *s = arg;

	if (!S_ISDIR(in->mode) || in->flags & INODE_FOREIGN)
		return 0;
	if (array_room(&s->dirs, &s->cap, s->num, sizeof(*s->dirs)) < 0)
		return -ENOMEM;
	s->dirs[s->num++] = in->ino;
	return 0;
}

/* lock is held. -ESTALE: that page is not to be had; -ENOMEM, or the state cannot be read. */
static int sending_of(struct rebuild *r, uint32_t node, uint64_t page, struct sending **ret)
{
	struct sending *s = r->sending;

	while (s && s->node != node)
		s = s->next;
	if (!s && (s = calloc(1, sizeof(*s)))) {
		s->node = node;
		s->next = r->sending;
		r->sending = s;
	}
	if (!s)
		return -ENOMEM;
	*ret = s;
	if (page != 0)
		return s->page == page ? 0 : -ESTALE;
	s->num = s->at = s->page = 0;
	s->after[0] = '\0';
	s->hidden = false;
	return state_each_inode(r->j->state, collect_dir, s);
}

static void tell(struct buf *out, uint8_t kind, uint64_t dir, const char *name, const struct pointer *at)
{
	buf_u8(out, kind);
	buf_u64(out, dir);
	buf_u64(out, at->ino);
	buf_u64(out, at->stamp);
	buf_u8(out, at->hidden);
	buf_str(out, name);
}

struct lock_list {
	struct buf *out;
};

static void tell_lock(uint64_t dir, const char *name, const struct told_lock *lock, void *arg)
{
	struct lock_list *l = arg;

	struct pointer as = { .ino = lock->id, .stamp = lock->stamp, .hidden = lock->needed };

	tell(l->out, TOLD_LOCK, dir, name, &as);
}

static void tell_name(struct job *j, const struct sending *s, const struct state_name *e, struct buf *out)
{
	uint64_t dir = s->dirs[s->at];
	struct pointer at = { .hidden = s->hidden };

	if (e->type == S_IFDIR || place_name(dir, e->name, peers_count(j->peers)) != s->node)
		return;
	if (!s->hidden) {
		at.ino = e->ino;
		at.stamp = e->stamp;
	}
	tell(out, TOLD_POINTER, dir, e->name, &at);
}

/* The next names of this directory: 1; 0: there are no more. */
static int tell_batch(struct job *j, struct sending *s, struct buf *out)
{
	struct state_name *names = calloc(LIST_BATCH, sizeof(*names));
	size_t num = 0;
	int rc = names ? (s->hidden ? state_list_backing_names : state_list_names)(
				 j->state, s->dirs[s->at], s->after, names, LIST_BATCH, &num)
		       : -ENOMEM;

	for (size_t i = 0; i < num; i++)
		tell_name(j, s, &names[i], out);
	if (num > 0)
		memcpy(s->after, names[num - 1].name, sizeof(s->after));
	free(names);
	return rc < 0 ? rc : num == LIST_BATCH;
}

/* On failure it can be asked for again. */
static int tell_page(struct job *j, struct sending *s, struct buf *out)
{
	const struct sending begun = *s;
	int rc = 0;

	while (rc >= 0 && s->at < s->num && out->len < PAGE_BYTES) {
		rc = tell_batch(j, s, out);
		if (rc != 0)
			continue;
		s->after[0] = '\0';
		s->at += s->hidden;
		s->hidden = !s->hidden;
	}
	if (rc >= 0 && buf_ok(out)) {
		s->page++;
		return 0;
	}
	*s = begun;
	return rc < 0 ? rc : -ENOMEM;
}

/*
 * Of a page that has been asked for before, or that the daemon before us was asked for, we do not know where it begins: -ESTALE. -EIO: what we
 * have cannot be read, now or for good, and nobody is to take that for nothing.
 */
void rebuild_serve_send(struct job *j, struct peers_request *rq)
{
	struct rebuild *r = j->rebuild;
	uint64_t page = message_get(peers_msg(rq), MESSAGE_COUNT);
	struct buf out BUF_CLEANUP = { 0 };
	struct wire_msg reply = { 0 };
	struct sending *s = NULL;

	pthread_mutex_lock(&r->lock);
	int rc = sending_of(r, peers_from(rq), page, &s);
	if (page == 0)
		held_each(j, peers_from(rq), tell_lock, &(struct lock_list){ &out });
	if (rc == 0)
		rc = tell_page(j, s, &out);
	bool more = rc == 0 && s->at < s->num;
	pthread_mutex_unlock(&r->lock);
	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, rc < 0 && rc != -ESTALE ? -EIO : rc);
	message_put_bytes(&reply, MESSAGE_NAMES, out.data, out.len);
	message_put(&reply, MESSAGE_COUNT, more ? page + 1 : 0);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

/* ---- one name in doubt */

struct doubt;

struct claim {
	struct doubt *d;
	uint64_t ino, stamp;
	uint32_t node;
	struct refused again;
	bool refused; /* the log has it */
};

struct doubt {
	struct job *j;
	pthread_mutex_t lock;
	uint32_t missing;
	bool lacking; /* one of them was given up, or ends without an answer */
	struct pointer best;
	uint32_t best_node;
	struct claim *losers; /* owned; room for one per node */
	size_t num_losers;
	struct question *questions; /* owned; one per node */
	uint32_t num;
	uint32_t late; /* rebuild_name */
	uint64_t dir;
	char name[RECORD_NAME_MAX + 1];
};

struct question {
	struct refused again;
	struct doubt *d;
	uint32_t node;
};

static void question_ask(struct job *j, void *arg);

static void settle(struct job *j, void *arg)
{
	struct doubt *d = arg;

	names_settled(j->names, d->dir, d->name, &d->best, d->lacking);
	pthread_mutex_destroy(&d->lock);
	free(d->losers);
	free(d->questions);
	free(d);
}

static void one_less(struct doubt *d, void (*then)(struct job *j, void *arg))
{
	pthread_mutex_lock(&d->lock);
	bool last = --d->missing == 0;
	pthread_mutex_unlock(&d->lock);
	if (last && workers_do(d->j->workers, then, d) < 0)
		then(d->j, d);
}

static void loser_tell(struct job *j, void *arg);

/* Its store does not take it: what it has there would be listed, and drained, once the name is free. */
static bool is_refusal(int status)
{
	return status == -ENOSPC || status == -EDQUOT || status == -EIO || status == -EBADMSG;
}

static void log_refusal(struct claim *c, int status)
{
	struct job *j = c->d->j;
	char name[128];

	if (!c->refused)
		job_log(j, true, "name_not_given_up",
			"node=\"%s\" status=%d text=\"a file that another one has replaced keeps its name there, and "
			"the name is an I/O error: %s\"",
			peers_name(j->peers, c->node, name, sizeof(name)), status, lag_remedy(status));
	c->refused = true;
}

static void loser_done(int status, const struct wire_msg *reply, void *arg)
{
	struct claim *c = arg;
	struct doubt *d = c->d;
	bool again = (status == -ECONNRESET || status == -ETIMEDOUT || is_full(status)) && !d->j->ending;

	(void)reply;
	if (is_refusal(status)) {
		log_refusal(c, status);
		names_refused(d->j->names, d->dir, d->name);
		c->again = (struct refused){ .ask = loser_tell, .arg = c };
		if (ask_later(d->j, &c->again))
			return;
	}
	if (!again || workers_do(d->j->workers, loser_tell, c) < 0)
		one_less(d, settle);
}

static void loser_tell(struct job *j, void *arg)
{
	struct claim *c = arg;
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_FILE_UNLINK);
	message_put(&m, MESSAGE_INO, c->ino);
	message_put(&m, MESSAGE_DIR, c->d->dir);
	message_put_str(&m, MESSAGE_NAME, c->d->name);
	int rc = peers_call_async(j->peers, c->node, &m, loser_done, c);
	wire_msg_free(&m);
	if (is_full(rc))
		usleep(FULL_USEC);
	if (rc < 0)
		loser_done(rc, NULL, c);
}

/* Nobody gets the name before the losers have given it up. */
static void doubt_end(struct job *j, void *arg)
{
	struct doubt *d = arg;
	size_t num = d->num_losers;

	d->missing = (uint32_t)num + 1;
	for (size_t i = 0; i < num; i++) {
		d->losers[i].d = d;
		loser_tell(j, &d->losers[i]);
	}
	one_less(d, settle);
}

static void doubt_claim(struct doubt *d, const struct claim *c)
{
	struct claim loser = { d, d->best.ino, d->best.stamp, d->best_node };

	if (d->best.ino && (c->stamp < d->best.stamp || (c->stamp == d->best.stamp && c->node > d->best_node))) {
		loser = *c;
	} else {
		d->best.ino = c->ino;
		d->best.stamp = c->stamp;
		d->best_node = c->node;
	}
	if (loser.ino)
		d->losers[d->num_losers++] = loser;
}

static void question_done(int status, const struct wire_msg *reply, void *arg)
{
	struct question *q = arg;
	struct doubt *d = q->d;
	struct job *j = d->j;
	struct pointer at = { 0 };

	if (status == -EIO || status == -EBUSY) {
		if (status == -EIO)
			names_refused(j->names, d->dir, d->name);
		q->again = (struct refused){ .ask = question_ask, .arg = q };
		if (ask_later(j, &q->again))
			return;
	}
	if (status < 0 && status != -EHOSTDOWN && status != -ESHUTDOWN && !j->ending &&
		workers_do(j->workers, question_ask, q) == 0)
		return;
	if (status == 0 && reply)
		pointer_get(reply, &at);
	pthread_mutex_lock(&d->lock);
	if (at.ino)
		doubt_claim(d, &(struct claim){ d, at.ino, at.stamp, q->node });
	d->best.hidden |= at.hidden;
	d->lacking |= status < 0;
	pthread_mutex_unlock(&d->lock);
	/* The others when node 0 has answered, and so all have the changes of the tree that came before. */
	for (uint32_t i = 1; q->node == 0 && i < d->num; i++)
		question_ask(j, &d->questions[i]);
	one_less(d, doubt_end);
}

static void question_ask(struct job *j, void *arg)
{
	struct question *q = arg;
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_NAME_WHO);
	message_put(&m, MESSAGE_DIR, q->d->dir);
	message_put_str(&m, MESSAGE_NAME, q->d->name);
	if (q->d->late)
		late_put_node(j, &m, q->d->late - 1);
	int rc = peers_call_async(j->peers, q->node, &m, question_done, q);
	wire_msg_free(&m);
	if (is_full(rc))
		usleep(FULL_USEC);
	if (rc < 0)
		question_done(rc, NULL, q);
}

void rebuild_name(struct job *j, uint64_t dir, const char *name, uint32_t late)
{
	uint32_t num = peers_count(j->peers);
	struct doubt *d = calloc(1, sizeof(*d));
	bool ok = d && (d->losers = calloc(num, sizeof(*d->losers))) &&
		  (d->questions = calloc(num, sizeof(*d->questions)));

	if (!ok) { /* the name stays locked */
		free(d ? d->losers : NULL);
		free(d);
		return;
	}
	d->j = j;
	d->missing = d->num = num;
	d->late = late;
	d->dir = dir;
	strcpy(d->name, name);
	pthread_mutex_init(&d->lock, NULL);
	for (uint32_t i = 0; i < num; i++)
		d->questions[i] = (struct question){ .d = d, .node = i };
	question_ask(j, &d->questions[0]);
}

/* -EIO: that cannot be read, which is not to be taken for nothing: it is asked again, until our store is mounted anew. */
static int who_has(struct job *j, uint64_t dir, const char *name, struct pointer *ret)
{
	struct state_name e;
	int rc = state_lookup(j->state, dir, name, &e);
	int hides = core_hides_backing(j->core, dir, name);

	if ((rc < 0 && rc != -ENOENT) || hides < 0)
		return -EIO;
	if (rc == 0 && e.type != S_IFDIR)
		*ret = (struct pointer){ .ino = e.ino, .stamp = e.stamp };
	ret->hidden = hides;
	return 0;
}

/* When what was asked of us before is done; by node 0 also what was asked of the tree (sequence.c). */
void rebuild_serve_who(struct job *j, struct peers_request *rq)
{
	const struct wire_msg *m = peers_msg(rq);
	uint64_t dir = message_get(m, MESSAGE_DIR);
	char name[RECORD_NAME_MAX + 1];
	struct wire_msg reply = { 0 };
	struct pointer at = { 0 };
	int rc = message_get_str(m, MESSAGE_NAME, name, sizeof(name)) ? 0 : -EBADMSG;

	if (rc == 0)
		rc = who_has(j, dir, name, &at);
	wire_msg_init(&reply, WIRE_REPLY);
	wire_put_i64(&reply, WIRE_STATUS, rc);
	pointer_put(&reply, &at);
	peers_reply(rq, &reply);
	wire_msg_free(&reply);
}

/* ---- life */

static int rebuild_create(struct job *j, struct cistern_error *err)
{
	j->rebuild = calloc(1, sizeof(*j->rebuild));
	if (!j->rebuild)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	j->rebuild->j = j;
	pthread_mutex_init(&j->rebuild->lock, NULL);
	return 0;
}

static void rebuild_destroy(struct job *j)
{
	struct rebuild *r = j->rebuild;

	if (!r)
		return;
	for (struct sending *s = r->sending, *next; s; s = next) {
		next = s->next;
		free(s->dirs);
		free(s);
	}
	pthread_mutex_destroy(&r->lock);
	free(r->asked);
	free(r->lives);
	free(r);
	j->rebuild = NULL;
}

static void rebuild_event(struct job *j, enum peers_event event, uint32_t node)
{
	if (event == PEERS_ASSEMBLED)
		(void)workers_do(j->workers, begin, j->rebuild);
	if (event == PEERS_RESTARTED)
		is_back(j->rebuild, node);
}

const struct part rebuild_part = { .create = rebuild_create, .destroy = rebuild_destroy, .event = rebuild_event };
