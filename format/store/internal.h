/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_STORE_INTERNAL_H
#define FORMAT_STORE_INTERNAL_H

/* What the files of this folder share. Nobody else includes it. */

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "format/store/store.h"
#include "format/store/straggler.h"

/* ---- freed.c: ranges of segments that no state refers to any more, until they are given back */

#define FREED_WHOLE UINT64_MAX /* length: the rest of the segment */

struct freed_range {
	uint64_t off, len, seq; /* seq: of the record that freed it */
	int64_t since_usec;
	uint32_t segment;
	bool held; /* freed while pinned: waits for the last unpin */
};

struct freed_queue {
	pthread_mutex_t mutex;      /* taken under the state's lock: call nothing of the state under it */
	struct freed_range *ranges; /* owned */
	size_t num, cap;
	/* The first so many are of no length: each stands for all that was forgotten of its segment. They rise. */
	size_t num_forgotten;
	size_t max; /* entries besides these */
	unsigned int pins;
	/* Of a job: how long others may go to a place that was handed out, and since when nothing goes at all (INT64_MAX: that is not so). */
	int64_t grace_usec, hold_usec;
	bool open; /* false: what is freed is not queued (tools, rebuild) */
	bool lossy; /* memory ran out once: not even the segment of what was forgotten is known, and none goes until the next open */
	/* The thread that commits a DRAINED record now; valid while draining. Written under drain_mutex. */
	pthread_mutex_t drain_mutex;
	pthread_t drain_thread;
	atomic_bool draining;
	/* Segments without live bytes that could not be removed yet. Only store_maintain's caller touches them. */
	uint32_t *dead; /* owned */
	size_t num_dead, cap_dead;
};

int freed_init(struct freed_queue *q);
void freed_destroy(struct freed_queue *q);
/* state_options.freed; arg is the struct store. */
void freed_push(uint32_t segment, uint64_t off, uint64_t len, uint64_t seq, void *arg);
int freed_commit_drained(struct store *s, struct record *rec);
/* Give back what is durable. 0 or the first error; what could not be given back is dropped until the next open. */
int freed_execute(struct store *s);
/* At open: leftovers of earlier lives. err names the segment. */
int freed_sweep_segments(struct store *s, struct cistern_error *err);

/* ---- skip.c */

/*
 * At open of a job's store, after a loss of power: what was given and forgotten is not given again. Not durable: until the store is
 * closed, so the next opening is to do it again.
 */
int skip_lost_numbers(struct store *s, bool *ret_durable);

/* ---- lost_power.c */

/* state_options.before_mount; arg is the struct store. */
int lost_power_found(const struct state_report *report, void *arg);
/* At open of a job's store: what is still to be done for a loss of power is. */
int lost_power_settle(struct store *s);
/* Of one that is only read. */
void lost_power_look(struct store *s, const struct state_report *report);

/* ---- sync.c */

struct sync_group {
	pthread_mutex_t mutex;
	pthread_cond_t done;
	bool leader;          /* somebody is syncing */
	int error;            /* of the first sync that failed; sticky */
	uint64_t durable_seq; /* records up to here, and their payloads, are durable */
	uint32_t *sealed;     /* owned: private segments that became log extents and were not synced since */
	size_t num_sealed, cap_sealed;
};

int sync_init(struct sync_group *g);
void sync_destroy(struct sync_group *g);
/* Before a SEAL is committed: its segment must be synced with the next group. 0 or -ENOMEM. */
int sync_note_sealed(struct sync_group *g, uint32_t segment);
uint64_t sync_durable_seq(struct sync_group *g);
int sync_payloads(void *arg);
/* At open: files that an earlier process left in the page cache go to the device. err names the file, below the store. */
int sync_leftovers(struct io *io, struct cistern_error *err);

/* ---- space.c */

struct space_cache {
	pthread_mutex_t mutex;
	struct store_space last;
	int64_t taken_usec; /* when last was found; 0: never */
	uint64_t capacity;
	uint64_t reserve;         /* kept free on the file system, with what index and journal may need */
	_Atomic uint64_t taken;   /* bytes of payload granted, ever */
	_Atomic uint64_t settled; /* those of them that are in segments by now, or never will be */
	_Atomic uint64_t limit;   /* what taken may rise to: free_bytes of last, and what was settled then */
};

int space_init(struct store *s, const struct store_options *opt);
/* Sizes of segments and journal files that suit a small store. */
int space_choose_sizes(
	struct io *io, struct store_options *opt, bool is_new, const char *path, struct cistern_error *err);
/* Room for len bytes of payload? 0 and they are counted, or -ENOSPC. space_settle(): they are written, or will not be. */
int space_take(struct store *s, uint64_t len);
void space_settle(struct store *s, uint64_t len);

/* ---- ballast.c: room that is held for the index and the journal */

struct ballast {
	pthread_mutex_t mutex;
	uint64_t wanted;         /* of a daemon; 0: none. Under mutex, as it changes */
	_Atomic(uint64_t) bytes; /* what is held; changed under mutex */
};

/* At an opening for writing, and where the store is closed: there is none. */
void ballast_end(struct store *s);
void ballast_fill(struct store *s);    /* as much as is wanted, if there is room for it */
bool ballast_release(struct store *s); /* true: there is more room than before */
/* state_options.make_room; arg is the struct store. */
void ballast_make_room(uint64_t bytes, void *arg);

/* ---- straggler.c */

struct straggler_set {
	pthread_mutex_t mutex;
	struct straggler *at; /* owned; mutex */
	size_t num, cap;
	atomic_bool any;  /* num > 0; changed under mutex */
	atomic_bool told; /* the daemon says what is so: of a snapshot */
};

int straggler_init(struct straggler_set *g);
void straggler_destroy(struct straggler_set *g);
/* At open: before anything opens a private segment for writing, */
int straggler_look_early(struct store *s);
/* and when the state is there: which of them count, and whose they are. report may be NULL. */
int straggler_settle(struct store *s, const struct state_report *report);

/* ---- store.c */

struct store {
	char *path;  /* owned, absolute */
	int dirfd;   /* of the directory; -1 on a simulated disk */
	int lock_fd; /* -1: no lock */
	enum store_mode mode;
	struct io *io;
	bool own_io;
	bool lost_power;      /* store_lost_power() */
	bool numbers_to_skip; /* there was no room: the next opening is to do it again */
	struct superblock sb;
	struct segment_set *segments;
	struct state *state;
	pthread_rwlock_t
		gate; /* shared: payload is being found and read, or appended and committed; exclusive: given back */
	_Atomic uint32_t max_segment; /* highest segment that a record has named */
	atomic_uint snapshots;        /* number of the last one */
	struct freed_queue freed;
	struct sync_group sync;
	struct space_cache space;
	struct ballast ballast;
	struct straggler_set stragglers;
};

int64_t store_now_usec(void);

/* ---- directory.c: the directory that a store lives in */

/* Open it as opt->mode says (made when missing and allowed). *ret_new: it is no store yet, and empty. */
int directory_open(const char *path, enum store_mode mode, char **ret_path, int *ret_dirfd, bool *ret_new,
	struct cistern_error *err);

/* ---- snapshot.c */

/* path: of the store, for err. */
int snapshot_remove_all(int dirfd, const char *path, struct cistern_error *err);
bool snapshot_name_valid(const char *name);

#endif
