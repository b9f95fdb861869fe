/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A table of inodes with open addressing, filled by reading the journal once.
 */
#include "tools/lib/history.h"

#include <errno.h>
#include <stdlib.h>

#include "format/journal/journal.h"

#define FIRST_SLOTS 1024u

struct history {
	struct history_file *slots; /* owned; a power of two of them */
	size_t num_slots, num_used;
	int (*each)(const struct record *rec, void *arg); /* NULL: nobody else wants to know; while it is being read */
	void *arg;
};

void history_destroy(struct history *h)
{
	if (!h)
		return;
	free(h->slots);
	free(h);
}

static struct history_file *slot_of(const struct history *h, uint64_t ino)
{
	size_t i = (size_t)(ino * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (h->num_slots - 1);

	while (h->slots[i].ino != 0 && h->slots[i].ino != ino)
		i = (i + 1) & (h->num_slots - 1);
	return &h->slots[i];
}

static int grow(struct history *h)
{
	struct history old = *h;

	h->num_slots = old.num_slots ? 2 * old.num_slots : FIRST_SLOTS;
	h->slots = calloc(h->num_slots, sizeof(*h->slots));
	if (!h->slots) {
		*h = old;
		return -ENOMEM;
	}
	for (size_t i = 0; i < old.num_slots; i++)
		if (old.slots[i].ino)
			*slot_of(h, old.slots[i].ino) = old.slots[i];
	free(old.slots);
	return 0;
}

static int note_write(struct history *h, const struct record *rec, uint64_t bytes)
{
	struct history_file *f;
	int r = 2 * h->num_used >= h->num_slots ? grow(h) : 0;

	if (r < 0)
		return r;
	f = slot_of(h, rec->ino);
	if (!f->ino) {
		*f = (struct history_file){ .ino = rec->ino, .first_seq = rec->seq };
		h->num_used++;
	}
	f->writes += rec->type == RECORD_EXTENTS ? rec->num_ranges : 1;
	f->written_bytes += bytes;
	f->since_drain_bytes += bytes;
	f->last_seq = rec->seq;
	return 0;
}

static int note(const struct record *rec, void *arg)
{
	struct history *h = arg;
	uint64_t bytes = 0;
	int r = h->each ? h->each(rec, h->arg) : 0;

	if (r != 0 || rec->ino == 0)
		return r;
	switch (rec->type) {
	case RECORD_WRITE: return note_write(h, rec, rec->len);
	case RECORD_EXTENTS:
		for (size_t i = 0; i < rec->num_ranges; i++)
			bytes += rec->ranges[i].len;
		return note_write(h, rec, bytes);
	case RECORD_DRAINED:
		if (h->num_slots)
			slot_of(h, rec->ino)->since_drain_bytes = 0; /* an unused slot is zero anyway */
		return 0;
	default: return 0;
	}
}

static int ignore(const struct record *rec, void *arg)
{
	return 0;
}

int history_read(struct io *io, int (*each)(const struct record *rec, void *arg), void *arg, struct history **ret,
	bool *ret_complete, struct cistern_error *err)
{
	struct history *h = calloc(1, sizeof(*h));
	struct journal_end end;
	uint64_t seq = 0;
	int r;

	if (!h)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	h->each = each;
	h->arg = arg;
	r = journal_checkpoint_load(io, ignore, NULL, &seq, err);
	if (r == 0 || r == -ENOENT)
		r = journal_replay(io, seq, note, h, &end, err);
	if (r < 0) {
		history_destroy(h);
		return r;
	}
	*ret_complete = seq == 0;
	*ret = h;
	return 0;
}

const struct history_file *history_of(const struct history *h, uint64_t ino)
{
	const struct history_file *f = h && h->num_slots ? slot_of(h, ino) : NULL;

	return f && f->ino ? f : NULL;
}
