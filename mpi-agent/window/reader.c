/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Ranges of remote segments. Where a segment lies in its holder's window is asked once and remembered; ranges that wait for the
 * answer hang from the segment, those that may go take turns (turns.h). A remembered place is true until the holder retires it, and it does not use
 * it for anything else before we say that we do not read there any more.
 *
 * A segment that we can open ourselves (near.h) is asked for and given up by the same rules, so that no deleted file keeps its room, but
 * its bytes are read here: what the kernel has in memory at once, many ranges by one call, the rest when nothing else is to be done, after all of it
 * has been asked for.
 */
#include "mpi-agent/window/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/fdio.h"
#include "format/base/read_batch.h"
#include "mpi-agent/window/turns.h"

#define BUCKETS    4096u
#define GET_BYTES  (1u << 20)  /* of one get; longer ranges are cut */
#define SOON_BYTES (64u << 10) /* shorter ranges are not announced */
#define STEP_BYTES (1u << 20)  /* of files, read in one step: others wait for it */
#define STEP_READS 256u        /* likewise, by one call */

struct list {
	uint64_t id;
	int status;
	uint32_t left; /* ranges not yet done */
	uint32_t generation;
};

struct range {
	struct turn turn; /* first: where it stands */
	struct list *list;
	struct remote *remote;
	uint64_t off, to;
	uint32_t len;
};

struct queue {
	struct turn *head, **tail;
};

struct remote { /* a segment of another node */
	struct remote *next;
	uint32_t rank, segment;
	bool known, asking, retiring;
	uint64_t at, len, mapping;
	int fd;           /* owned: it is near; -1 */
	uint32_t reading; /* gets under way */
	bool answered;    /* while it was retiring: with this */
	struct control answer;
	struct queue waiting;
};

struct reader {
	struct reader_options opt;
	struct remote *buckets[BUCKETS];
	struct turns *ready; /* to be got */
	struct queue near;   /* ready, and read here */
	struct queue cold;   /* likewise, and to be waited for; they count as reading */
	struct read_batch *batch;
	uint32_t generation; /* a daemon's lists have one */
	uint32_t num_lists, num_old;
};

/* ---- queues */

static void queue_init(struct queue *q)
{
	*q = (struct queue){ .tail = &q->head };
}

static void push(struct queue *q, struct range *g)
{
	g->turn.next = NULL;
	*q->tail = &g->turn;
	q->tail = &g->turn.next;
}

static struct range *range_of(struct turn *turn)
{
	return (struct range *)turn;
}

static struct range *pop(struct queue *q)
{
	struct turn *first = q->head;

	if (first) {
		q->head = first->next;
		if (!q->head)
			q->tail = &q->head;
	}
	return range_of(first);
}

/* All of them, in their order. */
static struct turn *take_all(struct queue *q)
{
	struct turn *all = q->head;

	queue_init(q);
	return all;
}

static void free_ranges(struct turn *all)
{
	while (all) {
		struct turn *next = all->next;

		free(range_of(all));
		all = next;
	}
}

/* ---- life */

int reader_create(const struct reader_options *opt, struct reader **ret)
{
	struct reader *r = calloc(1, sizeof(*r));
	int e = r ? read_batch_create(&r->batch) : -ENOMEM;

	e = e < 0 ? e : turns_create(opt->num_ranks, ARENA_GETS, &r->ready);
	if (e < 0) {
		if (r)
			read_batch_destroy(r->batch);
		free(r);
		return e;
	}
	r->opt = *opt;
	queue_init(&r->near);
	queue_init(&r->cold);
	*ret = r;
	return 0;
}

static void close_near(struct reader *r, struct remote *m)
{
	if (m->fd >= 0)
		near_close(r->opt.near, m->fd);
	m->fd = -1;
}

void reader_destroy(struct reader *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; i < BUCKETS; i++) {
		while (r->buckets[i]) {
			struct remote *m = r->buckets[i];

			r->buckets[i] = m->next;
			free_ranges(take_all(&m->waiting));
			close_near(r, m);
			free(m);
		}
	}
	for (uint32_t i = 0; i < r->opt.num_ranks; i++)
		free_ranges(turns_take(r->ready, i));
	turns_destroy(r->ready);
	free_ranges(take_all(&r->near));
	free_ranges(take_all(&r->cold));
	read_batch_destroy(r->batch);
	free(r);
}

void reader_set_memory(struct reader *r, uint8_t *memory, uint64_t bytes)
{
	r->opt.memory = memory;
	r->opt.memory_bytes = bytes;
}

static struct remote **find_remote(struct reader *r, uint32_t rank, uint32_t segment)
{
	struct remote **at = &r->buckets[(segment * 2654435761u ^ rank * 40503u) % BUCKETS];

	while (*at && ((*at)->rank != rank || (*at)->segment != segment))
		at = &(*at)->next;
	return at;
}

static struct remote *get_remote(struct reader *r, uint32_t rank, uint32_t segment)
{
	struct remote **at = find_remote(r, rank, segment), *m = *at;

	if (m)
		return m;
	m = calloc(1, sizeof(*m));
	if (m) {
		m->rank = rank;
		m->segment = segment;
		m->fd = -1;
		queue_init(&m->waiting);
		*at = m;
	}
	return m;
}

/* One that nothing is known of is not kept: segments come and go for as long as the job runs. */
static void drop_if_unknown(struct reader *r, struct remote *m)
{
	struct remote **at = find_remote(r, m->rank, m->segment);

	if (m->known || m->asking || m->reading || m->waiting.head)
		return;
	*at = m->next;
	close_near(r, m);
	free(m);
}

/* ---- lists and ranges */

static void range_done(struct reader *r, struct range *g, int status)
{
	struct list *list = g->list;

	if (status && !list->status)
		list->status = status;
	free(g);
	if (--list->left)
		return;
	r->num_lists--;
	if (list->generation == r->generation)
		r->opt.got(list->id, list->status, r->opt.arg);
	else
		r->num_old--;
	free(list);
}

static int tell_holder(struct reader *r, const struct remote *m, const struct control *c)
{
	return r->opt.sender.send(m->rank, c, r->opt.sender.arg);
}

static int ask(struct reader *r, struct remote *m)
{
	struct control c = { .kind = CONTROL_ASK, .segment = m->segment };

	m->asking = true;
	return tell_holder(r, m, &c);
}

/* The kernel, ours or the holder's, may begin to fetch it from its device. */
static int announce(struct reader *r, const struct range *g)
{
	struct remote *m = g->remote;
	struct control c = {
		.kind = CONTROL_SOON, .segment = m->segment, .mapping = m->mapping, .at = g->off, .len = g->len
	};

	if (m->fd < 0)
		return tell_holder(r, m, &c);
	(void)posix_fadvise(m->fd, (off_t)g->off, (off_t)g->len, POSIX_FADV_WILLNEED);
	return 0;
}

static void stand_ready(struct reader *r, struct range *g)
{
	if (g->remote->fd >= 0)
		push(&r->near, g);
	else
		turns_push(r->ready, g->remote->rank, &g->turn);
}

/* Where a range goes next: to the ready ones, or to wait for an answer. */
static int sort_in(struct reader *r, struct range *g)
{
	struct remote *m = g->remote;
	bool fits = m->known && !m->retiring && g->off <= m->len && g->len <= m->len - g->off;

	if (fits) {
		stand_ready(r, g);
		return g->len < SOON_BYTES ? 0 : announce(r, g);
	}
	push(&m->waiting, g);
	return m->asking || m->retiring ? 0 : ask(r, m);
}

static int check_range(const struct reader *r, const struct reader_range *g)
{
	if (g->rank == r->opt.self || g->rank >= r->opt.num_ranks)
		return -ENOENT;
	if (g->len == 0 || g->to > r->opt.memory_bytes || g->len > r->opt.memory_bytes - g->to)
		return -EINVAL;
	return g->off > (uint64_t)INT64_MAX - g->len ? -EINVAL : 0;
}

/* Does b go on where a ends, in the segment and in memory? */
static bool continues(const struct reader_range *a, const struct reader_range *b)
{
	return a->rank == b->rank && a->segment == b->segment && a->off + a->len == b->off && a->to + a->len == b->to &&
	       (uint64_t)a->len + b->len <= GET_BYTES;
}

static int add_range(struct reader *r, struct list *list, const struct reader_range *from)
{
	struct range *g = calloc(1, sizeof(*g));
	int status = check_range(r, from);

	if (!g)
		return -ENOMEM;
	*g = (struct range){ .list = list, .off = from->off, .to = from->to, .len = from->len };
	list->left++;
	if (status == 0) {
		g->remote = get_remote(r, from->rank, from->segment);
		status = g->remote ? 0 : -ENOMEM;
	}
	if (status == 0)
		return sort_in(r, g);
	range_done(r, g, status);
	return 0;
}

static int add_pieces(struct reader *r, struct list *list, const struct reader_range *from)
{
	struct reader_range piece = *from;
	uint64_t left = from->len;
	int e;

	do {
		piece.len = (uint32_t)(left < GET_BYTES ? left : GET_BYTES);
		e = add_range(r, list, &piece);
		piece.off += piece.len;
		piece.to += piece.len;
		left -= piece.len;
	} while (e == 0 && left);
	return e;
}

int reader_get(struct reader *r, uint64_t id, const struct reader_range *ranges, size_t num)
{
	struct list *list = calloc(1, sizeof(*list));
	struct range *last;
	int e = 0;

	if (!list)
		return -ENOMEM;
	*list = (struct list){
		.id = id, .generation = r->generation, .left = 1
	}; /* our own, so that it does not end before all have been added */
	r->num_lists++;
	for (size_t i = 0; i < num && e == 0;) {
		struct reader_range all = ranges[i++];

		while (i < num && continues(&all, &ranges[i]))
			all.len += ranges[i++].len;
		e = add_pieces(r, list, &all);
	}
	last = calloc(1, sizeof(*last));
	if (!last)
		return -ENOMEM;
	last->list = list;
	range_done(r, last, 0);
	return e;
}

/* ---- what holders say */

/* One that was known keeps its place, whatever else changes: ranges stand ready for it. */
static void learn(struct reader *r, struct remote *m, const struct control *c)
{
	if (!m->known && m->fd < 0 && r->opt.near)
		m->fd = near_open(r->opt.near, m->rank, m->segment);
	m->known = true;
	m->at = c->at;
	m->len = c->len;
	m->mapping = c->mapping;
}

/* A fresh answer: those that were waiting for it go, or fail. */
static int take_answer(struct reader *r, struct remote *m, const struct control *c)
{
	struct turn *waiting = take_all(&m->waiting), *next;
	int e = 0;

	m->asking = m->answered = false;
	if (c->status == 0)
		learn(r, m, c);
	for (; waiting; waiting = next) {
		struct range *g = range_of(waiting);

		next = waiting->next;
		if (c->status)
			range_done(r, g, c->status);
		else if (g->off > m->len || g->len > m->len - g->off)
			range_done(r, g, -EINVAL);
		else if (e == 0)
			e = sort_in(r, g);
		else
			range_done(r, g, e);
	}
	return e;
}

/* Nobody reads there any more: the holder may have it back. Who waits asks anew, unless that has been done. */
static int let_go(struct reader *r, struct remote *m)
{
	struct control c = { .kind = CONTROL_RETIRED, .segment = m->segment, .mapping = m->mapping };
	int e;

	m->retiring = m->known = false;
	close_near(r, m);
	e = tell_holder(r, m, &c);
	if (e == 0 && m->answered)
		e = take_answer(r, m, &m->answer);
	if (e == 0 && m->waiting.head && !m->asking)
		e = ask(r, m);
	return e;
}

/* Ranges that stand ready for a place that is given up ask anew. */
static int take_back(struct reader *r, struct remote *m)
{
	struct turn *all = m->fd >= 0 ? take_all(&r->near) : turns_take(r->ready, m->rank), *next;
	int e = 0;

	for (; all; all = next) {
		struct range *g = range_of(all);

		next = all->next;
		if (g->remote == m && e == 0)
			e = sort_in(r, g);
		else
			stand_ready(r, g);
	}
	return e;
}

/* A place that we were told and do not use yet, since old reads are under way. Who waits asks anew behind them. */
static int give_up_answer(struct reader *r, struct remote *m)
{
	struct control c = { .kind = CONTROL_RETIRED, .segment = m->segment, .mapping = m->answer.mapping };

	m->answered = m->asking = false;
	return tell_holder(r, m, &c);
}

static int on_retire(struct reader *r, struct remote *m, const struct control *c)
{
	int e;

	if (m && m->answered && m->answer.mapping == c->mapping)
		return give_up_answer(r, m);
	if (!m || !m->known || m->retiring || m->mapping != c->mapping)
		return 0; /* it has had our answer already */
	m->retiring = true;
	e = take_back(r, m);
	if (e == 0 && m->reading == 0)
		e = let_go(r, m);
	drop_if_unknown(r, m);
	return e;
}

static int on_answer(struct reader *r, struct remote *m, const struct control *c)
{
	int e = 0;

	if (!m || !m->asking)
		return 0;
	m->answered = m->retiring; /* old reads are under way: then it must wait */
	m->answer = *c;
	if (!m->retiring)
		e = take_answer(r, m, c);
	drop_if_unknown(r, m);
	return e;
}

int reader_on_control(struct reader *r, uint32_t rank, const struct control *c)
{
	struct remote *m = *find_remote(r, rank, c->segment);

	return c->kind == CONTROL_ANSWER ? on_answer(r, m, c) : on_retire(r, m, c);
}

/* ---- gets */

struct step {
	struct reader *r;
	int error;
};

/* One that counted as reading has its bytes, or not. */
static void end_one(struct step *step, struct range *g, int status)
{
	struct reader *r = step->r;
	struct remote *m = g->remote;

	range_done(r, g, status);
	m->reading--;
	if (m->retiring && m->reading == 0 && step->error == 0)
		step->error = let_go(r, m);
	drop_if_unknown(r, m);
}

static void on_ended(uint32_t rank, void *tag, void *arg)
{
	struct step *step = arg;

	turns_ended(step->r->ready, rank);
	step->r->opt.read(rank, step->r->opt.arg);
	end_one(step, tag, 0);
}

/* Begins the next get. 1, 0: none may begin, or an error. */
static int begin_one(struct reader *r, struct cistern_error *err)
{
	struct turn *turn = turns_next(r->ready);
	struct range *g = range_of(turn);
	struct remote *m;
	int e;

	if (!turn)
		return 0;
	m = g->remote;
	m->reading++;
	e = arena_get(r->opt.arena, m->rank, m->at + g->off, r->opt.memory + g->to, g->len, g, err);
	return e < 0 ? e : 1;
}

/* ---- near ones */

/* As for those that get: behind the end of a file that was cut meanwhile there are zeros. */
static int read_and_wait(const struct reader *r, const struct range *g)
{
	ssize_t got = fdio_read(g->remote->fd, r->opt.memory + g->to, g->len, g->off);

	if (got < 0)
		return (int)got;
	memset(r->opt.memory + g->to + got, 0, g->len - (size_t)got);
	return 0;
}

struct near_reads { /* of files, by one call */
	uint32_t num;
	uint64_t bytes;
	struct range *ranges[STEP_READS];
	struct iovec to[STEP_READS];
	struct cached_read reads[STEP_READS];
};

/* The next ready ones that are near, as many as a step may have. */
static void gather(struct reader *r, struct near_reads *n, uint64_t most)
{
	n->num = 0;
	n->bytes = 0;
	while (n->num < STEP_READS && n->bytes < most && r->near.head) {
		struct range *g = pop(&r->near);
		uint32_t i = n->num++;

		g->remote->reading++; /* so nobody closes its file */
		n->bytes += g->len;
		n->ranges[i] = g;
		n->to[i] = (struct iovec){ r->opt.memory + g->to, g->len };
		n->reads[i] =
			(struct cached_read){ .fd = g->remote->fd, .num_iov = 1, .iov = &n->to[i], .off = g->off };
	}
}

/* Ready ones that are near. How many bytes were asked for. */
static uint64_t read_ready(struct step *step, uint64_t most)
{
	struct reader *r = step->r;
	struct near_reads n;

	gather(r, &n, most);
	read_batch_run(r->batch, n.reads, n.num);
	for (uint32_t i = 0; i < n.num; i++) {
		struct range *g = n.ranges[i];

		if (n.reads[i].got == (ssize_t)g->len) {
			end_one(step, g, 0);
			continue;
		}
		(void)posix_fadvise(g->remote->fd, (off_t)g->off, (off_t)g->len, POSIX_FADV_WILLNEED);
		push(&r->cold, g);
	}
	return n.bytes;
}

static uint32_t read_cold(struct step *step)
{
	struct range *g = pop(&step->r->cold);
	uint32_t len = g->len;

	end_one(step, g, read_and_wait(step->r, g));
	return len;
}

static void wake(uint32_t rank, void *arg)
{
	struct reader *r = arg;

	r->opt.reading(rank, r->opt.arg);
}

/* Gets are begun and files read until there are no more, or enough. How many, or an error. */
static int begin_some(struct step *step, struct cistern_error *err)
{
	struct reader *r = step->r;
	uint64_t bytes = 0;
	int num = 0, e;

	while ((e = begin_one(r, err)) > 0)
		num += e;
	if (e < 0)
		return e;
	while (bytes < STEP_BYTES && step->error == 0 && r->near.head) {
		bytes += read_ready(step, STEP_BYTES - bytes);
		num++;
	}
	while (bytes < STEP_BYTES && step->error == 0 && r->cold.head) {
		bytes += read_cold(step);
		num++;
	}
	return num;
}

int reader_step(struct reader *r, struct cistern_error *err)
{
	struct step step = { .r = r };
	int num = arena_step(r->opt.arena, on_ended, &step, err), e;

	if (num < 0)
		return num;
	e = begin_some(&step, err);
	if (e < 0)
		return e;
	arena_each_get(r->opt.arena, wake, r);
	return step.error < 0 ? cistern_error_set(err, step.error, "out of memory") : num + e;
}

/* ---- a daemon that has gone */

static void drop_ranges(struct reader *r, struct turn *all)
{
	while (all) {
		struct turn *next = all->next;

		range_done(r, range_of(all), -ECONNRESET);
		all = next;
	}
}

int reader_abandon(struct reader *r)
{
	struct step step = { .r = r };
	struct remote *m, *next;
	struct range *g;

	r->generation++;
	r->num_old = r->num_lists;
	for (uint32_t i = 0; i < r->opt.num_ranks; i++)
		drop_ranges(r, turns_take(r->ready, i));
	drop_ranges(r, take_all(&r->near));
	for (uint32_t i = 0; i < BUCKETS; i++)
		for (m = r->buckets[i]; m; m = next) {
			next = m->next;
			drop_ranges(r, take_all(&m->waiting));
			drop_if_unknown(r, m);
		}
	while ((g = pop(&r->cold)))
		end_one(&step, g, -ECONNRESET);
	return step.error;
}

bool reader_reads_old(const struct reader *r)
{
	return r->num_old > 0;
}

bool reader_busy(const struct reader *r)
{
	return r->num_lists > 0;
}
