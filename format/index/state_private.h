/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_INDEX_STATE_PRIVATE_H
#define FORMAT_INDEX_STATE_PRIVATE_H

/*
 * What the parts of the state share. Locks, in order: checkpoint_lock (one checkpoint, compaction or snapshot at a
 * time) > lock (everything else in here). The device works under the first only.
 */

#include <pthread.h>

#include "format/index/cache.h"
#include "format/index/state.h"

/* Numbers that belong to the state: the same wherever the same records were applied. */
struct meta {
	uint64_t next_ino;
	uint64_t inodes, names, dirty_files, log_bytes, extents, private_files;
	uint64_t written_bytes, saved_bytes, drained_bytes, drained_files, through_bytes;
	uint64_t sync_upto;                   /* of the last RECORD_SYNC */
	uint8_t boot_id[STATE_BOOT_ID_BYTES]; /* of the last RECORD_MOUNT; zero: none yet */
	bool clean;                           /* the last record was UNMOUNT */
	/* jobs of many nodes */
	bool job; /* a record with a stamp, or of one of their types, has been applied: version 2 of what follows */
	uint64_t tree_stamp, share_inodes, share_extents;
	bool writers;          /* a record that says who wrote has been applied: version 3 */
	bool parts;            /* a page has been kept in parts: version 4 */
	bool timed;            /* a record with write times has been applied: version 5 */
	uint64_t clock_ns;     /* the newest of them */
	bool times_set;        /* and one that says when a shared file's times were set: version 6 */
	uint64_t tree_time_ns; /* of the record with tree_stamp; 0: not known: version 7 */
	bool special;          /* an inode has been a FIFO, a socket or a device node: version 8 */
};

struct state {
	pthread_mutex_t checkpoint_lock, lock;
	struct state_options opt;
	char *index_path; /* owned: RocksDB's directory */
	char *scratch;    /* owned: a temporary directory to be removed, or NULL */
	struct db *db;
	struct cache cache;
	struct journal *journal; /* NULL: nothing can be committed */
	struct meta meta;
	struct clock clock;       /* of writes to shared files */
	int clock_file;           /* owned: clock_file_open(), or -1 */
	_Atomic(bool) by_kernel;  /* times of records are the kernel's: it writes to files of the store by itself */
	uint64_t seq;             /* last applied */
	uint64_t checkpoint_seq;  /* RocksDB stands for it */
	uint64_t payload_seq;     /* of the last record with a payload that was applied since the state was opened */
	uint64_t handed_ino;      /* numbers below it were given out by state_new_ino */
	uint64_t compacted_bytes; /* of the last .ckp file */
	bool must_compact;        /* the journal holds records that were dropped: no MOUNT before they are gone */
	int failed;               /* -errno that ended it */
	bool damaged, marked;     /* the index is not to be trusted; the next open will know that */
	bool tell_freed;          /* opt.freed is called */
	uint64_t *lost;           /* owned: inodes, each once; lost.c */
	size_t num_lost, cap_lost;
};

int meta_encode(const struct meta *m, struct buf *out);
int meta_decode(const void *val, size_t len, struct meta *ret); /* -EBADMSG, -EPROTONOSUPPORT */

/* apply.c: check says whether a record fits the state, and changes nothing; apply then fails only for want of memory or of the index. */
int apply_check(struct state *st, const struct record *rec);
int apply_record(struct state *st, const struct record *rec);
/* Both, for a record that has its seq. Afterwards the caller trims the cache. */
int state_step(struct state *st, const struct record *rec);
int state_commit_locked(struct state *st, struct record *rec);
void state_fail(struct state *st, int error); /* every later commit fails; damage is remembered beside the index */

/* lost.c: while the state is being opened */
int lost_note(struct state *st, uint64_t ino); /* 0, -ENOMEM */
int lost_settle(struct state *st);             /* the journal has been read */

/* objects.c: finding and changing the objects of the state. "find" of a name gives an item that may be absent. */
int find_node(
	struct state *st, uint64_t ino, struct node_item **ret); /* -ENOENT, also of one that is only remembered */
int find_any_node(struct state *st, uint64_t ino, struct node_item **ret); /* -ENOENT */
int find_record_node(
	struct state *st, const struct record *rec, struct node_item **ret); /* rec->ino; -ENOENT, -ESTALE */
int find_file(
	struct state *st, const struct record *rec, struct node_item **ret); /* a regular file; -EISDIR, -EINVAL */
int find_own_node(struct state *st, const struct record *rec, struct node_item **ret); /* -EINVAL: a foreign one */
int find_dir(struct state *st, uint64_t ino, struct node_item **ret); /* -ENOTDIR; -ENOENT also for orphans */
int find_segment(struct state *st, uint32_t segment, struct segment_item **ret); /* may be absent */
int find_name(struct state *st, enum key_kind kind, uint64_t parent, const char *name, struct name_item **ret);
int find_blob(struct state *st, const struct key *key, struct blob_item **ret);
int check_component(const char *name); /* -EINVAL, -ENAMETOOLONG */
int node_create(struct state *st, const struct record *rec, struct node_item **ret);
int node_empty(struct state *st, struct node_item *ni); /* what belongs to it goes, but for extents and names */
int node_remove(struct state *st, struct node_item *ni);
int node_set_flags(struct state *st, struct node_item *ni, uint32_t flags);
void node_changed(struct state *st, struct node_item *ni, uint64_t seq); /* version; dirty */
int name_add(struct state *st, uint64_t parent, const char *name, struct node_item *ni, uint64_t stamp);
int name_drop(struct state *st, uint64_t parent, const char *name, struct node_item *ni);
int backing_set(struct state *st, uint64_t parent, const char *name, uint64_t ino, uint32_t type);
int backing_drop(struct state *st, uint64_t parent, const char *name);
int blob_put(struct state *st, const struct key *key, const void *data, size_t len);
int xattrs_drop(struct state *st, struct node_item *ni);
int segment_use_private(struct state *st, uint32_t segment);
int segment_release_private(struct state *st, uint32_t segment, bool freed, uint64_t seq);

/* pages.c: the extents of files. counter: which of meta's byte counts is told what payload goes. */
int pages_put(struct state *st, struct node_item *ni, const struct extent *e, uint64_t len, uint64_t *counter);
int pages_clear(struct state *st, struct node_item *ni, uint64_t off, uint64_t end, uint64_t seq, uint64_t *counter);
/* [off, off + len) now shows the backing file. */
int pages_put_backing(
	struct state *st, struct node_item *ni, uint64_t off, uint64_t len, uint64_t seq, uint64_t *counter);
int pages_drained(struct state *st, struct node_item *ni, uint64_t upto, uint64_t seq);
int pages_list(struct state *st, const struct node *n, uint64_t first, uint64_t last, uint64_t *out, size_t cap,
	size_t *ret_num);
int find_page(struct state *st, const struct node *n, uint64_t page, struct page_item **ret); /* perhaps absent */
uint64_t pages_last(const struct node *n); /* no page lies behind this one */
/* The pages from first to last that have a key of this kind and inode. */
int keys_list(struct state *st, enum key_kind kind, uint64_t ino, uint64_t first, uint64_t last, uint64_t *out,
	size_t cap, size_t *ret_num);

/*
 * parts.c: a page's extents, in parts when there are many. Changes are those of extent.h; the page's item is left to be marked
 * as changed by the caller.
 */
struct leaves { /* pages that together are one; borrowed, good until the cache is trimmed or the page changes */
	const struct extent_page *leaf[PAGE_PARTS];
	unsigned int num;
};
typedef void (*page_freed)(uint32_t segment, uint64_t off, uint64_t len, void *arg);
uint32_t page_count(const struct page_item *pi);
int page_put(struct state *st, const struct node *n, struct page_item *pi, const struct extent *e, bool apart,
	page_freed freed, void *arg);
int page_clear(struct state *st, const struct node *n, struct page_item *pi, uint64_t off, uint64_t end,
	page_freed freed, void *arg);
/* Those that may have extents in [off, end), in order; none when there is no such page. */
int page_leaves(struct state *st, const struct node *n, uint64_t page, uint64_t off, uint64_t end, struct leaves *ret);

/* layer.c: what of a shared file's extents has been committed. ret may be absent. */
int find_commits(struct state *st, uint64_t ino, struct commits_item **ret);
int layer_mark(struct state *st, uint64_t ino, uint64_t page); /* something there is not committed */
int layer_begin(struct state *st, struct node_item *ni);       /* all that is there is not */
int layer_drop(struct state *st, struct node_item *ni);        /* the inode goes */
int layer_commit(struct state *st, struct node_item *ni, uint64_t upto, uint64_t stamp);

/* writers.c: which processes wrote a file. ret may be absent. */
int find_writers(struct state *st, uint64_t ino, struct writers_item **ret);
int node_writer(struct state *st, struct node_item *ni, uint32_t process, uint16_t *ret_number); /* 0: not known */
int writers_drop(struct state *st, struct node_item *ni);                                        /* no extent is left */

/* shares.c: share maps. head may be absent. */
int find_share(struct state *st, uint64_t ino, struct share_item **ret);
int find_share_page(struct state *st, const struct share_head *h, uint64_t ino, uint64_t page,
	struct share_page_item **ret); /* perhaps absent */
int share_pages_list(struct state *st, const struct share_head *h, uint64_t ino, uint64_t first, uint64_t last,
	uint64_t *out, size_t cap, size_t *ret_num);
int find_conflicts(struct state *st, uint64_t ino, struct conflicts_item **ret); /* perhaps absent */
int share_put(struct state *st, const struct record *rec);
int share_cut(struct state *st, uint64_t ino, uint64_t size, uint64_t stamp);
int share_drop(struct state *st, const struct record *rec);
/* The map stays as it is, for those who still look into it; what comes again does not come into it. */
int share_note_drained(struct state *st, uint64_t ino, uint64_t stamp, uint64_t upto_usec);
int share_lost(struct state *st, uint64_t ino, uint32_t node);

/* query.c: the lock around a question. query_end returns r. */
void query_begin(struct state *st);
int query_end(struct state *st, int r);

/* one line each per record type: check and apply (apply_*.c) */
#define APPLY_DECLARE(type)                                           \
	int check_##type(struct state *st, const struct record *rec); \
	int apply_##type(struct state *st, const struct record *rec)
APPLY_DECLARE(create);
APPLY_DECLARE(adopt);
APPLY_DECLARE(link);
APPLY_DECLARE(unlink);
APPLY_DECLARE(rename);
APPLY_DECLARE(free);
APPLY_DECLARE(forget);
APPLY_DECLARE(setattr);
APPLY_DECLARE(setxattr);
APPLY_DECLARE(removexattr);
APPLY_DECLARE(truncate);
APPLY_DECLARE(write);
APPLY_DECLARE(extents);
APPLY_DECLARE(punch);
APPLY_DECLARE(private);
APPLY_DECLARE(seal);
APPLY_DECLARE(through);
APPLY_DECLARE(placed);
APPLY_DECLARE(removed);
APPLY_DECLARE(drained);
APPLY_DECLARE(share);
APPLY_DECLARE(foreign);
APPLY_DECLARE(committed);
APPLY_DECLARE(share_put);
APPLY_DECLARE(share_cut);
APPLY_DECLARE(share_drop);
APPLY_DECLARE(share_lost);
#undef APPLY_DECLARE

/* checkpoint.c */
int state_write_index(
	struct state *st, bool atomic, struct cistern_error *err); /* dirty items, then the cursor; lock held */
int state_load_cursor(struct state *st); /* seq and meta as RocksDB has them. -ENOENT, -EBADMSG, -EPROTONOSUPPORT */

#define STATE_DAMAGED_FILE DB_DAMAGED_FILE

#endif
