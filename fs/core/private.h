/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_CORE_PRIVATE_H
#define FS_CORE_PRIVATE_H

/*
 * What the files of fs/core share.
 *
 * Lock order: names, then a node's lock, then the table's lock, then whatever format/ takes inside. names is held by
 * everything that changes which name means what (and by adoption); a node's lock is held shared by reads and writes
 * of its data, exclusively by what changes how its data are kept (truncate, open, drain). Two nodes are never locked
 * at once but by core_copy_range, which takes none itself. core.through is taken before both.
 */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "format/base/drain_layout.h"
#include "format/base/idmap.h"
#include "format/index/state.h"
#include "format/segment/segment.h"
#include "fs/core/core.h"

#define CORE_TEMP_PREFIX      ".cistern-" /* names in the backing directory that are ours and never shown */
#define CORE_LONG_TIMEOUT_SEC 86400.0

enum { DATA_AUTO, DATA_LOG, DATA_PRIVATE }; /* the choices of setting "data" */

struct node {
	struct node *hash_next; /* table lock */
	uint64_t ino;
	uint64_t nlookup;       /* table lock: what the kernel was told */
	uint64_t refs;          /* table lock: files, children's origins, operations in flight */
	_Atomic(bool) known;    /* the state has this inode; else it is an untouched backing file */
	_Atomic(bool) orphan;   /* no name left */
	_Atomic(bool) linkable; /* made by O_TMPFILE: may get a first name */
	uint32_t type;          /* S_IFMT bits */

	/* Where an untouched backing file was last found: table lock (node_origin). */
	struct node *origin_parent; /* counted reference; NULL for the root and for what was born in the store */
	char *origin_name;          /* owned */
	uint64_t backing_dev, backing_ino;
	_Atomic(uint32_t)
		lives; /* how often the number may have gone to another file meanwhile: the kernel is told as a generation */

	_Atomic(uint64_t) parent_ino; /* the directory in which it was last found, or was made; 0: not known */
	_Atomic(uint64_t) ground;     /* what ground.c has seen of where it is; 0: nothing yet */

	pthread_rwlock_t lock;
	/* below: node lock, exclusive to change */
	unsigned int opens, writers, pass_opens, cached_opens;
	_Atomic(int) private_fd; /* our descriptor of the private segment, -1 */
	int backing_id;          /* passthrough registration of private_fd while pass_opens > 0, else 0 */
	_Atomic(int) backing_fd; /* descriptor of the backing file, -1; opened when first needed while open */
	bool backing_writable;
	pthread_mutex_t through; /* one at a time syncs what went through; these are changed with it, or exclusively */
	_Atomic(bool) through_dirty;  /* the backing file has bytes that were not synced */
	_Atomic(bool) through_before; /* or may have some of an earlier daemon */
	int through_error;            /* while through_dirty: that could not be synced */
	bool kept;                    /* for that alone: a reference */
	_Atomic(bool)
		caught_up; /* changed since it was clean: what happens to the backing file outside is a conflict */
	enum {
		CACHE_NONE,
		CACHE_STAMPED,
		CACHE_OTHER
	} cache;                            /* what the kernel may have pages of: nothing; this; who knows */
	uint64_t cache_stamp;               /* the backing file, when it was last opened; 0: the store */
	_Atomic(uint64_t) seen;             /* size and mtime of the backing file, mixed, when last seen; 0: not seen */
	_Atomic(uint64_t) changed_usec;     /* when these were seen to have changed; 0: never */
	_Atomic(unsigned int) small_streak; /* of a directory: small files in a row */

	/* nodes that may be written: open in passthrough or for writing: tick lock */
	struct node *tick_next, *tick_prev;
	bool on_tick;
	uint64_t tick_size, tick_written; /* as last seen; write-out started up to here */
	uint64_t tick_blocks;             /* likewise, of 512 bytes */
	int64_t tick_mtime_ns;
	bool tick_seen;           /* looked at since it came onto the list */
	uint64_t tick_since_usec; /* when it came onto the list */
};

struct core_file {
	struct node *node; /* counted reference */
	struct node *dir;  /* counted reference: where it was created by this open; NULL */
	int flags;         /* open(2)'s */
	bool pass;         /* the kernel may reach the private segment without us */
	bool cached;
};

#define CORE_BUCKETS 65536u

struct core {
	struct store *store; /* borrowed */
	struct state *state; /* the store's */
	struct segment_set *segments;
	const struct config *cfg; /* borrowed */
	struct core_hooks hooks;
	struct core_kernel kernel;
	_Atomic(bool) passthrough; /* kernel.passthrough until it failed */
	int backing_fd;            /* root of the backing directory */
	uint64_t max_bytes;        /* that a file may have */
	uint64_t backing_dev;
	double backing_timeout_sec;
	uint64_t small_file, private_min_free, full_timeout_usec;
	unsigned int high_water_percent;
	bool read_only, write_out;
	_Atomic(bool) through_noted;           /* THROUGH_FILE is there */
	bool through_before;                   /* something went through in an earlier daemon's life */
	unsigned int data_choice;              /* DATA_AUTO and so on */
	struct drain_layout_rules *layouts;    /* owned */
	_Atomic(bool) unmounted;               /* core_unmounted() has been called */
	_Atomic(bool) severed;                 /* the connection ended while files were open */
	void (*gone)(uint64_t ino, void *arg); /* of a job: core_set_job() */
	void *gone_arg;
	char through_prefix[32]; /* ".cistern-through-xxxxxxxx-": not the drain's own, which it clears away */

	_Atomic(bool) joined;    /* one of the nodes of a job */
	_Atomic(bool) tree_open; /* tree_owner may change directories */
	pthread_t tree_owner;    /* while tree_open */
	void (*tree_note)(const struct record *rec, void *arg);
	void *tree_arg;

	pthread_mutex_t names;
	pthread_mutex_t table;
	struct node **buckets;
	struct node *root;

	pthread_mutex_t tick; /* list of open private nodes, and the numbers below */
	struct node *tick_head;
	_Atomic(uint64_t) private_bytes;    /* allocated by private files, when last asked */
	uint64_t private_sum, private_usec; /* room lock; when to ask again */

	pthread_mutex_t room; /* writers that wait for space */
	pthread_cond_t room_cond;
	_Atomic(uint64_t) full_since_usec; /* 0: there is room; changed under room */
	uint64_t progress_usec;            /* room lock; when a drain last gave some back */

	pthread_mutex_t session; /* drain session: inodes that could have been written since it began */
	bool in_session, all_busy;
	_Atomic(uint64_t)
		told; /* steps, begins and ends of sessions: changed under session, with a signal of told_cond */
	pthread_cond_t told_cond;
	void *doubts; /* tree of doubt.c */
	_Atomic(bool) any_doubt;
	struct idmap busy;       /* may have been written since it began */
	struct idmap left_alone; /* this session does not touch them */
	pthread_rwlock_t
		through; /* held shared while bytes go through to a backing file; exclusively where a session begins */

	_Atomic(uint64_t) open_files, written_bytes, read_bytes, through_bytes, last_write_usec;
	_Atomic(uint64_t) private_written_bytes; /* by the kernel, as far as the tick can tell */
	_Atomic(uint64_t) syncs;                 /* begun */
	_Atomic(unsigned int) syncing;           /* and not ended */
};

/* node.c */
/* The node of a number that the kernel knows, with a reference. NULL: it does not (ESTALE). */
struct node *node_get(struct core *c, uint64_t ino);
void node_put(struct core *c, struct node *n);
void node_discard(struct node *n); /* that is in no table, and has nothing open */
void node_ref(struct core *c, struct node *n);
/* Find or make the node of an inode of the state, with a reference. */
int node_of_state(struct core *c, const struct inode *in, struct node **ret);
/* Find or make the node of an untouched backing file found as parent/name. */
int node_of_backing(struct core *c, struct node *parent, const char *name, const struct stat *st, struct node **ret);
/* st is of the backing file that n was made of. */
bool node_is_backed_by(const struct node *n, const struct stat *st);
/* Where an untouched backing file is: 0, a reference to its parent, its name. -ENOENT: nowhere, or in the store. */
int node_origin(struct core *c, struct node *n, struct node **ret_parent, char ret_name[RECORD_NAME_MAX + 1]);
void node_count_lookup(struct core *c, struct node *n); /* the kernel is about to be told of it */
uint64_t node_backing_number(const struct core *c, uint64_t dev, uint64_t ino);
#define NODE_CLEANUP __attribute__((cleanup(node_ref_cleanup)))
struct node_ref {
	struct core *c;
	struct node *n;
};
void node_ref_cleanup(struct node_ref *r);
static inline struct node_ref node_take(struct core *c, uint64_t ino)
{
	return (struct node_ref){ c, node_get(c, ino) };
}

/* stamp.c */
/* Which file of the backing directory it is, and with which content: never 0. */
uint64_t stamp_of(const struct stat *st);
#define STAMP_SETTLED 1u /* bit of a stamp: whatever changes the file from now on changes the stamp, too */
/* n's backing file is that now. Any lock, or none. */
void stamp_see(struct node *n, const struct stat *st);
void stamp_forget(struct node *n); /* the store has it, or we have changed it ourselves */
bool stamp_is_changing(const struct node *n);

/* motion.c: what a drain is moving in the backing directory */
#define CORE_MOVING \
	ETIMEDOUT /* nobody can say before the next step is told: not to wait for under a lock, motion_again() */
struct motion_look {
	uint64_t told;
	bool calm; /* nothing was moving when it began */
};
enum motion_verdict {
	MOTION_NONE,    /* what was seen is so */
	MOTION_TOLD,    /* look again, now */
	MOTION_GOES_ON, /* -CORE_MOVING */
};
/* Before the state is asked for a path. */
static inline struct motion_look motion_begin(struct core *c)
{
	return (struct motion_look){ .told = c->told };
}
bool motion_is_possible(struct core *c, const struct motion_look *look); /* cheap; false: what was seen since is so */
/* Something unexpected was seen by a path that the state gave behind motion_begin(). MOTION_TOLD: *look has begun anew. */
enum motion_verdict motion_judge(struct core *c, struct motion_look *look);
struct motion {
	uint64_t until_usec; /* 0: nothing was waited for yet */
};
/* rc is -CORE_MOVING: waits a moment, without locks, and the caller is to try again. False: it is not, or the patience is over. */
bool motion_again(struct core *c, struct motion *m, ssize_t rc);
void motion_told(struct core *c);        /* a step has been committed, a session begins or ends */
bool motion_has_intents(struct core *c); /* something is being moved, or was when an agent died */

/*
 * overlay.c: names through the layers. Nothing waits here: what a drain is just moving is -CORE_MOVING.
 */
/* The path in the backing directory, relative to its root. -ENOENT: there is none. */
int overlay_path(struct core *c, struct node *n, char *out, size_t cap);
int overlay_child_path(struct core *c, struct node *parent, const char *name, char *out, size_t cap);
/* What parent/name is: 0 and a reference to its node; -ENOENT. */
int overlay_resolve(struct core *c, struct node *parent, const char *name, struct node **ret);
/*
 * The same of a new name, before names is taken, which nobody shall hold while the backing directory is asked. True: neither the state
 * nor the backing directory has it; who finds under names that the state has nothing to say of it need not look again.
 */
bool overlay_is_free(struct core *c, struct node *parent, const char *name);
/* What the state alone says of a name: 0 and a reference, -ENOENT: it is free; 1: the backing directory is to be asked. */
int overlay_resolve_known(struct core *c, struct node *parent, const char *name, struct node **ret);
/* Make the state know n (and all above it). names must be held. */
int overlay_adopt(struct core *c, struct node *n);
/* The same, and that parent/name is one of its names (hard links of backing files). */
int overlay_adopt_name(struct core *c, struct node *parent, const char *name, struct node *n);
uint64_t limit_of_files(int backing_fd);                  /* how large one there may become */
int overlay_adopt_locked(struct core *c, struct node *n); /* takes names itself */
/* Open the backing file. fd or -errno, -CORE_MOVING. An untouched one that others have replaced: -ESTALE. */
int overlay_open(struct core *c, struct node *n, int flags);
/*
 * By a path, and its atime stays. A FIFO that others have put in a file's place is not waited for: nothing need ever end that. Whoever
 * holds a lease of a file is: it has to give that up. fd or -errno.
 */
int overlay_open_path(int dirfd, const char *path, int flags);
bool overlay_is_same(
	const struct inode *in, const struct stat *st); /* st is of the backing file that the state knows */
int overlay_stat(struct core *c, struct node *n, struct stat *ret);
bool overlay_is_hidden(const char *name); /* ours, never shown */

/* What the backing directory itself has under a name. */
int overlay_stat_child(struct core *c, struct node *parent, const char *name, struct stat *ret);

/*
 * ground.c: what the backing directory would refuse of a change when that is drained, as far as it is known. 0 or what the call is to say.
 */
bool ground_differs(
	struct core *c, struct node *a, struct node *b);     /* on different file systems, or mounts of one: -EXDEV */
void ground_before(struct core *c, struct node *n);          /* looks at n while no lock is held, if nobody has */
void ground_inherit(struct node *n, const struct node *dir); /* n has just been made in dir */
int ground_check_new(struct core *c, struct node *dir, const char *name); /* dir gets a name */
int ground_check_loss(struct core *c, struct node *dir, struct node *n);  /* n loses a name in dir */
int ground_check_change(struct core *c, struct node *n);                  /* of n's attributes or size */

/* tree.c */
/* store_commit, of a record about an inode of that type (S_IFMT bits). -EREMCHG: a directory, in a job, and no tree change. */
int tree_commit(struct core *c, uint32_t type, struct record *rec);
int tree_commit_drained(struct core *c, struct record *rec); /* within a tree change: of a directory */

/* doubt.c */
/* ino is about to lose parent/name, to nobody or to another file. names is held. 0 or -ENOMEM: then it may not. */
int doubt_add(struct core *c, uint64_t parent, const char *name, uint64_t ino);
bool doubt_hides(struct core *c, uint64_t parent, const char *name);
void doubt_clear(struct core *c); /* session is held */

/* name.c */
/*
 * Others have put another file in the place of one that is open here, and of which the store has nothing: then that has lost its name, as if
 * they had removed it. Who has it open keeps it, and the other file gets a number and pages of its own. Takes the node's lock.
 */
bool name_is_replaced(struct core *c, struct node *n);
void name_lost(struct core *c,
	struct node *n); /* n lost a name, possibly its last. names is held, and the caller has a reference */

/* dir.c */
int dir_shows_any(struct core *c, struct node *n); /* 1: it has entries; 0: it is empty. -CORE_MOVING */

/* attr.c */
/*
 * Fill ret from the state or the backing file. in: the state's inode when the caller has it, else NULL. Waits for a drain that moves the backing
 * file: no lock is held, but where the file is new.
 */
int attr_fill(struct core *c, struct node *n, const struct inode *in, struct core_entry *ret);
int attr_size(struct core *c, struct node *n, const struct inode *in, uint64_t *ret_size); /* node lock held */

/* straggler.c */
/* Somebody may write to it through a mount that is dead. The node's lock is held exclusively. */
bool straggler_holds(struct core *c, struct node *n, const struct inode *in);
void straggler_end(struct core *c); /* the mount has gone, nothing is open here */

/* data.c, open.c, space.c, drain.c */
int data_private_fd(struct core *c, struct node *n, const struct inode *in); /* borrowed descriptor; node lock held */
int data_backing_fd(struct core *c, struct node *n, bool writable);          /* borrowed descriptor; node lock held */
int data_sync_through(struct core *c, struct node *n);                       /* takes the node's lock */
void data_close_backing(struct node *n);                                     /* node lock held exclusively */
int data_truncate(struct core *c, struct node *n, uint64_t size);            /* takes the node's lock */
int data_catch_up(struct core *c, struct node *n, const struct inode *in);   /* node lock held exclusively */
/* Nothing of the file's content is in the store: the backing file has all of it, and its size. */
static inline bool data_is_outside(const struct inode *in)
{
	return !(in->flags & (INODE_NEW | INODE_DIRTY_DATA | INODE_ORPHAN | INODE_PRIVATE));
}
/* Other nodes write it, or it is theirs: its bytes here are a layer, which has nothing to do with the backing file. */
static inline bool data_is_layer(const struct inode *in)
{
	return in->flags & (INODE_SHARED | INODE_FOREIGN);
}
void data_touched(struct core *c);
/* dir: the directory where this open has just created n, else NULL. */
int open_file(struct core *c, struct node *n, struct node *dir, int flags, bool inner, struct core_open_reply *ret);
/* inode is private, its node's lock held exclusively: it is so no more, and *in is as it is then. -EBUSY: the kernel may write to it. */
int seal_private(struct core *c, struct node *n, struct inode *in);
/* The node of a number, known to the kernel or only to the state, with a reference. */
int share_take_number(struct core *c, uint64_t ino, struct node **ret);
bool open_wants_private(
	struct core *c, struct node *dir, const char *name, int flags); /* name: where it is known, else NULL */
/*
 * Room for len more bytes of log? 0: go on. -ENOSPC: none, write through. Slows the caller down when it is scarce. refused: the
 * store has just refused these bytes for want of room.
 */
int space_wait(struct core *c, size_t len, bool refused);
ssize_t space_write_through(struct core *c, struct node *n, const void *buf, size_t len, uint64_t off);
void space_signal(struct core *c);
bool drain_is_running(struct core *c);
void drain_mark_busy(struct core *c, uint64_t ino); /* a private file that may be written from now on */
/* The agent writes to backing files while a session runs. May we write to this one's? core.through is held. */
bool drain_allows_through(struct core *c, uint64_t ino);
void tick_add(struct core *c, struct node *n);
void tick_remove(struct core *c, struct node *n);

#endif
