/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A ring of slots, as many as the memory allows. Chunks are numbered through; number n goes through slot n mod slots. A
 * thread takes the next number as soon as its slot is free; who takes waits for the number that comes next. So the
 * order is kept, and nobody runs ahead by more than the ring.
 */
#include "mpi-agent/nc4/pack.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define SLOTS_MAX     512
#define THREADS_MAX   256
#define NO_DEFLATE(v) ((v)->is_shuffled ? 2u : 1u) /* bit of deflate in the filter mask: it stands behind shuffle */

struct slot {
	uint8_t *plain, *shuffled, *deflated; /* owned */
	size_t plain_cap, shuffled_cap, deflated_cap;
	struct packed out;
	bool ready;
};

struct packer {
	struct packer_options opt;
	pthread_t threads[THREADS_MAX];
	unsigned int num_threads;
	pthread_mutex_t lock;
	pthread_cond_t filled, freed;
	/* under lock */
	struct slot slots[SLOTS_MAX];
	unsigned int num_slots;
	uint64_t next_in, next_out; /* numbers: to be begun, to be taken */
	uint32_t var;               /* of next_in */
	uint64_t chunk, number;
	uint64_t total; /* of those that are wanted; constant */
	bool taken;     /* next_out - 1 is still lent */
	bool stop;
	int error;
};

/* ---- values */

static void swap_16(uint8_t *out, const uint8_t *in, uint64_t num)
{
	for (uint64_t i = 0; i < num; i++) {
		uint16_t v;

		memcpy(&v, in + 2 * i, sizeof(v));
		v = be16toh(v);
		memcpy(out + 2 * i, &v, sizeof(v));
	}
}

static void swap_32(uint8_t *out, const uint8_t *in, uint64_t num)
{
	for (uint64_t i = 0; i < num; i++) {
		uint32_t v;

		memcpy(&v, in + 4 * i, sizeof(v));
		v = be32toh(v);
		memcpy(out + 4 * i, &v, sizeof(v));
	}
}

static void swap_64(uint8_t *out, const uint8_t *in, uint64_t num)
{
	for (uint64_t i = 0; i < num; i++) {
		uint64_t v;

		memcpy(&v, in + 8 * i, sizeof(v));
		v = be64toh(v);
		memcpy(out + 8 * i, &v, sizeof(v));
	}
}

void pack_swap(uint8_t *out, const uint8_t *in, uint64_t num, uint32_t size)
{
	switch (size) {
	case 2: swap_16(out, in, num); break;
	case 4: swap_32(out, in, num); break;
	case 8: swap_64(out, in, num); break;
	default: memcpy(out, in, num); break;
	}
}

static void fill(uint8_t *out, uint64_t num, uint32_t size, const struct classic_var *v)
{
	uint8_t one[CLASSIC_TYPE_BYTES], native[CLASSIC_TYPE_BYTES];

	classic_var_fill(v, one);
	pack_swap(native, one, 1, size);
	for (uint64_t i = 0; i < num; i++)
		memcpy(out + i * size, native, size);
}

struct gather {
	uint64_t start[NC4_RANK_MAX], count[NC4_RANK_MAX];
	uint64_t in_step[NC4_RANK_MAX], out_step[NC4_RANK_MAX]; /* bytes from one index to the next */
	uint32_t size;
	uint32_t rows; /* dimensions that are stepped through; those behind are in one run */
	uint64_t run;  /* values */
};

/* Steps, and how many of the last dimensions lie together on both sides. */
static void plan_gather(const struct nc4_shape *s, uint32_t id, uint64_t chunk, struct gather *g)
{
	const struct classic_var *v = &s->c->vars[id];
	const struct nc4_var *o = &s->vars[id];
	uint64_t in = g->size = classic_type_bytes(v->type), out = in;
	uint32_t d = v->num_dims;

	nc4_chunk_box(o, v->num_dims, chunk, g->start, g->count);
	while (d-- > 0) {
		g->in_step[d] = d == 0 && v->is_record ? s->c->record_bytes : in;
		g->out_step[d] = out;
		in *= o->dims[d];
		out *= o->is_chunked ? o->chunk[d] : g->count[d];
	}
	g->run = 1;
	for (g->rows = v->num_dims; g->rows > 0; g->rows--) {
		d = g->rows - 1;
		if (g->in_step[d] != g->run * g->size || g->out_step[d] != g->run * g->size)
			break;
		g->run *= g->count[d];
	}
}

void pack_gather(const struct nc4_shape *s, uint32_t id, uint64_t chunk, const uint8_t *file, uint8_t *out)
{
	const struct classic_var *v = &s->c->vars[id];
	const struct nc4_var *o = &s->vars[id];
	uint64_t at[NC4_RANK_MAX] = { 0 }, values = 1;
	struct gather g;
	uint32_t d;

	plan_gather(s, id, chunk, &g);
	file += v->begin;
	for (d = 0; d < v->num_dims; d++) {
		file += g.start[d] * g.in_step[d];
		values *= g.count[d];
	}
	if (o->is_chunked && values * g.size < o->chunk_bytes)
		fill(out, o->chunk_bytes / g.size, g.size, v);
	do {
		pack_swap(out, file, g.run, g.size);
		for (d = g.rows; d-- > 0;) {
			file += g.in_step[d];
			out += g.out_step[d];
			if (++at[d] < g.count[d])
				break;
			file -= g.in_step[d] * g.count[d];
			out -= g.out_step[d] * g.count[d];
			at[d] = 0;
		}
	} while (d != UINT32_MAX);
}

/* As HDF5 does: all first bytes, then all second ones; what does not make a whole value stays behind. */
static void shuffle(uint8_t *restrict out, const uint8_t *restrict in, size_t num, uint32_t size)
{
	switch (size) {
	case 2:
		for (size_t i = 0; i < num; i++) {
			out[i] = in[2 * i];
			out[num + i] = in[2 * i + 1];
		}
		break;
	case 4:
		for (size_t i = 0; i < num; i++) {
			out[i] = in[4 * i];
			out[num + i] = in[4 * i + 1];
			out[2 * num + i] = in[4 * i + 2];
			out[3 * num + i] = in[4 * i + 3];
		}
		break;
	default:
		for (uint32_t b = 0; b < size; b++)
			for (size_t i = 0; i < num; i++)
				out[b * num + i] = in[i * size + b];
	}
}

/* ---- one chunk */

static int reserve(uint8_t **buf, size_t *cap, size_t len)
{
	uint8_t *grown;

	if (*cap >= len)
		return 0;
	grown = realloc(*buf, len);
	if (!grown)
		return -ENOMEM;
	*buf = grown;
	*cap = len;
	return 0;
}

/* What does not get smaller stays as it is, and the mask says so: HDF5's own deflate does the same. */
static int deflate_slot(struct slot *s, z_stream *z, const uint8_t *in, size_t len, uint32_t no_deflate)
{
	int r = reserve(&s->deflated, &s->deflated_cap, deflateBound(z, len));

	if (r < 0)
		return r;
	z->next_in = (Bytef *)in;
	z->avail_in = (uInt)len;
	z->next_out = s->deflated;
	z->avail_out = (uInt)s->deflated_cap;
	if (deflate(z, Z_FINISH) != Z_STREAM_END)
		return -EIO;
	s->out.bytes = s->deflated;
	s->out.len = z->total_out;
	if (deflateReset(z) != Z_OK)
		return -EIO;
	if (s->out.len >= len) {
		s->out.bytes = in;
		s->out.len = len;
		s->out.filter_mask = no_deflate;
	}
	return 0;
}

static int pack(struct packer *p, struct slot *s, z_stream *z)
{
	const struct nc4_var *v = &p->opt.shape->vars[s->out.var];
	uint32_t size = classic_type_bytes(p->opt.shape->c->vars[s->out.var].type);
	const uint8_t *in;
	int r = reserve(&s->plain, &s->plain_cap, v->chunk_bytes);

	if (r == 0 && v->is_shuffled)
		r = reserve(&s->shuffled, &s->shuffled_cap, v->chunk_bytes);
	if (r < 0)
		return r;
	pack_gather(p->opt.shape, s->out.var, s->out.chunk, p->opt.file, s->plain);
	s->out.bytes = in = s->plain;
	s->out.len = v->chunk_bytes;
	s->out.filter_mask = 0;
	if (v->is_shuffled) {
		shuffle(s->shuffled, s->plain, v->chunk_bytes / size, size);
		in = s->shuffled;
	}
	return v->is_filtered ? deflate_slot(s, z, in, v->chunk_bytes, NO_DEFLATE(v)) : 0;
}

/* ---- threads */

static bool is_wanted(const struct packer *p, uint32_t var, uint64_t number)
{
	return !p->opt.wants || p->opt.wants(var, number, p->opt.arg);
}

/* The next chunk's number goes to the slot; false when there is none. lock held. */
static bool assign(struct packer *p, struct slot **ret)
{
	const struct nc4_shape *s = p->opt.shape;
	struct slot *slot;

	for (; p->var < s->c->num_vars; p->chunk++, p->number++) {
		while (p->var < s->c->num_vars && p->chunk == s->vars[p->var].num_chunks) {
			p->var++;
			p->chunk = 0;
		}
		if (p->var < s->c->num_vars && is_wanted(p, p->var, p->number))
			break;
	}
	if (p->var == s->c->num_vars)
		return false;
	slot = &p->slots[p->next_in++ % p->num_slots];
	slot->out.var = p->var;
	slot->out.chunk = p->chunk++;
	slot->out.number = p->number++;
	slot->ready = false;
	*ret = slot;
	return true;
}

static uint64_t count_wanted(const struct packer *p)
{
	const struct nc4_shape *s = p->opt.shape;
	uint64_t number = 0, total = 0;

	for (uint32_t var = 0; var < s->c->num_vars; var++)
		for (uint64_t i = 0; i < s->vars[var].num_chunks; i++)
			total += is_wanted(p, var, number++);
	return total;
}

static bool wait_for_work(struct packer *p, struct slot **ret)
{
	uint64_t oldest;
	bool any;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		oldest = p->next_out - p->taken;
		if (p->stop || p->error || p->next_in - oldest < p->num_slots)
			break;
		pthread_cond_wait(&p->freed, &p->lock);
	}
	any = !p->stop && !p->error && assign(p, ret);
	pthread_mutex_unlock(&p->lock);
	return any;
}

static void *work(void *arg)
{
	struct packer *p = arg;
	z_stream z = { 0 };
	struct slot *s;
	int r = deflateInit(&z, (int)p->opt.deflate) == Z_OK ? 0 : -ENOMEM;

	while (r == 0 && wait_for_work(p, &s)) {
		r = pack(p, s, &z);
		pthread_mutex_lock(&p->lock);
		s->ready = r == 0;
		pthread_cond_broadcast(&p->filled);
		pthread_mutex_unlock(&p->lock);
	}
	if (r < 0) {
		pthread_mutex_lock(&p->lock);
		p->error = r;
		pthread_cond_broadcast(&p->filled);
		pthread_cond_broadcast(&p->freed);
		pthread_mutex_unlock(&p->lock);
	}
	deflateEnd(&z);
	return NULL;
}

int packer_take(struct packer *p, struct packed *ret)
{
	struct slot *s;
	int r;

	pthread_mutex_lock(&p->lock);
	p->taken = false;
	pthread_cond_broadcast(&p->freed);
	s = &p->slots[p->next_out % p->num_slots];
	while (!p->error && p->next_out < p->total && !(p->next_out < p->next_in && s->ready))
		pthread_cond_wait(&p->filled, &p->lock);
	r = p->error ? p->error : p->next_out < p->total;
	if (r == 1) {
		*ret = s->out;
		p->next_out++;
		p->taken = true;
	}
	pthread_mutex_unlock(&p->lock);
	return r;
}

int packer_create(const struct packer_options *opt, struct packer **ret)
{
	struct packer *p = calloc(1, sizeof(*p));
	uint64_t slots = opt->memory_bytes / (3 * opt->shape->max_chunk_bytes + 1);
	int r = p ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	p->opt = *opt;
	p->total = count_wanted(p);
	p->num_slots = slots < 2 ? 2 : slots > SLOTS_MAX ? SLOTS_MAX : (unsigned int)slots;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->filled, NULL);
	pthread_cond_init(&p->freed, NULL);
	for (unsigned int i = 0; r == 0 && i < opt->threads && i < THREADS_MAX; i++) {
		r = -pthread_create(&p->threads[i], NULL, work, p);
		p->num_threads += r == 0;
	}
	if (r < 0 && p->num_threads == 0) {
		packer_destroy(p);
		return r;
	}
	*ret = p;
	return 0;
}

void packer_destroy(struct packer *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->freed);
	pthread_mutex_unlock(&p->lock);
	for (unsigned int i = 0; i < p->num_threads; i++)
		pthread_join(p->threads[i], NULL);
	for (unsigned int i = 0; i < p->num_slots; i++) {
		free(p->slots[i].plain);
		free(p->slots[i].shuffled);
		free(p->slots[i].deflated);
	}
	pthread_cond_destroy(&p->freed);
	pthread_cond_destroy(&p->filled);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
