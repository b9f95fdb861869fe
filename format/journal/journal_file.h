/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_JOURNAL_JOURNAL_FILE_H
#define FORMAT_JOURNAL_JOURNAL_FILE_H

/*
 * What stands in a journal file besides records: the header block, run entries and sync marks; and the names of the
 * files. Shared by the writer, the reader and the checkpoints; nobody else needs it. Bytes: docs/format/store.md.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/base/io.h"
#include "format/journal/record.h"

#define JOURNAL_DIR         "journal"
#define JOURNAL_EXT         ".jnl"
#define CHECKPOINT_EXT      ".ckp"
#define CHECKPOINT_TEMP_EXT ".ckp.tmp"

#define JOURNAL_BLOCK      4096u /* header; records follow */
#define JOURNAL_ALIGN      8u    /* of everything behind it */
#define JOURNAL_RUN_MAX    48u   /* bytes of the longest run entry */
#define JOURNAL_MARK_BYTES 16u
#define JOURNAL_FILE_LIMIT (1ull << 30)

enum journal_kind { JOURNAL_LOG, JOURNAL_CHECKPOINT };

struct journal_header {
	uint32_t number;      /* of the file's name */
	uint64_t first_seq;   /* of its first record; 0 in a checkpoint */
	int64_t created_ns;   /* CLOCK_REALTIME */
	uint64_t durable_seq; /* records up to here were on the device before this file was begun */
};

void journal_header_encode(enum journal_kind kind, const struct journal_header *header, uint8_t block[JOURNAL_BLOCK]);
/* -ENODATA: zeros (or nothing), never begun; -EBADMSG; -EPROTONOSUPPORT: a newer version. */
int journal_header_decode(enum journal_kind kind, const uint8_t *block, size_t len, struct journal_header *ret);

/* The WRITE that a run entry would continue. Zero-initialised: none. */
struct journal_run {
	bool open;
	uint64_t ino, next_off, next_segment_off;
	int64_t time_ns;
	uint32_t gen, node, flags, segment, writer;
};

void journal_run_follow(struct journal_run *run, const struct record *rec); /* rec is now the last record */
bool journal_run_continues(const struct journal_run *run, const struct record *rec);
/* rec continues the run; its seq enters the CRC. Returns the bytes written. */
size_t journal_run_encode(const struct journal_run *run, const struct record *rec, uint8_t out[JOURNAL_RUN_MAX]);
/* The entry at p as the WRITE with this seq. 0; -EBADMSG: not one, damaged, of another seq, or no run is open. */
int journal_run_decode(const struct journal_run *run, uint64_t seq, const uint8_t *p, size_t len,
	struct record *ret_rec, size_t *ret_used);
/* Is there a whole run entry with this seq at p, whatever it continues? */
bool journal_run_is_entry(uint64_t seq, const uint8_t *p, size_t len, size_t *ret_used);

void journal_mark_encode(uint64_t durable_seq, uint8_t out[JOURNAL_MARK_BYTES]);
int journal_mark_decode(const uint8_t *p, size_t len, uint64_t *ret_durable_seq); /* -EBADMSG: not one, or damaged */

#define JOURNAL_PATH 32                                                             /* bytes of any path below */
const char *journal_path(char out[JOURNAL_PATH], uint32_t number, const char *ext); /* "journal/00000001.jnl" */

struct journal_numbers { /* sorted, the lowest first */
	uint32_t *at;    /* owned */
	size_t num, cap;
};
/* The numbers of all files with this extension; none when the folder does not exist. */
int journal_numbers_list(struct io *io, const char *ext, struct journal_numbers *ret);
void journal_numbers_free(struct journal_numbers *n);

void journal_close_file(struct io_file **file); /* for the cleanup attribute */

#endif
