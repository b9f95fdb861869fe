/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_AGENT_H
#define FS_DRAIN_AGENT_H

/* The agent's process: found, started, waited for. */

#include <sys/types.h>

#include "cistern/error.h"

struct agent;

struct agent_options {
	const char *command;     /* "drain"; "undo" */
	const char *snapshot;    /* of the store, for who asks no daemon for one; NULL: none */
	const char *store_path;  /* borrowed during the call, like all strings */
	const char *libexec_dir; /* where it was installed */
	int memory_fd;           /* of what other nodes' payload is fetched into; borrowed; -1: there are none */
	int backing_fd; /* of the backing directory, which a mount may hide; borrowed; -1: it opens the path itself */
	int output_fd;  /* its stdout and stderr; borrowed; -1: none */
	/* Called once, from a thread of the agent's own, when the process has ended: as waitpid(2) says it. */
	void (*ended)(int status, void *arg);
	void *arg;
};

/* Finds cistern-agent in $CISTERN_LIBEXEC (colon-separated), libexec_dir, next to ourselves and in ../mpi-agent. -ENOENT names all. */
int agent_start(const struct agent_options *opt, struct agent **ret, struct cistern_error *err);
pid_t agent_pid(const struct agent *a);
void agent_kill(struct agent *a, int signal); /* nothing when it has ended */
void agent_destroy(struct agent *a);          /* waits for its end; not from ended(); NULL is fine */

#endif
