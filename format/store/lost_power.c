/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Power that was lost on a node of a job (docs/design/power-loss.md): a file remembers it until the other nodes have been told. It is there, and
 * durable, before the journal's MOUNT says which boot this is: behind that no opening would see that power was lost. It
 * is empty while numbers that others may have seen have not been left out yet: so it can be made on a device that is full. Then it has a
 * line in it, and any other content is taken for none: numbers are rather left out twice.
 */
#include "format/store/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOST_POWER_FILE "lost-power"
#define LOST_POWER_MAX  4096
#define NUMBERS_SKIPPED "numbers were left out\n"

int store_note_lost_power(struct io *io)
{
	return io_replace(io, LOST_POWER_FILE, "", 0);
}

int lost_power_found(const struct state_report *report, void *arg)
{
	struct store *s = arg;

	return s->sb.num_nodes > 1 && report->rebooted && !report->clean ? store_note_lost_power(s->io) : 0;
}

/* 1: numbers are to be skipped; 0: they were; -ENOENT: no power was lost. */
static int look(struct store *s)
{
	void *text = NULL;
	size_t len = 0;
	int r = io_read_all(s->io, LOST_POWER_FILE, LOST_POWER_MAX, &text, &len);

	if (!r)
		r = len != strlen(NUMBERS_SKIPPED) || memcmp(text, NUMBERS_SKIPPED, len) != 0;
	free(text);
	return r;
}

/* Where there is no room to say so, the next opening does it again. */
static int note_skipped(struct store *s)
{
	int r = io_replace(s->io, LOST_POWER_FILE, NUMBERS_SKIPPED, strlen(NUMBERS_SKIPPED));

	return r == -ENOSPC ? 0 : r;
}

int lost_power_settle(struct store *s)
{
	bool durable = true;
	int r = look(s);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (r > 0) {
		r = skip_lost_numbers(s, &durable);
		if (!r && durable)
			r = note_skipped(s);
	}
	s->lost_power = r == 0;
	s->numbers_to_skip = !durable;
	return r;
}

void lost_power_look(struct store *s, const struct state_report *report)
{
	s->lost_power = (report->rebooted && !report->clean) || look(s) >= 0;
}

bool store_lost_power(const struct store *s)
{
	return s->lost_power;
}

int store_lost_power_told(struct store *s)
{
	int r = s->lost_power && !s->numbers_to_skip ? s->io->ops->unlink(s->io, LOST_POWER_FILE) : 0;

	if (!r)
		r = s->io->ops->sync_dir(s->io, "");
	if (!r)
		s->lost_power = false;
	return r;
}
