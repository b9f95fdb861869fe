/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_CTL_CTL_H
#define FS_CTL_CTL_H

/* The store's socket: what tools and agents ask of the daemon (format/wire). */

#include <stdatomic.h>

#include "cistern/error.h"
#include "fs/drain/carry.h"
#include "fs/drain/drain.h"
#include "fs/drain/maintain.h"
#include "fs/job/job.h"
#include "fs/peer/peer_agent.h"
#include "fs/session/log.h"

struct ctl;

enum ctl_state { CTL_MOUNTED, CTL_DRAINING, CTL_UNMOUNTED };

struct ctl_options {
	struct store *store; /* all borrowed */
	struct core *core;
	struct drain *drain;
	struct carry *carry; /* this node's share in the job's drains; NULL: one node alone */
	struct maintain *maintain;
	struct job *job;
	struct peer_agent *agent; /* the way to the other nodes; NULL: one node alone */
	const struct config *cfg;
	struct log *log;
	const char *mountpoint;
	const char *recovered; /* what opening the store found; "" */
	const atomic_bool *passthrough;
};

int ctl_create(const struct ctl_options *opt, struct ctl **ret, struct cistern_error *err); /* listens, serves */
void ctl_set_state(struct ctl *c, enum ctl_state state);
/* Closes all connections, after the answers that are being sent, and removes the socket. NULL is fine. */
void ctl_destroy(struct ctl *c);

#endif
