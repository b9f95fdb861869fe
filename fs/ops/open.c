/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Opening. The answers are built here in the kernel's own layout, because backing ids and the newer FOPEN flags are
 * unknown to libfuse; O_TMPFILE, which it does not know at all, is taken from the raw request.
 */
#include <fcntl.h>
#include <string.h>

#include "fs/ops/private.h"

/* O_TRUNC by somebody without the right to keep setuid bits. */
static bool open_kills_bits(fuse_req_t req)
{
	const struct fuse_in_header *in = session_request(session_of(req));
	const struct kernel_open_in *arg = (const void *)(in + 1);

	return arg->open_flags & FUSE_OPEN_KILL_SUIDGID;
}

void ops_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ops *o = ops_of(req);
	struct core_open_reply open;
	struct kernel_open_out out;
	struct handle *h = handle_new(o, ino);
	int r = h ? job_open(o->opt.job, ino, fi->flags, &h->file, &open) : -ENOMEM;

	if (r) {
		if (h)
			handle_put(o, h);
		reply_status(req, r);
		return;
	}
	if (fi->flags & O_TRUNC && open_kills_bits(req))
		priv_kill_bits(req, ino);
	out = reply_make_open(o, session_of(req), h, &open);
	if (fuse_reply_buf(req, (const char *)&out, sizeof(out)) != 0)
		handle_put(o, h);
}

void ops_create_file(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct ops *o = ops_of(req);
	struct core_open_reply open;
	struct core_entry e;
	struct kernel_create_out out;
	struct handle *h = handle_new(o, 0);
	int r = h ? job_create_file(o->opt.job, parent, name, mode, fi->flags, cred_of(req), &e, &h->file, &open)
		  : -ENOMEM;

	if (r) {
		if (h)
			handle_put(o, h);
		reply_status(req, r);
		return;
	}
	h->ino = e.ino;
	out = (struct kernel_create_out){ .entry = reply_make_entry(&e),
		.open = reply_make_open(o, session_of(req), h, &open) };
	if (fuse_reply_buf(req, (const char *)&out, sizeof(out)) != 0) {
		handle_put(o, h);
		job_forget(o->opt.job, e.ino, 1);
	}
}

void ops_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	lock_released(ops_of(req), handle_of(fi), fi);
	handle_put(ops_of(req), handle_of(fi));
	reply_status(req, 0);
}

/* TMPFILE has CREATE's argument and answer; the name that follows means nothing. */
static int open_tmpfile(struct ops *o, struct session *s, const struct fuse_in_header *in, size_t len,
	struct kernel_create_out *out, struct handle **ret)
{
	const struct fuse_create_in *arg = (const void *)(in + 1);
	struct core_cred cred = { .uid = in->uid, .gid = in->gid, .pid = (pid_t)in->pid };
	struct core_open_reply open;
	struct core_entry e;
	struct handle *h;
	int r;

	if (len < sizeof(*in) + sizeof(*arg))
		return -EINVAL;
	h = handle_new(o, 0);
	if (!h)
		return -ENOMEM;
	r = job_tmpfile(o->opt.job, in->nodeid, arg->mode, (int)arg->flags, cred, &e, &h->file, &open);
	if (r) {
		handle_put(o, h);
		return r;
	}
	h->ino = e.ino;
	*out = (struct kernel_create_out){ .entry = reply_make_entry(&e), .open = reply_make_open(o, s, h, &open) };
	*ret = h;
	return 0;
}

bool ops_raw(struct session *s, const struct fuse_in_header *in, size_t len, void *context)
{
	struct ops *o = context;
	struct kernel_create_out out;
	struct handle *h = NULL;
	uint64_t ino;
	int r;

	if (in->opcode != KERNEL_OP_TMPFILE)
		return false;
	r = open_tmpfile(o, s, in, len, &out, &h);
	ino = h ? h->ino : 0;
	if (session_reply_raw(s, in->unique, r, &out, sizeof(out)) != 0 && h) {
		handle_put(o, h);
		job_forget(o->opt.job, ino, 1);
	}
	return true;
}
