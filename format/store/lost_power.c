/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Power that was lost on a node of a job (docs/design/power-loss.md): a file remembers it until the other nodes have been told. It is there, and
 * durable, before the journal's MOUNT says which boot this is: behind that no opening would see that power was lost. It
 * has a line in it while numbers that others may have seen have not been left out yet, and is empty then.
 */
#include "format/store/internal.h"

#include <errno.h>
#include <string.h>

#define LOST_POWER_FILE "lost-power"
#define NUMBERS_TO_SKIP "numbers\n"

int store_note_lost_power(struct io *io)
{
	return io_replace(io, LOST_POWER_FILE, NUMBERS_TO_SKIP, strlen(NUMBERS_TO_SKIP));
}

int lost_power_found(const struct state_report *report, void *arg)
{
	struct store *s = arg;

	return s->sb.num_nodes > 1 && report->rebooted && !report->clean ? store_note_lost_power(s->io) : 0;
}

/* 1: numbers are to be skipped; 0: they were; -ENOENT: no power was lost. */
static int look(struct store *s)
{
	struct io_file *file = NULL;
	uint64_t size = 0;
	int r = io_open(s->io, LOST_POWER_FILE, IO_READ, &file);

	if (!r)
		r = file->ops->size(file, &size);
	io_close(file);
	return r ? r : size > 0;
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
			r = io_replace(s->io, LOST_POWER_FILE, "", 0);
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
