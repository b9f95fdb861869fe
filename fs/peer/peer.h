/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_PEER_PEER_H
#define FS_PEER_PEER_H

/*
 * The other nodes of the job, as the daemon sees them: requests and replies between daemons, and payload out of other
 * nodes' segments. How they travel is the transport's business: the node's agent (peer_agent.c), or plain calls within
 * one process (tests). docs/design/many-nodes.md, 2.
 *
 * Any function may be called from any thread, with no lock of the caller's that a handler or a done() takes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/base/clock.h"
#include "format/wire/wire.h"

struct peers;
struct peers_request; /* a request that arrived; lives until it is answered */

/*
 * Answers one request, or keeps it and answers later; never blocks, never calls a node and waits. Runs in the transport's
 * thread, for requests to oneself in the caller's (so in several at once); requests of one node arrive in the order in
 * which they were sent.
 */
typedef void (*peers_handler)(struct peers_request *rq, void *arg);

uint32_t peers_from(const struct peers_request *rq); /* node index of who asks */
/* Whether whoever asked may still hear of it: false when that daemon has gone, or has given up waiting. Before the reply. */
bool peers_is_wanted(const struct peers_request *rq);
const struct wire_msg *peers_msg(const struct peers_request *rq); /* borrowed until the reply */
/*
 * Exactly once for each request, from any thread; for one that was told (peers_tell) too, whose reply goes nowhere. The
 * request is gone then. reply: as wire replies are, WIRE_STATUS first; copied.
 */
void peers_reply(struct peers_request *rq, const struct wire_msg *reply);
void peers_reply_status(struct peers_request *rq, int64_t status); /* WIRE_STATUS alone */

enum peers_event {
	PEERS_ASSEMBLED, /* we have a number, and an agent; node = ours. Again after each new assembly */
	PEERS_LOST,      /* our agent has gone: nothing travels until the next PEERS_ASSEMBLED */
	PEERS_RESTARTED, /* node's daemon is another one than before: what it kept in memory is gone. Or one that was gone is back */
	PEERS_GONE /* node's daemon has ended for good, or the node was given up */
};

struct peers_hooks { /* set before the first event; events come in the transport's or the timer's thread, one at a time, in their order; must not block */
	peers_handler handle;
	void (*event)(enum peers_event event, uint32_t node, void *arg);
	void *arg;
	struct clock *clock; /* borrowed; NULL: none. Goes with every message, and is set by those of others */
};
void peers_set_hooks(struct peers *p, const struct peers_hooks *hooks);

/* ---- who we are. Before the first assembly: 0 of 1, false. */
bool peers_numbered(struct peers *p); /* this store has its number (it keeps it for life) */
uint32_t peers_self(struct peers *p);
uint32_t peers_count(struct peers *p);
int64_t peers_time_ns(struct peers *p); /* of the hooks' clock: later than all that was heard; 0: there is none */
/* Waits until the store is numbered, at most for usec, and for the time-out; -ETIMEDOUT then, with the text for people. */
int peers_wait_numbered(struct peers *p, uint64_t usec, struct cistern_error *err);
/* Name of a node for messages: "node 2 (host cn17)". */
const char *peers_name(struct peers *p, uint32_t node, char *out, size_t cap);

#define PEERS_HOST_BYTES 80
struct peers_node { /* what is known of a node */
	uint32_t node;
	char host[PEERS_HOST_BYTES]; /* "": not known */
	bool present;                /* it can be reached, or it is we */
	bool gone;                   /* its daemon has ended for good, or it was given up */
	bool silent;                 /* a call to it ran out of time without a word of it, and none has come since */
	uint64_t missing_usec;       /* how long the others have been without it; 0: they are not, or nobody knows */
	uint64_t incarnation;        /* of its daemon, the last that was there; 0: not known */
	/* of one that peers_slow() names, else 0 */
	uint32_t num_owed;    /* requests of ours that it has not answered */
	uint64_t owed_usec;   /* how long the first of them has waited; 0: there is none */
	uint64_t silent_usec; /* how long nothing has come from it */
};
/* The nodes from first on, at most cap. How many were filled in; 0 before the first assembly. */
size_t peers_nodes(struct peers *p, uint32_t first, struct peers_node *out, size_t cap);

/* Other nodes that have owed us an answer for that long, or did and have not been heard since; at most cap. How many. */
size_t peers_slow(struct peers *p, uint64_t usec, uint32_t *out, size_t cap);

/*
 * Another node says that this one's daemon is that, or a later one: whatever comes here of one before it is not taken any more, and what is kept
 * of it is not wanted. It need not be present. Tells PEERS_RESTARTED if that is news. 0 or -ENOMEM: so is it not.
 */
int peers_heard_of(struct peers *p, uint32_t node, uint64_t incarnation);

/*
 * Ask a node (oneself too: the handler is called the same way) and wait for its reply. Returns the transport's verdict, then the
 * reply's status: 0 or -errno. -ETIMEDOUT: no agent, or no answer, within the time-out (logged, with the node's name);
 * -ECONNRESET: that node's daemon was restarted meanwhile, whether it acted is unknown; -EHOSTDOWN: the node was given up;
 * -ESHUTDOWN: we end. reply may be NULL.
 */
int peers_call(struct peers *p, uint32_t node, const struct wire_msg *request, struct wire_msg *reply);
/*
 * The same without waiting; done is called once, from any thread (before this returns, too), and must not block: what happens to nodes is told behind it. request is
 * copied; reply is borrowed, NULL when none came. When this fails, done is not called: -EAGAIN: too many calls to that node
 * wait already, -EHOSTDOWN, -ESHUTDOWN, -EINVAL: no such node, -E2BIG: longer than about WIRE_MAX_BYTES, -ENOMEM.
 */
typedef void (*peers_done)(int status, const struct wire_msg *reply, void *arg);
int peers_call_async(struct peers *p, uint32_t node, const struct wire_msg *request, peers_done done, void *arg);
/*
 * The same for what somebody waits for whose own call is to end well when this one does not: its time-out is peers_brief_usec, half of the
 * others', and there is some room for it when there is none for others. done may be NULL.
 */
int peers_call_brief(struct peers *p, uint32_t node, const struct wire_msg *request, peers_done done, void *arg);
uint64_t peers_brief_usec(const struct peers *p);
uint64_t peers_missing_usec(const struct peers *p);   /* node_timeout */
bool peers_is_silent(struct peers *p, uint32_t node); /* as peers_node has it */
bool peers_is_present(struct peers *p, uint32_t node);
/* To all nodes from first to last (oneself included) at once; waits for all. status[node - first] each. 0 or the first error. */
int peers_call_all(struct peers *p, const struct wire_msg *request, int *status /* peers_count() of them, or NULL */,
	void (*each)(uint32_t node, const struct wire_msg *reply, void *arg) /* or NULL; in the caller's thread */,
	void *arg);
/*
 * One-way: no reply; in order with the other requests to that node. Delivered once, the agents may die as they like; lost with
 * that node's daemon (PEERS_RESTARTED, PEERS_GONE). Never waits; fails as peers_call_async.
 */
int peers_tell(struct peers *p, uint32_t node, const struct wire_msg *msg);

/* ---- payload */
struct peers_get {
	uint32_t node, segment; /* whose .seg or .prv */
	uint64_t off;           /* in it, bytes */
	uint32_t len;           /* bytes */
	uint32_t to;            /* offset in the buffer */
};
#define PEERS_BUFFER_BYTES (1u << 20)
struct peers_buffer {   /* memory that the agent fills */
	uint8_t *bytes; /* PEERS_BUFFER_BYTES */
	void *owner;    /* the transport's */
};
size_t peers_buffers(const struct peers *p); /* how many there are */
/*
 * For the first fetch into it, which is that of gets. A node that does not give what it is asked for gets no more buffers than are free
 * besides, and holds them until it does: so it does not hold up what is fetched of others. Waits for one; -ETIMEDOUT, -ESHUTDOWN; -ENOMEM;
 * -EBUSY, at once: one of several nodes gets no more, which may be another one's fault: to be asked one by one.
 */
int peers_buffer_get(struct peers *p, const struct peers_get *gets, size_t num, struct peers_buffer *ret);
/* The same without waiting; -EAGAIN: there is none just now. */
int peers_buffer_try(struct peers *p, const struct peers_get *gets, size_t num, struct peers_buffer *ret);
void peers_buffer_put(struct peers *p, struct peers_buffer *b);
uint64_t peers_buffer_offset(const struct peers *p, const struct peers_buffer *b); /* in the transport's memory */
/*
 * Fetch all into the buffer; not changed by the caller until then. done once: 0; -ENOENT: a segment is gone (ask for the location
 * again); else as peers_call. Waits while there is no agent, so mind how old the locations are. Fails as peers_call_async.
 */
int peers_get_async(struct peers *p, const struct peers_buffer *to, const struct peers_get *gets, size_t num,
	peers_done done, void *arg);
int peers_get(struct peers *p, const struct peers_buffer *to, const struct peers_get *gets, size_t num);

/* All that wait get -ESHUTDOWN; on return no handler, event or done() runs or will. The other nodes are told that we end. */
void peers_shut_down(struct peers *p);
void peers_destroy(
	struct peers *p); /* no request may be answered any more; those that were not are freed. NULL is fine */

/* ---- transports */
struct peers_transport_ops; /* fs/peer/transport.h */

#endif
