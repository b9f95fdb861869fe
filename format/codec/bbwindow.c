/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Two bits stand for each byte: this rank wrote it, an earlier one did. The first go over into the second when the next
 * rank begins, unit by unit and only where something was written, so that thousands of ranks with little each are cheap.
 *
 * At the end covered bytes are written in runs. A run goes on over a gap that is shorter than GAP_MAX, with the bytes that the file has
 * there: one large write is cheaper than many small ones, and nobody else writes to the file meanwhile. Longer gaps,
 * and what lies behind the last covered byte, are never touched: holes stay holes.
 */
#include "format/codec/bbwindow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BITS 64u
#define GAP_MAX   (64u << 10)

struct bbwindow {
	uint64_t off;
	size_t len, num_units;
	uint8_t *bytes, *old;     /* owned: len each */
	uint64_t *mine, *earlier; /* owned: a bit for each byte */
	bool *touched;            /* owned: by this rank; one for each unit */
	bool used;                /* not as it was made */
	bool shared;              /* there may be bits in earlier */
};

void bbwindow_destroy(struct bbwindow *w)
{
	if (!w)
		return;
	free(w->bytes);
	free(w->old);
	free(w->mine);
	free(w->earlier);
	free(w->touched);
	free(w);
}

int bbwindow_create(size_t len, struct bbwindow **ret)
{
	struct bbwindow *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->len = len;
	w->num_units = len / BBWINDOW_UNIT;
	w->bytes = malloc(len);
	w->old = malloc(len);
	w->mine = calloc(len / WORD_BITS, sizeof(*w->mine));
	w->earlier = calloc(len / WORD_BITS, sizeof(*w->earlier));
	w->touched = calloc(w->num_units, sizeof(*w->touched));
	if (!w->bytes || !w->old || !w->mine || !w->earlier || !w->touched) {
		bbwindow_destroy(w);
		return -ENOMEM;
	}
	*ret = w;
	return 0;
}

size_t bbwindow_len(const struct bbwindow *w)
{
	return w->len;
}

void bbwindow_begin(struct bbwindow *w, uint64_t off)
{
	w->off = off;
	if (!w->used) {
		w->used = true;
		return;
	}
	memset(w->mine, 0, w->len / 8);
	if (w->shared)
		memset(w->earlier, 0, w->len / 8);
	w->shared = false;
	memset(w->touched, 0, w->num_units * sizeof(*w->touched));
}

void bbwindow_next_rank(struct bbwindow *w)
{
	const size_t words = BBWINDOW_UNIT / WORD_BITS;

	for (size_t u = 0; u < w->num_units; u++) {
		if (!w->touched[u])
			continue;
		for (size_t i = u * words; i < (u + 1) * words; i++) {
			w->earlier[i] |= w->mine[i];
			w->mine[i] = 0;
		}
		w->touched[u] = false;
		w->shared = true;
	}
}

/* The bits of word i that stand for bytes from begin up to end. */
static uint64_t mask_of(size_t i, size_t begin, size_t end)
{
	size_t from = i * WORD_BITS, to = from + WORD_BITS;
	uint64_t mask = UINT64_MAX;

	if (begin > from)
		mask &= UINT64_MAX << (begin - from);
	if (end < to)
		mask &= UINT64_MAX >> (to - end);
	return mask;
}

static uint64_t count_differing(const struct bbwindow *w, uint64_t bits, size_t word, size_t at, const uint8_t *bytes)
{
	uint64_t num = 0;

	for (; bits; bits &= bits - 1) {
		size_t i = word * WORD_BITS + (size_t)__builtin_ctzll(bits);

		num += w->bytes[i] != bytes[i - at];
	}
	return num;
}

static void touch(struct bbwindow *w, size_t at, size_t end)
{
	for (size_t u = at / BBWINDOW_UNIT; u * BBWINDOW_UNIT < end; u++)
		w->touched[u] = true;
}

static bool is_anybodys(const struct bbwindow *w, size_t at, size_t end)
{
	size_t first = at / WORD_BITS, last = (end - 1) / WORD_BITS;
	uint64_t any = w->earlier[first] & mask_of(first, at, end);

	if (!w->shared)
		return false;
	for (size_t i = first + 1; i < last; i++)
		any |= w->earlier[i];
	return (any | (w->earlier[last] & mask_of(last, at, end))) != 0;
}

static void mark(struct bbwindow *w, size_t i, uint64_t mask, uint64_t *own_bytes)
{
	if (w->mine[i] & mask)
		*own_bytes += (uint64_t)__builtin_popcountll(w->mine[i] & mask);
	w->mine[i] |= mask;
}

uint8_t *bbwindow_take(struct bbwindow *w, uint64_t off, size_t len, uint64_t *own_bytes)
{
	size_t at = (size_t)(off - w->off), end = at + len;

	size_t first = at / WORD_BITS, last = (end - 1) / WORD_BITS;

	if (is_anybodys(w, at, end))
		return NULL;
	mark(w, first, mask_of(first, at, end), own_bytes);
	for (size_t i = first + 1; i < last; i++)
		mark(w, i, UINT64_MAX, own_bytes);
	if (last > first)
		mark(w, last, mask_of(last, at, end), own_bytes);
	touch(w, at, end);
	return w->bytes + at;
}

uint64_t bbwindow_put(struct bbwindow *w, uint64_t off, const void *bytes, size_t len, uint64_t *own_bytes)
{
	size_t at = (size_t)(off - w->off), end = at + len;
	uint64_t differing = 0;

	if (len == 0)
		return 0;
	for (size_t i = at / WORD_BITS; i * WORD_BITS < end; i++) {
		uint64_t mask = mask_of(i, at, end), theirs = w->earlier[i] & ~w->mine[i] & mask;

		if (theirs)
			differing += count_differing(w, theirs, i, at, bytes);
		mark(w, i, mask, own_bytes);
	}
	touch(w, at, end);
	memcpy(w->bytes + at, bytes, len);
	return differing;
}

/* ---- the end of a window */

/* Bits of word i whose bytes are covered, or are not. */
static uint64_t bits_of(const struct bbwindow *w, size_t i, bool covered)
{
	uint64_t bits = w->mine[i] | w->earlier[i];

	return covered ? bits : ~bits;
}

/* The first byte from at on that is covered, or is not; len: there is none. */
static size_t find(const struct bbwindow *w, size_t at, bool covered)
{
	size_t i = at / WORD_BITS, num = w->len / WORD_BITS;
	uint64_t bits;

	if (at >= w->len)
		return w->len;
	bits = bits_of(w, i, covered) & UINT64_MAX << at % WORD_BITS;
	while (bits == 0 && ++i < num)
		bits = bits_of(w, i, covered);
	return i < num ? i * WORD_BITS + (size_t)__builtin_ctzll(bits) : w->len;
}

/* What the file has in the run; nothing behind its end. */
static int read_old(struct bbwindow *w, size_t begin, size_t end, const struct bbreplay_ops *ops)
{
	uint64_t off = w->off + begin, len = end - begin, there;
	int r = 0;

	there = off < ops->old_size ? ops->old_size - off : 0;
	there = there < len ? there : len;
	if (there > 0)
		r = ops->read(ops->arg, off, w->old + begin, (size_t)there);
	return r;
}

/* In each of the eight bytes of v that is not 0, the highest bit. */
static uint64_t not_zero(uint64_t v)
{
	const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);

	return (((v & low) + low) | v) & ~low;
}

/* How many bits are set of those that not_zero() gives. */
static uint64_t count(uint64_t bits)
{
	return (bits >> 7) * UINT64_C(0x0101010101010101) >> 56;
}

/* Compares [begin, end), all covered, with what the file has there. What lies behind its end is new. */
static void compare(const struct bbwindow *w, size_t begin, size_t end, uint64_t old_size, struct bbreplay_stats *stats)
{
	size_t there = w->off + begin >= old_size ? 0 : (size_t)(old_size - w->off - begin);

	stats->covered_bytes += end - begin;
	if (there < end - begin) {
		stats->changed_bytes += end - begin - there;
		end = begin + there;
	}
	for (size_t at = begin; at < end; at += 8) {
		size_t len = end - at < 8 ? end - at : 8;
		uint64_t old = 0, new = 0, changed;

		memcpy(&old, w->old + at, len);
		memcpy(&new, w->bytes + at, len);
		changed = not_zero(old ^ new);
		stats->changed_bytes += count(changed);
		stats->telling_bytes += count(not_zero(new));
		stats->there_bytes += count(not_zero(new) & ~changed);
	}
}

/* The gap [begin, end) as the file has it, with zeros behind its end. */
static void fill_gap(struct bbwindow *w, size_t begin, size_t end, uint64_t old_size)
{
	size_t there = w->off + begin >= old_size ? 0 : (size_t)(old_size - w->off - begin);

	there = there < end - begin ? there : end - begin;
	memcpy(w->bytes + begin, w->old + begin, there);
	memset(w->bytes + begin + there, 0, end - begin - there);
}

/* The run [begin, end), which is covered up to stop: gaps get what the file has. */
static int write_run(struct bbwindow *w, size_t begin, size_t stop, size_t end, const struct bbreplay_ops *ops,
	struct bbreplay_stats *stats)
{
	uint64_t before = stats->changed_bytes;
	int r = read_old(w, begin, end, ops);

	if (r < 0)
		return r;
	for (size_t at = begin; at < end;) {
		compare(w, at, stop, ops->old_size, stats);
		at = stop < end ? find(w, stop, true) : end;
		fill_gap(w, stop, at, ops->old_size);
		stop = at < end ? find(w, at, false) : end;
	}
	if (ops->dry || (stats->changed_bytes == before && w->off + end <= ops->old_size))
		return 0;
	stats->writes++;
	return ops->write(ops->arg, w->off + begin, w->bytes + begin, end - begin);
}

int bbwindow_end(struct bbwindow *w, const struct bbreplay_ops *ops, struct bbreplay_stats *stats)
{
	size_t begin = find(w, 0, true);

	while (begin < w->len) {
		size_t stop = find(w, begin, false), end = stop, next = find(w, end, true);
		int r;

		while (next < w->len && next - end < GAP_MAX) {
			end = find(w, next, false);
			next = find(w, end, true);
		}
		r = write_run(w, begin, stop, end, ops, stats);
		if (r < 0)
			return r;
		begin = next;
	}
	return 0;
}
