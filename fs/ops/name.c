/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Names: looking up, making, moving and removing them. */
#include <limits.h>

#include "fs/ops/private.h"

void ops_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct core_entry e = { 0 };
	int r = job_lookup(job_of(req), parent, name, &e);

	if (r == -ENOENT && e.entry_timeout_sec > 0) { /* inode 0: "no such name", and the kernel may remember it */
		struct fuse_entry_param none = { .ino = 0, .entry_timeout = e.entry_timeout_sec };

		fuse_reply_entry(req, &none);
		return;
	}
	reply_entry(req, r, &e);
}

void ops_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	job_forget(job_of(req), ino, nlookup);
	fuse_reply_none(req);
}

void ops_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		job_forget(job_of(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

void ops_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[PATH_MAX];
	int r = job_readlink(job_of(req), ino, target, sizeof(target));

	if (r)
		reply_status(req, r);
	else
		fuse_reply_readlink(req, target);
}

void ops_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct core_entry e;
	int r = job_mknod(job_of(req), parent, name, mode, rdev, cred_of(req), &e);

	reply_entry(req, r, &e);
}

void ops_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct core_entry e;
	int r = job_mkdir(job_of(req), parent, name, mode, cred_of(req), &e);

	reply_entry(req, r, &e);
}

void ops_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct core_entry e;
	int r = job_symlink(job_of(req), parent, name, target, cred_of(req), &e);

	reply_entry(req, r, &e);
}

void ops_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct core_entry e;
	int r = job_link(job_of(req), ino, parent, name, &e);

	reply_entry(req, r, &e);
}

void ops_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	reply_status(req, job_unlink(job_of(req), parent, name));
}

/* As a job says it: such a call may have to come twice. */
static int announce(fuse_req_t req, const uint64_t dir[2], const char *const name[2])
{
	return job_announce(job_of(req), fuse_req_ctx(req)->pid, dir, name);
}

static void reply_announced(fuse_req_t req, int r)
{
	job_announce_end(job_of(req), fuse_req_ctx(req)->pid);
	reply_status(req, r);
}

void ops_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	int r = announce(req, (uint64_t[2]){ parent }, (const char *[2]){ name, "" });

	if (r)
		reply_status(req, r);
	else
		reply_announced(req, job_rmdir(job_of(req), parent, name));
}

void ops_rename(fuse_req_t req, fuse_ino_t from_parent, const char *from, fuse_ino_t parent, const char *name,
	unsigned int flags)
{
	int r = announce(req, (uint64_t[2]){ from_parent, parent }, (const char *[2]){ from, name });

	if (r)
		reply_status(req, r);
	else
		reply_announced(req, job_rename(job_of(req), from_parent, from, parent, name, flags));
}
