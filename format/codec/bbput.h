/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BBPUT_H
#define FORMAT_CODEC_BBPUT_H

/*
 * One worker of a replay: fills windows of the netCDF file from the logs, one after the other, and writes them. Workers have
 * everything of their own but the scans, which they only read.
 */

#include "format/codec/bbscan.h"
#include "format/codec/bbstream.h"
#include "format/codec/bbsums.h"
#include "format/codec/bbwindow.h"

struct bbput {
	const struct bbscan *scans; /* borrowed; in the order of logs */
	size_t num_scans;
	const struct bbreplay_ops *ops; /* borrowed */
	struct bbsums sums;
	struct bbwindow *window; /* owned */
	struct bblog *meta;      /* owned: reads one log after the other */
	struct bbstream data;    /* its values */
	struct bbbox *box;       /* owned */

	uint64_t begin, end; /* of the window */
	/* the entry that is being put */
	uint64_t data_off; /* of the request's first value */
	uint64_t range_values;
	uint64_t conflict_bytes;
	int error;
};

/* *p was zeroed. len: of a window, a multiple of BBWINDOW_UNIT. -ENOMEM; bbput_free() is for it, too. */
int bbput_init(struct bbput *p, const struct bbscan *scans, size_t num, const struct bbreplay_ops *ops,
	const struct classic *nc, size_t len);
void bbput_free(struct bbput *p);
/* Fills and writes the window that begins at begin. */
int bbput_window(struct bbput *p, uint64_t begin, struct cistern_error *err);

#endif
