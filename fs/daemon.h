/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DAEMON_H
#define FS_DAEMON_H

/* The daemon of one mount: its parts, in the order in which they are made (main.c says why). From its first thread only, but where said. */

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cistern/error.h"
#include "format/base/config.h"
#include "format/store/store.h"
#include "fs/core/core.h"
#include "fs/ctl/ctl.h"
#include "fs/drain/carry.h"
#include "fs/drain/drain.h"
#include "fs/drain/maintain.h"
#include "fs/ops/ops.h"
#include "fs/peer/peer_agent.h"
#include "fs/session/launch.h"
#include "fs/session/log.h"
#include "fs/session/place.h"
#include "fs/session/session.h"
#include "fs/session/watch.h"

struct daemon {
	char backing[PATH_MAX], mountpoint[PATH_MAX], store_path[PATH_MAX];
	char recovered[CISTERN_ERROR_TEXT_BYTES];
	bool foreground;
	int ready_fd;
	struct launch launch;
	struct watch watch;
	struct place place;
	struct config *cfg; /* all owned */
	struct log *log;
	int backing_fd;
	struct store *store;
	struct core *core;
	struct peer_agent *agent;      /* NULL: one node alone */
	_Atomic(struct carry *) carry; /* likewise */
	struct job *job;
	struct ops *ops;
	struct drain *drain;
	struct maintain *maintain;
	struct ctl *ctl;
	_Atomic(struct session *) session; /* core's hooks look at it from any thread */
	_Atomic(struct maintain *) poked;
	_Atomic(struct drain *) drains;
	_Atomic(unsigned int) unreadable; /* how often reads have failed for what the log does not give back */
	atomic_bool passthrough;
	unsigned int signals; /* received */
};

/* Settings and paths from the command line; the backing directory is open then, but as daemon_open_backing() says. Text in err. */
int daemon_parse(struct daemon *d, int argc, char **argv, struct cistern_error *err);
/* Opens it; of an ordinary user under a dead mount it stays closed (-1), and that is no error. Text in err. */
int daemon_open_backing(struct daemon *d, struct cistern_error *err);
/* From the store to the mount. Text in err; what has been made stays for daemon_tear_down(). */
int daemon_build(struct daemon *d, struct cistern_error *err);
/* Everything that uses the store, in the reverse order of daemon_build(); any part may be missing. */
void daemon_tear_down(struct daemon *d);

#endif
