/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_SIM_H
#define TESTS_LIB_SIM_H

/*
 * A simulated disk behind the I/O seam (format/base/io.h), to lose power, fail and fill up on command. Every file has
 * two images: what programs see, and what is on the platter.
 *
 * io_ops.sync makes the file's data, size and creation durable; sync_dir makes what happened to the names in that
 * directory durable (and whatever that depends on: earlier operations on the same names, the mkdir of the folders
 * above). Nothing else does. Names are files or directories; directories cannot be renamed or removed.
 *
 * A mapping is the visible image itself; stores to it need no call, as with the real thing. A store beyond the end of
 * the file may crash the program, as it would there.
 *
 * "Changing calls" are: open when it creates or cuts off, unlink, rename, mkdir, sync_dir, pwrite, sync, allocate,
 * punch, truncate. Both kinds of sync count as syncs. One mutex makes all of it thread-safe.
 */

#include <stdint.h>

#include "format/base/io.h"

#define SIM_SECTOR_BYTES 512

struct sim;

/* An empty disk. *ret_io is borrowed from it; io_destroy() on that does nothing. */
int sim_create(struct sim **ret_sim, struct io **ret_io);
/* Frees all, also files still open and mapped: none of them may be used any more. NULL is fine. */
void sim_destroy(struct sim *sim);

/* The largest possible file, for files not yet made; a multiple of 1 MiB, 1 GiB by default. Only address space. */
void sim_set_file_limit(struct sim *sim, uint64_t bytes);
/* The disk's size (0: endless). Data that is there already stays. Blocks of 4096 bytes are counted. */
void sim_set_capacity(struct sim *sim, uint64_t bytes);

/*
 * Power is lost and comes back. Of what was not synced: each sector is kept, dropped, or (rarely) left half old and
 * half new; sizes are the old, the new or something between; names keep a random prefix of what happened to them. The
 * same seed and history give the same disk. Open files and mappings become stale: calls on them give -EIO, stores go
 * nowhere; they still must be unmapped and closed. Ends a stop and a failure that has not come yet. 0 or -ENOMEM.
 */
int sim_power_cut(struct sim *sim, uint64_t seed);

/*
 * The n-th changing call from now (1: the next one) fails with error (EIO, ENOSPC, ...), once. A write that fails so
 * has written its first half. n = 0: never.
 */
void sim_fail_after(struct sim *sim, uint64_t n, int error);
/* Likewise num calls, one behind the other. */
void sim_fail_for(struct sim *sim, uint64_t n, uint64_t num, int error);
/*
 * When the k-th sync from now (1: the next one) begins, the device stops: that sync and every later call of any kind
 * gives -EIO, and nothing that happens later, stores to mappings included, reaches the disk. Then sim_power_cut().
 */
void sim_stop_at_sync(struct sim *sim, uint64_t k);
uint64_t sim_calls(struct sim *sim); /* changing calls so far, failed ones included */
uint64_t sim_syncs(struct sim *sim); /* syncs so far, failed ones included */

/* A byte of the disk (both images) is xor'ed, behind everybody's back. -ENOENT, -EINVAL when the file is shorter. */
int sim_corrupt(struct sim *sim, const char *path, uint64_t off, uint8_t xor_byte);

#endif
