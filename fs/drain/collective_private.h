/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_COLLECTIVE_PRIVATE_H
#define FS_DRAIN_COLLECTIVE_PRIVATE_H

/*
 * What asking (collective_ask.c), working (collective_work.c) and leading share: which asks are served when (collective_lead.c), the parts of
 * a session (collective_session.c), and one part (collective_part.c).
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/drain/collective.h"
#include "fs/job/message.h"

#define SEC          INT64_C(1000000)
#define ASK_USEC     (3 * SEC)
#define WAITS        10  /* so much more seldom node 0 is asked by each node */
#define TROUBLES_MAX 256 /* that a manifest names; the first of each part of each node */

enum {                                           /* MESSAGE_DRAIN_FIRST and on */
	MESSAGE_DRAIN_ASK = MESSAGE_DRAIN_FIRST, /* to node 0: ID, KIND, HASTE, PATH* */
	MESSAGE_DRAIN_ANSWER,                    /* from node 0: ID, LIFE, RESULT, WIRE_TEXT */
	MESSAGE_DRAIN_CANCEL,                    /* to node 0: ID */
	MESSAGE_DRAIN_PART, /* from node 0: SESSION, PART, KIND, CAUTIOUS, LAST, AGAIN, HASTE, TIME, PATH*, SHARED */
	MESSAGE_DRAIN_PART_DONE, /* to node 0: SESSION, PART, RESULT, WIRE_TEXT, SHARED, WIRE_TOTALS */
	MESSAGE_DRAIN_STOP,      /* from node 0: SESSION: its part shall end soon */
	MESSAGE_DRAIN_DIRS,      /* to node 0: WIRE_PAYLOAD: times of directories */
	MESSAGE_DRAIN_LINES,     /* to node 0: WIRE_PAYLOAD: for the manifest */
	MESSAGE_DRAIN_WORKS,     /* from node 0: SESSION, PART: still at it? -ENOENT: no */
	MESSAGE_DRAIN_WAITS,     /* to node 0: ID: has it been asked, and not answered yet? -ENOENT: no */
	MESSAGE_DRAIN_PAUSE,     /* to node 0: PAUSED: whether sessions that nobody waits for are held */
	MESSAGE_DRAIN_PAUSED     /* from node 0: PAUSED */
};

enum {
	TAG_ID = MESSAGE_DRAIN_TAGS,
	TAG_KIND,
	TAG_PATH,
	TAG_RESULT,
	TAG_SESSION,
	TAG_PART,
	TAG_CAUTIOUS,
	TAG_SHARED,
	TAG_LAST,
	TAG_HASTE,
	TAG_TIME,
	TAG_AGAIN,
	TAG_PAUSED,
	TAG_LIFE /* of the daemon that has asked: the next one's IDs are the same */
};

struct paths { /* owned; num 0: everything */
	char **at;
	size_t num;
};

struct ask { /* on node 0: what somebody waits for; on the asking node: what it has asked for */
	struct ask *next;
	uint32_t from;
	uint64_t id, incarnation; /* of the daemon that asks */
	enum drain_kind kind;
	struct paths paths;
	bool for_room;
	bool sent, cancelled;
	int64_t heard_usec; /* when node 0 was heard of last, CLOCK_MONOTONIC */
	bool unknown;       /* node 0 knew nothing of it when it was asked last: the answer is under way, or lost */
	bool lost;          /* node 0, which had been asked, has ended */
	bool alone;         /* node 0 does not answer; our worker does what this node can */
};

struct task { /* a part that node 0 wants from us, or that we do without it */
	struct task *next;
	bool alone;
	uint64_t ask;   /* alone: what it is done for, of mine */
	char what[128]; /* alone: has become of node 0 */
	uint64_t session, time_usec;
	unsigned int part;
	enum drain_kind kind;
	bool cautious, last, again;
	enum wire_haste haste;
	struct paths paths;
	struct wire_shared_list shared;
};

enum { AT_WORK = 1, DONE, LOST };

struct member {        /* a node, in the running session */
	uint8_t state; /* in the running part */
	bool asked;    /* whether it still works, and has not answered yet */
	bool away;     /* it did not answer in time, and is not asked for later parts: each would wait as long again */
};

struct collective {
	struct collective_options opt;
	pthread_t asker, worker, leader;
	unsigned int threads;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* CLOCK_MONOTONIC */
	/* all below under lock */
	bool ending;
	struct ask *mine;  /* asked for by this node, in order */
	struct task *todo; /* for the worker */
	bool working;
	uint64_t working_on, working_ask; /* 0: of node 0's; without it */
	unsigned int working_part;
	/* node 0 */
	struct ask *asks, *finals; /* waiting for a session; of unmounted nodes */
	struct ask *served;        /* for which the running session is */
	uint64_t
		session; /* of no daemon of node 0 before this one; what is late of theirs is not taken for an answer to us */
	uint64_t num_sessions; /* for people */
	uint64_t time_usec;    /* of the running session: before its first part */
	unsigned int part;
	bool leading, stop_session, background;
	bool paused;           /* no session is begun that nobody waits for */
	bool broken;           /* a node was restarted since the session began, or could not tell what it has written */
	bool restarted;        /* the first of that */
	bool without;          /* a node was lost */
	unsigned int num_anew; /* sessions on end in which that was so */
	struct member *members; /* owned */
	uint32_t num_members;
	struct wire_shared_list shared; /* of the running session */
	bool list_full;                 /* some are not in it: a session after this one has them */
	bool published;                 /* some of it were */
	enum cistern_exit result;
	char text[CISTERN_ERROR_TEXT_BYTES];
	struct manifest_session summary; /* of the running session: when it began, its totals */
	struct manifest_trouble troubles[TROUBLES_MAX];
	size_t num_troubles;
	int64_t leave_usec;     /* finals are answered by then; 0: none waits */
	uint64_t finals_served; /* how many of them had asked when the last session began */
	uint32_t some_mounted;  /* all nodes below are unmounted or gone; 0 when one may be back */
};

static inline int64_t collective_ask_usec(const struct collective *c)
{
	return c->opt.ask_usec ? (int64_t)c->opt.ask_usec : ASK_USEC;
}

static inline uint64_t tag_get(const struct wire_msg *m, int tag)
{
	return message_get(m, (enum message_tag)tag);
}

static inline void tag_put(struct wire_msg *m, int tag, uint64_t v)
{
	message_put(m, (enum message_tag)tag, v);
}

/* ---- collective.c */

int64_t collective_now_usec(void);                                   /* CLOCK_MONOTONIC */
uint64_t collective_life(const struct collective *c, uint32_t node); /* of that node's daemon; 0: none is known */
void collective_wait_changed(struct collective *c, int64_t until);   /* lock is held; INT64_MAX: for ever */

void collective_paths_free(struct paths *p);
bool collective_paths_add(struct paths *p, const char *path); /* false: no memory */
/* Out of memory, or too many: everything, which is more than was asked for and never less. */
void collective_paths_copy(struct paths *to, char *const *from, size_t num);
void collective_paths_decode(struct paths *to, const struct wire_msg *m);
void collective_paths_encode(struct wire_msg *m, const struct paths *p);

/* Lists of asks. */
void collective_ask_free(struct ask *a);
void collective_append(struct ask **list, struct ask *a);                      /* takes a over */
struct ask *collective_find_ask(struct ask *list, uint32_t from, uint64_t id); /* NULL: it is not there */
struct ask *collective_take_ask(
	struct ask **list, uint32_t from, uint64_t id); /* likewise; the caller's from then on */
uint64_t collective_count(const struct ask *list);

void collective_put_shared(struct wire_msg *m, const struct wire_shared_list *list);
int collective_get_shared(const struct wire_msg *m, struct wire_shared_list *list); /* appends; as wire_shared_decode */
void collective_task_free(struct task *t);

/* ---- the threads, and what they are told by messages; these do not block */

void *collective_asker(void *arg);
void collective_serve_answer(struct collective *c, const struct wire_msg *m);
void collective_end_alone(struct collective *c, uint64_t id, const char *what, const struct collective_done *done);

void *collective_worker(void *arg);
/* What a has asked for, as far as this node can. lock is held. -ENOMEM. */
int collective_work_alone(struct collective *c, const struct ask *a, const char *what);
int collective_serve_part(struct collective *c, const struct wire_msg *m);
void collective_serve_stop(struct collective *c, uint64_t session);
int collective_serve_works(struct collective *c, const struct wire_msg *m);

void *collective_leader(void *arg);
int collective_serve_ask(struct collective *c, uint32_t from, const struct wire_msg *m);
int collective_serve_waits(struct collective *c, uint32_t from, const struct wire_msg *m);
void collective_forget_asks(struct collective *c, uint32_t from); /* of daemons that are no more there; lock is held */
void collective_serve_cancel(struct collective *c, uint32_t from, uint64_t id);
int collective_serve_lines(struct collective *c, const struct wire_msg *m);
/* Node 0: holds sessions that nobody waits for, or lets them go on, and tells all nodes. */
void collective_serve_pause(struct collective *c, bool pause);
void collective_tell_paused(struct collective *c, uint32_t node); /* whose daemon is a new one */

/* ---- a session and its parts. lock is held by the caller, and given up meanwhile by those that run something. */

struct collective_session_options {
	enum drain_kind kind;
	const struct paths *paths;
	bool last; /* all nodes are unmounted */
	enum wire_haste haste;
	unsigned int tries; /* sessions for the same asks before this one; */
	unsigned int fills; /* of them, those that carried as many files as fit in a list */
};

/* Runs a session, and more of them for what some node came to too late. Sets c->result and c->text. */
void collective_run_sessions(struct collective *c, struct collective_session_options *opt);
/* The first trouble is told; all count, and are in the manifest. */
void collective_note_result(struct collective *c, uint32_t node, enum cistern_exit result, const char *text);
/* Before a part that needs that all went well before it; after a part that only names what went well. */
void collective_fail_shared(struct collective *c);
void collective_forget_troubles(struct collective *c);

/* Until nobody is at work on it. True: every node that should has done it. */
bool collective_run_part(struct collective *c, unsigned int part, bool first_only,
	const struct collective_session_options *opt, bool cautious);
/* Takes the lock. */
void collective_serve_part_done(struct collective *c, uint32_t from, const struct wire_msg *m);

#endif
