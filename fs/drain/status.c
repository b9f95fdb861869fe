/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What the manager tells people, and whether there is anything to drain at all. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/index/left.h"
#include "fs/drain/private.h"

void drain_status(struct drain *d, struct drain_status *ret)
{
	pthread_mutex_lock(&d->lock);
	*ret = (struct drain_status){
		.draining = d->state != DRAIN_IDLE,
		.paused = d->paused,
		.final = d->final,
		.last_result = d->last_result,
		.num_errors = d->errors.num + d->errors.lost,
		.progress = d->progress,
		.share_percent = d->state != DRAIN_IDLE ? d->share_percent : 0,
	};
	pthread_mutex_unlock(&d->lock);
}

void drain_each_error(struct drain *d, void (*each)(const char *path, int code, const char *text, void *arg), void *arg)
{
	pthread_mutex_lock(&d->lock);
	for (size_t i = 0; i < d->errors.num; i++) {
		const struct drain_error *e = &d->errors.entries[i];

		each(e->path, e->code, e->text ? e->text : strerror(-e->code), arg);
	}
	pthread_mutex_unlock(&d->lock);
}

static int is_misplaced(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	return state_is_misplaced(arg, parent, name, ino);
}

bool drain_is_needed(struct store *s)
{
	struct state_totals totals;

	state_totals(store_state(s), &totals);
	return totals.dirty_files > 0 || state_each_backing_name(store_state(s), is_misplaced, store_state(s)) != 0;
}
