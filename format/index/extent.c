/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One page of a file's extents: a sorted array. The invariant, before and after every function: extents are sorted,
 * do not overlap, are not empty and lie within one page of EXTENT_PAGE_SPAN bytes.
 *
 * Every change is one replacement: the extents that touch a range make room for what is left of the first, the new
 * extent, and what is left of the last. Memory is reserved before anything is told or changed.
 *
 * Neighbours are merged while both are shorter than MERGE_BELOW, so that a file written in small pieces from front to
 * back costs a few extents a page, while the payload that a checksum covers, and so what has to be read to check it,
 * stays small. A merged extent has the younger seq: a drain up to a version in between leaves it in the log, and
 * the next one takes it. In a shared file each byte needs its own seq, by which it is committed or not: there only
 * what one record wrote is merged. What different processes wrote is kept apart. Holes of different age are kept apart, since nothing is gained by merging them.
 *
 * Bytes of an encoded page (varints are LEB128, svarints zigzag): varint number; then for each extent
 *   varint gap      from the end of the one before, or from the start of the page
 *   varint len
 *   u8     kind | 0x80 when whole | 0x40 when the writer is another than that of the last LOG extent (0 for the first)
 *          | 0x20 when the time is not that of the one before (0 for the first)
 *   svarint seq     less the seq of the one before (0 for the first)
 *   with 0x40: varint writer
 *   with 0x20: svarint time less the time of the one before
 *   LOG only: svarint segment less the segment of the last LOG extent; svarint segment_off less its end; u32 crc when whole
 */
#include "format/index/extent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"

#define MERGE_BELOW       (64u << 10)
#define WHOLE_BIT         0x80
#define WRITER_BIT        0x40
#define TIME_BIT          0x20
#define MIN_ENCODED_BYTES 4 /* gap, len, kind, seq */

static uint64_t end_of(const struct extent *e)
{
	return e->off + e->len;
}

void extent_page_free(struct extent_page *p)
{
	if (!p)
		return;
	free(p->ext);
	*p = (struct extent_page){ 0 };
}

/* Where off would be if the extents were spread evenly. */
static uint32_t guess(const struct extent_page *p, uint64_t off)
{
	uint64_t first = p->ext[0].off, last = p->ext[p->num - 1].off;

	if (off <= first)
		return 0;
	return off >= last ? p->num - 1 : (uint32_t)((off - first) * (p->num - 1) / (last - first));
}

/* Mostly they are, so the search begins there and widens: a page that is not in the processor's cache costs few misses. */
uint32_t extent_page_find(const struct extent_page *p, uint64_t off)
{
	uint32_t low = 0, high = p->num - 1, step = 4, at; /* the answer is in [low, high] */

	if (p->num == 0 || end_of(&p->ext[high]) <= off)
		return p->num;
	at = guess(p, off);
	if (end_of(&p->ext[at]) <= off) {
		for (low = at + 1; step < high - low && end_of(&p->ext[low + step]) <= off; step *= 2)
			low += step + 1;
		if (step < high - low)
			high = low + step;
	} else {
		for (high = at; step <= high && end_of(&p->ext[high - step]) > off; step *= 2)
			high -= step;
		if (step <= high)
			low = high - step + 1;
	}
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (end_of(&p->ext[mid]) <= off)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int reserve(struct extent_page *p, uint32_t num)
{
	struct extent *ext;
	uint32_t cap = p->cap + p->cap / 4 + 2;

	if (num <= p->cap)
		return 0;
	if (cap < num)
		cap = num;
	ext = realloc(p->ext, (size_t)cap * sizeof *ext);
	if (!ext)
		return -ENOMEM;
	p->ext = ext;
	p->cap = cap;
	return 0;
}

struct extent extent_clip(const struct extent *e, uint64_t off, uint64_t end)
{
	uint64_t from = e->off > off ? e->off : off, to = end_of(e) < end ? end_of(e) : end;
	struct extent part = *e;

	if (to - from == e->len)
		return part;
	if (e->kind == EXTENT_LOG)
		part.segment_off += from - e->off;
	part.off = from;
	part.len = (uint32_t)(to - from);
	part.whole = false;
	part.crc = 0;
	return part;
}

static bool continues(const struct extent *a, const struct extent *b, bool apart)
{
	if (apart && a->seq != b->seq)
		return false;
	if (a->kind != b->kind || end_of(a) != b->off)
		return false;
	if (a->kind != EXTENT_LOG)
		return a->kind == EXTENT_BACKING || a->seq == b->seq;
	return a->writer == b->writer && a->whole && b->whole && a->len < MERGE_BELOW && b->len < MERGE_BELOW &&
	       a->segment == b->segment && a->segment_off + a->len == b->segment_off;
}

bool extent_join(struct extent *a, const struct extent *b, bool apart)
{
	if (!continues(a, b, apart))
		return false;
	if (a->kind == EXTENT_LOG)
		a->crc = crc32c_combine(a->crc, b->crc, b->len);
	a->len += b->len;
	if (b->seq > a->seq)
		a->seq = b->seq;
	return true;
}

void extent_page_remove(struct extent_page *p, uint32_t i)
{
	p->num--;
	memmove(p->ext + i, p->ext + i + 1, (p->num - i) * sizeof *p->ext);
}

/* Make one of the extents i and i + 1 if they continue each other. */
static void merge(struct extent_page *p, uint32_t i, bool apart)
{
	if (i + 1 < p->num && extent_join(&p->ext[i], &p->ext[i + 1], apart))
		extent_page_remove(p, i + 1);
}

int extent_page_insert(struct extent_page *p, const struct extent *e, uint32_t *ret_index)
{
	uint32_t i = extent_page_find(p, e->off);
	int r = reserve(p, p->num + 1);

	if (r < 0)
		return r;
	if (i < p->num)
		memmove(p->ext + i + 1, p->ext + i, (p->num - i) * sizeof *p->ext);
	p->ext[i] = *e;
	p->num++;
	*ret_index = i;
	return 0;
}

static void tell_freed(const struct extent *e, uint64_t off, uint64_t end,
	void (*freed)(uint32_t segment, uint64_t off, uint64_t len, void *arg), void *arg)
{
	uint64_t from = e->off > off ? e->off : off, to = end_of(e) < end ? end_of(e) : end;

	if (freed && e->kind == EXTENT_LOG)
		freed(e->segment, e->segment_off + (from - e->off), to - from, arg);
}

/* [off, end) becomes e, or nothing when e is NULL. */
static int replace(struct extent_page *p, uint64_t off, uint64_t end, const struct extent *e, bool apart,
	void (*freed)(uint32_t segment, uint64_t off, uint64_t len, void *arg), void *arg)
{
	uint32_t i = extent_page_find(p, off), j = i, num = 0, first = i;
	struct extent part[3];
	int r;

	while (j < p->num && p->ext[j].off < end)
		j++;
	if (j > i && p->ext[i].off < off)
		part[num++] = extent_clip(&p->ext[i], 0, off);
	if (e) {
		first = i + num;
		part[num++] = *e;
	}
	if (j > i && end_of(&p->ext[j - 1]) > end)
		part[num++] = extent_clip(&p->ext[j - 1], end, UINT64_MAX);
	r = reserve(p, p->num - (j - i) + num);
	if (r < 0)
		return r;
	for (uint32_t k = i; k < j; k++)
		tell_freed(&p->ext[k], off, end, freed, arg);
	if (j < p->num && j - i != num)
		memmove(p->ext + i + num, p->ext + j, (p->num - j) * sizeof *p->ext);
	if (num)
		memcpy(p->ext + i, part, num * sizeof *part);
	p->num += num;
	p->num -= j - i;
	if (e) {
		merge(p, first, apart);
		if (first > 0)
			merge(p, first - 1, apart);
	}
	return 0;
}

static bool within_page(uint64_t off, uint64_t len)
{
	return len > 0 && len <= EXTENT_PAGE_SPAN && off <= UINT64_MAX - len &&
	       off / EXTENT_PAGE_SPAN == (off + len - 1) / EXTENT_PAGE_SPAN;
}

int extent_page_put(struct extent_page *p, const struct extent *e,
	void (*freed)(uint32_t segment, uint64_t off, uint64_t len, void *arg), void *arg)
{
	if (!within_page(e->off, e->len))
		return -EINVAL;
	return replace(p, e->off, end_of(e), e, false, freed, arg);
}

int extent_page_put_apart(struct extent_page *p, const struct extent *e,
	void (*freed)(uint32_t segment, uint64_t off, uint64_t len, void *arg), void *arg)
{
	if (!within_page(e->off, e->len))
		return -EINVAL;
	return replace(p, e->off, end_of(e), e, true, freed, arg);
}

int extent_page_clear(struct extent_page *p, uint64_t off, uint64_t len,
	void (*freed)(uint32_t segment, uint64_t off, uint64_t len, void *arg), void *arg)
{
	if (len == 0)
		return 0;
	return replace(p, off, len > UINT64_MAX - off ? UINT64_MAX : off + len, NULL, false, freed, arg);
}

int extent_page_encode(const struct extent_page *p, uint64_t page_no, struct buf *out)
{
	uint64_t end = page_no * EXTENT_PAGE_SPAN, seq = 0, time = 0, segment_end = 0;
	uint32_t segment = 0;
	uint16_t writer = 0;

	buf_varint(out, p->num);
	for (uint32_t i = 0; i < p->num; i++) {
		const struct extent *e = &p->ext[i];
		bool other = e->kind == EXTENT_LOG && e->writer != writer;

		buf_varint(out, e->off - end);
		buf_varint(out, e->len);
		buf_u8(out, (uint8_t)(e->kind | (e->whole ? WHOLE_BIT : 0) | (other ? WRITER_BIT : 0) |
				      (e->time_usec != time ? TIME_BIT : 0)));
		buf_svarint(out, (int64_t)(e->seq - seq));
		if (other)
			buf_varint(out, e->writer);
		if (e->time_usec != time)
			buf_svarint(out, (int64_t)(e->time_usec - time));
		end = end_of(e);
		seq = e->seq;
		time = e->time_usec;
		if (e->kind != EXTENT_LOG)
			continue;
		buf_svarint(out, (int64_t)e->segment - (int64_t)segment);
		buf_svarint(out, (int64_t)(e->segment_off - segment_end));
		if (e->whole)
			buf_u32(out, e->crc);
		writer = e->writer;
		segment = e->segment;
		segment_end = e->segment_off + e->len;
	}
	return buf_ok(out) ? 0 : -ENOMEM;
}

/* What one extent's bytes are relative to. */
struct decoding {
	uint64_t end, seq, time, segment_end, limit;
	uint32_t segment;
	uint16_t writer;
};

static void decode_place(struct cursor *c, struct decoding *d, struct extent *e)
{
	int64_t segment = (int64_t)((uint64_t)d->segment + (uint64_t)cursor_svarint(c));

	e->segment_off = d->segment_end + (uint64_t)cursor_svarint(c);
	if (segment < 0 || segment > UINT32_MAX || e->segment_off > UINT64_MAX - e->len)
		cursor_fail(c);
	e->segment = (uint32_t)segment;
	if (e->whole)
		e->crc = cursor_u32(c);
	d->segment = e->segment;
	d->segment_end = e->segment_off + e->len;
}

static void decode_writer(struct cursor *c, struct decoding *d, const struct extent *e)
{
	uint64_t writer = cursor_varint(c);

	if (e->kind != EXTENT_LOG || writer == d->writer || writer > UINT16_MAX)
		cursor_fail(c);
	d->writer = (uint16_t)writer;
}

static void decode_time(struct cursor *c, struct decoding *d)
{
	int64_t later = cursor_svarint(c);

	if (later == 0)
		cursor_fail(c);
	d->time += (uint64_t)later;
}

static void decode_extent(struct cursor *c, struct decoding *d, struct extent *e)
{
	uint64_t gap = cursor_varint(c), len = cursor_varint(c);
	uint8_t kind = cursor_u8(c);

	*e = (struct extent){ .kind = kind & (uint8_t) ~(WHOLE_BIT | WRITER_BIT | TIME_BIT),
		.whole = kind & WHOLE_BIT };
	e->seq = d->seq + (uint64_t)cursor_svarint(c);
	if (kind & WRITER_BIT)
		decode_writer(c, d, e);
	if (kind & TIME_BIT)
		decode_time(c, d);
	e->time_usec = d->time;
	if (gap > d->limit - d->end || len == 0 || len > d->limit - d->end - gap || e->kind > EXTENT_BACKING ||
		(e->whole && e->kind != EXTENT_LOG)) {
		cursor_fail(c);
		return;
	}
	e->off = d->end + gap;
	e->len = (uint32_t)len;
	d->end = end_of(e);
	d->seq = e->seq;
	if (e->kind != EXTENT_LOG)
		return;
	e->writer = d->writer;
	decode_place(c, d, e);
}

int extent_page_decode(const void *buf, size_t len, uint64_t page_no, struct extent_page *ret)
{
	struct cursor c = cursor_make(buf, len);
	struct extent_page p = { 0 };
	struct decoding d = { 0 };
	uint64_t num = cursor_varint(&c);
	int r;

	if (!cursor_ok(&c) || page_no > UINT64_MAX / EXTENT_PAGE_SPAN - 1 ||
		num > cursor_left(&c) / MIN_ENCODED_BYTES || num > EXTENT_PAGE_SPAN)
		return -EBADMSG;
	d.end = page_no * EXTENT_PAGE_SPAN;
	d.limit = d.end + EXTENT_PAGE_SPAN;
	r = reserve(&p, (uint32_t)num);
	if (r < 0)
		return r;
	for (uint64_t i = 0; i < num && cursor_ok(&c); i++)
		decode_extent(&c, &d, &p.ext[p.num++]);
	if (!cursor_ok(&c) || cursor_left(&c) > 0) {
		extent_page_free(&p);
		return -EBADMSG;
	}
	*ret = p;
	return 0;
}
