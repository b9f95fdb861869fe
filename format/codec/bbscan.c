/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A group ends where reading all of it to find one entry would begin to cost, before an entry that is far from the others, or where the
 * log ends. What is wrong is counted by the
 * scan and told later, by a second look at the few logs that have any: so nothing needs to be kept, and it is told in the order of logs.
 *
 * Invariant: an entry is put, in every window, just if the scan found it to be replayed; all ask bbscan_judge().
 */
#include "format/codec/bbscan.h"

#include <errno.h>
#include <stdlib.h>

#include "format/base/array.h"
#include "format/codec/bbstream.h"

#define GROUP_ENTRIES 64u
#define GROUP_FAR     (UINT64_C(1) << 40)  /* of the file, between two entries */
#define GROUP_BYTES   (UINT64_C(16) << 10) /* of the metadata log, but for the last entry */

void bbscan_init(struct bbscan *s, size_t number, const struct bbreplay_log *log, const struct bbreplay_ops *ops,
	uint64_t keep_bytes)
{
	struct bbstream data = { 0 };

	bbstream_init(&data, &log->data, log->channel, log->num_channels);
	*s = (struct bbscan){ .log = log, .ops = ops, .number = number, .data_bytes = data.size, .begin = UINT64_MAX };
	bbruns_init(&s->runs, keep_bytes);
}

void bbscan_free(struct bbscan *s)
{
	free(s->groups);
	bbruns_free(&s->runs);
	s->groups = NULL;
	s->num = s->cap = 0;
}

enum bbscan_fate bbscan_judge(const struct bbscan *s, struct bbbox *x, const struct bblog_entry *e,
	struct bbbox_reach *ret, const char **ret_why)
{
	const char *wrong;

	if (s->ops->skip && s->ops->skip(s->ops->arg, s->number, e->seq))
		return BBSCAN_SKIPPED;
	wrong = bbbox_check(x, bblog_header(s->log->meta), e, ret);
	if (!wrong && e->data_off + e->data_len <= s->data_bytes)
		return BBSCAN_REPLAYED;
	*ret_why = wrong ? wrong : "the data log ends before its values do";
	return wrong ? BBSCAN_WRONG : BBSCAN_NO_DATA;
}

/* ---- what can be replayed */

static int add_group(struct bbscan *s, const struct bblog_mark *first)
{
	if (array_room(&s->groups, &s->cap, s->num, sizeof(*s->groups)) < 0)
		return -ENOMEM;
	s->groups[s->num++] = (struct bbscan_group){
		.first = *first, .sound = true, .kept = true, .begin = UINT64_MAX, .first_run = s->runs.num
	};
	return 0;
}

static void widen(uint64_t *begin, uint64_t *end, const struct bbbox_reach *reach)
{
	*begin = reach->begin < *begin ? reach->begin : *begin;
	*end = reach->end > *end ? reach->end : *end;
}

/* The first entry of a group says what the others must be, too. */
static bool is_like_others(struct bbscan_group *g, const struct bblog_entry *e, uint64_t begin)
{
	if (g->num == 0) {
		g->base = begin;
		g->varid = e->varid;
		g->type = e->type;
		g->elem_bytes = e->elem_bytes;
	}
	return g->varid == e->varid && g->type == e->type && g->elem_bytes == e->elem_bytes;
}

/* All windows between them would look at it, be they a million: one record that is far behind all others, rightly or by damage, is enough. */
static bool is_far(const struct bbscan_group *g, const struct bbbox_reach *reach)
{
	return g->begin < g->end && reach->begin < reach->end &&
	       (reach->begin > g->end ? reach->begin - g->end > GROUP_FAR
				      : g->begin > reach->end && g->begin - reach->end > GROUP_FAR);
}

static bool is_full(const struct bbscan_group *g)
{
	return g->num == GROUP_ENTRIES || g->behind.off - g->first.off >= GROUP_BYTES;
}

/* *x is e's last request. NULL: e is not replayed. */
static void keep(struct bbscan *s, struct bbscan_group *g, const struct bblog_entry *e, const struct bbbox *x)
{
	if (!g->kept)
		return;
	g->kept = e && e->num == 1 && x->span[0] > 0 && x->num_outer == 0 && is_like_others(g, e, x->begin) &&
		  bbruns_keep(&s->runs, g->base, x->begin, x->inner[0]);
	if (!g->kept)
		s->runs.num = g->first_run;
}

static void take(struct bbscan *s, struct bbscan_group *g, enum bbscan_fate fate, const struct bbbox_reach *reach,
	const struct bblog_entry *e, const struct bbbox *x)
{
	keep(s, g, fate == BBSCAN_REPLAYED ? e : NULL, x);
	g->num++;
	if (fate != BBSCAN_REPLAYED) {
		g->sound = false;
		s->skipped += fate == BBSCAN_SKIPPED;
		s->left_out += fate != BBSCAN_SKIPPED;
		return;
	}
	s->entries++;
	s->values += e->num_elems;
	s->value_bytes += e->data_len;
	s->file_bytes += e->num_elems * x->value.to_bytes;
	s->records = reach->records > s->records ? reach->records : s->records;
	widen(&g->begin, &g->end, reach);
	widen(&s->begin, &s->end, reach);
}

/* mark: where the entry is. */
static int add_entry(struct bbscan *s, const struct bblog_mark *mark, const struct bblog_entry *e, struct bbbox *x)
{
	struct bbscan_group *g = s->num > 0 ? &s->groups[s->num - 1] : NULL;
	struct bbbox_reach reach = { 0 };
	const char *why;
	enum bbscan_fate fate = bbscan_judge(s, x, e, &reach, &why);

	if ((!g || is_full(g) || (fate == BBSCAN_REPLAYED && is_far(g, &reach))) && add_group(s, mark) < 0)
		return -ENOMEM;
	take(s, &s->groups[s->num - 1], fate, &reach, e, x);
	return 0;
}

int bbscan_run(struct bbscan *s, struct bblog *reader, struct bbbox *x, struct cistern_error *err)
{
	struct cistern_error why = { 0 };
	struct bblog_mark mark;
	struct bblog_entry e;
	int r;

	bblog_follow(reader, s->log->meta);
	while (mark = bblog_tell(reader), (r = bblog_next(reader, &e, &why)) > 0) {
		if (add_entry(s, &mark, &e, x) < 0)
			return cistern_error_set(err, -ENOMEM, "out of memory");
		s->groups[s->num - 1].behind = bblog_tell(reader);
	}
	if (r == -EBADMSG) /* the chain of entries breaks */
		s->left_out += bblog_header(s->log->meta)->count - mark.seq;
	return r == 0 || r == -EBADMSG ? 0 : cistern_error_set(err, r, "%s", why.text);
}

/* ---- what cannot */

static void tell(const struct bbscan *s, struct bbreplay_finding f)
{
	f.log = s->number;
	s->ops->found(s->ops->arg, &f);
}

static void tell_entry(const struct bbscan *s, struct bbbox *x, const struct bblog_entry *e)
{
	bool known = !e->wrong && e->varid < x->nc->num_vars;
	struct bbbox_reach reach;
	const char *why = NULL;
	enum bbscan_fate fate = bbscan_judge(s, x, e, &reach, &why);

	if (fate == BBSCAN_WRONG || fate == BBSCAN_NO_DATA)
		tell(s, (struct bbreplay_finding){ .kind = fate == BBSCAN_WRONG ? BBREPLAY_WRONG : BBREPLAY_DATA,
				.seq = e->seq,
				.var = known ? e->varid : CLASSIC_NONE,
				.num = e->num_elems,
				.text = why });
}

int bbscan_tell(const struct bbscan *s, struct bblog *reader, struct bbbox *x, struct cistern_error *err)
{
	struct cistern_error why = { 0 };
	struct bblog_mark mark;
	struct bblog_entry e;
	int r;

	if (s->left_out == 0 || !s->ops->found)
		return 0;
	bblog_follow(reader, s->log->meta);
	while (mark = bblog_tell(reader), (r = bblog_next(reader, &e, &why)) > 0)
		tell_entry(s, x, &e);
	if (r == -EBADMSG)
		tell(s, (struct bbreplay_finding){ .kind = BBREPLAY_LOST,
				.seq = mark.seq,
				.var = CLASSIC_NONE,
				.num = bblog_header(s->log->meta)->count - mark.seq,
				.text = why.text });
	else if (r < 0)
		return cistern_error_set(err, r, "%s", why.text);
	return 0;
}
