/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Entries with values out of range are listed up to RANGES_LISTED: always the first ones by log and number, so that any worker
 * that meets one of them has it in its own list, too, however many others it met.
 */
#include "format/codec/bbsums.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

#define RANGES_LISTED 10000u

int bbsums_init(struct bbsums *s, uint32_t num_vars)
{
	*s = (struct bbsums){ .num_vars = num_vars };
	s->conflicts = calloc((size_t)num_vars + 1, sizeof(*s->conflicts));
	return s->conflicts ? 0 : -ENOMEM;
}

void bbsums_free(struct bbsums *s)
{
	free(s->ranges);
	free(s->conflicts);
}

/* ---- values out of range */

static int order(size_t log, uint64_t seq, size_t other_log, uint64_t other_seq)
{
	if (log != other_log)
		return log < other_log ? -1 : 1;
	return seq < other_seq ? -1 : seq > other_seq;
}

/* The place of the first one that is not before it. */
static size_t find_range(const struct bbsums *s, size_t log, uint64_t seq)
{
	size_t lo = 0, hi = s->num_ranges;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (order(s->ranges[mid].log, s->ranges[mid].seq, log, seq) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* An entry is met once in each window that it reaches. */
static int list_range(struct bbsums *s, const struct bbsums_range *c)
{
	size_t at = find_range(s, c->log, c->seq);

	if (at < s->num_ranges && order(s->ranges[at].log, s->ranges[at].seq, c->log, c->seq) == 0) {
		s->ranges[at].num += c->num;
		return 0;
	}
	if (at == RANGES_LISTED)
		return 0;
	if (s->num_ranges == RANGES_LISTED)
		s->num_ranges--;
	if (array_room(&s->ranges, &s->cap_ranges, s->num_ranges, sizeof(*s->ranges)) < 0)
		return -ENOMEM;
	memmove(&s->ranges[at + 1], &s->ranges[at], (s->num_ranges - at) * sizeof(*s->ranges));
	s->num_ranges++;
	s->ranges[at] = *c;
	return 0;
}

int bbsums_range(struct bbsums *s, size_t log, const struct bblog_entry *e, uint64_t num)
{
	s->stats.range_values += num;
	return list_range(s, &(struct bbsums_range){ .log = log, .seq = e->seq, .num = num, .var = e->varid });
}

/* ---- bytes that ranks wrote differently */

static void add_conflict(struct bbsums *s, uint32_t var, const struct bbsums_conflict *from)
{
	struct bbsums_conflict *c = &s->conflicts[var];

	if (from->bytes == 0)
		return;
	if (c->bytes == 0 || order(from->log, from->seq, c->log, c->seq) < 0) {
		c->log = from->log;
		c->seq = from->seq;
	}
	c->bytes += from->bytes;
}

void bbsums_conflict(struct bbsums *s, size_t log, const struct bblog_entry *e, uint64_t bytes)
{
	s->stats.conflict_bytes += bytes;
	add_conflict(s, e->varid, &(struct bbsums_conflict){ .bytes = bytes, .log = log, .seq = e->seq });
}

/* ---- all together */

void bbsums_add_stats(struct bbreplay_stats *to, const struct bbreplay_stats *from)
{
	to->range_values += from->range_values;
	to->own_bytes += from->own_bytes;
	to->conflict_bytes += from->conflict_bytes;
	to->covered_bytes += from->covered_bytes;
	to->changed_bytes += from->changed_bytes;
	to->telling_bytes += from->telling_bytes;
	to->there_bytes += from->there_bytes;
	to->writes += from->writes;
}

int bbsums_add(struct bbsums *to, const struct bbsums *from)
{
	bbsums_add_stats(&to->stats, &from->stats);
	for (uint32_t v = 0; v < from->num_vars; v++)
		add_conflict(to, v, &from->conflicts[v]);
	for (size_t i = 0; i < from->num_ranges; i++)
		if (list_range(to, &from->ranges[i]) < 0)
			return -ENOMEM;
	return 0;
}

void bbsums_tell(const struct bbsums *s, const struct bbreplay_ops *ops)
{
	for (size_t i = 0; ops->found && i < s->num_ranges; i++) {
		const struct bbsums_range *c = &s->ranges[i];

		ops->found(ops->arg,
			&(struct bbreplay_finding){
				.kind = BBREPLAY_RANGE, .log = c->log, .seq = c->seq, .var = c->var, .num = c->num });
	}
	for (uint32_t v = 0; ops->found && v < s->num_vars; v++) {
		const struct bbsums_conflict *c = &s->conflicts[v];

		if (c->bytes)
			ops->found(ops->arg, &(struct bbreplay_finding){ .kind = BBREPLAY_CONFLICT,
						     .log = c->log,
						     .seq = c->seq,
						     .var = v,
						     .num = c->bytes });
	}
}
