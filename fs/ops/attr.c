/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Attributes and the file system's figures. */
#include "fs/ops/private.h"

void ops_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle_ref at HANDLE_CLEANUP = handle_take(req, fi);
	struct core_entry e;
	int r = job_getattr(job_of(req), ino, file_of(at), &e);

	reply_attr(req, r, &e);
}

static unsigned int to_core(int to_set)
{
	static const struct {
		int fuse;
		unsigned int core;
	} map[] = {
		{ FUSE_SET_ATTR_MODE, CORE_SET_MODE },
		{ FUSE_SET_ATTR_UID, CORE_SET_UID },
		{ FUSE_SET_ATTR_GID, CORE_SET_GID },
		{ FUSE_SET_ATTR_SIZE, CORE_SET_SIZE },
		{ FUSE_SET_ATTR_ATIME, CORE_SET_ATIME },
		{ FUSE_SET_ATTR_MTIME, CORE_SET_MTIME },
		{ FUSE_SET_ATTR_ATIME_NOW, CORE_SET_ATIME_NOW },
		{ FUSE_SET_ATTR_MTIME_NOW, CORE_SET_MTIME_NOW },
		{ FUSE_SET_ATTR_CTIME, CORE_SET_CTIME },
	};
	unsigned int set = 0;

	for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		if (to_set & map[i].fuse)
			set |= map[i].core;
	return set;
}

/*
 * Does this request take the setuid bits away? The kernel says so in a flag (chown, truncate); or it asks for nothing at
 * all: that is how it forwards "kill them" from a write that went past us by passthrough.
 */
static bool kills_bits(fuse_req_t req, unsigned int set)
{
	const struct fuse_in_header *in = session_request(session_of(req));
	const struct fuse_setattr_in *arg = (const void *)(in + 1);

	return set == 0 || arg->valid & FATTR_KILL_SUIDGID;
}

void ops_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
	struct handle_ref at HANDLE_CLEANUP = handle_take(req, fi);
	struct job *job = job_of(req);
	unsigned int set = to_core(to_set);
	struct core_entry e;
	int r = 0;

	if (!(set & CORE_SET_MODE) && kills_bits(req, set)) {
		r = job_getattr(job, ino, file_of(at), &e);
		attr->st_mode = r ? 0 : priv_killed(req, &e.attr);
		if (!r && attr->st_mode != e.attr.st_mode)
			set |= CORE_SET_MODE;
	}
	if (!r && set & (CORE_SET_MTIME | CORE_SET_MTIME_NOW) && !(set & CORE_SET_SIZE))
		outside_write_back(ops_of(req)->outside, ino);
	if (!r && set)
		r = job_setattr(job, ino, attr, set, file_of(at), &e);
	if (!r && set & CORE_SET_SIZE)
		reply_sized(req, &e);
	else
		reply_attr(req, r, &e);
}

void ops_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st;
	int r = job_statfs(job_of(req), &st);

	if (r)
		reply_status(req, r);
	else
		fuse_reply_statfs(req, &st);
}
