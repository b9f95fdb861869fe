/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_NC4_PARCEL_H
#define MPI_AGENT_NC4_PARCEL_H

/*
 * A file of packed chunks: a helper's share of a netCDF-4 file, on its way to the one that puts the file together. It lives as
 * long as one drain session, so both ends are the same version of Cistern; what is in it is believed only as far as it
 * names its place, and the file that is made is compared with the classic one in the end.
 *
 * All is little-endian. First "CISNC4P1", u32 which, u32 num (of struct nc4_share), u32 fingerprint, u32 0; then packed chunks,
 * one behind the other; then the table: for each, in order, u64 number, u64 offset, u32 bytes, u32 filter mask; at the end u64
 * offset of the table, u64 chunks, u32 CRC32C of the table and of what stands before this in the last 32 bytes, u32 0,
 * "CISNC4PE".
 */

#include <stdbool.h>
#include <stdint.h>

#include "format/base/cursor.h"
#include "mpi-agent/nc4/pack.h"

struct parcel_writer { /* zero-initialised = empty */
	int fd;        /* borrowed: an empty file */
	uint64_t at, chunks;
	struct buf table;
};
int parcel_begin(struct parcel_writer *w, int fd, const struct nc4_shape *s, const struct nc4_share *share);
int parcel_add(struct parcel_writer *w, const struct packed *p); /* in the order of their numbers */
int parcel_end(struct parcel_writer *w);                         /* without it the file is of no use */
void parcel_free(struct parcel_writer *w);

struct parcel;
/*
 * Reads the table. 0; -EBADMSG: it is not whole, or not of that share of that shape; -ENOMEM, errors of reading. fd is borrowed
 * until parcel_close().
 */
int parcel_open(int fd, const struct nc4_shape *s, const struct nc4_share *share, struct parcel **ret);
/* The chunks' numbers in order; UINT64_MAX: no more. */
uint64_t parcel_next(const struct parcel *p);
/* The next chunk's bytes, borrowed until the following call; number, bytes, len, filter_mask are set. -EIO, -ENOMEM. */
int parcel_take(struct parcel *p, struct packed *ret);
void parcel_close(struct parcel *p); /* NULL is fine */

#endif
