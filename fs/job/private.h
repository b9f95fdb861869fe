/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_PRIVATE_H
#define FS_JOB_PRIVATE_H

/*
 * What the files of fs/job share. job.c: its life and its parts. front.c: which way a call goes. serve.c: requests of other
 * nodes to their handlers. worker.c: threads for handlers that work on our own store. The parts: names.c, tree.c,
 * remote.c and whoever comes later; each has its own struct and its own locks.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "format/index/state.h"
#include "format/place/place.h"
#include "fs/job/job.h"
#include "fs/job/message.h"

struct job {
	struct job_options opt;
	struct core *core;   /* opt's, borrowed */
	struct peers *peers; /* opt's, borrowed; NULL: alone, and nothing below is there */
	struct state *state; /* the store's */
	struct workers *workers;
	_Atomic(bool) ending;
	_Atomic(uint64_t) moved; /* number of the last change of the tree, about to be here, that moves a directory */
	_Atomic(uint64_t) moving[2];   /* directories that node 0 is about to rename or remove (tree.c); 0: none */
	_Atomic(uint64_t) prepared;    /* the change for which our kernel has been told to drop their names; 0: none */
	_Atomic(uint64_t) unassembled; /* calls that have failed because this node had no number */
	_Atomic(unsigned int) waiting_numbered; /* and those that wait for one */
	_Atomic(bool) told_unassembled;         /* the log knows */
	_Atomic(size_t) hidden_page_bytes;      /* HIDDEN_PAGE_BYTES; tests have less */
	_Atomic(bool) is_settled; /* what of our layers and maps is cut off or drained is known (power.c) */
	_Atomic(bool)
		knows_cuts; /* false: we have lost power, and with it what was cut off of files that nodes share (relearn.c) */
	/* one for each part, owned by it */
	struct lag *lag;
	struct announce *announce;
	struct names *names;
	struct rebuild *rebuild;
	struct held *held;
	struct tree_log *tree_log;
	struct sequence *sequence;
	struct untold *untold;
	struct remote *remote;
	struct quiet *quiet;
	struct seen_table *seen;
	struct walks *walks;
	struct home *home;
	struct handover *handover;
	struct share *share;
	struct locks *locks;
	struct times *times;
	struct power *power;
};

struct stream {              /* of reads; ahead.lock */
	uint64_t from, next; /* where it began; behind the furthest that was read */
	uint64_t run;        /* bytes that were read */
	uint64_t chunk;      /* the first not begun to be fetched: each once, there may be nothing to fetch */
};

struct job_file {
	struct core_file *local;  /* owned; NULL: its home is elsewhere */
	struct shared *shared;    /* counted reference; NULL: alone */
	int flags;                /* open(2)'s; when shared */
	uint64_t losses;          /* of shared, when it was opened */
	_Atomic(uint32_t) writer; /* the process that writes through it; 0: not known (yet) */
	struct sieve *sieve;      /* owned; NULL: it has read nothing that matters */
	struct stream stream;
};

struct listing;

struct job_dir {
	struct core_dir *local; /* owned; or */
	struct listing *list;   /* owned: list.c. Neither: nobody has read it yet */
	uint64_t ino;
	pthread_mutex_t lock; /* the first reading, and rewinding */
};

/* ---- job.c */

/*
 * A part. Any function may be NULL. create: in the order of the table, before any event or request; what it made is found in
 * struct job. shut_down: whoever waits in this part returns -ESHUTDOWN. destroy: in reverse order, after the last
 * request; also when create failed or was never reached. event: in the transport's thread, must not block (workers_do).
 */
struct part {
	int (*create)(struct job *j, struct cistern_error *err);
	void (*shut_down)(struct job *j);
	void (*stop)(
		struct job *j); /* behind that of all: its thread ends, as long as nothing is destroyed that it uses */
	void (*destroy)(struct job *j);
	void (*event)(struct job *j, enum peers_event event, uint32_t node);
};
/* Before names or data of other nodes are asked for: the store has its number. Waits; -EIO, with a line in the log that says what is
 * missing. */
int job_wait_numbered(struct job *j);
/* Calls that wait, or have failed, because the agents have not assembled: says so, if there are any. */
void job_unassembled_trouble(struct job *j, void (*say)(const char *text, void *arg), void *arg);
/* The caller of the operation that this thread does was killed, and has been told that it is not done: what is not begun need not be. */
bool job_is_unwanted(struct job *j);
void job_log(struct job *j, bool error, const char *event, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void job_log_self(struct job *j, const char *event); /* with the name of this node */
int job_errno(int rc); /* front.c: what an application is told of an error between the nodes */
static inline bool job_alone(const struct job *j)
{
	return !j->peers;
}

/* ---- file.c */

/* Whoever has made and opened a file in core, with that result, ends with this one: it is released when r or this fails. */
int file_created(
	struct job *j, int r, uint64_t ino, int flags, struct core_open_reply *open, struct job_file **ret_file);

/* ---- untold.c */

extern const struct part untold_part;
struct tell_kind {     /* of a message that is not to be lost for want of room */
	bool outlives; /* another daemon of that node needs it, too */
	/* Nothing has come meanwhile that makes it wrong; it may be changed to what does hold. NULL: so it is. */
	bool (*still_holds)(struct job *j, struct wire_msg *m);
};
/* peers_tell(), as soon as the node takes it. m is copied, kind constant. */
void job_tell(struct job *j, uint32_t node, const struct wire_msg *m, const struct tell_kind *kind);
void untold_round(struct job *j); /* what is kept is said, if it is taken. From one thread */

/* ---- share.c */

extern const struct part share_part;

/* ---- lock.c, lock_home.c: locks of files */

extern const struct part locks_part;
void lock_serve_ask(struct job *j, struct peers_request *rq);
void lock_serve_cancel(struct job *j, struct peers_request *rq);
void lock_serve_fix(struct job *j, struct peers_request *rq);
void lock_serve_forget(struct job *j, struct peers_request *rq);
void lock_serve_granted(struct job *j, struct peers_request *rq);
void lock_serve_reclaim(struct job *j, struct peers_request *rq);
void lock_serve_held(struct job *j, struct peers_request *rq);
void lock_serve_lost(struct job *j, struct peers_request *rq);

/* ---- power.c: what a node that has lost power knew, and the others of it */

extern const struct part power_part;
bool power_is_settled(struct job *j); /* nobody has lost power without all of us knowing what */
void power_serve_settled(struct job *j, struct peers_request *rq);
void power_serve_lost(struct job *j, struct peers_request *rq);
void power_serve_tell(struct job *j, struct peers_request *rq);
void power_serve_locate(struct job *j, struct peers_request *rq); /* SHARE_LOCATE: when all is settled */
/* Before something is written to a file that nodes share: j->knows_cuts. -ETIMEDOUT, with a line in the log. */
int power_wait_cuts(struct job *j);
void power_serve_knows_cuts(struct job *j, struct peers_request *rq);
/* Before our layer of a shared file is looked at: what it has may be old until then. Errors as above. */
int power_wait_settled(struct job *j);
void power_troubles(struct job *j, void (*say)(const char *text, void *arg), void *arg); /* as job_troubles */

int power_sync(struct job *j, uint32_t node); /* what that node has is; 0 also when it is gone for good */
int power_sync_all(struct job *j);
/* The same of one, if that is still the daemon that said it was life (not 0). -EAGAIN: it is not: what it said may be forgotten. */
int power_sync_any(struct job *j); /* what any node has, but for those whose devices fail */
int power_sync_life(struct job *j, uint32_t node, uint64_t life);
uint64_t power_life(struct job *j); /* ours: no other daemon of this node has the same */
void power_serve_sync(struct job *j, struct peers_request *rq);

/* ---- relearn.c: what a node that has lost power has forgotten of others' doing */

/*
 * What others know to be drained of shared files goes here; if we have lost power, so does what they know to be cut off. Until each has said it, or is
 * given up. Negative: our store does not take it.
 */
int relearn_all(struct job *j);
int relearn_drained(struct job *j, uint32_t node); /* the same of one node, without cuts */
void relearn_serve(struct job *j, struct peers_request *rq);

/* ---- drain.c */

struct drained;
/* Of what may have been dropped before, and was forgotten, or was not heard of. forgotten: also that it was committed. */
int drain_drop_again(struct job *j, const struct drained *d, bool forgotten);

/* ---- serve.c */

typedef void (*serve_handler)(struct job *j, struct peers_request *rq);
/* The transport's hook: finds the handler of a request in the table of serve.c, and calls it here or in a worker. */
void serve_request(struct peers_request *rq, void *arg);

/* ---- worker.c: threads that run what may wait for our own store, and never for another node */

int workers_create(struct job *j, struct workers **ret);
void workers_stop(
	struct workers *w); /* what is queued is done first, and nothing is taken from then on; NULL is fine */
void workers_destroy(struct workers *w);
/* fn(j, arg) in one of them, soon. -ENOMEM, -ESHUTDOWN. */
int workers_do(struct workers *w, void (*fn)(struct job *j, void *arg), void *arg);
/* The same for a request; answers it with the error when that cannot be. */
void workers_serve(struct workers *w, serve_handler fn, struct peers_request *rq);
/* The same, one after the other in the order of their arrival: when all that was given to this one before has ended. */
void workers_serve_in_turn(struct workers *w, serve_handler fn, struct peers_request *rq);
/* The same, when all that was queued before it has ended. */
void workers_serve_after(struct workers *w, serve_handler fn, struct peers_request *rq);

/* ---- names.c: the server of names. What is under a name that the tree does not say? */

struct pointer {
	uint64_t ino;   /* the file that it is; 0: none */
	uint64_t stamp; /* of its entry at its home */
	bool hidden;    /* what the backing directory has there is not shown */
	/*
	 * 1 + a node that may have forgotten, should it lose power, that it took the name from a file that lives on (power-loss.md, 5); 0: none;
	 * POINTER_LEFT_ANY: any. And which daemon of it that was.
	 */
	uint32_t left;
	uint64_t left_life;
};
#define POINTER_LEFT_ANY UINT32_MAX

struct name_ref { /* a name, while an operation holds its lock */
	uint64_t dir;
	const char *name;  /* borrowed */
	struct pointer at; /* what is there */
	uint64_t stamp;    /* for the entry that the operation makes */
	struct hold *held; /* held.c's */
};

enum names_event { NAMES_LOCK = 1, NAMES_LOOKUP };
/* Somebody waits for a name: done is called once, from any thread, and must not block. */
struct names_waiter {
	struct names_waiter *next;
	enum names_event what;
	uint32_t node; /* who asks */
	uint64_t id;   /* LOCK: the lock's */
	uint64_t tree; /* and the last change of the tree that it knows of */
	bool renews;   /* LOCK: it has it, or gets nothing */
	int status;
	struct pointer at;
	uint64_t stamp;
	uint64_t until_usec; /* held_put_until */
	void (*done)(struct names_waiter *w);
	struct peers_request *rq;
};
extern const struct part names_part;
/* The server's side of the messages; the name is one of ours. */
void names_ask(struct names *n, uint64_t dir, const char *name, struct names_waiter *w);
/* Ends a lock. at NULL: nobody knows what is there now: ask the homes. */
void names_release(
	struct names *n, uint32_t node, uint64_t id, uint64_t dir, const char *name, const struct pointer *at);
/* The home does not have what the pointer says: ask all homes. Later lookups of it wait. */
void names_doubt(struct names *n, uint64_t dir, const char *name);
void names_serve_lock(struct job *j, struct peers_request *rq);
void names_serve_unlock(struct job *j, struct peers_request *rq);
void names_serve_lookup(struct job *j, struct peers_request *rq);
/* The file that it is, if it is one, and nobody is changing it; else 0. */
uint64_t names_peek(struct names *n, uint64_t dir, const char *name);
void names_serve_doubt(struct job *j, struct peers_request *rq);
void names_serve_claim(struct job *j, struct peers_request *rq);
/*
 * A directory that may go: no name below it is a file's or locked, and none will be until the end. -EBUSY, -ENOTEMPTY; -EIO: that cannot be known
 * now.
 */
int names_close_dir(struct names *n, uint64_t dir);
void names_open_dirs(struct names *n);  /* all that were closed; what is known of those that have gone is forgotten */
void names_tree_grown(struct names *n); /* our tree has another change: for locks in a directory that it did not have */
/* What the nodes tell when we have just begun, and when a lock's owner is gone (rebuild.c). */
void names_told(struct names *n, uint64_t dir, const char *name, const struct pointer *at);
/* A home says that it has the name, or hides it: if we know otherwise, all are asked. */
void names_claim(struct names *n, uint32_t home, uint64_t dir, const char *name, const struct pointer *claim);
size_t names_in_doubt(struct names *n); /* so many are being asked for */
size_t names_known(struct names *n);    /* so many entries there are */
struct told_lock {
	uint64_t id, stamp; /* stamp: as it was given */
	bool needed;        /* else it has ended, and an earlier daemon of the server may have heard of that */
};
void names_told_lock(struct names *n, uint64_t dir, const char *name, uint32_t node, const struct told_lock *l);
void names_told_all(struct names *n);          /* or was given up */
void names_told_by(struct names *n, bool all); /* a node has told its names, perhaps late; all: so have all others */
/* The end of what begin_doubt of rebuild.c was asked to find out. lacking: a node that was given up could not be asked. */
void names_settled(struct names *n, uint64_t dir, const char *name, const struct pointer *at, bool lacking);
/* A node does not say what it has there; name NULL: anywhere. It is asked again, but until it says so whoever asks for the name gets -EIO. */
void names_refused(struct names *n, uint64_t dir, const char *name);
void pointer_put(struct wire_msg *m, const struct pointer *at);
void pointer_get(const struct wire_msg *m, struct pointer *ret);

/* ---- announce.c: names that our own kernel is about to change (job_announce) */

extern const struct part announce_part;
bool announce_is(struct job *j, uint64_t dir, const char *name);   /* not to be kept by the kernel */
bool announce_runs(struct job *j, uint64_t dir, const char *name); /* and it does not: the call is under way */

/* ---- rebuild.c: pointers from what the homes' states say */

extern const struct part rebuild_part;
/* Then names_settled. late: 1 + a node whose daemon has ended: nothing that it asked for is done any more when it is settled; 0: none. */
void rebuild_name(struct job *j, uint64_t dir, const char *name, uint32_t late);
void rebuild_serve_send(struct job *j, struct peers_request *rq);
void rebuild_serve_who(struct job *j, struct peers_request *rq);

/* ---- late.c: requests that are still under way when others decide without them */

/*
 * then(j, arg), when every node has done what this one has asked of it so far, or will not do it any more. Nobody waits for that; when we end
 * before, it is not called. -ENOMEM.
 */
int late_await(struct job *j, void (*then)(struct job *j, void *arg), void *arg);
void late_serve_await(struct job *j, struct peers_request *rq);
bool late_is_over(struct job *j, const struct wire_msg *m); /* UNTIL, if it says so: -ETIME, and nothing is done */
/* With a question: of daemons that are over as we know it nothing is to be done behind its answer. */
void late_put_node(struct job *j, struct wire_msg *m, uint32_t node);
void late_put_all(struct job *j, struct wire_msg *m);
/* What is asked behind what was asked before; -EBUSY: more may come of a daemon that the asker knows to be over. */
void late_serve_question(struct job *j, struct peers_request *rq);
uint64_t late_life(struct job *j, uint32_t node); /* other for each daemon of it, and when that is over */

/* ---- held.c: locks of names that operations here hold, whatever becomes of the servers */

extern const struct part held_part;
/* All of them, or none. 0; -ENOENT: the directory is gone; errors of peers_call. refs are reordered by nobody. */
int held_lock(struct job *j, struct name_ref *refs, unsigned int num);
/* What is there now: ref->at. Does not wait. */
void held_unlock(struct job *j, struct name_ref *ref);
void held_unlock_unknown(
	struct job *j, struct name_ref *ref); /* the server is to find out, when all that was asked for is over */
/*
 * A lock is nobody else's until then, whatever becomes of us (late.c): what is done under it is done before. Half of that time is left for
 * the doing. UNTIL of a request under a, and b unless NULL; and whether we may do it ourselves.
 */
void held_put_until(struct wire_msg *m, const struct name_ref *a, const struct name_ref *b);
/* It has lasted longer: is the lock still ours? -EIO: no, or its server does not say so. */
int held_renew(struct job *j, const struct name_ref *ref);
int held_keep(struct job *j, const struct name_ref *ref); /* the same, if need be */
int held_lookup(struct job *j, uint64_t dir, const char *name, struct pointer *ret);
void held_doubt(struct job *j, uint64_t dir, const char *name);
typedef void held_cb(uint64_t dir, const char *name, const struct told_lock *l, void *arg);
/* Every lock that node has given us, and whose end it has not confirmed. */
void held_each(struct job *j, uint32_t server, held_cb *cb, void *arg);

/* ---- tree.c: directories */

enum tree_word { /* with TREE_COMMIT */
	TREE_TRY,
	TREE_LAST_TRY, /* without it you serve no names */
	TREE_AHEAD, /* nor do you with changes that node 0 has lost and cannot learn; what comes later is not for you */
};

enum tree_change {
	TREE_ADOPT = 1,
	TREE_MKDIR,
	TREE_RMDIR,
	TREE_RENAME,
	TREE_SETATTR,
	TREE_SETXATTR,
	TREE_REMOVEXATTR,
	TREE_DRAINED, /* RECORD_BYTES: what a drain has done with it in the backing directory */
};
/* Node 0 is just moving or removing it: its name is not to be believed before its server has answered. */
static inline bool tree_is_moving(const struct job *j, uint64_t ino)
{
	return ino == j->moving[0] || ino == j->moving[1];
}
/* Ask node 0 for it, and wait until all nodes have it. request: of type TREE_CHANGE. */
int tree_change(struct job *j, struct wire_msg *request);
/* The same; *ret_hidden: what appears in the backing directory under the name that went is not to be shown: a drain may put it there. */
int tree_change_hiding(struct job *j, struct wire_msg *request, bool *ret_hidden);
void tree_init(struct wire_msg *request, enum tree_change change);
/* The directory is in the tree afterwards. -ENOENT: it was removed; -ESTALE, -ENOTDIR. */
int tree_know(struct job *j, uint64_t dir);
/* The same for a directory that was found there, as core_hint says it. */
int tree_know_path(struct job *j, uint64_t dir, const char *path);
/* Before the first change of a file: the directories above it are in the tree. hint as core_hint gives it. */
int tree_know_above(struct job *j, uint64_t hint_dir, const char *hint);
/* What the kernel may have cached of what a record changes. names: those, too; else PREPARE has told it. */
void tree_tell_kernel(struct job *j, const struct record *rec, bool names);
/* The records of a message; -EILSEQ: its STAMP is not reached by them, or one before them is missing here. */
int tree_apply(struct job *j, const struct wire_msg *m);
void tree_serve_prepare(struct job *j, struct peers_request *rq);
void tree_serve_commit(struct job *j, struct peers_request *rq);
void tree_serve_stamp(struct job *j, struct peers_request *rq);
void tree_serve_records(struct job *j, struct peers_request *rq);

/* ---- tree_log.c: the last changes of the tree */

extern const struct part tree_log_part;
void tree_log_add(struct job *j, const struct record *rec);
void tree_log_load(struct job *j); /* those of our journal, too */
bool tree_log_has(struct job *j, uint64_t stamp);
/* When that change was made, by node 0's clock: two changes of one number are not of one time. 0: not known any more. */
uint64_t tree_log_time(struct job *j, uint64_t stamp);
uint64_t tree_log_time_old(struct job *j, uint64_t stamp); /* the same of one in the journal, which is read */
/* As RECORD_BYTES, up to the first that is not kept, or as many as a message may have. */
void tree_log_put(struct job *j, struct wire_msg *m, uint64_t from, uint64_t upto);
/* The same out of our journal, however long ago that was. */
void tree_log_put_old(struct job *j, struct wire_msg *m, uint64_t from);

/* ---- lag.c: our store has not taken a change of the tree that all others have */

extern const struct part lag_part;
bool lag_is(struct job *j);
/* It will not end: our tree has changes that node 0 has lost. LAG_AHEAD: their status. */
bool lag_is_ahead(struct job *j);
#define LAG_AHEAD (-ENODATA)
int lag_gate(struct job *j); /* before names are used: -EIO: they are not served */
/* Our tree should have that number, and does not, for that reason. True: that is news. */
bool lag_begin(struct job *j, uint64_t stamp, int status);
void lag_end(struct job *j); /* it has all */
/* rq is kept and served by fn when all is there, or refused with -EIO if that may be never; false: it is there, so serve it now. */
bool lag_keeps(struct job *j, serve_handler fn, struct peers_request *rq);
/* The same until our tree has that change, which the sender had. */
bool lag_keeps_until(struct job *j, uint64_t stamp, serve_handler fn, struct peers_request *rq);
void lag_tree_grown(struct job *j);
int lag_wait(struct job *j,
	uint64_t stamp); /* until our tree has that change. -EILSEQ: it cannot, or not within agent_timeout */
const char *lag_reason(int status);
const char *lag_remedy(int status); /* what to do, for people */

/* ---- learn.c */

/* Node 0 has every change of the tree that it can have from a node which has it. Negative: our store does not take one. */
int learn_lost(struct job *j);

/* ---- sequence.c: node 0 puts the tree's changes in order */

extern const struct part sequence_part;
void sequence_serve(struct job *j, struct peers_request *rq);
/*
 * No change of the tree is under way from here to there: for what is short and waits for nobody. False: one is, and list_answer
 * will serve rq behind it.
 */
bool sequence_look_begin(struct job *j, struct peers_request *rq);
void sequence_look_end(struct job *j);
void sequence_troubles(struct job *j, void (*say)(const char *text, void *arg), void *arg);

/* ---- remote.c: files of other nodes */

extern const struct part remote_part;
#define HINT_BYTES 4096
struct hint {         /* where an untouched file was found: core_hint */
	uint64_t dir; /* 0: no need to know */
	char path[HINT_BYTES];
};
uint32_t remote_home(struct job *j, uint64_t ino);
bool remote_has(struct job *j, uint64_t ino); /* our kernel knows it, and it is at home elsewhere */
/*
 * Attributes of a file, with a lookup counted for our kernel. name: only if it is one of its names, else -ENOENT; NULL: it was found in
 * the backing directory, hint says where. -ESTALE.
 */
int remote_lookup(
	struct job *j, uint64_t ino, uint64_t dir, const char *name, const struct hint *hint, struct core_entry *ret);
/* Our kernel knows a file that was looked up before this node had its number, in the backing directory alone. */
void remote_note_early(struct job *j, uint64_t ino);
void remote_count(struct job *j, uint64_t ino, const struct hint *hint); /* a lookup that its home has counted for us */
/* A lookup that its home has counted for us, and no kernel of ours was told of; until it is, or the spare is dropped. */
void remote_spare(struct job *j, uint64_t ino, uint64_t dir, const char *name);
void remote_drop_spare(struct job *j, uint64_t ino); /* if it is one */
bool remote_count_again(
	struct job *j, uint64_t ino); /* one more for our kernel alone; false: it does not know the file */
void remote_forget(struct job *j, uint64_t ino, uint64_t nlookup);
/*
 * A request MESSAGE_FILE_* about a file, without INO and hint, which are added, to its home, which may be here. hint NULL: as
 * remote_hint has it. Brings the directories above into the tree when the home needs that. *ret_reset (may be NULL): its
 * daemon was restarted meanwhile, and what it answered last counts: the request may have been done before.
 */
int remote_call(struct job *j, uint64_t ino, const struct hint *hint, struct wire_msg *request, struct wire_msg *reply,
	bool *ret_reset);
void remote_hint(struct job *j, uint64_t ino, struct hint *ret);
/* Where a file of another node was looked up last; false: it is not known here. */
bool remote_name(struct job *j, uint64_t ino, uint64_t *ret_dir, char ret_name[RECORD_NAME_MAX + 1]);
void hint_put(struct wire_msg *m, const struct hint *hint);
void hint_get(const struct wire_msg *m, struct hint *ret);

/* ---- home.c: files that are at home here, for any node */

extern const struct part home_part;
void home_serve(struct job *j, struct peers_request *rq);
bool home_is_open(struct job *j, uint64_t ino); /* by any node */
void home_hold(
	struct job *j, uint32_t node, uint64_t ino); /* a lookup has been counted in core, and is that node's now */
void home_serve_lost(struct job *j, struct peers_request *rq);
/* The work of it: makes reply, with its status, which it returns, too. */
int home_do(struct job *j, uint32_t from, const struct wire_msg *rq, struct wire_msg *reply);
void entry_put(struct wire_msg *m, const struct core_entry *e);
int entry_get(const struct wire_msg *m, struct core_entry *ret);                     /* -EBADMSG */
int entry_get_nth(const struct wire_msg *m, unsigned int n, struct core_entry *ret); /* from 0 */

/* ---- change.c: what changes names, driven here */

int change_create(struct job *j, uint64_t parent, const char *name, mode_t mode, const char *target, dev_t rdev,
	int flags, struct core_cred cred, struct core_entry *ret, struct core_open_reply *ret_open /* NULL: no open */);
int change_mkdir(
	struct job *j, uint64_t parent, const char *name, mode_t mode, struct core_cred cred, struct core_entry *ret);
int change_link(struct job *j, uint64_t ino, uint64_t parent, const char *name, struct core_entry *ret);
int change_remove(struct job *j, uint64_t parent, const char *name, bool is_dir);
int change_rename(
	struct job *j, uint64_t from_parent, const char *from, uint64_t parent, const char *name, unsigned int flags);

/* ---- times.c: times of directories */

extern const struct part times_part;
/* Our state has a new time of dir: files have come or gone in it. Does not wait. */
void times_changed(struct job *j, uint64_t dir);
/* All nodes have it of what has changed in directories so far. Waits a little; who cannot be reached hears later. */
void times_settle(struct job *j);
/* The times of a directory, as core has them, become those that all nodes know of. Asks its time home, if it is there. */
void times_fix(struct job *j, struct core_entry *e);
/* The tree's change number stamp has set the times of a directory. */
void times_reset(struct job *j, uint64_t ino, uint64_t stamp);
/* A time that was right when the tree had this number has been set to another one since. */
bool times_is_void(struct job *j, uint64_t ino, uint64_t stamp);
void times_serve_told(struct job *j, struct peers_request *rq);
void times_serve_ask(struct job *j, struct peers_request *rq);
void times_serve_changed(struct job *j, struct peers_request *rq);

/* ---- drain.c */

void drain_serve_needed(struct job *j, struct peers_request *rq);

/* ---- handover.c: names that files at home here have lost to files of other homes */

extern const struct part handover_part;
void handover_note(struct job *j, uint64_t dir, const char *name); /* before the name goes */
/* Those in dir that went at that time (job's clock) or later; false: there may be some more. */
bool handover_each(struct job *j, uint64_t dir, int64_t since, void (*each)(const char *name, void *arg), void *arg);

/* ---- list.c: directories' listings over all nodes */

int list_open(struct job *j, uint64_t ino, struct listing **ret);
struct listing *list_ref(struct listing *l); /* for another list_close */
void list_close(struct listing *l);
size_t list_size(const struct listing *l);
uint64_t list_find(const struct listing *l, const char *name); /* its index; UINT64_MAX: it is not in there */
int list_get(struct listing *l, uint64_t index, const char **ret_name, uint64_t *ret_ino, uint32_t *ret_type);
void list_serve(struct job *j, struct peers_request *rq);
void list_answer(struct job *j, struct peers_request *rq); /* the same, at once */

#endif
