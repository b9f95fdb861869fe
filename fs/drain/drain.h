/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_DRAIN_H
#define FS_DRAIN_DRAIN_H

/*
 * The drain manager: decides when data moves to the backing directory, starts the agent that carries it, and is what
 * the agent talks to. Every function may be called from any thread unless it says otherwise.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/base/config.h"
#include "format/manifest/manifest.h"
#include "format/store/store.h"
#include "format/wire/shared.h"
#include "format/wire/wire.h"
#include "fs/core/core.h"
#include "fs/peer/peer.h"
#include "fs/session/log.h"

#define DRAIN_NODE_NAME_MAX 128
#define DRAIN_PATHS_MAX     4096 /* paths of one session; more means everything */
#define DRAIN_ERRORS_MAX    1000 /* errors that are kept */

struct drain;

enum drain_kind {
	DRAIN_BACKGROUND, /* nobody asked: water mark or idle */
	DRAIN_FLUSH,      /* somebody did */
	DRAIN_FINAL,      /* the mount is gone */
};

/*
 * A job's sessions are decided on by its node 0 (collective.h). Then there are two managers: one that takes requests and asks for
 * sessions of the job, and one that carries this node's parts of them, the carrier.
 */
struct drain_ask {
	/* Ask for a session of the job (for_room: this store needs room); drain_answer() tells the end of it. Never blocks. 0, -ENOMEM. NULL: sessions are carried here. */
	int (*ask)(uint64_t id, enum drain_kind kind, bool for_room, char *const *paths, size_t num, void *arg);
	void (*cancel)(
		uint64_t id, void *arg); /* of what was asked for: soon, and the end of it is told. Never blocks */
	void *arg;
};

struct drain_job_hooks { /* of the carrier; without locks; any may block */
	/* A shared file of which this node is the home can be written to. Sets stamp: commits up to it can be carried now. -EBUSY: later. */
	int (*begin_shared)(struct wire_shared *f, void *arg);
	/* Commits a step about a directory on all nodes. */
	int (*tree_step)(struct record *rec, void *arg);
	/* A step DRAINED of that inode was committed. */
	void (*drained)(uint64_t ino, void *arg);
	/* Payload of other nodes into memory that the agent shares, by slots: see fetch.h. fetch_end: nobody wants any of it any more. */
	int (*fetch)(uint64_t slot, const struct peers_get *ranges, size_t num, void *arg);
	int (*fetched)(uint64_t slot, uint64_t *ret_off, void *arg);
	void (*fetch_end)(void *arg);
	/* As drain_agent_occupied(). */
	int (*occupied)(const struct record *rec, void *arg);
	int memory_fd; /* borrowed */
	void *arg;
};

struct drain_options {
	struct store *store; /* all borrowed */
	struct core *core;
	const struct config *cfg;
	struct log *log;
	const char *libexec_dir; /* where the agent was installed */
	int backing_fd;          /* of the backing directory */
	struct drain_ask ask;
	struct drain_job_hooks job; /* functions NULL: one node alone */
};

int drain_create(
	const struct drain_options *opt, struct drain **ret, struct cistern_error *err); /* starts its thread */
void drain_destroy(struct drain *d); /* ends a session and its agent; NULL is fine */

/* ---- triggers */
void drain_want(struct drain *d, bool urgent); /* core's hook: never blocks, no lock */
void drain_note_idle(struct drain *d);         /* writers have paused for idle_interval (drain=idle) */
/*
 * A session that carries the files under these paths (relative to the root; num 0: everything). Requests that wait for
 * the same session are merged. Its number, > 0, for drain_wait().
 */
uint64_t drain_request(struct drain *d, const char *const *paths, size_t num);
/*
 * Waits until session id (0: the latest) has ended. 0, *ret_exit and the text; -ETIMEDOUT (timeout_usec 0: none);
 * -ENOENT: no such session is known; -ESHUTDOWN: the daemon ends.
 */
int drain_wait(struct drain *d, uint64_t id, uint64_t timeout_usec, enum cistern_exit *ret_exit,
	char text[CISTERN_ERROR_TEXT_BYTES]);
void drain_answer(struct drain *d, uint64_t id, enum cistern_exit result, const char *text);
/* Of the carrier: part of a session of the job. Its number, for drain_wait(); 0: no memory. */
struct drain_part {
	enum drain_kind kind;
	enum wire_part part;
	bool cautious;
	bool last; /* of the job: all nodes are unmounted */
	enum wire_haste haste;
	uint64_t
		since; /* new files of this node with this inode number or a higher one came after the session had been asked for */
	uint64_t time_usec;       /* of the session, by the job's clock */
	const char *const *paths; /* borrowed */
	size_t num_paths;
	const struct wire_shared_list *shared; /* borrowed; NULL: none */
	const char *node_name;                 /* borrowed: of this node */
};
uint64_t drain_request_part(struct drain *d, const struct drain_part *part);
/* Of those paths, which another drain begins to carry; of none: all. */
void drain_forget_errors(struct drain *d, const char *const *paths, size_t num);
/* What the last part found (WIRE_PART_BEGIN), or could not write (failed is set). Moves it into the empty *ret. */
void drain_take_shared(struct drain *d, struct wire_shared_list *ret);
/* What the agents of the last part have carried. */
struct manifest_totals drain_take_totals(struct drain *d);
void drain_pause(struct drain *d, bool pause); /* sessions that nobody asked for */
/* The last session, when the mount is gone: nothing else is started any more. Its number. */
uint64_t drain_begin_final(struct drain *d);
void drain_cancel(struct drain *d); /* the running session ends after its step; a final one fails */
/* An eventfd (owned by d) that becomes readable whenever a session has ended. */
int drain_event_fd(const struct drain *d);
void drain_shut_down(struct drain *d); /* wakes all waiters with -ESHUTDOWN */

/* ---- what the agent asks, through ctl. owner: the connection, any unique pointer. */
struct drain_grant {
	uint64_t session, seq;
	enum wire_part part;
	bool cautious;
	enum wire_haste haste; /* nothing waits for the last session */
	uint64_t since;        /* as drain_part has it */
	bool convert;          /* nobody has a file open any more, on no node: they may get another layout */
	char snapshot[64];
	char **paths; /* owned by the caller (drain_grant_free) */
	size_t num_paths;
	struct buf shared;                   /* encoded list */
	char node_name[DRAIN_NODE_NAME_MAX]; /* "": one node alone */
	uint64_t *skip;                      /* owned by the caller: inodes to be left alone */
	size_t num_skip;
	struct straggler *stragglers; /* owned by the caller: what is written to through a dead mount */
	size_t num_stragglers;
};
void drain_grant_free(struct drain_grant *g);
/* -EBUSY: no session waits for an agent. */
int drain_agent_begin(struct drain *d, const void *owner, struct drain_grant *ret, struct cistern_error *err);
int drain_agent_step(struct drain *d, const void *owner, struct record *rec, struct cistern_error *err);
struct drain_progress {
	uint64_t planned_bytes, done_bytes, verify_bytes, verified_bytes, planned_files, done_files;
	char path[STORE_PATH_MAX];
};
int drain_agent_progress(struct drain *d, const void *owner, const struct drain_progress *p);
int drain_agent_error(struct drain *d, const void *owner, const char *path, int code, const char *text);
int drain_agent_shared(struct drain *d, const void *owner, const struct wire_shared *f, int status);
int drain_agent_fetch(struct drain *d, const void *owner, uint64_t slot, const struct peers_get *ranges, size_t num);
int drain_agent_fetched(struct drain *d, const void *owner, uint64_t slot, uint64_t *ret_off);
/* rec: PLACED. 0: what has the name, by its inode number, is not needed; -EBUSY: perhaps. Waits for other nodes. */
int drain_agent_occupied(struct drain *d, const void *owner, const struct record *rec);
/*
 * As state_share_extents() and, asked behind it, state_share_newest_cut() of the living state: what its snapshot names may have been given back by
 * other nodes.
 */
int drain_agent_places(struct drain *d, const void *owner, uint64_t ino, uint64_t off, uint64_t len,
	struct share_extent *out, size_t cap, size_t *ret_num, uint64_t *ret_next, struct share_cut *ret_cut);
int drain_agent_end(struct drain *d, const void *owner, enum cistern_exit result, const char *text,
	const struct manifest_totals *totals);
void drain_agent_gone(struct drain *d, const void *owner); /* its connection has closed */
/* What each of these answers tells the agent. */
struct drain_orders {
	bool paused, cancel;
	uint64_t rate;              /* bytes per second; 0: no limit */
	unsigned int share_percent; /* of the time that it may work; 100: all */
};
struct drain_orders drain_orders(struct drain *d);

/* ---- for people */
struct drain_status {
	bool draining, paused, final;
	enum cistern_exit last_result;
	uint64_t num_errors;
	struct drain_progress progress;
	unsigned int share_percent; /* of the time that it works; 0: not draining */
};
void drain_status(struct drain *d, struct drain_status *ret);
/* Calls each(path, code, text, arg) for every file that could not be drained and has not been since. */
void drain_each_error(
	struct drain *d, void (*each)(const char *path, int code, const char *text, void *arg), void *arg);
int64_t drain_now_usec(void); /* CLOCK_MONOTONIC */
/* Is there anything that the backing directory does not have? May scan names. */
bool drain_is_needed(struct store *s);

#endif
