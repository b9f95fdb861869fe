/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The gaps between header, variables and end of the file are looked through. Those within a record come again with each
 * record, as a rule with the same bytes: they become one entry.
 */
#include "mpi-agent/convert/residue.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/blob.h"

#define READ_BYTES 65536u
#define PAD_MAX    64u /* longer gaps of records are taken in pieces */

struct range {
	uint64_t from, to;
};

struct search {
	classic_read_fn read_bytes;
	void *arg;
	uint64_t file_bytes;
	struct buf *out;
	struct cistern_error *err;
	uint8_t buf[READ_BYTES];
};

static int add(struct search *s, const struct blob_residue *r)
{
	blob_add_residue(s->out, r);
	if (!buf_ok(s->out))
		return -ENOMEM;
	if (s->out->len > BLOB_RESIDUE_MAX)
		return cistern_error_set(
			s->err, -EFBIG, "it has more than %u bytes that belong to no variable", BLOB_RESIDUE_MAX);
	return 0;
}

/* len bytes at off; those behind the file's end are zero. */
static int read_zero_padded(struct search *s, uint64_t off, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = s->read_bytes(s->buf + done, len - done, off + done, s->arg);

		if (n < 0)
			return cistern_error_set(s->err, (int)n, "reading at %" PRIu64 ": %s", off, strerror((int)-n));
		if (n == 0)
			break;
		done += (size_t)n;
	}
	memset(s->buf + done, 0, len - done);
	return 0;
}

/* What is not zero in s->buf, without the zeros around it. */
static int add_part(struct search *s, uint64_t off, size_t len)
{
	size_t first = 0;

	while (first < len && s->buf[first] == 0)
		first++;
	while (len > first && s->buf[len - 1] == 0)
		len--;
	return first == len ? 0 : add(s, &(struct blob_residue){ off + first, 0, 1, len - first, s->buf + first });
}

static int search_once(struct search *s, uint64_t from, uint64_t to)
{
	int r = 0;

	to = to < s->file_bytes ? to : s->file_bytes;
	while (r == 0 && from < to) {
		size_t len = to - from < READ_BYTES ? (size_t)(to - from) : READ_BYTES;

		r = read_zero_padded(s, from, len);
		if (r == 0)
			r = add_part(s, from, len);
		from += len;
	}
	return r;
}

/* A short gap of each record: equal bytes of records that follow one another are one entry. */
static int search_records(struct search *s, uint64_t from, size_t len, uint64_t stride, uint64_t count)
{
	struct blob_residue now = { .count = 0 };
	uint8_t bytes[PAD_MAX];
	static const uint8_t zeros[PAD_MAX];
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < count && from + i * stride + len <= s->file_bytes; i++) {
		r = read_zero_padded(s, from + i * stride, len);
		if (r == 0 && now.count > 0 && memcmp(s->buf, bytes, len) == 0) {
			now.count++;
			continue;
		}
		if (r == 0 && now.count > 0)
			r = add(s, &now);
		now.count = 0;
		if (r == 0 && memcmp(s->buf, zeros, len) != 0) {
			memcpy(bytes, s->buf, len);
			now = (struct blob_residue){ from + i * stride, stride, 1, len, bytes };
		}
	}
	return r == 0 && now.count > 0 ? add(s, &now) : r;
}

static int by_from(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return (x->from > y->from) - (x->from < y->from);
}

/* The ranges of variables of one kind, sorted. */
static size_t list_vars(const struct classic *c, bool records, struct range *out)
{
	size_t num = 0;

	for (uint32_t i = 0; i < c->num_vars; i++)
		if (c->vars[i].is_record == records && c->vars[i].bytes > 0)
			out[num++] = (struct range){ c->vars[i].begin, c->vars[i].begin + c->vars[i].bytes };
	if (num > 1)
		qsort(out, num, sizeof(*out), by_from);
	return num;
}

static int search_fixed(struct search *s, const struct classic *c, struct range *ranges)
{
	size_t num = list_vars(c, false, ranges);
	uint64_t at = c->header_bytes, end = c->num_record_vars > 0 ? c->records_begin : s->file_bytes;
	int r = 0;

	for (size_t i = 0; r == 0 && i < num && ranges[i].from <= end; i++) {
		r = search_once(s, at, ranges[i].from);
		at = ranges[i].to;
	}
	return r == 0 && at < end ? search_once(s, at, end) : r;
}

static int search_gap(struct search *s, const struct classic *c, uint64_t from, uint64_t to)
{
	int r = 0;

	for (; r == 0 && from < to; from += PAD_MAX)
		r = search_records(
			s, from, to - from < PAD_MAX ? (size_t)(to - from) : PAD_MAX, c->record_bytes, c->num_records);
	return r;
}

static int search_all_records(struct search *s, const struct classic *c, struct range *ranges)
{
	size_t num = list_vars(c, true, ranges);
	uint64_t at = c->records_begin, end = at + c->record_bytes * c->num_records;
	int r = 0;

	if (c->num_record_vars == 0)
		return 0;
	for (size_t i = 0; r == 0 && c->num_records > 0 && i < num; i++) {
		r = search_gap(s, c, at, ranges[i].from);
		at = ranges[i].to;
	}
	if (r == 0 && c->num_records > 0)
		r = search_gap(s, c, at, c->records_begin + c->record_bytes);
	/* The file may end in the last gap. */
	if (r == 0 && c->num_records > 0 && s->file_bytes < end)
		r = search_once(s, at + c->record_bytes * (c->num_records - 1), s->file_bytes);
	return r == 0 ? search_once(s, end, s->file_bytes) : r;
}

int residue_find(const struct classic *c, uint64_t file_bytes, classic_read_fn read_bytes, void *arg, struct buf *out,
	struct cistern_error *err)
{
	struct search *s = malloc(sizeof(*s));
	struct range *ranges = malloc((c->num_vars + 1) * sizeof(*ranges));
	int r = s && ranges ? 0 : -ENOMEM;

	if (r == 0) {
		s->read_bytes = read_bytes;
		s->arg = arg;
		s->file_bytes = file_bytes;
		s->out = out;
		s->err = err;
		r = search_fixed(s, c, ranges);
	}
	if (r == 0)
		r = search_all_records(s, c, ranges);
	free(s);
	free(ranges);
	return r;
}
