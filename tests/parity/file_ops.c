/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Operations on open files. Where the standard lets implementations differ (how much copy_file_range copies at a time, where
 * holes are found) both answers are checked against the content instead of against each other.
 */
#include "tests/parity/parity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static const mode_t modes[] = { 0644, 0600, 0666, 0755, 0444, 0640, 0 };

static uint64_t random_off(struct parity *p)
{
	uint64_t off = rng_below(&p->rng, rng_percent(&p->rng, 60) ? 32u << 10 : FILE_MAX - BUFFER_MAX);

	return rng_percent(&p->rng, 30) ? off & ~UINT64_C(4095) : off;
}

static size_t random_len(struct parity *p)
{
	size_t len = rng_below(&p->rng, rng_percent(&p->rng, 70) ? 5000 : BUFFER_MAX);

	return rng_percent(&p->rng, 20) ? len & ~(size_t)4095 : len;
}

static int random_flags(struct parity *p)
{
	static const int access_modes[] = { O_RDONLY, O_WRONLY, O_RDWR, O_RDWR };
	static const struct {
		unsigned int percent;
		int flag;
	} extra[] = {
		{ 60, O_CREAT },
		{ 10, O_EXCL },
		{ 12, O_TRUNC },
		{ 15, O_APPEND },
		{ 5, O_NOFOLLOW },
		{ 2, O_DIRECTORY },
		{ 2, O_SYNC },
		{ 2, O_DSYNC },
		{ 2, O_NONBLOCK },
	};
	int flags = access_modes[rng_below(&p->rng, 4)];

	for (size_t i = 0; i < sizeof(extra) / sizeof(extra[0]); i++)
		if (rng_percent(&p->rng, extra[i].percent))
			flags |= extra[i].flag;
	return (flags & O_EXCL) && !(flags & O_CREAT) ? flags & ~O_EXCL : flags;
}

static bool op_open(struct parity *p)
{
	mode_t mode = modes[rng_below(&p->rng, sizeof(modes) / sizeof(modes[0]))];
	int flags = random_flags(p);
	struct handle *h = free_handle(p);
	struct outcome o[SIDES];
	char rel[PATH_MAX], path[PATH_MAX];
	bool same;

	random_path(p, rel);
	if (!h)
		return false;
	note(p, " %zu %.80s flags %o mode %o", (size_t)(h - p->handles), rel, flags, mode);
	for (int s = 0; s < SIDES; s++) {
		side_path(p, s, rel, path);
		h->fd[s] = open(path, flags | O_CLOEXEC, mode);
		o[s] = outcome_of(h->fd[s]);
		o[s].ret = o[s].ret >= 0 ? 0 : -1;
	}
	h->flags = flags;
	same = same_outcome(p, o, "open");
	if (h->fd[0] < 0 || h->fd[1] < 0) {
		for (int s = 0; s < SIDES; s++) {
			if (h->fd[s] >= 0)
				close(h->fd[s]);
			h->fd[s] = -1;
		}
		return same && same_path(p, rel);
	}
	return same && same_fd(p, h) && same_path(p, rel);
}

static bool op_close(struct parity *p)
{
	struct handle *h = any_handle(p);

	return !h || close_handle(p, h);
}

static bool check_after(struct parity *p, const struct handle *h, uint64_t off, size_t len)
{
	bool whole = rng_percent(&p->rng, 12);

	return same_fd(p, h) && same_content(p, h->fd, whole ? 0 : off, whole ? FILE_MAX : len + 4096, "content");
}

static bool op_pwrite(struct parity *p)
{
	struct handle *h = any_handle(p);
	uint64_t off = random_off(p);
	size_t len = random_len(p);
	struct outcome o[SIDES];
	struct stat st;

	rng_fill(&p->rng, p->buf[0], len);
	if (!h || fstat(h->fd[1], &st) < 0 || ((h->flags & O_APPEND) && (uint64_t)st.st_size + len > FILE_MAX))
		return true;
	note(p, " %td off %" PRIu64 " len %zu", h - p->handles, off, len);
	for (int s = 0; s < SIDES; s++)
		o[s] = outcome_of(pwrite(h->fd[s], p->buf[0], len, (off_t)off));
	return same_outcome(p, o, "pwrite") && check_after(p, h, off, len);
}

static bool op_pread(struct parity *p)
{
	struct handle *h = any_handle(p);
	uint64_t off = random_off(p);
	size_t len = random_len(p);
	struct outcome o[SIDES];

	if (!h)
		return true;
	note(p, " %td off %" PRIu64 " len %zu", h - p->handles, off, len);
	for (int s = 0; s < SIDES; s++)
		o[s] = outcome_of(pread(h->fd[s], p->buf[s], len, (off_t)off));
	if (!same_outcome(p, o, "pread"))
		return false;
	return o[0].ret <= 0 || memcmp(p->buf[0], p->buf[1], (size_t)o[0].ret) == 0 ? true
										    : differ(p, "pread: other bytes");
}

/* The file position: read, write and lseek share it, also with a duplicate. */
static bool same_position(struct parity *p, const int fd[SIDES])
{
	struct outcome o[SIDES];

	for (int s = 0; s < SIDES; s++)
		o[s] = outcome_of(lseek(fd[s], 0, SEEK_CUR));
	return o[0].ret == o[1].ret ? true
				    : differ(p, "position is %" PRId64 " in A, %" PRId64 " in B", o[0].ret, o[1].ret);
}

static bool op_write(struct parity *p)
{
	struct handle *h = any_handle(p);
	size_t len = random_len(p), part = rng_below(&p->rng, len + 1);
	struct iovec v[2] = { { p->buf[0], part }, { p->buf[0] + part, len - part } };
	struct outcome o[SIDES];
	struct stat st;
	off_t at;

	rng_fill(&p->rng, p->buf[0], len);
	if (!h || fstat(h->fd[1], &st) < 0 || (at = lseek(h->fd[1], 0, SEEK_CUR)) < 0)
		return true;
	if ((uint64_t)(h->flags & O_APPEND ? st.st_size : at) + len > FILE_MAX)
		return true;
	note(p, " %td len %zu", h - p->handles, len);
	for (int s = 0; s < SIDES; s++)
		o[s] = outcome_of(len & 1 ? write(h->fd[s], p->buf[0], len) : writev(h->fd[s], v, 2));
	return same_outcome(p, o, "write") && same_position(p, h->fd) && check_after(p, h, (uint64_t)at, len);
}

static bool op_read(struct parity *p)
{
	struct handle *h = any_handle(p);
	size_t len = random_len(p), part = rng_below(&p->rng, len + 1);
	struct outcome o[SIDES];

	if (!h)
		return true;
	note(p, " %td len %zu", h - p->handles, len);
	for (int s = 0; s < SIDES; s++) {
		struct iovec v[2] = { { p->buf[s], part }, { p->buf[s] + part, len - part } };

		o[s] = outcome_of(len & 1 ? read(h->fd[s], p->buf[s], len) : readv(h->fd[s], v, 2));
	}
	if (!same_outcome(p, o, "read") || !same_position(p, h->fd))
		return false;
	return o[0].ret <= 0 || memcmp(p->buf[0], p->buf[1], (size_t)o[0].ret) == 0 ? true
										    : differ(p, "read: other bytes");
}

static bool op_lseek(struct parity *p)
{
	struct handle *h = any_handle(p);
	static const int whences[] = { SEEK_SET, SEEK_CUR, SEEK_END };
	int whence = whences[rng_below(&p->rng, 3)];
	int64_t off = (int64_t)rng_below(&p->rng, 16384) - (whence == SEEK_SET ? 16 : 12288);
	struct outcome o[SIDES];
	struct stat st;

	if (!h || fstat(h->fd[1], &st) < 0 ||
		!S_ISREG(st.st_mode)) /* what a directory's offsets mean is its own business */
		return true;
	note(p, " %td off %" PRId64 " whence %d", h - p->handles, off, whence);
	for (int s = 0; s < SIDES; s++)
		o[s] = outcome_of(lseek(h->fd[s], off, whence));
	return same_outcome(p, o, "lseek");
}

static bool all_zero(struct parity *p, int fd, uint64_t off, uint64_t end)
{
	while (off < end) {
		ssize_t n = pread(fd, p->buf[1], end - off < BUFFER_MAX ? end - off : BUFFER_MAX, (off_t)off);

		if (n <= 0)
			return n == 0;
		for (ssize_t i = 0; i < n; i++)
			if (p->buf[1][i])
				return false;
		off += (uint64_t)n;
	}
	return true;
}

/* Data must be found where there is any, and what is called a hole must be zeros; how fine the grain is, is free. */
static bool op_seek_data(struct parity *p)
{
	struct handle *h = any_handle(p);
	bool data = rng_percent(&p->rng, 50);
	uint64_t off = random_off(p);
	struct outcome o;
	struct stat st;

	if (!h || (h->flags & O_ACCMODE) == O_WRONLY || fstat(h->fd[1], &st) < 0 || !S_ISREG(st.st_mode))
		return true;
	o = outcome_of(lseek(h->fd[0], (off_t)off, data ? SEEK_DATA : SEEK_HOLE));
	note(p, " %td off %" PRIu64 " %s = %" PRId64, h - p->handles, off, data ? "data" : "hole", o.ret);
	for (int s = 0; s < SIDES; s++)
		lseek(h->fd[s], 0, SEEK_SET);
	if (off >= (uint64_t)st.st_size)
		return o.ret < 0 && o.err == ENXIO
			       ? true
			       : differ(p, "seek beyond the end: %" PRId64 " (%s)", o.ret, strerror(o.err));
	if (o.ret < 0 && !(data && o.err == ENXIO))
		return differ(p, "lseek: %s", strerror(o.err));
	if (o.ret >= 0 && (o.ret < (int64_t)off || o.ret > st.st_size))
		return differ(p, "lseek: %" PRId64 " is out of range", o.ret);
	if (data)
		return all_zero(p, h->fd[1], off, o.ret < 0 ? (uint64_t)st.st_size : (uint64_t)o.ret)
			       ? true
			       : differ(p, "SEEK_DATA jumps over data");
	return o.ret == st.st_size || all_zero(p, h->fd[1], (uint64_t)o.ret, (uint64_t)o.ret + 1)
		       ? true
		       : differ(p, "SEEK_HOLE finds data");
}

static bool op_ftruncate(struct parity *p)
{
	struct handle *h = any_handle(p);
	uint64_t size = rng_percent(&p->rng, 10) ? 0 : random_off(p);
	struct outcome o[SIDES];

	if (!h)
		return true;
	note(p, " %td size %" PRIu64, h - p->handles, size);
	for (int s = 0; s < SIDES; s++)
		o[s] = outcome_of(ftruncate(h->fd[s], (off_t)size));
	return same_outcome(p, o, "ftruncate") && check_after(p, h, size > 4096 ? size - 4096 : 0, 8192);
}

static bool op_fallocate(struct parity *p)
{
	static const int fallocate_modes[] = { 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
		FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE };
	struct handle *h = any_handle(p);
	int mode = fallocate_modes[rng_below(&p->rng, 6)];
	uint64_t off = random_off(p);
	size_t len = random_len(p);
	struct outcome o[SIDES];

	if (!h)
		return true;
	note(p, " %td mode %d off %" PRIu64 " len %zu", h - p->handles, mode, off, len);
	for (int s = 0; s < SIDES; s++)
		o[s] = outcome_of(fallocate(h->fd[s], mode, (off_t)off, (off_t)len));
	return same_outcome(p, o, "fallocate") && check_after(p, h, off > 4096 ? off - 4096 : 0, len + 8192);
}

/* All of len, in as many calls as it takes. */
static struct outcome copy_all(int in, off_t in_off, int out, off_t out_off, size_t len)
{
	int64_t done = 0;

	while (done < (int64_t)len) {
		ssize_t n = copy_file_range(in, &in_off, out, &out_off, len - (size_t)done, 0);

		if (n < 0)
			return outcome_of(n);
		if (n == 0)
			break;
		done += n;
	}
	return (struct outcome){ .ret = done };
}

static bool op_copy_range(struct parity *p)
{
	struct handle *in = any_handle(p), *out = any_handle(p);
	off_t in_off = (off_t)random_off(p), out_off = (off_t)random_off(p);
	size_t len = random_len(p);
	struct outcome o[SIDES];

	if (!in || !out)
		return true;
	note(p, " %td+%jd to %td+%jd len %zu", in - p->handles, (intmax_t)in_off, out - p->handles, (intmax_t)out_off,
		len);
	for (int s = 0; s < SIDES; s++)
		o[s] = copy_all(in->fd[s], in_off, out->fd[s], out_off, len);
	return same_outcome(p, o, "copy_file_range") && check_after(p, out, (uint64_t)out_off, len);
}

static bool map_side(struct parity *p, int fd, int prot, uint64_t page, size_t len, size_t from, size_t num, bool sync)
{
	unsigned char *m = mmap(NULL, len, prot, MAP_SHARED, fd, (off_t)page);
	bool good = true;

	if (m == MAP_FAILED)
		return false;
	if (prot & PROT_WRITE)
		memcpy(m + from, p->buf[0] + FILE_MAX, num);
	else
		memcpy(p->buf[1], m + from, num);
	if (sync)
		good = msync(m, len, MS_SYNC) == 0;
	return munmap(m, len) == 0 && good;
}

/* A change through a shared mapping is seen by read(), and the other way round. */
static bool op_mmap(struct parity *p)
{
	struct handle *h = any_handle(p);
	uint64_t page = rng_below(&p->rng, 16) * 4096;
	bool sync = rng_percent(&p->rng, 50), do_write = rng_percent(&p->rng, 60);
	struct stat st;
	size_t len, from, num;

	if (!h || (h->flags & O_ACCMODE) != O_RDWR || fstat(h->fd[1], &st) < 0 || (uint64_t)st.st_size <= page)
		return true;
	len = (uint64_t)st.st_size - page < 65536 ? (size_t)((uint64_t)st.st_size - page) : 65536;
	from = rng_below(&p->rng, len);
	num = 1 + rng_below(&p->rng, len - from < 9000 ? len - from : 9000);
	note(p, " %td %s off %" PRIu64 " len %zu sync %d", h - p->handles, do_write ? "write" : "read", page + from,
		num, sync);
	rng_fill(&p->rng, p->buf[0] + FILE_MAX, num);
	for (int s = 0; s < SIDES; s++) {
		if (!map_side(p, h->fd[s], do_write ? PROT_READ | PROT_WRITE : PROT_READ, page, len, from, num, sync))
			return differ(p, "mmap on side %d: %s", s, strerror(errno));
		if (!do_write && s == 0)
			memcpy(p->buf[0], p->buf[1], num);
	}
	if (!do_write && memcmp(p->buf[0], p->buf[1], num) != 0)
		return differ(p, "mmap: other bytes");
	return check_after(p, h, page, len);
}

static bool op_dup(struct parity *p)
{
	struct handle *h = any_handle(p);
	int64_t off = (int64_t)rng_below(&p->rng, 4096);
	int fd[SIDES];
	bool same;

	if (!h)
		return true;
	note(p, " %td", h - p->handles);
	for (int s = 0; s < SIDES; s++) {
		fd[s] = dup(h->fd[s]);
		if (fd[s] < 0)
			return differ(p, "dup on side %d: %s", s, strerror(errno));
		lseek(fd[s], off, SEEK_SET);
	}
	same = same_position(p, h->fd);
	for (int s = 0; s < SIDES; s++)
		if (close(fd[s]) < 0)
			same = differ(p, "close of a duplicate on side %d: %s", s, strerror(errno));
	return same;
}

static bool op_fsync(struct parity *p)
{
	struct handle *h = any_handle(p);
	bool data = rng_percent(&p->rng, 50);
	struct outcome o[SIDES];

	if (!h)
		return true;
	note(p, " %td", h - p->handles);
	for (int s = 0; s < SIDES; s++)
		o[s] = outcome_of(data ? fdatasync(h->fd[s]) : fsync(h->fd[s]));
	return same_outcome(p, o, "fsync") && same_fd(p, h);
}

static bool op_futimens(struct parity *p)
{
	struct handle *h = any_handle(p);
	struct timespec t[2] = { { 978307200 + (time_t)rng_below(&p->rng, 100000000),
					 (long)rng_below(&p->rng, 1000000000) },
		{ 978307200 + (time_t)rng_below(&p->rng, 100000000), (long)rng_below(&p->rng, 1000000000) } };
	struct outcome o[SIDES];

	if (!h)
		return true;
	note(p, " %td", h - p->handles);
	for (int s = 0; s < SIDES; s++)
		o[s] = outcome_of(futimens(h->fd[s], t));
	return same_outcome(p, o, "futimens") && same_fd(p, h);
}

static bool op_fchmod(struct parity *p)
{
	struct handle *h = any_handle(p);
	mode_t mode = modes[rng_below(&p->rng, sizeof(modes) / sizeof(modes[0]))];
	struct outcome o[SIDES];

	if (!h)
		return true;
	note(p, " %td %o", h - p->handles, mode);
	for (int s = 0; s < SIDES; s++)
		o[s] = outcome_of(fchmod(h->fd[s], mode));
	return same_outcome(p, o, "fchmod") && same_fd(p, h);
}

const struct operation file_operations[] = {
	{ "open", 100, op_open },
	{ "close", 12, op_close },
	{ "pwrite", 90, op_pwrite },
	{ "pread", 30, op_pread },
	{ "write", 60, op_write },
	{ "read", 20, op_read },
	{ "lseek", 20, op_lseek },
	{ "seek_data", 15, op_seek_data },
	{ "ftruncate", 25, op_ftruncate },
	{ "fallocate", 25, op_fallocate },
	{ "copy_range", 15, op_copy_range },
	{ "mmap", 30, op_mmap },
	{ "dup", 5, op_dup },
	{ "fsync", 10, op_fsync },
	{ "futimens", 15, op_futimens },
	{ "fchmod", 8, op_fchmod },
	{ NULL, 0, NULL },
};
