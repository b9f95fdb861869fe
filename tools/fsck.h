/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_FSCK_H
#define TOOLS_FSCK_H

/* cistern fsck in parts: fsck.c has the command and the report, fsck_check.c looks, fsck_repair.c changes. */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/base/io.h"
#include "format/base/json.h"
#include "format/index/state.h"
#include "format/journal/journal.h"
#include "format/segment/segment.h"

enum fsck_kind { FSCK_OK, FSCK_NOTE, FSCK_DAMAGE, FSCK_REPAIRED };

struct fsck {
	char *const *logs; /* borrowed: names of PnetCDF's logs, to be checked instead of a store; else NULL */
	char store[PATH_MAX];
	int dirfd;                    /* owned; -1 */
	struct io *io;                /* owned */
	struct segment_set *segments; /* owned, read-only */
	struct state *truth;          /* owned: rebuilt from the journal; NULL when that cannot be */
	char scratch[PATH_MAX];       /* where its index is; "" */

	bool is_file; /* store is a file: its format is checked */
	bool want_json, repair, rebuild_index, discard, fix_numrecs, force;
	bool of_job; /* the store is one of many nodes' */
	struct json j;

	/* what the checks found and repair can do something about */
	struct journal_end end;  /* of the journal */
	bool journal_damaged;    /* somewhere before its end */
	bool checkpoint_damaged; /* what the journal begins with is: nothing can be cut */
	bool index_is_enough;    /* though it is: a mount reads the index and what is behind that, and has all */
	bool has_checkpoint;     /* it begins with one, which is whole */
	uint64_t index_seq;      /* the index stands for what the journal has, and more, up to here; 0: it does not */
	bool index_bad;          /* wrong, or missing */
	bool index_damaged;      /* wrong: reported as damage */
	uint32_t *unused;        /* owned: segments that nothing refers to */
	size_t num_unused;

	size_t num_saved; /* journal files of which repair has put something aside */

	uint64_t num_damage, num_notes, num_repaired;
};

/* ---- fsck.c: the report */

/*
 * One finding: a line, or an object of the JSON report. path: the file of the mount that it is about, with bytes
 * [from, to); or NULL.
 */
void fsck_report(struct fsck *f, enum fsck_kind kind, const char *path, uint64_t from, uint64_t to, const char *fmt,
	...) __attribute__((format(printf, 6, 7)));

/* ---- fsck_check.c. 0, or -errno when the check itself could not be made (*err says why); damage is reported. */

int fsck_check_journal(struct fsck *f, struct cistern_error *err);
int fsck_check_index(struct fsck *f, struct cistern_error *err);    /* also makes f->truth */
int fsck_check_payloads(struct fsck *f, struct cistern_error *err); /* needs f->truth */
int fsck_check_segments(struct fsck *f, struct cistern_error *err); /* needs f->truth */
void fsck_close(struct fsck *f);

/* ---- fsck_file.c. Of f->store, which is a file. */

int fsck_check_file(struct fsck *f, struct cistern_error *err);

/* ---- fsck_repair.c. After fsck_close(). What was repaired is taken off f->num_damage. */

int fsck_repair(struct fsck *f, struct cistern_error *err);

#endif
