/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How much the store holds and may hold. The file system is asked at most every 50 ms; between two looks the writers
 * count down what was left at the last one, so that a fast writer cannot run past the limit unseen; what was granted and was not
 * in a segment yet when the last look began is counted down, too. Room that a segment has allocated but not filled counts as free.
 *
 * Besides the user's reserve, room for two journal files is kept back: when the data are full, the records that
 * empty the store must still find room. A daemon holds some (ballast.c).
 */
#include "format/store/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/clock.h"
#include "format/base/config.h"
#include "format/base/units.h"

#define CACHE_USEC        50000
#define JOURNAL_MIN_BYTES (64u << 10)
#define SEGMENT_MIN_BYTES (1u << 20)
#define BALLAST_FILES     4          /* journal files */
#define NEW_MIN_BYTES     (4u << 20) /* with less, a new store is not begun */

int64_t store_now_usec(void)
{
	return (int64_t)clock_usec();
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t clamp_down(uint64_t value, uint64_t limit, uint64_t unit, uint64_t min)
{
	if (value > limit)
		value = limit / unit * unit;
	return value < min ? min : value;
}

static int fill_defaults(struct store_options *opt)
{
	struct config *cfg = NULL;
	int r = config_create(&cfg);

	if (r)
		return r;
	if (!opt->segment_size)
		opt->segment_size = config_number(cfg, CONFIG_SEGMENT_SIZE);
	if (!opt->journal_size)
		opt->journal_size = config_number(cfg, CONFIG_JOURNAL_SIZE);
	if (!opt->index_memory)
		opt->index_memory = config_number(cfg, CONFIG_INDEX_MEMORY);
	if (!opt->reserve)
		opt->reserve = config_number(cfg, CONFIG_RESERVE);
	config_destroy(cfg);
	return 0;
}

/*
 * A segment is allocated as a whole, so it must be small against the capacity: at most a sixteenth. The same for the
 * journal, whose files are a sixty-fourth.
 */
int space_choose_sizes(
	struct io *io, struct store_options *opt, bool is_new, const char *path, struct cistern_error *err)
{
	char has[UNITS_TEXT], wants[UNITS_TEXT];
	uint64_t total, available, room;
	int r = fill_defaults(opt);

	if (!r)
		r = io->ops->space(io, &total, &available);
	if (r)
		return cistern_error_set(
			err, r, "%s: the file system does not say how much room it has: %s", path, strerror(-r));
	room = less(total, opt->reserve);
	if (opt->capacity && opt->capacity < room)
		room = opt->capacity;
	opt->segment_size = clamp_down(opt->segment_size, room / 16, SEGMENT_MIN_BYTES, SEGMENT_MIN_BYTES);
	opt->journal_size = clamp_down(opt->journal_size, room / 64, JOURNAL_MIN_BYTES, JOURNAL_MIN_BYTES);
	if (!is_new || available >= opt->reserve + NEW_MIN_BYTES)
		return 0;
	return cistern_error_set(err, -ENOSPC,
		"%s: its file system has %s free, a new store needs at least %s (with the reserve): free some space, name another "
		"file system, or lower the setting \"reserve\"",
		path, units_format_bytes(available, has), units_format_bytes(opt->reserve + NEW_MIN_BYTES, wants));
}

struct journal_sum {
	struct io *io;
	uint64_t bytes;
};

static int add_journal_file(const char *name, void *arg)
{
	struct journal_sum *sum = arg;
	struct io_file *file = NULL;
	uint64_t size = 0;
	char path[320];
	int r;

	if (snprintf(path, sizeof(path), "journal/%s", name) >= (int)sizeof(path))
		return 0;
	r = io_open(sum->io, path, IO_READ, &file);
	if (r)
		return r == -ENOENT ? 0 : r; /* compacted away meanwhile */
	r = file->ops->size(file, &size);
	io_close(file);
	sum->bytes += size;
	return r;
}

/* What is in the store, and what its file system has free for it. */
static int measure(struct store *s, uint64_t *ret_used, uint64_t *ret_available)
{
	struct journal_sum sum = { .io = s->io };
	uint64_t total, available, unfilled = segment_free_in_open(s->segments);
	int r = s->io->ops->space(s->io, &total, &available);

	if (!r)
		r = s->io->ops->list(s->io, "journal", add_journal_file, &sum);
	if (r && r != -ENOENT)
		return r;
	*ret_used = less(segment_allocated_bytes(s->segments), unfilled) + sum.bytes;
	*ret_available = less(available + unfilled + atomic_load(&s->ballast.bytes), s->space.reserve);
	return 0;
}

/* Called with the mutex. */
static int refresh(struct store *s)
{
	struct space_cache *c = &s->space;
	int64_t now = store_now_usec();
	uint64_t used, available, left, settled = atomic_load(&c->settled);
	int r;

	if (c->taken_usec && now - c->taken_usec < CACHE_USEC)
		return 0;
	r = measure(s, &used, &available);
	if (r)
		return r;
	left = less(c->capacity, used);
	c->last = (struct store_space){ c->capacity, used, left < available ? left : available };
	c->taken_usec = now;
	atomic_store(&c->limit, c->last.free_bytes + settled);
	return 0;
}

int space_init(struct store *s, const struct store_options *opt)
{
	uint64_t used, available;
	int r;

	s->ballast.wanted = opt->ballast ? BALLAST_FILES * opt->journal_size : 0;
	s->space.reserve = opt->reserve + (opt->ballast ? s->ballast.wanted : 2 * opt->journal_size);
	ballast_fill(s);
	r = measure(s, &used, &available);
	if (r)
		return r;
	s->space.capacity = opt->capacity ? opt->capacity : used + available;
	return refresh(s);
}

int store_space(struct store *s, struct store_space *ret)
{
	struct space_cache *c = &s->space;
	uint64_t since;
	int r;

	pthread_mutex_lock(&c->mutex);
	r = refresh(s);
	if (!r) {
		since = less(c->last.free_bytes, less(atomic_load(&c->limit), atomic_load(&c->taken)));
		*ret = c->last;
		ret->used_bytes += since;
		ret->free_bytes -= since;
	}
	pthread_mutex_unlock(&c->mutex);
	return r;
}

static bool take(struct space_cache *c, uint64_t len)
{
	if (atomic_fetch_add(&c->taken, len) + len <= atomic_load(&c->limit))
		return true;
	atomic_fetch_sub(&c->taken, len);
	return false;
}

int space_take(struct store *s, uint64_t len)
{
	struct space_cache *c = &s->space;
	int r;

	if (take(c, len))
		return 0;
	pthread_mutex_lock(&c->mutex);
	r = refresh(s);
	pthread_mutex_unlock(&c->mutex);
	if (r)
		return r;
	return take(c, len) ? 0 : -ENOSPC;
}

void space_settle(struct store *s, uint64_t len)
{
	atomic_fetch_add(&s->space.settled, len);
}
