/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_CARRY_H
#define FS_DRAIN_CARRY_H

/*
 * This node's share in the drains of a job of many nodes: a drain manager that carries out parts (the carrier), and the
 * collective that tells it which. The manager that people and the mount talk to asks here for sessions of the job.
 */

#include "cistern/error.h"
#include "fs/drain/collective.h"
#include "fs/drain/drain.h"
#include "fs/job/job.h"

struct carry;

struct carry_options {
	struct drain_options drain; /* the carrier's; its ask and job are ours to set */
	struct job *job;            /* borrowed, as all below */
	struct peers *peers;
	int memory_fd;               /* of what their buffers lie in */
	uint64_t leave_timeout_usec; /* how long the last session waits for nodes that are still mounted */
};

int carry_create(const struct carry_options *opt, struct carry **ret, struct cistern_error *err);
void carry_destroy(struct carry *c); /* after peers_shut_down; NULL is fine */
struct drain *carry_carrier(struct carry *c);
struct drain_ask carry_ask(struct carry *c);                /* for the manager that asks */
void carry_set_asker(struct carry *c, struct drain *asker); /* who gets the answers; before it asks */
struct collective *carry_collective(struct carry *c);

#endif
