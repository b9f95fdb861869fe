/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_SHARE_H
#define FS_JOB_SHARE_H

/*
 * Data of files that more than one node has open: what the files of this part share. share.c: its life, the table of
 * files, the thread that catches up; registry.c: what the home of a file knows and does; tell.c: who is told of it; open.c: opening, at home and elsewhere;
 * commit.c, send.c: a node's own writes become everybody's; sweep.c: those of an earlier daemon; map.c: where bytes are; read.c, write.c, cut.c: the calls.
 *
 * Locks, from top to bottom: shared.open_lock, cut_lock, commit_lock; shared.lock; through_lock; size_lock; share.table; shared.mutex. Only the first
 * three are held while another node is asked.
 *
 * Four kinds of threads answer requests, and wait only downwards, so no circle of waiting nodes can arise: drivers (open
 * for writing, truncate) wait for tellers and workers; showers (they commit for who reads) wait for those, too; tellers (they drop
 * the kernel's pages) wait for reads of pages, which wait for workers; workers wait for nobody but transports (quiet.c). A process that reads waits
 * for showers; one that writes, for workers (lease.c), and not for long.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "format/index/state.h"
#include "format/place/place.h"
#include "fs/job/private.h"

#define SHARE_TELL_USEC     5000000ull /* what was written is told no later, if nobody asks for it before */
#define SHARE_RETRY_USEC    200000u    /* between two attempts */
#define SHARE_RESTART_TRIES 100
#define SHARE_READ_TRIES    200
#define SHARE_WINDOW        (4u << 20) /* bytes of a file whose places are asked for at once; divides a domain */
#define SHARE_WINDOWS       64         /* kept for each file */
#define SHARE_PIECES_MAX    8192u      /* in one message */
#define SHARE_ENDS_KNOWN    4096u      /* files of which it is remembered that all appends are told; a power of 2 */
#define SHARE_FRESH_USEC    (PLACE_GRACE_USEC / 2)

enum visible { VISIBLE_CLOSE, VISIBLE_READ, VISIBLE_WRITE }; /* CONFIG_VISIBLE */

/* ---- what the home says of a file */

enum view_flag {
	VIEW_SHARED = 1,   /* its bytes are found by the share maps */
	VIEW_OUTSIDE = 2,  /* all of it is in the backing file */
	VIEW_KNOWN = 4,    /* the home's store has it */
	VIEW_PROMISED = 8, /* the home will tell who reads this when it is not true any more: once */
	VIEW_BOUND = 16,   /* to who registers: others have leases, so tell the home before you write (lease.c) */
};

/* By drains: what was committed up to stamp, and written up to usec, is in the backing file, as far as its limit. stamp 0: nothing */
struct drained_upto {
	uint64_t stamp, usec;
};

struct view {
	uint64_t ino, size, stamp, limit;
	struct drained_upto drained;
	uint64_t promise_usec; /* a promise is good for so long, from when it was asked for */
	uint64_t backing_dev, backing_ino;
	uint64_t parent; /* and name: where it belongs, as far as the home knows */
	int64_t mtime_ns;
	uint64_t file_stamp; /* as in core_entry: of the backing file that has all of it */
	uint32_t flags;      /* enum view_flag */
	uint32_t mode, uid, gid;
	char name[RECORD_NAME_MAX + 1];
	char path[4096]; /* of its backing file; "": not known */
};

/* ---- a file */

struct opener {
	uint32_t node, readers, writers;
	uint64_t counted_ns;  /* by its clock; what is older has been overtaken. 0: not by itself */
	bool promised;        /* it believes what it was told last: the next commit is told to it, and ends that */
	uint64_t untold;      /* the newest change that it has not said in time to know of; 0: none */
	bool slow;            /* though it was heard meanwhile: nobody waits for it until it has said so */
	bool again;           /* it is just told again */
	uint64_t leased_usec; /* until then it has a lease (lease.c) */
};

struct closing_of { /* the last that a node has told: what it has counted before has been overtaken */
	uint32_t node;
	uint64_t counted_ns;
};

struct pending { /* a stamp that was given and whose commit has not been told */
	uint32_t node;
	uint64_t stamp;
};

struct bases {              /* newest commit that was known */
	uint64_t early;     /* when the first of some writes was made */
	uint64_t late;      /* for those whose seq is above late_from */
	uint64_t late_from; /* version of this node's state */
};

struct cut { /* what lies at and behind size, and has a lower stamp, is no more; stamp 0: nothing was cut off */
	uint64_t size, stamp;
};

struct map { /* one window of a file: where its bytes are */
	_Atomic(unsigned int) refs;
	uint64_t window, epoch;
	uint64_t asked_usec;
	struct cut cut; /* the newest that the domain home knows of */
	uint64_t limit; /* of a file that is its home's alone: that of the backing file when the home looked; else 0 */
	size_t num;
	struct share_extent ext[];
};

struct question { /* somebody asks for the places of a window */
	struct question *next;
	uint64_t number, window;
};

enum kept { KEPT_NOT, KEPT_PRIVATE, KEPT_THROUGH }; /* carry.c */

struct shows {                     /* who waits until all that others have written is committed: for the next round */
	struct peers_request **at; /* owned */
	size_t num, cap;
	bool running;       /* a round is */
	bool knows_writers; /* all that write elsewhere are openers */
	uint64_t doubts;    /* how often that has ended */
};

struct lease {                 /* of a node; lease.c */
	uint64_t until_usec;   /* until then we have one */
	uint64_t recall_stamp; /* the newest one of a recall */
	uint64_t bound_usec;   /* until then we tell the home before we write */
	unsigned int num_writing;
};

struct leases {                          /* the home's */
	bool inherited;                  /* an earlier daemon may have given some */
	unsigned int calm;               /* rounds in a row in which nobody had anything to commit */
	uint64_t writes;                 /* how often somebody has been about to write, or has come to write */
	uint64_t here_usec;              /* until then we have one */
	unsigned int batch, num_recalls; /* of that batch, which are under way */
	uint64_t over_usec;              /* when all leases are over that have been recalled */
	uint64_t stuck_usec;             /* the same of those whose recall has failed */
	struct peers_request **waiting;  /* owned: they write when those are done */
	size_t num_waiting, cap_waiting;
};

struct waiting {
	struct peers_request **at; /* owned */
	size_t num, cap;
};

struct placing { /* somebody waits for a place */
	LIST_ENTRY(placing) in_list;
	uint64_t life; /* no daemon of the home gives it that was before this one; 0: any may */
};

struct shared {
	struct shared *next; /* share.table */
	uint64_t ino;
	struct clock *clock; /* the job's */
	uint32_t home;
	bool at_home;
	uint32_t refs;        /* share.table */
	bool catching, tardy; /* catch_up.c */
	TAILQ_ENTRY(shared) in_queue;

	pthread_mutex_t open_lock;
	uint32_t readers, writers; /* opens of this node; changed under open_lock and mutex */
	bool registered;           /* mutex: the home knows of them */
	/* elsewhere than at home: open_lock to change; there, once it is there, as long as writers > 0 */
	struct core_file *_Atomic layer;
	_Atomic(bool) has_carried; /* elsewhere: since the last commit */
	_Atomic(uint64_t) carries; /* elsewhere: how much was, counted */
	uint64_t carries_kept;     /* mutex: of that on the home's device, or lost and said */

	pthread_rwlock_t
		lock; /* home: shared by reads and writes of a file that is not shared, exclusive while it becomes so */
	_Atomic(bool) is_shared;
	_Atomic(enum kept) kept;      /* home: others write, but it cannot be shared */
	pthread_mutex_t through_lock; /* of one that is KEPT_THROUGH: who writes, or cuts; room may be waited for */
	_Atomic(bool) carried;        /* elsewhere: its home's kernel writes to it */

	pthread_mutex_t commit_lock;
	pthread_mutex_t
		layer_lock; /* elsewhere than at home: our layer is being cut, or a commit of it noted; nobody is waited for under it */
	pthread_mutex_t mutex;
	/* below: mutex */
	uint64_t size,
		limit; /* committed; at home of a shared file size alone: the state's is with what we have not committed */
	struct drained_upto drained;       /* elsewhere: belongs to limit */
	uint64_t stamp;                    /* newest that we know of */
	bool current;                      /* elsewhere: the home has promised to tell, and has not told yet */
	uint64_t asked_usec, promise_usec; /* elsewhere: when we asked for that, and how long it is good then */
	uint64_t told_stamp, looked_usec;  /* the newest that was told; when a look failed */
	bool outside;
	uint64_t file_stamp; /* elsewhere: as in core_entry, when we were told last */
	char *path;          /* owned; NULL: not known */
	uint64_t backing_dev, backing_ino;
	int backing_fd;               /* -1: not open */
	_Atomic(uint64_t) epoch;      /* of what we know: raised when somebody has committed */
	struct cut cut;               /* the newest that we know of */
	uint64_t cut_before;          /* stamp of the one before it */
	_Atomic(uint64_t) cuts_known; /* how often that has changed: mutex to change */
	_Atomic(uint64_t) shapes; /* raised before and after something is cut off, and behind what makes holes here */
	struct map *maps[SHARE_WINDOWS];
	struct question *questions; /* borrowed from who asks */
	uint64_t last_question;
	pthread_cond_t answered;
	uint64_t own_end;      /* of what we have written and not committed */
	uint64_t end_cut;      /* stamp of the newest cut that has been done here: own_end is of after it */
	uint64_t cuts;         /* how often our layer has been cut */
	uint64_t dirty_usec;   /* since when there is something of that; 0: nothing */
	uint64_t telling_usec; /* the same of what a commit is about; 0: none */
	bool resend;           /* what was committed must be told again */
	uint64_t resends;      /* how often that was found */
	bool parked;           /* resend: only nodes that were given up lack it, and nobody tries before one is back */
	bool left;             /* since our start: an earlier daemon may not have told it; or it was parked */
	bool left_marked;      /* so it was found once */
	bool unknown;          /* its home did not know it while it was open here */
	_Atomic(uint64_t) losses; /* how often what was written here has gone with the file */
	struct pages *pages;      /* owned; NULL: none were given */
	struct bases bases;       /* of what we have written and not committed */
	struct lease lease;

	/* the home's: mutex */
	pthread_mutex_t cut_lock;
	pthread_mutex_t size_lock; /* its size is being changed; nobody is waited for under it */
	struct opener *openers;    /* owned; other nodes */
	size_t num_openers;
	struct closing_of *closings; /* owned; at most one of each node */
	size_t num_closings, cap_closings;
	struct core_file *anchor; /* owned: keeps the inode while others have it open */
	uint64_t last_stamp;      /* given */
	struct pending *pending;  /* owned; at most one of each node */
	size_t num_pending;
	uint64_t append_end; /* of bytes that were given to appenders; elsewhere: to ours */
	bool knows_ends;     /* append_end, or the size, is behind what any node has written without having told it */
	struct waiting placeless;             /* who waits until that is so: while it is asked for */
	uint64_t home_life;                   /* of the home's daemon that has refused us last */
	LIST_HEAD(placings, placing) placing; /* appends of ours that wait for their place */
	struct shows shows;
	struct leases leases;
	bool cutting;                   /* maps and layers of nodes end already, the home's own layer does not */
	bool cut_done;                  /* now the file does, too */
	struct peers_request **waiting; /* for a stamp, until the cut is done */
	size_t num_waiting;
};

struct closing; /* open.c's */
STAILQ_HEAD(closing_list, closing);

struct share {
	struct job *j;
	pthread_mutex_t table;
	struct shared **buckets;
	struct workers *tellers, *showers, *drivers;
	struct ahead *ahead;       /* owned */
	struct catch_up *catch_up; /* owned */
	uint64_t begun_usec;
	_Atomic(uint64_t) hold_usec;
	_Atomic(bool) hold_is_old;             /* it may be too low, as long as that is so for nobody's sake */
	bool lost_power;                       /* since then it is not known which files others write to */
	uint64_t ends_known[SHARE_ENDS_KNOWN]; /* inodes; table */
	pthread_mutex_t hold_lock;

	pthread_t thread;
	bool has_thread;
	pthread_mutex_t wake; /* the thread's */
	pthread_cond_t wake_cond;
	bool poked, sweep;            /* wake; sweep: look at all layers of the store */
	_Atomic(bool) ending, swept;  /* swept: it has been done once */
	_Atomic(uint64_t) tell_usec;  /* SHARE_TELL_USEC; tests */
	struct closing_list closings; /* owned; wake: those that could not be told */
	uint64_t *gone; /* owned; wake: inodes of files that are no more, and of which others have something */
	size_t num_gone, cap_gone;
	_Atomic(bool) witness_away;   /* it has not answered in time, nor since */
	_Atomic(uint64_t) messages;   /* of data that went to other nodes: tests */
	_Atomic(uint64_t) page_bytes; /* pages.c */
};

/* ---- share.c */

struct shared *shared_get(struct job *j, uint64_t ino);  /* makes it; NULL: no memory */
struct shared *shared_find(struct job *j, uint64_t ino); /* NULL: not in use here */
void shared_put(struct job *j, struct shared *s);
/* The kernel forgets the pages of all of them. In a teller: it may wait for reads. */
void share_drop_pages(struct job *j, void *arg);
void shared_each(struct job *j, void (*fn)(struct job *j, struct shared *s, void *arg), void *arg);
static inline bool shared_is_home(const struct job *j, const struct shared *s)
{
	(void)j;
	return s->at_home;
}
/* At home, as long as no other node writes to it: true, and that stays so until shared_alone_end(). */
bool shared_alone_begin(struct job *j, struct shared *s);
void shared_alone_end(struct shared *s);
void share_poke(struct job *j); /* the thread has something to do */
/* peers_call() of what may be said twice: again while the other daemon is being restarted. */
int share_call(struct job *j, uint32_t node, const struct wire_msg *request, struct wire_msg *reply);
uint64_t share_clock_usec(struct job *j);                /* the job's clock */
void share_put_until(struct job *j, struct wire_msg *m); /* UNTIL: as long as a call lasts from now on */
/* 0; -ECONNRESET: the asker's daemon has given up, or has gone; -ETIMEDOUT: UNTIL is over. Before the reply. */
int share_check_wanted(struct job *j, const struct peers_request *rq);
/*
 * Asks the file's home, and waits for its answer until then at the most: -ETIMEDOUT. took, unless NULL, is given the answer of one that
 * has done it, also when that comes later.
 */
typedef int (*share_took)(struct shared *s, const struct wire_msg *reply, uint64_t asked_usec);
int share_ask_home(struct job *j, struct shared *s, const struct wire_msg *m, uint64_t until_usec, share_took took);
void share_reply_number(struct peers_request *rq, int status, enum message_tag tag, uint64_t v);
/* Nothing that was freed since then is given back (format/store): somebody's oldest write that is not told. */
void share_update_hold(struct job *j);
uint64_t shared_oldest(struct shared *s); /* its part in that; UINT64_MAX: none */

/* Requests at once to several nodes, and a wait for all. */
struct fan {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned int left;
	int status; /* the first that failed; -EHOSTDOWN: none but by that */
};
void fan_init(struct fan *f);
void fan_begin(struct fan *f);                                                       /* one more */
void fan_done(int status, const struct wire_msg *reply, void *arg /* struct fan */); /* one less */
void fan_call(struct job *j, struct fan *f, uint32_t node, const struct wire_msg *request);
void fan_call_brief(struct job *j, struct fan *f, uint32_t node, const struct wire_msg *request); /* peers_call_brief */
/* The same for who wants the answer: done ends with fan_done(). */
void fan_ask_brief(
	struct job *j, struct fan *f, uint32_t node, const struct wire_msg *request, peers_done done, void *arg);
int fan_wait(struct fan *f); /* and destroys it */

/* ---- catch_up.c */

struct catch_up;
int catch_up_create(struct job *j, struct catch_up **ret);
void catch_up_destroy(struct catch_up *c); /* NULL is fine; waits for what is being done */
void catch_up_round(struct catch_up *c);   /* all that is due is begun. Waits for no other node */

/* ---- view.c */

void view_put(struct wire_msg *m, const struct view *v);
void view_reply(struct peers_request *rq, const struct view *v);
void view_get(const struct wire_msg *m, struct view *ret);
/*
 * What the home, or somebody for it, has said is taken over when it is news: what we asked for at asked_usec (0: at home). told: it is a
 * change that we were to be told of.
 */
void shared_apply(struct shared *s, const struct view *v, uint64_t asked_usec);
void shared_apply_told(struct shared *s, const struct view *v);

/* ---- registry.c: at the file's home */

/* What is so now. Who asks (a node, or NOBODY) is promised to be told of the next change, if it has the file open. */
#define NOBODY UINT32_MAX
int registry_view(struct job *j, struct shared *s, uint32_t asks, struct view *ret);
/* To be asked before the limit that belongs to it: nothing is taken for drained then that is not below the limit. */
struct drained_upto drained_at_home(struct job *j, const struct shared *s);
struct listener {
	uint32_t node;
	bool promised; /* else it has not said to know of an earlier change */
};
struct audience {            /* who is told */
	struct listener *at; /* owned */
	size_t num;
};
/* Something has changed, by a node: the same; and those who were promised that, but the one, are promised nothing any more, and are told. */
int registry_change(struct job *j, struct shared *s, uint32_t by, struct view *ret, struct audience *ret_audience);
void registry_promise(struct shared *s, uint32_t node); /* the change has come to nothing */
/* A node has said that it knows of the change with that stamp; or has not, in time, though it was heard meanwhile (slow). */
void registry_told(struct shared *s, uint32_t node, uint64_t stamp, bool knows, bool slow);
/* Those who are heard and have not said to know of all changes, each once until registry_told. -ENOMEM. */
int registry_untold(struct job *j, struct shared *s, struct audience *ret);
uint64_t registry_stamp(struct shared *s); /* a new one, usec of the job's clock; mutex is held */
uint64_t shared_size_here(struct job *j, const struct shared *s); /* this node's state's; 0: it does not have it */
/* Every commit with a stamp up to *ret is in the share maps. -EBUSY: the file is just being cut. */
int registry_settled_stamp(struct shared *s, uint64_t *ret);
/* What is written from now on at home, where nobody had the file open, has seen all commits that have been told. */
void registry_catch_up(struct shared *s);
bool registry_has_openers(struct shared *s);
/* A lookup of the file that a request is about, by its number or by the hint that came along: core_forget() ends it. */
int registry_find(struct job *j, uint64_t ino, const struct wire_msg *m);
void registry_reply(
	struct job *j, struct shared *s, struct peers_request *rq); /* with the view of now, and a promise */
void registry_forget_node(struct job *j, uint32_t node);
void registry_gone(uint64_t ino, void *arg); /* core_set_job's: others are told when that is durable */
void registry_tell_gone(struct job *j);      /* they are told now. Syncs, once for all of them */
void registry_serve_register(struct job *j, struct peers_request *rq);
void registry_serve_stamp(struct job *j, struct peers_request *rq);
void registry_serve_committed(struct job *j, struct peers_request *rq);
/* How far somebody has written who knew of no newer cut than AT_STAMP. */
uint64_t registry_end_told(struct job *j, struct shared *s, const struct wire_msg *m, enum message_tag tag);
void registry_serve_look(struct job *j, struct peers_request *rq);
void registry_serve_drop(struct job *j, struct peers_request *rq);

/* ---- append.c */

struct append { /* where one goes: that is nobody else's */
	uint64_t off, len;
	uint64_t stamp; /* of when the home has said so */
	uint64_t cuts;  /* cuts_known when len was looked at */
};
/* A place for so many bytes; ret->len: as many of them as no cut has taken off since, more than 0. */
int append_place(struct job *j, struct shared *s, size_t len, struct append *ret);
/* More may have been taken off: false: nothing is left. */
bool append_trim(struct shared *s, struct append *a);
/* It has been, but for what has been cut off again: so far reaches what we have written. Before shared_mark_dirty(). */
void append_written(struct shared *s, const struct append *a);
void append_serve_place(struct job *j, struct peers_request *rq);
void append_raise_end(struct shared *s, uint64_t end); /* at home: so far somebody has written */
/* share.table is held: a file comes into use at its home, or goes. */
void append_recall(struct job *j, struct shared *s);
void append_remember(struct job *j, const struct shared *s);

/* ---- tell.c: who believes something of a file is told when it is so no more */

/* Others may go on with what this node has done to a file that is not shared. Waits. */
int registry_tell(struct job *j, struct shared *s);
/* A commit of who sent rq; which is answered, with the view of now, when all know that had to. rc < 0: with that, at once. */
void tell_and_reply(struct job *j, struct shared *s, struct peers_request *rq);
int shared_apply_reply(struct shared *s, const struct wire_msg *reply, uint64_t asked_usec); /* a view */
/* At home: who has not heard what he was told, and may now. Does not wait. */
void registry_tell_again(struct job *j, struct shared *s);
void tell_serve_told(struct job *j, struct peers_request *rq);
/*
 * Elsewhere than at home: what we know of the file is what the home knows; asks it if need be. shared_look: only so that a write is not
 * taken for one that has not seen what others committed: it does not wait long, and need not succeed.
 */
int shared_make_current(struct job *j, struct shared *s);
/* What is believed of the file has been believed for longer than was promised, and its home can be asked. */
bool shared_is_lapsed(struct job *j, struct shared *s);
void shared_doubt(struct shared *s); /* something that we know of it is not so: the next one asks */
void shared_look(struct job *j, struct shared *s);

/* ---- open.c */

int share_open(struct job *j, uint64_t ino, int flags, struct job_file *file, struct core_open_reply *ret);
/* file->local was just opened (and perhaps made) here, at its home. */
int share_opened(struct job *j, uint64_t ino, int flags, struct job_file *file, struct core_open_reply *ret);
void share_release(struct job *j, struct job_file *file);
void closings_round(struct job *j);                   /* homes that took no more are told who has closed what */
void closings_drop(struct job *j);                    /* at the end */
bool shared_is_unregistered(struct shared *s);        /* it is open here, and the home's daemon does not know */
int shared_register(struct job *j, struct shared *s); /* again, when the home has forgotten us */
/* A drain may have given the file its place since we made a layer of it: recovery is to know that. */
void shared_note_place(struct job *j, const struct view *v);

/* ---- bases.c */

#define BASES_MAX 4

struct commit_bases {        /* of a commit */
	struct bases before; /* of what was written before it began */
	struct bases since;  /* of what it may have found besides: its seq is above begun */
	uint64_t begun;      /* version of this node's state, behind before */
};

void bases_note(struct job *j, struct shared *s); /* something is being written */
/* A commit begins; shared's mutex is held. begun is the caller's. */
void bases_begin(struct shared *s, struct commit_bases *ret);
void bases_listed(struct shared *s, struct commit_bases *b);              /* what it commits has been listed */
void bases_restore(struct shared *s, const struct commit_bases *b);       /* it has failed; shared's mutex is held */
uint64_t bases_of(const struct commit_bases *b, uint64_t seq);            /* what was known when that was written */
size_t bases_each(const struct commit_bases *b, uint64_t ret[BASES_MAX]); /* all that bases_of may say, once each */

/* ---- commit.c */

void shared_mark_dirty(struct job *j, struct shared *s, uint64_t since_usec, uint64_t end);
void shared_resend(struct shared *s);            /* what was committed must be told again. mutex is held */
int share_show(struct job *j, struct shared *s); /* what this node has written, to all who have the file open */
int share_flush(struct job *j, struct job_file *file);
int share_fsync(struct job *j, struct job_file *file, bool data_only);
/* The same of one that is not its home's alone. losses: those before what it is about; -ESTALE: some of that has gone. */
int share_sync(struct job *j, struct shared *s, uint64_t losses);
int share_commit_all(struct job *j);
/* durable: what this node has written and changed is on its device, too. */
int share_commit(struct job *j, struct shared *s, bool durable);
/* The same; a home that does not know that we have the file open, or of the file, is told of it first. open_lock is not held. */
int share_commit_known(struct job *j, struct shared *s, bool durable);
int share_retell(struct job *j, struct shared *s); /* only what was committed before */
void commit_serve_forget(struct job *j, struct peers_request *rq);
/*
 * All that this node has committed is told again, now, beside whatever is being committed. Files of that home: it is made to know again
 * that we have written to them, and how far; what it does not have any more we do not need. 0, or the first error.
 */
int commit_tell_all(struct job *j, uint32_t home);
uint64_t commit_newest_stamp(struct job *j, uint64_t ino); /* of what this node has committed; 0: nothing */

/* ---- sweep.c */

/* All layers of the store: what may not have been told is told again. Once more by the thread of share.c when it fails. */
int sweep_all(struct job *j);
/* The same of one file, until that has been done. -EAGAIN: it may not be told yet. */
int sweep_file(struct job *j, uint64_t ino);

/* ---- map.c */

/* The places of a window; release with map_put. -EAGAIN: ask again later; -ESTALE: what we know of the file is out of date. */
int map_get(struct job *j, struct shared *s, uint64_t window, struct map **ret);
void map_put(struct map *m);
bool map_is_known(struct shared *s, uint64_t window); /* map_get would not have to ask */
/*
 * Where the first place in [off, end) begins that any node knows of; end: none; off also when a file that is its home's alone has more in the
 * backing file. An error: not all have answered.
 */
int map_next(struct job *j, struct shared *s, uint64_t off, uint64_t end, uint64_t *ret_next);
void shared_drop_maps(struct shared *s); /* mutex is held, or nobody else knows it */
void map_serve_locate(struct job *j, struct peers_request *rq);
void map_serve_locate_home(struct job *j, struct peers_request *rq);

/* ---- locate.c */

enum piece_kind { PIECE_ZERO, PIECE_BACKING, PIECE_LOG, PIECE_DONE }; /* DONE: its bytes are where they belong */
struct piece {
	uint64_t off, segment_off;
	uint32_t len, node, segment, crc;
	uint8_t kind; /* enum piece_kind */
	bool whole;   /* crc is of these bytes */
};
struct pieces {
	struct piece *at; /* owned */
	size_t num, cap;
	uint64_t asked_usec;  /* oldest answer that they come from */
	uint64_t listed_usec; /* and look at our own layer: so old may be what is said of our own segments */
};
/* What a node sees of [off, off + len), which lies within a window. */
int share_locate(struct job *j, struct shared *s, uint64_t off, uint64_t len, struct pieces *ret);
/* This node has these bytes in that place now, so what was read there before is right. p: a piece of its own segments. */
bool share_has_still(struct job *j, struct shared *s, const struct piece *p);
void pieces_free(struct pieces *p);
uint64_t shared_size(struct job *j, struct shared *s);
/* So far at the most the backing file has bytes of it: what is not in a map any more that was asked before. Of a file that nodes share. */
uint64_t share_limit(struct job *j, struct shared *s);
/* Size and times: the home does not know what we have not committed. */
void share_fix_size(struct job *j, uint64_t ino, struct core_entry *e);
/* What this node has written becomes known: before something that must not be overtaken by that. */
int share_commit_now(struct job *j, uint64_t ino);

/* ---- end.c */

/* Raises *end to where a node's writes reach, committed or not. Asks all nodes. */
int share_end(struct job *j, struct shared *s, uint64_t *end);
void end_serve_ask(struct job *j, struct peers_request *rq);

/* ---- show.c */

/* A process reads, or looks for data, through file: what others have written is committed first, if need be, and as far as they answer. */
void show_to(struct job *j, const struct job_file *file);
void show_doubt(struct shared *s); /* mutex is held: a node may write of which the home does not know */
void show_serve(struct job *j, struct peers_request *rq);
void show_serve_now(struct job *j, struct peers_request *rq);

/* ---- read.c */

/* Places were out of date (why: -EAGAIN), or what we know of the file (-ESTALE), for the tries-th time: they are looked up anew. */
int share_refresh(struct job *j, struct shared *s, int why, int tries);
bool shared_is_outside(struct shared *s);             /* the backing file has all of it */
int read_backing_fd(struct job *j, struct shared *s); /* a descriptor, the caller's */
ssize_t share_read_at(struct job *j, struct shared *s, void *buf, size_t len,
	uint64_t off); /* of a shared file, or one of another node */
ssize_t share_read(struct job *j, struct job_file *file, bool process, void *buf, size_t len, uint64_t off,
	struct job_bytes *ret_where);

/* ---- write.c */

ssize_t share_write(struct job *j, struct job_file *file, const void *buf, size_t len, uint64_t off);
ssize_t share_write_page(struct job *j, struct job_file *file, const void *buf, size_t len, uint64_t off);

/* ---- cut.c */

uint64_t shared_cuts(struct shared *s);                         /* how often what is written here has been cut */
int share_truncate(struct job *j, uint64_t ino, uint64_t size); /* from any node, of any file */
int share_fallocate(struct job *j, struct job_file *file, int mode, uint64_t off, uint64_t len);
void cut_serve_truncate(struct job *j, struct peers_request *rq);
void cut_serve_cut(struct job *j, struct peers_request *rq);
/* One that we did, and have forgotten with the power. Before anything is written to the file. */
int cut_again(struct job *j, uint64_t ino, const struct cut *cut);

/* ---- pages.c */

/* The kernel's pages of [off, off + len) have these bytes now, and zeros behind the first got; may_write: through who read them. */
void pages_given(
	struct job *j, struct shared *s, bool may_write, const uint8_t *buf, size_t got, size_t len, uint64_t off);
/* What they had, as far as that is kept: the rest of was stays. True: all of it. */
bool pages_were(struct job *j, struct shared *s, size_t len, uint64_t off, uint8_t *was);
void pages_destroy(struct pages *p);

/* ---- seek.c */

int share_lseek(struct job *j, struct job_file *file, int64_t off, int whence, uint64_t *ret_off);

/* ---- sieve.c: who reads, changes and writes back, has written only what he has changed */

struct sieve *sieve_create(void);     /* NULL: no memory */
void sieve_destroy(struct sieve *sv); /* NULL is fine */
struct sieve_run {                    /* a part of what was to be written, bytes */
	size_t off, len;
};
struct sieve_moment { /* when a read has begun */
	uint64_t shapes, writes;
};
struct sieve_moment sieve_begin_read(struct job_file *file);
/* to_end: more was asked for, but the file ended there. */
void sieve_note_read(struct job_file *file, const struct sieve_moment *begun, const void *buf, size_t len, uint64_t off,
	bool to_end);
/*
 * What of buf differs from what file has just read there, if not all of it: 1 and the runs, none when nothing does (the caller
 * frees them). 0: write it all. -ENOMEM.
 */
int sieve_runs(
	struct job_file *file, const void *buf, size_t len, uint64_t off, struct sieve_run **ret, size_t *ret_num);
/* The parts of buf that differ from was. */
int sieve_compare(const uint8_t *was, const uint8_t *buf, size_t len, struct sieve_run **ret, size_t *ret_num);
void sieve_written(struct job_file *file, size_t len, uint64_t off); /* once that has been done, or has failed */
void sieve_forget(struct job_file *file);

#endif
