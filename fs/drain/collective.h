/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_COLLECTIVE_H
#define FS_DRAIN_COLLECTIVE_H

/*
 * Drain sessions of a job of many nodes (docs/design/many-nodes.md, 6). Any node asks; node 0 takes the asks together, and
 * drives the parts of a session over all nodes, a part after the other; each node carries out its own.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/manifest/manifest.h"
#include "format/wire/shared.h"
#include "format/wire/wire.h"
#include "fs/drain/drain.h"
#include "fs/peer/peer.h"

struct collective;

struct collective_work { /* one part on one node */
	enum drain_kind kind;
	uint64_t
		session; /* they are numbered one after the other, as long as node 0's daemon lives; its next one's are higher */
	unsigned int part;   /* enum wire_part; COLLECTIVE_COMMIT, COLLECTIVE_DROP */
	bool cautious, last; /* last: all nodes are unmounted */
	enum wire_haste haste;
	bool again; /* for those who asked for the session before, in which some files came too late */
	bool alone; /* without node 0: only WIRE_PART_FILES, of no session */
	/*
	 * By the job's clock; 0: there is none. What was written up to then is committed when COLLECTIVE_COMMIT has ended, what
	 * was written later may be by then, too.
	 */
	uint64_t time_usec;
	const char *const *paths; /* borrowed; none: everything */
	size_t num_paths;
	const struct wire_shared_list *shared; /* borrowed: files that several nodes wrote, of this session */
};
/* Before the first part: what this node has written to shared files becomes known to the others. */
#define COLLECTIVE_COMMIT WIRE_PART_WHOLE
/* After WIRE_PART_FILES: what has been carried of shared files is in the backing directory and goes from layers and maps. */
#define COLLECTIVE_DROP WIRE_PART_END

struct collective_done { /* zero to begin with */
	enum cistern_exit result;
	char text[CISTERN_ERROR_TEXT_BYTES];
	/*
	 * Files that others can write to (WIRE_PART_BEGIN), what this node has written to them, or that it could not (DATA, HEAD),
	 * or that have been published (FILES). Freed by the caller.
	 */
	struct wire_shared_list shared;
	struct manifest_totals totals;
};

struct collective_options {
	struct peers *peers; /* borrowed */
	/* How long the last session waits for nodes that are still mounted. */
	uint64_t leave_timeout_usec;
	uint64_t
		ask_usec; /* how often nodes at work are asked whether they still are; 0: every 3 s. Node 0 is asked ten times more seldom */
	/* Carry out a part; blocks. One at a time. */
	void (*work)(const struct collective_work *w, struct collective_done *ret, void *arg);
	void (*stop_work)(void *arg); /* let the running part come to its end soon; any thread */
	/* What collective_ask() asked for has ended. */
	void (*answer)(uint64_t id, enum cistern_exit result, const char *text, void *arg);
	/* Node 0 has said whether sessions that nobody waits for are held. Does not block; may be NULL. */
	void (*paused)(bool paused, void *arg);
	/*
	 * Node 0: the job's manifest (fs/drain/job_manifest.h). How long its log is; more lines for it, from any node and thread (do not
	 * block for long); the end of a session: its number, times, result, totals, mark and troubles. All may be NULL.
	 */
	uint64_t (*mark)(void *arg);
	int (*append)(const void *lines, size_t len, void *arg);
	/* Node 0: what a node says by collective_tell_dirs(): WIRE_PAYLOAD of a request to be answered. Does not block; may be NULL. */
	void (*dirs)(struct peers_request *rq, void *arg);
	int (*summary)(const struct manifest_session *s, struct cistern_error *err, void *arg);
	void *arg;
};

int collective_create(const struct collective_options *opt, struct collective **ret, struct cistern_error *err);
void collective_destroy(struct collective *c); /* after peers_shut_down; NULL is fine */

/* As struct drain_ask has them. DRAIN_FINAL: this node is unmounted; answered when all nodes are, or after the time-out. */
int collective_ask(
	struct collective *c, uint64_t id, enum drain_kind kind, bool for_room, char *const *paths, size_t num);
void collective_cancel(struct collective *c, uint64_t id);
/*
 * Sessions that nobody waits for are held from now on, or go on again: of the whole job, from any node. Blocks. 0, or why
 * node 0, which leads them, was not asked. Its daemon's end is the end of that.
 */
int collective_pause(struct collective *c, bool pause);
/* Whom a session of the job waits for, of what this node knows, and what to do if that is out of order: "node 2 (host cn17), still mounted"; "": nobody but itself. */
void collective_waits_for(struct collective *c, char *out, size_t cap);
/* Lines for the job's manifest, to node 0; blocks. 0: it has them. From work(). */
int collective_tell_lines(struct collective *c, const void *lines, size_t len);
/* Times of directories, the same way: they go to node 0's dirs(). */
int collective_tell_dirs(struct collective *c, const void *bytes, size_t len);

/* From the job: a request of MESSAGE_DRAIN_FIRST to MESSAGE_DRAIN_LAST; and what happens to nodes. Do not block. */
void collective_serve(struct collective *c, struct peers_request *rq);
void collective_event(struct collective *c, enum peers_event event, uint32_t node);

#endif
