/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_PEER_TRANSPORT_H
#define FS_PEER_TRANSPORT_H

/*
 * What carries messages between daemons, and what it owes to who uses it: messages to one node arrive in the order in which
 * they were sent, whole, each at most once, until the agents are lost; then some of the last ones do not. What arrives is
 * told by the functions below, by one thread at a time and without locks that a send or get takes.
 */

#include "fs/peer/peer.h"

struct peers_transport_ops {
	/*
	 * Queues head and body (copied) as one message to a node other than ourselves. Never blocks; called under a lock: takes only
	 * leaf locks and calls nothing here. -ENOTCONN: nothing was queued, and peers_lost() comes or came. No other error: out of
	 * memory is an agent lost.
	 */
	int (*send)(void *transport, uint32_t node, const struct buf *head, const void *body, size_t body_len);
	/* Fetches all into memory at to; peers_got() with that id tells the end, or peers_lost(). Otherwise as send. */
	int (*get)(void *transport, uint64_t id, uint8_t *to, const struct peers_get *gets, size_t num);
	/* The memory that gets may fill, for the transport's life. */
	uint8_t *(*memory)(void *transport, size_t *ret_bytes);
	/* Why there is no assembly, for people, in cap bytes. NULL: nothing is known. */
	void (*lacks)(void *transport, char *text, size_t cap);
};

struct peers_options {
	const struct peers_transport_ops *ops;
	void *transport;            /* borrowed */
	uint64_t incarnation;       /* of this daemon; not 0, higher than that of the store's last one */
	uint32_t self, count;       /* the store's number from an earlier assembly; 0 of 0 or 1: none yet */
	uint64_t timeout_usec;      /* agent_timeout */
	uint64_t node_timeout_usec; /* node_timeout */
	uint64_t patience_usec;     /* how long a call waits before the log tells so; 0: 10 s */
	/* One line of the log. Any thread, no locks. NULL is fine. */
	void (*log)(bool warning, const char *event, const char *text, void *arg);
	void *log_arg;
};

int peers_create(const struct peers_options *opt, struct peers **ret);
/* Where a node was in an earlier assembly, for messages until the next. Before anybody else has the peers. */
void peers_set_host(struct peers *p, uint32_t node, const char *host);

/* ---- told by the transport */
struct peers_assembly {
	uint32_t self, count;
	const uint64_t *incarnations; /* of count daemons; 0: that node's daemon is not there */
	const char *const *names;     /* of count hosts */
};
/* Again after each assembly. -EINVAL: not the numbers that we had before; nothing has changed. -ENOMEM. */
int peers_assembled(struct peers *p, const struct peers_assembly *a);
void peers_lost(struct peers *p);
void peers_left(struct peers *p, uint32_t node);                         /* its daemon has gone, the agents are there */
void peers_joined(struct peers *p, uint32_t node, uint64_t incarnation); /* it has a daemon again */
void peers_received(struct peers *p, uint32_t from, const void *bytes, size_t len); /* borrowed for the call */
void peers_got(struct peers *p, uint64_t id, int status);

#endif
