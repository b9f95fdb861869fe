/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A part is as many pieces, in the order of their places, as fit a slot of the watcher's. All slots are kept busy: whenever one
 * was emptied, the next part is asked for, so the other nodes' agents work while we copy, check and write. Pieces that lie side
 * by side in the other store become one range.
 */
#include "mpi-agent/replay/fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/wire/wire.h"

#define RANGES_MAX 4096u /* of a part */

struct part {
	uint32_t first, num; /* in the order */
};

struct fetches {
	const struct drain_watcher *watcher;
	struct drain_fetch ranges[RANGES_MAX];
	/* of the window */
	const struct piece *pieces;
	uint8_t *data;
	const uint32_t *order;
	uint32_t num, next;                  /* next: the first that was not asked for */
	struct part parts[WIRE_FETCH_SLOTS]; /* by slot */
	unsigned int oldest, under_way;      /* slots oldest, oldest + 1, ... */
	int error;
	const struct piece *failed;
};

struct fetches *fetches_create(const struct drain_watcher *watcher)
{
	struct fetches *f = calloc(1, sizeof(*f));

	if (f)
		f->watcher = watcher;
	return f;
}

void fetches_destroy(struct fetches *f)
{
	free(f);
}

static const struct piece *piece_of(const struct fetches *f, uint32_t i)
{
	return &f->pieces[f->order[i]];
}

static int fail(struct fetches *f, const struct piece *p, int r)
{
	if (f->error == 0) {
		f->error = r;
		f->failed = p;
	}
	return r;
}

/* The piece joins the ranges; false: there are as many as may be. */
static bool add_range(struct fetches *f, size_t *num, const struct piece *p)
{
	struct drain_fetch *last = *num > 0 ? &f->ranges[*num - 1] : NULL;

	if (last && last->node == p->node && last->segment == p->segment && last->off + last->len == p->segment_off) {
		last->len += p->len;
		return true;
	}
	if (*num == RANGES_MAX)
		return false;
	f->ranges[(*num)++] =
		(struct drain_fetch){ .off = p->segment_off, .node = p->node, .segment = p->segment, .len = p->len };
	return true;
}

static int begin_part(struct fetches *f)
{
	unsigned int slot = (f->oldest + f->under_way) % WIRE_FETCH_SLOTS;
	struct part *part = &f->parts[slot];
	size_t bytes = 0, num = 0;

	*part = (struct part){ .first = f->next };
	while (f->next < f->num && bytes + piece_of(f, f->next)->len <= WIRE_FETCH_BYTES &&
		add_range(f, &num, piece_of(f, f->next)))
		bytes += piece_of(f, f->next++)->len;
	part->num = f->next - part->first;
	int r = part->num ? f->watcher->fetch(slot, f->ranges, num, f->watcher->arg) : -EINVAL;
	if (r < 0)
		return fail(f, piece_of(f, part->first), r);
	f->under_way++;
	return 0;
}

static int begin_more(struct fetches *f)
{
	int r = 0;

	while (r == 0 && f->next < f->num && f->under_way < WIRE_FETCH_SLOTS)
		r = begin_part(f);
	return r;
}

int fetches_begin(struct fetches *f, const struct piece *pieces, uint8_t *data, const uint32_t *order, uint32_t num)
{
	f->pieces = pieces;
	f->data = data;
	f->order = order;
	f->num = num;
	f->next = 0;
	f->error = 0;
	f->failed = NULL;
	return begin_more(f);
}

/* Waits for the oldest part. */
static int end_part(struct fetches *f, bool wanted)
{
	const struct part *part = &f->parts[f->oldest];
	const uint8_t *bytes;
	int r = f->watcher->fetched(f->oldest, &bytes, f->watcher->arg);

	f->oldest = (f->oldest + 1) % WIRE_FETCH_SLOTS;
	f->under_way--;
	if (r < 0)
		return fail(f, piece_of(f, part->first), r);
	for (uint32_t i = part->first; wanted && i < part->first + part->num; i++) {
		const struct piece *p = piece_of(f, i);

		memcpy(f->data + p->at, bytes, p->len);
		bytes += p->len;
	}
	return 0;
}

int fetches_take(struct fetches *f)
{
	int r = f->under_way ? end_part(f, true) : 0;

	return r < 0 ? r : begin_more(f);
}

int fetches_end(struct fetches *f, bool wanted, const struct piece **ret_failed)
{
	int r = f->error;

	while (r == 0 && wanted && f->under_way)
		r = fetches_take(f);
	while (f->under_way)
		(void)end_part(f, false); /* the first error is kept */
	*ret_failed = f->failed;
	return f->error;
}
