/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_FETCH_H
#define FS_DRAIN_FETCH_H

/*
 * Payload of other nodes for this node's draining process, in memory that it shares: a few slots, so that it can work on one
 * while the others are filled. begin and wait: one thread at a time; reset: any.
 */

#include <stddef.h>
#include <stdint.h>

#include "fs/peer/peer.h"

struct fetch;

int fetch_create(struct peers *peers, struct fetch **ret); /* peers: borrowed */
/*
 * Begins to bring ranges (their to is not looked at), one behind the other, to a slot. Waits for memory, when there is none.
 * -EBUSY: the slot's last fetch has not been waited for; -EINVAL: no such slot, or too many bytes; -ESTALE: reset meanwhile;
 * errors of peers_get_async.
 */
int fetch_begin(struct fetch *f, uint64_t slot, const struct peers_get *ranges, size_t num);
/* Waits until it is there. *ret_off: where in the memory, valid until the slot's next fetch. -ENOENT: nothing was begun; or why not. */
int fetch_wait(struct fetch *f, uint64_t slot, uint64_t *ret_off);
void fetch_reset(struct fetch *f);   /* gives all memory back, whatever is under way */
void fetch_destroy(struct fetch *f); /* after peers_shut_down; NULL is fine */

#endif
