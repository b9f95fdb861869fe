/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_SESSION_H
#define MPI_AGENT_REPLAY_SESSION_H

/* What the parts of a drain session share. Within mpi-agent/replay only; one thread, but for the copier's writer. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "format/base/idmap.h"
#include "format/index/beside.h"
#include "format/store/steps.h"
#include "format/store/store.h"
#include "mpi-agent/replay/drain.h"
#include "mpi-agent/replay/intent.h"
#include "format/manifest/manifest.h"
#include "mpi-agent/sink/sink.h"

#define SESSION_PATH_MAX       16384
#define SESSION_TEMP_PREFIX    ".cistern-tmp-"
#define SESSION_SHARED_PREFIX  ".cistern-shared-"
#define SESSION_THROUGH_PREFIX ".cistern-through-"
#define SESSION_CLASSIC_PREFIX ".cistern-classic-"
#define SESSION_STEPS          256

enum progress_of_inode {
	INODE_IS_UNTOUCHED = 0,
	INODE_IS_PENDING,
	INODE_IS_DONE,
	INODE_IS_FAILED,
	INODE_IS_LEFT_ALONE
};

struct session_dir { /* a directory of the mount's tree; parents stand before their children */
	uint64_t ino;
	size_t parent; /* index of its parent in dirs; the root: 0 */
	char *path;    /* owned: in the mount, "" for the root */
	bool selected; /* by a filter, or there is none */
	bool given_up; /* the mount has none like it any more: nothing below it is of any use */
	bool failed;   /* is not where it belongs: nothing below it can be carried over */
	bool made;     /* exists in the destination (not in place) */
	bool swept;    /* left-over temporary files have been removed */
};

struct copier;
struct batch;
struct links;
struct temps;
struct located;

struct session {
	const struct drain_options *opt; /* borrowed */
	struct state *st;                /* borrowed from the store */
	struct segment_set *segments;    /* likewise */
	struct sink *to;                 /* owned, unless it is the options' */
	struct sink *base;               /* owned; NULL: the backing directory is not there, or is the destination */
	struct located *located;         /* owned: where base has its files; NULL: by name */
	struct copier *copier;           /* owned */
	struct batch *batch;             /* owned */
	char temp_prefix[32];   /* of our temporary files, and not of those that the daemon writes through to */
	char shared_prefix[32]; /* of those that other nodes write to */
	char beside_tag[BESIDE_TAG_BYTES]; /* of what cannot have its name */
	char through_prefix[32];           /* of files that the daemon has written through to */
	bool sweeps_through;               /* some may be left that nothing names */
	bool intends_removal;     /* of a name that undoing gives back: its directory must not go before that is told */
	char classic_prefix[32];  /* of names that originals of converted files keep for a moment */
	struct session_dir *dirs; /* owned */
	size_t num_dirs, cap_dirs;
	struct idmap dir_index; /* inode of a directory -> its place in dirs + 1 */
	struct idmap touched;   /* directories whose entries we changed: their times have to be set again */
	struct idmap given_up;  /* what the watcher refused */
	struct idmap inodes;    /* enum progress_of_inode */
	struct idmap unplaced;  /* files: how many of their names are in directories that are not placed */
	struct record *steps;   /* owned: done, applied, but perhaps not durable yet */
	size_t num_steps;
	size_t num_told; /* of them, when the session has ended in the middle of them */
	/* Owned: under which name the manifest has it already; NULL: it has not. One more, for what is no step yet. */
	char *shown[SESSION_STEPS + 1];
	bool refused[SESSION_STEPS]; /* which of them the watcher did not take */
	struct intent *intent;       /* owned; NULL: none is kept */
	struct temps *temps;         /* owned; NULL: not in place */
	bool begins;                 /* nothing of this session is there yet */
	bool unanswered;             /* a node does not say what is its own: it is not waited for again */
	struct links *links;         /* owned; NULL: nobody has asked for them */
	struct steps *kept;          /* owned; NULL: they are not kept */
	uint64_t first_move_usec;    /* when the first move among the steps was made; 0: there is none */
	struct drain_result result;
	struct drain_progress progress;
	struct drain_control control;
	uint64_t last_tick_usec;
	double tokens; /* bytes that may be written now */
	uint64_t last_token_usec;
	uint64_t rested_usec;        /* when the last rest ended */
	char path[SESSION_PATH_MAX]; /* progress.path */
	int fatal;                   /* what ends the session, 0 while nothing does */
	struct cistern_error *err;   /* of who called drain_run; may be NULL */
};

/* session.c */
/* Tell the watcher where we are if it is time (now: in any case); waits while it wants a pause. -ECANCELED, its errors. */
int session_tick(struct session *s, bool now);
/* Wait until bytes more may be written, by the rate and the share that the watcher wants. */
int session_throttle(struct session *s, uint64_t bytes);
/* Tick, and rest after what was done since the last rest, as long as the watcher gives a share of the time only. */
int session_make_way(struct session *s);
/* The rest that is due after so much work, at a share of 1 to 100 percent of the time; never more than a second. */
uint64_t session_rest_usec(uint64_t worked_usec, unsigned int share_percent);
/* So much was planned; with verify=read it is to be read back, too. */
void session_plan(struct session *s, uint64_t bytes);
/* So much was carried; no more than is planned is ever shown. */
void session_done(struct session *s, uint64_t bytes);
/* So much was read back. */
void session_verified(struct session *s, uint64_t bytes);
void session_set_path(struct session *s, const char *path);
/* A step is done: applied to our state; reported when it has become durable. A negative return ends the session. */
int session_step(struct session *s, const struct record *rec);
/* The same of what the manifest says already, under that name: that it is drained, or has moved there. */
int session_told(struct session *s, const struct record *rec, const char *shown);
int session_sync_names(struct session *s); /* what has been moved stays so; else the session ends */
int session_flush_steps(struct session *s);
/*
 * Lines are in the log before the mount hears what they are about: nobody would say them again. But nothing waits for room for them: the
 * session goes on, and has failed when the manifest is synced.
 */
int session_flush_manifest(struct session *s);
/* To be called before something gets the name that rec (PLACED) stands for; as intent_add(). -ENOBUFS: the store's device is full; any other error ends the session. */
int session_intend(struct session *s, const struct record *rec, const char *from, const char *to, const char *beside,
	bool is_dir, const struct stat *made);
/* The session cannot go on: returns r, or what ended it before. */
int session_end(struct session *s, int r, const char *why);
/*
 * path cannot be carried over; ino (0: none) and what depends on it are left alone. fmt: what happened and what to do.
 * Returns 0, the session goes on; but when it is ending (s->fatal), that, and path is not to blame.
 */
int session_fail(struct session *s, uint64_t ino, const char *path, int code, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* The same with the usual text for code; need: bytes that were to be written (0: unknown). */
#define SESSION_OCCUPIED \
	"what has its name in the backing directory is of another file, and no node has said that it is not needed"

/* In a job whose nodes are all there, what is not as the session found it is so only for the next one. */
static inline bool session_may_be_late(const struct session *s)
{
	bool places =
		s->opt->part == WIRE_PART_FILES || s->opt->part == WIRE_PART_DIRS || s->opt->part == WIRE_PART_BEGIN;

	return places && !s->opt->cautious && s->opt->watcher.occupied;
}
/*
 * In a job: another node's file has got its place in the backing directory, since it has lost its last name behind our snapshot. Then there
 * is nothing to do for it any more. Asks the daemon.
 */
bool session_has_gone(struct session *s, const struct inode *in);
/* No failure: the next session has it. */
int session_late(struct session *s, uint64_t ino, const char *path, const char *text);
int session_fail_errno(struct session *s, uint64_t ino, const char *path, int code, const char *doing, uint64_t need);
/* Counts the ranges of a file that were not there to be read, and says so. in_place: it was there before. How many bytes. */
uint64_t session_missing(
	struct session *s, const char *path, bool in_place, const struct manifest_range *missing, size_t num);
const char *session_missing_text(bool in_place); /* what it has there */
/* Does this part of a drain deal with directories' names (files': otherwise)? */
static inline bool session_places_dirs(const struct session *s)
{
	return s->opt->part == WIRE_PART_WHOLE || s->opt->part == WIRE_PART_LOOK || s->opt->part == WIRE_PART_DIRS ||
	       s->opt->part == WIRE_PART_FINISH;
}

static inline bool session_places_files(const struct session *s)
{
	return s->opt->part == WIRE_PART_WHOLE || s->opt->part == WIRE_PART_FILES || s->opt->part == WIRE_PART_REMOVE ||
	       s->opt->part == WIRE_PART_PARK;
}

bool session_selected(const struct session *s, const char *path);
int session_join(char *out, size_t cap, const char *dir, const char *name); /* -ENAMETOOLONG */
struct session_dir *session_dir(struct session *s, uint64_t ino);           /* NULL: no directory of the tree */
int session_touch(struct session *s, uint64_t dir_ino);                     /* 0, -ENOMEM */
/* Whatever is at to stays: -EEXIST. */
int session_rename_new(struct session *s, const char *from, const char *to, bool is_dir);
/* Does st show the backing file that the state knows as in? */
bool session_is_same(const struct inode *in, const struct stat *st);
/* Calls each for all names of a directory; a negative return stops. */
int session_each_name(struct session *s, uint64_t dir,
	int (*each)(struct session *s, const struct state_name *name, void *arg), void *arg);

/* locate.c: what an earlier session has moved without having told anybody */
int locate_run(struct session *s);

/* export.c */
/* The file or directory in base that in was; *ret NULL: it is not there any more. 0, -ENOMEM, the state's errors */
int export_open_base(struct session *s, const struct inode *in, enum sink_open how, struct sink_file **ret);

/* names.c */
int names_run(struct session *s); /* builds s->dirs on the way */
int names_place(struct session *s, struct session_dir *dir, const char *name, uint64_t ino);
int names_park(struct session *s); /* WIRE_PART_PARK */
int names_park_dirs(
	struct session *s); /* WIRE_PART_LOOK, and WIRE_PART_DIRS, when those that have names are in their places */
int names_remove(struct session *s);
int names_finish_dirs(struct session *s);
/* path may be a directory that stands for nothing any more: it goes if it is empty. -EISDIR: it is another one's. */
int names_clear_dir(struct session *s, uint64_t dir, const char *name, const char *path);
/* While some node is lost, directories may have been moved where this one does not know of it: is what has its place this one? */
bool names_dir_is_there(struct session *s, uint64_t dir);
/*
 * in is about to get the name: may what has it be replaced? -ENOENT: the directory is not in its place. -EBUSY: it may be the only copy of a file of another node, by what that one
 * says now, which our snapshot may be older than. PLACE_IS_FOREIGN: nobody knows it, and it stays. What a lost store may know of is moved aside. *ret_there: what was looked at, no directory; st_ino 0: nothing.
 */
int names_check_place(struct session *s, uint64_t dir, const char *name, const char *path, const struct inode *in,
	struct stat *ret_there);
/* Is what st is of the file that in is, whole, as it was published with nobody having heard of it? */
bool names_was_published(const struct inode *in, const struct stat *st);
int names_sweep(struct session *s, uint64_t dir_ino, const char *dir_path); /* left-over temporary files */
/* Files that other nodes write to are left over only then: no part with them can follow, or none has begun. */
static inline bool names_are_published(const struct session *s)
{
	return s->begins || s->opt->part == WIRE_PART_WHOLE || s->opt->part == WIRE_PART_OFFER ||
	       s->opt->part == WIRE_PART_REMOVE || s->opt->part == WIRE_PART_FINISH;
}

/* temps.c: in which directories there may be some */
int temps_open(struct session *s); /* -ENOMEM */
/* Before the first one is made there; shared: other nodes write to it. */
void temps_note(struct session *s, uint64_t dir, bool shared);
int temps_sweep(struct session *s); /* those that a killed session has left */
void temps_end(struct session *s);  /* in good order: none is left of this session */
void temps_close(struct session *s);

/* links.c: what is said of a file is so of its other names in the backing directory. 0, -ENOMEM, the state's errors */
int links_tell(struct session *s, uint64_t ino, const char *shown); /* shown: the name that it has been said of */
/* A further one is linked from another. */
int links_note(
	struct session *s, uint64_t ino, uint64_t from_dir, const char *from_name, uint64_t dir, const char *name);
void links_free(struct links *l);

/* beside.c: what cannot have its name */
#define PLACE_IS_FOREIGN (-ENOTUNIQ) /* something that Cistern does not know has the name: it is not replaced */
void beside_open(struct session *s);
/* Has ino its place beside (dir, name)? 1: under out; 0: no; the state's errors */
int beside_find(struct session *s, uint64_t dir, const char *name, uint64_t ino, char out[RECORD_NAME_MAX + 1]);
/* The name that it gets, its path, and what is there: an earlier copy of it, since nobody else uses such a name; st_ino 0: nothing. 0 or -errno */
int beside_path(struct session *s, const char *dir_path, const char *name, uint64_t ino,
	char out_name[RECORD_NAME_MAX + 1], char *out, size_t cap, struct stat *ret_there);
/* What the state knows by that name has been replaced: it has it no more. 0, the state's errors, or what ended the session */
int beside_forget(struct session *s, uint64_t dir, const char *name);
/* To people and the manifest: shown is at there. NULL: it has its own name again. */
void beside_tell(struct session *s, const char *shown, const char *there);

/* give.c: the name, and nothing else than what was seen under it, is replaced */
#define GIVE_TRIES 3
bool give_is_guarded(const struct session *s); /* what is replaced may be another node's, or a stranger's */
/*
 * temp gets the name to, which there (of names_check_place) had. Intended before, with temp beside it. -EEXIST: something else has the
 * name by now, and keeps it: look again; -EBUSY: likewise, and temp is gone. What was replaced has gone when it returns 0.
 */
int give_name(struct session *s, const char *temp, const char *to, const struct stat *there);

/* file.c: pending (batched) new files, updates in place */
int batch_create(struct batch **ret);
void batch_destroy(struct batch *b);
int batch_flush(struct session *s);
struct file_place {           /* where a new file goes */
	uint64_t dir;         /* inode of the directory */
	const char *dir_path; /* in the destination */
	const char *name;
	const char *path; /* in the mount, for people */
	const char *at;   /* its path in the destination, of one that exists; NULL: the name's */
	const char *kept; /* why it does not get the layout that it was to get; NULL: it was to get no other */
};
int file_write_new(struct session *s, const struct inode *in, const struct file_place *place);
int file_run(struct session *s); /* the data of all files of the tree */
int file_update(struct session *s, const struct inode *in, const struct file_place *place);

/* It is whole in f: attributes, name, and told. */
int file_publish_shared(
	struct session *s, const struct inode *in, const struct file_place *place, const struct wire_shared *f);

/* shared.c: files that several nodes wrote */
int shared_begin(struct session *s);  /* WIRE_PART_BEGIN, at their homes */
void shared_count(struct session *s); /* plans what is to be done of them */
int shared_write(struct session *s);  /* WIRE_PART_DATA and WIRE_PART_HEAD, on every node */
/* What the store knows of overlaps in it goes to the manifest. */
int shared_list_overlaps(struct session *s, uint64_t ino, const char *path);
int shared_publish(struct session *s, const struct inode *in, const struct file_place *place); /* WIRE_PART_FILES */
/*
 * WIRE_PART_FILES, behind that: what was made for those of this node that some node could not write, or that have lost
 * their last name since they were begun, goes.
 */
int shared_leave(struct session *s);

/* attrs.c */
void attrs_of_inode(const struct inode *in, struct sink_attr *ret);
struct attrs_warning { /* which attributes the destination did not take, and why; "": none */
	char text[512];
};
/* Owner, mode, xattrs (all_xattrs: the set is the whole set), times, in this order. To warning is added what could not be set. */
int attrs_apply(struct session *s, const struct inode *in, const struct sink_attr *attr, struct sink_file *f,
	struct attrs_warning *warning);
/* xattrs of a backing file to a file that is made whole elsewhere. */
int attrs_copy_xattrs(struct sink_file *from, struct sink_file *to, struct attrs_warning *warning);
void attrs_add_warning(struct attrs_warning *warning, const char *text); /* NULL: nothing */
/* The manifest is told of directories and symbolic links what it is told of files; nothing when there is no warning. */
void attrs_tell(struct session *s, const char *path, const struct attrs_warning *warning);

/* convert.c: layouts other than the canonical one */
/*
 * The data of a file are durable in f, its place: does it want another layout? Then that is noted for the last session. A note
 * that cannot be made leaves the file as it is, and is said: the drain must not end for it.
 */
void convert_note(struct session *s, const struct inode *in, struct sink_file *f, const char *shown);
/* Which layout it is to get, by its attribute or by its name in the mount. A wrong attribute is told of by convert_run(). */
enum drain_layout convert_wanted(struct session *s, const struct inode *in, const char *shown);
int convert_run(struct session *s); /* carries out what was noted, if this is the last session */

/* together.c: large files of a job, converted by many nodes */
int together_offer(struct session *s); /* WIRE_PART_OFFER */
int together_help(struct session *s);  /* WIRE_PART_PACK, MAKE, CHECK */

/* blob.c: a new file whose layout is one of blobs */
int blob_carry(struct session *s, const struct inode *in, const struct file_place *place, enum drain_layout layout);

/* blob_job.c: the same of files that several nodes wrote */
bool blob_waits(const struct session *s); /* such files are left for the job's last drain */
/* Says of one that it is. shown: its path */
void blob_wait(struct session *s, const struct inode *in, const char *shown, enum drain_layout layout);
/* At the home: f is ready to be written to, its layout is to be one of blobs; makes f->layout canonical where that is not so. */
int blob_begin(struct session *s, const struct inode *in, struct wire_shared *f, enum drain_layout layout);
int blob_shared(struct session *s); /* WIRE_PART_DEAL and WIRE_PART_BLOBS, on every node */
int blob_publish(
	struct session *s, const struct inode *in, const struct file_place *place, const struct wire_shared *f);
/* Why it did not become subfiles, though it should: *ret the caller's to free; NULL: it should not. */
int blob_kept(struct session *s, const struct wire_shared *f, char **ret);
/* All that stands beside f->path for it goes. */
void blob_clear(struct session *s, const char *dir_path, const struct wire_shared *f);

/* export.c: everything that has something in the store, made whole in another directory */
int export_run(struct session *s);

#endif
