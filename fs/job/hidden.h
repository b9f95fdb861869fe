/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_HIDDEN_H
#define FS_JOB_HIDDEN_H

/* Which names of the backing directory's a directory that may go does not show: hidden.c. */

#include "fs/job/private.h"

#define HIDDEN_PAGE_BYTES (256u << 10) /* of an answer, about; job->hidden_page_bytes */

/* A node answers PREPARE, with what it hides in dir (0: nothing), if rc is 0; and whatever asks for more of it (TREE_HIDDEN). */
void hidden_reply(struct job *j, struct peers_request *rq, uint64_t dir, int rc);
void hidden_serve(struct job *j, struct peers_request *rq);

/* Of all nodes, at node 0. */
struct hidden {
	struct job *j;
	uint64_t dir;
	/* hidden.c's; the arrays are owned */
	struct buf names;
	struct hidden_rest *rests;
	struct hidden_name *sorted;
	size_t num_rests, rests_cap, num, cap;
};
void hidden_take(
	uint32_t node, const struct wire_msg *reply, void *arg); /* an answer to PREPARE; arg: the struct hidden */
/* When all have been taken: what the nodes have to say besides. 0, or why that was not possible; -EBUSY: again. Waits. */
int hidden_gather(struct hidden *h);
bool hidden_has(const struct hidden *h, const char *name);
void hidden_free(struct hidden *h);

#endif
