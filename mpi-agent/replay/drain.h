/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_DRAIN_H
#define MPI_AGENT_REPLAY_DRAIN_H

/*
 * One drain session: carries what a store holds into a directory. The store is a private, read-only copy (a snapshot
 * of a live store, or a dead store): each step is applied to its state in memory, so that the paths of backing files stay
 * right on the way. Who runs a session hears of each step once it is durable.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/base/drain_layout.h"
#include "format/manifest/manifest.h"
#include "format/store/store.h"
#include "format/wire/shared.h"
#include "format/wire/wire.h"

struct steps;

enum drain_verify { /* as the setting's choices */
	DRAIN_VERIFY_NONE,
	DRAIN_VERIFY_SIZE,
	DRAIN_VERIFY_READ,
	DRAIN_VERIFY_FORMAT /* and it opens as what it claims to be */
};

struct drain_progress {
	uint64_t planned_bytes, done_bytes;
	uint64_t verify_bytes, verified_bytes; /* to be read back in all, and read back; 0: nothing is */
	uint64_t planned_files, done_files;
	const char *path; /* being worked on; relative to the mount; never NULL */
};

struct drain_control { /* what the watcher wants */
	bool paused, cancel;
	uint64_t rate;              /* bytes per second; 0: no limit */
	unsigned int share_percent; /* 1 to 100: of the time that the drain may work */
};

struct drain_fetch {  /* payload in another node's store */
	uint64_t off; /* in the segment, bytes */
	uint32_t node, segment;
	uint32_t len; /* bytes */
};

struct drain_places { /* a range of a file that nodes share */
	uint64_t ino;
	uint64_t off, len; /* bytes */
};

struct drain_watcher {
	/*
	 * A step is durable in the destination. 0: taken. -ENOENT, -ESTALE: what it is about, or the directory that it is
	 * in, has gone meanwhile; a PLACED is then taken back. Other negative returns end the session at once. May be NULL.
	 */
	int (*step)(const struct record *rec, void *arg);
	/* Called several times a second, and before anything is published. A negative return ends the session. May be NULL. */
	int (*tick)(const struct drain_progress *progress, struct drain_control *control, void *arg);
	/*
	 * Payload of other nodes comes into slots, several at a time. fetch: begin to bring ranges, WIRE_FETCH_BYTES at most, one behind
	 * the other. fetched: wait for it; where it is, until the slot's next fetch. Each fetch that began is waited for. 0 or
	 * -errno. NULL: there are no other nodes.
	 */
	int (*fetch)(unsigned int slot, const struct drain_fetch *ranges, size_t num, void *arg);
	int (*fetched)(unsigned int slot, const uint8_t **ret, void *arg);
	/*
	 * Where bytes of a shared file are now, as state_share_extents(), in the living store's map; and, asked behind that, the newest cut that
	 * it knows of (state_share_newest_cut). What it names has not been given back yet. 0 or -errno. NULL: nothing is ever given back.
	 */
	int (*places)(const struct drain_places *ask, struct share_extent *out, size_t cap, size_t *ret_num,
		uint64_t *ret_next, struct share_cut *ret_cut, void *arg);
	/*
	 * WIRE_PART_OFFER: f is to be converted by several nodes; -EBUSY: not in this session. PACK and CHECK: what was done of that.
	 * WIRE_PART_BEGIN, status 0: f is ready to be written to by all nodes; -EBUSY: not in this session. DATA and HEAD: what
	 * was written to it (written, extents, crc_sum), or that it could not be (status is why).
	 */
	int (*shared)(const struct wire_shared *f, int status, void *arg);
	/*
	 * Parts of a job: rec, a PLACED, is about to be done, and something that is not ours has the name, which rec's backing_ino is. 0: a node
	 * says that it was its own, and is not needed; -EEXIST: it is; -EBUSY, -ENOENT: nobody can say, or does, so it may be a file's only copy.
	 * REMOVE: the same of what is about to be removed. NULL: all that is there may be replaced.
	 */
	int (*occupied)(const struct record *rec, void *arg);
	/* A file that came, or got its name, too late for this session. May be NULL. */
	void (*late)(const char *path, const char *text, void *arg);
	/* Something that Cistern does not know has its name: it is at there, and drained. May be NULL. */
	void (*beside)(const char *path, const char *there, void *arg);
	/* A file was to get another layout; kept: it did not, text says why. May be NULL. */
	void (*layout)(const char *path, bool kept, const char *text, void *arg);
	/* A path that cannot be carried over. May be NULL. */
	void (*error)(const char *path, int code, const char *text, void *arg);
	void *arg;
};

/* Drained files that get another layout (docs/design/netcdf4.md). */
struct drain_convert {
	const struct drain_layout_rules *rules; /* borrowed */
	const char *settings;                   /* borrowed: as -o takes them: how */
	const char *list_path; /* borrowed: a file: those that are to be converted when everything is closed */
	uint32_t num_subfiles; /* of a file in blob layout */
	uint64_t share_bytes;  /* of a file of a job: so much for each node that converts it; 0: its home alone */
	enum wire_haste haste; /* why nothing waits for that */
	bool now;              /* which is so */
};

struct drain_options {
	struct store *store; /* borrowed */
	uint32_t node;       /* whose it is */
	uint32_t
		num_nodes; /* of shared files, carry the domains whose home node is, of so many; 0: all that is in its maps */
	uint64_t domain_size; /* bytes; not 0 when num_nodes is not */
	enum wire_part part;  /* a job of many nodes is drained in parts, so that no two nodes meet */
	uint64_t
		since; /* of a job: new files with this number or a higher one were made after the session had been asked for */
	bool cautious; /* another node's files may be in the way: replace nothing that is not ours, and ask before removing it */
	struct sink *sink; /* borrowed: where to; NULL: a directory */
	int to_dirfd;      /* borrowed: the directory */
	bool in_place;     /* it is the backing directory; else files are made whole in it */
	int base_dirfd;    /* not in_place: the backing directory, or -1 when it is not there (borrowed) */
	bool base_is_copy; /* its files are not those that the store knows, and are taken by their names */
	bool dirs_are_told; /* not in_place: another store of the job tells what has become of the directories, which all have */
	uint64_t upto; /* the version that the store's copy stands for */
	/* CLOCK_MONOTONIC: before the copy was made; places of other nodes' payload are right for so long from when they were asked for. */
	uint64_t asked_usec, fresh_usec;
	enum drain_verify verify;
	uint64_t buffer_bytes;      /* memory for data, at least 1 MiB */
	uint64_t rate;              /* bytes per second to begin with; 0: no limit */
	const char *const *filters; /* paths in the mount (borrowed); none: everything */
	size_t num_filters;
	const uint64_t *left_alone; /* inodes whose data are not touched: they are being written (borrowed) */
	size_t num_left_alone;
	struct wire_shared_list shared; /* borrowed: those of this session, but in WIRE_PART_BEGIN */
	const char *intent_path;        /* a file for moves that are not reported yet (intent.h); NULL: none is kept */
	const char *steps_path; /* of a dead store: a file that the steps are reported to (steps.h); NULL: none */
	struct steps *steps;    /* the same, open already (borrowed); of a store that is drained in parts. NULL: none */
	/* By node: its name when its store is not there: what it had is zeros and listed. Borrowed; NULL: all are there. */
	const char *const *lost;
	uint32_t num_lost;                   /* how many nodes lost tells of */
	struct manifest *manifest;           /* borrowed; may be NULL */
	const struct drain_convert *convert; /* borrowed; NULL: every file stays as it is */
	/* Overlaps of a shared file (state_conflicts()) as they are known elsewhere than in the store's share map. NULL: they are there. */
	int (*overlaps)(uint64_t ino, int (*cb)(const struct share_conflict *c, void *arg), void *arg,
		uint64_t *ret_more, void *overlaps_arg);
	void *overlaps_arg;
	/* Recovery: is that, in the mount, a name of a file of another store? NULL: nobody can say. */
	bool (*named)(uint64_t dir, const char *name, void *named_arg);
	/* In place, with the stores of a job: does any of them know what has this name, by its number? NULL: there is one store. */
	bool (*known)(uint64_t dir, const char *name, const struct stat *there, void *named_arg);
	/* The same as named, in place and without a store: may what has the name be a file that only that one knows? NULL: it cannot. */
	bool (*may_be_lost)(uint64_t dir, const char *name, const struct stat *there, void *named_arg);
	void *named_arg;
	struct drain_watcher watcher;
};

struct drain_result {
	struct manifest_totals totals;
	uint64_t converted, kept; /* files that got the layout that they should, and that could not */
	uint64_t waiting;         /* files that stay in the store until the mount is gone, for their layout */
	uint64_t changes;         /* of the destination, as the sink counts them */
};

/*
 * 0: the session came to its end; ret->totals says how well. -ECANCELED, and what ended it otherwise:
 * nothing is half published, a next session goes on. *ret is filled in any case.
 */
int drain_run(const struct drain_options *opt, struct drain_result *ret, struct cistern_error *err);

#endif
