/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BBSTREAM_H
#define FORMAT_CODEC_BBSTREAM_H

/*
 * One channel of a file of a PnetCDF burst-buffer log as a run of bytes, wherever its blocks lie, with a window on it
 * that reads ahead. Bounded memory: the largest piece that was asked for, or 256 KiB; what is shown takes none.
 */

#include "format/codec/bblog.h"

struct bbstream {
	struct bblog_source src; /* what it points to is borrowed */
	uint32_t channel, num_channels;
	uint64_t size;  /* bytes that the channel can have in the file */
	uint8_t *bytes; /* owned: what the window was read into */
	size_t cap;
	const uint8_t *view; /* the window where its bytes lie; NULL: it was read */
	size_t len;
	uint64_t off;
	uint64_t ahead;    /* how much is read at once */
	uint64_t sure_end; /* all up to here will be asked for */
};

void bbstream_init(struct bbstream *s, const struct bblog_source *src, uint32_t channel, uint32_t num_channels);
/* What was another stream, or all zeros, is this one now and keeps its memory. */
void bbstream_follow(struct bbstream *s, const struct bblog_source *src, uint32_t channel, uint32_t num_channels);
void bbstream_free(struct bbstream *s); /* its memory; it may be used again */
/* From what is asked for next up to end all bytes will be asked for, in their order. */
void bbstream_expect(struct bbstream *s, uint64_t end);
bool bbstream_is_expected(const struct bbstream *s, uint64_t off); /* that what lies there will be asked for */
/* len bytes at off, borrowed until the next call, in *ret. -ENODATA: the channel ends before; -ENOMEM; read()'s errors. */
int bbstream_look(struct bbstream *s, uint64_t off, uint64_t len, const uint8_t **ret);
/* The same with at least least bytes, and at the most most, as many as are to be had at once: *ret_len. */
int bbstream_some(
	struct bbstream *s, uint64_t off, uint64_t least, uint64_t most, const uint8_t **ret, uint64_t *ret_len);

#endif
