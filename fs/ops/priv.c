/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Writing to a file, cutting it or giving it away takes its setuid and setgid bits and its capabilities. With
 * FUSE_HANDLE_KILLPRIV_V2 that is our duty where the kernel says so in the request; without it the kernel would ask
 * for security.capability before every write. libfuse does not hand these request flags on, so they are read from the
 * request itself.
 */
#include "fs/ops/private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPS_XATTR "security.capability"
#define GROUPS_KEY "Groups:"

/* Of a line "Groups:\t4 24 27". libfuse's own function reads behind its buffer. */
static bool has_group(pid_t pid, gid_t gid)
{
	char path[64], *line = NULL, *at, *end;
	size_t cap = 0;
	bool has = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && getline(&line, &cap, f) > 0) {
		if (strncmp(line, GROUPS_KEY, strlen(GROUPS_KEY)) != 0)
			continue;
		for (at = line + strlen(GROUPS_KEY); !has; at = end) {
			unsigned long group = strtoul(at, &end, 10);

			if (end == at)
				break;
			has = group == gid;
		}
		break;
	}
	free(line);
	if (f)
		fclose(f);
	return has;
}

/* Root may keep the bit; of anybody else the kernel has said that he has no such capability. */
static bool is_member(fuse_req_t req, gid_t gid)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return ctx->uid == 0 || ctx->gid == gid || has_group(ctx->pid, gid);
}

mode_t priv_killed(fuse_req_t req, const struct stat *st)
{
	mode_t mode = st->st_mode;

	if (!S_ISREG(mode))
		return mode;
	mode &= ~(mode_t)S_ISUID;
	/* Without execution for the group it once meant mandatory locking: it goes where a stranger to the group writes. */
	if (mode & S_ISGID && (mode & S_IXGRP || !is_member(req, st->st_gid)))
		mode &= ~(mode_t)S_ISGID;
	return mode;
}

void priv_kill_bits(fuse_req_t req, uint64_t ino)
{
	struct core_entry e;
	struct stat attr = { 0 };

	if (job_getattr(job_of(req), ino, NULL, &e))
		return;
	attr.st_mode = priv_killed(req, &e.attr);
	if (attr.st_mode == e.attr.st_mode)
		return;
	if (job_setattr(job_of(req), ino, &attr, CORE_SET_MODE, NULL, &e) == 0)
		session_invalidate(session_of(req), ino, false);
}

void priv_before_write(fuse_req_t req, struct handle *h)
{
	const struct fuse_in_header *in = session_request(session_of(req));
	const struct fuse_write_in *arg = (const void *)(in + 1);

	if (arg->write_flags & FUSE_WRITE_KILL_SUIDGID)
		priv_kill_bits(req, h->ino);
	if (h->caps_killed) /* looked after once per open file */
		return;
	h->caps_killed = true;
	if (job_getxattr(job_of(req), h->ino, CAPS_XATTR, NULL, 0) > 0)
		job_removexattr(job_of(req), h->ino, CAPS_XATTR);
}
