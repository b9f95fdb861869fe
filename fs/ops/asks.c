/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which requests may wait for others: the backing directory, other nodes. Asked while many wait
 * already: the rest is to have workers (docs/design/waiting.md).
 */
#include <string.h>

#include "fs/ops/private.h"

/* The names of a request begin behind its argument. */
static const char *names_of(const struct fuse_in_header *in)
{
	const char *arg = (const char *)(in + 1);

	switch (in->opcode) {
	case FUSE_MKNOD: return arg + sizeof(struct fuse_mknod_in);
	case FUSE_MKDIR: return arg + sizeof(struct fuse_mkdir_in);
	case FUSE_CREATE: return arg + sizeof(struct fuse_create_in);
	case FUSE_LINK: return arg + sizeof(struct fuse_link_in);
	case FUSE_RENAME: return arg + sizeof(struct fuse_rename_in);
	case FUSE_RENAME2: return arg + sizeof(struct fuse_rename2_in);
	default: return arg;
	}
}

static bool renames_may_ask(struct job *job, const struct fuse_in_header *in)
{
	const struct fuse_rename_in *arg = (const void *)(in + 1); /* the other's begins alike */
	const char *from = names_of(in), *to = from + strlen(from) + 1;

	return job_may_ask(job, in->nodeid, from, false) || job_may_ask(job, arg->newdir, to, false);
}

static bool may_ask_backing(struct job *job, const struct fuse_in_header *in)
{
	switch (in->opcode) {
	case FUSE_LOOKUP:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_CREATE:
	case FUSE_SYMLINK:
	case FUSE_UNLINK:
	case FUSE_RMDIR: return job_may_ask(job, in->nodeid, names_of(in), false);
	case FUSE_LINK:
		return job_may_ask(job, in->nodeid, names_of(in), false) ||
		       job_may_ask(job, ((const struct fuse_link_in *)(in + 1))->oldnodeid, NULL, false);
	case FUSE_RENAME:
	case FUSE_RENAME2: return renames_may_ask(job, in);
	case FUSE_GETATTR: return job_may_ask(job, in->nodeid, NULL, false);
	case FUSE_STATFS: return true;
	case FUSE_OPEN:
	case FUSE_READ:
	case FUSE_SETATTR:
	case FUSE_READLINK:
	case FUSE_OPENDIR:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
	case FUSE_SETXATTR:
	case FUSE_REMOVEXATTR:
	case FUSE_LSEEK:
	case FUSE_FALLOCATE: return job_may_ask(job, in->nodeid, NULL, true);
	default: return false;
	}
}

/*
 * Those that a lock is asked for with need no worker while they wait; and an answer to them goes
 * where the request came from.
 */
static bool may_ask_nodes(const struct fuse_in_header *in)
{
	switch (in->opcode) {
	case FUSE_WRITE:
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
	case FUSE_GETLK:
	case FUSE_SETLK:
	case FUSE_SETLKW:
	case FUSE_INIT:
	case FUSE_DESTROY: return false;
	default: return true;
	}
}

bool ops_may_wait(struct session *s, const struct fuse_in_header *in, void *context)
{
	struct job *job = ((struct ops *)context)->opt.job;

	(void)s;
	return job_is_alone(job) ? may_ask_backing(job, in) : may_ask_nodes(in);
}
