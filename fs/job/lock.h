/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_LOCK_H
#define FS_JOB_LOCK_H

/*
 * Locks of the whole job: what the files of this part share. lock.c: requests of our own applications, and what we hold
 * elsewhere; lock_home.c: the locks of files that are at home here; lock_out.c: what leaves this part; lock_words.c: one-way words.
 *
 * One lock guards everything. What is to leave it (messages, replies, ends of requests) is put in a line under that lock
 * and leaves without it, in the order of the line, by one thread at a time: so another node sees what happened to an owner's
 * locks in the order in which it happened. One-way words alone leave under it, since those for which a node has no room are kept.
 */

#include <sys/queue.h>

#include "fs/job/lock_table.h"
#include "fs/job/private.h"

#define LOCK_TOLD_MAX 4096u      /* locks in one message */
#define LOCK_ANY_NODE UINT32_MAX /* as the message says */

enum lock_what {
	LOCK_ASK_SET = 1, /* take, change, give up */
	LOCK_ASK_GET,     /* who has it? */
	LOCK_ASK_DROP,    /* the owner has closed the file */
	LOCK_ASK_FIX,     /* the owner's node says what he has in a range */
};

struct lock_op;

struct lock_out { /* what leaves */
	TAILQ_ENTRY(lock_out) in_list;
	struct wire_msg msg;
	struct peers_request *rq; /* to be answered; or */
	struct lock_op *op;       /* that has ended, or, with call, for which node is asked; or NULL: node is told */
	peers_done call;
	uint32_t node;
	/* of what is told; the bodies of FIX and HELD are made when they are said */
	struct lock lock; /* FIX: the range; LOST: one of its owner's */
	uint64_t id;      /* FIX */
	bool is_void;     /* it is not said any more */
};
TAILQ_HEAD(lock_out_list, lock_out);

struct lock_op { /* a request of an application here, until done() is called */
	TAILQ_ENTRY(lock_op) in_list;
	struct locks *l;
	uint64_t id;
	enum lock_what what;
	struct lock want, found; /* found.type: GET: what somebody has */
	uint32_t home;
	uint64_t epoch; /* of the home, when it was asked */
	unsigned int refs;
	bool wait;
	bool in_line; /* the home has said that it waits */
	bool asked, cancelled, ended;
	bool sent; /* the home may have got it */
	int status;
	void (*done)(struct lock_op *op); /* without the lock */
	struct lock_out out;              /* done() waits in the line */
	job_lock_done user_done;
	void *arg;
};
TAILQ_HEAD(lock_op_list, lock_op);

struct lock_question { /* at the home, from any node */
	TAILQ_ENTRY(lock_question) in_list;
	enum lock_what what;
	struct lock want;  /* FIX: the range */
	struct lock *list; /* owned; FIX: what its owner has there */
	size_t num;
	uint64_t id;
	bool wait;
	struct peers_request *rq; /* not answered yet; NULL: one of our own, or it was told that it waits */
	int64_t until_usec;       /* kept: one of our own waits no longer */
};
TAILQ_HEAD(lock_question_list, lock_question);

struct lock_lost { /* an owner who has lost a lock: gets no other one until it closes the file */
	struct lock_lost *next;
	uint64_t ino, owner;
	bool flock;
};

struct locks {
	struct job *j;
	pthread_mutex_t lock;
	struct lock_out_list out;
	bool leaving;         /* somebody works on out */
	struct lock_out *now; /* a word that is just leaving it; NULL: none */
	pthread_cond_t idle;  /* nobody does */
	bool ending;

	/* of our applications */
	struct lock_op_list ops;
	uint64_t last_id;
	struct lock_table *mine; /* that other homes have granted us */
	struct lock_lost *lost;
	bool *gone;       /* each home, whether what we had there is lost, and it may not know */
	uint64_t *epochs; /* of each home; NULL: the job has no numbers yet */

	struct lock_out_list *unsaid; /* to each node: words that it has had no room for (lock_words.c) */
	size_t num_unsaid;
	size_t num_losing;  /* LOST in the line, or unsaid */
	int64_t again_usec; /* when they are said again */

	/* of the files that are at home here */
	struct lock_table *table;
	bool *asked, *told;             /* each node, whether it holds any; see lock_home.c */
	bool ready;                     /* all have said it */
	struct lock_question_list kept; /* until then */
	pthread_t timer;
	pthread_cond_t tick;
	bool has_timer;
	int64_t timer_usec; /* when the timer looks */
};

int64_t lock_now_usec(void); /* CLOCK_MONOTONIC */

/* ---- lock.c: all under the lock */

int locks_know_nodes(struct locks *l); /* the arrays are there; -ENOMEM */
void op_end(struct locks *l, struct lock_op *op, int status);
void op_waits(struct locks *l, uint64_t id);
void op_answered(struct locks *l, uint64_t id, int status, const struct lock *found); /* unknown ids are ignored */
void op_put(struct lock_op *op);                                                      /* without the lock, too */
/* What we hold at a home. The list is the caller's; -ENOMEM. */
int mine_at(struct locks *l, uint32_t home, struct lock **ret, size_t *ret_num);
/* What the owner of range holds in it, cut to it, behind range itself. */
int mine_in(struct locks *l, const struct lock *range, struct lock **ret, size_t *ret_num);

/* ---- lock_home.c */

/* Under the lock. The question is taken over. */
void home_ask(struct locks *l, struct lock_question *q);
bool home_cancel(struct locks *l, uint32_t node, uint64_t id); /* true: it waited, and does not any more */
void home_forget(struct locks *l, uint32_t node);              /* its daemon is gone */
void home_told(struct locks *l, uint32_t node);                /* we know what it holds */
void home_ask_node(struct locks *l, uint32_t node);            /* what it holds */
void home_granted(const struct lock *want, uint64_t id, int status, void *arg);
void home_set_timer(struct locks *l);
void *home_timer(void *arg);

/* ---- lock_out.c */

/* Under the lock. The message, if any, is taken over. NULL: no memory. */
struct lock_out *out_tell(struct locks *l, uint32_t node, struct wire_msg *m);
void out_call(struct locks *l, uint32_t node, struct wire_msg *m, struct lock_op *op, peers_done done);
void out_reply(struct locks *l, struct peers_request *rq, int status, bool waits, const struct lock *found);
void out_done(struct locks *l, struct lock_op *op);
/* Lets the lock go, and sends what is in the line. */
void locks_leave(struct locks *l);

/* ---- lock_words.c */

/* Takes o over. Without the lock, by who sends what is in the line. */
void word_say(struct locks *l, struct lock_out *o);
/* Under the lock, all the rest. 0: the node has had room for all that waited; -EAGAIN: it has not. */
int words_flush(struct locks *l, uint32_t node);
void words_again(struct locks *l, int64_t now_usec); /* to all nodes, when it is time */
void words_void(struct locks *l, uint32_t node);     /* its daemon is gone */
/*
 * To the home of range: of it, its owner has what our copy says, and request id, unless 0, waits no longer. What was said with id 0 goes
 * with another word of that owner's that waits. The range that the word is about, in the end.
 */
struct lock word_fix(struct locks *l, uint32_t home, uint64_t id, const struct lock *range);
void word_held(struct locks *l, uint32_t home);
void word_lost(struct locks *l, uint32_t node, const struct lock *lock);
bool word_lost_waits(const struct locks *l, const struct lock *lock); /* for its owner */
void word_lost_forget(struct locks *l, const struct lock *lock);      /* who has closed the file */

void lock_put(struct wire_msg *m, const struct lock *locks, size_t num);
/* Calls each() for every lock of the message, as one of that node. -EBADMSG. */
int lock_get(const struct wire_msg *m, uint32_t node, void (*each)(const struct lock *lock, void *arg), void *arg);
/* All of them; the list is the caller's. -EBADMSG, -ENOMEM. */
int lock_get_all(const struct wire_msg *m, uint32_t node, struct lock **ret, size_t *ret_num);
int lock_get_one(const struct wire_msg *m, uint32_t node, struct lock *ret);

#endif
