/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BBREPLAY_H
#define FORMAT_CODEC_BBREPLAY_H

/*
 * Replay of PnetCDF burst-buffer logs onto the netCDF file that they belong to: all logs in the order in which they are
 * given (by rank), each in its own order; of two puts to the same element the later one wins. Only bytes that the logs
 * cover change, and the number of records. The result does not depend on how much memory is used, nor on how many work.
 *
 * First bbreplay_create() reads all entries and says what does not fit; then bbreplay_run() writes. Nothing here knows
 * files: bytes go through the ops. One replay is used by one thread; with ops->each it has the work done by several.
 */

#include "format/codec/bblog.h"
#include "format/codec/classic.h"

#define BBREPLAY_MIN_BYTES (UINT64_C(256) << 10) /* least memory for data */

/* One rank's log. */
struct bbreplay_log {
	struct bblog *meta; /* borrowed */
	struct bblog_source data;
	uint32_t channel, num_channels;
};

enum bbreplay_kind {
	BBREPLAY_WRONG,    /* an entry that cannot be replayed: text */
	BBREPLAY_LOST,     /* the chain of entries is broken at this one: num entries are lost; text */
	BBREPLAY_DATA,     /* the values of an entry are not, or not all, in the data log: text */
	BBREPLAY_RANGE,    /* num values of an entry did not fit and became the fill value */
	BBREPLAY_CONFLICT, /* num bytes of a variable were written differently by several ranks; the last one won */
};

struct bbreplay_finding {
	enum bbreplay_kind kind;
	size_t log;   /* index among those given; CONFLICT: of the first winner */
	uint64_t seq; /* of the entry; CONFLICT: of the first winner's */
	uint32_t var; /* CLASSIC_NONE where it is not known */
	uint64_t num;
	const char *text; /* borrowed for the call; NULL where there is none */
};

struct bbreplay_stats {
	uint64_t entries;     /* that are, or can be, replayed */
	uint64_t values;      /* of them */
	uint64_t skipped;     /* left out as asked */
	uint64_t left_out;    /* wrong, lost, or without data */
	uint64_t num_records; /* of the file afterwards */
	uint64_t old_records; /* as its header said */
	/* after bbreplay_run() */
	uint64_t range_values;   /* that did not fit */
	uint64_t own_bytes;      /* written again by the same rank */
	uint64_t conflict_bytes; /* written differently by another rank */
	uint64_t covered_bytes;  /* of the file */
	uint64_t changed_bytes;  /* of them: differ from what was there, or lie behind the old end */
	uint64_t telling_bytes;  /* of the covered ones below the old end: those that are not 0 */
	uint64_t there_bytes;    /* of the telling ones: those that were there already */
	uint64_t new_size;       /* of the file */
	uint64_t writes;         /* calls of write() */
};

struct bbreplay_ops {
	/* The file as it is: exactly len bytes below old_size. 0 or -errno. */
	int (*read)(void *arg, uint64_t off, void *buf, size_t len);
	/* Large, ascending (each worker's), never twice the same bytes, but the number of records at the end. 0 or -errno. */
	int (*write)(void *arg, uint64_t off, const void *buf, size_t len);
	/*
	 * Before the first write: about all of these bytes will be written, and no more of them than there are values. For those who can
	 * see to room at once. May be NULL.
	 */
	void (*reserve)(void *arg, uint64_t off, uint64_t len);
	/* May be NULL. */
	void (*found)(void *arg, const struct bbreplay_finding *f);
	/* Whether to leave out an entry. May be NULL. */
	bool (*skip)(void *arg, size_t log, uint64_t seq);
	/*
	 * Calls work(task, i) for each i below num, some or all of them at once, and returns when they have. Then read(), write(),
	 * skip() and the logs' sources are called by several threads, too; found() by the caller's alone. NULL: one worker.
	 */
	void (*each)(void *arg, unsigned int num, void (*work)(void *task, unsigned int i), void *task);
	unsigned int num_workers; /* for each() */
	void *arg;                /* borrowed */
	uint64_t memory_bytes;    /* about what is used for data, by all workers; at least BBREPLAY_MIN_BYTES */
	uint64_t old_size;        /* of the file */
	bool dry;                 /* compare only, write nothing */
};

struct bbreplay;

/*
 * nc: the header of the file. logs and what they point to, and ops, are borrowed until the end. 0; -errno of a read;
 * -ENOMEM. What cannot be replayed is found, and no failure.
 */
int bbreplay_create(const struct classic *nc, const struct bbreplay_log *logs, size_t num_logs,
	const struct bbreplay_ops *ops, struct bbreplay **ret, struct cistern_error *err);
void bbreplay_destroy(struct bbreplay *b); /* bbreplay_destroy(NULL) is fine */
/* After a failure the file is in part changed. */
int bbreplay_run(struct bbreplay *b, struct cistern_error *err);
const struct bbreplay_stats *bbreplay_stats(const struct bbreplay *b);

#endif
