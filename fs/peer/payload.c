/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Payload of other nodes: buffers in the transport's memory and what is on its way into them. A fetch that nobody waits for
 * any more (its time is over) may still write into its buffer, which is not given out again before the transport has said
 * that it is done, or that the agent is gone.
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
	return 0;
}

/* ---- buffers */

static void slot_free_if_unused(struct peers *p, struct slot *s)
{
	if (s->taken || s->busy)
		return;
	s->next_free = p->free_slots;
	p->free_slots = s;
	pthread_cond_broadcast(&p->changed);
}

size_t peers_buffers(const struct peers *p)
{
	return p->num_slots;
}

static int take_slot(struct peers *p, struct peers_buffer *ret, bool wait)
{
	int64_t deadline = peers_now() + (int64_t)p->opt.timeout_usec;
	struct slot *s;
	int r = 0;

	pthread_mutex_lock(&p->lock);
	while (!p->ended && !p->free_slots && r == 0)
		r = wait ? peers_wait(p, deadline) : -EAGAIN;
	s = p->ended ? NULL : p->free_slots;
	if (s) {
		p->free_slots = s->next_free;
		s->taken = true;
	}
	r = s ? 0 : p->ended ? -ESHUTDOWN : r;
	pthread_mutex_unlock(&p->lock);
	if (r)
		return r;
	*ret = (struct peers_buffer){ .bytes = s->bytes, .owner = s };
	return 0;
}

int peers_buffer_get(struct peers *p, struct peers_buffer *ret)
{
	return take_slot(p, ret, true);
}

int peers_buffer_try(struct peers *p, struct peers_buffer *ret)
{
	return take_slot(p, ret, false);
}

void peers_buffer_put(struct peers *p, struct peers_buffer *b)
{
	struct slot *s = b->owner;

	pthread_mutex_lock(&p->lock);
	s->taken = false;
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
		g->sent = false; /* nobody writes into its buffer any more */
		get_take(p, g, status > 0 || status < -4095 ? -EBADMSG : status, &out);
	} else if ((g = find(&p->late_gets, id))) {
		TAILQ_REMOVE(&p->late_gets, g, in_list);
		get_leaves_slot(p, g);
		get_free(g);
	}
	upcall_begin(p);
	pthread_mutex_unlock(&p->lock);
	finish_gets(&out);
	upcall_end(p);
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
	if (!g || !(g->gets = calloc(num ? num : 1, sizeof(*gets)))) {
		free(g);
		return -ENOMEM;
	}
	if (num)
		memcpy(g->gets, gets, num * sizeof(*gets));
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
