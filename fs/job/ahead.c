/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reading ahead. Who reads a file of other nodes from front to back finds the next chunks of it fetched, or on their way; requests
 * for parts of one chunk, which the kernel sends side by side, wait for one fetch.
 *
 * What is kept here is payload by its place (node, segment, offset), never "the bytes of the file": each read is told by
 * share_locate() which places count now, as without us, and only bytes of exactly these places are taken from here. A place
 * is never used twice, so a chunk cannot be out of date: what others commit, or we write, names other places, and
 * the chunk, of no use any more, goes. Only the fetch itself is bounded in time, by the age of the answer that gave the place.
 *
 * Chunks lie in the transport's buffers, of which we take no more than half, so that no reader waits for one that we keep. Whoever
 * reads never waits for what he has not asked for: places that are not known yet are asked for by a thread of our own, and what a
 * chunk has of one node comes by itself, so that a node that does not answer holds up nobody who wants bytes of another. Nor does
 * anybody wait until a fetch is too old to count.
 *
 * Under ahead.lock nothing is asked, fetched or computed; only buffers are given back.
 */
#include "fs/job/ahead.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "format/base/clock.h"
#include "format/base/crc32c.h"

#define CHUNK       PEERS_BUFFER_BYTES
#define CHUNKS_MAX  16u
#define PIECES_MAX  1024u        /* of a chunk; what is in smaller pieces is fetched as it is wanted */
#define DEPTH_BYTES (8u << 20)   /* ahead of the reader, at most */
#define SLACK_BYTES (4u << 20)   /* requests of one reader overtake each other by no more */
#define LARGE_BYTES (128u << 10) /* a request so long is of somebody who reads on */
#define STALE_USEC  1000000u     /* nobody has come for it: another may have its room */
#define TASKS_MAX   16u
#define PARTS_MAX   16u     /* of a chunk: fetches; with more nodes than that several go together */
#define MIXED_USEC  500000u /* so long is one waited for that brings bytes of several nodes */

static_assert(SHARE_WINDOW % CHUNK == 0, "a chunk lies within a window");

enum chunk_state {
	CHUNK_FREE,
	CHUNK_LOCATING, /* one reference is whose who does that */
	CHUNK_LOCATED,  /* and fetched, part by part, each with a reference until it has come */
	CHUNK_BAD,      /* of no use: goes with the last reference */
};

enum part_state {
	PART_COMING,
	PART_ARRIVED,  /* nobody has looked at the checksums yet */
	PART_CHECKING, /* somebody does */
	PART_READY,
	PART_BAD,
};

struct chunk_part { /* what a chunk has of some nodes */
	struct chunk *chunk;
	uint32_t first_node, last_node;
	uint32_t bytes;
	enum part_state state; /* ahead.lock */
};

struct chunk {
	struct ahead *ahead;
	uint64_t ino, number; /* of the chunk in the file */
	/* ahead.lock */
	enum chunk_state state;
	unsigned int refs;
	uint64_t used_usec; /* when it was last of use */
	uint32_t left;      /* bytes of it that nobody has read */
	/* written before it is located, then constant, but for what is said of parts */
	struct peers_buffer buffer; /* byte at offset off of the file: at off % CHUNK */
	struct piece *pieces;       /* owned; those of other nodes, by offset */
	size_t num;
	struct chunk_part parts[PARTS_MAX]; /* by node */
	size_t num_parts;
	uint64_t begun_usec, asked_usec;
};

struct task {             /* chunks whose places have to be asked for */
	struct shared *s; /* counted reference */
	uint64_t number, end;
};

struct ahead {
	struct job *j;
	pthread_mutex_t lock;
	pthread_cond_t changed /* by the monotonic clock */, work;
	size_t num; /* of chunks that may be used */
	struct chunk chunks[CHUNKS_MAX];
	struct task tasks[TASKS_MAX];
	size_t num_tasks;
	bool ending, has_thread;
	pthread_t thread;
};

/* ---- chunks; the lock is held */

static struct chunk *find(struct ahead *a, uint64_t ino, uint64_t number)
{
	for (size_t i = 0; i < a->num; i++)
		if (a->chunks[i].state != CHUNK_FREE && a->chunks[i].state != CHUNK_BAD && a->chunks[i].ino == ino &&
			a->chunks[i].number == number)
			return &a->chunks[i];
	return NULL;
}

static void clear(struct chunk *c)
{
	if (c->buffer.bytes)
		peers_buffer_put(c->ahead->j->peers, &c->buffer);
	free(c->pieces);
	*c = (struct chunk){ .ahead = c->ahead };
}

static void unref(struct chunk *c)
{
	if (--c->refs == 0 && c->state == CHUNK_BAD)
		clear(c);
	pthread_cond_broadcast(&c->ahead->changed);
}

/* Whoever uses it may go on; nobody else will. */
static void give_up(struct chunk *c)
{
	c->state = CHUNK_BAD;
	if (c->refs == 0)
		clear(c);
}

/* Of those that have been read the latest: its memory is still in the processor's cache. */
static bool is_better(const struct chunk *a, const struct chunk *b)
{
	if (!b || (a->left == 0) != (b->left == 0))
		return !b || a->left == 0;
	return a->left == 0 ? a->used_usec > b->used_usec : a->used_usec < b->used_usec;
}

/* A free one, or in place of one that has been read, or for which nobody came. NULL: all are in use. */
static struct chunk *take_chunk(struct ahead *a, uint64_t now)
{
	struct chunk *best = NULL;

	for (size_t i = 0; i < a->num; i++) {
		struct chunk *c = &a->chunks[i];

		if (c->state == CHUNK_FREE)
			return c;
		if (c->refs == 0 && is_better(c, best))
			best = c;
	}
	if (!best || (best->left > 0 && now - best->used_usec < STALE_USEC))
		return NULL;
	clear(best);
	return best;
}

/* ---- fetching */

/* The pieces of others in p become the chunk's. */
static int keep_remote(struct chunk *c, const struct pieces *p)
{
	uint32_t self = peers_self(c->ahead->j->peers);

	c->pieces = calloc(p->num + 1, sizeof(*c->pieces));
	if (!c->pieces)
		return -ENOMEM;
	for (size_t i = 0; i < p->num; i++)
		if (p->at[i].kind == PIECE_LOG && p->at[i].node != self)
			c->pieces[c->num++] = p->at[i];
	c->asked_usec = p->asked_usec;
	return c->num == 0 ? -ENODATA : c->num > PIECES_MAX ? -E2BIG : 0;
}

static int locate(struct chunk *c, struct shared *s)
{
	uint64_t from = c->number * CHUNK, size = shared_size(c->ahead->j, s);
	struct pieces p = { 0 };

	if (from >= size)
		return -ENODATA;
	int rc = share_locate(c->ahead->j, s, from, size - from < CHUNK ? size - from : CHUNK, &p);
	rc = rc < 0 ? rc : keep_remote(c, &p);
	pieces_free(&p);
	return rc;
}

/* The lock is held. Nobody will read that part here. */
static void spoil(struct chunk *c, struct chunk_part *p)
{
	size_t i = 0;

	p->state = PART_BAD;
	c->left -= p->bytes < c->left ? p->bytes : c->left;
	while (i < c->num_parts && c->parts[i].state == PART_BAD)
		i++;
	if (i == c->num_parts)
		give_up(c);
}

static void arrived(int status, const struct wire_msg *reply, void *arg)
{
	struct chunk_part *p = arg;
	struct chunk *c = p->chunk;
	struct ahead *a = c->ahead;
	bool late = clock_usec() - c->asked_usec >= SHARE_FRESH_USEC;

	(void)reply;
	pthread_mutex_lock(&a->lock);
	if (status < 0 || late)
		spoil(c, p);
	else
		p->state = PART_ARRIVED;
	unref(c);
	pthread_mutex_unlock(&a->lock);
}

static bool is_of(const struct chunk_part *part, const struct piece *p)
{
	return p->node >= part->first_node && p->node <= part->last_node;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* The different ones among num numbers come first. How many these are. */
static size_t sort_out(uint32_t *nodes, size_t num)
{
	size_t kept = 0;

	qsort(nodes, num, sizeof(*nodes), by_number);
	for (size_t i = 0; i < num; i++)
		if (kept == 0 || nodes[kept - 1] != nodes[i])
			nodes[kept++] = nodes[i];
	return kept;
}

/* A part for each node, as long as there are enough. */
static void make_parts(struct chunk *c)
{
	uint32_t nodes[PIECES_MAX];

	for (size_t i = 0; i < c->num; i++)
		nodes[i] = c->pieces[i].node;
	size_t num = sort_out(nodes, c->num), each = (num + PARTS_MAX - 1) / PARTS_MAX;
	for (size_t i = 0; i < num; i += each) {
		size_t last = i + each < num ? i + each - 1 : num - 1;

		c->parts[c->num_parts++] =
			(struct chunk_part){ .chunk = c, .first_node = nodes[i], .last_node = nodes[last] };
	}
}

static size_t list_gets(const struct chunk *c, struct chunk_part *part, struct peers_get *gets)
{
	size_t num = 0;

	for (size_t i = 0; i < c->num; i++) {
		const struct piece *p = &c->pieces[i];

		if (!is_of(part, p))
			continue;
		part->bytes += p->len;
		gets[num++] = (struct peers_get){ .node = p->node,
			.segment = p->segment,
			.off = p->segment_off,
			.len = p->len,
			.to = (uint32_t)(p->off % CHUNK) };
	}
	return num;
}

/* Each has a reference from the beginning, so the chunk stays until all have come. */
static void begin_parts(struct chunk *c, struct peers_get *gets)
{
	for (size_t i = 0; i < c->num_parts; i++) {
		struct chunk_part *part = &c->parts[i];
		size_t num = list_gets(c, part, gets);
		int rc = peers_get_async(c->ahead->j->peers, &c->buffer, gets, num, arrived, part);

		if (rc < 0)
			arrived(rc, NULL, part);
	}
}

/* The lock is not held, and nobody looks at the parts before it has been. */
static void set_located(struct chunk *c)
{
	struct ahead *a = c->ahead;

	pthread_mutex_lock(&a->lock);
	if (c->state == CHUNK_LOCATING)
		c->state = CHUNK_LOCATED;
	for (size_t i = 0; i < c->num; i++)
		c->left += c->pieces[i].len;
	c->refs += (unsigned int)c->num_parts;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

/* For all parts together. */
static int take_buffer(struct chunk *c, struct peers_get *gets)
{
	for (size_t i = 0; i < c->num; i++)
		gets[i] = (struct peers_get){ .node = c->pieces[i].node };
	return peers_buffer_try(c->ahead->j->peers, gets, c->num, &c->buffer);
}

static int begin_fetch(struct chunk *c)
{
	struct peers_get *gets = calloc(c->num, sizeof(*gets));
	int rc = gets ? take_buffer(c, gets) : -ENOMEM;

	if (rc == 0) {
		make_parts(c);
		set_located(c);
		begin_parts(c, gets);
	}
	free(gets);
	return rc;
}

/* NULL: there is one already, or no room for one. */
static struct chunk *begin_chunk(struct ahead *a, uint64_t ino, uint64_t number)
{
	uint64_t now = clock_usec();
	struct chunk *c = NULL;

	pthread_mutex_lock(&a->lock);
	if (!find(a, ino, number))
		c = take_chunk(a, now);
	if (c) {
		c->ino = ino;
		c->number = number;
		c->state = CHUNK_LOCATING;
		c->refs = 1;
		c->used_usec = c->begun_usec = now;
	}
	pthread_mutex_unlock(&a->lock);
	return c;
}

static void end_begin(struct chunk *c, int rc)
{
	struct ahead *a = c->ahead;

	pthread_mutex_lock(&a->lock);
	if (rc < 0)
		c->state = CHUNK_BAD;
	unref(c);
	pthread_mutex_unlock(&a->lock);
}

/* Nothing that fails here matters: who wants the bytes fetches them, and is told why not. */
static void start(struct job *j, struct shared *s, uint64_t number)
{
	struct chunk *c = begin_chunk(j->share->ahead, s->ino, number);

	if (!c)
		return;
	int rc = locate(c, s);
	end_begin(c, rc < 0 ? rc : begin_fetch(c));
}

/* ---- the thread */

static void run_task(struct ahead *a, const struct task *t)
{
	for (uint64_t number = t->number; number < t->end && !a->j->share->ending; number++)
		start(a->j, t->s, number);
	shared_put(a->j, t->s);
}

static void *ahead_main(void *arg)
{
	struct ahead *a = arg;

	pthread_mutex_lock(&a->lock);
	for (;;) {
		while (a->num_tasks == 0 && !a->ending)
			pthread_cond_wait(&a->work, &a->lock);
		if (a->num_tasks == 0)
			break;
		struct task t = a->tasks[0];
		memmove(a->tasks, a->tasks + 1, --a->num_tasks * sizeof(t));
		pthread_mutex_unlock(&a->lock);
		run_task(a, &t);
		pthread_mutex_lock(&a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

/* The lock is held. True: a task that waits does it, too. */
static bool extend_task(struct ahead *a, const struct shared *s, uint64_t number, uint64_t end)
{
	for (size_t i = 0; i < a->num_tasks; i++) {
		struct task *t = &a->tasks[i];

		if (t->s == s && t->number <= number && number <= t->end) {
			t->end = end > t->end ? end : t->end;
			return true;
		}
	}
	return a->num_tasks == TASKS_MAX || a->ending; /* then it is not done, and nobody misses it */
}

static void start_later(struct job *j, struct shared *s, uint64_t number, uint64_t end)
{
	struct ahead *a = j->share->ahead;
	struct shared *ref = shared_find(j, s->ino);

	pthread_mutex_lock(&a->lock);
	bool known = !ref || extend_task(a, s, number, end);
	if (!known) {
		a->tasks[a->num_tasks++] = (struct task){ ref, number, end };
		pthread_cond_signal(&a->work);
	}
	pthread_mutex_unlock(&a->lock);
	if (known)
		shared_put(j, ref);
}

/* ---- who reads on */

/* How many bytes behind the request will be wanted soon; 0: nobody knows. The lock is held. */
static uint64_t follow(struct stream *st, uint64_t off, size_t len)
{
	uint64_t slack = len >= LARGE_BYTES ? SLACK_BYTES : LARGE_BYTES, end = off + len;

	if (st->run == 0 || off > st->next + slack || off + slack < st->next)
		*st = (struct stream){ .from = off, .next = off, .chunk = off / CHUNK };
	st->run += len;
	st->next = end > st->next ? end : st->next;
	/* Most of what lies behind the reader has been read, but for what was overtaken; else it leaps. */
	if ((st->next - st->from) / 4 * 3 > st->run + SLACK_BYTES)
		*st = (struct stream){ .from = off, .next = end, .run = len, .chunk = off / CHUNK };
	if (st->run < LARGE_BYTES)
		return 0;
	return 2 * st->run < DEPTH_BYTES ? 2 * st->run : DEPTH_BYTES;
}

/* The chunks that are to be begun now: [*ret_number, *ret_end). */
static void plan(struct ahead *a, struct stream *st, uint64_t off, size_t len, uint64_t size, uint64_t *ret_number,
	uint64_t *ret_end)
{
	pthread_mutex_lock(&a->lock);
	uint64_t further = follow(st, off, len), end = off + len;
	*ret_number = st->chunk;
	*ret_end = st->chunk;
	if (further) {
		end = further < size - end ? end + further : size;
		*ret_number = off / CHUNK > st->chunk ? off / CHUNK : st->chunk;
		*ret_end = (end + CHUNK - 1) / CHUNK;
		st->chunk = *ret_end > st->chunk ? *ret_end : st->chunk;
	}
	pthread_mutex_unlock(&a->lock);
}

void ahead_of(struct job *j, struct job_file *file, size_t len, uint64_t off)
{
	struct shared *s = file->shared;
	uint64_t size = shared_size(j, s), number, end;

	if (off >= size || len == 0 || (!shared_is_home(j, s) && shared_is_outside(s)))
		return;
	len = len < size - off ? len : (size_t)(size - off);
	plan(j->share->ahead, &file->stream, off, len, size, &number, &end);
	uint64_t wanted = (off + len + CHUNK - 1) / CHUNK;
	for (; number < end; number++) {
		if (number >= wanted && !map_is_known(s, number * CHUNK / SHARE_WINDOW)) {
			start_later(j, s, number, end);
			break;
		}
		start(j, s, number);
	}
}

/* ---- taking from it */

static bool is_intact(const struct chunk *c, const struct chunk_part *part)
{
	for (size_t i = 0; i < c->num; i++) {
		const struct piece *p = &c->pieces[i];

		if (is_of(part, p) && p->whole && crc32c(0, c->buffer.bytes + p->off % CHUNK, p->len) != p->crc)
			return false;
	}
	return true;
}

/* The lock is held. */
static void check(struct chunk *c, struct chunk_part *part)
{
	struct ahead *a = c->ahead;

	part->state = PART_CHECKING;
	pthread_mutex_unlock(&a->lock);
	bool intact = is_intact(c, part);
	pthread_mutex_lock(&a->lock);
	if (intact)
		part->state = PART_READY;
	else
		spoil(c, part);
	pthread_cond_broadcast(&a->changed);
}

/* The lock is held. False: it is that late. */
static bool wait_changed(struct ahead *a, uint64_t until_usec)
{
	struct timespec until = { .tv_sec = (time_t)(until_usec / 1000000),
		.tv_nsec = (long)(until_usec % 1000000 * 1000) };

	return pthread_cond_timedwait(&a->changed, &a->lock, &until) == 0;
}

/* A reference to the chunk, when it is known what it has, or will have; NULL: fetch what you want. */
static struct chunk *chunk_get(struct ahead *a, uint64_t ino, uint64_t number)
{
	pthread_mutex_lock(&a->lock);
	struct chunk *c = find(a, ino, number);
	if (c)
		c->refs++;
	while (c && c->state == CHUNK_LOCATING && wait_changed(a, c->begun_usec + SHARE_FRESH_USEC))
		;
	if (c && c->state != CHUNK_LOCATED) {
		unref(c);
		c = NULL;
	}
	if (c)
		c->used_usec = clock_usec();
	pthread_mutex_unlock(&a->lock);
	return c;
}

static struct chunk_part *part_of(struct chunk *c, uint32_t node)
{
	size_t i = 0;

	while (node > c->parts[i].last_node)
		i++;
	return &c->parts[i];
}

/* Waits for what the chunk has of that node, of which it has something; false: fetch what you want. */
static bool await(struct chunk *c, uint32_t node)
{
	struct ahead *a = c->ahead;
	struct chunk_part *p = part_of(c, node);
	uint64_t until = p->first_node == p->last_node ? c->asked_usec + SHARE_FRESH_USEC : c->begun_usec + MIXED_USEC;

	pthread_mutex_lock(&a->lock);
	while (c->state == CHUNK_LOCATED && (p->state == PART_COMING || p->state == PART_CHECKING) &&
		wait_changed(a, until))
		;
	if (c->state == CHUNK_LOCATED && p->state == PART_ARRIVED)
		check(c, p);
	bool ready = c->state == CHUNK_LOCATED && p->state == PART_READY;
	pthread_mutex_unlock(&a->lock);
	return ready;
}

static void chunk_put(struct chunk *c, uint32_t taken, bool useless)
{
	struct ahead *a = c->ahead;

	pthread_mutex_lock(&a->lock);
	c->left -= taken < c->left ? taken : c->left;
	if (useless)
		give_up(c);
	unref(c);
	pthread_mutex_unlock(&a->lock);
}

/* The piece of the chunk in which off lies, or the next. */
static const struct piece *piece_at(const struct chunk *c, uint64_t off)
{
	size_t low = 0, high = c->num;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (c->pieces[mid].off + c->pieces[mid].len <= off)
			low = mid + 1;
		else
			high = mid;
	}
	return low < c->num ? &c->pieces[low] : NULL;
}

/* Are the bytes of p in [off, end), by their places, in the chunk? */
static bool has(const struct chunk *c, const struct piece *p, uint64_t off, uint64_t end)
{
	while (off < end) {
		const struct piece *q = piece_at(c, off);

		if (!q || q->off > off || q->node != p->node || q->segment != p->segment ||
			q->segment_off + (off - q->off) != p->segment_off + (off - p->off))
			return false;
		off = q->off + q->len;
	}
	return true;
}

static bool is_wanted(const struct job *j, const struct piece *p)
{
	return p->kind == PIECE_LOG && p->node != peers_self(j->peers);
}

/* Copies what of p lies in [off, end), within a chunk, from there; false: it is not all there. */
static bool take_part(struct job *j, struct shared *s, const struct piece *p, uint64_t off, uint64_t end, uint8_t *to)
{
	struct chunk *c = chunk_get(j->share->ahead, s->ino, off / CHUNK);
	bool known = c && has(c, p, off, end), there = known && await(c, p->node);

	if (there)
		memcpy(to, c->buffer.bytes + off % CHUNK, end - off);
	if (c)
		chunk_put(c, there ? (uint32_t)(end - off) : 0, !known);
	return there;
}

static bool take_piece(struct job *j, struct shared *s, const struct piece *p, uint8_t *to)
{
	uint64_t off = p->off, end = p->off + p->len;
	bool all = true;

	while (all && off < end) {
		uint64_t border = (off / CHUNK + 1) * CHUNK, upto = end < border ? end : border;

		all = take_part(j, s, p, off, upto, to + (off - p->off));
		off = upto;
	}
	return all;
}

void ahead_take(struct job *j, struct shared *s, struct pieces *p, uint8_t *to, uint64_t off)
{
	for (size_t i = 0; i < p->num; i++)
		if (is_wanted(j, &p->at[i]) && take_piece(j, s, &p->at[i], to + (p->at[i].off - off)))
			p->at[i].kind = PIECE_DONE;
}

const uint8_t *ahead_view(
	struct job *j, struct shared *s, const struct pieces *p, uint64_t off, size_t len, struct chunk **ret)
{
	bool all = len > 0 && off / CHUNK == (off + len - 1) / CHUNK;

	for (size_t i = 0; all && i < p->num; i++)
		all = is_wanted(j, &p->at[i]);
	struct chunk *c = all ? chunk_get(j->share->ahead, s->ino, off / CHUNK) : NULL;
	for (size_t i = 0; c && all && i < p->num; i++)
		all = has(c, &p->at[i], p->at[i].off, p->at[i].off + p->at[i].len);
	bool known = all;
	for (size_t i = 0; c && all && i < p->num; i++)
		all = await(c, p->at[i].node);
	if (c && !all)
		chunk_put(c, 0, !known);
	if (!c || !all)
		return NULL;
	*ret = c;
	return c->buffer.bytes + off % CHUNK;
}

void ahead_view_end(struct chunk *c, size_t len)
{
	chunk_put(c, (uint32_t)len, false);
}

/* ---- life */

void ahead_forget(struct job *j, uint64_t ino)
{
	struct ahead *a = j->share->ahead;

	pthread_mutex_lock(&a->lock);
	for (size_t i = 0; i < a->num; i++)
		if (a->chunks[i].ino == ino && a->chunks[i].state != CHUNK_FREE)
			give_up(&a->chunks[i]);
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

int ahead_create(struct job *j, struct ahead **ret)
{
	struct ahead *a = calloc(1, sizeof(*a));
	pthread_condattr_t attr;

	if (!a)
		return -ENOMEM;
	a->j = j;
	a->num = peers_buffers(j->peers) / 2 < CHUNKS_MAX ? peers_buffers(j->peers) / 2 : CHUNKS_MAX;
	for (size_t i = 0; i < CHUNKS_MAX; i++)
		a->chunks[i].ahead = a;
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->changed, &attr);
	pthread_condattr_destroy(&attr);
	pthread_cond_init(&a->work, NULL);
	int rc = -pthread_create(&a->thread, NULL, ahead_main, a);
	a->has_thread = rc == 0;
	if (rc < 0)
		ahead_destroy(a);
	else
		*ret = a;
	return rc;
}

void ahead_destroy(struct ahead *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->ending = true;
	pthread_cond_signal(&a->work);
	pthread_mutex_unlock(&a->lock);
	if (a->has_thread)
		pthread_join(a->thread, NULL);
	for (size_t i = 0; i < a->num; i++)
		clear(&a->chunks[i]);
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->changed);
	pthread_cond_destroy(&a->work);
	free(a);
}
