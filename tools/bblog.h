/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_BBLOG_H
#define TOOLS_BBLOG_H

/*
 * What cistern fsck, inspect and recover do with logs of PnetCDF's burst-buffer driver in place of a store. Each takes
 * the operands (NULL at the end), says what there is to say, and returns an exit status. Logs are never changed.
 */

#include <stdbool.h>
#include <stdint.h>

#include "tools/fsck.h"

#define BBLOG_CANCEL_NOTE                                                                                              \
	"the logs do not tell cancelled requests from others: every entry may be one that the program took back with " \
	"ncmpi_cancel() after ncmpi_iput or ncmpi_bput"

/* f: with its options and the report begun. 0, or -errno when the check itself could not be made. */
int bblog_fsck(struct fsck *f, char *const *names, struct cistern_error *err); /* bblog_fsck.c */

int bblog_inspect(char *const *names, bool want_json); /* bblog_inspect.c */

struct bblog_skip {
	uint64_t rank, seq;
};

struct bblog_recover {
	const char *to; /* NULL: not given */
	bool force, in_place, dry_run, want_json;
	struct bblog_skip *skip; /* borrowed: entries to leave out */
	size_t num_skip;
	uint64_t memory_bytes;
};

int bblog_recover(const struct bblog_recover *opt, char *const *names); /* bblog_recover.c */

#endif
