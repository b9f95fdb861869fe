/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BBSTREAM_H
#define FORMAT_CODEC_BBSTREAM_H

/*
 * One channel of a file of a PnetCDF burst-buffer log as a run of bytes, wherever its blocks lie, with a window on it
 * that reads ahead. Bounded memory: the largest piece that was asked for, or 1 MiB.
 */

#include "format/codec/bblog.h"

struct bbstream {
	struct bblog_source src; /* what it points to is borrowed */
	uint32_t channel, num_channels;
	uint64_t size;  /* bytes that the channel can have in the file */
	uint8_t *bytes; /* owned: the window */
	size_t cap, len;
	uint64_t off;
	uint64_t ahead; /* how much is read at once */
};

void bbstream_init(struct bbstream *s, const struct bblog_source *src, uint32_t channel, uint32_t num_channels);
void bbstream_free(struct bbstream *s); /* its memory; it may be used again */
/* len bytes at off, borrowed until the next call, in *ret. -ENODATA: the channel ends before; -ENOMEM; read()'s errors. */
int bbstream_look(struct bbstream *s, uint64_t off, uint64_t len, const uint8_t **ret);

#endif
