/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_SETTLE_H
#define FS_DRAIN_SETTLE_H

/* Before a mount shows itself: what a killed drain, or a recovery of the dead store, has left to be brought to an end. */

#include <stdbool.h>
#include <stddef.h>

#include "cistern/error.h"
#include "format/store/store.h"
#include "fs/session/log.h"

#define SETTLE_USEC INT64_C(30000000) /* for what a killed drain has left to be taken back */

struct settle_options {
	struct store *store; /* all borrowed; just opened, nothing committed yet */
	const struct state_report *report;
	struct log *log;
	const char *libexec_dir;
	int backing_fd; /* of the backing directory */
};

/*
 * Takes over what a recovery in place has done, then has cistern-agent take back what a killed drain had moved and could not
 * report. text: what people should know of it, or "". 0; -errno when the store's names are not to be relied upon. That
 * something could not be taken back is no error: the next drain finds it.
 */
int settle_store(const struct settle_options *opt, char *text, size_t cap, struct cistern_error *err);

/* Has a drain left moves that it could not report, or is its agent still at it? */
bool settle_is_due(const char *store_path);

/* Has a killed one perhaps left temporary files somewhere? */
bool settle_has_temps(const char *store_path);
void settle_drop_through(const char *store_path); /* nobody writes through any more, and all is drained */

/* Has a drained file asked for another layout? */
bool settle_wants_convert(const char *store_path);

#endif
