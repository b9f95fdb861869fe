/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A log is in the order of time, the file in the order of its variables. Sorting what may be more extents than memory
 * holds is avoided: the file is taken window by window, and for each window the logs are gone through in their order, putting
 * what falls into it (bbput.c); later puts cover earlier ones, and what the window then holds is written in large pieces. To find
 * what falls into a window, the first pass (bbscan.c) keeps entries in groups with the bytes of the file that they reach, and where
 * each of them lies if they are simple and a part of the memory holds it (bbruns.c): else they are decoded again.
 *
 * Windows have nothing to do with each other, nor have the first passes over different logs. So workers take them in turn, each
 * with memory of its own, which it uses again and again. A window with what fills it is as small as a processor's own cache, unless that
 * would mean reading the same entries many times.
 */
#include "format/codec/bbreplay.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/bbput.h"
#include "format/codec/bbscan.h"
#include "format/codec/bbsums.h"

#define WINDOW_SHARE 4 / 9 /* of the memory: a window takes 2 1/4 times its length */
#define KEEP_SHARE   4     /* of the memory, for what the first pass keeps for the second */
#define WINDOW_MIN   (UINT64_C(512) << 10)
#define WINDOW_MAX   (UINT64_C(1) << 31)
#define WORKERS_MAX  64u
#define AGAIN_SHARE  16                  /* for so many bytes of values one byte of entries may be read again */
#define AGAIN_FREE   (UINT64_C(1) << 20) /* and so many bytes anyhow */

struct bbreplay {
	const struct classic *nc;
	size_t num_logs;
	const struct bbreplay_ops *ops;
	struct bbscan *scans; /* owned: one for each log */
	struct bbsums sums;
	struct bbreplay_stats stats;
	uint64_t needed_bytes;
	/* what workers share */
	size_t window_bytes;
	_Atomic uint64_t next; /* the log that is scanned, or the byte of the file that is written, next */
	_Atomic bool failed;   /* one of them has: all end */
};

/* ---- several at once */

struct worker {
	struct bbreplay *b;
	int (*work)(struct worker *w);
	struct bbsums sums; /* what it counted */
	struct cistern_error err;
	int error;
};

static void carry_out(void *task, unsigned int i)
{
	struct worker *w = (struct worker *)task + i;

	w->error = w->work(w);
	if (w->error < 0)
		atomic_store(&w->b->failed, true);
}

static bool has_failed(const struct worker *w)
{
	return atomic_load(&w->b->failed);
}

static unsigned int count_workers(const struct bbreplay *b)
{
	unsigned int num = b->ops->each ? b->ops->num_workers : 1;

	return num < 1 ? 1 : num > WORKERS_MAX ? WORKERS_MAX : num;
}

/* What they counted, and the first failure. */
static int gather(struct bbreplay *b, struct worker *workers, unsigned int num, struct cistern_error *err)
{
	int r = 0;

	for (unsigned int i = 0; i < num; i++) {
		struct worker *w = &workers[i];

		if (r == 0 && w->error < 0)
			r = cistern_error_set(err, w->error, "%s", w->err.text);
		if (r == 0 && bbsums_add(&b->sums, &w->sums) < 0)
			r = cistern_error_set(err, -ENOMEM, "out of memory");
		bbsums_free(&w->sums);
	}
	return r;
}

static int run_workers(struct bbreplay *b, unsigned int num, int (*work)(struct worker *w), struct cistern_error *err)
{
	struct worker *workers = calloc(num, sizeof(*workers));
	int r;

	if (!workers)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	for (unsigned int i = 0; i < num; i++)
		workers[i] = (struct worker){ .b = b, .work = work };
	atomic_store(&b->next, 0);
	if (num > 1)
		b->ops->each(b->ops->arg, num, carry_out, workers);
	else
		carry_out(workers, 0);
	r = gather(b, workers, num, err);
	free(workers);
	return r;
}

/* ---- the first pass */

/* What reads logs. */
struct reading {
	struct bblog *reader; /* owned */
	struct bbbox *box;    /* owned */
};

static int begin_reading(struct reading *rd, const struct classic *nc, struct cistern_error *err)
{
	rd->box = calloc(1, sizeof(*rd->box));
	if (bblog_reader(&rd->reader) < 0 || !rd->box)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	rd->box->nc = nc;
	return 0;
}

static void end_reading(struct reading *rd)
{
	bblog_close(rd->reader);
	free(rd->box);
}

static int scan_logs(struct worker *w)
{
	struct bbreplay *b = w->b;
	struct reading rd = { 0 };
	uint64_t i;
	int r = begin_reading(&rd, b->nc, &w->err);

	while (r == 0 && !has_failed(w) && (i = atomic_fetch_add(&b->next, 1)) < b->num_logs)
		r = bbscan_run(&b->scans[i], rd.reader, rd.box, &w->err);
	end_reading(&rd);
	return r;
}

static int tell_scans(struct bbreplay *b, struct cistern_error *err)
{
	struct reading rd = { 0 };
	int r = begin_reading(&rd, b->nc, err);

	for (size_t i = 0; i < b->num_logs && r == 0; i++)
		r = bbscan_tell(&b->scans[i], rd.reader, rd.box, err);
	end_reading(&rd);
	return r;
}

static void add_scans(struct bbreplay *b)
{
	const struct classic *nc = b->nc;
	struct bbreplay_stats *stats = &b->stats;

	stats->old_records = nc->streaming ? classic_count_records(nc, b->ops->old_size) : nc->num_records;
	stats->num_records = stats->old_records;
	stats->new_size = b->ops->old_size;
	for (size_t i = 0; i < b->num_logs; i++) {
		const struct bbscan *s = &b->scans[i];

		stats->entries += s->entries;
		stats->values += s->values;
		stats->skipped += s->skipped;
		stats->left_out += s->left_out;
		stats->num_records = s->records > stats->num_records ? s->records : stats->num_records;
		b->needed_bytes = s->end > b->needed_bytes ? s->end : b->needed_bytes;
	}
	if (b->needed_bytes > stats->new_size)
		stats->new_size = b->needed_bytes;
}

static int scan_all(struct bbreplay *b, const struct bbreplay_log *logs, struct cistern_error *err)
{
	unsigned int num = count_workers(b);
	uint64_t keep = b->ops->memory_bytes / KEEP_SHARE;
	int r;

	for (size_t i = 0; i < b->num_logs; i++)
		bbscan_init(&b->scans[i], i, &logs[i], b->ops, keep / b->num_logs);
	if (num > b->num_logs)
		num = b->num_logs ? (unsigned int)b->num_logs : 1;
	r = run_workers(b, num, scan_logs, err);
	if (r == 0)
		add_scans(b);
	return r == 0 ? tell_scans(b, err) : r;
}

int bbreplay_create(const struct classic *nc, const struct bbreplay_log *logs, size_t num_logs,
	const struct bbreplay_ops *ops, struct bbreplay **ret, struct cistern_error *err)
{
	struct bbreplay *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	b->nc = nc;
	b->ops = ops;
	b->num_logs = num_logs;
	b->scans = calloc(num_logs + 1, sizeof(*b->scans));
	r = bbsums_init(&b->sums, nc->num_vars);
	if (r < 0 || !b->scans)
		r = cistern_error_set(err, -ENOMEM, "out of memory");
	else
		r = scan_all(b, logs, err);
	if (r < 0) {
		bbreplay_destroy(b);
		return r;
	}
	*ret = b;
	return 0;
}

void bbreplay_destroy(struct bbreplay *b)
{
	if (!b)
		return;
	for (size_t i = 0; b->scans && i < b->num_logs; i++)
		bbscan_free(&b->scans[i]);
	free(b->scans);
	bbsums_free(&b->sums);
	free(b);
}

const struct bbreplay_stats *bbreplay_stats(const struct bbreplay *b)
{
	return &b->stats;
}

/* ---- how large a window is */

/*
 * About how many bytes of entries would be read with windows of len bytes, and how many groups looked at: each window looks at all.
 */
static double cost_of(const struct bbreplay *b, uint64_t len)
{
	double bytes = 0, groups = 0, touched = 0, windows = (double)(b->needed_bytes / len + 1);

	for (size_t i = 0; i < b->num_logs; i++) {
		const struct bbscan *s = &b->scans[i];

		for (size_t k = 0; k < s->num; k++) {
			const struct bbscan_group *g = &s->groups[k];
			double times = g->begin < g->end ? (double)((g->end - 1) / len - g->begin / len + 1) : 0;

			touched += times;
			bytes += times *
				 (double)(g->kept ? g->num * sizeof(struct bbruns_run) : g->behind.off - g->first.off);
		}
		groups += (double)s->num;
	}
	return bytes + groups * (windows < touched ? windows : touched);
}

static double budget_of(const struct bbreplay *b)
{
	double budget = (double)AGAIN_FREE;

	for (size_t i = 0; i < b->num_logs; i++) {
		const struct bbscan *s = &b->scans[i];

		budget += (double)s->value_bytes / AGAIN_SHARE;
		if (s->num)
			budget += (double)(s->groups[s->num - 1].behind.off - s->groups[0].first.off);
	}
	return budget;
}

/* What is left for windows. */
static uint64_t window_memory(const struct bbreplay *b)
{
	uint64_t bytes = b->ops->memory_bytes;

	for (size_t i = 0; i < b->num_logs; i++)
		bytes -= b->scans[i].runs.num *
			 sizeof(struct bbruns_run); /* less than a KEEP_SHARE of it, all together */
	return bytes < BBREPLAY_MIN_BYTES ? BBREPLAY_MIN_BYTES : bytes;
}

/* At most most bytes. */
static size_t choose_window(const struct bbreplay *b, uint64_t most)
{
	double budget = budget_of(b);
	uint64_t len = WINDOW_MIN;

	while (len < most && cost_of(b, len) > budget)
		len *= 2;
	if (len > most)
		len = most / BBWINDOW_UNIT * BBWINDOW_UNIT;
	if (len > b->needed_bytes) /* one window is enough */
		len = (b->needed_bytes / BBWINDOW_UNIT + 1) * BBWINDOW_UNIT;
	return (size_t)len;
}

/* ---- the second pass */

/* The first byte from off on that any group may touch; UINT64_MAX: there is none. */
static uint64_t next_touched(const struct bbreplay *b, uint64_t off)
{
	uint64_t next = UINT64_MAX;

	for (size_t i = 0; i < b->num_logs; i++) {
		const struct bbscan *s = &b->scans[i];

		if (s->end <= off || s->begin >= next)
			continue;
		for (size_t k = 0; k < s->num && next > off; k++) {
			const struct bbscan_group *g = &s->groups[k];
			uint64_t begin = g->begin > off ? g->begin : off;

			if (g->end > off && begin < next)
				next = begin;
		}
	}
	return next;
}

/* The next window that nobody has. false: there is none left. */
static bool claim(struct bbreplay *b, uint64_t *ret_begin)
{
	uint64_t from = atomic_load(&b->next), off;

	do {
		off = next_touched(b, from);
		if (off == UINT64_MAX)
			return false;
		*ret_begin = off / b->window_bytes * b->window_bytes;
	} while (!atomic_compare_exchange_weak(&b->next, &from, *ret_begin + b->window_bytes));
	return true;
}

static int write_windows(struct worker *w)
{
	struct bbreplay *b = w->b;
	struct bbput p = { 0 };
	uint64_t begin;
	int r = bbput_init(&p, b->scans, b->num_logs, b->ops, b->nc, b->window_bytes);

	if (r < 0)
		cistern_error_set(&w->err, r, "out of memory");
	while (r == 0 && !has_failed(w) && claim(b, &begin))
		r = bbput_window(&p, begin, &w->err);
	w->sums = p.sums;
	p.sums = (struct bbsums){ 0 };
	bbput_free(&p);
	return r;
}

/* If the values are as many as what lies between the first and the last of them, there are hardly holes to be kept. */
static void reserve(const struct bbreplay *b)
{
	uint64_t begin = UINT64_MAX, bytes = 0;

	for (size_t i = 0; i < b->num_logs; i++) {
		begin = b->scans[i].begin < begin ? b->scans[i].begin : begin;
		bytes += b->scans[i].file_bytes;
	}
	if (b->ops->reserve && !b->ops->dry && begin < b->needed_bytes && bytes >= b->needed_bytes - begin)
		b->ops->reserve(b->ops->arg, begin, b->needed_bytes - begin);
}

/* Last, so that an interrupted replay does not promise records that are not there. */
static int write_records(struct bbreplay *b, struct cistern_error *err)
{
	uint32_t bytes = b->nc->version == 5 ? 8 : 4;
	uint8_t text[8];
	int r;

	if (b->stats.num_records == b->stats.old_records || b->ops->dry)
		return 0;
	for (uint32_t i = 0; i < bytes; i++)
		text[i] = (uint8_t)(b->stats.num_records >> 8 * (bytes - 1 - i));
	b->stats.writes++;
	r = b->ops->write(b->ops->arg, CLASSIC_NUMRECS_OFF, text, bytes);
	return r < 0 ? cistern_error_set(err, r, "the number of records: %s", strerror(-r)) : 0;
}

int bbreplay_run(struct bbreplay *b, struct cistern_error *err)
{
	uint64_t num = count_workers(b), memory_bytes = window_memory(b), most;
	int r;

	if (num > memory_bytes / BBREPLAY_MIN_BYTES)
		num = memory_bytes / BBREPLAY_MIN_BYTES;
	most = memory_bytes / num < WINDOW_MAX ? memory_bytes / num : WINDOW_MAX;
	b->window_bytes = choose_window(b, most * WINDOW_SHARE);
	if (num > b->needed_bytes / b->window_bytes + 1)
		num = b->needed_bytes / b->window_bytes + 1;
	reserve(b);
	r = run_workers(b, (unsigned int)num, write_windows, err);
	if (r < 0)
		return r;
	bbsums_add_stats(&b->stats, &b->sums.stats);
	r = write_records(b, err);
	if (r == 0)
		bbsums_tell(&b->sums, b->ops);
	return r;
}
