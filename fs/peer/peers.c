/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Who the nodes are, and what the transport tells of them: assembled, lost, left, joined. From that follows what becomes of
 * calls (call.c), of kept requests (request.c) and of fetches (payload.c):
 *
 *   our agent is lost        everything waits; what was sent may have arrived or not
 *   assembled again          what has no reply is sent again, in its old order, before anything new
 *   a daemon is another one  calls that it may have got fail, tells to it are dropped, what it asked is forgotten
 *   a daemon is missing      calls to it wait; after node_timeout it is given up, and they fail
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "format/place/place.h"
#include "format/base/clock.h"
#include "fs/peer/private.h"

int64_t peers_now(void)
{
	return (int64_t)clock_usec();
}

void peers_log(struct peers *p, bool warning, const char *event, const char *text)
{
	if (p->opt.log)
		p->opt.log(warning, event, text, p->opt.log_arg);
}

/* ---- waiting and upcalls */

void upcall_begin(struct peers *p)
{
	p->upcalls++;
}

void upcall_end(struct peers *p)
{
	pthread_mutex_lock(&p->lock);
	if (--p->upcalls == 0 && p->ended)
		pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

int peers_wait(struct peers *p, int64_t deadline_usec)
{
	struct timespec until = { .tv_sec = deadline_usec / 1000000, .tv_nsec = deadline_usec % 1000000 * 1000 };
	int r;

	if (p->ended)
		return -ESHUTDOWN;
	p->waiters++;
	r = -pthread_cond_timedwait(&p->changed, &p->lock, &until);
	if (--p->waiters == 0 && p->ended)
		pthread_cond_broadcast(&p->changed);
	return p->ended ? -ESHUTDOWN : r;
}

/* ---- hashes by node and number */

static struct entry **bucket_of(struct entry **table, uint32_t node, uint64_t number)
{
	return &table[(node * UINT64_C(0x9E3779B97F4A7C15) + number) % HASH_BUCKETS];
}

void entry_add(struct entry **table, struct entry *e, uint32_t node, uint64_t number)
{
	struct entry **bucket = bucket_of(table, node, number);

	e->node = node;
	e->number = number;
	e->next = *bucket;
	*bucket = e;
}

struct entry *entry_find(struct entry **table, uint32_t node, uint64_t number)
{
	struct entry *e = *bucket_of(table, node, number);

	while (e && (e->node != node || e->number != number))
		e = e->next;
	return e;
}

void entry_remove(struct entry **table, struct entry *e)
{
	struct entry **at = bucket_of(table, e->node, e->number);

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
}

/* ---- who we are */

static void node_make(struct node *n)
{
	TAILQ_INIT(&n->calls);
	TAILQ_INIT(&n->requests);
}

int node_init(struct peers *p, uint32_t count)
{
	p->nodes = calloc(count, sizeof(*p->nodes));
	if (!p->nodes)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		node_make(&p->nodes[i]);
	return 0;
}

const char *node_name(const struct peers *p, uint32_t node, char *out, size_t cap)
{
	return place_node_text(node, p->nodes && node < p->count ? p->nodes[node].name : "", out, cap);
}

void peers_set_host(struct peers *p, uint32_t node, const char *host)
{
	if (p->nodes && node < p->count)
		snprintf(p->nodes[node].name, sizeof(p->nodes[node].name), "%s", host);
}

const char *peers_name(struct peers *p, uint32_t node, char *out, size_t cap)
{
	pthread_mutex_lock(&p->lock);
	node_name(p, node, out, cap);
	pthread_mutex_unlock(&p->lock);
	return out;
}

bool peers_numbered(struct peers *p)
{
	bool numbered;

	pthread_mutex_lock(&p->lock);
	numbered = p->numbered;
	pthread_mutex_unlock(&p->lock);
	return numbered;
}

uint32_t peers_self(struct peers *p)
{
	uint32_t self;

	pthread_mutex_lock(&p->lock);
	self = p->self;
	pthread_mutex_unlock(&p->lock);
	return self;
}

uint32_t peers_count(struct peers *p)
{
	uint32_t count;

	pthread_mutex_lock(&p->lock);
	count = p->count;
	pthread_mutex_unlock(&p->lock);
	return count;
}

static int not_numbered(struct peers *p, struct cistern_error *err)
{
	char lacks[CISTERN_ERROR_TEXT_BYTES] = "there are no agents";

	if (p->opt.ops->lacks)
		p->opt.ops->lacks(p->opt.transport, lacks, sizeof(lacks));
	return cistern_error_set(err, -ETIMEDOUT,
		"this mount has no number in its job yet, since the agents of the job have not assembled; start them on all its nodes "
		"(cistern agent). %s",
		lacks);
}

int peers_wait_numbered(struct peers *p, uint64_t usec, struct cistern_error *err)
{
	int64_t deadline = peers_now() + (int64_t)(usec < p->opt.timeout_usec ? usec : p->opt.timeout_usec);
	int r = 0;

	pthread_mutex_lock(&p->lock);
	while (!p->numbered && r == 0)
		r = peers_wait(p, deadline);
	r = p->numbered ? 0 : r;
	pthread_mutex_unlock(&p->lock);
	if (r == -ESHUTDOWN)
		return cistern_error_set(err, r, "the daemon ends");
	return r ? not_numbered(p, err) : 0;
}

void peers_set_hooks(struct peers *p, const struct peers_hooks *hooks)
{
	pthread_mutex_lock(&p->lock);
	p->hooks = *hooks;
	pthread_mutex_unlock(&p->lock);
}

/* Since when the first of our requests to it that has no answer waits; 0: there is none. */
static int64_t asked_since(const struct node *n)
{
	const struct call *c;

	TAILQ_FOREACH(c, &n->calls, in_node)
	if (!c->tell)
		return c->started_usec;
	return 0;
}

static void describe_owed(const struct node *n, int64_t now, struct peers_node *out)
{
	const struct call *c;
	int64_t since = asked_since(n);

	if (!n->slow_usec)
		return;
	TAILQ_FOREACH(c, &n->calls, in_node)
	out->num_owed += !c->tell;
	out->owed_usec = since ? (uint64_t)(now - since) : 0;
	out->silent_usec = n->heard_usec ? (uint64_t)(now - n->heard_usec) : 0;
}

size_t peers_nodes(struct peers *p, uint32_t first, struct peers_node *out, size_t cap)
{
	int64_t now = peers_now();
	size_t num = 0;

	pthread_mutex_lock(&p->lock);
	for (; p->nodes && num < cap && first + num < p->count; num++) {
		const struct node *n = &p->nodes[first + num];

		out[num] = (struct peers_node){
			.node = first + (uint32_t)num,
			.present = n->present || first + num == p->self,
			.gone = n->gone,
			.silent = n->silent,
			.missing_usec = n->missing_since_usec ? (uint64_t)(now - n->missing_since_usec) : 0,
			.incarnation = first + num == p->self ? p->opt.incarnation : n->incarnation,
		};
		memcpy(out[num].host, n->name, sizeof(out[num].host));
		describe_owed(n, now, &out[num]);
	}
	pthread_mutex_unlock(&p->lock);
	return num;
}

/* It is, until something is heard of it: what was given up does not make it any quicker. */
static bool is_slow(struct node *n, int64_t now, uint64_t usec)
{
	int64_t since = asked_since(n);

	if (since && now - since >= (int64_t)usec)
		n->slow_usec = n->slow_usec ? n->slow_usec : now;
	else if (n->heard_usec > n->slow_usec || n->gone)
		n->slow_usec = 0;
	return n->slow_usec;
}

size_t peers_slow(struct peers *p, uint64_t usec, uint32_t *out, size_t cap)
{
	int64_t now = peers_now();
	size_t num = 0;

	pthread_mutex_lock(&p->lock);
	for (uint32_t i = 0; p->nodes && i < p->count && num < cap; i++)
		if (is_slow(&p->nodes[i], now, usec))
			out[num++] = i;
	pthread_mutex_unlock(&p->lock);
	return num;
}

bool peers_is_silent(struct peers *p, uint32_t node)
{
	struct peers_node n;

	return peers_nodes(p, node, &n, 1) == 1 && n.silent;
}

bool peers_is_present(struct peers *p, uint32_t node)
{
	struct peers_node n;

	return peers_nodes(p, node, &n, 1) == 1 && n.present;
}

/* ---- what happens to nodes */

struct change { /* done when the lock is free */
	uint64_t turn;
	struct call_list failed;
	uint32_t *restarted; /* owned; room for all */
	uint32_t num_restarted;
};

/*
 * Events are told without the lock, by the thread in which they happen, and in the order in which they have happened: who is told last that
 * a node has gone believes so. A turn is taken together with the change, under the lock, and each that is taken is passed on.
 */
static uint64_t turn_take(struct peers *p)
{
	return p->last_turn++;
}

static void turn_await(struct peers *p, uint64_t turn)
{
	pthread_mutex_lock(&p->lock);
	while (p->turn != turn)
		pthread_cond_wait(&p->turn_passed, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

static void turn_pass(struct peers *p)
{
	pthread_mutex_lock(&p->lock);
	p->turn++;
	pthread_cond_broadcast(&p->turn_passed);
	pthread_mutex_unlock(&p->lock);
}

static void tell_event(struct peers *p, enum peers_event event, uint32_t node)
{
	struct peers_hooks hooks;

	pthread_mutex_lock(&p->lock);
	hooks = p->hooks;
	if (p->ended || !hooks.event) {
		pthread_mutex_unlock(&p->lock);
		return;
	}
	upcall_begin(p);
	pthread_mutex_unlock(&p->lock);
	hooks.event(event, node, hooks.arg);
	upcall_end(p);
}

static void tells_take(struct peers *p, struct node *n, struct call_list *out)
{
	struct call *c, *next;

	for (c = TAILQ_FIRST(&n->calls); c; c = next) {
		next = TAILQ_NEXT(c, in_node);
		if (c->tell)
			call_take(p, c, -ECONNRESET, out);
	}
}

/* Or it was given up, and comes back as it was: others have gone on without it. */
static void daemon_replaced(struct peers *p, uint32_t node, uint64_t incarnation, struct change *ch)
{
	struct node *n = &p->nodes[node];

	calls_take_node(p, n, true, -ECONNRESET, &ch->failed);
	tells_take(p, n, &ch->failed);
	if (n->incarnation != incarnation) {
		requests_forget_all(p, n);
		n->seen = 0;
	}
	ch->restarted[ch->num_restarted++] = node;
}

/* Node's daemon is there: say it all again that it has not answered. */
static void arrived(struct peers *p, uint32_t node, uint64_t incarnation, struct change *ch)
{
	struct node *n = &p->nodes[node];

	if (n->gone || (n->incarnation && n->incarnation != incarnation))
		daemon_replaced(p, node, incarnation, ch);
	n->incarnation = incarnation;
	n->hearsay = false;
	n->present = true;
	n->gone = false;
	n->missing_since_usec = 0;
	n->silent = false;
	n->heard_usec = peers_now();
	n->num_acks = 0; /* those that were lost are below the mark some day */
	n->untold = 0;
	n->untold_bytes = 0;
	call_resend_all(p, node);
}

static void missing(struct peers *p, uint32_t node)
{
	struct node *n = &p->nodes[node];

	n->present = false;
	if (!n->gone && !n->missing_since_usec)
		n->missing_since_usec = peers_now();
	timer_poke(p, peers_now() + (int64_t)p->opt.node_timeout_usec);
}

void peers_note_failed(struct peers *p, uint32_t node)
{
	char name[NAME_BYTES + 32], text[2 * NAME_BYTES + 256];
	bool news;

	pthread_mutex_lock(&p->lock);
	news = p->nodes && node < p->count && p->nodes[node].gone && p->nodes[node].num_failed++ == 0;
	upcall_begin(p);
	pthread_mutex_unlock(&p->lock);
	if (news) {
		snprintf(text, sizeof(text),
			"%s is asked for what only it has, and its daemon has ended or was given up: until its store is mounted again, "
			"such calls fail, with EIO to applications",
			peers_name(p, node, name, sizeof(name)));
		peers_log(p, true, "peer-needed", text);
	}
	upcall_end(p);
}

static void log_back(struct peers *p, uint32_t node)
{
	char name[NAME_BYTES + 32], text[2 * NAME_BYTES + 128];
	uint64_t num_failed;

	pthread_mutex_lock(&p->lock);
	num_failed = p->nodes[node].num_failed;
	p->nodes[node].num_failed = 0;
	pthread_mutex_unlock(&p->lock);
	if (num_failed == 0)
		return;
	snprintf(text, sizeof(text), "%s: its daemon is there again; %llu calls have failed for want of it",
		peers_name(p, node, name, sizeof(name)), (unsigned long long)num_failed);
	peers_log(p, false, "peer-back", text);
}

static int change_begin(uint32_t count, struct change *ch)
{
	*ch = (struct change){ .restarted = calloc(count, sizeof(*ch->restarted)) };
	TAILQ_INIT(&ch->failed);
	return ch->restarted ? 0 : -ENOMEM;
}

/* Under the lock, when all is changed. */
static void change_made(struct peers *p, struct change *ch)
{
	ch->turn = turn_take(p);
	upcall_begin(p);
}

/* Without the lock; then it is the turn of what it tells, which the caller passes. */
static void change_end(struct peers *p, struct change *ch)
{
	finish_calls(&ch->failed);
	for (uint32_t i = 0; i < ch->num_restarted; i++)
		log_back(p, ch->restarted[i]);
	upcall_end(p);
	turn_await(p, ch->turn);
	for (uint32_t i = 0; i < ch->num_restarted; i++)
		tell_event(p, PEERS_RESTARTED, ch->restarted[i]);
	free(ch->restarted);
}

static int take_numbers(struct peers *p, const struct peers_assembly *a)
{
	int r;

	if (a->count == 0 || a->self >= a->count)
		return -EINVAL;
	if (p->numbered && (a->count != p->count || a->self != p->self))
		return -EINVAL;
	r = p->nodes ? 0 : node_init(p, a->count);
	if (r)
		return r;
	p->self = a->self;
	p->count = a->count;
	for (uint32_t i = 0; i < a->count; i++)
		snprintf(p->nodes[i].name, sizeof(p->nodes[i].name), "%s", a->names ? a->names[i] : "");
	p->numbered = true;
	return 0;
}

int peers_assembled(struct peers *p, const struct peers_assembly *a)
{
	struct change ch;
	int r = change_begin(a->count ? a->count : 1, &ch);

	if (r)
		return r;
	pthread_mutex_lock(&p->lock);
	r = p->ended ? -ESHUTDOWN : take_numbers(p, a);
	if (r) {
		pthread_mutex_unlock(&p->lock);
		free(ch.restarted);
		return r;
	}
	p->connected = p->was_connected = true;
	for (uint32_t i = 0; i < p->count; i++) {
		if (i == p->self)
			continue;
		if (a->incarnations[i])
			arrived(p, i, a->incarnations[i], &ch);
		else
			missing(p, i);
	}
	gets_resend(p);
	pthread_cond_broadcast(&p->changed);
	change_made(p, &ch);
	pthread_mutex_unlock(&p->lock);
	change_end(p, &ch);
	tell_event(p, PEERS_ASSEMBLED, a->self);
	turn_pass(p);
	return 0;
}

void peers_lost(struct peers *p)
{
	bool news;

	pthread_mutex_lock(&p->lock);
	news = p->connected;
	p->connected = false;
	p->lost_usec = peers_now();
	for (uint32_t i = 0; p->nodes && i < p->count; i++) {
		p->nodes[i].present = false;
		p->nodes[i].missing_since_usec = 0; /* nobody looks for it now */
	}
	gets_lost(p);
	uint64_t turn = turn_take(p);
	pthread_mutex_unlock(&p->lock);
	turn_await(p, turn);
	if (news)
		tell_event(p, PEERS_LOST, peers_self(p));
	turn_pass(p);
}

void peers_left(struct peers *p, uint32_t node)
{
	pthread_mutex_lock(&p->lock);
	if (p->connected && node < p->count && node != p->self)
		missing(p, node);
	pthread_mutex_unlock(&p->lock);
}

/* The transport comes to a daemon of which we know from others that there is a later one. */
static bool is_over(const struct node *n, uint64_t incarnation)
{
	return n->hearsay && incarnation < n->incarnation;
}

void peers_joined(struct peers *p, uint32_t node, uint64_t incarnation)
{
	struct change ch;

	if (change_begin(1, &ch))
		return;
	pthread_mutex_lock(&p->lock);
	if (p->ended || !p->connected || node >= p->count || node == p->self || is_over(&p->nodes[node], incarnation)) {
		pthread_mutex_unlock(&p->lock);
		free(ch.restarted);
		return;
	}
	arrived(p, node, incarnation, &ch);
	change_made(p, &ch);
	pthread_mutex_unlock(&p->lock);
	change_end(p, &ch);
	turn_pass(p);
}

/* Present or not, as the transport has it: its word of the one before, and then of this one, is under way. */
static void take_hearsay(struct peers *p, uint32_t node, uint64_t incarnation, struct change *ch)
{
	struct node *n = &p->nodes[node];

	if (n->incarnation && !n->gone)
		daemon_replaced(p, node, incarnation, ch);
	requests_forget_all(p, n);
	n->seen = 0;
	n->incarnation = incarnation;
	n->hearsay = true;
}

int peers_heard_of(struct peers *p, uint32_t node, uint64_t incarnation)
{
	struct change ch;
	int r = change_begin(1, &ch);

	if (r)
		return r;
	pthread_mutex_lock(&p->lock);
	bool known = p->nodes && node < p->count && node != p->self;
	if (p->ended || !known || incarnation <= p->nodes[node].incarnation) {
		pthread_mutex_unlock(&p->lock);
		free(ch.restarted);
		return 0;
	}
	take_hearsay(p, node, incarnation, &ch);
	change_made(p, &ch);
	pthread_mutex_unlock(&p->lock);
	change_end(p, &ch);
	turn_pass(p);
	return 0;
}

static void log_gone(struct peers *p, uint32_t node, bool given_up)
{
	char name[NAME_BYTES + 32], text[256];

	peers_name(p, node, name, sizeof(name));
	if (given_up)
		snprintf(text, sizeof(text),
			"%s is given up: its daemon has not come back for %llu s (node_timeout). What needs it fails until it is "
			"mounted again",
			name, (unsigned long long)(p->opt.node_timeout_usec / 1000000));
	else
		snprintf(text, sizeof(text), "%s: its daemon has ended", name);
	peers_log(p, given_up, given_up ? "peer-given-up" : "peer-ended", text);
}

void peers_give_up(struct peers *p, uint32_t node, int64_t missing_since_usec)
{
	struct call_list failed = TAILQ_HEAD_INITIALIZER(failed);
	struct node *n = &p->nodes[node];
	bool news;

	pthread_mutex_lock(&p->lock);
	if (missing_since_usec && n->missing_since_usec != missing_since_usec) {
		pthread_mutex_unlock(&p->lock);
		return;
	}
	news = !n->gone && !p->ended;
	n->gone = true;
	n->present = false;
	n->missing_since_usec = 0;
	calls_take_node(p, n, false, -EHOSTDOWN, &failed);
	uint64_t turn = turn_take(p);
	upcall_begin(p);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	finish_calls(&failed);
	if (news)
		log_gone(p, node, missing_since_usec != 0);
	upcall_end(p);
	turn_await(p, turn);
	if (news)
		tell_event(p, PEERS_GONE, node);
	turn_pass(p);
}

/* ---- what arrives */

/* Is it from the daemon that we know there? A newer one joins by saying something. */
static bool known_sender(struct peers *p, uint32_t from, const struct frame *f)
{
	bool newer, known;

	pthread_mutex_lock(&p->lock);
	known = !p->ended && p->connected && from < p->count && from != p->self;
	newer = known && (f->incarnation > p->nodes[from].incarnation ||
				 (f->incarnation == p->nodes[from].incarnation && p->nodes[from].hearsay));
	pthread_mutex_unlock(&p->lock);
	if (newer)
		peers_joined(p, from, f->incarnation);
	if (!known)
		return false;
	pthread_mutex_lock(&p->lock);
	known = f->incarnation == p->nodes[from].incarnation && !p->nodes[from].gone;
	if (known) {
		p->nodes[from].silent = false;
		p->nodes[from].heard_usec = peers_now();
		calls_seen(p, from, f->seen);
		requests_acked(p, from, f);
	}
	pthread_mutex_unlock(&p->lock);
	return known;
}

int64_t peers_time_ns(struct peers *p)
{
	return p->hooks.clock ? clock_now(p->hooks.clock) : 0;
}

/* What was on its way to the daemon before us has its numbers: a reply would be taken for that to a request of ours. */
static bool is_for_us(const struct peers *p, const struct frame *f)
{
	return f->to == p->opt.incarnation;
}

void peers_received(struct peers *p, uint32_t from, const void *bytes, size_t len)
{
	struct frame f;

	if (frame_decode(bytes, len, &f) || !is_for_us(p, &f) || !known_sender(p, from, &f))
		return;
	if (p->hooks.clock)
		clock_heard(p->hooks.clock, f.time_ns);
	switch (f.kind) {
	case FRAME_REQUEST:
	case FRAME_TELL: request_arrived(p, from, &f); break;
	case FRAME_REPLY: call_answered(p, from, &f); break;
	case FRAME_BYE: peers_give_up(p, from, 0); break;
	case FRAME_ACK: break;
	}
}

/* ---- life */

static int init_locks(struct peers *p)
{
	pthread_condattr_t attr;
	int r = -pthread_condattr_init(&attr);

	if (r)
		return r;
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &attr);
	pthread_cond_init(&p->tick, &attr);
	pthread_cond_init(&p->turn_passed, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&p->lock, NULL);
	return 0;
}

static void release(struct peers *p)
{
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->changed);
	pthread_cond_destroy(&p->tick);
	pthread_cond_destroy(&p->turn_passed);
	buf_free(&p->head);
	for (size_t i = 0; p->slots && i < p->num_slots; i++)
		free(p->slots[i].wanted);
	free(p->slots);
	free(p->nodes);
	free(p);
}

int peers_create(const struct peers_options *opt, struct peers **ret)
{
	struct peers *p = calloc(1, sizeof(*p));
	int r = p ? init_locks(p) : -ENOMEM;

	if (r) {
		free(p);
		return r;
	}
	p->opt = *opt;
	p->opt.patience_usec = opt->patience_usec ? opt->patience_usec : PATIENCE_USEC;
	p->lost_usec = peers_now();
	p->timer_at_usec = INT64_MIN;
	p->told_usec = p->told_timeout_usec = INT64_MIN / 2;
	p->numbered = opt->count > 1;
	p->self = p->numbered ? opt->self : 0;
	p->count = p->numbered ? opt->count : 1;
	node_make(&p->me);
	TAILQ_INIT(&p->waiting);
	TAILQ_INIT(&p->waiting_brief);
	TAILQ_INIT(&p->waiting_self);
	TAILQ_INIT(&p->loose);
	TAILQ_INIT(&p->gets);
	TAILQ_INIT(&p->late_gets);
	r = p->numbered ? node_init(p, p->count) : 0;
	r = r ? r : slots_init(p);
	r = r ? r : -pthread_create(&p->timer, NULL, timer_thread, p);
	if (r) {
		release(p);
		return r;
	}
	*ret = p;
	return 0;
}

static void say_bye(struct peers *p)
{
	for (uint32_t i = 0; p->nodes && i < p->count; i++)
		if (p->connected && p->nodes[i].present)
			node_send(p, i, &(struct frame){ .kind = FRAME_BYE }, NULL);
}

void peers_shut_down(struct peers *p)
{
	struct call_list failed = TAILQ_HEAD_INITIALIZER(failed);
	struct get_list unfetched = TAILQ_HEAD_INITIALIZER(unfetched);
	struct get *g;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	if (!p->ended)
		say_bye(p);
	p->ended = true;
	for (uint32_t i = 0; p->nodes && i < p->count; i++)
		calls_take_node(p, &p->nodes[i], false, -ESHUTDOWN, &failed);
	calls_take_node(p, &p->me, false, -ESHUTDOWN, &failed);
	while ((g = TAILQ_FIRST(&p->gets)))
		get_take(p, g, -ESHUTDOWN, &unfetched);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	finish_calls(&failed);
	finish_gets(&unfetched);
	pthread_mutex_lock(&p->lock);
	while (p->upcalls || p->waiters)
		pthread_cond_wait(&p->changed, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

void peers_destroy(struct peers *p)
{
	struct get *g;

	if (!p)
		return;
	peers_shut_down(p);
	pthread_mutex_lock(&p->lock);
	p->stop_timer = true;
	pthread_cond_signal(&p->tick);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->timer, NULL);
	for (uint32_t i = 0; p->nodes && i < p->count; i++)
		requests_free(&p->nodes[i].requests);
	requests_free(&p->loose);
	while ((g = TAILQ_FIRST(&p->late_gets))) {
		TAILQ_REMOVE(&p->late_gets, g, in_list);
		free(g->gets);
		free(g);
	}
	release(p);
}
