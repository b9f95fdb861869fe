/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_SEGMENT_STAGING_H
#define FORMAT_SEGMENT_STAGING_H

/*
 * Inside of a segment set: payloads that wait in shared memory until they are written to their segments. For segment*.c
 * and staging*.c only; what others call is in segment.h. A NULL struct staging is one that has never anything staged.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/segment/segment.h"

struct segment;
struct staging;

/* ---- staging_region.c: the file in shared memory (docs/format/store.md) */

#define REGION_PAGE       4096u
#define REGION_SLOT_BYTES (REGION_PAGE + SEGMENT_SLOT_BYTES)

struct region {
	char *path; /* owned */
	int fd;     /* owned, holds the lock when writable; -1: there is none */
	bool writable;
	uint8_t *at; /* owned mapping of REGION_PAGE + num * REGION_SLOT_BYTES bytes */
	uint32_t num;
	bool is_huge; /* mapped by huge pages */
};

struct region_payload { /* what a staged slot holds, and where that belongs */
	uint32_t segment;
	uint32_t len; /* 1 to SEGMENT_SLOT_BYTES */
	uint64_t off; /* in the segment, a multiple of SEGMENT_BLOCK */
	uint32_t crc;
};

/* -ENOSPC, -EEXIST (somebody else's is there), system errors. The caller has made sure that no old one of ours is left. */
int region_create(const struct segment_staging_options *opt, struct region *ret);
/*
 * That of a dead process. -ENOENT: none; -EBUSY: its process lives; -EBADMSG, -EPROTONOSUPPORT: not to be understood;
 * -EPERM: a stranger's; -EACCES: perhaps ours, but not for this user. writable: to be removed afterwards; it is locked.
 */
int region_open(const struct segment_staging_options *opt, bool writable, struct region *ret);
void region_close(struct region *r, bool remove);
void region_sweep(
	const struct segment_staging_options *opt); /* removes those of dead processes that have nothing staged */
bool region_is_lost(const struct region *r);        /* somebody has deleted the file: it would not be found again */

uint8_t *region_memory(const struct region *r, uint32_t slot); /* of the payload; the rest of a page lies before it */
/* The payload is in place: from here on it outlives this process. */
void region_stage(struct region *r, uint32_t slot, const struct region_payload *p);
void region_clear(struct region *r, uint32_t slot);
/* Is it staged, and whole? */
bool region_look(const struct region *r, uint32_t slot, struct region_payload *ret);

/* ---- staging.c */

/*
 * Before the segments are listed: what a dead process has left is written to its segments and synced, and its region
 * removed. Counts them in *ret_num.
 */
int staging_recover(
	struct io *io, const struct segment_staging_options *opt, uint64_t *ret_num, struct cistern_error *err);
/* *ret NULL: without staging. read_only: what a dead process has left is read in place of what the segments say. */
int staging_open(struct segment_set *set, struct staging **ret, struct cistern_error *err);
/* Waits for what is staged. The region goes, unless something could not be written. Before the segments are closed. */
void staging_destroy(struct staging *st);

/* Is buf the memory of a slot that its user may stage now? */
bool staging_owns(struct staging *st, const void *buf);
/*
 * Stages buf, which staging_owns(), for off in seg; takes over one user of seg. It is written later, in any order. False
 * (nothing taken over): staging has come to an end, write it yourself.
 */
bool staging_put(struct staging *st, const void *buf, size_t len, uint32_t crc, struct segment *seg, uint64_t off);
/*
 * Reads at off when that is staged: true, and how many bytes (at most len) in *ret_len. False: read the segment itself, and
 * not more than *ret_len bytes at once.
 */
bool staging_read(struct staging *st, uint32_t segment, uint64_t off, void *buf, size_t len, size_t *ret_len);
bool staging_has(struct staging *st, uint32_t segment);
/* Until nothing is on its way that was staged before the call: of one segment, or (0) of all. -EIO: it could not be written. */
int staging_wait(struct staging *st, uint32_t segment);
bool staging_is_idle(struct staging *st);
int staging_error(struct staging *st); /* 0, or -EIO for ever */
/* Read-only sets: a descriptor of a copy of the segment, with what is staged; the caller closes it. */
int staging_copy_fd(struct staging *st, uint32_t segment);

#endif
