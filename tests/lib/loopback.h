/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_LOOPBACK_H
#define TESTS_LIB_LOOPBACK_H

/*
 * The daemons of a job in one process: a struct peers for each node, joined by queues. Each node has a thread that hands it what
 * arrives, as the agent's connection would; messages between two nodes keep their order. Fetches read the other node's
 * segments. Everything may be called from any thread, but not from handlers.
 */

#include <stdbool.h>
#include <stdint.h>

#include "format/segment/segment.h"
#include "fs/peer/transport.h"

#define LOOPBACK_ALL UINT32_MAX

struct loopback;

struct loopback_options {
	uint32_t num;               /* nodes */
	bool numbered;              /* as if from an earlier assembly */
	uint64_t timeout_usec;      /* agent_timeout; 0: 60 s */
	uint64_t node_timeout_usec; /* 0: 60 s */
	uint64_t patience_usec;
	uint32_t num_buffers; /* of each node; 0: 8 */
	void (*log)(bool warning, const char *event, const char *text, void *arg);
	void *log_arg;
};

/* No agents are there at first: loopback_assemble(). NULL: out of memory. */
struct loopback *loopback_create(const struct loopback_options *opt);
void loopback_destroy(struct loopback *l); /* shuts all down first */
struct peers *loopback_peers(struct loopback *l, uint32_t node);
/* Whose payload is fetched; NULL: none. Not while something is being fetched from it. */
void loopback_set_segments(struct loopback *l, uint32_t node, struct segment_set *segments);

/* Knobs. */
void loopback_set_delay(struct loopback *l, uint64_t min_usec, uint64_t max_usec, uint64_t seed); /* of each message */
/*
 * The agent of a node hangs: nobody is told, but it sends, takes and gives nothing; what is on its way waits until it goes on, or is
 * lost with the agents.
 */
void loopback_set_hanging(struct loopback *l, uint32_t node, bool hangs);
void loopback_set_deaf(struct loopback *l, uint32_t node, bool deaf); /* it takes nothing, but sends */
/* The link of a node carries nothing any more: it loses its agent, the others hear that it has left. Until loopback_assemble(). */
void loopback_cut(struct loopback *l, uint32_t node);
/* The agent of a node, or of all, dies: whatever was on its way from or to it is lost. */
void loopback_lose(struct loopback *l, uint32_t node);
/* Agents for all nodes: again those that are lost. */
void loopback_assemble(struct loopback *l);
/* A node's reply to the next request of that type (0: its next reply) vanishes, and the agents of all with it. */
void loopback_lose_at_reply(struct loopback *l, uint32_t from, uint16_t type);
/* Waits until it has. */
void loopback_await_loss(struct loopback *l, uint32_t from);
/* A node's reply to the next request of that type, but for skip, is held up, as is no other message, until it is let go. One at a time. */
void loopback_hold_reply(struct loopback *l, uint32_t from, uint16_t type, unsigned int skip);
/* So is its next request of that type to another node, and with it all that comes behind it on that way; also that its daemon has left, and joins. */
void loopback_hold_request(struct loopback *l, uint32_t from, uint32_t to, uint16_t type);
void loopback_await_held(struct loopback *l, uint32_t from); /* waits until it has replied, or asked */
void loopback_let_go(struct loopback *l, uint32_t from);
/*
 * The daemon of a node dies; its agent and the others live on. Nothing reaches its peers any more, which stay valid until another
 * daemon begins: loopback_restart.
 */
void loopback_kill(struct loopback *l, uint32_t node);
/*
 * Another daemon for a node: its old struct peers is destroyed, and a new one made. When it still lived, it dies, with the agents of all.
 * Set the new one's hooks, then loopback_assemble().
 */
void loopback_restart(struct loopback *l, uint32_t node);
/* The daemon of a node ends for good: its peers are shut down, but not destroyed. */
void loopback_end(struct loopback *l, uint32_t node);
/* Waits until nothing is on its way, but what a hanging agent holds up, or is held, and nobody works on what arrived. */
void loopback_settle(struct loopback *l);

#endif
