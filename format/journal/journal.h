/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_JOURNAL_JOURNAL_H
#define FORMAT_JOURNAL_JOURNAL_H

/*
 * The journal's files: journal/NNNNNNNN.jnl, each with a header block and records whose seq rise without gaps, also
 * from file to file. Files are preallocated and mapped, so that an appended record is in the page cache, and so
 * outlives this process, without a system call. A new file begins at every open of the store.
 *
 * Runs of small writes are packed: a WRITE that continues the last record of the file (same inode, payload directly
 * behind the previous payload in the same segment) is stored as a short run entry of 24 bytes or so under the full
 * record that began the run; the reader gives it back as an ordinary WRITE. Each entry has its own CRC, seeded with
 * its seq, so each write is safe when append returns.
 */

#include "cistern/error.h"
#include "format/base/io.h"
#include "format/journal/record.h"

struct journal; /* the writer: not thread-safe, the caller holds the state's lock; only journal_sync may run beside */

/* Begin a new file after first_seq - 1; file number = highest existing + 1. io is borrowed. */
int journal_create(
	struct io *io, uint64_t file_bytes, uint64_t first_seq, struct journal **ret, struct cistern_error *err);
void journal_destroy(struct journal *j); /* unmaps, truncates the last file to what was used; no sync */
/* Sets rec->seq (next) and appends. 0; -ENOSPC (nothing appended, seq unused), -EIO, encode errors. */
int journal_append(struct journal *j, struct record *rec);
uint64_t journal_next_seq(const struct journal *j);
/* All records with seq <= *ret_seq (may be NULL) are durable when it returns 0. Safe beside journal_append in another thread. */
int journal_sync(struct journal *j, uint64_t *ret_seq);
/* Close the present file and begin the next one. *ret_number = the new file's number. */
int journal_rotate(struct journal *j, uint32_t *ret_number);
uint64_t journal_bytes(const struct journal *j); /* of all files that exist, as used */
/* Deletes .jnl and .ckp files with a lower number, oldest first, once file number is durable. -ENOENT: there is none. */
int journal_remove_before(struct io *io, uint32_t number);

/* Where and how a journal ended. */
struct journal_end {
	uint64_t last_seq;  /* 0 when empty */
	uint32_t file;      /* number of the last file read */
	uint64_t off;       /* bytes of it that are good */
	uint64_t cut_bytes; /* bytes behind them that are neither zero nor valid: a torn tail (of the last file only) */
	uint64_t records;   /* handed to each() */
	bool unsynced;      /* with -EBADMSG, -ENOENT: nothing from here on was ever synced: what lost power leaves */
};

/*
 * Read every record with seq > after_seq in order, across files, and call each(rec, arg) (non-zero stops and is
 * returned). Stops at the first invalid record of the last file (torn tail: told in *ret_end). An invalid record
 * that is followed by a later file or by valid records of higher seq in place is damage: -EBADMSG, *err says file
 * and offset. -ENOENT: records after after_seq are missing (a file was lost). *ret_end is filled in any case.
 *
 * After a loss of power unsynced pages and files may be missing in any order, which looks like damage. Sync marks in the
 * files tell the two apart: when nothing proves that what is missing was ever synced, end->unsynced is set; a caller
 * that knows that the machine has been restarted may then go on after journal_cut, as with a torn tail.
 */
int journal_replay(struct io *io, uint64_t after_seq, int (*each)(const struct record *rec, void *arg), void *arg,
	struct journal_end *ret_end, struct cistern_error *err);
/*
 * Make the journal end where journal_replay did: deletes later files, truncates that file to end->off, syncs. Before
 * journal_create: a torn tail that another file follows is damage.
 */
int journal_cut(struct io *io, const struct journal_end *end, struct cistern_error *err);

/* Checkpoint files: the whole state as RECORD_STATE records, journal/NNNNNNNN.ckp, standing for everything before
 * journal file NNNNNNNN. Written under a temporary name, synced, renamed. */
struct journal_checkpoint;
int journal_checkpoint_begin(struct io *io, uint32_t number, struct journal_checkpoint **ret);
int journal_checkpoint_add(
	struct journal_checkpoint *c, const void *key, size_t key_len, const void *val, size_t val_len);
int journal_checkpoint_commit(struct journal_checkpoint *c, uint64_t seq); /* frees c, also on error */
void journal_checkpoint_abort(struct journal_checkpoint *c);
/* Read the newest whole one; -ENOENT when there is none (*ret_seq = 0). *ret_seq = the seq it stands for. */
int journal_checkpoint_load(struct io *io, int (*each)(const struct record *rec, void *arg), void *arg,
	uint64_t *ret_seq, struct cistern_error *err);

#endif
