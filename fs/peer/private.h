/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_PEER_PRIVATE_H
#define FS_PEER_PRIVATE_H

/*
 * What the files of fs/peer share. One lock guards everything. Under it the transport's send and get are called, which
 * take only their own leaf locks; handlers, events and done() are called without it, between upcall_begin() and
 * upcall_end(), so that shutting down can wait for them.
 */

#include <pthread.h>
#include <sys/queue.h>

#include "fs/peer/frame.h"
#include "fs/peer/transport.h"

#define CALLS_MAX     4096u           /* that wait for one node */
#define BRIEF_MAX     (CALLS_MAX / 2) /* brief ones beyond that */
#define CALLS_BYTES   (64u << 20)     /* of them */
#define REQUESTS_MAX  (2 * CALLS_MAX) /* of one node, kept */
#define UNTOLD_BYTES  (256u << 10)    /* of replies and tells that we got, before their sender is told to forget them */
#define MESSAGE_BYTES (WIRE_MAX_BYTES - 4096) /* body of a message: head and wire fields need room, too */
#define GETS_MAX      1024u                   /* at once */
#define GET_PARTS_MAX 16384u
#define HASH_BUCKETS  4096u
#define SELF          UINT32_MAX /* in hashes: calls to oneself */
#define PATIENCE_USEC 10000000u
#define NAME_BYTES    PEERS_HOST_BYTES

struct entry { /* in a hash, by node and number; the first member */
	struct entry *next;
	uint64_t number;
	uint32_t node;
};

struct call { /* a request or tell of ours */
	struct entry entry;
	TAILQ_ENTRY(call) in_node; /* by number */
	TAILQ_ENTRY(call) in_time; /* by start; tells are in none */
	int64_t started_usec;
	bool tell, brief, sent;
	int status;          /* when it is finished without a reply */
	struct wire_msg msg; /* owned; empty for calls to oneself */
	peers_done done;
	void *arg;
};
TAILQ_HEAD(call_list, call);

struct peers_request {
	struct entry entry;                 /* node: who asks; in the hash while asked by others and not forgotten */
	TAILQ_ENTRY(peers_request) in_list; /* of its node, or p->loose */
	struct peers *p;
	uint32_t from;
	bool self, tell, answered, forgotten;
	struct wire_msg msg; /* owned; the request, then the reply */
};
TAILQ_HEAD(request_list, peers_request);

struct get {
	TAILQ_ENTRY(get) in_list; /* by start */
	uint64_t id;
	int64_t started_usec;
	bool sent;
	int status;
	struct slot *slot;
	struct peers_get *gets; /* owned */
	size_t num;
	peers_done done;
	void *arg;
};
TAILQ_HEAD(get_list, get);

struct slot { /* a buffer of the transport's memory */
	uint8_t *bytes;
	struct slot *next_free;
	unsigned int busy; /* gets that may still write into it */
	bool taken;
	struct peers_get *wanted; /* owned; what it was taken for, until that is begun; NULL: nothing */
	size_t num_wanted;
};

struct node {
	uint64_t incarnation;       /* as last assembled; 0: never */
	bool present;               /* messages reach it */
	bool gone;                  /* ended for good, or given up */
	bool silent;                /* peer.h */
	bool hearsay;               /* incarnation is another node's word: the transport has still to come to it */
	int64_t missing_since_usec; /* assembled without it; 0: not so */
	int64_t heard_usec;         /* when something of it came, or it did */
	uint64_t given;             /* the last fetch that has had payload of it */
	size_t held, held_alone;    /* payload.c, when it counts; mark: by what it has been counted last */
	uint64_t mark;
	int64_t slow_usec; /* when it was found that it has owed an answer for long, and nothing has come since; 0: not so */
	uint64_t num_failed;   /* calls since it has gone; the log has the first */
	char name[NAME_BYTES]; /* of its host; "" */
	/* ours to it */
	struct call_list calls;
	uint64_t last_number;
	size_t num_calls, bytes;
	uint64_t acks[FRAME_ACKS_MAX]; /* replies that we got and it has not been told of */
	uint32_t num_acks;
	/* its to us */
	uint64_t seen;
	struct request_list requests;
	size_t num_requests;
	uint32_t untold;     /* tells that it has not been told of */
	size_t untold_bytes; /* of replies and tells */
};

struct peers {
	struct peers_options opt;
	struct peers_hooks hooks;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* numbered, room, free buffers, upcalls and waiters gone, ended */
	pthread_cond_t tick;    /* the timer has something to look at sooner */
	pthread_t timer;
	bool ended, stop_timer;
	int64_t timer_at_usec; /* when it looks again; INT64_MIN: it is looking */
	unsigned int upcalls, waiters;
	uint64_t turn, last_turn; /* whose events are told; the next that is taken */
	pthread_cond_t turn_passed;
	bool numbered, connected, was_connected;
	int64_t lost_usec; /* since when there is no agent */
	uint32_t self, count;
	struct node *nodes;                                    /* count of them; NULL before the first assembly */
	struct node me;                                        /* calls to oneself */
	struct call_list waiting, waiting_brief, waiting_self; /* by start */
	struct entry *calls[HASH_BUCKETS], *requests[HASH_BUCKETS];
	struct request_list loose; /* still held by a handler, of no interest to anybody else */
	struct buf head;           /* scratch */
	struct slot *slots, *free_slots;
	size_t num_slots, num_free;
	uint64_t last_mark;
	struct get_list gets;      /* that somebody waits for */
	struct get_list late_gets; /* nobody waits any more, but the agent may still write into their buffers */
	size_t num_gets;
	uint64_t last_get;
	bool told_waiting; /* the log knows that somebody waits */
	int64_t told_usec, told_timeout_usec;
};

struct waiter { /* for one done() */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct wire_msg *reply; /* borrowed; NULL: of no interest */
	int status;
	bool done;
};

int64_t peers_now(void);
void upcall_begin(struct peers *p); /* under the lock */
void upcall_end(struct peers *p);   /* without */
/* Waits for p->changed until deadline_usec. Under the lock. 0, -ETIMEDOUT, -ESHUTDOWN. */
int peers_wait(struct peers *p, int64_t deadline_usec);
void entry_add(struct entry **table, struct entry *e, uint32_t node, uint64_t number);
struct entry *entry_find(struct entry **table, uint32_t node, uint64_t number);
void entry_remove(struct entry **table, struct entry *e);
int node_init(struct peers *p, uint32_t count);
const char *node_name(const struct peers *p, uint32_t node, char *out, size_t cap); /* under the lock */
void peers_log(struct peers *p, bool warning, const char *event, const char *text);
/* If it is still missing since then, and has not come meanwhile; 0: in any case. Without the lock. */
void peers_give_up(struct peers *p, uint32_t node, int64_t missing_since_usec);
void peers_note_failed(struct peers *p, uint32_t node); /* a call, since the node has gone. Without the lock */
void timer_poke(struct peers *p, int64_t due_usec);     /* something will be due then; under the lock */
void *timer_thread(void *arg);

/* call.c. All under the lock, but for finish_calls. */
void call_transmit(struct peers *p, uint32_t node, struct call *c);
void call_resend_all(struct peers *p, uint32_t node);
void node_send(struct peers *p, uint32_t node, struct frame *f, const struct wire_msg *msg);
/* Takes a call out of all lists and puts it in out, to be finished with status. */
void call_take(struct peers *p, struct call *c, int status, struct call_list *out);
int64_t call_due(const struct peers *p, const struct call *c); /* when its time is over */
void calls_take_node(struct peers *p, struct node *n, bool sent_only, int status, struct call_list *out);
struct node *call_node(struct peers *p, const struct call *c);
void finish_calls(struct call_list *list); /* done() of each; frees. Without the lock */
void call_finish(struct call *c, int status, const struct wire_msg *reply); /* the same for one, in no list */
void call_answered(struct peers *p, uint32_t from, const struct frame *f);  /* a reply; without the lock */
void calls_seen(struct peers *p, uint32_t node, uint64_t seen);             /* tells up to there have arrived */
int message_status(const struct wire_msg *reply);
/* peers_call_async, but waits for room. Without the lock. */
int peers_call_async_wait(struct peers *p, uint32_t node, const struct wire_msg *request, peers_done done, void *arg);

/* waiter.c */
int message_copy(struct wire_msg *to, const struct wire_msg *from); /* behind what to has; 0 or -ENOMEM */
void waiter_init(struct waiter *w, struct wire_msg *reply);
void waiter_done(int status, const struct wire_msg *reply, void *arg);
int waiter_end(struct waiter *w, int started); /* waits unless started is an error; the call's status */

/* request.c */
void request_arrived(struct peers *p, uint32_t from, const struct frame *f); /* without the lock */
void requests_acked(struct peers *p, uint32_t from, const struct frame *f);  /* under the lock */
void requests_forget_all(struct peers *p, struct node *n);                   /* under the lock */
/* The handler, for a request of our own; call's number is 0 for a tell. Without the lock, in an upcall. */
void request_to_self(struct peers *p, struct peers_request *rq);
void requests_free(struct request_list *list);

/* payload.c */
int slots_init(struct peers *p);
void gets_resend(struct peers *p); /* under the lock */
void get_take(struct peers *p, struct get *g, int status, struct get_list *out);
void gets_lost(struct peers *p);
void finish_gets(struct get_list *list);

#endif
