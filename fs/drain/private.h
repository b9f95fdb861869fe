/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_PRIVATE_H
#define FS_DRAIN_PRIVATE_H

/* The manager's state; drain.c decides, attempt.c serves the agent, status.c tells. */

#include <pthread.h>
#include <stdatomic.h>

#include "fs/drain/agent.h"
#include "fs/drain/drain.h"
#include "fs/drain/errors.h"
#include "fs/drain/machine.h"
#include "fs/drain/request.h"
#include "fs/drain/yield.h"

/* One life of one agent. A session has several when agents die. */
struct attempt {
	struct agent *agent; /* owned; the manager's thread only */
	bool exited;
	int status;            /* of its process */
	bool open;             /* space is pinned, core in a session; from begin until its process has ended */
	int agent_status;      /* status, when agent, exited, killed and deadline_usec are those of what takes back */
	const void *owner;     /* its connection; NULL before it came */
	bool killed;           /* by us */
	int64_t deadline_usec; /* STARTING: to begin; ENDING: to exit */
	bool has_result;
	enum cistern_exit result;
	char text[CISTERN_ERROR_TEXT_BYTES];
	char snapshot[64];      /* "" = none */
	char undo_snapshot[64]; /* likewise, for what takes back */
};

struct drain {
	struct drain_options opt;
	pthread_t thread;
	int wake_fd;        /* eventfd: look again */
	int event_fd;       /* eventfd: a session has ended */
	atomic_bool wanted; /* by drain_want() since the manager last looked */

	pthread_mutex_t lock;
	pthread_cond_t changed; /* a session has ended, or all is over; CLOCK_MONOTONIC */
	/* all below under lock */
	enum drain_state state;
	struct drain_request *current, *pending; /* owned */
	uint64_t next_id, last_id;
	struct drain_results results;
	enum cistern_exit last_result;
	struct drain_errors errors;
	struct wire_shared_list shared; /* of the running part, or the last one */
	struct manifest_totals totals;  /* likewise */
	struct drain_progress progress;
	struct attempt attempt;
	bool paused, final, stop, shut_down;
	bool cancel;             /* of the current session */
	bool cancel_final;       /* somebody wants the end now */
	unsigned int deaths;     /* of the current session's agents, in a row without progress */
	int64_t retry_usec;      /* WAITING: until then */
	bool background;         /* a session of our own is wanted */
	bool to_low_water;       /* it was the water mark, so the low one ends it */
	unsigned int failures;   /* of background sessions in a row */
	int64_t background_usec; /* none before */
	int64_t low_check_usec;
	struct yield yield;         /* whether applications write */
	unsigned int share_percent; /* what the running session was told last */
};

void drain_wake(struct drain *d);
/* lock held. Applies event; false when it means nothing now. */
bool drain_post(struct drain *d, enum drain_event event);
/* lock not held. Once its agent's process has ended: nothing is done in the backing directory any more. */
void drain_close_attempt(struct drain *d);
void drain_remove_snapshot(struct drain *d, const char *name); /* "" = none */

#endif
