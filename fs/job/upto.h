/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_UPTO_H
#define FS_JOB_UPTO_H

/* Up to which of this node's writes to a shared file a session gives back what it has carried (docs/design/write-times.md). */

#include <stdint.h>

#include "format/index/state.h"

/* Up to which they are covered by commits up to stamp; 0: none is. 0, -ENOMEM, or -errno of the index. */
int upto_committed(struct state *st, uint64_t ino, uint64_t stamp, uint64_t *ret);
/*
 * Lowers *upto below what was committed with a later stamp: that stays in the maps, which lead to this node's segments. Errors as above;
 * *upto may be 0 then: nothing is given back.
 */
int upto_settled(struct state *st, uint64_t ino, uint64_t stamp, uint64_t *upto);
/*
 * Lowers *upto below what was written to the file after the session had begun, at time_usec of the job's clock (0: no session). Another
 * node may have written under it before, and not have committed that yet: so it stays in map and layer, though it may have been
 * carried, and will win again. Errors as above; *upto may be lower then.
 */
int upto_before(struct state *st, uint64_t ino, uint64_t time_usec, uint64_t *upto);

#endif
