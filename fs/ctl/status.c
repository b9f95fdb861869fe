/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The status reply: every figure is read from who owns it, at the moment of asking. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "fs/ctl/private.h"

#ifndef CISTERN_VERSION
#define CISTERN_VERSION "0"
#endif

static void put_texts(struct ctl *c, struct wire_msg *reply)
{
	static const char *const states[] = { "mounted", "draining", "unmounted" };

	wire_put_str(reply, WIRE_BACKING, store_superblock(c->opt.store)->backing);
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

static void put_drain(struct ctl *c, struct wire_msg *reply)
{
	struct drain_status st;

	drain_status(c->opt.drain, &st);
	wire_put_u64(reply, WIRE_DRAINING, st.draining);
	wire_put_u64(reply, WIRE_PAUSED, st.paused);
	wire_put_u64(reply, WIRE_PLANNED_BYTES, st.progress.planned_bytes);
	wire_put_u64(reply, WIRE_DONE_BYTES, st.progress.done_bytes);
	wire_put_u64(reply, WIRE_PLANNED_FILES, st.progress.planned_files);
	wire_put_u64(reply, WIRE_DONE_FILES, st.progress.done_files);
	wire_put_str(reply, WIRE_CURRENT_PATH, st.draining ? st.progress.path : "");
	wire_put_u64(reply, WIRE_LAST_RESULT, (uint64_t)st.last_result);
	wire_put_u64(reply, WIRE_ERRORS, st.num_errors);
	drain_each_error(c->opt.drain, put_error, reply);
}

void ctl_put_status(struct ctl *c, struct wire_msg *reply)
{
	wire_put_u64(reply, WIRE_PID, (uint64_t)getpid());
	wire_put_u64(reply, WIRE_UPTIME_USEC, (uint64_t)(drain_now_usec() - c->started_usec));
	wire_put_u64(reply, WIRE_PASSTHROUGH, atomic_load(c->opt.passthrough));
	put_texts(c, reply);
	put_space(c, reply);
	put_totals(c, reply);
	put_drain(c, reply);
}
