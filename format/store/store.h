/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_STORE_STORE_H
#define FORMAT_STORE_STORE_H

/*
 * A store: superblock, lock, journal, segments and state under one roof, with the rule that binds them: space is
 * given back only when the record that freed it is durable and nobody has it pinned.
 */

#include <stdbool.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/base/io.h"
#include "format/index/state.h"
#include "format/segment/segment.h"

#define STORE_FORMAT_VERSION 1u
#define STORE_UUID_BYTES     16
#define STORE_PATH_MAX       4096

struct superblock {
	uint32_t version;
	uint8_t uuid[STORE_UUID_BYTES];
	char job[256];                      /* job id, "" when none */
	uint32_t node_index, num_nodes;     /* numbers given at first assembly; 0 of 1 until then */
	uint8_t job_uuid[STORE_UUID_BYTES]; /* of the set of stores that were numbered together; zeros until then */
	char backing[STORE_PATH_MAX];       /* absolute, resolved */
	char mountpoint[STORE_PATH_MAX];    /* of the last mount */
	int64_t created_ns;
	uint32_t uid; /* owner */
};

struct store;

enum store_mode {
	STORE_CREATE_OR_OPEN, /* the daemon: makes an empty or missing directory into a store */
	STORE_OPEN,           /* read-write, must exist (fsck --repair) */
	STORE_READ_ONLY,      /* tools; no lock is taken; a live store is refused with -EBUSY unless snapshot is set */
	STORE_REBUILD,        /* read-write, index rebuilt from the journal */
	STORE_INDEX_ALONE, /* read-write, of the index alone: the journal has lost what that stands for, and begins anew */
};

struct store_options {
	enum store_mode mode;
	const char *backing;    /* CREATE: recorded; later opens: must agree when not NULL (-EINVAL names both) */
	const char *mountpoint; /* recorded when not NULL */
	/*
	 * The daemon: how many nodes its job has (1: it is alone), and the job's id. A store that was numbered otherwise is refused
	 * (-EINVAL); the id is recorded when it is not "". 0 and NULL: whatever.
	 */
	uint32_t nodes;
	const char *job;
	const char *version;    /* of the program, for who finds what it wrote; NULL: not said */
	bool held;              /* READ_ONLY: store_hold() has been asked for all who open it together */
	const char *snapshot;   /* READ_ONLY of a live store: name of an index snapshot in it, "snap-N" */
	struct io *io;          /* tests: a simulated disk (owned by the caller); NULL: the real directory */
	const char *index_path; /* tests: where RocksDB goes; NULL: STORE/index */
	const uint8_t *boot_id; /* tests: 16 bytes, another one = the machine was restarted; NULL: ask the kernel */
	uint64_t segment_size, journal_size, index_memory, capacity, reserve; /* 0 = defaults of config */
	bool ballast; /* the daemon: room is held for index and journal, when others fill the file system */
	bool write_out;
	uint64_t staging; /* bytes of shared memory for large payloads on their way; 0: none (all but the daemon) */
	const char *staging_dir; /* tests: where it lies; NULL: /dev/shm */
	size_t freed_max;        /* tests: how many ranges wait one by one until they may be given back; 0: 4 Mi */
};

/*
 * Opens the store at path. Errors, each with a text that names the remedy: -EBUSY (in use by pid N), -EPERM (belongs to
 * another user), -EPROTONOSUPPORT (made by a newer version), -EBADMSG (damaged: run fsck), -ENOTEMPTY (not a store and not
 * empty), -EINVAL (of another backing directory), -ENOENT, system errors. Never overwrites anything.
 */
int store_open(const char *path, const struct store_options *opt, struct store **ret, struct state_report *ret_report,
	struct cistern_error *err);
/* Good order: everything durable, checkpoint, lock released. NULL is fine. */
int store_close(struct store *s);
void store_abandon(struct store *s); /* releases memory and lock as a crash would leave the disk */

const struct superblock *store_superblock(const struct store *s); /* borrowed */
const char *store_path(const struct store *s);                    /* absolute */
struct state *store_state(struct store *s);
struct segment_set *store_segments(struct store *s);
struct io *store_io(struct store *s);
/*
 * The store is node of num from now on and for ever, in the job of that UUID (16 bytes, not all zero); new inodes get the node's
 * numbers. The same again: 0. -EEXIST: it has other numbers. -EINVAL: impossible ones. Text in err. While nobody makes inodes, and
 * by one thread; others may see the superblock's old numbers until it returns.
 */
int store_number(struct store *s, uint32_t node, uint32_t num, const uint8_t *job_uuid, struct cistern_error *err);
int store_read_superblock(const char *path, struct superblock *ret, struct cistern_error *err); /* no lock */
/*
 * Pid of the process that holds the store's lock; 0: nobody. -EBUSY: one that cannot be named. -errno. *ret_recovers: it is not the store's daemon:
 * it has asked store_hold(), and others may open the store READ_ONLY.
 */
int store_holder(const char *path, pid_t *ret_pid, bool *ret_recovers);
/*
 * For a recovery, which reads a store and must find it as it was: nobody else opens it for writing, or holds it, until close(*ret_fd). -1: it cannot be
 * locked here (on a read-only or foreign file system, another one's, no store), and nobody holds it. -EBUSY: somebody does; the text says who.
 */
int store_hold(const char *path, int *ret_fd, struct cistern_error *err);
void store_uuid_text(const uint8_t uuid[STORE_UUID_BYTES], char out[37]);

/*
 * Of a job's store: has what other nodes were told of it perhaps been lost with the power, and were they not told so yet? Stays so, over
 * restarts, until store_lost_power_told(). Of one that is only read: likewise, and also if it is another machine's.
 */
bool store_lost_power(const struct store *s);
int store_lost_power_told(struct store *s);
/* Of a store that is not open: what others were told of it is about to be cut off. The next opening finds that power was lost. Durable. */
int store_note_lost_power(struct io *io);
/*
 * state_commit() for a store that is open: all who change it use this one. It keeps the books that say what must be synced
 * and what may be given back.
 */
int store_commit(struct store *s, struct record *rec);
/*
 * Payload into the log: appends it and commits a WRITE. buf is len <= 1 MiB bytes. -ENOSPC: the store is full, nothing done.
 * When buf is a slot of the segments (segment_slot_get) it may have been taken, also after an error. writer: the process that
 * wrote it; 0, and store_write: not known.
 */
int store_write_as(
	struct store *s, uint32_t writer, uint64_t ino, uint32_t gen, uint64_t off, const void *buf, size_t len);
int store_write(struct store *s, uint64_t ino, uint32_t gen, uint64_t off, const void *buf, size_t len);
/*
 * Everything written or changed so far is durable (group commit: one caller syncs for all who wait), but for private
 * segments (segment_sync_private). No device is touched when nothing is new. After a failure it fails for ever: what
 * the kernel did with the pages that it could not write is not known.
 */
int store_sync(struct store *s);
/*
 * Read of what the store has of [off, off + len): fills buf for LOG and HOLE extents, and calls base(off, len, buf + ..., arg)
 * for each range that is the backing file's; a gap at or behind the inode's backing_limit reads as zeros. Range must lie
 * below the file's size. Not for private inodes. Checks CRCs of wholly read payloads when check is set (-EBADMSG).
 */
int store_read(struct store *s, const struct inode *in, uint64_t off, size_t len, void *buf, bool check,
	int (*base)(uint64_t off, size_t len, void *buf, void *arg), void *arg, struct cistern_error *err);

/*
 * state_options.check_payload, over these segments: is the payload of a WRITE or EXTENTS that was never synced there? -EBADMSG: not, or the
 * device cannot read it.
 */
int store_check_payload(struct segment_set *segments, const struct record *rec);

/*
 * Between the two no payload is punched or deleted. For those who find payload through the state and read it by
 * themselves, and for those who append to segments and commit by themselves (from segment_append to store_commit). Short;
 * nothing slow in between; not nested, and no store_read, store_write, store_maintain or store_close within.
 */
void store_read_begin(struct store *s);
void store_read_end(struct store *s);

/* Space. */
struct store_space {
	uint64_t capacity_bytes; /* what the store may hold: the setting, or what its file system gave, less reserve */
	uint64_t used_bytes;     /* segments, private segments, journal */
	uint64_t free_bytes;     /* min(capacity - used, free on the file system - reserve), not below 0 */
};
int store_space(struct store *s, struct store_space *ret);
/* A private segment that no record names: it is deleted, when another has the highest number. */
void store_drop_private(struct store *s, uint32_t segment);

/*
 * While pinned, nothing that was freed after the pin is punched or deleted, except by DRAINED. Nests. Pin before you make a
 * snapshot: its readers follow extents that were freed since.
 */
void store_pin(struct store *s);
void store_unpin(struct store *s);
/* Of a job, whose other nodes read our segments: what was freed is punched or deleted no earlier than so long after. 0: at once. */
void store_set_grace(struct store *s, uint64_t usec);
/* What was freed at since_usec (CLOCK_MONOTONIC) or later stays; what an earlier call had held begins its grace now. UINT64_MAX: nothing. */
void store_hold_freed(struct store *s, uint64_t since_usec);
/* Give back what may be given back (after making it durable); checkpoint and compact when due. Called by a background thread. */
int store_maintain(struct store *s, bool force_checkpoint);
/* Index snapshot for readers in other processes: STORE/snap-N. */
int store_snapshot(struct store *s, char *ret_name, size_t cap, uint64_t *ret_seq, struct cistern_error *err);
int store_remove_snapshot(const char *store_path, const char *name);

#endif
