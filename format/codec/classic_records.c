/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How many records a file has. Their number stands in the header, and is written late or never; the size says how many there is
 * room for; the bytes, and a log where there is one, say which of these anything was written to.
 */
#include "format/codec/classic.h"

#include <string.h>

#define PADDING_MAX 3 /* bytes */

bool classic_is_padding(const struct classic *c, uint64_t file_bytes)
{
	uint64_t counted;

	return !c->streaming && c->record_bytes % 4 != 0 &&
	       !__builtin_mul_overflow(c->num_records, c->record_bytes, &counted) && file_bytes > c->records_begin &&
	       file_bytes - c->records_begin > counted && file_bytes - c->records_begin - counted <= PADDING_MAX;
}

uint64_t classic_count_records(const struct classic *c, uint64_t file_bytes)
{
	uint64_t padding = 0, bytes = c->record_bytes, last = 0, there;

	if (c->record_bytes == 0 || file_bytes <= c->records_begin)
		return 0;
	for (uint32_t i = 0; i < c->num_vars; i++) {
		const struct classic_var *v = &c->vars[i];

		if (v->is_record && v->begin >= last) {
			last = v->begin;
			padding = classic_padded_bytes(c, v) - v->bytes;
		}
	}
	there = (file_bytes - c->records_begin + padding) / bytes;
	return there > c->num_records && classic_is_padding(c, file_bytes) ? c->num_records : there;
}

uint64_t classic_count_begun(const struct classic *c, uint64_t file_bytes)
{
	if (c->record_bytes == 0 || file_bytes <= c->records_begin)
		return 0;
	if (c->num_records > 0 && classic_is_padding(c, file_bytes))
		return c->num_records;
	return (file_bytes - c->records_begin - 1) / c->record_bytes + 1;
}

/* The end of the records that the header counts; at most the file's. */
static uint64_t counted_end(const struct classic *c, uint64_t file_bytes)
{
	uint64_t end = c->records_begin + c->num_records * c->record_bytes; /* fits: classic_finish() */

	return end < file_bytes ? end : file_bytes;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Up to the first record behind those that the header counts of which a log has nothing: there a gap shows reserved room. */
static uint64_t logged_records(const struct classic *c, const struct source *s)
{
	uint64_t num = c->num_records, at = counted_end(c, s->size);
	struct source_range range;

	while (s->next_range && at < s->size && s->next_range(at, &range, s->arg) && range.end > at) {
		if (range.off >= c->records_begin + (num + 1) * c->record_bytes)
			break;
		at = least(range.end, s->size);
		if (range.written)
			num = most(num, (at - 1 - c->records_begin) / c->record_bytes + 1);
	}
	return num;
}

int classic_find_records(const struct classic *c, const struct source *s, struct classic_records *ret)
{
	int r;

	*ret = (struct classic_records){ .room = classic_count_records(c, s->size), .data_end = s->size };
	ret->begun = classic_count_begun(c, s->size);
	ret->whole = ret->room;
	if (c->streaming || c->num_record_vars == 0 || ret->begun <= c->num_records)
		return 0;
	r = source_data_end(s, counted_end(c, s->size), &ret->data_end);
	ret->begun = most(classic_count_begun(c, ret->data_end), logged_records(c, s));
	ret->whole = most(least(ret->room, ret->begun), least(ret->room, c->num_records));
	return r;
}
