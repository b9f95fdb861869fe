/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The blocks of shared mode put together, and reading ahead: twice as far each time while what is asked for lies close
 * behind what was there, and little after a jump, so that neither a scan of the whole log nor picking a few bytes out
 * of each entry reads much in vain.
 */
#include "format/codec/bbstream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD_MIN (UINT64_C(4) << 10)
#define AHEAD_MAX (UINT64_C(1) << 20)

/* Byte off of a channel is at this byte of the file. */
static uint64_t place(uint64_t off, uint32_t channel, uint32_t num_channels)
{
	uint64_t block = off / BBLOG_BLOCK_BYTES;

	return (block * num_channels + channel) * BBLOG_BLOCK_BYTES + off % BBLOG_BLOCK_BYTES;
}

static uint64_t channel_size(uint64_t size, uint32_t channel, uint32_t num_channels)
{
	uint64_t whole = size / BBLOG_BLOCK_BYTES, rows = whole / num_channels, rest = whole % num_channels;

	if (num_channels == 1)
		return size;
	if (rest > channel)
		return (rows + 1) * BBLOG_BLOCK_BYTES;
	return rows * BBLOG_BLOCK_BYTES + (rest == channel ? size % BBLOG_BLOCK_BYTES : 0);
}

void bbstream_init(struct bbstream *s, const struct bblog_source *src, uint32_t channel, uint32_t num_channels)
{
	*s = (struct bbstream){ .src = *src, .channel = channel, .num_channels = num_channels };
	s->size = channel_size(src->size, channel, num_channels);
}

void bbstream_free(struct bbstream *s)
{
	free(s->bytes);
	s->bytes = NULL;
	s->cap = s->len = 0;
}

static int read_blocks(const struct bbstream *s, uint64_t off, uint8_t *to, uint64_t len)
{
	while (len > 0) {
		uint64_t room = s->num_channels == 1 ? len : BBLOG_BLOCK_BYTES - off % BBLOG_BLOCK_BYTES;
		size_t part = (size_t)(len < room ? len : room);
		uint64_t at = s->num_channels == 1 ? off : place(off, s->channel, s->num_channels);
		int r = s->src.read(s->src.arg, at, to, part);

		if (r < 0)
			return r;
		to += part;
		off += part;
		len -= part;
	}
	return 0;
}

static int make_room(struct bbstream *s, uint64_t len)
{
	uint8_t *bytes;

	if (len <= s->cap)
		return 0;
	bytes = realloc(s->bytes, (size_t)len);
	if (!bytes)
		return -ENOMEM;
	s->bytes = bytes;
	s->cap = (size_t)len;
	return 0;
}

/* How much to read for len bytes at off, which the channel has. */
static uint64_t decide(struct bbstream *s, uint64_t off, uint64_t len)
{
	bool straight = off >= s->off && off - s->off <= s->len + s->ahead;

	s->ahead = straight ? 2 * s->ahead : AHEAD_MIN;
	if (s->ahead < AHEAD_MIN)
		s->ahead = AHEAD_MIN;
	if (s->ahead > AHEAD_MAX)
		s->ahead = AHEAD_MAX;
	if (len < s->ahead)
		len = s->ahead;
	return len < s->size - off ? len : s->size - off;
}

int bbstream_look(struct bbstream *s, uint64_t off, uint64_t len, const uint8_t **ret)
{
	uint64_t want;
	int r;

	if (off >= s->off && off - s->off <= s->len && len <= s->len - (off - s->off)) {
		*ret = s->bytes + (off - s->off);
		return 0;
	}
	if (off > s->size || len > s->size - off)
		return -ENODATA;
	want = decide(s, off, len);
	s->len = 0;
	r = make_room(s, want);
	if (r == 0)
		r = read_blocks(s, off, s->bytes, want);
	if (r < 0)
		return r;
	s->off = off;
	s->len = (size_t)want;
	*ret = s->bytes;
	return 0;
}
