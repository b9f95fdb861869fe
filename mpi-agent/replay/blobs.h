/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_BLOBS_H
#define MPI_AGENT_REPLAY_BLOBS_H

/*
 * A file in blob layout: what it is made of (blob_plan.c, of many nodes blob_part.c), the subfiles (blob_write.c) and their
 * process-centric form (blob_process.c). Within mpi-agent/replay only.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/base/cursor.h"
#include "format/codec/blob.h"
#include "format/codec/classic.h"
#include "format/codec/hdf5.h"
#include "mpi-agent/plan/deal.h"
#include "mpi-agent/plan/decomp.h"
#include "mpi-agent/plan/unite.h"
#include "mpi-agent/replay/session.h"

#define BLOB_WHY 256 /* bytes of a reason */

struct blob_plan {
	struct classic header; /* of the canonical file */
	uint8_t *header_bytes; /* owned */
	struct decomp *d;      /* owned; its writers are numbers of streams */
	uint32_t num_streams;  /* processes that wrote a part of a variable, by their numbers */
	uint64_t **run_at;     /* owned: for each run of each map, in elements, where it begins in its stream's blob */
	struct blob_share **shares; /* owned: of each map, what each stream has; start: 0 */
	struct buf residue;         /* encoded */
	uint64_t bytes, extents;    /* that the file has in the log */
	/* The set that the subfiles made here belong to. */
	uint8_t set[BLOB_SET_BYTES];
	uint32_t first_subfile, num_subfiles; /* those that are made here */
	uint32_t all_subfiles, all_streams;
	struct deal_sum own; /* what bytes and extents are */
	bool has_header;     /* some of the header is among them */
	/*
	 * The extents themselves, in the order of the file, so that they need not be asked for twice; NULL: they are too many, or
	 * nobody writes them now.
	 */
	struct extent *kept; /* owned */
	size_t num_kept, cap_kept;
	bool of_job;       /* it is this node's part of a file; all that is not cut up is in values */
	struct buf values; /* as deals have them */
};

/*
 * Finds out whether the file can be laid out as blobs, and how. 0; -EOPNOTSUPP: it cannot, and why says why; else
 * the file cannot be read.
 */
int blob_plan_make(struct session *s, const struct inode *in, struct blob_plan *ret, char why[BLOB_WHY]);
void blob_plan_free(struct blob_plan *p);

/* ---- what a plan is made of */

struct blob_view { /* a file as this node's log shows it; nothing reads as zeros */
	struct session *s;
	const struct inode *in;
};
ssize_t blob_view_read(void *buf, size_t len, uint64_t off, void *view); /* as classic_read_fn */
int blob_refuse(char why[BLOB_WHY], const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* -EOPNOTSUPP */
int blob_plan_check(const struct inode *in, char why[BLOB_WHY]); /* whether such an inode can be laid out */
/* The header, as read_bytes shows it. */
int blob_plan_take_header(
	struct blob_plan *p, uint64_t size, classic_read_fn read_bytes, void *arg, char why[BLOB_WHY]);
int blob_plan_extents(struct session *s, const struct inode *in, struct blob_plan *p, char why[BLOB_WHY]);
/* After decomp_finish(): writers of runs become numbers of streams. */
int blob_plan_streams(struct session *s, const struct inode *in, struct blob_plan *p);
int blob_plan_lay(struct blob_plan *p); /* the maps' blobs */
int blob_plan_residue(struct session *s, const struct inode *in, struct blob_plan *p, char why[BLOB_WHY]);
/* The set's number, from what no other file has. */
void blob_plan_set(struct blob_plan *p, const uint8_t *uuid, uint64_t ino, uint64_t version);

ssize_t blob_sink_read(void *buf, size_t len, uint64_t off, void *sink_file); /* as classic_read_fn */

/* ---- a part of a file of many nodes (blob_part.c) */

/*
 * The same for this node's part of a file of many nodes: in is what its store has of it, with the whole file's size; the header
 * is in head. What the other nodes are to know is put into *deal (empty), or why the part cannot be laid out so; the plan is of
 * use when blob_plan_unite() has made it agree with what all nodes say. 0, -errno.
 */
int blob_plan_part(
	struct session *s, const struct inode *in, struct sink_file *head, struct blob_plan *ret, struct deal *deal);
/* deals: of all nodes, in order. 0; -EOPNOTSUPP and why; -ENOMEM. */
int blob_plan_unite(
	struct session *s, struct blob_plan *p, const struct deal *deals, uint32_t num, const struct unite_plan *all);
/* The header of a file of which this node is the home, from its own log: 0; -EOPNOTSUPP and why: not all of it is there. */
int blob_plan_header(struct session *s, const struct inode *in, struct buf *ret, char why[BLOB_WHY]);

/* ---- a subfile in the process-centric form */

struct blob_process;
/* Puts all len bytes at off of the subfile. 0, -errno. */
typedef int (*blob_put_fn)(const void *bytes, size_t len, uint64_t off, void *arg);
/*
 * Of the plan's streams first to first + num - 1. header: the subfile's, whose begins become 0; shares: [map * num + stream], each
 * with its start. plan and header: borrowed until blob_process_destroy(). 0, -ENOMEM.
 */
int blob_process_create(const struct blob_plan *plan, uint32_t first, uint32_t num, struct classic *header,
	const struct blob_share *shares, struct blob_process **ret);
void blob_process_destroy(struct blob_process *p);         /* NULL is fine */
uint64_t blob_process_bytes(const struct blob_process *p); /* size of the subfile */
/* All but variables' values. */
int blob_process_put_head(const struct blob_process *p, blob_put_fn put, void *arg);
/* values: of a canonical variable (of one record of it), one blob behind the other. */
int blob_process_put_values(
	const struct blob_process *p, uint32_t var, uint64_t record, const uint8_t *values, blob_put_fn put, void *arg);
/* Whether a file of size bytes is such a subfile, ours or E3SM-IO's. 0; -EBADMSG: it is not; -ENOMEM. */
int blob_process_recognise(hdf5_read_fn read_bytes, void *arg, uint64_t size);

/* ---- all of it */

struct blob_done {
	uint32_t subfiles, blobs, maps;
	uint64_t written, extents;
	uint64_t upto, stamp;         /* which version they are, as DRAINED says it; stamp 0: of one node's file */
	struct attrs_warning warning; /* of the first subfile: all get the same attributes */
};
/*
 * Writes this node's subfiles of a file of many nodes, whole and durable, as base.0002 and so on. 0; -EOPNOTSUPP and why; or
 * another error, about which why may say more.
 */
int blob_write_part(struct session *s, const struct inode *in, struct blob_plan *plan, const char *base,
	enum drain_layout layout, struct blob_done *ret, char why[BLOB_WHY]);
/* BASE.0003 of a path or name. -ENAMETOOLONG */
int blob_subfile_path(const char *base, uint32_t number, char *out, size_t cap);
/* Whether a subfile may get that name, whose directory is inode dir: 0; -EEXIST: it is something else's, or the mount's own file. */
int blob_may_replace(struct session *s, uint64_t dir, const char *path);
/*
 * Writes the subfiles, in a layout of blobs, beside the file's place, under temporary names, makes them durable, gives them
 * their names; those are durable, too, when it returns 0. As blob_plan_make(); -EEXIST: something else has one of the names. A repetition gives the
 * same bytes.
 */
int blob_write(struct session *s, const struct inode *in, const struct file_place *place, enum drain_layout layout,
	struct blob_done *ret, char why[BLOB_WHY]);

/*
 * blob.c: the subfiles have their names for good: the file has arrived, and its name is gone. 0 also when that
 * failed and was said; then the file is not INODE_IS_DONE.
 */
int blob_give_up(struct session *s, const struct inode *in, const struct file_place *place, enum drain_layout layout,
	const struct blob_done *done);
const char *blob_haste_text(enum wire_haste haste); /* blob_job.c: why a file did not wait for the last drain */

#endif
