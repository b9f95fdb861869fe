/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_HISTORY_H
#define TOOLS_LIB_HISTORY_H

/*
 * What the journal still tells of each file's writes. The state knows only what is left of them; how often a file was
 * written over shows in the records, as far back as the journal reaches.
 */

#include <stdbool.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/base/io.h"
#include "format/journal/record.h"

struct history_file {
	uint64_t ino;               /* 0: an unused slot */
	uint64_t writes;            /* records of writes */
	uint64_t written_bytes;     /* their payload */
	uint64_t since_drain_bytes; /* of it, behind the last drain of the file */
	uint64_t first_seq, last_seq;
};

struct history; /* one entry per inode that the journal writes to: 48 bytes each */

/*
 * *ret_complete: the journal reaches back to the first record of the store. A torn tail is fine. -EBADMSG: damaged;
 * -ENOENT: files vanish while they are being read (a running daemon compacts them). each (may be NULL) is given every record
 * of the journal's files in order; non-zero stops and is returned.
 */
int history_read(struct io *io, int (*each)(const struct record *rec, void *arg), void *arg, struct history **ret,
	bool *ret_complete, struct cistern_error *err);
void history_destroy(struct history *h);
/* NULL: no writes known. Borrowed. history NULL: none are. */
const struct history_file *history_of(const struct history *h, uint64_t ino);

#endif
