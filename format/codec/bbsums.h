/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BBSUMS_H
#define FORMAT_CODEC_BBSUMS_H

/*
 * What a replay counts, each worker for itself and all together at the end; what comes out does not depend on who did what.
 */

#include "format/codec/bbreplay.h"

struct bbsums_range {
	size_t log;
	uint64_t seq, num;
	uint32_t var;
};

struct bbsums_conflict {
	uint64_t bytes, seq;
	size_t log;
};

struct bbsums {
	struct bbreplay_stats stats; /* those that bbreplay_run() counts */
	struct bbsums_range
		*ranges; /* owned, sorted: the first entries with values out of range, so many as are listed */
	size_t num_ranges, cap_ranges;
	struct bbsums_conflict *conflicts; /* owned: one for each variable */
	uint32_t num_vars;
};

int bbsums_init(struct bbsums *s, uint32_t num_vars); /* -ENOMEM */
void bbsums_free(struct bbsums *s);
/* num values of an entry of a log did not fit. -ENOMEM. */
int bbsums_range(struct bbsums *s, size_t log, const struct bblog_entry *e, uint64_t num);
/* bytes of an entry differed from those of an earlier rank. */
void bbsums_conflict(struct bbsums *s, size_t log, const struct bblog_entry *e, uint64_t bytes);
void bbsums_add_stats(struct bbreplay_stats *to, const struct bbreplay_stats *from); /* those only */
int bbsums_add(struct bbsums *to, const struct bbsums *from);                        /* -ENOMEM */
void bbsums_tell(const struct bbsums *s, const struct bbreplay_ops *ops);

#endif
