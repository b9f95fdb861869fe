/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_SEND_H
#define FS_JOB_SEND_H

/* What commit.c sends to domain homes, and to its witness: send.c. */

#include "fs/job/share.h"

struct layer_list {              /* of a layer, with stamps */
	struct layer_extent *at; /* owned */
	size_t num, cap;
};

struct parcel; /* send.c's */
struct sending {
	struct job *j;
	uint64_t ino, stamp, base;
	uint32_t num_nodes;
	bool tell;            /* do not wait for them, if that can be helped */
	bool witness;         /* nor for long */
	bool hint;            /* nor send again what they do not get */
	struct parcel *parts; /* owned, one for each node */
	struct fan fan;
};

/* One commit's extents, or what several commits have left, to the domain homes; all have answered. 0, or an error of one of them. */
int send_list(struct job *j, struct shared *s, const struct layer_list *l, const struct commit_bases *b);
/* To the witness what lies in our own domains. durable: waits for it, if that can be hoped for. */
void send_witness(struct job *j, struct shared *s, const struct layer_list *l, bool durable);
/* The same in two steps: witness_end(), behind 0 alone, waits. -ECONNRESET: to be sent again. */
int witness_begin(struct sending *out, struct job *j, struct shared *s, const struct layer_list *l, bool durable);
int witness_end(struct sending *out);
/* At the domain home, or the witness. */
void send_serve_put(struct job *j, struct peers_request *rq);

#endif
