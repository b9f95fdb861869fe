/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Giving space back. The state tells us, under its lock, which payload ranges nothing refers to any more; they wait here
 * until
 *   - the record that freed them, and the payload that took their place, are durable: before that, a loss of power
 *     could bring the old state back, and it needs the old bytes;
 *   - no pin that was there when they were freed is left (a reader of an index snapshot may still go to them), unless
 *     a DRAINED record freed them: then their bytes are in the backing file;
 *   - in a job, the other nodes have had time to read what they were told to find there (grace), and know of what came in
 *     its place (hold).
 *
 * Readers find extents and read them under the gate. The gate is taken exclusively for a moment after a batch has been
 * chosen: whoever had found one of the ranges before has left by then, and nobody finds it afterwards. The slow calls
 * come after it. In that moment it is also decided which segments are dead: no live bytes, not open for appends, and no
 * append on its way, because those hold the gate.
 *
 * The segment with the highest number is never removed, though it may be emptied: so numbers are never used twice, and
 * with them no place in the log.
 */
#include "format/store/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

#define QUEUE_MAX         (4u << 20) /* entries; beyond, ranges are forgotten, and given back with their whole segment */
#define SYNC_BYTES        (64u << 20)
#define SYNC_USEC         1000000
#define COUNT_MAX         (4u << 20) /* a private segment says nothing of its size */
#define SEGMENTS_PER_GATE 256u

int freed_init(struct freed_queue *q)
{
	int r = -pthread_mutex_init(&q->mutex, NULL);

	q->hold_usec = INT64_MAX;
	q->max = QUEUE_MAX;
	if (r)
		return r;
	r = -pthread_mutex_init(&q->drain_mutex, NULL);
	if (r)
		pthread_mutex_destroy(&q->mutex);
	return r;
}

void freed_destroy(struct freed_queue *q)
{
	pthread_mutex_destroy(&q->drain_mutex);
	pthread_mutex_destroy(&q->mutex);
	free(q->ranges);
	free(q->dead);
}

static bool grow(struct freed_queue *q)
{
	return q->num - q->num_forgotten < q->max && array_room(&q->ranges, &q->cap, q->num, sizeof(*q->ranges)) == 0;
}

/* The entry for what was forgotten of the segment, or where it belongs. */
static size_t find_forgotten(const struct freed_queue *q, uint32_t segment)
{
	size_t low = 0, high = q->num_forgotten;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (q->ranges[middle].segment < segment)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* As long as a forgotten range would wait, its segment does; then, if it is dead, that entry brings it to give_back(). */
static void forget(struct freed_queue *q, const struct freed_range *f)
{
	size_t i = find_forgotten(q, f->segment);
	struct freed_range *at;

	if (i == q->num_forgotten || q->ranges[i].segment != f->segment) {
		if (array_room(&q->ranges, &q->cap, q->num, sizeof(*q->ranges)) < 0) {
			q->lossy = true;
			return;
		}
		q->ranges[q->num++] = q->ranges[q->num_forgotten];
		memmove(q->ranges + i + 1, q->ranges + i, (q->num_forgotten++ - i) * sizeof(*q->ranges));
		q->ranges[i] = (struct freed_range){ .segment = f->segment };
	}
	at = &q->ranges[i];
	at->held = at->held || f->held;
	at->seq = at->seq > f->seq ? at->seq : f->seq;
	at->since_usec = f->since_usec;
}

/* Joins it to the last one when it continues that. */
static bool join(struct freed_queue *q, const struct freed_range *f)
{
	struct freed_range *last = q->num > q->num_forgotten ? &q->ranges[q->num - 1] : NULL;

	if (!last || last->segment != f->segment || last->held != f->held || last->off + last->len != f->off)
		return false;
	/* With a grace the younger counts; those of much different age wait apart. */
	if (q->grace_usec && last->since_usec / SYNC_USEC != f->since_usec / SYNC_USEC)
		return false;
	if (q->grace_usec)
		last->since_usec = f->since_usec;
	last->len += f->len;
	if (last->seq < f->seq)
		last->seq = f->seq;
	return true;
}

void freed_push(uint32_t segment, uint64_t off, uint64_t len, uint64_t seq, void *arg)
{
	struct store *s = arg;
	struct freed_queue *q = &s->freed;
	struct freed_range f = {
		.off = off, .len = len, .seq = seq, .segment = segment, .since_usec = store_now_usec()
	};
	bool drained = atomic_load(&q->draining) && pthread_equal(q->drain_thread, pthread_self());

	if (f.len > FREED_WHOLE / 2 - off)
		f.len = FREED_WHOLE / 2 - off; /* "the rest", and sums that cannot overflow */
	pthread_mutex_lock(&q->mutex);
	f.held = q->pins > 0 && !drained;
	if (segment == 0)
		q->num = q->num_forgotten = 0;
	else if (q->open && !join(q, &f)) {
		if (grow(q))
			q->ranges[q->num++] = f;
		else
			forget(q, &f);
	}
	pthread_mutex_unlock(&q->mutex);
}

void store_drop_private(struct store *s, uint32_t segment)
{
	freed_push(segment, 0, FREED_WHOLE, 0, s);
}

/* freed_push is called by the thread that commits, so it can tell this commit's ranges from others'. */
int freed_commit_drained(struct store *s, struct record *rec)
{
	struct freed_queue *q = &s->freed;
	int r;

	pthread_mutex_lock(&q->drain_mutex);
	q->drain_thread = pthread_self();
	atomic_store(&q->draining, true);
	r = state_commit(s->state, rec);
	atomic_store(&q->draining, false);
	pthread_mutex_unlock(&q->drain_mutex);
	return r;
}

void store_pin(struct store *s)
{
	pthread_mutex_lock(&s->freed.mutex);
	s->freed.pins++;
	pthread_mutex_unlock(&s->freed.mutex);
}

void store_unpin(struct store *s)
{
	struct freed_queue *q = &s->freed;
	size_t i;

	pthread_mutex_lock(&q->mutex);
	if (q->pins > 0 && --q->pins == 0)
		for (i = 0; i < q->num; i++)
			q->ranges[i].held = false;
	pthread_mutex_unlock(&q->mutex);
}

void store_set_grace(struct store *s, uint64_t usec)
{
	pthread_mutex_lock(&s->freed.mutex);
	s->freed.grace_usec = usec > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)usec;
	pthread_mutex_unlock(&s->freed.mutex);
}

void store_hold_freed(struct store *s, uint64_t since_usec)
{
	struct freed_queue *q = &s->freed;
	int64_t since = since_usec > INT64_MAX ? INT64_MAX : (int64_t)since_usec, now = store_now_usec();
	size_t i;

	pthread_mutex_lock(&q->mutex);
	for (i = 0; i < q->num; i++)
		if (q->ranges[i].since_usec >= q->hold_usec && q->ranges[i].since_usec < since)
			q->ranges[i].since_usec = now;
	q->hold_usec = since;
	pthread_mutex_unlock(&q->mutex);
}

/* q->mutex is held. */
static bool is_ready(const struct freed_queue *q, const struct freed_range *f, uint64_t durable, int64_t now)
{
	if (f->held || f->seq > durable)
		return false;
	return !q->grace_usec || (f->since_usec < q->hold_usec && now - f->since_usec >= q->grace_usec);
}

/* As much as there is room for is always worth a sync: soon somebody will wait for it. */
static uint64_t worth_bytes(struct store *s)
{
	struct store_space space;

	return store_space(s, &space) == 0 && space.free_bytes < SYNC_BYTES ? space.free_bytes : SYNC_BYTES;
}

/* Is it worth a sync to be able to give something back? */
static bool wants_sync(struct store *s, uint64_t durable)
{
	struct freed_queue *q = &s->freed;
	int64_t now = store_now_usec();
	uint64_t worth, bytes = 0;
	bool wants = false;
	size_t i;

	pthread_mutex_lock(&q->mutex);
	i = q->num;
	pthread_mutex_unlock(&q->mutex);
	worth = i ? worth_bytes(s) : 0;

	pthread_mutex_lock(&q->mutex);
	for (i = 0; !wants && i < q->num; i++) {
		const struct freed_range *f = &q->ranges[i];

		if (f->held || f->seq <= durable)
			continue;
		bytes += f->len < COUNT_MAX ? f->len : COUNT_MAX;
		wants = bytes >= worth || now - f->since_usec >= SYNC_USEC;
	}
	pthread_mutex_unlock(&q->mutex);
	return wants;
}

/* Moves what may be given back now to the end of the queue and copies it from there. */
static int take_ready(struct freed_queue *q, uint64_t durable, struct freed_range **ret, size_t *ret_num)
{
	int64_t now = store_now_usec();
	size_t i, kept = 0, forgotten = 0, num = 0;

	pthread_mutex_lock(&q->mutex);
	*ret = q->num ? calloc(q->num, sizeof(**ret)) : NULL;
	if (q->num && !*ret) {
		pthread_mutex_unlock(&q->mutex);
		return -ENOMEM;
	}
	for (i = 0; i < q->num; i++) {
		if (is_ready(q, &q->ranges[i], durable, now)) {
			(*ret)[num++] = q->ranges[i];
			continue;
		}
		forgotten += i < q->num_forgotten;
		q->ranges[kept++] = q->ranges[i];
	}
	q->num = kept;
	q->num_forgotten = forgotten;
	pthread_mutex_unlock(&q->mutex);
	*ret_num = num;
	return 0;
}

static int compare(const void *a, const void *b)
{
	const struct freed_range *x = a, *y = b;

	if (x->segment != y->segment)
		return x->segment < y->segment ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

/* Sorted, neighbours joined: a block that several ranges share can be punched when they are one. */
static size_t merge(struct freed_range *f, size_t num)
{
	size_t i, out = 0;

	if (num > 1)
		qsort(f, num, sizeof(*f), compare);
	for (i = 1; i < num; i++)
		if (f[i].segment == f[out].segment && f[i].off <= f[out].off + f[out].len) {
			uint64_t end = f[i].off + f[i].len;

			if (end > f[out].off + f[out].len)
				f[out].len = end - f[out].off;
		} else {
			f[++out] = f[i];
		}
	return num ? out + 1 : 0;
}

static bool is_dead(struct store *s, uint32_t segment)
{
	uint64_t live = 0;
	int r = state_segment_live(s->state, segment, &live);

	return r == -ENOENT || (r == 0 && live == 0);
}

/* Dead, and may it go? Called with the gate held exclusively. */
static bool removable(struct store *s, uint32_t segment)
{
	return segment < atomic_load(&s->max_segment) && !segment_is_open_for_append(s->segments, segment);
}

static void remember_dead(struct freed_queue *q, uint32_t segment)
{
	size_t i;

	for (i = 0; i < q->num_dead; i++)
		if (q->dead[i] == segment)
			return;
	if (array_room(&q->dead, &q->cap_dead, q->num_dead, sizeof(*q->dead)) == 0) /* else it goes at the next open */
		q->dead[q->num_dead++] = segment;
}

static int punch_all(struct store *s, const struct freed_range *f, size_t num)
{
	size_t i;
	int r = 0, e;

	for (i = 0; i < num; i++) {
		e = segment_punch(s->segments, f[i].segment, f[i].off, f[i].len);
		r = r || e == -ENOENT ? r : e;
	}
	return r;
}

static int remove_segment(struct store *s, uint32_t segment)
{
	int r = segment_remove(s->segments, segment);

	return r == -ENOENT ? 0 : r;
}

enum fate { LIVE, DEAD, CLOSED /* dead, and nothing is appended to it any more */, GONE };

struct batch {
	size_t num;
	uint32_t segment[SEGMENTS_PER_GATE]; /* rising */
	enum fate fate[SEGMENTS_PER_GATE];
};

/* Under the gate: nothing is being appended. */
static enum fate fate_of(struct store *s, uint32_t segment)
{
	if (!is_dead(s, segment))
		return LIVE;
	if (removable(s, segment))
		return GONE;
	return segment_is_open_for_append(s->segments, segment) ? DEAD : CLOSED;
}

/* The segments of the next ranges, and which of them are dead. Returns how many ranges these are. */
static size_t choose(struct store *s, const struct freed_range *f, size_t num, struct batch *b)
{
	size_t i;

	b->num = 0;
	pthread_rwlock_wrlock(&s->gate);
	for (i = 0; i < num; i++) {
		if (b->num && f[i].segment == b->segment[b->num - 1])
			continue;
		if (b->num == SEGMENTS_PER_GATE)
			break;
		b->segment[b->num] = f[i].segment;
		b->fate[b->num++] = fate_of(s, f[i].segment);
	}
	pthread_rwlock_unlock(&s->gate);
	return i;
}

static int compare_number(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/*
 * A dead segment of which ranges are still waiting, not durable or held, stays; they will bring it here again. Once it
 * is dead nothing is added, so this look may come after the gate.
 */
static void spare_waiting(struct freed_queue *q, struct batch *b)
{
	const uint32_t *found;
	size_t i;

	pthread_mutex_lock(&q->mutex);
	for (i = 0; i < q->num; i++) {
		found = bsearch(&q->ranges[i].segment, b->segment, b->num, sizeof(b->segment[0]), compare_number);
		if (found)
			b->fate[found - b->segment] = LIVE;
	}
	for (i = 0; q->lossy && i < b->num; i++)
		b->fate[i] = LIVE;
	pthread_mutex_unlock(&q->mutex);
}

/* Of one that has to stay, all: a daemon that was killed has left room behind its end, which no range names. */
static int empty_segment(struct store *s, uint32_t segment)
{
	return punch_all(s, &(struct freed_range){ .segment = segment, .len = FREED_WHOLE / 2 }, 1);
}

/* The next ranges, of up to SEGMENTS_PER_GATE segments. *ret_used: how many ranges. */
static int give_back(struct store *s, const struct freed_range *f, size_t num, size_t *ret_used)
{
	struct batch b;
	size_t i, from = 0, n;
	int r = 0, e;

	num = choose(s, f, num, &b);
	spare_waiting(&s->freed, &b);
	*ret_used = num;
	for (n = 0; n < b.num; n++, from = i) {
		for (i = from; i < num && f[i].segment == b.segment[n]; i++)
			;
		if (b.fate[n] == GONE)
			e = remove_segment(s, b.segment[n]);
		else if (b.fate[n] == CLOSED)
			e = empty_segment(s, b.segment[n]);
		else
			e = punch_all(s, f + from, i - from);
		if (b.fate[n] == DEAD || b.fate[n] == CLOSED)
			remember_dead(&s->freed, b.segment[n]);
		r = r ? r : e;
	}
	return r;
}

static bool is_waiting(struct freed_queue *q, uint32_t segment)
{
	bool waiting;
	size_t i;

	pthread_mutex_lock(&q->mutex);
	waiting = q->lossy;
	for (i = 0; !waiting && i < q->num; i++)
		waiting = q->ranges[i].segment == segment;
	pthread_mutex_unlock(&q->mutex);
	return waiting;
}

/* Segments that were dead before but could not go: a higher one has come since, or an append went elsewhere. */
static int remove_dead(struct store *s)
{
	struct freed_queue *q = &s->freed;
	size_t i, kept = 0;
	bool dead;
	int r = 0, e = 0;

	for (i = 0; i < q->num_dead; i++) {
		if (!removable(s, q->dead[i])) {
			q->dead[kept++] = q->dead[i];
			continue;
		}
		pthread_rwlock_wrlock(&s->gate);
		dead = is_dead(s, q->dead[i]);
		pthread_rwlock_unlock(&s->gate);
		/* If it has come back to life, or ranges wait, these will bring it to give_back() again. */
		e = dead && !is_waiting(q, q->dead[i]) ? remove_segment(s, q->dead[i]) : 0;
		r = r ? r : e;
	}
	q->num_dead = kept;
	return r;
}

int freed_execute(struct store *s)
{
	struct freed_range *f = NULL;
	size_t num = 0, at, used;
	int r = remove_dead(s), e;

	if (wants_sync(s, sync_durable_seq(&s->sync))) {
		e = store_sync(s);
		if (e && e != -ENOSPC)
			return e;
		r = r ? r : e; /* what is durable already is given back all the more */
	}
	e = take_ready(&s->freed, sync_durable_seq(&s->sync), &f, &num);
	if (e)
		return e;
	num = merge(f, num);
	for (at = 0; at < num; at += used) {
		e = give_back(s, f + at, num - at, &used);
		r = r ? r : e;
	}
	free(f);
	return r;
}

/* ---- at open ---- */

struct sweep {
	struct store *s;
	uint32_t *candidate; /* owned, rising */
	size_t num, cap;
	uint32_t highest;
};

static int find_candidate(uint32_t segment, bool is_private, uint64_t bytes, void *arg)
{
	struct sweep *w = arg;

	(void)is_private;
	(void)bytes;
	if (segment > w->highest)
		w->highest = segment;
	if (!is_dead(w->s, segment))
		return 0;
	if (array_room(&w->candidate, &w->cap, w->num, sizeof(*w->candidate)) < 0)
		return -ENOMEM;
	w->candidate[w->num++] = segment;
	return 0;
}

static int note_segment(uint32_t segment, uint64_t live_bytes, void *arg)
{
	struct sweep *w = arg;

	(void)live_bytes;
	if (segment > w->highest)
		w->highest = segment;
	return 0;
}

/* At open, when it must go. */
static int sweep_away(struct store *s, uint32_t segment, struct cistern_error *err)
{
	int r = remove_segment(s, segment);

	return r ? cistern_error_set(err, r, "%s: segment %u, which is of no use any more, cannot be removed: %s",
			   s->path, segment, strerror(-r))
		 : 0;
}

int freed_sweep_segments(struct store *s, struct cistern_error *err)
{
	struct sweep w = { .s = s, .highest = atomic_load(&s->max_segment) };
	size_t i;
	int r = segment_list(s->segments, find_candidate, &w), e;

	if (!r)
		r = state_each_segment(s->state, note_segment, &w);
	if (r)
		cistern_error_set(err, r, "%s: its segments cannot be listed: %s", s->path, strerror(-r));
	atomic_store(&s->max_segment, w.highest);
	segment_reserve_ids(s->segments, w.highest + 1);
	for (i = 0; i < w.num; i++) {
		if (r)
			break;
		if (w.candidate[i] == w.highest) {
			remember_dead(&s->freed, w.highest);
			freed_push(w.highest, 0, FREED_WHOLE, 0, s);
			continue;
		}
		if (s->freed.grace_usec) {
			freed_push(w.candidate[i], 0, FREED_WHOLE, 0, s); /* others may be on their way to it */
			continue;
		}
		e = sweep_away(s, w.candidate[i], err);
		r = r ? r : e;
	}
	free(w.candidate);
	return r;
}
