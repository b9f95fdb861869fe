/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The blocks of shared mode put together, and reading ahead: up to where everything will be asked for, if somebody said so; else
 * twice as far each time while what is asked for lies close behind what was there, and little after a jump, so that neither a
 * scan of the whole log nor picking a few bytes out of each entry reads much in vain. The window on the bytes is small enough to
 * stay in a processor's own cache, where what was read is soon read again. Where the source can show its bytes, large windows are not copied,
 * and may be larger: each costs a mapping, and an interrupt of the other processors when it ends.
 */
#include "format/codec/bbstream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD_MIN (UINT64_C(4) << 10)
#define AHEAD_MAX (UINT64_C(256) << 10)
#define VIEW_MIN  (UINT64_C(64) << 10) /* less is read: to show it costs more than the copy */
#define VIEW_MAX  (UINT64_C(2) << 20)

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

static void end_view(struct bbstream *s)
{
	if (s->view)
		s->src.end_view(s->src.arg, s->view, s->len);
	s->view = NULL;
	s->len = 0;
}

void bbstream_follow(struct bbstream *s, const struct bblog_source *src, uint32_t channel, uint32_t num_channels)
{
	uint8_t *bytes = s->bytes;
	size_t cap = s->cap;

	end_view(s);
	bbstream_init(s, src, channel, num_channels);
	s->bytes = bytes;
	s->cap = cap;
}

void bbstream_free(struct bbstream *s)
{
	end_view(s);
	free(s->bytes);
	s->bytes = NULL;
	s->cap = 0;
}

void bbstream_expect(struct bbstream *s, uint64_t end)
{
	s->sure_end = end < s->size ? end : s->size;
}

bool bbstream_is_expected(const struct bbstream *s, uint64_t off)
{
	return off < s->sure_end;
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

static bool is_shown(const struct bbstream *s)
{
	return s->src.view && s->num_channels == 1;
}

/* How much to read for least bytes at off, which the channel has, when it may be most. */
static uint64_t decide(struct bbstream *s, uint64_t off, uint64_t least, uint64_t most)
{
	bool straight = off >= s->off && off - s->off <= s->len + s->ahead;
	uint64_t len;

	s->ahead = straight ? 2 * s->ahead : AHEAD_MIN;
	if (s->ahead < AHEAD_MIN)
		s->ahead = AHEAD_MIN;
	if (s->ahead > AHEAD_MAX)
		s->ahead = AHEAD_MAX;
	len = most > s->ahead ? most : s->ahead;
	if (off < s->sure_end)
		len = s->sure_end - off;
	if (len > (is_shown(s) ? VIEW_MAX : AHEAD_MAX))
		len = is_shown(s) ? VIEW_MAX : AHEAD_MAX;
	if (len < least)
		len = least;
	return len < s->size - off ? len : s->size - off;
}

static const uint8_t *window(const struct bbstream *s)
{
	return s->view ? s->view : s->bytes;
}

/* The window is at off and len bytes long, which the channel has. */
static int move_window(struct bbstream *s, uint64_t off, uint64_t len)
{
	int r = 0;

	end_view(s);
	if (is_shown(s) && len >= VIEW_MIN)
		s->view = s->src.view(s->src.arg, off, (size_t)len);
	if (!s->view) {
		r = make_room(s, len);
		r = r < 0 ? r : read_blocks(s, off, s->bytes, len);
	}
	if (r < 0)
		return r;
	s->off = off;
	s->len = (size_t)len;
	return 0;
}

int bbstream_some(
	struct bbstream *s, uint64_t off, uint64_t least, uint64_t most, const uint8_t **ret, uint64_t *ret_len)
{
	uint64_t want;
	int r;

	if (off >= s->off && off - s->off <= s->len && least <= s->len - (off - s->off)) {
		uint64_t there = s->len - (off - s->off);

		*ret = window(s) + (off - s->off);
		*ret_len = there < most ? there : most;
		return 0;
	}
	if (off > s->size || least > s->size - off)
		return -ENODATA;
	want = decide(s, off, least, most);
	r = move_window(s, off, want);
	if (r < 0)
		return r;
	*ret = window(s);
	*ret_len = want < most ? want : most;
	return 0;
}

int bbstream_look(struct bbstream *s, uint64_t off, uint64_t len, const uint8_t **ret)
{
	uint64_t got;

	return bbstream_some(s, off, len, len, ret, &got);
}
