/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A slot keeps its buffer from one fetch to the next. After a fetch that failed the buffer is changed: the transport may
 * still write into it, and lends it to nobody before it has ended. A process that dies may leave a thread of ours waiting here while the
 * manager takes everything back for the next one.
 */
#include "fs/drain/fetch.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "format/wire/wire.h"

static_assert(WIRE_FETCH_BYTES <= PEERS_BUFFER_BYTES, "what fits a slot fits a buffer");

enum slot_state {
	SLOT_IDLE,
	SLOT_STARTING, /* the transport is just being told: it must not lose its buffer */
	SLOT_COMING,
	SLOT_THERE,
};

struct fetch_slot {
	struct fetch *fetch;
	/* fetch.lock */
	enum slot_state state;
	int status;
	uint64_t round; /* which fetch: an earlier one that was given up may end later */
	struct peers_buffer buffer;
};

struct fetch {
	struct peers *peers;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t resets;
	struct fetch_slot slots[WIRE_FETCH_SLOTS];
};

struct coming { /* a fetch that is under way */
	struct fetch_slot *slot;
	uint64_t round;
};

int fetch_create(struct peers *peers, struct fetch **ret)
{
	struct fetch *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->peers = peers;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
	for (size_t i = 0; i < WIRE_FETCH_SLOTS; i++)
		f->slots[i].fetch = f;
	*ret = f;
	return 0;
}

static void arrived(int status, const struct wire_msg *reply, void *arg)
{
	struct coming *c = arg;
	struct fetch_slot *s = c->slot;

	(void)reply;
	pthread_mutex_lock(&s->fetch->lock);
	if (s->state != SLOT_IDLE && s->round == c->round) {
		s->state = SLOT_THERE;
		s->status = status;
		pthread_cond_broadcast(&s->fetch->changed);
	}
	pthread_mutex_unlock(&s->fetch->lock);
	free(c);
}

static int lay_out(const struct peers_get *ranges, size_t num, struct peers_get **ret)
{
	struct peers_get *gets = calloc(num + 1, sizeof(*gets));
	uint32_t at = 0;

	if (!gets)
		return -ENOMEM;
	for (size_t i = 0; i < num; i++) {
		if (ranges[i].len > WIRE_FETCH_BYTES - at) {
			free(gets);
			return -EINVAL;
		}
		gets[i] = ranges[i];
		gets[i].to = at;
		at += ranges[i].len;
	}
	*ret = gets;
	return 0;
}

/* Of several nodes one does not give what it is asked for: as if that had been waited for. */
static int take_buffer(struct fetch *f, const struct peers_get *gets, size_t num, struct peers_buffer *ret)
{
	int r = peers_buffer_get(f->peers, gets, num, ret);

	return r == -EBUSY ? -ETIMEDOUT : r;
}

/* The slot has a buffer; -EBUSY. *ret_resets: as they were. */
static int take_slot(
	struct fetch *f, struct fetch_slot *s, const struct peers_get *gets, size_t num, uint64_t *ret_resets)
{
	struct peers_buffer b = { 0 };

	pthread_mutex_lock(&f->lock);
	int r = s->state == SLOT_IDLE ? 0 : -EBUSY;
	bool has = s->buffer.bytes;
	*ret_resets = f->resets;
	pthread_mutex_unlock(&f->lock);
	if (r == 0 && !has)
		r = take_buffer(f, gets, num, &b);
	pthread_mutex_lock(&f->lock);
	if (r == 0 && f->resets != *ret_resets)
		r = -ESTALE;
	if (r == 0 && b.bytes) {
		s->buffer = b;
		b.bytes = NULL;
	}
	pthread_mutex_unlock(&f->lock);
	if (b.bytes)
		peers_buffer_put(f->peers, &b);
	return r;
}

static int set_starting(struct fetch *f, struct fetch_slot *s, uint64_t resets, uint64_t *ret_round)
{
	pthread_mutex_lock(&f->lock);
	int r = f->resets == resets ? 0 : -ESTALE;
	if (r == 0) {
		s->state = SLOT_STARTING;
		*ret_round = ++s->round;
	}
	pthread_mutex_unlock(&f->lock);
	return r;
}

static void set_started(struct fetch *f, struct fetch_slot *s, int r)
{
	pthread_mutex_lock(&f->lock);
	if (s->state == SLOT_STARTING)
		s->state = r ? SLOT_IDLE : SLOT_COMING;
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
}

static int start(struct fetch *f, struct fetch_slot *s, const struct peers_get *gets, size_t num)
{
	struct coming *c = malloc(sizeof(*c));
	uint64_t resets = 0;
	int r = c ? take_slot(f, s, gets, num, &resets) : -ENOMEM;

	if (r == 0) {
		c->slot = s;
		r = set_starting(f, s, resets, &c->round);
	}
	if (r == 0) {
		r = peers_get_async(f->peers, &s->buffer, gets, num, arrived, c);
		set_started(f, s, r);
	}
	if (r)
		free(c);
	return r;
}

int fetch_begin(struct fetch *f, uint64_t slot, const struct peers_get *ranges, size_t num)
{
	struct peers_get *gets = NULL;
	int r = slot < WIRE_FETCH_SLOTS ? lay_out(ranges, num, &gets) : -EINVAL;

	if (r == 0)
		r = start(f, &f->slots[slot], gets, num);
	free(gets);
	return r;
}

int fetch_wait(struct fetch *f, uint64_t slot, uint64_t *ret_off)
{
	struct peers_buffer gone = { 0 };
	struct fetch_slot *s;
	int r = -ENOENT;

	if (slot >= WIRE_FETCH_SLOTS)
		return -EINVAL;
	s = &f->slots[slot];
	pthread_mutex_lock(&f->lock);
	while (s->state == SLOT_COMING)
		pthread_cond_wait(&f->changed, &f->lock);
	if (s->state == SLOT_THERE)
		r = s->status;
	if (r == 0) {
		*ret_off = peers_buffer_offset(f->peers, &s->buffer);
	} else {
		gone = s->buffer;
		s->buffer = (struct peers_buffer){ 0 };
	}
	s->state = SLOT_IDLE;
	pthread_mutex_unlock(&f->lock);
	if (gone.bytes)
		peers_buffer_put(f->peers, &gone);
	return r;
}

void fetch_reset(struct fetch *f)
{
	struct peers_buffer gone[WIRE_FETCH_SLOTS];

	pthread_mutex_lock(&f->lock);
	f->resets++;
	for (size_t i = 0; i < WIRE_FETCH_SLOTS; i++) {
		struct fetch_slot *s = &f->slots[i];

		while (s->state == SLOT_STARTING)
			pthread_cond_wait(&f->changed, &f->lock);
		s->state = SLOT_IDLE;
		gone[i] = s->buffer;
		s->buffer = (struct peers_buffer){ 0 };
	}
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
	for (size_t i = 0; i < WIRE_FETCH_SLOTS; i++)
		if (gone[i].bytes)
			peers_buffer_put(f->peers, &gone[i]);
}

void fetch_destroy(struct fetch *f)
{
	if (!f)
		return;
	fetch_reset(f);
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->changed);
	free(f);
}
