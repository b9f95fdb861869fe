/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Payload of other nodes: buffers in the transport's memory and what is on its way into them. A fetch that nobody waits for
 * any more (its time is over) may still write into its buffer, which is not given out again before the transport has said
 * that it is done, or that the agent is gone.
 *
 * So a node that hangs keeps buffers for as long as it does. A fetch *counts* for each node that it asks, from when it has a buffer until
 * it is done; one that asks several only until a later one has had payload of that node, for it may be another one that it waits for. Who
 * wants payload of a node gets a buffer when fewer count for the node than are free: so one that hangs has half of them at most, two have a
 * third each, and some are left for the others. Or when he asks that node alone, and nobody else does: by that, one that counts for
 * another's fault is told from it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/peer/private.h"

int slots_init(struct peers *p)
{
	size_t bytes = 0;
	uint8_t *memory = p->opt.ops->memory(p->opt.transport, &bytes);

	p->num_slots = bytes / PEERS_BUFFER_BYTES;
	if (p->num_slots == 0)
		return 0;
	p->slots = calloc(p->num_slots, sizeof(*p->slots));
	if (!p->slots)
		return -ENOMEM;
	for (size_t i = p->num_slots; i-- > 0;) {
		p->slots[i].bytes = memory + i * PEERS_BUFFER_BYTES;
		p->slots[i].next_free = p->free_slots;
		p->free_slots = &p->slots[i];
	}
	p->num_free = p->num_slots;
	return 0;
}

/* ---- buffers */

static void slot_free_if_unused(struct peers *p, struct slot *s)
{
	if (s->taken || s->busy)
		return;
	s->next_free = p->free_slots;
	p->free_slots = s;
	p->num_free++;
	pthread_cond_broadcast(&p->changed);
}

size_t peers_buffers(const struct peers *p)
{
	return p->num_slots;
}

/* ---- whom they wait for. Under the lock */

static bool asks_one(const struct peers_get *gets, size_t num)
{
	for (size_t i = 1; i < num; i++)
		if (gets[i].node != gets[0].node)
			return false;
	return num > 0;
}

/* id: of the fetch. */
static void add_counts(struct peers *p, const struct peers_get *gets, size_t num, uint64_t id)
{
	bool alone = asks_one(gets, num);
	uint64_t mark = ++p->last_mark;

	for (size_t i = 0; i < num; i++) {
		struct node *n = &p->nodes[gets[i].node];

		if (n->mark == mark)
			continue;
		n->mark = mark;
		n->held += alone || id > n->given;
		n->held_alone += alone;
	}
}

/* Of the nodes that gets ask. */
static void count(struct peers *p, const struct peers_get *gets, size_t num)
{
	const struct get *g;

	for (size_t i = 0; i < num; i++)
		p->nodes[gets[i].node].held = p->nodes[gets[i].node].held_alone = 0;
	TAILQ_FOREACH(g, &p->gets, in_list)
	add_counts(p, g->gets, g->num, g->id);
	TAILQ_FOREACH(g, &p->late_gets, in_list)
	add_counts(p, g->gets, g->num, g->id);
	for (size_t i = 0; i < p->num_slots; i++)
		add_counts(p, p->slots[i].wanted, p->slots[i].num_wanted, UINT64_MAX);
}

static size_t num_waiting(const struct peers *p)
{
	size_t num = 0;

	for (size_t i = 0; i < p->num_slots; i++)
		num += p->slots[i].busy || p->slots[i].wanted;
	return num;
}

/* 0: a buffer may be had. -EAGAIN, -EBUSY. */
static int admit(struct peers *p, const struct peers_get *gets, size_t num)
{
	bool alone = asks_one(gets, num);

	if (!p->free_slots)
		return -EAGAIN;
	if (!p->nodes || num_waiting(p) < p->num_free)
		return 0;
	count(p, gets, num);
	for (size_t i = 0; i < num; i++) {
		const struct node *n = &p->nodes[gets[i].node];

		if (n->held < p->num_free || (alone && n->held_alone == 0))
			continue;
		return alone ? -EAGAIN : -EBUSY;
	}
	return 0;
}

static void has_given(struct peers *p, const struct get *g)
{
	for (size_t i = 0; p->nodes && i < g->num; i++) {
		struct node *n = &p->nodes[g->gets[i].node];

		n->given = g->id > n->given ? g->id : n->given;
	}
	pthread_cond_broadcast(&p->changed);
}

/* ---- giving them out */

static void set_wanted(struct slot *s, struct peers_get *gets, size_t num)
{
	free(s->wanted);
	s->wanted = gets;
	s->num_wanted = num;
}

/* gets is taken over when there is one. */
static int take_slot(struct peers *p, struct peers_get *gets, size_t num, bool wait, struct slot **ret)
{
	int64_t deadline = peers_now() + (int64_t)p->opt.timeout_usec;
	int r = 0;

	pthread_mutex_lock(&p->lock);
	while (!p->ended && (r = admit(p, gets, num)) == -EAGAIN && wait && (r = peers_wait(p, deadline)) == 0)
		;
	r = p->ended ? -ESHUTDOWN : r;
	if (r == 0) {
		struct slot *s = *ret = p->free_slots;

		p->free_slots = s->next_free;
		p->num_free--;
		s->taken = true;
		set_wanted(s, gets, num);
	}
	pthread_mutex_unlock(&p->lock);
	return r;
}

static int check_gets(struct peers *p, const struct peers_get *gets, size_t num)
{
	uint32_t count = peers_count(p);

	if (num > GET_PARTS_MAX)
		return -E2BIG;
	for (size_t i = 0; i < num; i++)
		if (gets[i].node >= count || gets[i].to > PEERS_BUFFER_BYTES ||
			gets[i].len > PEERS_BUFFER_BYTES - gets[i].to)
			return -EINVAL;
	return 0;
}

static int copy_gets(const struct peers_get *gets, size_t num, struct peers_get **ret)
{
	*ret = calloc(num ? num : 1, sizeof(*gets));
	if (!*ret)
		return -ENOMEM;
	if (num)
		memcpy(*ret, gets, num * sizeof(*gets));
	return 0;
}

static int buffer(struct peers *p, const struct peers_get *gets, size_t num, bool wait, struct peers_buffer *ret)
{
	struct peers_get *copy = NULL;
	struct slot *s;
	int r = check_gets(p, gets, num);

	r = r ? r : copy_gets(gets, num, &copy);
	r = r ? r : take_slot(p, copy, num, wait, &s);
	if (r) {
		free(copy);
		return r;
	}
	*ret = (struct peers_buffer){ .bytes = s->bytes, .owner = s };
	return 0;
}

int peers_buffer_get(struct peers *p, const struct peers_get *gets, size_t num, struct peers_buffer *ret)
{
	return buffer(p, gets, num, true, ret);
}

int peers_buffer_try(struct peers *p, const struct peers_get *gets, size_t num, struct peers_buffer *ret)
{
	return buffer(p, gets, num, false, ret);
}

void peers_buffer_put(struct peers *p, struct peers_buffer *b)
{
	struct slot *s = b->owner;

	pthread_mutex_lock(&p->lock);
	s->taken = false;
	set_wanted(s, NULL, 0);
	slot_free_if_unused(p, s);
	pthread_mutex_unlock(&p->lock);
	*b = (struct peers_buffer){ 0 };
}

uint64_t peers_buffer_offset(const struct peers *p, const struct peers_buffer *b)
{
	const struct slot *s = b->owner;

	return (uint64_t)(s - p->slots) * PEERS_BUFFER_BYTES;
}

/* ---- fetching */

static void get_free(struct get *g)
{
	free(g->gets);
	free(g);
}

static void get_leaves_slot(struct peers *p, struct get *g)
{
	g->slot->busy--;
	slot_free_if_unused(p, g->slot);
}

/* Under the lock: g is finished with status as far as its caller is concerned. */
void get_take(struct peers *p, struct get *g, int status, struct get_list *out)
{
	struct get *late = g->sent && p->connected && status ? calloc(1, sizeof(*late)) : NULL;

	TAILQ_REMOVE(&p->gets, g, in_list);
	p->num_gets--;
	g->status = status;
	TAILQ_INSERT_TAIL(out, g, in_list);
	if (late) {
		late->id = g->id;
		late->slot = g->slot;
		late->started_usec = g->started_usec;
		late->gets = g->gets;
		late->num = g->num;
		g->gets = NULL;
		TAILQ_INSERT_TAIL(&p->late_gets, late, in_list);
	} else if (!(g->sent && p->connected && status)) { /* else: no memory to remember it by; the buffer is lost */
		get_leaves_slot(p, g);
	}
	pthread_cond_broadcast(&p->changed);
}

void finish_gets(struct get_list *list)
{
	struct get *g;

	while ((g = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, g, in_list);
		g->done(g->status, NULL, g->arg);
		get_free(g);
	}
}

static struct get *find(struct get_list *list, uint64_t id)
{
	struct get *g;

	TAILQ_FOREACH(g, list, in_list)
	if (g->id == id)
		return g;
	return NULL;
}

static void transmit(struct peers *p, struct get *g)
{
	g->sent = p->opt.ops->get(p->opt.transport, g->id, g->slot->bytes, g->gets, g->num) == 0;
}

void gets_resend(struct peers *p)
{
	struct get *g;

	TAILQ_FOREACH(g, &p->gets, in_list)
	if (!g->sent)
		transmit(p, g);
}

void gets_lost(struct peers *p)
{
	struct get *g;

	TAILQ_FOREACH(g, &p->gets, in_list)
	g->sent = false;
	while ((g = TAILQ_FIRST(&p->late_gets))) {
		TAILQ_REMOVE(&p->late_gets, g, in_list);
		get_leaves_slot(p, g);
		get_free(g);
	}
}

void peers_got(struct peers *p, uint64_t id, int status)
{
	struct get_list out = TAILQ_HEAD_INITIALIZER(out);
	struct get *g;

	pthread_mutex_lock(&p->lock);
	g = find(&p->gets, id);
	if (g && g->sent) {
		if (status == 0)
			has_given(p, g);
		g->sent = false; /* nobody writes into its buffer any more */
		get_take(p, g, status > 0 || status < -4095 ? -EBADMSG : status, &out);
	} else if ((g = find(&p->late_gets, id))) {
		if (status == 0)
			has_given(p, g);
		TAILQ_REMOVE(&p->late_gets, g, in_list);
		get_leaves_slot(p, g);
		get_free(g);
	}
	upcall_begin(p);
	pthread_mutex_unlock(&p->lock);
	finish_gets(&out);
	upcall_end(p);
}

/* wait: until there are fewer. */
static int enlist(struct peers *p, struct get *g, bool wait)
{
	int64_t deadline = peers_now() + (int64_t)p->opt.timeout_usec;
	int r = p->ended ? -ESHUTDOWN : 0;

	while (!r && p->num_gets >= GETS_MAX)
		r = wait ? peers_wait(p, deadline) : -EAGAIN;
	if (r)
		return r;
	g->id = ++p->last_get;
	g->started_usec = peers_now();
	g->slot->busy++;
	set_wanted(g->slot, NULL, 0);
	TAILQ_INSERT_TAIL(&p->gets, g, in_list);
	p->num_gets++;
	timer_poke(p, g->started_usec + (int64_t)p->opt.timeout_usec);
	if (p->connected)
		transmit(p, g);
	return 0;
}

static int start(struct peers *p, const struct peers_buffer *to, const struct peers_get *gets, size_t num,
	peers_done done, void *arg, bool wait)
{
	int r = check_gets(p, gets, num);
	struct get *g;

	if (r)
		return r;
	g = calloc(1, sizeof(*g));
	if (!g || copy_gets(gets, num, &g->gets)) {
		free(g);
		return -ENOMEM;
	}
	g->num = num;
	g->slot = to->owner;
	g->done = done;
	g->arg = arg;
	pthread_mutex_lock(&p->lock);
	r = enlist(p, g, wait);
	pthread_mutex_unlock(&p->lock);
	if (r)
		get_free(g);
	return r;
}

int peers_get_async(struct peers *p, const struct peers_buffer *to, const struct peers_get *gets, size_t num,
	peers_done done, void *arg)
{
	return start(p, to, gets, num, done, arg, false);
}

int peers_get(struct peers *p, const struct peers_buffer *to, const struct peers_get *gets, size_t num)
{
	struct waiter w;
	int r;

	waiter_init(&w, NULL);
	r = start(p, to, gets, num, waiter_done, &w, true);
	return waiter_end(&w, r);
}
