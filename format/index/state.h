/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_INDEX_STATE_H
#define FORMAT_INDEX_STATE_H

/*
 * The state of a store: what applying the journal's records in order gives. The daemon, the drain, fsck and recovery
 * all use this one machine, so they cannot disagree. It is kept in RocksDB (up to a checkpoint) and in memory (what
 * has changed since); the journal is the truth and the state can be rebuilt from it at any time.
 *
 * A change is: state_commit() = give the record its seq, append it to the journal, apply it; all under one lock, so
 * the journal's order is the order of application. RocksDB sees changes only at checkpoints: one atomic batch with
 * all dirty objects and the seq reached. After a crash: open RocksDB (it stands for some seq), apply the journal's
 * tail. RocksDB's own WAL is off.
 *
 * Two name spaces. Names (dentries): (parent inode, name) -> inode: what the mount shows. Backing names: (parent
 * inode, name) -> inode: which names of the backing directory the store has taken over and whose they are. A lookup
 * asks names, then backing names (there but no name: hidden, deleted or moved away), then the backing directory
 * itself. The path of a backing name is that of its parent's backing name and so on up to the root, so renaming a
 * directory in the backing directory touches one entry.
 *
 * Thread-safe. Results are copies.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/base/clock.h"
#include "format/base/io.h"
#include "format/index/extent.h"
#include "format/index/share.h"
#include "format/journal/journal.h"
#include "format/journal/record.h"

#define STATE_ROOT_INO        1u
#define STATE_INO_RANGE_SHIFT 40           /* numbers of new inodes: each node of a job has a range of 2^40 */
#define STATE_BACKING_INO_BIT (1ull << 63) /* inode numbers that were derived from a backing file's */

enum inode_flag {
	INODE_DIRTY_DATA = 1, /* bytes or size in the store that the backing file does not have */
	INODE_DIRTY_META = 2, /* mode, owner, times or xattrs that it does not have */
	INODE_NEW = 4,        /* no backing file yet */
	INODE_ORPHAN = 8, /* no name left, still in use or still needed to find backing names below it (a directory) */
	INODE_PRIVATE = 16,     /* data, size and mtime are those of the private segment */
	INODE_UNPUBLISHED = 32, /* its backing file has a temporary name still (write-through of a new file) */
	INODE_DIRTY_XATTR = 64, /* xattrs changed or removed: the store's set is the whole set */
	INODE_SHARED = 128,     /* more nodes than its home write it: its extents here are this node's layer */
	/*
	 * Homed on another node: only the layer is here, and whose it is. No names; nlink 1; origin: where the home said that
	 * it is; size: bounds the layer, no more; never dirty. RECORD_FREE takes it away, used or not.
	 */
	INODE_FOREIGN = 256,
	INODE_WRITERS = 512, /* which processes wrote it is known, at least of some: state_writers() */
};

struct inode {
	uint64_t ino;
	uint32_t gen;
	uint32_t mode; /* type and permissions */
	uint32_t uid, gid;
	uint32_t nlink;
	uint32_t flags; /* enum inode_flag */
	uint64_t size;
	int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
	uint64_t version;      /* seq of the last change of any kind */
	uint64_t data_version; /* seq of the last change of data or size */
	uint32_t private_segment;
	uint64_t backing_limit; /* bytes of the backing file that still show where there is no extent */
	/* one of its backing names ("origin"); name "" = none. The root: parent 0, name "." */
	uint64_t origin_parent;
	char origin_name[RECORD_NAME_MAX + 1];
	uint64_t backing_dev, backing_ino; /* identity of the backing file when last seen */
	uint32_t num_names;   /* in the mount; nlink also counts links of the backing file that it has not seen */
	uint32_t num_backing; /* backing names that are its own */
	int64_t times_set_ns; /* of a shared file, at its home: when, by the job's clock, its mtime was last set (utimes); 0: not */
	uint32_t dev_major, dev_minor; /* of a device node; else 0 */
};

bool inode_is_special(uint32_t mode); /* a FIFO, a socket or a device node */

struct state_name { /* one entry of a directory */
	uint64_t ino;
	uint64_t stamp; /* of the record that made the entry (a file's, given by the name's server); 0: none */
	uint32_t type;  /* S_IFMT bits */
	char name[RECORD_NAME_MAX + 1];
};

struct state_totals {
	uint64_t inodes, names;                /* in the store */
	uint64_t dirty_files;                  /* inodes with any dirty flag, or new */
	uint64_t log_bytes;                    /* live payload in .seg (and sealed private) segments */
	uint64_t extents;                      /* live extents */
	uint64_t private_files;                /* inodes with a private segment */
	uint64_t written_bytes;                /* payload ever logged */
	uint64_t saved_bytes;                  /* logged and overwritten, cut off or deleted before any drain */
	uint64_t drained_bytes, drained_files; /* ever */
	uint64_t through_bytes;                /* ever written through */
	bool special;                          /* there are FIFOs, sockets or device nodes, or have been */
	uint64_t share_inodes, share_extents;  /* share maps kept for the job, and what is in them */
	uint64_t index_bytes;                  /* memory used by cached inodes and extent pages */
	uint64_t seq, checkpoint_seq;
};

struct state;
struct state_report;

enum state_mode {
	STATE_READ_WRITE, /* the daemon, fsck --repair: replays the tail, begins a new journal file */
	STATE_READ_ONLY, /* tools: RocksDB opened read-only (or not at all when it is missing), tail applied in memory */
	STATE_SNAPSHOT,  /* index_path is a snapshot made by state_snapshot: the tail is not applied */
	STATE_REBUILD, /* index_path is emptied; everything comes from the last .ckp and the journal; then as READ_WRITE */
	STATE_REBUILD_READ_ONLY, /* the same into a scratch index_path, no journal file is begun: fsck's second opinion */
	STATE_INDEX_ALONE, /* the index is all that is left of what it stands for: the journal begins anew behind it */
};

struct state_options {
	struct io *io;          /* the store (borrowed) */
	const char *index_path; /* RocksDB's directory, absolute */
	enum state_mode mode;
	uint64_t index_memory; /* bytes; 0: 256 MiB */
	uint64_t journal_size; /* bytes of a journal file; 0: 16 MiB */
	bool job;              /* the store is one of a job of many nodes: see state_remembered() */
	const char *version;   /* of the program: goes with the MOUNT record. NULL: it says none */
	/*
	 * Called during the replay for WRITE and EXTENTS records behind the last RECORD_SYNC when the machine has been
	 * restarted since (check_payload true): is the payload really there? 0 good; -EBADMSG: drop this write (said in
	 * report). NULL: trust all.
	 */
	int (*check_payload)(const struct record *rec, void *arg);
	/*
	 * Likewise for each record there that names a private segment (CREATE, PRIVATE, SEAL): 0 the segment is there, 1 it was not,
	 * or not all that SEAL says it had (the file is in state_each_lost()): it has been made anew without what was in it, or, by who
	 * may not write, counts as empty, and *ret_bytes is how much of a SEAL's there is; the rest are zeros. NULL: trust all.
	 */
	int (*find_private)(const struct record *rec, uint64_t *ret_bytes, void *arg);
	/*
	 * Called before a checkpoint, a .ckp file or a snapshot becomes durable, without the lock: on return 0 the payloads of all
	 * records committed before the call are durable. RECORD_SYNC then says so, before what was built on them is flushed:
	 * recovery checks only what the index does not stand for. NULL: there are none.
	 */
	int (*sync_payloads)(void *arg);
	/*
	 * Are there segments? 1, 0 or -errno. A journal without a record was lost if there are: its first one is durable before the
	 * first of them is made. NULL: there are none.
	 */
	int (*has_segments)(void *arg);
	/*
	 * Called by an opening for writing, when all is read and before the journal says which boot this is: who is to remember that power was
	 * lost does it now. An error ends the opening. NULL: nobody is.
	 */
	int (*before_mount)(const struct state_report *report, void *arg);
	/* About so many bytes are to be written to the index: called without the lock. NULL: there is no more room to be made than there is. */
	void (*make_room)(uint64_t bytes, void *arg);
	void *arg;
	/*
	 * A payload range that no state refers to any more, once the journal is durable up to seq. off 0, len UINT64_MAX: a
	 * whole private segment. Under the lock: queue it, and call nothing here. Also during the replay of a store that is
	 * opened for writing, for what is freed there (perhaps again: giving back twice does no harm); never in a read-only mode.
	 * Segment 0: what was told before is not so, the index was wrong, and the replay begins anew.
	 */
	void (*freed)(uint32_t segment, uint64_t off, uint64_t len, uint64_t seq, void *freed_arg);
	void *freed_arg;
	const uint8_t *boot_id; /* 16 bytes: which boot of the machine this is; NULL: /proc/sys/kernel/random/boot_id */
};

#define STATE_BOOT_ID_BYTES 16
/* What state_segment_live and state_each_segment say of a private segment in use: its size is its file's to know. */
#define STATE_SEGMENT_PRIVATE UINT64_MAX

struct state_report { /* what opening found */
	uint64_t replayed_records;
	uint64_t cut_bytes;                     /* torn tail of the journal */
	uint64_t dropped_writes, dropped_bytes; /* never synced, lost with the power */
	uint64_t lost_private; /* files whose private segment, likewise: they are empty, or end in zeros */
	uint64_t orphans;      /* inodes without names, freed */
	uint64_t last_seq;     /* of what was there; opening for writing adds records of its own */
	bool clean;            /* the last daemon had closed the store in good order */
	bool rebuilt;          /* RocksDB was missing or damaged and has been rebuilt */
	bool rebooted;         /* the machine was restarted since */
};

/* -EBADMSG: the journal is damaged, or ends before what the index stands for; nothing was changed. Others as they come. */
int state_open(const struct state_options *opt, struct state **ret, struct state_report *ret_report,
	struct cistern_error *err);
void state_destroy(struct state *st); /* no checkpoint: call state_close for good order */
int state_close(struct state *st);    /* RECORD_UNMOUNT, sync, checkpoint, destroy */

/*
 * Give rec its seq (and time_ns when 0), append, apply. 0: done and safe against the death of the process. -ENOSPC:
 * nothing happened. -EIO: the journal or index failed; every later commit fails too (remount recovers, with this record
 * if rec->seq has changed: it is in the journal). The caller has checked that the operation makes sense; the state refuses
 * what contradicts it (-ENOENT, -EEXIST, -ESTALE).
 */
int state_commit(struct state *st, struct record *rec);
/* Apply a record without a journal (tests, tools on a copy). */
int state_apply(struct state *st, const struct record *rec);

/*
 * Everything committed before is durable on return (the caller syncs the payloads of all records up to payload_seq first; RECORD_SYNC{upto} says
 * so when that is news). *ret_seq (may be NULL): what was committed up to here is, with its payloads, and the journal says so: payload_seq, or that
 * record. -ENOSPC: there is no room for it, and nothing has happened.
 */
int state_sync(struct state *st, uint64_t payload_seq, uint64_t *ret_seq);
uint64_t state_seq(struct state *st);
/* What times the writes to shared files: later than all that the journal has. Borrowed. */
struct clock *state_clock(struct state *st);
/*
 * The time of what is changed now, in ns since 1970: of records that are committed without one. Once the kernel may write to files of the
 * store by itself (there is a private segment, or state_let_kernel_write() has been called) it is one that the kernel gave: not before
 * the times of what it wrote earlier, nor behind those of what it writes later. From any thread.
 */
int64_t state_time_ns(struct state *st);
void state_let_kernel_write(struct state *st);
int state_checkpoint(struct state *st);        /* dirty objects to RocksDB */
bool state_wants_checkpoint(struct state *st); /* enough is dirty */
int state_compact(struct state *st); /* .ckp file from RocksDB, older journal files deleted; runs beside commits */
bool state_wants_compaction(struct state *st);
/* A consistent copy of the index (hard links) in the directory path (absolute, must not exist). *ret_seq: its version. */
int state_snapshot(struct state *st, const char *path, uint64_t *ret_seq, struct cistern_error *err);

uint64_t state_new_ino(struct state *st); /* next free number; taken for good by the CREATE that uses it */
/* state_new_ino gives no number below first from now on (until the state is closed). Lower ones may be created all the same. */
void state_reserve_inos(struct state *st, uint64_t first);
void state_join(struct state *st); /* from now on as with state_options.job */
/* The number of the last tree change (RECORD_F_TREE) that was applied; 0: none. One not above it is refused: -EALREADY. */
uint64_t state_tree_stamp(struct state *st);
/* When that one was made, by node 0's clock, ns since 1970; 0: stamp is not the last one's number, or it is not known. */
uint64_t state_tree_time(struct state *st, uint64_t stamp);
/*
 * A tree change that another store of the job has (rec, which may be changed) is committed here, too, by commit(), which fails as state_commit
 * does. 0: it is, or was; -EILSEQ: not those before it.
 */
int state_tree_follow(struct state *st, struct record *rec, int (*commit)(struct record *rec, void *arg), void *arg);
/* Whether rec gives a directory its place in the backing directory that this state does not know any more. */
bool state_tree_is_gone(struct state *st, const struct record *rec);
int state_inode(struct state *st, uint64_t ino, struct inode *ret); /* -ENOENT */
/*
 * A file that was freed while it has a backing name, which is still to be removed. Of such a one only mode, links and the backing
 * file's identity are known, and only here: somebody else may have put another file in that place. -ENOENT
 */
int state_remembered(struct state *st, uint64_t ino, struct inode *ret);
int state_lookup(
	struct state *st, uint64_t parent, const char *name, struct state_name *ret); /* -ENOENT: no such name here */
/* Whose is this backing name? -ENOENT: the store knows nothing of it. *ret_ino may be an orphan or gone. */
int state_backing_owner(struct state *st, uint64_t parent, const char *name, uint64_t *ret_ino);
/* Up to cap entries with name > after ("" = from the start), sorted bytewise. */
int state_list_names(
	struct state *st, uint64_t parent, const char *after, struct state_name *out, size_t cap, size_t *ret_num);
int state_list_backing_names(
	struct state *st, uint64_t parent, const char *after, struct state_name *out, size_t cap, size_t *ret_num);
bool state_dir_is_empty(struct state *st,
	uint64_t parent); /* it is known to have no names (the backing directory is the caller's to ask) */
/* All (backing) names of all directories / all inodes, in key order: cb non-zero stops. No lock is held during cb. */
int state_each_inode(struct state *st, int (*cb)(const struct inode *in, void *arg), void *arg);
int state_each_name(struct state *st, int (*cb)(uint64_t parent, const char *name, uint64_t ino, void *arg), void *arg);
int state_each_backing_name(
	struct state *st, int (*cb)(uint64_t parent, const char *name, uint64_t ino, void *arg), void *arg);
/*
 * The files of report.lost_private: one path of each in the mount, without a slash in front. For who has just opened the state. cb non-zero
 * stops; no lock is held.
 */
#define STATE_LOST_TEXT \
	"was never synced, and what had been written to it was lost with the power: it is empty, or ends in zeros"
int state_each_lost(struct state *st, int (*cb)(const char *path, const struct inode *in, void *arg), void *arg);
/*
 * Extents that touch [off, off + len), clipped to it, in order. Fills at most cap; *ret_next = off + len when all fit, else
 * the offset to go on from.
 */
int state_extents(struct state *st, uint64_t ino, uint64_t off, uint64_t len, struct extent *out, size_t cap,
	size_t *ret_num, uint64_t *ret_next);
/*
 * The processes that wrote an inode's extents here: an extent's writer is number n of them, out[n - 1] (ids of thread groups as
 * the daemon saw them, on this store's node), or, when that is 0, not known. At most cap; *ret_num: all there are, at most 65535.
 */
int state_writers(struct state *st, uint64_t ino, uint32_t *out, size_t cap, size_t *ret_num);
/*
 * Jobs of many nodes. The layer of an inode with INODE_SHARED: its LOG and HOLE extents here, each with the stamp under
 * which it was committed (0: not yet). Cut and counted as by state_extents.
 */
struct layer_extent {
	struct extent ext;
	uint64_t stamp;
};
int state_layer(struct state *st, uint64_t ino, uint64_t off, uint64_t len, struct layer_extent *out, size_t cap,
	size_t *ret_num, uint64_t *ret_next);
/*
 * The extents that are not committed yet, from off on, in order. At most cap; *ret_next: where to go on from, UINT64_MAX:
 * that was all. Costs what pages of EXTENT_PAGE_SPAN with such extents hold, whatever else the file has. A commit is:
 * upto = state_seq(), all of these with seq <= upto told to the domain homes, RECORD_COMMITTED{upto}.
 */
int state_uncommitted(struct state *st, uint64_t ino, uint64_t off, struct extent *out, size_t cap, size_t *ret_num,
	uint64_t *ret_next);
struct commit_point { /* both rise from one to the next; an extent has the stamp of the first with upto >= its seq */
	uint64_t upto, stamp;
};
/*
 * The last one with a stamp not above that, of those that are kept: which extents may still need, and the very last one. Zeros: none.
 * *ret_later (NULL: of no interest): there is one with a higher stamp.
 */
int state_commit_by(struct state *st, uint64_t ino, uint64_t stamp, struct commit_point *ret, bool *ret_later);
/*
 * Share maps: what nodes have committed of the bytes whose domain home this node is. By bytes: the higher stamp wins, then
 * the higher node, whatever arrives first. The inode itself need not be known here. state_share_extents: as state_extents;
 * nothing where there is no map.
 */
int state_share_extents(struct state *st, uint64_t ino, uint64_t off, uint64_t len, struct share_extent *out,
	size_t cap, size_t *ret_num, uint64_t *ret_next);
/* The newest cut of a map: nothing at and behind *ret_size has a lower stamp than *ret_stamp. 0 and 0: there was none. */
int state_share_newest_cut(struct state *st, uint64_t ino, uint64_t *ret_size, uint64_t *ret_stamp);
/* All that a map still knows to be cut off, the oldest first: SHARE_CUTS_MAX fit into out. */
int state_share_cuts(struct state *st, uint64_t ino, struct share_cut *out, size_t *ret_num);
int state_share_lacks_cut(struct state *st, uint64_t ino, const struct share_cut *cut, bool *ret);
/* What the drain has carried: all that was written up to *ret_usec (UINT64_MAX: whenever) with a stamp up to *ret_stamp (0: nothing). */
int state_share_drained(struct state *st, uint64_t ino, uint64_t *ret_stamp, uint64_t *ret_usec);
/* All inodes with a map, in order, and their extents (0: all cut off or dropped). cb non-zero stops; no lock is held. */
int state_each_shared(struct state *st, int (*cb)(uint64_t ino, uint64_t extents, void *arg), void *arg);
/*
 * What two nodes wrote without having seen the other's commit: node's bytes count, other's are hidden. *ret_more (may be
 * NULL): how many more times one was met after STATE_CONFLICTS_MAX were kept. cb non-zero stops; no lock is held.
 */
#define STATE_CONFLICTS_MAX 10000
int state_conflicts(struct state *st, uint64_t ino, int (*cb)(const struct share_conflict *c, void *arg), void *arg,
	uint64_t *ret_more);
int state_symlink(struct state *st, uint64_t ino, char *out, size_t cap); /* NUL-terminated; -ENOENT, -ERANGE */
/* xattrs of the store: authoritative when INODE_DIRTY_XATTR or INODE_NEW, else the backing file has them. */
int state_xattr(struct state *st, uint64_t ino, const char *name, void *out, size_t cap,
	size_t *ret_len); /* -ENODATA, -ERANGE */
int state_list_xattrs(
	struct state *st, uint64_t ino, int (*cb)(const char *name, const void *val, size_t len, void *arg), void *arg);
/* The path of ino's (or of parent/name's) backing file, relative to the backing directory; "." for the root. -ENOENT,
 * -ENAMETOOLONG. */
int state_backing_path(struct state *st, uint64_t ino, char *out, size_t cap);
int state_backing_child_path(struct state *st, uint64_t parent, const char *name, char *out, size_t cap);
void state_totals(struct state *st, struct state_totals *ret);
/* Live bytes per segment; -ENOENT when nothing lives there. */
int state_segment_live(struct state *st, uint32_t segment, uint64_t *ret_live_bytes);
int state_each_segment(struct state *st, int (*cb)(uint32_t segment, uint64_t live_bytes, void *arg), void *arg);
/* Compare two states key by key (fsck: the index agrees with the log). cb gets a line per difference. Returns their number or -errno. */
int64_t state_compare(struct state *a, struct state *b, void (*cb)(const char *line, void *arg), void *arg);

#endif
