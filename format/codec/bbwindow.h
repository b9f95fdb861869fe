/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BBWINDOW_H
#define FORMAT_CODEC_BBWINDOW_H

/*
 * A piece of the netCDF file in memory while logs are replayed onto it: its new bytes, which of them there are, and
 * which came from an earlier rank. Its memory is 2 1/4 times its length.
 */

#include "format/codec/bbreplay.h"

struct bbwindow;

int bbwindow_create(size_t len, struct bbwindow **ret); /* len: a multiple of BBWINDOW_UNIT */
void bbwindow_destroy(struct bbwindow *w);
size_t bbwindow_len(const struct bbwindow *w);
#define BBWINDOW_UNIT 32768u

void bbwindow_begin(struct bbwindow *w, uint64_t off); /* empty, for the bytes from off on */
void bbwindow_next_rank(struct bbwindow *w);
/*
 * Where the len bytes at off are to be written at once, whatever they were; NULL: an earlier rank wrote some of them, and only
 * bbwindow_put() counts those that differ.
 */
uint8_t *bbwindow_take(struct bbwindow *w, uint64_t off, size_t len, uint64_t *own_bytes);
/*
 * The len bytes at off are these, whatever they were; they lie within the window. *own_bytes grows by those that this
 * rank wrote before, and the result is how many another rank had written differently.
 */
uint64_t bbwindow_put(struct bbwindow *w, uint64_t off, const void *bytes, size_t len, uint64_t *own_bytes);
/* Writes what differs from the file; counts in stats. */
int bbwindow_end(struct bbwindow *w, const struct bbreplay_ops *ops, struct bbreplay_stats *stats);

#endif
