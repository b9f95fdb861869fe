/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_SESSION_LAUNCH_H
#define FS_SESSION_LAUNCH_H

/* Becoming a daemon, and telling whoever started it how that went. Call launch_begin() before any thread is started. */

#include <stdbool.h>

#include "cistern/error.h"

struct launch {
	bool foreground;
	int ready_fd;  /* owned; where the line goes; -1: nobody asked */
	int parent_fd; /* owned; to the waiting parent; -1: none */
	int signal_fd; /* owned; SIGTERM, SIGINT and SIGHUP are read from here */
};

/*
 * In the background: forks, and the parent does not return but waits for the line and exits with its status. The caller
 * goes on as the child, in a session of its own, with / as directory and umask 0. Signals are blocked and come
 * through signal_fd; the limit of descriptors is raised, and, for root, the daemon is spared when memory is short.
 */
int launch_begin(struct launch *l, bool foreground, int ready_fd, struct cistern_error *err);
void launch_ready(
	struct launch *l, const char *recovered, int log_fd); /* "ok" or "ok recovered: TEXT"; stderr becomes the log */
void launch_failed(struct launch *l, enum cistern_exit status, const char *text); /* "E STATUS TEXT" */

#endif
