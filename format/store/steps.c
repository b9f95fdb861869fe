/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The file: magic, the store's seq (u64, little-endian), then records as the journal encodes them, each with its own CRC. A
 * torn tail is cut: those steps were done and are found out about like any that were not reported.
 *
 * A mount that commits the steps changes the store's seq with each. It first puts ANY_SEQ in the place of the seq: from
 * then on they belong to this store whatever its seq is, until all are durable in it and the file is gone. To commit a whole
 * series again does no harm: each thing that it sets is left as the last step about it says.
 */
#include "format/store/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/cursor.h"
#include "format/store/store.h"

#define MAGIC        0x31535045545357ull /* "WSTEPS1" */
#define HEADER_BYTES 16
#define SEQ_OFF      8
#define ANY_SEQ      UINT64_MAX

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

/* A step that the state does not take (its file or directory has gone) counts as taken. *ret_good: so many bytes are whole. */
static int each(
	const uint8_t *data, size_t len, int (*take)(struct record *rec, void *arg), void *arg, size_t *ret_good)
{
	struct record_scratch scratch = { 0 };
	struct record rec;
	size_t at = HEADER_BYTES, used;
	int r = 0;

	while (r == 0 && at < len && record_decode(data + at, len - at, &scratch, &rec, &used) == 0) {
		r = take(&rec, arg);
		if (r == -ENOENT || r == -ESTALE || r == -EINVAL)
			r = 0;
		at += used;
	}
	record_scratch_free(&scratch);
	*ret_good = at;
	return r;
}

static int apply(struct record *rec, void *arg)
{
	struct state *st = arg;

	rec->seq = state_seq(st) + 1;
	return state_apply(st, rec);
}

static bool is_of(const uint8_t *data, size_t len, uint64_t seq)
{
	struct cursor c = cursor_make(data, len);
	uint64_t magic = cursor_u64(&c), of = cursor_u64(&c);

	return cursor_ok(&c) && magic == MAGIC && (of == seq || of == ANY_SEQ);
}

static int load(struct steps *s, struct state *st, const uint8_t *data, size_t len)
{
	size_t good = 0;
	int r;

	if (!is_of(data, len, state_seq(st)))
		return begin(s, state_seq(st));
	r = each(data, len, apply, st, &good);
	if (r == 0 && good < len && ftruncate(s->fd, (off_t)good))
		r = -errno;
	return r;
}

/* All of the file; the caller frees it. */
static int read_file(int fd, uint8_t **ret, size_t *ret_len)
{
	struct stat info;
	uint8_t *data;
	ssize_t got;
	int r;

	if (fstat(fd, &info))
		return -errno;
	data = malloc((size_t)info.st_size + 1);
	if (!data)
		return -ENOMEM;
	got = pread(fd, data, (size_t)info.st_size, 0);
	if (got < 0) {
		r = -errno;
		free(data);
		return r;
	}
	*ret = data;
	*ret_len = (size_t)got;
	return 0;
}

int steps_open(const char *path, struct state *st, struct steps **ret)
{
	struct steps *s = calloc(1, sizeof(*s));
	uint8_t *data = NULL;
	size_t len = 0;
	int r;

	if (!s)
		return -ENOMEM;
	s->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	r = s->fd < 0 ? -errno : read_file(s->fd, &data, &len);
	if (r == 0)
		r = load(s, st, data, len);
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

/* ---- a mount's part */

struct settling {
	struct store *s;
	size_t num;
};

static int commit(struct record *rec, void *arg)
{
	struct settling *t = arg;
	int r;

	if (rec->type != RECORD_PLACED && rec->type != RECORD_REMOVED && rec->type != RECORD_DRAINED)
		return -EINVAL;
	rec->seq = 0;
	r = store_commit(t->s, rec);
	t->num += r == 0;
	return r;
}

static int claim(int fd)
{
	struct buf seq = { 0 };
	int r = 0;

	buf_u64(&seq, ANY_SEQ);
	if (!buf_ok(&seq))
		r = -ENOMEM;
	else if (pwrite(fd, seq.data, seq.len, SEQ_OFF) != (ssize_t)seq.len || fdatasync(fd))
		r = errno ? -errno : -EIO;
	buf_free(&seq);
	return r;
}

static int commit_all(struct settling *t, int fd, const uint8_t *data, size_t len)
{
	size_t good;
	int r = claim(fd);

	if (r == 0)
		r = each(data, len, commit, t, &good);
	return r < 0 ? r : store_sync(t->s);
}

/* For good: should it come back with a power cut, what it says would no longer be true. */
static int remove_file(const char *dir, const char *path)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = fd < 0 || unlink(path) || fsync(fd) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return r;
}

int steps_settle(struct store *s, uint64_t seq, size_t *ret_num, bool *ret_stale, struct cistern_error *err)
{
	char path[STORE_PATH_MAX + sizeof(STEPS_FILE) + 1];
	struct settling t = { .s = s };
	uint8_t *data = NULL;
	bool stale = false;
	size_t len = 0;
	int fd, r;

	*ret_num = 0;
	*ret_stale = false;
	snprintf(path, sizeof(path), "%s/" STEPS_FILE, store_path(s));
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return 0;
	r = fd < 0 ? -errno : read_file(fd, &data, &len);
	if (r == 0) {
		stale = !is_of(data, len, seq);
		r = stale ? 0 : commit_all(&t, fd, data, len);
	}
	if (r == 0)
		r = remove_file(store_path(s), path);
	free(data);
	if (fd >= 0)
		close(fd);
	if (r < 0)
		return cistern_error_set(
			err, r, "%s: what the recovery did cannot be taken over: %s", path, strerror(-r));
	*ret_num = t.num;
	*ret_stale = stale && len > HEADER_BYTES;
	return 0;
}
