/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_PEER_PEER_AGENT_H
#define FS_PEER_PEER_AGENT_H

/*
 * The node's agent as the way to the other nodes: makes the struct peers of the daemon, and serves the connection of the agent
 * (format/wire: WIRE_AGENT_*, WIRE_PEER_*), one at a time. When one has died, the next is not let in before its process is gone,
 * since it might still write into the shared memory.
 */

#include <sys/types.h>

#include "format/base/config.h"
#include "format/store/store.h"
#include "fs/peer/peer.h"

struct peer_agent;

struct peer_agent_options {
	struct store *store;                      /* borrowed; gets its numbers at the first assembly */
	uint32_t nodes;                           /* how many the job has; > 1 */
	uint64_t timeout_usec, node_timeout_usec; /* agent_timeout, node_timeout */
	const char *version;                      /* of this daemon; borrowed */
	/* One line of the log. Any thread, no locks. NULL is fine. */
	void (*log)(bool warning, const char *event, const char *text, void *arg);
	void *log_arg;
};

int peer_agent_create(const struct peer_agent_options *opt, struct peer_agent **ret, struct cistern_error *err);
struct peers *peer_agent_peers(struct peer_agent *a); /* lives as long as a */
int peer_agent_memory_fd(const struct peer_agent *a); /* of what buffers lie in; borrowed */
/*
 * Serves the connection fd, which began with the request hello (WIRE_AGENT_HELLO), until it ends or is shut down for reading; what is
 * queued for the agent goes out before this returns. In the calling thread, which is the transport's. fd stays the caller's.
 */
void peer_agent_serve(struct peer_agent *a, int fd, const struct wire_msg *hello);
void peer_agent_destroy(struct peer_agent *a); /* no connection may be served any more; NULL is fine */

struct peer_agent_status {
	bool numbered, assembled;
	uint32_t node, nodes;
	pid_t pid;                              /* of the agent; 0: there is none */
	uint64_t since_usec;                    /* how long it has been so, assembled or not */
	char refused[CISTERN_ERROR_TEXT_BYTES]; /* why the last set of stores was refused; "" */
};
void peer_agent_status(struct peer_agent *a, struct peer_agent_status *ret);

#endif
