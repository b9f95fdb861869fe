/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BBSCAN_H
#define FORMAT_CODEC_BBSCAN_H

/*
 * The first pass of a replay over one log: which entries can be replayed, and, in groups of neighbours, which bytes of the netCDF
 * file they reach. Scans of different logs may be made by different threads at once.
 */

#include "format/codec/bbbox.h"
#include "format/codec/bbreplay.h"

struct bbscan_group {
	struct bblog_mark first, behind; /* its first entry, and where the next one would be */
	uint32_t num;
	bool sound;          /* each of them is replayed */
	uint64_t begin, end; /* of the file */
};

struct bbscan {
	const struct bbreplay_log *log; /* borrowed */
	const struct bbreplay_ops *ops; /* borrowed */
	size_t number;                  /* of the log among those of the replay */
	uint64_t data_bytes;            /* that the data log can have */

	struct bbscan_group *groups; /* owned, in the log's order */
	size_t num, cap;
	uint64_t begin, end; /* of the file: what any group touches; begin >= end: nothing */
	uint64_t records;    /* that the file must have */
	uint64_t entries, values, value_bytes, skipped, left_out;
};

/* What is to become of an entry. */
enum bbscan_fate { BBSCAN_REPLAYED, BBSCAN_SKIPPED, BBSCAN_WRONG, BBSCAN_NO_DATA };

void bbscan_init(struct bbscan *s, size_t number, const struct bbreplay_log *log, const struct bbreplay_ops *ops);
void bbscan_free(struct bbscan *s);
/* reader: any, it will follow the log. 0; -ENOMEM; -errno of a read. What is wrong with the log is no failure. */
int bbscan_run(struct bbscan *s, struct bblog *reader, struct bbbox *x, struct cistern_error *err);
/* After bbscan_run(): all that is left out, to ops->found(). Reads the log again if there is any. */
int bbscan_tell(const struct bbscan *s, struct bblog *reader, struct bbbox *x, struct cistern_error *err);
/* What they reach is in *ret when it is to be replayed; *ret_why: what is wrong. */
enum bbscan_fate bbscan_judge(const struct bbscan *s, struct bbbox *x, const struct bblog_entry *e,
	struct bbbox_reach *ret, const char **ret_why);

#endif
