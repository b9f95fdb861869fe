/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BBSCAN_H
#define FORMAT_CODEC_BBSCAN_H

/*
 * The first pass of a replay over one log: which entries can be replayed, and, in groups of neighbours, which bytes of the netCDF
 * file they reach; where each lies, if it is simple and there is memory. Scans of different logs may be made by different threads at once.
 */

#include "format/codec/bbbox.h"
#include "format/codec/bbreplay.h"
#include "format/codec/bbruns.h"

struct bbscan_group {
	struct bblog_mark first, behind; /* its first entry, and where the next one would be */
	uint32_t num;
	bool sound;          /* each of them is replayed */
	bool kept;           /* and is one run, of the same variable and type: they are in the scan's runs */
	uint64_t begin, end; /* of the file */
	/* when it is kept */
	size_t first_run;
	uint64_t base; /* of the runs */
	uint32_t varid, elem_bytes;
	enum bblog_type type;
};

struct bbscan {
	const struct bbreplay_log *log; /* borrowed */
	const struct bbreplay_ops *ops; /* borrowed */
	size_t number;                  /* of the log among those of the replay */
	uint64_t data_bytes;            /* that the data log can have */

	struct bbscan_group *groups; /* owned, in the log's order */
	size_t num, cap;
	struct bbruns runs;  /* of the groups that are kept */
	uint64_t begin, end; /* of the file: what any group touches; begin >= end: nothing */
	uint64_t records;    /* that the file must have */
	uint64_t entries, values, skipped, left_out;
	uint64_t value_bytes, file_bytes; /* of the values: in the log, and as the file has them */
};

/* What is to become of an entry. */
enum bbscan_fate { BBSCAN_REPLAYED, BBSCAN_SKIPPED, BBSCAN_WRONG, BBSCAN_NO_DATA };

/* keep_bytes: memory for what is kept of entries. */
void bbscan_init(struct bbscan *s, size_t number, const struct bbreplay_log *log, const struct bbreplay_ops *ops,
	uint64_t keep_bytes);
void bbscan_free(struct bbscan *s);
/* reader: any, it will follow the log. 0; -ENOMEM; -errno of a read. What is wrong with the log is no failure. */
int bbscan_run(struct bbscan *s, struct bblog *reader, struct bbbox *x, struct cistern_error *err);
/* After bbscan_run(): all that is left out, to ops->found(). Reads the log again if there is any. */
int bbscan_tell(const struct bbscan *s, struct bblog *reader, struct bbbox *x, struct cistern_error *err);
/* What they reach is in *ret when it is to be replayed; *ret_why: what is wrong. */
enum bbscan_fate bbscan_judge(const struct bbscan *s, struct bbbox *x, const struct bblog_entry *e,
	struct bbbox_reach *ret, const char **ret_why);

#endif
