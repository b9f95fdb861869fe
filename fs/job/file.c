/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Open files: core's alone, or of a job. The one branch that a node alone has to take is here. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fs/job/ahead.h"
#include "fs/job/private.h"
#include "fs/job/share.h"

#define COPY_BYTES (1u << 20)

static ssize_t shared_errno(ssize_t r)
{
	return r < 0 ? job_errno((int)r) : r;
}

static struct job_file *file_new(struct job *j, int flags)
{
	struct job_file *file = calloc(1, sizeof(*file));

	if (file && !job_alone(j) && (flags & O_ACCMODE) == O_RDWR)
		file->sieve = sieve_create(); /* without it everything is written as it comes */
	return file;
}

/* Every way to open a file ends here: r is what was said. */
static int opened(struct job_file *file, int r, struct job_file **ret_file)
{
	if (r) {
		if (file)
			sieve_destroy(file->sieve);
		free(file);
		return r;
	}
	*ret_file = file;
	return 0;
}

int file_created(
	struct job *j, int r, uint64_t ino, int flags, struct core_open_reply *open, struct job_file **ret_file)
{
	struct job_file *file = r ? NULL : file_new(j, flags);

	if (!r && !file) {
		core_release(j->core, open->file);
		r = -ENOMEM;
	}
	if (!r)
		file->local = open->file;
	if (!r && !job_alone(j)) {
		r = share_opened(j, ino, flags, file, open);
		if (r)
			core_release(j->core, open->file);
	}
	return opened(file, job_alone(j) ? r : job_errno(r), ret_file);
}

int job_open(struct job *j, uint64_t ino, int flags, struct job_file **ret_file, struct core_open_reply *ret_open)
{
	struct job_file *file = file_new(j, flags);
	int r = file ? 0 : -ENOMEM;

	if (!r && job_alone(j)) {
		r = core_open(j->core, ino, flags, ret_open);
		file->local = r ? NULL : ret_open->file;
	} else if (!r) {
		r = job_wait_numbered(j);
		r = job_errno(r ? r : share_open(j, ino, flags, file, ret_open));
	}
	return opened(file, r, ret_file);
}

void job_release(struct job *j, struct job_file *file)
{
	if (file->shared)
		share_release(j, file);
	else
		core_release(j->core, file->local);
	sieve_destroy(file->sieve);
	free(file);
}

ssize_t job_read_bytes(struct job *j, struct job_file *file, bool process, void *buf, size_t len, uint64_t off,
	struct job_bytes *ret_where)
{
	*ret_where = (struct job_bytes){ .at = buf };
	return file->shared ? shared_errno(share_read(j, file, process, buf, len, off, ret_where))
			    : core_read(j->core, file->local, buf, len, off);
}

void job_pages_given(struct job *j, struct job_file *file, const void *buf, size_t got, size_t len, uint64_t off)
{
	if (file->shared)
		pages_given(j, file->shared, file->sieve != NULL, buf, got, len, off);
}

void job_bytes_end(struct job_bytes *b)
{
	if (b->lent)
		ahead_view_end(b->lent, b->len);
	*b = (struct job_bytes){ 0 };
}

static ssize_t read_into(struct job *j, struct job_file *file, bool process, void *buf, size_t len, uint64_t off)
{
	struct job_bytes where;
	ssize_t got = job_read_bytes(j, file, process, buf, len, off, &where);

	if (got > 0 && where.at != buf)
		memcpy(buf, where.at, (size_t)got);
	job_bytes_end(&where);
	return got;
}

ssize_t job_read(struct job *j, struct job_file *file, void *buf, size_t len, uint64_t off)
{
	return read_into(j, file, false, buf, len, off);
}

static int peek_away(struct job *j, uint64_t ino, uint64_t off, uint8_t *ret)
{
	struct shared *s = shared_find(j, ino);
	ssize_t got = s ? share_read_at(j, s, ret, 1, off) : -ESTALE;

	shared_put(j, s);
	return got < 0 ? job_errno((int)got) : got == 0 ? -ENODATA : 0;
}

int job_peek(struct job *j, uint64_t ino, uint64_t off, uint8_t *ret)
{
	return job_alone(j) || !remote_has(j, ino) ? core_peek(j->core, ino, off, ret) : peek_away(j, ino, off, ret);
}

uint64_t job_backing_timeout_usec(const struct job *j)
{
	return core_backing_timeout_usec(j->core);
}

ssize_t job_write(struct job *j, struct job_file *file, const void *buf, size_t len, uint64_t off)
{
	return file->shared ? shared_errno(share_write(j, file, buf, len, off))
			    : core_write_as(j->core, file->writer, file->local, buf, len, off);
}

void job_set_writer(struct job_file *file, uint32_t writer)
{
	file->writer = writer;
}

ssize_t job_write_page(struct job *j, struct job_file *file, const void *buf, size_t len, uint64_t off)
{
	return file->shared ? shared_errno(share_write_page(j, file, buf, len, off))
			    : core_write(j->core, file->local, buf, len, off);
}

int job_flush(struct job *j, struct job_file *file)
{
	return file->shared ? job_errno(share_flush(j, file)) : 0;
}

int job_fsync(struct job *j, uint64_t ino, struct job_file *file, bool data_only)
{
	if (!job_alone(j))
		times_settle(j);
	if (file && file->shared)
		return job_errno(share_fsync(j, file, data_only));
	if (!file && !job_alone(j)) /* a directory: its names are at the homes of its files */
		return job_errno(power_sync_all(j));
	return core_fsync(j->core, ino, file ? file->local : NULL, data_only);
}

int job_syncfs(struct job *j)
{
	int r = job_alone(j) ? 0 : share_commit_all(j), e = core_syncfs(j->core);

	if (!job_alone(j))
		times_settle(j);
	if (!r && !e && !job_alone(j))
		r = job_errno(power_sync_all(j));
	return r ? r : e;
}

int job_fallocate(struct job *j, struct job_file *file, int mode, uint64_t off, uint64_t len)
{
	return file->shared ? job_errno(share_fallocate(j, file, mode, off, len))
			    : core_fallocate(j->core, file->local, mode, off, len);
}

int job_lseek(struct job *j, struct job_file *file, int64_t off, int whence, uint64_t *ret_off)
{
	return file->shared ? job_errno(share_lseek(j, file, off, whence, ret_off))
			    : core_lseek(j->core, file->local, off, whence, ret_off);
}

static ssize_t copy(struct job *j, struct job_file *from, uint64_t from_off, struct job_file *to, uint64_t to_off,
	size_t len, char *buf)
{
	ssize_t done = 0;

	while ((size_t)done < len) {
		size_t want = len - (size_t)done < COPY_BYTES ? len - (size_t)done : COPY_BYTES;
		ssize_t got = read_into(j, from, true, buf, want, from_off + (size_t)done);

		if (got > 0)
			got = job_write(j, to, buf, (size_t)got, to_off + (size_t)done);
		if (got <= 0)
			return done ? done : got;
		done += got;
	}
	return done;
}

ssize_t job_copy_range(
	struct job *j, struct job_file *from, uint64_t from_off, struct job_file *to, uint64_t to_off, size_t len)
{
	if (!from->shared && !to->shared)
		return core_copy_range(j->core, from->local, from_off, to->local, to_off, len);
	char *buf = malloc(COPY_BYTES);
	ssize_t done = buf ? copy(j, from, from_off, to, to_off, len, buf) : -ENOMEM;

	free(buf);
	return done;
}
