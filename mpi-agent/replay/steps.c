/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The file: magic, the store's seq (u64, little-endian), then records as the journal encodes them, each with its own CRC. A
 * torn tail is cut: those steps were done and are found out about like any that were not reported.
 */
#include "mpi-agent/replay/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/cursor.h"

#define MAGIC        0x31535045545357ull /* "WSTEPS1" */
#define HEADER_BYTES 16

struct steps {
	int fd; /* owned */
	struct buf out;
};

static int begin(struct steps *s, uint64_t seq)
{
	buf_reset(&s->out);
	buf_u64(&s->out, MAGIC);
	buf_u64(&s->out, seq);
	return ftruncate(s->fd, 0) ? -errno : 0;
}

/* *ret_good: so many bytes are whole. */
static int apply(const uint8_t *data, size_t len, struct state *st, size_t *ret_good)
{
	struct record_scratch scratch = { 0 };
	struct record rec;
	size_t at = HEADER_BYTES, used;
	int r = 0;

	while (r == 0 && at < len && record_decode(data + at, len - at, &scratch, &rec, &used) == 0) {
		rec.seq = state_seq(st) + 1;
		r = state_apply(st, &rec);
		if (r == -ENOENT || r == -ESTALE || r == -EINVAL)
			r = 0;
		at += used;
	}
	record_scratch_free(&scratch);
	*ret_good = at;
	return r;
}

static int load(struct steps *s, struct state *st, const uint8_t *data, size_t len)
{
	struct cursor c = cursor_make(data, len);
	uint64_t magic = cursor_u64(&c), seq = cursor_u64(&c);
	size_t good = 0;
	int r;

	if (!cursor_ok(&c) || magic != MAGIC || seq != state_seq(st))
		return begin(s, state_seq(st));
	r = apply(data, len, st, &good);
	if (r == 0 && good < len && ftruncate(s->fd, (off_t)good))
		r = -errno;
	return r;
}

int steps_open(const char *path, struct state *st, struct steps **ret)
{
	struct steps *s = calloc(1, sizeof(*s));
	uint8_t *data = NULL;
	struct stat info;
	ssize_t got = 0;
	int r = 0;

	if (!s)
		return -ENOMEM;
	s->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (s->fd < 0 || fstat(s->fd, &info))
		r = -errno;
	if (r == 0) {
		data = malloc((size_t)info.st_size + 1);
		got = data ? pread(s->fd, data, (size_t)info.st_size, 0) : -1;
		r = got < 0 ? (data ? -errno : -ENOMEM) : load(s, st, data, (size_t)got);
	}
	free(data);
	if (r < 0) {
		steps_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

void steps_close(struct steps *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	buf_free(&s->out);
	free(s);
}

int steps_add(struct steps *s, const struct record *rec)
{
	return record_encode(rec, &s->out);
}

int steps_write(struct steps *s)
{
	ssize_t n;

	if (!buf_ok(&s->out))
		return -ENOMEM;
	n = write(s->fd, s->out.data, s->out.len);
	if (n != (ssize_t)s->out.len)
		return n < 0 ? -errno : -ENOSPC;
	buf_reset(&s->out);
	return fdatasync(s->fd) ? -errno : 0;
}
