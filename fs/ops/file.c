/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Data. Nothing is copied here: a WRITE's payload goes to core from where the kernel put it, a READ is answered from
 * the worker's own memory, or from where the bytes are.
 */
#include <limits.h>
#include <linux/falloc.h>

#include "fs/ops/private.h"

void ops_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct handle_ref at HANDLE_CLEANUP = handle_take(req, fi);
	void *buf = session_reply_buffer(session_of(req));
	bool pages = !fi->lock_owner; /* no process reads: they are filled */
	struct job_bytes where;
	ssize_t n;

	if (size > SESSION_DATA_BYTES)
		size = SESSION_DATA_BYTES;
	if (pages)
		outside_read_begins(at.h->outside);
	n = job_read_bytes(job_of(req), file_of(at), !pages, buf, size, (uint64_t)off, &where);
	if (pages)
		outside_read_ended(at.h->outside, n, size, (uint64_t)off);
	if (n >= 0 && pages)
		job_pages_given(job_of(req), file_of(at), where.at, (size_t)n, size, (uint64_t)off);
	if (n < 0)
		reply_status(req, (int)n);
	else
		fuse_reply_buf(req, where.at, (size_t)n);
	job_bytes_end(&where);
}

/* direct: the kernel holds none of the file's pages. */
static void written(struct handle_ref at, ssize_t r, bool direct)
{
	if (r >= 0)
		outside_written(at.o->outside, at.h->outside, direct);
}

/* The kernel writes back what was stored into a mapping. */
static ssize_t write_page(fuse_req_t req, struct handle_ref at, const char *buf, size_t size, uint64_t off)
{
	size_t after, len = outside_page_cut(at.h->outside, size, off, &after);
	ssize_t n = job_write_page(job_of(req), file_of(at), buf, len, off);

	if (n < 0 || len == size || (size_t)n < len)
		return n;
	if (after < size)
		n = job_write_page(job_of(req), file_of(at), buf + after, size - after, off + after);
	return n < 0 ? n : (ssize_t)size;
}

static ssize_t write_bytes(fuse_req_t req, struct handle_ref at, const char *buf, size_t size, uint64_t off)
{
	writer_note(req, at.h);
	if (at.h->direct) /* else the kernel holds pages locked */
		outside_grows(at.o->outside, at.h->outside, off, off + size);
	ssize_t n = job_write(job_of(req), file_of(at), buf, size, off);
	if (n > 0)
		outside_wrote(at.h->outside, off, off + (size_t)n);
	return n;
}

void ops_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct handle_ref at HANDLE_CLEANUP = handle_take(req, fi);

	priv_before_write(req, at.h);
	ssize_t n = fi->writepage ? write_page(req, at, buf, size, (uint64_t)off)
				  : write_bytes(req, at, buf, size, (uint64_t)off);
	written(at, n, !fi->writepage && at.h->direct);
	reply_count(req, n);
}

/* Asked at close(2), in a job of many nodes only (reply_make_open); a kernel that asks all the same is told not to. */
void ops_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle_ref at HANDLE_CLEANUP = handle_take(req, fi);
	struct job *job = job_of(req);
	int r = job_is_alone(job) ? -ENOSYS : job_flush(job, file_of(at));

	lock_flushed(ops_of(req), at.h, fi->lock_owner);
	reply_status(req, r);
}

void ops_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
	struct handle_ref at HANDLE_CLEANUP = handle_take(req, fi);

	reply_status(req, job_fsync(job_of(req), ino, file_of(at), data_only != 0));
}

void ops_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	struct handle_ref at HANDLE_CLEANUP = handle_take(req, fi);

	if (!(mode & FALLOC_FL_KEEP_SIZE))
		outside_grows(at.o->outside, at.h->outside, UINT64_MAX, (uint64_t)off + (uint64_t)len);
	int r = job_fallocate(job_of(req), file_of(at), mode, (uint64_t)off, (uint64_t)len);

	written(at, r, true);
	reply_status(req, r);
}

void ops_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct handle_ref at HANDLE_CLEANUP = handle_take(req, fi);
	uint64_t found;
	int r = job_lseek(job_of(req), file_of(at), off, whence, &found);

	if (r)
		reply_status(req, r);
	else
		fuse_reply_lseek(req, (off_t)found);
}

void ops_copy_file_range(fuse_req_t req, fuse_ino_t from_ino, off_t from_off, struct fuse_file_info *from_fi,
	fuse_ino_t to_ino, off_t to_off, struct fuse_file_info *to_fi, size_t len, int flags)
{
	struct handle_ref to HANDLE_CLEANUP = handle_hold(req, to_fi), from HANDLE_CLEANUP = handle_take(req, from_fi);

	if (len > INT32_MAX) /* the answer has 32 bits */
		len = INT32_MAX;
	outside_grows(to.o->outside, to.h->outside, (uint64_t)to_off, (uint64_t)to_off + len);
	ssize_t n = job_copy_range(job_of(req), file_of(from), (uint64_t)from_off, file_of(to), (uint64_t)to_off, len);
	if (n > 0)
		outside_wrote(to.h->outside, (uint64_t)to_off, (uint64_t)to_off + (size_t)n);
	written(to, n, true);
	reply_count(req, n);
}

void ops_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg, struct fuse_file_info *fi,
	unsigned int flags, const void *in_buf, size_t in_len, size_t out_len)
{
	reply_status(req, -ENOTTY);
}
