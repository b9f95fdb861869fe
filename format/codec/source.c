/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Halves are looked at from the end on, so that a hole of any size costs one question for each half that it reaches into. */
#include "format/codec/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/fdio.h"

#define BLOCK (1u << 20)

ssize_t source_read_memory(void *buf, size_t len, uint64_t off, void *arg)
{
	const struct source_memory *m = arg;

	if (off >= m->len)
		return 0;
	len = len < m->len - off ? len : m->len - (size_t)off;
	memcpy(buf, m->data + off, len);
	return (ssize_t)len;
}

bool source_seek(int fd, uint64_t off, struct source_range *ret)
{
	off_t data, hole;

	*ret = (struct source_range){ .off = off, .end = UINT64_MAX };
	if (fd < 0 || off > INT64_MAX)
		return true;
	data = lseek(fd, (off_t)off, SEEK_DATA);
	if (data < 0)
		return errno != ENXIO; /* only holes, or it cannot be told */
	hole = lseek(fd, data, SEEK_HOLE);
	ret->off = (uint64_t)data;
	ret->end = hole > data ? (uint64_t)hole : UINT64_MAX;
	return true;
}

static bool range_of_fd(uint64_t off, struct source_range *ret, void *arg)
{
	return source_seek(*(int *)arg, off, ret);
}

struct source source_of_fd(int *fd, uint64_t size)
{
	return (struct source){ .read_bytes = fdio_read_arg, .next_range = range_of_fd, .arg = fd, .size = size };
}

/* 1: *ret_end is behind the last byte of [from, from + len) that is not zero; 0: all are. */
static int look_at(const struct source *s, uint64_t from, size_t len, uint8_t *buf, uint64_t *ret_end)
{
	size_t done = 0;

	while (done < len) {
		ssize_t got = s->read_bytes(buf + done, len - done, from + done, s->arg);

		if (got == -ENODATA) {
			*ret_end = from + len;
			return 1;
		}
		if (got < 0)
			return (int)got;
		if (got == 0)
			break;
		done += (size_t)got;
	}
	while (done > 0 && buf[done - 1] == 0)
		done--;
	*ret_end = from + done;
	return done > 0;
}

static int search(const struct source *s, uint64_t from, uint64_t end, uint8_t *buf, uint64_t *ret_end)
{
	struct source_range range = { .off = from };
	uint64_t middle;
	int r;

	if (from >= end || (s->next_range && !s->next_range(from, &range, s->arg)) || range.off >= end)
		return 0;
	from = range.off > from ? range.off : from;
	if (end - from <= BLOCK)
		return look_at(s, from, (size_t)(end - from), buf, ret_end);
	middle = from + (end - from) / 2;
	r = search(s, middle, end, buf, ret_end);
	return r != 0 ? r : search(s, from, middle, buf, ret_end);
}

int source_data_end(const struct source *s, uint64_t from, uint64_t *ret_end)
{
	uint8_t *buf = malloc(BLOCK);
	int r = buf ? search(s, from, s->size, buf, ret_end) : -ENOMEM;

	if (r == 0)
		*ret_end = from;
	free(buf);
	return r < 0 ? r : 0;
}
