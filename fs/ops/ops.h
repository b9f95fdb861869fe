/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_OPS_OPS_H
#define FS_OPS_OPS_H

/* The door: FUSE requests in, calls of core, exactly one reply out. */

#include "fs/job/job.h"
#include "fs/session/log.h"
#include "fs/session/session.h"

struct ops;

struct ops_options {
	struct job *job;        /* borrowed */
	const char *store_path; /* borrowed: what user.cistern.store says */
	struct log *log;        /* borrowed */
};

int ops_create(const struct ops_options *opt, struct ops **ret);
void ops_destroy(struct ops *o); /* NULL is fine */
/* After the session has ended: releases what a severed connection left open. */
void ops_release_all(struct ops *o);

const struct fuse_lowlevel_ops *ops_table(const struct ops *o); /* valid as long as o */
/* For session_options.raw; context is the ops. */
/* For session_options.may_wait. */
bool ops_may_wait(struct session *s, const struct fuse_in_header *in, void *context);
bool ops_raw(struct session *s, const struct fuse_in_header *in, size_t len, void *context);

#endif
