/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A log is in the order of time, the file in the order of its variables. Sorting what may be more extents than memory
 * holds is avoided: the file is taken window by window, and for each window the logs are gone through in their order, putting
 * what falls into it; later puts cover earlier ones, and what the window then holds is written in large pieces. To find
 * what falls into a window, entries are kept in groups of GROUP_ENTRIES with the bytes of the file that they reach from
 * the first to the last; within an entry, whole dimensions that lie outside are skipped.
 *
 * Invariant: an entry is put, in every window, just if the first pass found it sound; both ask check_entry().
 */
#include "format/codec/bbreplay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/bbstream.h"
#include "format/codec/bbvalue.h"
#include "format/codec/bbwindow.h"

#define GROUP_ENTRIES  64u
#define CHUNK_VALUES   4096u
#define WINDOW_SHARE   4 / 9 /* of the memory: a window takes 2 1/4 times its length */
#define RANGES_LISTED  10000u
#define RECORDS_MAX_32 UINT32_C(0xFFFFFFFE)

struct group {
	size_t log;
	struct bblog_mark first;
	uint32_t num;
	bool sound;          /* each of them is replayed */
	uint64_t begin, end; /* of the file */
};

struct range_count {
	size_t log;
	uint64_t seq, num;
	uint32_t var;
};

struct conflict {
	uint64_t bytes, seq;
	size_t log;
};

struct bbreplay {
	const struct classic *nc;
	const struct bbreplay_log *logs;
	size_t num_logs;
	const struct bbreplay_ops *ops;
	struct bbstream *data; /* owned: one for each log */
	struct group *groups;  /* owned */
	size_t num_groups, cap_groups;
	struct range_count *ranges; /* owned: the first RANGES_LISTED entries with values out of range, sorted */
	size_t num_ranges, cap_ranges;
	struct conflict *conflicts; /* owned: one for each variable */
	struct bbreplay_stats stats;
	uint64_t needed_records, needed_bytes;
};

/* One request of an entry, laid out in the file. */
struct box {
	const struct bbreplay *b;
	/* what pitch and value are made for */
	const struct classic_var *v;
	const struct bblog_header *h;
	enum bblog_type type;
	uint32_t elem_bytes;
	struct bbvalue value;

	const int64_t *start, *count, *stride; /* count and stride may be NULL: 1 */
	uint32_t num_dims, num_outer;          /* the dimensions behind num_outer make one run */
	uint64_t pitch[BBLOG_DIMS_MAX];        /* bytes from one index to the next */
	uint64_t inner[BBLOG_DIMS_MAX + 1];    /* values of one index's part */
	uint64_t span[BBLOG_DIMS_MAX + 1];     /* bytes from the first to behind the last of one index's part */
	uint64_t begin;                        /* in the file; its last byte is before begin + span[0] */
};

/* An entry being put into the window. */
struct putting {
	struct bbreplay *b;
	struct bbwindow *window;
	uint64_t begin, end; /* of the window */
	struct bbvalue value;
	struct bbstream *data;
	uint64_t data_off; /* of the request's first value */
	uint64_t range_values;
	uint64_t conflict_bytes;
	int error;
};

static uint64_t count_of(const int64_t *count, uint32_t d)
{
	return count ? (uint64_t)count[d] : 1;
}

static uint64_t stride_of(const int64_t *stride, uint32_t d)
{
	return stride ? (uint64_t)stride[d] : 1;
}

/* ---- findings */

static void tell(const struct bbreplay *b, const struct bbreplay_finding *f)
{
	if (b->ops->found)
		b->ops->found(b->ops->arg, f);
}

static void tell_entry(
	struct bbreplay *b, enum bbreplay_kind kind, size_t log, const struct bblog_entry *e, const char *text)
{
	bool known = !e->wrong && e->varid < b->nc->num_vars;
	struct bbreplay_finding f = { .kind = kind,
		.log = log,
		.seq = e->seq,
		.var = known ? e->varid : CLASSIC_NONE,
		.num = e->num_elems,
		.text = text };

	b->stats.left_out++;
	tell(b, &f);
}

/* ---- a request in the file */

static const struct classic_var *var_of(const struct bbreplay *b, const struct bblog_entry *e)
{
	return &b->nc->vars[e->varid];
}

/* Bytes from one index of each dimension to the next. */
static void set_pitches(struct box *x, const struct classic_var *v)
{
	uint64_t bytes = classic_type_bytes(v->type);

	for (uint32_t d = v->num_dims; d-- > 0;) {
		bool record = v->is_record && d == 0;

		x->pitch[d] = record ? x->b->nc->record_bytes : bytes;
		if (!record)
			bytes *= x->b->nc->dims[v->dims[d]].len;
	}
}

/* NULL, or why the request does not fit its variable. *ret_records: how many records the file must have. */
static const char *check_bounds(const struct box *x, const struct classic_var *v, uint64_t *ret_records)
{
	uint64_t record_max = x->b->nc->version == 5 ? INT64_MAX : RECORDS_MAX_32;

	for (uint32_t d = 0; d < x->num_dims; d++) {
		bool record = v->is_record && d == 0;
		uint64_t len = record ? record_max : x->b->nc->dims[v->dims[d]].len, last;

		if (count_of(x->count, d) == 0)
			return NULL;
		if (__builtin_mul_overflow(count_of(x->count, d) - 1, stride_of(x->stride, d), &last) ||
			__builtin_add_overflow(last, (uint64_t)x->start[d], &last) || last >= len)
			return "it reaches beyond the bounds of its variable";
		if (record && last + 1 > *ret_records)
			*ret_records = last + 1;
	}
	return NULL;
}

/* begin, span, inner; false: beyond the end of what a file can be. Nothing is written for a count of 0: span[0] is 0. */
static bool set_spans(struct box *x, const struct classic_var *v)
{
	uint32_t d = x->num_dims;
	uint64_t end;

	x->begin = v->begin;
	x->span[d] = classic_type_bytes(v->type);
	x->inner[d] = 1;
	x->num_outer = d;
	while (d-- > 0) {
		uint64_t n = count_of(x->count, d), step, off;

		if (n == 0) {
			x->span[0] = 0;
			return true;
		}
		if (__builtin_mul_overflow(x->pitch[d], stride_of(x->stride, d), &step) ||
			__builtin_mul_overflow(n - 1, step, &off) ||
			__builtin_add_overflow(off, x->span[d + 1], &x->span[d]) ||
			__builtin_mul_overflow((uint64_t)x->start[d], x->pitch[d], &off) ||
			__builtin_add_overflow(x->begin, off, &x->begin))
			return false;
		x->inner[d] = n * x->inner[d + 1]; /* not more than the entry's num_elems */
		if (x->num_outer == d + 1 && (n == 1 || step == x->span[d + 1]))
			x->num_outer = d; /* goes on in the run behind it */
	}
	return !__builtin_add_overflow(x->begin, x->span[0], &end) && end <= CLASSIC_BYTES_MAX;
}

static void set_request(struct box *x, const struct bblog_entry *e, uint64_t request)
{
	uint64_t first = request * e->ndims;

	x->start = e->start + first;
	x->count = e->count ? e->count + first : NULL;
	x->stride = e->stride;
	x->num_dims = e->ndims;
}

/* ---- the first pass */

/*
 * NULL, and what holds for all entries of that variable and type is in *x; or what keeps the entry from being replayed.
 * Mostly the entry before was of the same, and nothing is to be done.
 */
static const char *prepare(
	const struct bbreplay *b, const struct bblog_entry *e, const struct bblog_header *h, struct box *x)
{
	const struct classic_var *v;
	const char *wrong;

	if (e->wrong)
		return e->wrong;
	if (e->varid >= b->nc->num_vars)
		return "the netCDF file has no such variable";
	v = var_of(b, e);
	if (v->num_dims != e->ndims)
		return "its variable has another number of dimensions";
	if (x->v == v && x->h == h && x->type == e->type && x->elem_bytes == e->elem_bytes)
		return NULL;
	x->v = NULL;
	wrong = bbvalue_plan(h, e, b->nc->version, v, &x->value);
	if (wrong)
		return wrong;
	x->b = b;
	x->h = h;
	x->type = e->type;
	x->elem_bytes = e->elem_bytes;
	x->v = v;
	set_pitches(x, v);
	return NULL;
}

/*
 * NULL, or what keeps the entry from being replayed. *ret_begin and *ret_end: the bytes of the file that it may touch;
 * *ret_records grows to what it needs.
 */
static const char *check_entry(struct bbreplay *b, const struct bblog_entry *e, const struct bblog_header *h,
	struct box *x, uint64_t *ret_begin, uint64_t *ret_end, uint64_t *ret_records)
{
	const char *wrong = prepare(b, e, h, x);
	const struct classic_var *v = x->v;

	if (wrong)
		return wrong;
	*ret_begin = UINT64_MAX;
	*ret_end = 0;
	for (uint64_t i = 0; i < e->num; i++) {
		set_request(x, e, i);
		wrong = check_bounds(x, v, ret_records);
		if (!wrong && !set_spans(x, v))
			wrong = "it lies beyond what a file can hold";
		if (wrong)
			return wrong;
		if (x->span[0] == 0)
			continue;
		*ret_begin = x->begin < *ret_begin ? x->begin : *ret_begin;
		*ret_end = x->begin + x->span[0] > *ret_end ? x->begin + x->span[0] : *ret_end;
	}
	return NULL;
}

static bool has_data(const struct bbreplay *b, size_t log, const struct bblog_entry *e)
{
	return e->data_off + e->data_len <= b->data[log].size;
}

static bool is_skipped(const struct bbreplay *b, size_t log, uint64_t seq)
{
	return b->ops->skip && b->ops->skip(b->ops->arg, log, seq);
}

static int add_group(struct bbreplay *b, size_t log, const struct bblog_mark *first, struct group **ret)
{
	if (b->num_groups == b->cap_groups) {
		size_t cap = b->cap_groups ? 2 * b->cap_groups : 64;
		struct group *groups = realloc(b->groups, cap * sizeof(*groups));

		if (!groups)
			return -ENOMEM;
		b->groups = groups;
		b->cap_groups = cap;
	}
	*ret = &b->groups[b->num_groups++];
	**ret = (struct group){ .log = log, .first = *first, .sound = true, .begin = UINT64_MAX };
	return 0;
}

/* Counts and tells of the entry, which was found at mark; puts it into the log's last group, or a new one. */
static int take_entry(
	struct bbreplay *b, size_t log, const struct bblog_mark *mark, const struct bblog_entry *e, struct box *x)
{
	struct group *g = b->num_groups ? &b->groups[b->num_groups - 1] : NULL;
	uint64_t begin = UINT64_MAX, end = 0, records = b->needed_records;
	const char *wrong = check_entry(b, e, bblog_header(b->logs[log].meta), x, &begin, &end, &records);

	if (!g || g->log != log || g->num == GROUP_ENTRIES) {
		int r = add_group(b, log, mark, &g);

		if (r < 0)
			return r;
	}
	g->num++;
	if (is_skipped(b, log, e->seq)) {
		g->sound = false;
		b->stats.skipped++;
		return 0;
	}
	g->sound = g->sound && !wrong && has_data(b, log, e);
	if (wrong || !has_data(b, log, e)) {
		tell_entry(b, wrong ? BBREPLAY_WRONG : BBREPLAY_DATA, log, e,
			wrong ? wrong : "the data log ends before its values do");
		return 0;
	}
	b->stats.entries++;
	b->stats.values += e->num_elems;
	b->needed_records = records;
	b->needed_bytes = end > b->needed_bytes ? end : b->needed_bytes;
	g->begin = begin < g->begin ? begin : g->begin;
	g->end = end > g->end ? end : g->end;
	return 0;
}

static void tell_lost(struct bbreplay *b, size_t log, uint64_t seq, const char *text)
{
	struct bbreplay_finding f = {
		.kind = BBREPLAY_LOST, .log = log, .seq = seq, .var = CLASSIC_NONE, .text = text
	};

	f.num = bblog_header(b->logs[log].meta)->count - seq;
	b->stats.left_out += f.num;
	tell(b, &f);
}

static int take_log(struct bbreplay *b, size_t log, struct box *x, struct cistern_error *err)
{
	struct bblog *meta = b->logs[log].meta;
	struct cistern_error why = { 0 };
	struct bblog_mark mark;
	struct bblog_entry e;
	int r;

	bblog_rewind(meta);
	while (mark = bblog_tell(meta), (r = bblog_next(meta, &e, &why)) > 0) {
		r = take_entry(b, log, &mark, &e, x);
		if (r < 0)
			return cistern_error_set(err, r, "out of memory");
	}
	bblog_release(meta);
	if (r == -EBADMSG)
		tell_lost(b, log, mark.seq, why.text);
	else if (r < 0)
		return cistern_error_set(err, r, "%s", why.text);
	return 0;
}

int bbreplay_create(const struct classic *nc, const struct bbreplay_log *logs, size_t num_logs,
	const struct bbreplay_ops *ops, struct bbreplay **ret, struct cistern_error *err)
{
	struct bbreplay *b = calloc(1, sizeof(*b));
	struct box *x = calloc(1, sizeof(*x));
	int r = 0;

	if (b) {
		*b = (struct bbreplay){ .nc = nc, .logs = logs, .num_logs = num_logs, .ops = ops };
		b->data = calloc(num_logs + 1, sizeof(*b->data));
		b->conflicts = calloc((size_t)nc->num_vars + 1, sizeof(*b->conflicts));
	}
	if (!b || !x || !b->data || !b->conflicts)
		r = cistern_error_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < num_logs && r == 0; i++) {
		bbstream_init(&b->data[i], &logs[i].data, logs[i].channel, logs[i].num_channels);
		r = take_log(b, i, x, err);
	}
	free(x);
	if (r < 0) {
		bbreplay_destroy(b);
		return r;
	}
	b->stats.old_records = nc->streaming ? classic_count_records(nc, ops->old_size) : nc->num_records;
	b->stats.num_records = b->needed_records > b->stats.old_records ? b->needed_records : b->stats.old_records;
	b->stats.new_size = b->needed_bytes > ops->old_size ? b->needed_bytes : ops->old_size;
	*ret = b;
	return 0;
}

void bbreplay_destroy(struct bbreplay *b)
{
	if (!b)
		return;
	for (size_t i = 0; b->data && i < b->num_logs; i++)
		bbstream_free(&b->data[i]);
	free(b->data);
	free(b->groups);
	free(b->ranges);
	free(b->conflicts);
	free(b);
}

const struct bbreplay_stats *bbreplay_stats(const struct bbreplay *b)
{
	return &b->stats;
}

/* ---- putting an entry into a window */

/* num whole values that lie at off; the part of them that is in the window goes there. */
static void put_values(struct putting *p, uint64_t off, const uint8_t *bytes, uint64_t num, uint64_t unfit)
{
	uint64_t end = off + num * p->value.to_bytes, begin = off;

	if (begin < p->begin)
		begin = p->begin;
	if (end > p->end)
		end = p->end;
	if (off >= p->begin) /* else the window before this one has counted */
		p->range_values += unfit;
	p->conflict_bytes +=
		bbwindow_put(p->window, begin, bytes + (begin - off), (size_t)(end - begin), &p->b->stats.own_bytes);
}

/* A run of num values at off of the file, the first of which is value number index of the request. */
static void put_run(struct putting *p, uint64_t off, uint64_t num, uint64_t index)
{
	uint32_t to = p->value.to_bytes, from = p->value.from_bytes;
	uint64_t first = off < p->begin ? (p->begin - off) / to : 0, last = num;
	uint8_t values[CHUNK_VALUES * CLASSIC_TYPE_BYTES];

	if (off + num * to > p->end)
		last = (p->end - off + to - 1) / to;
	while (first < last && p->error == 0) {
		uint64_t n = last - first < CHUNK_VALUES ? last - first : CHUNK_VALUES;
		const uint8_t *memory;

		/* one value by itself where it straddles the window's edge: so that each is counted once */
		if (off + first * to < p->begin)
			n = 1;
		p->error = bbstream_look(p->data, p->data_off + (index + first) * from, n * from, &memory);
		if (p->error == 0)
			put_values(p, off + first * to, values, n, bbvalue_convert(&p->value, memory, values, n));
		first += n;
	}
}

/* The part of the box from dimension d on that begins at off; index: number of its first value in the request. */
static void put_box(struct putting *p, const struct box *x, uint32_t d, uint64_t off, uint64_t index)
{
	uint64_t step, first = 0, n;

	if (d == x->num_outer) {
		put_run(p, off, x->inner[d], index);
		return;
	}
	n = count_of(x->count, d);
	step = x->pitch[d] * stride_of(x->stride, d);
	if (off + x->span[d + 1] <= p->begin)
		first = (p->begin - off - x->span[d + 1]) / step + 1;
	for (uint64_t i = first; i < n && off + i * step < p->end && p->error == 0; i++)
		put_box(p, x, d + 1, off + i * step, index + i * x->inner[d + 1]);
}

static int range_order(const struct range_count *a, size_t log, uint64_t seq)
{
	if (a->log != log)
		return a->log < log ? -1 : 1;
	return a->seq < seq ? -1 : a->seq > seq;
}

/* Entries come in order within a window, and again in the next: the place is sought. Beyond the limit only sums grow. */
static int count_range(struct bbreplay *b, size_t log, const struct bblog_entry *e, uint64_t num)
{
	size_t lo = 0, hi = b->num_ranges;

	b->stats.range_values += num;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (range_order(&b->ranges[mid], log, e->seq) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < b->num_ranges && range_order(&b->ranges[lo], log, e->seq) == 0) {
		b->ranges[lo].num += num;
		return 0;
	}
	if (b->num_ranges == RANGES_LISTED)
		return 0;
	if (b->num_ranges == b->cap_ranges) {
		size_t cap = b->cap_ranges ? 2 * b->cap_ranges : 16;
		struct range_count *ranges = realloc(b->ranges, cap * sizeof(*ranges));

		if (!ranges)
			return -ENOMEM;
		b->ranges = ranges;
		b->cap_ranges = cap;
	}
	memmove(&b->ranges[lo + 1], &b->ranges[lo], (b->num_ranges - lo) * sizeof(*b->ranges));
	b->num_ranges++;
	b->ranges[lo] = (struct range_count){ .log = log, .seq = e->seq, .num = num, .var = e->varid };
	return 0;
}

static void count_conflict(struct bbreplay *b, size_t log, const struct bblog_entry *e, uint64_t bytes)
{
	struct conflict *c = &b->conflicts[e->varid];

	b->stats.conflict_bytes += bytes;
	if (c->bytes == 0) {
		c->log = log;
		c->seq = e->seq;
	}
	c->bytes += bytes;
}

/* All requests of an entry that was found sound. */
static int put_entry(struct putting *p, size_t log, const struct bblog_entry *e, struct box *x)
{
	const struct classic_var *v = var_of(p->b, e);
	int r = 0;

	p->data = &p->b->data[log];
	p->data_off = e->data_off;
	p->range_values = p->conflict_bytes = 0;
	p->error = 0;
	for (uint64_t i = 0; i < e->num && p->error == 0; i++) {
		set_request(x, e, i);
		set_spans(x, v);
		if (x->span[0] == 0)
			continue;
		if (x->begin < p->end && x->begin + x->span[0] > p->begin)
			put_box(p, x, 0, x->begin, 0);
		p->data_off += x->inner[0] * e->elem_bytes;
	}
	if (p->range_values)
		r = count_range(p->b, log, e, p->range_values);
	if (p->conflict_bytes)
		count_conflict(p->b, log, e, p->conflict_bytes);
	return p->error < 0 ? p->error : r;
}

/* Whether the entry is replayed, and may reach into the window. */
static bool is_wanted(const struct putting *p, const struct group *g, const struct bblog_entry *e, struct box *x)
{
	const struct bblog_header *h = bblog_header(p->b->logs[g->log].meta);
	uint64_t begin = 0, end = 0, records = 0;

	if (g->sound)
		return !prepare(p->b, e, h, x);
	return !is_skipped(p->b, g->log, e->seq) && !check_entry(p->b, e, h, x, &begin, &end, &records) &&
	       has_data(p->b, g->log, e) && begin < p->end && end > p->begin;
}

/* The entries of a group that reach into the window. */
static int put_group(struct putting *p, const struct group *g, struct box *x, struct cistern_error *err)
{
	struct bblog *meta = p->b->logs[g->log].meta;
	struct bblog_entry e;

	bblog_seek(meta, &g->first);
	for (uint32_t i = 0; i < g->num; i++) {
		int r = bblog_next(meta, &e, err);

		if (r <= 0)
			return r < 0 ? r : cistern_error_set(err, -EBADMSG, "the log changed while it was read");
		if (!is_wanted(p, g, &e, x))
			continue;
		p->value = x->value;
		r = put_entry(p, g->log, &e, x);
		if (r < 0)
			return cistern_error_set(err, r, "rank %" PRIu64 ", entry %" PRIu64 ": reading its values: %s",
				bblog_header(meta)->rank, e.seq, strerror(-r));
	}
	return 0;
}

/* A job may have thousands of logs; one at a time has its buffers. */
static void release(struct bbreplay *b, size_t log)
{
	if (log == SIZE_MAX)
		return;
	bblog_release(b->logs[log].meta);
	bbstream_free(&b->data[log]);
}

static int fill_window(struct bbreplay *b, struct putting *p, struct box *x, struct cistern_error *err)
{
	size_t log = SIZE_MAX;

	for (size_t i = 0; i < b->num_groups; i++) {
		const struct group *g = &b->groups[i];
		int r;

		if (g->begin >= p->end || g->end <= p->begin)
			continue;
		if (g->log != log) {
			bbwindow_next_rank(p->window);
			release(b, log);
		}
		log = g->log;
		r = put_group(p, g, x, err);
		if (r < 0)
			return r;
	}
	release(b, log);
	return 0;
}

/* ---- the second pass */

/* The first byte from off on that any group may touch; UINT64_MAX: there is none. */
static uint64_t next_touched(const struct bbreplay *b, uint64_t off)
{
	uint64_t next = UINT64_MAX;

	for (size_t i = 0; i < b->num_groups; i++) {
		const struct group *g = &b->groups[i];
		uint64_t begin = g->begin > off ? g->begin : off;

		if (g->end > off && begin < next)
			next = begin;
	}
	return next;
}

static int run_windows(struct bbreplay *b, struct bbwindow *w, size_t len, struct box *x, struct cistern_error *err)
{
	struct putting p = { .b = b, .window = w };

	for (uint64_t off = next_touched(b, 0); off != UINT64_MAX; off = next_touched(b, p.end)) {
		int r;

		p.begin = off / len * len;
		p.end = p.begin + len;
		bbwindow_begin(w, p.begin);
		r = fill_window(b, &p, x, err);
		if (r < 0)
			return r;
		r = bbwindow_end(w, b->ops, &b->stats);
		if (r < 0)
			return cistern_error_set(err, r, "bytes %" PRIu64 " to %" PRIu64 " of the netCDF file: %s",
				p.begin, p.end, strerror(-r));
	}
	return 0;
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

static void tell_sums(const struct bbreplay *b)
{
	for (size_t i = 0; i < b->num_ranges; i++) {
		const struct range_count *c = &b->ranges[i];
		struct bbreplay_finding f = {
			.kind = BBREPLAY_RANGE, .log = c->log, .seq = c->seq, .var = c->var, .num = c->num
		};

		tell(b, &f);
	}
	for (uint32_t v = 0; v < b->nc->num_vars; v++) {
		const struct conflict *c = &b->conflicts[v];
		struct bbreplay_finding f = {
			.kind = BBREPLAY_CONFLICT, .log = c->log, .seq = c->seq, .var = v, .num = c->bytes
		};

		if (c->bytes)
			tell(b, &f);
	}
}

int bbreplay_run(struct bbreplay *b, uint64_t memory_bytes, struct cistern_error *err)
{
	uint64_t most = UINT64_C(1) << 32, len;
	struct box *x = calloc(1, sizeof(*x));
	struct bbwindow *w = NULL;
	int r;

	if (memory_bytes < BBREPLAY_MIN_BYTES)
		memory_bytes = BBREPLAY_MIN_BYTES;
	len = (memory_bytes < most ? memory_bytes : most) * WINDOW_SHARE / BBWINDOW_UNIT * BBWINDOW_UNIT;
	if (len > b->needed_bytes) /* one window is enough */
		len = (b->needed_bytes / BBWINDOW_UNIT + 1) * BBWINDOW_UNIT;
	r = x ? bbwindow_create((size_t)len, &w) : -ENOMEM;
	if (r < 0)
		cistern_error_set(err, r, "out of memory");
	else
		r = run_windows(b, w, (size_t)len, x, err);
	if (r == 0)
		r = write_records(b, err);
	if (r == 0)
		tell_sums(b);
	bbwindow_destroy(w);
	free(x);
	return r;
}
