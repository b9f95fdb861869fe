/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The status reply: every figure is read from who owns it, at the moment of asking. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/ctl/private.h"

#ifndef CISTERN_VERSION
#define CISTERN_VERSION "0"
#endif

static void put_texts(struct ctl *c, struct wire_msg *reply)
{
	static const char *const states[] = { "mounted", "draining", "unmounted" };
	char backing[PATH_MAX];

	core_backing_path(c->opt.core, backing);
	wire_put_str(reply, WIRE_BACKING, backing);
	wire_put_str(reply, WIRE_MOUNTPOINT, c->opt.mountpoint);
	wire_put_str(reply, WIRE_STORE, store_path(c->opt.store));
	wire_put_str(reply, WIRE_STATE, states[atomic_load(&c->state)]);
	wire_put_str(reply, WIRE_RECOVERED, c->opt.recovered);
	wire_put_str(reply, WIRE_VERSION_TEXT, CISTERN_VERSION);
}

static void put_space(struct ctl *c, struct wire_msg *reply)
{
	struct store_space space = { 0 };

	if (store_space(c->opt.store, &space) == 0) {
		wire_put_u64(reply, WIRE_CAPACITY, space.capacity_bytes);
		wire_put_u64(reply, WIRE_USED, space.used_bytes);
		wire_put_u64(reply, WIRE_FREE, space.free_bytes);
	}
}

static void put_totals(struct ctl *c, struct wire_msg *reply)
{
	struct state_totals totals;
	struct core_stats stats;
	uint64_t write_rate, drain_rate;

	state_totals(store_state(c->opt.store), &totals);
	core_stats(c->opt.core, &stats);
	maintain_rates(c->opt.maintain, &write_rate, &drain_rate);
	wire_put_u64(reply, WIRE_DIRTY_BYTES, totals.log_bytes + stats.private_bytes);
	wire_put_u64(reply, WIRE_DIRTY_FILES, totals.dirty_files);
	wire_put_u64(reply, WIRE_DRAINED_BYTES, totals.drained_bytes);
	wire_put_u64(reply, WIRE_DRAINED_FILES, totals.drained_files);
	wire_put_u64(reply, WIRE_WRITTEN_BYTES, totals.written_bytes + stats.private_bytes);
	wire_put_u64(reply, WIRE_SAVED_BYTES, totals.saved_bytes);
	wire_put_u64(reply, WIRE_THROUGH_BYTES, totals.through_bytes);
	wire_put_u64(reply, WIRE_LOG_BYTES, totals.log_bytes);
	wire_put_u64(reply, WIRE_PRIVATE_BYTES, stats.private_bytes);
	wire_put_u64(reply, WIRE_PRIVATE_FILES, totals.private_files);
	wire_put_u64(reply, WIRE_EXTENTS, totals.extents);
	wire_put_u64(reply, WIRE_INDEX_BYTES, totals.index_bytes);
	wire_put_u64(reply, WIRE_OPEN_FILES, stats.open_files);
	wire_put_u64(reply, WIRE_CACHED_READS, stats.read_bytes);
	wire_put_u64(reply, WIRE_WRITE_RATE, write_rate);
	wire_put_u64(reply, WIRE_DRAIN_RATE, drain_rate);
}

static void put_error(const char *path, int code, const char *text, void *arg)
{
	char line[STORE_PATH_MAX + CISTERN_ERROR_TEXT_BYTES];
	struct wire_msg *reply = arg;

	if (reply->body.len > WIRE_MAX_BYTES / 2) /* the count says that there are more */
		return;
	snprintf(line, sizeof(line), "%s: %s", path, text);
	wire_put_str(reply, WIRE_ERROR_TEXT, line);
}

/* Of a job's drain: this node's part of it, and whom it waits for. */
static void add_part(struct ctl *c, struct drain_status *st, struct wire_msg *reply)
{
	char waiting[CISTERN_ERROR_TEXT_BYTES];
	struct drain_status part;

	drain_status(carry_carrier(c->opt.carry), &part);
	st->progress = part.progress;
	st->share_percent = part.share_percent;
	st->num_errors += part.num_errors;
	drain_each_error(carry_carrier(c->opt.carry), put_error, reply);
	if (part.draining)
		return;
	collective_waits_for(carry_collective(c->opt.carry), waiting, sizeof(waiting));
	if (*waiting)
		wire_put_str(reply, WIRE_WAITING, waiting);
}

static void put_drain(struct ctl *c, struct wire_msg *reply)
{
	struct drain_status st;

	drain_status(c->opt.drain, &st);
	if (c->opt.carry)
		add_part(c, &st, reply);
	wire_put_u64(reply, WIRE_DRAINING, st.draining);
	wire_put_u64(reply, WIRE_PAUSED, st.paused);
	wire_put_u64(reply, WIRE_TIME_SHARE, st.share_percent);
	wire_put_u64(reply, WIRE_PLANNED_BYTES, st.progress.planned_bytes);
	wire_put_u64(reply, WIRE_DONE_BYTES, st.progress.done_bytes);
	wire_put_u64(reply, WIRE_VERIFY_BYTES, st.progress.verify_bytes);
	wire_put_u64(reply, WIRE_VERIFIED_BYTES, st.progress.verified_bytes);
	wire_put_u64(reply, WIRE_PLANNED_FILES, st.progress.planned_files);
	wire_put_u64(reply, WIRE_DONE_FILES, st.progress.done_files);
	wire_put_str(reply, WIRE_CURRENT_PATH, st.draining ? st.progress.path : "");
	wire_put_u64(reply, WIRE_LAST_RESULT, (uint64_t)st.last_result);
	wire_put_u64(reply, WIRE_ERRORS, st.num_errors);
	drain_each_error(c->opt.drain, put_error, reply);
}

#define MISSING_MAX    64 /* nodes that are named */
#define SILENT_SECONDS 10

static void put_missing(struct peers *p, const struct peers_node *n, struct wire_msg *reply)
{
	char name[PEERS_HOST_BYTES + 32], line[PEERS_HOST_BYTES + 128];

	snprintf(line, sizeof(line), "%s: %s", peers_name(p, n->node, name, sizeof(name)),
		n->gone ? "its daemon has ended" : "its daemon has not come back");
	wire_put_str(reply, WIRE_MISSING, line);
}

/* It is there, but does not answer: since when, and how much waits for it. False: it does. */
static bool put_silent(struct peers *p, const struct peers_node *n, struct wire_msg *reply)
{
	char name[PEERS_HOST_BYTES + 32], line[PEERS_HOST_BYTES + 320];
	uint64_t silent = n->silent_usec / 1000000, owed = n->owed_usec / 1000000;

	if (!n->present || silent < SILENT_SECONDS)
		return false;
	snprintf(line, sizeof(line),
		"%s: nothing has come from it for %" PRIu64 " s; calls of this node that wait for it: %" PRIu32
		", since %" PRIu64
		" s. If it hangs, what needs it goes on when it does, or node_timeout after its daemon was killed",
		peers_name(p, n->node, name, sizeof(name)), silent, n->num_owed, owed);
	wire_put_str(reply, WIRE_MISSING, line);
	return true;
}

static void put_nodes(struct peers *p, struct wire_msg *reply)
{
	struct peers_node nodes[64];
	uint32_t first = 0, missing = 0, silent = 0;
	size_t num;

	while ((num = peers_nodes(p, first, nodes, sizeof(nodes) / sizeof(nodes[0]))) > 0) {
		for (size_t i = 0; i < num; i++) {
			wire_put_str(reply, WIRE_NODE_NAME, nodes[i].host);
			if ((nodes[i].gone || nodes[i].missing_usec) && missing++ < MISSING_MAX)
				put_missing(p, &nodes[i], reply);
			if (silent < MISSING_MAX)
				silent += put_silent(p, &nodes[i], reply);
		}
		first += (uint32_t)num;
	}
}

static void put_trouble(const char *text, void *arg)
{
	wire_put_str(arg, WIRE_MISSING, text);
}

static void put_job(struct ctl *c, struct wire_msg *reply)
{
	struct peer_agent_status st;

	if (!c->opt.agent)
		return;
	peer_agent_status(c->opt.agent, &st);
	wire_put_str(reply, WIRE_JOB, store_superblock(c->opt.store)->job);
	wire_put_u64(reply, WIRE_NODES, st.nodes);
	if (st.numbered)
		wire_put_u64(reply, WIRE_NODE, st.node);
	if (st.pid && st.assembled)
		wire_put_u64(reply, WIRE_AGENT_PID, (uint64_t)st.pid);
	wire_put_u64(reply, WIRE_AGENT_USEC, st.since_usec);
	if (*st.refused)
		wire_put_str(reply, WIRE_MISSING, st.refused);
	put_nodes(peer_agent_peers(c->opt.agent), reply);
	job_troubles(c->opt.job, put_trouble, reply);
}

static void put_stragglers(struct ctl *c, struct wire_msg *reply)
{
	char line[CISTERN_ERROR_TEXT_BYTES];
	size_t num;
	struct straggler *list = core_stragglers(c->opt.core, &num);

	for (size_t i = 0; i < num && reply->body.len < WIRE_MAX_BYTES / 2; i++) {
		wire_put_str(reply, WIRE_STRAGGLER_TEXT, straggler_line(&list[i], line, sizeof(line)));
	}
	free(list);
}

void ctl_put_status(struct ctl *c, struct wire_msg *reply)
{
	wire_put_u64(reply, WIRE_PID, (uint64_t)getpid());
	wire_put_u64(reply, WIRE_UPTIME_USEC, (uint64_t)(drain_now_usec() - c->started_usec));
	wire_put_u64(reply, WIRE_PASSTHROUGH, atomic_load(c->opt.passthrough));
	put_texts(c, reply);
	put_space(c, reply);
	put_totals(c, reply);
	put_job(c, reply);
	put_drain(c, reply);
	put_stragglers(c, reply);
}
