/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A daemon holds some of the device's room in a file without content. What it writes itself stops before that (space.c), but the kernel
 * writes private files without asking, and others may fill the file system, to its last block. Then the index could not be flushed, nor
 * the journal go on, and no drain could begin that would empty the store. So when one of them finds too little room, or none, the file
 * goes; it is made anew when there is room again.
 *
 * It goes for what makes room only: who creates files until nothing is left gets ENOSPC, and the drain still works.
 */
#include "format/store/internal.h"

#include <errno.h>

#define BALLAST_FILE "ballast"

/* The mutex is held. */
static bool drop(struct store *s)
{
	s->ballast.bytes = 0;
	return s->io->ops->unlink(s->io, BALLAST_FILE) == 0;
}

bool ballast_release(struct store *s)
{
	bool released;

	pthread_mutex_lock(&s->ballast.mutex);
	released = s->ballast.bytes > 0 && drop(s);
	pthread_mutex_unlock(&s->ballast.mutex);
	return released;
}

static bool is_there(struct store *s)
{
	struct io_file *file = NULL;
	int r = io_open(s->io, BALLAST_FILE, IO_READ, &file);

	io_close(file);
	return r == 0;
}

void ballast_end(struct store *s)
{
	pthread_mutex_lock(&s->ballast.mutex);
	if (is_there(s))
		(void)drop(s);
	s->ballast.wanted = 0;
	pthread_mutex_unlock(&s->ballast.mutex);
}

void ballast_make_room(uint64_t bytes, void *arg)
{
	struct store *s = arg;
	uint64_t total, available;

	if (s->io->ops->space(s->io, &total, &available) == 0 && available < bytes)
		(void)ballast_release(s);
}

static int allocate(struct store *s, uint64_t bytes)
{
	struct io_file *file = NULL;
	int r = io_open(s->io, BALLAST_FILE, IO_WRITE | IO_CREATE, &file);

	if (!r)
		r = file->ops->allocate(file, 0, bytes);
	io_close(file);
	return r;
}

/* Twice as much as it takes must be there: else it would come and go with each checkpoint. */
void ballast_fill(struct store *s)
{
	uint64_t total, available;

	pthread_mutex_lock(&s->ballast.mutex);
	if (s->ballast.bytes < s->ballast.wanted && s->io->ops->space(s->io, &total, &available) == 0 &&
		available / 2 >= s->ballast.wanted) {
		if (allocate(s, s->ballast.wanted) == 0)
			s->ballast.bytes = s->ballast.wanted;
		else
			(void)drop(s);
	}
	pthread_mutex_unlock(&s->ballast.mutex);
}
