/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Replies. The kernel may refuse one (the caller was killed, the connection has ended): then it holds no reference to
 * the inode of an entry, and the lookup is given back.
 */
#include <string.h>

#include "format/place/shown.h"
#include "fs/ops/private.h"

void reply_status(fuse_req_t req, int r)
{
	fuse_reply_err(req, -r);
}

void reply_count(fuse_req_t req, ssize_t n)
{
	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else
		fuse_reply_write(req, (size_t)n);
}

/* As programs see it. The kernel goes by the nodeid alone. */
static struct stat shown_attr(const struct core_entry *e)
{
	struct stat st = e->attr;

	st.st_ino = shown_number(st.st_ino);
	return st;
}

struct fuse_entry_param reply_make_param(const struct core_entry *e)
{
	return (struct fuse_entry_param){
		.ino = e->ino,
		.generation = e->gen,
		.attr = shown_attr(e),
		.attr_timeout = e->attr_timeout_sec,
		.entry_timeout = e->entry_timeout_sec,
	};
}

void reply_entry(fuse_req_t req, int r, struct core_entry *e)
{
	struct job *job = job_of(req);
	struct fuse_entry_param param;

	if (r) {
		fuse_reply_err(req, -r);
		return;
	}
	outside_look(ops_of(req)->outside, e);
	param = reply_make_param(e);
	if (fuse_reply_entry(req, &param) != 0)
		job_forget(job, e->ino, 1);
}

static void reply_shown(fuse_req_t req, const struct core_entry *e)
{
	struct stat st = shown_attr(e);

	fuse_reply_attr(req, &st, e->attr_timeout_sec);
}

void reply_sized(fuse_req_t req, const struct core_entry *e)
{
	outside_sized(ops_of(req)->outside, e);
	reply_shown(req, e);
}

void reply_attr(fuse_req_t req, int r, struct core_entry *e)
{
	if (r) {
		fuse_reply_err(req, -r);
		return;
	}
	outside_look(ops_of(req)->outside, e);
	reply_shown(req, e);
}

struct kernel_open_out reply_make_open(
	const struct ops *o, struct session *s, struct handle *h, struct core_open_reply *open)
{
	h->outside = outside_open(o->outside, s, h->ino, open);
	h->direct = open->direct_io;

	/* NOFLUSH: nothing is kept back until close, so close has nothing to wait for. Other nodes, though, wait for a close. */
	struct kernel_open_out out = { .fh = (uintptr_t)h, .open_flags = job_is_alone(o->opt.job) ? FOPEN_NOFLUSH : 0 };

	if (open->direct_io)
		out.open_flags |= FOPEN_DIRECT_IO;
	if (open->direct_io && open->parallel)
		out.open_flags |= FOPEN_PARALLEL_DIRECT_WRITES;
	if (open->backing_id > 0) {
		out.open_flags |= FOPEN_PASSTHROUGH;
		out.backing_id = open->backing_id;
	} else if (open->keep_cache) { /* the kernel takes KEEP_CACHE beside PASSTHROUGH for an error */
		out.open_flags |= FOPEN_KEEP_CACHE;
	}
	return out;
}

static void put_timeout(double sec, uint64_t *ret_sec, uint32_t *ret_nsec)
{
	if (sec < 0)
		sec = 0;
	if (sec > 1e9)
		sec = 1e9;
	*ret_sec = (uint64_t)sec;
	*ret_nsec = (uint32_t)((sec - (double)*ret_sec) * 1e9);
}

struct fuse_entry_out reply_make_entry(const struct core_entry *e)
{
	const struct stat *st = &e->attr;
	struct fuse_entry_out out = {
		.nodeid = e->ino,
		.generation = e->gen,
		.attr = {
			.ino = shown_number(st->st_ino),
			.size = (uint64_t)st->st_size,
			.blocks = (uint64_t)st->st_blocks,
			.atime = (uint64_t)st->st_atim.tv_sec,
			.mtime = (uint64_t)st->st_mtim.tv_sec,
			.ctime = (uint64_t)st->st_ctim.tv_sec,
			.atimensec = (uint32_t)st->st_atim.tv_nsec,
			.mtimensec = (uint32_t)st->st_mtim.tv_nsec,
			.ctimensec = (uint32_t)st->st_ctim.tv_nsec,
			.mode = st->st_mode,
			.nlink = (uint32_t)st->st_nlink,
			.uid = st->st_uid,
			.gid = st->st_gid,
			.rdev = (uint32_t)st->st_rdev,
			.blksize = (uint32_t)st->st_blksize,
		},
	};

	put_timeout(e->entry_timeout_sec, &out.entry_valid, &out.entry_valid_nsec);
	put_timeout(e->attr_timeout_sec, &out.attr_valid, &out.attr_valid_nsec);
	return out;
}
