/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_SEGMENT_SEGMENT_H
#define FORMAT_SEGMENT_SEGMENT_H

/*
 * The data log: segment/NNNNNNNN.seg hold payload only, appended in the order of arrival, preallocated; large
 * payloads (>= SEGMENT_ALIGN_FROM bytes) begin at a multiple of 4096. segment/NNNNNNNN.prv are private segments: one
 * file's data at their own offsets, written by the kernel (FUSE passthrough) or by the daemon. Offsets within a .seg
 * are never used twice. A .seg has no header: what its bytes are, the journal says.
 *
 * Thread-safe: any function from any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cistern/error.h"
#include "format/base/io.h"

#define SEGMENT_FAILED     "user.cistern.failed" /* xattr of a private segment's file */
#define SEGMENT_BLOCK      4096u
#define SEGMENT_ALIGN_FROM 4096u

#define SEGMENT_SLOT_BYTES (1u << 20) /* payload that a staging slot holds at most */
#define SEGMENT_SLOT_LEAD  2048u      /* so many bytes before its memory are its user's, too */
#define SEGMENT_SLOTS_MIN  4u
#define SEGMENT_STAGE_FROM (64u << 10) /* smaller payloads are copied */

struct segment_set;

/*
 * Staging (docs/design/staging.md): large payloads are acknowledged in shared memory and written to the device by threads of
 * the set, past the page cache. What a dead process had staged is found there again.
 */
struct segment_staging_options {
	const uint8_t *uuid; /* of the store, 16 bytes; NULL: nothing is staged, nothing looked for */
	uint32_t owner;      /* of the store */
	uint64_t bytes;      /* of memory for payloads; 0: nothing is staged, but what is found is used */
	const char *dir;     /* tests: where the region lies; NULL: /dev/shm */
};

struct segment_options {
	uint64_t segment_bytes;                 /* size of a new .seg */
	bool write_out;                         /* start writing to the device as soon as 1 MiB is complete */
	bool read_only;                         /* tools: nothing is created, deleted or changed */
	struct segment_staging_options staging; /* its strings are borrowed during segment_set_open */
};

/*
 * Opens the folder (made if missing). Existing segments are listed; none is appended to: the first append begins a new one.
 * What a dead process had staged is written to its segments first; read_only: is read in place of them.
 */
int segment_set_open(
	struct io *io, const struct segment_options *opt, struct segment_set **ret, struct cistern_error *err);
void segment_set_destroy(struct segment_set *set);

/* Append a payload: 0 and where it is, or -ENOSPC (nothing taken), -EIO. The bytes are in the page cache on return. */
int segment_append(struct segment_set *set, const void *buf, size_t len, uint32_t *ret_segment, uint64_t *ret_off);
/*
 * The same for who knows the payload's CRC. When buf is the memory of a slot and len at least SEGMENT_STAGE_FROM, it is not
 * copied: the slot is taken, and buf must not be changed until it is given back.
 */
int segment_append_crc(
	struct segment_set *set, const void *buf, size_t len, uint32_t crc, uint32_t *ret_segment, uint64_t *ret_off);
/* Read exactly len bytes; -ENOENT: no such segment, -ENODATA: shorter. */
int segment_read(struct segment_set *set, uint32_t segment, uint64_t off, void *buf, size_t len);
/* A descriptor to read or splice from (dup'd: the caller closes it). Of a .seg: has what was staged before the call. */
int segment_open_fd(struct segment_set *set, uint32_t segment, bool writable);
/* All payloads appended before the call are on the device when it returns 0 (.seg only; private ones see below). */
int segment_sync(struct segment_set *set);
bool segment_needs_sync(struct segment_set *set); /* something was appended since the last segment_sync */

/* Until what was staged before the call is where other processes can read it. -EIO: something could not be written. */
int segment_settle(struct segment_set *set);

/*
 * Slots: page-aligned memory of SEGMENT_SLOT_BYTES, for one thread each to receive payloads in. NULL: none is free (wait: nor
 * will be soon). Any thread. Give it back when the payload in it is done with, taken or not.
 */
void *segment_slot_get(struct segment_set *set, bool wait);
bool segment_slot_taken(struct segment_set *set, const void *slot); /* by segment_append_crc */
void segment_slot_put(struct segment_set *set, void *slot);
uint32_t segment_slots(struct segment_set *set); /* how many there are */
/* Payloads of a dead process: written to their segments by segment_set_open, or (read_only) found and read from there. */
uint64_t segment_found_staged(struct segment_set *set);

/* A new private segment, empty. */
int segment_create_private(struct segment_set *set, uint32_t *ret_segment);
/*
 * After a loss of power: that one, of at least so many bytes. 0: it is as it was. 1: it had not been there, or was shorter; what is new
 * are zeros, durable as those of a new one. read_only: one that is not there counts as empty from now on, and *ret_bytes says how much
 * there is.
 */
int segment_restore_private(struct segment_set *set, uint32_t segment, uint64_t bytes, uint64_t *ret_bytes);
/* Data, size and the directory entry. When it has failed it fails from then on: what the kernel did with the pages is not known. */
int segment_sync_private(struct segment_set *set, uint32_t segment);
/*
 * -EIO: the device could not take all that the kernel wrote to it, by itself or by a sync; from then on for every process, by the xattr
 * SEGMENT_FAILED of its file. Syncs nothing.
 */
int segment_check_private(struct segment_set *set, uint32_t segment);
/*
 * Has anybody a private segment open for writing, or mapped so, who is not this set? What
 * segment_open_fd gave for writing counts. 0: nobody, or there is no such segment. 1: somebody.
 * -errno: as lease_find_writer().
 */
int segment_find_writer(struct segment_set *set, uint32_t segment);
int segment_private_size(
	struct segment_set *set, uint32_t segment, uint64_t *ret_size, uint64_t *ret_allocated, int64_t *ret_mtime_ns);

/* Give back a range: whole blocks inside it are punched. Only when no durable or coming state refers to it. */
int segment_punch(struct segment_set *set, uint32_t segment, uint64_t off, uint64_t len);
/* Delete a segment (open descriptors stay usable). A .seg that is being appended to is sealed first. */
int segment_remove(struct segment_set *set, uint32_t segment);
bool segment_is_open_for_append(struct segment_set *set, uint32_t segment);

/* Ids: of all that exist, in order; and the lowest that new ones may take (raise only). */
int segment_list(
	struct segment_set *set, int (*each)(uint32_t segment, bool is_private, uint64_t bytes, void *arg), void *arg);
void segment_reserve_ids(struct segment_set *set, uint32_t next_id);
/* Bytes that the segments occupy on the device (allocation, private ones as last looked at by segment_private_size). */
uint64_t segment_allocated_bytes(struct segment_set *set);
uint64_t segment_free_in_open(struct segment_set *set); /* bytes still unused in the .seg being appended to */

#endif
