/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A bit for each element of a part of an array, for one part after the other: memory does not depend on the array. */
#include "mpi-agent/convert/cover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PART_ELEMENTS ((uint64_t)1 << 26)

struct part {
	const struct runs_index *x;
	uint64_t from, to;
	uint32_t map;
	uint64_t *bits; /* owned */
	struct cover *c;
};

/* Sets num bits of a word's; returns those that were set before. */
static uint64_t set_bits(uint64_t *word, unsigned int first, unsigned int num)
{
	uint64_t mask = (num == 64 ? ~(uint64_t)0 : ((uint64_t)1 << num) - 1) << first, twice = *word & mask;

	*word |= mask;
	return twice;
}

static void cover_range(struct part *p, uint64_t from, uint64_t to)
{
	while (from < to) {
		uint64_t place = from - p->from, left = 64 - place % 64, num = to - from < left ? to - from : left;
		uint64_t twice = set_bits(&p->bits[place / 64], (unsigned int)(place % 64), (unsigned int)num);

		if (twice && p->c->twice_map == UINT32_MAX) {
			p->c->twice_map = p->map;
			p->c->twice_element = p->from + place / 64 * 64 + (uint64_t)__builtin_ctzll(twice);
		}
		p->c->twice += (uint64_t)__builtin_popcountll(twice);
		from += num;
	}
}

static int on_span(const struct runs_span *span, void *arg)
{
	struct part *p = arg;

	for (uint64_t i = span->first; i < span->last; i++) {
		uint64_t off, len;

		runs_get(&p->x->runs, i, &off, &len);
		cover_range(p, off > p->from ? off : p->from, off + len < p->to ? off + len : p->to);
	}
	return 0;
}

static void count_part(const struct blob_set *s, struct part *p)
{
	uint64_t num = p->to - p->from;

	memset(p->bits, 0, (size_t)((num + 63) / 64 * 8));
	for (uint32_t i = 0; i < s->num; i++)
		for (uint32_t b = 0; b < s->files[i].head.nblobs; b++) {
			p->x = subfile_runs(&s->files[i], p->map, b);
			(void)runs_spans(p->x, p->from, p->to, UINT64_MAX, on_span, p);
		}
	p->c->never += num;
	for (uint64_t i = 0; i < (num + 63) / 64; i++)
		p->c->never -= (uint64_t)__builtin_popcountll(p->bits[i]);
}

int cover_count(const struct blob_set *s, uint32_t share, uint32_t num, struct cover *ret)
{
	struct cover c = { .twice_map = UINT32_MAX };
	struct part p = { .bits = malloc(PART_ELEMENTS / 8), .c = &c };
	uint64_t turn = 0;

	if (!p.bits)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->files[0].head.num_maps; i++) {
		uint64_t elements = s->files[0].head.maps[i].elements;

		p.map = i;
		for (p.from = 0; p.from < elements; p.from = p.to) {
			p.to = elements - p.from < PART_ELEMENTS ? elements : p.from + PART_ELEMENTS;
			if (turn++ % num == share)
				count_part(s, &p);
		}
	}
	free(p.bits);
	*ret = c;
	return 0;
}
