/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Node 0 may have lost the end of its journal with the power, and another node have it: those changes of the tree are done, so their numbers must
 * not be given to others. It learns them before anything else is done (sequence.c). What no node has any more is nowhere; a node whose changes
 * cannot be had from it serves no names (lag.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/job/private.h"

#define AGAIN_USEC 20000

static void take_stamp(uint32_t node, const struct wire_msg *reply, void *arg)
{
	uint64_t *stamps = arg;

	stamps[node] = reply ? message_get(reply, MESSAGE_STAMP) : 0;
}

static bool all_have_said(const int *status, uint32_t num)
{
	for (uint32_t i = 0; i < num; i++)
		if (status[i] < 0 && status[i] != -EHOSTDOWN && status[i] != -ESHUTDOWN)
			return false;
	return true;
}

/* The number of the last change that each node has; 0 of those that are given up. */
static int ask_stamps(struct job *j, uint64_t *stamps)
{
	uint32_t num = peers_count(j->peers);
	int *status = calloc(num, sizeof(*status));
	struct wire_msg m = { 0 };

	message_init(&m, MESSAGE_TREE_STAMP);
	while (status && !j->ending) {
		(void)peers_call_all(j->peers, &m, status, take_stamp, stamps);
		if (all_have_said(status, num))
			break;
		usleep(AGAIN_USEC);
	}
	wire_msg_free(&m);
	free(status);
	return status ? 0 : -ENOMEM;
}

/* Our last change, and what that node has under its number, are they one? Or has it changes that were lost, and made anew while it was away? */
static bool is_of_ours(struct job *j, uint64_t last, const struct wire_msg *reply)
{
	uint64_t ours = tree_log_time(j, last), theirs = message_get(reply, MESSAGE_TIME);

	return !ours || !theirs || ours == theirs;
}

/* Some of what that node's tree has and ours has not; -ENODATA: it has not kept that, or it is of another tree. */
static int learn_some(struct job *j, uint32_t node)
{
	uint64_t before = state_tree_stamp(j->state);
	struct wire_msg m = { 0 }, reply = { 0 };

	message_init(&m, MESSAGE_TREE_RECORDS);
	message_put(&m, MESSAGE_STAMP, before);
	int rc = peers_call(j->peers, node, &m, &reply);
	if (rc == 0 && !is_of_ours(j, before, &reply))
		rc = -ENODATA;
	if (rc == 0) {
		rc = tree_apply(j, &reply);
		if (rc == -EILSEQ)
			rc = state_tree_stamp(j->state) > before ? 0 : -ENODATA;
	}
	wire_msg_free(&m);
	wire_msg_free(&reply);
	return rc;
}

static int learn_from(struct job *j, uint32_t node, uint64_t upto)
{
	uint64_t had = state_tree_stamp(j->state);
	char name[128];
	int rc = 0;

	while (rc == 0 && state_tree_stamp(j->state) < upto && !j->ending) {
		rc = learn_some(j, node);
		if (rc == -ECONNRESET || rc == -ETIMEDOUT || rc == -EAGAIN) {
			usleep(AGAIN_USEC);
			rc = 0;
		}
	}
	if (had < upto)
		job_log(j, rc < 0, "tree_learned", "node=\"%s\" from=%llu upto=%llu of=%llu status=%d",
			peers_name(j->peers, node, name, sizeof(name)), (unsigned long long)had,
			(unsigned long long)state_tree_stamp(j->state), (unsigned long long)upto, rc);
	return rc == -ENODATA || rc == -EHOSTDOWN || rc == -ESHUTDOWN ? 0 : rc;
}

int learn_lost(struct job *j)
{
	uint32_t num = peers_count(j->peers);
	uint64_t *stamps = calloc(num, sizeof(*stamps)), had = state_tree_stamp(j->state);
	int rc = stamps ? ask_stamps(j, stamps) : -ENOMEM;

	for (uint32_t i = 0; i < num && rc == 0; i++)
		rc = learn_from(j, i, stamps[i]);
	if (state_tree_stamp(j->state) > had) {
		names_tree_grown(j->names);
		lag_tree_grown(j);
	}
	free(stamps);
	return rc;
}
