/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A part is as many pieces, in the order of their places, as fit a slot of the watcher's. All slots are kept busy: whenever one
 * was emptied, the next part is asked for, so the other nodes' agents work while we copy, check and write. Pieces that lie side
 * by side in the other store become one range.
 *
 * A part that cannot be had may have bytes of several stores. Whose fault it is, is found by asking for it again, store by store and
 * segment by segment. A node that has not answered then is not waited for once more: it is the culprit of later parts as well.
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
	struct part unfetched; /* the part that it is in, when it was asked for; num 0: it was not */
	bool is_silent;        /* over all windows: a node has not answered in time */
	uint32_t silent;
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
	f->unfetched = (struct part){ 0 };
	return begin_more(f);
}

static const struct piece *piece_of_silent(const struct fetches *f, const struct part *part)
{
	for (uint32_t i = part->first; f->is_silent && i < part->first + part->num; i++)
		if (piece_of(f, i)->node == f->silent)
			return piece_of(f, i);
	return NULL;
}

/* Waits for the oldest part. */
static int end_part(struct fetches *f, bool wanted)
{
	const struct part *part = &f->parts[f->oldest];
	const uint8_t *bytes;
	int r = f->watcher->fetched(f->oldest, &bytes, f->watcher->arg);

	f->oldest = (f->oldest + 1) % WIRE_FETCH_SLOTS;
	f->under_way--;
	if (r < 0 && f->error == 0)
		f->unfetched = *part;
	if (r < 0)
		return fail(f, piece_of(f, part->first), r);
	if (piece_of_silent(f, part))
		f->is_silent = false;
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

/* ---- whose fault it is */

/* Those from i to before *ret_next lie in one segment. */
static int fetch_again(struct fetches *f, uint32_t i, uint32_t end, uint32_t *ret_next)
{
	const struct piece *first = piece_of(f, i);
	const uint8_t *bytes;
	size_t num = 0;

	for (; i < end && piece_of(f, i)->node == first->node && piece_of(f, i)->segment == first->segment; i++)
		(void)add_range(f, &num, piece_of(f, i)); /* they were so many before, too */
	*ret_next = i;
	int r = f->watcher->fetch(0, f->ranges, num, f->watcher->arg);
	return r < 0 ? r : f->watcher->fetched(0, &bytes, f->watcher->arg);
}

/* Nothing is under way. The part's first piece stays the culprit when all can be had now. */
static void find_culprit(struct fetches *f)
{
	const struct part *part = &f->unfetched;
	const struct piece *known = f->error == -ETIMEDOUT ? piece_of_silent(f, part) : NULL;
	uint32_t end = part->first + part->num;
	int r = 0;

	if (known)
		f->failed = known;
	for (uint32_t i = part->first, next; !known && r == 0 && i < end; i = next) {
		r = fetch_again(f, i, end, &next);
		if (r < 0) {
			f->error = r;
			f->failed = piece_of(f, i);
		}
	}
	if (r == -ETIMEDOUT) {
		f->is_silent = true;
		f->silent = f->failed->node;
	}
}

static bool is_of_one(const struct fetches *f, const struct part *part)
{
	const struct piece *first = piece_of(f, part->first), *last = piece_of(f, part->first + part->num - 1);

	return first->node == last->node && first->segment == last->segment;
}

int fetches_end(struct fetches *f, bool wanted, const struct piece **ret_failed)
{
	int r = f->error;

	while (r == 0 && wanted && f->under_way)
		r = fetches_take(f);
	while (f->under_way)
		(void)end_part(f, false); /* the first error is kept */
	if (f->unfetched.num && !is_of_one(f, &f->unfetched))
		find_culprit(f);
	*ret_failed = f->failed;
	return f->error;
}
