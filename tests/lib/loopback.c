/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A lock for all queues. What arrives at a node waits in its queue in the order in which it is due; messages of one pair never
 * overtake each other. A node's thread takes one item after the other and hands it over without the lock.
 */
#include "tests/lib/loopback.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/queue.h>
#include <time.h>

#include "fs/peer/frame.h"

enum item_kind { ITEM_ASSEMBLED, ITEM_LOST, ITEM_LEFT, ITEM_JOINED, ITEM_MESSAGE, ITEM_GET };

struct item {
	TAILQ_ENTRY(item) in_queue;
	enum item_kind kind;
	int64_t due_usec;
	uint32_t node;        /* from; who left or joined */
	uint64_t incarnation; /* who joined; a get's id */
	uint64_t *all;        /* assembled: of all */
	uint8_t *bytes, *to;  /* message; where a get goes */
	struct peers_get *gets;
	size_t len; /* of bytes, or number of gets */
	bool held;  /* loopback_hold_reply */
	bool stuck; /* loopback_hold_request */
};
TAILQ_HEAD(item_queue, item);

struct chosen { /* the reply to a node's next request of a type */
	bool on, sent;
	unsigned int skip;         /* so many of the type come before */
	uint16_t type;             /* 0: its next reply */
	uint64_t number;           /* of the request; 0: it has not come */
	const struct member *from; /* who sent that */
};

struct member {
	struct loopback *l;
	struct peers *peers;
	struct segment_set *segments;
	uint8_t *memory;
	uint32_t index;
	uint64_t incarnation;
	bool alive, connected, busy, hangs, deaf;
	unsigned int num_lost;    /* ITEM_LOST that it has not been told yet */
	struct chosen lose, hold; /* of its replies */
	uint16_t stuck_type;      /* of its next request to stuck_to; 0: none */
	uint32_t stuck_to;
	bool has_stuck; /* in its queue, or had */
	struct item_queue queue;
	int64_t *last_due; /* by who sent it */
	pthread_t thread;
};

struct loopback {
	struct loopback_options opt;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool stop;
	uint64_t last_incarnation, delay_min, delay_span, rng;
	struct member *members;
	char **names;
};

static int64_t now_usec(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- queues; under the lock */

static void item_free(struct item *it)
{
	free(it->all);
	free(it->bytes);
	free(it->gets);
	free(it);
}

static uint64_t delay(struct loopback *l)
{
	uint64_t x = l->rng += UINT64_C(0x9E3779B97F4A7C15); /* SplitMix64 */

	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	x ^= x >> 31;
	return l->delay_min + (l->delay_span ? x % l->delay_span : 0);
}

static void enqueue(struct member *to, struct item *it)
{
	struct item *at = TAILQ_LAST(&to->queue, item_queue);

	while (at && at->due_usec > it->due_usec)
		at = TAILQ_PREV(at, item_queue, in_queue);
	if (at)
		TAILQ_INSERT_AFTER(&to->queue, at, it, in_queue);
	else
		TAILQ_INSERT_HEAD(&to->queue, it, in_queue);
	pthread_cond_broadcast(&to->l->cond);
}

static struct item *item_make(enum item_kind kind, uint32_t node)
{
	struct item *it = calloc(1, sizeof(*it));

	if (!it)
		abort();
	it->kind = kind;
	it->node = node;
	it->due_usec = now_usec();
	return it;
}

static void *copy(const void *p, size_t len)
{
	void *to = malloc(len ? len : 1);

	if (!to)
		abort();
	if (len)
		memcpy(to, p, len);
	return to;
}

static void purge(struct member *m)
{
	struct item *it;

	while ((it = TAILQ_FIRST(&m->queue))) {
		TAILQ_REMOVE(&m->queue, it, in_queue);
		m->num_lost -= it->kind == ITEM_LOST;
		item_free(it);
	}
}

static void purge_messages(struct member *m, uint32_t from)
{
	struct item *it, *next;

	for (it = TAILQ_FIRST(&m->queue); it; it = next) {
		next = TAILQ_NEXT(it, in_queue);
		if (it->kind == ITEM_MESSAGE && it->node == from) {
			TAILQ_REMOVE(&m->queue, it, in_queue);
			item_free(it);
		}
	}
}

static void lose(struct loopback *l, uint32_t node)
{
	for (uint32_t i = 0; i < l->opt.num; i++) {
		struct member *m = &l->members[i];

		if (node != LOOPBACK_ALL && node != i) {
			purge_messages(m, node);
			continue;
		}
		if (!m->connected)
			continue;
		purge(m);
		m->connected = false;
		m->num_lost++;
		enqueue(m, item_make(ITEM_LOST, i));
	}
}

/* ---- the transport */

/* Nothing is taken from who has not been told yet that he lost his agent, for a new one: it would be sent again when that has assembled. */
static bool takes(const struct member *m)
{
	return m->connected && m->num_lost == 0;
}

/* The request whose reply is chosen is on its way. */
static void note_request(struct chosen *c, const struct member *from, const struct frame *f)
{
	if (!c->on || c->number || f->kind != FRAME_REQUEST || f->type != c->type)
		return;
	if (c->skip > 0) {
		c->skip--;
		return;
	}
	c->number = f->number;
	c->from = from;
}

static bool is_chosen(const struct chosen *c, const struct member *to, const struct frame *f)
{
	return c->on && f->kind == FRAME_REPLY && (c->type == 0 || (c->from == to && c->number == f->number));
}

static bool is_to_stick(struct member *m, const struct member *to, const struct frame *f)
{
	bool is = m->stuck_type && m->stuck_to == to->index && f->kind == FRAME_REQUEST && f->type == m->stuck_type;

	if (is) {
		m->stuck_type = 0;
		m->l->members[to->index].has_stuck = true;
	}
	return is;
}

static int op_send(void *transport, uint32_t node, const struct buf *head, const void *body, size_t body_len)
{
	struct member *m = transport, *to = &m->l->members[node];
	struct frame f;
	struct item *it;
	int r = 0;

	if (frame_decode(head->data, head->len, &f) < 0)
		abort();
	pthread_mutex_lock(&m->l->lock);
	note_request(&to->lose, m, &f);
	note_request(&to->hold, m, &f);
	if (m->connected && is_chosen(&m->lose, to, &f)) {
		m->lose.on = false;
		lose(m->l, LOOPBACK_ALL);
	}
	if (!takes(m)) {
		r = -ENOTCONN;
	} else if (to->connected && to->alive) {
		it = item_make(ITEM_MESSAGE, m->index);
		it->held = is_chosen(&m->hold, to, &f);
		it->stuck = is_to_stick(m, to, &f);
		m->hold.sent |= it->held || it->stuck;
		it->len = head->len + body_len;
		it->bytes = malloc(it->len);
		if (!it->bytes)
			abort();
		memcpy(it->bytes, head->data, head->len);
		if (body_len)
			memcpy(it->bytes + head->len, body, body_len);
		it->due_usec += (int64_t)delay(m->l);
		if (it->due_usec < to->last_due[m->index])
			it->due_usec = to->last_due[m->index];
		to->last_due[m->index] = it->due_usec;
		enqueue(to, it);
	}
	pthread_mutex_unlock(&m->l->lock);
	return r;
}

static int op_get(void *transport, uint64_t id, uint8_t *to, const struct peers_get *gets, size_t num)
{
	struct member *m = transport;
	struct item *it;
	int r = 0;

	pthread_mutex_lock(&m->l->lock);
	if (takes(m)) {
		it = item_make(ITEM_GET, m->index);
		it->incarnation = id;
		it->to = to;
		it->gets = copy(gets, num * sizeof(*gets));
		it->len = num;
		it->due_usec += (int64_t)delay(m->l);
		enqueue(m, it);
	} else {
		r = -ENOTCONN;
	}
	pthread_mutex_unlock(&m->l->lock);
	return r;
}

static uint8_t *op_memory(void *transport, size_t *ret_bytes)
{
	struct member *m = transport;

	*ret_bytes = (size_t)m->l->opt.num_buffers * PEERS_BUFFER_BYTES;
	return m->memory;
}

static const struct peers_transport_ops ops = { op_send, op_get, op_memory };

/* ---- delivery */

static int fetch(struct loopback *l, const struct item *it)
{
	for (size_t i = 0; i < it->len; i++) {
		const struct peers_get *g = &it->gets[i];
		struct segment_set *set;
		int r;

		pthread_mutex_lock(&l->lock);
		set = l->members[g->node].segments;
		pthread_mutex_unlock(&l->lock);
		r = set ? segment_read(set, g->segment, g->off, it->to + g->to, g->len) : -ENOENT;
		if (r)
			return r;
	}
	return 0;
}

static void deliver(struct member *m, const struct item *it)
{
	switch (it->kind) {
	case ITEM_ASSEMBLED:
		peers_assembled(m->peers, &(struct peers_assembly){ .self = m->index,
						  .count = m->l->opt.num,
						  .incarnations = it->all,
						  .names = (const char *const *)m->l->names });
		break;
	case ITEM_LOST: peers_lost(m->peers); break;
	case ITEM_LEFT: peers_left(m->peers, it->node); break;
	case ITEM_JOINED: peers_joined(m->peers, it->node, it->incarnation); break;
	case ITEM_MESSAGE: peers_received(m->peers, it->node, it->bytes, it->len); break;
	case ITEM_GET: peers_got(m->peers, it->incarnation, fetch(m->l, it)); break;
	}
}

static void wait_until(struct loopback *l, int64_t usec)
{
	struct timespec until = { .tv_sec = usec / 1000000, .tv_nsec = usec % 1000000 * 1000 };

	pthread_cond_timedwait(&l->cond, &l->lock, &until);
}

static bool gets_from_hanging(const struct loopback *l, const struct item *it)
{
	for (size_t i = 0; i < it->len; i++)
		if (l->members[it->gets[i].node].hangs)
			return true;
	return false;
}

/* What is held, or a hanging agent would have to send, take or give. */
static bool is_held(const struct member *m, const struct item *it)
{
	if (it->kind == ITEM_MESSAGE)
		return it->held || m->hangs || m->deaf || m->l->members[it->node].hangs;
	return it->kind == ITEM_GET && (m->hangs || gets_from_hanging(m->l, it));
}

/* From that node, behind something that is stuck. */
static bool is_behind_stuck(const struct member *m, const struct item *it)
{
	const struct item *before = TAILQ_FIRST(&m->queue);

	if (!m->has_stuck)
		return false;
	while (before != it && !(before->stuck && before->node == it->node))
		before = TAILQ_NEXT(before, in_queue);
	return (before != it || it->stuck) && it->kind != ITEM_ASSEMBLED && it->kind != ITEM_LOST &&
	       it->kind != ITEM_GET;
}

static struct item *next_item(const struct member *m)
{
	struct item *it = TAILQ_FIRST(&m->queue);

	while (it && (is_held(m, it) || is_behind_stuck(m, it)))
		it = TAILQ_NEXT(it, in_queue);
	return it;
}

static void *member_thread(void *arg)
{
	struct member *m = arg;
	struct loopback *l = m->l;
	struct item *it;

	pthread_mutex_lock(&l->lock);
	while (!l->stop) {
		it = next_item(m);
		if (!it) {
			pthread_cond_wait(&l->cond, &l->lock);
		} else if (it->due_usec > now_usec()) {
			wait_until(l, it->due_usec);
		} else {
			TAILQ_REMOVE(&m->queue, it, in_queue);
			m->busy = true;
			pthread_mutex_unlock(&l->lock);
			deliver(m, it);
			pthread_mutex_lock(&l->lock);
			m->num_lost -= it->kind == ITEM_LOST;
			item_free(it);
			m->busy = false;
			pthread_cond_broadcast(&l->cond);
		}
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static void wait_idle(struct member *m)
{
	while (m->busy)
		pthread_cond_wait(&m->l->cond, &m->l->lock);
}

void loopback_settle(struct loopback *l)
{
	pthread_mutex_lock(&l->lock);
	for (uint32_t i = 0; i < l->opt.num; i++) {
		struct member *m = &l->members[i];

		if (m->busy || next_item(m)) {
			pthread_cond_wait(&l->cond, &l->lock);
			i = UINT32_MAX; /* from the first again */
		}
	}
	pthread_mutex_unlock(&l->lock);
}

/* ---- knobs */

struct peers *loopback_peers(struct loopback *l, uint32_t node)
{
	return l->members[node].peers;
}

void loopback_set_segments(struct loopback *l, uint32_t node, struct segment_set *segments)
{
	pthread_mutex_lock(&l->lock);
	l->members[node].segments = segments;
	pthread_mutex_unlock(&l->lock);
}

void loopback_set_delay(struct loopback *l, uint64_t min_usec, uint64_t max_usec, uint64_t seed)
{
	pthread_mutex_lock(&l->lock);
	l->delay_min = min_usec;
	l->delay_span = max_usec > min_usec ? max_usec - min_usec + 1 : 0;
	l->rng = seed;
	pthread_mutex_unlock(&l->lock);
}

void loopback_set_hanging(struct loopback *l, uint32_t node, bool hangs)
{
	pthread_mutex_lock(&l->lock);
	l->members[node].hangs = hangs;
	pthread_cond_broadcast(&l->cond);
	pthread_mutex_unlock(&l->lock);
}

void loopback_set_deaf(struct loopback *l, uint32_t node, bool deaf)
{
	pthread_mutex_lock(&l->lock);
	l->members[node].deaf = deaf;
	pthread_cond_broadcast(&l->cond);
	pthread_mutex_unlock(&l->lock);
}

void loopback_lose(struct loopback *l, uint32_t node)
{
	pthread_mutex_lock(&l->lock);
	lose(l, node);
	pthread_mutex_unlock(&l->lock);
}

void loopback_lose_at_reply(struct loopback *l, uint32_t from, uint16_t type)
{
	struct member *m = &l->members[from];

	pthread_mutex_lock(&l->lock);
	m->lose = (struct chosen){ .on = true, .type = type };
	pthread_mutex_unlock(&l->lock);
}

static bool is_to_lose(struct loopback *l, uint32_t from)
{
	pthread_mutex_lock(&l->lock);
	bool is = l->members[from].lose.on;
	pthread_mutex_unlock(&l->lock);
	return is;
}

void loopback_await_loss(struct loopback *l, uint32_t from)
{
	while (is_to_lose(l, from))
		usleep(1000);
}

void loopback_hold_reply(struct loopback *l, uint32_t from, uint16_t type, unsigned int skip)
{
	pthread_mutex_lock(&l->lock);
	l->members[from].hold = (struct chosen){ .on = true, .type = type, .skip = skip };
	pthread_mutex_unlock(&l->lock);
}

void loopback_hold_request(struct loopback *l, uint32_t from, uint32_t to, uint16_t type)
{
	pthread_mutex_lock(&l->lock);
	l->members[from].stuck_type = type;
	l->members[from].stuck_to = to;
	l->members[from].hold.sent = false;
	pthread_mutex_unlock(&l->lock);
}

static bool is_held_back(struct loopback *l, uint32_t from)
{
	pthread_mutex_lock(&l->lock);
	bool is = l->members[from].hold.sent;
	pthread_mutex_unlock(&l->lock);
	return is;
}

void loopback_await_held(struct loopback *l, uint32_t from)
{
	while (!is_held_back(l, from))
		usleep(1000);
}

void loopback_let_go(struct loopback *l, uint32_t from)
{
	struct item *it;

	pthread_mutex_lock(&l->lock);
	l->members[from].hold = (struct chosen){ 0 };
	for (uint32_t i = 0; i < l->opt.num; i++)
		TAILQ_FOREACH(it, &l->members[i].queue, in_queue)
	if (it->node == from)
		it->held = it->stuck = false;
	pthread_cond_broadcast(&l->cond);
	pthread_mutex_unlock(&l->lock);
}

static void announce(struct loopback *l, enum item_kind kind, uint32_t node)
{
	for (uint32_t i = 0; i < l->opt.num; i++) {
		struct item *it;

		if (i == node || !l->members[i].connected)
			continue;
		it = item_make(kind, node);
		it->incarnation = l->members[node].incarnation;
		enqueue(&l->members[i], it);
	}
}

void loopback_cut(struct loopback *l, uint32_t node)
{
	pthread_mutex_lock(&l->lock);
	lose(l, node);
	announce(l, ITEM_LEFT, node);
	pthread_mutex_unlock(&l->lock);
}

static void assemble_one(struct loopback *l, struct member *m)
{
	struct item *it = item_make(ITEM_ASSEMBLED, m->index);

	it->all = calloc(l->opt.num, sizeof(*it->all));
	if (!it->all)
		abort();
	for (uint32_t i = 0; i < l->opt.num; i++)
		it->all[i] = l->members[i].alive ? l->members[i].incarnation : 0;
	enqueue(m, it);
}

void loopback_assemble(struct loopback *l)
{
	pthread_mutex_lock(&l->lock);
	for (uint32_t i = 0; i < l->opt.num; i++)
		if (l->members[i].alive && !l->members[i].connected)
			announce(l, ITEM_JOINED, i);
	for (uint32_t i = 0; i < l->opt.num; i++) {
		struct member *m = &l->members[i];

		if (m->alive && !m->connected)
			assemble_one(l, m);
		m->connected = m->alive;
	}
	pthread_mutex_unlock(&l->lock);
}

void loopback_kill(struct loopback *l, uint32_t node)
{
	struct member *m = &l->members[node];

	pthread_mutex_lock(&l->lock);
	m->alive = m->connected = false;
	purge(m);
	wait_idle(m);
	announce(l, ITEM_LEFT, node);
	pthread_mutex_unlock(&l->lock);
}

void loopback_end(struct loopback *l, uint32_t node)
{
	peers_shut_down(l->members[node].peers);
	loopback_kill(l, node);
}

static int begin_daemon(struct loopback *l, struct member *m)
{
	struct peers_options opt = {
		.ops = &ops,
		.transport = m,
		.incarnation = ++l->last_incarnation,
		.self = m->index,
		.count = l->opt.numbered ? l->opt.num : 0,
		.timeout_usec = l->opt.timeout_usec,
		.node_timeout_usec = l->opt.node_timeout_usec,
		.patience_usec = l->opt.patience_usec,
		.log = l->opt.log,
		.log_arg = l->opt.log_arg,
	};

	m->incarnation = opt.incarnation;
	m->alive = true;
	return peers_create(&opt, &m->peers);
}

void loopback_restart(struct loopback *l, uint32_t node)
{
	struct member *m = &l->members[node];

	if (m->alive) {
		loopback_lose(l, LOOPBACK_ALL);
		loopback_kill(l, node);
	}
	peers_destroy(m->peers);
	l->opt.numbered = true; /* a store keeps its number */
	if (begin_daemon(l, m))
		abort();
}

/* ---- life */

static int member_create(struct loopback *l, uint32_t index)
{
	struct member *m = &l->members[index];
	char name[32];
	int r;

	m->l = l;
	m->index = index;
	TAILQ_INIT(&m->queue);
	m->last_due = calloc(l->opt.num, sizeof(*m->last_due));
	m->memory = malloc((size_t)l->opt.num_buffers * PEERS_BUFFER_BYTES);
	snprintf(name, sizeof(name), "host%u", index);
	l->names[index] = strdup(name);
	if (!m->last_due || !m->memory || !l->names[index])
		return -ENOMEM;
	r = begin_daemon(l, m);
	return r ? r : -pthread_create(&m->thread, NULL, member_thread, m);
}

struct loopback *loopback_create(const struct loopback_options *opt)
{
	struct loopback *l = calloc(1, sizeof(*l));
	pthread_condattr_t attr;

	if (!l)
		return NULL;
	l->opt = *opt;
	l->opt.timeout_usec = opt->timeout_usec ? opt->timeout_usec : 60000000;
	l->opt.node_timeout_usec = opt->node_timeout_usec ? opt->node_timeout_usec : 60000000;
	l->opt.num_buffers = opt->num_buffers ? opt->num_buffers : 8;
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->cond, &attr);
	pthread_condattr_destroy(&attr);
	l->members = calloc(opt->num, sizeof(*l->members));
	l->names = calloc(opt->num, sizeof(*l->names));
	for (uint32_t i = 0; i < opt->num; i++)
		if (!l->members || !l->names || member_create(l, i))
			abort();
	return l;
}

void loopback_destroy(struct loopback *l)
{
	if (!l)
		return;
	for (uint32_t i = 0; i < l->opt.num; i++)
		peers_shut_down(l->members[i].peers);
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_broadcast(&l->cond);
	pthread_mutex_unlock(&l->lock);
	for (uint32_t i = 0; i < l->opt.num; i++) {
		struct member *m = &l->members[i];

		pthread_join(m->thread, NULL);
		peers_destroy(m->peers);
		purge(m);
		free(m->last_due);
		free(m->memory);
		free(l->names[i]);
	}
	pthread_cond_destroy(&l->cond);
	pthread_mutex_destroy(&l->lock);
	free(l->members);
	free(l->names);
	free(l);
}
